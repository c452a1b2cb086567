package host_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/registrytest"
	"github.com/wasmjob/wasmjob/host"
	"github.com/wasmjob/wasmjob/host/event"
)

func TestLeave_finishesWhatRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		g := sleeper(20 * time.Second)
		n := c.start(1, job(definition("long", "0 0 * * * ?", 1), g))
		time.Sleep(time.Hour + time.Second)
		n.host.Apply(nil, nil)
		time.Sleep(10 * time.Minute)
		if done := c.list(event.ItemCompleted); len(done) != 1 || done[0].Outcome != abi.OutcomeOK {
			t.Errorf("completed: %s, want the item that ran when the definition went\n%s", lines(done), c.all())
		}
		if jobs := n.host.Status().Jobs; len(jobs) != 0 || g.inUse() != 0 {
			t.Errorf("jobs %+v, %d uses", jobs, g.inUse())
		}
	})
}

func TestLeave_beforeTheFirstSnapshot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.wrap = func(_ int, l *lease) registry.Center { return &slow{lease: l, news: 5 * time.Second} }
		n := c.start(1, job(definition("j", "", 1), sleeper(time.Second)))
		time.Sleep(time.Second)
		n.host.Apply(nil, nil)
		time.Sleep(time.Second)
		if in := c.nodes(registry.Children("/test/j/instances"), registry.Data("/test.wasmjob/j/members")); len(in[0].Names) > 0 || len(in[1].Data) > 0 {
			t.Errorf("instances %v, members %q after the host has left", in[0].Names, in[1].Data)
		}
	})
}

func TestLeave_afterAHalfwayJoin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.wrap = func(_ int, l *lease) registry.Center {
			return planned(l, func(op string) registrytest.Fault {
				if op == "watch" {
					return registrytest.Refused
				}
				return registrytest.NoFault
			})
		}
		n := c.start(1, job(definition("j", "", 1), sleeper(time.Second)))
		time.Sleep(time.Second)
		n.host.Apply(nil, nil)
		time.Sleep(5 * time.Second)
		if in := c.nodes(registry.Children("/test/j/instances"), registry.Data("/test.wasmjob/j/members")); len(in[0].Names) > 0 || len(in[1].Data) > 0 {
			t.Errorf("instances %v, members %q after the host has left", in[0].Names, in[1].Data)
		}
	})
}

func TestLeave_othersReshardForTheLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		d := definition("j", "0 * * * * ?", 4)
		g := &guest{digest: "g", run: func(ctx context.Context, inv *abi.Invocation) abi.Result {
			d := time.Second
			if inv.Context.ShardingItem == 0 {
				d = 10 * time.Minute
			}
			select {
			case <-time.After(d):
			case <-ctx.Done():
			}
			return ok
		}}
		a := c.start(1, job(d, g))
		time.Sleep(65 * time.Second)
		a.host.Apply(nil, nil)
		time.Sleep(time.Second)
		b := c.start(2, job(d, g))
		time.Sleep(10 * time.Second)
		if s := b.host.Status().Jobs[0]; len(s.Items) != 3 {
			t.Errorf("10 seconds after the leader began to leave the other has %+v, want the three idle items\n%s", s, c.all())
		}
		time.Sleep(15 * time.Minute)
		if s := b.host.Status().Jobs[0]; len(s.Items) != 4 {
			t.Errorf("the other has %+v, want all\n%s", s, c.all())
		}
	})
}

func TestLeave_takenBackGetsItsShare(t *testing.T) {
	for pause := time.Duration(0); pause < 4*time.Second; pause += 90 * time.Millisecond {
		synctest.Test(t, func(t *testing.T) {
			c := newCluster(t)
			c.wrap = func(_ int, l *lease) registry.Center {
				return &slow{lease: l, call: 100 * time.Millisecond, news: 50 * time.Millisecond}
			}
			d := definition("j", "0 * * * * ?", 4)
			var l lone
			g := l.guest(func(int) time.Duration { return 30 * time.Second })
			c.start(1, job(d, g))
			time.Sleep(10 * time.Second)
			b := c.start(2, job(d, g))
			time.Sleep(60 * time.Second)
			b.host.Apply(nil, nil)
			time.Sleep(pause)
			b.host.Apply([]host.Job{job(d, g)}, nil)
			time.Sleep(80 * time.Second) // another fire
			time.Sleep(30 * time.Second)
			if s := b.host.Status().Jobs; len(s) != 1 || len(s[0].Items) != 2 {
				t.Errorf("back after %s: %+v, want two items\n%s", pause, s, c.all())
			}
			l.check(t, c)
		})
		if t.Failed() {
			return
		}
	}
}

func TestLeave_takenBackWhenItsOutcomeIsUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		var bad atomic.Int32 // the registrytest.Fault of every call
		c.wrap = func(_ int, l *lease) registry.Center {
			return planned(l, func(op string) registrytest.Fault {
				if op == "commit" {
					return registrytest.Fault(bad.Load())
				}
				return registrytest.NoFault
			})
		}
		d := definition("j", "0 * * * * ?", 1)
		g := sleeper(time.Second)
		n := c.start(1, job(d, g))
		time.Sleep(65 * time.Second)
		bad.Store(int32(registrytest.LostAnswer))
		n.host.Apply(nil, nil)
		time.Sleep(500 * time.Millisecond)
		bad.Store(int32(registrytest.NoFault))
		n.host.Apply([]host.Job{job(d, g)}, nil)
		time.Sleep(10 * time.Second)
		if s := n.host.Status().Jobs[0]; s.State != host.JobReady || len(s.Items) != 1 {
			t.Errorf("status %+v, want ready\n%s", s, c.all())
		}
	})
}
