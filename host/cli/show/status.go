// Package show renders what commands report as text: a host's status, the items and
// instances of a job, what became of a kill, a module, the findings of verify.
package show

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/coordination/tree"
	"github.com/wasmjob/wasmjob/host/cli/terminal"
	"github.com/wasmjob/wasmjob/host/config/timetable"
	"github.com/wasmjob/wasmjob/host/control/report"
	"github.com/wasmjob/wasmjob/host/engine"
	"github.com/wasmjob/wasmjob/host/event"
	"github.com/wasmjob/wasmjob/internal/text/words"
)

// clockText compares the host's clock with the registry's, if that is worth to be
// shown: they are apart by more than it takes to measure it.
func clockText(c *engine.ClockStatus) string {
	if c == nil || c.Drift.Abs() <= max(c.Uncertainty, 100*time.Millisecond) {
		return ""
	}
	text := fmt.Sprintf("%s ahead of the registry's", c.Drift.Round(time.Millisecond))
	if c.Drift < 0 {
		text = fmt.Sprintf("%s behind the registry's", -c.Drift.Round(time.Millisecond))
	}
	if c.Off {
		text += fmt.Sprintf("; expected at most %s (clockBound)", words.Duration(c.Bound))
	}
	return text
}

// hostState is the host's state, and why it is not ready.
func hostState(r *report.Report) string {
	state := string(r.Status.State)
	if r.Ready {
		state += ", ready"
	} else if r.Reason != "" {
		state += ", not ready (" + r.Reason + ")"
	}
	if !r.Status.Started.IsZero() {
		state += ", up " + words.Ago(r.Now.Sub(r.Status.Started))
	}
	return state
}

// Status returns the text of the command status.
func Status(s terminal.Style, r *report.Report, all bool) string {
	var b strings.Builder
	show := func(what, text string) { b.WriteString(s.Fact(what, text)) }
	st := r.Status
	show("host", s.Cut(hostState(r), 11))
	if st.Instance != "" {
		show("instance", st.Instance)
	}
	show("version", fmt.Sprintf("%s, process %d", r.About.Version, r.About.PID))
	show("registry", r.About.Registry+", namespace "+st.Namespace)
	if r.Session != nil {
		show("session", sessionText(r.Session, r.Now))
	}
	if text := clockText(st.Clock); text != "" {
		show("clock", text)
	}
	if r.About.TimeZone != "" {
		show("time zone", r.About.TimeZone)
	}
	if r.About.Plugins != "" {
		show("plugins", r.About.Plugins)
	}
	if r.About.History != "" {
		show("history", r.About.History)
	}
	if text := historyText(r); text != "" {
		b.WriteString(s.Wrapped("           " + s.Paint(terminal.Red, text) + "\n"))
	}
	for _, file := range [][2]string{{"grants", r.About.Grants}, {"alerts", r.About.Alerts}, {"users", r.About.Users}, {"guest log", r.About.GuestLog}} {
		if file[1] != "" {
			show(file[0], file[1])
		}
	}
	section := func(title, text string) {
		b.WriteString("\n" + s.Paint(terminal.Bold, title) + "\n" + text)
	}
	if len(st.Jobs) == 0 {
		b.WriteString("\n" + Jobs(s, r))
	} else {
		section("Jobs", lostText(s, r)+Jobs(s, r))
		if text := itemsTable(s, r, all); text != "" {
			section("Items", text)
		}
		section("Modules", modulesTable(s, st.Jobs))
	}
	if len(r.Compiling) > 0 {
		section("Being compiled", compilingTable(s, r))
	}
	if notes := notesText(s, r); notes != "" {
		section("Notes", s.Wrapped(notes))
	}
	if len(st.Refused) > 0 {
		section("Refused files", s.Wrapped(Refused(s, st.Refused, r.Now)))
	}
	return b.String()
}

// lostText says of jobs whose host has no session that they are shown as they were; it is empty if there is none.
func lostText(s terminal.Style, r *report.Report) string {
	var since time.Time
	lost, unknown := 0, 0
	for _, j := range r.Status.Jobs {
		switch {
		case j.State != engine.JobNoSession:
		case j.SessionLost.IsZero():
			unknown++
		default:
			lost++
			since = latest(since, j.SessionLost)
		}
	}
	return noSessionText(s, lost, unknown, since, r.Now)
}

// noSessionText is a line about jobs whose hosts have no session: how many were lost at a time, and of how many
// nothing is known. It is empty if there is none.
func noSessionText(s terminal.Style, lost, unknown int, since, now time.Time) string {
	var parts []string
	if lost > 0 {
		parts = append(parts, fmt.Sprintf("no session with the registry since %s (%s ago): %s as known then; nothing begins", stamp(since, now), words.Ago(max(0, now.Sub(since))), words.Count(lost, "job")))
	}
	if unknown > 0 {
		parts = append(parts, fmt.Sprintf("no session with the registry since the start: nothing is known of %s", words.Count(unknown, "job")))
	}
	if len(parts) == 0 {
		return ""
	}
	return s.Paint(terminal.Yellow, strings.Join(parts, "; ")) + "\n"
}

func latest(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// notesText is what else there is to say of the host and its jobs.
func notesText(s terminal.Style, r *report.Report) string {
	var notes strings.Builder
	for _, w := range r.Warnings {
		fmt.Fprintf(&notes, "%s %s\n", s.Paint(terminal.Yellow, "warning:"), indented(w))
	}
	for _, j := range r.Status.Jobs {
		if j.Reason != "" && (j.State != engine.JobNoSession || j.LastState == engine.JobError) { // of all jobs a line says that
			fmt.Fprintf(&notes, "%s: %s\n", j.Name, indented(j.Reason))
		}
		for _, w := range j.Waits {
			if w.What == event.WaitMark {
				continue // a warning names each mark
			}
			colour := terminal.Grey
			if w.Expired {
				colour = terminal.Yellow
			}
			fmt.Fprintf(&notes, "%s: %s %s for %s\n", j.Name, s.Paint(colour, "waits"), words.Ago(max(0, r.Now.Sub(w.Since))), indented(w.Reason))
		}
		for _, l := range j.Listeners {
			fmt.Fprintf(&notes, "%s: listener %s runs for %s; %s ends it\n", j.Name, l.Export, words.Ago(max(0, r.Now.Sub(l.Since))), words.Command("job kill", j.Name))
		}
		for _, w := range j.Warnings {
			fmt.Fprintf(&notes, "%s: %s %s\n", j.Name, s.Paint(terminal.Yellow, "warning:"), indented(w))
		}
	}
	return notes.String()
}

// Refused lists files that are refused.
func Refused(s terminal.Style, files []engine.Refusal, now time.Time) string {
	var refused strings.Builder
	for _, f := range files {
		kept := ""
		if f.Kept {
			kept = ", an earlier version stays in force"
		}
		fmt.Fprintf(&refused, "%s  %s ago%s\n", s.Paint(terminal.Red, f.File), words.Ago(max(0, now.Sub(f.Since))), kept)
		for _, reason := range f.Reasons {
			fmt.Fprintf(&refused, "  %s\n", indented(reason))
		}
	}
	return refused.String()
}

// historyText says what is wrong with the history, or nothing.
func historyText(r *report.Report) string {
	h := r.History
	switch {
	case h == nil || (h.Dropped == 0 && h.Problem == ""):
		return ""
	case h.Problem != "" && h.Spooled > 0:
		return fmt.Sprintf("cannot be written for %s, %s wait on the disk, %d lost: %s", words.Ago(r.Now.Sub(h.Since)), words.Count(int(h.Spooled), "event"), h.Dropped, h.Problem)
	case h.Problem != "":
		return fmt.Sprintf("cannot be written for %s, %s lost: %s", words.Ago(r.Now.Sub(h.Since)), words.Count(int(h.Dropped), "event"), h.Problem)
	}
	return words.Count(int(h.Dropped), "event") + " lost since the start"
}

// yet qualifies what is said of a host that has no jobs.
func yet(r *report.Report) string {
	if len(r.Compiling) > 0 {
		return " yet"
	}
	return ""
}

func compilingTable(s terminal.Style, r *report.Report) string {
	t := terminal.NewTable(s, "MODULE", "STATE", "JOBS THAT WAIT")
	for _, c := range r.Compiling {
		state := terminal.Coloured("waiting", terminal.Grey)
		if !c.Since.IsZero() {
			state = terminal.Coloured("compiling for "+words.Ago(max(0, r.Now.Sub(c.Since)).Round(100*time.Millisecond)), terminal.Yellow)
		}
		jobs := "none"
		if len(c.Jobs) > 0 {
			jobs = strings.Join(c.Jobs, ", ")
		}
		t.Add(terminal.Coloured(c.Module, terminal.Bold), state, terminal.Plain(jobs))
	}
	return t.String()
}

func indented(s string) string {
	return strings.ReplaceAll(strings.TrimSpace(s), "\n", "\n    ")
}

func jobColour(s engine.JobState) string {
	switch s {
	case engine.JobReady, engine.JobRunning:
		return terminal.Green
	case engine.JobError, engine.JobStopped, engine.JobRemoved:
		return terminal.Red
	}
	return terminal.Yellow
}

func outcomeColour(o abi.Outcome) string {
	switch o {
	case abi.OutcomeOK:
		return terminal.Green
	case abi.OutcomeRetryAt:
		return terminal.Yellow
	}
	return terminal.Red
}

// Jobs lists the jobs of a host.
func Jobs(s terminal.Style, r *report.Report) string {
	if len(r.Status.Jobs) == 0 {
		return "no jobs" + yet(r) + "\n"
	}
	t := terminal.NewTable(s, "NAME", "STATE", "CRON", "NEXT", "ITEMS HERE", "HOSTS", labelsHead, "LAST FIRE")
	t.Spare, t.Optional = []string{labelsHead, "HOSTS"}, []string{labelsHead}
	for _, j := range r.Status.Jobs {
		cron := cronText(j.Cron, j.TimeZone, j.Terms)
		if timetable.Describe(j.Cron, j.Terms) == "" && j.RefusedCron != "" {
			cron = "(refused)"
		}
		next := "-"
		if !j.Next.IsZero() && j.State != engine.JobDisabled {
			due := j.Next
			if !j.Starts.IsZero() { // put off by its jitter
				due = j.Starts
			}
			next = "in " + words.Until(r.Now, due)
		}
		state := terminal.Coloured(words.State(j.State), jobColour(j.State))
		if j.LastState != "" {
			state = terminal.Coloured(words.State(j.LastState), terminal.Grey)
		}
		t.Add(terminal.Coloured(j.Name, terminal.Bold), state, terminal.Plain(cron), terminal.Plain(next), terminal.Plain(itemsHere(j)),
			terminal.Plain(strconv.Itoa(len(j.Instances))), terminal.Plain(j.Labels.String()), lastFire(j.LastFire, r.Now))
	}
	return t.String()
}

// cronText is a job's schedule; the host's own zone goes without saying.
func cronText(cron, zone, terms string) string {
	if cron = timetable.Describe(cron, terms); cron == "" {
		return "(by trigger)"
	}
	if zone == "" || zone == "Local" {
		return cron
	}
	return cron + " " + zone
}

// itemsHere says which of the job's items the host has.
func itemsHere(j *engine.JobStatus) string {
	var items tree.Items
	disabled, held := 0, 0
	for _, i := range slices.Concat(j.Items, j.LastItems) {
		items = append(items, i.Item)
		if i.Disabled {
			disabled++
		}
		if !i.Held.IsZero() {
			held++
		}
	}
	here := cmp.Or(items.String(), "none")
	if len(here) > 16 {
		here = strconv.Itoa(len(items))
	}
	here += " of " + strconv.Itoa(j.ShardingTotalCount)
	if disabled > 0 {
		here += ", " + words.Count(disabled, "item") + " paused"
	}
	if held > 0 {
		here += ", " + words.Count(held, "item") + " held"
	}
	return here
}

func lastFire(f *engine.FireStatus, now time.Time) terminal.Cell {
	if f == nil {
		return terminal.Plain("-")
	}
	_, ended := f.Span()
	text := fmt.Sprintf("%s in %s, %s ago", f.Outcome, words.Short(f.Duration), words.Ago(max(0, now.Sub(ended))))
	if f.Source != abi.SourceSchedule {
		text += ", " + string(f.Source)
	}
	return terminal.Coloured(text, outcomeColour(f.Outcome))
}

// itemsTable lists the items of which there is something to say, or all.
func itemsTable(s terminal.Style, r *report.Report, all bool) string {
	t := terminal.NewTable(s, "JOB", "ITEM", "PARAMETER", "NOW", "PROGRESS", "LAST RUN")
	for _, j := range r.Status.Jobs {
		for _, i := range slices.Concat(j.Items, j.LastItems) {
			if all || remarkable(i) {
				t.Add(terminal.Coloured(j.Name, terminal.Bold), terminal.Plain(strconv.Itoa(i.Item)), terminal.Plain(i.Parameter),
					itemNow(i, r.Now), terminal.Plain(progress(i)), lastRun(i, r.Now))
			}
		}
	}
	if t.Empty() {
		return ""
	}
	return t.String()
}

// remarkable reports whether there is more to say of an item than that it is well.
func remarkable(i engine.ItemStatus) bool {
	failed := i.LastOutcome != "" && i.LastOutcome != abi.OutcomeOK
	return i.Begun() || i.Misfired || i.Disabled || !i.Held.IsZero() || failed
}

// itemNow is what the item is doing.
func itemNow(i engine.ItemStatus, now time.Time) terminal.Cell {
	c := itemState(i, now)
	if !i.NotBefore.IsZero() {
		c.Text, c.Colour = c.Text+", waits until "+i.NotBefore.UTC().Format(time.RFC3339), terminal.Yellow
	} else if i.Misfired {
		c.Text, c.Colour = c.Text+", misfired", terminal.Yellow
	}
	return c
}

func itemState(i engine.ItemStatus, now time.Time) terminal.Cell {
	if i.Begun() {
		c := terminal.Coloured("running", terminal.Green)
		if i.Queued {
			c = terminal.Coloured("queued", terminal.Yellow)
		}
		if !i.Since.IsZero() {
			c.Text += " " + words.Ago(max(0, now.Sub(i.Since)))
		}
		if i.Attempt > 1 {
			c.Text += ", attempt " + strconv.Itoa(i.Attempt)
		}
		if i.Disabled { // it goes on to its end
			c.Text, c.Colour = c.Text+", then paused", terminal.Yellow
		}
		return c
	}
	if !i.Held.IsZero() {
		return terminal.Coloured("held", terminal.Red)
	}
	if i.Disabled {
		return terminal.Coloured("paused", terminal.Yellow)
	}
	return terminal.Coloured("idle", terminal.Grey)
}

func progress(i engine.ItemStatus) string {
	if i.Total > 0 {
		return fmt.Sprintf("%d/%d %d%%", i.Done, i.Total, int(100*float64(i.Done)/float64(i.Total)))
	}
	if i.Done > 0 {
		return strconv.FormatInt(i.Done, 10)
	}
	return "-"
}

func lastRun(i engine.ItemStatus, now time.Time) terminal.Cell {
	if i.LastOutcome == "" {
		return terminal.Plain("-")
	}
	text := fmt.Sprintf("%s %s ago", i.LastOutcome, words.Ago(max(0, now.Sub(i.LastEnd))))
	if i.LastMessage != "" {
		text += ": " + words.Clip(words.FirstLine(i.LastMessage))
	}
	return terminal.Coloured(text, outcomeColour(i.LastOutcome))
}

func modulesTable(s terminal.Style, jobs []*engine.JobStatus) string {
	t := terminal.NewTable(s, "MODULE", "DIGEST", "TYPE", "ISOLATION", "JOBS")
	type key struct{ module, digest, typ, isolation string }
	var keys []key
	names := make(map[key][]string)
	for _, j := range jobs {
		k := key{j.Module, shortDigest(j.Digest), j.Type, j.Isolation}
		if names[k] == nil {
			keys = append(keys, k)
		}
		names[k] = append(names[k], j.Name)
	}
	slices.SortFunc(keys, func(a, b key) int {
		return strings.Compare(a.module+a.digest+a.isolation, b.module+b.digest+b.isolation)
	})
	for _, k := range keys {
		t.Add(terminal.Coloured(k.module, terminal.Bold), terminal.Plain(k.digest), terminal.Plain(k.typ), terminal.Plain(k.isolation), terminal.Plain(strings.Join(names[k], ", ")))
	}
	return t.String()
}
