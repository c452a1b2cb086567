package run

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/coordination"
	"github.com/wasmjob/wasmjob/coordination/jobconfig"
	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/tree"
	"github.com/wasmjob/wasmjob/host/event"
	"github.com/wasmjob/wasmjob/internal/slots"
	"github.com/wasmjob/wasmjob/internal/text/reason"
)

// book is an owner that writes down what it is told. It is safe for concurrent use.
type book struct {
	Owner
	trust registry.Trust

	mu     sync.Mutex
	events []event.Event
	ended  map[int][]Ended
	over   bool
}

func (b *book) Clock() time.Time { return time.Now() }

func (b *book) RegistryClock() time.Time { return time.Now() }

func (b *book) Trust() (registry.Trust, <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.trust, nil
}

func (b *book) Emit(e event.Event) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.events = append(b.events, e)
}

func (b *book) Ended(e Ended) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ended[e.Run.Item] = append(b.ended[e.Run.Item], e)
}

func (b *book) Over(*Fire) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.over = true
}

// of are the item's events of a kind.
func (b *book) of(item int, kind event.Kind) (found []event.Event) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, e := range b.events {
		if e.Kind == kind && *e.Item == item {
			found = append(found, e)
		}
	}
	return found
}

// pipes is an executor whose guests take depth items at once, and run them one after the
// other.
type pipes struct {
	depth int
	// guest is what a guest does with an item. It calls slow if the item takes its time;
	// waiting are the items that wait behind it.
	guest func(inv *abi.Invocation, waiting int, slow func()) abi.Result

	mu      sync.Mutex
	begun   map[int]int // how often guests have begun an item
	refused int         // items that were given back
	run     int         // items that run now, and the most that ran at once
	most    int
}

func (x *pipes) Digest() string          { return "d" }
func (x *pipes) HasListener(string) bool { return false }
func (x *pipes) Expect(time.Time)        {}
func (x *pipes) Retain() bool            { return true }
func (x *pipes) Release()                {}
func (x *pipes) NewWorker(context.Context) (abi.Worker, error) {
	return &pipe{x: x, turn: make(chan struct{}, 1), late: make(chan struct{})}, nil
}

// pipe is a guest, as that of a worker process.
type pipe struct {
	abi.Worker
	x    *pipes
	turn chan struct{} // holds one token: a guest runs one item at a time

	mu      sync.Mutex
	late    chan struct{} // closed while an item takes its time
	waiting int           // items
}

func (p *pipe) Depth() int   { return p.x.depth }
func (p *pipe) Close() error { return nil }

func (p *pipe) slow() chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.late
}

// wait counts an item that waits, and returns how many there are.
func (p *pipe) wait(n int) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.waiting += n
	return p.waiting
}

func (p *pipe) Execute(_ context.Context, inv *abi.Invocation) abi.Result {
	x := p.x
	p.wait(1)
	begins := false
	select {
	case p.turn <- struct{}{}:
		begins = true
	default:
		select {
		case p.turn <- struct{}{}:
			begins = true
		case <-p.slow():
		}
	}
	p.wait(-1)
	x.mu.Lock()
	if begins {
		x.begun[inv.Context.ShardingItem]++
		x.run++
		x.most = max(x.most, x.run)
	} else {
		x.refused++
	}
	x.mu.Unlock()
	if !begins {
		return abi.Result{NotBegun: true}
	}
	time.Sleep(time.Microsecond) // meanwhile all come that may
	r := x.guest(inv, p.wait(0), func() { close(p.slow()) })
	p.mu.Lock()
	select {
	case <-p.late:
		p.late = make(chan struct{})
	default:
	}
	p.mu.Unlock()
	x.mu.Lock()
	x.run--
	x.mu.Unlock()
	<-p.turn
	return r
}

// newFire is a fire of items, of which so many run at once, and who owns it.
func newFire(x *pipes, items, most int, id tree.Fire, retry jobconfig.RetryPolicy) (*Fire, *book) {
	x.begun = map[int]int{}
	b := &book{ended: map[int][]Ended{}}
	guest := jobconfig.DefaultGuest()
	guest.Retry, guest.Timeout = retry, 0
	states := map[int]coordination.ItemState{}
	for n := range items {
		states[n] = coordination.ItemState{}
	}
	job := &Job{Owner: b, Name: "j", Log: zap.NewNop(), Account: slots.New(most+10).Account("", 100), Slots: most + 10}
	return New(job, Begun{ID: id, Config: jobconfig.Configuration{JobName: "j", ShardingTotalCount: items}, Guest: guest, Exec: x,
		At: time.Now(), Workers: most, Places: most}, states, nil), b
}

func ok() abi.Result { return abi.Result{Outcome: abi.OutcomeOK} }

// once checks that each item has begun, started and ended once, and was OK.
func once(t *testing.T, x *pipes, b *book, items int) {
	t.Helper()
	if !b.over {
		t.Error("the fire is not over")
	}
	for n := range items {
		started, ended := b.of(n, event.ItemStarted), b.of(n, event.ItemEnded)
		if x.begun[n] != 1 || len(started) != 1 || len(ended) != 1 || ended[0].Outcome != abi.OutcomeOK || started[0].Attempt != 1 || ended[0].Attempt != 1 {
			t.Errorf("item %d: begun %d times, started %+v, ended %+v", n, x.begun[n], started, ended)
		}
		if got := b.ended[n]; len(got) != 1 || got[0].Result.Outcome != abi.OutcomeOK || got[0].Unstarted || got[0].Unfinished {
			t.Errorf("item %d: %+v", n, got)
		}
	}
}

// TestGivenBack: an item that waits in a guest behind one that takes its time is run by
// another guest. It begins once, and its start is reported once.
func TestGivenBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		most := runtime.GOMAXPROCS(0) + 6 // more than there are workers in the beginning
		items := 10 * most
		release := make(chan struct{})
		slowItems := map[int]bool{}
		var mu sync.Mutex
		x := &pipes{depth: 6, guest: func(inv *abi.Invocation, waiting int, slow func()) abi.Result {
			mu.Lock()
			late := waiting > 0 && len(slowItems) < 2
			if late {
				slowItems[inv.Context.ShardingItem] = true
			}
			mu.Unlock()
			if late {
				slow()
				<-release
			}
			return ok()
		}}
		f, b := newFire(x, items, most, tree.Fire{Source: string(abi.SourceSchedule)}, jobconfig.RetryPolicy{Attempts: 1})
		go f.Run(t.Context()) // ends before the bubble does
		time.Sleep(time.Minute)
		synctest.Wait()
		for n := range items {
			if len(b.of(n, event.ItemEnded)) == 0 && !slowItems[n] {
				t.Errorf("item %d waits behind one that takes its time", n)
			}
		}
		if x.refused == 0 {
			t.Error("no guest gave an item back: the test shows nothing")
		}
		close(release)
		synctest.Wait()
		once(t, x, b, items)
	})
}

// TestGivenBackLast: a worker comes for an item that was given back when all others have
// left.
func TestGivenBackLast(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		x := &pipes{depth: 6, guest: func(_ *abi.Invocation, waiting int, slow func()) abi.Result {
			if waiting > 0 {
				slow()
				<-release
			}
			return ok()
		}}
		f, b := newFire(x, 3, 6, tree.Fire{Source: string(abi.SourceSchedule)}, jobconfig.RetryPolicy{Attempts: 1})
		f.spawn(t.Context(), 1)
		time.Sleep(time.Second)
		synctest.Wait()
		if x.refused != 1 || len(b.ended) != 2 {
			t.Errorf("%d were given back, %d have ended", x.refused, len(b.ended))
		}
		close(release)
		f.workers.Wait()
		b.over = true
		once(t, x, b, 3)
	})
}

// TestHelpersKeepToTheLimit: no more items run at once than the job may run, though guests
// take several each, and all of that is used.
func TestHelpersKeepToTheLimit(t *testing.T) {
	t.Parallel()
	for _, most := range []int{1, 2, 3, runtime.GOMAXPROCS(0) + 5} {
		synctest.Test(t, func(t *testing.T) {
			const items = 300
			x := &pipes{depth: 6, guest: func(inv *abi.Invocation, _ int, slow func()) abi.Result {
				if inv.Context.ShardingItem%50 == 49 {
					slow()
					time.Sleep(time.Second)
				}
				return ok()
			}}
			f, b := newFire(x, items, most, tree.Fire{Source: string(abi.SourceSchedule)}, jobconfig.RetryPolicy{Attempts: 1})
			f.Run(t.Context())
			once(t, x, b, items)
			if x.most != most {
				t.Errorf("%d items ran at once, of at most %d", x.most, most)
			}
		})
	}
}

// TestDrainWhileGivenBack: what guests give back while the host stops is handed back, and the
// start that was reported of it has an end. What runs goes on.
func TestDrainWhileGivenBack(t *testing.T) {
	t.Parallel()
	for _, id := range []tree.Fire{
		{Source: string(abi.SourceSchedule)},
		{Source: string(abi.SourceTrigger), Trigger: 7},
	} {
		for _, first := range []bool{true, false} { // the host stops before, or after, the guest gives items back
			synctest.Test(t, func(t *testing.T) {
				processors := runtime.GOMAXPROCS(0)
				most := processors + 5
				items := 3 * most
				release, late := make(chan struct{}), make(chan struct{})
				x := &pipes{depth: 6, guest: func(inv *abi.Invocation, _ int, slow func()) abi.Result {
					if inv.Context.ShardingItem >= processors { // the first of each worker is brisk
						<-late
						slow()
						<-release
					}
					return ok()
				}}
				f, b := newFire(x, items, most, id, jobconfig.RetryPolicy{Attempts: 1})
				go f.Run(t.Context()) // ends before the bubble does
				time.Sleep(time.Millisecond)
				if first {
					f.ReturnQueued()
					synctest.Wait()
				}
				close(late)
				synctest.Wait()
				f.ReturnQueued()
				synctest.Wait()
				close(release)
				time.Sleep(time.Second)
				synctest.Wait()
				if !b.over {
					t.Fatal("the fire is not over")
				}
				if x.refused == 0 {
					t.Error("no guest gave an item back: the test shows nothing")
				}
				for n := range items {
					b.sound(t, x, n)
				}
			})
		}
	}
}

// sound checks that an item of a host that stopped was begun and ended well, or was handed
// back.
func (b *book) sound(t *testing.T, x *pipes, n int) {
	t.Helper()
	started, ended, got := b.of(n, event.ItemStarted), b.of(n, event.ItemEnded), b.ended[n]
	if len(got) != 1 || len(started) > 1 || len(started) != len(ended) {
		t.Errorf("item %d started %+v, ended %+v and is %+v", n, started, ended, got)
		return
	}
	back := got[0].Unstarted || got[0].Unfinished
	if back == (x.begun[n] > 0) || (back && got[0].Unfinished != (got[0].Run.fire.ID.Trigger != 0)) {
		t.Errorf("item %d was begun %d times and is %+v", n, x.begun[n], got[0])
	}
	if back && len(ended) == 1 && (ended[0].Outcome != abi.OutcomeCancelled || ended[0].Attempt != 1) {
		t.Errorf("item %d: %+v", n, ended[0])
	}
}

// TestGivenBackAndWaiting: an item that a guest gave back, and that no worker has taken
// since, has not started: a kill says so, and a host that stops hands it back.
func TestGivenBackAndWaiting(t *testing.T) {
	t.Parallel()
	for _, kill := range []bool{true, false} {
		x := &pipes{}
		f, b := newFire(x, 1, 1, tree.Fire{Source: string(abi.SourceSchedule)}, jobconfig.RetryPolicy{Attempts: 1})
		f.left.workers = f.Workers // they are busy
		e := f.take()
		worker, _ := x.NewWorker(t.Context())
		busy := worker.(*pipe)
		busy.turn <- struct{}{}
		close(busy.late)
		e.slot = &slots.Hold{Account: f.job.Account}
		if f.workOn(t.Context(), e, &worker, func(*Execution, context.Context) bool { return true }) {
			t.Fatal("it has begun")
		}
		if kill {
			if first, unclaimed := e.Abort(reason.Free("killed"), time.Now().Add(time.Hour)); !first || !unclaimed {
				t.Errorf("first %v, unclaimed %v", first, unclaimed)
			}
			if ended, killed := e.KilledBefore(); !killed || ended.Reason.String() != "killed; it had not started" {
				t.Errorf("%+v, %v", ended, killed)
			}
			if f.take() != nil {
				t.Error("a worker could take it")
			}
			continue
		}
		f.ReturnQueued()
		b.sound(t, x, 0)
		if len(b.of(0, event.ItemEnded)) != 1 {
			t.Error("its start has no end")
		}
	}
}

// TestWorkerEnded: the end of a worker process under an item is no failure the first time:
// it runs again at once, in the same attempt. The second time it counts.
func TestWorkerEnded(t *testing.T) {
	t.Parallel()
	died := abi.Result{Outcome: abi.OutcomeWorker, Message: "the worker process ended"}
	failed := abi.Result{Outcome: abi.OutcomeRetry, Message: "no"}
	for name, c := range map[string]struct {
		results  []abi.Result
		retry    jobconfig.RetryPolicy
		attempts []int
		again    []bool // of each end
		outcome  abi.Outcome
	}{
		"once":                         {[]abi.Result{died, ok()}, jobconfig.RetryPolicy{Attempts: 1}, []int{1, 1}, []bool{true, false}, abi.OutcomeOK},
		"twice":                        {[]abi.Result{died, died}, jobconfig.RetryPolicy{Attempts: 1}, []int{1, 1}, []bool{true, false}, abi.OutcomeWorker},
		"twice, and no policy for it":  {[]abi.Result{died, died}, jobconfig.RetryPolicy{Attempts: 3, On: []string{"RETRY"}}, []int{1, 1}, []bool{true, false}, abi.OutcomeWorker},
		"twice, and a policy for it":   {[]abi.Result{died, died, ok()}, jobconfig.RetryPolicy{Attempts: 3, On: []string{"WORKER"}}, []int{1, 1, 2}, []bool{true, true, false}, abi.OutcomeOK},
		"it takes no attempt":          {[]abi.Result{failed, died, ok()}, jobconfig.RetryPolicy{Attempts: 2, On: []string{"RETRY"}}, []int{1, 2, 2}, []bool{true, true, false}, abi.OutcomeOK},
		"in another attempt it counts": {[]abi.Result{died, failed, died}, jobconfig.RetryPolicy{Attempts: 5, On: []string{"RETRY"}}, []int{1, 1, 2}, []bool{true, true, false}, abi.OutcomeWorker},
	} {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			left := c.results
			x := &pipes{depth: 1, guest: func(*abi.Invocation, int, func()) abi.Result {
				r := left[0]
				left = left[1:]
				return r
			}}
			f, b := newFire(x, 1, 1, tree.Fire{Source: string(abi.SourceSchedule)}, c.retry)
			f.Run(t.Context())
			var attempts []int
			var again []bool
			for _, e := range b.of(0, event.ItemStarted) {
				attempts = append(attempts, e.Attempt)
			}
			for _, e := range b.of(0, event.ItemEnded) {
				again = append(again, e.Again)
			}
			if !slices.Equal(attempts, c.attempts) || !slices.Equal(again, c.again) || len(left) > 0 {
				t.Errorf("%s: attempts %v, again %v, %d left", name, attempts, again, len(left))
			}
			if got := b.ended[0]; len(got) != 1 || got[0].Result.Outcome != c.outcome || got[0].Unfinished {
				t.Errorf("%s: %+v", name, got)
			}
			if time.Since(began) > time.Duration(len(attempts))*time.Microsecond {
				t.Errorf("%s: it waited %s", name, time.Since(began))
			}
		})
	}
}

// TestWorkerEndedOfAStop: an item that was asked to end does not run again.
func TestWorkerEndedOfAStop(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		x := &pipes{depth: 1}
		f, b := newFire(x, 1, 1, tree.Fire{Source: string(abi.SourceSchedule)}, jobconfig.RetryPolicy{Attempts: 1})
		x.guest = func(*abi.Invocation, int, func()) abi.Result {
			f.Runs[0].Cancel(abi.CancelStop)
			return abi.Result{Outcome: abi.OutcomeWorker}
		}
		f.Run(t.Context())
		if got := b.ended[0]; x.begun[0] != 1 || len(got) != 1 || b.of(0, event.ItemEnded)[0].Again {
			t.Errorf("%d begun, %+v", x.begun[0], got)
		}
	})
}

// TestWorkerEndedInDoubt: an item whose worker process ended while the session was in doubt
// runs again when that is certain, as one that did not end under it.
func TestWorkerEndedInDoubt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		x := &pipes{depth: 1}
		f, b := newFire(x, 1, 1, tree.Fire{Source: string(abi.SourceSchedule)}, jobconfig.RetryPolicy{Attempts: 1})
		session := &doubted{book: b, changed: make(chan struct{})}
		f.job.Owner = session
		runs := 0
		x.guest = func(*abi.Invocation, int, func()) abi.Result {
			if runs++; runs > 1 {
				return ok()
			}
			session.set(registry.TrustYield)
			return abi.Result{Outcome: abi.OutcomeWorker}
		}
		go f.Run(t.Context()) // ends before the bubble does
		time.Sleep(time.Second)
		synctest.Wait()
		if len(b.ended[0]) != 0 || runs != 1 {
			t.Fatalf("%d runs, %+v", runs, b.ended[0])
		}
		session.set(registry.TrustLive)
		time.Sleep(time.Second)
		synctest.Wait()
		if got := b.ended[0]; runs != 2 || len(got) != 1 || got[0].Result.Outcome != abi.OutcomeOK || got[0].Run.Attempt() != 1 {
			t.Errorf("%d runs, %+v", runs, got)
		}
	})
}

// doubted is an owner whose session may be in doubt.
type doubted struct {
	*book
	changed chan struct{} // closed, and made again, when that changes; guarded by mu
}

func (d *doubted) Trust() (registry.Trust, <-chan struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.trust, d.changed
}

func (d *doubted) set(t registry.Trust) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.trust = t
	close(d.changed)
	d.changed = make(chan struct{})
}
