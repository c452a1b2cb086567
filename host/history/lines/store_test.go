package lines

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/event"
	"github.com/wasmjob/wasmjob/host/history"
	"github.com/wasmjob/wasmjob/host/history/historytest"
)

// TestQueriesAfterReopening: what a store answers, another one that opens its file does.
func TestQueriesAfterReopening(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "h.jsonl")
	s := open(t, Options{Path: path})
	at := time.Date(2026, 3, 1, 3, 0, 0, 0, time.UTC)
	item := 7
	e := event.Event{Time: at.Add(time.Second), Kind: event.FireStarted, Host: "h1", Job: "cities", Instant: at, Source: abi.SourceSchedule, Items: []int{7}, Total: 8}
	s.AddEvent(e)
	e.Kind, e.Item, e.Items, e.RunID, e.Attempt, e.Fence = event.ItemStarted, &item, nil, "cities/2026-03-01T03:00:00.000Z/7", 1, 5
	s.AddEvent(e)
	s.AddLine(history.Line{Time: e.Time, Job: e.Job, RunID: e.RunID, Item: item, Host: "h1", Message: "hello"})
	e.Kind, e.Time, e.Outcome, e.Reason = event.ItemEnded, e.Time.Add(time.Second), abi.OutcomeFail, "no such City"
	s.AddEvent(e)
	s.AddChange(history.Change{Time: e.Time, Who: "ann", What: "trigger", Job: "cities"})
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	again := open(t, Options{Path: path})
	for what, s := range map[string]*Store{"writer": s, "reader": again} {
		runs, err := s.Runs(t.Context(), history.Filter{Jobs: []string{"cit*"}, Failed: true, Text: "CITY"})
		if err != nil || len(runs.Records) != 1 || runs.Records[0].Outcome != abi.OutcomeFail || runs.Records[0].Lag != time.Second {
			t.Errorf("%s: runs %+v %v", what, runs, err)
		}
		fires, err := s.Fires(t.Context(), history.Filter{Item: &item})
		if err != nil || len(fires.Records) != 1 || fires.Records[0].Failed != 1 || fires.Records[0].Total != 8 || fires.Records[0].Message != "no such City" {
			t.Errorf("%s: fires %+v %v", what, fires, err)
		}
		lines, err := s.Lines(t.Context(), history.Filter{Run: e.RunID})
		if err != nil || len(lines.Records) != 1 || lines.Records[0].Message != "hello" {
			t.Errorf("%s: lines %+v %v", what, lines, err)
		}
		changes, err := s.Changes(t.Context(), history.Filter{})
		if err != nil || len(changes.Records) != 1 || changes.Records[0].Who != "ann" {
			t.Errorf("%s: changes %+v %v", what, changes, err)
		}
		events, err := s.Events(t.Context(), history.Filter{Limit: 2})
		if err != nil || len(events.Records) != 2 || events.Records[0].Kind != event.ItemEnded || events.Next == "" {
			t.Fatalf("%s: events %+v %v", what, events, err)
		}
		events, err = s.Events(t.Context(), history.Filter{Limit: 2, After: events.Next})
		if err != nil || len(events.Records) != 1 || events.Records[0].Kind != event.FireStarted || events.Next != "" {
			t.Errorf("%s: older events %+v %v", what, events, err)
		}
	}
}

// TestMemory: a store without a file answers, too.
func TestMemory(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, err := Open(Options{})
		if err != nil {
			t.Fatal(err)
		}
		s.AddEvent(event.Event{Time: time.Now(), Kind: event.HostStarted})
		synctest.Wait()
		if page, err := s.Events(t.Context(), history.Filter{}); err != nil || len(page.Records) != 1 {
			t.Errorf("%+v %v", page, err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
}

// TestIndexIsFull: of what an index has no room for the oldest go, a fire with all its runs;
// the newest fire of each job stays, and what runs.
func TestIndexIsFull(t *testing.T) {
	t.Parallel()
	s := open(t, Options{index: 400 << 10})
	w := historytest.NewWorld(7, 400, time.Now().Add(-3*time.Hour))
	rare, item := w.Events[0], 0
	rare.Job, rare.Items, rare.Time = "rare", []int{0}, w.Events[0].Time.Add(-time.Hour)
	s.AddEvent(rare)
	rare.Kind, rare.Items, rare.Item, rare.RunID, rare.Attempt = event.ItemStarted, nil, &item, "rare/t1/0", 1
	s.AddEvent(rare)
	w.Add(t, s)
	whole := make(map[history.FireKey]history.Fire)
	for _, f := range w.Fires {
		whole[f.Key()] = f
	}
	fires, err := s.Fires(t.Context(), history.Filter{Limit: history.MaxLimit})
	if err != nil || len(fires.Records) < 20 || len(fires.Records) >= len(w.Fires) {
		t.Fatalf("%d fires of %d, %v", len(fires.Records), len(w.Fires), err)
	}
	jobs := make(map[string]bool)
	for _, f := range fires.Records {
		jobs[f.Job] = true
		if want := whole[f.Key()]; f.Job != "rare" && (f.Succeeded != want.Succeeded || f.Failed != want.Failed || f.Running != 0) {
			t.Errorf("%d succeeded, %d failed, %d run, want %d, %d and none: %+v", f.Succeeded, f.Failed, f.Running, want.Succeeded, want.Failed, f)
		}
	}
	if len(jobs) != len(historytest.Names())+1 {
		t.Errorf("fires of %d jobs, want the newest of each of %d", len(jobs), len(historytest.Names())+1)
	}
	if runs, err := s.Runs(t.Context(), history.Filter{Jobs: []string{"rare"}}); err != nil || len(runs.Records) != 1 {
		t.Errorf("the run that runs: %+v, %v", runs, err)
	}
	if bytes := s.index.events.bytes + s.index.lines.bytes + s.index.runs.bytes + s.index.fires.bytes; bytes > 500<<10 {
		t.Errorf("it takes %d bytes", bytes)
	}
}

// TestKilledBeforeItBegan: an item that is killed while it waits for a worker has a run, also in an index that has
// forgotten what was before.
func TestKilledBeforeItBegan(t *testing.T) {
	t.Parallel()
	s := open(t, Options{index: 400 << 10})
	w := historytest.NewWorld(7, 400, time.Now().Add(-3*time.Hour))
	w.Add(t, s)
	e := event.Event{Time: time.Now(), Kind: event.FireStarted, Host: "10.0.0.1@-@1-a", Job: "killed", Instant: time.Now(), Items: []int{0, 1}}
	s.AddEvent(e)
	e.Attempt = 1
	for item, kind := range []event.Kind{event.ItemStarted, event.ItemCompleted} {
		e.Kind, e.Items, e.Item, e.RunID, e.Fence = kind, nil, &item, fmt.Sprintf("killed/x/%d", item), 5
		if item == 1 {
			e.Outcome, e.Attempt = abi.OutcomeCancelled, 0
		}
		s.AddEvent(e)
	}
	s.Sync(t.Context())
	fires, err := s.Fires(t.Context(), history.Filter{Jobs: []string{"killed"}})
	if err != nil || len(fires.Records) != 1 || fires.Records[0].Running != 1 || fires.Records[0].Cancelled != 1 {
		t.Errorf("%+v, %v", fires, err)
	}
	if runs, err := s.Runs(t.Context(), history.Filter{Jobs: []string{"killed"}}); err != nil || len(runs.Records) != 2 {
		t.Errorf("%+v, %v", runs, err)
	}
}

// TestIndex_largeFire: the newest fire of a job is kept, also if it has many more items than the index has room for.
// That takes no longer for each of them than for the first ones.
func TestIndex_largeFire(t *testing.T) {
	t.Parallel()
	x := newIndex(1 << 20)
	e := event.Event{Time: time.Now(), Kind: event.FireStarted, Host: "h", Job: "j", Instant: time.Now(), Fence: 1, Attempt: 1, Outcome: abi.OutcomeOK}
	const items, batch = 20_000, 100
	for n := range items {
		e.Items = append(e.Items, n)
	}
	x.add([]history.Entry{{Record: history.Record{Event: &e}}})
	began := time.Now()
	for n := 0; n < items && time.Since(began) < 30*time.Second; n += batch {
		var entries []history.Entry
		for item := n; item < n+batch; item++ {
			for _, kind := range []event.Kind{event.ItemStarted, event.ItemEnded, event.ItemCompleted} {
				of := e
				of.Kind, of.Items, of.Item, of.RunID = kind, nil, &item, fmt.Sprintf("j/x/%d", item)
				entries = append(entries, history.Entry{Record: history.Record{Event: &of}})
			}
		}
		x.add(entries)
	}
	if found := len(x.runs.list); found != items {
		t.Errorf("%d runs after %s, want %d", found, time.Since(began), items)
	}
}

// TestHostIsOver_segments: that a host is over may stand in a later file than what it had begun.
func TestHostIsOver_segments(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "h.jsonl")
	s := open(t, Options{Path: path, MaxBytes: 1 << 20, index: 1 << 10, look: time.Hour})
	at := time.Now().UTC().Add(-time.Hour).Truncate(time.Second)
	fill := func() { at = fill(t, s, at) }
	item, e := 0, event.Event{Time: at, Kind: event.FireStarted, Host: "10.0.0.1@-@1-a", Job: "rare", Instant: at, Source: abi.SourceSchedule, Items: []int{0}, Total: 1}
	s.AddEvent(e)
	e.Kind, e.Items, e.Item, e.RunID, e.Fence, e.Attempt = event.ItemStarted, nil, &item, "rare/"+at.Format("2006-01-02T15:04:05.000Z")+"/0", 5, 1
	s.AddEvent(e)
	first := e.RunID
	fill()
	over := at.Add(time.Millisecond)
	s.AddEvent(event.Event{Time: over, Kind: event.HostStarted, Host: "10.0.0.1@-@2"})
	// A newer fire, so that this one is not kept in memory as the job's newest.
	e.Time, e.Instant, e.RunID, e.Trigger, e.Source = over.Add(time.Millisecond), over, "rare/t9/0", 9, abi.SourceTrigger
	s.AddEvent(e)
	e.Time, e.Kind, e.Outcome = over.Add(2*time.Millisecond), event.ItemEnded, abi.OutcomeOK
	s.AddEvent(e)
	fill()
	if _, ok := s.RunOf(t.Context(), first); ok {
		t.Fatal("the run is in memory")
	}
	runs, err := s.Runs(t.Context(), history.Filter{Jobs: []string{"rare"}, Oldest: true})
	if err != nil || len(runs.Records) != 2 || runs.Records[0].Outcome != history.Unknown || !runs.Records[0].Ended.Equal(over) {
		t.Errorf("%+v, %v", runs, err)
	}
	fires, err := s.Fires(t.Context(), history.Filter{Jobs: []string{"rare"}, Oldest: true})
	if err != nil || len(fires.Records) != 2 || fires.Records[0].Outcome != history.Unknown || fires.Records[0].Running != 0 {
		t.Errorf("%+v, %v", fires, err)
	}
}

// TestDroppedRecords: a fire of which the begin of a run and the end were dropped does not run, also when the index has
// forgotten older ones.
func TestDroppedRecords(t *testing.T) {
	t.Parallel()
	s := open(t, Options{index: 1 << 10})
	at := time.Now().UTC().Add(-time.Hour).Truncate(time.Second)
	add := func(kind event.Kind, trigger int64, item int, outcome abi.Outcome) {
		at = at.Add(time.Millisecond)
		e := event.Event{Time: at, Kind: kind, Host: "10.0.0.1@-@1-a", Job: "j", Instant: at, Source: abi.SourceTrigger, Trigger: trigger, Outcome: outcome}
		if kind == event.FireStarted || kind == event.FireEnded {
			e.Items = []int{item}
		} else {
			e.Item, e.RunID, e.Fence, e.Attempt = &item, fmt.Sprintf("j/t%d/%d", trigger, item), trigger, 1
		}
		s.AddEvent(e)
		s.Sync(t.Context())
	}
	for trigger := range int64(3) {
		add(event.FireStarted, trigger+1, 0, "")
		add(event.ItemStarted, trigger+1, 0, "")
		add(event.ItemEnded, trigger+1, 0, abi.OutcomeOK)
		add(event.FireEnded, trigger+1, 0, abi.OutcomeOK)
	}
	if _, ok := s.RunOf(t.Context(), "j/t1/0"); ok {
		t.Fatal("the index has forgotten nothing")
	}
	add(event.FireStarted, 9, 0, "")
	add(event.ItemEnded, 9, 0, abi.OutcomeOK)
	add(event.ItemCompleted, 9, 0, abi.OutcomeOK)
	add(event.ItemEnded, 9, 1, abi.OutcomeOK) // began before what is known of the fire
	if f, ok := s.FireOf(t.Context(), history.FireKey{Job: "j", Trigger: 9}); !ok || f.Running != 0 || f.Succeeded != 1 || len(f.Items) != 1 {
		t.Errorf("the fire: %+v", f)
	}
	add(event.ItemEnded, 1, 0, abi.OutcomeOK) // whose fire is forgotten
	if r, ok := s.RunOf(t.Context(), "j/t1/0"); ok {
		t.Errorf("a run of which the begin is forgotten: %+v", r)
	}
	at = at.Add(2 * time.Hour)
	add(event.ItemEnded, 9, 0, abi.OutcomeOK) // another fire of that number
	if r, _ := s.RunOf(t.Context(), "j/t9/0"); r.Instant.Equal(at) {
		t.Errorf("a run of which the begin is not known: %+v", r)
	}
}

// fill adds more than a file of events after a time, and returns that of the last.
func fill(t *testing.T, s *Store, at time.Time) time.Time {
	t.Helper()
	before, err := Segments(s.path)
	if err != nil {
		t.Fatal(err)
	}
	for now := before; len(now) < len(before)+2; {
		for range 200 {
			at = at.Add(time.Millisecond)
			s.AddEvent(event.Event{Time: at, Kind: event.ItemSkipped, Host: "10.0.0.1@-@1-a", Job: "noisy", Reason: strings.Repeat("x", event.MaxReason)})
		}
		s.Sync(t.Context())
		if now, err = Segments(s.path); err != nil {
			t.Fatal(err)
		}
	}
	return at
}

// TestAttempts_segments: a run whose attempts stand in two files is one.
func TestAttempts_segments(t *testing.T) {
	t.Parallel()
	s := open(t, Options{Path: filepath.Join(t.TempDir(), "h.jsonl"), MaxBytes: 1 << 20, index: 1 << 10, look: time.Hour})
	begun := time.Now().UTC().Add(-time.Hour).Truncate(time.Second)
	item, e := 0, event.Event{Host: "10.0.0.1@-@1-a", Job: "rare", Source: abi.SourceTrigger, Fence: 5}
	add := func(at time.Time, kind event.Kind, run string, trigger int64, attempt int, outcome abi.Outcome) {
		e.Time, e.Kind, e.Item, e.RunID, e.Trigger, e.Attempt, e.Outcome, e.Instant = at, kind, &item, run, trigger, attempt, outcome, begun
		s.AddEvent(e)
	}
	add(begun, event.ItemStarted, "rare/t1/0", 1, 1, "")
	add(begun.Add(time.Millisecond), event.ItemEnded, "rare/t1/0", 1, 1, abi.OutcomeRetry)
	at := fill(t, s, begun.Add(time.Millisecond)).Add(5 * time.Minute) // a long pause before the next
	add(at, event.ItemStarted, "rare/t1/0", 1, 2, "")
	add(at, event.ItemEnded, "rare/t1/0", 1, 2, abi.OutcomeOK)
	for trigger := range int64(2) { // of which the index forgets the first
		at = at.Add(time.Millisecond)
		e.Job = "other"
		run := fmt.Sprintf("other/t%d/0", trigger+1)
		add(at, event.ItemStarted, run, trigger+1, 1, "")
		add(at, event.ItemEnded, run, trigger+1, 1, abi.OutcomeOK)
	}
	at, e.Job = fill(t, s, at), "rare"
	add(at, event.ItemStarted, "rare/t2/0", 2, 1, "") // so that the first is not in memory as the job's newest
	fill(t, s, at)
	runs, err := s.Runs(t.Context(), history.Filter{Jobs: []string{"rare"}, Oldest: true})
	if err != nil || len(runs.Records) != 2 || runs.Records[0].Attempt != 2 || !runs.Records[0].Begun.Equal(begun) {
		t.Errorf("%+v, %v", runs, err)
	}
}
