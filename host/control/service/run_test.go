package service_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/coordination/tree"
	"github.com/wasmjob/wasmjob/host/auth"
	"github.com/wasmjob/wasmjob/host/control/cluster"
	"github.com/wasmjob/wasmjob/host/control/service"
	"github.com/wasmjob/wasmjob/host/control/service/servicetest"
	"github.com/wasmjob/wasmjob/host/engine"
	"github.com/wasmjob/wasmjob/host/event"
	"github.com/wasmjob/wasmjob/host/history"
)

// TestRunning: what runs is listed with how long it usually takes, once enough runs tell.
func TestRunning(t *testing.T) {
	t.Parallel()
	h := servicetest.Start(t, servicetest.Options{Jobs: []engine.Job{servicetest.Job("a", "", 1, servicetest.OK)}})
	ctx := auth.With(t.Context(), auth.HostToken(auth.ByHostToken))
	now := time.Now().Truncate(time.Second)
	tell := func(job string, ago, took time.Duration, outcome abi.Outcome) {
		e := event.Event{Kind: event.FireStarted, Time: now.Add(-ago), Job: job, Instant: now.Add(-ago), Source: abi.SourceSchedule, Host: "10.0.0.1@-@1-a", Items: []int{0}, Total: 1}
		e.RunID = tree.RunID(job, tree.Fire{Instant: e.Instant.UnixMilli()}, 0)
		h.Store.AddEvent(e)
		e.Kind, e.Item, e.Attempt, e.Items = event.ItemStarted, new(int), 1, nil
		h.Store.AddEvent(e)
		if took == 0 {
			return
		}
		e.Kind, e.Time, e.Outcome, e.Duration = event.ItemEnded, e.Time.Add(took), outcome, took
		h.Store.AddEvent(e)
		e.Kind = event.ItemCompleted
		h.Store.AddEvent(e)
		e.Kind, e.Items, e.Item = event.FireEnded, []int{0}, nil
		h.Store.AddEvent(e)
	}
	for n, seconds := range []time.Duration{20, 30, 40, 10, 50} {
		tell("often", time.Duration(n+2)*time.Hour, seconds*time.Second, abi.OutcomeOK)
	}
	tell("often", 90*time.Minute, time.Millisecond, abi.OutcomeTrap)
	tell("often", time.Minute, 0, "")
	tell("new", time.Hour, time.Second, abi.OutcomeOK)
	tell("new", time.Second, 0, "")
	want := map[string]time.Duration{"often": 30 * time.Second, "new": 0}
	h.Until("both are listed", func() bool {
		fires, err := h.Service.Fires(ctx, history.Filter{Running: true})
		if err != nil {
			t.Fatal(err)
		}
		runs, err := h.Service.Runs(ctx, history.Filter{Running: true})
		if err != nil {
			t.Fatal(err)
		}
		found := make(map[string]time.Duration)
		for _, f := range fires.Records {
			found[f.Job] = f.Usual
		}
		for _, r := range runs.Records {
			if found[r.Job] != r.Usual {
				return false
			}
		}
		return len(fires.Records) == 2 && len(runs.Records) == 2 && maps.Equal(found, want)
	})
	// One of two items has ended: the fire has no outcome yet.
	e := event.Event{Kind: event.FireStarted, Time: now, Job: "half", Instant: now, Source: abi.SourceSchedule, Host: "10.0.0.1@-@1-a", Items: []int{0, 1}, Total: 2}
	h.Store.AddEvent(e)
	for _, e.Kind = range []event.Kind{event.ItemStarted, event.ItemEnded, event.ItemCompleted} {
		e.Item, e.Items, e.Attempt, e.RunID = new(int), nil, 1, tree.RunID("half", tree.Fire{Instant: now.UnixMilli()}, 0)
		if e.Kind != event.ItemStarted {
			e.Outcome = abi.OutcomeOK
		}
		h.Store.AddEvent(e)
	}
	h.Until("half of it has ended", func() bool {
		found, err := h.Service.Fires(ctx, history.Filter{Jobs: []string{"half"}})
		return err == nil && len(found.Records) == 1 && found.Records[0].Succeeded == 1 && found.Records[0].Running == 1 && found.Records[0].Outcome == ""
	})
	if ok, err := h.Service.Fires(ctx, history.Filter{Jobs: []string{"half"}, Outcomes: []abi.Outcome{abi.OutcomeOK}}); err != nil || len(ok.Records) != 0 {
		t.Errorf("a fire that runs is OK: %+v, %v", ok.Records, err)
	}
	all, err := h.Service.Fires(ctx, history.Filter{Jobs: []string{"often"}})
	if err != nil || len(all.Records) != 7 || all.Records[0].Usual != 0 {
		t.Errorf("a list of all has no more than the histories have: %+v, %v", all.Records, err)
	}
}

// slowPast is a store that has much to look through for runs of an outcome.
type slowPast struct {
	history.Store
	t *testing.T
}

func (s slowPast) Runs(ctx context.Context, f history.Filter) (history.Page[history.Run], error) {
	if len(f.Outcomes) == 0 {
		return s.Store.Runs(ctx, f)
	}
	if end, bounded := ctx.Deadline(); !bounded || time.Until(end) > 5*time.Second {
		s.t.Error("a list waits for as long as a store reads")
	}
	return history.Page[history.Run]{}, context.DeadlineExceeded
}

// TestRunning_slowPast: what runs is listed in time, also if it takes long to find out how long it usually takes.
func TestRunning_slowPast(t *testing.T) {
	t.Parallel()
	h := servicetest.Start(t, servicetest.Options{Jobs: []engine.Job{servicetest.Job("a", "", 1, servicetest.OK)}})
	h.Histories.Store = slowPast{h.Store, t}
	ctx := auth.With(t.Context(), auth.HostToken(auth.ByHostToken))
	h.Store.AddEvent(event.Event{Kind: event.ItemStarted, Time: time.Now(), Job: "a", Host: "10.0.0.1@-@1-a", Instant: time.Now(), Item: new(int), RunID: "a/x/0", Attempt: 1})
	h.Until("it is listed", func() bool {
		runs, err := h.Service.Runs(ctx, history.Filter{Running: true})
		if err != nil {
			t.Fatal(err)
		}
		return len(runs.Records) == 1 && runs.Records[0].Usual == 0
	})
}

// laterPages is a store that finds runs and lines on a page behind empty ones alone, as one does
// that has much to look through.
type laterPages struct{ history.Store }

func (s laterPages) Runs(ctx context.Context, f history.Filter) (history.Page[history.Run], error) {
	if f.To.IsZero() {
		return history.Page[history.Run]{Next: nothingYet(history.ListRuns)}, nil
	}
	return s.Store.Runs(ctx, f)
}

func (s laterPages) Lines(ctx context.Context, f history.Filter) (history.Page[history.Line], error) {
	if f.To.IsZero() {
		return history.Page[history.Line]{Next: nothingYet(history.ListLines)}, nil
	}
	return s.Store.Lines(ctx, f)
}

// nothingYet is the cursor of a page that has looked through what is newer than all records.
func nothingYet(list byte) string {
	return history.PositionOf(time.Now().Add(time.Hour), "x").Cursor(list)
}

// TestRun_laterPages: a run is found with its lines however many pages the store needs for it.
func TestRun_laterPages(t *testing.T) {
	t.Parallel()
	h := servicetest.Start(t, servicetest.Options{Jobs: []engine.Job{servicetest.Job("a", "", 1, servicetest.OK)}})
	ctx := auth.With(t.Context(), auth.HostToken(auth.ByHostToken))
	if _, err := h.Service.Trigger(ctx, "a", tree.TriggerArgs{}, ""); err != nil {
		t.Fatal(err)
	}
	var runs []history.Run
	h.Until("the item ran", func() bool {
		found, err := h.Service.Runs(ctx, history.Filter{Outcomes: []abi.Outcome{abi.OutcomeOK}})
		runs = found.Records
		return err == nil && len(runs) == 1
	})
	h.Store.AddLine(history.Line{Time: time.Now(), Job: "a", RunID: runs[0].ID, Message: "hello"})
	h.Histories.Store = laterPages{h.Store}
	h.Until("its line is there", func() bool {
		d, err := h.Service.Run(ctx, runs[0].ID)
		if err != nil {
			t.Fatal(err)
		}
		return len(d.Lines) == 1 && len(d.Events) > 0
	})
}

// TestPartly: whoever's part of a run, of what failed or of what comes is missing is named.
func TestPartly(t *testing.T) {
	t.Parallel()
	h := servicetest.Start(t, servicetest.Options{Jobs: []engine.Job{servicetest.Job("a", "", 1, servicetest.OK)}})
	ctx := auth.With(t.Context(), auth.HostToken(auth.ByHostToken))
	h.Store.AddEvent(event.Event{Kind: event.ItemStarted, Time: time.Now(), Job: "a", Host: "10.0.0.1@-@1-a", Instant: time.Now(), Item: new(int), RunID: "a/x/0", Attempt: 1})
	h.Until("the run is known", func() bool { d, err := h.Service.Run(ctx, "a/x/0"); return err == nil && len(d.Silent) == 0 })
	h.Histories.Peers = func() []cluster.Peer {
		return []cluster.Peer{{ID: "x", ClusterDetail: tree.ClusterDetail{ServerIP: "10.0.0.9"}}}
	}
	for _, slow := range []string{cluster.PathRuns, cluster.PathEvents, cluster.PathLines} {
		h.Histories.Get = func(_ context.Context, _ cluster.Peer, path string, _ any) error {
			if strings.HasPrefix(path, slow) {
				return errors.New("it is slow")
			}
			return nil
		}
		want := []string{"10.0.0.9: it is slow"}
		if d, err := h.Service.Run(ctx, "a/x/0"); err != nil || !slices.Equal(d.Silent, want) {
			t.Errorf("a run without %s: %v, %v", slow, d, err)
		}
		if o, err := h.Service.Overview(ctx); err != nil || slices.Equal(o.Silent, want) != (slow == cluster.PathRuns) {
			t.Errorf("the overview without %s: %q, %v", slow, o.Silent, err)
		}
	}
}

// TestJobOfSilentHost: while a host has never answered, it is not said that no host has a job.
func TestJobOfSilentHost(t *testing.T) {
	t.Parallel()
	server := servicetest.NewServer(t)
	a := servicetest.Start(t, servicetest.Options{Server: server, IP: "10.0.0.1", Jobs: []engine.Job{servicetest.Job("a", "", 1, servicetest.OK)}})
	ctx := auth.With(t.Context(), auth.HostToken(auth.ByHostToken))
	missing, silent := new(service.NotFoundError), new(service.SilentError)
	if _, err := a.Service.Job(ctx, "nosuch"); !errors.As(err, &missing) {
		t.Errorf("alone: %v", err)
	}
	servicetest.Start(t, servicetest.Options{Server: server, IP: "10.0.0.2"}) // which nobody can reach
	a.Until("the other host is known, and silent", func() bool {
		_, err := a.Service.Job(ctx, "nosuch")
		return errors.As(err, &silent) && strings.Contains(err.Error(), "10.0.0.2")
	})
}
