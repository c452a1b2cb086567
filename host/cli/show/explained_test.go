package show

import (
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/host/cli/terminal"
	"github.com/wasmjob/wasmjob/host/explain"
)

// TestExplained: what is missing in the whole answer stands apart from what is said of items.
func TestExplained(t *testing.T) {
	t.Parallel()
	got := Explained(terminal.Style{}, explain.Answer{Job: "j", Verdict: explain.Ran, Sentences: []explain.Sentence{
		{Kind: explain.KindBegan, Text: "Item 0 began.", Items: []int{0}}, {Kind: explain.KindHistory, Text: "Its end is not known.", Items: []int{0}},
		{Kind: explain.KindHistory, Text: "A history is missing."}, {Kind: explain.KindHistory, Text: "One is not read to its end."},
	}})
	if want := "j: ran\nTimes are in UTC.\n\nItem 0 began.\n  Its end is not known.\n\nA history is missing.\nOne is not read to its end.\n"; got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// TestExplained_zone: the heading is in the zone of the sentences, and names it.
func TestExplained_zone(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 26, 3, 0, 0, 0, time.UTC)
	for zone, want := range map[string]string{
		"UTC":           "j: ran (2026-11-26 03:00:00 UTC)\n",
		"":              "j: ran (2026-11-26 03:00:00 UTC)\n", // a host of an earlier version does not say
		"Asia/Shanghai": "j: ran (2026-11-26 11:00:00 Asia/Shanghai)\nTimes are in Asia/Shanghai; in UTC the instant is 2026-11-26 03:00:00.\n",
		"GMT+08:00":     "j: ran (2026-11-26 11:00:00 GMT+08:00)\nTimes are in GMT+08:00; in UTC the instant is 2026-11-26 03:00:00.\n",
	} {
		if got := Explained(terminal.Style{}, explain.Answer{Job: "j", Verdict: explain.Ran, Instant: at, TimeZone: zone}); got != want {
			t.Errorf("%s: got\n%s\nwant\n%s", zone, got, want)
		}
	}
}
