package engine_test

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/host/engine"
)

func TestRemove_broughtBackByAnotherHost(t *testing.T) {
	for _, purge := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			c := newCluster(t)
			d := definition("j", "0 * * * * ?", 2)
			d.Failover = true
			var l lone
			g := l.guest(func(item int) time.Duration { return time.Duration(item) * 3 * time.Minute })
			a := c.start(1, job(d, g))
			time.Sleep(30 * time.Second)
			b := c.start(2) // a bystander, for now
			time.Sleep(35 * time.Second)
			if err := a.operator().Remove(t.Context(), "j", purge); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
			d.Description = "another one" // the one that was removed would stay so
			b.host.Apply([]engine.Job{job(d, g)}, nil)
			time.Sleep(10 * time.Minute)
			if !purge {
				l.check(t, c) // a purge forgets who runs what
			}
			before := len(c.starts(1))
			time.Sleep(10 * time.Minute)
			if after := len(c.starts(1)); after <= before {
				t.Errorf("purge %v: item 1 has not begun in 10 minutes\n%s", purge, c.all())
			}
			// The first host has come back, too, and nothing of its former life is left.
			in := c.nodes(registry.Children("/test.wasmjob/j/instances"), registry.Children("/test.wasmjob/j/runs"),
				registry.Children("/test.wasmjob/j/assignment"), registry.Data("/test.wasmjob/j/members"))
			for _, n := range in {
				names := n.Names
				if n.Children == false {
					names = strings.Fields(string(n.Data))
				}
				back := slices.ContainsFunc(names, func(id string) bool { return strings.HasPrefix(id, "10.0.0.1@") && strings.HasSuffix(id, "-2") })
				if len(names) != 2 || !back {
					t.Errorf("purge %v: %s holds %v, want the second host, and the first in its second life", purge, n.Path, names)
				}
			}
		})
	}
}

func TestRemove_backWhenItsOldRunsHaveEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		d := definition("j", "0 0 * * * ?", 1)
		g := sleeper(30 * time.Second)
		n := c.start(1, job(d, g))
		time.Sleep(time.Hour + time.Second)
		if err := n.operator().Remove(t.Context(), "j", false); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		d.Description = "back"
		n.host.Apply([]engine.Job{job(d, g)}, nil)
		time.Sleep(30 * time.Second)
		if s := n.host.Status().Jobs[0]; s.State != engine.JobReady || len(s.Items) != 1 {
			t.Errorf("status %+v, want ready two seconds after the run ended\n%s", s, c.all())
		}
	})
}

func TestRemove_owesNothingWhenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		d := definition("j", "0 * * * * ?", 1)
		g := sleeper(time.Second)
		n := c.start(1, job(d, g))
		time.Sleep(65 * time.Second)
		if err := n.operator().Remove(t.Context(), "j", false); err != nil {
			t.Fatal(err)
		}
		time.Sleep(150 * time.Second) // 3:35
		d.Description = "back"
		n.host.Apply([]engine.Job{job(d, g)}, nil)
		time.Sleep(10 * time.Second)
		if got := c.starts(0); len(got) != 1 {
			t.Errorf("started %q: instants during which the job was removed are not due\n%s", got, c.all())
		}
		time.Sleep(30 * time.Second)
		if got := c.starts(0); len(got) != 2 {
			t.Errorf("started %q\n%s", got, c.all())
		}
	})
}
