package engine_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/registry/registrytest"
	"github.com/wasmjob/wasmjob/coordination/tree"
	"github.com/wasmjob/wasmjob/host/engine"
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
			b.host.Apply([]engine.Job{job(d, g)}, nil)
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
		n.host.Apply([]engine.Job{job(d, g)}, nil)
		time.Sleep(10 * time.Second)
		if s := n.host.Status().Jobs[0]; s.State != engine.JobReady || len(s.Items) != 1 {
			t.Errorf("status %+v, want ready\n%s", s, c.all())
		}
	})
}

// TestLeave_withAnItemUnfinished: a host that stops in good order while an item runs is not
// gone for the others, however they come to know of it; one that dies is.
func TestLeave_withAnItemUnfinished(t *testing.T) {
	drains := func(nodes ...*node) {
		for _, n := range nodes {
			n.stop()
		}
		for _, n := range nodes {
			<-n.done
		}
	}
	for _, c := range []struct {
		name     string
		failover bool
		ends     func(t *testing.T, first, second *node)
		stopped  []string // hosts of which the others say that they were stopped
		gone     bool
	}{
		{"one drains", true, func(_ *testing.T, first, _ *node) { drains(first) }, []string{"10.0.0.1"}, false},
		{"one drains, failover is off", false, func(_ *testing.T, first, _ *node) { drains(first) }, []string{"10.0.0.1"}, false},
		{"two drain at once", true, func(_ *testing.T, first, second *node) { drains(first, second) }, []string{"10.0.0.1", "10.0.0.2"}, false},
		{"an operator stops its instance", true, func(t *testing.T, first, _ *node) {
			if err := first.operator().Shutdown(t.Context(), "j", "10.0.0.1", ""); err != nil {
				t.Fatal(err)
			}
		}, []string{"10.0.0.1"}, false},
		{"one is killed", true, func(_ *testing.T, first, _ *node) { first.kill() }, nil, true},
		{"two are killed", true, func(_ *testing.T, first, second *node) { first.kill(); second.kill() }, nil, true},
	} {
		for _, call := range []time.Duration{0, 100 * time.Millisecond} {
			t.Run(c.name+"/"+call.String(), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					cl := newCluster(t)
					cl.config = func(cfg *engine.Config) { cfg.DrainTimeout = 5 * time.Second }
					cl.wrap = func(_ int, l *lease) registry.Center { return &slow{lease: l, call: call, news: call / 2} }
					d := definition("j", "", 8)
					d.Failover = c.failover
					var nodes []*node
					for n := range 4 {
						nodes = append(nodes, cl.start(n+1, job(d, sleeper(10*time.Minute))))
						time.Sleep(5 * time.Second)
					}
					if err := nodes[3].operator().Trigger(t.Context(), "j"); err != nil {
						t.Fatal(err)
					}
					time.Sleep(30 * time.Second)
					if n := len(cl.list(event.ItemStarted)); n != 8 {
						t.Fatalf("%d items run\n%s", n, cl.all())
					}
					c.ends(t, nodes[0], nodes[1])
					time.Sleep(time.Minute)
					if gone := cl.list(event.HostGone); len(gone) > 0 != c.gone {
						t.Errorf("gone: %s, want some: %t", lines(gone), c.gone)
					}
					said := make(map[string]bool)
					for _, e := range cl.list(event.FireStarted, event.ItemSkipped) {
						if e.Other != "" && strings.Contains(e.Reason, "left the job") {
							said[tree.ServerOf(e.Other)] = true
						}
					}
					if got := slices.Sorted(maps.Keys(said)); !slices.Equal(got, c.stopped) {
						t.Errorf("the others say that %v left the job, want %v\n%s", got, c.stopped, cl.all())
					}
				})
			})
		}
	}
}

// watchedModule counts how often it is asked what it is: once or twice each time that the loop
// of its job is given the job again.
type watchedModule struct {
	*guest
	asked atomic.Int64
}

func (m *watchedModule) Digest() string {
	m.asked.Add(1)
	return m.guest.Digest()
}

// TestLeave_manyJobsAtOnce shows that jobs that stay are not looked at each time that one of
// those that leave has left.
func TestLeave_manyJobsAtOnce(t *testing.T) {
	looked := func(leaving int) (n int64) {
		synctest.Test(t, func(t *testing.T) {
			c := newCluster(t)
			stays := &watchedModule{guest: sleeper(time.Second)}
			kept := job(definition("kept", "", 1), stays.guest)
			kept.Module = stays
			jobs := []engine.Job{kept}
			for i := range leaving {
				jobs = append(jobs, job(definition(fmt.Sprintf("j%03d", i), "", 1), sleeper(time.Second)))
			}
			h := c.start(1, jobs...)
			time.Sleep(time.Minute)
			before := stays.asked.Load()
			h.host.Apply(jobs[:1], nil)
			time.Sleep(time.Minute)
			if left := len(c.list(event.JobRemoved)); left != leaving {
				t.Fatalf("%d jobs have left, want %d", left, leaving)
			}
			n = stays.asked.Load() - before
		})
		return n
	}
	if few, many := looked(4), looked(64); many > 2*few+4 {
		t.Errorf("the job that stays was looked at %d times when 64 jobs left, %d times when 4 did", many, few)
	}
}

// TestLeave_saysWhatIsWrongWithTheModule reads the reason out of what refuses the definition.
func TestLeave_saysWhatIsWrongWithTheModule(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		var jobs []engine.Job
		for _, name := range []string{"a", `a "b"`, "c"} {
			jobs = append(jobs, job(definition(name, "", 1), sleeper(time.Second)))
		}
		h := c.start(1, jobs...)
		time.Sleep(time.Minute)
		h.host.Apply(nil, []engine.Refusal{
			{File: "x.yaml", Reasons: []string{"line 3: x: found job, expected more"}},
			{File: "y.yaml", Reasons: []string{`job "c": is one too many`}, Modules: map[string]string{`a "b"`: `"m.wasm": the file is refused`, "a": `"n.wasm": it has gone`}},
		})
		time.Sleep(time.Minute)
		got := make(map[string]string)
		for _, e := range c.list(event.JobRemoved) {
			got[e.Job] = e.Reason
		}
		want := map[string]string{"a": `its module "n.wasm": it has gone`, `a "b"`: `its module "m.wasm": the file is refused`, "c": "its definition is gone"}
		if !maps.Equal(got, want) {
			t.Errorf("reasons %q, want %q", got, want)
		}
	})
}
