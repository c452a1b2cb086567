package metrics

import (
	"slices"
	"time"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/wasmjob/wasmjob/coordination/tree"
	"github.com/wasmjob/wasmjob/host/event"
)

// The precision of native histograms: each bucket is 10 % wider than the previous one. A histogram with more than
// maxBuckets is reset, or made coarser if it was reset within the last hour.
const (
	bucketFactor = 1.1
	maxBuckets   = 160
	resetEvery   = time.Hour
)

// exemplarEvery is how often a bucket gets an exemplar. Scrapes are not more frequent, and an exemplar costs as much as
// all other handling of an event.
const exemplarEvery = time.Second

// durations are histograms of durations, one per job, with runs as exemplars. Only one goroutine at a time may use them.
type durations struct {
	vec     *prometheus.HistogramVec
	buckets []float64
	traceID func(event.Event) string // nil: there are no traces
	// named is when a bucket last got an exemplar.
	named map[bucket]time.Time
}

// bucket is a classic bucket of a job.
type bucket struct {
	job    string
	number int
}

// newDurations adds histograms from 1 ms to 17 min. Scrapers that use protobuf also get them as native histograms.
func newDurations(m *Metrics, traceID func(event.Event) string, name, help string) *durations {
	labels := []Label{jobName()}
	d := &durations{buckets: prometheus.ExponentialBuckets(0.001, 4, 11), traceID: traceID, named: make(map[bucket]time.Time)}
	d.vec = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: m.note(Histogram, name, help, labels), Help: help, Buckets: d.buckets,
		NativeHistogramBucketFactor: bucketFactor, NativeHistogramMaxBucketNumber: maxBuckets, NativeHistogramMinResetDuration: resetEvery,
		NativeHistogramMaxExemplars: -1, // those of the classic buckets are scraped with them
	}, names(labels))
	m.registry.MustRegister(unlocked{d.vec})
	return d
}

// observe adds the duration of an event. job is the label.
func (d *durations) observe(job string, e event.Event, took time.Duration) {
	seconds := took.Seconds()
	h := d.vec.WithLabelValues(job)
	number, _ := slices.BinarySearch(d.buckets, seconds)
	b := bucket{job, number}
	last, named := d.named[b]
	if since := e.Time.Sub(last); named && since >= 0 && since < exemplarEvery {
		h.Observe(seconds)
		return
	}
	labels := d.exemplar(e)
	x, ok := h.(prometheus.ExemplarObserver)
	if !ok || labels == nil {
		h.Observe(seconds)
		return
	}
	x.ObserveWithExemplar(seconds, labels)
	d.named[b] = e.Time
}

// drop drops a job.
func (d *durations) drop(job string) {
	d.vec.DeleteLabelValues(job)
	for n := range len(d.buckets) + 1 {
		delete(d.named, bucket{job, n})
	}
}

// The labels of exemplars. Grafana knows the second by this name.
const (
	runLabel   = "run_id"
	traceLabel = "trace_id"
)

// exemplar returns labels that name the run of an event and its trace; without the trace if both are longer than
// OpenMetrics allows, nil if the run alone is.
func (d *durations) exemplar(e event.Event) prometheus.Labels {
	run := e.RunID
	if run == "" && len(e.Items) > 0 { // of the fire's first item
		run = tree.RunID(e.Job, tree.Fire{Instant: e.Instant.UnixMilli(), Trigger: e.Trigger, Source: string(e.Source)}, e.Items[0])
	}
	n := utf8.RuneCountInString(run) + len(runLabel)
	if run == "" || n > prometheus.ExemplarMaxRunes {
		return nil
	}
	trace := ""
	if d.traceID != nil {
		trace = d.traceID(e)
	}
	if trace == "" || n+len(traceLabel)+len(trace) > prometheus.ExemplarMaxRunes {
		return prometheus.Labels{runLabel: run}
	}
	return prometheus.Labels{runLabel: run, traceLabel: trace}
}
