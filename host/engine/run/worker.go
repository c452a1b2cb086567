package run

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/semaphore"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/coordination"
	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/host/event"
	"github.com/wasmjob/wasmjob/host/sandbox/capability/kv"
	"github.com/wasmjob/wasmjob/internal/slots"
	"github.com/wasmjob/wasmjob/internal/text/reason"
)

// SoftGrace is how long before a hard stop guests are cancelled.
func SoftGrace(limit time.Duration) time.Duration { return min(5*time.Second, limit/5) }

// Pause waits, and reports false if ctx ended first.
func Pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// work is one worker of a fire: it takes items until none is left. If the items turn out
// to be brisk, and its guest takes several at once, helpers give them to it, so that it
// need not wait for an answer after each.
func (f *Fire) work(guests context.Context) {
	var worker abi.Worker
	var helpers sync.WaitGroup
	// turn is held by helpers while the guest has an item of theirs, which runs in the
	// slot of this worker, and by this worker while it may be without.
	turn := newTurn()
	defer func() {
		if worker != nil {
			if err := worker.Close(); err != nil {
				f.job.Log.Warn("closing a guest", zap.Error(err))
			}
		}
	}()
	slot := &slots.Hold{Account: f.job.Account}
	// settle waits for the helpers, and holds no slot meanwhile, for one of them may wait for one.
	settle := func() {
		turn.alone()
		slot.End()
		turn.endAlone()
		helpers.Wait()
	}
	defer settle()
	helped := false
	resting := false // turn is held, for the guest is without a slot
	take := func(e *Execution, own context.Context) bool {
		if helped && slot.Kept() {
			return true
		}
		turn.alone()
		defer turn.endAlone()
		return slot.Take(f.Places, f.ID.Instant, f.handBack, own.Done())
	}
	for e := f.take(); e != nil; e = f.take() {
		began := time.Now()
		e.slot, e.helper = slot, false
		e.rest = func() {
			turn.alone()
			resting = true
			slot.Rest()
		}
		e.regain = func(done <-chan struct{}) bool {
			defer func() {
				resting = false
				turn.endAlone()
			}()
			return slot.Again(f.ID.Instant, nil, done)
		}
		begun := f.workOn(guests, e, &worker, take)
		if resting {
			resting = false
			turn.endAlone()
		}
		if !begun {
			settle() // one of their items takes its time
			helped = false
			continue
		}
		if helped || time.Since(began) > briskItem || f.orphans.Load() {
			continue
		}
		w, ok := worker.(abi.Pipelined)
		if !ok {
			continue
		}
		helped = true
		for range min(w.Depth()-1, f.untaken()) {
			helpers.Go(func() { f.help(guests, worker, slot, turn) })
		}
	}
}

// help gives a worker's guest items until none is left, or the guest gives one back.
func (f *Fire) help(guests context.Context, worker abi.Worker, its *slots.Hold, turn *turn) {
	free := func(*Execution, context.Context) bool { return true }
	for {
		turn.share() // before it takes an item, which another worker may have meanwhile
		if !its.Has() {
			turn.endShare()
			return
		}
		e := f.take()
		if e == nil {
			turn.endShare()
			return
		}
		// For another attempt it has a slot of its own.
		slot, shared, placed := &slots.Hold{Account: f.job.Account}, true, false
		e.slot, e.helper = slot, true
		e.rest = func() {
			if shared {
				shared = false
				turn.endShare()
			}
			slot.Rest()
		}
		e.regain = func(done <-chan struct{}) bool {
			if !placed {
				placed = slot.Take(f.Places, f.ID.Instant, nil, done)
				return placed
			}
			return slot.Again(f.ID.Instant, nil, done)
		}
		begun := f.workOn(guests, e, &worker, free)
		if shared {
			turn.endShare()
		}
		slot.End()
		if !begun || !shared {
			return
		}
	}
}

// workOn runs an item to its end, when take has taken a slot for it. It reports false if
// the guest has given the item back, for it is busy with another one.
func (f *Fire) workOn(guests context.Context, e *Execution, worker *abi.Worker, take func(*Execution, context.Context) bool) (begun bool) {
	own, end := e.life(guests)
	if !f.ready(own, e, worker, take) {
		end()
		if ended, killed := e.KilledBefore(); killed {
			f.job.Ended(ended)
		} else {
			f.giveBack(e)
		}
		return true
	}
	if ended, late := f.late(e); late {
		end()
		f.job.Ended(ended)
		return true
	}
	ended, begun := f.attempts(guests, own, *worker, e)
	end()
	if !begun {
		f.putBack(guests, e)
		return false
	}
	f.job.Ended(ended)
	return true
}

// late is the end of an item that would start later after its instant than the job allows, by the registry's clock: it has waited
// for listeners, a slot or memory. What was begun before its host died, or before its guest asked to run again later, has started.
func (f *Fire) late(e *Execution) (ended Ended, late bool) {
	within := f.Guest.StartWithin
	if within == 0 || f.ID.Trigger != 0 || f.Source() == abi.SourceFailover || e.postponed || e.started.Load() {
		return Ended{}, false
	}
	behind := f.job.RegistryClock().Sub(f.ID.Time()) - f.Delay
	if behind <= within {
		return Ended{}, false
	}
	why := reason.New(reason.StartedLate, behind.Truncate(time.Second), within)
	return Ended{Run: e, Late: true, Result: abi.Result{Outcome: abi.OutcomeCancelled, Message: why.String()}, Reason: why}, true
}

// mostBacks is how often guests may give an item back: each time another one has it next,
// or the same one, which does not run anything else then.
const mostBacks = 50

// turn is a lock that many may share, and one have alone. Who waits for it waits in
// turn, and so that virtual time may pass.
type turn struct{ *semaphore.Weighted }

// turns is how many may share a turn.
const turns = 1 << 20

func newTurn() *turn { return &turn{semaphore.NewWeighted(turns)} }

func (t *turn) share()    { _ = t.Acquire(context.Background(), 1) } // it cannot fail
func (t *turn) endShare() { t.Release(1) }
func (t *turn) alone()    { _ = t.Acquire(context.Background(), turns) }
func (t *turn) endAlone() { t.Release(turns) }

// left is what of a fire no worker has, and who may still come for it.
type left struct {
	none chan struct{} // closed when all items have been taken

	mu      sync.Mutex
	back    []*Execution // that were given back by guests
	workers int          // that are there
	empty   bool         // none is closed
}

// hire takes a worker if there are less than most.
func (l *left) hire(most int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.workers >= most {
		return false
	}
	l.workers++
	return true
}

// leave ends a worker. It reports false if an item has come back meanwhile, which the
// worker is to take.
func (l *left) leave() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.back) > 0 {
		return false
	}
	l.workers--
	return true
}

// put takes an item back.
func (l *left) put(e *Execution) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.back = append(l.back, e)
}

// again is an item that was put back; nil if there is none.
func (l *left) again() *Execution {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.back) > 0 {
		e := l.back[0]
		l.back = l.back[1:]
		if e.claimed.CompareAndSwap(false, true) {
			return e
		}
	}
	return nil
}

// taken notes that there is no item that no worker has had.
func (l *left) taken() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.empty {
		l.empty = true
		close(l.none)
	}
}

// putBack has another worker take an item that a guest has not begun, one more if there
// may be more. A worker, or a helper, calls it.
func (f *Fire) putBack(guests context.Context, e *Execution) {
	e.attempt.Store(int64(e.resumed - 1))
	e.queue()
	e.claimed.Store(false)
	f.left.put(e)
	select {
	case <-f.handBack: // what waits has been handed back already
		for e := f.left.again(); e != nil; e = f.left.again() {
			if ended, killed := e.KilledBefore(); killed {
				f.job.Ended(ended)
			} else {
				f.giveBack(e)
			}
		}
	default:
		f.spawn(guests, 1)
	}
}

// spawn starts up to n workers more.
func (f *Fire) spawn(guests context.Context, n int) {
	for range n {
		if !f.left.hire(f.Workers) {
			return
		}
		f.workers.Go(func() {
			for left := false; !left; left = f.left.leave() {
				f.work(guests)
			}
		})
	}
}

// ready waits for an item's turn, and for the memory of a worker if there is none
// yet. It reports false if the item may not start any more.
func (f *Fire) ready(own context.Context, e *Execution, worker *abi.Worker, take func(*Execution, context.Context) bool) bool {
	select {
	case <-f.handBack:
		return false
	default:
	}
	if !take(e, own) {
		return false
	}
	e.queued.Store(0)
	e.waited = event.Waited{Listener: f.listened, Slot: time.Since(f.opened)}
	if *worker != nil {
		return true
	}
	began := time.Now()
	w, err := f.newWorker(f.withoutSlot(own, e.slot, f.Places))
	e.waited.Memory = time.Since(began)
	if err != nil {
		e.slot.End()
		return false
	}
	*worker = w // its owner closes it
	return e.slot.Has()
}

// withoutSlot has a worker wait for memory without the slot, and without its job's place: who has
// the memory may wait for those. When there is memory the worker waits for a slot again, as Take
// does with the limit, and has none if ctx ends before.
func (f *Fire) withoutSlot(ctx context.Context, slot *slots.Hold, limit int) context.Context {
	return abi.WithWaiting(ctx, func() func() {
		slot.End()
		return func() { slot.Take(limit, f.ID.Instant, nil, ctx.Done()) }
	})
}

// newWorker waits for the memory that a guest needs. The error says that the
// items are handed back, or that the item is to end.
func (f *Fire) newWorker(own context.Context) (abi.Worker, error) {
	ctx, cancel := context.WithCancel(own)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		select {
		case <-f.handBack:
			cancel()
		case <-ctx.Done():
		}
	}()
	defer func() {
		cancel()
		<-watched
	}()
	return f.Exec.NewWorker(ctx)
}

// take is the next item that no worker has; nil if there is none.
func (f *Fire) take() *Execution {
	if e := f.left.again(); e != nil {
		return e
	}
	for {
		n := f.taken.Add(1) - 1
		if n >= int64(len(f.Runs)) {
			f.left.taken()
			return nil
		}
		if f.Runs[n].claimed.CompareAndSwap(false, true) {
			return f.Runs[n]
		}
	}
}

// untaken is how many items no worker has had.
func (f *Fire) untaken() int { return max(len(f.Runs)-int(f.taken.Load()), 0) }

// giveBack ends an item that was not started. A scheduled instant that is
// handed back is due again for the next owner. A trigger and a takeover are not
// found that way: they stay open, as after a crash. If a guest was given the item, the
// event of its start is written, and the one of its end follows here.
func (f *Fire) giveBack(e *Execution) {
	if e.givenBack {
		ev := f.event(e, e.RunID())
		ev.Kind, ev.Attempt, ev.Outcome = event.ItemEnded, e.resumed, abi.OutcomeCancelled
		f.job.Emit(ev.Why(reason.New(reason.StopsBeforeBegin)))
	}
	ended := Ended{Run: e, Unstarted: true}
	if f.ID.Trigger != 0 || f.Source() == abi.SourceFailover {
		ended = Ended{Run: e, Unfinished: true}
	}
	f.job.Ended(ended)
}

// ReturnQueued hands back all items that wait for a worker or a slot, at once,
// however long those that run may take. The job's loop calls it.
func (f *Fire) ReturnQueued() {
	select {
	case <-f.handBack:
		return
	default:
		close(f.handBack)
	}
	for e := f.take(); e != nil; e = f.take() {
		f.giveBack(e)
	}
}

// signer names who signed the executor's module, if it knows that.
func signer(x abi.Executor) string {
	if s, ok := x.(interface{ Signer() string }); ok {
		return s.Signer()
	}
	return ""
}

// again waits for a slot for another attempt. It reports false if there will be
// none.
func (e *Execution) again(own context.Context) bool {
	e.queue()
	began := time.Now()
	defer func() {
		e.queued.Store(0)
		e.waited = event.Waited{Slot: time.Since(began)}
	}()
	return e.regain(own.Done())
}

// attempts runs an item, again if the policy says so. It is called with a
// slot, and has it or has given it back when it returns. own is the item's part
// of guests. It reports false if the guest has given the item back before it began.
func (f *Fire) attempts(guests, own context.Context, worker abi.Worker, e *Execution) (ended Ended, begun bool) {
	policy := f.Guest.Retry
	backoff := policy.Backoff
	for attempt := max(e.resumed, 1); ; attempt++ {
		if !e.enter() {
			ended, _ := e.KilledBefore()
			return ended, true
		}
		result := f.attempt(own, worker, e, attempt)
		e.leave()
		if ended, killed := e.killed(result); killed {
			return ended, true
		}
		if result.NotBegun && e.backs < mostBacks {
			e.backs++
			e.resumed, e.givenBack = attempt, true
			return Ended{}, false
		}
		if result.NotBegun { // a guest has nothing to wait for so often
			result = abi.Result{Outcome: abi.OutcomeError, Message: fmt.Sprintf("guests gave it back %d times before they began it", mostBacks)}
		}
		if result.Batches > 0 {
			attempt, backoff = 1, policy.Backoff // a streaming loop got on; its patience starts again
		}
		if (guests.Err() != nil && result.Outcome != abi.OutcomeOK) || f.cutShort(e, result) {
			return Ended{Run: e, Result: result, Unfinished: true}, true
		}
		if e.moved(result) {
			return Ended{Run: e, Result: result, Moved: true}, true
		}
		orphaned := result.Outcome == abi.OutcomeWorker && !e.orphaned
		if e.doubted.Load() && (result.Outcome == abi.OutcomeCancelled || orphaned) {
			// It was cancelled as lost, and was not lost, or its worker process has
			// ended meanwhile. That is no failure of its own: once that is certain it
			// runs again.
			e.orphaned = e.orphaned || orphaned
			e.rest()
			if !e.certainAgain(own) || !e.again(own) {
				if ended, killed := e.killed(result); killed {
					return ended, true
				}
				return Ended{Run: e, Result: result, Unfinished: true}, true
			}
			attempt--
			continue
		}
		if e.runsAgain(result) {
			e.orphaned = true
			f.orphans.Store(true)
			if e.helper { // alone, or what ends the process again ends others' runs with it
				e.resumed = attempt
				return Ended{}, false
			}
			attempt--
			continue // in another process, as if it had not begun
		}
		if result.Outcome == abi.OutcomeRetryAt {
			return Ended{Run: e, Result: result, Later: later(result.RetryAt, f.job.Clock().Add(leastLater))}, true
		}
		again := f.retried(e, result, attempt)
		if again {
			e.rest()
		}
		if !again || !Pause(own, backoff) || !e.again(own) {
			if ended, killed := e.killed(result); killed {
				return ended, true
			}
			return Ended{Run: e, Result: result, Unfinished: guests.Err() != nil && result.Outcome != abi.OutcomeOK}, true
		}
		backoff = min(2*backoff, max(policy.MaxBackoff, policy.Backoff))
	}
}

// leastLater is the shortest time after which an item runs again because its guest asks for it.
const leastLater = time.Second

// later is the later of two times.
func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// runsAgain reports whether the item runs again, because its worker process has ended
// under it for the first time. That is no failure of the item: another may have ended
// the process.
func (e *Execution) runsAgain(r abi.Result) bool {
	return r.Outcome == abi.OutcomeWorker && !e.orphaned && e.mayGoOn()
}

// mayGoOn reports whether nobody has asked the item to end, but for its time-out.
func (e *Execution) mayGoOn() bool {
	c := e.Cancelled()
	return c == abi.CancelNone || c == abi.CancelDeadline
}

// retried reports whether the job's policy has another attempt after one that ended so.
func (f *Fire) retried(e *Execution, r abi.Result, attempt int) bool {
	policy := f.Guest.Retry
	return r.Outcome != abi.OutcomeOK && slices.Contains(policy.On, string(r.Outcome)) &&
		attempt < policy.Attempts && e.mayGoOn()
}

// certainAgain waits for the end of a doubt. It reports false if the host stops.
func (e *Execution) certainAgain(guests context.Context) bool {
	for {
		trust, changed := e.fire.job.Trust()
		switch trust {
		case registry.TrustLive:
			reason := abi.Cancel(e.reason.Load())
			return reason == abi.CancelNone || reason == abi.CancelYield
		case registry.TrustLost:
			return false
		}
		select {
		case <-changed:
		case <-guests.Done():
			return false
		case <-e.fire.handBack:
			return false
		}
	}
}

// cutShort reports whether the guest ended early because the host asked it to, since
// it leaves: such a run is not over, it goes on elsewhere or after a restart.
func (f *Fire) cutShort(e *Execution, r abi.Result) bool {
	select {
	case <-f.handBack:
	default:
		return false
	}
	return e.stoppedEarly(r, abi.CancelStop, abi.CancelYield)
}

// attempt runs the item once.
func (f *Fire) attempt(guests context.Context, worker abi.Worker, e *Execution, attempt int) abi.Result {
	began, wall := time.Now(), f.job.Clock()
	e.attempt.Store(int64(attempt))
	e.since.Store(wall.UnixMilli())
	e.startedAt.CompareAndSwap(0, wall.UnixMilli())
	ctx, cancel := guests, context.CancelFunc(func() {})
	var deadline time.Time // by the wall clock, for the guest
	e.soft.Store(0)
	e.doubted.Store(false)
	if limit := f.Guest.Timeout; limit > 0 && !f.Guest.StreamingProcess {
		deadline = wall.Add(limit)
		e.soft.Store(max(int64(began.Add(limit-SoftGrace(limit)).Sub(f.At)), 1))
		ctx, cancel = context.WithDeadline(guests, began.Add(limit))
	}
	defer cancel()
	e.offsets.alone()
	state := e.state
	inv := &abi.Invocation{Host: e, WholeLog: e.wholeLog(), Offset: e.state.Offset, HasOffset: e.state.HasOffset}
	if e.isStaged { // a retry goes on from the last batch that succeeded
		inv.Offset, inv.HasOffset = e.staged, true
	}
	e.offsets.endAlone()
	inv.Context = f.context(e)
	inv.Context.Attempt, inv.Context.Deadline = attempt, deadline

	ev := f.event(e, inv.Context.RunID)
	NoteOffset(&ev, state)
	if !e.givenBack { // else that was said before another guest gave it back
		ev.Kind, ev.Waited = event.ItemStarted, e.waited.Report()
		if attempt == 1 {
			ev.Previous, ev.Args = e.previous, Args(f.ID)
		}
		f.job.Emit(ev)
	}
	e.givenBack = false
	e.started.Store(true)
	ev.KeptOffset, ev.Previous, ev.Waited, ev.Args = event.KeptOffset{}, nil, nil, nil
	result := worker.Execute(ctx, inv)
	if result.NotBegun {
		return result
	}
	f.ended.Store(max(int64(time.Since(f.started)), 1)) // of those that end at once, either is the last
	if !e.doubted.Load() {
		result = OutOfTime(result, e.Cancelled(), f.Guest.Timeout)
	}
	cause := context.Cause(guests)
	if result.Outcome == abi.OutcomeCancelled && (cause == ErrOperator || cause == errNext) {
		result.Message = cause.Error()
	}
	ev.Kind, ev.Outcome, ev.Duration, ev.Reason = event.ItemEnded, result.Outcome, time.Since(began), result.Message
	if result.Message == errNext.Error() && cause == errNext {
		ev = ev.Why(reason.New(reason.TerminatedForNext))
	}
	ev.Memory, ev.Batches, ev.Records, ev.DroppedLines = result.Memory, result.Batches, result.Records, result.DroppedLines
	ev.Outside = result.Outside
	if result.Batches > 0 {
		attempt = 1 // as in attempts
	}
	ev.Again = guests.Err() == nil && (f.retried(e, result, attempt) || e.runsAgain(result))
	f.job.Emit(ev)
	return result
}

// event is an event of the item's newest attempt.
func (f *Fire) event(e *Execution, runID string) event.Event {
	return event.Event{Item: &e.Item, Instant: f.ID.Time(), Trigger: f.ID.Trigger, Source: f.Source(), RunID: runID,
		Fence: e.Fence, Digest: f.Exec.Digest(), Signer: signer(f.Exec), Attempt: e.Attempt()}
}

// OutOfTime is the result of an attempt that may have obeyed its time-out: a guest
// that returns because its time is nearly up has not done its work in time. c is
// why the guest was asked to end, limit its time-out, which the message says.
func OutOfTime(r abi.Result, c abi.Cancel, limit time.Duration) abi.Result {
	if r.Outcome == abi.OutcomeTimeout && limit > 0 {
		r.Message = strings.TrimSpace(fmt.Sprintf("%s (timeout %s)", r.Message, limit))
	}
	if r.Outcome == abi.OutcomeCancelled && c == abi.CancelDeadline {
		r.Outcome = abi.OutcomeTimeout
		r.Message = fmt.Sprintf("it ended early because its time was nearly up (timeout %s): %s", limit, r.Message)
	}
	return r
}

// NoteOffset notes an item's offset in an event, and how often it was written.
func NoteOffset(ev *event.Event, s coordination.ItemState) {
	if !s.HasOffset {
		return
	}
	ev.OffsetWrites = int64(s.OffsetVersion) + 1
	if kept, err := kv.Decode(s.Offset, true); err == nil { // else the guest's run says that it is damaged
		ev.Offset = event.OffsetText(kept.Offset)
	}
}

// context is what the guest sees.
func (f *Fire) context(e *Execution) abi.ShardingContext {
	return abi.ShardingContext{
		JobName: f.job.Name, TaskID: f.taskID, ShardingTotalCount: f.Config.ShardingTotalCount, JobParameter: f.Config.JobParameter,
		ShardingItem: e.Item, ShardingParameter: e.parameter, HasShardingParameter: e.hasParameter,
		FireTime: f.ID.Time(), PreviousFireTime: f.Previous, NextFireTime: f.Next, Attempt: 1,
		Fence: e.Fence, FetchDataCount: f.Guest.FetchDataCount, RunID: e.RunID(), Source: f.Source(), HostInfo: f.job.HostInfo,
		Traceparent: e.traceparent(),
	}
}
