package verify

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/wasmjob/wasmjob/host/event"
	"github.com/wasmjob/wasmjob/internal/text/reason"
)

// promise is a run that a reason announced: a skip that says that the item runs
// again is kept by that run, and not by being said.
type promise struct {
	instant time.Time // the run is for this one, or a newer one
	mark    mark      // who said so, first
	// since is from when on nothing was in the way of the run, as far as was looked
	// at: no run of the item was under way, some host with a live session had the job,
	// and it was not disabled or paused on all servers.
	since time.Time
	// limit is that under which the item waits; empty if it does not.
	limit string
}

// owe takes a promise. Of several, the oldest counts.
func (j *job) owe(n int, e *event.Event, m mark) {
	if e.Trigger != 0 {
		return
	}
	if _, already := j.promises[n]; !already {
		j.promises[n] = &promise{instant: later(e.Instant, e.Through), mark: m, since: m.time}
	}
}

// waitsUnder takes note that a promised run waits for other runs under a limit or a rate, of whichever job.
func (c *Checker) waitsUnder(j *job, n int, e *event.Event) {
	p := j.promises[n]
	if p == nil || !e.Because.Has(reason.WaitsForPermit, reason.WaitsForRate) {
		return
	}
	p.limit = e.Because.Arg("name")
	if c.limited == nil {
		c.limited = make(map[string]map[*job]bool)
	}
	if c.limited[p.limit] == nil && len(c.limited) < mostLimits {
		c.limited[p.limit] = make(map[*job]bool)
	}
	if c.limited[p.limit] != nil {
		c.limited[p.limit][j] = true
	}
}

// mostLimits is how many limits are remembered.
const mostLimits = 10_000

// underLimit reports whether items of the job have waited under a limit or a rate.
func (c *Checker) underLimit(j *job) bool {
	for _, jobs := range c.limited {
		if jobs[j] {
			return true
		}
	}
	return false
}

// limitRuns reports whether an item goes on of a job whose items have waited under the limit.
func (c *Checker) limitRuns(limit string) bool {
	for j := range c.limited[limit] {
		for n := range j.items {
			if j.underWay(n) {
				return true
			}
		}
	}
	return false
}

// settled takes note of a run, or of a reason that promises none, for an instant
// or all up to there.
func (j *job) settled(n int, trigger int64, instant time.Time) {
	if p := j.promises[n]; p != nil && trigger == 0 && !instant.Before(p.instant) {
		delete(j.promises, n)
	}
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// demand reports what should have come by now: runs that were promised, and word
// of the runs of hosts that died.
func (c *Checker) demand(j *job, now time.Time) {
	if now.Sub(j.demandedAt) < c.o.Settle/20 {
		return
	}
	j.demandedAt = now
	c.demandRuns(j, now)
	var unheard []int
	for n, it := range j.items {
		if len(it.pending) > 0 {
			unheard = append(unheard, n)
		}
	}
	slices.Sort(unheard)
	for _, n := range unheard {
		c.demandWord(j, j.items[n], now)
	}
}

// demandRuns reports runs that were promised, that nothing was in the way of for
// long enough, and that did not come.
func (c *Checker) demandRuns(j *job, now time.Time) {
	for _, n := range slices.Sorted(maps.Keys(j.promises)) {
		p := j.promises[n]
		if !j.trustedBut(nil) || j.underWay(n) || j.disabledAt.After(j.begunAt) || (p.limit != "" && c.limitRuns(p.limit)) {
			p.since = now
			continue
		}
		free := later(p.since, j.trustedFrom)
		if now.Sub(free) <= c.o.Settle {
			continue
		}
		delete(j.promises, n)
		if j.java && !j.had(n, p.mark.time, now) {
			continue // a Java host has had it since
		}
		id := fireID{instant: p.instant.UnixMilli()}
		if !j.skippedAt.Before(p.instant) && j.skippedAt.After(j.begunAt) {
			continue // by hosts that own nothing, and by no others: the job is disabled
		}
		f := fire{id: id}
		if c.o.Completed != nil && c.o.Completed(f.runID(j, n)) {
			continue // no host lived to report it
		}
		c.report.Checked[Accounted]++
		c.find(Finding{Invariant: Accounted, Class: Violated, Job: j.name, Item: n, RunID: f.runID(j, n),
			Text: fmt.Sprintf("a run was promised for %s or later, nothing was in its way for %s, and neither it nor a reason came",
				id, now.Sub(free).Round(time.Millisecond)),
			Lines: linesOf(p.mark)})
	}
}

// underWay reports whether a run of the item goes on, as far as is known.
func (j *job) underWay(n int) bool {
	it := j.items[n]
	return it != nil && slices.ContainsFunc(it.runs, func(r *run) bool {
		return r.done.kind == "" && r.skipped.kind == "" && !r.instance.lost && !r.instance.process.over
	})
}

// demandWord reports runs whose host died and of which no line says what became
// of them, though there was time: the item has begun again and its record said
// that the run was open, or it is known that no completion took effect.
func (c *Checker) demandWord(j *job, it *item, now time.Time) {
	if j.skippedAt.After(j.begunAt) { // hosts with the job own nothing: all servers are disabled, and none may take over
		for k := range it.pending {
			it.pending[k].since = now
		}
	}
	it.pending = slices.DeleteFunc(it.pending, func(p pending) bool {
		known := c.o.Completed != nil && !c.o.Completed(p.finding.RunID)
		switch {
		case p.over.kind != "" && now.Sub(p.over.time) > c.o.Settle:
		case known && now.Sub(later(p.since, j.activeSince)) > c.o.Settle && j.trustedBut(nil):
			p.finding.Class = Violated
			p.finding.Text += "; no host took the run over, nor wrote that it is lost"
		default:
			return false
		}
		c.unproven(p)
		return true
	})
}

// stillRuns holds a host to its word that an item runs on it.
func (c *Checker) stillRuns(j *job, it *item, in *instance, m mark) {
	if !in.process.whole {
		return // the begin may stand in lines that are gone
	}
	c.report.Checked[Accounted]++
	if !slices.ContainsFunc(it.runs, func(r *run) bool { return r.instance == in && r.done.kind == "" && r.skipped.kind == "" }) {
		c.find(Finding{Invariant: Accounted, Class: Violated, Job: j.name, Item: it.number,
			Text: "the host says that the item still runs on it, and no run of the item is open there", Lines: linesOf(m)})
	}
}
