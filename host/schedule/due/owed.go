package due

import (
	"cmp"
	"slices"
	"time"

	"github.com/wasmjob/wasmjob/coordination/tree"
)

// Owed are the fires that an item still has to run.
type Owed struct {
	// Due was missed while the item ran, or while no host owned it.
	Due *tree.Fire
	// queue follows Due, oldest first: fires that each run, except that a newer fire may replace the last one.
	queue []queued
	// Asked is the round of a trigger with arguments: it is never coalesced, and goes first. A backfill's round
	// alternates with Due.
	Asked *tree.Fire
	// behind are rounds after Asked, which a guest has put off: oldest first.
	behind []tree.Fire
	// backfilled is set if the item began for a backfill last.
	backfilled bool
	// settled is the newest trigger that was answered.
	settled int64
}

// queued is a fire without arguments, in a small form because an item may have a thousand.
type queued struct {
	instant, trigger int64
	source           string
}

func (q queued) fire() tree.Fire {
	return tree.Fire{Instant: q.instant, Trigger: q.trigger, Source: q.source}
}

func enqueue(f tree.Fire) queued { return queued{f.Instant, f.Trigger, f.Source} }

// Next returns the fire that the item begins next; nil if there is none.
func (o *Owed) Next() *tree.Fire {
	if o.Asked == nil || (o.Asked.Backfill && o.backfilled && o.Due != nil) {
		return o.Due
	}
	return o.Asked
}

// Began notes which fire the item has begun, so that neither a backfill nor the schedule starves the other.
func (o *Owed) Began(id tree.Fire) { o.backfilled = id.Backfill }

// Ask notes that the item is to run in a round of a trigger with arguments, in the order of the rounds.
func (o *Owed) Ask(id tree.Fire) {
	asks := o.Asks()
	at, found := slices.BinarySearchFunc(asks, id, func(f, id tree.Fire) int { return cmp.Compare(f.Trigger, id.Trigger) })
	if found {
		asks[at] = id
	} else {
		asks = slices.Insert(asks, at, id)
	}
	o.Asked, o.behind = &asks[0], asks[1:]
}

// Asks are the rounds of triggers with arguments, oldest first.
func (o *Owed) Asks() []tree.Fire {
	if o.Asked == nil {
		return nil
	}
	return append([]tree.Fire{*o.Asked}, o.behind...)
}

// Answered removes a fire: it has begun, or the reason why not was reported. Other fires stay: a refused
// trigger does not stand for an instant.
func (o *Owed) Answered(id tree.Fire) {
	o.settled = max(o.settled, id.Trigger)
	if o.Asked != nil && o.Asked.ID() == id.ID() {
		if o.Asked = nil; len(o.behind) > 0 {
			o.Asked, o.behind = &o.behind[0], o.behind[1:]
		}
	}
	if o.Due != nil && o.Due.ID() == id.ID() {
		o.Due = nil
		if len(o.queue) > 0 {
			next := o.queue[0].fire()
			o.Due, o.queue = &next, o.queue[1:]
		} else {
			o.queue = nil
		}
	}
}

// Settled reports whether a trigger, or a newer one, was answered.
func (o *Owed) Settled(trigger int64) bool { return o.settled >= trigger }

// Waiting returns Due and the queue.
func (o *Owed) Waiting() []tree.Fire {
	if o.Due == nil {
		return nil
	}
	list := make([]tree.Fire, 0, o.Len())
	list = append(list, *o.Due)
	for _, q := range o.queue {
		list = append(list, q.fire())
	}
	return list
}

// Len is how many wait.
func (o *Owed) Len() int {
	if o.Due == nil {
		return 0
	}
	return 1 + len(o.queue)
}

// Has reports whether a fire waits.
func (o *Owed) Has(id tree.Fire) bool {
	if o.Due == nil || o.Due.Same(id) {
		return o.Due != nil
	}
	if id.Trigger != 0 { // at most two triggers wait: they are coalesced
		return slices.ContainsFunc(o.queue, func(q queued) bool { return q.trigger == id.Trigger })
	}
	at, _ := slices.BinarySearchFunc(o.queue, id.Instant, func(q queued, instant int64) int { return cmp.Compare(q.instant, instant) })
	for ; at < len(o.queue) && o.queue[at].instant == id.Instant; at++ {
		if o.queue[at].trigger == 0 {
			return true
		}
	}
	return false
}

// last is the newest that waits, if any does.
func (o *Owed) last() (f tree.Fire, waits bool) {
	if n := len(o.queue); n > 0 {
		return o.queue[n-1].fire(), true
	}
	if o.Due != nil {
		return *o.Due, true
	}
	return tree.Fire{}, false
}

// WaitingBefore are those of the Waiting whose instant is before a time.
func (o *Owed) WaitingBefore(t time.Time) []tree.Fire {
	waiting := o.Waiting()
	for i, f := range waiting {
		if !f.Time().Before(t) {
			return waiting[:i]
		}
	}
	return waiting
}

// Put adds a fire without arguments in the order of instants. each reports whether a fire runs by itself and is
// not coalesced. gone is the superseded fire, which may be the new one; nil if there is none. A fire that waits
// already is replaced.
func (o *Owed) Put(id tree.Fire, each func(tree.Fire) bool) (gone *tree.Fire) {
	if last, waits := o.last(); waits && last.Trigger == 0 && id.Trigger == 0 && last.Instant < id.Instant && each(last) {
		o.queue = append(o.queue, enqueue(id)) // the usual case
		return nil
	}
	return o.insert(id, each)
}

// insert is Put for a fire that does not come last, or for which one is replaced.
func (o *Owed) insert(id tree.Fire, each func(tree.Fire) bool) (gone *tree.Fire) {
	list := slices.DeleteFunc(o.Waiting(), func(f tree.Fire) bool { return f.ID() == id.ID() })
	at, _ := slices.BinarySearchFunc(list, id, func(f, id tree.Fire) int { return cmp.Compare(f.Instant, id.Instant) })
	switch {
	case at > 0 && !each(list[at-1]):
		gone = &list[at-1]
		list = slices.Concat(list[:at-1], []tree.Fire{id}, list[at:])
	case at < len(list) && !each(id):
		gone = &id
	default:
		list = slices.Insert(slices.Clone(list), at, id)
	}
	first := list[0] // a copy, so that the larger list can be freed
	o.Due, o.queue = &first, nil
	for _, f := range list[1:] {
		o.queue = append(o.queue, enqueue(f))
	}
	return gone
}

// DropWaiting drops Due and the queue.
func (o *Owed) DropWaiting() { o.Due, o.queue = nil, nil }

// Drop drops all fires.
func (o *Owed) Drop() { *o = Owed{} }
