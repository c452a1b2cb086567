package run

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/coordination/recipe/guarantee"
	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/tree"
	"github.com/wasmjob/wasmjob/host/event"
	"github.com/wasmjob/wasmjob/internal/slots"
	"github.com/wasmjob/wasmjob/internal/text/reason"
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
func (l *Listener) Abort(why reason.Reason, until time.Time) (first bool) {
	first, _ = l.run.Abort(why, until)
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
		Outcome: result.Outcome, Duration: took, Reason: reasonOf(export, result.Message), Because: event.OfListener(export), DroppedLines: result.DroppedLines, Outside: result.Outside,
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

// javaWaits is how long after its marks a Java host may not wait yet for the end of the phase: it looks at the
// marks first, and what ends meanwhile it does not notice. It waits without a limit.
const javaWaits = 500 * time.Millisecond

// once runs a listener on one host only: the last of all hosts to come here.
// The others wait until it has run.
func (f *Fire) once(guests context.Context, phase guarantee.Phase, export string) {
	if !f.Exec.HasListener(export) || !f.announced() {
		return // some items of a fire that the others had before
	}
	ctx, cancel := context.WithTimeout(guests, listenerTimeout)
	defer cancel()
	wait := &ListenerWait{export, time.Now()}
	f.waits.Store(wait)
	r, l := f.job.Registry(), f.job.Layout
	// Watch first, so that the end of the phase cannot be missed.
	changes, err := r.Watch(ctx, guarantee.Watch(l, phase))
	var s guarantee.Standing
	var arrived time.Time
	if err == nil {
		s, err = guarantee.Arrive(ctx, r, l, f.arrival(phase))
		arrived = time.Now()
	}
	if err == nil && !s.Last {
		s, err = f.await(ctx, r, changes, phase, s)
	}
	f.waits.Store(nil)
	switch {
	case err == nil && s.Last:
		f.listen(guests, export) // the others wait until the marks are gone
		if f.Announces && !sleep(guests, time.Until(arrived.Add(javaWaits))) {
			return
		}
		f.endPhase(guests, phase)
	case err == nil && s.Outrun:
		f.job.Log.Warn("a listener that runs once over all hosts does not run in this fire: some items are in a later one already",
			zap.String("export", export), zap.Time("instant", f.ID.Time()), zap.Stringer("missing", s.Missing))
	case err != nil && guests.Err() == nil && ctx.Err() != nil:
		idle := f.idleJava(guests, s.Missing)
		f.job.Expired(&event.WaitError{What: event.WaitListener, For: wait.For(), Then: "going on without it" + words(idle, s.Missing, f.ID), Other: first(idle), After: time.Since(wait.Since), Err: err}, s.Missing...)
		f.endPhase(guests, phase)
	case err != nil && guests.Err() == nil:
		message := fmt.Sprintf("waiting for the other hosts: %v", err)
		f.job.Emit(event.Event{Kind: event.Listener, Instant: f.ID.Time(), Trigger: f.ID.Trigger, Source: f.Source(), Digest: f.Exec.Digest(),
			Outcome: abi.OutcomeError, Duration: time.Since(wait.Since), Reason: reasonOf(export, message), Because: event.OfListener(export)})
		f.job.HandleError(f.Config, "listener "+export, abi.Result{Outcome: abi.OutcomeError, Err: err, Message: message})
		f.endPhase(guests, phase)
	}
}

// sleep waits, and reports false if guests are to end meanwhile.
func sleep(guests context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-guests.Done():
		return false
	}
}

// idleJava are the Java hosts that own items which have not come to a phase, and run none of them.
func (f *Fire) idleJava(guests context.Context, missing tree.Items) []string {
	idle, err := guarantee.IdleJava(guests, f.job.Registry(), f.job.Layout, missing)
	if err != nil && guests.Err() == nil {
		f.job.Log.Warn("looking for Java hosts that run nothing", zap.Error(err))
	}
	return idle
}

// first is the first of some hosts; empty if there is none.
func first(hosts []string) string {
	if len(hosts) == 0 {
		return ""
	}
	return hosts[0]
}

// words says that Java hosts have not come to a fire; empty if there are none.
func words(idle []string, missing tree.Items, fire tree.Fire) string {
	if len(idle) == 0 {
		return ""
	}
	return fmt.Sprintf("; Java host %s owns some of the items %s, and has run nothing for %s: restart it if it goes on so", strings.Join(idle, ", "), missing, fire.ID())
}

// arrival is this host's arrival at a phase.
func (f *Fire) arrival(phase guarantee.Phase) guarantee.Arrival {
	return guarantee.Arrival{Self: f.Self, Phase: phase, Fire: f.ID, Items: f.here(), Total: f.Config.ShardingTotalCount}
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
	if !f.Announces || f.Exec.HasListener(export) || !f.announced() {
		return
	}
	ctx, cancel := context.WithTimeout(guests, listenerTimeout)
	defer cancel()
	r, l := f.job.Registry(), f.job.Layout
	s, err := guarantee.Arrive(ctx, r, l, f.arrival(phase))
	if idle := f.leftBy(guests, s); err == nil && len(idle) > 0 {
		// The Java host may not have noticed the end of the phase, and waits for another one.
		f.job.Expired(&event.WaitError{What: event.WaitListener, For: "the items of the other hosts, around a listener of Java hosts (" + export + ")",
			Then: "deleting the marks of that fire, so that a host that waits goes on" + words(idle, s.Missing, s.Left), Other: first(idle), After: f.ID.Time().Sub(s.Left.Time())}, s.Missing...)
		f.endPhase(guests, phase)
		s, err = guarantee.Arrive(ctx, r, l, f.arrival(phase))
	}
	if err == nil && s.Last {
		// A Java host may have come last, and be at its listener.
		grace, done := context.WithTimeout(ctx, javaListener)
		defer done()
		var changes <-chan registry.Snapshot
		changes, err = r.Watch(grace, guarantee.Watch(l, phase))
		if err == nil {
			if _, late := f.await(grace, r, changes, phase, s); late != nil && guests.Err() == nil {
				f.job.Log.Info("the listeners of Java hosts that run once over all do not run in this fire: its last item was here, and the module does not export that listener",
					zap.String("export", export), zap.Time("instant", f.ID.Time()))
				f.endPhase(guests, phase)
			}
		}
	}
	if err != nil && guests.Err() == nil {
		f.job.Log.Warn("marking items for the listeners of Java hosts", zap.String("export", export), zap.Error(err))
	}
}

// leftBy are the Java hosts that have not come to the fire of which marks were left.
func (f *Fire) leftBy(guests context.Context, s guarantee.Standing) []string {
	if s.Left == (tree.Fire{}) || len(s.Missing) == 0 {
		return nil
	}
	return f.idleJava(guests, s.Missing)
}

// endPhase lets everybody go on who waits for a listener of the phase.
func (f *Fire) endPhase(guests context.Context, phase guarantee.Phase) {
	if err := guarantee.Clear(guests, f.job.Registry(), f.job.Layout, phase); err != nil {
		f.job.Log.Warn("clearing the marks of a listener", zap.Error(err))
	}
}

// await returns when the phase at which the items have arrived is over, with how things stood last. A
// snapshot may be older than the arrival: it only says when to look.
func (f *Fire) await(ctx context.Context, r registry.Center, changes <-chan registry.Snapshot, phase guarantee.Phase, s guarantee.Standing) (guarantee.Standing, error) {
	arrival := f.arrival(phase)
	for {
		now, err := guarantee.Look(ctx, r, f.job.Layout, arrival)
		if err != nil {
			return s, err
		}
		if s = now; s.Over {
			return s, nil
		}
		select {
		case _, ok := <-changes:
			if !ok {
				return s, ctx.Err()
			}
		case <-ctx.Done():
			return s, ctx.Err()
		}
	}
}
