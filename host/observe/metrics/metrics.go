// Package metrics turns what a host reports into Prometheus metrics: its events, what
// its guests report, and its status, which is asked at every scrape.
package metrics

import (
	"cmp"
	"errors"
	"fmt"
	"runtime"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/engine"
	"github.com/wasmjob/wasmjob/host/event"
)

// The label is not "job": Prometheus puts its own of that name on everything
// that it scrapes.
const jobLabel = "job_name"

// Options say what to show.
type Options struct {
	// Version is the host's.
	Version string
	// Status is asked at every scrape.
	Status func() engine.Status
	// Jobs says which jobs have series of their own.
	Jobs Jobs
	// Labels are the labels of jobs that job_labels shows; without any the metric has no series.
	Labels JobLabels
	// GuestSeries bounds the series of what guests report, of all jobs together; 0 is
	// [DefaultGuestSeries]. A counter and a gauge are one, a histogram is 19.
	GuestSeries int
	// TraceID names the trace of the fire that an event is about, empty if it has none.
	// nil: there are no traces.
	TraceID func(event.Event) string
}

// Metrics turns events, guests' values and the host's status into Prometheus
// metrics, in a registry of its own. It is safe for concurrent use. Series of a
// job go away with the job.
type Metrics struct {
	registry *prometheus.Registry
	families []Family
	jobs     *shown
	guests   guestMetrics
	outside  outsideMetrics

	fires, attempts           *jobCounter // outcome
	fireSkips, itemSkips      *jobCounter // reason
	completions, repairs      *jobCounter
	records, batches          *jobCounter
	droppedLines              *jobCounter
	overQuota                 *jobCounter // ceiling
	lag, fireTime, itemTime   *durations
	elections, reshardings    *jobCounter
	sessions, refusals, loads prometheus.Counter
	registryBehind            prometheus.Gauge
	operations                *prometheus.CounterVec // kind
	signIns                   *prometheus.CounterVec // result
	expired                   *prometheus.CounterVec // what

	// mu is held while an event is taken: no series of a job may come back that has
	// just lost them.
	mu sync.Mutex
	// ofJobs are the counters of which each job has series.
	ofJobs *jobCounts
	// waiting are the items that have not begun, of each fire under way, by job.
	waiting map[string]map[fire]map[int]struct{}
	digests map[string]string // of jobs, to notice a new module
	behind  event.Behind
}

// fire identifies a fire of a job on this host.
type fire struct {
	instant int64
	trigger int64
	source  abi.Source
}

func fireOf(e event.Event) fire {
	return fire{e.Instant.UnixNano(), e.Trigger, e.Source}
}

// New makes the metrics of a host.
func New(o Options) *Metrics {
	m := &Metrics{
		registry: prometheus.NewRegistry(),
		jobs:     newShown(o.Jobs),
		ofJobs:   &jobCounts{jobs: make(map[string]*jobValues)},
		waiting:  make(map[string]map[fire]map[int]struct{}),
		digests:  make(map[string]string),
	}
	m.addOfJobs(o.TraceID)
	m.guests.init(m, cmp.Or(o.GuestSeries, DefaultGuestSeries))
	m.outside.init(m)
	m.registry.MustRegister(m.ofJobs)
	m.sessions = m.counter("sessions_lost_total", "Registry sessions that were lost.")
	m.registryBehind = m.gauge("registry_behind", "1 if this host has found, in the session that it has, that the registry had gone back or was copied.")
	m.refusals = m.counter("files_refused_total", "Files of the plugins directory that were refused.")
	m.loads = m.counter("jobs_changed_total", "Times a job's configuration or module changed.")
	m.expired = m.counters("waits_expired_total", "Waits on others that have reached their deadline, by what was waited for.", waits())
	for _, what := range event.Waits() {
		m.expired.WithLabelValues(string(what)) // 0, so that the first is an increase
	}
	m.operations = m.counters("registry_operations_total", "Requests to the registry, by kind.", Label{Name: "kind"})
	m.signIns = m.counters("sign_ins_total", "Attempts of browsers to sign in at this host, by what became of them: throttled are those that a limit refused without looking at them.", signIns())
	for _, result := range signIns().Values {
		m.signIns.WithLabelValues(result)
	}
	m.registry.MustRegister(
		newStatusCollector(m, o.Status, o.Labels),
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	const waiting = "Items of fires under way on this host that have not begun."
	m.registry.MustRegister(m.asked(Gauge, "items_waiting", waiting, m.queue))
	m.registry.MustRegister(m.info("build_info", "1, with the version as a label.",
		[]Label{{Name: "version"}, {Name: "goversion"}}, o.Version, runtime.Version()))
	if m.jobs.limit != AllJobs {
		m.appear(Other)
	}
	return m
}

// addOfJobs adds what is counted by job.
func (m *Metrics) addOfJobs(traceID func(event.Event) string) {
	m.fires = m.byJob("fires_total", "Fires that ended on this host, by outcome.", outcomes())
	m.fireSkips = m.byJob("fires_skipped_total", "Due instants at which this host began nothing, by reason.", causes())
	m.attempts = m.byJob("item_attempts_total", "Attempts of items that ended, by outcome.", outcomes())
	m.completions = m.byJob("items_completed_total", "Items whose completion took effect in the registry.")
	m.itemSkips = m.byJob("items_skipped_total", "Items that did not run for an instant, or whose run does not count, by reason.", causes())
	m.repairs = m.byJob("items_repaired_total", "Items whose record was ahead of all clocks, and that this host repaired.")
	m.batches = m.byJob("dataflow_batches_total", "Batches that DATAFLOW items processed.")
	m.records = m.byJob("dataflow_records_total", "Records that DATAFLOW items processed.")
	m.overQuota = m.byJob("over_quota_total", "Log lines and events of the history that were dropped, and offset commits that had to wait, because a job was beyond its quota, by ceiling.", quotas())
	m.droppedLines = m.byJob("log_lines_dropped_total", "Log lines of guests that were dropped because one invocation logged more than it may.")
	m.lag = newDurations(m, traceID, "fire_lag_seconds", "How much later than the scheduled instant the items of a fire were begun, also as a catch-up, after a misfire or by failover. Triggers do not count.")
	m.fireTime = newDurations(m, traceID, "fire_duration_seconds", "From the begin of a fire's items on this host to the end of the last.")
	m.itemTime = newDurations(m, traceID, "item_duration_seconds", "Duration of an attempt of an item.")
	m.elections = m.byJob("elections_won_total", "Leader elections of the job that this host won.")
	m.reshardings = m.byJob("reshardings_total", "Reshardings of the job that this host did as its leader.")
}

// info makes a metric that is 1, for its labels.
func (m *Metrics) info(name, help string, labels []Label, values ...string) prometheus.Collector {
	g := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: m.note(Gauge, name, help, labels), Help: help}, names(labels))
	g.WithLabelValues(values...).Set(1)
	return g
}

// CounterFunc adds a counter whose value is asked at every scrape. The name
// gets the prefix wasmjob_.
func (m *Metrics) CounterFunc(name, help string, value func() float64) error {
	return m.register(m.asked(Counter, name, help, value), name)
}

// CountersFunc adds a counter with a label whose values are all known, in the way of
// [Metrics.CounterFunc].
func (m *Metrics) CountersFunc(name, help string, label Label, value func(of string) float64) error {
	whole := m.note(Counter, name, help, []Label{label})
	var err error
	for _, of := range label.Values {
		o := prometheus.CounterOpts{Name: whole, Help: help, ConstLabels: prometheus.Labels{label.Name: of}}
		err = errors.Join(err, m.register(prometheus.NewCounterFunc(o, func() float64 { return value(of) }), name))
	}
	return err
}

// GaugeFunc adds a gauge in the way of [Metrics.CounterFunc].
func (m *Metrics) GaugeFunc(name, help string, value func() float64) error {
	return m.register(m.asked(Gauge, name, help, value), name)
}

// LastEnd adds how the process before this one ended, one of the reasons; see package
// deadman.
func (m *Metrics) LastEnd(reason string, reasons []string) error {
	const name = "last_end_info"
	return m.register(m.info(name, "1, with how the host before this one ended as a label.", []Label{{"reason", reasons}}, reason), name)
}

func (m *Metrics) register(c prometheus.Collector, name string) error {
	if err := m.registry.Register(c); err != nil {
		return fmt.Errorf("metric wasmjob_%s: %w", name, err)
	}
	return nil
}

// Operation counts requests to the registry, by kind.
func (m *Metrics) Operation(kind string, n int) { m.operations.WithLabelValues(kind).Add(float64(n)) }

// SignIn counts attempts to sign in, by result: ok, refused or throttled.
func (m *Metrics) SignIn(result string) { m.signIns.WithLabelValues(result).Inc() }
