package metrics

import (
	"cmp"
	"maps"
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/event"
)

// DefaultGuestSeries is [Options.GuestSeries] if that is 0. A scrape of so many has about
// 75 MiB if names are as long as they may be.
const DefaultGuestSeries = 200_000

// guestBuckets is how many buckets a guest's histogram has, histogramSeries how many series.
const (
	guestBuckets    = 16
	histogramSeries = guestBuckets + 3 // +Inf, the sum, the count
)

// guestMetrics are what guests report: one family per kind, with the name as a
// label, so that no name can clash with the host's or with another job's of
// another kind. Items have no label, since a job may have very many: of a
// gauge the last value counts, whichever item set it.
//
// All jobs together have at most limit series. When these are used up, a job gets another
// name only in place of one of the job that has the most, if that keeps more than the job
// has: whoever comes late gets about an equal part.
type guestMetrics struct {
	counters   *prometheus.CounterVec
	gauges     *prometheus.GaugeVec
	histograms *prometheus.HistogramVec
	dropped    prometheus.Counter
	shown      *shown
	limit      int

	mu   sync.RWMutex
	jobs map[string]*guestJob
	all  int // series of all jobs
	// bySize are the jobs by how many series they have, up to most.
	bySize map[int]map[string]struct{}
	most   int
	made   uint64 // names, in all
}

// guestJob is what a job's guests report.
type guestJob struct {
	names  map[string]guestSeries
	series int
}

// guestSeries is one of the three, by kind.
type guestSeries struct {
	kind      int
	counter   prometheus.Counter
	gauge     prometheus.Gauge
	histogram prometheus.Observer
	number    uint64 // the later it was made the greater
}

// size is how many series a name of a kind has.
func size(kind int) int {
	if kind == abi.MetricHistogram {
		return histogramSeries
	}
	return 1
}

func (g *guestMetrics) init(m *Metrics, limit int) {
	g.shown, g.limit = m.jobs, limit
	g.jobs, g.bySize = make(map[string]*guestJob), make(map[int]map[string]struct{})
	labels := []Label{jobName(), {Name: "name"}}
	g.counters = m.counters("guest_counts_total", "Counters that guests report.", labels...)
	const gauges, histograms = "Gauges that guests report; the last value of any item.", "Histograms that guests report."
	g.gauges = prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: m.note(Gauge, "guest_values", gauges, labels), Help: gauges}, names(labels))
	g.histograms = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: m.note(Histogram, "guest_observations", histograms, labels), Help: histograms,
		Buckets: prometheus.ExponentialBuckets(1, 4, guestBuckets), // the unit is the guest's: 1 to 10^9
	}, names(labels))
	m.registry.MustRegister(unlocked{g.gauges}, unlocked{g.histograms})
	g.dropped = m.counter("guest_values_dropped_total", "Values of guests that are in no metric, because all jobs together have as many series as they may have, and names that were dropped for jobs with fewer.")
	m.registry.MustRegister(m.asked(Gauge, "guest_series", "Series of what guests report, of all jobs together.", func() float64 {
		g.mu.RLock()
		defer g.mu.RUnlock()
		return float64(g.all)
	}))
}

func (g *guestMetrics) add(v event.GuestMetric) abi.Code {
	s, code := g.series(v)
	if code != abi.OK {
		return code
	}
	switch {
	case s == guestSeries{}:
		return abi.OK // the job has no series of its own
	case s.kind != v.Kind:
		return abi.ErrInvalid // the name is taken by another kind
	case v.Kind == abi.MetricGauge:
		s.gauge.Set(float64(v.Value))
	case v.Kind == abi.MetricHistogram:
		s.histogram.Observe(float64(v.Value))
	case v.Value < 0:
		return abi.ErrInvalid // a counter only grows
	default:
		s.counter.Add(float64(v.Value))
	}
	return abi.OK
}

// known returns the series of a name that a job has.
func (g *guestMetrics) known(job, name string) (s guestSeries, ok bool) {
	if j := g.jobs[job]; j != nil {
		s, ok = j.names[name]
	}
	return s, ok
}

func (g *guestMetrics) series(v event.GuestMetric) (guestSeries, abi.Code) {
	g.mu.RLock()
	s, ok := g.known(v.Job, v.Name)
	g.mu.RUnlock()
	if ok {
		return s, abi.OK
	}
	if v.Kind != abi.MetricCounter && v.Kind != abi.MetricGauge && v.Kind != abi.MetricHistogram {
		return s, abi.ErrInvalid
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.shown.has(v.Job) || g.shown.gone(v.Job) {
		return s, abi.OK
	}
	if s, ok := g.known(v.Job, v.Name); ok {
		return s, abi.OK
	}
	j := g.jobs[v.Job]
	if j == nil {
		j = &guestJob{names: make(map[string]guestSeries)}
	}
	if len(j.names) >= abi.MaxMetricNames {
		return s, abi.ErrQuota
	}
	if !g.room(size(v.Kind), j.series) {
		g.dropped.Inc()
		return s, abi.ErrQuota
	}
	g.made++
	s.kind, s.number = v.Kind, g.made
	switch v.Kind {
	case abi.MetricCounter:
		s.counter = g.counters.WithLabelValues(v.Job, v.Name)
	case abi.MetricGauge:
		s.gauge = g.gauges.WithLabelValues(v.Job, v.Name)
	case abi.MetricHistogram:
		s.histogram = g.histograms.WithLabelValues(v.Job, v.Name)
	}
	g.jobs[v.Job] = j
	j.names[v.Name] = s
	g.grow(v.Job, j, size(s.kind))
	return s, abi.OK
}

// room makes room for more series of a job that has so many, and reports whether there is
// room. It drops the newest names of a job that has the most series, if that has more than
// the other job has even then.
func (g *guestMetrics) room(more, has int) bool {
	missing := g.all + more - g.limit
	if missing <= 0 {
		return true
	}
	for g.most > 0 && len(g.bySize[g.most]) == 0 {
		g.most--
	}
	for job := range g.bySize[g.most] {
		names := g.jobs[job].names
		newest := slices.SortedFunc(maps.Keys(names), func(a, b string) int { return cmp.Compare(names[b].number, names[a].number) })
		last, found := 0, 0
		for ; found < missing && last < len(newest); last++ {
			found += size(names[newest[last]].kind)
		}
		if found < missing || g.most-found <= has {
			return false
		}
		for _, name := range newest[:last] {
			g.drop(job, name)
		}
		g.dropped.Add(float64(last))
		return true
	}
	return false
}

// grow notes that a job has so many series more, or less. A job without any is forgotten.
func (g *guestMetrics) grow(job string, j *guestJob, by int) {
	if delete(g.bySize[j.series], job); len(g.bySize[j.series]) == 0 {
		delete(g.bySize, j.series)
	}
	j.series += by
	g.all += by
	if j.series == 0 {
		delete(g.jobs, job)
		return
	}
	if g.bySize[j.series] == nil {
		g.bySize[j.series] = make(map[string]struct{})
	}
	g.bySize[j.series][job] = struct{}{}
	g.most = max(g.most, j.series)
}

// drop drops a name of a job.
func (g *guestMetrics) drop(job, name string) {
	j := g.jobs[job]
	s := j.names[name]
	switch s.kind {
	case abi.MetricCounter:
		g.counters.DeleteLabelValues(job, name)
	case abi.MetricGauge:
		g.gauges.DeleteLabelValues(job, name)
	case abi.MetricHistogram:
		g.histograms.DeleteLabelValues(job, name)
	}
	delete(j.names, name)
	g.grow(job, j, -size(s.kind))
}

// forget drops the series of a job.
func (g *guestMetrics) forget(job string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if j := g.jobs[job]; j != nil {
		for name := range j.names {
			g.drop(job, name)
		}
	}
}
