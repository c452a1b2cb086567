package schedule

import (
	"regexp"
	"strings"
	"testing"
	"time"
)

// TestHints: what an error proposes is accepted, and is what was meant.
func TestHints(t *testing.T) {
	t.Parallel()
	for expr, want := range map[string]string{
		"0 0 12 * * 1-5":       `write "0 0 12 ? * SUN-THU", or "0 0 12 ? * MON-FRI" if 1 is Monday, as with 5 fields`,
		"0 0 12 * * 0":         `must be ?; write "0 0 12 ? * SUN"`,
		"0 0 12 * * 7":         `write "0 0 12 ? * SAT", or "0 0 12 ? * SUN" if`,
		"0 0 12 * * 6L":        `write "0 0 12 ? * 6L"`,
		"0 0 12 * * 2/2":       `write "0 0 12 ? * 2/2"`,
		"0 0 12 * * MON":       `write "0 0 12 ? * MON"`,
		"0 0 12 * * 8":         `must be ?`,
		"0 0 12 * * MON/2":     `must be ?`,
		"0 0 12 30 2 *":        `must be ?`,
		"0 0 12 1W,2 * *":      `must be ?`,
		"0 0 12 ? * ? 1900":    `only one of them may be`,
		"0 0 12 * * * 2030-20": `must be ?`,
		"0 0 12 ? * ?":         `write "0 0 12 * * ?"`,
		"5 4 * * MO":           `"MO" is not allowed`,
		"5 4 * * 5L":           `L, W and # are Quartz's`,
	} {
		_, err := Parse(expr, time.UTC)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: found %v, expected an error with %s", expr, err, want)
			continue
		}
		if strings.Contains(expr, "MO") && strings.Contains(err.Error(), "Quartz's") {
			t.Errorf("%s: found %v, which is about letters that are not there", expr, err)
		}
		text := err.Error()
		if i := strings.Index(text, "write "); i >= 0 {
			for _, m := range regexp.MustCompile(`"([^"]*)"`).FindAllStringSubmatch(text[i:], -1) {
				if _, err := Parse(m[1], time.UTC); err != nil {
					t.Errorf("%s: %q is proposed: %v", expr, m[1], err)
				}
			}
		} else if strings.HasPrefix(want, "write") {
			t.Errorf("%s: nothing is proposed: %v", expr, err)
		}
	}
}

// TestSurprise: a working week by numbers is Sunday to Thursday to Quartz, and that is said.
func TestSurprise(t *testing.T) {
	t.Parallel()
	for expr, want := range map[string]string{
		"0 0 9 ? * 1-5":     "day of week 1-5 is SUN-THU, since 1 is Sunday with 6 or 7 fields; write MON-FRI if 1 is to be Monday",
		"0 0 9 ? * 6,7":     "day of week 6,7 is FRI,SAT, since 1 is Sunday with 6 or 7 fields; write SAT,SUN if",
		"0 0 9 ? * 2-6":     "",
		"0 0 9 ? * MON-FRI": "",
		"0 9 * * 1-5":       "",
		"@daily":            "",
	} {
		s, err := Parse(expr, time.UTC)
		if err != nil {
			t.Fatal(err)
		}
		if got := s.Surprise(); (want == "") != (got == "") || !strings.Contains(got, want) {
			t.Errorf("%s: found %q, expected %q", expr, got, want)
		}
	}
}
