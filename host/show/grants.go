package show

import (
	"strings"

	"github.com/wasmjob/wasmjob/host"
	"github.com/wasmjob/wasmjob/host/console"
	"github.com/wasmjob/wasmjob/host/grants"
	"github.com/wasmjob/wasmjob/host/words"
)

// Grants shows who may do what.
func Grants(s console.Style, lines []grants.Line) string {
	if len(lines) == 0 {
		return "nothing is granted\n"
	}
	t := console.NewTable(s, "JOBS", "KIND", "WHAT", "FROM", "DETAIL")
	for _, l := range lines {
		detail := l.Detail
		if l.If != "" {
			detail = strings.TrimPrefix(detail+"; only modules with "+strings.Replace(l.If, "signed by", "a signature by", 1), "; ")
		}
		t.Add(console.Coloured(strings.Join(l.Jobs, ", "), console.Bold), console.Plain(l.Kind), console.Plain(l.What), console.Plain(l.Place), console.Coloured(detail, console.Grey))
	}
	return t.String()
}

// InForce shows what jobs are granted on the host that was asked.
func InForce(s console.Style, jobs []*host.JobStatus) string {
	if len(jobs) == 0 {
		return "no jobs\n"
	}
	t := console.NewTable(s, "JOB", "SIGNED BY", "GRANTED")
	for _, j := range jobs {
		name, signer := console.Coloured(j.Name, console.Bold), console.Plain(words.Dash(j.Signer))
		if len(j.Granted) == 0 {
			t.Add(name, signer, console.Coloured("nothing", console.Grey))
		}
		for _, what := range j.Granted {
			t.Add(name, signer, console.Plain(what))
		}
	}
	return t.String()
}

// Wanted shows what jobs want of the grants, and what is missing.
func Wanted(s console.Style, jobs []grants.Wanted) string {
	t := console.NewTable(s, "JOB", "WANTS", "GRANTED")
	for _, j := range jobs {
		for _, w := range j.Wants {
			granted := console.Coloured("yes", console.Green)
			if w.Missing != "" {
				granted = console.Coloured("no: "+w.Missing, console.Red)
			}
			t.Add(console.Coloured(j.Job, console.Bold), console.Plain(w.What), granted)
		}
	}
	if t.Empty() {
		return ""
	}
	return t.String()
}
