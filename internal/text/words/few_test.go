package words

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestProblems(t *testing.T) {
	t.Parallel()
	var p Problems
	p.Add(nil)
	if p.Err() != nil || p.Len() != 0 {
		t.Errorf("of no problem: %v", p.Err())
	}
	wanted := errors.New("the first")
	p.Add(fmt.Errorf("it is %w", wanted))
	for range MostProblems {
		p.Addf("a problem")
	}
	p.Add(errors.Join(errors.New("a"), nil, errors.New("b")))
	p.Count(7)
	err := p.Err()
	if lines := strings.Split(err.Error(), "\n"); len(lines) != MostProblems+1 || lines[MostProblems] != "… and 10 more" || p.Len() != MostProblems+10 || !p.Full() || !errors.Is(err, wanted) {
		t.Errorf("%d: %v", p.Len(), err)
	}
	// The number of what was left out survives that it is collected again.
	var again Problems
	again.Add(errors.New("another"))
	again.Add(err)
	if again.Len() != p.Len()+1 || !strings.HasSuffix(again.Err().Error(), "\n… and 11 more") {
		t.Errorf("%d: %v", again.Len(), again.Err())
	}
	var long Problems
	long.Add(fmt.Errorf("%w: %s", wanted, strings.Repeat("é", MaxReason)))
	if text := long.Err().Error(); len(text) > MaxReason || !strings.HasSuffix(text, " more bytes)") || !errors.Is(long.Err(), wanted) {
		t.Errorf("%d bytes: %s", len(text), text)
	}
}

func TestFew(t *testing.T) {
	t.Parallel()
	var a, b Few[int]
	for i := range MostProblems - 1 {
		a.Add(i)
	}
	b.Add(100)
	b.Add(101)
	b.Count(5)
	a.Take(b)
	if kept := a.Kept(); len(kept) != MostProblems || kept[MostProblems-1] != 100 || a.More() != 6 || a.Len() != MostProblems+6 {
		t.Errorf("%v and %d", kept, a.More())
	}
}

func TestStrings(t *testing.T) {
	t.Parallel()
	if Strings(nil, 0) != nil {
		t.Error("something of nothing")
	}
	for name, c := range map[string]struct {
		texts []string
		more  int
		kept  int
		last  string
	}{
		"few":          {[]string{"a", "b"}, 0, 2, "b"},
		"as many":      {slices.Repeat([]string{"a"}, MostProblems), 0, MostProblems, "a"},
		"one too many": {slices.Repeat([]string{"a"}, MostProblems+1), 0, MostProblems, "… and 2 more"},
		"many":         {slices.Repeat([]string{"a"}, 520_000), 3, MostProblems, "… and 519,954 more"},
		"counted":      {[]string{"a"}, 2, 2, "… and 2 more"},
		"long":         {slices.Repeat([]string{strings.Repeat("x", 500)}, 20), 0, 17, "… and 4 more"},
		"very long":    {[]string{strings.Repeat("x", 1<<20)}, 0, 1, ""},
	} {
		got := Strings(c.texts, c.more)
		if len(got) != c.kept || (c.last != "" && got[len(got)-1] != c.last) || len(strings.Join(got, "")) > MaxReasons {
			t.Errorf("%s: %d, the last %q", name, len(got), got[len(got)-1])
		}
		if again := Strings(got, 0); !slices.Equal(again, got) {
			t.Errorf("%s: once more it is %q", name, again)
		}
	}
}

func TestSome(t *testing.T) {
	t.Parallel()
	if got := Some([]string{"a", "b"}, ", "); got != "a, b" {
		t.Errorf("%q", got)
	}
	if got := Some(slices.Repeat([]string{strings.Repeat("ü", 100)}, 1010), ", "); len(got) > 1000 || !strings.HasSuffix(got, ", … and 1,000 more") || !utf8.ValidString(got) {
		t.Errorf("%q", got)
	}
}

func FuzzCut(f *testing.F) {
	f.Add("abc", 2)
	f.Add(strings.Repeat("é", 100), 61)
	f.Add(strings.Repeat("日本", 100), 50)
	f.Fuzz(func(t *testing.T, s string, most int) {
		most = min(max(most, 50), 1000)
		got := Cut(s, most)
		if len(got) > most || (len(s) <= most && got != s) || (utf8.ValidString(s) && !utf8.ValidString(got)) {
			t.Errorf("%q cut to %d bytes is %q", s, most, got)
		}
		var left int
		if at := strings.LastIndex(got, "… ("); len(s) > most {
			if _, err := fmt.Sscanf(strings.ReplaceAll(got[at:], ",", ""), "… (%d more bytes)", &left); err != nil || at+left != len(s) {
				t.Errorf("%q cut to %d bytes is %q", s, most, got)
			}
		}
	})
}

func TestThousands(t *testing.T) {
	t.Parallel()
	for n, want := range map[int]string{0: "0", 999: "999", 1000: "1,000", -1000: "-1,000", -100: "-100", 1234567: "1,234,567"} {
		if got := Thousands(n); got != want {
			t.Errorf("%d is %s, want %s", n, got, want)
		}
	}
}
