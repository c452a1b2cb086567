package historytest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/event"
	"github.com/wasmjob/wasmjob/host/history"
)

// World is a small cluster's past: what its hosts reported, and what is to be found
// of it, which is not made from that but beside it.
type World struct {
	Events  []event.Event
	Lines   []history.Line
	Changes []history.Change
	Runs    []history.Run
	Fires   []history.Fire
}

// hostile are texts that SQL, patterns, JSON and encodings trip over.
func hostile() []string {
	return []string{
		`it's "quoted" \ back`, "100% of_all!", "%", "_", `\`, `'; DROP TABLE wasmjob_items; --`, "作业失败：没有城市", "Ärger in Österreich", "ÄRGER",
		"line one\nline two\ttab", "<b>&amp;</b>", "emoji 🦀 four bytes", "\u2028 separator", "[a-z]*?", "$1 ? :name @x", strings.Repeat("long ", 200),
	}
}

// Names are the jobs of a world.
func Names() []string {
	return []string{"cities", "team-a-load", "team-a-sum", "Team-A-load", "it's \"a\" job", "100%_job!", "作业", "[brackets]", "back\\slash"}
}

// NewWorld makes a past of so many fires from a time on, the same for the same seed.
func NewWorld(seed uint64, fires int, from time.Time) *World {
	w := &World{}
	random := rand.New(rand.NewPCG(seed, 0))
	texts, hosts := hostile(), []string{"10.0.0.1@-@7-abc", "10.0.0.2@-@8-def"}
	at := from.UTC().Truncate(time.Second)
	for n := range fires {
		job := Names()[random.IntN(len(Names()))]
		fire := history.Fire{Job: job, Instant: at, Source: abi.SourceSchedule, Begun: at.Add(time.Duration(random.IntN(900)) * time.Millisecond), Total: 2 + random.IntN(3)}
		if random.IntN(5) == 0 {
			fire.Source, fire.Trigger = abi.SourceTrigger, int64(1000+n)
		} else {
			fire.Lag = fire.Begun.Sub(at)
		}
		w.fire(random, fire, hosts[random.IntN(2)], texts)
		at = at.Add(time.Duration(1+random.IntN(20)) * time.Second)
	}
	for n := range 40 {
		c := history.Change{Time: from.UTC().Add(time.Duration(n) * time.Minute), Who: texts[n%len(texts)], From: "10.9.9.9", What: "disable", Job: Names()[n%len(Names())],
			Before: "a", After: texts[(n+1)%len(texts)]}
		if n%4 == 0 {
			c.What = "edit cron"
		}
		if n%3 == 0 {
			item := n % 5
			c.Item, c.Error = &item, "refused: "+texts[n%len(texts)]
		}
		w.Changes = append(w.Changes, c)
	}
	return w
}

// fire reports a fire of one host.
func (w *World) fire(random *rand.Rand, f history.Fire, host string, texts []string) {
	base := event.Event{Job: f.Job, Host: host, Instant: f.Instant, Trigger: f.Trigger, Source: f.Source}
	f.Hosts, f.Items = []string{host}, []int{}
	for item := range f.Total {
		f.Items = append(f.Items, item)
	}
	started := base
	started.Time, started.Kind, started.Items, started.Total, started.Lag = f.Begun, event.FireStarted, f.Items, f.Total, f.Lag
	w.Events = append(w.Events, started)
	at := f.Begun
	for _, item := range f.Items {
		at = at.Add(time.Duration(1+random.IntN(50)) * time.Millisecond)
		r := w.run(random, base, f, item, at, texts)
		switch at = r.Ended; r.Outcome {
		case abi.OutcomeOK:
			f.Succeeded++
		case abi.OutcomeCancelled:
			f.Cancelled++
		default:
			f.Failed++
		}
		if worse(r.Outcome, f.Outcome) {
			f.Outcome, f.Message = r.Outcome, r.Message
		}
		w.Runs = append(w.Runs, r)
	}
	f.Ended, f.Duration = at, at.Sub(f.Begun)
	ended := base
	ended.Time, ended.Kind, ended.Items, ended.Outcome, ended.Duration = f.Ended.Add(2*time.Microsecond), event.FireEnded, f.Items, f.Outcome, f.Duration
	w.Events = append(w.Events, ended)
	w.Fires = append(w.Fires, f)
}

func worse(a, b abi.Outcome) bool {
	order := []abi.Outcome{"", abi.OutcomeOK, abi.OutcomeCancelled, abi.OutcomeFail, abi.OutcomeTimeout, abi.OutcomeTrap}
	return slices.Index(order, a) > slices.Index(order, b)
}

// run reports a run, of one attempt or two, and what it logs.
func (w *World) run(random *rand.Rand, base event.Event, f history.Fire, item int, at time.Time, texts []string) history.Run {
	name := f.Instant.UTC().Format("2006-01-02T15:04:05.000Z")
	if f.Trigger != 0 {
		name = fmt.Sprintf("t%d", f.Trigger)
	}
	r := history.Run{ID: fmt.Sprintf("%s/%s/%d", f.Job, name, item), Job: f.Job, Item: item, Instant: f.Instant, Trigger: f.Trigger, Source: f.Source, Host: base.Host,
		Attempt: 1, Begun: at, Outcome: abi.OutcomeOK, Completed: true, Fence: int64(len(w.Runs) + 1), Digest: "ce9461dd88ea", Signer: "release"}
	if f.Trigger == 0 {
		r.Lag = at.Sub(f.Instant)
	}
	e := base
	e.RunID, e.Item, e.Fence, e.Digest, e.Signer = r.ID, &item, r.Fence, r.Digest, r.Signer
	report := func(kind event.Kind, outcome abi.Outcome, reason string) {
		now := e
		now.Time, now.Kind, now.Attempt, now.Outcome, now.Reason = at, kind, r.Attempt, outcome, reason
		if kind == event.ItemEnded {
			now.Duration, now.Memory, now.Batches, now.Records, now.DroppedLines, now.Outside = r.Duration, r.Memory, r.Batches, r.Records, r.DroppedLines, r.Outside
		}
		w.Events = append(w.Events, now)
	}
	report(event.ItemStarted, "", "")
	r.Duration = time.Duration(1+random.IntN(90)) * time.Millisecond
	if random.IntN(8) == 0 {
		at = at.Add(r.Duration)
		report(event.ItemEnded, abi.OutcomeRetry, "again")
		at = at.Add(time.Microsecond)
		r.Attempt = 2
		report(event.ItemStarted, "", "")
	}
	for n := range random.IntN(4) {
		text := texts[random.IntN(len(texts))]
		w.Lines = append(w.Lines, history.Line{Time: at.Add(time.Duration(n) * time.Microsecond), Job: r.Job, RunID: r.ID, Item: item, Host: r.Host, Level: []int{-4, 0, 4, 8}[random.IntN(4)],
			Message: text, Attrs: []string{"key", texts[random.IntN(len(texts))]}})
	}
	if random.IntN(6) == 0 {
		r.Outcome = []abi.Outcome{abi.OutcomeFail, abi.OutcomeTrap, abi.OutcomeTimeout, abi.OutcomeCancelled}[random.IntN(4)]
		r.Message = event.Reason(texts[random.IntN(len(texts))])
	}
	r.Memory, r.Batches, r.Records, r.DroppedLines = 1<<20, 3, 77, int64(random.IntN(2))
	r.Outside = map[string]abi.OutsideCount{"http": {Calls: 2, Failed: 1, Refused: map[string]int64{"denied": 1}, Targets: []string{"a'b:443"}}}
	at = at.Add(r.Duration)
	r.Ended = at
	report(event.ItemEnded, r.Outcome, r.Message)
	at = at.Add(time.Microsecond)
	report(event.ItemCompleted, r.Outcome, "")
	return r
}
