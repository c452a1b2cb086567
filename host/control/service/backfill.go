package service

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/wasmjob/wasmjob/coordination/jobconfig"
	"github.com/wasmjob/wasmjob/coordination/tree"
	"github.com/wasmjob/wasmjob/host/auth"
	"github.com/wasmjob/wasmjob/host/config/timetable"
	"github.com/wasmjob/wasmjob/host/control/admin"
	"github.com/wasmjob/wasmjob/host/control/cluster"
	"github.com/wasmjob/wasmjob/host/engine"
	"github.com/wasmjob/wasmjob/host/event/operation"
	"github.com/wasmjob/wasmjob/host/history"
)

// Backfill is a request to run past instants of a job.
type Backfill struct {
	// From and To are the range; both count. They are rounded to milliseconds.
	From, To time.Time
	// Items are those that run, as ranges; empty is all.
	Items string
	// Every is the least time between two instants; 0 is a second.
	Every time.Duration
	// Overlap is queue_all or skip; empty is queue_all.
	Overlap string
}

// Backfills are those of a job, and what a range would run.
type Backfills struct {
	// Now is the one that goes on, Last the last that has ended; each is missing if there is none.
	Now  *engine.BackfillStatus `json:"now,omitempty"`
	Last *engine.BackfillStatus `json:"last,omitempty"`
	// Plan is what the range of the question would run; missing without one.
	Plan *BackfillPlan `json:"plan,omitempty"`
}

// BackfillPlan is what a backfill runs.
type BackfillPlan struct {
	// Instants are those of the schedule in the range, oldest first.
	Instants []time.Time `json:"instants"`
	// Items is how many items run for each of them.
	Items int `json:"items"`
	// Every is the least time between two instants.
	Every time.Duration `json:"everyNs"`
	// Overlap is what happens to an item that runs for something else when its turn comes.
	Overlap string `json:"overlap"`
	// Zone is the zone of the job's schedule.
	Zone string `json:"zone"`
}

// Backfills shows the backfills of a job; with a range, also what that would run.
func (s *Service) Backfills(ctx context.Context, job string, of *Backfill) (*Backfills, error) {
	if err := auth.Require(ctx, operation.View, job); err != nil {
		return nil, err
	}
	known, err := s.o.Registry.Backfills(ctx, job)
	if err != nil {
		return nil, s.explained(ctx, job, err)
	}
	all := &Backfills{}
	if known.Now != nil {
		now := engine.BackfillOf(*known.Now)
		_ = s.o.Cluster.Refresh(ctx) // without it, what was known last counts
		if j, _, _, ok := s.o.Cluster.Job(job); ok && j.Backfill != nil && j.Backfill.Since.Equal(now.Since) {
			now.Waits = j.Backfill.Waits
		}
		all.Now = &now
	}
	if known.Last != nil {
		last := engine.BackfillOf(*known.Last)
		all.Last = &last
	}
	if of == nil {
		return all, nil
	}
	b, plan, err := s.plan(ctx, job, *of)
	if err != nil {
		return nil, err
	}
	if err := s.o.Registry.CheckArgs(ctx, job, b.Args()); err != nil {
		return nil, s.explained(ctx, job, err)
	}
	all.Plan = plan
	return all, nil
}

// StartBackfill has past instants of a job run again.
func (s *Service) StartBackfill(ctx context.Context, job string, of Backfill, why Reason) (plan *BackfillPlan, err error) {
	c := &history.Change{Job: job, Why: why}
	err = s.change(ctx, operation.Backfill, c, func() error {
		var b tree.Backfill
		if b, plan, err = s.plan(ctx, job, of); err != nil {
			return err
		}
		b.Since = c.Time.UnixMilli()
		c.After = b.Record()
		return s.explained(ctx, job, s.o.Registry.For(c.Who, c.Why).Backfill(ctx, job, b))
	})
	return plan, err
}

// CancelBackfill ends the backfill of a job: what was given out runs to its end.
func (s *Service) CancelBackfill(ctx context.Context, job string, why Reason) error {
	c := &history.Change{Job: job, After: "cancelled", Why: why}
	return s.change(ctx, operation.Backfill, c, func() error {
		ended, err := s.o.Registry.For(c.Who, c.Why).CancelBackfill(ctx, job)
		if err == nil {
			c.After = fmt.Sprintf("cancelled: %d of %d instants were given out", ended.Done, ended.Total)
		}
		return s.explained(ctx, job, err)
	})
}

// plan is what a backfill runs by the schedule that the job has now.
func (s *Service) plan(ctx context.Context, job string, of Backfill) (b tree.Backfill, plan *BackfillPlan, err error) {
	var no *tree.ArgError
	now := time.Now()
	args, err := tree.NewTriggerArgs(of.Items, nil)
	overlap := cmp.Or(of.Overlap, string(jobconfig.OverlapQueueAll))
	every := cmp.Or(of.Every, tree.MinBackfillEvery)
	switch {
	case of.From.IsZero() || of.To.IsZero():
		no = &tree.ArgError{Arg: "from", Problem: "found no range, expected from and to"}
	case of.To.Before(of.From):
		no = &tree.ArgError{Arg: "to", Problem: fmt.Sprintf("found %s, expected a time not before from, %s", of.To.Format(time.RFC3339), of.From.Format(time.RFC3339))}
	case of.To.After(now):
		no = &tree.ArgError{Arg: "to", Problem: fmt.Sprintf("found %s, expected a time that is past", of.To.Format(time.RFC3339))}
	case overlap != string(jobconfig.OverlapQueueAll) && overlap != string(jobconfig.OverlapSkip):
		no = &tree.ArgError{Arg: "overlap", Problem: fmt.Sprintf("found %q, expected queue_all or skip", jobconfig.Clip(overlap))}
	case err != nil:
		return b, nil, err
	}
	if no != nil {
		return b, nil, no
	}
	if err := s.o.Cluster.Refresh(ctx); err != nil {
		return b, nil, err
	}
	j, _, _, ok := s.o.Cluster.Job(job)
	if !ok {
		return b, nil, s.explained(ctx, job, fmt.Errorf("job %q: %w", job, engine.ErrNoJob))
	}
	instants, err := pastInstants(&j, of.From, of.To)
	if err != nil {
		return b, nil, err
	}
	b = tree.Backfill{From: of.From.UnixMilli(), To: of.To.UnixMilli(), Items: args.Items, Every: every.Milliseconds(), SkipBusy: overlap == string(jobconfig.OverlapSkip)}
	for _, at := range instants {
		b.Instants = append(b.Instants, at.UnixMilli())
	}
	if err := b.Validate(); err != nil {
		return b, nil, err
	}
	if err := args.Fits(j.ShardingTotalCount); err != nil {
		return b, nil, err
	}
	plan = &BackfillPlan{Instants: instants, Items: tree.Fire{Only: args.Items.String()}.Total(j.ShardingTotalCount), Every: every, Overlap: overlap, Zone: cmp.Or(zoneOf(j.TimeZone), "Local")}
	return b, plan, nil
}

// pastInstants returns the instants of a job's schedule in an inclusive range, at most one more than a backfill
// may have.
func pastInstants(j *cluster.Job, from, to time.Time) ([]time.Time, error) {
	of := scheduleOf(j)
	if len(timetable.AfterOf(of.Terms)) > 0 {
		return nil, &ConflictError{fmt.Sprintf("job %q comes after other jobs and has no schedule of its own: backfill those", j.Name)}
	}
	instants, err := admin.Between(of, from, to.Add(time.Nanosecond), tree.MaxBackfill+1)
	var wrong *jobconfig.FieldError
	switch {
	case errors.As(err, &wrong):
		return nil, &ConflictError{fmt.Sprintf("job %q: its schedule cannot be read: %v", j.Name, wrong)}
	case err != nil:
		return nil, err
	case len(instants) == 0 && j.Schedule() == "":
		return nil, &ConflictError{fmt.Sprintf("job %q has no schedule: trigger it for an instant", j.Name)}
	}
	return instants, nil
}
