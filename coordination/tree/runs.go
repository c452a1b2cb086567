package tree

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/wasmjob/wasmjob/coordination/jobconfig"
)

// Run is a set of items that one host has begun for one fire.
type Run struct {
	Fire
	Items Ranges `json:"items"`
	// Marked is set for runs whose running marks outlive their host, so that Java hosts know them.
	Marked bool `json:"marked,omitempty"`
}

// Runs is what one host has begun and not completed: node runs/{id}. While the host lives, resharding leaves
// these items alone; when it is gone, they must be taken over.
type Runs struct {
	Runs []Run `json:"runs,omitempty"`
	// Java is the id of a dead Java host whose runs a host of ours has written down here. Such a node has
	// another name, because Java ids are reused.
	Java string `json:"java,omitempty"`
	// Shared is all that was left when the first host took something over, and Takers are the hosts among which
	// it was divided: each has a block of it (BlockOf). For a living host both are empty. Hosts of earlier
	// versions divided item by item, in other fields.
	Shared Ranges   `json:"shared,omitempty"`
	Takers []string `json:"blocks,omitempty"`
	// Left is set when the host has stopped its guests and left the job: then its runs did not cause its death.
	Left bool `json:"left,omitempty"`
}

// ParseRuns reads node runs/{id}; an empty node has no runs. An unreadable node is an error: then it is unknown
// what the host runs.
func ParseRuns(data []byte) (Runs, error) {
	var r Runs
	if len(data) == 0 {
		return r, nil
	}
	err := json.Unmarshal(data, &r)
	if err == nil && r.Java != "" && !FitsANode(r.Java) {
		err = fmt.Errorf("java: found %q, expected the id of an instance", jobconfig.Clip(r.Java))
	}
	return r, err
}

// Data is the node's data, JSON; nil without runs. Left is kept until the node is deleted: another host may
// read it between the last takeover and the deletion.
func (r Runs) Data() []byte {
	if len(r.Runs) == 0 && !r.Left {
		return nil
	}
	b, err := json.Marshal(r)
	if err != nil { // numbers and strings always marshal
		return nil
	}
	return b
}

// Items are all items of all runs, ascending.
func (r Runs) Items() Items { return r.Ranges().Items() }

// Ranges are all items of all runs.
func (r Runs) Ranges() Ranges {
	var all Ranges
	for _, run := range r.Runs {
		all = all.With(run.Items)
	}
	return all
}

// Has reports whether the item is in one of the runs.
func (r Runs) Has(item int) bool {
	return slices.ContainsFunc(r.Runs, func(run Run) bool { return run.Items.Contains(item) })
}

// MarkedOf reports whether the item's running mark outlives the host.
func (r Runs) MarkedOf(item int) bool {
	for _, run := range r.Runs {
		if run.Items.Contains(item) {
			return run.Marked
		}
	}
	return false
}

// FireOf is the fire for which an item was begun; zero if it was not.
func (r Runs) FireOf(item int) Fire {
	for _, run := range r.Runs {
		if run.Items.Contains(item) {
			return run.Fire
		}
	}
	return Fire{}
}

// ListGrowth returns an upper bound, in bytes, for how much a list of runs grows when the item is added or
// removed, after the item before: a range is extended or cut, or added.
func ListGrowth(item, before int) int {
	if item == before+1 {
		return 0
	}
	return 2 * len(",1000000")
}

// BlockOf returns the part of Shared for a host: none if it is no taker. The sizes of blocks differ by at most
// one item.
func (r Runs) BlockOf(host string) Ranges {
	k := slices.Index(r.Takers, host)
	if k < 0 {
		return nil
	}
	n, takers := r.Shared.Len(), len(r.Takers)
	return r.Shared.slice((n*k+takers-1)/takers, (n*(k+1)+takers-1)/takers)
}

// With returns the list with items begun for a fire; they are removed from the run that had them.
func (r Runs) With(f Fire, marked bool, items Items) Runs {
	if len(items) == 0 {
		return r
	}
	added := RangesOf(items)
	n := r.less(added)
	for i := range n.Runs {
		if n.Runs[i].Fire == f && n.Runs[i].Marked == marked {
			n.Runs[i].Items = n.Runs[i].Items.With(added)
			return n
		}
	}
	n.Runs = append(n.Runs, Run{Fire: f, Items: added, Marked: marked})
	return n
}

// Without is the list without some items.
func (r Runs) Without(items Items) Runs { return r.less(RangesOf(items)) }

// less are the runs without some items.
func (r Runs) less(drop Ranges) Runs {
	n := Runs{Java: r.Java, Shared: r.Shared, Takers: r.Takers, Left: r.Left}
	for _, run := range r.Runs {
		if kept := run.Items.Without(drop); len(kept) > 0 {
			n.Runs = append(n.Runs, Run{Fire: run.Fire, Items: kept, Marked: run.Marked})
		}
	}
	return n
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
		Shared Ranges   `json:"shared"`
		Takers []string `json:"blocks"`
		Left   bool     `json:"left"`
	}
	if err := json.Unmarshal(data, &text); err != nil {
		return err
	}
	*r = Runs{Java: text.Java, Shared: text.Shared, Takers: text.Takers, Left: text.Left}
	n := 0
	for _, t := range text.Runs {
		items, err := ParseRanges(t.Items)
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
