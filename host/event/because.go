package event

import (
	"encoding/json"
	"strconv"
	"strings"

	"github.com/wasmjob/wasmjob/internal/text/reason"
	"github.com/wasmjob/wasmjob/internal/text/words"
)

// longestArgument bounds an argument in [Event.Because], in bytes: the whole text is in Reason.
const longestArgument = MaxReason / 4

// Why returns the event with a reason: its text, and its codes.
func (e Event) Why(r reason.Reason) Event {
	e.Reason = r.String()
	e.Because = r.Codes().Map(func(arg string) string { return Cut(Harmless(arg), longestArgument) })
	return e
}

// UnmarshalJSON reads a stored or sent event. If its host gave no codes, they are derived from the text, so
// that no other code needs to know the texts of earlier versions.
func (e *Event) UnmarshalJSON(data []byte) error {
	type plain Event
	if err := json.Unmarshal(data, (*plain)(e)); err != nil {
		return err
	}
	switch {
	case e.Because != nil || e.Jobs != nil || e.Reason == "":
	case e.Kind == Refused:
		e.Jobs = jobsOf(strings.Split(e.Reason, "\n"))
	case e.Kind == Listener:
		export, _, _ := strings.Cut(e.Reason, ":")
		e.Because = OfListener(export)
	case e.Kind == Session && e.Wait == "":
	default:
		e.Because = reason.Parse(strings.TrimRight(words.FirstLine(e.Reason), "."))
	}
	return nil
}

// jobsOf returns the job that each line about a file begins with, at the line's index; nil if no line has one.
func jobsOf(lines []string) []string {
	jobs := make([]string, len(lines))
	named := false
	for i, line := range lines {
		_, about, _ := strings.Cut(line, "job ")
		quoted, err := strconv.QuotedPrefix(about)
		if err != nil || !strings.HasPrefix(about[len(quoted):], ": ") {
			continue
		}
		if job, err := strconv.Unquote(quoted); err == nil {
			jobs[i], named = job, true
		}
	}
	if !named {
		return nil
	}
	return jobs
}

// OfListener returns the codes of the reason of a [Listener] event, which begins with the export.
func OfListener(export string) reason.Codes {
	return reason.Codes{{Code: reason.Listener, Args: map[string]string{"listener": export}}}
}
