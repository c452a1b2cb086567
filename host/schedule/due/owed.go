package due

import (
	"cmp"
	"slices"
	"time"

	"github.com/wasmjob/wasmjob/coordination/tree"
)

// Owed are the fires that an item owes.
type Owed struct {
	// Due was missed while the item ran, or while no host held it.
	Due *tree.Fire
	// Queue follows Due, oldest first: fires that each run for themselves, but for the last one,
	// which a newer one may replace.
	Queue []tree.Fire
	// Asked is the round of a trigger with arguments: no instant stands for it, and it
	// goes first.
	Asked *tree.Fire
}

// Next is what the item is to begin when it can; nil if it owes nothing.
func (o *Owed) Next() *tree.Fire {
	if o.Asked != nil {
		return o.Asked
	}
	return o.Due
}

// Place is where the item keeps a fire that it owes.
func (o *Owed) Place(id tree.Fire) **tree.Fire {
	if id.HasArgs() {
		return &o.Asked
	}
	return &o.Due
}

// Answered notes that a fire is no longer owed: it has begun, or why not has been
// reported. Another one stays: a trigger that is refused stands for no instant.
func (o *Owed) Answered(id tree.Fire) {
	if o.Asked != nil && o.Asked.ID() == id.ID() {
		o.Asked = nil
	}
	if o.Due != nil && o.Due.ID() == id.ID() {
		o.Due = nil
		if len(o.Queue) > 0 {
			o.Due, o.Queue = &o.Queue[0], o.Queue[1:]
		}
	}
}

// Waiting are Due and what follows it.
func (o *Owed) Waiting() []tree.Fire {
	if o.Due == nil {
		return nil
	}
	return append([]tree.Fire{*o.Due}, o.Queue...)
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

// Put adds a fire in the order of the instants. each says of a fire that no newer one stands
// for it. gone is the fire that the new one stands for, or the new one if a newer one waits that
// stands for it; nil if there is none. A fire that waits already is replaced.
func (o *Owed) Put(id tree.Fire, each func(tree.Fire) bool) (gone *tree.Fire) {
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
	o.Due, o.Queue = &list[0], list[1:]
	return gone
}

// Drop forgets what waits.
func (o *Owed) Drop() { o.Due, o.Queue, o.Asked = nil, nil, nil }
