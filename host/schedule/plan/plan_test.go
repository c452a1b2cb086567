package plan_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/coordination/jobconfig"
	"github.com/wasmjob/wasmjob/host/schedule"
	"github.com/wasmjob/wasmjob/host/schedule/due"
	"github.com/wasmjob/wasmjob/host/schedule/plan"
)

var begin = time.Date(2027, 3, 1, 0, 0, 0, 0, time.UTC)

func job(t testing.TB, name, cron string, items int, takes time.Duration, overlap jobconfig.Overlap) plan.Job {
	t.Helper()
	j := plan.Job{Name: name, Items: items, Takes: func(int, time.Time) plan.Run { return plan.Run{Takes: takes} },
		Policies: due.Policies{Overlap: overlap, CatchUp: jobconfig.CatchUpLatest, QueueMax: 3}}
	if cron != "" {
		s, err := schedule.Parse(cron, time.UTC)
		if err != nil {
			t.Fatal(err)
		}
		j.Schedule = s
	}
	return j
}

func play(t testing.TB, o plan.Options, jobs ...plan.Job) *plan.Played {
	t.Helper()
	o.From = begin
	if o.To.IsZero() {
		o.To = begin.Add(time.Hour)
	}
	played, err := plan.Play(t.Context(), o, jobs)
	if err != nil {
		t.Fatal(err)
	}
	return played
}

// TestPlay plays small cases of which the end can be told.
func TestPlay(t *testing.T) {
	const minutes = "0 * * * * ?"
	under := func(j plan.Job, most int) plan.Job {
		j.Limits, j.Most = slices.Repeat([]string{"db"}, j.Items), most
		return j
	}
	bounded := func(j plan.Job, most int) plan.Job {
		j.MaxConcurrency = most
		return j
	}
	failing := func(j plan.Job) plan.Job {
		takes := j.Takes
		j.Takes = func(item int, at time.Time) plan.Run {
			r := takes(item, at)
			r.Failed = true
			return r
		}
		j.PauseAfterFailures = 2
		return j
	}
	after := func(name, before, on string) plan.Job {
		j := job(t, name, "", 1, time.Second, jobconfig.OverlapQueueOne)
		j.After = []jobconfig.After{{Job: before, On: on}}
		return j
	}
	policy := func(j plan.Job, set func(*due.Policies)) plan.Job {
		set(&j.Policies)
		return j
	}
	for _, tt := range []struct {
		name string
		o    plan.Options
		jobs []plan.Job
		want string // of the last job
	}{
		{"nothing in the way", plan.Options{}, []plan.Job{job(t, "a", minutes, 3, time.Second, jobconfig.OverlapSkip)}, "60 fires, 180 runs"},
		{"a run ends at the next instant", plan.Options{}, []plan.Job{job(t, "a", minutes, 1, time.Minute, jobconfig.OverlapSkip)}, "60 fires, 60 runs"},
		{"skip", plan.Options{}, []plan.Job{job(t, "a", minutes, 2, 90*time.Second, jobconfig.OverlapSkip)}, "60 fires, 60 runs, 60 overlaps, overlap 60"},
		{"queue_one", plan.Options{}, []plan.Job{job(t, "a", minutes, 1, 90*time.Second, jobconfig.OverlapQueueOne)}, "60 fires, 41 runs, 59 overlaps, superseded 19"},
		{"queue_all", plan.Options{}, []plan.Job{job(t, "a", minutes, 1, 90*time.Second, jobconfig.OverlapQueueAll)}, "60 fires, 43 runs, 59 overlaps, queue_full 17"},
		{"cancel", plan.Options{}, []plan.Job{job(t, "a", minutes, 1, 90*time.Second, jobconfig.OverlapCancel)}, "60 fires, 60 runs, 59 overlaps"},
		{"startWithin", plan.Options{}, []plan.Job{policy(job(t, "a", minutes, 1, 90*time.Second, jobconfig.OverlapQueueOne), func(p *due.Policies) { p.StartWithin = 20 * time.Second })},
			"60 fires, 30 runs, 30 overlaps, late 30"},
		{"maxRuns", plan.Options{}, []plan.Job{policy(job(t, "a", minutes, 1, time.Second, jobconfig.OverlapQueueOne), func(p *due.Policies) { p.MaxRuns = 4 })}, "60 fires, 4 runs, paused 56"},
		{"pauseAfterFailures", plan.Options{}, []plan.Job{failing(job(t, "a", minutes, 1, time.Second, jobconfig.OverlapQueueOne))}, "60 fires, 2 runs, 2 failed, paused 58"},
		{"maxConcurrency", plan.Options{}, []plan.Job{bounded(job(t, "a", "0 0 * * * ?", 4, time.Minute, jobconfig.OverlapSkip), 1)}, "1 fires, 4 runs, 3 wait for a slot, at most 3m0s"},
		{"slots", plan.Options{Slots: 2}, []plan.Job{job(t, "a", "0 0 * * * ?", 4, time.Minute, jobconfig.OverlapSkip)}, "1 fires, 4 runs, 2 wait for a slot, at most 1m0s"},
		{"slots of another job", plan.Options{Slots: 1}, []plan.Job{job(t, "a", "0 0 * * * ?", 1, 5*time.Minute, jobconfig.OverlapSkip), job(t, "b", "1 0 * * * ?", 1, time.Minute, jobconfig.OverlapSkip)},
			"1 fires, 1 runs, 1 wait for a slot, at most 4m59s"},
		{"limit", plan.Options{}, []plan.Job{under(job(t, "a", "0 0 * * * ?", 3, time.Minute, jobconfig.OverlapSkip), 1)}, "1 fires, 3 runs, 2 wait for a permit, at most 2m0s"},
		{"limit of another job", plan.Options{}, []plan.Job{under(job(t, "a", "0 0 * * * ?", 1, 5*time.Minute, jobconfig.OverlapSkip), 1),
			under(job(t, "b", "1 0 * * * ?", 1, time.Minute, jobconfig.OverlapSkip), 9)}, "1 fires, 1 runs, 1 wait for a permit, at most 4m59s"},
		{"after", plan.Options{}, []plan.Job{job(t, "a", minutes, 2, time.Second, jobconfig.OverlapSkip), after("b", "a", "")}, "60 fires, 60 runs"},
		{"after a failure", plan.Options{}, []plan.Job{job(t, "a", minutes, 2, time.Second, jobconfig.OverlapSkip), after("b", "a", jobconfig.OnFailure)}, "60 fires, 0 runs, unmet 60"},
		{"after a job that is not there", plan.Options{}, []plan.Job{after("b", "a", "")}, "0 fires, 0 runs"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			played := play(t, tt.o, tt.jobs...)
			o := &played.Outcomes[len(tt.jobs)-1]
			got := fmt.Sprintf("%d fires, %d runs", o.Fires, o.Runs)
			for n, what := range map[string]int{"failed": o.Failed, "overlaps": o.Overlaps} {
				if what > 0 {
					got += fmt.Sprintf(", %d %s", what, n)
				}
			}
			for _, why := range slices.Sorted(maps.Keys(o.Skipped)) {
				got += fmt.Sprintf(", %s %d", why, o.Skipped[why])
			}
			if o.SlotWaits > 0 {
				got += fmt.Sprintf(", %d wait for a slot, at most %s", o.SlotWaits, o.LongestSlotWait)
			}
			if o.PermitWaits > 0 {
				got += fmt.Sprintf(", %d wait for a permit, at most %s", o.PermitWaits, o.LongestPermit)
			}
			if got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
		})
	}
}

// TestSum: each instant of each item has one run or one reason, whatever the policies, slots and limits.
func TestSum(t *testing.T) {
	overlaps := []jobconfig.Overlap{jobconfig.OverlapSkip, jobconfig.OverlapQueueOne, jobconfig.OverlapQueueAll, jobconfig.OverlapCancel, jobconfig.OverlapTerminate}
	for seed := range uint64(30) {
		rng := rand.New(rand.NewPCG(seed, 2))
		var jobs []plan.Job
		ends := make(map[string]int)
		for n := range 5 {
			j := job(t, fmt.Sprint("job", n), []string{"0 * * * * ?", "0/20 * * * * ?", "7 0/5 * * * ?"}[rng.IntN(3)], 1+rng.IntN(3), time.Duration(rng.IntN(150))*time.Second, overlaps[rng.IntN(len(overlaps))])
			j.Policies.StartWithin = time.Duration(rng.IntN(3)) * 30 * time.Second
			j.Policies.MaxRuns = rng.IntN(2) * 20
			j.MaxConcurrency = rng.IntN(3)
			j.Record = true
			if rng.IntN(2) == 0 {
				j.Limits, j.Most = slices.Repeat([]string{"k"}, j.Items), 1+rng.IntN(3)
			}
			if n > 2 {
				j.Schedule, j.After = nil, []jobconfig.After{{Job: "job0", On: jobconfig.OnAlways}}
			}
			j.Note = func(n plan.Note) {
				if n.What == plan.Start || n.What == plan.Skip {
					ends[fmt.Sprint(j.Name, n.Item, n.Instant.Unix())]++
				}
			}
			jobs = append(jobs, j)
		}
		played := play(t, plan.Options{Slots: 2, Hosts: 1}, jobs...)
		want := 0
		for n, o := range played.Outcomes {
			want += len(o.Instants) * jobs[n].Items
		}
		for key, n := range ends {
			if n != 1 {
				t.Errorf("seed %d: %s has %d ends, want 1", seed, key, n)
			}
		}
		if len(ends) != want {
			t.Errorf("seed %d: %d instants of items have an end, want %d", seed, len(ends), want)
		}
	}
}

// TestBusiest: minutes count the starts and what runs in them, of all plays together.
func TestBusiest(t *testing.T) {
	a := play(t, plan.Options{}, job(t, "a", "0 0/10 * * * ?", 2, 90*time.Second, jobconfig.OverlapSkip), job(t, "b", "30 20 * * * ?", 5, time.Second, jobconfig.OverlapSkip))
	b := play(t, plan.Options{}, job(t, "c", "0 20 * * * ?", 1, time.Second, jobconfig.OverlapSkip))
	all := plan.Together(a, b)
	want := []plan.Minute{{At: begin.Add(20 * time.Minute), Starts: 8, Running: 8}, {At: begin, Starts: 2, Running: 2}}
	if got := all.Busiest(2); !slices.Equal(got, want) {
		t.Errorf("busiest are %v, want %v", got, want)
	}
	if got := all.Peak(); got != want[0] {
		t.Errorf("the peak is %v, want %v", got, want[0])
	}
}

// TestBounds: a play of too much ends with the job that was too much, and one that is called off ends.
func TestBounds(t *testing.T) {
	jobs := []plan.Job{job(t, "often", "* * * * * ?", 1, 0, jobconfig.OverlapSkip)}
	o := plan.Options{From: begin, To: begin.Add(time.Hour), MostStarts: 1000}
	if _, err := plan.Play(t.Context(), o, jobs); !errors.Is(err, plan.ErrTooMany) || !strings.Contains(err.Error(), `"often"`) {
		t.Errorf("got %v, want that there are too many of job often", err)
	}
	if !strings.Contains(fmt.Sprint(plan.Play(t.Context(), o, jobs)), "more than 1000 of items") {
		t.Error("the error does not say how many may be played")
	}
	asked := 0
	queued := job(t, "queued", "* * * * * ?", 1000, time.Hour, jobconfig.OverlapQueueAll)
	queued.ByItem, queued.Takes = true, func(int, time.Time) plan.Run { asked++; return plan.Run{Takes: time.Hour} }
	if _, err := plan.Play(t.Context(), plan.Options{From: begin, To: begin.AddDate(1, 0, 0)}, []plan.Job{queued}); !errors.Is(err, plan.ErrTooMany) || asked > 0 {
		t.Errorf("got %v after %d runs, want that there are too many before any is played", err, asked)
	}
	late := job(t, "later", "", 100, 0, jobconfig.OverlapSkip)
	late.ByItem, late.After = true, []jobconfig.After{{Job: "often"}}
	o.MostStarts = 4000
	if _, err := plan.Play(t.Context(), o, append(jobs, late)); !errors.Is(err, plan.ErrTooMany) || !strings.Contains(err.Error(), `"later"`) {
		t.Errorf("got %v, want that there are too many of the job after it", err)
	}
	o.MostStarts = 1000
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := plan.Play(ctx, o, jobs); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want that it was called off", err)
	}
	if _, err := plan.Play(t.Context(), plan.Options{From: begin, To: begin.Add(-1)}, jobs); err == nil {
		t.Error("a range that ends before it begins is played")
	}
}

// crowd are 10,000 jobs: of ten, six fire daily, three hourly and one each five minutes.
func crowd(b *testing.B) []plan.Job {
	jobs := make([]plan.Job, 10_000)
	for n := range jobs {
		minute := n % 60
		cron := fmt.Sprintf("0 %d %d * * ?", minute, n%24)
		switch n % 10 {
		case 6, 7, 8:
			cron = fmt.Sprintf("0 %d * * * ?", minute)
		case 9:
			cron = "0 0/5 * * * ?"
		}
		jobs[n] = job(b, fmt.Sprint("job", n), cron, 2, 40*time.Second, jobconfig.OverlapQueueOne)
	}
	return jobs
}

// BenchmarkMonth plays 10,000 jobs over a month: alone, and for slots of three hosts.
func BenchmarkMonth(b *testing.B) {
	for name, o := range map[string]plan.Options{"alone": {}, "slots": {Hosts: 3, Slots: 1000}} {
		b.Run(name, func(b *testing.B) {
			jobs := crowd(b)
			o.To = begin.AddDate(0, 1, 0)
			for b.Loop() {
				play(b, o, jobs...)
			}
		})
	}
}
