package engine

import (
	"cmp"
	"iter"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/coordination"
	"github.com/wasmjob/wasmjob/coordination/admin/inspect"
	"github.com/wasmjob/wasmjob/coordination/tree"
	"github.com/wasmjob/wasmjob/host/engine/run"
	"github.com/wasmjob/wasmjob/host/event"
	"github.com/wasmjob/wasmjob/host/schedule/due"
	"github.com/wasmjob/wasmjob/internal/text/reason"
)

// itemSet has the items that this host owns or runs, and what is due for them.
type itemSet struct {
	place
	reports   itemReports
	items     *items
	live      int // items with a run
	fires     map[*run.Fire]bool
	ends      ends
	dues      dues
	pause     pause
	calendar  due.Calendar
	javaParks bool // Java hosts have not begun the instant that is parked either: the flag stood before it
	lastFire  *FireStatus
	denials   denials
}

// item is one sharding item, as this host sees it.
type item struct {
	number int
	owned  bool // in this host's share
	active bool // in items.active
	state  coordination.ItemState
	run    *run.Execution // nil while it does not run here
	due.Owed
	// held is set when the due item was tried and was marked as running on another host. It is tried again at the next
	// news of the other hosts.
	held bool
	// quietAt is when the item may begin beside Java hosts, by Go's own clock; zero if this host has not yet checked
	// whether a Java host is about to run it.
	quietAt time.Time
	// waits is the key of the limit for whose permit the item waits; empty if it does not wait. waitsFor is the fire for
	// which that was reported. turn is the item's place in the order of waiting.
	waits, waitsFor string
	turn            uint64
	asks            bool // it is just being admitted
	// paced, pacedFor and pacedTurn are the same for the item's wait under a rate.
	paced, pacedFor string
	pacedTurn       uint64
	// postponedFor is the fire for which it was reported that the item waits because of its record's Again.
	postponedFor string
	// passed is set when an instant passed, or missed instants were not searched, because the item was beyond the total
	// count.
	passed bool
	// dropped is the newest instant that a policy of the job dropped for the item. The item begins for no instant up to
	// it.
	dropped  time.Time
	switched switched
	// accounted is the newest instant, in Unix milliseconds, that is in Owed, has begun or has a reason why it does not
	// run, if the job runs each instant; 0: unknown.
	accounted   int64
	lastOutcome abi.Outcome
	lastMessage string
	lastEnd     time.Time
	lastOutside map[string]abi.OutsideCount
}

// items are the sharding items that a host knows, by number. It may know a million of them. Most have nothing to do at most times,
// and what the loop does in each pass concerns only those that are active: an item is active from when it is looked up, by get or
// sorted, until the end of a pass that leaves it with nothing to do.
type items struct {
	of     map[int]*item // only to be read; an item that is changed is looked up
	active []*item       // in no order; those that were removed may still be there
}

func newItems() *items { return &items{of: make(map[int]*item)} }

// put adds an item.
func (s *items) put(it *item) {
	s.of[it.number] = it
	s.activate(it)
}

// remove removes an item.
func (s *items) remove(n int) { delete(s.of, n) }

// get returns an item; nil if the host does not know it.
func (s *items) get(n int) *item {
	it := s.of[n]
	if it != nil {
		s.activate(it)
	}
	return it
}

func (s *items) activate(it *item) {
	if !it.active {
		it.active = true
		s.active = append(s.active, it)
	}
}

// rest ends a pass of the loop: items with nothing to do are not active any more.
func (s *items) rest() {
	s.active = slices.DeleteFunc(s.active, func(it *item) bool {
		it.active = s.of[it.number] == it && it.busy()
		return !it.active
	})
}

// busy reports whether the loop has something to do for the item in each pass. An item that only runs is not busy.
func (it *item) busy() bool {
	return it.Next() != nil || it.held || it.asks || it.waits != "" || it.paced != "" || it.state.Disabled || it.state.Record.Again != 0 || it.state.Record.Kill.Asked()
}

// sorted returns the items for which keep is true, by number.
func (s *items) sorted(keep func(*item) bool) []*item {
	var list []*item
	for _, it := range s.of {
		if keep(it) {
			list = append(list, it)
			s.activate(it)
		}
	}
	slices.SortFunc(list, func(a, b *item) int { return a.number - b.number })
	return list
}

// sortedActive returns the active items for which keep is true, by number. keep is false for items that are not busy.
func (s *items) sortedActive(keep func(*item) bool) []*item {
	var list []*item
	for it := range s.allActive() {
		if keep(it) {
			list = append(list, it)
		}
	}
	slices.SortFunc(list, func(a, b *item) int { return a.number - b.number })
	return list
}

// allActive yields the active items, in no order.
func (s *items) allActive() iter.Seq[*item] {
	return func(yield func(*item) bool) {
		for _, it := range s.active {
			if s.of[it.number] == it && !yield(it) {
				return
			}
		}
	}
}

// begunUntil is the earliest instant that an item of this host was begun for last,
// or after which it was first divided: of what came due up to it, this host owes
// nothing. What came due before it was given an item, it makes up for when it is;
// held is whether it has one.
func (s *items) begunUntil() (earliest time.Time, held bool) {
	for _, it := range s.of {
		if !it.owned {
			continue
		}
		if begun := latest(it.answered(), it.switched.reported); !held || begun.Before(earliest) {
			earliest, held = begun, true
		}
	}
	return earliest, held
}

// logDrain says which items the host waits for before it ends.
func (s *items) logDrain(log *zap.Logger) {
	var items tree.Items
	for _, it := range s.sorted(func(it *item) bool { return it.run != nil }) {
		items = append(items, it.number)
	}
	if len(items) > 0 {
		log.Info("draining: waiting for items to end", zap.Stringer("items", items))
	}
}

// runs reports whether the item runs here.
func (s *items) runs(item int) bool {
	it := s.of[item]
	return it != nil && it.run != nil
}

// pacedUnder are the items that wait under a key, by their turn.
func (s *items) pacedUnder(key string) []*item {
	var list []*item
	for it := range s.allActive() {
		if it.paced == key && it.owned && it.run == nil && (it.asks || it.Next() != nil) {
			list = append(list, it)
		}
	}
	slices.SortFunc(list, func(a, b *item) int { return cmp.Compare(a.pacedTurn, b.pacedTurn) })
	return list
}

// waitsUnder are the items that wait for a permit of a key, by their turn.
func (s *items) waitsUnder(key string) []*item {
	var list []*item
	for it := range s.allActive() {
		if it.waits == key && it.owned && it.run == nil && (it.asks || it.Next() != nil) {
			list = append(list, it)
		}
	}
	slices.SortFunc(list, func(a, b *item) int { return cmp.Compare(a.turn, b.turn) })
	return list
}

// answered returns the instant up to which the item begins for no fire.
func (it *item) answered() time.Time {
	return latest(time.UnixMilli(it.state.Record.Instant), it.dropped)
}

// running counts the items that run here, or whose completion is not written yet.
func (set *itemSet) running() int { return set.live }

// reportSkip reports scheduled instants without a fire; s may be nil.
func (set *itemSet) reportSkip(s *due.Skip) {
	if s != nil {
		set.skipFires(tree.Fire{Instant: s.First.UnixMilli(), Source: string(abi.SourceSchedule)}, s.Through, skipCauses[s.Cause], s.Reason)
	}
}

// skipFire reports a fire of which no item begins on this host.
func (set *itemSet) skipFire(id tree.Fire, cause event.SkipCause, why reason.Reason) {
	set.skipFires(id, time.Time{}, cause, why)
}

// skipFires reports a fire of which no item begins on this host, and, if through is set, all instants up to through.
func (set *itemSet) skipFires(id tree.Fire, through time.Time, cause event.SkipCause, why reason.Reason) {
	var owned []int
	for _, it := range set.items.sorted(func(it *item) bool { return it.owned }) {
		owned = append(owned, it.number)
	}
	set.Emit(event.Event{Kind: event.FireSkipped, Instant: id.Time(), Trigger: id.Trigger, Source: abi.Source(id.Source), Items: owned,
		Args: run.Args(id), Total: id.Total(set.counts().TotalOf(id, 0)), Next: nextAfter(&set.calendar, id), Through: through, Owed: cause.Promises() && id.Trigger == 0, Cause: cause}.Why(why))
}

// misfire records that an item could not begin because it still runs.
func (set *itemSet) misfire(it *item, id tree.Fire) {
	cause, why, runs := event.SkipOverlap, reason.New(reason.RunsElsewhere), false
	if it.run != nil {
		why, runs = it.run.Busy(time.Now())
	}
	if x := set.denials.of[denied{item: it.number}]; x != nil && it.run != nil && !set.goesOn(it.run) {
		why, runs = x.text(), false
	}
	policies := set.dues.policies()
	fate, gone := policies.Arrive(&it.Owed, id, true)
	set.reports.allSuperseded(it, gone, id)
	switch fate {
	case due.Crowded:
		cause, why = event.SkipQueueFull, policies.queueFull()
	case due.Dropped:
		why = policies.dropsOverlap(why)
	default:
		cause, why = event.SkipLater, reason.New(reason.RunsAgain, why)
		id.Source = string(abi.SourceMisfire)
	}
	e := set.reports.event(it.number, id, cause, why)
	e.Runs = runs
	set.reports.emitItem(e)
}

// park keeps an instant until the items have been sharded.
func (set *itemSet) park(at time.Time) {
	v := set.member.View
	set.javaParks = v.Halted() && !v.FlagSeen.IsZero() && v.FlagSeen.Before(at)
	if set.dues.policies().Queues() { // account finds those before it
		set.calendar.Parked = at
		return
	}
	begun, held := set.items.begunUntil()
	set.reportSkip(set.calendar.Park(at, begun, held))
}

// letGo forgets the items that are no longer in the share; runs continue. It returns how many items this host has lost.
func (set *itemSet) letGo(share coordination.Share) (lost int) {
	for n, it := range set.items.of {
		if share.Items.Contains(n) {
			continue
		}
		if it.owned {
			lost++
		}
		set.dues.reportGone(it, share.Counts)
		if it.Due != nil && aheadOf(it.state.Record, *it.Due) { // it would not
			set.reports.skip(it, *it.Due, event.SkipElsewhere, coordination.RefusedPast.Reason())
		}
		it.owned, it.accounted = false, 0 // its owner now finds what is due
		it.Drop()
		if it.run == nil {
			set.denials.end(n)
			set.items.remove(n)
		}
	}
	return lost
}

// known says which of the items need not be read: those for which keep is true.
func (s *items) known(keep func(*item) bool) coordination.Known {
	return func(n int) (state coordination.ItemState, known bool) {
		if it := s.of[n]; it != nil && keep(it) {
			return it.state, true
		}
		return state, false
	}
}

// gain takes over the states that were read of the share's items, and returns the items that this host
// did not own before.
func (set *itemSet) gain(share coordination.Share, states map[int]coordination.ItemState) (gained []int) {
	for _, n := range share.Items {
		it := set.items.get(n)
		if it == nil {
			it = &item{number: n}
			set.items.put(it)
		}
		if it.run == nil {
			if state, read := states[n]; read {
				set.reread(it, state)
			}
			set.denials.endUnread(n)
		}
		if !it.owned {
			it.owned, it.quietAt = true, time.Time{}
			gained = append(gained, n)
		}
	}
	return gained
}

// reread takes over an item's state from the registry, and reports a release.
func (set *itemSet) reread(it *item, state coordination.ItemState) {
	if it.state.Record.Held != 0 && state.Record.Held == 0 && state.Record.Outcome == tree.OutcomeHeld {
		set.log.Info("item released", zap.Int("item", it.number))
		set.Emit(event.Event{Kind: event.ItemReleased, Item: &it.number}.Why(reason.New(reason.Released)))
	}
	if state.Disabled {
		it.disable()
	} else if it.state.Disabled { // what came due meanwhile is not owed
		set.outside.Enabled(it.number)
		it.switched.seen = set.host.clock()
		it.passed, set.dues.passed = true, true
	}
	it.state = state
}

// lost reports a run that was open when this host began the item again, that is in no list of runs, and whose loss is not
// recorded yet: its host died, and failover is off. A run that is in a list is reported by the host that removes it from
// the list.
func (set *itemSet) lost(n int, r tree.Record) {
	if !r.Open() || r.Owner == set.member.Self.ID || slices.Contains(set.member.View.Members, r.Owner) {
		return
	}
	id := r.Fire()
	if r.Kill.Asked() {
		set.reports.endRun(n, id, r.Owner, abi.OutcomeCancelled, event.SkipDisabled, reason.New(reason.HostEndedBefore, r.Kill.Reason()))
		return
	}
	set.reports.endRun(n, id, r.Owner, tree.OutcomeLost, event.SkipLost, reason.New(reason.HostDied, r.Owner, reason.New(reason.FailoverOff)))
}

// heldBack reports that the run of the host dead was one death too many: the item does not begin until an operator
// releases it.
func (set *itemSet) heldBack(n int, id tree.Fire, dead string, r tree.Record) {
	why := r.HeldBack(set.name, n)
	set.log.Error("item held back", zap.Int("item", n), zap.Stringer("reason", why))
	set.Emit(event.Event{Kind: event.ItemHeld, Item: &n, Instant: id.Time(), Trigger: id.Trigger, Source: abi.Source(id.Source),
		RunID: tree.RunID(set.name, id, n), Other: dead, Outcome: tree.OutcomeHeld, Cause: event.SkipHeld}.Why(why))
	if it := set.items.get(n); it != nil && it.run == nil {
		it.state.Record, it.state.RecordVersion = r, -2 // the next begin reads it
	}
}

// fit removes items that can no longer begin: they run, because an earlier begin turned out to have taken effect, or the
// total count was lowered.
func (set *itemSet) fit(id tree.Fire, items []*item) []*item {
	return slices.DeleteFunc(items, func(it *item) bool {
		if it.run != nil {
			return true
		}
		if !set.beyond(it) {
			return false
		}
		it.Answered(id)
		set.reports.skip(it, id, event.SkipDisabled, reason.New(reason.FewerItems, set.counts().Total))
		return true
	})
}

// dropDisabled removes items that are known to be disabled, without a request, because their marks are watched. For a
// trigger it reads the marks, because a user who enables an item and then triggers the job wants both. It also reads the
// records of items that are ahead of the instant because of a wrong clock, which an operator may have deleted since, and
// of items that are held back or that wait for a time that their guests asked for, which an operator may have released.
func (set *itemSet) dropDisabled(id tree.Fire, items []*item) []*item {
	var doubt tree.Items
	items = slices.DeleteFunc(items, func(it *item) bool {
		out := it.state.Disabled && id.Trigger == 0
		if out {
			set.dues.itemDisabled(it, id)
		} else if it.state.Disabled || aheadOf(it.state.Record, id) || it.state.Record.Held != 0 || it.state.Record.Again != 0 {
			doubt = append(doubt, it.number)
		}
		return out
	})
	if len(doubt) == 0 {
		return items
	}
	states, err := coordination.ReadItems(set.work, set.member.Registry, set.member.Layout, doubt)
	if err != nil {
		return items // the begin finds out
	}
	var rest []*item
	for _, it := range items {
		if s, asked := states[it.number]; asked {
			set.reread(it, s)
			if s.Disabled {
				set.dues.itemDisabled(it, id)
				continue
			}
		}
		rest = append(rest, it)
	}
	return rest
}

// goesOn reports whether a run has not ended.
func (set *itemSet) goesOn(e *run.Execution) bool {
	it := set.items.of[e.Item]
	if it == nil || it.run != e {
		return false
	}
	_, ended := set.ends.of[e.Item]
	return !ended
}

// queuedSince returns when the longest waiting item began to wait for a slot; zero without one.
func (set *itemSet) queuedSince() (since time.Time) {
	for f := range set.fires {
		for _, e := range f.Runs {
			if queued := e.QueuedSince(); !queued.IsZero() && set.goesOn(e) {
				since = soonest(since, queued)
				break
			}
		}
	}
	return since
}

// newestFire is the job's last fire here, or before this host began what the
// records of its items know of it.
func (s *items) newestFire(last *FireStatus) *FireStatus {
	if last != nil {
		return last
	}
	records := make(map[int]tree.Record)
	for n, it := range s.of {
		records[n] = it.state.Record
	}
	f, ok := inspect.NewestFire(records)
	if !ok || f.Ended.IsZero() {
		return nil
	}
	return &FireStatus{Instant: f.Instant, Trigger: f.Trigger, Source: abi.Source(f.Source), Items: f.Items, Outcome: abi.Outcome(f.Outcome),
		Begun: f.Begun, Ended: f.Ended, Duration: f.Ended.Sub(f.Begun)}
}

// aheadOf reports whether a record names an instant after that of the scheduled fire id.
func aheadOf(r tree.Record, id tree.Fire) bool {
	return id.Trigger == 0 && r.Instant > id.Instant
}

// nextAfter returns the scheduled instant after that of a scheduled fire.
func nextAfter(c *due.Calendar, id tree.Fire) time.Time {
	if id.Source != string(abi.SourceSchedule) {
		return time.Time{}
	}
	return c.After(id.Time())
}
