package engine

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/wasmjob/wasmjob/coordination"
	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/tree"
	"github.com/wasmjob/wasmjob/host/event"
	"github.com/wasmjob/wasmjob/internal/text/reason"
)

// longestDenial is the longest pause before the registry is asked again for what it denied
// of an item. The first is retryPause; it doubles from time to time.
const longestDenial = 30 * time.Second

// mostTries is how many items that were denied are tried again in one step: each that is
// still denied costs a commit.
const mostTries = 20

// denials are the items of which the registry does not permit to write or to read something. The other
// items of the job go on without them.
type denials struct {
	of map[denied]*denial
	// news is set if one has come that was not reported.
	news bool
}

// denied is an item of this host's, or one of a host dead that is to be taken over. dead is
// "Java" for what Java hosts have marked.
type denied struct {
	item int
	dead string
}

// denial is why an item cannot be written or read, and when it is tried again.
type denial struct {
	err   error
	pause time.Duration
	at    time.Time
	fire  string // the newest that was reported not to begin for it
}

// note notes what was denied to a step, of the items of a host that died or of this
// host's own if dead is empty.
func (d *denials) note(now moment, dead string, found coordination.Denials, log *zap.Logger) {
	for n, err := range found {
		key := denied{n, dead}
		x := d.of[key]
		if x == nil {
			if d.of == nil {
				d.of = make(map[denied]*denial)
			}
			x, d.news = new(denial), true
			d.of[key] = x
			log.Error("the registry does not permit to write or to read an item: the other items go on without it", zap.Int("item", n), zap.Error(err))
		}
		x.err, x.pause = err, min(max(2*x.pause, retryPause), longestDenial)
		x.at = now.Add(x.pause)
	}
}

// end notes that items of this host's were written, or are not its own any more.
func (d *denials) end(item int) { delete(d.of, denied{item: item}) }

// endUnread notes that an item of this host's was read.
func (d *denials) endUnread(item int) {
	if x := d.of[denied{item: item}]; x != nil && x.unread() {
		d.end(item)
	}
}

// unread reports whether the registry does not permit to read the item.
func (x *denial) unread() bool {
	var unreadable *registry.UnreadableError
	return errors.As(x.err, &unreadable)
}

// text says why the item does not run.
func (x *denial) text() reason.Reason {
	if x.unread() {
		return reason.New(reason.ItemUnreadable, x.err)
	}
	return reason.New(reason.ItemUnwritable, x.err)
}

// settle notes what is still denied of a host that died; empty ends all of that kind.
func (d *denials) settle(dead string, found coordination.Denials) {
	maps.DeleteFunc(d.of, func(key denied, _ *denial) bool {
		return key.dead != "" && (dead == "" || key.dead == dead) && found[key.item] == nil
	})
}

// waits reports whether it is too early to try again to write an item of this host's.
func (d *denials) waits(now moment, item int) bool {
	x := d.of[denied{item: item}]
	return x != nil && now.Before(x.at)
}

// next is when the first is tried again after a time; zero if there is none.
func (d *denials) next(now moment) (at time.Time) {
	for _, x := range d.of {
		if x.at.After(now.Time) {
			at = soonest(at, x.at)
		}
	}
	return at
}

// items are those that cannot be written or read, ascending.
func (d *denials) items() tree.Items {
	var items tree.Items
	for key := range d.of {
		items = append(items, key.item)
	}
	slices.Sort(items)
	return slices.Compact(items)
}

// reason names the items that cannot be written or read, and why the first cannot; nil if there is none.
func (d *denials) reason() error {
	if len(d.of) == 0 {
		return nil
	}
	first := slices.MinFunc(slices.Collect(maps.Keys(d.of)), func(a, b denied) int {
		return cmp.Or(cmp.Compare(a.item, b.item), cmp.Compare(a.dead, b.dead))
	})
	unread := 0
	for _, x := range d.of {
		if x.unread() {
			unread++
		}
	}
	code := reason.ItemsUnreadableOrUnwritable
	switch unread {
	case 0:
		code = reason.ItemsUnwritable
	case len(d.of):
		code = reason.ItemsUnreadable
	}
	return reason.New(code, d.items(), d.of[first].err)
}

// unreported is the event of items that cannot be written or read, when there are more of them; ok is false if there are not.
func (d *denials) unreported() (e event.Event, ok bool) {
	if !d.news {
		return e, false
	}
	d.news = false
	err := d.reason()
	if err == nil {
		return e, false
	}
	return event.Event{Kind: event.JobError, Items: d.items()}.Why(reason.Of(err)), true
}

// deny notes that an item cannot begin for a fire because it cannot be written or read. The item
// owes the fire.
func (set *itemSet) deny(it *item, id tree.Fire) {
	set.dues.owe(it, id)
	x := set.denials.of[denied{item: it.number}]
	if x == nil || x.fire == id.ID() {
		return
	}
	x.fire = id.ID()
	set.reports.skip(it, id, event.SkipLater, x.text())
}

// skipUnread reports, for a fire, the items of the share that cannot be read. It is not known what they owe: their
// records show that when they can be read again.
func (set *itemSet) skipUnread(id tree.Fire) {
	for _, n := range slices.Sorted(maps.Keys(set.member.Share.Denied)) {
		if set.items.of[n] == nil {
			set.deny(&item{number: n}, id)
		}
	}
}

// denyWatch notes which of the items cannot be watched because a node of theirs cannot be read. It reports whether
// there is one.
func (d *denials) denyWatch(now moment, log *zap.Logger, items tree.Items, nodes func(item int) []registry.Query, err error) bool {
	var unreadable *registry.UnreadableError
	if !errors.As(err, &unreadable) {
		return false
	}
	denied := make(coordination.Denials)
	for _, n := range items {
		for _, q := range nodes(n) {
			if unreadable.Denied[q] != nil {
				denied[n] = &registry.UnreadableError{Denied: map[registry.Query]error{q: unreadable.Denied[q]}}
			}
		}
	}
	d.note(now, "", denied, log)
	return len(denied) > 0
}

// mayRead reports whether it is time to try again to read an item of the share that could not be read.
func (set *itemSet) mayRead(now moment) bool {
	for n := range set.member.Share.Denied {
		if !set.denials.waits(now, n) {
			return true
		}
	}
	return false
}

// noteUnread notes what of the share cannot be read, in place of what could not before.
func (set *itemSet) noteUnread(now moment, before, after coordination.Share) {
	for n := range before.Denied {
		if after.Denied[n] == nil && set.items.of[n] == nil {
			set.denials.end(n)
		}
	}
	set.denials.note(now, "", after.Denied, set.log)
}

// dropDenied keeps items that could not be written or read from beginning together with others. On
// their own, mostTries of those that do not wait are tried.
func (set *itemSet) dropDenied(now moment, id tree.Fire, items []*item) []*item {
	if len(set.denials.of) == 0 {
		return items
	}
	var clean, tries []*item
	for _, it := range items {
		if set.denials.of[denied{item: it.number}] == nil {
			clean = append(clean, it)
		} else if !set.denials.waits(now, it.number) {
			tries = append(tries, it)
		} else {
			set.deny(it, id)
		}
	}
	begins, rest := clean, tries
	if len(clean) == 0 {
		n := min(len(tries), mostTries)
		begins, rest = tries[:n], tries[n:]
	}
	for _, it := range rest {
		set.deny(it, id)
		set.againAt = now.Add(againPause)
	}
	return begins
}

// seeUnread notes why a node that the host goes by cannot be read any more; nil if all can.
func (j *job) seeUnread(err error) {
	news := j.unread == nil && err != nil
	if j.unread = err; err != nil {
		j.unread = reason.New(reason.LastKnownStays, err)
	}
	if news {
		j.Emit(event.Event{Kind: event.JobError}.Why(reason.Of(j.unread)))
	}
}
