package bench_test

import (
	"fmt"
	"os"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/host/event"
)

const (
	itemsPerJob = 4
	everySecond = "* * * * * ?"
)

// BenchmarkThousandJobs is a host with 1,000 jobs that all fire at every full
// second, each with 4 items: 4,000 items at once. The lag of an item is from
// the scheduled instant until its guest starts. One operation is 20 seconds.
func BenchmarkThousandJobs(b *testing.B) {
	asTheProgram(b)
	g := cGuest(b)
	for _, registry := range []string{memory, durable} {
		b.Run("registry="+registry, func(b *testing.B) {
			for b.Loop() {
				l := load(b, g, registry, 1000, 20)
				l.report(b)
				if registry == memory && l.lost > 0 {
					b.Logf("%d of %d fires did not run for their own instant", l.lost, l.due)
				}
			}
		})
	}
}

// BenchmarkCeiling finds how many such jobs a host holds: none of their fires
// is lost, and 99 of 100 items start within a second. It tries twice as many
// until that fails, and then between.
func BenchmarkCeiling(b *testing.B) {
	asTheProgram(b)
	g := cGuest(b)
	const most = 1 << 14
	for _, registry := range []string{memory, durable} {
		b.Run("registry="+registry, func(b *testing.B) {
			holds := func(jobs int) (ok bool) {
				// The jobs of one try are gone before the next.
				b.Run(fmt.Sprintf("jobs=%d", jobs), func(b *testing.B) {
					for b.Loop() {
						l := load(b, g, registry, jobs, 5)
						l.report(b)
						ok = l.lost == 0 && l.start.at(0.99) < time.Second
					}
				})
				return ok
			}
			low, high := 0, 250
			for high <= most && holds(high) {
				low, high = high, 2*high
			}
			for range 2 {
				if middle := (low + high) / 2; holds(middle) {
					low = middle
				} else {
					high = middle
				}
			}
			b.Logf("the registry in %s holds %d jobs", registry, low)
		})
	}
}

// lags is what was seen of a load.
type lags struct {
	due, lost  int // fires
	start, end spread
	cpu        float64 // seconds per second
	skipped    map[string]int
}

func (l *lags) report(b *testing.B) {
	l.start.report(b, "start")
	b.ReportMetric(milliseconds(l.end.at(0.99)), "completed-p99-ms")
	b.ReportMetric(float64(l.lost), "lost")
	b.ReportMetric(float64(l.due), "fires")
	b.ReportMetric(l.cpu, "cpu-s/s")
	b.ReportMetric(0, "ns/op") // it is the clock's
}

// load runs jobs that fire every second and watches them for some seconds.
func load(b *testing.B, g noop, registry string, jobs, seconds int) lags {
	return loadKeeping(b, g, registry, jobs, seconds, nil)
}

// loadKeeping gives all events to keep as well, unless that is nil.
func loadKeeping(b *testing.B, g noop, registry string, jobs, seconds int, keep func(event.Event)) lags {
	dir := b.TempDir()
	put(b, dir, g.name+".wasm", g.wasm)
	for i := range jobs {
		put(b, dir, fmt.Sprintf("job%05d.yaml", i), definition(fmt.Sprintf("job%05d", i), g, everySecond, itemsPerJob))
	}
	h := openKeeping(b, registry, dir, jobs, keep)

	type instant struct {
		job string
		at  int64 // Unix seconds
	}
	l := lags{due: jobs * seconds, skipped: make(map[string]int)}
	// The storm of the start is over after three seconds; on a registry that
	// cannot keep up it never is, and that shall show.
	from := time.Now().Truncate(time.Second).Add(4 * time.Second)
	to := from.Add(time.Duration(seconds) * time.Second)
	completed := make(map[instant]int, l.due)
	open := l.due
	all := make(chan struct{})
	h.watch(func(e event.Event) {
		h.went(e)
		if e.Instant.Before(from) || !e.Instant.Before(to) {
			return
		}
		switch e.Kind {
		case event.ItemStarted:
			l.start = append(l.start, e.Time.Sub(e.Instant))
		case event.ItemSkipped, event.FireSkipped:
			reason, _, _ := strings.Cut(e.Reason, ";") // what follows differs
			l.skipped[reason]++
		case event.ItemCompleted:
			l.end = append(l.end, e.Time.Sub(e.Instant))
			i := instant{e.Job, e.Instant.Unix()}
			if completed[i]++; completed[i] == itemsPerJob {
				if open--; open == 0 {
					close(all)
				}
			}
		}
	})
	sleepUntil(from)
	before := cpuTime()
	sleepUntil(to)
	l.cpu = (cpuTime() - before).Seconds() / float64(seconds)
	timer := time.NewTimer(10 * time.Second)
	defer timer.Stop()
	select {
	case <-all:
	case <-timer.C:
	}
	h.watch(nil)
	l.lost = open
	if len(l.skipped) > 0 {
		b.Logf("skipped: %v", l.skipped)
	}
	return l
}

// asTheProgram sets the collector as the program does for itself.
func asTheProgram(b *testing.B) {
	if os.Getenv("GOGC") == "" {
		before := debug.SetGCPercent(400)
		b.Cleanup(func() { debug.SetGCPercent(before) })
	}
}
