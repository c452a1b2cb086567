package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/wasmjob/wasmjob/host/engine"
	"github.com/wasmjob/wasmjob/host/event"
)

// statusCollector reads the host's status at every scrape.
type statusCollector struct {
	status                                                    func() engine.Status
	shown                                                     *shown
	hostState, jobState, module, next, owned, running, queued *prometheus.Desc
	misfired, refused, instances, progress, expected          *prometheus.Desc
	waiting, failures, held, drift                            *prometheus.Desc
	inARow, lastOK, oldestRun, labels                         *prometheus.Desc
	backfillDone, backfillLeft                                *prometheus.Desc
	jobLabels                                                 JobLabels
}

func newStatusCollector(m *Metrics, status func() engine.Status, of JobLabels) *statusCollector {
	return &statusCollector{
		status:       status,
		shown:        m.jobs,
		jobLabels:    of,
		labels:       m.desc(Gauge, "job_labels", "1, with those labels of the job as labels that metricsLabels names, each with label_ before its name; empty for one that the job does not have.", append([]Label{jobName()}, of.labels()...)...),
		hostState:    m.desc(Gauge, "host_state", "1 for the state that the host is in.", Label{"state", texts(hostStates())}),
		jobState:     m.desc(Gauge, "job_state", "1 for the state that the job is in on this host; of other jobs, how many are in it.", jobName(), Label{"state", texts(jobStates())}),
		module:       m.desc(Gauge, "job_module_info", "1, with the digest of the job's module as a label.", jobName(), Label{Name: "digest"}),
		next:         m.desc(Gauge, "job_next_fire_timestamp_seconds", "The next scheduled instant; of other jobs, the first.", jobName()),
		owned:        m.desc(Gauge, "job_items", "Items that this host owns or runs.", jobName()),
		running:      m.desc(Gauge, "job_items_running", "Items that run on this host.", jobName()),
		queued:       m.desc(Gauge, "job_items_queued", "Items on this host that have begun and wait for a slot.", jobName()),
		misfired:     m.desc(Gauge, "job_items_misfired", "Items on this host that misfired: an instant came while they still ran, and they run once more afterwards.", jobName()),
		held:         m.desc(Gauge, "items_held", "Items that this host owns and that are held back: hosts in a row died in their runs.", jobName()),
		instances:    m.desc(Gauge, "job_instances", "Hosts of the job, this one included.", jobName()),
		progress:     m.desc(Gauge, "job_progress_done", "Sum of what the running items say they have done.", jobName()),
		expected:     m.desc(Gauge, "job_progress_expected", "Sum of what the running items say there is to do in all.", jobName()),
		refused:      m.desc(Gauge, "refused_files", "Files in the plugins directory that are refused now."),
		waiting:      m.desc(Gauge, "waiting_seconds", "How long the oldest wait of its kind lasts; absent where nothing is waited for.", jobName(), waits()),
		drift:        m.desc(Gauge, "clock_drift_seconds", "By how much this host's clock is ahead of the registry's, behind if it is negative; absent while that is not known."),
		inARow:       m.desc(Gauge, "job_failures_in_a_row", "How many runs in a row were not OK, of the item of this host for which that is most; on whatever hosts they were.", jobName()),
		lastOK:       m.desc(Gauge, "job_last_success_timestamp_seconds", "When the item of this host was OK last for which that is longest ago; absent while no item was.", jobName()),
		oldestRun:    m.desc(Gauge, "job_oldest_run_seconds", "How long the oldest run on this host lasts, from its newest attempt; absent while nothing runs.", jobName()),
		backfillDone: m.desc(Gauge, "job_backfill_instants_done", "Past instants of the job's backfill that were given out to run; only one host of the job has it, and only while a backfill goes on.", jobName()),
		backfillLeft: m.desc(Gauge, "job_backfill_instants_left", "Past instants of the job's backfill that are still to be given out; only one host of the job has it, and only while a backfill goes on.", jobName()),
		failures:     m.desc(Counter, "registry_failures_total", "Requests to the registry that failed or were refused, by reason.", failures()),
	}
}

// Describe implements [prometheus.Collector].
func (c *statusCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		c.hostState, c.jobState, c.module, c.next, c.owned, c.running, c.queued, c.misfired, c.instances, c.progress, c.expected, c.refused,
		c.waiting, c.failures, c.held, c.drift, c.inARow, c.lastOK, c.oldestRun, c.labels, c.backfillDone, c.backfillLeft,
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
	for _, state := range hostStates() {
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
	c.waits("", s.Waits, gauge)
	var rest []*engine.JobStatus
	for _, j := range s.Jobs {
		if !c.shown.has(j.Name) {
			rest = append(rest, j)
			continue
		}
		gauge(c.instances, float64(len(j.Instances)), j.Name)
		if j.Digest != "" {
			gauge(c.module, 1, j.Name, j.Digest)
		}
		if len(c.jobLabels) > 0 {
			gauge(c.labels, 1, append([]string{j.Name}, c.jobLabels.values(j.Labels)...)...)
		}
		c.jobs(j.Name, []*engine.JobStatus{j}, gauge)
	}
	if len(rest) > 0 {
		c.jobs(Other, rest, gauge)
	}
}

// show shows a value.
type show func(d *prometheus.Desc, v float64, labels ...string)

// jobs shows jobs under one name.
func (c *statusCollector) jobs(name string, jobs []*engine.JobStatus, gauge show) {
	var (
		next   time.Time
		states = make(map[engine.JobState]int)
		waits  []engine.WaitStatus
		all    counts
		// done and left are of backfills; filling is set if there is one.
		done, left int
		filling    bool
	)
	for _, j := range jobs {
		if b := j.Backfill; b != nil {
			filling, done, left = true, done+b.Done, left+b.Total-b.Done
		}
		states[j.State]++
		waits = append(waits, j.Waits...)
		if !j.Next.IsZero() && (next.IsZero() || j.Next.Before(next)) {
			next = j.Next
		}
		all.add(countsOf(j.Items))
	}
	for state, n := range states {
		gauge(c.jobState, float64(n), name, string(state))
	}
	c.waits(name, waits, gauge)
	if filling {
		gauge(c.backfillDone, float64(done), name)
		gauge(c.backfillLeft, float64(left), name)
	}
	if !next.IsZero() {
		gauge(c.next, float64(next.UnixMilli())/1000, name)
	}
	gauge(c.owned, all.owned, name)
	gauge(c.running, all.running, name)
	gauge(c.queued, all.queued, name)
	gauge(c.misfired, all.misfired, name)
	gauge(c.held, all.held, name)
	gauge(c.progress, all.done, name)
	gauge(c.expected, all.total, name)
	gauge(c.inARow, all.inARow, name)
	if !all.lastOK.IsZero() {
		gauge(c.lastOK, float64(all.lastOK.UnixMilli())/1000, name)
	}
	if !all.since.IsZero() {
		gauge(c.oldestRun, max(0, time.Since(all.since).Seconds()), name)
	}
}

// waits shows the oldest wait of each kind.
func (c *statusCollector) waits(name string, list []engine.WaitStatus, gauge show) {
	oldest := make(map[event.Wait]time.Time)
	for _, w := range list {
		if since, ok := oldest[w.What]; !ok || w.Since.Before(since) {
			oldest[w.What] = w.Since
		}
	}
	for what, since := range oldest {
		gauge(c.waiting, max(0, time.Since(since).Seconds()), name, string(what))
	}
}

// counts are what is known of items.
type counts struct {
	owned, running, queued, misfired, held, done, total, inARow float64
	lastOK, since                                               time.Time // the earliest
}

func (a *counts) add(b counts) {
	a.owned += b.owned
	a.running += b.running
	a.queued += b.queued
	a.misfired += b.misfired
	a.held += b.held
	a.done += b.done
	a.total += b.total
	a.inARow = max(a.inARow, b.inARow)
	a.lastOK, a.since = first(a.lastOK, b.lastOK), first(a.since, b.since)
}

// first is the earlier of two times; zero is none.
func first(a, b time.Time) time.Time {
	if a.IsZero() || (!b.IsZero() && b.Before(a)) {
		return b
	}
	return a
}

func countsOf(items []engine.ItemStatus) counts {
	c := counts{owned: float64(len(items))}
	for _, i := range items {
		if i.Misfired {
			c.misfired++
		}
		if !i.Held.IsZero() {
			c.held++
		}
		if i.Queued {
			c.queued++
		}
		if i.Running {
			c.running++
			c.done += float64(i.Done)
			c.total += float64(max(0, i.Total))
			c.since = first(c.since, i.Since)
		}
		c.inARow, c.lastOK = max(c.inARow, float64(i.Failures)), first(c.lastOK, i.LastOK)
	}
	return c
}
