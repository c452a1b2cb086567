package host_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/coordination/registry"
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
