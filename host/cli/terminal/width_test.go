package terminal

import (
	"strings"
	"testing"
	"time"
)

func TestWidth(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int{
		"": 0, "abc": 3, "é": 1, "e\u0301": 1, "城市": 4, "cities-城市": 11, "ｶﾅ": 2, "カナ": 4, "한국": 4, "１２": 4, "→…": 2, "😀": 2, "a\u200db": 2, "дата": 4, "\u1112\u1161\u11ab": 2, "a\u1160\u1160": 1,
	} {
		if found := Width(text); found != want {
			t.Errorf("%q has the width %d, want %d", text, found, want)
		}
	}
	for _, c := range []struct {
		text  string
		width int
		want  string
	}{
		{"abcd", 4, "abcd"}, {"abcde", 4, "abc…"}, {"城市城市", 8, "城市城市"}, {"城市城市", 7, "城市城…"}, {"城市城市", 6, "城市…"}, {"e\u0301e\u0301e\u0301", 2, "e\u0301…"},
		{"城", 1, "…"}, {"abc", 0, "abc"}, {"ab\xffcd", 4, "ab\xff…"},
		{"e" + strings.Repeat("\u0301", 30) + "x", 9, "e" + strings.Repeat("\u0301", 30) + "x"},
		{"e" + strings.Repeat("\u0301", 10_000), 9, "e" + strings.Repeat("\u0301", 30) + "…"},
		{"abc" + strings.Repeat("\u1160", 10_000), 3, "ab…"},
	} {
		if found := Shorten(c.text, c.width); found != c.want {
			t.Errorf("%q shortened to %d is %q, want %q", c.text, c.width, found, c.want)
		}
	}
}

// TestWideCells: columns stay below each other where names are Chinese, in tables, facts, rows and
// wrapped lines, also where they are cut.
func TestWideCells(t *testing.T) {
	t.Parallel()
	table := NewTable(Style{}, "JOB", "STATE")
	table.Add(Plain("城市统计"), Plain("READY"))
	table.Add(Plain("cities"), Plain("READY"))
	if want := "JOB       STATE\n城市统计  READY\ncities    READY\n"; table.String() != want {
		t.Errorf("found\n%s\nwant\n%s", table, want)
	}
	narrow := NewTable(Style{Width: 20}, "JOB", "STATE")
	narrow.Add(Plain("城市统计城市统计"), Plain("READY"))
	if want := "JOB            STATE\n城市统计城市…  READY\n"; narrow.String() != want {
		t.Errorf("found\n%s\nwant\n%s", narrow, want)
	}
	if found, want := (Style{}).Fact("城市", "x"), "城市       x\n"; found != want {
		t.Errorf("found %q, want %q", found, want)
	}
	var out strings.Builder
	c := New(&out, Style{})
	c.Row(time.Time{}, "ok", Grey, "城市", "x")
	c.Row(time.Time{}, "ok", Grey, "cities", "x")
	lines := strings.Split(out.String(), "\n")
	if a, b := Width(lines[0]), Width(lines[1]); a != b {
		t.Errorf("rows end at %d and %d:\n%s", a, b, &out)
	}
	if found, want := (Style{Width: 20}).Wrapped("城市 城市 城市 城市 城市"), "城市 城市 城市 城市\n    城市\n"; found != want {
		t.Errorf("found %q, want %q", found, want)
	}
}

// TestRows: a cell stays in its row, whatever others have put into it.
func TestRows(t *testing.T) {
	t.Parallel()
	table := NewTable(Style{}, "JOBS", "WHY")
	table.Add(Plain("a-*\nb-*   all is well"), Plain("x\ty\r\n"))
	if got, want := table.String(), "JOBS                    WHY\na-*\\nb-*   all is well  x\\ty\\r\\n\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
