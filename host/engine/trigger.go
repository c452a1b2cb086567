package engine

import (
	"errors"
	"slices"
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/coordination/admin/operate"
	"github.com/wasmjob/wasmjob/coordination/tree"
	"github.com/wasmjob/wasmjob/host/event"
	"github.com/wasmjob/wasmjob/internal/text/reason"
	"github.com/wasmjob/wasmjob/internal/text/words"
)

// dividedSoon is how long a host whose server was disabled waits for the
// division that takes its items away.
const dividedSoon = 5 * time.Second

// waiting is the trigger that waits for this host.
type waiting struct {
	seen     int64 // the transaction that made the node
	round    int64 // what that was found to belong to; 0: not read yet
	args     tree.TriggerArgs
	consumed int64 // the newest round that this host has consumed
	began    int64 // the round whose idle items were begun before it is consumed
	// waits is a node that is not consumed until then: the server is disabled,
	// and the items are still to be sharded without it.
	waits int64
	until time.Time
	// left are the items that the round leaves out, with the fires for which they run.
	left   map[int]string
	leaves int64 // that round
	// look is set when the next trigger of the queue may begin; division is the newest one for which this host, being the
	// leader, has looked.
	look     bool
	division int64
}

// triggered returns the fire of the trigger that waits, if there is one.
func (rn *runner) triggered(now moment) (id tree.Fire, ok bool) {
	t := &rn.trigger
	if rn.member.View.Trigger == 0 || rn.rests(now) {
		return id, false
	}
	if t.seen != rn.member.View.Trigger || t.round == 0 {
		t.seen, t.round = rn.member.View.Trigger, 0
		var err error
		if t.round, t.args, err = rn.member.TriggerRound(rn.work, t.consumed); err != nil {
			rn.failed(now, "reading the trigger", err)
			return id, false
		}
		if t.round != t.leaves {
			t.left, t.leaves = make(map[int]string), t.round
		}
	}
	if t.round == 0 {
		rn.member.View.Trigger = 0 // gone, as the next snapshot says
		return id, false
	}
	return t.args.Fire(t.round, now.wall.UnixMilli(), string(abi.SourceTrigger)), true
}

// beginRound begins the idle items of the trigger that waits. Those that still run
// begin when they end, unless a newer fire is due by then, which stands for a round
// without arguments; until that is settled the trigger is kept, so that they run in the round
// elsewhere if this host dies.
func (rn *runner) beginRound(now moment) {
	if rn.member.View.Trigger == 0 || rn.waitsForAll() {
		return
	}
	t := &rn.trigger
	id, ok := rn.triggered(now)
	if !ok {
		return
	}
	if t.args.Unreadable() {
		if rn.consume(now, id, nil) {
			rn.skipFire(id, event.SkipRefused, reason.New(reason.TriggerUnreadable))
		}
		return
	}
	if _, err := rn.checkedParameter(id); err != nil {
		if rn.consume(now, id, nil) {
			rn.skipFire(id, event.SkipRefused, reason.New(reason.ArgumentsUnfit, words.OneLine(err.Error())))
		}
		return
	}
	if id.HasArgs() && len(rn.items.sorted(func(it *item) bool { return it.owned && it.Asked != nil && it.Asked.Trigger != id.Trigger })) > 0 {
		return // each of them runs for the round before first
	}
	again := t.began == id.Trigger
	if again {
		waits := func(it *item) bool {
			owes := *it.Place(id)
			return it.owned && (!it.held || id.HasArgs()) && owes != nil && owes.Trigger == id.Trigger
		}
		if len(rn.items.sorted(waits)) > 0 {
			return
		}
		t.round = 0 // the job may have been triggered again meanwhile
		if id, ok = rn.triggered(now); !ok {
			return
		}
	}
	idle := rn.items.sorted(func(it *item) bool {
		return rn.inRound(it) && it.run == nil && !(again && (it.state.Record.Trigger >= id.Trigger || it.Settled(id.Trigger)))
	})
	busy := rn.items.sorted(func(it *item) bool {
		return rn.inRound(it) && it.run != nil && it.state.Record.Trigger < id.Trigger
	})
	if t.args.SkipBusy && !again {
		busy = rn.leaveOut(busy)
	}
	switch {
	case again && id.HasArgs() && len(busy) > 0: // this host was given them since, and they run
		for _, it := range busy {
			*it.Place(id) = &id
		}
		return
	case len(busy) == 0, t.began == id.Trigger:
		rn.consume(now, id, idle)
		return
	case len(idle) == 0 && !id.HasArgs():
		t.round = 0 // all are busy: the round waits for the first
		return
	}
	rn.merged(id)
	t.began = id.Trigger
	var absent tree.Items
	for _, it := range busy {
		absent = append(absent, it.number)
		if owes := it.Place(id); *owes == nil {
			*owes = &id
		} else {
			e := rn.reports.event(it.number, id, event.SkipSuperseded, reason.New(reason.ItemRunsNewer))
			e.Owed = (*owes).Trigger == 0
			rn.Emit(e)
		}
	}
	rn.begin(now, id, idle, absent, false)
}

// leaveOut takes out the busy items that a round of a backfill leaves out: those that run for something else. Why they do not
// run is reported when the round is consumed.
func (rn *runner) leaveOut(busy []*item) []*item {
	return slices.DeleteFunc(busy, func(it *item) bool {
		runs := it.run.Fire().ID
		if !runs.Backfill {
			rn.trigger.left[it.number] = runs.ID()
		}
		return !runs.Backfill
	})
}

// inRound reports whether an item of this host is to run in the round that waits.
func (rn *runner) inRound(it *item) bool {
	return it.owned && !rn.beyond(it) && rn.trigger.args.Has(it.number) && rn.trigger.left[it.number] == ""
}

// waitsForAll reports that none of the items is idle which the trigger that waits is for:
// one that comes before an item ends counts as one with it, and is not read yet. One with
// arguments is read once, to know whether it is for items of this host.
func (rn *runner) waitsForAll() bool {
	v, t := &rn.member.View, &rn.trigger
	if t.seen != v.Trigger {
		idle := rn.items.sorted(func(it *item) bool { return it.owned && it.run == nil && !rn.beyond(it) })
		return len(idle) == 0 && len(rn.items) > 0 && !v.TriggerArgs
	}
	if t.round != 0 || !v.TriggerArgs {
		return false
	}
	mine := rn.items.sorted(rn.inRound)
	return len(mine) > 0 && !slices.ContainsFunc(mine, func(it *item) bool { return it.run == nil })
}

// consume begins the items of the trigger that waits, and takes that away.
func (rn *runner) consume(now moment, id tree.Fire, items []*item) bool {
	if !rn.begin(now, id, items, nil, true) {
		return false
	}
	rn.merged(id)
	for _, it := range rn.items.sorted(func(it *item) bool { return rn.trigger.left[it.number] != "" }) {
		rn.reports.skip(it, id, event.SkipOverlap, reason.New(reason.BackfillOverlap, rn.trigger.left[it.number]))
	}
	rn.trigger.consumed = max(rn.trigger.consumed, id.Trigger)
	rn.member.View.Trigger = 0 // the next snapshot says so too
	return true
}

// merged reports the trigger before, if that had not begun here when this one came: one run is for both.
func (rn *runner) merged(id tree.Fire) {
	if before := rn.trigger.seen; rn.trigger.began < before && before < id.Trigger {
		why := reason.New(reason.NewerTrigger, id.Trigger)
		id.Trigger = before
		rn.skipFire(id, event.SkipSuperseded, why)
	}
}

// advanceQueue has the next trigger of the queue begin: this host has begun items of a round, or leads the job and has
// divided its items anew, since a host may have died before it did so, or the job is removed.
func (rn *runner) advanceQueue(now moment) {
	v, t := &rn.member.View, &rn.trigger
	if at := v.Divided(); v.Leading() && v.Division.Queued && at != t.division {
		t.look, t.division = true, at
	}
	if !t.look || rn.rests(now) {
		return
	}
	t.look = false
	dropped, err := operate.AdvanceQueue(rn.work, rn.member.Registry, rn.member.Layout)
	for _, d := range dropped {
		cause := event.SkipRefused
		if errors.Is(d.Why, operate.ErrNothingRuns) || errors.Is(d.Why, tree.ErrRemoved) {
			cause = event.SkipDisabled
		}
		rn.skipFire(d.Round().Fire(d.Number, now.wall.UnixMilli(), string(abi.SourceTrigger)), cause, reason.New(reason.TriggerQueued, words.OneLine(d.Why.Error())))
	}
	if err != nil && !errors.Is(err, tree.ErrRemoved) {
		rn.failed(now, "beginning the next queued trigger", err)
		t.look = true
	}
}

// dropTrigger reports a trigger that waits and that this host will not serve.
func (rn *runner) dropTrigger(cause event.SkipCause, why reason.Reason) {
	if rn.member.View.Trigger == 0 {
		return
	}
	round, args := rn.member.View.Trigger, tree.TriggerArgs{}
	if rn.trigger.seen == round && rn.trigger.round != 0 {
		round, args = rn.trigger.round, rn.trigger.args
	}
	rn.skipFire(args.Fire(round, rn.host.clock().UnixMilli(), string(abi.SourceTrigger)), cause, why)
	rn.member.View.Trigger = 0
}
