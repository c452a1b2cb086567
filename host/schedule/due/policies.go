package due

import (
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/coordination/jobconfig"
	"github.com/wasmjob/wasmjob/coordination/tree"
)

// Policies are what a job wants of instants that cannot begin when they come. The engine decides by them,
// and so does a plan. The zero value is not of use: [PoliciesOf] makes one.
type Policies struct {
	Overlap jobconfig.Overlap
	CatchUp jobconfig.CatchUp
	// QueueMax is how many instants of an item wait at most with OverlapQueueAll.
	QueueMax int
	// StartWithin is how long after its instant an item may start; 0 is no bound.
	StartWithin time.Duration
	// MaxRuns is for how many instants an item runs; 0 is no bound.
	MaxRuns int
}

// PoliciesOf are those of a job with a configuration. g is the part of it that is read by [jobconfig.Configuration.Guest].
func PoliciesOf(c jobconfig.Configuration, g jobconfig.Guest) Policies {
	return Policies{Overlap: g.Overlaps(c), CatchUp: g.CatchesUp(c), QueueMax: g.QueueMax, StartWithin: g.StartWithin, MaxRuns: g.MaxRuns}
}

// Queues reports whether there are instants of the job for which no newer one stands.
func (p Policies) Queues() bool {
	return p.Overlap == jobconfig.OverlapQueueAll || p.CatchUp == jobconfig.CatchUpAll
}

// Stops reports whether a run is stopped when the next instant comes, and whether by force.
func (p Policies) Stops() (stops, byForce bool) {
	byForce = p.Overlap == jobconfig.OverlapTerminate
	return byForce || p.Overlap == jobconfig.OverlapCancel, byForce
}

// Each reports whether a fire that an item owes runs for itself: no newer one stands for it.
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

// Late reports whether a fire is too late to start, so long after its start was due.
func (p Policies) Late(id tree.Fire, behind time.Duration) bool {
	return p.StartWithin != 0 && id.Trigger == 0 && behind > p.StartWithin
}

// Done reports whether an item that has begun for so many instants begins for no other one.
func (p Policies) Done(id tree.Fire, runs int) bool {
	return p.MaxRuns != 0 && id.Trigger == 0 && runs >= p.MaxRuns
}

// Owe notes that an item has a fire to make up for. Of several, the newest stands for all, unless each runs for
// itself. gone is the fire for which another one stands now, by; nil if there is none.
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

// Fate is what becomes of an instant of an item when it comes.
type Fate uint8

// The fates.
const (
	Begins  Fate = iota // now; all that waited is superseded
	Waits               // until the item can begin
	Dropped             // it came while the item ran
	Crowded             // too many wait already
)

// Arrive decides about an instant that comes, and changes what the item owes. runs says that the item cannot begin, because it
// runs. gone are the fires for which this one stands now, or which it replaces.
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
