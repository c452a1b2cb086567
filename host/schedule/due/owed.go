package due

import "github.com/wasmjob/wasmjob/coordination/tree"

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
