package engine_test

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/coordination/jobconfig"
)

// granted is a guest whose executors know what they are granted, and who signed them.
type granted struct {
	*guest
	statuses *atomic.Int64 // counts those that ask
}

func (g granted) Executor(jobconfig.Configuration) (abi.Executor, error) {
	g.Retain()
	return g, nil
}

func (g granted) Grants() []string {
	g.statuses.Add(1)
	return []string{"kv", "net tcp://db:5432"}
}

func (granted) Signer() string { return "release" }

// The status of a job has what it is granted, who signed its module, and what its last
// run did outside.
func TestStatusOfWhatIsOutside(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		g := granted{statuses: new(atomic.Int64), guest: &guest{digest: "calls", run: func(context.Context, *abi.Invocation) abi.Result {
			return abi.Result{Outcome: abi.OutcomeOK, Outside: map[string]abi.OutsideCount{"net": {Calls: 2, Failed: 1, FailedTargets: []string{"db:5432"}}}}
		}}}
		j := job(definition("calls", "*/20 * * * * ?", 1), g.guest)
		j.Module = g
		n := c.start(1, j)
		time.Sleep(30 * time.Second)
		s := n.host.Status().Jobs[0]
		if !slices.Equal(s.Granted, []string{"kv", "net tcp://db:5432"}) || s.Signer != "release" {
			t.Errorf("granted %v, signed by %q", s.Granted, s.Signer)
		}
		if net := s.Items[0].LastOutside["net"]; net.Calls != 2 || !slices.Equal(net.FailedTargets, []string{"db:5432"}) {
			t.Errorf("outside: %+v", s.Items[0].LastOutside)
		}
		// It is put together again when something happens, and not before.
		asked := g.statuses.Load()
		if n.host.Status(); g.statuses.Load() != asked {
			t.Error("the status of a job that rests was put together twice")
		}
		before := s.Items[0].LastEnd
		time.Sleep(20 * time.Second)
		if s = n.host.Status().Jobs[0]; !s.Items[0].LastEnd.After(before) {
			t.Errorf("20 s later the last run ended at %v, as before", before)
		}
	})
}
