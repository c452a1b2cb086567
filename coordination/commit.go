package coordination

import (
	"slices"

	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/step"
	"github.com/wasmjob/wasmjob/coordination/tree"
)

// role says what an op of a commit is for, so that a conflict can be
// understood.
type role uint8

const (
	roleRoot role = iota + 1
	roleShare
	roleTrigger
	roleRecord
	roleItem // a mark of the item
	roleRuns
	roleOffset
	roleWake
	roleAsk
	roleEnds   // how fires have ended
	rolePermit // a ticket of a limit
	roleRate   // when items began under a rate
	roleStale  // a mark of a run that this host has lost
)

// commit is a list of ops with the item and role of each.
type commit struct {
	ops   []registry.Op
	items []int
	roles []role
}

func (c *commit) add(r role, item int, op registry.Op) {
	c.ops = append(c.ops, op)
	c.items = append(c.items, item)
	c.roles = append(c.roles, r)
}

// newCommit has room for about n ops.
func newCommit(n int) commit {
	n = min(n, 8192)
	return commit{make([]registry.Op, 0, n), make([]int, 0, n), make([]role, 0, n)}
}

// Denials are items with a node that the registry does not permit to read or write, each with a
// *[registry.DeniedError] or a *[registry.UnreadableError]. A step continues without them. The denial lasts
// until an administrator changes the registry, so wait before you try these items again.
type Denials map[int]error

// denied notes the item of the op that the registry does not permit. It returns false if the commit failed for
// another reason, or if the op belongs to no item and so concerns them all.
func (c *commit) denied(err error, denials *Denials) (item int, ok bool) {
	denied := step.DeniedOf(err)
	if denied == nil || c.items[denied.Index] < 0 {
		return -1, false
	}
	item = c.items[denied.Index]
	denials.note(item, denied)
	return item, true
}

// without is the list without one item.
func without(items tree.Items, item int) tree.Items {
	return slices.DeleteFunc(slices.Clone(items), func(i int) bool { return i == item })
}

// cut drops all ops from the n-th on.
func (c *commit) cut(n int) {
	c.ops, c.items, c.roles = c.ops[:n], c.items[:n], c.roles[:n]
}

func (c *commit) join(o commit) {
	c.ops = append(c.ops, o.ops...)
	c.items = append(c.items, o.items...)
	c.roles = append(c.roles, o.roles...)
}

// addRuns writes the host's list of runs.
func (c *commit) addRuns(l tree.Layout, self string, runs tree.Runs, version int32) {
	if version == tree.NoVersion { // deleted by an external edit
		c.add(roleRuns, -1, registry.Create(l.RunsOf(self), nil))
		version = 0
	}
	c.add(roleRuns, -1, registry.Set(l.RunsOf(self), runs.Data(), version))
}

// itemRoom is how many bytes a commit has for items if it also writes this list. It is always enough for more
// than one item.
func itemRoom(r tree.Runs) int { return max(step.Budget-len(r.Data()), leastRoom) }

// leastRoom is what a commit has for items when the list of runs is very long: together they still fit a
// request.
const leastRoom = step.Budget / 8
