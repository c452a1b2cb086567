package engine

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/coordination"
	"github.com/wasmjob/wasmjob/coordination/jobconfig"
	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/tree"
	"github.com/wasmjob/wasmjob/host/engine/run"
	"github.com/wasmjob/wasmjob/host/event"
	"github.com/wasmjob/wasmjob/internal/text/reason"
	"github.com/wasmjob/wasmjob/internal/text/words"
)

// killWatchAfter is how long guests of a fire run before this host watches what
// operators ask it to end. A fire that is over sooner costs nothing; what was
// asked meanwhile is found then.
const killWatchAfter = time.Second

// longestRecorded bounds the reason in an item's record, in bytes: it is written with
// every failure, and read with every list of items.
const longestRecorded = 200

// recordedReason is what a record keeps of a failure, for who looks at the cluster
// and not at one host's history.
func recordedReason(r abi.Result) string {
	if r.Outcome == abi.OutcomeOK {
		return ""
	}
	first, _, _ := strings.Cut(r.Message, "\n")
	return event.Cut(event.Harmless(first), longestRecorded)
}

func (rn *runner) commitEnded(now moment) {
	defer rn.hurry()()
	c := coordination.Completing{Items: make(map[int]coordination.Ended), Now: now.wall}
	for _, e := range rn.ends.of {
		c.Marked = c.Marked || e.Run.Fire().Config.MonitorExecution
	}
	tries := 0
	for n, e := range rn.ends.of {
		if e.Unfinished || rn.denials.waits(now, n) {
			continue
		}
		if rn.denials.of[denied{item: n}] != nil {
			if tries++; tries > mostTries {
				continue
			}
		}
		ended := e.Completing(string(e.Result.Outcome), cmp.Or(e.Reason.String(), recordedReason(e.Result)))
		ended.Fire = e.Run.Fire().ID
		ended.Root = rn.chain.rootOf(now, ended.Fire)
		ended.Permit = rn.limits.permitOf(n)
		switch it := rn.items.get(n); {
		case it == nil:
		case !it.owned:
			c.Wake = true
		default:
			ended.State.Record = rn.dues.owing(it, tree.Fire{}, ended.State.Record)
			if ended.HandBack != nil {
				*ended.HandBack = rn.dues.owing(it, tree.Fire{}, *ended.HandBack)
			}
		}
		c.Items[n] = ended
		rn.worked()
		if rn.member.Share.Pending.Contains(n) && !rn.member.View.Necessary {
			c.AskForSharding = true
		}
	}
	if err := rn.rates.pauseKeys(now, rn.ends.of); err != nil {
		rn.failed(now, "pausing the key of a rate", err)
		return
	}
	out, err := rn.member.Complete(rn.work, c)
	rn.denials.note(now, "", out.Denied, rn.log)
	switch {
	case err == nil:
		rn.ends.writtenAt = now.Time
		rn.adopt(now, out.Adopted)
	case errors.Is(err, registry.ErrConflict) && !rn.member.View.Exists:
		out = coordination.Completed{} // the job was removed, and its records with it
	default:
		rn.failed(now, "completing items", err)
		return
	}
	for _, n := range slices.Sorted(maps.Keys(c.Items)) {
		if out.Denied[n] != nil {
			continue // it is put again later
		}
		rn.denials.end(n)
		e := rn.ends.of[n]
		delete(rn.ends.of, n)
		state, took := out.Items[n]
		if took {
			delete(rn.limits.held, n)
		} else {
			rn.limits.drop(n)
		}
		if slices.Contains(out.Killed, n) {
			e = e.KilledInstead(reason.Read(state.Record.Reason))
		}
		beside, crowded := out.Crowded[n]
		if crowded {
			beside = cmp.Or(beside, event.BesideUnknown)
			rn.log.Error("the item's running mark was another host's or gone when it ended: a Java host has run it at the same time, or the node was edited",
				zap.Int("item", n), zap.String("run", e.Run.RunID()), zap.String("mark of", beside))
		}
		rn.settle(now, n, e, state, took, abi.Outcome(out.Closed[n].Outcome), beside)
	}
	if len(rn.ends.of) > 0 {
		rn.ends.since = now.Time
	}
}

// settle draws the conclusions of an item's completion, once it took effect or was
// refused. closed is with what outcome others have closed the run, if they have; beside is Event.Beside.
func (rn *runner) settle(now moment, n int, e run.Ended, state coordination.ItemState, took bool, closed abi.Outcome, beside string) {
	f := e.Run.Fire()
	f.Open--
	rn.live--
	it := rn.items.get(n)
	rn.reportEnd(n, e, state, took, closed, beside)
	if took && e.HandedBack() && it != nil && rn.beyond(it) { // no host will get it
		rn.reports.skip(it, f.ID, event.SkipDisabled, reason.New(reason.FewerItems, rn.counts().Total))
	}
	if !took || (e.HandedBack() && e.Later.IsZero()) {
		f.Note(abi.OutcomeCancelled)
	} else {
		rn.tally.count(now, e.Result.Outcome)
	}
	if !e.HandedBack() {
		f.Note(e.Result.Outcome)
	}
	if !e.HandedBack() && e.Result.Outcome.Failed() {
		rn.known.HandleError(f.Config, "item failed", e.Result, zap.Int("item", n), zap.String("run", e.Run.RunID()))
		f.Thrown = f.Thrown || f.Config.JobErrorHandlerType == "THROW"
	}
	if most := rn.guest.PauseAfterFailures; took && most > 0 && !e.HandedBack() && e.Result.Outcome.Failed() && state.Record.Failures%most == 0 {
		rn.pausing.want(jobconfig.PropPauseAfterFailures, reason.New(reason.FailedInARow, words.Count(most, "run"), n, e.Result.Outcome).String())
	}
	if it == nil {
		return
	}
	it.run = nil
	it.lastOutcome, it.lastMessage, it.lastEnd, it.lastOutside = e.Result.Outcome, event.Reason(e.Result.Message), now.wall, e.Result.Outside
	if took {
		state.Misfire = state.Misfire || it.state.Misfire // marked while it ran
		it.state = state
	} else {
		it.state.RecordVersion = -2 // known to be wrong: the next begin reads again
	}
	if f.Thrown {
		rn.dues.dropWaiting(it, it.Waiting(), event.SkipFailed, reason.New(reason.ThrowStopped))
	}
	moves := e.Moved && rn.member.Share.Pending.Contains(n) // it has to be idle for that; takeShare looks if it stays after all
	stays := it.owned && !rn.exit.leaves() && !moves
	if e.HandedBack() && took && (f.ID.HasArgs() || it.Due == nil || rn.dues.policies().Each(f.ID)) && stays {
		rn.dues.owe(it, f.ID) // handed back, and the host stays after all
	}
	if !it.owned {
		rn.items.remove(n)
	}
}

// closedCauses are the causes of events of runs that others have closed.
var closedCauses = map[abi.Outcome]event.SkipCause{tree.OutcomeLost: event.SkipLost, tree.OutcomeHeld: event.SkipHeld, tree.OutcomeElsewhere: event.SkipElsewhere, abi.OutcomeCancelled: event.SkipDisabled}

// reportEnd reports that an item's completion took effect, or why it did not.
func (rn *runner) reportEnd(n int, e run.Ended, state coordination.ItemState, took bool, closed abi.Outcome, beside string) {
	f := e.Run.Fire()
	ev := event.Event{Item: &n, Instant: f.ID.Time(), Trigger: f.ID.Trigger, Source: f.Source(), RunID: e.Run.RunID(),
		Fence: e.Run.Fence, Digest: f.Exec.Digest(), Attempt: e.Run.Attempt(), Outcome: e.Result.Outcome}
	var why reason.Reason
	switch {
	case !took && !rn.member.View.Exists:
		ev.Kind, ev.Cause, why = event.ItemSkipped, event.SkipDisabled, reason.New(reason.RemovedWhileRunning)
	case !took && closed != "":
		ev.Kind, ev.Cause, ev.Outcome = event.ItemSkipped, cmp.Or(closedCauses[closed], event.SkipElsewhere), closed
		why = reason.New(reason.RecordedAs, closed)
		rn.log.Error("completion refused: other hosts have closed the run", zap.Int("item", n), zap.Int64("fence", e.Run.Fence), zap.String("outcome", string(closed)))
	case !took:
		ev.Kind, ev.Cause, why = event.ItemSkipped, event.SkipElsewhere, reason.New(reason.TakenOver)
		rn.log.Error("completion refused: the item is no longer this host's", zap.Int("item", n), zap.Int64("fence", e.Run.Fence))
	case e.Late:
		ev.Kind, ev.Cause, why = event.ItemSkipped, event.SkipLate, e.Reason
		ev.Fence, ev.Outcome = 0, "" // no guest ran
	case e.Unstarted:
		back := reason.New(reason.HostStops)
		switch {
		case rn.exit.left.IsZero():
		case rn.exit.state == JobRemoved:
			back = reason.New(reason.JobWas, reason.New(reason.Removed))
		default:
			back = reason.New(reason.JobWas, reason.New(reason.Stopped))
		}
		ev.Kind, ev.Cause, why = event.ItemSkipped, event.SkipElsewhere, reason.New(reason.Unstarted, back)
	case e.Moved:
		ev.Kind, ev.Cause, why = event.ItemSkipped, event.SkipElsewhere, reason.New(reason.MovesAway)
	case !e.Later.IsZero():
		ev.Kind, ev.Cause, why, ev.Owed = event.ItemSkipped, event.SkipLater, laterReason(state.Record), f.ID.Trigger == 0
	default:
		ev.Kind, why, ev.Count, ev.Beside = event.ItemCompleted, e.Reason, int64(state.Record.Failures), beside
		run.NoteOffset(&ev, state)
	}
	rn.reports.emitItem(ev.Why(why))
}

// closeFire ends a fire whose goroutines have ended and whose completions are
// all settled, or will never be.
func (rn *runner) closeFire(f *run.Fire) {
	delete(rn.fires, f)
	f.Exec.Release()
	rn.measure(f)
	if f.Open > 0 {
		f.Note(abi.OutcomeCancelled)
	}
	items := f.Items()
	now, duration := rn.host.now(), f.Took()
	status := &FireStatus{Instant: f.ID.Time(), Trigger: f.ID.Trigger, Source: f.Source(), Items: items, Outcome: f.Outcome, Duration: duration,
		Begun: now.instant(f.Started()), Ended: now.instant(f.Started().Add(duration))}
	rn.lastFire = status
	rn.Emit(event.Event{Kind: event.FireEnded, Instant: status.Instant, Trigger: f.ID.Trigger, Source: f.Source(), Items: items,
		Digest: f.Exec.Digest(), Outcome: f.Outcome, Duration: duration})
}

// fired reports whether the goroutines of all fires have ended.
func (rn *runner) fired() bool {
	for f := range rn.fires {
		if !f.GuestsDone {
			return false
		}
		rn.closeFire(f)
	}
	return true
}

// measure notes how late the items of a fire started, when it has ended.
func (rn *runner) measure(f *run.Fire) {
	if f.ID.Trigger != 0 || (f.Source() != abi.SourceSchedule && f.Source() != abi.SourceMisfire) {
		return
	}
	var lag time.Duration
	for _, e := range f.Runs {
		if started := e.StartedAt(); !started.IsZero() {
			lag = max(lag, started.Sub(f.ID.Time())-rn.calendar.Delay(f.ID.Time()))
		}
	}
	var period time.Duration
	if !f.Next.IsZero() {
		period = f.Next.Sub(f.ID.Time())
	}
	switch changed := rn.ends.overload.started(lag, period); {
	case changed && rn.ends.overload.behind:
		rn.log.Warn("the job is behind: its items start too late, and what they owe begins together until they do not", zap.Duration("lag", lag), zap.Duration("limit", rn.ends.overload.limit))
	case changed:
		rn.log.Info("the job is in time again", zap.Duration("lag", lag))
	}
}

// adopt runs what a commit had begun whose answer was lost, and what cannot be
// handed back. A host that leaves owes it instead.
func (rn *runner) adopt(now moment, claims []coordination.Claim) {
	if !rn.exit.leaves() && rn.module.exec != nil {
		rn.takeOver(now, "", reason.Reason{}, claims)
	}
}

// resolve settles a doubt that nothing else has settled: what was asked for is
// not asked for again if the item was disabled since, say, or if a list of runs
// that was to be taken over is gone because it was.
func (rn *runner) resolve(now moment) {
	if rn.rests(now) {
		return // it has gone wrong just now
	}
	if err := rn.settleDoubt(now); err != nil {
		rn.failed(now, "resolving commits of unknown outcome", err)
	}
}

// settleDoubt deals with what was begun by a commit whose answer was lost, and
// was not asked for again since: a scheduled instant is handed back, and is due
// again, other runs are adopted.
func (rn *runner) settleDoubt(now moment) error {
	adopted, err := rn.member.Resolve(rn.work, now.wall, !rn.exit.leaves())
	if len(adopted) > 0 {
		rn.adopt(now, adopted)
	}
	return err
}

// keepOwn settles runs here that were cut short, if no other host will find them
// unfinished: this one stays in the job after all, or the job was removed.
func (rn *runner) keepOwn() {
	removed := rn.exit.state == JobRemoved
	stays := !rn.exit.leaves() && rn.exit.left.IsZero() && rn.seen && rn.member.View.Joined()
	if !removed && !stays {
		return
	}
	for n, e := range rn.ends.of {
		if !e.Unfinished {
			continue
		}
		e.Unfinished = false
		switch {
		case removed:
			e.Reason = reason.New(reason.JobWas, reason.New(reason.Removed))
			if e.Result.Outcome == "" || e.Result.Outcome == abi.OutcomeCancelled {
				e.Result = abi.Result{Outcome: abi.OutcomeCancelled, Message: e.Reason.String()}
			}
		case e.Result.Outcome == "":
			e.Unstarted = true
		}
		rn.ends.of[n] = e
	}
}

// press ends what runs here within the drain timeout: guests are asked shortly
// before that is over, and then stopped by force. over is set when all of it has
// ended, or counts as unfinished: a guest that was stopped by force, and at last
// one whose completion the registry keeps refusing or denies. hard is set from the end of
// the timeout on.
func (rn *runner) press(now moment) (hard, over bool) {
	limit := rn.host.cfg.DrainTimeout
	if rn.exit.until.IsZero() {
		rn.exit.until = now.Add(limit)
	}
	hard = !now.Before(rn.exit.until)
	if !now.Before(rn.exit.until.Add(-run.SoftGrace(limit))) {
		for _, it := range rn.items.of {
			if it.run != nil {
				it.run.Cancel(abi.CancelStop)
			}
		}
	}
	if hard && rn.guests.ctx.Err() == nil {
		if n := rn.running(); n > 0 {
			rn.log.Warn("the drain timeout is over: stopping guests", zap.Int("items", n))
		}
		rn.guests.stop(errDrainOver)
	}
	refused := hard && rn.rests(now)
	for _, it := range rn.items.of {
		e, ended := rn.ends.of[it.number]
		settled := ended && (e.Unfinished || refused || (hard && rn.denials.waits(now, it.number)))
		if it.run != nil && !settled {
			return hard, false
		}
	}
	return hard, rn.fired()
}

// giveUp reports runs that are left unfinished, and forgets them.
func (rn *runner) giveUp(items tree.Items, why reason.Reason) {
	for _, n := range items {
		run := rn.ends.of[n].Run
		rn.Emit(event.Event{Kind: event.ItemSkipped, Item: &n, Instant: run.Fire().ID.Time(), Trigger: run.Fire().ID.Trigger, Source: run.Fire().Source(),
			RunID: run.RunID(), Fence: run.Fence, Digest: run.Fire().Exec.Digest(), Outcome: abi.OutcomeCancelled,
			Cause: event.SkipUnfinished}.Why(reason.New(reason.Unfinished, why)))
		delete(rn.ends.of, n)
		rn.live--
		if it := rn.items.get(n); it != nil {
			it.run = nil
		}
	}
}

// windDown hands back what has not begun, and asks streaming loops to end.
func (rn *runner) windDown() {
	for _, it := range rn.items.of {
		if it.run != nil {
			it.run.Yield()
		}
	}
	for f := range rn.fires {
		f.ReturnQueued()
	}
}
