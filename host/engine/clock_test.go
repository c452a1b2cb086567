package engine_test

import (
	"context"
	"errors"
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
	"github.com/wasmjob/wasmjob/host/history/verify"
)

// wallClock is a wall clock that can be set.
type wallClock struct{ ahead atomic.Int64 }

func (w *wallClock) now() time.Time          { return time.Now().Add(time.Duration(w.ahead.Load())) }
func (w *wallClock) set(ahead time.Duration) { w.ahead.Store(int64(ahead)) }

// onWallClock makes the hosts of a cluster that are started from here on go by
// the clock.
func (c *cluster) onWallClock(w *wallClock) {
	c.config = func(cfg *engine.Config) { cfg.Now = w.now }
}

// A loop that sleeps until an instant notices that the clock was set forwards, and
// the registry's too: both are of one machine, or the machine slept.
func TestClockJumpsForwardWhileALoopSleeps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, w := newCluster(t), &wallClock{}
		c.onWallClock(w)
		c.wrap = func(_ int, l *lease) registry.Center { return &skewed{l, &w.ahead} }
		c.start(1, job(definition("hourly", "0 0 * * * ?", 2), sleeper(time.Second)))
		time.Sleep(10*time.Minute + 7*time.Second)
		instant := time.Now().Truncate(time.Hour).Add(time.Hour)

		w.set(time.Until(instant) - 30*time.Second)
		time.Sleep(29 * time.Second)
		if started := c.list(event.ItemStarted); len(started) != 0 {
			t.Fatalf("%d items began before the instant:\n%s", len(started), c.all())
		}
		time.Sleep(2 * time.Second)
		started := c.list(event.ItemStarted)
		if len(started) != 2 || !started[0].Instant.Equal(instant) || !started[0].Time.Equal(instant) {
			t.Fatalf("thirty seconds after the clock was set to so long before %s:\n%s", instant.UTC().Format(time.TimeOnly), c.all())
		}

		// Over three instants: one fire, and it tells of the others.
		before, last := len(c.list(event.ItemStarted)), instant.Add(3*time.Hour)
		w.set(time.Until(last.Add(5 * time.Minute)))
		time.Sleep(1500 * time.Millisecond)
		started = c.list(event.ItemStarted)[before:]
		if len(started) != 2 || !started[0].Instant.Equal(last) || !started[1].Instant.Equal(last) {
			t.Errorf("a second after the clock was set over three instants:\n%s", c.all())
		}
		skipped := c.list(event.FireSkipped)
		if len(skipped) != 1 || !skipped[0].Instant.Equal(instant.Add(time.Hour)) || skipped[0].Through.Before(instant.Add(2*time.Hour)) {
			t.Errorf("what is told of the instants that were left out:\n%s", lines(skipped))
		}
		if told := c.list(event.Clock); len(told) != 0 {
			t.Errorf("the clocks agreed all the time:\n%s", lines(told))
		}
	})
}

// What was begun for an instant is not begun for it again when the clock is set
// back, nor for one before, and each of them says so.
func TestClockJumpsBackAndNothingRunsTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, w := newCluster(t), &wallClock{}
		c.onWallClock(w)
		c.start(1, job(definition("often", "0/10 * * * * ?", 2), sleeper(time.Second)))
		time.Sleep(5*time.Minute + 5*time.Second)
		set := time.Now()
		w.set(-2 * time.Minute)
		time.Sleep(4*time.Minute + 3*time.Second)
		runs := make(map[string]int)
		var next time.Time
		for _, e := range c.list(event.ItemStarted) {
			runs[e.RunID]++
			if e.Instant.After(set) && next.IsZero() {
				next = e.Instant
			}
		}
		for run, n := range runs {
			if n != 1 {
				t.Errorf("%s ran %d times", run, n)
			}
		}
		if want := set.Truncate(10 * time.Second).Add(10 * time.Second); !next.Equal(want) {
			t.Errorf("the first new instant that ran was %s, want %s", next, want)
		}
		if skipped := c.list(event.ItemSkipped); len(skipped) != 24 {
			t.Errorf("%d items were skipped, want two for each of the twelve instants that came again:\n%s", len(skipped), lines(skipped))
		}
	})
}

// An instant that comes while the host is cut off is due when it is connected
// again, though the clock was set back in the meantime, to before the instant or
// to after it.
func TestClockJumpsBackWhileAnInstantWaits(t *testing.T) {
	for _, ahead := range []time.Duration{1600 * time.Millisecond, 7 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, 1)
			r.clocks = func() time.Duration { return ahead }
			m := r.start()
			time.Sleep(time.Minute)
			instant := time.Now().Truncate(10 * time.Second).Add(20 * time.Second)
			time.Sleep(time.Until(instant.Add(-ahead - time.Second)))
			m.sever()
			r.apply(func(d *jobconfig.Configuration) { d.Description = "the job waits for the registry" })
			time.Sleep(3 * time.Second) // by its clock the instant was two seconds ago
			m.set(0)
			m.heal()
			time.Sleep(20 * time.Second)
			var told bool
			r.mu.Lock()
			for _, e := range r.events {
				told = told || e.e.Instant.Equal(instant) && (e.e.Kind == event.ItemStarted || e.e.Kind == event.FireSkipped)
			}
			r.mu.Unlock()
			if !told {
				t.Errorf("%s ahead: nothing is told of %s\n%s", ahead, instant.UTC().Format(time.TimeOnly), r.timeline())
			}
			r.rest(time.Minute)
			if len(r.faults) > 0 {
				t.Errorf("%s\n\n%s", strings.Join(r.faults, "\n"), r.timeline())
			}
		})
	}
}

// A host whose clock was wrong, and that has no bound, was set back: it runs what
// it is given by others, whose instants are behind its own, and what an operator
// lets run again.
func TestClockJumpsBackAndItemsOfOthersFireAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 2)
		r.bound = -1
		right := r.start()
		time.Sleep(time.Second) // it makes the items, by a clock that is right
		r.clocks = func() time.Duration { return 30 * time.Minute }
		wrong := r.start()
		r.clocks = nil
		time.Sleep(64 * time.Second)
		wrong.set(0)
		time.Sleep(10 * time.Second)
		right.murdered("so that the other gets its items")
		time.Sleep(sessionTimeout + 2*time.Second)
		from := time.Now().Truncate(10 * time.Second).Add(10 * time.Second)
		const fires = 12
		time.Sleep(time.Until(from.Add(fires*10*time.Second - time.Second)))

		ran := func(from time.Time) (n int) {
			r.mu.Lock()
			defer r.mu.Unlock()
			for _, e := range r.events {
				if e.e.Kind == event.ItemCompleted && !e.e.Instant.Before(from) && !e.e.Instant.After(time.Now()) {
					n++
				}
			}
			return n
		}
		if n := ran(from); n != fires {
			t.Errorf("%d runs in %d fires of the item that the host with the right clock had, want one in each", n, fires)
		}
		// The other item waits, and its status says for what.
		var named bool
		for _, j := range wrong.host.Status().Jobs {
			named = named || slices.ContainsFunc(j.Warnings, func(s string) bool { return strings.Contains(s, "a clock was wrong") })
		}
		if !named {
			t.Error("the status does not say that a clock was wrong")
		}
		rc, err := r.server.Connect(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for item, j := range r.records {
			if time.UnixMilli(j.instant).After(time.Now()) {
				path := tree.NewLayout(rigNamespace, rigJob).Sibling() + "/sharding/" + string(rune('0'+item))
				if _, err := rc.Commit(t.Context(), registry.Delete(path, registry.AnyVersion)); err != nil {
					t.Fatal(err)
				}
				delete(r.records, item) // its fences go on, and its instants begin anew
			}
		}
		if err := rc.Close(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(30 * time.Second)
		from = time.Now().Truncate(10 * time.Second).Add(10 * time.Second)
		time.Sleep(time.Until(from.Add(fires*10*time.Second - time.Second)))
		if n := ran(from); n != 2*fires {
			t.Errorf("%d runs in %d fires of two items, after the record that was ahead had been deleted", n, fires)
		}
		r.rest(time.Minute)
		if len(r.faults) > 0 {
			t.Errorf("%s\n\n%s", strings.Join(r.faults, "\n"), r.timeline())
		}
	})
}

// Whatever takes a while takes as long as it does, however the clock is set
// meanwhile.
func TestClockJumpsDoNotMoveWhatTakesAWhile(t *testing.T) {
	for _, jump := range []time.Duration{-time.Hour, time.Hour} {
		t.Run(jump.String(), func(t *testing.T) {
			t.Run("drain", func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					c, w := newCluster(t), &wallClock{}
					c.onWallClock(w)
					n := c.start(1, job(definition("long", "0/10 * * * * ?", 1), sleeper(time.Hour)))
					time.Sleep(15 * time.Second)
					stopped := time.Now()
					n.stop()
					time.Sleep(time.Second)
					w.set(jump)
					<-n.done
					if took := time.Since(stopped); took != 30*time.Second {
						t.Errorf("the drain took %s, want 30 s", took)
					}
				})
			})
			t.Run("time-out of an item", func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					c, w := newCluster(t), &wallClock{}
					c.onWallClock(w)
					var began, told, ended time.Time
					g := &guest{digest: "patient", run: func(ctx context.Context, inv *abi.Invocation) abi.Result {
						if !began.IsZero() {
							return ok // what is made up for, of the instant that the clock jumped over
						}
						began = time.Now()
						for ctx.Err() == nil {
							if inv.Host.Cancelled() == abi.CancelDeadline && told.IsZero() {
								told = time.Now()
							}
							select {
							case <-time.After(100 * time.Millisecond):
							case <-ctx.Done():
							}
						}
						ended = time.Now()
						return abi.Result{Outcome: abi.OutcomeTimeout}
					}}
					d := definition("limited", "0 0 * * * ?", 1)
					d.Props["wasm.timeout"] = "20s"
					c.start(1, job(d, g))
					time.Sleep(time.Until(time.Now().Truncate(time.Hour).Add(time.Hour + 5*time.Second)))
					w.set(jump)
					time.Sleep(30 * time.Second)
					synctest.Wait()
					if soft, hard := told.Sub(began), ended.Sub(began); soft != 16*time.Second || hard != 20*time.Second {
						t.Errorf("the guest was told after %s and stopped after %s, want 16 s and 20 s", soft, hard)
					}
				})
			})
			t.Run("pause after a refusal", func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					r := newRig(t, 1)
					var refused []time.Time
					m := r.start()
					time.Sleep(25 * time.Second)
					r.mu.Lock()
					r.meddle = func(_ *machine, op string) meddling {
						if op != "commit" {
							return letBe
						}
						refused = append(refused, time.Now())
						return refuse
					}
					r.mu.Unlock()
					time.Sleep(10 * time.Second)
					m.set(jump)
					time.Sleep(10*time.Second + time.Millisecond)
					r.mu.Lock()
					r.meddle = nil
					tried := slices.Clone(refused)
					r.mu.Unlock()
					for i, at := range tried[1:] {
						if gap := at.Sub(tried[i]); gap > 2*time.Second {
							t.Errorf("%s between two tries, want about a second", gap)
						}
					}
					if len(tried) < 10 {
						t.Errorf("%d tries, want about one each second", len(tried))
					}
					m.murdered("that is all")
					<-m.done
					time.Sleep(2 * sessionTimeout)
					if err := r.server.Close(); err != nil && !errors.Is(err, registry.ErrClosed) {
						t.Error(err)
					}
				})
			})
		})
	}
}

// Histories of hosts whose clocks are apart are judged rightly by their own
// times, if the checker is told how far.
func TestVerifyForgivesClocksThatAreApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 4)
		aheads := []time.Duration{-2 * time.Second, 2 * time.Second, 700 * time.Millisecond}
		r.clocks = func() time.Duration { a := aheads[0]; aheads = append(aheads[1:], a); return a }
		for range 3 {
			r.start()
			time.Sleep(31 * time.Second)
		}
		time.Sleep(5 * time.Minute)
		r.living()[0].murdered("so that items move")
		time.Sleep(time.Minute)
		r.rest(time.Minute)
		r.mu.Lock()
		defer r.mu.Unlock()
		if len(r.faults) > 0 {
			t.Fatalf("by the time at which it happened: %s", strings.Join(r.faults, "\n"))
		}
		r.check(verify.Options{Skew: 4 * time.Second}, func(e rigEvent) event.Event {
			e.e.Time = e.own
			return e.e
		})
		if len(r.faults) > 0 {
			t.Errorf("by the clocks of the hosts: %s\n\n%s", strings.Join(r.faults, "\n"), r.timeline())
		}
	})
}

// TestAClockThatIsOffKeepsTheJobFromRunning: no fire of one item or of many runs
// while the host's clock and the registry's differ by more than the job allows,
// and each says why; within the limit all run.
func TestAClockThatIsOffKeepsTheJobFromRunning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var by atomic.Int64
		c := newCluster(t)
		c.wrap = func(_ int, l *lease) registry.Center { return &skewed{l, &by} }
		var jobs []engine.Job
		for _, items := range []int{1, 7} {
			for _, handler := range []string{"", "THROW"} {
				d := definition(fmt.Sprintf("job%d%s", items, handler), "0/10 * * * * ?", items)
				d.MaxTimeDiffSeconds, d.JobErrorHandlerType = 3, handler
				jobs = append(jobs, job(d, sleeper(10*time.Millisecond)))
			}
		}
		c.start(1, jobs...)
		time.Sleep(5 * time.Second) // each step is from one middle of two fires to the next
		for _, step := range []struct {
			by   time.Duration
			runs bool
		}{{0, true}, {4 * time.Second, false}, {-4 * time.Second, false}, {2 * time.Second, true}, {time.Hour, false}, {-2 * time.Second, true}} {
			by.Store(int64(step.by))
			before := len(c.list(event.ItemStarted, event.FireSkipped, event.ItemSkipped))
			time.Sleep(10 * time.Second)
			synctest.Wait()
			ran, skipped := make(map[string]int), make(map[string]bool)
			for _, e := range c.list(event.ItemStarted, event.FireSkipped, event.ItemSkipped)[before:] {
				switch {
				case e.Kind == event.ItemStarted:
					ran[e.Job]++
				case strings.Contains(e.Reason, "from the registry's; maxTimeDiffSeconds is 3"):
					skipped[e.Job] = true
				default:
					t.Errorf("clocks are %s apart: %s", step.by, lines([]event.Event{e}))
				}
			}
			for _, j := range jobs {
				d := j.Definition
				if want := map[bool]int{true: d.ShardingTotalCount}[step.runs]; ran[d.JobName] != want || skipped[d.JobName] == step.runs {
					t.Errorf("clocks are %s apart: %d of %d items of %s ran, and it was told to be skipped: %v",
						step.by, ran[d.JobName], d.ShardingTotalCount, d.JobName, skipped[d.JobName])
				}
			}
		}
	})
}
