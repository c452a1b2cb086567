package jobconfig

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/wasmjob/wasmjob/internal/labels"
)

// LabelsExample is the example of labels in error messages.
const LabelsExample = "team=billing,tier=gold"

// Properties that other packages ask for by name; the table of settings has all.
const (
	PropTimeout         = "wasm.timeout"
	PropMaxConcurrency  = "wasm.maxConcurrency"
	PropIsolation       = "wasm.isolation"
	PropFetchDataCount  = "wasm.fetchDataCount"
	PropMaxHostDeaths   = "wasm.maxHostDeaths"
	PropLabels          = "wasm.labels"
	propRetryMaxBackoff = "wasm.retry.maxBackoff"
	propOverlap         = "wasm.overlap"
	propCatchUp         = "wasm.catchUp"
	// PropMaxRuns and PropPauseAfterFailures pause a job.
	PropMaxRuns            = "wasm.maxRuns"
	PropPauseAfterFailures = "wasm.pauseAfterFailures"
	// PropStreamingProcess is ElasticJob's own.
	PropStreamingProcess = "streaming.process"
	// PropPrefix is the prefix of all keys that are not ElasticJob's.
	PropPrefix = "wasm."
)

// Bounds that other packages need; the table of settings has all.
const (
	MaxTimeout        = 30 * 24 * time.Hour
	MinMemoryLimit    = 64 << 10 // one page
	MaxMemoryLimit    = 2 << 30  // see host/sandbox/plugin/wasm.MostPages
	MaxFetchDataCount = 1_000_000
	MaxQueue          = 1000 // how many instants may wait for an item
)

// RetryOutcomes are the outcomes that may be tried again, in the order in which they are written.
func RetryOutcomes() []string { return []string{"RETRY", "FAIL", "TRAP", "EXIT", "TIMEOUT", "WORKER"} }

// DefaultGuest returns the settings of a configuration without any guest settings, such as one that ElasticJob
// wrote.
func DefaultGuest() Guest {
	return Guest{
		Isolation:     IsolationFire,
		Retry:         RetryPolicy{Attempts: 3, Backoff: time.Second, MaxBackoff: 30 * time.Second, On: []string{"RETRY"}},
		CatchUpWindow: 5 * time.Minute,
		CatchUpMax:    100,
		QueueMax:      100,
		MaxHostDeaths: 2,
		Priority:      3,
		When:          When{DST: DSTOnce, JitterMode: JitterStable, OnExcluded: OnExcludedSkip},
	}
}

// Overlaps returns what happens to an instant that comes due while the item still runs. If no overlap is set,
// ElasticJob's misfire decides.
func (g Guest) Overlaps(c Configuration) Overlap {
	if g.Overlap != "" {
		return g.Overlap
	}
	if c.Misfire {
		return OverlapQueueOne
	}
	return OverlapSkip
}

// CatchesUp returns which missed instants are caught up. If no catch-up is set, ElasticJob's misfire decides.
func (g Guest) CatchesUp(c Configuration) CatchUp {
	if g.CatchUp != "" {
		return g.CatchUp
	}
	if c.Misfire {
		return CatchUpLatest
	}
	return CatchUpNone
}

// Labels are the labels of the job, nil if it has none or they cannot be read.
func (c Configuration) Labels() labels.Set {
	set, err := labels.Parse(c.Props[PropLabels])
	if err != nil {
		return nil
	}
	return set
}

// NotJavas names the settings that change the job's behaviour and that ElasticJob's Java hosts ignore. A job
// with one of them does not run beside a Java host.
func (c Configuration) NotJavas() []string {
	if len(c.Props) == 0 {
		return nil
	}
	g, _ := c.Guest() // an unreadable setting has its default
	asMisfire := Guest{CatchUp: g.CatchesUp(c), Overlap: g.Overlaps(c)}
	var names []string
	for _, s := range settings {
		switch {
		case s.ours == 0 || !s.Differs(g):
		case s.Prop == propOverlap && asMisfire.Overlap == (Guest{}).Overlaps(c):
		case s.Prop == propCatchUp && asMisfire.CatchUp == (Guest{}).CatchesUp(c):
		default:
			names = append(names, s.Name)
		}
	}
	return names
}

// contradicts returns the first contradiction among a job's policies, and the property at fault; nil if there
// is none.
func (g Guest) contradicts(c Configuration) (prop string, err error) {
	switch skips := g.Overlap == OverlapSkip; {
	case g.Overlap != "" && skips && c.Misfire:
		return propOverlap, fmt.Errorf("found %s, but misfire is true, which means %s", g.Overlap, OverlapQueueOne)
	case g.Overlap != "" && !skips && !c.Misfire:
		return propOverlap, fmt.Errorf("found %s, but misfire is false, which means %s", g.Overlap, OverlapSkip)
	case g.CatchUp == CatchUpAll && g.CatchUpWindow == 0:
		return propCatchUp, fmt.Errorf("found %s, but catchUpWindow is 0, so that no instant is made up for", g.CatchUp)
	}
	return "", nil
}

// Guest reads the guest's settings from Props. The error joins a [*FieldError] for each value that cannot be
// read or is out of range; settings at fault have their defaults. Unknown keys are ignored, since a newer host
// may have written them.
func (c Configuration) Guest() (Guest, error) {
	g := DefaultGuest()
	var problems []error
	problem := func(prop string, err error) {
		problems = append(problems, &FieldError{"props." + prop, err.Error()})
	}
	for _, s := range settings {
		value, stated := c.Props[s.Prop]
		if !stated || s.Prop == "" || (s.Type == Word && value == "") || s.foreign(g.Type) {
			continue
		}
		if err := s.Parse(nil, &g, value); err != nil {
			problem(s.Prop, err)
		}
	}

	if g.Retry.MaxBackoff < g.Retry.Backoff {
		if _, stated := c.Props[propRetryMaxBackoff]; stated {
			problem(propRetryMaxBackoff, fmt.Errorf("found %s, expected at least the first backoff, %s", g.Retry.MaxBackoff, g.Retry.Backoff))
		}
		g.Retry.MaxBackoff = max(DefaultGuest().Retry.MaxBackoff, g.Retry.Backoff)
	}
	if g.Type == TypeHTTP {
		for prop, err := range g.HTTP.problems() {
			problem(prop, err)
		}
	}
	if prop, err := g.Concurrency.incomplete(); err != nil {
		problem(prop, err)
		g.Concurrency = Concurrency{}
	}
	if prop, err := g.Rate.incomplete(); err != nil {
		problem(prop, err)
		g.Rate = Rate{}
	}
	if prop, err := g.contradicts(c); err != nil {
		problem(prop, err)
		g.Overlap, g.CatchUp = "", ""
	}
	return g, errors.Join(problems...)
}

// foreign reports whether the setting's property means something else to jobs of a type: keys with the prefix
// "http." are ElasticJob's own, and kept unchanged.
func (s Setting) foreign(t JobType) bool { return s.Only == TypeHTTP && t != TypeHTTP }

// Props writes the settings into a set of properties, which must not be nil: Guest reads the same settings from
// the result. A setting with its default is removed. Zero attempts mean the default RetryPolicy; no outcomes,
// no isolation, priority 0 and a bound of 0 mean their defaults.
func (g Guest) Props(into map[string]string) {
	d := DefaultGuest()
	if g.Retry.Attempts == 0 {
		g.Retry = d.Retry
	}
	if len(g.Retry.On) == 0 {
		g.Retry.On = d.Retry.On
	}
	g.Isolation = cmp.Or(g.Isolation, d.Isolation)
	g.Priority = cmp.Or(g.Priority, d.Priority)
	g.CatchUpMax, g.QueueMax = cmp.Or(g.CatchUpMax, d.CatchUpMax), cmp.Or(g.QueueMax, d.QueueMax)
	g.When.DST, g.When.JitterMode = cmp.Or(g.When.DST, d.When.DST), cmp.Or(g.When.JitterMode, d.When.JitterMode)
	g.When.OnExcluded = cmp.Or(g.When.OnExcluded, d.When.OnExcluded)
	// If the first backoff is above the default limit, it becomes the limit.
	d.Retry.MaxBackoff = max(d.Retry.MaxBackoff, g.Retry.Backoff)

	for _, s := range settings {
		if s.Prop == "" || s.foreign(g.Type) {
			continue
		}
		if value := s.Text(g); value != s.Text(d) {
			into[s.Prop] = value
		} else {
			delete(into, s.Prop)
		}
	}
}

// Differs reports whether the guest's setting differs from its default.
func (s Setting) Differs(g Guest) bool {
	return s.Prop != "" && s.Text(g) != s.Text(DefaultGuest())
}
