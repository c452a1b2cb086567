package tree

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// TestRunsAgainstModel compares Runs with a map of item to fire.
func TestRunsAgainstModel(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(3, 4))
	fires := []Fire{{Instant: 10, Source: "schedule"}, {Instant: 20, Source: "schedule"}, {Instant: 20, Source: "misfire"}, {Instant: 25, Trigger: 7, Source: "trigger"}}
	for range 200 {
		var runs Runs
		model := make(map[int]Fire)
		for range 20 {
			items := someItems(r, 12)
			before := string(runs.Data())
			var next Runs
			if r.IntN(2) == 0 {
				f := fires[r.IntN(len(fires))]
				next = runs.With(f, f.Trigger != 0, items)
				for _, i := range items {
					model[i] = f
				}
			} else {
				next = runs.Without(items)
				for _, i := range items {
					delete(model, i)
				}
			}
			if string(runs.Data()) != before {
				t.Fatalf("runs were changed in place: %s became %s", before, runs.Data())
			}
			grown, last := 0, -1
			for _, i := range items {
				grown += ListGrowth(i, last)
				last = i
			}
			if header := 128; len(next.Data()) > len(before)+grown+header {
				t.Fatalf("%s with or without %s is %s: longer by more than %d bytes", before, items, next.Data(), grown+header)
			}
			runs = next
			read, err := ParseRuns(runs.Data())
			if err != nil || string(read.Data()) != string(runs.Data()) {
				t.Fatalf("%s is read as %s, %v", runs.Data(), read.Data(), err)
			}
			if len(runs.Items()) != len(model) {
				t.Fatalf("runs have %v, want %v", runs.Items(), model)
			}
			for i, f := range model {
				if runs.FireOf(i) != f {
					t.Fatalf("item %d was begun for %v, want %v", i, runs.FireOf(i), f)
				}
			}
		}
	}
}

// TestNoListIsTooLongToRead: ten ranges of a million each would be ten million
// numbers.
func TestNoListIsTooLongToRead(t *testing.T) {
	t.Parallel()
	var runs Runs
	text := `{"runs":[`
	for i := range 10 {
		text += fmt.Sprintf(`{"instant":%d,"items":"0-999999"},`, i)
	}
	text = text[:len(text)-1] + `]}`
	if err := runs.UnmarshalJSON([]byte(text)); err == nil {
		t.Errorf("%d items were read", len(runs.Items()))
	}
	if err := runs.UnmarshalJSON([]byte(`{"runs":[{"instant":1,"trigger":2,"source":"s","items":"0-2","marked":true}],"java":"x"}`)); err != nil ||
		len(runs.Runs) != 1 || runs.Java != "x" || !runs.Runs[0].Marked || runs.Runs[0].Fire != (Fire{Instant: 1, Trigger: 2, Source: "s"}) || runs.Runs[0].Items.String() != "0-2" {
		t.Errorf("read as %+v, %v", runs, err)
	}
}

// TestBlocks: all items are in one block, and the blocks are of the same size, but for one item, whatever
// has been taken since.
func TestBlocks(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(7, 8))
	f := Fire{Instant: 10, Source: "schedule"}
	for range 500 {
		items := someItems(r, 60)
		takers := []string{"d", "c", "b", "a"}[r.IntN(4):]
		runs := Runs{Shared: RangesOf(items), Takers: takers}.With(f, true, items)
		runs = runs.Without(someItems(r, 60))
		runs, err := ParseRuns(runs.With(f, true, Items{0}).Data())
		if err != nil {
			t.Fatal(err)
		}
		var all Ranges
		least, most := len(items), 0
		for _, taker := range takers {
			block := runs.BlockOf(taker)
			least, most = min(least, block.Len()), max(most, block.Len())
			if len(block.And(all)) > 0 || (len(all) > 0 && len(block) > 0 && block[0].From < all[len(all)-1].To) {
				t.Fatalf("%v among %v: %v has %v, after %v", items, takers, taker, block, all)
			}
			all = all.With(block)
		}
		if all.String() != items.String() || most-least > 1 || len(runs.BlockOf("e")) > 0 {
			t.Fatalf("%v among %v: %v in blocks of %d to %d", items, takers, all, least, most)
		}
	}
}
