package show

import (
	"testing"

	"github.com/wasmjob/wasmjob/host/console"
	"github.com/wasmjob/wasmjob/host/explain"
)

// TestExplained: what is missing in the whole answer stands apart from what is said of items.
func TestExplained(t *testing.T) {
	t.Parallel()
	got := Explained(console.Style{}, explain.Answer{Job: "j", Verdict: explain.Ran, Sentences: []explain.Sentence{
		{Kind: explain.KindBegan, Text: "Item 0 began.", Items: []int{0}}, {Kind: explain.KindHistory, Text: "Its end is not known.", Items: []int{0}},
		{Kind: explain.KindHistory, Text: "A history is missing."}, {Kind: explain.KindHistory, Text: "One is not read to its end."},
	}})
	if want := "j: ran\n\nItem 0 began.\n  Its end is not known.\n\nA history is missing.\nOne is not read to its end.\n"; got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
