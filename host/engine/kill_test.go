package engine_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/coordination/admin/operate"
	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/tree"
	"github.com/wasmjob/wasmjob/host/control/admin"
	"github.com/wasmjob/wasmjob/host/engine"
	"github.com/wasmjob/wasmjob/host/event"
)

// polite is a guest that runs until it is asked to end.
func polite(asked *atomic.Int32) *guest {
	return &guest{digest: "polite", run: func(ctx context.Context, inv *abi.Invocation) abi.Result {
		for {
			select {
			case <-ctx.Done():
				return abi.Result{Outcome: abi.OutcomeCancelled, Message: "forced"}
			case <-time.After(100 * time.Millisecond):
			}
			if c := inv.Host.Cancelled(); c != abi.CancelNone {
				asked.Store(int32(c))
				return abi.Result{Outcome: abi.OutcomeCancelled, Message: "as asked"}
			}
		}
	}}
}

// operate carries out a move for an operator, in a session of its own.
func (c *cluster) operate(step func(context.Context, registry.Center) error) error {
	c.t.Helper()
	rc, err := c.server.Connect(context.Background())
	if err != nil {
		c.t.Fatal(err)
	}
	defer rc.Close()
	return step(context.Background(), rc)
}

// kill asks for the end of what runs; item -1 is all.
func (c *cluster) kill(name string, item int, run string, grace time.Duration) []operate.KillTarget {
	c.t.Helper()
	var out []operate.KillTarget
	k := operate.Killing{Layout: tree.NewLayout("test", name), Item: item, Run: run, By: "tester", Grace: grace, Now: time.Now()}
	if err := c.operate(func(ctx context.Context, r registry.Center) (err error) {
		out, err = operate.AskKill(ctx, r, k)
		return err
	}); err != nil {
		c.t.Fatal(err)
	}
	return out
}

// asked are the items whose runs are asked to end.
func (c *cluster) asked(name string) (items tree.Items) {
	l := tree.NewLayout("test", name)
	for _, child := range c.nodes(registry.Children(l.Records()))[0].Names {
		if i, ok := tree.ItemNumber(child); ok && tree.ParseRecord(c.nodes(registry.Data(l.Record(i)))[0].Data).Kill.Asked() {
			items = append(items, i)
		}
	}
	return items
}

func TestKill(t *testing.T) {
	t.Parallel()
	t.Run("guests end when they are asked to", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			c := newCluster(t)
			d := definition("j", "0 0 * * * ?", 4)
			d.Failover = true
			var asked atomic.Int32
			c.start(1, job(d, polite(&asked)))
			c.start(2, job(d, polite(&asked)))
			time.Sleep(time.Hour + 10*time.Second)
			at := time.Now()
			if targets := c.kill("j", -1, "", 5*time.Second); len(targets) != 4 {
				t.Fatalf("%v are meant, want four runs", targets)
			}
			time.Sleep(2 * time.Second)
			done := c.list(event.ItemCompleted)
			for _, e := range done {
				if e.Outcome != abi.OutcomeCancelled || !strings.Contains(e.Reason, "an operator killed it (tester) at ") ||
					!strings.HasSuffix(e.Reason, "its guest ended by itself") || e.Time.Sub(at) > time.Second {
					t.Errorf("%s", lines([]event.Event{e}))
				}
			}
			if len(done) != 4 || abi.Cancel(asked.Load()) != abi.CancelAbort {
				t.Errorf("%d runs were ended, and guests were told %d\n%s", len(done), asked.Load(), c.all())
			}
			if left := c.asked("j"); len(left) > 0 {
				t.Errorf("the kill stays with %v", left)
			}
			ended := c.list(event.FireEnded)
			if len(ended) != 2 || slices.ContainsFunc(ended, func(e event.Event) bool { return e.Outcome != abi.OutcomeCancelled }) {
				t.Errorf("a fire of killed runs ended with %s", lines(ended))
			}
			// Nothing of it runs again before the next instant.
			time.Sleep(50 * time.Minute)
			if n := len(c.list(event.ItemStarted)); n != 4 {
				t.Errorf("%d runs were started, want none after the kill\n%s", n, c.all())
			}
			time.Sleep(10 * time.Minute)
			if n := len(c.list(event.ItemStarted)); n != 8 {
				t.Errorf("%d runs were started, want the next fire as usual\n%s", n, c.all())
			}
		})
	})
	t.Run("by force, and what waits at once", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			c := newCluster(t)
			c.config = func(cfg *engine.Config) { cfg.MaxConcurrency = 2 }
			d := definition("j", "0 0 * * * ?", 6)
			hog := definition("hog", "0 59 0 * * ?", 1)
			stubborn := &guest{digest: "stubborn", run: func(ctx context.Context, _ *abi.Invocation) abi.Result {
				<-ctx.Done()
				return abi.Result{Outcome: abi.OutcomeCancelled, Message: "job_execute: cancelled: stopped"}
			}}
			n := c.start(1, job(d, stubborn), job(hog, sleeper(3*time.Hour)))
			completed := func() []event.Event {
				return slices.DeleteFunc(c.list(event.ItemCompleted), func(e event.Event) bool { return e.Job != "j" })
			}
			time.Sleep(time.Hour + 10*time.Second) // one runs, one waits for a slot, four for a worker
			at := time.Now()
			c.kill("j", 5, "", time.Minute)
			time.Sleep(time.Second)
			done := completed()
			if len(done) != 1 || *done[0].Item != 5 || !strings.HasSuffix(done[0].Reason, "it had not started") {
				t.Fatalf("an item that waits: %s", lines(done))
			}
			c.kill("j", -1, "", 5*time.Second)
			time.Sleep(time.Second)
			if done = completed(); len(done) != 5 {
				t.Errorf("of those that wait %d have ended, want five in all\n%s", len(done), c.all())
			}
			time.Sleep(5 * time.Second)
			forced := 0
			for _, e := range completed() {
				if strings.HasSuffix(e.Reason, "its guest was stopped by force") {
					if forced++; e.Time.Sub(at) < 6*time.Second {
						t.Errorf("before its grace was over: %s", lines([]event.Event{e}))
					}
				}
			}
			if started := len(c.list(event.ItemStarted)); forced != 1 || started != 2 {
				t.Errorf("%d were stopped by force, %d started\n%s", forced, started, c.all())
			}
			for _, e := range c.list(event.ItemEnded) {
				if e.Job == "j" && e.Reason != "an operator killed the run, and its grace is over" {
					t.Errorf("the end of the guest: %s", lines([]event.Event{e}))
				}
			}
			if jobs := n.host.Status().Jobs; jobs[1].State != engine.JobReady {
				t.Errorf("the job is %s", jobs[1].State)
			}
			time.Sleep(time.Hour) // its slot is free again
			if got := len(c.list(event.ItemStarted)); got != 3 {
				t.Errorf("%d were started, want one of the next fire\n%s", got, c.all())
			}
		})
	})
	t.Run("between two attempts", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			c := newCluster(t)
			d := definition("j", "0 0 * * * ?", 1)
			d.Props["wasm.retry.backoff"] = "10m"
			g := &guest{digest: "again", run: func(context.Context, *abi.Invocation) abi.Result { return abi.Result{Outcome: abi.OutcomeRetry} }}
			c.start(1, job(d, g))
			time.Sleep(time.Hour + time.Minute)
			c.kill("j", 0, "", 5*time.Second)
			time.Sleep(30 * time.Minute)
			done := c.list(event.ItemCompleted)
			if len(done) != 1 || done[0].Outcome != abi.OutcomeCancelled || len(c.list(event.ItemStarted)) != 1 {
				t.Errorf("%s", c.all())
			}
		})
	})
	t.Run("the work was done", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			c := newCluster(t)
			c.start(1, job(definition("j", "0 0 * * * ?", 1), sleeper(12*time.Second)))
			time.Sleep(time.Hour + 10*time.Second)
			c.kill("j", 0, "", 5*time.Second)
			time.Sleep(time.Minute)
			if done := c.list(event.ItemCompleted); len(done) != 1 || done[0].Outcome != abi.OutcomeOK {
				t.Errorf("%s", c.all())
			}
		})
	})
	// It is killed before its host watches for that, and ends before it would.
	t.Run("a later run is not meant", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			c := newCluster(t)
			c.start(1, job(definition("j", "0 * * * * ?", 1), sleeper(900*time.Millisecond)))
			time.Sleep(time.Minute + 500*time.Millisecond)
			targets := c.kill("j", -1, "", 0)
			if len(targets) != 1 || !slices.Equal(c.asked("j"), tree.Items{0}) {
				t.Fatalf("targets %v, asked %v", targets, c.asked("j"))
			}
			time.Sleep(time.Second)
			if left := c.asked("j"); len(left) > 0 {
				t.Errorf("the kill stays with %v", left)
			}
			run := tree.RunID("j", targets[0].Fire, 0)
			if none := c.kill("j", -1, run, 0); len(none) != 0 {
				t.Errorf("run %s is over, and %v are meant", run, none)
			}
			time.Sleep(time.Minute)
			done := c.list(event.ItemCompleted)
			if len(done) != 2 || slices.ContainsFunc(done, func(e event.Event) bool { return e.Outcome != abi.OutcomeOK }) {
				t.Errorf("want both to end well\n%s", c.all())
			}
		})
	})
	// It is killed before its host watches for that.
	t.Run("as soon as it has run for a second", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			c := newCluster(t)
			c.start(1, job(definition("j", "0 * * * * ?", 1), sleeper(10*time.Second)))
			time.Sleep(time.Minute + 500*time.Millisecond)
			c.kill("j", -1, "", 0)
			time.Sleep(time.Second)
			if done := c.list(event.ItemCompleted); len(done) != 1 || done[0].Outcome != abi.OutcomeCancelled {
				t.Errorf("%s", c.all())
			}
		})
	})
	// The host has not looked when it stops: what waits is handed back, and does not run elsewhere.
	t.Run("the host leaves", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			c := newCluster(t)
			c.config = func(cfg *engine.Config) { cfg.MaxConcurrency = 1 }
			d := definition("j", "0 0 * * * ?", 3)
			d.Failover = true
			n := c.start(1, job(d, sleeper(900*time.Millisecond)))
			time.Sleep(time.Hour + 500*time.Millisecond)
			if targets := c.kill("j", -1, "", 0); len(targets) != 3 {
				t.Fatalf("%v are meant", targets)
			}
			n.stop()
			<-n.done
			if left := c.asked("j"); len(left) > 0 {
				t.Errorf("the kill stays with %v", left)
			}
			c.start(2, job(d, sleeper(time.Second)))
			time.Sleep(time.Minute)
			killed := 0
			for _, e := range c.list(event.ItemCompleted) {
				if strings.HasSuffix(e.Reason, "its host handed it back") && e.Outcome == abi.OutcomeCancelled {
					killed++
				}
			}
			if started := len(c.list(event.ItemStarted)); started != 1 || killed != 2 {
				t.Errorf("%d were started and %d ended, want one and two\n%s", started, killed, c.all())
			}
		})
	})
	t.Run("the session ends", func(t *testing.T) {
		t.Parallel()
		for heard, late := range map[string]time.Duration{"before it has heard": 0, "while its guests have their grace": time.Second} {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t)
				d := definition("j", "0 0 * * * ?", 2)
				d.Failover = true
				c.start(1, job(d, sleeper(3*time.Hour)))
				time.Sleep(time.Hour + 10*time.Second)
				c.kill("j", -1, "", 5*time.Second)
				time.Sleep(late)
				c.expire(c.hosts["10.0.0.1"])
				time.Sleep(time.Minute)
				if n := len(c.list(event.ItemStarted)); n != 2 {
					t.Errorf("%s: %d were started: a killed run was taken over\n%s", heard, n, c.all())
				}
				if left := c.asked("j"); len(left) > 0 {
					t.Errorf("the kill stays with %v", left)
				}
			})
		}
	})
}

// TestAShutdownThatIsTakenBack: a host is to come back while what an operator has
// stopped still has its grace; it does when that is over.
func TestAShutdownThatIsTakenBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		layout := tree.NewLayout("test", "j")
		d := definition("j", "0 * * * * ?", 1)
		g := sleeper(50 * time.Second)
		n := c.start(1, job(d, g))
		time.Sleep(time.Minute + 2*time.Second)
		if err := c.operate(func(ctx context.Context, r registry.Center) error {
			return stopInstance(ctx, r, layout, c.nodes(registry.Children(layout.Root() + "/instances"))[0].Names[0])
		}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		if err := n.host.Start(t.Context(), "j", tree.Word{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Minute) // it may come back a minute after it was stopped
		if done := len(c.list(event.ItemCompleted)); done < 2 {
			t.Errorf("%d runs were completed, expected two after the shutdown\n%s", done, c.all())
		}
	})
}

// TestEndsInItsGrace: whatever takes a job from a host, its runs have the drain
// timeout to end, however long they would take.
func TestEndsInItsGrace(t *testing.T) {
	t.Parallel()
	layout := tree.NewLayout("test", "j")
	for name, leave := range map[string]func(c *cluster, n *node) error{
		"definition deleted": func(_ *cluster, n *node) error { n.host.Apply(nil, nil); return nil },
		"shut down": func(c *cluster, _ *node) error {
			return c.operate(func(ctx context.Context, r registry.Center) error {
				return stopInstance(ctx, r, layout, c.nodes(registry.Children(layout.Root() + "/instances"))[0].Names[0])
			})
		},
		"removed":            func(_ *cluster, n *node) error { return n.operator().Remove(context.Background(), "j", false) },
		"removed and purged": func(_ *cluster, n *node) error { return n.operator().Remove(context.Background(), "j", true) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t)
				d := definition("j", "", 3)
				d.Failover = true
				d.Props["wasm.maxConcurrency"] = "2"
				if name == "removed and purged" {
					d.ShardingTotalCount = 2 // nothing waits
				}
				g := sleeper(24 * time.Hour)
				n := c.start(1, job(d, g))
				synctest.Wait()
				if err := n.operator().Trigger(t.Context(), "j"); err != nil {
					t.Fatal(err)
				}
				time.Sleep(10 * time.Second)
				at := time.Now()
				if err := leave(c, n); err != nil {
					t.Fatal(err)
				}
				time.Sleep(29 * time.Second)
				if ended := c.list(event.ItemEnded); len(ended) != 0 {
					t.Fatalf("before the drain timeout: %s", lines(ended))
				}
				time.Sleep(2 * time.Second)
				for _, e := range c.list(event.ItemEnded) {
					if took := e.Time.Sub(at); took > 31*time.Second {
						t.Errorf("an item ended after %s", took)
					}
				}
				if ended := len(c.list(event.ItemEnded)); ended != 2 {
					t.Errorf("%d items have ended, want the two that ran\n%s", ended, c.all())
				}
				time.Sleep(2 * time.Minute)
				for _, j := range n.host.Status().Jobs {
					if slices.ContainsFunc(j.Items, func(i engine.ItemStatus) bool { return i.Running }) {
						t.Errorf("items run still: %+v", j)
					}
				}
				// The job comes back: what was removed is over, the rest goes on.
				again := d
				again.Description = "again"
				n.host.Apply([]engine.Job{job(again, g)}, nil)
				if name == "shut down" { // another definition alone does not take that back
					if err := n.host.Start(t.Context(), "j", tree.Word{}); err != nil {
						t.Fatal(err)
					}
				}
				time.Sleep(time.Minute)
				started, want := len(c.list(event.ItemStarted)), 4
				if strings.HasPrefix(name, "removed") {
					want = 2
				}
				if started != want {
					t.Errorf("%d items were started in all, want %d\n%s", started, want, c.all())
				}
				for _, e := range c.list(event.ItemHeld) {
					t.Errorf("its host did not die: %s", lines([]event.Event{e}))
				}
				n.kill()
				<-n.done
				if g.inUse() != 0 {
					t.Errorf("%d uses of the module are left", g.inUse())
				}
			})
		})
	}
}

// TestHeldBack: two hosts in a row die with an item.
func TestHeldBack(t *testing.T) {
	t.Parallel()
	for _, failover := range []bool{true, false} {
		t.Run(fmt.Sprintf("failover %v", failover), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t)
				d := definition("j", "0 * * * * ?", 2)
				d.Failover = failover
				var poison atomic.Bool
				poison.Store(true)
				g := &guest{digest: "poison", run: func(ctx context.Context, inv *abi.Invocation) abi.Result {
					if inv.Context.ShardingItem == 1 || !poison.Load() {
						return ok
					}
					<-ctx.Done()
					return abi.Result{Outcome: abi.OutcomeCancelled}
				}}
				// A host that has run item 0 for ten seconds is killed.
				deaths := 0
				die := func() {
					for name, n := range c.hosts {
						for _, i := range n.host.Status().Jobs[0].Items {
							if i.Item == 0 && i.Running {
								n.kill()
								<-n.done
								delete(c.hosts, name)
								deaths++
								return
							}
						}
					}
				}
				for n := range 5 {
					c.start(n+1, job(d, g))
				}
				for range 10 {
					time.Sleep(50 * time.Second)
					die()
				}
				held := c.list(event.ItemHeld)
				if deaths != 2 || len(held) != 1 || *held[0].Item != 0 || held[0].Outcome != tree.OutcomeHeld ||
					!strings.Contains(held[0].Reason, "2 hosts in a row died in its runs (10.0.0.") || !strings.Contains(held[0].Reason, "wasmjob job release j --item 0") {
					t.Fatalf("%d hosts died; held: %s\n%s", deaths, lines(held), c.all())
				}
				refused := 0
				for _, e := range c.list(event.ItemSkipped) {
					if *e.Item == 0 && strings.HasPrefix(e.Reason, "the item is held back since ") {
						refused++
					}
				}
				if refused < 4 {
					t.Errorf("%d instants tell that the item is held back\n%s", refused, c.all())
				}
				shows := 0
				for _, n := range c.hosts {
					for _, i := range n.host.Status().Jobs[0].Items {
						if !i.Held.IsZero() {
							shows++
						}
						if i.Item == 0 != !i.Held.IsZero() {
							t.Errorf("item %d is shown as held since %s", i.Item, i.Held)
						}
					}
				}
				if shows != 1 {
					t.Errorf("%d hosts show it", shows)
				}
				poison.Store(false)
				var out operate.Released
				if err := c.operate(func(ctx context.Context, r registry.Center) (err error) {
					out, err = operate.Release(ctx, r, tree.NewLayout("test", "j"), 0, time.Now())
					return err
				}); err != nil || !slices.Equal(out.Items, []int{0}) {
					t.Fatalf("release: %+v, %v", out, err)
				}
				since := time.Now()
				time.Sleep(2 * time.Minute)
				runs := 0
				for _, e := range c.list(event.ItemCompleted) {
					if *e.Item == 0 && e.Time.After(since) {
						if runs++; e.Outcome != abi.OutcomeOK || e.Source != abi.SourceSchedule {
							t.Errorf("%s", lines([]event.Event{e}))
						}
					}
				}
				if released := c.list(event.ItemReleased); len(released) != 1 || *released[0].Item != 0 || !strings.Contains(released[0].Reason, "operator") {
					t.Errorf("released: %s", lines(released))
				}
				if runs != 2 {
					t.Errorf("%d runs after the release, want one for each instant\n%s", runs, c.all())
				}
				for _, n := range c.hosts {
					for _, i := range n.host.Status().Jobs[0].Items {
						if !i.Held.IsZero() {
							t.Errorf("item %d is still shown as held", i.Item)
						}
					}
				}
			})
		})
	}
}

// TestTheDefinitionComesBackLate: guests were stopped by force because the
// definition had gone, and it is there again before they have ended.
func TestTheDefinitionComesBackLate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		var slow atomic.Bool
		slow.Store(true)
		g := &guest{digest: "late", run: func(ctx context.Context, _ *abi.Invocation) abi.Result {
			if !slow.Load() {
				if ctx.Err() != nil {
					t.Error("a guest is begun under a context that is over")
				}
				return ok
			}
			<-ctx.Done()
			time.Sleep(10 * time.Second)
			return abi.Result{Outcome: abi.OutcomeCancelled}
		}}
		wanted := job(definition("j", "", 1), g)
		n := c.start(1, wanted)
		synctest.Wait()
		if err := n.operator().Trigger(t.Context(), "j"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		n.host.Apply(nil, nil)
		time.Sleep(35 * time.Second)
		n.host.Apply([]engine.Job{wanted}, nil)
		time.Sleep(time.Minute)
		slow.Store(false)
		if err := n.operator().Trigger(t.Context(), "j"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		done := c.list(event.ItemCompleted)
		if len(done) != 2 || done[0].Outcome != abi.OutcomeCancelled || done[1].Outcome != abi.OutcomeOK {
			t.Errorf("%s", c.all())
		}
		// The next leaving has its own time.
		slow.Store(true)
		if err := n.operator().Trigger(t.Context(), "j"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		n.host.Apply(nil, nil)
		time.Sleep(29 * time.Second)
		if got := len(c.list(event.ItemEnded)); got != 2 {
			t.Errorf("the guest was stopped before its time\n%s", c.all())
		}
	})
}

// TestKillListener: a kill ends listeners that run, before the items and after them: they are asked, and stopped by force
// when the grace is over. It is recorded what was ended, and the job goes on at its next instant.
func TestKillListener(t *testing.T) {
	t.Parallel()
	politely := func(ctx context.Context, inv *abi.Invocation) abi.Result {
		for inv.Host.Cancelled() != abi.CancelAbort && ctx.Err() == nil {
			time.Sleep(100 * time.Millisecond)
		}
		return abi.Result{Outcome: abi.OutcomeCancelled, Message: "as asked"}
	}
	stubborn := func(ctx context.Context, _ *abi.Invocation) abi.Result {
		<-ctx.Done()
		return abi.Result{Outcome: abi.OutcomeCancelled, Message: "stopped"}
	}
	for name, c := range map[string]struct {
		export string
		attend func(context.Context, *abi.Invocation) abi.Result
		grace  time.Duration
		within time.Duration
		items  int // that are ended, too
		says   string
	}{
		"after the items, as asked":  {abi.ExportAfter, politely, 30 * time.Second, time.Second, 0, "its guest ended by itself"},
		"after the items, by force":  {abi.ExportAfter, stubborn, 5 * time.Second, 6 * time.Second, 0, "its guest was stopped by force"},
		"before the items, as asked": {abi.ExportBefore, politely, 30 * time.Second, time.Second, 2, "its guest ended by itself"},
		"once over all, at once":     {abi.ExportAfterOnce, stubborn, 0, time.Second, 0, "its guest was stopped by force"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				cl := newCluster(t)
				g := &guest{digest: "listens", run: func(context.Context, *abi.Invocation) abi.Result { return ok }, attend: c.attend,
					listeners: map[string]func(*abi.Invocation) abi.Result{c.export: func(*abi.Invocation) abi.Result { return ok }}}
				n := cl.start(1, job(definition("j", "0 0 * * * ?", 2), g))
				time.Sleep(time.Hour + 10*time.Second)
				at := time.Now()
				shows := func() []engine.ListenerStatus { return n.host.Status().Jobs[0].Listeners }
				if l := shows(); len(l) != 1 || l[0].Export != c.export || at.Sub(l[0].Since) > 10*time.Second || !l[0].Instant.Equal(at.Truncate(time.Hour)) {
					t.Errorf("the status has the listeners %+v", l)
				}
				kills, err := n.operator().Kill(t.Context(), "j", admin.KillOptions{Item: -1, By: "tester", Grace: c.grace, Wait: c.grace + 5*time.Second}, nil)
				if err != nil || kills.Open() != 0 || len(kills.Runs) != 1+c.items {
					t.Fatalf("%+v, %v\n%s", kills, err, cl.all())
				}
				if k := kills.Runs[0]; k.Listener != c.export || k.Item != -1 || k.State != admin.KillEnded || !strings.HasSuffix(k.RunID, "/-1") {
					t.Errorf("%+v", k)
				}
				if took := time.Since(at); took > c.within {
					t.Errorf("it took %s, expected at most %s", took, c.within)
				}
				said := cl.list(event.Listener)
				if len(said) != 1 || said[0].Outcome != abi.OutcomeCancelled || !strings.HasPrefix(said[0].Reason, c.export+": an operator killed it (tester) at ") || !strings.HasSuffix(said[0].Reason, c.says) {
					t.Errorf("%s", lines(said))
				}
				time.Sleep(time.Second)
				if left := cl.nodes(registry.Children(tree.NewLayout("test", "j").Listeners()))[0].Names; len(left) != 0 {
					t.Errorf("%q are left in the registry", left)
				}
				if l := shows(); len(l) != 0 {
					t.Errorf("the status has listeners that were ended: %+v", l)
				}
				// A later one is not meant.
				time.Sleep(time.Hour + 5*time.Second)
				if said := cl.list(event.Listener); len(said) != 1 {
					t.Errorf("the next listener was ended: %s", lines(said))
				}
				if kills, err := n.operator().Kill(t.Context(), "j", admin.KillOptions{Item: 0, Wait: time.Second}, nil); err != nil || slices.ContainsFunc(kills.Runs, func(k admin.Kill) bool { return k.Listener != "" }) {
					t.Errorf("of an item: %+v, %v", kills, err)
				}
			})
		})
	}
}

// TestShortListener: a listener that is over within a second costs the registry nothing.
func TestShortListener(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		g := &guest{digest: "listens", run: func(context.Context, *abi.Invocation) abi.Result { return ok },
			listeners: map[string]func(*abi.Invocation) abi.Result{abi.ExportAfter: func(*abi.Invocation) abi.Result { time.Sleep(900 * time.Millisecond); return ok }}}
		c.start(1, job(definition("j", "0 * * * * ?", 2), g))
		time.Sleep(5*time.Minute + 10*time.Second)
		if n := c.nodes(registry.Data(tree.NewLayout("test", "j").Listeners()))[0]; n.Exists || len(c.list(event.Listener)) != 5 {
			t.Errorf("%v, %d listeners", n.Exists, len(c.list(event.Listener)))
		}
	})
}
