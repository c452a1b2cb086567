package metrics

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/event"
)

// guestMetrics are what guests report: one family per kind, with the name as a
// label, so that no name can clash with the host's or with another job's of
// another kind. Items have no label, since a job may have very many: of a
// gauge the last value counts, whichever item set it.
type guestMetrics struct {
	counters   *prometheus.CounterVec
	gauges     *prometheus.GaugeVec
	histograms *prometheus.HistogramVec
	shown      *shown

	mu   sync.RWMutex
	jobs map[string]map[string]guestSeries // by name
}

// guestSeries is one of the three, by kind.
type guestSeries struct {
	kind      int
	counter   prometheus.Counter
	gauge     prometheus.Gauge
	histogram prometheus.Observer
}

func (g *guestMetrics) init(m *Metrics) {
	g.shown = m.jobs
	g.jobs = make(map[string]map[string]guestSeries)
	labels := []Label{jobName(), {Name: "name"}}
	g.counters = m.counters("guest_counts_total", "Counters that guests report.", labels...)
	const gauges, histograms = "Gauges that guests report; the last value of any item.", "Histograms that guests report."
	g.gauges = prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: m.note(Gauge, "guest_values", gauges, labels), Help: gauges}, names(labels))
	g.histograms = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: m.note(Histogram, "guest_observations", histograms, labels), Help: histograms,
		Buckets: prometheus.ExponentialBuckets(1, 4, 16), // the unit is the guest's: 1 to 10^9
	}, names(labels))
	m.registry.MustRegister(g.gauges, g.histograms)
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

func (g *guestMetrics) series(v event.GuestMetric) (guestSeries, abi.Code) {
	g.mu.RLock()
	s, ok := g.jobs[v.Job][v.Name]
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
	names := g.jobs[v.Job]
	if s, ok := names[v.Name]; ok {
		return s, abi.OK
	}
	if len(names) >= abi.MaxMetricNames {
		return s, abi.ErrQuota
	}
	s.kind = v.Kind
	switch v.Kind {
	case abi.MetricCounter:
		s.counter = g.counters.WithLabelValues(v.Job, v.Name)
	case abi.MetricGauge:
		s.gauge = g.gauges.WithLabelValues(v.Job, v.Name)
	case abi.MetricHistogram:
		s.histogram = g.histograms.WithLabelValues(v.Job, v.Name)
	}
	if names == nil {
		names = make(map[string]guestSeries)
		g.jobs[v.Job] = names
	}
	names[v.Name] = s
	return s, abi.OK
}

// forget drops the series of a job.
func (g *guestMetrics) forget(job string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for name, s := range g.jobs[job] {
		switch s.kind {
		case abi.MetricCounter:
			g.counters.DeleteLabelValues(job, name)
		case abi.MetricGauge:
			g.gauges.DeleteLabelValues(job, name)
		case abi.MetricHistogram:
			g.histograms.DeleteLabelValues(job, name)
		}
	}
	delete(g.jobs, job)
}
