package show

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/coordination/tree"
	"github.com/wasmjob/wasmjob/host/cli/terminal"
	"github.com/wasmjob/wasmjob/host/control/cluster"
	"github.com/wasmjob/wasmjob/host/control/service"
	"github.com/wasmjob/wasmjob/host/engine"
	"github.com/wasmjob/wasmjob/host/event"
	"github.com/wasmjob/wasmjob/host/event/operation"
	"github.com/wasmjob/wasmjob/host/history"
	"github.com/wasmjob/wasmjob/internal/text/words"
)

// stamp is a time in the zone of who reads it; the day only if it is not today.
func stamp(t, now time.Time) string {
	if t.IsZero() {
		return "-"
	}
	t, now = t.Local(), now.Local()
	if t.YearDay() == now.YearDay() && t.Year() == now.Year() {
		return t.Format("15:04:05")
	}
	return t.Format("2006-01-02 15:04:05")
}

func outcomeCell(o abi.Outcome) terminal.Cell {
	if o == "" {
		return terminal.Coloured("running", terminal.Green)
	}
	return terminal.Coloured(string(o), outcomeColour(o))
}

func durationText(d, usual time.Duration, begun, ended, now time.Time) string {
	if begun.IsZero() || (d == 0 && !ended.IsZero()) {
		return "-" // how long is not known
	}
	if ended.IsZero() {
		text := words.Ago(max(0, now.Sub(begun)).Truncate(time.Second)) + " so far"
		if usual > 0 {
			text += " (usually " + words.Short(usual) + ")"
		}
		return text
	}
	return words.Short(d)
}

// labelsHead is the head of the column with the labels of jobs, which is there if a job has some.
const labelsHead = "LABELS"

// Fires lists fires. partial: the histories of some hosts are missing.
func Fires(s terminal.Style, list []history.Fire, now time.Time, partial bool) string {
	t := terminal.NewTable(s, "INSTANT", "JOB", "SOURCE", "ITEMS", "OUTCOME", "TOOK", "LAG", "HOSTS", labelsHead, "MESSAGE")
	t.Spare, t.Optional = []string{labelsHead, "HOSTS", "LAG"}, []string{labelsHead}
	var all []string
	for _, f := range list {
		all = append(all, f.Hosts...)
	}
	name := hostNames(all)
	for _, f := range list {
		t.Add(terminal.Plain(stamp(f.Instant, now)), terminal.Coloured(f.Job, terminal.Bold), terminal.Plain(string(f.Source)), terminal.Plain(fireItems(&f, partial)), outcomeCell(f.Outcome),
			terminal.Plain(durationText(f.Duration, f.Usual, f.Begun, f.Ended, now)), terminal.Plain(words.Short(f.Lag)), terminal.Plain(namesOf(f.Hosts, name)), terminal.Plain(f.Labels.String()), terminal.Plain(words.FirstLine(f.Message)))
	}
	return orNone(t.Empty(), "no fires", t.String())
}

// fireItems are the items of a fire that are known, and what is remarkable about them.
func fireItems(f *history.Fire, partial bool) string {
	var notes []string
	if f.Lacks() {
		known := fmt.Sprintf("%d of %d", len(f.Items), f.Total)
		if partial {
			known += " known"
		}
		notes = append(notes, known)
	}
	if f.Queued > 0 {
		notes = append(notes, fmt.Sprintf("%d queued", f.Queued))
	}
	if f.Failed > 0 {
		notes = append(notes, fmt.Sprintf("%d failed", f.Failed))
	}
	if f.Cancelled > 0 {
		notes = append(notes, fmt.Sprintf("%d cancelled", f.Cancelled))
	}
	if f.Unknown > 0 {
		notes = append(notes, fmt.Sprintf("%d unknown", f.Unknown))
	}
	items := tree.Items(f.Items).String()
	if len(notes) > 0 {
		items += " (" + strings.Join(notes, ", ") + ")"
	}
	return items
}

// hostNames names the hosts of instances in one list: by the server's address, with the process if several
// have been on that server.
func hostNames(ids []string) func(id string) string {
	process, several := make(map[string]string), make(map[string]bool)
	for _, id := range ids {
		server := tree.ServerOf(id)
		if known, ok := process[server]; ok && known != event.ProcessOf(id) {
			several[server] = true
		}
		process[server] = event.ProcessOf(id)
	}
	return func(id string) string {
		if server := tree.ServerOf(id); !several[server] {
			return server
		}
		return event.ProcessOf(id)
	}
}

// namesOf are the names of instances, each once.
func namesOf(ids []string, name func(string) string) string {
	var list []string
	for _, id := range ids {
		if n := name(id); !slices.Contains(list, n) {
			list = append(list, n)
		}
	}
	return strings.Join(list, ", ")
}

func orNone(empty bool, none, text string) string {
	if empty {
		return none + "\n"
	}
	return text
}

// Runs lists runs of items.
func Runs(s terminal.Style, list []history.Run, now time.Time) string {
	t := terminal.NewTable(s, "BEGUN", "RUN", "SOURCE", "HOST", "OUTCOME", "TOOK", "TRY", labelsHead, "MESSAGE")
	t.Spare, t.Optional = []string{labelsHead, "SOURCE", "TRY"}, []string{labelsHead}
	var all []string
	for _, r := range list {
		all = append(all, r.Host)
	}
	name := hostNames(all)
	for _, r := range list {
		attempt := ""
		if r.Attempt > 0 { // else its host's history is missing
			attempt = strconv.Itoa(r.Attempt)
		}
		t.Add(terminal.Plain(stamp(r.Begun, now)), terminal.Coloured(r.ID, terminal.Bold), terminal.Plain(string(r.Source)), terminal.Plain(name(r.Host)), outcomeCell(r.Outcome),
			terminal.Plain(durationText(r.Took(), r.Usual, r.Begun, r.Ended, now)), terminal.Plain(words.Dash(attempt)), terminal.Plain(r.Labels.String()), terminal.Plain(words.FirstLine(r.Message)))
	}
	return orNone(t.Empty(), "no runs", t.String())
}

// Line is a line that a guest logged; before it, how many of its run are missing there.
func Line(s terminal.Style, l *history.Line) string {
	tag, colour := terminal.LevelTag(terminal.ZapLevel(l.Level))
	who := l.Job
	if l.Item >= 0 {
		who += "/" + strconv.Itoa(l.Item)
	}
	var attrs strings.Builder
	for n := 0; n+1 < len(l.Attrs); n += 2 {
		fmt.Fprintf(&attrs, " %s=%s", l.Attrs[n], l.Attrs[n+1])
	}
	gap := ""
	if l.Gap > 0 {
		gap = s.Paint(terminal.Grey, fmt.Sprintf("… missing here: %s of the run", words.Count(int(l.Gap), "line"))) + "\n"
	}
	return gap + fmt.Sprintf("%s %s %s %s%s\n", s.Paint(terminal.Grey, l.Time.Local().Format("2006-01-02 15:04:05.000")), s.Paint(colour, tag),
		s.Paint(terminal.Bold, who), l.Message, s.Paint(terminal.Grey, attrs.String()))
}

// whyWidth is how many columns the reason of a change has; -o json has all of it.
const whyWidth = 60

// Changes lists who changed what. What was changed can be long: it comes last, where it pushes nothing
// out of sight and is cut at the terminal's edge.
func Changes(s terminal.Style, list []history.Change, now time.Time) string {
	t := terminal.NewTable(s, "TIME", "WHO", "FROM", "WHAT", "JOB", "WHY", "CHANGE")
	t.Spare = []string{"FROM"}
	for _, c := range list {
		job := c.Job
		if c.Item != nil {
			job += "/" + strconv.Itoa(*c.Item)
		}
		if c.Host != "" {
			job = strings.TrimSpace(job + " on " + c.Host)
		}
		change := terminal.Plain(words.Dash(changeText(&c)))
		if c.Error != "" {
			change = terminal.Coloured("failed: "+c.Error, terminal.Red)
		}
		t.Add(terminal.Plain(stamp(c.Time, now)), terminal.Coloured(c.Who, terminal.Bold), terminal.Plain(words.Dash(c.From)), terminal.Plain(operation.English(c.What)), terminal.Plain(words.Dash(job)),
			terminal.Plain(terminal.Shorten(words.Dash(words.FirstLine(c.Why)), whyWidth)), change)
	}
	return orNone(t.Empty(), "no changes", t.String())
}

// changeText says what was before and after; settings one by one.
func changeText(c *history.Change) string {
	if c.Trigger != 0 {
		return strings.TrimSuffix(fmt.Sprintf("trigger %d: %s", c.Trigger, c.After), ": ")
	}
	list, ok := c.Settings()
	if !ok {
		return strings.TrimSuffix(strings.TrimPrefix(c.Before+" → "+c.After, " → "), " → ")
	}
	var parts []string
	for _, s := range list {
		was := ""
		if s.Had {
			was = fmt.Sprintf("%q → ", s.Before)
		}
		parts = append(parts, fmt.Sprintf("%s: %s%q", s.Name, was, s.After))
	}
	return strings.Join(parts, ", ")
}

func healthColour(h cluster.Health) string {
	switch h {
	case cluster.HealthOK:
		return terminal.Green
	case cluster.HealthPaused:
		return terminal.Grey
	case cluster.HealthLate:
		return terminal.Yellow
	}
	return terminal.Red
}

// ClusterJobs lists jobs over all hosts.
func ClusterJobs(s terminal.Style, list []cluster.Job, now time.Time) string {
	t := terminal.NewTable(s, "NAME", "HEALTH", "STATE", "CRON", "NEXT", "ITEMS", "HOSTS", labelsHead, "LAST FIRE")
	t.Spare, t.Optional = []string{labelsHead, "HOSTS", "STATE"}, []string{labelsHead}
	var since time.Time
	lost, unknown := 0, 0
	for _, j := range list {
		colour := healthColour(j.Health)
		switch {
		case !j.SessionLost.IsZero():
			lost++
			since = latest(since, j.SessionLost)
			colour = terminal.Grey
		case j.State == engine.JobNoSession:
			unknown++
		}
		t.Add(terminal.Coloured(j.Name, terminal.Bold), terminal.Coloured(string(j.Health), colour), terminal.Coloured(stateText(&j), jobColour(j.State)),
			terminal.Plain(cronText(j.Cron, j.TimeZone, j.Terms)), terminal.Plain(nextText(&j, now)), terminal.Plain(itemCounts(&j)), terminal.Plain(hostsText(&j)), terminal.Plain(j.Labels.String()), lastText(j.Last, now))
	}
	return noSessionText(s, lost, unknown, since, now) + orNone(t.Empty(), "no jobs", t.String()) + reasons(s, list, now)
}

// mostReasons is how many lines a list of jobs has below its table.
const mostReasons = 20

// reasons says why jobs cannot run, and what they wait for, a line each: the first of them,
// and how many more there are.
func reasons(s terminal.Style, list []cluster.Job, now time.Time) string {
	var lines []string
	line := func(job, what string) {
		lines = append(lines, s.Paint(terminal.Bold, job)+": "+words.FirstLine(what)+"\n")
	}
	for _, j := range list {
		if j.Reason != "" && j.Health == cluster.HealthError && (j.State != engine.JobNoSession || !j.SessionLost.IsZero()) {
			line(j.Name, j.Reason)
		}
		if j.Health == cluster.HealthFailing && !j.Failing.IsZero() {
			line(j.Name, fmt.Sprintf("failing for %s, %s in a row", words.Ago(max(0, now.Sub(j.Failing))), words.Count(max(j.Failures, 1), "time")))
		}
	}
	for _, j := range list {
		for _, w := range j.Waits {
			line(j.Name, fmt.Sprintf("waits for %s: %s", words.Ago(max(0, now.Sub(w.Since))), w.Reason))
		}
	}
	if more := len(lines) - mostReasons; more > 0 {
		lines = append(lines[:mostReasons:mostReasons], fmt.Sprintf("%d more such lines; --output json has all, wasmjob status those of one host\n", more))
	}
	return strings.Join(lines, "")
}

// longestReason is how much of a reason a column has, in bytes.
const longestReason = 40

// stateText is a job's state, with who has paused it and why, if that is known.
func stateText(j *cluster.Job) string {
	if j.Paused == nil {
		return words.State(j.State)
	}
	text := fmt.Sprintf("%s by %s", words.State(j.State), j.Paused.By)
	if !j.Paused.Until.IsZero() {
		text += " until " + j.Paused.Until.UTC().Format("2006-01-02T15:04Z")
	}
	if j.Paused.Why != "" {
		text += ": " + words.ClipTo(words.FirstLine(j.Paused.Why), longestReason)
	}
	return text
}

// nextText says in how long a job fires next.
func nextText(j *cluster.Job, now time.Time) string {
	if j.Next.IsZero() {
		return "-"
	}
	return "in " + words.Until(now, j.Due())
}

// itemCounts says how many items a job has, and what is remarkable about them.
func itemCounts(j *cluster.Job) string {
	text := strconv.Itoa(j.ShardingTotalCount)
	for _, c := range []struct {
		n    int
		what string
	}{{j.Running, "running"}, {j.Queued, "queued"}, {j.Failed, "failed"}, {j.Held, "held"}, {j.Disabled, "paused"}} {
		if c.n > 0 {
			text += fmt.Sprintf(", %d %s", c.n, c.what)
		}
	}
	return text
}

func lastText(l *cluster.Last, now time.Time) terminal.Cell {
	if l == nil {
		return terminal.Plain("-")
	}
	text := string(l.Outcome)
	if l.Duration > 0 {
		text += " in " + words.Short(l.Duration)
	}
	text += ", " + words.Since(l.Ended, now)
	if l.Message != "" {
		text += ": " + words.FirstLine(l.Message)
	}
	return terminal.Coloured(text, outcomeColour(l.Outcome))
}

// hostsText counts the hosts of a job, without those on which it is stopped.
func hostsText(j *cluster.Job) string {
	text := strconv.Itoa(len(j.Hosts))
	if len(j.Stopped) > 0 {
		text = fmt.Sprintf("%d of %d", len(j.Hosts)-len(j.Stopped), len(j.Hosts))
	}
	if len(j.DisabledOn) > 0 && j.State != engine.JobDisabled {
		text += fmt.Sprintf(", %d paused", len(j.DisabledOn))
	}
	return text
}

// Hosts lists the hosts of a cluster.
func Hosts(s terminal.Style, list []cluster.Host, now time.Time) string {
	t := terminal.NewTable(s, "HOST", "API", "STATE", "JOBS", "RUNNING", "QUEUED", "SLOTS", "VERSION", "UP", "WHAT IS WRONG")
	t.Spare = []string{"VERSION", "UP"}
	for _, h := range list {
		name := h.Name
		if h.Here {
			name += " (this)"
		}
		state, up := terminal.Coloured("silent", terminal.Red), "-" // whether it still runs is not known
		if h.Silent == "" {
			up = words.Ago(now.Sub(h.Started))
		}
		if h.Silent == "" && h.Report != nil {
			state = terminal.Coloured(string(h.State), terminal.Green)
			if !h.Report.Ready || h.State != engine.HostLive {
				state.Colour = terminal.Yellow
			}
		}
		jobs, running, queued, slots := strconv.Itoa(h.Jobs), strconv.Itoa(h.Running), strconv.Itoa(h.Queued), "-"
		if h.Report == nil { // it has never answered the host that is asked
			jobs, running, queued = "-", "-", "-"
		} else if s := h.Report.Status.Slots; s.Total > 0 { // else it is of an earlier version
			slots = fmt.Sprintf("%d used, %d free", s.Used, max(s.Total-s.Used, 0))
		}
		t.Add(terminal.Coloured(name, terminal.Bold), terminal.Plain(words.Dash(h.API)), state, terminal.Plain(jobs), terminal.Plain(running), terminal.Plain(queued), terminal.Plain(slots),
			terminal.Plain(h.Version), terminal.Plain(up), terminal.Plain(words.Dash(strings.Join(troubles(&h, now), "; "))))
	}
	return t.String()
}

// Gone says which hosts are gone, and who saw it; nothing if none is.
func Gone(s terminal.Style, list []service.GoneHost, now time.Time) string {
	var b strings.Builder
	for _, g := range list {
		fmt.Fprintf(&b, "%s is %s since %s, as %s saw (%s)\n", s.Paint(terminal.Bold, g.ServerIP), s.Paint(terminal.Red, "gone"), stamp(g.Since, now),
			strings.Join(g.SeenBy, ", "), g.Instance)
	}
	return b.String()
}

// troubles are what is wrong with a host.
func troubles(h *cluster.Host, now time.Time) (list []string) {
	r := h.Report
	switch {
	case h.Silent != "" && r == nil:
		return []string{h.Silent}
	case h.Silent != "":
		return []string{fmt.Sprintf("%s; it last answered %s ago, and its jobs are as of then", h.Silent, words.Ago(now.Sub(h.Seen)))}
	case r == nil:
		return nil
	}
	if r.Status.State == engine.HostSuspect {
		list = append(list, "its session with the registry is suspect: nothing begins")
	}
	if !r.Ready {
		list = append(list, strings.TrimSuffix("not ready: "+r.Reason, ": "))
	}
	if h.Stopped > 0 {
		list = append(list, words.Count(h.Stopped, "job")+" stopped here by an operator; 'wasmjob host start --instance "+r.Status.Instance+"' runs them again")
	}
	if n := len(h.Disabled); n > 0 {
		const most = 3
		text := fmt.Sprintf("paused for %s: %s", words.Count(n, "job"), strings.Join(h.Disabled[:min(n, most)], ", "))
		if n > most {
			text += ", …"
		}
		list = append(list, text)
	}
	if len(h.Draining) > 0 {
		list = append(list, drainText(h.Draining))
	}
	if r.History != nil && r.History.Problem != "" {
		list = append(list, fmt.Sprintf("its history cannot be written since %s: %s", stamp(r.History.Since, now), r.History.Problem))
	}
	if n := len(r.Status.Refused); n > 0 {
		list = append(list, words.Count(n, "file")+" refused")
	}
	const most, longest = 3, 300
	for _, w := range r.Warnings[:min(len(r.Warnings), most)] {
		list = append(list, words.ClipTo(words.OneLine(w), longest))
	}
	if more := len(r.Warnings) - most; more > 0 {
		list = append(list, words.Count(more, "more warning")+" in 'wasmjob status'")
	}
	return list
}

// drainText says which items a host waits for before it leaves jobs.
func drainText(jobs []cluster.Draining) string {
	var waits []string
	for _, d := range jobs {
		if len(d.Items) > 0 {
			waits = append(waits, "items "+tree.Items(d.Items).String()+" of "+d.Job)
		}
	}
	text := "leaves " + words.Count(len(jobs), "job")
	if len(waits) > 0 {
		const most = 3
		text += ", and waits for " + strings.Join(waits[:min(len(waits), most)], ", ")
		if more := len(waits) - most; more > 0 {
			text += " and of " + words.Count(more, "more job")
		}
	}
	return text
}

// Upcoming lists what will fire.
func Upcoming(s terminal.Style, upcoming, frequent []service.Upcoming, now time.Time) string {
	t := terminal.NewTable(s, "TIME", "IN", labelsHead, "JOB")
	t.Spare, t.Optional = []string{labelsHead}, []string{labelsHead}
	for _, u := range upcoming {
		t.Add(terminal.Plain(stamp(u.Time, now)), terminal.Plain(words.Ago(max(0, u.Time.Sub(now)))), terminal.Plain(u.Labels.String()), terminal.Coloured(u.Job, terminal.Bold))
	}
	text := orNone(len(frequent) == 0, "nothing fires", "")
	if !t.Empty() {
		text = t.String()
	}
	for _, f := range frequent {
		text += fmt.Sprintf("%s fires too often to be listed, first at %s\n", s.Paint(terminal.Bold, f.Job), stamp(f.Time, now))
	}
	return text
}

// Silent says which hosts have not answered.
func Silent(s terminal.Style, silent []string) string {
	var b strings.Builder
	for _, h := range silent {
		b.WriteString(s.Paint(terminal.Yellow, "does not answer, what it knows is missing: ") + h + "\n")
	}
	return b.String()
}

// Overview shows what fails, what is late and what runs.
func Overview(s terminal.Style, o *service.Overview) string {
	var b strings.Builder
	var counts []string
	for _, h := range cluster.Healths() {
		if n := o.Counts[h]; n > 0 {
			counts = append(counts, s.Paint(healthColour(h), fmt.Sprintf("%d %s", n, h)))
		}
	}
	b.WriteString(s.Fact("jobs", strings.Join(counts, ", ")))
	b.WriteString("\n" + Hosts(s, o.Hosts, o.Now) + Gone(s, o.Gone, o.Now))
	for _, part := range []struct {
		title string
		jobs  []cluster.Job
		more  int
	}{{"Trouble", o.Trouble, o.More.Trouble}, {"Waiting", o.Waiting, o.More.Waiting}, {"Running", o.Running, o.More.Running}, {"Queued", o.Queued, o.More.Queued}} {
		if len(part.jobs) > 0 {
			b.WriteString("\n" + s.Paint(terminal.Bold, part.title) + "\n" + ClusterJobs(s, part.jobs, o.Now))
		}
		if part.more > 0 {
			b.WriteString(s.Paint(terminal.Grey, "and "+words.Count(part.more, "more job")) + "\n")
		}
	}
	if len(o.Failures) > 0 {
		b.WriteString("\n" + s.Paint(terminal.Bold, "Failed lately") + "\n" + Runs(s, o.Failures, o.Now))
	}
	b.WriteString(Silent(s, o.Silent))
	return b.String()
}
