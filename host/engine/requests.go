package engine

import (
	"context"
	"slices"
	"time"

	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/host/event"
)

// counted is a session as one job uses it: its calls have a time limit each,
// however many an exchange takes, failures are counted, and it notes the newest
// transaction that one of them made.
type counted struct {
	registry.Center
	job  *shared
	zxid *int64
	// loop says that the job's loop makes the calls, which gives up its turn meanwhile.
	loop bool
}

// rest calls f, which waits for the registry, without the loop's turn.
func (c counted) rest(f func()) {
	if !c.loop {
		f()
		return
	}
	c.job.turn.Rest(c.job.work.Done(), f)
}

func (c counted) Commit(ctx context.Context, ops ...registry.Op) (results []registry.Result, err error) {
	c.rest(func() { results, err = c.commit(ctx, ops) })
	return results, err
}

func (c counted) commit(ctx context.Context, ops []registry.Op) (results []registry.Result, err error) {
	late := func() {
		c.job.reportWait(&event.WaitError{What: event.WaitRegistry, For: "its turn among this host's commits", Then: "it goes on waiting: the registry is slow", After: commitTimeout})
	}
	hurry := !c.loop || c.job.turn.Hurry // what fires commit besides belongs to runs
	if err := c.job.host.commits.Enter(ctx, c.job.turn, hurry, commitTimeout, late); err != nil {
		return nil, err
	}
	sent := time.Now()
	err = c.limited(ctx, func(ctx context.Context) error {
		results, err = c.Center.Commit(ctx, ops...)
		return err
	})
	c.job.host.commits.Leave(sent, time.Now(), results != nil)
	for k := range results {
		*c.zxid = max(*c.zxid, results[k].Zxid)
	}
	if i := slices.IndexFunc(results, func(r registry.Result) bool { return !r.Time.IsZero() }); i >= 0 {
		c.job.host.registry.note(sent, time.Now(), results[i].Time)
	}
	return results, err
}

func (c counted) Read(ctx context.Context, queries ...registry.Query) (nodes []registry.Node, err error) {
	c.rest(func() {
		if c.loop && c.job.turn.Hurry {
			ctx = registry.Urgent(ctx)
		}
		err = c.limited(ctx, func(ctx context.Context) error {
			nodes, err = c.Center.Read(ctx, queries...)
			return err
		})
	})
	return nodes, err
}

func (c counted) Watch(ctx context.Context, queries ...registry.Query) (snapshots <-chan registry.Snapshot, err error) {
	c.rest(func() { snapshots, err = c.Center.Watch(ctx, queries...) })
	return snapshots, err
}

// limited makes a call with a time limit. Its error is a *WaitError if the limit
// was reached, and not one that the caller had set.
func (c counted) limited(ctx context.Context, call func(context.Context) error) error {
	limited, cancel := context.WithTimeout(ctx, commitTimeout)
	defer cancel()
	err := call(limited)
	if err != nil && ctx.Err() == nil && limited.Err() != nil {
		late := &event.WaitError{What: event.WaitRegistry, For: "an answer of the registry", After: commitTimeout, Err: err}
		if c.job.work.Err() == nil {
			c.job.reportWait(late)
		}
		err = late
	}
	c.job.host.failures.Note(err)
	return err
}
