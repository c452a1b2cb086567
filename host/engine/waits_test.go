package engine_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/host/engine"
	"github.com/wasmjob/wasmjob/host/event"
)

// expired are the events of waits that have reached their deadline.
func (c *cluster) expired(what event.Wait) []event.Event {
	return slices.DeleteFunc(c.list(event.JobError, event.Session), func(e event.Event) bool { return e.Wait != what })
}

// callsNow counts the calls of the registry that were made at this instant.
func (c *cluster) callsNow() int {
	c.pace.mu.Lock()
	defer c.pace.mu.Unlock()
	if !c.pace.at.Equal(time.Now()) {
		return 0
	}
	return c.pace.calls
}

// waits returns the wait of the kind that the host's first job tells of; nil if
// there is none.
func (n *node) waits(what event.Wait) *engine.WaitStatus {
	s := n.host.Status()
	list := s.Waits
	if len(s.Jobs) > 0 {
		list = append(list, s.Jobs[0].Waits...)
	}
	for _, w := range list {
		if w.What == what {
			return &w
		}
	}
	return nil
}

// The error handler IGNORE silences the job, not the host: a listener that was
// waited for in vain is told of, and shows while it is waited for.
func TestHostsThatDoNotComeToAListenerAreTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		var last atomic.Int32
		g := &guest{digest: "listens", run: func(_ context.Context, inv *abi.Invocation) abi.Result {
			if inv.Context.ShardingItem == 0 {
				time.Sleep(3 * time.Minute)
			}
			return ok
		}, listeners: map[string]func(*abi.Invocation) abi.Result{
			abi.ExportAfterOnce: func(*abi.Invocation) abi.Result { last.Add(1); return ok },
		}}
		d := definition("listen", "0 0 * * * ?", 2)
		d.JobErrorHandlerType = "IGNORE"
		hosts := []*node{c.start(1, job(d, g)), c.start(2, job(d, g))}
		time.Sleep(time.Until(time.Now().Truncate(time.Hour).Add(time.Hour + 30*time.Second)))
		var waiting []*engine.WaitStatus
		for _, n := range hosts {
			if w := n.waits(event.WaitListener); w != nil {
				waiting = append(waiting, w)
			}
		}
		if len(waiting) != 1 || time.Since(waiting[0].Since).Round(time.Second) != 30*time.Second || !strings.Contains(waiting[0].Reason, abi.ExportAfterOnce) {
			t.Errorf("while one host waits for the other: %+v\n%s", waiting, c.all())
		}
		time.Sleep(29 * time.Second)
		if told := c.expired(event.WaitListener); len(told) != 0 {
			t.Errorf("told before the time is up: %s", lines(told))
		}
		time.Sleep(2 * time.Second)
		told := c.expired(event.WaitListener)
		if len(told) != 1 || told[0].Job != "listen" || told[0].Duration != time.Minute || !strings.Contains(told[0].Reason, abi.ExportAfterOnce) {
			t.Errorf("told: %s\n%s", lines(told), c.all())
		}
		for _, n := range hosts {
			if w := n.waits(event.WaitListener); w != nil {
				t.Errorf("still waits: %+v", w)
			}
		}
	})
}

// mute is a session whose registry answers, refuses, or says nothing at all.
type mute struct {
	*lease
	silent, refuses *atomic.Bool
}

func (m *mute) Commit(ctx context.Context, ops ...registry.Op) ([]registry.Result, error) {
	switch {
	case m.silent.Load():
		<-ctx.Done()
		return nil, registry.ErrUnknown
	case m.refuses.Load():
		return nil, registry.ErrUnavailable
	}
	return m.lease.Commit(ctx, ops...)
}

func TestARegistryThatDoesNotAnswerOrRefusesIsCountedAndTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		var silent, refuses atomic.Bool
		c.wrap = func(_ int, l *lease) registry.Center { return &mute{l, &silent, &refuses} }
		n := c.start(1, job(definition("tick", "0/10 * * * * ?", 2), sleeper(time.Second)))
		time.Sleep(time.Until(time.Now().Truncate(time.Minute).Add(time.Minute + 5*time.Second)))
		for reason, count := range n.host.Status().RegistryFailures {
			if count != 0 {
				t.Errorf("%d failures by %s, and there was none", count, reason)
			}
		}
		silent.Store(true)
		time.Sleep(6 * time.Second) // the begin at 10 s is not answered
		if told := c.expired(event.WaitRegistry); len(told) != 0 {
			t.Errorf("told before the time is up: %s", lines(told))
		}
		time.Sleep(9500 * time.Millisecond) // up to before it is tried again
		told := c.expired(event.WaitRegistry)
		if len(told) != 1 || told[0].Job != "tick" || told[0].Duration != 10*time.Second || !strings.Contains(told[0].Reason, "an answer of the registry") {
			t.Errorf("told: %s\n%s", lines(told), c.all())
		}
		silent.Store(false)
		refuses.Store(true)
		time.Sleep(30 * time.Second)
		if w := n.waits(event.WaitRegistry); w == nil || w.Expired || time.Since(w.Since) < 10*time.Second || !strings.Contains(w.Reason, registry.ErrUnavailable.Error()) {
			t.Errorf("while the registry refuses: %+v", w)
		}
		time.Sleep(time.Minute)
		if w := n.waits(event.WaitRegistry); w == nil || !w.Expired {
			t.Errorf("when that has taken too long: %+v", w)
		}
		told = c.expired(event.WaitRegistry)
		refused := slices.DeleteFunc(slices.Clone(told), func(e event.Event) bool { return !strings.Contains(e.Reason, "which refuses") })
		got := n.host.Status().RegistryFailures
		if got["unavailable"] < 60 || got["timeout"] == 0 || int(got["timeout"]) != len(told)-len(refused) || len(refused) != 1 || refused[0].Duration != time.Minute {
			t.Errorf("failures: %v, told: %s", got, lines(told))
		}
		refuses.Store(false)
		time.Sleep(5 * time.Second)
		if w := n.waits(event.WaitRegistry); w != nil {
			t.Errorf("it answers, and the host waits: %+v", w)
		}
	})
}

func TestAHostWithoutASessionSaysSoOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		var tries atomic.Int32
		c.config = func(cfg *engine.Config) {
			dial := cfg.Dial
			cfg.Dial = func(ctx context.Context) (registry.Center, error) {
				if tries.Add(1) == 1 { // then one that hangs
					return nil, registry.ErrUnavailable
				}
				if tries.Load() == 2 {
					select {
					case <-time.After(5 * time.Minute):
					case <-ctx.Done():
						return nil, ctx.Err()
					}
				}
				return dial(ctx)
			}
		}
		n := c.start(1, job(definition("tick", "0/10 * * * * ?", 1), sleeper(time.Second)))
		time.Sleep(59 * time.Second)
		if w := n.waits(event.WaitSession); w == nil || w.Expired || time.Since(w.Since) != 59*time.Second {
			t.Errorf("while there is no session: %+v", w)
		}
		if told := c.expired(event.WaitSession); len(told) != 0 {
			t.Errorf("told before the time is up: %s", lines(told))
		}
		time.Sleep(2 * time.Minute)
		if w := n.waits(event.WaitSession); w == nil || !w.Expired {
			t.Errorf("when that has taken too long: %+v", w)
		}
		if told := c.expired(event.WaitSession); len(told) != 1 || told[0].Duration != time.Minute {
			t.Errorf("told: %s", lines(told))
		}
		time.Sleep(4 * time.Minute)
		if w := n.waits(event.WaitSession); w != nil || n.host.Status().State != engine.HostLive {
			t.Errorf("there is a session, and the host waits: %+v", w)
		}
		if len(c.list(event.ItemCompleted)) == 0 {
			t.Errorf("nothing ran\n%s", c.all())
		}
		c.expire(n)
		time.Sleep(2 * time.Minute)
		if told := c.expired(event.WaitSession); len(told) != 1 {
			t.Errorf("a new session came at once, and told: %s", lines(told))
		}
	})
}

// An item that runs delays itself, and the division of itself: that shows on the
// host that leads and on the one that runs it, and is told once.
func TestAnItemThatIsToMoveShowsUntilItEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		var mu sync.Mutex
		long := true
		g := &guest{digest: "g", run: func(_ context.Context, inv *abi.Invocation) abi.Result {
			mu.Lock()
			takes := time.Second
			if long && inv.Context.ShardingItem == 0 {
				long, takes = false, 15*time.Minute
			}
			mu.Unlock()
			time.Sleep(takes)
			return ok
		}}
		d := definition("move", "0 * * * * ?", 4)
		first := c.start(1, job(d, g))
		time.Sleep(time.Until(time.Now().Truncate(time.Minute).Add(time.Minute + 20*time.Second)))
		if w := first.waits(event.WaitMove); w != nil {
			t.Errorf("nothing moves, and: %+v", w)
		}
		second := c.start(2, job(d, g))
		begin := time.Now()
		time.Sleep(4 * time.Minute)
		synctest.Wait()
		calls := c.callsNow()
		w := first.waits(event.WaitMove)
		synctest.Wait()
		if n := c.callsNow() - calls; n != 0 {
			t.Errorf("to tell what it waits for, the host asks the registry %d times", n)
		}
		if w == nil || !slices.Equal(w.Items, []int{0}) || w.Since.Sub(begin).Round(time.Second) != 0 || w.Expired || !strings.Contains(w.Reason, "items 0") {
			t.Fatalf("item 0 runs where it is to go from: %+v\n%s", w, c.all())
		}
		if w := second.waits(event.WaitMove); w != nil {
			t.Errorf("neither leads nor runs it, and: %+v", w)
		}
		for item := 1; item < 4; item++ { // nobody waits for it but itself
			if n := completed(c.list(event.ItemCompleted))[item]; n != 5 {
				t.Errorf("item %d was completed %d times, want 5", item, n)
			}
		}
		time.Sleep(7 * time.Minute)
		told := c.expired(event.WaitMove)
		if len(told) != 1 || !slices.Equal(told[0].Items, []int{0}) || told[0].Duration != 10*time.Minute {
			t.Errorf("told: %s", lines(told))
		}
		time.Sleep(10 * time.Minute)
		if w := first.waits(event.WaitMove); w != nil {
			t.Errorf("it has ended and moved, and: %+v", w)
		}
		if len(c.expired(event.WaitMove)) != 1 {
			t.Errorf("told again: %s", lines(c.expired(event.WaitMove)))
		}
	})
}
