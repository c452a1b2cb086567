package run

import (
	"context"
	"fmt"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/coordination/guarantee"
	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/tree"
	"github.com/wasmjob/wasmjob/host/event"
	"github.com/wasmjob/wasmjob/host/slots"
)

// ListenerWait is a fire's wait for other hosts around a listener.
type ListenerWait struct {
	export string
	Since  time.Time
}

// For says in words what is waited for.
func (w *ListenerWait) For() string {
	return "the items of the other hosts, around the listener " + w.export
}

// before calls the listeners that run before the items.
func (f *Fire) before(guests context.Context) {
	f.once(guests, guarantee.Started, abi.ExportBeforeOnce)
	f.listen(guests, abi.ExportBefore)
}

// after calls the listeners that run after the items.
func (f *Fire) after(guests context.Context) {
	f.listen(guests, abi.ExportAfter)
	f.once(guests, guarantee.Completed, abi.ExportAfterOnce)
}

// Listener is a listener of a fire that runs, or waits for a slot.
type Listener struct {
	Export string
	// Since is when it began to, by Go's own clock.
	Since time.Time

	run *Execution
}

// Abort asks the listener to end by the given time, and reports true for the first time. Press stops it by force if that
// time is over, and returns it if it is not.
func (l *Listener) Abort(reason string, until time.Time) (first bool) {
	first, _ = l.run.Abort(reason, until)
	return first
}

// Press is described with Abort.
func (l *Listener) Press(now time.Time) (at time.Time) { return l.run.Press(now) }

// LongListener is how long a listener runs before its owner hears of it.
const LongListener = time.Second

// listen runs a listener export in an instance of its own.
func (f *Fire) listen(guests context.Context, export string) {
	if !f.Exec.HasListener(export) {
		return
	}
	e := &Execution{fire: f, Item: -1, offsets: newTurn()}
	e.claimed.Store(true)
	own, end := e.life(guests)
	defer end()
	l := &Listener{Export: export, Since: time.Now(), run: e}
	f.listener.Store(l)
	long := time.AfterFunc(LongListener, f.job.Listens)
	defer func() {
		f.listener.Store(nil)
		if !long.Stop() {
			f.job.Listens()
		}
	}()
	// Fires overlap, and so do their listeners: a place for each, or one job
	// had all slots in the end.
	slot := slots.Hold{Account: f.job.Account}
	if !slot.Take(f.job.Slots, f.ID.Instant, nil, own.Done()) {
		f.notListened(e, export)
		return
	}
	defer slot.End()
	worker, err := f.Exec.NewWorker(f.withoutSlot(own, &slot, f.job.Slots))
	if err != nil {
		f.notListened(e, export)
		return
	}
	defer worker.Close()
	if !slot.Has() {
		f.notListened(e, export)
		return
	}
	f.attend(own, worker, e, export)
}

// attend has a worker run a listener, which has a limit. As an item, it runs once more if its worker process has ended
// under it: another guest may have ended that.
func (f *Fire) attend(own context.Context, worker abi.Worker, e *Execution, export string) {
	wall := f.job.Clock()
	limit := listenerTimeout
	if t := f.Guest.Timeout; t > 0 {
		limit = min(limit, t)
	}
	ctx, cancel := context.WithTimeout(own, limit)
	defer cancel()
	inv := &abi.Invocation{Host: e, WholeLog: e.wholeLog(), Context: f.context(e)}
	inv.Context.Deadline = wall.Add(limit)
	var result abi.Result
	killed := false
	for run, again := 1, true; again; run++ {
		if !e.enter() {
			f.notListened(e, export)
			return
		}
		began := time.Now()
		result = worker.Listen(ctx, export, inv)
		e.leave()
		var ended Ended
		if ended, killed = e.killed(result); killed {
			result = ended.Result
		}
		again = run == 1 && result.Outcome == abi.OutcomeWorker && ctx.Err() == nil
		f.reportListener(export, result, time.Since(began), again)
	}
	if result.Outcome != abi.OutcomeOK && !killed {
		f.job.HandleError(f.Config, "listener "+export+" failed", result)
	}
}

// notListened reports a listener that an operator has killed before it began. One that does not begin because guests are
// to end is not reported.
func (f *Fire) notListened(e *Execution, export string) {
	if ended, killed := e.KilledBefore(); killed {
		f.reportListener(export, ended.Result, 0, false)
	}
}

// reportListener reports how a listener ended, and whether it runs again.
func (f *Fire) reportListener(export string, result abi.Result, took time.Duration, again bool) {
	f.job.Emit(event.Event{Kind: event.Listener, Instant: f.ID.Time(), Trigger: f.ID.Trigger, Source: f.Source(), Digest: f.Exec.Digest(),
		Outcome: result.Outcome, Duration: took, Reason: reasonOf(export, result.Message), DroppedLines: result.DroppedLines, Outside: result.Outside,
		AttemptEnd: event.AttemptEnd{Again: again}})
}

func reasonOf(export, message string) string {
	if message == "" {
		return export
	}
	return export + ": " + message
}

// listenerTimeout bounds a listener, as the job's timeout does if that is shorter, and how long hosts wait for each other
// around one that runs once over all of them.
const listenerTimeout = time.Minute

// javaListener is how long a Java host that came last may be at its listener.
const javaListener = 2 * time.Second

// once runs a listener on one host only: the last of all hosts to come here.
// The others wait until it has run.
func (f *Fire) once(guests context.Context, phase guarantee.Phase, export string) {
	if !f.Exec.HasListener(export) || (f.Source() != abi.SourceSchedule && f.Source() != abi.SourceTrigger) {
		return // some items of a fire that the others had before
	}
	ctx, cancel := context.WithTimeout(guests, listenerTimeout)
	defer cancel()
	wait := &ListenerWait{export, time.Now()}
	f.waits.Store(wait)
	r, l := f.job.Registry(), f.job.Layout
	// Watch first, so that the end of the phase cannot be missed.
	changes, err := r.Watch(ctx, guarantee.Watch(l, phase))
	last := false
	var arrived tree.Items
	if err == nil {
		arrived = f.here()
		last, err = guarantee.Arrive(ctx, r, l, f.Self, phase, arrived, f.Config.ShardingTotalCount)
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
		f.job.Expired(&event.WaitError{What: event.WaitListener, For: wait.For(), Then: "going on without it", After: time.Since(wait.Since), Err: err})
		f.endPhase(guests, phase)
	case err != nil && guests.Err() == nil:
		message := fmt.Sprintf("waiting for the other hosts: %v", err)
		f.job.Emit(event.Event{Kind: event.Listener, Instant: f.ID.Time(), Trigger: f.ID.Trigger, Source: f.Source(), Digest: f.Exec.Digest(),
			Outcome: abi.OutcomeError, Duration: time.Since(wait.Since), Reason: reasonOf(export, message)})
		f.job.HandleError(f.Config, "listener "+export, abi.Result{Outcome: abi.OutcomeError, Err: err, Message: message})
		f.endPhase(guests, phase)
	}
}

// here are the items of this host that are due in the fire.
func (f *Fire) here() tree.Items {
	items := slices.Clone(f.Absent)
	for _, e := range f.Runs {
		items = append(items, e.Item)
	}
	slices.Sort(items)
	return items
}

// announce marks that the items have come to a phase for which the module has no
// listener: listeners of Java hosts wait for all items. The Java host that comes
// last runs its own. If this host is the last, none does; then the marks are cleared,
// or the Java hosts would wait until they time out.
func (f *Fire) announce(guests context.Context, phase guarantee.Phase, export string) {
	if !f.Announces || f.Exec.HasListener(export) || (f.Source() != abi.SourceSchedule && f.Source() != abi.SourceTrigger) {
		return
	}
	ctx, cancel := context.WithTimeout(guests, listenerTimeout)
	defer cancel()
	r, l := f.job.Registry(), f.job.Layout
	items := f.here()
	last, err := guarantee.Arrive(ctx, r, l, f.Self, phase, items, f.Config.ShardingTotalCount)
	if err == nil && last {
		// A Java host may have come last, and be at its listener.
		grace, done := context.WithTimeout(ctx, javaListener)
		defer done()
		var changes <-chan registry.Snapshot
		changes, err = r.Watch(grace, guarantee.Watch(l, phase))
		if err == nil && f.await(grace, r, changes, phase, items) != nil && guests.Err() == nil {
			f.job.Log.Info("the listeners of Java hosts that run once over all do not run in this fire: its last item was here, and the module does not export that listener",
				zap.String("export", export), zap.Time("instant", f.ID.Time()))
			f.endPhase(guests, phase)
		}
	}
	if err != nil && guests.Err() == nil {
		f.job.Log.Warn("marking items for the listeners of Java hosts", zap.String("export", export), zap.Error(err))
	}
}

// endPhase lets everybody go on who waits for a listener of the phase.
func (f *Fire) endPhase(guests context.Context, phase guarantee.Phase) {
	if err := guarantee.Clear(guests, f.job.Registry(), f.job.Layout, phase); err != nil {
		f.job.Log.Warn("clearing the marks of a listener", zap.Error(err))
	}
}

// await returns when the phase at which the items have arrived is over. A
// snapshot may be older than the arrival: it only says when to look.
func (f *Fire) await(ctx context.Context, r registry.Center, changes <-chan registry.Snapshot, phase guarantee.Phase, items tree.Items) error {
	for {
		nodes, err := r.Read(ctx, guarantee.Watch(f.job.Layout, phase))
		if err != nil {
			return err
		}
		if guarantee.Passed(nodes[0], items) {
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
