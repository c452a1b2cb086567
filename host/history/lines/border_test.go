package lines

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/event"
	"github.com/wasmjob/wasmjob/host/history"
)

// TestPages_border: records stand in files in nearly the order of their times, also where one file
// ends and the next begins. Pages have each of them once, in the order of their times.
func TestPages_border(t *testing.T) {
	t.Parallel()
	const fires, files = 90, 5
	random := rand.New(rand.NewPCG(5, 0))
	base := time.Now().UTC().Add(-time.Hour).Truncate(time.Second)
	var records []history.Record
	for n := range fires {
		at := func(of int) time.Time { // not in order by 900 ms at most; some are the same
			return base.Add(time.Duration(of*200+100*random.IntN(9)) * time.Millisecond)
		}
		item := 0
		e := event.Event{Host: "10.0.0.1@-@1-a", Job: "j", Source: abi.SourceTrigger, Instant: base, Total: 1}
		add := func(of int, kind event.Kind, when time.Time) {
			e := e
			e.Trigger, e.Kind, e.Time, e.Reason = int64(of+1), kind, when, fmt.Sprint(len(records))
			if kind == event.FireStarted || kind == event.FireEnded {
				e.Items = []int{0}
			} else {
				e.Item, e.RunID, e.Fence, e.Attempt = &item, fmt.Sprintf("j/t%03d/0", of+1), 5, 1
			}
			if kind == event.FireEnded || kind == event.ItemEnded {
				e.Outcome = abi.OutcomeOK
			}
			records = append(records, history.Record{Event: &e})
		}
		begun := at(n).Add(time.Duration(n) * time.Microsecond) // fires have times of their own
		add(n, event.FireStarted, begun)
		add(n, event.ItemStarted, begun)
		records = append(records, history.Record{Line: &history.Line{Time: at(n), Job: "j", Host: e.Host, RunID: fmt.Sprintf("j/t%03d/0", n+1), Message: fmt.Sprint(len(records))}})
		if n >= 4 {
			ended := at(n)
			add(n-4, event.ItemEnded, ended)
			add(n-4, event.FireEnded, ended)
		}
	}
	path := filepath.Join(t.TempDir(), "h.jsonl")
	part := len(records)/files + 1
	for i := range files {
		var text []byte
		for _, r := range records[i*part : min((i+1)*part, len(records))] {
			line, err := json.Marshal(&r)
			if err != nil {
				t.Fatal(err)
			}
			text = append(append(text, line...), '\n')
		}
		name := fmt.Sprintf("%s.%d", path, i+1)
		if i == files-1 {
			name = path
		}
		if err := os.WriteFile(name, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, look := range []time.Duration{time.Minute, 1} {
		s := open(t, Options{Path: path, index: 1 << 10, look: look})
		for _, limit := range []int{1, 3, 7, 50} {
			for _, oldest := range []bool{true, false} {
				for _, from := range []time.Duration{0, 3 * time.Second, 7 * time.Second} {
					f := history.Filter{Limit: limit, Oldest: oldest, Level: -4}
					if from > 0 {
						f.From, f.To = base.Add(from), base.Add(from+6*time.Second)
					}
					what := fmt.Sprintf("%d a page, oldest first %v, from %s, looked at for %s", limit, oldest, from, look)
					expected := func(of func(*history.Record) string) []string {
						var list []history.Record
						for _, r := range records {
							in := f.From.IsZero() || (!r.Time().Before(f.From) && r.Time().Before(f.To))
							if of(&r) != "" && in {
								list = append(list, r)
							}
						}
						slices.SortStableFunc(list, func(a, b history.Record) int { return a.Time().Compare(b.Time()) })
						var texts []string
						for _, r := range list {
							texts = append(texts, of(&r))
						}
						if !oldest {
							slices.Reverse(texts)
						}
						return texts
					}
					kind := func(r *history.Record) event.Kind {
						if r.Event == nil {
							return ""
						}
						return r.Event.Kind
					}
					pages(t, what+": events", s.Events, f, func(e *event.Event) string { return e.Reason }, expected(func(r *history.Record) string {
						if r.Event == nil {
							return ""
						}
						return r.Event.Reason
					}))
					pages(t, what+": lines", s.Lines, f, func(l *history.Line) string { return l.Message }, expected(func(r *history.Record) string {
						if r.Line == nil {
							return ""
						}
						return r.Line.Message
					}))
					state := func(o abi.Outcome, round int64) string {
						return fmt.Sprintf("%d %s", round, cmp.Or(o, "runs"))
					}
					known := func(of event.Kind) func(r *history.Record) string {
						return func(r *history.Record) string {
							if kind(r) != of {
								return ""
							}
							outcome := abi.OutcomeOK
							if r.Event.Trigger > fires-4 {
								outcome = ""
							}
							return state(outcome, r.Event.Trigger)
						}
					}
					pages(t, what+": runs", s.Runs, f, func(r *history.Run) string { return state(r.Outcome, r.Trigger) }, expected(known(event.ItemStarted)))
					pages(t, what+": fires", s.Fires, f, func(x *history.Fire) string { return state(x.Outcome, x.Trigger) }, expected(known(event.FireStarted)))
					if t.Failed() {
						return
					}
				}
			}
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// pages compares what all pages have with what they should.
func pages[T any](t *testing.T, what string, ask func(context.Context, history.Filter) (history.Page[T], error), f history.Filter, of func(*T) string, want []string) {
	t.Helper()
	var got []string
	for range 10_000 {
		page, err := ask(t.Context(), f)
		if err != nil {
			t.Fatal(err)
		}
		for i := range page.Records {
			got = append(got, of(&page.Records[i]))
		}
		if f.After = page.Next; f.After == "" {
			break
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("%s: %d records, want %d\ngot  %v\nwant %v", what, len(got), len(want), got, want)
	}
}
