package cluster

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/wasmjob/wasmjob/host/engine"
	"github.com/wasmjob/wasmjob/host/event/operation"
	"github.com/wasmjob/wasmjob/host/history"
)

// Paused is who has paused a job, or stopped or removed it, and why.
type Paused struct {
	// By is the user, At is when.
	By string    `json:"by"`
	At time.Time `json:"at"`
	// Why is the reason that was given.
	Why string `json:"why,omitempty"`
	// Until is when it ends by itself; zero: never, or that is not known.
	Until time.Time `json:"until,omitzero"`
}

// pausedBy returns who has paused a job, from the registry's newest word on hosts that are in that state. Nil:
// unknown.
func pausedBy(parts []part, state engine.JobState) *Paused {
	var last *engine.Said
	for _, p := range parts {
		if s := p.Said; p.State == state && s != nil && s.By != "" && (last == nil || s.Since.After(last.Since)) {
			last = s
		}
	}
	if last == nil {
		return nil
	}
	return &Paused{last.By, last.Since, last.Why, last.Until}
}

// Pause is the newest change on record by which a job was paused, or runs again.
type Pause struct {
	Paused
	// Job is the job's name; or disabledAll or stoppedAll, if it was about all jobs of a host.
	Job string `json:"job"`
	// Over: the job runs again.
	Over bool `json:"over,omitempty"`
}

// What a pause has in place of a job's name, which has no slash.
const (
	disabledAll = "/disabled"
	stoppedAll  = "/stopped"
)

// pauseOf returns what a change says about whether its job is paused; ok is false if nothing.
func pauseOf(c *history.Change) (p Pause, ok bool) {
	o, known := operation.Of(c.What)
	if !known || o.Row().Effect == operation.NoEffect {
		return p, false
	}
	p = Pause{Paused{By: c.Who, At: c.Time, Why: c.Why}, c.Job, o.Row().Effect == operation.Resumes}
	if c.Job == "" {
		p.Job = disabledAll
		if o.Row().Stops {
			p.Job = stoppedAll
		}
	}
	return p, c.Error == "" && c.Item == nil
}

// WhoPaused returns who has paused a paused job, from its newest changes, newest first. Nil: unknown. If the
// newest change let the job run again, an unknown other program has paused it since. If all jobs of a host were
// paused or resumed since, that may be the cause.
func (c *Cluster) WhoPaused(j *Job, changes []history.Change) *Paused {
	c.mu.RLock()
	defer c.mu.RUnlock()
	for i := range changes {
		if p, ok := pauseOf(&changes[i]); ok {
			return c.pauses.who(&p, j.State)
		}
	}
	return nil
}

// who is who has paused a job in a state, if p is what is known of it.
func (l pauses) who(p *Pause, state engine.JobState) *Paused {
	all := l[map[engine.JobState]string{engine.JobDisabled: disabledAll, engine.JobStopped: stoppedAll}[state]]
	if p.Over || all.At.After(p.At) {
		return nil
	}
	return &p.Paused
}

// pauses are the newest of each job, each with the generation in which it was learned.
type pauses map[string]numberedPause

type numberedPause struct {
	Pause
	generation uint64
}

// learn stores a pause, unless a newer one is known.
func (l pauses) learn(p Pause, generation uint64) (isNews bool) {
	if have, known := l[p.Job]; known && !p.At.After(have.At) {
		return false
	}
	l[p.Job] = numberedPause{p, generation}
	return true
}

// mostPauses bounds how many are remembered.
const mostPauses = 20_000

// trim forgets the older half if there are too many.
func (l pauses) trim() {
	if len(l) <= mostPauses {
		return
	}
	var times []time.Time
	for _, p := range l {
		times = append(times, p.At)
	}
	slices.SortFunc(times, time.Time.Compare)
	middle := times[len(times)/2]
	maps.DeleteFunc(l, func(_ string, p numberedPause) bool { return !p.At.After(middle) })
}

// Note stores changes that this host has recorded, so that lists of jobs name who has paused a job without
// reading a history. Other hosts get them when they ask this one.
func (l *Local) Note(changes ...history.Change) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.generation++
	for i := range changes {
		if p, ok := pauseOf(&changes[i]); ok {
			l.pauses.learn(p, l.generation)
		}
	}
	l.pauses.trim()
}

// mostRemembered is how many pages of changes, of history.MaxLimit each, a starting host reads for pauses, and
// how many of events for gone hosts.
const mostRemembered = 10

// Remember reads the newest changes of this host's store, when the host starts. What it cannot read stays
// unknown: pages of single jobs read the history.
func (l *Local) Remember(ctx context.Context, changes func(context.Context, history.Filter) (history.Page[history.Change], error)) {
	f := history.Filter{Limit: history.MaxLimit}
	for range mostRemembered {
		page, err := changes(ctx, f)
		l.Note(page.Records...)
		if f.After = page.Next; err != nil || f.After == "" {
			return
		}
	}
}

// notePauses takes in what a host has on record; stale are the jobs that it may be about. The caller
// holds c.mu.
func (c *Cluster) notePauses(list []Pause, stale map[string]bool) {
	for _, p := range list {
		if !c.pauses.learn(p, 0) {
			continue
		}
		if _, there := c.jobs[p.Job]; there {
			stale[p.Job] = true
		}
		if p.Job == disabledAll || p.Job == stoppedAll {
			for name, j := range c.jobs {
				if j.Paused != nil {
					stale[name] = true
				}
			}
		}
	}
	c.pauses.trim()
}

// noteWho names who has paused a job that is paused, unless the registry says it. The caller holds c.mu.
func (c *Cluster) noteWho(j *Job) {
	paused := j.State == engine.JobDisabled || j.State == engine.JobStopped || j.State == engine.JobRemoved
	if p, known := c.pauses[j.Name]; known && paused && j.Paused == nil {
		j.Paused = c.pauses.who(&p.Pause, j.State)
	}
}
