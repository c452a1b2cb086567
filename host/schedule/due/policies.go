package due

import (
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/coordination/jobconfig"
	"github.com/wasmjob/wasmjob/coordination/tree"
)

// Policies say how a job handles instants that cannot begin when they come due. The engine decides by them, and
// so does a plan. The zero value is invalid: use [PoliciesOf].
type Policies struct {
	Overlap jobconfig.Overlap
	CatchUp jobconfig.CatchUp
	// QueueMax is how many instants of an item may wait with OverlapQueueAll.
	QueueMax int
	// StartWithin is how long after its instant an item may start; 0 is no bound.
	StartWithin time.Duration
	// MaxRuns is for how many instants an item runs; 0 is no bound.
	MaxRuns int
}

// PoliciesOf returns the policies of a configuration. g is its guest part, from
// [jobconfig.Configuration.Guest].
func PoliciesOf(c jobconfig.Configuration, g jobconfig.Guest) Policies {
	return Policies{Overlap: g.Overlaps(c), CatchUp: g.CatchesUp(c), QueueMax: g.QueueMax, StartWithin: g.StartWithin, MaxRuns: g.MaxRuns}
}

// Queues reports whether some instants of the job are never superseded.
func (p Policies) Queues() bool {
	return p.Overlap == jobconfig.OverlapQueueAll || p.CatchUp == jobconfig.CatchUpAll
}

// Stops reports whether the next instant stops a run, and whether by force.
func (p Policies) Stops() (stops, byForce bool) {
	byForce = p.Overlap == jobconfig.OverlapTerminate
	return byForce || p.Overlap == jobconfig.OverlapCancel, byForce
}

// Each reports whether a fire runs by itself and is never superseded.
func (p Policies) Each(id tree.Fire) bool {
	switch {
	case id.Trigger != 0:
		return false
	case id.Source == string(abi.SourceCatchUp):
		return p.CatchUp == jobconfig.CatchUpAll
	}
	return p.Overlap == jobconfig.OverlapQueueAll
}

// Full reports whether no more instants of an item may wait.
func (p Policies) Full(o *Owed, id tree.Fire) bool {
	return p.Overlap == jobconfig.OverlapQueueAll && o.Len() >= p.QueueMax && !o.Has(id)
}

// Late reports whether a fire is too late to start; behind is how long ago it was due.
func (p Policies) Late(id tree.Fire, behind time.Duration) bool {
	return p.StartWithin != 0 && id.Trigger == 0 && behind > p.StartWithin
}

// Done reports whether an item has begun for as many instants as it may.
func (p Policies) Done(id tree.Fire, runs int) bool {
	return p.MaxRuns != 0 && id.Trigger == 0 && runs >= p.MaxRuns
}

// Owe adds a fire that the item has to catch up. The newest supersedes the others, unless each runs by itself.
// gone is the superseded fire, by the one that supersedes it; nil if there is none.
func (p Policies) Owe(o *Owed, id tree.Fire) (gone *tree.Fire, by tree.Fire) {
	if !id.HasArgs() && (p.Queues() || o.Len() > 1) {
		if gone = o.Put(id, p.Each); gone != nil {
			by, _ = o.last()
		}
		return gone, by
	}
	if id.HasArgs() {
		o.Ask(id)
		return nil, id
	}
	gone = o.Due
	o.Due = &id
	return gone, id
}

// Fate is what happens to an instant of an item when it comes due.
type Fate uint8

// The fates.
const (
	Begins  Fate = iota // now; all that waited is superseded
	Waits               // until the item can begin
	Dropped             // it came while the item ran
	Crowded             // too many wait already
)

// Arrive decides about an instant that comes due, and changes what the item owes. runs says that the item
// cannot begin, because it runs. gone are the fires that this one supersedes or replaces.
func (p Policies) Arrive(o *Owed, id tree.Fire, runs bool) (fate Fate, gone []tree.Fire) {
	switch {
	case !runs && (o.Due == nil || !p.Each(*o.Due)):
		gone = o.Waiting()
		o.DropWaiting()
		return Begins, gone
	case runs && p.Overlap == jobconfig.OverlapSkip:
		return Dropped, nil
	case p.Full(o, id):
		return Crowded, nil
	}
	id.Source = string(abi.SourceMisfire)
	if was, _ := p.Owe(o, id); was != nil {
		gone = []tree.Fire{*was}
	}
	return Waits, gone
}
