package metrics

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"go.uber.org/zap"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/engine"
	"github.com/wasmjob/wasmjob/host/event"
)

// stuck is a metric that is not written before it is released.
type stuck struct {
	prometheus.Gauge
	writes  chan struct{} // one for each Write that has begun
	release chan struct{} // closed
}

// Write implements [prometheus.Metric].
func (s stuck) Write(m *dto.Metric) error {
	s.writes <- struct{}{}
	<-s.release
	return s.Gauge.Write(m)
}

// Collect implements [prometheus.Collector].
func (s stuck) Collect(ch chan<- prometheus.Metric) { ch <- s }

// addStuck adds a metric for which scrapes wait.
func addStuck(m *Metrics) stuck {
	s := stuck{prometheus.NewGauge(prometheus.GaugeOpts{Name: "stuck"}), make(chan struct{}, 100), make(chan struct{})}
	m.registry.MustRegister(s)
	return s
}

// TestScrapeHoldsUpNobody: while a scrape stands still in the midst of all series, guests
// report new names, and jobs come and go.
func TestScrapeHoldsUpNobody(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := newMetrics()
		const jobs = 200
		for j := range jobs {
			job := fmt.Sprintf("job%d", j)
			m.Observe(event.Event{Kind: event.JobAdded, Job: job})
			for n := range 20 { // more than what waits between a collector and the scrape
				for kind, name := range map[int]string{abi.MetricCounter: "c", abi.MetricGauge: "g", abi.MetricHistogram: "h"} {
					m.Guest(event.GuestMetric{Job: job, Kind: kind, Name: fmt.Sprint(name, n), Value: 1})
				}
			}
		}
		s := addStuck(m)
		var wg sync.WaitGroup
		wg.Go(func() { scrape(t, m) })
		synctest.Wait()
		moved := make(chan struct{})
		wg.Go(func() {
			defer close(moved)
			for kind, name := range map[int]string{abi.MetricCounter: "cc", abi.MetricGauge: "gg", abi.MetricHistogram: "hh"} {
				m.Guest(event.GuestMetric{Job: "job0", Kind: kind, Name: name, Value: 1})
			}
			m.Observe(event.Event{Kind: event.JobAdded, Job: "new"})
			m.Observe(event.Event{Kind: event.JobRemoved, Job: "job1"})
		})
		for range 1_000_000 { // who waits for a mutex is not seen by synctest.Wait
			select {
			case <-moved:
			default:
				runtime.Gosched()
				continue
			}
			break
		}
		select {
		case <-moved:
		default:
			t.Error("a guest or an event waits for the scrape")
		}
		close(s.release)
		wg.Wait()
	})
}

// TestVectorsAreCollectedUnlocked: no vector passes its metrics on under its lock.
func TestVectorsAreCollectedUnlocked(t *testing.T) {
	t.Parallel()
	m := newMetrics()
	vectors := []prometheus.Collector{m.guests.counters, m.guests.gauges, m.guests.histograms, m.lag.vec, m.fireTime.vec, m.itemTime.vec, m.operations, m.signIns, m.expired}
	for _, v := range vectors {
		var there prometheus.AlreadyRegisteredError
		if err := m.registry.Register(v); !errors.As(err, &there) {
			t.Errorf("%v is not registered: %v", v, err)
		} else if _, ok := there.ExistingCollector.(unlocked); !ok {
			t.Errorf("%T passes its metrics on under its lock", there.ExistingCollector)
		}
	}
}

// TestScrapesShareAndWait: those who ask while an answer is put together share it, no more
// than four are answered at once, and who waits in vain hears when to come back.
func TestScrapesShareAndWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := newMetrics()
		s := addStuck(m)
		handler := m.Handler(zap.NewNop())
		codes := make(chan *httptest.ResponseRecorder, 10)
		for range maxScrapes + 3 {
			go func() {
				w := httptest.NewRecorder()
				handler.ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
				codes <- w
			}()
		}
		for range 3 {
			w := <-codes // when its wait is over
			if w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") != "5" {
				t.Errorf("a scrape too many: %d, Retry-After %q", w.Code, w.Header().Get("Retry-After"))
			}
		}
		close(s.release)
		for range maxScrapes {
			if w := <-codes; w.Code != http.StatusOK || !strings.Contains(w.Body.String(), "stuck 0") {
				t.Errorf("a scrape: %d %.200s", w.Code, w.Body)
			}
		}
		if n := len(s.writes); n != 1 {
			t.Errorf("the metrics were gathered %d times for those who asked at once, want once", n)
		}
		scrape(t, m)
		if n := len(s.writes); n != 2 {
			t.Errorf("a later scrape did not gather the metrics anew: %d times", n)
		}
	})
}

// TestSlowReadersKeepFewAnswers: whoever reads slowly keeps one of two answers, and those
// who come then share the newer one.
func TestSlowReadersKeepFewAnswers(t *testing.T) {
	t.Parallel()
	n := 0
	a := &answers{gather: func() ([]*dto.MetricFamily, error) {
		n++
		return []*dto.MetricFamily{{}}, nil
	}}
	var done []func()
	for range 5 {
		_, leave, _ := a.Gather()
		done = append(done, leave)
	}
	if n != maxAnswers {
		t.Errorf("%d answers are open, want %d", n, maxAnswers)
	}
	for _, leave := range done {
		leave()
	}
	if a.Gather(); n != maxAnswers+1 || a.open != 1 {
		t.Errorf("%d gatherings, %d answers open; want %d and 1 when all have left", n, a.open, maxAnswers+1)
	}
}

// TestGuestSeriesAreShared: all guests' series are bounded, and one that comes late gets its
// equal part of those who have more.
func TestGuestSeriesAreShared(t *testing.T) {
	t.Parallel()
	m := New(Options{Status: func() engine.Status { return engine.Status{} }, GuestSeries: 100})
	add := func(job string, kind int, name string) abi.Code {
		m.Observe(event.Event{Kind: event.JobAdded, Job: job})
		return m.Guest(event.GuestMetric{Job: job, Kind: kind, Name: name, Value: 1})
	}
	for n := range 6 {
		want := abi.OK
		if n == 5 {
			want = abi.ErrQuota
		}
		if got := add("greedy", abi.MetricHistogram, fmt.Sprint("h", n)); got != want {
			t.Errorf("histogram %d of 19 series: %d, want %d", n, got, want)
		}
	}
	for n := range 60 {
		want := abi.OK
		if n >= 43 { // the greedy job has 57, and would have less than the late one without its newest histogram
			want = abi.ErrQuota
		}
		if got := add("late", abi.MetricCounter, fmt.Sprint("c", n)); got != want {
			t.Errorf("counter %d of the late job: %d, want %d", n, got, want)
		}
	}
	series := func(job string) (n int) {
		for k := range scrape(t, m) {
			if strings.HasPrefix(k, "wasmjob_guest_") && strings.Contains(k, fmt.Sprintf("job_name=%q", job)) {
				n++
			}
		}
		return n
	}
	if greedy, late := series("greedy"), series("late"); greedy != 3*histogramSeries || late != 43 {
		t.Errorf("the greedy job has %d series, the late one %d; want %d and 43", greedy, late, 3*histogramSeries)
	}
	if got := add("greedy", abi.MetricHistogram, "h4"); got != abi.ErrQuota {
		t.Errorf("a name that the greedy job has lost: %d, want %d", got, abi.ErrQuota)
	}
	if got := add("greedy", abi.MetricHistogram, "h0"); got != abi.OK {
		t.Errorf("a name that the greedy job has kept: %d", got)
	}
	lines := scrape(t, m)
	if got, want := lines["wasmjob_guest_series"], fmt.Sprint(3*histogramSeries+43); got != want {
		t.Errorf("wasmjob_guest_series is %s, want %s", got, want)
	}
	if got := lines["wasmjob_guest_values_dropped_total"]; got == "0" || got == "" {
		t.Errorf("wasmjob_guest_values_dropped_total is %q: what is dropped is not counted", got)
	}
	for _, job := range []string{"greedy", "late"} {
		m.Observe(event.Event{Kind: event.JobRemoved, Job: job})
	}
	if g := &m.guests; g.all != 0 || len(g.jobs) != 0 || len(g.bySize) != 0 {
		t.Errorf("%d series of %d jobs are left of jobs that are gone", g.all, len(g.jobs))
	}
}
