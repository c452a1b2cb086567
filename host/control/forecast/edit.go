package forecast

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/wasmjob/wasmjob/coordination/admin/operate"
	"github.com/wasmjob/wasmjob/coordination/jobconfig"
	"github.com/wasmjob/wasmjob/host/control/admin"
	"github.com/wasmjob/wasmjob/host/schedule/plan"
)

const (
	// EditDays is how many days ahead the plan of an edit looks.
	EditDays = 7
	// mostEdited bounds the instants of items in the plan of an edit, for which a reader waits.
	mostEdited = 200_000
)

// Edit is what an edit does to a job within the next [EditDays].
type Edit struct {
	FiresBefore int `json:"firesBefore"`
	FiresAfter  int `json:"firesAfter"`
	FiresAdded  int `json:"firesAdded"`
	FiresGone   int `json:"firesGone"`
	// Overlaps are instants of items that come while the item still runs, Lost those without a run.
	OverlapsBefore int `json:"overlapsBefore"`
	OverlapsAfter  int `json:"overlapsAfter"`
	LostBefore     int `json:"lostBefore"`
	LostAfter      int `json:"lostAfter"`
	// Takes is how long a run takes, in nanoseconds; Known says that a history has it.
	Takes time.Duration `json:"takesNs"`
	Known bool          `json:"known"`
	// Silent are hosts whose history does not answer, and why: the runs that they have are not known.
	Silent []string `json:"silent,omitempty"`
}

// Worse reports whether more overlaps or is lost than before.
func (e *Edit) Worse() bool { return e.OverlapsAfter > e.OverlapsBefore || e.LostAfter > e.LostBefore }

// OfEdit simulates a job before and after an edit. It returns nil if it can say nothing: for a job that comes
// after others, which it does not simulate, or one with too many instants.
func OfEdit(ctx context.Context, e *admin.Edited, now time.Time, d *Durations) (*Edit, error) {
	before, err := Configuration(e.Before)
	if err != nil {
		return nil, err
	}
	after, err := Configuration(e.After)
	if err != nil {
		return nil, err
	}
	for _, c := range []jobconfig.Configuration{before, after} {
		if g, err := c.Guest(); err != nil || len(g.When.After) > 0 {
			return nil, err
		}
	}
	from := now.Truncate(time.Second)
	r, err := Compare(ctx, []Definition{{Configuration: before}}, []Definition{{Configuration: after}}, true,
		Options{From: from, To: from.AddDate(0, 0, EditDays), Durations: d, MostStarts: mostEdited})
	switch {
	case errors.Is(err, plan.ErrTooMany):
		return nil, nil
	case err != nil:
		return nil, err
	}
	out := &Edit{FiresBefore: r.Before.Fires, FiresAfter: r.After.Fires, OverlapsBefore: r.Before.Overlaps, OverlapsAfter: r.After.Overlaps,
		LostBefore: r.Before.lost(), LostAfter: r.After.lost(), Takes: d.Typical(e.After.Job), Known: d.Has(e.After.Job), Silent: d.silent}
	for _, j := range r.Jobs {
		out.FiresAdded, out.FiresGone = j.FiresAdded, j.FiresGone
	}
	return out, nil
}

// Configuration is a configuration by the settings that the API has of it.
func Configuration(c *admin.JobConfig) (jobconfig.Configuration, error) {
	given := make(map[string]string)
	for name, value := range c.Settings {
		if value != "" {
			given[name] = value
		}
	}
	out, err := operate.Edit(jobconfig.Configuration{JobName: c.Job}, given)
	if err != nil {
		return out, fmt.Errorf("job %q: %w", c.Job, err)
	}
	if c.Terms == "" {
		return out, nil
	}
	var terms map[string]string
	if err := json.Unmarshal([]byte(c.Terms), &terms); err != nil {
		return out, fmt.Errorf("job %q: the terms of its schedule: %w", c.Job, err)
	}
	if days := terms[jobconfig.PropCalendarDays]; days != "" {
		if out.Props == nil {
			out.Props = make(map[string]string)
		}
		out.Props[jobconfig.PropCalendarDays] = days
	}
	return out, nil
}
