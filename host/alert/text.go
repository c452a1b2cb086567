package alert

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/wasmjob/wasmjob/internal/text/words"
)

// Title is a message in one line.
func (m *Message) Title() string {
	what := m.Group
	if what == "" {
		what = "wasmjob"
	}
	what = strings.TrimPrefix(what, "job ")
	switch {
	case len(m.Firing) == 0:
		return fmt.Sprintf("OK: %s (%s over)", what, words.Count(len(m.Over), "alert"))
	case m.New == 0:
		return fmt.Sprintf("STILL: %s (%s)", what, words.Count(len(m.Firing), "alert"))
	}
	return fmt.Sprintf("ALERT: %s (%d new of %d)", what, m.New, len(m.Firing))
}

// Text returns a message in lines, of at most most bytes: what does not fit is counted. Alerts of one cause
// share a line.
func (m *Message) Text(most int) string {
	lines := []string{m.Title()}
	going := func(mark string, alerts []Alert) {
		for _, c := range Causes(alerts, itself, nil) {
			a := c.First()
			line := mark + c.Text() + " [" + string(a.Rule) + ", " + a.Since.UTC().Format(time.RFC3339) + "]"
			if help := a.help(); help != "" {
				line += "\n  " + help
			}
			lines = append(lines, line)
		}
	}
	going("- ", m.Firing[:m.New])
	mark := "- "
	if m.New > 0 {
		mark = "- still: "
	}
	going(mark, m.Firing[m.New:])
	for _, c := range Causes(m.Over, itself, nil) {
		a := c.First()
		lines = append(lines, fmt.Sprintf("- over: %s [%s, %s to %s: %s]", c.Text(), a.Rule, a.Since.UTC().Format(time.RFC3339), c.Ended().UTC().Format(time.RFC3339), a.Why))
	}
	const rest = len("\n… and 1000000 more")
	var b strings.Builder
	for i, line := range lines {
		if room := most - b.Len() - rest; len(line)+1 > room {
			if i == 0 {
				return words.ClipTo(line, max(most-len("…"), 0))
			}
			fmt.Fprintf(&b, "\n… and %d more", len(lines)-i)
			break
		}
		if i > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(line)
	}
	return b.String()
}

// help is the command that says more.
func (a *Alert) help() string {
	r := rowOf(a.Rule)
	switch {
	case r.help == "":
		return ""
	case r.ofItem && a.Item != nil:
		return words.Command(r.help, a.Job, "--item", strconv.Itoa(*a.Item))
	}
	return words.Command(r.help, a.Job)
}
