package service_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/coordination/tree"
	"github.com/wasmjob/wasmjob/host/auth"
	"github.com/wasmjob/wasmjob/host/control/service"
	"github.com/wasmjob/wasmjob/host/control/service/servicetest"
	"github.com/wasmjob/wasmjob/host/engine"
	"github.com/wasmjob/wasmjob/host/event"
	"github.com/wasmjob/wasmjob/host/history"
	"github.com/wasmjob/wasmjob/internal/labels"
)

func labelled(job engine.Job, of string) engine.Job {
	job.Definition.Props = map[string]string{"wasm.labels": of}
	return job
}

func selected(t *testing.T, text string) labels.Selector {
	t.Helper()
	s, err := labels.ParseSelector(text)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// tellRun has a house remember a run of a job, and a line of it.
func tellRun(h *servicetest.House, job string, at time.Time) {
	e := event.Event{Kind: event.FireStarted, Time: at, Job: job, Instant: at, Source: abi.SourceSchedule, Host: "10.0.0.1@-@1-a", Items: []int{0}, Total: 1}
	h.Store.AddEvent(e)
	e.RunID, e.Items = tree.RunID(job, tree.Fire{Instant: at.UnixMilli()}, 0), nil
	for _, e.Kind = range []event.Kind{event.ItemStarted, event.ItemEnded, event.ItemCompleted} {
		e.Item, e.Attempt, e.Outcome = new(int), 1, ""
		if e.Kind != event.ItemStarted {
			e.Outcome = abi.OutcomeOK
		}
		h.Store.AddEvent(e)
	}
	h.Store.AddLine(history.Line{Time: at, Job: job, RunID: e.RunID, Host: e.Host, Message: "it runs"})
}

func viewer(pattern string) auth.Principal {
	return auth.Principal{Name: "eve", Method: auth.ByToken, Bindings: []auth.Binding{{Role: auth.RoleViewer, Jobs: []string{pattern}}}}
}

// TestLabels: lists are of the jobs that a selector of labels finds, and say which labels these have.
func TestLabels(t *testing.T) {
	t.Parallel()
	const cron = "0 0 3 * * ?"
	h := servicetest.Start(t, servicetest.Options{Jobs: []engine.Job{
		labelled(servicetest.Job("bill", cron, 1, servicetest.OK), "team=billing,tier=gold"),
		labelled(servicetest.Job("dun", cron, 1, servicetest.OK), "team=billing,tier=test"),
		servicetest.Job("etl", cron, 1, servicetest.OK),
	}})
	ctx := auth.With(t.Context(), auth.HostToken(auth.ByHostToken))
	now := time.Now().Truncate(time.Second)
	for n, job := range []string{"bill", "dun", "etl"} {
		tellRun(h, job, now.Add(-time.Duration(n+1)*time.Minute))
	}
	h.Until("all runs are remembered", func() bool {
		found, err := h.Service.Runs(ctx, history.Filter{})
		lines, e := h.Service.Lines(ctx, history.Filter{})
		return err == nil && e == nil && len(found.Records) == 3 && len(lines.Records) == 3
	})
	for text, want := range map[string]string{
		"":                         "bill dun etl",
		"team=billing":             "bill dun",
		"team=billing,tier!=test":  "bill",
		"!team":                    "etl",
		"team!=billing":            "etl",
		"tier":                     "bill dun",
		"team=other":               "",
		"team=billing,tier=silver": "",
	} {
		jobs, err := h.Service.Jobs(ctx, service.JobFilter{Labels: []string{text}})
		if err != nil {
			t.Fatal(err)
		}
		found := map[string][]string{}
		note := func(list, job string, of labels.Set) {
			found[list] = append(found[list], job)
			if wanted := map[string]string{"bill": "team=billing,tier=gold", "dun": "team=billing,tier=test"}[job]; of.String() != wanted {
				t.Errorf("%q, %s: the labels of %s are %q, expected %q", text, list, job, of, wanted)
			}
		}
		for _, j := range jobs.Records {
			note("jobs", j.Name, j.Labels)
		}
		of := selected(t, text)
		fires, err := h.Service.Fires(ctx, history.Filter{Labels: of})
		runs, err2 := h.Service.Runs(ctx, history.Filter{Labels: of})
		lines, err3 := h.Service.Lines(ctx, history.Filter{Labels: of})
		calendar, err4 := h.Service.Calendar(ctx, now, now.Add(25*time.Hour), service.JobFilter{Labels: []string{text}})
		if err := errors.Join(err, err2, err3, err4); err != nil {
			t.Fatal(err)
		}
		for _, f := range fires.Records {
			note("fires", f.Job, f.Labels)
		}
		for _, r := range runs.Records {
			note("runs", r.Job, r.Labels)
		}
		for _, l := range lines.Records {
			note("lines", l.Job, l.Labels)
		}
		for _, u := range calendar.Upcoming {
			if !slices.Contains(found["calendar"], u.Job) {
				note("calendar", u.Job, u.Labels)
			}
		}
		for _, list := range []string{"jobs", "fires", "runs", "lines", "calendar"} {
			slices.Sort(found[list])
			if got := strings.Join(found[list], " "); got != want {
				t.Errorf("%q: %s has %q, expected %q", text, list, got, want)
			}
		}
	}
	// Two selectors, and a pattern, hold together.
	jobs, err := h.Service.Jobs(ctx, service.JobFilter{Labels: []string{"team=billing", "tier=test"}})
	if err != nil || len(jobs.Records) != 1 || jobs.Records[0].Name != "dun" {
		t.Errorf("found %+v, %v, expected dun", jobs, err)
	}
	runs, err := h.Service.Runs(ctx, history.Filter{Jobs: []string{"b*", "etl"}, Labels: selected(t, "team=billing")})
	if err != nil || len(runs.Records) != 1 || runs.Records[0].Job != "bill" {
		t.Errorf("found %+v, %v, expected bill", runs, err)
	}
	var wrong *service.InputError
	if _, err := h.Service.Jobs(ctx, service.JobFilter{Labels: []string{"a b"}}); !errors.As(err, &wrong) || wrong.Where != "query.label" {
		t.Errorf("found %v, expected what is wrong with query.label", err)
	}
	// A user finds by labels only what the user may see.
	one := auth.With(t.Context(), viewer("dun"))
	jobs, err = h.Service.Jobs(one, service.JobFilter{Labels: []string{"team=billing"}})
	if err != nil || len(jobs.Records) != 1 || jobs.Records[0].Name != "dun" {
		t.Errorf("found %+v, %v, expected dun alone", jobs, err)
	}
	runs, err = h.Service.Runs(one, history.Filter{Labels: selected(t, "team=billing")})
	if err != nil || len(runs.Records) != 1 || runs.Records[0].Job != "dun" {
		t.Errorf("found %+v, %v, expected dun alone", runs, err)
	}
}

// TestLabelsOfManyJobs: names that are too long for the address of another host do not keep a selector from finding.
func TestLabelsOfManyJobs(t *testing.T) {
	t.Parallel()
	var jobs []engine.Job
	long := strings.Repeat("x", 150)
	for n := range 40 {
		jobs = append(jobs, labelled(servicetest.Job(fmt.Sprintf("%s%02d", long, n), "", 1, servicetest.OK), fmt.Sprintf("half=%d,all=yes", n%2)))
	}
	h := servicetest.Start(t, servicetest.Options{Jobs: jobs})
	now := time.Now().Truncate(time.Second)
	for n, job := range jobs {
		tellRun(h, job.Definition.JobName, now.Add(-time.Duration(n+1)*time.Minute))
	}
	tellRun(h, "other", now)
	for name, ctx := range map[string]context.Context{
		"all":  auth.With(t.Context(), auth.HostToken(auth.ByHostToken)),
		"some": auth.With(t.Context(), viewer(long+"*")),
	} {
		h.Until(name+" sees all runs", func() bool {
			found, err := h.Service.Runs(ctx, history.Filter{Labels: selected(t, "all=yes"), Limit: 100})
			return err == nil && len(found.Records) == 40
		})
		found, err := h.Service.Runs(ctx, history.Filter{Labels: selected(t, "half=1,all"), Limit: 100})
		if err != nil || len(found.Records) != 20 || slices.ContainsFunc(found.Records, func(r history.Run) bool { return r.Labels["half"] != "1" }) {
			t.Errorf("%s: found %d runs, %v, expected the 20 of one half", name, len(found.Records), err)
		}
	}
}
