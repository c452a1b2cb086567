package engine_test

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/registry/registrytest"
	"github.com/wasmjob/wasmjob/host/engine"
	"github.com/wasmjob/wasmjob/host/event"
)

// doubtful is a cluster of one host whose session can be put in doubt.
func doubtful(t *testing.T, jobs ...engine.Job) (*cluster, *node, func(registry.Trust)) {
	c := newCluster(t)
	var session *registrytest.FaultyCenter
	c.wrap = func(_ int, l *lease) registry.Center {
		session = registrytest.Faulty(l, nil)
		return session
	}
	n := c.start(1, jobs...)
	synctest.Wait()
	return c, n, func(level registry.Trust) { session.Doubt(level) }
}

// reasons are those of the events of a kind, in order.
func reasons(events []event.Event) []string {
	var out []string
	for _, e := range events {
		out = append(out, e.Reason)
	}
	return out
}

// A doubt that ends in time costs nothing: what runs goes on and is completed,
// what was due meanwhile is made up for once.
func TestADoubtThatEndsInTimeCostsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var cancelled atomic.Int32
		g := &guest{digest: "d", run: func(_ context.Context, inv *abi.Invocation) abi.Result {
			for range 25 {
				time.Sleep(time.Second)
				cancelled.Store(max(cancelled.Load(), int32(inv.Host.Cancelled())))
			}
			return abi.Result{Outcome: abi.OutcomeOK}
		}}
		c, _, doubt := doubtful(t, job(definition("doubted", "0 * * * * ?", 2), g))
		time.Sleep(time.Minute + time.Second - time.Duration(time.Now().Second())*time.Second)
		started := len(c.list(event.ItemStarted))
		if started != 2 {
			t.Fatalf("%d items started before the doubt, want 2:\n%s", started, c.all())
		}
		doubt(registry.TrustSuspect)
		time.Sleep(2*time.Minute + 30*time.Second) // the guests end, two instants pass
		if n := len(c.list(event.ItemStarted)); n != started {
			t.Errorf("%d items began while the session was in doubt:\n%s", n-started, c.all())
		}
		if n := len(c.list(event.ItemCompleted)); n != 0 {
			t.Errorf("%d items were completed while the session was in doubt", n)
		}
		doubt(registry.TrustLive)
		synctest.Wait()
		time.Sleep(26 * time.Second)
		if n := completed(c.list(event.ItemCompleted)); n[0] != 2 || n[1] != 2 {
			t.Errorf("completions by item %v, want the first run and one that makes up for two instants:\n%s", n, c.all())
		}
		if abi.Cancel(cancelled.Load()) != abi.CancelNone {
			t.Errorf("a guest was told to stop (%d) though the doubt ended in time", cancelled.Load())
		}
		if got, want := reasons(c.list(event.Session)), []string{"live", "suspect", "live"}; !slices.Equal(got, want) {
			t.Errorf("session events %q, want %q", got, want)
		}
	})
}

// A guest that was told that its item is lost, and it was not, runs again
// under the same fence once that is certain; its stop is no failure.
func TestAGuestThatStoppedInDoubtRunsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &guest{digest: "y", run: func(_ context.Context, inv *abi.Invocation) abi.Result {
			for range 25 {
				time.Sleep(time.Second)
				if inv.Host.Cancelled() == abi.CancelLost {
					return abi.Result{Outcome: abi.OutcomeCancelled}
				}
			}
			return abi.Result{Outcome: abi.OutcomeOK}
		}}
		c, _, doubt := doubtful(t, job(definition("yielding", "0 0 * * * ?", 1), g))
		time.Sleep(time.Until(time.Now().Truncate(time.Hour).Add(time.Hour + time.Second)))
		doubt(registry.TrustSuspect)
		time.Sleep(5 * time.Second)
		doubt(registry.TrustYield)
		time.Sleep(5 * time.Second)
		if n := len(c.list(event.ItemEnded)); n != 1 {
			t.Fatalf("%d runs ended in doubt, want 1:\n%s", n, c.all())
		}
		doubt(registry.TrustLive)
		time.Sleep(30 * time.Second)
		var fences []int64
		var attempts []int
		for _, e := range c.list(event.ItemStarted) {
			fences, attempts = append(fences, e.Fence), append(attempts, e.Attempt)
		}
		if len(fences) != 2 || fences[0] != fences[1] || attempts[1] != 1 {
			t.Errorf("fences %v, attempts %v; want two runs under one fence that count as one attempt", fences, attempts)
		}
		done := c.list(event.ItemCompleted)
		if len(done) != 1 || done[0].Outcome != abi.OutcomeOK {
			t.Errorf("completions:\n%s\nwant one that is OK", lines(done))
		}
	})
}

// A commit of an offset waits for the end of a doubt; when the item is lost it
// is refused.
func TestACommitOfAnOffsetWaitsForCertainty(t *testing.T) {
	for _, c := range []struct {
		name string
		end  registry.Trust
		want abi.Code
	}{
		{"live again", registry.TrustLive, abi.OK},
		{"told to stop", registry.TrustYield, abi.ErrCancelled},
		{"lost", registry.TrustLost, abi.ErrCancelled},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var mu sync.Mutex
				var codes []abi.Code
				var took time.Duration
				g := &guest{digest: "o", run: func(ctx context.Context, inv *abi.Invocation) abi.Result {
					time.Sleep(10 * time.Second)
					began := time.Now()
					code := inv.Host.CommitOffset(ctx, []byte("10"))
					mu.Lock()
					defer mu.Unlock()
					if len(codes) == 0 {
						took = time.Since(began)
					}
					codes = append(codes, code)
					return abi.Result{Outcome: abi.OutcomeOK}
				}}
				_, _, doubt := doubtful(t, job(definition("offset", "0 0 * * * ?", 1), g))
				time.Sleep(time.Until(time.Now().Truncate(time.Hour).Add(time.Hour + time.Second)))
				doubt(registry.TrustSuspect)
				time.Sleep(20 * time.Second)
				mu.Lock()
				if len(codes) != 0 {
					t.Errorf("the commit returned %v in doubt", codes)
				}
				mu.Unlock()
				doubt(c.end)
				synctest.Wait()
				mu.Lock()
				defer mu.Unlock()
				if len(codes) == 0 || codes[0] != c.want {
					t.Errorf("the commit returned %v, want %v", codes, c.want)
				}
				if took < 10*time.Second {
					t.Errorf("the commit took %v of the doubt's end", took)
				}
			})
		})
	}
}

// A guest that cannot be stopped is told of before its items can be another's.
func TestAGuestThatDoesNotEndIsToldOf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		free := make(chan struct{})
		g := &guest{digest: "s", run: func(context.Context, *abi.Invocation) abi.Result {
			<-free
			return abi.Result{Outcome: abi.OutcomeOK}
		}}
		c := newCluster(t)
		stuck := make(chan []string, 1)
		began := time.Now()
		var told time.Duration
		c.config = func(cfg *engine.Config) {
			cfg.StopGrace = func() time.Duration { return 3 * time.Second }
			cfg.OnStuck = func(jobs []string) {
				told = time.Since(began)
				stuck <- jobs
			}
		}
		n := c.start(1, job(definition("stuck", "0 0 * * * ?", 1), g), job(definition("idle", "0 0 0 * * ?", 1), sleeper(time.Second)))
		time.Sleep(time.Until(time.Now().Truncate(time.Hour).Add(time.Hour + time.Second)))
		began = time.Now()
		c.expire(n)
		if jobs := <-stuck; !slices.Equal(jobs, []string{"stuck"}) || told != 3*time.Second {
			t.Errorf("told of %q after %v, want of the one job after 3s", jobs, told)
		}
		close(free)
		synctest.Wait()
	})
}

// A host whose jobs take long to end, and whose guests have ended, need not end itself: no guest runs beside that of the next owner.
func TestSlowEndOfAJobIsNoStuckGuest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		free := make(chan struct{})
		var lost atomic.Pointer[time.Time]
		stopped := make(chan time.Duration, 2)
		c.config = func(cfg *engine.Config) {
			cfg.StopGrace = func() time.Duration { return 3 * time.Second }
			cfg.OnStuck = func(jobs []string) { t.Errorf("guests of %q are said to run", jobs) }
			cfg.OnStopped = func() { stopped <- time.Since(*lost.Load()) }
			cfg.OnNext = func(_ string, at time.Time) {
				if at.IsZero() && lost.Load() != nil {
					<-free // of the end of the job's loop
				}
			}
		}
		n := c.start(1, job(definition("slow", "0 0 * * * ?", 1), sleeper(time.Hour)), job(definition("idle", "0 0 0 * * ?", 1), sleeper(time.Second)))
		time.Sleep(time.Until(time.Now().Truncate(time.Hour).Add(time.Hour + time.Second)))
		lost.Store(new(time.Now()))
		c.expire(n)
		if took := <-stopped; took != 0 {
			t.Errorf("the guests are said to have ended after %v, want at once", took)
		}
		time.Sleep(10 * time.Second)
		close(free)
		synctest.Wait()
		if len(stopped) > 0 {
			t.Error("it is said twice that the guests have ended")
		}
	})
}

// A guest that goes on after its item was lost has no effect, and no line of it
// is taken for one of the owner's. A session in doubt still keeps the item.
func TestLinesOfAGuestThatLostItsItemAreDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		var session *registrytest.FaultyCenter
		var lease1 *lease
		c.wrap = func(_ int, l *lease) registry.Center {
			lease1, session = l, registrytest.Faulty(l, nil)
			return session
		}
		var mu sync.Mutex
		var said []string
		c.config = func(cfg *engine.Config) {
			cfg.OnLog = func(l event.GuestLog) {
				mu.Lock()
				defer mu.Unlock()
				said = append(said, l.Message)
			}
		}
		say := make(chan string)
		g := &guest{digest: "deaf", run: func(_ context.Context, inv *abi.Invocation) abi.Result {
			for line := range say {
				inv.Host.Log(abi.LevelInfo, line, nil)
			}
			return ok
		}}
		c.start(1, job(definition("deaf", "0 0 * * * ?", 1), g))
		time.Sleep(time.Until(time.Now().Truncate(time.Hour).Add(time.Hour + time.Second)))
		say <- "live"
		session.Doubt(registry.TrustSuspect)
		say <- "suspect"
		session.Doubt(registry.TrustYield)
		say <- "yield"
		synctest.Wait()
		lease1.lose()
		say <- "at once"
		synctest.Wait() // the loop has told its guests
		say <- "later"
		say <- "later still"
		close(say)
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		if want := []string{"live", "suspect", "yield"}; !slices.Equal(said, want) {
			t.Errorf("lines %q, want %q", said, want)
		}
	})
}
