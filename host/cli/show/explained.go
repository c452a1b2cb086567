package show

import (
	"fmt"
	"strings"
	"time"

	"github.com/wasmjob/wasmjob/host/cli/terminal"
	"github.com/wasmjob/wasmjob/host/explain"
	"github.com/wasmjob/wasmjob/internal/text/words"
)

// good are the verdicts that need no action of an operator.
var good = map[explain.Verdict]bool{explain.Ran: true, explain.Running: true, explain.NotYetDue: true, explain.NeverDue: true, explain.Coalesced: true}

// Explained returns the answer for people: the verdict, the time zone of all times, and what happened to each item with
// its causes below.
func Explained(s terminal.Style, a explain.Answer) string {
	var b strings.Builder
	colour := terminal.Yellow
	if good[a.Verdict] {
		colour = terminal.Green
	}
	fmt.Fprintf(&b, "%s: %s", a.Job, s.Paint(colour, words.State(a.Verdict)))
	zone := a.Zone()
	switch at := a.Instant.In(zone); {
	case a.Instant.IsZero():
		fmt.Fprintf(&b, "\nTimes are in %s.\n", zone)
	case at.Format(time.DateTime) == a.Instant.UTC().Format(time.DateTime):
		fmt.Fprintf(&b, " (%s %s)\n", at.Format(time.DateTime), zone)
	default:
		fmt.Fprintf(&b, " (%s %s)\nTimes are in %s; in UTC the instant is %s.\n", at.Format(time.DateTime), zone, zone, a.Instant.UTC().Format(time.DateTime))
	}
	ofAll := false // of no item: about the whole answer
	for _, sentence := range a.Sentences {
		indent, before := "  ", ofAll
		ofAll = sentence.Kind == explain.KindHistory && len(sentence.Items) == 0
		switch sentence.Kind {
		case explain.KindBegan, explain.KindNotRun, explain.KindDue:
			indent = ""
			b.WriteString("\n")
		}
		if ofAll {
			indent = ""
			if !before {
				b.WriteString("\n")
			}
		}
		b.WriteString(indent + sentence.Text + "\n")
	}
	return b.String()
}
