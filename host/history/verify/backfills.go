package verify

import (
	"fmt"
	"time"

	"github.com/wasmjob/wasmjob/coordination/tree"
	"github.com/wasmjob/wasmjob/host/event"
)

// backfill is a job's newest backfill, as its hosts have reported it.
type backfill struct {
	since time.Time // which one it is
	done  int       // how many instants were given out
	round fireID    // of the newest
	mark  mark      // that reported it first
}

// given takes that an instant of a backfill was given out, also if another host has reported it before. Each of its items
// has a run, or a reason, when the next one is given out: until then it may wait for what still runs.
func (c *Checker) given(j *job, e *event.Event, m mark) {
	if e.Backfill == nil || e.Trigger == 0 {
		return
	}
	was := j.backfill
	now := &backfill{e.Backfill.Since, e.Backfill.Done, idOf(e.Instant, e.Trigger), m}
	if was != nil && was.since.Equal(now.since) {
		if now.done < was.done { // a host that was slow
			return
		}
		c.report.Checked[Accounted]++
		switch {
		case now.done == was.done && now.round == was.round:
			return
		case now.done == was.done:
			c.find(Finding{Invariant: Accounted, Class: Violated, Job: j.name, Item: -1, Lines: linesOf(was.mark, m),
				Text: fmt.Sprintf("instant number %d of a backfill was given out twice, as %s and as %s", now.done, was.round, now.round)})
		case now.done > was.done+1:
			c.find(Finding{Invariant: Accounted, Class: Violated, Job: j.name, Item: -1, Lines: linesOf(was.mark, m),
				Text: fmt.Sprintf("there is no record of %d of the instants of a backfill, from number %d on", now.done-was.done-1, was.done+1)})
		}
	}
	j.begunAll(c.now)
	j.backfill = now
	f := c.up(j, now.round, e.Instant)
	f.expected, f.waits, f.only = m, true, tree.Ranges(nil)
	if e.Total > 0 && e.Total <= tree.MaxItems {
		f.total = j.least(m.time, e.Total)
	}
	if e.Args != nil && e.Args.Items != "" {
		f.only, _ = tree.ParseRanges(e.Args.Items) // a host has written them
	}
}

// ended handles the end of a backfill. If all its instants were given out, each item has begun the last one.
func (c *Checker) ended(j *job, e *event.Event) {
	if e.Backfill != nil && j.backfill != nil && j.backfill.since.Equal(e.Backfill.Since) {
		j.begunAll(c.now)
		j.backfill = nil
	}
}

// begunAll schedules the verdict on the backfill's newest instant, Settle from now.
func (j *job) begunAll(now time.Time) {
	if j.backfill == nil {
		return
	}
	if f := j.fires[j.backfill.round]; f != nil {
		f.waits, f.due = false, now
	}
}

// asks reports whether the fire is for an item.
func (f *fire) asks(item int) bool { return f.only == nil || f.only.Contains(item) }
