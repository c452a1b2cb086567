package metrics

import (
	"math"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// jobCounts are the counters with series per job, of all jobs. A job has about a hundred, of which most stay 0, and there
// may be thousands of jobs: a vector of client_golang takes 300 bytes for each series, jobCounts 8. It is a
// [prometheus.Collector], and safe for concurrent use.
type jobCounts struct {
	families []*jobCounter // not changed after it is registered

	mu   sync.Mutex
	jobs map[string]*jobValues
}

// jobValues are the counters of one job.
type jobValues struct {
	label   *dto.LabelPair
	created *timestamppb.Timestamp
	// values are the values of each family, by the number of the series: nil if the job has none of the family, NaN if it
	// does not have that series.
	values [][]float64
}

// jobCounter is one family of counters with the label of the job, and labels with few and known values.
type jobCounter struct {
	all    *jobCounts
	desc   *prometheus.Desc
	number int     // among the families
	labels []Label // besides the job
	series []countLabels
}

// countLabels are the labels of a series, besides the job, before and behind that in the order of names.
type countLabels struct{ before, behind []*dto.LabelPair }

// byJob adds a family of counters by job, and by labels whose values are known.
func (m *Metrics) byJob(name, help string, labels ...Label) *jobCounter {
	all := append([]Label{jobName()}, labels...)
	c := &jobCounter{all: m.ofJobs, desc: prometheus.NewDesc(m.note(Counter, name, help, all), help, names(all), nil), number: len(m.ofJobs.families), labels: labels}
	c.addSeries(nil)
	m.ofJobs.families = append(m.ofJobs.families, c)
	return c
}

// addSeries adds the series that begin with these values, in the order of [jobCounter.place].
func (c *jobCounter) addSeries(values []string) {
	if n := len(values); n < len(c.labels) {
		for _, v := range c.labels[n].Values {
			c.addSeries(append(slices.Clone(values), v))
		}
		return
	}
	var s countLabels
	for n, v := range values {
		pair := &dto.LabelPair{Name: &c.labels[n].Name, Value: &v}
		if c.labels[n].Name < jobLabel {
			s.before = append(s.before, pair)
		} else {
			s.behind = append(s.behind, pair)
		}
	}
	c.series = append(c.series, s)
}

// place returns the number of the series with these values; -1 if one of them is unknown.
func (c *jobCounter) place(values []string) int {
	place := 0
	for n, l := range c.labels {
		at := slices.Index(l.Values, values[n])
		if at < 0 {
			return -1
		}
		place = place*len(l.Values) + at
	}
	return place
}

// inc counts one.
func (c *jobCounter) inc(job string, values ...string) { c.add(1, job, values...) }

// add adds to a series, and creates it if the job does not have it. There is a value for each label besides the job; a
// value that the label does not have is not counted.
func (c *jobCounter) add(n float64, job string, values ...string) {
	if place := c.place(values); place >= 0 {
		c.all.add(c, place, n, job)
	}
}

// appear creates all series of a job that it does not have, with 0.
func (c *jobCounter) appear(job string) {
	for place := range c.series {
		c.all.add(c, place, 0, job)
	}
}

func (all *jobCounts) add(c *jobCounter, place int, n float64, job string) {
	all.mu.Lock()
	defer all.mu.Unlock()
	of := all.jobs[job]
	if of == nil {
		name := jobLabel
		of = &jobValues{&dto.LabelPair{Name: &name, Value: &job}, timestamppb.New(time.Now()), make([][]float64, len(all.families))}
		all.jobs[job] = of
	}
	if of.values[c.number] == nil {
		of.values[c.number] = slices.Repeat([]float64{math.NaN()}, len(c.series))
	}
	v := &of.values[c.number][place]
	if math.IsNaN(*v) {
		*v = 0
	}
	*v += n
}

// drop drops all series of a job.
func (all *jobCounts) drop(job string) {
	all.mu.Lock()
	defer all.mu.Unlock()
	delete(all.jobs, job)
}

// Describe implements [prometheus.Collector].
func (all *jobCounts) Describe(ch chan<- *prometheus.Desc) {
	for _, c := range all.families {
		ch <- c.desc
	}
}

// Collect implements [prometheus.Collector]. It passes nothing on under its lock; see [unlocked].
func (all *jobCounts) Collect(ch chan<- prometheus.Metric) {
	for _, s := range all.list() {
		ch <- s
	}
}

func (all *jobCounts) list() (list []*count) {
	all.mu.Lock()
	defer all.mu.Unlock()
	for _, of := range all.jobs {
		for number, values := range of.values {
			c := all.families[number]
			for place, v := range values {
				if !math.IsNaN(v) {
					list = append(list, &count{c.desc, &c.series[place], of, v})
				}
			}
		}
	}
	return list
}

// count is a series at the time of collection.
type count struct {
	desc   *prometheus.Desc
	labels *countLabels
	of     *jobValues // of which label and created do not change
	value  float64
}

// Desc implements [prometheus.Metric].
func (s *count) Desc() *prometheus.Desc { return s.desc }

// Write implements [prometheus.Metric].
func (s *count) Write(out *dto.Metric) error {
	out.Label = slices.Concat(s.labels.before, []*dto.LabelPair{s.of.label}, s.labels.behind)
	out.Counter = &dto.Counter{Value: &s.value, CreatedTimestamp: s.of.created}
	return nil
}
