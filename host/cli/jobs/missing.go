package jobs

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/wasmjob/wasmjob/coordination/tree"
	"github.com/wasmjob/wasmjob/host/cli/command"
	"github.com/wasmjob/wasmjob/host/control/cluster"
	"github.com/wasmjob/wasmjob/host/control/service"
	"github.com/wasmjob/wasmjob/host/event"
	"github.com/wasmjob/wasmjob/host/history"
	"github.com/wasmjob/wasmjob/internal/text/words"
)

// missing is an error if a job that was named is not there and no history knows it, with the name
// that may be meant, or if it has no such item; item is -1 for none. It is for commands that found
// nothing. Patterns, and what cannot be known now, are passed over.
func missing(ctx context.Context, r *command.Reached, job string, item int) error {
	if job == "" || strings.ContainsAny(job, `*?[\`) {
		return nil
	}
	return missingJob(ctx, r, job, item)
}

// missingJob is missing for a command that takes no patterns.
func missingJob(ctx context.Context, r *command.Reached, job string, item int) error {
	names, err := r.Names(ctx)
	if err != nil {
		return nil // what was found is shown: nothing
	}
	there := slices.Contains(names, job)
	if of, _, run := strings.Cut(job, "/"); run { // no name has a slash
		return fmt.Errorf("%q is the id of a run, not the name of a job: 'wasmjob job logs %s %s' shows its lines", words.Clip(job), words.Argument(of), words.Argument(job))
	}
	q := url.Values{"job": {cluster.Literal(job)}}
	if !there && !remembered(ctx, r, "/v1/events", q) && !remembered(ctx, r, "/v1/logs", q) && !changed(ctx, r, job) {
		return fmt.Errorf("there is no job %q%s", words.Clip(job), words.Suggest(job, names))
	}
	if !there || item < 0 {
		return nil
	}
	var d service.JobDetail
	q.Set("item", strconv.Itoa(item))
	if err := r.Client.Get(ctx, "/v1/jobs/"+url.PathEscape(job), &d); err != nil || item < d.ShardingTotalCount || remembered(ctx, r, "/v1/runs", q) {
		return nil // it is being compiled, say
	}
	items := make(tree.Items, d.ShardingTotalCount)
	for i := range items {
		items[i] = i
	}
	return fmt.Errorf("job %q has no item %d; there is %s", words.Clip(job), item, items)
}

// unheardOf is an error if no host that answers has a job, and no history that can be read knows it: there may
// be one, but nothing can be said of it.
func unheardOf(ctx context.Context, r *command.Reached, job string) error {
	names, err := r.Names(ctx)
	if err != nil || slices.Contains(names, job) || changed(ctx, r, job) {
		return nil
	}
	q := url.Values{"job": {cluster.Literal(job)}}
	for _, list := range []string{"/v1/events", "/v1/logs"} {
		if record, _ := newest[json.RawMessage](ctx, r, list, q); record != nil {
			return nil
		}
	}
	return fmt.Errorf("no host that answers has a job %q%s, and the histories that can be read do not know it; those of some hosts cannot be", words.Clip(job), words.Suggest(job, names))
}

// missingHost is missing for a host that was named.
func missingHost(ctx context.Context, r *command.Reached, name string) error {
	if name == "" {
		return nil
	}
	var list []cluster.Host
	if err := r.Client.Get(ctx, "/v1/hosts", &list); err != nil {
		return nil // what was found is shown: nothing
	}
	named := func(h cluster.Host) bool {
		return name == h.ID || name == h.Name || name == h.ServerIP || (h.Report != nil && event.Names(name, h.Report.Status.Instance))
	}
	if slices.ContainsFunc(list, named) || remembered(ctx, r, "/v1/events", url.Values{"host": {name}}) {
		return nil
	}
	return fmt.Errorf("there is no host %q, and the histories have none; 'wasmjob host list' lists those that there are", words.Clip(name))
}

// withoutRuns says why a trigger is not in a list: what hosts said of it, or what may be. missing is an error
// if nothing is known of it.
func withoutRuns(ctx context.Context, r *command.Reached, job string, trigger uint64) (why string, missing error) {
	q := url.Values{"trigger": {strconv.FormatUint(trigger, 10)}}
	of := ""
	if job != "" {
		q.Set("job", job)
		of = fmt.Sprintf(" of job %q", words.Clip(job))
	}
	e, known := newest[event.Event](ctx, r, "/v1/events", q)
	if e != nil && e.Kind == event.FireSkipped {
		why = fmt.Sprintf("trigger %d did not run on host %s: %s\n", trigger, tree.ServerOf(e.Host), words.FirstLine(e.Reason))
	}
	if e != nil {
		return why, nil // without a reason, something else that was asked for leaves it out
	}
	if !known && !remembered(ctx, r, "/v1/audit", q) {
		missing = fmt.Errorf("there is no trigger %d%s, as far as the histories go", trigger, of)
	}
	return fmt.Sprintf("no host has begun trigger %d, as far as the histories go: it waits, or a later trigger ran for both\n", trigger), missing
}

// remembered reports whether a list has what a query asks for, or may have it on a host that does not answer.
func remembered(ctx context.Context, r *command.Reached, path string, query url.Values) bool {
	_, known := newest[json.RawMessage](ctx, r, path, query)
	return known
}

// newest is the first record of a list, nil for none; known is as remembered has it.
func newest[T any](ctx context.Context, r *command.Reached, path string, query url.Values) (record *T, known bool) {
	q := maps.Clone(query)
	q.Set("limit", "1")
	for {
		var found cluster.Found[T]
		if err := r.Client.Get(ctx, path+"?"+q.Encode(), &found); err != nil {
			return nil, true
		}
		if len(found.Records) > 0 {
			return &found.Records[0], true
		}
		if q.Set("after", found.Next); found.Next == "" || len(found.Silent) > 0 {
			return nil, len(found.Silent) > 0
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
