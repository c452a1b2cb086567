package metrics

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"
	"go.uber.org/zap"
)

const (
	// maxScrapes is how many scrapes are answered at once, maxAnswers of how many different
	// states: whoever reads slowly keeps one.
	maxScrapes, maxAnswers = 4, 2
	// scrapeWait is how long a scrape waits for its turn, scrapeTime how long it may read. A
	// Prometheus gives up after 10 s.
	scrapeWait, scrapeTime = 5 * time.Second, 15 * time.Second
)

// Handler answers scrapes, in the format that is asked for: text, OpenMetrics with
// exemplars, protobuf with native histograms as well. Errors of a scrape go to the logger.
// A few are answered at once; the others wait for a few seconds, and get 503 then. Scrapes that
// are asked for while one is being put together share what it finds.
func (m *Metrics) Handler(log *zap.Logger) http.Handler {
	answer := promhttp.HandlerForTransactional(&answers{gather: m.registry.Gather}, promhttp.HandlerOpts{
		ErrorLog:          scrapeLog{log},
		EnableOpenMetrics: true,
	})
	places := make(chan struct{}, maxScrapes)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		turn := time.NewTimer(scrapeWait)
		defer turn.Stop()
		select {
		case places <- struct{}{}:
		case <-r.Context().Done():
			return
		case <-turn.C:
			w.Header().Set("Retry-After", strconv.Itoa(int(scrapeWait.Seconds())))
			http.Error(w, fmt.Sprintf("%d scrapes are being answered, which is the most; try again later", maxScrapes), http.StatusServiceUnavailable)
			return
		}
		defer func() { <-places }()
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(scrapeTime)) // else the server's holds
		answer.ServeHTTP(w, r)
	})
}

// scrapeLog takes the errors of scrapes.
type scrapeLog struct{ *zap.Logger }

// Println implements [promhttp.Logger].
func (l scrapeLog) Println(v ...any) { l.Warn("scrape: " + strings.TrimSpace(fmt.Sprintln(v...))) }

// answers are what scrapes are answered with. One is put together at a time. It implements
// [prometheus.TransactionalGatherer].
type answers struct {
	gather func() ([]*dto.MetricFamily, error)

	mu     sync.Mutex
	newest *gathered // nil if nobody reads it any more
	open   int       // answers that somebody reads
}

// gathered is what a gathering has found.
type gathered struct {
	readers int           // guarded by answers.mu
	ready   chan struct{} // closed when the rest is there
	all     []*dto.MetricFamily
	err     error
}

// Gather implements [prometheus.TransactionalGatherer].
func (a *answers) Gather() ([]*dto.MetricFamily, func(), error) {
	a.mu.Lock()
	one := a.newest
	if one == nil || (one.isReady() && a.open < maxAnswers) {
		one = &gathered{ready: make(chan struct{})}
		a.newest = one
		a.open++
		one.readers++
		a.mu.Unlock()
		one.all, one.err = a.gather()
		close(one.ready)
	} else {
		one.readers++
		a.mu.Unlock()
		<-one.ready
	}
	return one.all, func() { a.leave(one) }, one.err
}

func (g *gathered) isReady() bool {
	select {
	case <-g.ready:
		return true
	default:
		return false
	}
}

func (a *answers) leave(one *gathered) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if one.readers--; one.readers > 0 {
		return
	}
	a.open--
	if a.newest == one {
		a.newest = nil
	}
}

// unlocked collects all metrics of a vector before it passes them on. A vector passes them on
// under its lock, for as long as the scrape takes to read them; whoever wants a new series,
// such as a guest or an event of the host, would wait for that.
type unlocked struct{ prometheus.Collector }

// Collect implements [prometheus.Collector].
func (u unlocked) Collect(ch chan<- prometheus.Metric) {
	found := make(chan prometheus.Metric, 1000)
	go func() {
		defer close(found)
		u.Collector.Collect(found)
	}()
	var all []prometheus.Metric
	for metric := range found { // until the goroutine has ended
		all = append(all, metric)
	}
	for _, metric := range all {
		ch <- metric
	}
}
