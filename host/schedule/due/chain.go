package due

import (
	"cmp"
	"slices"
	"time"

	"github.com/wasmjob/wasmjob/coordination/jobconfig"
	"github.com/wasmjob/wasmjob/coordination/tree"
	"github.com/wasmjob/wasmjob/internal/text/reason"
	"github.com/wasmjob/wasmjob/internal/text/words"
)

// Before is a job that another one comes after: the required outcome, and how its fires have ended.
type Before struct {
	jobconfig.After
	Ends tree.Ends
}

// Caused is a trigger of the earlier jobs that triggers this one.
type Caused struct {
	Root int64 // with which the chain began
	At   time.Time
}

// Unmet is a fire of the earlier jobs that this job does not follow.
type Unmet struct {
	Fire tree.Fire // Trigger is the root of the chain
	// Late is set if an earlier job did not end in time; otherwise its outcome was not the required one.
	Late   bool
	Reason reason.Reason
	// Passed is when the jobs before ended, if they had ended for a later one by then; else zero.
	Passed time.Time
	// Apart is set if the job may still follow a fire between this one and the one before in [Following.Unmet].
	Apart bool
}

// Following is what a job that comes after others has to do.
type Following struct {
	Starts []Start  // instants that are due, ascending
	Rounds []Caused // triggers, ascending
	Unmet  []Unmet
	At     time.Time // when the next wait for another job ends; zero if there is none
}

// waitGrace is how much longer than the limit a host waits for the end of an earlier job, because the end is
// dated by another host's clock.
const waitGrace = 5 * time.Second

// Follow decides which fires of the earlier jobs this job follows. All hosts decide alike, because the ends
// carry the times of the hosts that wrote them. An instant is followed if all earlier jobs have a fire for it,
// and each ended as required and in time. Triggers likewise; triggers are the same if the chain began with one
// trigger.
func Follow(now time.Time, before []Before) (f Following) {
	type key struct{ instant, root int64 }
	var keys []key
	first := make(map[key]int64)
	for _, b := range before {
		for _, e := range b.Ends.Fires {
			k := key{e.Instant, 0}
			if e.Trigger != 0 {
				k = key{0, e.Chain()}
			}
			if e.Only != "" {
				continue // a fire of some items does not count
			}
			if at, known := first[k]; !known || e.Instant < at {
				first[k] = e.Instant
			}
			if !slices.Contains(keys, k) {
				keys = append(keys, k)
			}
		}
	}
	var open []int64
	slices.SortFunc(keys, func(a, b key) int {
		if a.root != b.root {
			return int(min(max(a.root-b.root, -1), 1))
		}
		return int(min(max(a.instant-b.instant, -1), 1))
	})
	for _, k := range keys {
		from := time.UnixMilli(first[k])
		id := tree.Fire{Instant: first[k], Trigger: k.root}
		ended, wait, unmet := meet(now, from, id, before)
		switch {
		case unmet != nil:
			f.Unmet = append(f.Unmet, *unmet)
		case !wait.IsZero():
			if f.At.IsZero() || wait.Before(f.At) {
				f.At = wait
			}
			open = append(open, k.instant)
		case ended.IsZero(): // not noted by all jobs
			open = append(open, k.instant)
		case k.root != 0:
			f.Rounds = append(f.Rounds, Caused{k.root, from})
		default:
			f.Starts = append(f.Starts, Start{from, ended})
		}
	}
	f.passOver()
	for n := 1; n < len(f.Unmet); n++ {
		from, to := f.Unmet[n-1].Fire.Instant, f.Unmet[n].Fire.Instant
		f.Unmet[n].Apart = slices.ContainsFunc(open, func(at int64) bool { return from < at && at < to })
	}
	return f
}

// passOver takes out the instants for which the jobs before ended when they had ended for a later one: the job has begun for that, and
// begins for no earlier one.
func (f *Following) passOver() {
	var starts []Start
	for n := len(f.Starts) - 1; n >= 0; n-- { // the first of starts ended before those after it
		s := f.Starts[n]
		if len(starts) > 0 && starts[0].Due.Before(s.Due) {
			by := tree.Fire{Instant: starts[0].At.UnixMilli()}
			f.Unmet = append(f.Unmet, Unmet{Fire: tree.Fire{Instant: s.At.UnixMilli()}, Reason: reason.New(reason.BeforeEndedLater, by.ID()), Passed: s.Due})
			continue
		}
		starts = slices.Insert(starts, 0, s)
	}
	if len(starts) == len(f.Starts) {
		return
	}
	f.Starts = starts
	slices.SortStableFunc(f.Unmet, func(a, b Unmet) int { // as the keys
		return cmp.Or(cmp.Compare(a.Fire.Trigger, b.Fire.Trigger), cmp.Compare(a.Fire.Instant, b.Fire.Instant))
	})
}

// meet looks whether all jobs before have ended one fire. wait is until when to wait for one that has not; ended is when the
// last one did; both are zero for a fire that not all of them note.
func meet(now, from time.Time, id tree.Fire, before []Before) (ended, wait time.Time, unmet *Unmet) {
	for _, b := range before {
		if b.Ends.Since == 0 || (id.Trigger == 0 && !b.Ends.Notes(id)) {
			return time.Time{}, time.Time{}, nil
		}
	}
	for _, b := range before {
		limit := from.Add(b.Limit())
		late := func() *Unmet {
			return &Unmet{Fire: id, Late: true, Reason: reason.New(reason.BeforeNotEnded, b.Job, words.Duration(b.Limit()))}
		}
		e, found := b.find(id)
		end := time.UnixMilli(e.Ended)
		switch {
		case found && e.Ended != 0 && end.After(limit):
			return ended, wait, late()
		case found && e.Ended != 0 && !b.Accepts(e.Success):
			why := reason.New(reason.BeforeFailed, b.Job, cmp.Or(b.On, jobconfig.OnSuccess))
			if e.Success {
				why = reason.New(reason.BeforeSucceeded, b.Job, b.On)
			}
			return ended, wait, &Unmet{Fire: id, Late: false, Reason: why}
		case found && e.Ended != 0:
			ended = later(ended, end)
		case !found && b.past(id):
			return ended, wait, &Unmet{Fire: id, Late: false, Reason: reason.New(reason.BeforeHadNoFire, b.Job)}
		case !now.Before(limit.Add(waitGrace)):
			return ended, wait, late()
		case wait.IsZero() || limit.Add(waitGrace).Before(wait):
			wait = limit.Add(waitGrace)
		}
	}
	return ended, wait, nil
}

// find returns the job's fire for an instant or a chain of triggers.
func (b Before) find(id tree.Fire) (tree.End, bool) {
	for _, e := range b.Ends.Fires {
		if e.Only == "" && ((id.Trigger != 0 && e.Chain() == id.Trigger) || (id.Trigger == 0 && e.Trigger == 0 && e.Instant == id.Instant)) {
			return e, true
		}
	}
	return tree.End{}, false
}

// past reports whether the job has ended a later instant, so that it never reaches an earlier one.
func (b Before) past(id tree.Fire) bool {
	return id.Trigger == 0 && slices.ContainsFunc(b.Ends.Fires, func(e tree.End) bool { return e.Trigger == 0 && e.Ended != 0 && e.Instant > id.Instant })
}
