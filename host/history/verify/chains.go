package verify

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/wasmjob/wasmjob/host/event"
)

// follow records the jobs that a job comes after.
func (c *Checker) follow(j *job, e *event.Event) {
	var terms struct {
		After string `json:"wasm.after"`
	}
	var causes []struct{ Job string }
	if e.Settings != nil && json.Unmarshal([]byte(e.Settings.Terms), &terms) == nil {
		_ = json.Unmarshal([]byte(terms.After), &causes) // without them, or unreadable, it comes after none
	}
	var after []string
	for _, cause := range causes {
		after = append(after, cause.Job)
	}
	if slices.Equal(after, j.after) {
		return
	}
	for _, cause := range j.after {
		delete(c.followers[cause], j)
	}
	for _, cause := range after {
		if c.followers[cause] == nil {
			c.followers[cause] = make(map[*job]bool)
		}
		c.followers[cause][j] = true
	}
	j.after, j.configured = after, e.Time
}

// completedOf takes note that a completion of an item of a fire took effect. When all have, the jobs that come after this
// one alone, and that have had fires of it since any of them was changed, are to have a fire for the same instant: runs, or
// the reasons why not.
func (c *Checker) completedOf(j *job, f *fire, item int, m mark) {
	if f == nil || f.id.trigger != 0 || f.total == 0 || f.late || len(c.followers[j.name]) == 0 {
		return
	}
	if f.completed == nil {
		f.completed = make(map[int]bool)
	}
	if f.completed[item] = true; len(f.completed) < f.total {
		return
	}
	for link := range c.followers[j.name] {
		since := latestOf(j.changed, j.divided, link.changed, link.divided, link.configured, link.activeSince)
		if len(link.after) > 1 || link.begunAt.IsZero() || !link.lastFire.time.After(since) {
			continue
		}
		if next := c.up(link, f.id, f.instant); next.expected.kind == "" && next.seen.kind == "" {
			next.expected, next.due = m, m.time
		}
	}
}

func latestOf(times ...time.Time) (last time.Time) {
	for _, t := range times {
		last = later(last, t)
	}
	return last
}
