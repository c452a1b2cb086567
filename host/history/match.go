package history

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/config/ceiling"
	"github.com/wasmjob/wasmjob/host/event"
	"github.com/wasmjob/wasmjob/host/event/operation"
	"github.com/wasmjob/wasmjob/internal/text/words"
)

// Check is an error that wraps [ErrFilter] if no record can be found by the filter
// because it is wrong. It sets the limit.
func (f *Filter) Check() error {
	for _, pattern := range f.Jobs {
		if _, err := path.Match(pattern, ""); err != nil {
			return fmt.Errorf("%w: jobs: found %.80q, expected a name or a pattern such as team-a-*", ErrFilter, pattern)
		}
	}
	if f.Limit < 0 || f.Limit > MaxLimit {
		return fmt.Errorf("%w: limit: found %d, expected 1 to %d", ErrFilter, f.Limit, MaxLimit)
	}
	f.Limit = cmp.Or(f.Limit, DefaultLimit)
	if !f.From.IsZero() && !f.To.IsZero() && f.To.Before(f.From) {
		return fmt.Errorf("%w: to: found %s, expected a time after from, %s", ErrFilter, f.To.Format(time.RFC3339), f.From.Format(time.RFC3339))
	}
	return nil
}

// OnlyJob returns the job's name if the filter's pattern matches one name only. A backslash quotes the next
// character.
func (f *Filter) OnlyJob() (name string, ok bool) {
	if len(f.Jobs) != 1 {
		return "", false
	}
	var b strings.Builder
	for i := 0; i < len(f.Jobs[0]); i++ {
		c := f.Jobs[0][i]
		switch {
		case c == '*' || c == '?' || c == '[':
			return "", false
		case c == '\\' && i+1 < len(f.Jobs[0]):
			i++
			c = f.Jobs[0][i]
		}
		b.WriteByte(c)
	}
	return b.String(), true
}

// within reports whether a time is within the filter's bounds.
func (f *Filter) within(t time.Time) bool {
	return (f.From.IsZero() || !t.Before(f.From)) && (f.To.IsZero() || t.Before(f.To))
}

func (f *Filter) job(name string) bool {
	return len(f.Jobs) == 0 || slices.ContainsFunc(f.Jobs, func(p string) bool { return p == name || ceiling.Matches(p, name) })
}

// fire reports whether a record belongs to the filter's fire.
func (f *Filter) fire(instant time.Time, trigger int64) bool {
	if f.Trigger != 0 {
		return f.Trigger == trigger
	}
	return f.Instant.IsZero() || f.Instant.UnixMilli() == instant.UnixMilli()
}

func (f *Filter) outcome(failed bool, o abi.Outcome) bool {
	return (!f.Failed || failed) && (len(f.Outcomes) == 0 || slices.Contains(f.Outcomes, o))
}

func (f *Filter) host(id string) bool { return f.Host == "" || event.Names(f.Host, id) }

func (f *Filter) item(n int) bool { return f.Item == nil || *f.Item == n }

// text reports whether one of the texts contains the filter's.
func (f *Filter) text(texts ...string) bool {
	if f.Text == "" {
		return true
	}
	want := strings.ToLower(f.Text)
	return slices.ContainsFunc(texts, func(s string) bool { return strings.Contains(strings.ToLower(s), want) })
}

// MatchRun reports whether the filter finds a run. Kinds and Level have no meaning for it.
func (f *Filter) MatchRun(r *Run) bool {
	return f.job(r.Job) && f.host(r.Host) && f.item(r.Item) && (f.Run == "" || f.Run == r.ID) && f.fire(r.Instant, r.Trigger) &&
		f.outcome(r.Failed(), r.Outcome) && (!f.Running || r.Ended.IsZero()) && f.within(r.At()) && f.text(r.Message)
}

// MatchFire reports whether the filter finds a fire.
func (f *Filter) MatchFire(x *Fire) bool {
	if f.Item != nil && !slices.Contains(x.Items, *f.Item) {
		return false
	}
	if f.Run != "" && !slices.ContainsFunc(x.Items, func(n int) bool { return x.runID(n) == f.Run }) {
		return false
	}
	return f.job(x.Job) && (f.Host == "" || slices.ContainsFunc(x.Hosts, f.host)) && f.fire(x.Instant, x.Trigger) &&
		f.outcome(x.Failed+x.Unknown > 0, x.Result()) && (!f.Running || x.Running > 0) && f.within(x.Begun) && f.text(x.Message)
}

// runID returns the id of an item's run, as tree.RunID makes it.
func (f *Fire) runID(item int) string { return f.Key().String() + "/" + strconv.Itoa(item) }

// RunIDs returns the ids of its items' runs.
func (f *Fire) RunIDs() []string {
	ids := make([]string, len(f.Items))
	for i, item := range f.Items {
		ids[i] = f.runID(item)
	}
	return ids
}

// MatchEvent reports whether the filter finds an event.
func (f *Filter) MatchEvent(e *event.Event) bool {
	if f.Item != nil && (e.Item == nil || *e.Item != *f.Item) && !slices.Contains(e.Items, *f.Item) {
		return false
	}
	return f.job(e.Job) && f.host(e.Host) && (f.Run == "" || f.Run == e.RunID) && f.fire(e.Instant, e.Trigger) &&
		f.outcome(e.Outcome.Failed(), e.Outcome) && (len(f.Kinds) == 0 || slices.Contains(f.Kinds, e.Kind)) && f.within(e.Time) && f.text(e.Reason)
}

// MatchLine reports whether the filter finds a line.
func (f *Filter) MatchLine(l *Line) bool {
	return f.job(l.Job) && f.host(l.Host) && f.item(l.Item) && (f.Run == "" || f.Run == l.RunID) && l.Level >= f.Level &&
		f.within(l.Time) && f.text(append([]string{l.Message}, l.Attrs...)...)
}

// CheckOperation is an error if no change can have an operation that [Filter.What] wants. settings are those that
// can be edited; nil: any.
func CheckOperation(text string, settings []string) error {
	wanted := strings.TrimPrefix(text, "!")
	known := operation.Records()
	if slices.ContainsFunc(known, func(o string) bool { return names(wanted, o) }) {
		return nil
	}
	if edited, edit := strings.CutPrefix(wanted, "edit "); edit {
		for _, name := range strings.Split(edited, ",") {
			if name = strings.TrimSpace(name); settings != nil && name != noSettings && !slices.Contains(settings, name) {
				return fmt.Errorf("found %q, which is no setting, expected edit and names of settings, such as edit cron, timeZone%s", words.Clip(name), words.Suggest(name, settings))
			}
		}
		return nil
	}
	all := slices.Clone(known)
	for _, o := range known {
		first, _, _ := strings.Cut(o, " ")
		all = append(all, first)
	}
	return fmt.Errorf("found %q, expected %s, the first words of one, or edit and settings, such as edit cron%s", words.Clip(text), strings.Join(known, ", "), words.Suggest(wanted, all))
}

// noSettings stands in an edit's name for a change of the configuration that changed no setting.
const noSettings = "config"

// names reports whether a text names an operation: whole, by its first words, or an edit by some of
// its settings.
func names(text, operation string) bool {
	if text == operation || strings.HasPrefix(operation, text+" ") {
		return text != ""
	}
	some, edit := strings.CutPrefix(text, "edit ")
	all, edited := strings.CutPrefix(operation, "edit ")
	settings := strings.Split(all, ", ")
	return edit && edited && !slices.ContainsFunc(strings.Split(some, ","), func(s string) bool { return !slices.Contains(settings, strings.TrimSpace(s)) })
}

// what reports whether the filter wants an operation.
func (f *Filter) what(operation string) bool {
	wanted, any := false, false
	for _, w := range f.What {
		if left, out := strings.CutPrefix(w, "!"); !out {
			wanted, any = wanted || names(w, operation), true
		} else if names(left, operation) {
			return false
		}
	}
	return wanted || !any
}

// MatchChange reports whether the filter finds a change.
func (f *Filter) MatchChange(c *Change) bool {
	if f.Item != nil && (c.Item == nil || *c.Item != *f.Item) {
		return false
	}
	who := f.Who == "" || strings.Contains(strings.ToLower(c.Who), strings.ToLower(f.Who))
	return who && f.what(c.What) && (f.Trigger == 0 || f.Trigger == c.Trigger) && f.job(c.Job) && f.host(c.Host) && (!f.Failed || c.Error != "") && f.within(c.Time) &&
		f.text(c.Who, c.What, c.Job, c.Before, c.After, c.Why, c.Error)
}
