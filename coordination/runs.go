package coordination

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/wasmjob/wasmjob/coordination/registry"
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

// settleOrphans deals with begins of this host of which nothing ran. A scheduled
// instant is handed back, and is due again. What was taken over from a host that
// died, and what a trigger asked for, no host would find again: it stays begun,
// and the host is to run it.
func settleOrphans(l Layout, self string, runs Runs, version int32, orphans Items, then func(Runs, int32, []Claim) (Move, error)) Move {
	return neverWere(l, orphans, func(none Items) (Move, error) {
		return settleItems(l, self, runs.without(none), version, slices.DeleteFunc(slices.Clone(orphans), none.Contains), then), nil
	})
}

func settleItems(l Layout, self string, runs Runs, version int32, orphans Items, then func(Runs, int32, []Claim) (Move, error)) Move {
	return readItems(l, orphans, func(states map[int]ItemState) (Move, error) {
		var adopted []Claim
		var back Items
		for _, i := range orphans {
			r, fire := states[i].Record, runs.fireOf(i)
			if r.Owner == self && r.Open() && (r.Source == sourceFailover || fire.Trigger != 0) {
				adopted = append(adopted, Claim{Item: i, Fire: fire, State: states[i]})
			} else {
				back = append(back, i)
			}
		}
		if len(back) == 0 {
			return then(runs, version, adopted)
		}
		return handBack(l, self, runs, version, back, func(runs Runs, version int32) (Move, error) {
			return then(runs, version, adopted)
		}), nil
	})
}

// handBack undoes begins of this host of which nothing ran.
func handBack(l Layout, self string, runs Runs, version int32, items Items, then func(Runs, int32) (Move, error)) Move {
	const each = 4
	var read []registry.Query
	for _, i := range items {
		read = append(read, registry.Data(l.record(i)), registry.Data(l.itemRunning(i)), registry.Data(l.itemFailover(i)), registry.Data(l.itemFailovering(i)))
	}
	return Move{Name: "hand back", Read: read, Then: func(n []registry.Node, _ []registry.Result) (Move, error) {
		c := commit{}
		var part Items
		for k, i := range items {
			record := n[each*k]
			item := commit{}
			if r := parseRecord(record.Data); r.Owner == self && r.Open() {
				item.add(roleRecord, i, registry.Set(record.Path, r.HandBack(runs.fireOf(i)).data(), record.Version))
			}
			for _, mark := range n[each*k+1 : each*k+each] {
				if mark.Exists && string(mark.Data) == self {
					item.add(roleItem, i, registry.Delete(mark.Path, registry.AnyVersion))
				}
			}
			if size(c.ops)+size(item.ops) > commitBudget && len(part) > 0 {
				break
			}
			c.join(item)
			part = append(part, i)
		}
		left := runs.without(part)
		c.addRuns(l, self, left, version)
		return Move{Commit: c.ops,
			Then: func(_ []registry.Node, results []registry.Result) (Move, error) {
				version := results[len(results)-1].Version
				if rest := items[len(part):]; len(rest) > 0 {
					return handBack(l, self, left, version, rest, then), nil
				}
				return then(left, version)
			},
			Else: func(e *registry.OpError) (Move, error) {
				if c.roles[e.Index] == roleRuns {
					return Move{}, fmt.Errorf("this host's own list of runs was changed by somebody else: %w", e)
				}
				return handBack(l, self, runs, version, items, then), nil
			},
			Unknown: func() (Move, error) {
				return Move{Read: []registry.Query{registry.Data(l.runsOf(self))}, Then: func(n []registry.Node, _ []registry.Result) (Move, error) {
					switch {
					case versionOf(n[0]) == version: // it did not take effect
						return handBack(l, self, runs, version, items, then), nil
					case len(part) < len(items):
						return handBack(l, self, left, n[0].Version, items[len(part):], then), nil
					}
					return then(left, n[0].Version)
				}}, nil
			},
		}, nil
	}}
}
