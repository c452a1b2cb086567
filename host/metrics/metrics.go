// Package metrics turns what a host reports into Prometheus metrics: its events, what
// its guests report, and its status, which is asked at every scrape.
package metrics

import (
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.uber.org/zap"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host"
	"github.com/wasmjob/wasmjob/host/ceiling"
	"github.com/wasmjob/wasmjob/host/event"
)

// The label is not "job": Prometheus puts its own of that name on everything
// that it scrapes.
const jobLabel = "job_name"

// Metrics turns events, guests' values and the host's status into Prometheus
// metrics, in a registry of its own. It is safe for concurrent use. Series of a
// job go away with the job.
type Metrics struct {
	registry *prometheus.Registry
	guests   guestMetrics
	outside  outsideMetrics

	fires, attempts           *prometheus.CounterVec // job, outcome
	fireSkips, itemSkips      *prometheus.CounterVec // job, reason
	completions, repairs      *prometheus.CounterVec // job
	records, batches          *prometheus.CounterVec // job
	droppedLines              *prometheus.CounterVec // job
	overQuota                 *prometheus.CounterVec // job, ceiling
	lag, fireTime, itemTime   *prometheus.HistogramVec
	elections, reshardings    *prometheus.CounterVec
	sessions, refusals, loads prometheus.Counter
	operations                *prometheus.CounterVec // kind
	expired                   *prometheus.CounterVec // what

	mu sync.Mutex
	// waiting counts the items of each fire under way that have not begun.
	waiting map[fire]int
	digests map[string]string // of jobs, to notice a new module
}

// fire identifies a fire of a job on this host.
type fire struct {
	job     string
	instant int64
	trigger int64
	source  abi.Source
}

func fireOf(e event.Event) fire {
	return fire{e.Job, e.Instant.UnixNano(), e.Trigger, e.Source}
}

// New makes the metrics of a host of this version. Status is asked at
// every scrape.
func New(version string, status func() host.Status) *Metrics {
	m := &Metrics{
		registry: prometheus.NewRegistry(),
		waiting:  make(map[fire]int),
		digests:  make(map[string]string),
	}
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		v := prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "wasmjob", Name: name, Help: help}, labels)
		m.registry.MustRegister(v)
		return v
	}
	plain := func(name, help string) prometheus.Counter {
		return counter(name, help).WithLabelValues()
	}
	// 1 ms to 17 min.
	histogram := func(name, help string) *prometheus.HistogramVec {
		v := prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: "wasmjob", Name: name, Help: help, Buckets: prometheus.ExponentialBuckets(0.001, 4, 11),
		}, []string{jobLabel})
		m.registry.MustRegister(v)
		return v
	}
	m.fires = counter("fires_total", "Fires that ended on this host, by outcome.", jobLabel, "outcome")
	m.fireSkips = counter("fires_skipped_total", "Due instants at which this host began nothing, by reason.", jobLabel, "reason")
	m.attempts = counter("item_attempts_total", "Attempts of items that ended, by outcome.", jobLabel, "outcome")
	m.completions = counter("items_completed_total", "Items whose completion took effect in the registry.", jobLabel)
	m.itemSkips = counter("items_skipped_total", "Items that did not run for an instant, or whose run does not count, by reason.", jobLabel, "reason")
	m.repairs = counter("items_repaired_total", "Items whose record was ahead of all clocks, and that this host repaired.", jobLabel)
	m.batches = counter("dataflow_batches_total", "Batches that DATAFLOW items processed.", jobLabel)
	m.records = counter("dataflow_records_total", "Records that DATAFLOW items processed.", jobLabel)
	m.overQuota = counter("over_quota_total", "Log lines and events of the history that were dropped, and offset commits that had to wait, because a job was beyond its quota, by ceiling.", jobLabel, "ceiling")
	m.droppedLines = counter("log_lines_dropped_total", "Log lines of guests that were dropped because one invocation logged more than it may.", jobLabel)
	m.lag = histogram("fire_lag_seconds", "How much later than the scheduled instant the items of a fire were begun.")
	m.fireTime = histogram("fire_duration_seconds", "From the begin of a fire's items on this host to the end of the last.")
	m.itemTime = histogram("item_duration_seconds", "Duration of an attempt of an item.")
	m.elections = counter("elections_won_total", "Leader elections of the job that this host won.", jobLabel)
	m.reshardings = counter("reshardings_total", "Reshardings of the job that this host did as its leader.", jobLabel)
	m.sessions = plain("sessions_lost_total", "Registry sessions that were lost.")
	m.refusals = plain("files_refused_total", "Files of the plugins directory that were refused.")
	m.loads = plain("jobs_changed_total", "Times a job's configuration or module changed.")
	m.expired = counter("waits_expired_total", "Waits on others that have reached their deadline, by what was waited for.", "what")
	for _, what := range event.Waits() {
		m.expired.WithLabelValues(string(what)) // 0, so that the first is an increase
	}
	m.operations = counter("registry_operations_total", "Requests to the registry, by kind.", "kind")
	m.guests.init(m.registry)
	m.outside = newOutsideMetrics(counter)

	build := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Namespace: "wasmjob", Name: "build_info", Help: "1, with the version as a label.",
	}, []string{"version", "goversion"})
	build.WithLabelValues(version, runtime.Version()).Set(1)
	m.registry.MustRegister(
		build,
		newStatusCollector(status),
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Namespace: "wasmjob", Name: "items_waiting", Help: "Items of fires under way on this host that have not begun.",
		}, m.queue),
	)
	return m
}

// CounterFunc adds a counter whose value is asked at every scrape. The name
// gets the prefix wasmjob_.
func (m *Metrics) CounterFunc(name, help string, value func() float64) error {
	err := m.registry.Register(prometheus.NewCounterFunc(prometheus.CounterOpts{Namespace: "wasmjob", Name: name, Help: help}, value))
	if err != nil {
		return fmt.Errorf("metric wasmjob_%s: %w", name, err)
	}
	return nil
}

// GaugeFunc adds a gauge in the way of [Metrics.CounterFunc].
func (m *Metrics) GaugeFunc(name, help string, value func() float64) error {
	err := m.registry.Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Namespace: "wasmjob", Name: name, Help: help}, value))
	if err != nil {
		return fmt.Errorf("metric wasmjob_%s: %w", name, err)
	}
	return nil
}

// LastEnd adds how the process before this one ended; see package deadman.
func (m *Metrics) LastEnd(reason string) error {
	g := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Namespace: "wasmjob", Name: "last_end_info", Help: "1, with how the host before this one ended as a label.",
	}, []string{"reason"})
	g.WithLabelValues(reason).Set(1)
	if err := m.registry.Register(g); err != nil {
		return fmt.Errorf("metric wasmjob_last_end_info: %w", err)
	}
	return nil
}

// Operation counts requests to the registry, by kind.
func (m *Metrics) Operation(kind string, n int) { m.operations.WithLabelValues(kind).Add(float64(n)) }

// Session is what is known of the registry's session.
type Session struct {
	Connected bool   // to a server
	Trust     string // live, suspect, yield or lost
	// Answered is when the question was sent that was answered last; zero if none was.
	Answered time.Time
	// Reconnects counts the connections besides the first.
	Reconnects int64
}

// Sessions adds what is known of the registry's session. It is asked at every
// scrape, and nil while there is none.
func (m *Metrics) Sessions(session func() *Session) error {
	if err := m.registry.Register(sessionCollector{session}); err != nil {
		return fmt.Errorf("metrics of the registry's session: %w", err)
	}
	return nil
}

// sessionCollector shows a session.
type sessionCollector struct{ session func() *Session }

// descriptions are the metrics of a session.
func (sessionCollector) descriptions() (connected, trust, age, reconnects *prometheus.Desc) {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("wasmjob_registry_"+name, help, labels, nil)
	}
	return desc("connected", "1 while the host is connected to a server of the registry."),
		desc("session_trust", "1 for how far the session is trusted: live, suspect, yield, lost or none.", "trust"),
		desc("session_answer_age_seconds", "Time since the question was sent that the registry answered last."),
		desc("reconnects", "Connections that the present session has had besides the first.")
}

// Describe implements [prometheus.Collector].
func (c sessionCollector) Describe(ch chan<- *prometheus.Desc) {
	connected, trust, age, reconnects := c.descriptions()
	for _, d := range []*prometheus.Desc{connected, trust, age, reconnects} {
		ch <- d
	}
}

// Collect implements [prometheus.Collector].
func (c sessionCollector) Collect(ch chan<- prometheus.Metric) {
	connected, trust, age, reconnects := c.descriptions()
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	s := c.session()
	level, up := "none", 0.0
	if s != nil {
		level = s.Trust
		if s.Connected {
			up = 1
		}
		if !s.Answered.IsZero() {
			gauge(age, time.Since(s.Answered).Seconds())
		}
		gauge(reconnects, float64(s.Reconnects))
	}
	gauge(connected, up)
	for _, l := range []string{"none", "live", "suspect", "yield", "lost"} {
		v := 0.0
		if l == level {
			v = 1
		}
		gauge(trust, v, l)
	}
}

// scrapeLog takes the errors of scrapes.
type scrapeLog struct{ *zap.Logger }

// Println implements [promhttp.Logger].
func (l scrapeLog) Println(v ...any) { l.Warn("scrape: " + strings.TrimSpace(fmt.Sprintln(v...))) }

// Handler answers scrapes. Errors of a scrape go to the logger.
func (m *Metrics) Handler(log *zap.Logger) http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{
		ErrorLog:            scrapeLog{log},
		MaxRequestsInFlight: 4,
		Timeout:             20 * time.Second,
	})
}

// Observe takes an event of the host. It does not block.
func (m *Metrics) Observe(e event.Event) {
	if e.Wait != "" {
		m.expired.WithLabelValues(string(e.Wait)).Inc()
	}
	switch e.Kind {
	case event.FireStarted, event.FireEnded, event.ItemStarted, event.Session:
		m.observeQueue(e)
	}
	switch e.Kind {
	case event.FireStarted:
		m.lag.WithLabelValues(e.Job).Observe(e.Lag.Seconds())
	case event.FireEnded:
		m.fires.WithLabelValues(e.Job, string(e.Outcome)).Inc()
		m.fireTime.WithLabelValues(e.Job).Observe(e.Duration.Seconds())
	case event.FireSkipped:
		m.fireSkips.WithLabelValues(e.Job, string(e.Cause)).Inc()
	case event.ItemEnded:
		m.observeAttempt(e)
	case event.Listener:
		m.outside.observe(e.Job, e.Outside)
		m.droppedLines.WithLabelValues(e.Job).Add(float64(e.DroppedLines))
	case event.ItemCompleted:
		m.completions.WithLabelValues(e.Job).Inc()
	case event.ItemSkipped, event.ItemHeld:
		m.itemSkips.WithLabelValues(e.Job, string(e.Cause)).Inc()
	case event.ItemRepaired:
		m.repairs.WithLabelValues(e.Job).Inc()
	case event.OverQuota:
		m.overQuota.WithLabelValues(e.Job, string(e.Ceiling)).Add(float64(e.Count))
	default:
		m.observeJob(e)
	}
}

// observeJob takes what happens to a job as a whole, to a file or to the session.
func (m *Metrics) observeJob(e event.Event) {
	switch e.Kind {
	case event.Elected:
		m.elections.WithLabelValues(e.Job).Inc()
	case event.Sharded:
		m.reshardings.WithLabelValues(e.Job).Inc()
	case event.Refused:
		m.refusals.Inc()
	case event.JobAdded:
		m.appear(e.Job)
		m.newModule(e)
	case event.JobChanged:
		m.appear(e.Job)
		m.loads.Inc()
		m.newModule(e)
	case event.JobRemoved:
		m.forget(e.Job)
	case event.Session:
		if e.Reason == "lost" {
			m.sessions.Inc()
		}
	}
}

// observeAttempt takes the end of an attempt of an item.
func (m *Metrics) observeAttempt(e event.Event) {
	m.outside.observe(e.Job, e.Outside)
	m.attempts.WithLabelValues(e.Job, string(e.Outcome)).Inc()
	m.itemTime.WithLabelValues(e.Job).Observe(e.Duration.Seconds())
	if e.Batches > 0 {
		m.batches.WithLabelValues(e.Job).Add(float64(e.Batches))
	}
	if e.Records > 0 {
		m.records.WithLabelValues(e.Job).Add(float64(e.Records))
	}
	m.droppedLines.WithLabelValues(e.Job).Add(float64(e.DroppedLines))
}

// observeQueue counts the items of each fire that have not begun.
func (m *Metrics) observeQueue(e event.Event) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f := fireOf(e)
	switch e.Kind {
	case event.FireStarted:
		m.waiting[f] += len(e.Items)
	case event.FireEnded:
		delete(m.waiting, f)
	case event.ItemStarted:
		if e.Attempt <= 1 && m.waiting[f] > 0 {
			m.waiting[f]--
		}
	case event.Session:
		if e.Reason == "lost" {
			clear(m.waiting)
		}
	}
}

// newModule drops the guest's metrics of a module that was replaced: the new one has
// names of its own.
func (m *Metrics) newModule(e event.Event) {
	m.mu.Lock()
	was := m.digests[e.Job]
	if e.Digest != "" {
		m.digests[e.Job] = e.Digest
	}
	m.mu.Unlock()
	if was != "" && e.Digest != "" && was != e.Digest {
		m.guests.forget(e.Job)
	}
}

// Guest takes a value that a guest reported. See [abi.MaxMetricNames].
func (m *Metrics) Guest(g event.GuestMetric) abi.Code { return m.guests.add(g) }

// queue is the number of items that wait for a worker.
func (m *Metrics) queue() float64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := 0
	for _, w := range m.waiting {
		n += w
	}
	return float64(n)
}

// appear makes all series of a job, with 0 where they are new: of a series that
// begins with 1 Prometheus sees no increase, and the first failure would be none.
func (m *Metrics) appear(job string) {
	for _, outcome := range abi.Outcomes() {
		m.fires.WithLabelValues(job, string(outcome))
		m.attempts.WithLabelValues(job, string(outcome))
	}
	for _, cause := range event.SkipCauses() {
		m.fireSkips.WithLabelValues(job, string(cause))
		m.itemSkips.WithLabelValues(job, string(cause))
	}
	for _, quota := range ceiling.Quotas() {
		m.overQuota.WithLabelValues(job, string(quota))
	}
	m.outside.appear(job)
	for _, v := range []*prometheus.CounterVec{m.completions, m.repairs, m.records, m.batches, m.droppedLines, m.elections, m.reshardings} {
		v.WithLabelValues(job)
	}
	for _, v := range []*prometheus.HistogramVec{m.lag, m.fireTime, m.itemTime} {
		v.WithLabelValues(job)
	}
}

func (m *Metrics) forget(job string) {
	m.mu.Lock()
	delete(m.digests, job)
	for f := range m.waiting {
		if f.job == job {
			delete(m.waiting, f)
		}
	}
	m.mu.Unlock()
	label := prometheus.Labels{jobLabel: job}
	for _, v := range []*prometheus.CounterVec{
		m.fires, m.attempts, m.fireSkips, m.itemSkips, m.completions, m.repairs, m.records, m.batches, m.droppedLines, m.elections, m.reshardings, m.overQuota,
	} {
		v.DeletePartialMatch(label)
	}
	for _, v := range []*prometheus.HistogramVec{m.lag, m.fireTime, m.itemTime} {
		v.DeletePartialMatch(label)
	}
	m.outside.forget(label)
	m.guests.forget(job)
}

// guestMetrics are what guests report: one family per kind, with the name as a
// label, so that no name can clash with the host's or with another job's of
// another kind. Items have no label, since a job may have very many: of a
// gauge the last value counts, whichever item set it.
type guestMetrics struct {
	counters   *prometheus.CounterVec
	gauges     *prometheus.GaugeVec
	histograms *prometheus.HistogramVec

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

func (g *guestMetrics) init(r *prometheus.Registry) {
	labels := []string{jobLabel, "name"}
	opts := func(name, help string) prometheus.Opts {
		return prometheus.Opts{Namespace: "wasmjob", Subsystem: "guest", Name: name, Help: help}
	}
	g.counters = prometheus.NewCounterVec(prometheus.CounterOpts(opts("counter_total", "Counters that guests report.")), labels)
	g.gauges = prometheus.NewGaugeVec(prometheus.GaugeOpts(opts("gauge", "Gauges that guests report; the last value of any item.")), labels)
	g.histograms = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Namespace: "wasmjob", Subsystem: "guest", Name: "histogram", Help: "Histograms that guests report.",
		Buckets: prometheus.ExponentialBuckets(1, 4, 16), // the unit is the guest's: 1 to 10^9
	}, labels)
	r.MustRegister(g.counters, g.gauges, g.histograms)
	g.jobs = make(map[string]map[string]guestSeries)
}

func (g *guestMetrics) add(v event.GuestMetric) abi.Code {
	s, code := g.series(v)
	if code != abi.OK {
		return code
	}
	switch {
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

func (g *guestMetrics) forget(job string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.jobs, job)
	label := prometheus.Labels{jobLabel: job}
	g.counters.DeletePartialMatch(label)
	g.gauges.DeletePartialMatch(label)
	g.histograms.DeletePartialMatch(label)
}

// statusCollector reads the host's status at every scrape.
type statusCollector struct {
	status                                            func() host.Status
	hostState, jobState, module, next, owned, running *prometheus.Desc
	misfired, refused, instances, progress, expected  *prometheus.Desc
	waiting, failures, held, drift                    *prometheus.Desc
}

func newStatusCollector(status func() host.Status) *statusCollector {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("wasmjob_"+name, help, labels, nil)
	}
	return &statusCollector{
		status:    status,
		hostState: desc("host_state", "1 for the state that the host is in.", "state"),
		jobState:  desc("job_state", "1 for the state that the job is in on this host.", jobLabel, "state"),
		module:    desc("job_module_info", "1, with the digest of the job's module as a label.", jobLabel, "digest"),
		next:      desc("job_next_fire_timestamp_seconds", "The next scheduled instant.", jobLabel),
		owned:     desc("job_items", "Items that this host owns or runs.", jobLabel),
		running:   desc("job_items_running", "Items that run on this host.", jobLabel),
		misfired:  desc("job_items_misfired", "Items on this host that misfired: an instant came while they still ran, and they run once more afterwards.", jobLabel),
		held:      desc("items_held", "Items that this host owns and that are held back: hosts in a row died in their runs.", jobLabel),
		instances: desc("job_instances", "Hosts of the job, this one included.", jobLabel),
		progress:  desc("job_progress_done", "Sum of what the running items say they have done.", jobLabel),
		expected:  desc("job_progress_expected", "Sum of what the running items say there is to do in all.", jobLabel),
		refused:   desc("refused_files", "Files in the plugins directory that are refused now."),
		waiting:   desc("waiting_seconds", "How long the oldest wait of its kind lasts; absent where nothing is waited for.", jobLabel, "what"),
		drift:     desc("clock_drift_seconds", "By how much this host's clock is ahead of the registry's, behind if it is negative; absent while that is not known."),
		failures:  desc("registry_failures_total", "Requests to the registry that failed or were refused, by reason.", "reason"),
	}
}

// Describe implements [prometheus.Collector].
func (c *statusCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		c.hostState, c.jobState, c.module, c.next, c.owned, c.running, c.misfired, c.instances, c.progress, c.expected, c.refused,
		c.waiting, c.failures, c.held, c.drift,
	} {
		ch <- d
	}
}

// Collect implements [prometheus.Collector].
func (c *statusCollector) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	s := c.status()
	for _, state := range []host.HostState{host.HostStarting, host.HostLive, host.HostSuspect, host.HostDraining, host.HostStopped} {
		v := 0.0
		if s.State == state {
			v = 1
		}
		gauge(c.hostState, v, string(state))
	}
	gauge(c.refused, float64(len(s.Refused)))
	if s.Clock != nil {
		gauge(c.drift, s.Clock.Drift.Seconds())
	}
	for reason, n := range s.RegistryFailures {
		ch <- prometheus.MustNewConstMetric(c.failures, prometheus.CounterValue, float64(n), reason)
	}
	waiting := func(job string, list []host.WaitStatus) {
		for _, w := range list {
			gauge(c.waiting, max(0, time.Since(w.Since).Seconds()), job, string(w.What))
		}
	}
	waiting("", s.Waits)
	for _, j := range s.Jobs {
		gauge(c.jobState, 1, j.Name, string(j.State))
		waiting(j.Name, j.Waits)
		if j.Digest != "" {
			gauge(c.module, 1, j.Name, j.Digest)
		}
		if !j.Next.IsZero() {
			gauge(c.next, float64(j.Next.UnixMilli())/1000, j.Name)
		}
		var running, misfired, held, done, total float64
		for _, i := range j.Items {
			if i.Misfired {
				misfired++
			}
			if !i.Held.IsZero() {
				held++
			}
			if i.Running {
				running++
				done += float64(i.Done)
				total += float64(max(0, i.Total))
			}
		}
		gauge(c.owned, float64(len(j.Items)), j.Name)
		gauge(c.running, running, j.Name)
		gauge(c.misfired, misfired, j.Name)
		gauge(c.held, held, j.Name)
		gauge(c.instances, float64(len(j.Instances)), j.Name)
		gauge(c.progress, done, j.Name)
		gauge(c.expected, total, j.Name)
	}
}
