//go:build peers

package attack_test

import (
	"testing"
	"time"
)

// TestJudge: what is counted, on fires that were made up.
func TestJudge(t *testing.T) {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	say := func(second float64, host, run string, item int, what string) word {
		return word{At: start.Add(time.Duration(second * float64(time.Second))), Host: host, Run: run, Item: item, What: what}
	}
	fault := start.Add(2 * time.Second)
	for name, c := range map[string]struct {
		words []word
		want  harm
	}{
		"taken over": {[]word{
			say(0, "a", "1", 0, begins), say(1, "a", "1", 0, effect), say(8, "b", "1", 0, begins), say(9, "b", "1", 0, effect), say(10, "b", "1", 0, ends),
		}, harm{crashed: 1, again: 6 * time.Second, runs: 2}},
		"lost": {[]word{
			say(0, "a", "1", 0, begins), say(1, "a", "1", 0, effect),
		}, harm{crashed: 1, never: 1, runs: 1, lost: 1}},
		"on two hosts": {[]word{
			say(0, "a", "1", 0, begins), say(8, "b", "1", 0, begins), say(9, "a", "1", 0, effect), say(9.5, "a", "1", 0, committed), say(9.75, "a", "1", 0, effect), say(10, "b", "1", 0, ends), say(11, "a", "1", 0, effect), say(11, "a", "1", 0, ends),
		}, harm{crashed: 1, again: 6 * time.Second, runs: 2, overlaps: 1, longest: 750 * time.Millisecond, late: 3, written: 1}},
		"run again although it had ended": {[]word{
			say(0, "a", "1", 0, begins), say(1, "a", "1", 0, ends), say(8, "b", "1", 0, begins), say(9, "b", "1", 0, ends), say(10, "a", "2", 0, begins), say(11, "a", "2", 0, ends),
		}, harm{runs: 3, repeated: 2}},
		"refused only": {[]word{
			say(0, "a", "1", 0, begins), say(8, "b", "1", 0, begins), say(9, "a", "1", 0, refused), say(10, "b", "1", 0, ends),
		}, harm{crashed: 1, again: 6 * time.Second, runs: 2}},
	} {
		if got := judge(c.words, 1, "a", fault); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
	var h harm
	h.next([]word{
		say(0, "a", "1", 0, begins), say(1, "a", "1", 0, ends),
		say(0, "a", "2", 1, begins), say(1, "a", "2", 1, ends), say(2, "b", "1", 1, begins), say(3, "b", "1", 1, ends),
		say(0, "a", "3", 2, begins),
	}, 4)
	if want := (harm{missing: 2, doubled: 1}); h != want {
		t.Errorf("the next fire: %+v, want %+v", h, want)
	}
}

func TestOurLine(t *testing.T) {
	w, ok := ourLine(`{"level":"INFO","message":"effect","attrs":{"item":"3","fence":"17","at":"1700000000000000"}}`)
	if !ok || w.What != effect || w.Item != 3 || w.Run != "17" || !w.Said.Equal(time.Unix(1_700_000_000, 0)) {
		t.Errorf("%+v, %t", w, ok)
	}
	for _, line := range []string{"", "text", `{"message":"joined"}`, `{"message":"x","attrs":{"fence":"1"}}`} {
		if w, ok := ourLine(line); ok {
			t.Errorf("%q was taken for %+v", line, w)
		}
	}
}
