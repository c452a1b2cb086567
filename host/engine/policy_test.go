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
	"github.com/wasmjob/wasmjob/coordination/jobconfig"
	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/tree"
	"github.com/wasmjob/wasmjob/host/engine"
	"github.com/wasmjob/wasmjob/host/event"
)

// policy is a job with one item, each minute, and properties: name, value, name, value.
func policy(props ...string) jobconfig.Configuration {
	d := definition("j", "0 * * * * ?", 1)
	d.Failover = true
	d.Props = make(map[string]string)
	for pair := range slices.Chunk(props, 2) {
		d.Props["wasm."+pair[0]] = pair[1]
	}
	return d
}

// first is a guest whose first run takes some time, and later ones another.
func first(long, others time.Duration) *guest {
	var runs atomic.Int32
	return &guest{digest: "first", run: func(ctx context.Context, _ *abi.Invocation) abi.Result {
		d := others
		if runs.Add(1) == 1 {
			d = long
		}
		select {
		case <-time.After(d):
			return ok
		case <-ctx.Done():
			return abi.Result{Outcome: abi.OutcomeCancelled, Message: context.Cause(ctx).Error()}
		}
	}}
}

// skips are the skips of item 0 that promise no run, as "cause for 04:05", or "cause for 04:05 to 06:07".
func (c *cluster) skips() (list []string) {
	for _, e := range c.list(event.ItemSkipped) {
		if e.Owed {
			continue
		}
		s := fmt.Sprintf("%s for %s", e.Cause, e.Instant.UTC().Format("04:05"))
		if !e.Through.IsZero() {
			s += " to " + e.Through.UTC().Format("04:05")
		}
		list = append(list, s)
	}
	return list
}

// expect compares what item 0 ran for, and why it did not, with what was expected.
func (c *cluster) expect(starts, skips string) {
	c.t.Helper()
	if got := strings.Join(c.starts(0), ", "); got != starts {
		c.t.Errorf("started %s\nexpected %s\n%s", got, starts, c.all())
	}
	if got := strings.Join(c.skips(), ", "); got != skips {
		c.t.Errorf("skipped %s\nexpected %s\n%s", got, skips, c.all())
	}
}

// TestOverlap: what becomes of instants that come while the item runs.
func TestOverlap(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name          string
		d             jobconfig.Configuration
		long          time.Duration
		starts, skips string
	}{
		{"queue_one", policy("overlap", "queue_one"), 150 * time.Second,
			"01:00 schedule for 01:00, 03:30 misfire for 03:00, 04:00 schedule for 04:00", ""},
		{"queue_all", policy("overlap", "queue_all"), 150 * time.Second,
			"01:00 schedule for 01:00, 03:30 misfire for 02:00, 03:40 misfire for 03:00, 04:00 schedule for 04:00", ""},
		{"queue_all, and it is behind at the next instant", policy("overlap", "queue_all"), 175 * time.Second,
			"01:00 schedule for 01:00, 03:55 misfire for 02:00, 04:05 misfire for 03:00, 04:15 misfire for 04:00", ""},
		{"queue_all, full", policy("overlap", "queue_all", "queueMax", "2"), 230 * time.Second,
			"01:00 schedule for 01:00, 04:50 misfire for 02:00", "queue_full for 04:00"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t)
				c.start(1, job(tt.d, first(tt.long, 10*time.Second)))
				until(minute(4).Add(55 * time.Second))
				c.expect(tt.starts, tt.skips)
			})
		})
	}
	t.Run("skip", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			c := newCluster(t)
			d := policy("overlap", "skip")
			d.Misfire = false
			c.start(1, job(d, first(150*time.Second, 10*time.Second)))
			until(minute(4).Add(30 * time.Second))
			c.expect("01:00 schedule for 01:00, 04:00 schedule for 04:00", "overlap for 02:00, overlap for 03:00")
		})
	})
}

// TestQueueSurvives: instants that wait are run by another host if theirs dies, oldest first, each for itself;
// what was answered as too many is not run.
func TestQueueSurvives(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name          string
		queueMax      string
		long          [2]time.Duration // the first two runs
		die           time.Duration    // after 00:00
		starts, skips string
	}{
		{"before the first of them began", "9", [2]time.Duration{time.Hour, time.Hour}, 4*time.Minute + 30*time.Second,
			"01:00 schedule for 01:00, 04:30 failover for 01:00, 04:39 misfire for 02:00, 04:48 misfire for 03:00, 04:57 misfire for 04:00, 05:06 misfire for 05:00", ""},
		{"after the first of them began", "9", [2]time.Duration{150 * time.Second, time.Hour}, 4*time.Minute + 30*time.Second,
			"01:00 schedule for 01:00, 03:30 misfire for 02:00, 04:30 failover for 02:00, 04:39 misfire for 03:00, 04:48 misfire for 04:00, 05:00 schedule for 05:00", ""},
		{"full", "2", [2]time.Duration{time.Hour, time.Hour}, 4*time.Minute + 30*time.Second,
			"01:00 schedule for 01:00, 04:30 failover for 01:00, 04:39 misfire for 02:00, 04:48 misfire for 03:00, 05:00 schedule for 05:00",
			"queue_full for 04:00, queue_full for 04:00 to 04:30"},
		{"full, after the first of them began", "2", [2]time.Duration{150 * time.Second, time.Hour}, 5*time.Minute + 30*time.Second,
			"01:00 schedule for 01:00, 03:30 misfire for 02:00, 05:30 failover for 02:00, 05:39 misfire for 03:00, 05:48 misfire for 04:00, 06:00 schedule for 06:00",
			"queue_full for 05:00, queue_full for 05:00 to 05:30"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t)
				var runs atomic.Int32
				slow := &guest{digest: "slow", run: func(ctx context.Context, _ *abi.Invocation) abi.Result {
					select {
					case <-time.After(tt.long[min(runs.Add(1), 2)-1]):
						return ok
					case <-ctx.Done():
						return abi.Result{Outcome: abi.OutcomeCancelled, Message: context.Cause(ctx).Error()}
					}
				}}
				d := policy("overlap", "queue_all", "queueMax", tt.queueMax)
				d.StaticSharding = true // the item moves for no other reason
				n := c.start(1, job(d, slow))
				until(minute(1).Add(30 * time.Second))
				c.start(2, job(d, sleeper(9*time.Second)))
				until(minute(0).Add(tt.die))
				n.kill()
				<-n.done
				until(minute(0).Add(tt.die + 55*time.Second))
				c.expect(tt.starts, tt.skips)
			})
		})
	}
}

// TestOverlapStops: a run ends because the next instant has come, asked to or by force, and the item runs for that.
func TestOverlapStops(t *testing.T) {
	t.Parallel()
	stubborn := &guest{digest: "stubborn", run: func(ctx context.Context, _ *abi.Invocation) abi.Result {
		<-ctx.Done()
		return abi.Result{Outcome: abi.OutcomeCancelled, Message: "job_execute: cancelled"}
	}}
	var asked atomic.Int32
	for overlap, g := range map[string]*guest{"cancel": polite(&asked), "terminate": stubborn} {
		t.Run(overlap, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t)
				c.start(1, job(policy("overlap", overlap), g))
				until(minute(3).Add(30 * time.Second))
				c.expect("01:00 schedule for 01:00, 02:00 misfire for 02:00, 03:00 misfire for 03:00", "")
				done := c.list(event.ItemCompleted)
				for _, e := range done {
					if e.Outcome != abi.OutcomeCancelled || !strings.Contains(e.Reason, "has come, and overlap is "+overlap) {
						t.Error(lines([]event.Event{e}))
					}
				}
				if len(done) != 2 {
					t.Errorf("%d runs have ended\n%s", len(done), c.all())
				}
				if got := abi.Cancel(asked.Load()); overlap == "cancel" && got != abi.CancelStop {
					t.Errorf("the guest saw %d", got)
				}
			})
		})
	}
	t.Run("a guest that does not end runs on until its time-out", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c := newCluster(t)
			c.start(1, job(policy("overlap", "cancel", "timeout", "150s"), stubborn))
			until(minute(3).Add(50 * time.Second))
			c.expect("01:00 schedule for 01:00, 03:30 misfire for 03:00", "")
		})
	})
}

// TestCatchUps: what becomes of instants that no host could run.
func TestCatchUps(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name          string
		d             jobconfig.Configuration
		starts, skips string
	}{
		{"latest", policy("catchUp", "latest"), "05:10 catch-up for 05:00, 06:00 schedule for 06:00", ""},
		{"none", policy("catchUp", "none"), "06:00 schedule for 06:00", "no_owner for 02:00 to 05:10"},
		{"all", policy("catchUp", "all"),
			"05:10 catch-up for 02:00, 05:20 catch-up for 03:00, 05:30 catch-up for 04:00, 05:40 catch-up for 05:00, 06:00 schedule for 06:00", ""},
		{"all, too many", policy("catchUp", "all", "catchUpMax", "2"),
			"05:10 catch-up for 04:00, 05:20 catch-up for 05:00, 06:00 schedule for 06:00", "too_old for 02:00 to 03:59"},
		{"all, too old", policy("catchUp", "all", "catchUpWindow", "2m30s"),
			"05:10 catch-up for 03:00, 05:20 catch-up for 04:00, 05:30 catch-up for 05:00, 06:00 schedule for 06:00", "too_old for 02:00 to 02:39"},
		{"all, and the next comes before they are done", policy("catchUp", "all", "timeout", "1h"), "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t)
				n := c.start(1, job(tt.d, sleeper(10*time.Second)))
				until(minute(1).Add(30 * time.Second))
				n.stop()
				<-n.done
				g := sleeper(10 * time.Second)
				if tt.starts == "" {
					g = sleeper(25 * time.Second)
					tt.starts = "05:10 catch-up for 02:00, 05:35 catch-up for 03:00, 06:00 catch-up for 04:00, 06:25 catch-up for 05:00"
				}
				until(minute(5).Add(10 * time.Second))
				seen := len(c.starts(0))
				c.start(2, job(tt.d, g))
				until(minute(6).Add(30 * time.Second))
				if got := strings.Join(c.starts(0)[seen:], ", "); got != tt.starts {
					t.Errorf("started %s\nexpected %s\n%s", got, tt.starts, c.all())
				}
				if got := strings.Join(c.skips(), ", "); !strings.HasPrefix(got, tt.skips) {
					t.Errorf("skipped %s\nexpected %s\n%s", got, tt.skips, c.all())
				}
			})
		})
	}
}

// TestCatchUps_marked: what is to be made up for meets a mark that the item runs elsewhere. It was owed before that run, so the overlap
// does not drop it: it waits, here as on any other host.
func TestCatchUps_marked(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		d := policy("catchUp", "all")
		d.Misfire = false
		n := c.start(1, job(d, sleeper(5*time.Second)))
		until(minute(1).Add(30 * time.Second))
		n.stop()
		<-n.done
		until(minute(4).Add(10 * time.Second))
		other, err := c.server.Connect(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := other.Commit(t.Context(), registry.Ensure("/test/j/sharding"), registry.Ensure("/test/j/sharding/0"), registry.CreateEphemeral("/test/j/sharding/0/running", nil)); err != nil {
			t.Fatal(err)
		}
		seen := len(c.starts(0))
		c.start(2, job(d, sleeper(5*time.Second)))
		time.Sleep(20 * time.Second)
		if got := c.starts(0)[seen:]; len(got) > 0 {
			t.Fatalf("started %s beside the mark", got)
		}
		if err := other.Close(); err != nil {
			t.Fatal(err)
		}
		c.start(3, job(d, sleeper(5*time.Second))) // the item is looked at again
		until(minute(5).Add(50 * time.Second))
		ran := strings.Join(c.starts(0)[seen:], ", ")
		for _, instant := range []string{"02:00", "03:00", "04:00", "05:00"} {
			if !strings.Contains(ran, "for "+instant) {
				t.Errorf("started %s, expected a run for %s", ran, instant)
			}
		}
		if got := c.skips(); slices.ContainsFunc(got, func(s string) bool { return strings.HasPrefix(s, "overlap") }) {
			t.Errorf("skipped %s, expected none for an overlap", got)
		}
		if t.Failed() {
			t.Log("\n" + c.all())
		}
	})
}

// TestStartWithin: what would start too late after its instant does not start, whatever it waited for, and no
// other host runs it.
func TestStartWithin(t *testing.T) {
	t.Parallel()
	t.Run("for the run before", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			c := newCluster(t)
			c.start(1, job(policy("startWithin", "30s"), first(100*time.Second, time.Second)))
			until(minute(3).Add(30 * time.Second))
			c.expect("01:00 schedule for 01:00, 03:00 schedule for 03:00", "late for 02:00")
		})
	})
	t.Run("with others behind it", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			c := newCluster(t)
			c.start(1, job(policy("overlap", "queue_all", "startWithin", "50s"), first(165*time.Second, time.Second)))
			until(minute(3).Add(59 * time.Second))
			c.expect("01:00 schedule for 01:00, 03:45 misfire for 03:00", "late for 02:00")
		})
	})
	t.Run("which a jitter does not make later", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			c := newCluster(t)
			c.start(1, job(policy("startWithin", "2s", "jitter", "40s"), sleeper(time.Second)))
			until(minute(4))
			for _, e := range c.list(event.ItemStarted) {
				if by := e.Time.Sub(e.Instant); by < 3*time.Second {
					t.Errorf("put off by %s", by)
				}
			}
			late := func(e event.Event) bool { return e.Cause == event.SkipLate }
			if starts := c.starts(0); len(starts) != 3 || slices.ContainsFunc(c.list(event.ItemSkipped), late) {
				t.Errorf("started %v\n%s", starts, c.all())
			}
		})
	})
	t.Run("and no catch-up when the host stays after all", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			c := newCluster(t)
			d := policy("startWithin", "30s")
			d.ShardingTotalCount = 2
			runs := [2]atomic.Int32{}
			g := &guest{digest: "long", run: func(ctx context.Context, inv *abi.Invocation) abi.Result {
				took := time.Second
				if item := inv.Context.ShardingItem; runs[item].Add(1) == 1 {
					took = []time.Duration{100 * time.Second, 3 * time.Minute}[item]
				}
				select {
				case <-time.After(took):
				case <-ctx.Done():
				}
				return ok
			}}
			n := c.start(1, job(d, g))
			until(minute(2).Add(50 * time.Second))
			n.host.Apply(nil, nil)
			time.Sleep(time.Second)
			n.host.Apply([]engine.Job{job(d, g)}, nil)
			until(minute(3).Add(30 * time.Second))
			late := 0
			for _, e := range c.list(event.ItemSkipped) {
				if *e.Item == 0 && e.Cause == event.SkipLate {
					late++
				}
			}
			if late != 1 || len(c.starts(0)) != 2 {
				t.Errorf("item 0 was late %d times, and started %v\n%s", late, c.starts(0), c.all())
			}
		})
	})
	t.Run("for a slot", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			c := newCluster(t)
			c.config = func(cfg *engine.Config) { cfg.MaxConcurrency = 1 }
			hog := definition("hog", "30 0 * * * ?", 1)
			c.start(1, job(policy("startWithin", "20s"), sleeper(time.Second)), job(hog, sleeper(70*time.Second)))
			until(minute(3).Add(30 * time.Second))
			var starts []string
			for _, e := range c.list(event.ItemStarted) {
				if e.Job == "j" {
					starts = append(starts, e.Instant.UTC().Format("04:05"))
				}
			}
			if got := strings.Join(c.skips(), ", "); got != "late for 01:00" || !slices.Equal(starts, []string{"02:00", "03:00"}) {
				t.Errorf("started %s, skipped %s\n%s", starts, got, c.all())
			}
			r := tree.ParseRecord(c.nodes(registry.Data(tree.NewLayout("test", "j").Record(0)))[0].Data)
			if r.Failures != 0 || r.Open() {
				t.Errorf("%+v", r)
			}
		})
	})
}

// TestMaxRuns: each item runs for so many instants, whatever host has it; then one host pauses the job.
func TestMaxRuns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		d := policy("maxRuns", "3")
		d.ShardingTotalCount = 4
		n := c.start(1, job(d, sleeper(time.Second)))
		c.start(2, job(d, sleeper(time.Second)))
		until(minute(1).Add(30 * time.Second))
		if err := n.operator().Trigger(t.Context(), "j"); err != nil {
			t.Fatal(err)
		}
		until(minute(2).Add(30 * time.Second))
		n.stop() // its items go on with the other host
		<-n.done
		n = c.start(3, job(d, sleeper(time.Second)))
		until(minute(6).Add(30 * time.Second))
		runs := make(map[int]int)
		for _, e := range c.list(event.ItemStarted) {
			if e.Trigger == 0 {
				runs[*e.Item]++
			}
		}
		if fmt.Sprint(runs) != "map[0:3 1:3 2:3 3:3]" {
			t.Errorf("runs %v\n%s", runs, c.all())
		}
		paused := c.list(event.JobPaused)
		if len(paused) != 1 || paused[0].Reason != "the job is paused by maxRuns: it has run for 3 instants" || !paused[0].Time.Equal(minute(4)) {
			t.Errorf("paused: %s\n%s", lines(paused), c.all())
		}
		if skips := c.list(event.FireSkipped); len(skips) == 0 || skips[len(skips)-1].Cause != event.SkipPaused || skips[len(skips)-1].Reason != paused[0].Reason {
			t.Errorf("while it is paused: %s", lines(skips))
		}
		d.Props = map[string]string{"wasm.maxRuns": "4"}
		for _, name := range []string{"10.0.0.2", "10.0.0.3"} {
			c.hosts[name].host.Apply([]engine.Job{job(d, sleeper(time.Second))}, nil)
		}
		if err := n.operator().Enable(t.Context(), "j"); err != nil {
			t.Fatal(err)
		}
		until(minute(8).Add(30 * time.Second))
		if starts := c.starts(0); starts[len(starts)-1] != "07:00 schedule for 07:00" || len(c.list(event.JobPaused)) != 2 {
			t.Errorf("one more: %v\n%s", starts, c.all())
		}
	})
}

// TestPauseAfterFailures: a job one of whose items fails so often in a row is paused once, with the reason in
// the registry, and again after as many failures more.
func TestPauseAfterFailures(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		var runs atomic.Int32
		g := &guest{digest: "fails", run: func(context.Context, *abi.Invocation) abi.Result {
			if runs.Add(1) == 2 { // it begins to count anew
				return ok
			}
			return abi.Result{Outcome: abi.OutcomeFail, Message: "no"}
		}}
		n := c.start(1, job(policy("pauseAfterFailures", "2"), g))
		until(minute(7).Add(30 * time.Second))
		const why = "2 runs of item 0 in a row failed, the last one with FAIL"
		paused := c.list(event.JobPaused)
		if starts := c.starts(0); len(starts) != 4 || len(paused) != 1 || paused[0].Reason != "the job is paused by pauseAfterFailures: "+why {
			t.Errorf("%v, paused: %s\n%s", starts, lines(paused), c.all())
		}
		w := tree.ParseWanted(c.nodes(registry.Data(tree.NewLayout("test", "j").Wanted()))[0].Data)
		if word := w.Disabled[tree.WholeJob]; !word.Off || word.By != "pauseAfterFailures" || word.Why != why {
			t.Errorf("%+v", w)
		}
		if err := n.operator().Enable(t.Context(), "j"); err != nil {
			t.Fatal(err)
		}
		until(minute(12))
		if starts := c.starts(0); len(starts) != 6 || len(c.list(event.JobPaused)) != 2 {
			t.Errorf("%v\n%s", starts, c.all())
		}
	})
}

// TestPolicyChangedWhileInstantsWait: what came while an item had no host waits in a queue, each instant for itself, when the
// policy becomes one by which a newer instant stands for older ones. Each of them has run or has a reason.
func TestPolicyChangedWhileInstantsWait(t *testing.T) {
	t.Parallel()
	for _, overlap := range []string{"", "queue_one", "skip"} {
		synctest.Test(t, func(t *testing.T) {
			c := newCluster(t)
			d := definition("j", "0 * * * * ?", 1)
			d.Failover = true
			d.Props["wasm.overlap"] = "queue_all"
			first := c.start(1, job(d, sleeper(200*time.Second)))
			until(minute(1).Add(10 * time.Second))
			first.kill()
			until(minute(3).Add(30 * time.Second)) // two instants have come
			c.start(2, job(d, sleeper(200*time.Second)))
			until(minute(3).Add(45 * time.Second))
			d.Props = map[string]string{}
			if overlap != "" {
				d.Props["wasm.overlap"] = overlap
			}
			c.edit(d)
			until(minute(20).Add(30 * time.Second))
			missing(c, minute(1), minute(14), time.Minute, 1)
		})
	}
}
