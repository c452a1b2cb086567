package metrics

import (
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/config/ceiling"
	"github.com/wasmjob/wasmjob/host/engine"
	"github.com/wasmjob/wasmjob/host/event"
	"github.com/wasmjob/wasmjob/host/sandbox/capability"
)

// Family is a metric with all its series, as documented in docs/metrics.md.
type Family struct {
	Name, Help string
	Type       Type
	Labels     []Label
}

// Type is Prometheus' type of a metric.
type Type string

// The types.
const (
	Counter   Type = "counter"
	Gauge     Type = "gauge"
	Histogram Type = "histogram"
)

// Label is a label of a metric.
type Label struct {
	Name string
	// Values are all possible values; nil if they are not known beforehand.
	Values []string
}

// NewLabel is a label that may have these values.
func NewLabel[T ~string](name string, values []T) Label { return Label{name, texts(values)} }

// Unit is what the values count or measure, by the suffix of the name.
func (f Family) Unit() string {
	name := strings.TrimSuffix(f.Name, "_total")
	for _, unit := range []string{"seconds", "bytes"} {
		if strings.HasSuffix(name, "_"+unit) {
			return unit
		}
	}
	if strings.HasSuffix(name, "_info") {
		return "1"
	}
	return "number"
}

// Families returns all metrics that were added, by name, without those of Go and of the process, which client_golang has.
func (m *Metrics) Families() []Family {
	all := slices.Clone(m.families)
	slices.SortFunc(all, func(a, b Family) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// The labels. One of the same name has other values with another metric.
func jobName() Label  { return Label{Name: jobLabel} }
func outcomes() Label { return Label{"outcome", texts(abi.Outcomes())} }
func causes() Label   { return Label{"reason", texts(event.SkipCauses())} }
func waits() Label    { return Label{"what", texts(event.Waits())} }
func quotas() Label   { return Label{"ceiling", texts(ceiling.Quotas())} }
func refusals() Label { return Label{"reason", capability.Reasons()} }
func signIns() Label  { return Label{"result", []string{"ok", "refused", "throttled"}} }
func failures() Label {
	return Label{"reason", []string{"timeout", "unknown", "suspect", "unavailable", "too_large", "other"}}
}

// hostStates and jobStates are all of them.
func hostStates() []engine.HostState {
	return []engine.HostState{engine.HostStarting, engine.HostLive, engine.HostSuspect, engine.HostDraining, engine.HostStopped}
}

func jobStates() []engine.JobState {
	return []engine.JobState{engine.JobNoSession, engine.JobJoining, engine.JobReady, engine.JobRunning, engine.JobQueued, engine.JobDisabled, engine.JobSharding,
		engine.JobDraining, engine.JobStopped, engine.JobRemoved, engine.JobError}
}

func texts[T ~string](all []T) []string {
	var list []string
	for _, v := range all {
		list = append(list, string(v))
	}
	return list
}

// names are those of labels.
func names(labels []Label) []string {
	var list []string
	for _, l := range labels {
		list = append(list, l.Name)
	}
	return list
}

// note records a metric, and returns its full name.
func (m *Metrics) note(typ Type, name, help string, labels []Label) string {
	name = "wasmjob_" + name
	m.families = append(m.families, Family{name, help, typ, labels})
	return name
}

// gauge adds a gauge.
func (m *Metrics) gauge(name, help string) prometheus.Gauge {
	g := prometheus.NewGauge(prometheus.GaugeOpts{Name: m.note(Gauge, name, help, nil), Help: help})
	m.registry.MustRegister(g)
	return g
}

// counters adds a counter with labels.
func (m *Metrics) counters(name, help string, labels ...Label) *prometheus.CounterVec {
	name = m.note(Counter, name, help, labels)
	v := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, names(labels))
	m.registry.MustRegister(unlocked{v})
	return v
}

// asked adds a metric without labels whose value is requested at every scrape.
func (m *Metrics) asked(typ Type, name, help string, value func() float64) prometheus.Collector {
	c := asked{desc: m.desc(typ, name, help), value: value, typ: prometheus.GaugeValue}
	if typ == Counter {
		c.typ = prometheus.CounterValue
	}
	return c
}

// asked is a metric whose value is requested when it is collected. Those of client_golang (GaugeFunc) request it later,
// when all metrics are assembled and the collectors of others hold locks: if the value waits for a goroutine that waits
// for such a lock, as the event of a new or removed job does, the scrape and the host deadlock.
// of a job that comes or goes does, the scrape and the host stand still for ever.
type asked struct {
	desc  *prometheus.Desc
	typ   prometheus.ValueType
	value func() float64
}

// Describe implements [prometheus.Collector].
func (a asked) Describe(ch chan<- *prometheus.Desc) { ch <- a.desc }

// Collect implements [prometheus.Collector].
func (a asked) Collect(ch chan<- prometheus.Metric) {
	ch <- prometheus.MustNewConstMetric(a.desc, a.typ, a.value())
}

// counter adds one without labels.
func (m *Metrics) counter(name, help string) prometheus.Counter {
	return m.counters(name, help).WithLabelValues()
}

// desc describes what a collector shows.
func (m *Metrics) desc(typ Type, name, help string, labels ...Label) *prometheus.Desc {
	name = m.note(typ, name, help, labels)
	return prometheus.NewDesc(name, help, names(labels), nil)
}
