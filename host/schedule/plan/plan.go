// Package plan simulates the schedules of jobs on a clock of its own: which instants come due, which run, which
// do not and why, given how long runs take. It uses the engine's own decisions: host/schedule/due for instants
// and policies, and internal/slots for slots. It reads neither a registry nor the clock.
//
// It leaves out failures and operators: hosts that die, slow registries, retries (a run's duration includes
// them), and triggers.
package plan

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/wasmjob/wasmjob/coordination/jobconfig"
	"github.com/wasmjob/wasmjob/host/schedule/due"
)

// Reason says why an instant of an item does not run, in the words of the causes in host/event.
type Reason string

// The reasons.
const (
	Superseded Reason = "superseded" // a newer instant stands for it
	Overlap    Reason = "overlap"    // the item still ran, and overlap is skip
	QueueFull  Reason = "queue_full" // the item still ran, and too many instants waited
	Late       Reason = "late"       // it would have started later than startWithin
	Paused     Reason = "paused"     // maxRuns or pauseAfterFailures had paused the job
	Unmet      Reason = "unmet"      // an earlier job did not end as after requires
	Excluded   Reason = "excluded"   // a calendar excludes the day
)

// Reasons returns all reasons. All but Excluded mean a lost run.
func Reasons() []Reason {
	return []Reason{Superseded, Overlap, QueueFull, Late, Paused, Unmet, Excluded}
}

// Job is a job of a simulation, which does not change it.
type Job struct {
	Name  string
	Items int
	// Schedule is nil for a job that only triggers run, and for one that comes After others. It may be a [due.Spread] and a
	// [due.Excluding].
	Schedule cron.Schedule
	After    []jobconfig.After
	Policies due.Policies
	// PauseAfterFailures is how many failures of an item in a row pause the job; 0 is none.
	PauseAfterFailures int
	// MaxConcurrency is how many items run at once on one host; 0 is no bound.
	MaxConcurrency int
	// Priority is 1 to 4; 0 is the default. Group names the jobs that share slots with it.
	Priority int
	Group    string
	// Limits are the keys of the namespace limit for each item; nil is no limit. At most Most items run under a
	// key; if jobs of one key differ, the smallest applies.
	Limits []string
	Most   int
	// Owners are the hosts of items, by item, from 0; nil is all items on host 0.
	Owners []int
	// Takes says how a run goes. Several goroutines may call it. ByItem says that items of one instant may
	// differ.
	Takes  func(item int, instant time.Time) Run
	ByItem bool
	// Record makes the outcome list the instants.
	Record bool
	// Note is called with each event of each item, in order, by the goroutine that simulates the job; nil is
	// ignored. It must not use the simulation.
	Note func(Note)
}

// Note is an event of an item's instant.
type Note struct {
	What    What
	Item    int
	Instant time.Time
	At      time.Time // when, on the clock of the play
	Reason  Reason    // of a Skip
	Failed  bool      // of an End that was a failure
	Stopped bool      // of an End that overlap demanded
}

// What a [Note] is about.
type What uint8

// The kinds of notes.
const (
	Begin What = iota // the item takes the instant, and may wait for a slot
	Start             // it runs
	End
	Skip
)

// Run is how a run of an item goes.
type Run struct {
	// Lag is the delay before it begins, Takes its duration.
	Lag, Takes time.Duration
	Failed     bool
}

// Options are the settings of a simulation.
type Options struct {
	// From and To bound the instants, To excluded. Runs that are in progress at To continue to their end.
	From, To time.Time
	// Hosts each run Slots items at once; 0 slots means no bound, 0 hosts means one.
	Hosts, Slots int
	// MostStarts bounds the simulated instants of items; 0 is [MostStarts].
	MostStarts int64
}

// MostStarts is how many instants of items a play has at most.
const MostStarts = 50_000_000

// Outcome is the result of one job.
type Outcome struct {
	// Fires are the instants that came, Runs the runs of items, and Failed those of them that failed.
	Fires, Runs, Failed int
	// Overlaps counts instants of items that came due while the item still ran.
	Overlaps int
	// FirstOverlap and FirstSkip are the first instants that overlapped and that did not run; zero for none.
	FirstOverlap, FirstSkip time.Time
	// Skipped are the instants of items without a run, by reason.
	Skipped map[Reason]int
	// SlotWaits counts runs that waited for a slot or for maxConcurrency, PermitWaits those that waited for a
	// limit of the namespace.
	SlotWaits, PermitWaits            int
	LongestSlotWait, LongestPermit    time.Duration
	LongestRun, LatestStart, RunsTook time.Duration
	// Instants are the instants that came due, in that order, if [Job.Record] is set.
	Instants []time.Time
}

// Lost counts the instants of items that should have run and did not.
func (o *Outcome) Lost() (lost int) {
	for reason, n := range o.Skipped {
		if reason != Excluded {
			lost += n
		}
	}
	return lost
}

// Minute counts the runs in one minute.
type Minute struct {
	At time.Time `json:"at"`
	// Starts counts runs that start in it, Running those that run in it at some time.
	Starts  int `json:"starts"`
	Running int `json:"running"`
}

// Played is the result of a simulation.
type Played struct {
	// Outcomes are those of the jobs, in their order.
	Outcomes []Outcome
	minutes  minutes
}

// ErrTooMany is the error of a play with more instants than [Options.MostStarts].
var ErrTooMany = errors.New("too many instants")

// Play simulates the jobs. Independent jobs are simulated in parallel, by as many goroutines as there are
// processors; it waits for them.
func Play(ctx context.Context, o Options, jobs []Job) (*Played, error) {
	if o.To.Before(o.From) {
		return nil, fmt.Errorf("found the end %s before the begin %s", o.To.Format(time.RFC3339), o.From.Format(time.RFC3339))
	}
	o.MostStarts = cmp.Or(o.MostStarts, MostStarts)
	if err := o.countable(ctx, jobs); err != nil {
		return nil, err
	}
	played := &Played{Outcomes: make([]Outcome, len(jobs)), minutes: newMinutes(o)}
	parts := Parts(o, jobs)
	var next, starts atomic.Int64
	var mu sync.Mutex // of played.minutes and failed
	var failed error
	var all sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), len(parts)) {
		all.Go(func() {
			own := newMinutes(o)
			for ctx.Err() == nil {
				n := int(next.Add(1)) - 1
				if n >= len(parts) {
					break
				}
				p := newPlayer(o, jobs, parts[n], played.Outcomes, own, &starts)
				if err := p.play(ctx); err != nil {
					mu.Lock()
					failed = cmp.Or(failed, err)
					mu.Unlock()
					break
				}
			}
			mu.Lock()
			defer mu.Unlock()
			played.minutes.add(own)
		})
	}
	all.Wait()
	return played, cmp.Or(ctx.Err(), failed)
}

// countable counts the instants of items by the schedules alone, before the simulation, so that too many are
// refused at once. Jobs that come after others are counted during it.
func (o Options) countable(ctx context.Context, jobs []Job) error {
	left := o.MostStarts
	for n := range jobs {
		j := &jobs[n]
		if j.Schedule == nil || len(j.After) > 0 {
			continue
		}
		played := int64(max(j.Items, 1)) / int64(j.weight(o))
		at := o.From.Add(-time.Millisecond)
		for count := 0; ; count++ {
			if count%4096 == 0 && ctx.Err() != nil {
				return ctx.Err()
			}
			if at = j.Schedule.Next(at); at.IsZero() || !at.Before(o.To) {
				break
			}
			if left -= played; left < 0 {
				return o.tooMany(j.Name, at)
			}
		}
	}
	return nil
}

// tooMany is the error of a simulation that reached its bound at a job's instant.
func (o Options) tooMany(job string, at time.Time) error {
	return fmt.Errorf("%w: more than %d of items from %s to %s, counted up to job %q at %s: play fewer jobs, or a shorter time (--next, --last, --to)",
		ErrTooMany, o.MostStarts, o.From.Format(time.RFC3339), o.To.Format(time.RFC3339), job, at.Format(time.RFC3339))
}

// crowded reports for each host whether items of the job may have to wait there for each other or for a slot.
func (j *Job) crowded(o Options) []bool {
	items := make([]int, max(o.Hosts, 1))
	for n := range j.Items {
		items[j.host(n)]++
	}
	crowded := make([]bool, len(items))
	for host, n := range items {
		crowded[host] = o.Slots > 0 || (j.MaxConcurrency > 0 && n > j.MaxConcurrency)
	}
	return crowded
}

// weight is how many identical items one simulated item stands for.
func (j *Job) weight(o Options) int {
	if j.Limits != nil || j.ByItem || j.Note != nil || slices.Contains(j.crowded(o), true) {
		return 1
	}
	return max(j.Items, 1)
}

func (j *Job) host(item int) int {
	if item < len(j.Owners) {
		return j.Owners[item]
	}
	return 0
}

// Parts divides the jobs, by index, into sets that do not affect each other: with slots all are one set.
func Parts(o Options, jobs []Job) (parts [][]int) {
	root := make([]int, len(jobs))
	for n := range root {
		root[n] = n
	}
	var find func(n int) int
	find = func(n int) int {
		if root[n] != n {
			root[n] = find(root[n])
		}
		return root[n]
	}
	join := func(a, b int) { root[find(a)] = find(b) }
	named, under := make(map[string]int, len(jobs)), make(map[string]int)
	for n := range jobs {
		named[jobs[n].Name] = n
	}
	for n := range jobs {
		if o.Slots > 0 {
			join(n, 0)
		}
		for _, a := range jobs[n].After {
			if before, has := named[a.Job]; has {
				join(n, before)
			}
		}
		for _, key := range jobs[n].Limits {
			if other, has := under[key]; has {
				join(n, other)
			}
			under[key] = n
		}
	}
	place := make(map[int]int)
	for n := range jobs {
		r := find(n)
		at, has := place[r]
		if !has {
			at = len(parts)
			place[r] = at
			parts = append(parts, nil)
		}
		parts[at] = append(parts[at], n)
	}
	return parts
}

// minutes count what happens in each minute of the range.
type minutes struct {
	from           time.Time     // the first minute begins
	into           time.Duration // how far into it the range begins
	starts         []int32
	begins, leaves []int32 // of runs: by the minute in which they begin, and by the minute after that in which they end
}

func newMinutes(o Options) minutes {
	from := o.From.Truncate(time.Minute)
	n := int(o.To.Sub(from)/time.Minute) + 1
	return minutes{from, o.From.Sub(from), make([]int32, n), make([]int32, n+1), make([]int32, n+1)}
}

// run counts runs from one time to another, in nanoseconds since the range begins.
func (m *minutes) run(begin, end time.Duration, count int) {
	last := len(m.starts) - 1
	begin, end = begin+m.into, end+m.into
	first := int(begin / time.Minute)
	if first < 0 || first > last {
		return // after the range
	}
	m.starts[first] += int32(count)
	m.begins[first] += int32(count)
	m.leaves[min(int(end/time.Minute), last)+1] += int32(count)
}

func (m *minutes) add(o minutes) {
	for n := range m.starts {
		m.starts[n] += o.starts[n]
	}
	for n := range m.begins {
		m.begins[n] += o.begins[n]
		m.leaves[n] += o.leaves[n]
	}
}

// Together merges simulations of different jobs over one range; the result has no outcomes.
func Together(plays ...*Played) *Played {
	if len(plays) == 0 {
		return &Played{}
	}
	m := plays[0].minutes
	sum := minutes{m.from, m.into, slices.Clone(m.starts), slices.Clone(m.begins), slices.Clone(m.leaves)}
	for _, p := range plays[1:] {
		sum.add(p.minutes)
	}
	return &Played{minutes: sum}
}

// Busiest returns at most n minutes with the most starts, the busiest first; in a tie the earliest.
func (p *Played) Busiest(n int) []Minute {
	m := &p.minutes
	var list []Minute
	running := 0
	for at, starts := range m.starts {
		running += int(m.begins[at]) - int(m.leaves[at])
		if starts == 0 || (len(list) == n && int(starts) <= list[n-1].Starts) {
			continue
		}
		minute := Minute{m.from.Add(time.Duration(at) * time.Minute), int(starts), running}
		to, _ := slices.BinarySearchFunc(list, minute, func(a, b Minute) int {
			if a.Starts >= b.Starts {
				return -1
			}
			return 1
		})
		list = slices.Insert(list, to, minute)
		list = list[:min(n, len(list))]
	}
	return list
}

// Peak returns the minute with the most running items; the zero Minute if none runs.
func (p *Played) Peak() (peak Minute) {
	m := &p.minutes
	running := 0
	for at := range m.starts {
		running += int(m.begins[at]) - int(m.leaves[at])
		if running > peak.Running {
			peak = Minute{m.from.Add(time.Duration(at) * time.Minute), int(m.starts[at]), running}
		}
	}
	return peak
}
