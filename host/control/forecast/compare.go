package forecast

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/wasmjob/wasmjob/coordination"
	"github.com/wasmjob/wasmjob/coordination/admin/operate"
	"github.com/wasmjob/wasmjob/coordination/jobconfig"
	"github.com/wasmjob/wasmjob/host/alert"
	"github.com/wasmjob/wasmjob/host/schedule"
	"github.com/wasmjob/wasmjob/host/schedule/plan"
	"github.com/wasmjob/wasmjob/internal/text/words"
)

// Options say what is compared.
type Options struct {
	// From and To bound the instants; To does not belong to them.
	From, To time.Time
	// Hosts are how many hosts have all jobs, 0 is one. Slots are those of each; 0 is enough for all.
	Hosts, Slots int
	Namespace    string
	// Durations are how long runs take; nil is [DefaultDuration] for all.
	Durations *Durations
	// Rules are those of alerts, whose begins are counted; nil counts none.
	Rules *alert.File
	// MostStarts is that of [plan.Options].
	MostStarts int64
}

// MostRange is the longest time from From to To, MostHosts and MostSlots bound the others.
const (
	MostRange = 366 * 24 * time.Hour
	MostHosts = 1000
	MostSlots = 100_000
)

// mostBusy is how many busy minutes a report has, mostNamed how many jobs it names of each.
const mostBusy, mostNamed = 5, 3

// Check finds what the options may not say.
func (o *Options) Check() error {
	switch {
	case !o.To.After(o.From):
		return fmt.Errorf("the range ends at %s and begins at %s, expected an end after the begin", o.To.Format(time.RFC3339), o.From.Format(time.RFC3339))
	case o.To.Sub(o.From) > MostRange:
		return fmt.Errorf("the range is %s long, expected at most %s", words.Duration(o.To.Sub(o.From)), words.Duration(MostRange))
	case o.Hosts < 0 || o.Hosts > MostHosts:
		return fmt.Errorf("found %d hosts, expected 1 to %d", o.Hosts, MostHosts)
	case o.Slots < 0 || o.Slots > MostSlots:
		return fmt.Errorf("found %d slots, expected 1 to %d, or 0 for enough", o.Slots, MostSlots)
	}
	return nil
}

// Compare simulates the definitions after a change, and those before it if compares is true. The error joins
// one for each job that cannot be simulated, at most [words.MostProblems].
func Compare(ctx context.Context, before, after []Definition, compares bool, o Options) (*Report, error) {
	if err := o.Check(); err != nil {
		return nil, err
	}
	if o.Durations == nil {
		o.Durations = NewDurations(DefaultDuration, false)
	}
	o.Hosts = max(o.Hosts, 1)
	was, err := read(before, o)
	if err != nil {
		return nil, err
	}
	is, err := read(after, o)
	if err != nil {
		return nil, err
	}
	c := comparison{o: o, was: was, is: is, compares: compares, same: make(map[string]bool)}
	if err := c.play(ctx); err != nil {
		return nil, err
	}
	return c.report(), nil
}

// side are jobs before or after the change.
type side struct {
	definitions []Definition
	jobs        []plan.Job
	at          map[string]int
	outcomes    []plan.Outcome // by the places of the jobs
	judged      []*judged      // by the same; nil for a job without rules
	played      []*plan.Played
}

func read(definitions []Definition, o Options) (*side, error) {
	s := &side{definitions: definitions, at: make(map[string]int, len(definitions)), outcomes: make([]plan.Outcome, len(definitions)), judged: make([]*judged, len(definitions))}
	var problems words.Problems
	for n, d := range definitions {
		name := d.Configuration.JobName
		if other, twice := s.at[name]; twice {
			problems.Add(fmt.Errorf("job %q is defined in %s and in %s, expected one definition", name, definitions[other].File, d.File))
		}
		s.at[name] = n
		j, err := Job(d, o.Namespace, o.Hosts, o.Durations)
		problems.Add(err)
		if err == nil && wanted(o.Rules, d.Configuration) {
			s.judged[n] = newJudged(o.Rules, d.Configuration, o.From, o.To)
			j.Note = s.judged[n].note
		}
		s.jobs = append(s.jobs, j)
	}
	after := make(map[string][]string)
	for _, j := range s.jobs {
		for _, a := range j.After {
			after[j.Name] = append(after[j.Name], a.Job)
		}
	}
	after = coordination.Circular(after)
	for _, j := range s.jobs {
		if path := coordination.Cycle(j.Name, func(job string) []string { return after[job] }); path != nil {
			problems.Add(fmt.Errorf("job %q: after: the jobs would come after each other: %s", j.Name, words.Clip(strings.Join(path, " -> "))))
		}
	}
	return s, problems.Err()
}

// comparison compares two sides.
type comparison struct {
	o        Options
	was, is  *side
	compares bool
	same     map[string]bool // what is known of alike
}

// play simulates both sides. Jobs that are the same on both, with all jobs that affect them, are simulated
// once.
func (c *comparison) play(ctx context.Context) error {
	o := plan.Options{From: c.o.From, To: c.o.To, Hosts: c.o.Hosts, Slots: c.o.Slots, MostStarts: c.o.MostStarts}
	shared := make(map[string]bool)
	if c.compares {
		parts := c.parts(o, c.was)
		for key := range c.parts(o, c.is) {
			if names, has := parts[key]; has && c.alike(names) {
				for _, name := range names {
					shared[name] = true
				}
			}
		}
	}
	for _, s := range []*side{c.is, c.was} {
		for n := range s.jobs {
			s.jobs[n].Record = c.compares && !c.alike([]string{s.jobs[n].Name})
		}
	}
	both, err := c.is.play(ctx, o, func(name string) bool { return shared[name] })
	if err != nil {
		return err
	}
	c.was.played = append(c.was.played, both)
	for name := range shared {
		c.was.outcomes[c.was.at[name]] = c.is.outcomes[c.is.at[name]]
		c.was.judged[c.was.at[name]] = c.is.judged[c.is.at[name]]
	}
	for _, s := range []*side{c.is, c.was} {
		if _, err := s.play(ctx, o, func(name string) bool { return !shared[name] }); err != nil {
			return err
		}
	}
	return nil
}

// parts are the jobs of a side that have to do with each other, by their names in one text.
func (c *comparison) parts(o plan.Options, s *side) map[string][]string {
	parts := make(map[string][]string)
	for _, part := range plan.Parts(o, s.jobs) {
		var names []string
		for _, n := range part {
			names = append(names, s.jobs[n].Name)
		}
		slices.Sort(names)
		parts[strings.Join(names, "\x00")] = names
	}
	return parts
}

// alike reports whether jobs are the same on both sides.
func (c *comparison) alike(names []string) bool {
	for _, name := range names {
		same, known := c.same[name]
		if !known {
			a, inOld := c.was.at[name]
			b, inNew := c.is.at[name]
			same = inOld && inNew && sameJob(c.was.definitions[a].Configuration, c.is.definitions[b].Configuration)
			c.same[name] = same
		}
		if !same {
			return false
		}
	}
	return true
}

// sameJob reports whether two configurations of a job have the same settings and the same instants.
func sameJob(a, b jobconfig.Configuration) bool {
	if reflect.DeepEqual(a, b) {
		return true
	}
	before, after := operate.Differences(a, b)
	return len(before)+len(after) == 0 && a.Terms() == b.Terms() && a.Disabled == b.Disabled
}

// play plays the jobs that are wanted, and keeps what became of them.
func (s *side) play(ctx context.Context, o plan.Options, wanted func(name string) bool) (*plan.Played, error) {
	var jobs []plan.Job
	var places []int
	for n := range s.jobs {
		if wanted(s.jobs[n].Name) {
			jobs, places = append(jobs, s.jobs[n]), append(places, n)
		}
	}
	played, err := plan.Play(ctx, o, jobs)
	if err != nil {
		return nil, err
	}
	for n, at := range places {
		s.outcomes[at] = played.Outcomes[n]
		if s.judged[at] != nil {
			s.judged[at].until(o.To)
		}
	}
	s.played = append(s.played, played)
	return played, nil
}

func (c *comparison) report() *Report {
	r := &Report{From: c.o.From, To: c.o.To, Hosts: c.o.Hosts, Slots: c.o.Slots, KnownRuns: c.o.Durations.Known(), Assumed: c.o.Durations.assumed, Silent: c.o.Durations.silent,
		Jobs: []JobPlan{}, Shifts: []Shift{}}
	for _, j := range c.is.jobs {
		if !c.o.Durations.Has(j.Name) {
			r.AssumedJobs++
		}
	}
	r.After = c.is.totals(c.o)
	if c.compares {
		was := c.was.totals(c.o)
		r.Before = &was
	}
	for _, name := range slices.Sorted(maps.Keys(c.names())) {
		j := c.job(name)
		r.Worse = r.Worse || len(j.Worse) > 0
		trouble := (j.Before != nil && j.Before.trouble()) || (j.After != nil && (j.After.trouble() || j.After.SlotWaits+j.After.PermitWaits+len(j.After.Alerts) > 0))
		if j.Change != "" || trouble {
			r.Jobs = append(r.Jobs, j)
		}
	}
	slices.SortStableFunc(r.Jobs, func(a, b JobPlan) int {
		return cmp.Or(-cmp.Compare(min(len(a.Worse), 1), min(len(b.Worse), 1)), -cmp.Compare(min(len(a.Change), 1), min(len(b.Change), 1)))
	})
	r.Shifts = append(r.Shifts, c.shifts()...)
	return r
}

func (c *comparison) names() map[string]bool {
	names := make(map[string]bool)
	for _, s := range []*side{c.is, c.was} {
		for name := range s.at {
			names[name] = true
		}
	}
	return names
}

// totals are the sums of a side.
func (s *side) totals(o Options) Totals {
	t := Totals{Jobs: len(s.jobs), Busiest: []Busy{}}
	for n := range s.outcomes {
		t.Fires += s.outcomes[n].Fires
		t.Runs += s.outcomes[n].Runs
		t.add(s.counts(n))
	}
	all := plan.Together(s.played...)
	t.Peak = all.Peak()
	for _, m := range all.Busiest(mostBusy) {
		b := Busy{Minute: m, Jobs: []string{}}
		for n := range s.jobs {
			if j := &s.jobs[n]; j.Schedule != nil {
				if at := j.Schedule.Next(m.At.Add(-1)); at.IsZero() || !at.Before(m.At.Add(time.Minute)) {
					continue
				}
				if len(b.Jobs) < mostNamed {
					b.Jobs = append(b.Jobs, j.Name)
				} else {
					b.MoreJobs++
				}
			}
		}
		t.Busiest = append(t.Busiest, b)
	}
	return t
}

func (s *side) counts(n int) Counts {
	o := &s.outcomes[n]
	c := Counts{Overlaps: o.Overlaps, SlotWaits: o.SlotWaits, LongestSlotWait: o.LongestSlotWait, PermitWaits: o.PermitWaits, LongestPermitWait: o.LongestPermit}
	if len(o.Skipped) > 0 {
		c.Skipped = o.Skipped
	}
	if s.judged[n] != nil && len(s.judged[n].counts) > 0 {
		c.Alerts = s.judged[n].counts
	}
	return c
}

// of is a job of a side; nil if it has none of that name.
func (s *side) of(name string, o Options) (*Side, []time.Time) {
	n, has := s.at[name]
	if !has {
		return nil, nil
	}
	out := &s.outcomes[n]
	return &Side{Fires: out.Fires, Runs: out.Runs, Counts: s.counts(n), FirstOverlap: out.FirstOverlap, FirstSkip: out.FirstSkip, Typical: o.Durations.Typical(name),
		Zone: s.definitions[n].Configuration.TimeZone}, out.Instants
}

// job compares one job.
func (c *comparison) job(name string) JobPlan {
	j := JobPlan{Job: name}
	var old, now []time.Time
	j.Before, old = c.was.of(name, c.o)
	j.After, now = c.is.of(name, c.o)
	if j.After != nil {
		j.File = c.is.definitions[c.is.at[name]].File
	}
	if !c.compares {
		return j
	}
	switch {
	case j.Before == nil:
		j.Change = Added
	case j.After == nil:
		j.Change = Removed
	case !c.alike([]string{name}):
		before, after := operate.Differences(c.was.definitions[c.was.at[name]].Configuration, c.is.definitions[c.is.at[name]].Configuration)
		names := maps.Clone(before)
		if names == nil {
			names = make(map[string]string)
		}
		maps.Copy(names, after)
		j.Change, j.Settings = Changed, slices.Sorted(maps.Keys(names))
	}
	j.FiresAdded, j.FirstAdded = lacking(now, old)
	j.FiresGone, j.FirstGone = lacking(old, now)
	if j.After != nil {
		j.Worse = worse(j.Before, j.After)
	}
	return j
}

// lacking counts the instants of one list that are missing in the other; both ascend. first is the first of
// them.
func lacking(of, in []time.Time) (count int, first time.Time) {
	for _, at := range of {
		for len(in) > 0 && in[0].Before(at) {
			in = in[1:]
		}
		if len(in) > 0 && in[0].Equal(at) {
			continue
		}
		if count++; count == 1 {
			first = at
		}
	}
	return count, first
}

// Overlaps is the word of [JobPlan.Worse] for instants that come while the item still runs.
const Overlaps = "overlaps"

// worse are what there is more of after than before.
func worse(before, after *Side) (list []string) {
	if before == nil {
		before = &Side{}
	}
	if after.Overlaps > before.Overlaps {
		list = append(list, Overlaps)
	}
	for _, why := range plan.Reasons() {
		if why != plan.Excluded && after.Skipped[why] > before.Skipped[why] {
			list = append(list, string(why))
		}
	}
	return list
}

// shifts are the changes of clocks in the range, in the zones of the jobs after the change.
func (c *comparison) shifts() (list []Shift) {
	zones := make(map[string][]int)
	for n, d := range c.is.definitions {
		if c.is.jobs[n].Schedule != nil {
			zones[d.Configuration.TimeZone] = append(zones[d.Configuration.TimeZone], n)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(zones)) {
		zone, err := schedule.Zone(name)
		if err != nil {
			continue // the job could not be played
		}
		for at := c.o.From.In(zone); ; {
			_, end := at.ZoneBounds()
			if !end.IsZero() && !end.After(at) { // package time gives leap years 365 days; see zoneAt in host/schedule
				end = time.Date(at.UTC().Year()+1, time.January, 1, 0, 0, 0, 0, time.UTC).In(zone)
			}
			if end.IsZero() || !end.Before(c.o.To) {
				break
			}
			_, before := end.Add(-time.Second).Zone()
			_, after := end.Zone()
			at = end
			if before == after {
				continue
			}
			list = append(list, c.shift(cmp.Or(name, "the host's own zone"), end, time.Duration(after-before)*time.Second, zones[name]))
		}
	}
	slices.SortStableFunc(list, func(a, b Shift) int { return a.At.Compare(b.At) })
	return list
}

func (c *comparison) shift(zone string, at time.Time, forward time.Duration, jobs []int) Shift {
	s := Shift{Zone: zone, At: at, Forward: forward, Jobs: len(jobs)}
	from, to := at, at.Add(time.Second) // what does not come fires at the first instant after it
	if forward < 0 {
		from, to = at.Add(forward), at.Add(-forward)
	}
	for _, n := range jobs {
		j := &c.is.jobs[n]
		if next := j.Schedule.Next(from.Add(-1)); next.IsZero() || !next.Before(to) {
			continue
		}
		if len(s.Touched) < mostNamed {
			s.Touched = append(s.Touched, j.Name)
		} else {
			s.MoreTouched++
		}
	}
	return s
}
