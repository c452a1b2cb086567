package verify

import (
	"slices"
	"time"
)

// share is what a process said that its items are, from then on.
type share struct {
	from  time.Time
	items []int
}

// assign takes note of a process's items. Those of processes that were killed are
// others' from then on.
func (j *job) assign(p *process, at time.Time, items []int) {
	note := func(p *process, items []int) {
		had := j.shares[p]
		for len(had) > 1 && had[1].from.Before(at.Add(-completionMemory)) {
			had = had[1:]
		}
		j.shares[p] = append(slices.Clip(had), share{at, slices.Clone(items)})
	}
	note(p, items)
	for other, had := range j.shares {
		switch last := had[len(had)-1]; {
		case other == p || !other.killed:
		case len(last.items) > 0:
			note(other, nil)
		case last.from.Before(at.Add(-completionMemory)):
			delete(j.shares, other)
		}
	}
}

// had reports whether one process had the item all the time, as far as it said.
func (j *job) had(item int, from, through time.Time) bool {
	for _, shares := range j.shares {
		since := time.Time{}
		for k, s := range shares {
			if !slices.Contains(s.items, item) {
				since = time.Time{}
				continue
			}
			if since.IsZero() {
				since = s.from
			}
			if last := k == len(shares)-1; !since.After(from) && (last || shares[k+1].from.After(through)) {
				return true
			}
		}
	}
	return false
}

// hadAny reports whether one process had some item all the time.
func (j *job) hadAny(from, through time.Time) bool {
	for _, shares := range j.shares {
		for _, s := range shares {
			if slices.ContainsFunc(s.items, func(item int) bool { return j.had(item, from, through) }) {
				return true
			}
		}
	}
	return false
}

// missing reports whether each process that has the job says which items it has, and
// none had this one at any time in between.
func (j *job) missing(item int, from, through time.Time) bool {
	for p := range j.active {
		if said := j.shares[p]; len(said) == 0 || said[0].from.After(from) {
			return false
		}
	}
	for _, shares := range j.shares {
		for k, s := range shares {
			if slices.Contains(s.items, item) && !s.from.After(through) && (k == len(shares)-1 || !shares[k+1].from.Before(from)) {
				return false
			}
		}
	}
	return len(j.shares) > 0
}
