package coordination_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	co "github.com/wasmjob/wasmjob/coordination"
	"github.com/wasmjob/wasmjob/coordination/jobconfig"
	"github.com/wasmjob/wasmjob/coordination/registry"
)

// runningJava is two hosts of ours and a Java host that runs its share of a job with
// failover.
func runningJava(t *testing.T) (*chronicle, []*simHost, *javaPeer) {
	t.Helper()
	c, h := group(t, 2, func(cfg *jobconfig.Configuration) { cfg.Failover = true })
	j := c.addJava("J", "10.0.0.9")
	j.start()
	j.rest()
	c.settle()
	c.now = c.now.Add(10 * time.Second)
	j.due()
	j.rest()
	if len(j.executing) == 0 {
		t.Fatal("the Java host runs nothing")
	}
	return c, h, j
}

// TestShutdownOfAJavaHost: its running marks are persistent with failover, so
// that without its instance node they look as those of a host that crashed.
func TestShutdownOfAJavaHost(t *testing.T) {
	t.Parallel()
	t.Run("it runs", func(t *testing.T) {
		c, _, j := runningJava(t)
		err := c.operate(moves.StopInstance(c.layout, j.id))
		if !errors.Is(err, co.ErrJavaRuns) || !strings.Contains(err.Error(), j.executing.String()) || !strings.Contains(err.Error(), "--server 10.0.0.9") {
			t.Errorf("shutdown while it runs %s: %v", j.executing, err)
		}
		if !j.joined() {
			t.Fatal("its instance node was removed")
		}
		j.finish = true
		j.rest()
		must(t, c.operate(moves.StopInstance(c.layout, j.id)))
		if j.joined() {
			t.Error("its instance node is still there")
		}
	})
	t.Run("it begins meanwhile", func(t *testing.T) {
		c, _, j := runningJava(t)
		items := slices.Clone(j.executing)
		j.finish = true
		j.rest()
		op := c.op
		defer func() { c.op = op }()
		c.op = beforeCommits{Center: op, do: func() {
			c.now = c.now.Add(10 * time.Second)
			j.due()
			j.rest()
		}}
		if err := c.operate(moves.StopInstance(c.layout, j.id)); !errors.Is(err, co.ErrJavaRuns) {
			t.Errorf("shutdown while it begins %s: %v", items, err)
		}
		if !j.joined() {
			t.Error("its instance node was removed")
		}
	})
	t.Run("without failover", func(t *testing.T) {
		c, _, j := runningJava(t)
		for _, i := range j.executing { // as it makes them then
			must(t, second(j.rc.Commit(c.ctx, registry.Delete(c.mark(i, "running"), registry.AnyVersion))))
			must(t, second(j.rc.Commit(c.ctx, registry.CreateEphemeral(c.mark(i, "running"), []byte(j.id)))))
		}
		must(t, c.operate(moves.StopInstance(c.layout, j.id)))
	})
	t.Run("ours", func(t *testing.T) {
		c, h, _ := runningJava(t)
		c.now = c.now.Add(10 * time.Second)
		must(t, h[0].look())
		must(t, h[0].fire(c.now))
		if len(h[0].running()) == 0 {
			t.Fatal("ours runs nothing")
		}
		must(t, c.operate(moves.StopInstance(c.layout, h[0].Self.ID)))
	})
}

// TestSweepLeavesTheRunsOfAJavaHostThatLives: the instance node of a Java host that
// runs is removed by a console. Another ephemeral node of its session shows that it
// lives; when that is gone too, its runs are taken over.
func TestSweepLeavesTheRunsOfAJavaHostThatLives(t *testing.T) {
	t.Parallel()
	for _, proof := range []string{"another job", "a failover mark", ""} {
		t.Run(proof, func(t *testing.T) {
			c, h, j := runningJava(t)
			items := slices.Clone(j.executing)
			var nodes []string
			switch proof {
			case "another job":
				nodes = []string{co.NewLayout(c.layout.Namespace, "other").Root() + "/instances/" + j.id}
			case "a failover mark":
				nodes = []string{c.mark(items[0], "failover")}
			}
			for _, path := range nodes {
				must(t, second(j.rc.Commit(c.ctx, registry.Ensure(path[:strings.LastIndex(path, "/")]), registry.CreateEphemeral(path, []byte(j.id)))))
			}
			c.hand(registry.Delete(c.layout.Root()+"/instances/"+j.id, registry.AnyVersion))
			take := func() (taken co.Items, lives bool) {
				c.settle()
				for _, p := range h {
					must(t, p.look())
					var swept co.Swept
					must(t, p.perform(moves.Sweep(&p.Member, c.now, &swept)))
					lives = swept.JavaLives
					c.settle()
					taken = append(taken, p.running()...)
				}
				slices.Sort(taken)
				return taken, lives
			}
			if proof != "" {
				taken, lives := take()
				if len(taken) > 0 {
					t.Errorf("%s were taken, which the Java host runs", taken)
				}
				if !lives {
					t.Error("the sweep does not report that a Java host lives without its instance node")
				}
				for _, i := range items {
					if n := c.node(c.mark(i, "running")); string(n.Data) != j.id {
						t.Errorf("running mark of %d: %q", i, n.Data)
					}
				}
				j.executing = nil
				c.server.Expire(t, j.rc)
			} else {
				j.executing = nil // nothing shows that it lives
			}
			taken, lives := take()
			if !slices.Equal(taken, items) {
				t.Errorf("%s were taken of %s, whose host is gone", taken, items)
			}
			if lives {
				t.Error("the sweep reports a Java host that is gone")
			}
		})
	}
}

// beforeCommits lets something happen before each commit.
type beforeCommits struct {
	registry.Center
	do func()
}

func (b beforeCommits) Commit(ctx context.Context, ops ...registry.Op) ([]registry.Result, error) {
	b.do()
	return b.Center.Commit(ctx, ops...)
}
