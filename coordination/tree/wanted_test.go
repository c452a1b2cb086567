package tree

import (
	"strings"
	"testing"
)

// TestMark: the mark of an item has the word of who disabled it; what other programs, and those of
// earlier versions, put there disables it all the same.
func TestMark(t *testing.T) {
	t.Parallel()
	word := Word{By: "user alice", Why: strings.Repeat("é", 300), Since: 7, Until: 9}
	got, ours := ParseMark(word.Mark())
	if !ours || !got.Off || got.By != word.By || got.Since != 7 || got.Until != 9 || len(got.Why) > maxWordText || !strings.HasPrefix(got.Why, "éé") {
		t.Errorf("found %+v, ours: %v", got, ours)
	}
	for data, want := range map[string]bool{"": false, ItemMarked: true, "garbage": false, "[1]": false, "{}": true, `{"until":"x"}`: false} {
		if got, ours := ParseMark([]byte(data)); ours != want || !got.Off || got.Until != 0 {
			t.Errorf("%q: found %+v, ours: %v, expected %v", data, got, ours, want)
		}
	}
}

// TestWord_over: of several words that are over the first one ends first; one without a time, and one that
// enables, never is.
func TestWord_over(t *testing.T) {
	t.Parallel()
	w := Words{WholeJob: {Off: true, Until: 20}, "a": {Off: true, Until: 10}, "b": {Off: true}, "c": {Until: 5}}
	for now, want := range map[int64]string{9: "none", 10: "a", 20: "a", 100: "a"} {
		got := "none"
		if name, word, over := w.FirstOver(now); over {
			got = name
			if word != w[name] {
				t.Errorf("at %d: %+v", now, word)
			}
		}
		if got != want {
			t.Errorf("at %d %q is over, expected %q", now, got, want)
		}
	}
	if name, _, over := w.Without("a").FirstOver(20); !over || name != WholeJob {
		t.Errorf("then %q is over: %v", name, over)
	}
}

// TestEnabledAt: what node enabled holds counts if it is before the time of its write.
func TestEnabledAt(t *testing.T) {
	t.Parallel()
	for data, want := range map[string]int64{"": 50, string(EnabledData(40)): 40, string(EnabledData(60)): 50, "garbage": 50} {
		if got := EnabledAt([]byte(data), 50); got != want {
			t.Errorf("%q: %d, expected %d", data, got, want)
		}
	}
}
