package engine

import (
	"fmt"
	"slices"
	"time"

	"github.com/wasmjob/wasmjob/coordination"
	"github.com/wasmjob/wasmjob/coordination/jobconfig"
	"github.com/wasmjob/wasmjob/coordination/recipe/latch"
	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/tree"
	"github.com/wasmjob/wasmjob/host/config/timetable"
	"github.com/wasmjob/wasmjob/host/event"
	"github.com/wasmjob/wasmjob/internal/text/reason"
)

// What a job does only because Java hosts of ElasticJob may be in it.

const (
	// longestQueue is how long a host waits in one of ElasticJob's latches
	// behind the same host before it goes ahead.
	longestQueue = 30 * time.Second
	// javaGrace is how long what a host that died was running is left to Java
	// hosts to mark, and for how long a Java host may be away: after a lost
	// connection it recreates its instance node.
	javaGrace = 2 * time.Second
)

// queue is a place in a latch, and since when the host waits there for whom.
type queue struct {
	*latch.Line
	behind string
	since  time.Time
}

func (p *queue) reset() { *p.Line, p.behind, p.since = latch.Line{}, "", time.Time{} }

// overdue goes ahead of somebody who keeps this host waiting too long. Nothing
// of ours relies on the latch alone.
func (p *queue) overdue(j *job, now moment) {
	q, waiting := p.Waiting()
	switch {
	case !waiting:
		p.behind = ""
	case q.Path != p.behind:
		p.behind, p.since = q.Path, now.Time
	case !p.Around && !now.Before(p.since.Add(longestQueue)):
		p.Around, p.Behind = true, ""
		j.pace.looked, j.recovery.at = true, soonest(j.recovery.at, now.Time)
		what := event.WaitElection
		if p == &j.takers {
			what = event.WaitFailover
		}
		e := &event.WaitError{What: what, For: "its turn in ElasticJob's latch", After: now.Sub(p.since),
			Then: fmt.Sprintf("node %s has stood in the way for %s: going ahead of its owner", q.Path, now.Sub(p.since).Round(time.Second))}
		j.Expired(e)
	}
}

// until is when the waiting has taken too long; zero if the host does not wait.
func (p *queue) until() time.Time {
	if _, waiting := p.Waiting(); !waiting || p.behind == "" {
		return time.Time{}
	}
	return p.since.Add(longestQueue)
}

// sightings are when the loop saw first, by Go's own clock, that a division is asked for, and that a division defers items.
// View.FlagSeen and View.DeferredSeen say the same by the wall clock, which may be set meanwhile.
type sightings struct{ flag, deferred time.Time }

// note dates what a snapshot shows for the first time.
func (s *sightings) note(v *coordination.View, now moment) {
	if v.Necessary && v.FlagSeen.IsZero() {
		v.FlagSeen, s.flag = now.wall, now.Time
	}
	if len(v.Division.Deferred) > 0 && v.DeferredSeen.IsZero() {
		v.DeferredSeen, s.deferred = now.wall, now.Time
	}
}

// date says again by the wall clock, as it goes now, when that was.
func (s *sightings) date(v *coordination.View, now moment) {
	if !v.FlagSeen.IsZero() {
		v.FlagSeen = now.instant(s.flag)
	}
	if !v.DeferredSeen.IsZero() {
		v.DeferredSeen = now.instant(s.deferred)
	}
}

// seeJava draws conclusions from a snapshot: what changed about Java hosts.
func (j *job) seeJava(now moment, before coordination.View) {
	v := &j.member.View
	j.sightings.note(v, now)
	if !before.Exists || !v.IsJanitor() {
		return
	}
	looksAfter := !before.IsJanitor() && (v.Division.Java || len(v.Division.Foreigners) > 0)
	for _, id := range before.Java() {
		looksAfter = looksAfter || (!slices.Contains(v.Instances, id) && !slices.Contains(v.Members, id))
	}
	if looksAfter {
		j.sweeping.at = soonest(j.sweeping.at, now.Add(javaGrace)) // it may have left something running
	}
}

// watchExtra watches what matters for a while: servers and a running mark of Java
// hosts, who is before this host in a latch, and whether operators kill runs of
// the job.
func (j *job) watchExtra(now moment) {
	want := j.member.View.Extra()
	for _, line := range []*queue{&j.election, &j.takers} {
		if q, waiting := line.Waiting(); waiting {
			want = append(want, q)
		}
		line.overdue(j, now)
	}
	var held tree.Items
	for _, it := range j.items.sortedActive(func(it *item) bool {
		return it.held && it.Next() != nil && j.member.View.Mixed() && !j.denials.waits(now, it.number)
	}) {
		held = tree.Items{it.number}
		want = append(want, coordination.ItemMarks(j.member.Layout, it.number)...) // one at a time
		break
	}
	if j.killing.wants(now) {
		want = append(want, tree.KillQuery(j.member.Layout))
	}
	if slices.Equal(want, j.watch.extraFor) {
		return
	}
	j.endExtra()
	if len(want) == 0 {
		return
	}
	if err := j.watch.extra.open(j.work, j.member.Registry, want...); err != nil {
		if j.denials.denyWatch(now, j.log, held, func(n int) []registry.Query { return coordination.ItemMarks(j.member.Layout, n) }, err) {
			j.watchExtra(now) // the next one
			return
		}
		j.setback(now, "watching what Java hosts do, or operators", err)
		return
	}
	j.watch.extraFor = want
}

// seeExtra takes a snapshot of the extra watch.
func (j *job) seeExtra(now moment, s registry.Snapshot) {
	j.member.View = j.member.View.WithExtra(s)
	j.outside.See(s.Raise(j.term.registry.Base()), j.member.Layout, j.member.Self)
	j.killing.observe(s)
	if _, kills := s[tree.KillQuery(j.member.Layout)]; kills && len(s) == 1 {
		return
	}
	for _, line := range []*queue{&j.election, &j.takers} {
		if q, waiting := line.Waiting(); waiting {
			if n, asked := s[q]; asked && !n.Exists {
				line.Behind = ""
				if line == &j.takers {
					j.recovery.at = soonest(j.recovery.at, now.Time)
				}
			}
		}
	}
	for it := range j.items.allActive() {
		marks := coordination.ItemMarks(j.member.Layout, it.number)
		if _, watched := s[marks[0]]; it.held && watched && !slices.ContainsFunc(marks, func(q registry.Query) bool { return s[q].Exists }) {
			for other := range j.items.allActive() {
				other.held = false
			}
			break
		}
	}
	j.pace.looked = true
}

func (j *job) endExtra() {
	j.watch.extra.close()
	j.watch.extraFor = nil
	j.member.View = j.member.View.WithExtra(nil)
}

// lookForJava looks whether Java hosts would follow the schedule and the policies of the job.
func (c *cronText) lookForJava(config jobconfig.Configuration) {
	c.javaErr = timetable.JavaCompatible(config)
}

// javaRefuses says why the schedule is not followed while Java hosts are in
// the job: they would fire at other instants, or not at all, or do otherwise with instants
// that cannot begin when they come.
func (p *place) javaRefuses() reason.Reason {
	if p.cron.javaErr == nil || !p.member.View.Mixed() {
		return reason.Reason{}
	}
	return reason.New(reason.JavaInJob, p.member.View.Java()[0], p.cron.javaErr)
}

// awaitQuiet leaves out items that a Java host may be about to run again, though nothing shows it: see
// [coordination.Member.Quiet]. They are due, and begin JavaLag after this host has looked, or when the marks
// of the other host are gone. waiting are those.
func (rn *runner) awaitQuiet(now moment, id tree.Fire, items []*item, trigger bool) (rest []*item, waiting tree.Items) {
	if !rn.member.MayRepeat() {
		return items, nil
	}
	var ask tree.Items
	for _, it := range items {
		if it.quietAt.IsZero() {
			ask = append(ask, it.number)
		}
	}
	var out coordination.Quieted
	var err error
	if len(ask) > 0 {
		out, err = rn.member.Quiet(rn.work, ask)
		rn.denials.note(now, "", out.Denied, rn.log)
	}
	for _, it := range items {
		why, refused := out.Refused[it.number]
		switch {
		case err != nil || out.Stale:
			rn.dues.owe(it, id)
		case out.Denied[it.number] != nil:
			rn.deny(it, id)
		case refused:
			rn.refused(now, it, id, why, coordination.Begun{}, trigger)
		default:
			if it.quietAt.IsZero() {
				it.state.Misfire, it.quietAt = false, now.Add(coordination.JavaLag)
			}
			if !now.Before(it.quietAt) {
				rest = append(rest, it)
				continue
			}
			if rn.dues.owe(it, id); !rn.quietAt.After(now.Time) || it.quietAt.Before(rn.quietAt) {
				rn.quietAt = it.quietAt
			}
		}
		waiting = append(waiting, it.number)
	}
	if err != nil {
		rn.failed(now, "looking at items beside Java hosts", err)
	} else if out.Stale {
		rn.foundStale(now)
	}
	return rest, waiting
}
