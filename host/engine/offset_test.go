package engine_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/registry/registrytest"
)

// TestOffsetWhileTheListOfRunsIsGone: a guest whose host's list of runs was
// deleted by hand can commit its offset again within seconds.
func TestOffsetWhileTheListOfRunsIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		d := definition("offsets", "0 0 * * * ?", 1)
		begun, deleted, codes := make(chan struct{}), make(chan struct{}), make(chan []abi.Code, 1)
		g := &guest{digest: "offsets", run: func(ctx context.Context, inv *abi.Invocation) abi.Result {
			begun <- struct{}{}
			<-deleted
			var list []abi.Code
			for range 10 {
				list = append(list, inv.Host.CommitOffset(ctx, []byte("5")))
				time.Sleep(time.Second)
			}
			codes <- list
			return ok
		}}
		n := c.start(1, job(d, g))
		<-begun
		rc, err := c.server.Connect(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := rc.Commit(t.Context(), registry.Delete("/test.wasmjob/offsets/runs/"+n.host.Status().Instance, registry.AnyVersion)); err != nil {
			t.Fatal(err)
		}
		close(deleted)
		if got := <-codes; got[0] != abi.ErrUnavailable || got[len(got)-1] != abi.OK {
			t.Errorf("commits of offsets: %v; expected %v at first and %v at last", got, abi.ErrUnavailable, abi.OK)
		}
		if err := rc.Close(); err != nil {
			t.Error(err)
		}
	})
}

// An offset that was staged is not put in the place of a newer one, the commit of
// which took effect and was not heard of.
func TestOffset_unknownOutcomeIsNotUndone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		var bad, lost atomic.Bool
		c.wrap = func(_ int, l *lease) registry.Center {
			return planned(l, func(op string) registrytest.Fault {
				switch {
				case !bad.Load():
					return registrytest.NoFault
				case op == "commit" && lost.CompareAndSwap(false, true):
					return registrytest.LostAnswer
				}
				return registrytest.Refused
			})
		}
		var code atomic.Int64
		g := &guest{digest: "o", run: func(ctx context.Context, inv *abi.Invocation) abi.Result {
			inv.Host.StageOffset(ctx, []byte("1"))
			bad.Store(true)
			code.Store(int64(inv.Host.CommitOffset(ctx, []byte("2"))))
			bad.Store(false)
			return abi.Result{Outcome: abi.OutcomeOK}
		}}
		d := definition("j", "0 0 * * * ?", 1)
		c.start(1, job(d, g))
		time.Sleep(time.Hour + 2*time.Minute)
		if got := abi.Code(code.Load()); got != abi.ErrUnavailable {
			t.Fatalf("the commit returned %v, want %v", got, abi.ErrUnavailable)
		}
		if got := string(c.nodes(registry.Data("/test.wasmjob/j/offset/0"))[0].Data); got != "2" {
			t.Errorf("the offset is %q, want that of the commit, 2\n%s", got, c.all())
		}
	})
}
