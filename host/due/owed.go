package due

import (
	"time"

	"github.com/wasmjob/wasmjob/coordination/tree"
)

// Owed are the fires that an item owes.
type Owed struct {
	// Due was missed while the item ran, or while no host held it.
	Due *tree.Fire
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
	for _, owes := range []**tree.Fire{&o.Due, &o.Asked} {
		if *owes != nil && (*owes).ID() == id.ID() {
			*owes = nil
		}
	}
}

// Waived are the instants, in Unix milliseconds, up to which items begin for none any
// more: an item, or its host's server, was disabled when they came due, and the item's
// record does not say so yet.
type Waived map[int]int64

// Note adds an instant of an item.
func (w *Waived) Note(item int, instant time.Time) {
	if *w == nil {
		*w = make(Waived)
	}
	(*w)[item] = max((*w)[item], instant.UnixMilli())
}
