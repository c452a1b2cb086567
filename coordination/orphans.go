package coordination

import (
	"context"
	"fmt"
	"slices"

	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/step"
	"github.com/wasmjob/wasmjob/coordination/tree"
	"github.com/wasmjob/wasmjob/internal/text/reason"
)

// While a host lives no other host writes its list of runs (node runs/{id}), and every begin and completion
// writes it in the same commit. So the list is the journal that resolves a commit whose answer was lost: if
// Begin, Complete or Recover meets another version than the known one, it reads the list, takes over what had
// begun after all, and hands back what does not run.

// ownRuns compares the host's own list of runs with what it knew of it. orphans are items that a commit whose
// answer was lost has begun: they are in the list, and no host runs them.
func ownRuns(n registry.Node, known tree.Runs, version int32) (actual tree.Runs, orphans tree.Items) {
	if tree.VersionOf(n) == version {
		return known, nil
	}
	actual, err := tree.ParseRuns(n.Data)
	if err != nil || !n.Exists {
		return known, nil // damaged by an external edit: the next write repairs it
	}
	return actual, actual.Ranges().Without(known.Ranges()).Items()
}

// ownList is this host's list of runs, with the version of its node.
type ownList struct {
	runs    tree.Runs
	version int32
}

// settled is the result of settleOrphans.
type settled struct {
	ownList
	adopted []Claim // still begun: this host must run them
}

// settleOrphans settles items that this host has begun and does not run. A scheduled instant is handed back,
// and is due again. A failover or a trigger would not be found again: it stays begun, and the host must run it.
//
// An item that cannot be read, noted in denials, is only removed from the list: its next begin finds the run
// open.
func settleOrphans(ctx context.Context, x *step.Exchange, l tree.Layout, self string, own ownList, orphans tree.Items, denials *Denials) (settled, error) {
	none, err := neverWere(ctx, x, l, orphans)
	if err != nil {
		return settled{}, err
	}
	own.runs = own.runs.Without(none)
	orphans = slices.DeleteFunc(slices.Clone(orphans), none.Contains)
	states, err := readItems(ctx, x, l, orphans, denials)
	if err != nil {
		return settled{}, err
	}
	own.runs = own.runs.Without(slices.DeleteFunc(slices.Clone(orphans), func(i int) bool { return (*denials)[i] == nil }))
	orphans = denials.without(orphans)

	var adopted []Claim
	var back tree.Items
	for _, i := range orphans {
		r, fire := states[i].Record, own.runs.FireOf(i)
		if r.Owner == self && r.Open() && !r.Kill.Asked() && (r.Source == tree.SourceFailover || fire.Trigger != 0) {
			adopted = append(adopted, Claim{Item: i, Fire: fire, State: states[i]})
		} else {
			back = append(back, i)
		}
	}
	own, err = handBack(ctx, x, l, self, own, back)
	return settled{own, adopted}, err
}

// handBack undoes begins of items that do not run.
func handBack(ctx context.Context, x *step.Exchange, l tree.Layout, self string, own ownList, items tree.Items) (ownList, error) {
	for len(items) > 0 {
		var read []registry.Query
		for _, i := range items {
			read = append(read, registry.Data(l.Record(i)), registry.Data(l.ItemRunning(i)), registry.Data(l.ItemFailover(i)), registry.Data(l.ItemFailovering(i)))
		}
		n, err := x.Read(ctx, read...)
		if err != nil {
			return own, err
		}

		c, part := handBackOps(l, self, own.runs, items, n)
		left := own.runs.Without(part)
		c.addRuns(l, self, left, own.version)
		results, err := x.Commit(ctx, c.ops...)
		conflict := step.ConflictOf(err)
		switch {
		case err == nil:
			own, items = ownList{left, results[len(results)-1].Version}, items[len(part):]
		case conflict != nil && c.roles[conflict.Index] == roleRuns:
			return own, fmt.Errorf("this host's own list of runs was changed by somebody else: %w", conflict)
		case conflict != nil: // read again
		case !step.IsUnknown(err):
			return own, err
		default:
			n, err := x.Read(ctx, registry.Data(l.RunsOf(self)))
			if err != nil {
				return own, err
			}
			if now := tree.VersionOf(n.Data(l.RunsOf(self))); now != own.version { // it took effect
				own, items = ownList{left, now}, items[len(part):]
			}
		}
	}
	return own, nil
}

// handBackOps hands back as many of the items as fit one commit.
func handBackOps(l tree.Layout, self string, runs tree.Runs, items tree.Items, n registry.Snapshot) (c commit, part tree.Items) {
	for _, i := range items {
		record := n.Data(l.Record(i))
		item := commit{}
		if r := tree.ParseRecord(record.Data); r.Owner == self && r.Open() {
			back := r.HandBack(runs.FireOf(i))
			if r.Kill.Asked() {
				back = r.EndKilled(reason.NotStarted, r.Kill.At)
			}
			item.add(roleRecord, i, registry.Set(record.Path, back.Data(), record.Version))
		}
		for _, path := range []string{l.ItemRunning(i), l.ItemFailover(i), l.ItemFailovering(i)} {
			if mark := n.Data(path); mark.Exists && string(mark.Data) == self {
				item.add(roleItem, i, registry.Delete(path, registry.AnyVersion))
			}
		}
		if step.Size(c.ops)+step.Size(item.ops) > step.Budget && len(part) > 0 {
			break
		}
		c.join(item)
		part = append(part, i)
	}
	return c, part
}
