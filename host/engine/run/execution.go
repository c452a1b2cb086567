package run

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/coordination"
	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/tree"
	"github.com/wasmjob/wasmjob/host/event"
	"github.com/wasmjob/wasmjob/internal/slots"
	"github.com/wasmjob/wasmjob/internal/text/reason"
)

// streamTurn is how long a streaming item runs while others of its job wait for its
// place: its run has to end for that, which takes commits.
const streamTurn = 10 * time.Second

// Execution is one item of one fire, and what its guest sees of the host
// (abi.Host). It is safe for concurrent use.
type Execution struct {
	// Item and Fence are the run's. They are not changed.
	Item  int
	Fence int64

	fire         *Fire
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
	notice    sync.Mutex
	noticed   chan struct{} // closed when it is asked to end; nil: nobody waits for that
	slot      *slots.Hold   // of the worker that has it; used by that one only
	waited    event.Waited  // of the next attempt; used by that worker only
	rest      func()        // gives the slot back, regain waits for one; likewise
	regain    func(done <-chan struct{}) bool
	givenBack bool // a guest has given it back before it began it; likewise
	resumed   int  // the attempt that was given back; likewise
	postponed bool // its guest has asked to run again later; not changed
	backs     int  // how often guests gave it back; likewise
	helper    bool // a helper has it; likewise
	orphaned  bool // its worker process has ended under it; likewise
	stopping  stopping
	offsets   *turn // state and staged; held across the commit of an offset
	state     coordination.ItemState
	staged    []byte
	isStaged  bool
	lost      bool
}

// Ended is the news that an item's run is over.
type Ended struct {
	Run    *Execution
	Result abi.Result
	// Unstarted: no guest ran; the instant is to be handed back.
	Unstarted bool
	// Unfinished: the guest was stopped, or stopped, because the host stops; the
	// run stays open, as after a crash.
	Unfinished bool
	// Moved: a streaming loop stopped because the item moves; the fire is handed
	// back, and goes on with the next owner.
	Moved bool
	// Later is when the item is to run again, because the guest asked for that; zero: it did not. The fire is handed
	// back.
	Later time.Time
	// Late: no guest ran, because it would have started too late.
	Late bool
	// Reason is kept with the outcome, if the outcome alone does not say why.
	Reason reason.Reason
}

// HandedBack reports whether the fire stays due for the item.
func (e Ended) HandedBack() bool { return e.Unstarted || e.Moved || !e.Later.IsZero() }

// Completing is what a completion of the run writes down: the item's state as the
// run knows it, and the offset.
func (e Ended) Completing(outcome, why string) coordination.Ended {
	r := e.Run
	r.offsets.alone()
	defer r.offsets.endAlone()
	out := coordination.Ended{State: r.state, Outcome: outcome, Reason: why, Failover: r.fire.Source() == abi.SourceFailover}
	if e.HandedBack() {
		before := r.state.Record.HandBack(r.fire.ID)
		if !e.Later.IsZero() {
			before = r.state.Record.Postpone(r.fire.ID, e.Later.UnixMilli(), why)
		}
		out.HandBack = &before
	}
	switch {
	case e.Unstarted:
	case e.Result.Staged && e.Result.Outcome == abi.OutcomeOK:
		out.Offset, out.HasOffset = e.Result.Offset, true
	case r.isStaged:
		out.Offset, out.HasOffset = r.staged, true
	}
	return out
}

// Fire is the fire that the run belongs to.
func (e *Execution) Fire() *Fire { return e.fire }

// Attempt is the number of the newest attempt; 0 before the first.
func (e *Execution) Attempt() int { return int(e.attempt.Load()) }

// Done is how far the guest says that it is.
func (e *Execution) Done() (done, total int64) { return e.done.Load(), e.total.Load() }

// Since is when the newest attempt began, StartedAt when the first did, by the wall
// clock; zero before.
func (e *Execution) Since() time.Time { return unixMilli(e.since.Load()) }

// StartedAt is explained at Since.
func (e *Execution) StartedAt() time.Time { return unixMilli(e.startedAt.Load()) }

func unixMilli(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms)
}

// QueuedSince is since when the run waits for a slot, by Go's own clock; zero if it
// does not.
func (e *Execution) QueuedSince() time.Time {
	if queued := e.queued.Load(); queued != 0 {
		return e.fire.At.Add(time.Duration(queued))
	}
	return time.Time{}
}

// Queued reports whether the run waits for a slot, or for the memory of its first attempt.
func (e *Execution) Queued() bool { return e.queued.Load() != 0 || !e.started.Load() }

// Save begins to save what the guest has staged: it returns that, and keeps the
// guest from committing until the caller has called Saved. It returns false if there
// is nothing; busy says that the guest is just committing.
func (e *Execution) Save() (save coordination.Ended, staged, busy bool) {
	if !e.offsets.TryAcquire(turns) {
		return save, false, true
	}
	if !e.isStaged || e.lost {
		e.offsets.endAlone()
		return save, false, false
	}
	return coordination.Ended{State: e.state, Offset: e.staged, HasOffset: true}, true, false
}

// Saved ends what Save began. state is the item's after the commit, nil if that did
// not take effect; lost says that the item is another host's.
func (e *Execution) Saved(state *coordination.ItemState, lost bool) {
	if state != nil {
		e.state, e.staged, e.isStaged = *state, nil, false
	} else if lost {
		e.lost = true
		e.Cancel(abi.CancelLost)
	}
	e.offsets.endAlone()
}

// Cancel asks the guest to stop. A stronger reason replaces a weaker one.
func (e *Execution) Cancel(c abi.Cancel) {
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

// Yield asks a streaming loop to stop after its batch. Other guests run on.
func (e *Execution) Yield() {
	if e.fire.Guest.StreamingProcess && e.reason.CompareAndSwap(int32(abi.CancelNone), int32(abi.CancelYield)) {
		e.wake()
	}
}

// Move asks a streaming loop to stop after its batch, for the item is to go on at
// another host. Other guests run on: their item moves when they end.
func (e *Execution) Move() {
	e.moving.Store(true)
	e.Yield()
}

// moved reports whether the guest ended early because of that.
func (e *Execution) moved(r abi.Result) bool {
	return e.moving.Load() && e.stoppedEarly(r, abi.CancelYield)
}

// stoppedEarly reports whether the guest ended before its work was done because it
// was cancelled for one of the reasons.
func (e *Execution) stoppedEarly(r abi.Result, reasons ...abi.Cancel) bool {
	return r.Yielded || (r.Outcome == abi.OutcomeCancelled && slices.Contains(reasons, abi.Cancel(e.reason.Load())))
}

// AwaitCancel returns when the guest is to end, or ctx has ended. A guest that is asked
// to yield is not to end: it finishes its batch. One goroutine calls it at a time.
func (e *Execution) AwaitCancel(ctx context.Context) {
	for ctx.Err() == nil {
		noticed := make(chan struct{})
		e.notice.Lock()
		e.noticed = noticed
		e.notice.Unlock()
		_, changed := e.fire.job.Trust()
		if c := e.Cancelled(); c != abi.CancelNone && c != abi.CancelYield {
			return
		}
		var late <-chan time.Time
		stop := func() bool { return false }
		if soft := e.soft.Load(); soft != 0 {
			t := time.NewTimer(time.Until(e.fire.At.Add(time.Duration(soft))))
			late, stop = t.C, t.Stop
		}
		select {
		case <-noticed:
		case <-changed:
		case <-late:
		case <-ctx.Done():
		}
		stop()
	}
}

// wake wakes a streaming item that waits for its slot, and a guest that waits for
// the world outside.
func (e *Execution) wake() {
	e.notice.Lock()
	if e.noticed != nil {
		close(e.noticed)
		e.noticed = nil
	}
	e.notice.Unlock()
	if e.asked != nil {
		e.waking.Do(func() { close(e.asked) })
	}
}

// Pause gives the slot of a streaming item to the next in line, and returns
// when the item has a slot again or is to end. If others of the job wait for its
// place, the item ends, and begins again with what is due then.
func (e *Execution) Pause(ctx context.Context) {
	if e.slot == nil || e.asked == nil || abi.Cancel(e.reason.Load()) != abi.CancelNone {
		return
	}
	f := e.fire
	if time.Since(e.slot.Placed) >= streamTurn && (f.taken.Load() < int64(len(f.Runs)) || e.slot.Crowded()) {
		e.Yield()
		return
	}
	if !e.slot.Wanted() {
		return
	}
	e.queue()
	// In line behind the items of its job that wait now, whose instants are
	// newer than its own.
	e.slot.Again(e.fire.job.Clock().UnixMilli(), e.asked, ctx.Done())
	e.queued.Store(0)
}

// queue notes that the run waits for a slot from now on.
func (e *Execution) queue() { e.queued.Store(max(int64(time.Since(e.fire.At)), 1)) }

// Busy says why an item that was begun cannot begin once more. runs is set if its
// guest was started.
func (e *Execution) Busy(now time.Time) (why reason.Reason, runs bool) {
	switch since := e.queued.Load(); {
	case since != 0:
		return reason.New(reason.WaitsForSlot, (now.Sub(e.fire.At) - time.Duration(since)).Round(time.Millisecond)), false
	case !e.started.Load():
		return reason.New(reason.GuestStarts), false
	}
	return reason.New(reason.ItemRuns), true
}

// Cancelled is asked by the guest, and before every import with an effect. A
// session in doubt is no reason to stop until it is in such doubt that the
// guest needs the time that is left to end by itself.
func (e *Execution) Cancelled() abi.Cancel {
	if c := abi.Cancel(e.reason.Load()); c != abi.CancelNone && c != abi.CancelYield {
		return c
	}
	if trust, _ := e.fire.job.Trust(); trust >= registry.TrustYield {
		e.doubted.Store(true)
		return abi.CancelLost
	}
	if soft := e.soft.Load(); soft != 0 && int64(time.Since(e.fire.At)) >= soft {
		return abi.CancelDeadline
	}
	return abi.Cancel(e.reason.Load())
}

// Log passes a guest's line on. A halted process may go on in a guest whose item
// is another host's by now: its lines would look like the owner's, and are
// dropped, with one word to the operator.
func (e *Execution) Log(level int, msg string, kv []string) {
	f := e.fire
	if f.job.OnLog == nil || e.isMuted() {
		return
	}
	line := e.line(level, msg, kv)
	if f.job.MayLog(event.Written(append([]string{line.Message}, line.Attrs...)...)) {
		f.job.OnLog(line)
	}
}

// isMuted reports whether the guest's lines are dropped.
func (e *Execution) isMuted() bool {
	f := e.fire
	if !e.isLost() {
		return false
	}
	if !e.muted.Swap(true) {
		f.job.Log.Warn("a guest goes on after its item was lost to this host: its lines are dropped", zap.Int("item", e.Item), zap.String("run", e.RunID()))
	}
	return true
}

func (e *Execution) line(level int, msg string, kv []string) event.GuestLog {
	f := e.fire
	msg, kv = event.HarmlessLine(msg, kv, abi.MaxLogMessage)
	return event.GuestLog{Time: f.lineTime(), Host: f.Self.ID, Job: f.job.Name, TaskID: f.taskID, RunID: e.RunID(), Item: e.Item, Fence: e.Fence, Level: level,
		Message: msg, Attrs: kv}
}

// lineTime is the time of a new line. It is later than that of every other line of the fire on this
// host, also if the clock stands still or is set back: readers tell lines apart, and put them in order, by their times.
func (f *Fire) lineTime() time.Time {
	now := f.job.Clock()
	wall := now.UnixNano()
	for {
		last := f.lastLine.Load()
		at := max(wall, last+1)
		if f.lastLine.CompareAndSwap(last, at) {
			return now.Add(time.Duration(at - wall))
		}
	}
}

// wholeLog takes all lines of the guest for what keeps them; nil: nothing does.
func (e *Execution) wholeLog() *abi.WholeLog {
	whole := e.fire.job.WholeLog
	if whole == nil {
		return nil
	}
	return &abi.WholeLog{Where: whole.Where, Add: func(ctx context.Context, level int, msg string, kv []string) {
		if !e.isMuted() {
			whole.Add(ctx, e.line(level, msg, kv))
		}
	}}
}

// isLost reports whether the item is, or may be, another host's: the guest was
// asked to, or the session is over. A session in doubt still keeps it.
func (e *Execution) isLost() bool {
	if abi.Cancel(e.reason.Load()) == abi.CancelLost {
		return true
	}
	trust, _ := e.fire.job.Trust()
	return trust == registry.TrustLost
}

// LogEnabled lets every line through; the sinks decide.
func (e *Execution) LogEnabled(int) bool { return e.fire.job.OnLog != nil }

// Progress notes how far the guest is.
func (e *Execution) Progress(done, total int64) {
	e.done.Store(done)
	e.total.Store(total)
}

// Metric passes a guest's value on.
func (e *Execution) Metric(kind int, name string, value int64) abi.Code {
	sink := e.fire.job.OnMetric
	if sink == nil {
		return abi.OK
	}
	return sink(event.GuestMetric{Job: e.fire.job.Name, Kind: kind, Name: name, Value: value})
}

// named is the run as those know it who watch the host.
func (e *Execution) named() event.Run {
	f := e.fire
	return event.Run{Job: f.job.Name, Instant: f.ID.Time(), Trigger: f.ID.Trigger, Item: e.Item, RunID: e.RunID()}
}

// OutsideCall passes on what the guest did outside. It is called by any goroutine, and
// only if the run has a trace that is recorded.
func (e *Execution) OutsideCall(c abi.OutsideCall) {
	if sink := e.fire.job.OnCall; sink != nil {
		sink(event.GuestCall{Run: e.named(), Time: e.fire.job.Clock(), OutsideCall: c})
	}
}

// traceparent begins the run's next part in its trace; empty if there are no traces.
func (e *Execution) traceparent() string {
	if begin := e.fire.job.Traceparent; begin != nil {
		return begin(e.named())
	}
	return ""
}

// StageOffset notes the newest offset; the job's loop makes it durable.
func (e *Execution) StageOffset(_ context.Context, offset []byte) abi.Code {
	if c := e.Cancelled(); c == abi.CancelLost {
		return abi.ErrCancelled
	}
	e.offsets.alone()
	defer e.offsets.endAlone()
	if e.lost {
		return abi.ErrConflict
	}
	first := !e.isStaged
	e.staged, e.isStaged = slices.Clone(offset), true
	if first {
		e.fire.job.Staged()
	}
	return abi.OK
}

// CommitOffset makes the offset durable before it returns. It waits for its turn
// if the job commits more often than it may, and while the session is in doubt
// for the end of the doubt, one way or the other.
func (e *Execution) CommitOffset(ctx context.Context, offset []byte) abi.Code {
	if !e.fire.job.MayCommit(ctx) || !e.certain(ctx) {
		return abi.ErrCancelled
	}
	e.offsets.alone()
	defer e.offsets.endAlone()
	if e.lost {
		return abi.ErrConflict
	}
	j := e.fire.job
	save := map[int]coordination.Ended{e.Item: {State: e.state, Offset: slices.Clone(offset), HasOffset: true}}
	out, err := coordination.SaveOffsets(ctx, j.Registry(), j.Layout, save)
	for errors.Is(err, registry.ErrSuspect) { // nothing was written
		if !e.certain(ctx) {
			return abi.ErrCancelled
		}
		out, err = coordination.SaveOffsets(ctx, j.Registry(), j.Layout, save)
	}
	if err = cmp.Or(err, out.Denied[e.Item]); err != nil {
		switch {
		case errors.Is(err, registry.ErrTooLarge):
			return abi.ErrTooLarge
		case errors.Is(err, registry.ErrSessionLost), errors.Is(err, context.Canceled):
			return abi.ErrCancelled
		}
		if errors.Is(err, registry.ErrConflict) {
			e.fire.job.Refused()
		}
		e.fire.job.Log.Warn("committing an offset", zap.Int("item", e.Item), zap.Error(err))
		if e.isStaged {
			// It may have taken effect. What was staged before must not be put
			// in its place.
			e.staged = slices.Clone(offset)
		}
		return abi.ErrUnavailable
	}
	if state, ok := out.Items[e.Item]; ok {
		e.state, e.staged, e.isStaged = state, nil, false
		return abi.OK
	}
	e.lost = true
	e.Cancel(abi.CancelLost)
	return abi.ErrConflict
}

// certain waits until the session is live, and reports false if the item is
// lost to this host, or ctx ended, before.
func (e *Execution) certain(ctx context.Context) bool {
	for {
		if e.Cancelled() == abi.CancelLost {
			return false
		}
		trust, changed := e.fire.job.Trust()
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

func (e *Execution) RunID() string {
	return tree.RunID(e.fire.job.Name, e.fire.ID, e.Item)
}
