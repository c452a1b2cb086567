package show

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/wasmjob/wasmjob/host/cli/terminal"
	"github.com/wasmjob/wasmjob/host/control/forecast"
	"github.com/wasmjob/wasmjob/host/schedule/plan"
	"github.com/wasmjob/wasmjob/internal/text/words"
)

// mostPlanned is how many jobs a plan shows to people; JSON has all.
const mostPlanned = 20

// planTime is how a plan has times.
const planTime = "2006-01-02 15:04 MST"

// planRow is a row of the sums: what, before and after.
type planRow struct {
	what          string
	before, after string
	worse         bool
}

// planHead says what a plan is of.
func planHead(r *forecast.Report) string {
	slots := ""
	if r.Slots > 0 {
		slots = " with " + words.Count(r.Slots, "slot")
	}
	head := fmt.Sprintf("%s to %s (%s), %s%s", r.From.Format(planTime), r.To.Format(planTime), words.Duration(r.To.Sub(r.From)), words.Count(r.Hosts, "host"), slots)
	if r.Slots > 0 && r.Hosts > 1 {
		head += " each"
	}
	return head
}

// planDurations says how long runs take in a plan.
func planDurations(r *forecast.Report) string {
	var parts []string
	if r.KnownRuns > 0 {
		parts = append(parts, "durations are those of "+words.Count(r.KnownRuns, "run")+" in the history")
	}
	if r.AssumedJobs > 0 {
		parts = append(parts, fmt.Sprintf("runs of %s take %s each, as is assumed", words.Count(r.AssumedJobs, "job"), words.Duration(r.Assumed)))
	}
	return strings.Join(parts, "; ")
}

// planRows are the sums.
func planRows(r *forecast.Report) (rows []planRow) {
	was := r.Before
	if was == nil {
		was = &forecast.Totals{}
	}
	number := func(what string, before, after int, bad bool) {
		rows = append(rows, planRow{what, strconv.Itoa(before), strconv.Itoa(after), bad && after > before && r.Before != nil})
	}
	is := &r.After
	number("jobs", was.Jobs, is.Jobs, false)
	number("fires", was.Fires, is.Fires, false)
	number("runs of items", was.Runs, is.Runs, false)
	number("overlaps", was.Overlaps, is.Overlaps, true)
	for _, why := range plan.Reasons() {
		if was.Skipped[why]+is.Skipped[why] > 0 {
			number("skipped: "+string(why), was.Skipped[why], is.Skipped[why], why != plan.Excluded)
		}
	}
	waits := func(what string, before, after int, longestBefore, longest time.Duration) {
		text := func(n int, longest time.Duration) string {
			if n == 0 {
				return "0"
			}
			return fmt.Sprintf("%d, at most %s", n, words.Duration(longest.Truncate(time.Second)))
		}
		if before+after > 0 {
			rows = append(rows, planRow{what, text(before, longestBefore), text(after, longest), after > before && r.Before != nil})
		}
	}
	waits("waits for a slot", was.SlotWaits, is.SlotWaits, was.LongestSlotWait, is.LongestSlotWait)
	waits("waits for a permit", was.PermitWaits, is.PermitWaits, was.LongestPermitWait, is.LongestPermitWait)
	rules := make(map[string]bool)
	for _, t := range []*forecast.Totals{was, is} {
		for rule := range t.Alerts {
			rules[rule] = true
		}
	}
	for _, rule := range slices.Sorted(maps.Keys(rules)) {
		number("alerts: "+rule, was.Alerts[rule], is.Alerts[rule], true)
	}
	zone := r.From.Location()
	busiest := func(t *forecast.Totals) string {
		if len(t.Busiest) == 0 {
			return "-"
		}
		b := t.Busiest[0]
		return fmt.Sprintf("%s, %s", b.At.In(zone).Format("01-02 15:04"), words.Count(b.Starts, "start"))
	}
	peak := func(t *forecast.Totals) string {
		if t.Peak.Running == 0 {
			return "-"
		}
		return fmt.Sprintf("%d, %s", t.Peak.Running, t.Peak.At.In(zone).Format("01-02 15:04"))
	}
	return append(rows, planRow{"busiest minute", busiest(was), busiest(is), false}, planRow{"most in one minute", peak(was), peak(is), false})
}

// planJob is what a plan says of one job.
func planJob(j *forecast.JobPlan, zone *time.Location) string {
	var parts []string
	add := func(format string, args ...any) { parts = append(parts, fmt.Sprintf(format, args...)) }
	if len(j.Settings) > 0 {
		add("%s", words.Some(j.Settings, ", "))
	}
	if j.ZoneChanged() {
		add("time zone %s → %s", cmp.Or(j.Before.Zone, "the host's own"), cmp.Or(j.After.Zone, "the host's own"))
	}
	if j.FiresAdded > 0 {
		add("%d added from %s", j.FiresAdded, j.FirstAdded.In(zone).Format("01-02 15:04"))
	}
	if j.FiresGone > 0 {
		add("%d gone from %s", j.FiresGone, j.FirstGone.In(zone).Format("01-02 15:04"))
	}
	counts := func(c *forecast.Counts) (text []string) {
		for _, why := range plan.Reasons() {
			if n := c.Skipped[why]; n > 0 {
				text = append(text, fmt.Sprintf("%d %s", n, why))
			}
		}
		return text
	}
	if now := j.After; now != nil {
		if now.Overlaps > 0 {
			add("%s from %s", words.Count(now.Overlaps, "overlap"), now.FirstOverlap.In(zone).Format("01-02 15:04"))
		}
		if skipped := counts(&now.Counts); len(skipped) > 0 {
			add("skipped: %s", strings.Join(skipped, ", "))
		}
		if now.SlotWaits > 0 {
			add("%d for a slot, at most %s", now.SlotWaits, words.Duration(now.LongestSlotWait.Truncate(time.Second)))
		}
		if now.PermitWaits > 0 {
			add("%d for a permit, at most %s", now.PermitWaits, words.Duration(now.LongestPermitWait.Truncate(time.Second)))
		}
	}
	if j.After != nil {
		for _, rule := range slices.Sorted(maps.Keys(j.After.Alerts)) {
			add("alerts: %d %s", j.After.Alerts[rule], rule)
		}
	}
	return strings.Join(parts, "; ")
}

// planFires are the fires of a job before and after.
func planFires(j *forecast.JobPlan) (before, after string) {
	text := func(s *forecast.Side) string {
		if s == nil {
			return "-"
		}
		return strconv.Itoa(s.Fires)
	}
	return text(j.Before), text(j.After)
}

func planShift(s *forecast.Shift) string {
	how := "put forward by " + words.Duration(s.Forward)
	if s.Forward < 0 {
		how = "put back by " + words.Duration(-s.Forward)
	}
	text := fmt.Sprintf("%s: clocks are %s at %s (%s)", s.Zone, how, s.At.Format(planTime), words.Count(s.Jobs, "job"))
	if len(s.Touched) == 0 {
		return text + "; no instant is in that hour"
	}
	return text + "; in that hour: " + strings.Join(s.Touched, ", ") + more(s.MoreTouched)
}

// more says how many others there are.
func more(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf(" and %d more", n)
}

// worsePlan says what is worse than before.
func worsePlan(r *forecast.Report) string {
	if r.Before == nil {
		return ""
	}
	var jobs []string
	for _, j := range r.Jobs {
		if len(j.Worse) > 0 {
			jobs = append(jobs, fmt.Sprintf("%s (%s)", j.Job, strings.Join(j.Worse, ", ")))
		}
	}
	if len(jobs) == 0 {
		return "nothing is skipped or overlaps that was not before"
	}
	return "worse than before: " + words.Some(jobs, ", ")
}

// Plan is a plan for people.
func Plan(s terminal.Style, r *forecast.Report) string {
	var b strings.Builder
	b.WriteString(planHead(r) + "\n\n")
	heads := []string{"", "PLAN"}
	if r.Before != nil {
		heads = []string{"", "BEFORE", "AFTER"}
	}
	t := terminal.NewTable(s, heads...)
	for _, row := range planRows(r) {
		after := terminal.Plain(row.after)
		if row.worse {
			after.Colour = terminal.Red
		}
		cells := []terminal.Cell{terminal.Plain(row.what), after}
		if r.Before != nil {
			cells = []terminal.Cell{terminal.Plain(row.what), terminal.Plain(row.before), after}
		}
		t.Add(cells...)
	}
	b.WriteString(t.String())
	if list := r.After.Busiest; len(list) > 0 {
		b.WriteString("\n")
		t := terminal.NewTable(s, "BUSIEST MINUTES", "STARTS", "RUNNING", "JOBS")
		for _, m := range list {
			t.Add(terminal.Plain(m.At.In(r.From.Location()).Format(planTime)), terminal.Plain(strconv.Itoa(m.Starts)), terminal.Plain(strconv.Itoa(m.Running)),
				terminal.Plain(strings.Join(m.Jobs, ", ")+more(m.MoreJobs)))
		}
		b.WriteString(t.String())
	}
	if len(r.Jobs) > 0 {
		b.WriteString("\n")
		t := terminal.NewTable(s, "JOB", "CHANGE", "FIRES", "", "WHAT")
		for n := range r.Jobs[:min(len(r.Jobs), mostPlanned)] {
			j := &r.Jobs[n]
			name := terminal.Coloured(j.Job, terminal.Bold)
			if len(j.Worse) > 0 {
				name.Colour = terminal.Red
			}
			before, after := planFires(j)
			arrow := "→ " + after
			if r.Before == nil {
				before, arrow = after, ""
			}
			t.Add(name, terminal.Plain(words.Dash(j.Change)), terminal.Plain(before), terminal.Plain(arrow), terminal.Plain(planJob(j, r.From.Location())))
		}
		b.WriteString(t.String())
		if left := len(r.Jobs) - mostPlanned; left > 0 {
			fmt.Fprintf(&b, "%s more: --output json has all\n", words.Count(left, "job"))
		}
	}
	if len(r.Shifts) > 0 {
		b.WriteString("\n")
		for n := range r.Shifts {
			b.WriteString(s.Wrapped(planShift(&r.Shifts[n])) + "\n")
		}
	}
	b.WriteString("\n")
	if text := planDurations(r); text != "" {
		b.WriteString(text + "\n")
	}
	b.WriteString(Silent(s, r.Silent))
	if text := worsePlan(r); text != "" {
		colour := terminal.Green
		if r.Worse {
			colour = terminal.Red
		}
		b.WriteString(s.Paint(colour, text) + "\n")
	}
	return b.String()
}

// EditPlan says in three lines what an edit does to a job within the next days.
func EditPlan(s terminal.Style, e *forecast.Edit) string {
	how := "by the history"
	if !e.Known {
		how = "as is assumed: the history has no run"
	}
	if !e.Known && len(e.Silent) > 0 {
		how = "as is assumed: what answers of the history has no run"
	}
	second := fmt.Sprintf("overlaps: %d before, %d after; instants without a run: %d before, %d after", e.OverlapsBefore, e.OverlapsAfter, e.LostBefore, e.LostAfter)
	if e.Worse() {
		second = s.Paint(terminal.Red, second)
	}
	return fmt.Sprintf("fires in the next %d days: %d before, %d after (%d added, %d gone)\n%s\na run takes %s, %s\n",
		forecast.EditDays, e.FiresBefore, e.FiresAfter, e.FiresAdded, e.FiresGone, second, words.Duration(e.Takes), how) + Silent(s, e.Silent)
}

// PlanMarkdown is a plan as Markdown, for a pull request.
func PlanMarkdown(r *forecast.Report) string {
	var b strings.Builder
	row := func(cells ...string) {
		for n := range cells {
			cells[n] = markdown(cells[n])
		}
		b.WriteString("| " + strings.Join(cells, " | ") + " |\n")
	}
	head := func(cells ...string) {
		row(cells...)
		b.WriteString(strings.Repeat("| --- ", len(cells)) + "|\n")
	}
	b.WriteString("**Plan** of " + markdown(planHead(r)) + "\n\n")
	if r.Before != nil {
		head("", "before", "after")
	} else {
		head("", "plan")
	}
	for _, x := range planRows(r) {
		if r.Before != nil {
			row(x.what, x.before, x.after)
		} else {
			row(x.what, x.after)
		}
	}
	if len(r.Jobs) > 0 {
		b.WriteString("\n")
		head("job", "change", "fires before", "fires after", "what")
		for n := range r.Jobs[:min(len(r.Jobs), mostPlanned)] {
			j := &r.Jobs[n]
			before, after := planFires(j)
			row(j.Job, words.Dash(j.Change), before, after, planJob(j, r.From.Location()))
		}
		if left := len(r.Jobs) - mostPlanned; left > 0 {
			fmt.Fprintf(&b, "\n%s more are not shown.\n", words.Count(left, "job"))
		}
	}
	if len(r.Shifts) > 0 {
		b.WriteString("\n")
		for n := range r.Shifts {
			b.WriteString("- " + markdown(planShift(&r.Shifts[n])) + "\n")
		}
	}
	texts := []string{planDurations(r), worsePlan(r)}
	for _, silent := range r.Silent {
		texts = append(texts, strings.TrimSuffix(Silent(terminal.Style{}, []string{silent}), "\n"))
	}
	for _, text := range texts {
		if text != "" {
			b.WriteString("\n" + markdown(strings.ToUpper(text[:1])+text[1:]) + ".\n")
		}
	}
	return b.String()
}

// markdown is a text of which nothing has a meaning in Markdown.
var markdownEscapes = strings.NewReplacer(`\`, `\\`, "|", `\|`, "`", "\\`", "*", `\*`, "_", `\_`, "<", "&lt;", "[", `\[`, "\n", " ", "@", "&#64;")

func markdown(text string) string { return markdownEscapes.Replace(text) }
