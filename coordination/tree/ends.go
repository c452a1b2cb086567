package tree

import (
	"encoding/json"
	"slices"
)

// Ends is how fires of a job have ended over all its items: node sharding/ends of our tree. It exists while
// other jobs come after this one. The commit that completes an item also writes this node, so that the commit
// of the last item says how the whole fire has ended, once.
type Ends struct {
	// Followers are the jobs that come after this one, ascending.
	Followers []string `json:"followers,omitempty"`
	// Since is from when fires are noted: scheduled instants after it, in Unix milliseconds, and triggers after
	// the round SinceRound. 0: none yet, because the leader has not notified the hosts.
	Since      int64 `json:"since,omitempty"`
	SinceRound int64 `json:"sinceRound,omitempty"`
	// Fires are the newest, in the order in which they were noted.
	Fires []End `json:"fires,omitempty"`
}

// End is one fire of [Ends].
type End struct {
	// Instant and Trigger are those of the [Fire]. Root is the trigger at the beginning of the chain of jobs,
	// if another job's trigger has caused this fire; otherwise 0.
	Instant int64 `json:"instant"`
	Trigger int64 `json:"trigger,omitempty"`
	Root    int64 `json:"root,omitempty"`
	// Only are the selected items of a trigger.
	Only string `json:"only,omitempty"`
	// OK, Failed and Idle are the items whose end is known, until all are known: Idle did not run, because an
	// operator has disabled them.
	OK     Ranges `json:"ok,omitempty"`
	Failed Ranges `json:"failed,omitempty"`
	Idle   Ranges `json:"idle,omitempty"`
	// First is when the first item ended, Ended when the fire ended over all items, Unix milliseconds, 0 until
	// then. Success says that at least one item was OK and the others were OK or Idle.
	First   int64 `json:"first"`
	Ended   int64 `json:"ended,omitempty"`
	Success bool  `json:"success,omitempty"`
}

// mostEnds is how many ended fires are kept, mostOpen how many open ones.
const (
	mostEnds = 100
	mostOpen = 50
)

// Settled are items of one fire whose end is known. Without any it says that the fire has begun, so that it is noted before a
// later one ends.
type Settled struct {
	Fire Fire
	// Root is that of [End].
	Root int64
	// Total is how many items the fire has.
	Total            int
	OK, Failed, Idle Ranges
	// Running are those of Failed and Idle that run for an earlier fire, of which that is not the end.
	Running Ranges
}

// Fire is the fire that has ended.
func (e End) Fire() Fire { return Fire{Instant: e.Instant, Trigger: e.Trigger, Only: e.Only} }

// Chain is the number of the trigger at the beginning of the chain of jobs; 0 for a scheduled fire.
func (e End) Chain() int64 {
	if e.Root != 0 {
		return e.Root
	}
	return e.Trigger
}

// Known are the items with a known end.
func (e End) Known() Ranges { return e.OK.With(e.Failed).With(e.Idle) }

// later reports whether a fire comes after another one of the same kind.
func (e End) later(o End) bool {
	switch {
	case (e.Trigger != 0) != (o.Trigger != 0):
		return false
	case e.Trigger != 0:
		return e.Trigger > o.Trigger
	}
	return e.Instant > o.Instant
}

// Notes reports whether fires like this one are noted.
func (e Ends) Notes(f Fire) bool {
	switch {
	case e.Since == 0:
		return false
	case f.Trigger != 0:
		return f.Trigger > e.SinceRound
	}
	return f.Instant > e.Since
}

// Find returns the fire as it is noted.
func (e Ends) Find(f Fire) (End, bool) {
	n := slices.IndexFunc(e.Fires, func(o End) bool { return o.Fire().Same(f) })
	if n < 0 {
		return End{}, false
	}
	return e.Fires[n], true
}

// Open are the fires that have not ended over all items.
func (e Ends) Open() (open []End) {
	for _, f := range e.Fires {
		if f.Ended == 0 {
			open = append(open, f)
		}
	}
	return open
}

// Settle notes ends of items; now is Unix milliseconds. An item that has ended a fire never begins an earlier
// one: there it counts as failed, unless its end is known. A fire whose items are all known ends. changed is
// false if nothing is new.
func (e Ends) Settle(now int64, ends ...Settled) (out Ends, changed bool) {
	out = e
	out.Fires = slices.Clone(e.Fires)
	for _, s := range ends {
		changed = out.settle(now, s) || changed
	}
	if changed {
		out.forget(now)
	}
	return out, changed
}

func (e *Ends) settle(now int64, s Settled) (changed bool) {
	if !e.Notes(s.Fire) {
		return false
	}
	at := slices.IndexFunc(e.Fires, func(o End) bool { return o.Fire().Same(s.Fire) })
	if at < 0 {
		next := End{Instant: s.Fire.Instant, Trigger: s.Fire.Trigger, Root: s.Root, Only: s.Fire.Only, First: now}
		if slices.ContainsFunc(e.Fires, func(o End) bool { return o.Ended != 0 && o.later(next) }) {
			return false // it ended before this item did
		}
		begun := len(s.OK)+len(s.Failed)+len(s.Idle) == 0 // the owners of its other items say what becomes of them
		for _, o := range e.Fires {                       // what is known of a later one begins this one no more
			if o.later(next) && !begun {
				next.Failed = next.Failed.With(o.Known())
			}
		}
		at = slices.IndexFunc(e.Fires, func(o End) bool { return o.later(next) })
		if at < 0 {
			at = len(e.Fires)
		}
		e.Fires = slices.Insert(e.Fires, at, next)
		changed = true
	}
	this := e.Fires[at]
	for n := range e.Fires {
		o := &e.Fires[n]
		known := o.Known()
		switch {
		case o.Ended != 0:
			continue
		case n == at:
			o.OK, o.Failed, o.Idle = o.OK.With(s.OK.Without(known)), o.Failed.With(s.Failed.Without(known)), o.Idle.With(s.Idle.Without(known))
		case this.later(*o):
			of := o.asked(s.Total).Without(s.Running)
			o.Failed = o.Failed.With(s.OK.With(s.Failed).And(of).Without(known))
			o.Idle = o.Idle.With(s.Idle.And(of).Without(o.Known()))
		default:
			continue
		}
		o.end(now, s.Total)
		changed = changed || o.Ended != 0 || o.Known().Len() > known.Len()
	}
	return changed
}

// asked returns the items that the fire is for; total is the job's.
func (e End) asked(total int) Ranges {
	all := Ranges{{0, total - 1}}
	if only, err := ParseRanges(e.Only); err == nil && len(only) > 0 {
		return all.And(only)
	}
	return all
}

// end ends the fire if all its items are known.
func (e *End) end(now int64, total int) {
	asked := e.asked(total) // items that came later may be known as well
	if total <= 0 || len(asked.Without(e.Known())) > 0 {
		return
	}
	e.Ended, e.Success = max(now, e.First), len(e.Failed.And(asked)) == 0 && len(e.OK.And(asked)) > 0
	e.OK, e.Failed, e.Idle = nil, nil, nil
}

// forget drops the oldest fires beyond the bounds. A dropped open fire counts as failed.
func (e *Ends) forget(now int64) {
	for open := e.Open(); len(open) > mostOpen; open = e.Open() {
		n := slices.IndexFunc(e.Fires, func(o End) bool { return o.Ended == 0 })
		o := &e.Fires[n]
		o.Ended, o.Success, o.OK, o.Failed, o.Idle = max(now, o.First), false, nil, nil, nil
	}
	for n := len(e.Fires) - len(e.Open()); n > mostEnds; n-- {
		first := slices.IndexFunc(e.Fires, func(o End) bool { return o.Ended != 0 })
		e.Fires = slices.Delete(e.Fires, first, first+1)
	}
}

// WithFollower is Ends with one more job that comes after this one; changed is false if it was among them.
func (e Ends) WithFollower(job string) (out Ends, changed bool) {
	if at, found := slices.BinarySearch(e.Followers, job); !found {
		e.Followers = slices.Insert(slices.Clone(e.Followers), at, job)
		return e, true
	}
	return e, false
}

// WithoutFollower is Ends without a job.
func (e Ends) WithoutFollower(job string) Ends {
	e.Followers = slices.DeleteFunc(slices.Clone(e.Followers), func(f string) bool { return f == job })
	return e
}

// ParseEnds reads node ends; what cannot be read is the zero Ends.
func ParseEnds(data []byte) Ends {
	var e Ends
	if json.Unmarshal(data, &e) != nil {
		return Ends{}
	}
	slices.Sort(e.Followers)
	e.Followers = slices.Compact(e.Followers)
	return e
}

// Data is what the node holds, JSON.
func (e Ends) Data() []byte {
	b, err := json.Marshal(e)
	if err != nil { // texts and numbers always marshal
		return nil
	}
	return b
}

// Chained are the rounds of a job that triggers of other jobs have caused: node after of our tree. It is
// written in one commit with the triggers of such a round; the commit's transaction is the round's number.
type Chained struct {
	Rounds []ChainedRound `json:"rounds,omitempty"`
}

// ChainedRound is one of them.
type ChainedRound struct {
	// Root is the trigger at the beginning of the chain of jobs.
	Root int64 `json:"root"`
	// Round is this job's own round for it; 0 for none: see Skipped. The newest round is not stored: its number
	// is the node's newest transaction.
	Round int64 `json:"round,omitempty"`
	// Skipped says why there is no round.
	Skipped string `json:"skipped,omitempty"`
	// By are the jobs whose fires have caused it, separated by blanks.
	By string `json:"by,omitempty"`
}

// mostChained is how many rounds are kept.
const mostChained = 200

// ParseChained reads node after, which was written last by the transaction zxid; what cannot be read is
// the zero Chained.
func ParseChained(data []byte, zxid int64) Chained {
	var c Chained
	if json.Unmarshal(data, &c) != nil {
		return Chained{}
	}
	if n := len(c.Rounds) - 1; n >= 0 && c.Rounds[n].Round == 0 && c.Rounds[n].Skipped == "" {
		c.Rounds[n].Round = zxid
	}
	return c
}

// Data is what the node holds, JSON.
func (c Chained) Data() []byte {
	b, err := json.Marshal(c)
	if err != nil { // texts and numbers always marshal
		return nil
	}
	return b
}

// Has reports whether the chain that began with the trigger has reached this job.
func (c Chained) Has(root int64) bool {
	return slices.ContainsFunc(c.Rounds, func(r ChainedRound) bool { return r.Root == root })
}

// With is Chained with one more round.
func (c Chained) With(r ChainedRound) Chained {
	c.Rounds = append(slices.Clone(c.Rounds), r)
	c.Rounds = c.Rounds[max(0, len(c.Rounds)-mostChained):]
	return c
}

// RootOf returns the trigger at the beginning of the chain that caused a round of this job; 0 if there is none.
func (c Chained) RootOf(round int64) int64 {
	for _, r := range c.Rounds {
		if r.Round == round && round != 0 {
			return r.Root
		}
	}
	return 0
}
