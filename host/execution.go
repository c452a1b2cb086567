package host

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/coordination"
	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/host/event"
)

// execution is one item of one fire, and what its guest sees of the host
// (abi.Host). The fields above the line are not changed after the begin.
type execution struct {
	fire         *fire
	item         int
	fence        int64
	parameter    string
	hasParameter bool
	previous     *event.PreviousRun

	attempt   atomic.Int64
	since     atomic.Int64 // Unix milliseconds at which the attempt began
	startedAt atomic.Int64 // the same of the first
	done      atomic.Int64 // progress, as the guest reported it
	total     atomic.Int64
	reason    atomic.Int32  // abi.Cancel
	soft      atomic.Int64  // nanoseconds after the fire's begin from which the guest is asked to hurry, 0 = never
	muted     atomic.Bool   // a line was dropped because the item is lost
	moving    atomic.Bool   // it yields because the item moves
	doubted   atomic.Bool   // the attempt was cancelled because the session was in doubt
	started   atomic.Bool   // the event of its first attempt is written
	claimed   atomic.Bool   // a worker has taken it, or it ends without one
	queued    atomic.Int64  // nanoseconds after the fire's begin from which it waits for a slot, 0 = it does not
	asked     chan struct{} // of a streaming item: closed when it is asked to end
	waking    sync.Once
	slot      *hold // of the worker that has it; used by that one only
	stopping  stopping
	mu        sync.Mutex // state and staged; held across the commit of an offset
	state     coordination.ItemState
	staged    []byte
	isStaged  bool
	lost      bool
}

// endedRun is the news that an item's run is over.
type endedRun struct {
	run    *execution
	result abi.Result
	// unstarted: no guest ran; the instant is to be handed back.
	unstarted bool
	// unfinished: the guest was stopped, or stopped, because the host stops; the
	// run stays open, as after a crash.
	unfinished bool
	// moved: a streaming loop stopped because the item moves; the fire is handed
	// back, and goes on with the next owner.
	moved bool
	// reason is kept with the outcome, if the outcome alone does not say why.
	reason string
}

// handedBack reports whether the fire stays due for the item.
func (e endedRun) handedBack() bool { return e.unstarted || e.moved }

// cancel asks the guest to stop. A stronger reason replaces a weaker one.
func (e *execution) cancel(c abi.Cancel) {
	for {
		old := abi.Cancel(e.reason.Load())
		if old == abi.CancelLost || (old != abi.CancelNone && old != abi.CancelYield && c != abi.CancelLost) {
			return
		}
		if e.reason.CompareAndSwap(int32(old), int32(c)) {
			e.wake()
			return
		}
	}
}

// yield asks a streaming loop to stop after its batch. Other guests run on.
func (e *execution) yield() {
	if e.fire.guest.StreamingProcess && e.reason.CompareAndSwap(int32(abi.CancelNone), int32(abi.CancelYield)) {
		e.wake()
	}
}

// move asks a streaming loop to stop after its batch, for the item is to go on at
// another host. Other guests run on: their item moves when they end.
func (e *execution) move() {
	e.moving.Store(true)
	e.yield()
}

// moved reports whether the guest ended early because of that.
func (e *execution) moved(r abi.Result) bool {
	return e.moving.Load() && e.stoppedEarly(r, abi.CancelYield)
}

// stoppedEarly reports whether the guest ended before its work was done because it
// was cancelled for one of the reasons.
func (e *execution) stoppedEarly(r abi.Result, reasons ...abi.Cancel) bool {
	return r.Yielded || (r.Outcome == abi.OutcomeCancelled && slices.Contains(reasons, abi.Cancel(e.reason.Load())))
}

// wake wakes a streaming item that waits for its slot.
func (e *execution) wake() {
	if e.asked != nil {
		e.waking.Do(func() { close(e.asked) })
	}
}

// Pause gives the slot of a streaming item to the next in line, and returns
// when the item has a slot again or is to end. If others of the job wait for its
// place, the item ends, and begins again with what is due then.
func (e *execution) Pause(ctx context.Context) {
	if e.slot == nil || e.asked == nil || abi.Cancel(e.reason.Load()) != abi.CancelNone {
		return
	}
	f := e.fire
	if time.Since(e.slot.placed) >= streamTurn && (f.taken.Load() < int64(len(f.runs)) || e.slot.crowded()) {
		e.yield()
		return
	}
	if !e.slot.wanted() {
		return
	}
	e.queue()
	// In line behind the items of its job that wait now, whose instants are
	// newer than its own.
	e.slot.again(e.fire.job.host.clock().UnixMilli(), e.asked, ctx.Done())
	e.queued.Store(0)
}

// queue notes that the run waits for a slot from now on.
func (e *execution) queue() { e.queued.Store(max(int64(time.Since(e.fire.begun)), 1)) }

// busy says why an item that was begun cannot begin once more. runs is set if its
// guest was started.
func (e *execution) busy(now time.Time) (reason string, runs bool) {
	switch since := e.queued.Load(); {
	case since != 0:
		return fmt.Sprintf("the item has waited %s for a slot", (now.Sub(e.fire.begun) - time.Duration(since)).Round(time.Millisecond)), false
	case !e.started.Load():
		return "the item waits for memory", false
	}
	return "the item still runs", true
}

// Cancelled is asked by the guest, and before every import with an effect. A
// session in doubt is no reason to stop until it is in such doubt that the
// guest needs the time that is left to end by itself.
func (e *execution) Cancelled() abi.Cancel {
	if c := abi.Cancel(e.reason.Load()); c != abi.CancelNone && c != abi.CancelYield {
		return c
	}
	if trust, _ := e.fire.job.term.registry.Trust(); trust >= registry.TrustYield {
		e.doubted.Store(true)
		return abi.CancelLost
	}
	if soft := e.soft.Load(); soft != 0 && int64(time.Since(e.fire.begun)) >= soft {
		return abi.CancelDeadline
	}
	return abi.Cancel(e.reason.Load())
}

// Log passes a guest's line on. A halted process may go on in a guest whose item
// is another host's by now: its lines would look like the owner's, and are
// dropped, with one word to the operator.
func (e *execution) Log(level int, msg string, kv []string) {
	f := e.fire
	if f.job.host.cfg.OnLog == nil {
		return
	}
	if e.isLost() {
		if !e.muted.Swap(true) {
			f.job.log.Warn("a guest goes on after its item was lost to this host: its lines are dropped", zap.Int("item", e.item), zap.String("run", e.runID()))
		}
		return
	}
	msg, kv = event.Harmless(msg), event.HarmlessAll(kv)
	if !f.job.mayLog(written(append([]string{msg}, kv...)...)) {
		return
	}
	f.job.host.cfg.OnLog(event.GuestLog{Job: f.job.name, TaskID: f.taskID, RunID: e.runID(), Item: e.item, Fence: e.fence, Level: level, Message: msg, Attrs: kv})
}

// isLost reports whether the item is, or may be, another host's: the guest was
// asked to, or the session is over. A session in doubt still keeps it.
func (e *execution) isLost() bool {
	if abi.Cancel(e.reason.Load()) == abi.CancelLost {
		return true
	}
	trust, _ := e.fire.job.term.registry.Trust()
	return trust == registry.TrustLost
}

// LogEnabled lets every line through; the sinks decide.
func (e *execution) LogEnabled(int) bool { return e.fire.job.host.cfg.OnLog != nil }

// Progress notes how far the guest is.
func (e *execution) Progress(done, total int64) {
	e.done.Store(done)
	e.total.Store(total)
}

// Metric passes a guest's value on.
func (e *execution) Metric(kind int, name string, value int64) abi.Code {
	sink := e.fire.job.host.cfg.OnMetric
	if sink == nil {
		return abi.OK
	}
	return sink(event.GuestMetric{Job: e.fire.job.name, Item: e.item, Kind: kind, Name: name, Value: value})
}

// StageOffset notes the newest offset; the job's loop makes it durable.
func (e *execution) StageOffset(_ context.Context, offset []byte) abi.Code {
	if c := e.Cancelled(); c == abi.CancelLost {
		return abi.ErrCancelled
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.lost {
		return abi.ErrConflict
	}
	first := !e.isStaged
	e.staged, e.isStaged = slices.Clone(offset), true
	if first {
		e.fire.job.post(func(m *mailbox) { m.offsets = true })
	}
	return abi.OK
}

// CommitOffset makes the offset durable before it returns. It waits for its turn
// if the job commits more often than it may, and while the session is in doubt
// for the end of the doubt, one way or the other.
func (e *execution) CommitOffset(ctx context.Context, offset []byte) abi.Code {
	if !e.fire.job.mayCommit(ctx) || !e.certain(ctx) {
		return abi.ErrCancelled
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.lost {
		return abi.ErrConflict
	}
	j := e.fire.job
	save := map[int]coordination.Ended{e.item: {State: e.state, Offset: slices.Clone(offset), HasOffset: true}}
	out, err := coordination.SaveOffsets(ctx, j.registry(), j.member.Layout, save)
	for errors.Is(err, registry.ErrSuspect) { // nothing was written
		if !e.certain(ctx) {
			return abi.ErrCancelled
		}
		out, err = coordination.SaveOffsets(ctx, j.registry(), j.member.Layout, save)
	}
	if err != nil {
		switch {
		case errors.Is(err, registry.ErrTooLarge):
			return abi.ErrTooLarge
		case errors.Is(err, registry.ErrSessionLost), errors.Is(err, context.Canceled):
			return abi.ErrCancelled
		}
		if errors.Is(err, registry.ErrConflict) {
			e.fire.job.post(func(m *mailbox) { m.refused = true })
		}
		e.fire.job.log.Warn("committing an offset", zap.Int("item", e.item), zap.Error(err))
		if e.isStaged {
			// It may have taken effect. What was staged before must not be put
			// in its place.
			e.staged = slices.Clone(offset)
		}
		return abi.ErrUnavailable
	}
	if state, ok := out.Items[e.item]; ok {
		e.state, e.staged, e.isStaged = state, nil, false
		return abi.OK
	}
	e.lost = true
	e.cancel(abi.CancelLost)
	return abi.ErrConflict
}

// certain waits until the session is live, and reports false if the item is
// lost to this host, or ctx ended, before.
func (e *execution) certain(ctx context.Context) bool {
	for {
		if e.Cancelled() == abi.CancelLost {
			return false
		}
		trust, changed := e.fire.job.term.registry.Trust()
		if trust == registry.TrustLive {
			return true
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return false
		}
	}
}

func (e *execution) runID() string {
	return coordination.RunID(e.fire.job.name, e.fire.id, e.item)
}

// work is one worker of a fire: it takes items until none is left.
func (f *fire) work(guests context.Context) {
	var worker abi.Worker
	defer func() {
		if worker != nil {
			if err := worker.Close(); err != nil {
				f.job.log.Warn("closing a guest", zap.Error(err))
			}
		}
	}()
	slot := &hold{account: f.job.account}
	defer slot.end()
	for e := f.take(); e != nil; e = f.take() {
		own, end := e.life(guests)
		e.slot = slot
		if !f.ready(own, e, &worker) {
			end()
			if ended, killed := e.killedBefore(); killed {
				f.job.post(func(m *mailbox) { m.ended = append(m.ended, ended) })
			} else {
				f.giveBack(e)
			}
			continue
		}
		ended := f.attempts(guests, own, worker, e)
		end()
		f.job.post(func(m *mailbox) { m.ended = append(m.ended, ended) })
	}
}

// ready waits for an item's turn, and for the memory of a worker if there is none
// yet. It reports false if the item may not start any more.
func (f *fire) ready(own context.Context, e *execution, worker *abi.Worker) bool {
	select {
	case <-f.handBack:
		return false
	default:
	}
	if !e.slot.take(f.job.most(f.guest), f.id.Instant, f.handBack, own.Done()) {
		return false
	}
	e.queued.Store(0)
	if *worker != nil {
		return true
	}
	w, err := f.newWorker(own)
	if err != nil {
		e.slot.end()
		return false
	}
	*worker = w
	return true
}

// newWorker waits for the memory that a guest needs. The error says that the
// items are handed back, or that the item is to end.
func (f *fire) newWorker(own context.Context) (abi.Worker, error) {
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
	return f.exec.NewWorker(ctx)
}

// take is the next item that no worker has taken; nil if there is none.
func (f *fire) take() *execution {
	for {
		n := f.taken.Add(1) - 1
		if n == int64(len(f.runs)) {
			close(f.noneLeft) // no other goroutine comes to this number
		}
		if n >= int64(len(f.runs)) {
			return nil
		}
		if f.runs[n].claimed.CompareAndSwap(false, true) {
			return f.runs[n]
		}
	}
}

// giveBack ends an item that was not started. A scheduled instant that is
// handed back is due again for the next owner. A trigger and a takeover are not
// found that way: they stay open, as after a crash.
func (f *fire) giveBack(e *execution) {
	ended := endedRun{run: e, unstarted: true}
	if f.id.Trigger != 0 || f.source == abi.SourceFailover {
		ended = endedRun{run: e, unfinished: true}
	}
	f.job.post(func(m *mailbox) { m.ended = append(m.ended, ended) })
}

// returnQueued hands back all items that wait for a worker or a slot, at once,
// however long those that run may take. The job's loop calls it.
func (f *fire) returnQueued() {
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

// again waits for a slot for another attempt. It reports false if there will be
// none.
func (e *execution) again(own context.Context) bool {
	e.queue()
	defer e.queued.Store(0)
	return e.slot.again(e.fire.id.Instant, nil, own.Done())
}

// attempts runs an item, again if the policy says so. It is called with a
// slot, and has it or has given it back when it returns. own is the item's part
// of guests.
func (f *fire) attempts(guests, own context.Context, worker abi.Worker, e *execution) endedRun {
	policy := f.guest.Retry
	backoff := policy.Backoff
	for attempt := 1; ; attempt++ {
		if !e.enter() {
			ended, _ := e.killedBefore()
			return ended
		}
		result := f.attempt(own, worker, e, attempt)
		e.leave()
		if ended, killed := e.killed(result); killed {
			return ended
		}
		if result.Batches > 0 {
			attempt, backoff = 1, policy.Backoff // a streaming loop got on; its patience starts again
		}
		if (guests.Err() != nil && result.Outcome != abi.OutcomeOK) || f.cutShort(e, result) {
			return endedRun{run: e, result: result, unfinished: true}
		}
		if e.moved(result) {
			return endedRun{run: e, result: result, moved: true}
		}
		if e.doubted.Load() && result.Outcome == abi.OutcomeCancelled {
			// It was cancelled as lost, and was not lost. That is no
			// failure of its own: once that is certain it runs again.
			e.slot.rest()
			if !e.certainAgain(own) || !e.again(own) {
				if ended, killed := e.killed(result); killed {
					return ended
				}
				return endedRun{run: e, result: result, unfinished: true}
			}
			attempt--
			continue
		}
		again := result.Outcome != abi.OutcomeOK && slices.Contains(policy.On, string(result.Outcome)) &&
			attempt < policy.Attempts && (e.Cancelled() == abi.CancelNone || e.Cancelled() == abi.CancelDeadline)
		if again {
			e.slot.rest()
		}
		if !again || !pause(own, backoff) || !e.again(own) {
			if ended, killed := e.killed(result); killed {
				return ended
			}
			return endedRun{run: e, result: result, unfinished: guests.Err() != nil && result.Outcome != abi.OutcomeOK}
		}
		backoff = min(2*backoff, max(policy.MaxBackoff, policy.Backoff))
	}
}

// certainAgain waits for the end of a doubt. It reports false if the host stops.
func (e *execution) certainAgain(guests context.Context) bool {
	for {
		trust, changed := e.fire.job.term.registry.Trust()
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
func (f *fire) cutShort(e *execution, r abi.Result) bool {
	select {
	case <-f.handBack:
	default:
		return false
	}
	return e.stoppedEarly(r, abi.CancelStop, abi.CancelYield)
}

// attempt runs the item once.
func (f *fire) attempt(guests context.Context, worker abi.Worker, e *execution, attempt int) abi.Result {
	j := f.job
	began := j.host.now()
	e.attempt.Store(int64(attempt))
	e.since.Store(began.wall.UnixMilli())
	e.startedAt.CompareAndSwap(0, began.wall.UnixMilli())
	ctx, cancel := guests, context.CancelFunc(func() {})
	var deadline time.Time // by the wall clock, for the guest
	e.soft.Store(0)
	e.doubted.Store(false)
	if limit := f.guest.Timeout; limit > 0 && !f.guest.StreamingProcess {
		deadline = began.wall.Add(limit)
		e.soft.Store(max(int64(began.Add(limit-softGrace(limit)).Sub(f.begun)), 1))
		ctx, cancel = context.WithDeadline(guests, began.Add(limit))
	}
	defer cancel()
	e.mu.Lock()
	writes := offsetWrites(e.state)
	inv := &abi.Invocation{Host: e, Offset: e.state.Offset, HasOffset: e.state.HasOffset}
	if e.isStaged { // a retry goes on from the last batch that succeeded
		inv.Offset, inv.HasOffset = e.staged, true
	}
	e.mu.Unlock()
	inv.Context = f.context(e)
	inv.Context.Attempt, inv.Context.Deadline = attempt, deadline

	ev := event.Event{Item: &e.item, Instant: f.id.Time(), Trigger: f.id.Trigger, Source: f.source, RunID: inv.Context.RunID,
		Fence: e.fence, Digest: f.exec.Digest(), Attempt: attempt, OffsetWrites: writes}
	ev.Kind = event.ItemStarted
	if attempt == 1 {
		ev.Previous = e.previous
	}
	j.emit(ev)
	e.started.Store(true)
	ev.OffsetWrites, ev.Previous = 0, nil
	result := worker.Execute(ctx, inv)
	if !e.doubted.Load() {
		result = OutOfTime(result, e.Cancelled(), f.guest.Timeout)
	}
	if result.Outcome == abi.OutcomeCancelled && context.Cause(guests) == errOperator {
		result.Message = errOperator.Error()
	}
	ev.Kind, ev.Outcome, ev.Duration, ev.Reason = event.ItemEnded, result.Outcome, time.Since(began.Time), result.Message
	ev.Memory, ev.Batches, ev.Records, ev.DroppedLines = result.Memory, result.Batches, result.Records, result.DroppedLines
	j.emit(ev)
	return result
}

// OutOfTime is the result of an attempt that may have obeyed its time-out: a guest
// that returns because its time is nearly up has not done its work in time. c is
// why the guest was asked to end, limit its time-out.
func OutOfTime(r abi.Result, c abi.Cancel, limit time.Duration) abi.Result {
	if r.Outcome == abi.OutcomeCancelled && c == abi.CancelDeadline {
		r.Outcome = abi.OutcomeTimeout
		r.Message = fmt.Sprintf("it ended early because its time was nearly up (timeout %s): %s", limit, r.Message)
	}
	return r
}

// offsetWrites counts the writes of an item's offset.
func offsetWrites(s coordination.ItemState) int64 {
	if !s.HasOffset {
		return 0
	}
	return int64(s.OffsetVersion) + 1
}

// context is what the guest sees.
func (f *fire) context(e *execution) abi.ShardingContext {
	return abi.ShardingContext{
		JobName: f.job.name, TaskID: f.taskID, ShardingTotalCount: f.config.ShardingTotalCount, JobParameter: f.config.JobParameter,
		ShardingItem: e.item, ShardingParameter: e.parameter, HasShardingParameter: e.hasParameter,
		FireTime: f.id.Time(), PreviousFireTime: f.previous, NextFireTime: f.next, Attempt: 1,
		Fence: e.fence, FetchDataCount: f.guest.FetchDataCount, RunID: e.runID(), Source: f.source, HostInfo: f.job.host.cfg.HostInfo,
	}
}

// before calls the listeners that run before the items.
func (f *fire) before(guests context.Context) {
	f.once(guests, coordination.PhaseStarted, abi.ExportBeforeOnce)
	f.listen(guests, abi.ExportBefore)
}

// after calls the listeners that run after the items.
func (f *fire) after(guests context.Context) {
	f.listen(guests, abi.ExportAfter)
	f.once(guests, coordination.PhaseCompleted, abi.ExportAfterOnce)
}

// listen runs a listener export in an instance of its own.
func (f *fire) listen(guests context.Context, export string) {
	if !f.exec.HasListener(export) {
		return
	}
	// Fires overlap, and so do their listeners: a place for each, or one job
	// had all slots in the end.
	slot := hold{account: f.job.account}
	if !slot.take(f.job.slots, f.id.Instant, nil, guests.Done()) {
		return
	}
	defer slot.end()
	worker, err := f.exec.NewWorker(guests)
	if err != nil {
		return // guests are to end
	}
	defer worker.Close()
	began := f.job.host.now()
	ctx, cancel := context.WithTimeout(guests, listenerTimeout)
	defer cancel()
	e := &execution{fire: f, item: -1}
	inv := &abi.Invocation{Host: e, Context: f.context(e)}
	inv.Context.Deadline = began.wall.Add(listenerTimeout)
	result := worker.Listen(ctx, export, inv)
	f.job.emit(event.Event{Kind: event.Listener, Instant: f.id.Time(), Trigger: f.id.Trigger, Source: f.source, Digest: f.exec.Digest(),
		Outcome: result.Outcome, Duration: time.Since(began.Time), Reason: reasonOf(export, result.Message), DroppedLines: result.DroppedLines})
	if result.Outcome != abi.OutcomeOK {
		f.job.handleError(f.config, "listener "+export+" failed", result)
	}
}

func reasonOf(export, message string) string {
	if message == "" {
		return export
	}
	return export + ": " + message
}

// listenerTimeout bounds a listener, and how long hosts wait for each other
// around one that runs once over all of them.
const listenerTimeout = time.Minute

// once runs a listener on one host only: the last of all hosts to come here.
// The others wait until it has run.
func (f *fire) once(guests context.Context, phase coordination.Phase, export string) {
	if !f.exec.HasListener(export) || (f.source != abi.SourceSchedule && f.source != abi.SourceTrigger) {
		return // some items of a fire that the others had before
	}
	ctx, cancel := context.WithTimeout(guests, listenerTimeout)
	defer cancel()
	wait := &listenerWait{export, time.Now()}
	f.waits.Store(wait)
	r, l := f.job.registry(), f.job.member.Layout
	// Watch first, so that the end of the phase cannot be missed.
	changes, err := r.Watch(ctx, coordination.GuaranteeWatch(l, phase))
	last := false
	var arrived coordination.Items
	if err == nil {
		arrived = f.here()
		last, err = coordination.Arrive(ctx, r, l, f.self, phase, arrived, f.config.ShardingTotalCount)
	}
	if err == nil && !last {
		err = f.await(ctx, r, changes, phase, arrived)
	}
	f.waits.Store(nil)
	switch {
	case err == nil && last:
		f.listen(guests, export) // the others wait until the marks are gone
		f.endPhase(guests, phase)
	case err != nil && guests.Err() == nil && ctx.Err() != nil:
		f.job.expired(&event.WaitError{What: event.WaitListener, For: wait.forWhat(), Then: "going on without it", After: time.Since(wait.since), Err: err})
		f.endPhase(guests, phase)
	case err != nil && guests.Err() == nil:
		message := fmt.Sprintf("waiting for the other hosts: %v", err)
		f.job.emit(event.Event{Kind: event.Listener, Instant: f.id.Time(), Trigger: f.id.Trigger, Source: f.source, Digest: f.exec.Digest(),
			Outcome: abi.OutcomeError, Duration: time.Since(wait.since), Reason: reasonOf(export, message)})
		f.job.handleError(f.config, "listener "+export, abi.Result{Outcome: abi.OutcomeError, Err: err, Message: message})
		f.endPhase(guests, phase)
	}
}

// here are the items of this host that are due in the fire.
func (f *fire) here() coordination.Items {
	items := slices.Clone(f.absent)
	for _, e := range f.runs {
		items = append(items, e.item)
	}
	slices.Sort(items)
	return items
}

// announce marks that the items have come to a phase for which the module has no
// listener: listeners of Java hosts wait for all items. The Java host that comes
// last runs its own. If this host is the last, none does; then the marks are cleared,
// or the Java hosts would wait until they time out.
func (f *fire) announce(guests context.Context, phase coordination.Phase, export string) {
	if !f.announces || f.exec.HasListener(export) || (f.source != abi.SourceSchedule && f.source != abi.SourceTrigger) {
		return
	}
	ctx, cancel := context.WithTimeout(guests, listenerTimeout)
	defer cancel()
	r, l := f.job.registry(), f.job.member.Layout
	items := f.here()
	last, err := coordination.Arrive(ctx, r, l, f.self, phase, items, f.config.ShardingTotalCount)
	if err == nil && last {
		// A Java host may have come last, and be at its listener.
		grace, done := context.WithTimeout(ctx, javaGrace)
		defer done()
		var changes <-chan registry.Snapshot
		changes, err = r.Watch(grace, coordination.GuaranteeWatch(l, phase))
		if err == nil && f.await(grace, r, changes, phase, items) != nil && guests.Err() == nil {
			f.job.log.Info("the listeners of Java hosts that run once over all do not run in this fire: its last item was here, and the module does not export that listener",
				zap.String("export", export), zap.Time("instant", f.id.Time()))
			f.endPhase(guests, phase)
		}
	}
	if err != nil && guests.Err() == nil {
		f.job.log.Warn("marking items for the listeners of Java hosts", zap.String("export", export), zap.Error(err))
	}
}

// endPhase lets everybody go on who waits for a listener of the phase.
func (f *fire) endPhase(guests context.Context, phase coordination.Phase) {
	if err := coordination.ClearGuarantee(guests, f.job.registry(), f.job.member.Layout, phase); err != nil {
		f.job.log.Warn("clearing the marks of a listener", zap.Error(err))
	}
}

// await returns when the phase at which the items have arrived is over. A
// snapshot may be older than the arrival: it only says when to look.
func (f *fire) await(ctx context.Context, r registry.Center, changes <-chan registry.Snapshot, phase coordination.Phase, items coordination.Items) error {
	for {
		nodes, err := r.Read(ctx, coordination.GuaranteeWatch(f.job.member.Layout, phase))
		if err != nil {
			return err
		}
		if coordination.GuaranteePassed(nodes[0], items) {
			return nil
		}
		select {
		case _, ok := <-changes:
			if !ok {
				return ctx.Err()
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
