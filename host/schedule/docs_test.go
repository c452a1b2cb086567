package schedule

import (
	"os"
	"strings"
	"testing"
	"time"
)

// TestDocumentation holds docs/cron.md to what the code does: its examples are
// accepted, its error messages are those that users see, and its tables of days
// with a change of clocks are right.
func TestDocumentation(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/cron.md")
	if err != nil {
		t.Fatal(err)
	}
	section := func(title string) []string {
		_, after, found := strings.Cut(string(text), "\n## "+title+"\n")
		if !found {
			t.Fatalf("docs/cron.md has no section %q", title)
		}
		body, _, _ := strings.Cut(after, "\n## ")
		return strings.Split(body, "\n")
	}
	cells := func(line string) []string {
		if !strings.HasPrefix(line, "| `") {
			return nil
		}
		return strings.Split(strings.Trim(line, "| "), " | ")
	}

	examples := 0
	for _, line := range section("Examples") {
		if c := cells(line); c != nil {
			if _, err := Parse(strings.Trim(c[0], "`"), time.UTC); err != nil {
				t.Error(err)
			}
			examples++
		}
	}
	messages := 0
	for _, line := range section("What errors look like") {
		if strings.HasPrefix(line, "cron ") || strings.HasPrefix(line, "time zone ") {
			_, rest, _ := strings.Cut(line, `"`)
			quoted, _, _ := strings.Cut(rest, `"`)
			if _, err = Parse(quoted, time.UTC); strings.HasPrefix(line, "time") {
				_, err = Zone(quoted)
			}
			if err == nil || err.Error() != line {
				t.Errorf("%q: got %v", line, err)
			}
			messages++
		}
	}
	changes := 0
	for _, line := range section("When clocks change") {
		c := cells(line)
		if c == nil {
			continue
		}
		s := mustParse(t, strings.Trim(c[0], "`"), "Europe/Berlin")
		for i, date := range []string{"2026-03-29", "2026-10-25"} {
			day, _ := time.ParseInLocation("2006-01-02", date, s.loc)
			var got []string
			for _, at := range Next(s, day.Add(-time.Second), 30) {
				if at.Format("2006-01-02") == date {
					got = append(got, at.Format("15:04"))
				}
			}
			var times []string
			for word := range strings.FieldsFuncSeq(c[i+1], func(r rune) bool { return r == ',' || r == ' ' }) {
				if strings.Contains(word, ":") {
					times = append(times, word)
				}
			}
			if !strings.Contains(" "+strings.Join(got, " ")+" ", " "+strings.Join(times, " ")+" ") {
				t.Errorf("%s on %s: %v, the page has %v", c[0], date, got, times)
			}
			changes++
		}
	}
	if examples < 10 || messages < 4 || changes < 8 {
		t.Errorf("found only %d examples, %d messages, %d days", examples, messages, changes)
	}
}
