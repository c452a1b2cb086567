package engine_test

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/coordination/jobconfig"
	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/tree"
	"github.com/wasmjob/wasmjob/host/engine"
	"github.com/wasmjob/wasmjob/host/event"
)

// dies runs two hosts with a job whose items take longer than its schedule
// leaves them, kills the second, and returns its death. Each host always has as
// many items running as the job may have.
func dies(t *testing.T, failover bool) (*cluster, time.Time) {
	c := newCluster(t)
	c.config = func(cfg *engine.Config) { cfg.MaxConcurrency = 100 }
	d := definition("busy", "0/10 * * * * ?", 8)
	d.Failover = failover
	d.Props[jobconfig.PropMaxConcurrency] = "2"
	g := sleeper(9 * time.Second)
	c.start(1, job(d, g))
	second := c.start(2, job(d, g))
	time.Sleep(20*time.Minute + 5*time.Second)
	second.kill()
	<-second.done
	return c, time.Now()
}

// A host that has no free worker for the job takes over what a dead one ran, and
// every item goes on in turn.
func TestFailover_busyHosts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, dead := dies(t, true)
		time.Sleep(5 * time.Minute)
		took, starts, last := 0, make(map[int]int), make(map[int]time.Time)
		for _, e := range c.list(event.ItemStarted) {
			if e.Time.Before(dead) {
				continue
			}
			if e.Source == abi.SourceFailover {
				took++
				if late := e.Time.Sub(dead); late > 40*time.Second {
					t.Errorf("item %d was taken over after %s, expected within one round of the eight items", *e.Item, late)
				}
			}
			// Eight items of nine seconds, two at once: a round takes 36 seconds.
			if since := e.Time.Sub(later(last[*e.Item], dead)); since > 50*time.Second {
				t.Errorf("item %d waited %s for its turn", *e.Item, since)
			}
			starts[*e.Item]++
			last[*e.Item] = e.Time
		}
		if took != 4 {
			t.Errorf("%d items were taken over, expected the 4 of the dead host\n%s", took, c.all())
		}
		for item := range 8 {
			if starts[item] < 7 {
				t.Errorf("item %d started %d times in five minutes, expected 7 or more", item, starts[item])
			}
		}
	})
}

// Of what waits for a worker of the job, the oldest instant comes first: what was
// taken over from a dead host before the host's own items.
func TestFailover_oldestInstantFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		d := definition("old", "0 * * * * ?", 20)
		d.Failover = true
		d.Props[jobconfig.PropMaxConcurrency] = "1"
		g := &guest{digest: "old", run: func(ctx context.Context, inv *abi.Invocation) abi.Result {
			if strings.Contains(inv.Context.TaskID, "10.0.0.2@") {
				return sleeper(time.Hour).run(ctx, inv)
			}
			return sleeper(3*time.Second).run(ctx, inv)
		}}
		c.start(1, job(d, g))
		second := c.start(2, job(d, g))
		time.Sleep(2*time.Minute + time.Second) // the first host has ten items waiting, the second as many of the instant before
		second.kill()
		<-second.done
		time.Sleep(time.Minute)
		took, between := 0, 0
		for _, e := range c.list(event.ItemStarted) {
			switch {
			case e.Source == abi.SourceFailover:
				took++
			case took > 0 && took < 10:
				between++
			}
		}
		if took != 10 || between > 0 {
			t.Errorf("%d items were taken over and started within a minute, and %d newer ones between them; expected 10 and 0\n%s", took, between, c.all())
		}
	})
}

// With failover off the runs are reported lost at once, however busy the others are.
func TestLostRuns_busyHosts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, dead := dies(t, false)
		time.Sleep(5 * time.Minute)
		lost := 0
		for _, e := range c.list(event.ItemSkipped) {
			if e.Outcome == tree.OutcomeLost {
				lost++
				if late := e.Time.Sub(dead); late > time.Second {
					t.Errorf("item %d was reported lost after %s", *e.Item, late)
				}
			}
		}
		if lost != 4 {
			t.Errorf("%d runs were reported lost, expected the 4 of the dead host\n%s", lost, c.all())
		}
	})
}

// A host with a free worker comes before one without.
func TestFailover_freeWorkerFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		d := definition("uneven", "0 0 * * * ?", 5) // two items for the first two hosts, one for the third
		d.Failover = true
		d.Props[jobconfig.PropMaxConcurrency] = "2"
		g := &guest{digest: "uneven", run: func(ctx context.Context, inv *abi.Invocation) abi.Result {
			if inv.Context.Source == abi.SourceFailover {
				return ok
			}
			return sleeper(20*time.Minute).run(ctx, inv)
		}}
		nodes := []*node{c.start(1, job(d, g)), c.start(2, job(d, g)), c.start(3, job(d, g))}
		time.Sleep(time.Hour + time.Minute)
		n := make(map[string]int)
		for _, e := range c.list(event.ItemStarted) {
			n[e.Host]++
		}
		var dead *node
		var free string
		for _, nd := range nodes {
			switch id := nd.host.Status().Instance; {
			case n[id] == 1:
				free = id
			case dead == nil:
				dead = nd
			}
		}
		dead.kill()
		<-dead.done
		time.Sleep(time.Minute)
		took := 0
		for _, e := range c.list(event.ItemStarted) {
			if e.Source == abi.SourceFailover {
				took++
				if e.Host != free {
					t.Errorf("item %d was taken over by %s, expected %s, which has a free worker", *e.Item, e.Host, free)
				}
			}
		}
		if took != 2 {
			t.Errorf("%d items were taken over and started within a minute, expected 2\n%s", took, c.all())
		}
	})
}

// What waits for a slot when its host drains runs on the next one, whatever
// misfire says, as it does when the host is killed; and also if no host is there
// for longer than the catch-up window.
func TestHandedBack(t *testing.T) {
	for _, away := range []time.Duration{0, 20 * time.Minute} {
		for _, misfire := range []bool{false, true} {
			t.Run(fmt.Sprint(away, misfire), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) { handedBack(t, away, misfire) })
			})
		}
	}
}

func handedBack(t *testing.T, away time.Duration, misfire bool) {
	c := newCluster(t)
	d := definition("deploy", "0 0 * * * ?", 8)
	d.Misfire, d.Failover = misfire, true
	d.Props[jobconfig.PropMaxConcurrency] = "1"
	g := sleeper(10 * time.Second)
	n := c.start(1, job(d, g))
	if away == 0 {
		c.start(2, job(d, g))
	}
	time.Sleep(time.Hour + 5*time.Second)
	n.stop()
	<-n.done
	time.Sleep(away)
	if away > 0 {
		c.start(2, job(d, g))
	}
	time.Sleep(10 * time.Minute)
	if done := completed(c.list(event.ItemCompleted)); len(done) != 8 {
		t.Errorf("of 8 items %d ran\n%s", len(done), c.all())
	}
	again := 0
	for _, n := range completed(c.list(event.ItemStarted)) {
		again += n
	}
	if again != 8 {
		t.Errorf("the items started %d times", again)
	}
}

// undivided is a session of a leader that cannot write a division while the registry
// refuses it.
type undivided struct {
	*lease
	refuses *atomic.Bool
}

func (u *undivided) Commit(ctx context.Context, ops ...registry.Op) ([]registry.Result, error) {
	divides := func(op registry.Op) bool {
		return op.Kind == registry.OpSet && strings.HasSuffix(op.Path, ".wasmjob/stream/assignment")
	}
	if u.refuses.Load() && slices.ContainsFunc(ops, divides) {
		return nil, registry.ErrUnavailable
	}
	return u.lease.Commit(ctx, ops...)
}

// A streaming run was handed back, since its item was to move to a host that came; that
// host goes before the item has moved. The item stays where it was, and goes on there.
func TestHandedBack_stays(t *testing.T) {
	for _, source := range []abi.Source{abi.SourceSchedule, abi.SourceTrigger} {
		t.Run(string(source), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c, refuses := newCluster(t), new(atomic.Bool)
				c.wrap = func(_ int, l *lease) registry.Center { return &undivided{l, refuses} }
				d := definition("stream", "0 0 * * * ?", 2)
				d.Props["streaming.process"] = "true"
				const batches = 60 // of a second each
				g := &guest{digest: "s", run: func(ctx context.Context, inv *abi.Invocation) abi.Result {
					for at := len(inv.Offset); at < batches; {
						time.Sleep(time.Second)
						at++
						if code := inv.Host.StageOffset(ctx, bytes.Repeat([]byte("x"), at)); code != abi.OK {
							return abi.Result{Outcome: abi.OutcomeCancelled}
						}
						if inv.Host.Cancelled() == abi.CancelYield {
							return abi.Result{Outcome: abi.OutcomeOK, Yielded: true}
						}
					}
					return ok
				}}
				n := c.start(1, job(d, g))
				if source == abi.SourceTrigger {
					time.Sleep(time.Minute)
					n.triggers(t, "stream", tree.TriggerArgs{})
				} else {
					time.Sleep(time.Hour)
				}
				time.Sleep(10*time.Second + 500*time.Millisecond) // between two batches
				second := c.start(2, job(d, g))
				time.Sleep(100 * time.Millisecond) // an item is to move
				refuses.Store(true)
				time.Sleep(2 * time.Second)
				moved := c.list(event.ItemSkipped)
				if len(moved) != 1 || !strings.Contains(moved[0].Reason, "moves") {
					t.Fatalf("not one run was handed back: %s\n%s", lines(moved), c.all())
				}
				second.stop()
				<-second.done
				refuses.Store(false)
				time.Sleep(3 * time.Minute)
				if done := completed(c.list(event.ItemCompleted)); len(done) != 2 {
					t.Errorf("completed %v, want both items\n%s", done, c.all())
				}
				for item := range 2 {
					want := 1
					if item == *moved[0].Item {
						want = 2
					}
					if starts := c.starts(item); len(starts) != want {
						t.Errorf("item %d started %q, want %d starts\n%s", item, starts, want, c.all())
					}
				}
			})
		})
	}
}

// An instant that was handed back leaves the word to a newer one, and the others
// that nobody held do not run if misfire is off.
func TestHandedBack_newerInstants(t *testing.T) {
	for _, misfire := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			c := newCluster(t)
			d := definition("often", "0 * * * * ?", 2)
			d.Misfire = misfire
			d.Props[jobconfig.PropMaxConcurrency] = "1"
			n := c.start(1, job(d, sleeper(10*time.Second)))
			time.Sleep(65 * time.Second)
			n.stop() // item 1 waits
			<-n.done
			time.Sleep(2*time.Minute + 30*time.Second) // until 3:40
			c.start(2, job(d, sleeper(10*time.Second)))
			time.Sleep(15 * time.Second)
			var instants []string
			for _, e := range c.list(event.ItemStarted) {
				if *e.Item == 1 {
					instants = append(instants, e.Instant.UTC().Format("04:05"))
				}
			}
			want := []string{"01:00"}
			if misfire {
				want = []string{"03:00"}
			}
			if !slices.Equal(instants, want) {
				t.Errorf("misfire %v: item 1 started for %q, expected %q\n%s", misfire, instants, want, c.all())
			}
			var reasons []string
			for _, e := range c.list(event.ItemSkipped) {
				if *e.Item == 1 {
					reasons = append(reasons, e.Instant.UTC().Format("04:05"))
				}
			}
			if want := map[bool][]string{false: {"01:00", "02:00"}, true: {"01:00", "01:00"}}[misfire]; !slices.Equal(reasons, want) {
				t.Errorf("misfire %v: reasons for %q, expected for %q\n%s", misfire, reasons, want, c.all())
			}
		})
	}
}

// streamer is the guest of a streaming job that always finds more: each batch
// takes so long.
func streamer(batch time.Duration) *guest {
	return &guest{digest: "streamer", run: func(ctx context.Context, inv *abi.Invocation) abi.Result {
		for {
			select {
			case <-time.After(batch):
			case <-ctx.Done():
				return abi.Result{Outcome: abi.OutcomeCancelled}
			}
			inv.Host.Pause(ctx)
			switch inv.Host.Cancelled() {
			case abi.CancelNone:
			case abi.CancelYield:
				return abi.Result{Outcome: abi.OutcomeOK, Yielded: true}
			default:
				return abi.Result{Outcome: abi.OutcomeCancelled}
			}
		}
	}}
}

// stream is a definition that streams.
func stream(name string, total int) jobconfig.Configuration {
	d := definition(name, "0 * * * * ?", total)
	d.Props["streaming.process"] = "true"
	d.Props[jobconfig.PropMaxConcurrency] = "100"
	return d
}

// startsOf counts the starts of a job's items.
func (c *cluster) startsOf(name string) map[int]int {
	n := make(map[int]int)
	for _, e := range c.list(event.ItemStarted) {
		if e.Job == name {
			n[*e.Item]++
		}
	}
	return n
}

// A stream that never comes to an end stops after its batch when its server is disabled; it begins
// again with the first fire after that.
func TestDisable_endsAStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		first := c.start(1, job(stream("flow", 1), streamer(time.Second)))
		time.Sleep(2 * time.Minute)
		if n := c.startsOf("flow")[0]; n != 1 {
			t.Fatalf("it began %d times before anything was done to it", n)
		}
		operate := first.operator()
		if err := operate.Disable(t.Context(), "flow"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * time.Second)
		if n := len(c.list(event.ItemEnded)); n != 1 {
			t.Fatalf("%d runs ended three seconds after its server was disabled, want 1", n)
		}
		time.Sleep(5 * time.Minute)
		if n := c.startsOf("flow")[0]; n != 1 {
			t.Errorf("it began %d times while its server is disabled", n-1)
		}
		if err := operate.Enable(t.Context(), "flow"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute + time.Second)
		if n := c.startsOf("flow")[0]; n != 2 {
			t.Errorf("it has begun %d times a minute after its server was enabled, want twice", n)
		}
	})
}

// Items that stream for ever have all slots of the host, and give way between
// two batches to another job, and to other items of their own.
func TestSlots_streamingItemsGiveWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.config = func(cfg *engine.Config) { cfg.MaxConcurrency = 4 }
		c.start(1, job(stream("stream", 6), streamer(time.Second)), job(definition("other", "30 * * * * ?", 2), sleeper(time.Second)))
		time.Sleep(2 * time.Hour)
		if n := c.startsOf("other"); n[0] < 119 || n[1] < 119 {
			t.Errorf("the items of the other job started %v times in two hours, expected 119 or more each", n)
		}
		for _, e := range c.list(event.FireStarted) {
			if e.Job == "other" && e.Lag > 0 {
				t.Fatalf("a fire of the other job was %s late", e.Lag)
			}
		}
		for _, e := range c.list(event.ItemStarted) {
			if late := e.Time.Sub(e.Instant); e.Job == "other" && late > 2*time.Second {
				t.Fatalf("item %d of the other job started %s late, expected at most two batches", *e.Item, late)
			}
		}
	})
}

// An item that gives way comes after those of its own job that wait, though its
// instant is older.
func TestSlots_streamingItemWaitsBehindItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.config = func(cfg *engine.Config) { cfg.MaxConcurrency = 2 }
		g := &guest{digest: "some", run: func(ctx context.Context, inv *abi.Invocation) abi.Result {
			if inv.Context.ShardingItem == 1 {
				return sleeper(time.Second).run(ctx, inv)
			}
			return streamer(time.Second).run(ctx, inv)
		}}
		c.start(1, job(stream("stream", 2), g), job(definition("long", "30 0 * * * ?", 1), sleeper(time.Hour)))
		time.Sleep(30 * time.Minute)
		if n := c.startsOf("stream"); n[1] < 29 {
			t.Errorf("the item that ends started %d times in half an hour, expected 29 or more", n[1])
		}
	})
}

// Of more streaming items than may run at once each has its turn.
func TestSlots_streamingItemsTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		d := stream("stream", 6)
		d.Props[jobconfig.PropMaxConcurrency] = "4"
		c.start(1, job(d, streamer(time.Second)))
		time.Sleep(11 * time.Minute)
		n := c.startsOf("stream")
		for item := range 6 {
			if n[item] < 5 {
				t.Errorf("item %d started %d times in ten minutes, expected a turn a minute\n%s", item, n[item], c.all())
			}
		}
	})
}

// A streaming item that waits for its slot ends at once when it is told to.
func TestSlots_pausedItemIsToldToEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.config = func(cfg *engine.Config) { cfg.MaxConcurrency = 1 }
		n := c.start(1, job(stream("stream", 1), streamer(time.Second)), job(definition("other", "30 * * * * ?", 1), sleeper(20*time.Second)))
		time.Sleep(100 * time.Second) // the other one has the slot
		asked := time.Now()
		n.host.Apply([]engine.Job{job(definition("other", "30 * * * * ?", 1), sleeper(20*time.Second))}, nil)
		time.Sleep(5 * time.Second)
		for _, e := range c.list(event.ItemEnded) {
			if e.Job == "stream" {
				if late := e.Time.Sub(asked); late > 0 {
					t.Errorf("the item ended after %s", late)
				}
				return
			}
		}
		t.Errorf("the item did not end within five seconds\n%s", c.all())
	})
}

// Each job with work has a slot before another has its second.
func TestSlots_sharedByJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.config = func(cfg *engine.Config) { cfg.MaxConcurrency = 4 }
		many := definition("many", "0 * * * * ?", 200)
		many.Props[jobconfig.PropMaxConcurrency] = "200"
		jobs := []engine.Job{job(many, sleeper(3*time.Second))} // 150 s of work a minute
		for _, name := range []string{"a", "b", "c"} {
			jobs = append(jobs, job(definition(name, "5 * * * * ?", 2), sleeper(2*time.Second)))
		}
		c.start(1, jobs...)
		time.Sleep(30 * time.Minute)
		for _, e := range c.list(event.ItemStarted) {
			if late := e.Time.Sub(e.Instant); e.Job != "many" && late > 8*time.Second {
				t.Fatalf("an item of %s started %s after its instant, expected 8 s at most: each has a quarter of the slots", e.Job, late)
			}
		}
		n := c.startsOf("many")
		least, most := n[0], n[0]
		for item := range 200 {
			least, most = min(least, n[item]), max(most, n[item])
		}
		if least < 9 || most > least+2 {
			t.Errorf("the items of the large job started %d to %d times, expected all about as often", least, most)
		}
	})
}

// What waits says so, and for how long; that is no run.
func TestSlots_reason(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.config = func(cfg *engine.Config) { cfg.MaxConcurrency = 1 }
		c.start(1, job(definition("long", "0 0 * * * ?", 1), sleeper(10*time.Minute)), job(definition("other", "30 * * * * ?", 1), sleeper(time.Second)))
		time.Sleep(time.Hour + 3*time.Minute)
		var reasons []string
		for _, e := range c.list(event.ItemSkipped) {
			if e.Job == "other" {
				reasons = append(reasons, e.Reason)
			}
		}
		want := []string{"the item has waited 1m0s for a slot; it runs again right after", "the item has waited 2m0s for a slot; it runs again right after"}
		if !slices.Equal(reasons, want) {
			t.Errorf("reasons %q, expected %q", reasons, want)
		}
		waits := c.hosts["10.0.0.1"].host.Status().Jobs[1].Waits
		if len(waits) != 1 || waits[0].What != event.WaitSlot || time.Since(waits[0].Since).Round(time.Millisecond) != 150*time.Second {
			t.Errorf("waits %+v, expected one for a slot, since 2m30s", waits)
		}
	})
}

// TestSlots_queued: what has begun and waits for a slot is queued, and does not count as running; a
// host says how many slots it has, and how many are taken.
func TestSlots_queued(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.config = func(cfg *engine.Config) { cfg.MaxConcurrency = 2 }
		c.start(1, job(definition("many", "0 0 * * * ?", 5), sleeper(10*time.Minute)), job(definition("one", "1 0 * * * ?", 1), sleeper(time.Second)))
		time.Sleep(time.Hour + time.Minute)
		s := c.hosts["10.0.0.1"].host.Status()
		if want := (engine.SlotsStatus{Total: 2, Used: 2}); s.Slots != want {
			t.Errorf("slots %+v, expected %+v", s.Slots, want)
		}
		running, queued := 0, 0
		for _, i := range s.Jobs[0].Items {
			if i.Running {
				running++
			}
			if i.Queued {
				queued++
			}
			if !i.Begun() || (i.Queued && time.Since(i.Since).Round(time.Second) != time.Minute) {
				t.Errorf("item %d: %+v, expected it begun, and since a minute", i.Item, i)
			}
		}
		if running != 2 || queued != 3 || s.Jobs[0].State != engine.JobRunning {
			t.Errorf("%d run, %d are queued, the job is %s; expected 2, 3, running", running, queued, s.Jobs[0].State)
		}
		if i := s.Jobs[1].Items[0]; i.Running || !i.Queued || s.Jobs[1].State != engine.JobQueued {
			t.Errorf("the item that waits: %+v, its job is %s", i, s.Jobs[1].State)
		}
		time.Sleep(time.Hour - 2*time.Minute)
		if s := c.hosts["10.0.0.1"].host.Status(); s.Slots.Used != 0 || s.Jobs[1].State != engine.JobReady {
			t.Errorf("when all is over: %+v, %s", s.Slots, s.Jobs[1].State)
		}
	})
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
