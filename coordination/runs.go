package coordination

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/step"
)

// A host's list of runs (node runs/{id}) is written by no other host while the
// host lives, in the same commit as every begin and completion. So it is the
// journal by which a host finds out what became of a commit whose answer was
// lost: Begin, Complete and Recover that meet another version of it than they
// know read it, take what they had begun after all for begun, and hand back
// what no host runs.

// noVersion is the version of a node that does not exist.
const noVersion int32 = -1

// sourceFailover is the source of a run that was taken over.
const sourceFailover = "failover"

func versionOf(n registry.Node) int32 {
	if !n.Exists {
		return noVersion
	}
	return n.Version
}

// ownRuns compares the host's own list of runs with what it knew of it.
// orphans are items that were begun by a commit whose answer was lost: they
// are in the list, and no host runs them.
func ownRuns(n registry.Node, known Runs, version int32) (actual Runs, orphans Items) {
	if versionOf(n) == version {
		return known, nil
	}
	actual, err := parseRuns(n.Data)
	if err != nil || !n.Exists {
		return known, nil // damaged by an external edit: the next write repairs it
	}
	return actual, actual.ranges().without(known.ranges()).Items()
}

// UnmarshalJSON reads the list of a node. A list of more than MaxItems items in
// all is refused: a few bytes of a range stand for a million.
func (r *Runs) UnmarshalJSON(data []byte) error {
	var text struct {
		Runs []struct {
			Run
			Items string `json:"items"` // in place of the run's own
		} `json:"runs"`
		Java   string   `json:"java"`
		Owed   Items    `json:"owed"`
		Takers []string `json:"takers"`
		Left   bool     `json:"left"`
	}
	if err := json.Unmarshal(data, &text); err != nil {
		return err
	}
	*r = Runs{Java: text.Java, Owed: text.Owed, Takers: text.Takers, Left: text.Left}
	n := 0
	for _, t := range text.Runs {
		items, err := parseRanges(t.Items)
		if err != nil {
			return err
		}
		if n += items.Len(); n > MaxItems {
			return fmt.Errorf("runs: more than %d items", MaxItems)
		}
		t.Run.Items = items
		r.Runs = append(r.Runs, t.Run)
	}
	return nil
}

// OutcomeCancelled is the outcome of a run that was handed back before
// anything of it ran: its instant is due again.
const OutcomeCancelled = "CANCELLED"

// ownList is this host's list of runs, with the version of its node.
type ownList struct {
	runs    Runs
	version int32
}

// settled is what became of begins of which nothing ran.
type settled struct {
	ownList
	adopted []Claim // stay begun: this host is to run them
}

// settleOrphans deals with begins of this host of which nothing ran. A scheduled
// instant is handed back, and is due again. What was taken over from a host that
// died, and what a trigger asked for, no host would find again: it stays begun,
// and the host is to run it.
func settleOrphans(ctx context.Context, x *step.Exchange, l Layout, self string, own ownList, orphans Items) (settled, error) {
	none, err := neverWere(ctx, x, l, orphans)
	if err != nil {
		return settled{}, err
	}
	own.runs = own.runs.without(none)
	orphans = slices.DeleteFunc(slices.Clone(orphans), none.Contains)
	states, err := readItems(ctx, x, l, orphans)
	if err != nil {
		return settled{}, err
	}

	var adopted []Claim
	var back Items
	for _, i := range orphans {
		r, fire := states[i].Record, own.runs.fireOf(i)
		if r.Owner == self && r.Open() && (r.Source == sourceFailover || fire.Trigger != 0) {
			adopted = append(adopted, Claim{Item: i, Fire: fire, State: states[i]})
		} else {
			back = append(back, i)
		}
	}
	own, err = handBack(ctx, x, l, self, own, back)
	return settled{own, adopted}, err
}

// handBack undoes begins of this host of which nothing ran.
func handBack(ctx context.Context, x *step.Exchange, l Layout, self string, own ownList, items Items) (ownList, error) {
	for len(items) > 0 {
		var read []registry.Query
		for _, i := range items {
			read = append(read, registry.Data(l.record(i)), registry.Data(l.itemRunning(i)), registry.Data(l.itemFailover(i)), registry.Data(l.itemFailovering(i)))
		}
		n, err := x.Read(ctx, read...)
		if err != nil {
			return own, err
		}

		c, part := handBackOps(l, self, own.runs, items, n)
		left := own.runs.without(part)
		c.addRuns(l, self, left, own.version)
		results, err := x.Commit(ctx, c.ops...)
		conflict := step.ConflictOf(err)
		switch {
		case err == nil:
			own, items = ownList{left, results[len(results)-1].Version}, items[len(part):]
		case conflict != nil && c.roles[conflict.Index] == roleRuns:
			return own, fmt.Errorf("this host's own list of runs was changed by somebody else: %w", conflict)
		case conflict != nil: // look again
		case !step.IsUnknown(err):
			return own, err
		default:
			n, err := x.Read(ctx, registry.Data(l.runsOf(self)))
			if err != nil {
				return own, err
			}
			if now := versionOf(n.Data(l.runsOf(self))); now != own.version { // it took effect
				own, items = ownList{left, now}, items[len(part):]
			}
		}
	}
	return own, nil
}

// handBackOps hands back as many of the items as fit one commit.
func handBackOps(l Layout, self string, runs Runs, items Items, n registry.Snapshot) (c commit, part Items) {
	for _, i := range items {
		record := n.Data(l.record(i))
		item := commit{}
		if r := parseRecord(record.Data); r.Owner == self && r.Open() {
			item.add(roleRecord, i, registry.Set(record.Path, r.HandBack(runs.fireOf(i)).data(), record.Version))
		}
		for _, path := range []string{l.itemRunning(i), l.itemFailover(i), l.itemFailovering(i)} {
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
