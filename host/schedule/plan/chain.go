package plan

import (
	"slices"
	"time"

	"github.com/wasmjob/wasmjob/coordination/tree"
	"github.com/wasmjob/wasmjob/host/schedule/due"
)

// chain is the state of a job with earlier or later jobs.
type chain struct {
	before []*playing // in the order of Job.After; nil for one that is not played
	after  []*playing
	ends   tree.Ends
	// dropped are items that do not run in a fire in which no run has ended yet, by instant in Unix
	// milliseconds.
	dropped map[int64]tree.Ranges
	// answered are the earlier jobs' instants that this job has followed or refused. delays say how much later
	// than its instant each came.
	answered map[int64]bool
	delays   map[int64]time.Duration
	wakes    time.Duration // when the next wait is over; 0 if there is none
}

func (c *chain) follows() bool { return c != nil && c.before != nil }

func (j *playing) chained() *chain {
	if j.chain == nil {
		j.chain = &chain{dropped: make(map[int64]tree.Ranges), answered: make(map[int64]bool), delays: make(map[int64]time.Duration)}
	}
	return j.chain
}

// follows links a job to its earlier jobs.
func (p *player) follows(j *playing, named map[string]*playing) {
	if len(j.After) == 0 {
		return
	}
	c := j.chained()
	for _, a := range j.After {
		before := named[a.Job]
		c.before = append(c.before, before)
		if before != nil {
			b := before.chained()
			b.after = append(b.after, j)
			b.ends.Since = p.o.From.UnixMilli() - 1
		}
	}
}

// settle notes how the run of an item has ended, if other jobs come after its job.
func (p *player) settle(j *playing, n int, instant int64, success bool) {
	if j.chain == nil || len(j.chain.after) == 0 {
		return
	}
	s := tree.Settled{Fire: tree.Fire{Instant: instant}, Total: len(j.items)}
	if one := (tree.Ranges{{From: n, To: n}}); success {
		s.OK = one
	} else {
		s.Failed = one
	}
	p.note(j, s)
}

// drop notes that an item does not run in a fire, if other jobs come after its job.
func (p *player) drop(j *playing, n int, instant int64) {
	if j.chain != nil && len(j.chain.after) > 0 {
		j.chain.dropped[instant] = j.chain.dropped[instant].With(tree.Ranges{{From: n, To: n}})
	}
}

// review notes items that do not run in fires in which another item has ended a run, as the engine does: as
// soon as the item begins a newer fire, or has none to run. Other jobs do not follow a fire in which no run
// ends.
func (p *player) review(j *playing) {
	c := j.chain
	if c == nil || len(c.dropped) == 0 {
		return
	}
	for _, e := range c.ends.Open() {
		var known tree.Ranges
		for _, r := range c.dropped[e.Instant] {
			for n := r.From; n <= r.To; n++ {
				if it := &j.items[n]; it.Next() == nil || it.busy && it.instant > e.Instant {
					known = known.With(tree.Ranges{{From: n, To: n}})
				}
			}
		}
		if len(known) > 0 {
			c.dropped[e.Instant] = c.dropped[e.Instant].Without(known)
			p.note(j, tree.Settled{Fire: e.Fire(), Total: len(j.items), Failed: known})
		}
	}
	for instant := range c.dropped { // fires before an ended one are no longer noted
		if slices.ContainsFunc(c.ends.Fires, func(e tree.End) bool { return e.Ended != 0 && e.Instant >= instant }) {
			if open, noted := c.ends.Find(tree.Fire{Instant: instant}); !noted || open.Ended != 0 {
				delete(c.dropped, instant)
			}
		}
	}
}

func (p *player) note(j *playing, s tree.Settled) {
	ends, changed := j.chain.ends.Settle(p.at(p.now).UnixMilli(), s)
	if j.chain.ends = ends; !changed {
		return
	}
	for _, follower := range j.chain.after {
		p.queue.push(occurrence{at: p.now, kind: follows, job: follower.order})
	}
}

// follow begins a job for fires of the earlier jobs that ended as required.
func (p *player) follow(j *playing) {
	c := j.chain
	before := make([]due.Before, len(c.before))
	for n, b := range c.before {
		before[n].After = j.After[n]
		if b == nil {
			continue
		}
		before[n].Ends = tree.Ends{Since: b.chain.ends.Since}
		for _, e := range b.chain.ends.Fires {
			if !c.answered[e.Instant] || len(c.before) > 1 { // with several, a later fire shows that an earlier one will not come
				before[n].Ends.Fires = append(before[n].Ends.Fires, e)
			}
		}
	}
	now := p.at(p.now)
	f := due.Follow(now, before)
	var starts []due.Start
	for _, s := range f.Starts {
		if instant := s.At.UnixMilli(); !c.answered[instant] {
			c.answered[instant], c.delays[instant] = true, now.Sub(s.At)
			starts = append(starts, s)
		}
	}
	for _, u := range f.Unmet {
		if c.answered[u.Fire.Instant] {
			continue
		}
		c.answered[u.Fire.Instant] = true
		why := Unmet
		if u.Late {
			why = Late
		}
		p.comes(j, u.Fire.Time())
		for n := range j.items {
			p.lose(j, n, u.Fire.Instant, why)
		}
	}
	for n, s := range starts {
		if n < len(starts)-1 {
			p.merge(j, s.At)
			continue
		}
		p.arrive(j, s.At)
	}
	if wakes := f.At.Sub(p.o.From); !f.At.IsZero() && wakes != c.wakes {
		c.wakes = wakes
		p.queue.push(occurrence{at: wakes, kind: follows, job: j.order})
	}
}
