package show

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/wasmjob/wasmjob/host/cli/terminal"
	"github.com/wasmjob/wasmjob/host/history/verify"
	"github.com/wasmjob/wasmjob/internal/text/words"
)

// Verified is the report for people, of fires that had as long as settle.
func Verified(s terminal.Style, r *verify.Report, settle time.Duration) string {
	var b strings.Builder
	b.WriteString(findingsText(s, r.Findings))
	if shown := len(r.Findings); shown > 0 {
		if all := r.Violations + r.Unproven + r.Fenced; all > shown {
			fmt.Fprintf(&b, "%d more are not shown (--max)\n", all-shown)
		}
		b.WriteByte('\n')
	}
	b.WriteString(registryText(r.Registry))
	jobs := terminal.NewTable(s, "JOB", "ITEMS", "FIRES", "JUDGED", "RUNS", "COMPLETED", "SKIPPED", "VIOLATIONS")
	young := 0
	for _, j := range r.Jobs {
		young += j.Fires - j.Judged
		n := func(n int) terminal.Cell { return terminal.Plain(strconv.Itoa(n)) }
		violations := terminal.Coloured(strconv.Itoa(j.Violations), terminal.Green)
		if j.Violations > 0 {
			violations.Colour = terminal.Red
		}
		jobs.Add(terminal.Coloured(j.Job, terminal.Bold), n(j.Items), n(j.Fires), n(j.Judged), n(j.Runs), n(j.Completed), n(j.Skipped), violations)
	}
	if len(r.Jobs) > 0 {
		b.WriteString(jobs.String())
		if young > 0 {
			fmt.Fprintf(&b, "%s not judged: too young (--settle %s), or still running where the files end\n", words.Count(young, "fire"), words.Duration(settle))
		}
		b.WriteByte('\n')
	}
	kept := terminal.NewTable(s, "INVARIANT", "", "CHECKED")
	for _, i := range slices.Sorted(maps.Keys(r.Checked)) {
		kept.Add(terminal.Plain(strconv.Itoa(int(i))), terminal.Plain(i.String()), terminal.Plain(strconv.FormatInt(r.Checked[i], 10)))
	}
	b.WriteString(kept.String())
	if r.Events == 0 {
		fmt.Fprintf(&b, "\nno events")
	} else {
		fmt.Fprintf(&b, "\n%s of %s, %s, over %s", words.Count(int(r.Events), "event"), fmt.Sprintf("%d host processes", r.Hosts), words.Count(r.Instances, "instance"),
			r.To.Sub(r.From).Round(time.Second))
	}
	if r.BadLines > 0 {
		fmt.Fprintf(&b, "; %s passed over", words.Count(int(r.BadLines), "line"))
	}
	verdict := s.Paint(terminal.Green, "0 violations")
	if r.Violations > 0 {
		verdict = s.Paint(terminal.Red, words.Count(r.Violations, "violation"))
	}
	fmt.Fprintf(&b, "\n%s, %d unproven, %d overlaps without effect\n", verdict, r.Unproven, r.Fenced)
	return b.String()
}

// findingsText shows each finding with the lines that prove it.
func findingsText(s terminal.Style, findings []verify.Finding) string {
	var b strings.Builder
	colours := map[verify.Class]string{verify.Violated: terminal.Red, verify.Unproven: terminal.Yellow, verify.Fenced: terminal.Yellow}
	for _, f := range findings {
		of := "job " + f.Job
		if f.Item >= 0 {
			of += " item " + strconv.Itoa(f.Item)
		}
		fmt.Fprintf(&b, "%s %d  %s: %s\n", s.Paint(colours[f.Class], string(f.Class)), f.Invariant, of, f.Text)
		for _, l := range f.Lines {
			fmt.Fprintf(&b, "    %s  %s %s\n", l.Place.String(), l.Time.UTC().Format("2006-01-02T15:04:05.000Z"), l.Text)
		}
		for _, n := range f.Nodes {
			fmt.Fprintf(&b, "    %s\n", n)
		}
	}
	return b.String()
}

// registryText is what was looked at in the registry; nil: nothing.
func registryText(l *verify.RegistryReport) string {
	if l == nil {
		return ""
	}
	var b strings.Builder
	fmt.Fprintf(&b, "registry, namespace %s: %s, looked at %s", l.Namespace, words.Count(l.Jobs, "job"), words.Count(l.Looks, "time"))
	if l.Idle > 0 {
		fmt.Fprintf(&b, "; of %d no host is there, which are not judged", l.Idle)
	}
	b.WriteString("\n")
	for _, u := range l.Unused {
		fmt.Fprintf(&b, "  %s: server %s has no instance", u.Job, u.Server)
		if !u.Since.IsZero() {
			fmt.Fprintf(&b, " since %s", u.Since.UTC().Format(time.RFC3339))
		}
		if u.Disabled {
			b.WriteString("; it is paused, and stays until it is resumed or removed")
		}
		b.WriteByte('\n')
	}
	b.WriteByte('\n')
	return b.String()
}
