package schedule

import (
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestQuartzItself compares with what Quartz 2.3.2 and 2.4.0, which ElasticJob
// 3.0.4 and 3.0.5 use, answered: the known examples of its manual and random
// expressions. Each line of the file has an expression, an instant, and the
// instants that follow, in seconds, in UTC.
func TestQuartzItself(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("testdata/quartz.tsv")
	if err != nil {
		t.Fatal(err)
	}
	checked := 0
	for line := range strings.Lines(string(text)) {
		columns := strings.Split(strings.TrimSpace(line), "\t")
		if len(columns) != 3 {
			t.Fatalf("odd line %q", line)
		}
		s, err := Parse(columns[0], time.UTC)
		if err != nil {
			t.Error(err)
			continue
		}
		from, _ := strconv.ParseInt(columns[1], 10, 64)
		at := time.Unix(from, 0)
		for _, want := range strings.Fields(columns[2]) {
			at = s.Next(at)
			if got := at.Unix(); !at.IsZero() && want != strconv.FormatInt(got, 10) || at.IsZero() && want != "never" {
				t.Errorf("%s after %d: %v, want %s", columns[0], from, at, want)
				break
			}
			checked++
		}
	}
	if checked < 1000 {
		t.Errorf("only %d instants were compared", checked)
	}
}
