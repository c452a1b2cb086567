package admin

import (
	"context"
	"time"

	"github.com/wasmjob/wasmjob/coordination/admin/inspect"
	"github.com/wasmjob/wasmjob/host/engine"
)

// Limits are the limits over the cluster under which items run, wait, or have begun recently.
type Limits struct {
	// Permits are by key of `concurrency`.
	Permits []Permits `json:"permits"`
	// Rates are by key of `rate`.
	Rates []Rate `json:"rates"`
	// More is how many keys are left out: those beyond a thousand, and those that the registry does not permit
	// to read.
	More int `json:"more,omitempty"`
}

// Permits are those of one key of `concurrency`.
type Permits struct {
	// Key is the key of the definitions, with what stood in its template.
	Key string `json:"key"`
	// Max is how many may run at once: the smallest maximum of the jobs whose items run or wait; 0 if none of these was read.
	Max int `json:"max"`
	// Running are the items that have a permit.
	Running []Under `json:"running"`
	// Waiting are in the order in which they get a permit.
	Waiting []Under `json:"waiting"`
	// More is how many more run or wait: beyond 200 of a key they are not read, and those of jobs that the user
	// may not see are only counted.
	More int `json:"more,omitempty"`
}

// Under is an item that runs under a key, or a place of a job that waits.
type Under struct {
	Job  string `json:"job"`
	Host string `json:"host"`
	// Item is missing while it waits: the host will use the permit for the first of its items that is due then.
	Item  *int      `json:"item,omitempty"`
	Since time.Time `json:"since"`
}

// Rate is one key of `rate`.
type Rate struct {
	// Key is the key of the definitions, with what stood in its template.
	Key string `json:"key"`
	// Max is how many may begin in Per: the largest of the jobs that have begun something.
	Max int    `json:"max"`
	Per string `json:"per"`
	// Begun is how many have begun in that time.
	Begun int `json:"begun"`
	// Waiting are those that wait, each with the time from which one may begin.
	Waiting []Turn `json:"waiting"`
	// PausedUntil is until when nothing begins, because a guest of PausedBy has asked for it.
	PausedUntil time.Time `json:"pausedUntil,omitzero"`
	PausedBy    string    `json:"pausedBy,omitempty"`
}

// Turn is a time from which an item of a job may begin on a host.
type Turn struct {
	Job  string `json:"job"`
	Host string `json:"host"`
	// At is from when on an item may begin.
	At time.Time `json:"at"`
}

// Limits reads who runs, and who waits, under the limits over the hosts. The error is engine.ErrNotLive without a session.
func (r *Registry) Limits(ctx context.Context, now time.Time) (*Limits, error) {
	c := r.center()
	if c == nil {
		return nil, engine.ErrNotLive
	}
	read, err := inspect.ReadLimits(ctx, c, r.namespace, now)
	if err != nil {
		return nil, err
	}
	out := &Limits{Permits: []Permits{}, Rates: []Rate{}, More: read.More}
	for _, p := range read.Permits {
		list := Permits{Key: p.Key, Max: p.Max, Running: []Under{}, Waiting: []Under{}, More: p.More}
		for _, t := range p.Tickets {
			u := Under{t.Job, t.Host, t.Item, t.Since.UTC()}
			if t.Item != nil {
				list.Running = append(list.Running, u)
			} else {
				list.Waiting = append(list.Waiting, u)
			}
		}
		out.Permits = append(out.Permits, list)
	}
	for _, w := range read.Rates {
		rate := Rate{Key: w.Key, Max: w.Max, Per: w.Per.String(), Waiting: []Turn{}, PausedBy: w.By}
		for _, at := range w.Begins {
			if at > now.Add(-w.Per).UnixMilli() {
				rate.Begun++
			}
		}
		for _, p := range w.Places {
			rate.Waiting = append(rate.Waiting, Turn{p.Job, p.Host, time.UnixMilli(p.At).UTC()})
		}
		if w.Paused > now.UnixMilli() {
			rate.PausedUntil = time.UnixMilli(w.Paused).UTC()
		} else {
			rate.PausedBy = ""
		}
		out.Rates = append(out.Rates, rate)
	}
	return out, nil
}
