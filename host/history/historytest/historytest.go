// Package historytest has the suite that every store of histories must pass.
package historytest

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/event"
	"github.com/wasmjob/wasmjob/host/history"
)

// patience is how long a store may take to show what was added.
const patience = 30 * time.Second

// Run holds a store to what is expected of all. open opens an empty one; the suite closes it.
func Run(t *testing.T, open func(t *testing.T) history.Store) {
	t.Helper()
	for name, test := range map[string]func(*testing.T, history.Store){
		"random filters": randomFilters, "life of a run": lifeOfARun, "item that waits": itemThatWaits, "two fires of an instant": twoFiresOfAnInstant, "between two attempts": betweenAttempts, "worker process that ended": workerEnded, "lag": lags, "failover": failover, "taken over twice": takenOverTwice, "taken over, in any order": takenOverInAnyOrder, "lost run": lostRun, "host that is over": hostIsOver, "host that is gone": hostIsGone, "host that is gone, before what it says": goneBefore, "lost run, before it began": lostBefore, "held item": heldItem, "failed item": failedItem, "two hosts of a fire": twoHosts,
		"trigger number used twice": reusedTrigger, "forged cursors": forgedCursors, "bad filters": badFilters, "equal times": equalTimes,
		"tail of a log": tailOfALog, "adds and reads at once": atOnce, "no bytes": noBytes,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := open(t)
			closed := false
			t.Cleanup(func() {
				if t.Failed() {
					t.Logf("%+v", s.State())
				}
				if err := s.Close(); err != nil && !closed {
					t.Error(err)
				}
			})
			test(t, s)
			if state := s.State(); state.Dropped != 0 || state.Problem != "" {
				t.Errorf("state %+v, want nothing dropped and no problem", state)
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
			closed = true
			s.AddEvent(event.Event{Kind: event.JobAdded})
			if d := s.State().Dropped; d != 1 {
				t.Errorf("%d dropped after an event that came after Close, want 1", d)
			}
		})
	}
}

// await waits until the condition holds.
func await(t *testing.T, what string, holds func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(patience); !holds(); {
		if time.Now().After(end) {
			t.Fatalf("still no %s after %s", what, patience)
		}
		<-tick.C
	}
}

// all reads all pages.
func all[T any](t *testing.T, ask func(context.Context, history.Filter) (history.Page[T], error), f history.Filter) []T {
	t.Helper()
	var list []T
	for range 10_000 {
		page, err := ask(t.Context(), f)
		if err != nil {
			t.Fatalf("%+v: %v", f, err)
		}
		if len(page.Records) > cmp.Or(f.Limit, history.DefaultLimit) {
			t.Fatalf("%+v: a page of %d records", f, len(page.Records))
		}
		list = append(list, page.Records...)
		if page.Next == "" {
			return list
		}
		f.After = page.Next
	}
	t.Fatalf("%+v: the pages have no end", f)
	return nil
}

// text is a record as it can be compared: times by their instants.
func text(record any) string {
	data, err := json.MarshalIndent(record, "", " ")
	if err != nil {
		return err.Error()
	}
	return string(data)
}

// same compares lists of records.
func same[T any](t *testing.T, what string, got, want []T) bool {
	t.Helper()
	for i := range max(len(got), len(want)) {
		if i < len(got) && i < len(want) && reflect.DeepEqual(got[i], want[i]) {
			continue
		}
		var g, w string
		if i < len(got) {
			g = text(got[i])
		}
		if i < len(want) {
			w = text(want[i])
		}
		if g != w {
			t.Errorf("%s: record %d of %d, want %d\ngot  %s\nwant %s", what, i, len(got), len(want), g, w)
			return false
		}
	}
	return true
}

// Add adds all that a world has, in the order of its times, and waits until all is found.
func (w *World) Add(t *testing.T, s history.Store) {
	t.Helper()
	var list []history.Record
	for i := range w.Events {
		list = append(list, history.Record{Event: &w.Events[i]})
	}
	for i := range w.Lines {
		list = append(list, history.Record{Line: &w.Lines[i]})
	}
	for i := range w.Changes {
		list = append(list, history.Record{Change: &w.Changes[i]})
	}
	slices.SortStableFunc(list, func(a, b history.Record) int { return a.Time().Compare(b.Time()) })
	for i, r := range list {
		switch {
		case r.Event != nil:
			s.AddEvent(*r.Event)
		case r.Line != nil:
			s.AddLine(*r.Line)
		default:
			s.AddChange(*r.Change)
		}
		if i%500 == 0 { // no faster than it is taken
			await(t, "room in the queue", func() bool { return s.State().Queued < 4000 })
		}
	}
	end := event.Event{Time: list[len(list)-1].Time().Add(time.Second), Kind: event.HostStopped, Host: "h", Reason: "end of the world"}
	s.AddEvent(end)
	await(t, "last event", func() bool {
		page, err := s.Events(t.Context(), history.Filter{Limit: 1, Kinds: []event.Kind{event.HostStopped}})
		return err == nil && len(page.Records) == 1
	})
	w.Events = append(w.Events, end)
}

// randomFilters compares what filters find with what they should.
func randomFilters(t *testing.T, s history.Store) {
	w := NewWorld(1, 100, time.Now().Add(-2*time.Hour))
	w.Add(t, s)
	random := rand.New(rand.NewPCG(2, 0))
	for n := range 40 {
		f := w.filter(random)
		if n == 0 {
			f = history.Filter{Limit: 17, Level: -8}
		}
		what := fmt.Sprintf("filter %d %s", n, text(f))
		ok := same(t, what+" runs", all(t, s.Runs, f), expect(f, w.Runs, f.MatchRun, func(r history.Run) (time.Time, string) { return r.At(), r.ID })) &&
			same(t, what+" fires", all(t, s.Fires, f), expect(f, w.Fires, f.MatchFire, func(x history.Fire) (time.Time, string) { return x.Begun, x.Job })) &&
			same(t, what+" events", all(t, s.Events, f), expect(f, w.inTime(), f.MatchEvent, func(e event.Event) (time.Time, string) { return e.Time, "" })) &&
			same(t, what+" lines", all(t, s.Lines, f), expect(f, w.Lines, f.MatchLine, func(l history.Line) (time.Time, string) { return l.Time, "" })) &&
			same(t, what+" changes", all(t, s.Changes, f), expect(f, w.Changes, f.MatchChange, func(c history.Change) (time.Time, string) { return c.Time, "" }))
		if !ok {
			return
		}
	}
}

// inTime are the events in the order of their times.
func (w *World) inTime() []event.Event {
	return slices.SortedStableFunc(slices.Values(w.Events), func(a, b event.Event) int { return a.Time.Compare(b.Time) })
}

// expect is what a filter should find, in its order.
func expect[T any](f history.Filter, list []T, match func(*T) bool, key func(T) (time.Time, string)) []T {
	var found []T
	for i := range list {
		if match(&list[i]) {
			found = append(found, list[i])
		}
	}
	slices.SortStableFunc(found, func(a, b T) int {
		at, aid := key(a)
		bt, bid := key(b)
		return cmp.Or(at.Compare(bt), cmp.Compare(aid, bid))
	})
	if !f.Oldest {
		slices.Reverse(found)
	}
	return found
}

// filter makes one of the world's values.
func (w *World) filter(random *rand.Rand) history.Filter {
	f := history.Filter{Limit: []int{40, 300, 1000}[random.IntN(3)], Oldest: random.IntN(2) == 0, Level: []int{-8, 0, 4}[random.IntN(3)]}
	one := w.Runs[random.IntN(len(w.Runs))]
	maybe := func(do func()) {
		if random.IntN(5) == 0 {
			do()
		}
	}
	maybe(func() {
		f.Jobs = []string{one.Job}
		if strings.ContainsAny(one.Job, `[\`) {
			f.Jobs[0] = strings.NewReplacer(`\`, `\\`, `[`, `\[`).Replace(one.Job)
		}
	})
	maybe(func() { f.Jobs = []string{"team-a-*", "c?ties", "[0-9]*"} })
	maybe(func() {
		server, _, _ := strings.Cut(one.Host, "@-@")
		f.Host = []string{one.Host, event.ProcessOf(one.Host), server}[random.IntN(3)]
	})
	maybe(func() { f.Item = &one.Item })
	maybe(func() { f.Run = one.ID })
	maybe(func() { f.Instant, f.Trigger = one.Instant, one.Trigger })
	maybe(func() { f.Failed = true })
	maybe(func() { f.Running = true })
	maybe(func() { f.Outcomes = []abi.Outcome{abi.OutcomeTrap, one.Outcome} })
	maybe(func() { f.Kinds = []event.Kind{event.ItemEnded, event.FireStarted} })
	maybe(func() { f.Who = strings.ToUpper(w.Changes[random.IntN(len(w.Changes))].Who) })
	maybe(func() { f.What = [][]string{{"edit"}, {"!disable"}, {"disable", "!edit"}}[random.IntN(3)] })
	maybe(func() { f.From = one.Begun.Add(-time.Minute) })
	maybe(func() { f.To = one.Begun.Add(time.Minute) })
	maybe(func() {
		words := []rune(hostile()[random.IntN(len(hostile()))])
		from := random.IntN(len(words))
		f.Text = string(words[from:min(len(words), from+1+random.IntN(12))])
		if random.IntN(2) == 0 {
			f.Text = strings.ToUpper(f.Text)
		}
	})
	return f
}

// story reports events of one item of one fire.
type story struct {
	s  history.Store
	at time.Time
	e  event.Event
}

func newStory(s history.Store, job string) *story {
	item := 3
	at := time.Now().UTC().Truncate(time.Second).Add(-time.Hour)
	return &story{s, at, event.Event{Job: job, Host: "10.0.0.1@-@1-a", Instant: at, Source: abi.SourceSchedule, Item: &item, Items: []int{3},
		RunID: fmt.Sprintf("%s/%s/3", job, at.Format("2006-01-02T15:04:05.000Z")), Fence: 10, Attempt: 1}}
}

// tell adds an event, a second after the one before.
func (x *story) tell(kind event.Kind, change func(*event.Event)) {
	x.at = x.at.Add(time.Second)
	e := x.e
	e.Time, e.Kind = x.at, kind
	if kind == event.FireStarted || kind == event.FireEnded {
		e.Item, e.RunID, e.Fence, e.Attempt = nil, "", 0, 0
	} else {
		e.Items = nil
	}
	if change != nil {
		change(&e)
	}
	x.s.AddEvent(e)
}

// run waits until the story's run is as it should be.
func (x *story) run(t *testing.T, what string, is func(history.Run) bool) history.Run {
	t.Helper()
	var r history.Run
	await(t, what, func() bool {
		page, err := x.s.Runs(t.Context(), history.Filter{Run: x.e.RunID})
		if err != nil || len(page.Records) == 0 {
			return false
		}
		if len(page.Records) > 1 {
			t.Fatalf("%d runs of one id", len(page.Records))
		}
		r = page.Records[0]
		return is(r)
	})
	return r
}

func (x *story) fire(t *testing.T, is func(history.Fire) bool) history.Fire {
	t.Helper()
	var f history.Fire
	await(t, "fire", func() bool {
		page, err := x.s.Fires(t.Context(), history.Filter{Jobs: []string{x.e.Job}})
		if err != nil || len(page.Records) == 0 {
			return false
		}
		if len(page.Records) > 1 {
			t.Fatalf("%d fires: %s", len(page.Records), text(page.Records))
		}
		f = page.Records[0]
		return is(f)
	})
	return f
}

func lifeOfARun(t *testing.T, s history.Store) {
	x := newStory(s, "cities")
	x.tell(event.FireStarted, func(e *event.Event) { e.Total = 8 })
	x.tell(event.ItemStarted, nil)
	r := x.run(t, "run that runs", func(r history.Run) bool { return r.Ended.IsZero() })
	if r.Outcome != "" || !r.Begun.Equal(x.at) || r.Lag != 2*time.Second {
		t.Errorf("running: %s", text(r))
	}
	if f := x.fire(t, func(f history.Fire) bool { return f.Running == 1 }); !f.Ended.IsZero() || f.Duration != 0 || f.Outcome != "" || f.Total != 8 {
		t.Errorf("running: %s", text(f))
	}
	if failed := all(t, s.Runs, history.Filter{Failed: true}); len(failed) != 0 {
		t.Errorf("what runs has not failed: %s", text(failed))
	}
	now := history.Filter{Running: true}
	if runs, fires := all(t, s.Runs, now), all(t, s.Fires, now); len(runs) != 1 || len(fires) != 1 || runs[0].ID != r.ID {
		t.Errorf("what runs: %s; %s", text(runs), text(fires))
	}
	begun := x.at
	x.tell(event.ItemEnded, func(e *event.Event) { e.Outcome, e.Reason, e.Duration = abi.OutcomeRetry, "again", time.Second })
	x.run(t, "attempt that ended", func(r history.Run) bool { return r.Outcome == abi.OutcomeRetry }) // as hosts of earlier versions say it
	x.tell(event.ItemStarted, func(e *event.Event) { e.Attempt = 2 })
	r = x.run(t, "second attempt", func(r history.Run) bool { return r.Attempt == 2 })
	if !r.Ended.IsZero() || r.Outcome != "" || !r.Begun.Equal(begun) {
		t.Errorf("second attempt: %s", text(r))
	}
	x.tell(event.ItemEnded, func(e *event.Event) { e.Outcome, e.Duration, e.Attempt = abi.OutcomeOK, 7*time.Second, 2 })
	x.tell(event.ItemCompleted, func(e *event.Event) { e.Outcome, e.Attempt = abi.OutcomeOK, 2 })
	r = x.run(t, "completion", func(r history.Run) bool { return r.Completed })
	if r.Outcome != abi.OutcomeOK || r.Message != "" || r.Duration != 7*time.Second || r.Ended.Sub(r.Begun) != 3*time.Second {
		t.Errorf("completed: %s", text(r))
	}
	x.tell(event.FireEnded, func(e *event.Event) { e.Outcome = abi.OutcomeOK })
	f := x.fire(t, func(f history.Fire) bool { return f.Succeeded == 1 && !f.Ended.IsZero() })
	if f.Running+f.Failed != 0 || f.Outcome != abi.OutcomeOK {
		t.Errorf("ended: %s", text(f))
	}
	if runs, fires := all(t, s.Runs, now), all(t, s.Fires, now); len(runs)+len(fires) != 0 {
		t.Errorf("nothing runs: %s; %s", text(runs), text(fires))
	}
}

// itemThatWaits: a fire of which an item has not begun yet runs, however many others have been since.
func itemThatWaits(t *testing.T, s history.Store) {
	x := newStory(s, "cities")
	x.e.Items = []int{3, 4}
	ran := func(x *story) {
		x.tell(event.FireStarted, nil)
		x.tell(event.ItemStarted, nil)
		x.tell(event.ItemEnded, func(e *event.Event) { e.Outcome, e.Duration = abi.OutcomeOK, time.Second })
		x.tell(event.ItemCompleted, func(e *event.Event) { e.Outcome = abi.OutcomeOK })
	}
	ran(x)
	other := newStory(s, "cities")
	other.at = x.at
	for n := range 200 {
		other.e.Source, other.e.Instant, other.e.Trigger, other.e.RunID = abi.SourceTrigger, other.at, int64(n+1), fmt.Sprintf("cities/t%d/3", n+1)
		ran(other)
		other.tell(event.FireEnded, func(e *event.Event) { e.Outcome = abi.OutcomeOK })
	}
	await(t, "end of the others", func() bool {
		page, err := s.Fires(t.Context(), history.Filter{Jobs: []string{"cities"}, Trigger: 200})
		return err == nil && len(page.Records) == 1 && page.Records[0].Succeeded == 1 && !page.Records[0].Ended.IsZero()
	})
	if runs := all(t, s.Fires, history.Filter{Running: true}); len(runs) != 1 || runs[0].Trigger != 0 || runs[0].Running != 1 || runs[0].Succeeded != 1 {
		t.Errorf("what runs: %s", text(runs))
	}
}

// twoFiresOfAnInstant: a host that takes an item over runs it beside its own items of that instant. That one of the
// two ends is not the end of the other.
func twoFiresOfAnInstant(t *testing.T, s history.Store) {
	x := newStory(s, "cities")
	taken, item := "10.0.0.2@-@2-b", 4
	other := func(e *event.Event) {
		e.Source, e.Other = abi.SourceFailover, taken
		if e.Items = []int{item}; e.Item != nil {
			e.Item, e.Items, e.RunID, e.Fence = &item, nil, strings.TrimSuffix(x.e.RunID, "3")+"4", 11
		}
	}
	x.tell(event.FireStarted, nil)
	x.tell(event.ItemStarted, nil)
	x.tell(event.FireStarted, other)
	x.tell(event.ItemStarted, other)
	for _, kind := range []event.Kind{event.ItemEnded, event.ItemCompleted, event.FireEnded} {
		x.tell(kind, func(e *event.Event) { other(e); e.Outcome = abi.OutcomeFail })
	}
	await(t, "end of the one", func() bool { return len(all(t, s.Events, history.Filter{Kinds: []event.Kind{event.FireEnded}})) == 1 })
	now := history.Filter{Running: true}
	if runs, fires := all(t, s.Runs, now), all(t, s.Fires, now); len(runs) != 1 || len(fires) != 1 || fires[0].Running != 1 || fires[0].Failed != 1 {
		t.Errorf("what runs: %s; %s", text(runs), text(fires))
	}
	x.tell(event.ItemEnded, func(e *event.Event) { e.Outcome = abi.OutcomeOK })
	x.tell(event.FireEnded, func(e *event.Event) { e.Outcome = abi.OutcomeOK })
	x.fire(t, func(f history.Fire) bool { return f.Succeeded == 1 && !f.Ended.IsZero() })
	await(t, "failed fire", func() bool { return len(all(t, s.Fires, history.Filter{Failed: true})) == 1 })
	if fires := all(t, s.Fires, now); len(fires) != 0 {
		t.Errorf("nothing runs: %s", text(fires))
	}
}

// betweenAttempts: a run that waits for its next attempt runs, until it is killed, or its host is over.
func betweenAttempts(t *testing.T, s history.Store) {
	x := newStory(s, "cities")
	x.tell(event.FireStarted, nil)
	x.tell(event.ItemStarted, nil)
	begun := x.at
	again := func(e *event.Event) {
		e.Outcome, e.Reason, e.Duration, e.Again = abi.OutcomeRetry, "no file yet", time.Second, true
	}
	x.tell(event.ItemEnded, again)
	r := x.run(t, "attempt that ended", func(r history.Run) bool { return r.Message != "" })
	if !r.Ended.IsZero() || r.Outcome != "" || r.Attempt != 1 || !r.Begun.Equal(begun) || r.Took() != 0 || r.Message != "attempt 1 ended RETRY, and another one comes: no file yet" {
		t.Errorf("in the pause: %s", text(r))
	}
	if f := x.fire(t, func(history.Fire) bool { return true }); f.Running != 1 || f.Failed != 0 || !f.Ended.IsZero() || f.Outcome != "" {
		t.Errorf("in the pause, the fire: %s", text(f))
	}
	if failed := len(all(t, s.Runs, history.Filter{Failed: true})) + len(all(t, s.Fires, history.Filter{Failed: true})); failed != 0 {
		t.Errorf("%d failed in the pause", failed)
	}
	x.tell(event.ItemStarted, func(e *event.Event) { e.Attempt = 2 })
	x.run(t, "second attempt", func(r history.Run) bool { return r.Attempt == 2 && r.Message == "" })
	x.tell(event.ItemEnded, func(e *event.Event) { again(e); e.Attempt = 2 })
	x.tell(event.ItemCompleted, func(e *event.Event) { e.Outcome, e.Reason, e.Attempt = abi.OutcomeCancelled, "killed", 2 })
	r = x.run(t, "kill in the pause", func(r history.Run) bool { return r.Completed })
	if r.Outcome != abi.OutcomeCancelled || r.Message != "killed" || !r.Ended.Equal(x.at) || r.Took() != 4*time.Second {
		t.Errorf("killed in the pause: %s", text(r))
	}

	dies := newStory(s, "dies")
	dies.tell(event.ItemStarted, nil)
	dies.tell(event.ItemEnded, again)
	dies.run(t, "attempt that ended", func(r history.Run) bool { return r.Message != "" })
	s.AddEvent(event.Event{Time: dies.at.Add(time.Minute), Kind: event.HostStarted, Host: event.ProcessOf(dies.e.Host)})
	dies.run(t, "end of the host", func(r history.Run) bool {
		return r.Outcome == history.Unknown && !r.Ended.IsZero() && r.Took() == 0
	})
}

// workerEnded: an item under which its worker process ended runs again in the same attempt,
// and has not failed; if it ends under it again, it has.
func workerEnded(t *testing.T, s history.Store) {
	died := func(e *event.Event) {
		e.Outcome, e.Reason, e.Duration, e.Again = abi.OutcomeWorker, "the worker process ended", time.Second, true
	}
	failed := func(job string) int {
		f := history.Filter{Failed: true, Jobs: []string{job}}
		return len(all(t, s.Runs, f)) + len(all(t, s.Fires, f))
	}
	x := newStory(s, "innocent")
	x.tell(event.FireStarted, nil)
	x.tell(event.ItemStarted, nil)
	begun := x.at
	x.tell(event.ItemEnded, died)
	r := x.run(t, "end of the process", func(r history.Run) bool { return r.Message != "" })
	if !r.Ended.IsZero() || r.Outcome != "" || failed("innocent") != 0 {
		t.Errorf("when the process has ended: %s", text(r))
	}
	x.tell(event.ItemStarted, nil)
	x.tell(event.ItemEnded, func(e *event.Event) { e.Outcome, e.Duration = abi.OutcomeOK, time.Second })
	x.tell(event.ItemCompleted, func(e *event.Event) { e.Outcome = abi.OutcomeOK })
	x.tell(event.FireEnded, func(e *event.Event) { e.Outcome = abi.OutcomeOK })
	r = x.run(t, "run", func(r history.Run) bool { return r.Completed })
	if r.Outcome != abi.OutcomeOK || r.Attempt != 1 || !r.Begun.Equal(begun) || r.Message != "" {
		t.Errorf("what ran again: %s", text(r))
	}
	if n := failed("innocent"); n != 0 {
		t.Errorf("%d failures of what ran again", n)
	}

	x = newStory(s, "guilty")
	x.tell(event.FireStarted, nil)
	x.tell(event.ItemStarted, nil)
	x.tell(event.ItemEnded, died)
	x.tell(event.ItemStarted, nil)
	x.tell(event.ItemEnded, func(e *event.Event) { died(e); e.Again = false })
	x.tell(event.ItemCompleted, func(e *event.Event) { e.Outcome = abi.OutcomeWorker })
	x.tell(event.FireEnded, func(e *event.Event) { e.Outcome = abi.OutcomeWorker })
	r = x.run(t, "run", func(r history.Run) bool { return r.Completed })
	if r.Outcome != abi.OutcomeWorker || r.Attempt != 1 || r.Message != "the worker process ended" {
		t.Errorf("what ended two processes: %s", text(r))
	}
	x.fire(t, func(f history.Fire) bool { return f.Outcome == abi.OutcomeWorker })
	if n := failed("guilty"); n != 2 {
		t.Errorf("%d failures of what ended two processes, expected the run and its fire", n)
	}
}

// lags: what has a scheduled instant is so much late as its first begin is after it, whatever made it
// begin; what a trigger made is not.
func lags(t *testing.T, s history.Store) {
	for _, source := range []abi.Source{abi.SourceSchedule, abi.SourceCatchUp, abi.SourceMisfire, abi.SourceFailover, abi.SourceTrigger} {
		x := newStory(s, "lag-"+string(source))
		x.e.Source = source
		want := 2 * time.Second
		if source == abi.SourceTrigger {
			x.e.Trigger, want = 7, 0
		}
		x.tell(event.FireStarted, func(e *event.Event) { e.Lag = want / 2 })
		x.tell(event.ItemStarted, nil)
		x.tell(event.ItemEnded, func(e *event.Event) { e.Outcome = abi.OutcomeRetry })
		x.tell(event.ItemStarted, func(e *event.Event) { e.Attempt = 2 })
		if r := x.run(t, "second attempt", func(r history.Run) bool { return r.Attempt == 2 }); r.Lag != want {
			t.Errorf("a run by %s: %s", source, text(r))
		}
		if f := x.fire(t, func(f history.Fire) bool { return f.Running == 1 }); f.Lag != want/2 {
			t.Errorf("a fire by %s: %s", source, text(f))
		}
	}
}

// failover: another host takes a run over. What the first one reports later changes nothing.
func failover(t *testing.T, s history.Store) {
	x := newStory(s, "cities")
	x.tell(event.FireStarted, nil)
	x.tell(event.ItemStarted, nil)
	second := func(e *event.Event) { e.Host, e.Fence, e.Source = "10.0.0.2@-@2-b", 11, abi.SourceFailover }
	x.tell(event.FireStarted, func(e *event.Event) { second(e); e.Fence = 0 })
	x.tell(event.ItemStarted, second)
	x.run(t, "second host", func(r history.Run) bool { return r.Host == "10.0.0.2@-@2-b" })
	x.tell(event.ItemEnded, func(e *event.Event) { e.Outcome, e.Reason = abi.OutcomeCancelled, "late" })
	x.tell(event.ItemEnded, func(e *event.Event) { second(e); e.Outcome = abi.OutcomeOK })
	x.tell(event.ItemCompleted, func(e *event.Event) { second(e); e.Outcome = abi.OutcomeOK })
	x.tell(event.FireEnded, func(e *event.Event) { second(e); e.Outcome, e.Fence = abi.OutcomeOK, 0 })
	r := x.run(t, "end", func(r history.Run) bool { return r.Completed })
	after := func(t time.Time) time.Duration { return t.Sub(x.e.Instant) / time.Second }
	if r.Outcome != abi.OutcomeOK || r.Source != abi.SourceFailover || r.Fence != 11 || after(r.First) != 2 || after(r.Begun) != 4 || r.Lag != 2*time.Second {
		t.Errorf("taken over: %s", text(r))
	}
	if found := all(t, s.Runs, history.Filter{To: r.First.Add(time.Second)}); len(found) != 1 {
		t.Errorf("%d runs until it was taken over, want 1: it stands where it began first", len(found))
	}
	f := x.fire(t, func(f history.Fire) bool { return !f.Ended.IsZero() })
	if f.Succeeded != 1 || f.Running != 0 || len(f.Hosts) != 2 || !reflect.DeepEqual(f.Items, []int{3}) || f.Source != abi.SourceSchedule || after(f.Begun) != 1 || f.Lag != 0 {
		t.Errorf("the fire: %s", text(f))
	}
	// The first host is back, and has never ended its part.
	s.AddEvent(event.Event{Time: x.at.Add(time.Minute), Kind: event.HostStarted, Host: event.ProcessOf(x.e.Host)})
	await(t, "host that is back", func() bool { return len(all(t, s.Events, history.Filter{Kinds: []event.Kind{event.HostStarted}})) == 1 })
	if back := x.fire(t, func(history.Fire) bool { return true }); text(back) != text(f) {
		t.Errorf("the fire when the first host is back: %s", text(back))
	}
	if failed := all(t, s.Fires, history.Filter{Failed: true}); len(failed) != 0 {
		t.Errorf("fires that were not OK: %s", text(failed))
	}
}

// takenOverTwice: a run goes from host to host, once to one whose clock is behind.
func takenOverTwice(t *testing.T, s history.Store) {
	x := newStory(s, "cities")
	x.tell(event.ItemStarted, nil)
	first := x.at
	x.tell(event.ItemStarted, func(e *event.Event) { e.Host, e.Fence, e.Source = "10.0.0.2@-@2-b", 11, abi.SourceFailover })
	x.tell(event.ItemStarted, func(e *event.Event) { e.Host, e.Fence, e.Source = "10.0.0.3@-@3-c", 12, abi.SourceFailover })
	third := x.at
	r := x.run(t, "third host", func(r history.Run) bool { return r.Fence == 12 })
	if !r.First.Equal(first) || !r.Begun.Equal(third) {
		t.Errorf("on the third host: %s", text(r))
	}
	x.tell(event.ItemStarted, func(e *event.Event) { e.Fence, e.Source, e.Time = 13, abi.SourceFailover, first.Add(-time.Minute) })
	r = x.run(t, "fourth begin", func(r history.Run) bool { return r.Fence == 13 })
	if !r.First.IsZero() || !r.Begun.Equal(first) || r.Host != x.e.Host {
		t.Errorf("by a clock that is behind: %s", text(r))
	}
}

// takenOverInAnyOrder: what the host that a run was taken over from reports may come late. The run
// is the same.
func takenOverInAnyOrder(t *testing.T, s history.Store) {
	// Hosts take the run over from each other: 1, 2, 3. The third ends it, which is 4.
	for _, order := range []string{"1234", "1324", "2134", "2314", "3124", "3142", "3214", "3412", "3421"} {
		x := newStory(s, "order-"+order)
		seen := func(e event.Event) func() bool {
			return func() bool {
				return slices.ContainsFunc(all(t, s.Events, history.Filter{Run: e.RunID}), func(o event.Event) bool { return o.Time.Equal(e.Time) })
			}
		}
		for _, step := range order {
			n := int(step - '0')
			e := x.e
			e.Kind, e.Items, e.Time = event.ItemStarted, nil, x.at.Add(time.Duration(n)*time.Second)
			e.Host, e.Fence = fmt.Sprintf("10.0.0.%d@-@%[1]d-a", min(n, 3)), int64(10+min(n, 3))
			if n > 1 {
				e.Source = abi.SourceFailover
			}
			if n == 4 {
				e.Kind, e.Outcome, e.Duration = event.ItemEnded, abi.OutcomeOK, time.Second
			}
			s.AddEvent(e)
			await(t, "event", seen(e))
		}
		r := x.run(t, "run", func(history.Run) bool { return true })
		after := func(at time.Time) int { return int(at.Sub(x.at) / time.Second) }
		if after(r.First) != 1 || after(r.Begun) != 3 || after(r.Ended) != 4 || r.Lag != time.Second || r.Fence != 13 || r.Host != "10.0.0.3@-@3-a" || r.Source != abi.SourceFailover || r.Outcome != abi.OutcomeOK {
			t.Errorf("reported in the order %s: %s", order, text(r))
		}
		if found := all(t, s.Runs, history.Filter{Jobs: []string{x.e.Job}, To: r.First.Add(time.Millisecond)}); len(found) != 1 {
			t.Errorf("reported in the order %s: %d runs up to when it began first, want 1", order, len(found))
		}
	}
}

// hostIsOver: a host died, and its next process begins. What a store has of the run is not that it
// runs, and not more than is known.
func hostIsOver(t *testing.T, s history.Store) {
	x := newStory(s, "cities")
	fire := func(e *event.Event) { e.Items, e.Total = []int{3, 4}, 2 }
	x.tell(event.FireStarted, fire)
	four := 4
	other := func(e *event.Event) { e.Item, e.RunID = &four, strings.TrimSuffix(x.e.RunID, "3")+"4" }
	x.tell(event.ItemStarted, other)
	x.tell(event.ItemEnded, func(e *event.Event) { other(e); e.Outcome = abi.OutcomeOK })
	x.tell(event.ItemStarted, nil)
	waits := newStory(s, "waits")
	waits.tell(event.FireStarted, nil) // its item has not begun
	x.run(t, "run", func(history.Run) bool { return true })
	waits.fire(t, func(f history.Fire) bool { return f.Running == 1 })
	begins := func(process string) {
		x.at = x.at.Add(time.Minute)
		s.AddEvent(event.Event{Time: x.at, Kind: event.HostStarted, Host: process})
	}
	if s.State().Shared { // another process beside it, as far as is known
		begins("10.0.0.1@-@2")
		begins("10.0.0.2@-@1")
		await(t, "begin of processes", func() bool { return len(all(t, s.Events, history.Filter{Kinds: []event.Kind{event.HostStarted}})) == 2 })
		if r := x.run(t, "run", func(history.Run) bool { return true }); !r.Ended.IsZero() {
			t.Errorf("a host begins beside it: %s", text(r))
		}
		begins("10.0.0.1@-@1")
	} else {
		begins("10.0.0.9@-@2") // that it has another address now says nothing
	}
	r := x.run(t, "end", func(r history.Run) bool { return !r.Ended.IsZero() })
	if r.Outcome != history.Unknown || !r.Ended.Equal(x.at) || r.Completed || r.Host != x.e.Host || !strings.Contains(r.Message, "does not know") {
		t.Errorf("the run: %s", text(r))
	}
	f := x.fire(t, func(f history.Fire) bool { return !f.Ended.IsZero() })
	if f.Running != 0 || f.Unknown != 1 || f.Succeeded != 1 || f.Failed != 0 || f.Outcome != history.Unknown {
		t.Errorf("the fire: %s", text(f))
	}
	if failed := all(t, s.Fires, history.Filter{Failed: true, Jobs: []string{"cities"}}); len(failed) != 1 || text(failed[0]) != text(f) {
		t.Errorf("fires that were not OK: %s", text(failed))
	}
	if f := waits.fire(t, func(f history.Fire) bool { return !f.Ended.IsZero() }); f.Running != 0 || f.Unknown != 1 || f.Outcome != history.Unknown {
		t.Errorf("the fire whose item had not begun: %s", text(f))
	}
	// The new process finds out what became of it.
	x.tell(event.ItemSkipped, func(e *event.Event) {
		e.Host, e.Fence, e.Attempt, e.Outcome, e.Cause, e.Reason = "10.0.0.1@-@1-b", 0, 0, history.Lost, event.SkipLost, "its host died"
	})
	if r := x.run(t, "what became of it", func(r history.Run) bool { return r.Outcome != history.Unknown }); r.Outcome != history.Lost || r.Message != "its host died" {
		t.Errorf("said to be lost: %s", text(r))
	}
	x.fire(t, func(f history.Fire) bool { return f.Failed == 1 && f.Unknown == 0 && f.Outcome == history.Lost })
}

// hostIsGone: another host sees that the session of one is over. Runs of others go on, and so does
// one that is taken over; what the host itself reports later is so.
func hostIsGone(t *testing.T, s history.Store) {
	x := newStory(s, "cities")
	x.e.Host += "-2" // it has joined the job twice
	four, five := 4, 5
	item := func(n *int) func(e *event.Event) {
		return func(e *event.Event) { e.Item, e.RunID = n, fmt.Sprint(strings.TrimSuffix(x.e.RunID, "3"), *n) }
	}
	x.tell(event.ItemStarted, nil)
	x.tell(event.ItemStarted, item(&four))
	x.tell(event.ItemStarted, func(e *event.Event) { item(&five)(e); e.Host = "10.0.0.1@-@1-ab" })
	one := func(n string) history.Run {
		r := all(t, s.Runs, history.Filter{Run: strings.TrimSuffix(x.e.RunID, "3") + n})
		if len(r) != 1 {
			return history.Run{}
		}
		return r[0]
	}
	await(t, "all runs", func() bool { return one("5").ID != "" })
	s.AddEvent(event.Event{Time: x.at.Add(-time.Minute), Kind: event.HostGone, Host: "10.0.0.2@-@2-b", Other: "10.0.0.1@-@1-a"}) // by a clock that is behind
	await(t, "ends", func() bool { return one("3").Outcome == history.Unknown && one("4").Outcome == history.Unknown })
	if r := one("4"); !r.Ended.Equal(r.Begun) {
		t.Errorf("it ended before it began: %s", text(r))
	}
	if r := one("5"); r.Outcome != "" || !r.Ended.IsZero() {
		t.Errorf("of another host: %s", text(r))
	}
	x.tell(event.ItemStarted, func(e *event.Event) { e.Host, e.Fence, e.Source = "10.0.0.2@-@2-b", 11, abi.SourceFailover })
	await(t, "run that was taken over", func() bool {
		r := one("3")
		return r.Fence == 11 && r.Ended.IsZero() && r.Outcome == "" && r.Message == ""
	})
	x.tell(event.ItemEnded, func(e *event.Event) { item(&four)(e); e.Outcome, e.Reason = abi.OutcomeCancelled, "no session" })
	await(t, "host's own word", func() bool { r := one("4"); return r.Outcome == abi.OutcomeCancelled && r.Message == "no session" })
}

// goneBefore: that a host is gone is known before what it has said until it died: that lay on its disk, from where
// the next process there takes it, which then says that the one before it is over.
func goneBefore(t *testing.T, s history.Store) {
	x := newStory(s, "cities")
	s.AddEvent(event.Event{Time: x.at.Add(time.Minute), Kind: event.HostGone, Host: "10.0.0.2@-@2-b", Other: x.e.Host})
	await(t, "end of its session", func() bool { return len(all(t, s.Events, history.Filter{Kinds: []event.Kind{event.HostGone}})) == 1 })
	x.tell(event.FireStarted, nil)
	x.tell(event.ItemStarted, nil)
	x.run(t, "run", func(r history.Run) bool { return r.Ended.IsZero() })
	// Containers get each other's addresses, and have the same process numbers.
	beside := newStory(s, "beside")
	beside.e.Host = event.ProcessOf(x.e.Host) + "-b"
	beside.tell(event.ItemStarted, nil)
	begun := x.at.Add(2 * time.Minute)
	s.AddEvent(event.Event{Time: begun, Kind: event.HostStarted, Host: "10.0.0.1@-@5", Other: x.e.Host})
	if r := x.run(t, "end", func(r history.Run) bool { return !r.Ended.IsZero() }); r.Outcome != history.Unknown || !r.Ended.Equal(begun) || r.Host != x.e.Host {
		t.Errorf("the run: %s", text(r))
	}
	if f := x.fire(t, func(f history.Fire) bool { return !f.Ended.IsZero() }); f.Running != 0 || f.Unknown != 1 {
		t.Errorf("the fire: %s", text(f))
	}
	if r := beside.run(t, "run beside", func(history.Run) bool { return true }); s.State().Shared && !r.Ended.IsZero() {
		t.Errorf("the run of a host at its former address: %s", text(r))
	}
}

// lostRun: a host died, failover is off, and another host says so.
func lostRun(t *testing.T, s history.Store) {
	x := newStory(s, "cities")
	x.tell(event.FireStarted, nil)
	x.tell(event.ItemStarted, nil)
	x.run(t, "run", func(history.Run) bool { return true })
	x.tell(event.ItemSkipped, func(e *event.Event) {
		e.Host, e.Fence, e.Attempt, e.Outcome, e.Cause, e.Reason = "10.0.0.2@-@2-b", 0, 0, history.Lost, event.SkipLost, "its host died"
	})
	r := x.run(t, "end", func(r history.Run) bool { return !r.Ended.IsZero() })
	if r.Outcome != history.Lost || r.Message != "its host died" || r.Host != x.e.Host || r.Completed {
		t.Errorf("lost: %s", text(r))
	}
	if failed := all(t, s.Runs, history.Filter{Failed: true}); len(failed) != 1 {
		t.Errorf("%d failed runs", len(failed))
	}
	await(t, "failed fire", func() bool {
		page, err := s.Fires(t.Context(), history.Filter{Failed: true})
		return err == nil && len(page.Records) == 1 && page.Records[0].Outcome == history.Lost && page.Records[0].Message == "its host died" && page.Records[0].Failed == 1
	})
}

// lostBefore: that a run is lost is known before what its host has said until it died: that lay on its disk.
func lostBefore(t *testing.T, s history.Store) {
	x := newStory(s, "cities")
	lost := x.e
	lost.Time, lost.Kind, lost.Items = x.at.Add(time.Minute), event.ItemSkipped, nil
	lost.Host, lost.Other, lost.Fence, lost.Attempt, lost.Outcome, lost.Cause, lost.Reason = "10.0.0.2@-@2-b", x.e.Host, 0, 0, history.Lost, event.SkipLost, "its host died"
	s.AddEvent(lost)
	x.run(t, "end", func(r history.Run) bool { return r.Outcome == history.Lost })
	x.tell(event.FireStarted, nil)
	x.tell(event.ItemStarted, nil)
	x.tell(event.ItemEnded, func(e *event.Event) { e.Outcome, e.Again = abi.OutcomeRetry, true })
	x.tell(event.ItemStarted, func(e *event.Event) { e.Attempt = 2 })
	r := x.run(t, "second attempt", func(r history.Run) bool { return r.Attempt == 2 })
	if r.Outcome != history.Lost || !r.Ended.Equal(lost.Time) || r.Message != "its host died" || r.Fence != 10 || r.Host != x.e.Host {
		t.Errorf("lost: %s", text(r))
	}
	x.at = lost.Time
	x.tell(event.ItemStarted, func(e *event.Event) { e.Fence = 11 })
	x.run(t, "another begin", func(r history.Run) bool { return r.Fence == 11 && r.Ended.IsZero() && r.Outcome == "" })
}

// heldItem: a host died, one too many in runs of the item, and another host says so, which has items of the fire
// itself that wait.
func heldItem(t *testing.T, s history.Store) {
	x := newStory(s, "cities")
	reporter := "10.0.0.2@-@2-b"
	x.tell(event.FireStarted, nil)
	x.tell(event.ItemStarted, nil)
	x.tell(event.FireStarted, func(e *event.Event) { e.Host, e.Items = reporter, []int{4} })
	held := func(e *event.Event) {
		e.Host, e.Other, e.Fence, e.Attempt, e.Outcome, e.Cause, e.Reason = reporter, x.e.Host, 0, 0, history.Held, event.SkipHeld, "held back"
	}
	x.tell(event.ItemHeld, held)
	r := x.run(t, "end", func(r history.Run) bool { return !r.Ended.IsZero() })
	if r.Outcome != history.Held || r.Message != "held back" || r.Host != x.e.Host || r.Completed {
		t.Errorf("held: %s", text(r))
	}
	if fires := all(t, s.Fires, history.Filter{Running: true}); len(fires) != 1 || fires[0].Running != 1 || fires[0].Failed != 1 {
		t.Errorf("what runs: %s", text(fires))
	}
	alone := newStory(s, "alone") // what the host that died has said is not known here
	alone.tell(event.ItemHeld, held)
	if r := alone.run(t, "end", func(r history.Run) bool { return !r.Ended.IsZero() }); r.Host != x.e.Host {
		t.Errorf("held, and no more is known: %s", text(r))
	}
}

// failedItem: a fire has failed as soon as an item of it has, whatever else runs.
func failedItem(t *testing.T, s history.Store) {
	x := newStory(s, "cities")
	four := 4
	other := func(e *event.Event) {
		e.Item, e.RunID, e.Outcome, e.Reason = &four, strings.TrimSuffix(x.e.RunID, "3")+"4", abi.OutcomeTrap, "unreachable"
	}
	x.tell(event.FireStarted, func(e *event.Event) { e.Items = []int{3, 4} })
	x.tell(event.ItemStarted, nil)
	x.tell(event.ItemStarted, func(e *event.Event) { other(e); e.Outcome = "" })
	x.tell(event.ItemEnded, other)
	x.tell(event.ItemCompleted, other)
	x.fire(t, func(f history.Fire) bool { return f.Failed == 1 && f.Running == 1 })
	for what, filter := range map[string]history.Filter{"failed": {Failed: true}, "failed and running": {Failed: true, Running: true}, "text": {Text: "unreach"}} {
		if found := all(t, s.Fires, filter); len(found) != 1 || found[0].Outcome != abi.OutcomeTrap {
			t.Errorf("by %s: %s", what, text(found))
		}
	}
	x.tell(event.ItemEnded, func(e *event.Event) { e.Outcome = abi.OutcomeOK })
	x.tell(event.FireEnded, func(e *event.Event) { e.Items, e.Outcome = []int{3, 4}, abi.OutcomeTrap })
	x.fire(t, func(f history.Fire) bool { return f.Failed == 1 && f.Succeeded == 1 && !f.Ended.IsZero() })
}

// twoHosts: a fire's items are on two hosts.
func twoHosts(t *testing.T, s history.Store) {
	x := newStory(s, "cities")
	other := func(e *event.Event) {
		e.Host, e.Fence = "10.0.0.2@-@2-b", 11
		if item := 4; e.Item != nil {
			e.Item, e.RunID = &item, strings.TrimSuffix(e.RunID, "3")+"4"
		} else {
			e.Items, e.Fence = []int{4}, 0
		}
	}
	x.tell(event.FireStarted, func(e *event.Event) { e.Total = 5 })
	x.tell(event.FireStarted, other)
	x.tell(event.ItemStarted, nil)
	x.tell(event.ItemStarted, other)
	x.tell(event.ItemEnded, func(e *event.Event) { e.Outcome = abi.OutcomeOK })
	x.tell(event.ItemEnded, func(e *event.Event) { other(e); e.Outcome, e.Reason = abi.OutcomeTrap, "unreachable" })
	x.tell(event.FireEnded, func(e *event.Event) { e.Outcome = abi.OutcomeOK })
	x.tell(event.FireEnded, func(e *event.Event) { other(e); e.Outcome = abi.OutcomeFail })
	f := x.fire(t, func(f history.Fire) bool { return f.Failed == 1 && f.Succeeded == 1 && !f.Ended.IsZero() })
	if !reflect.DeepEqual(f.Items, []int{3, 4}) || len(f.Hosts) != 2 || f.Outcome != abi.OutcomeTrap || f.Message != "unreachable" || f.Total != 5 || f.Begun.Sub(f.Instant) != time.Second {
		t.Errorf("the fire: %s", text(f))
	}
	for what, filter := range map[string]history.Filter{"host": {Host: "10.0.0.2@-@2-b"}, "failed": {Failed: true}, "text": {Text: "REACH"}, "outcome": {Outcomes: []abi.Outcome{abi.OutcomeTrap}}, "oldest": {Oldest: true},
		"run": {Run: strings.TrimSuffix(x.e.RunID, "3") + "4"}, "instant": {Instant: x.e.Instant}} {
		if found := all(t, s.Fires, filter); len(found) != 1 || text(found[0]) != text(f) {
			t.Errorf("by %s: %s", what, text(found))
		}
	}
}

// reusedTrigger: a registry that was made again counts its rounds from the beginning.
func reusedTrigger(t *testing.T, s history.Store) {
	x := newStory(s, "cities")
	for round := range 2 {
		e := x.e
		e.RunID, e.Trigger, e.Source = "cities/t57/3", 57, abi.SourceTrigger
		e.Instant = x.e.Instant.Add(time.Duration(round) * 5 * time.Hour)
		x.at = e.Instant
		set := func(now *event.Event) {
			now.Trigger, now.Source, now.Instant, now.Fence = e.Trigger, e.Source, e.Instant, int64(10-round)
			if now.Item != nil {
				now.RunID = e.RunID
			}
		}
		x.tell(event.FireStarted, set)
		x.tell(event.ItemStarted, set)
		x.tell(event.ItemEnded, func(now *event.Event) { set(now); now.Outcome = abi.OutcomeOK })
		x.tell(event.FireEnded, func(now *event.Event) { set(now); now.Outcome = abi.OutcomeOK })
	}
	await(t, "both rounds", func() bool {
		return len(all(t, s.Runs, history.Filter{Run: "cities/t57/3"})) == 2 && len(all(t, s.Fires, history.Filter{Trigger: 57, Jobs: []string{"cities"}})) == 2
	})
}

func forgedCursors(t *testing.T, s history.Store) {
	w := NewWorld(3, 5, time.Now().Add(-time.Hour))
	w.Add(t, s)
	random := rand.New(rand.NewPCG(4, 0))
	ask := func(after string) {
		t.Helper()
		f := history.Filter{After: after, Text: "a"}
		for what, err := range map[string]error{"runs": second(s.Runs(t.Context(), f)), "fires": second(s.Fires(t.Context(), f)), "events": second(s.Events(t.Context(), f)),
			"lines": second(s.Lines(t.Context(), f)), "changes": second(s.Changes(t.Context(), f))} {
			if err != nil && !errors.Is(err, history.ErrFilter) {
				t.Errorf("%s after %q: %v", what, after, err)
			}
		}
	}
	for _, after := range []string{"x", "=", "AAAA", strings.Repeat("A", 5000), "\x00", "é", "'; --"} {
		ask(after)
		if _, err := s.Runs(t.Context(), history.Filter{After: after}); !errors.Is(err, history.ErrFilter) || !strings.Contains(err.Error(), "after") {
			t.Errorf("after %.40q: %v", after, err)
		}
	}
	for _, list := range []byte{history.ListRuns, history.ListFires, history.ListEvents, history.ListLines, history.ListChanges} {
		for _, id := range []string{"", "\x00", "\xff\xfe", "a\x00b\x00c", "' OR 1=1", "99999999999999999999", "-1", "1e9", strings.Repeat("作", 300)} {
			for _, at := range []int64{0, -1 << 63, 1<<63 - 1, time.Now().UnixNano()} {
				ask(history.Position{Time: at, ID: id}.Cursor(list))
			}
		}
	}
	for range 50 {
		b := make([]byte, random.IntN(40))
		for i := range b {
			b[i] = "ABCDEFabcdef0123456789-_"[random.IntN(24)]
		}
		ask(string(b))
	}
}

func second[T any](_ history.Page[T], err error) error { return err }

func badFilters(t *testing.T, s history.Store) {
	now := time.Now()
	for field, f := range map[string]history.Filter{"jobs": {Jobs: []string{"a", "[b"}}, "limit": {Limit: history.MaxLimit + 1}, "to": {From: now, To: now.Add(-time.Second)}, "after": {After: "?"}} {
		for what, err := range map[string]error{"runs": second(s.Runs(t.Context(), f)), "fires": second(s.Fires(t.Context(), f)), "events": second(s.Events(t.Context(), f)),
			"lines": second(s.Lines(t.Context(), f)), "changes": second(s.Changes(t.Context(), f))} {
			if !errors.Is(err, history.ErrFilter) || !strings.Contains(err.Error(), field+": ") {
				t.Errorf("%s with a bad %s: %v", what, field, err)
			}
		}
	}
	if _, err := s.Runs(t.Context(), history.Filter{Limit: -1}); !errors.Is(err, history.ErrFilter) {
		t.Errorf("a limit of -1: %v", err)
	}
	// What is strange, and not wrong, finds nothing.
	for _, f := range []history.Filter{{Jobs: []string{"\x00"}}, {Host: "\xff"}, {Run: "a\x00"}, {Text: "\x00"}, {Outcomes: []abi.Outcome{"'"}}, {Kinds: []event.Kind{"\xff"}},
		{From: time.Unix(1<<40, 0)}, {To: time.Unix(-1<<40, 0)}, {Trigger: -5}, {Instant: time.Unix(-1<<40, 0)}} {
		for what, err := range map[string]error{"runs": second(s.Runs(t.Context(), f)), "fires": second(s.Fires(t.Context(), f)), "events": second(s.Events(t.Context(), f)),
			"lines": second(s.Lines(t.Context(), f)), "changes": second(s.Changes(t.Context(), f))} {
			if err != nil {
				t.Errorf("%s by %+v: %v", what, f, err)
			}
		}
	}
}

// equalTimes: records of one time come in the order in which they were added, over pages.
func equalTimes(t *testing.T, s history.Store) {
	at := time.Now().UTC().Add(-time.Minute)
	for n := range 300 {
		s.AddLine(history.Line{Time: at, Job: "j", RunID: "j/t1/0", Host: "h", Message: fmt.Sprint(n)})
	}
	await(t, "300 lines", func() bool { return len(all(t, s.Lines, history.Filter{})) == 300 })
	for _, f := range []history.Filter{{Limit: 7, Oldest: true}, {Limit: 7}, {Limit: 13, Oldest: true, Text: "1"}} {
		want := 0
		if !f.Oldest {
			want = 299
		}
		for _, l := range all(t, s.Lines, f) {
			for f.Text != "" && !strings.Contains(fmt.Sprint(want), f.Text) {
				want++
			}
			if l.Message != fmt.Sprint(want) {
				t.Fatalf("%+v: line %s, want %d", f, l.Message, want)
			}
			if f.Oldest {
				want++
			} else {
				want--
			}
		}
		if (f.Oldest && want < 292) || (!f.Oldest && want != -1) {
			t.Errorf("%+v: the last is %d", f, want)
		}
	}
}

// tailOfALog: of a run that logs on and on the end is kept.
func tailOfALog(t *testing.T, s history.Store) {
	x := newStory(s, "chatty")
	x.tell(event.ItemStarted, nil)
	const lines = 4000
	for n := range lines { // 400 KiB
		s.AddLine(history.Line{Time: x.at.Add(time.Duration(n) * time.Microsecond), Job: "chatty", RunID: x.e.RunID, Item: 3, Host: x.e.Host, Message: fmt.Sprintf("%04d %s", n, strings.Repeat("x", 95))})
		if n%500 == 0 {
			await(t, "room in the queue", func() bool { return s.State().Queued < 4000 })
		}
	}
	x.tell(event.ItemEnded, func(e *event.Event) { e.Outcome = abi.OutcomeOK })
	x.run(t, "end", func(r history.Run) bool { return !r.Ended.IsZero() })
	page, err := s.Lines(t.Context(), history.Filter{Run: x.e.RunID, Limit: 500})
	if err != nil || len(page.Records) < 500 || !strings.HasPrefix(page.Records[0].Message, fmt.Sprintf("%04d ", lines-1)) {
		t.Fatalf("%d lines, %v", len(page.Records), err)
	}
	total, gap := 0, int64(0)
	for _, l := range all(t, s.Lines, history.Filter{Run: x.e.RunID, Limit: 1000}) {
		if l.Gap == 0 {
			total++
			continue
		}
		if gap += l.Gap; !strings.Contains(l.Message, "lines are missing here") || l.Job != "chatty" || l.Item != 3 {
			t.Errorf("where lines are missing: %+v", l)
		}
	}
	if int64(total)+gap != lines || total > lines/2 {
		t.Errorf("%d lines are kept and %d are said to be missing, of %d", total, gap, lines)
	}
}

// atOnce: several goroutines add and read.
func atOnce(t *testing.T, s history.Store) {
	var group sync.WaitGroup
	const each = 200
	for g := range 4 {
		group.Go(func() {
			for n := range each {
				s.AddEvent(event.Event{Time: time.Now(), Kind: event.JobChanged, Host: fmt.Sprint("h", g), Job: "j", Reason: fmt.Sprint(n)})
				if n%50 == 0 {
					if _, err := s.Events(context.WithoutCancel(t.Context()), history.Filter{Jobs: []string{"j"}}); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	group.Wait()
	await(t, "all events", func() bool { return len(all(t, s.Events, history.Filter{Limit: 1000})) == 4*each })
	if found := all(t, s.Events, history.Filter{Host: "h2", Limit: 1000, Oldest: true}); len(found) != each || found[0].Reason != "0" {
		t.Errorf("%d events of a host", len(found))
	}
}

// noBytes: texts that are no texts are kept as well as can be.
func noBytes(t *testing.T, s history.Store) {
	at := time.Now().UTC()
	s.AddLine(history.Line{Time: at, Job: "j", RunID: "r", Host: "h", Message: "a\xff\xfeb\x00c", Attrs: []string{"\xff", "\x00", "odd"}})
	s.AddChange(history.Change{Time: at, Who: "\xff\x00", What: "x\x00y", Job: "j"})
	item := 1
	s.AddEvent(event.Event{Time: at, Kind: event.ItemEnded, Host: "h\xff", Job: "j", Item: &item, RunID: "j/t1/1\x00", Trigger: 1, Reason: "r\x00\xff", Outcome: "ODD\xff"})
	s.AddEvent(event.Event{Kind: event.JobAdded})                     // at no time
	s.AddEvent(event.Event{Time: time.Unix(1<<36, 0), Kind: "later"}) // in 4147
	await(t, "line", func() bool {
		found := all(t, s.Lines, history.Filter{})
		return len(found) == 1 && strings.HasPrefix(found[0].Message, "a\uFFFD") && len(found[0].Attrs) == 3
	})
	await(t, "change", func() bool { return len(all(t, s.Changes, history.Filter{})) == 1 })
	await(t, "events", func() bool { return len(all(t, s.Events, history.Filter{})) == 3 })
}
