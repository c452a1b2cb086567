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

// TestStartHolds: what is said of a server and of a host that is started there holds for the processes that come later, in
// whatever order it is said; the newest counts.
func TestStartHolds(t *testing.T) {
	t.Parallel()
	const ip, now, later, other = "10.0.0.1", "10.0.0.1@-@7-a-2", "10.0.0.1@-@8-b", "10.0.0.2@-@7-c"
	type step struct {
		say   string
		stops [3]bool // now, later, other
	}
	none, here, all := [3]bool{}, [3]bool{true, true, false}, [3]bool{true, true, true}
	for name, steps := range map[string][]step{
		"the server":                     {{"stop server", here}, {"start", none}, {"came", none}, {"stop server", here}, {"start", none}},
		"the server, before it has come": {{"stop server", here}, {"start", none}, {"stop server", here}},
		"the job":                        {{"stop job", all}, {"start", [3]bool{false, false, true}}, {"came", [3]bool{false, false, true}}, {"stop job", all}},
		"the job, then the server":       {{"stop job", all}, {"start", [3]bool{false, false, true}}, {"stop server", all}},
		"the process":                    {{"stop process", [3]bool{true, false, false}}, {"start", none}, {"came", none}},
		"the process and its server":     {{"stop server", here}, {"stop process", here}, {"start", none}, {"came", none}},
		"the process of a job that is stopped": {{"stop job", all}, {"start", [3]bool{false, false, true}}, {"came", [3]bool{false, false, true}},
			{"stop process", [3]bool{true, false, true}}},
	} {
		var w Wanted
		for i, s := range steps {
			switch s.say {
			case "stop server":
				w = w.Stop(ip, Word{})
			case "stop job":
				w = w.Stop(WholeJob, Word{})
			case "stop process":
				w = w.Stop(ProcessOf(now), Word{})
			case "start":
				w = w.StartAgain(now, Word{})
			case "came":
				w = w.Came(now)
				if _, said := w.Stopped[ProcessOf(now)]; said {
					t.Errorf("%s, step %d: a process that has come keeps a word: %v", name, i, w.Stopped)
				}
			}
			if got := [3]bool{w.stops(now), w.stops(later), w.stops(other)}; got != s.stops {
				t.Errorf("%s, step %d, %s: stopped are %v, expected %v: %v", name, i, s.say, got, s.stops, w.Stopped)
			}
		}
	}
	said := Wanted{}.Stop(ip, Word{By: "alice"})
	if w := said.Stop(ip, Word{By: "bob"}); w.Stopped[ip].By != "alice" {
		t.Errorf("said twice, by %q, expected the first who said it", w.Stopped[ip].By)
	}
}
