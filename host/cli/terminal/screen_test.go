package terminal

import (
	"strings"
	"testing"
)

// TestFactPainted: text that is painted keeps its colours in a fact, and what somebody else has put into it
// is escaped as ever.
func TestFactPainted(t *testing.T) {
	t.Parallel()
	s := Style{Colour: true, Seal: NewSeal()}
	var out strings.Builder
	terminal := NewTerminal(&out, s.Seal)
	if _, err := terminal.Write([]byte(s.Fact("jobs", s.Paint(Red, "2 failing")+", \x1b[2Jx \x1bnomark[31m"))); err != nil {
		t.Fatal(err)
	}
	if want := "\x1b[31m2 failing\x1b[0m, \\x1b[2Jx \\x1bnomark[31m\n"; !strings.HasSuffix(out.String(), want) {
		t.Errorf("%q, expected %q at its end", out.String(), want)
	}
}

// TestScreen: what fills a screen has no more lines than it, and none that is wider.
func TestScreen(t *testing.T) {
	t.Parallel()
	s := Style{Colour: true, Seal: NewSeal(), Width: 20, Height: 5}
	wide := s.Paint(Red, strings.Repeat("wide ", 10))
	text := s.Screen("one\n" + wide + "\nthree\nfour\nfive\nsix\n")
	lines := strings.Split(strings.TrimSuffix(strings.TrimPrefix(text, s.Top()), "\n"), "\n")
	if len(lines) != 4 || lines[0] != "one" || !strings.Contains(lines[3], "3 lines more") {
		t.Errorf("%q", lines)
	}
	for _, line := range lines {
		if w := Width(s.bare(line)); w > s.Width {
			t.Errorf("%q is %d wide", line, w)
		}
	}
	if got := s.Screen("one\ntwo\n"); got != s.Top()+"one\ntwo\n" {
		t.Errorf("what fits: %q", got)
	}
	s.Height = 0
	if got := s.Screen(strings.Repeat("x\n", 50)); strings.Count(got, "\n") != 50 {
		t.Errorf("without a height: %q", got)
	}
}
