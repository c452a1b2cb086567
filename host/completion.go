package host

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
	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/host/event"
	"github.com/wasmjob/wasmjob/host/run"
)

// complete writes the ends of runs, in groups: at once when nothing runs any
// more, else a short time after the first.
func (j *job) complete(now moment) {
	j.keepOwn()
	pending := 0
	for _, e := range j.ended {
		if !e.Unfinished {
			pending++
		}
	}
	due := pending > 0 && !now.Before(j.refusal.retryAt) && j.term.registry.Trusted() &&
		(len(j.ended) >= j.running() || !now.Before(j.windowEnd()))
	if due {
		j.commitEnded(now)
	}
	for f := range j.fires {
		if f.Open == 0 && f.GuestsDone {
			j.closeFire(f)
		}
	}
	if j.exit.state == "" && j.seen && j.member.View.Exists && !j.member.View.Joined() && j.running() == 0 && j.exit.leaving == "" && !j.exit.draining && j.exit.left == "" && !j.exit.tried(now) {
		j.stopped(now)
	}
}

// windowEnd is when the items that have ended are completed, whether or not
// others still run.
func (j *job) windowEnd() time.Time {
	first, again := j.endedSince.Add(j.overload.window(completionWindow)), j.completedAt.Add(completionInterval)
	if again.After(first) {
		return again
	}
	return first
}

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

func (j *job) commitEnded(now moment) {
	c := coordination.Completing{Items: make(map[int]coordination.Ended), Now: now.wall}
	for _, e := range j.ended {
		c.Marked = c.Marked || e.Run.Fire().Config.MonitorExecution
	}
	for n, e := range j.ended {
		if e.Unfinished {
			continue
		}
		c.Items[n] = e.Completing(string(e.Result.Outcome), cmp.Or(e.Reason, recordedReason(e.Result)))
		if it := j.items[n]; it != nil && !it.owned {
			c.Wake = true
		}
		if j.member.Share.Pending.Contains(n) && !j.member.View.Necessary {
			c.AskForSharding = true
		}
	}
	out, err := j.member.Complete(j.work, c)
	switch {
	case err == nil:
		j.completedAt = now.Time
		j.adopt(now, out.Adopted)
	case errors.Is(err, registry.ErrConflict) && !j.member.View.Exists:
		out = coordination.Completed{} // the job was removed, and its records with it
	default:
		j.failed(now, "completing items", err)
		return
	}
	for _, n := range slices.Sorted(maps.Keys(c.Items)) {
		e := j.ended[n]
		delete(j.ended, n)
		state, took := out.Items[n]
		j.settle(now, n, e, state, took)
	}
	if len(j.ended) > 0 {
		j.endedSince = now.Time
	}
}

// settle draws the conclusions of an item's completion, once it took effect or was
// refused.
func (j *job) settle(now moment, n int, e run.Ended, state coordination.ItemState, took bool) {
	f := e.Run.Fire()
	f.Open--
	j.live--
	it := j.items[n]
	j.reportEnd(n, e, state, took)
	if took && e.HandedBack() && it != nil && j.beyond(it) { // no host will get it
		j.skipItem(it, f.ID, event.SkipDisabled, j.fewer())
	}
	if !took || e.HandedBack() {
		f.Cut++
	} else {
		j.tally.count(now, e.Result.Outcome)
	}
	if !e.HandedBack() && e.Result.Outcome != abi.OutcomeOK {
		f.Failures++
		j.HandleError(f.Config, "item failed", e.Result, zap.Int("item", n), zap.String("run", e.Run.RunID()))
		f.Thrown = f.Thrown || f.Config.JobErrorHandlerType == "THROW"
	}
	if it == nil {
		return
	}
	it.run = nil
	it.lastOutcome, it.lastMessage, it.lastEnd = e.Result.Outcome, event.Reason(e.Result.Message), now.wall
	if took {
		state.Misfire = state.Misfire || it.state.Misfire // marked while it ran
		it.state = state
	} else {
		it.state.RecordVersion = -2 // known to be wrong: the next begin reads again
	}
	if f.Thrown && it.due != nil {
		j.skipItem(it, *it.due, event.SkipFailed, "the item failed, and the error handler THROW stops the catch-up")
		it.due = nil
	}
	moves := e.Moved && j.member.Share.Pending.Contains(n) // it has to be idle for that; takeShare looks if it stays after all
	stays := it.owned && !j.exit.draining && j.exit.leaving == "" && !moves
	if e.HandedBack() && took && it.due == nil && stays {
		j.owe(it, f.ID) // handed back, and the host stays after all
	}
	if !it.owned {
		delete(j.items, n)
	}
}

// reportEnd reports that an item's completion took effect, or why it did not.
func (j *job) reportEnd(n int, e run.Ended, state coordination.ItemState, took bool) {
	f := e.Run.Fire()
	ev := event.Event{Item: &n, Instant: f.ID.Time(), Trigger: f.ID.Trigger, Source: f.Source(), RunID: e.Run.RunID(),
		Fence: e.Run.Fence, Digest: f.Exec.Digest(), Attempt: e.Run.Attempt(), Outcome: e.Result.Outcome}
	switch {
	case !took && !j.member.View.Exists:
		ev.Kind, ev.Cause, ev.Reason = event.ItemSkipped, event.SkipDisabled, "the job was removed while the item ran"
	case !took:
		ev.Kind, ev.Cause, ev.Reason = event.ItemSkipped, event.SkipElsewhere, "the item was taken over by another host before its completion could be written"
		j.log.Error("completion refused: the item is no longer this host's", zap.Int("item", n), zap.Int64("fence", e.Run.Fence))
	case e.Unstarted:
		ev.Kind, ev.Cause, ev.Reason = event.ItemSkipped, event.SkipElsewhere, "handed back unstarted: the host is stopping"
		if j.exit.left != "" {
			ev.Reason = "handed back unstarted: the job was " + string(j.exit.state)
		}
	case e.Moved:
		ev.Kind, ev.Cause, ev.Reason = event.ItemSkipped, event.SkipElsewhere, "the item moves to another host, and the run goes on there"
	default:
		ev.Kind, ev.OffsetWrites, ev.Reason = event.ItemCompleted, run.OffsetWrites(state), e.Reason
	}
	j.Emit(ev)
}

// count counts an item that was completed.
func (t *tally) count(now moment, outcome abi.Outcome) {
	if outcome == abi.OutcomeOK {
		t.succeeded++
	} else {
		t.failed++
	}
	if t.at.IsZero() {
		t.at = now.Add(tallyInterval)
	}
}

// saveOffsets makes the offsets that streaming loops have staged durable, all
// in one commit, at most once per interval.
func (j *job) saveOffsets(now moment) {
	j.mail.mu.Lock()
	staged := j.mail.offsets
	j.mail.mu.Unlock()
	if staged && j.offsetsAt.IsZero() {
		j.offsetsAt = now.Add(offsetInterval)
	}
	if j.offsetsAt.IsZero() || now.Before(j.offsetsAt) || now.Before(j.refusal.retryAt) {
		return
	}
	j.flushOffsets(now)
}

// flushOffsets makes what is staged durable now.
func (j *job) flushOffsets(now moment) {
	j.offsetsAt = time.Time{}
	j.mail.mu.Lock()
	j.mail.offsets = false
	j.mail.mu.Unlock()

	offsets := make(map[int]coordination.Ended)
	var saving []*run.Execution
	for n, it := range j.items {
		if it.run == nil {
			continue
		}
		save, staged, busy := it.run.Save()
		if busy { // left for next time
			j.offsetsAt = now.Add(offsetInterval)
		}
		if staged {
			saving = append(saving, it.run)
			offsets[n] = save
		}
	}
	if len(saving) == 0 {
		return
	}
	out, err := coordination.SaveOffsets(j.work, j.member.Registry, j.member.Layout, offsets)
	for _, e := range saving {
		if state, ok := out.Items[e.Item]; ok && err == nil {
			e.Saved(&state, false)
		} else {
			e.Saved(nil, slices.Contains(out.Lost, e.Item))
		}
	}
	if err != nil {
		j.failed(now, "saving offsets", err)
		j.offsetsAt = now.Add(offsetInterval)
	}
}
