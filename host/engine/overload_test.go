package engine_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wasmjob/wasmjob/coordination/jobconfig"
	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/host/engine"
	"github.com/wasmjob/wasmjob/host/event"
)

// busyRegistry is a registry that takes a while for every commit, one after the
// other.
type busyRegistry struct {
	mu    sync.Mutex
	takes time.Duration
	free  time.Time // when what is queued is done
	// under is how many commits are under way, most how many there were at most.
	under, most int
}

// queue is when a commit that comes now is done.
func (b *busyRegistry) queue() time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	if now := time.Now(); b.free.Before(now) {
		b.free = now
	}
	b.free = b.free.Add(b.takes)
	b.under++
	b.most = max(b.most, b.under)
	return b.free
}

// answered notes that a commit is not under way any more.
func (b *busyRegistry) answered() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.under--
}

// pace sets how long a commit takes.
func (b *busyRegistry) pace(d time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.takes = d
}

// stall has the registry do nothing for a while.
func (b *busyRegistry) stall(d time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.free = time.Now().Add(d)
}

type busySession struct {
	registry.Center
	busy *busyRegistry
}

func (s busySession) Commit(ctx context.Context, ops ...registry.Op) ([]registry.Result, error) {
	defer s.busy.answered()
	time.Sleep(time.Until(s.busy.queue()))
	return s.Center.Commit(ctx, ops...)
}

// overloaded is a host with 100 jobs of four items, each second, that have to
// share 50 slots, on a busy registry.
type overloaded struct {
	*cluster
	busy *busyRegistry
}

func newOverloaded(t *testing.T) *overloaded {
	o := &overloaded{newCluster(t), &busyRegistry{}}
	o.wrap = func(_ int, l *lease) registry.Center { return busySession{l, o.busy} }
	o.config = func(cfg *engine.Config) { cfg.MaxConcurrency = 50 }
	var all []engine.Job
	for i := range 100 {
		d := definition(fmt.Sprintf("job%03d", i), "* * * * * ?", 4)
		d.Props[jobconfig.PropMaxConcurrency] = "4"
		all = append(all, job(d, sleeper(100*time.Millisecond)))
	}
	o.start(1, all...)
	time.Sleep(5 * time.Second)
	return o
}

// lags is how late the latest item started in each of some seconds.
func (o *overloaded) lags(seconds int) (lags []time.Duration) {
	for range seconds {
		o.mu.Lock()
		from := len(o.events)
		o.mu.Unlock()
		time.Sleep(time.Second)
		worst := time.Duration(0)
		o.mu.Lock()
		for _, e := range o.events[from:] {
			if e.Kind == event.ItemStarted {
				worst = max(worst, e.Time.Sub(e.Instant))
			}
		}
		o.mu.Unlock()
		lags = append(lags, worst)
	}
	return lags
}

// account checks that each item has for each instant of the time until three
// seconds ago a run, or a reason why not.
func (o *overloaded) account(t *testing.T, from time.Time) {
	t.Helper()
	type due struct {
		job  string
		item int
		at   time.Time
	}
	told := make(map[due]bool)
	tell := func(e event.Event, item int) {
		told[due{e.Job, item, e.Instant.UTC()}] = true
		for at := e.Instant; !at.After(e.Through); at = at.Add(time.Second) {
			told[due{e.Job, item, at.UTC()}] = true
		}
	}
	for _, e := range o.list(event.ItemStarted, event.ItemSkipped, event.FireSkipped) {
		if e.Item != nil {
			tell(e, *e.Item)
		}
		for _, item := range e.Items {
			tell(e, item)
		}
	}
	missing := 0
	for at := from.UTC().Truncate(time.Second).Add(time.Second); at.Before(time.Now().Add(-3 * time.Second)); at = at.Add(time.Second) {
		for i := range 100 {
			for item := range 4 {
				if !told[due{fmt.Sprintf("job%03d", i), item, at}] {
					missing++
				}
			}
		}
	}
	if missing > 0 {
		t.Errorf("%d instants of items have neither a run nor a reason", missing)
	}
}

// A host that does not keep up does its work in fewer commits, and so comes back:
// after a registry that stood still and is not much faster than it has to be, and
// after a minute of twice the load that it holds.
func TestOverload(t *testing.T) {
	for _, tc := range []struct {
		name string
		do   func(o *overloaded)
	}{
		{"registry stands still", func(o *overloaded) {
			o.busy.pace(4 * time.Millisecond)
			time.Sleep(10 * time.Second)
			o.busy.stall(5 * time.Second)
			time.Sleep(5 * time.Second)
		}},
		{"twice the load", func(o *overloaded) {
			o.busy.pace(8 * time.Millisecond)
			time.Sleep(time.Minute)
			o.busy.pace(2 * time.Millisecond)
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				o := newOverloaded(t)
				from := time.Now()
				tc.do(o)
				time.Sleep(10 * time.Second)
				// How the commits of 100 jobs come to lie varies, and with that how late the latest
				// is of one second. A host that stays behind is late in each.
				lags := o.lags(20)
				slices.Sort(lags)
				if early := lags[len(lags)/4]; early > 1400*time.Millisecond {
					t.Errorf("ten seconds later the latest item of a second starts %s after its instant or more in three of four seconds, expected less than 1.4 s: %v", early, lags)
				}
				o.account(t, from)
			})
		})
	}
}

// TestStartOfManyJobs: a host that starts with hundreds of jobs asks a slow registry
// for a bounded number of commits at once, joins the jobs first that are due first,
// and says how far it is.
func TestStartOfManyJobs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const jobs = 300
		busy := &busyRegistry{takes: 20 * time.Millisecond}
		c := newCluster(t)
		c.wrap = func(_ int, l *lease) registry.Center { return busySession{l, busy} }
		var all []engine.Job
		for i := range jobs { // the last are due first
			all = append(all, job(definition(fmt.Sprintf("job%03d", i), fmt.Sprintf("0 %d * * * ?", 59-i*50/jobs), 1), sleeper(0)))
		}
		n := c.start(1, all...)
		time.Sleep(2 * time.Second)
		if ready, missing := n.host.Ready(); ready || !strings.HasSuffix(missing, "of 300 jobs have joined") {
			t.Errorf("ready %v: %q", ready, missing)
		}
		time.Sleep(time.Minute)
		if ready, missing := n.host.Ready(); !ready || missing != "" {
			t.Errorf("ready %v: %q", ready, missing)
		}
		if busy.most > 64 {
			t.Errorf("%d commits at once", busy.most)
		}
		late := 0
		for k, e := range c.list(event.JobAdded) {
			var i int
			if _, err := fmt.Sscanf(e.Job, "job%d", &i); err != nil {
				t.Fatal(err)
			}
			if place := jobs - 1 - i; k > place+64+6 { // those that go at once, and those of one minute
				late++
			}
		}
		if late > 0 {
			t.Errorf("%d jobs joined after others that are due later", late)
		}
	})
}

// TestReadyJobsFireWhileOthersJoin: a host that is given more jobs of each second than the registry can take. Those that have
// joined fire, as many as it can, and yet all join.
func TestReadyJobsFireWhileOthersJoin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const jobs, window, windows = 600, 5 * time.Second, 12
		busy := &busyRegistry{takes: 4 * time.Millisecond} // 250 commits a second: 125 fires, as long as each costs two
		c := newCluster(t)
		c.wrap = func(_ int, l *lease) registry.Center { return busySession{l, busy} }
		var all []engine.Job
		for i := range jobs {
			all = append(all, job(definition(fmt.Sprintf("job%03d", i), "* * * * * ?", 1), sleeper(0)))
		}
		n := c.start(1, all...)
		var fires []int
		before := 0
		for range windows {
			time.Sleep(window)
			now := len(c.list(event.ItemCompleted))
			fires, before = append(fires, now-before), now
		}
		ready, missing := n.host.Ready()
		t.Logf("fires in each %s: %v; ready %t %s", window, fires, ready, missing)
		for k, n := range fires[1:] {
			if least := int(25 * window / time.Second); n < least {
				t.Errorf("%d fires from %s on, expected %d at least of the 625 that the registry has room for", n, time.Duration(k+1)*window, least)
			}
		}
		if !ready {
			t.Errorf("after %s not ready: %s", windows*window, missing)
		}
	})
}
