package metrics

import (
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/event"
)

// Observe takes an event of the host. It does not block.
func (m *Metrics) Observe(e event.Event) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.look(e.Time)
	if e.Wait != "" {
		m.expired.WithLabelValues(string(e.Wait)).Inc()
	}
	switch e.Kind {
	case event.Refused, event.JobAdded, event.JobChanged, event.JobRemoved, event.Session, event.RegistryBehind:
		m.observeJob(e)
	default:
		if !m.jobs.gone(e.Job) {
			m.observeWork(e, m.jobs.label(e.Job))
		}
	}
}

// observeWork takes what a job does; job is what job_name says of it.
func (m *Metrics) observeWork(e event.Event, job string) {
	switch e.Kind {
	case event.FireStarted:
		m.observeQueue(e)
		if e.Trigger == 0 {
			m.lag.observe(job, e, e.Lag)
		}
	case event.FireEnded:
		m.observeQueue(e)
		m.fires.inc(job, string(e.Outcome))
		m.fireTime.observe(job, e, e.Duration)
	case event.FireSkipped:
		m.fireSkips.inc(job, string(e.Cause))
	case event.ItemStarted:
		m.observeQueue(e)
	case event.ItemEnded:
		m.observeAttempt(e)
	case event.Listener:
		m.outside.observe(job, e.Outside)
		m.droppedLines.add(float64(e.DroppedLines), job)
	case event.ItemCompleted:
		m.completions.inc(job)
	case event.ItemSkipped, event.ItemHeld:
		m.itemSkips.inc(job, string(e.Cause))
	case event.ItemRepaired:
		m.repairs.inc(job)
	case event.OverQuota:
		m.overQuota.add(float64(e.Count), job, string(e.Ceiling))
	case event.Elected:
		m.elections.inc(job)
	case event.Sharded:
		m.reshardings.inc(job)
	}
}

// look sees, from time to time, which jobs have series of their own.
func (m *Metrics) look(now time.Time) {
	come, gone := m.jobs.look(now)
	for _, job := range gone {
		m.drop(job)
	}
	for _, job := range come {
		m.appear(job)
	}
}

// observeJob takes what happens to a job as a whole, to a file or to the session.
func (m *Metrics) observeJob(e event.Event) {
	if behind, changed := m.behind.See(e); changed {
		m.registryBehind.Set(map[bool]float64{true: 1}[behind])
	}
	switch e.Kind {
	case event.Refused:
		m.refusals.Inc()
	case event.JobAdded:
		m.known(e)
	case event.JobChanged:
		m.known(e)
		m.loads.Inc()
	case event.JobRemoved:
		m.forget(e.Job)
	case event.Session:
		if e.Reason == event.SessionLost {
			m.sessions.Inc()
			clear(m.waiting)
		}
	}
}

// known takes a job that the host has, and its module.
func (m *Metrics) known(e event.Event) {
	m.jobs.add(e.Job)
	m.appear(m.jobs.label(e.Job))
	was := m.digests[e.Job]
	if e.Digest != "" {
		m.digests[e.Job] = e.Digest
	}
	if was != "" && e.Digest != "" && was != e.Digest {
		m.guests.forget(e.Job) // the new one has names of its own
	}
}

// observeAttempt takes the end of an attempt of an item.
func (m *Metrics) observeAttempt(e event.Event) {
	m.jobs.ran(e.Job)
	job := m.jobs.label(e.Job)
	m.outside.observe(job, e.Outside)
	m.attempts.inc(job, string(e.Outcome))
	m.itemTime.observe(job, e, e.Duration)
	if e.Batches > 0 {
		m.batches.add(float64(e.Batches), job)
	}
	if e.Records > 0 {
		m.records.add(float64(e.Records), job)
	}
	m.droppedLines.add(float64(e.DroppedLines), job)
}

// observeQueue notes which items of each fire have not begun. An item may begin its first
// attempt twice, if its worker process has ended under it.
func (m *Metrics) observeQueue(e event.Event) {
	f := fireOf(e)
	fires := m.waiting[e.Job]
	switch e.Kind {
	case event.FireStarted:
		if fires == nil {
			fires = make(map[fire]map[int]struct{})
			m.waiting[e.Job] = fires
		}
		if fires[f] == nil {
			fires[f] = make(map[int]struct{}, len(e.Items))
		}
		for _, n := range e.Items {
			fires[f][n] = struct{}{}
		}
	case event.FireEnded:
		delete(fires, f)
		if len(fires) == 0 {
			delete(m.waiting, e.Job)
		}
	case event.ItemStarted:
		if e.Item != nil {
			delete(fires[f], *e.Item)
		}
	}
}

// Guest takes a value that a guest reported. See [abi.MaxMetricNames]. Values of jobs
// without series of their own are taken and dropped: whether they add up is unknown.
func (m *Metrics) Guest(g event.GuestMetric) abi.Code { return m.guests.add(g) }

// queue is the number of items that wait for a worker.
func (m *Metrics) queue() float64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := 0
	for _, fires := range m.waiting {
		for _, items := range fires {
			n += len(items)
		}
	}
	return float64(n)
}

// appear makes all series of a job, with 0 where they are new: of a series that
// begins with 1 Prometheus sees no increase, and the first failure would be none.
func (m *Metrics) appear(job string) {
	for _, c := range []*jobCounter{m.fires, m.attempts, m.fireSkips, m.itemSkips, m.overQuota, m.completions, m.repairs, m.records, m.batches, m.droppedLines, m.elections, m.reshardings} {
		c.appear(job)
	}
	m.outside.appear(job)
	for _, d := range []*durations{m.lag, m.fireTime, m.itemTime} {
		d.vec.WithLabelValues(job)
	}
}

// forget drops a job that the host does not have any more.
func (m *Metrics) forget(job string) {
	delete(m.digests, job)
	delete(m.waiting, job)
	if m.jobs.has(job) {
		m.drop(job)
	}
	m.jobs.remove(job)
}

// drop drops the series of a job, without a search for them: it would visit those of all other jobs, and many jobs may
// leave at once.
func (m *Metrics) drop(job string) {
	m.ofJobs.drop(job)
	for _, d := range []*durations{m.lag, m.fireTime, m.itemTime} {
		d.drop(job)
	}
	m.guests.forget(job)
}
