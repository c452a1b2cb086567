package engine

import (
	"slices"
	"testing"

	"github.com/wasmjob/wasmjob/coordination"
	"github.com/wasmjob/wasmjob/coordination/tree"
	"github.com/wasmjob/wasmjob/host/engine/run"
	"github.com/wasmjob/wasmjob/host/schedule/due"
)

// TestOnlyBusyItemsStayActive: after a pass the loop has only those items before it that give it something to do, until others are
// looked up.
func TestOnlyBusyItemsStayActive(t *testing.T) {
	t.Parallel()
	fire := tree.Fire{Instant: 1}
	idle := map[string]item{
		"owned":   {owned: true},
		"runs":    {owned: true, run: new(run.Execution)},
		"began":   {owned: true, state: coordination.ItemState{Record: tree.Record{Owner: "a", Begun: 1}, Misfire: true}},
		"held up": {owned: true, state: coordination.ItemState{Record: tree.Record{Held: 1}}},
	}
	busy := map[string]item{
		"due":        {owned: true, Owed: due.Owed{Due: &fire}},
		"asked":      {owned: true, Owed: due.Owed{Asked: &fire}},
		"held":       {held: true},
		"admitted":   {asks: true},
		"waits":      {waits: "key"},
		"paced":      {paced: "key"},
		"disabled":   {owned: true, state: coordination.ItemState{Disabled: true}},
		"again":      {state: coordination.ItemState{Record: tree.Record{Again: 1}}},
		"killed":     {run: new(run.Execution), state: coordination.ItemState{Record: tree.Record{Kill: tree.Kill{At: 1}}}},
		"due, stays": {run: new(run.Execution), Owed: due.Owed{Due: &fire}},
	}
	s := newItems()
	names := make(map[int]string)
	add := func(of map[string]item) (numbers []int) {
		for name, it := range of {
			it.number = len(names)
			names[it.number] = name
			numbers = append(numbers, it.number)
			s.put(&it)
		}
		return numbers
	}
	resting, working := add(idle), add(busy)
	check := func(when string, want []int) {
		t.Helper()
		var got []int
		for _, it := range s.sortedActive(func(*item) bool { return true }) {
			got = append(got, it.number)
		}
		slices.Sort(want)
		if !slices.Equal(got, want) {
			var list []string
			for _, n := range got {
				list = append(list, names[n])
			}
			t.Errorf("%s: active are %v %q, expected %v", when, got, list, want)
		}
	}
	check("when they have come", slices.Concat(resting, working))
	s.rest()
	check("after a pass", slices.Clone(working))
	for range 2 {
		s.get(resting[0]).Due = &fire
	}
	check("when one is looked up", append(slices.Clone(working), resting[0]))
	s.rest()
	check("and is due", append(slices.Clone(working), resting[0]))
	s.remove(resting[0])
	check("and is removed", slices.Clone(working))
	s.put(&item{number: resting[0]})
	check("and comes back", append(slices.Clone(working), resting[0]))
	s.rest()
	check("after another pass", slices.Clone(working))
	if found := s.sorted(func(it *item) bool { return it.number == resting[1] }); len(found) != 1 {
		t.Fatalf("%d items", len(found))
	}
	check("when all are looked at for one", append(slices.Clone(working), resting[1]))
	if s.get(1000) != nil {
		t.Error("an item that is not there is found")
	}
}
