package show

import (
	"strings"

	"github.com/wasmjob/wasmjob/host/cli/terminal"
	"github.com/wasmjob/wasmjob/host/config/grants"
	"github.com/wasmjob/wasmjob/host/engine"
	"github.com/wasmjob/wasmjob/internal/text/words"
)

// Grants shows who may do what.
func Grants(s terminal.Style, lines []grants.Line) string {
	if len(lines) == 0 {
		return "nothing is granted\n"
	}
	t := terminal.NewTable(s, "JOBS", "KIND", "WHAT", "FROM", "DETAIL")
	for _, l := range lines {
		detail := l.Detail
		if l.If != "" {
			detail = strings.TrimPrefix(detail+"; only modules with "+strings.Replace(l.If, "signed by", "a signature by", 1), "; ")
		}
		t.Add(terminal.Coloured(strings.Join(l.Jobs, ", "), terminal.Bold), terminal.Plain(l.Kind), terminal.Plain(l.What), terminal.Plain(l.Place), terminal.Coloured(detail, terminal.Grey))
	}
	return t.String()
}

// InForce shows what jobs are granted on the host that was asked.
func InForce(s terminal.Style, jobs []*engine.JobStatus) string {
	if len(jobs) == 0 {
		return "no jobs\n"
	}
	t := terminal.NewTable(s, "JOB", "SIGNED BY", "GRANTED")
	for _, j := range jobs {
		name, signer := terminal.Coloured(j.Name, terminal.Bold), terminal.Plain(words.Dash(j.Signer))
		if len(j.Granted) == 0 {
			t.Add(name, signer, terminal.Coloured("nothing", terminal.Grey))
		}
		for _, what := range j.Granted {
			t.Add(name, signer, terminal.Plain(what))
		}
	}
	return t.String()
}

// Wanted shows what jobs want of the grants, and what is missing.
func Wanted(s terminal.Style, jobs []grants.Wanted) string {
	t := terminal.NewTable(s, "JOB", "WANTS", "GRANTED")
	for _, j := range jobs {
		for _, w := range j.Wants {
			granted := terminal.Coloured("yes", terminal.Green)
			if w.Missing != "" {
				granted = terminal.Coloured("no: "+w.Missing, terminal.Red)
			}
			t.Add(terminal.Coloured(j.Job, terminal.Bold), terminal.Plain(w.What), granted)
		}
	}
	if t.Empty() {
		return ""
	}
	return t.String()
}
