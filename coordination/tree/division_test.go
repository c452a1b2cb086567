package tree

import (
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/coordination/registry"
)

// TestFollow: a division notes how many items the one before had and up to which instant these
// count, and hands that on as long as the number stays.
func TestFollow(t *testing.T) {
	t.Parallel()
	now := time.UnixMilli(1_000_000)
	record := func(instant int64) registry.Node { return registry.Node{Data: Record{Instant: instant}.Data()} }
	before := Division{Counts: Counts{Total: 4, Former: 9, Since: 700}}
	for name, tt := range map[string]struct {
		before  Division
		records map[int]registry.Node
		total   int
		want    Counts
	}{
		"the first":                     {Division{}, nil, 4, Counts{4, 0, 0}},
		"as many":                       {before, map[int]registry.Node{0: record(1_000_300)}, 4, Counts{4, 9, 700}},
		"more":                          {before, map[int]registry.Node{0: record(999_000)}, 6, Counts{6, 4, 1_000_000}},
		"fewer, begun by a clock ahead": {before, map[int]registry.Node{0: record(1_000_300), 1: record(500)}, 2, Counts{2, 4, 1_000_300}},
		"a clock was wrong":             {before, map[int]registry.Node{0: record(9_000_000)}, 6, Counts{6, 4, 1_000_000}},
		"after a Java leader":           {Division{Counts: Counts{Total: 4}, Java: true}, nil, 6, Counts{6, 0, 0}},
	} {
		d := Division{Counts: Counts{Total: tt.total}}
		if d.Follow(tt.before, now, tt.records); d.Counts != tt.want {
			t.Errorf("%s: found %+v, expected %+v", name, d.Counts, tt.want)
		}
	}
}

func TestTotalOf(t *testing.T) {
	t.Parallel()
	c := Counts{Total: 6, Former: 4, Since: 700}
	for name, tt := range map[string]struct {
		fire          Fire
		highest, want int
	}{
		"an instant before":               {Fire{Instant: 700}, 3, 4},
		"an instant after":                {Fire{Instant: 701}, 3, 6},
		"an item that there was not then": {Fire{Instant: 700}, 4, 6},
		"a trigger":                       {Fire{Instant: 600, Trigger: 5}, 3, 6},
	} {
		if got := c.TotalOf(tt.fire, tt.highest); got != tt.want {
			t.Errorf("%s: found %d, expected %d", name, got, tt.want)
		}
	}
}
