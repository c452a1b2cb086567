package operators

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/wasmjob/wasmjob/coordination/tree"
	"github.com/wasmjob/wasmjob/host/cluster"
	"github.com/wasmjob/wasmjob/host/command"
	"github.com/wasmjob/wasmjob/host/event"
	"github.com/wasmjob/wasmjob/host/history"
	"github.com/wasmjob/wasmjob/host/service"
	"github.com/wasmjob/wasmjob/host/words"
)

// missing is an error if a job that was named is not there and no history knows it, with the name
// that may be meant, or if it has no such item; item is -1 for none. It is for commands that found
// nothing. Patterns, and what cannot be known now, are passed over.
func missing(ctx context.Context, r *command.Reached, job string, item int) error {
	if job == "" || strings.ContainsAny(job, `*?[\`) {
		return nil
	}
	names, err := r.Names(ctx)
	if err != nil {
		return nil // what was found is shown: nothing
	}
	there := slices.Contains(names, job)
	if of, _, run := strings.Cut(job, "/"); run { // no name has a slash
		return fmt.Errorf("%q is the id of a run, not the name of a job: 'wasmjob logs %s %s' shows its lines", words.Clip(job), words.Argument(of), words.Argument(job))
	}
	if !there && !remembered(ctx, r, "/v1/events", job, -1) && !remembered(ctx, r, "/v1/logs", job, -1) && !changed(ctx, r, job) {
		return fmt.Errorf("there is no job %q%s", words.Clip(job), words.Suggest(job, names))
	}
	if !there || item < 0 {
		return nil
	}
	var d service.JobDetail
	if err := r.Client.Get(ctx, "/v1/jobs/"+url.PathEscape(job), &d); err != nil || item < d.ShardingTotalCount || remembered(ctx, r, "/v1/runs", job, item) {
		return nil // it is being compiled, say
	}
	items := make(tree.Items, d.ShardingTotalCount)
	for i := range items {
		items[i] = i
	}
	return fmt.Errorf("job %q has no item %d; there is %s", words.Clip(job), item, items)
}

// withoutRuns says why a trigger has no runs: what hosts said of it, or what may be.
func withoutRuns(ctx context.Context, r *command.Reached, job string, trigger uint64) string {
	q := url.Values{"kind": {string(event.FireSkipped)}, "trigger": {strconv.FormatUint(trigger, 10)}, "limit": {"1"}}
	if job != "" {
		q.Set("job", job)
	}
	var found cluster.Found[event.Event]
	if err := r.Client.Get(ctx, "/v1/events?"+q.Encode(), &found); err == nil && len(found.Records) == 1 {
		e := &found.Records[0]
		return fmt.Sprintf("trigger %d did not run on host %s: %s\n", trigger, tree.ServerOf(e.Host), words.FirstLine(e.Reason))
	}
	return fmt.Sprintf("no host has begun trigger %d, as far as the histories go: it waits, or a later trigger ran for both\n", trigger)
}

// remembered reports whether a list has a record of a job, or of one of its items, or may have one on
// a host that does not answer.
func remembered(ctx context.Context, r *command.Reached, path, job string, item int) bool {
	q := url.Values{"job": {cluster.Literal(job)}, "limit": {"1"}}
	if item >= 0 {
		q.Set("item", strconv.Itoa(item))
	}
	for {
		var found cluster.Found[json.RawMessage]
		if err := r.Client.Get(ctx, path+"?"+q.Encode(), &found); err != nil || len(found.Records)+len(found.Silent) > 0 {
			return true
		}
		if q.Set("after", found.Next); found.Next == "" {
			return false
		}
	}
}

// changed reports whether a job is known to have been changed: what was refused, or was about alerts,
// may have been of one that there never was.
func changed(ctx context.Context, r *command.Reached, job string) bool {
	var found cluster.Found[history.Change]
	q := url.Values{"job": {cluster.Literal(job)}, "limit": {strconv.Itoa(history.MaxLimit)}, "what": {"!silence", "!end", "!test"}}
	err := r.Client.Get(ctx, "/v1/audit?"+q.Encode(), &found)
	return err != nil || found.Next != "" || slices.ContainsFunc(found.Records, func(c history.Change) bool { return c.Error == "" })
}
