package engine

import (
	"errors"
	"slices"
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/coordination"
	"github.com/wasmjob/wasmjob/coordination/admin/operate"
	"github.com/wasmjob/wasmjob/coordination/tree"
	"github.com/wasmjob/wasmjob/host/event"
	"github.com/wasmjob/wasmjob/internal/text/reason"
	"github.com/wasmjob/wasmjob/internal/text/words"
)

// dividedSoon is how long a host whose server was disabled waits for the resharding that takes its items away.
const dividedSoon = 5 * time.Second

// waiting is the trigger that waits for this host.
type waiting struct {
	job     *access
	items   *items
	reports itemReports
	// begin is runner.begin. skip reports a fire of which no item begins. unfit returns why a fire's parameter does not
	// fit the job.
	begin func(now moment, id tree.Fire, items []*item, absent tree.Items, trigger bool) bool
	skip  func(id tree.Fire, cause event.SkipCause, why reason.Reason)
	unfit func(id tree.Fire) error

	seen     int64 // the transaction that made the node
	round    int64 // what that was found to belong to; 0: not read yet
	args     tree.TriggerArgs
	consumed int64 // the newest round that this host has consumed
	began    int64 // the round whose idle items were begun before it is consumed
	// waits is a trigger's node that this host does not consume until then: its server is disabled, and the items are
	// still to be resharded without it.
	waits int64
	until time.Time
	// ownerless are items of this host, as they were when it lost them, that no host has got: all servers are disabled.
	ownerless []*item
	// left are the items that the round leaves out, with the fires for which they run.
	left   map[int]string
	leaves int64 // that round
	// look is set when the next trigger of the queue may begin. division is the newest one for which this host has looked
	// as the leader.
	look     bool
	division int64
}

// triggered returns the fire of the trigger that waits, if there is one.
func (t *waiting) triggered(now moment) (id tree.Fire, ok bool) {
	if t.job.member.View.Trigger == 0 || t.job.rests(now) {
		return id, false
	}
	if t.seen != t.job.member.View.Trigger || t.round == 0 {
		t.seen, t.round = t.job.member.View.Trigger, 0
		var err error
		if t.round, t.args, err = t.job.member.TriggerRound(t.job.work, t.consumed); err != nil {
			t.job.failed(now, "reading the trigger", err)
			return id, false
		}
		if t.round != t.leaves {
			t.left, t.leaves = make(map[int]string), t.round
		}
	}
	if t.round == 0 {
		t.job.member.View.Trigger = 0 // gone, as the next snapshot says
		return id, false
	}
	return t.args.Fire(t.round, now.wall.UnixMilli(), string(abi.SourceTrigger)), true
}

// beginRound begins the idle items of the waiting trigger. Those that still run begin when they end, unless a newer fire
// is due by then, which replaces a round without arguments. Until then the trigger's node is kept, so that another host
// runs them in the round if this host dies.
func (t *waiting) beginRound(now moment) {
	if t.job.member.View.Trigger == 0 || t.waitsForAll() {
		return
	}
	id, ok := t.triggered(now)
	if !ok {
		return
	}
	if t.args.Unreadable() {
		if t.consume(now, id, nil) {
			t.skip(id, event.SkipRefused, reason.New(reason.TriggerUnreadable))
		}
		return
	}
	if err := t.unfit(id); err != nil {
		if t.consume(now, id, nil) {
			t.skip(id, event.SkipRefused, reason.New(reason.ArgumentsUnfit, words.OneLine(err.Error())))
		}
		return
	}
	if id.HasArgs() && len(t.items.sortedActive(func(it *item) bool { return it.owned && it.Asked != nil && it.Asked.Trigger != id.Trigger })) > 0 {
		return // each of them runs for the round before first
	}
	again := t.began == id.Trigger
	if again {
		waits := func(it *item) bool {
			owes := it.Due
			if id.HasArgs() {
				owes = it.Asked
			}
			return it.owned && owes != nil && owes.Trigger == id.Trigger
		}
		if len(t.items.sortedActive(waits)) > 0 {
			return
		}
		t.round = 0 // the job may have been triggered again meanwhile
		if id, ok = t.triggered(now); !ok {
			return
		}
	}
	idle := t.items.sorted(func(it *item) bool {
		return t.inRound(it) && it.run == nil && !(again && (it.state.Record.Trigger >= id.Trigger || it.Settled(id.Trigger)))
	})
	busy := t.items.sorted(func(it *item) bool {
		return t.inRound(it) && it.run != nil && it.state.Record.Trigger < id.Trigger
	})
	if t.args.SkipBusy && !again {
		busy = t.leaveOut(busy)
	}
	switch {
	case again && id.HasArgs() && len(busy) > 0: // this host was given them since, and they run
		for _, it := range busy {
			it.Ask(id)
		}
		return
	case len(busy) == 0, t.began == id.Trigger:
		t.consume(now, id, idle)
		return
	case len(idle) == 0 && !id.HasArgs():
		t.round = 0 // all are busy: the round waits for the first
		return
	}
	t.merged(id)
	t.began = id.Trigger
	var absent tree.Items
	for _, it := range busy {
		absent = append(absent, it.number)
		switch {
		case id.HasArgs():
			it.Ask(id)
		case it.Due == nil:
			it.Due = &id
		default:
			e := t.reports.event(it.number, id, event.SkipSuperseded, reason.New(reason.ItemRunsNewer))
			e.Owed = it.Due.Trigger == 0
			t.job.Emit(e)
		}
	}
	t.begin(now, id, idle, absent, false)
}

// leaveOut removes the busy items that a round of a backfill leaves out: those that run for something else. The reason is
// reported when the round is consumed.
func (t *waiting) leaveOut(busy []*item) []*item {
	return slices.DeleteFunc(busy, func(it *item) bool {
		runs := it.run.Fire().ID
		if !runs.Backfill {
			t.left[it.number] = runs.ID()
		}
		return !runs.Backfill
	})
}

// inRound reports whether an item of this host is to run in the waiting round.
func (t *waiting) inRound(it *item) bool {
	return it.owned && !t.job.beyond(it) && t.args.Has(it.number) && t.left[it.number] == ""
}

// waitsForAll reports that no item of the waiting trigger is idle. A trigger that comes before an item ends is merged
// with it, so that it is not read yet. A trigger with arguments is read once, to know whether it is for items of this
// host.
func (t *waiting) waitsForAll() bool {
	v := &t.job.member.View
	if t.seen != v.Trigger {
		idle := t.items.sorted(func(it *item) bool { return it.owned && it.run == nil && !t.job.beyond(it) })
		return len(idle) == 0 && len(t.items.of) > 0 && !v.TriggerArgs
	}
	if t.round != 0 || !v.TriggerArgs {
		return false
	}
	mine := t.items.sorted(t.inRound)
	return len(mine) > 0 && !slices.ContainsFunc(mine, func(it *item) bool { return it.run == nil })
}

// consume begins the items of the waiting trigger, and deletes its node.
func (t *waiting) consume(now moment, id tree.Fire, items []*item) bool {
	if !t.begin(now, id, items, nil, true) {
		return false
	}
	t.merged(id)
	for _, it := range t.items.sorted(func(it *item) bool { return t.left[it.number] != "" }) {
		t.reports.skip(it, id, event.SkipOverlap, reason.New(reason.BackfillOverlap, t.left[it.number]))
	}
	t.consumed = max(t.consumed, id.Trigger)
	t.job.member.View.Trigger = 0 // the next snapshot says so too
	return true
}

// merged reports that the previous trigger had not begun on this host when this one came: one run counts for both.
func (t *waiting) merged(id tree.Fire) {
	if before := t.seen; t.began < before && before < id.Trigger {
		why := reason.New(reason.NewerTrigger, id.Trigger)
		id.Trigger = before
		t.skip(id, event.SkipSuperseded, why)
	}
}

// consumeDisabled consumes the waiting trigger while the host's server is disabled, as ElasticJob does: none of its items
// runs, neither now nor when the server is enabled. While this host has items that are about to move, these owe the
// round, and it is not consumed here. They move only if there is a leader, and there is none if all servers are disabled.
func (t *waiting) consumeDisabled(now moment) {
	v := &t.job.member.View
	if slices.Contains(v.Division.Members, t.job.member.Self.ID) && !v.JavaLed() && v.Trigger != 0 {
		if t.waits != v.Trigger {
			t.waits, t.until = v.Trigger, now.Add(dividedSoon)
		}
		if now.Before(t.until) {
			t.job.againAt = t.until
			return
		}
	}
	if id, ok := t.triggered(now); ok && t.consume(now, id, nil) {
		t.skip(id, event.SkipDisabled, reason.New(reason.ServerDisabled))
		for _, it := range t.ownerless {
			if t.args.Has(it.number) && !t.job.beyond(it) && it.state.Record.Trigger < id.Trigger && !it.Settled(id.Trigger) {
				t.reports.skip(it, id, event.SkipDisabled, reason.New(reason.ServerDisabled))
			}
		}
		t.ownerless = nil
	}
}

// loses notes the items of this host that are not in its new share, if no host has them: no other one runs them in the round that waits.
func (t *waiting) loses(share coordination.Share) {
	v := &t.job.member.View
	if v.Trigger == 0 || len(v.Division.Members) > 0 {
		t.ownerless = nil
		return
	}
	for _, it := range t.items.sorted(func(it *item) bool { return it.owned }) {
		if !share.Items.Contains(it.number) {
			was := *it
			t.ownerless = append(t.ownerless, &was)
		}
	}
}

// advanceQueue begins the next trigger of the queue: this host has begun items of a round; or it leads the job and has
// resharded, because a host may have died before it advanced the queue; or the job is removed.
func (t *waiting) advanceQueue(now moment) {
	v := &t.job.member.View
	if at := v.Divided(); v.Leading() && v.Division.Queued && at != t.division {
		t.look, t.division = true, at
	}
	if !t.look || t.job.rests(now) {
		return
	}
	t.look = false
	dropped, err := operate.AdvanceQueue(t.job.work, t.job.member.Registry, t.job.member.Layout)
	for _, d := range dropped {
		cause := event.SkipRefused
		if errors.Is(d.Why, operate.ErrNothingRuns) || errors.Is(d.Why, tree.ErrRemoved) {
			cause = event.SkipDisabled
		}
		t.skip(d.Round().Fire(d.Number, now.wall.UnixMilli(), string(abi.SourceTrigger)), cause, reason.New(reason.TriggerQueued, words.OneLine(d.Why.Error())))
	}
	if err != nil && !errors.Is(err, tree.ErrRemoved) {
		t.job.failed(now, "beginning the next queued trigger", err)
		t.look = true
	}
}

// drop reports a waiting trigger that this host will not serve.
func (t *waiting) drop(cause event.SkipCause, why reason.Reason) {
	if t.job.member.View.Trigger == 0 {
		return
	}
	round, args := t.job.member.View.Trigger, tree.TriggerArgs{}
	if t.seen == round && t.round != 0 {
		round, args = t.round, t.args
	}
	t.skip(args.Fire(round, t.job.host.clock().UnixMilli(), string(abi.SourceTrigger)), cause, why)
	t.job.member.View.Trigger = 0
}
