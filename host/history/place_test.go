package history

import (
	"slices"
	"testing"
	"time"
)

// TestPlace: places sort as lines do, and a line about missing ones stands before the next.
func TestPlace(t *testing.T) {
	at := time.Date(2026, 11, 1, 3, 0, 0, 0, time.FixedZone("", 3600))
	lines := []Line{{Time: time.Unix(5, 0), Host: "a"}, {Time: at, Host: "a", Gap: 3}, {Time: at.UTC(), Host: "a"}, {Time: at, Host: "b"}, {Time: at.Add(1), Host: "a"}}
	var places []string
	for i := range lines {
		places = append(places, lines[i].Place())
	}
	if !slices.IsSorted(places) || len(slices.Compact(slices.Clone(places))) != len(lines) {
		t.Errorf("%q", places)
	}
	if same := (&Line{Time: at.In(time.Local), Host: "a"}).Place(); same != places[2] {
		t.Errorf("in another zone: %q, want %q", same, places[2])
	}
}
