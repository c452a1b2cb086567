package forecast

import (
	"time"

	"github.com/wasmjob/wasmjob/host/schedule/plan"
)

// Report is what happens to jobs' instants in a range, and how that differs from before. Durations are in
// nanoseconds in JSON.
type Report struct {
	From time.Time `json:"from"`
	To   time.Time `json:"to"`
	// Hosts each run Slots items at once; 0 slots means no bound.
	Hosts int `json:"hosts"`
	Slots int `json:"slots,omitempty"`
	// KnownRuns is how many runs of the history were used. AssumedJobs jobs have none: their runs take Assumed.
	KnownRuns   int           `json:"knownRuns"`
	AssumedJobs int           `json:"assumedJobs"`
	Assumed     time.Duration `json:"assumedNs"`
	// Silent are hosts whose history does not answer, and why: the runs that they have are not known.
	Silent []string `json:"silent,omitempty"`
	// Before is nil if there is nothing to compare with.
	Before *Totals `json:"before,omitempty"`
	After  Totals  `json:"after"`
	// Jobs are the jobs that change, and those with an instant that overlaps or does not run; worse ones first.
	Jobs []JobPlan `json:"jobs"`
	// Shifts are the changes of clocks in the range, in the zones of the jobs after the change.
	Shifts []Shift `json:"shifts"`
	// Worse says that something is skipped or overlaps that was not before.
	Worse bool `json:"worse"`
}

// Totals are sums over all jobs.
type Totals struct {
	Jobs int `json:"jobs"`
	// Fires are instants of jobs, Runs runs of items.
	Fires int `json:"fires"`
	Runs  int `json:"runs"`
	Counts
	// Busiest are the minutes in which most runs start, and Peak is one in which most go on.
	Busiest []Busy      `json:"busiest"`
	Peak    plan.Minute `json:"peak"`
}

// Busy is a busy minute; Jobs are the first of those that have an instant in it, MoreJobs how many others have.
type Busy struct {
	plan.Minute
	Jobs     []string `json:"jobs"`
	MoreJobs int      `json:"moreJobs,omitempty"`
}

// Counts are what does not go as it would on an empty cluster, in instants of items.
type Counts struct {
	// Overlaps came while the item still ran. Skipped have no run, by reason.
	Overlaps int                 `json:"overlaps"`
	Skipped  map[plan.Reason]int `json:"skipped,omitempty"`
	// SlotWaits waited for a slot or for maxConcurrency, PermitWaits for a limit of the namespace.
	SlotWaits         int           `json:"slotWaits"`
	LongestSlotWait   time.Duration `json:"longestSlotWaitNs"`
	PermitWaits       int           `json:"permitWaits"`
	LongestPermitWait time.Duration `json:"longestPermitWaitNs"`
	// Alerts are those that would have begun, by rule; only if rules were given.
	Alerts map[string]int `json:"alerts,omitempty"`
}

func (c *Counts) add(o Counts) {
	c.Overlaps += o.Overlaps
	c.SlotWaits += o.SlotWaits
	c.PermitWaits += o.PermitWaits
	c.LongestSlotWait = max(c.LongestSlotWait, o.LongestSlotWait)
	c.LongestPermitWait = max(c.LongestPermitWait, o.LongestPermitWait)
	for why, n := range o.Skipped {
		if c.Skipped == nil {
			c.Skipped = make(map[plan.Reason]int)
		}
		c.Skipped[why] += n
	}
	for rule, n := range o.Alerts {
		if c.Alerts == nil {
			c.Alerts = make(map[string]int)
		}
		c.Alerts[rule] += n
	}
}

// lost are the instants of items without a run that should have one.
func (c *Counts) lost() (lost int) {
	for why, n := range c.Skipped {
		if why != plan.Excluded {
			lost += n
		}
	}
	return lost
}

// trouble reports whether an instant overlaps or has no run that should have one.
func (c *Counts) trouble() bool { return c.Overlaps+c.lost() > 0 }

// Side is one job before or after the change.
type Side struct {
	Fires int `json:"fires"`
	Runs  int `json:"runs"`
	Counts
	// FirstOverlap and FirstSkip are the first instants that overlap and that have no run.
	FirstOverlap time.Time `json:"firstOverlap,omitzero"`
	FirstSkip    time.Time `json:"firstSkip,omitzero"`
	// Typical is how long a run takes if the history has none for its instant.
	Typical time.Duration `json:"typicalNs"`
	Zone    string        `json:"zone,omitempty"`
}

// The changes of a job.
const (
	Added   = "added"
	Removed = "removed"
	Changed = "changed"
)

// JobPlan is the plan of one job.
type JobPlan struct {
	Job  string `json:"job"`
	File string `json:"file,omitempty"`
	// Change is added, removed or changed; empty for none. Settings are those that differ.
	Change   string   `json:"change,omitempty"`
	Settings []string `json:"settings,omitempty"`
	Before   *Side    `json:"before,omitempty"`
	After    *Side    `json:"after,omitempty"`
	// FiresAdded and FiresGone are instants that only the definition after, or before, the change has.
	FiresAdded int       `json:"firesAdded"`
	FiresGone  int       `json:"firesGone"`
	FirstAdded time.Time `json:"firstAdded,omitzero"`
	FirstGone  time.Time `json:"firstGone,omitzero"`
	// Worse are what there is more of than before: overlaps, or reasons of instants without a run.
	Worse []string `json:"worse,omitempty"`
}

// ZoneChanged reports whether the job has another time zone than before.
func (j *JobPlan) ZoneChanged() bool {
	return j.Before != nil && j.After != nil && j.Before.Zone != j.After.Zone
}

// Shift is a change of clocks in a zone.
type Shift struct {
	Zone string    `json:"zone"`
	At   time.Time `json:"at"` // in the zone
	// Forward is by how much clocks are put forward; it is negative if they are put back.
	Forward time.Duration `json:"forwardNs"`
	// Jobs is how many jobs are in the zone, Touched the first of those with an instant in the hour that is
	// skipped or repeated, and MoreTouched how many others have one.
	Jobs        int      `json:"jobs"`
	Touched     []string `json:"touched,omitempty"`
	MoreTouched int      `json:"moreTouched,omitempty"`
}
