// Package overload_test measures what becomes of a host that has more to do than
// it can, and then less: whether it comes back, and how soon. The guests are Go
// functions, so that the host and its registry are what is measured.
package overload_test

import (
	"context"
	"fmt"
	"os"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/coordination/jobconfig"
	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/registry/embedded"
	"github.com/wasmjob/wasmjob/coordination/registry/zookeeper"
	"github.com/wasmjob/wasmjob/host/engine"
	"github.com/wasmjob/wasmjob/host/event"
	"github.com/wasmjob/wasmjob/test/zkserver"
)

const (
	itemsPerJob = 4
	// The host is loaded with twice its ceiling for so long, then with half of it.
	loaded, relieved = 60 * time.Second, 20 * time.Second
	// normal is the lag of a host that keeps up.
	normal = time.Second
)

// BenchmarkOverload finds how many jobs a host holds that fire each second with
// four items: 99 of 100 items start within a second. It gives the host twice as
// many for a minute, then half as many, and says after how many seconds items
// start within a second again, and how many instants have neither a run nor a
// reason. OVERLOAD_JOBS sets the ceiling in place of the search.
func BenchmarkOverload(b *testing.B) {
	if os.Getenv("GOGC") == "" { // as the program does
		before := debug.SetGCPercent(400)
		b.Cleanup(func() { debug.SetGCPercent(before) })
	}
	for _, registry := range []string{"memory", "zookeeper"} {
		b.Run("registry="+registry, func(b *testing.B) {
			ceiling, _ := strconv.Atoi(os.Getenv("OVERLOAD_JOBS"))
			if ceiling == 0 {
				ceiling = search(b, registry)
			}
			for b.Loop() {
				h := open(b, registry, fmt.Sprint("overload", b.N))
				h.load(0, 2*ceiling)
				from := time.Now()
				time.Sleep(loaded)
				to := time.Now()
				h.load(0, ceiling/2)
				time.Sleep(time.Until(to.Add(relieved)))
				h.report(b, from, to, ceiling)
				h.close()
			}
		})
	}
}

// search finds the ceiling, to an eighth.
func search(b *testing.B, registry string) int {
	holds := func(jobs int) bool {
		h := open(b, registry, fmt.Sprint("search", jobs))
		defer h.close()
		h.load(0, jobs)
		time.Sleep(5 * time.Second)
		from := time.Now()
		time.Sleep(5 * time.Second)
		late := h.lag(from, time.Now(), 0.99)
		b.Logf("%d jobs: 99 of 100 items start within %s", jobs, late)
		return late > 0 && late < normal
	}
	low, high := 0, 250
	for high <= 1<<14 && holds(high) {
		low, high = high, 2*high
	}
	for high-low > max(low/8, 25) {
		if middle := (low + high) / 2; holds(middle) {
			low = middle
		} else {
			high = middle
		}
	}
	return low
}

// house is a host on a registry of its own.
type house struct {
	b         *testing.B
	host      *engine.Host
	end       []func()
	mu        sync.Mutex
	runs      []run
	accounted map[due]bool
	// waits counts what the host said that it waited for too long.
	waits map[event.Wait]int
	// defined is when each job came, and gone when it went; relieved is when
	// those that went were asked to.
	defined, gone map[string]time.Time
	relieved      time.Time
}

// run is the start of an item.
type run struct {
	at  time.Time
	lag time.Duration
}

// due is an instant of an item.
type due struct {
	job     string
	item    int
	instant int64 // Unix seconds
}

func open(b *testing.B, name, namespace string) *house {
	b.Helper()
	h := &house{b: b, accounted: make(map[due]bool), waits: make(map[event.Wait]int), defined: make(map[string]time.Time), gone: make(map[string]time.Time)}
	var dial func(ctx context.Context) (registry.Center, error)
	if name == "memory" {
		server, err := embedded.Open(embedded.Options{})
		if err != nil {
			b.Fatal(err)
		}
		dial = func(ctx context.Context) (registry.Center, error) { return server.Connect(ctx) }
		h.end = append(h.end, func() {
			if err := server.Close(); err != nil {
				b.Error(err)
			}
		})
	} else {
		e := zkserver.ForTest(b, zkserver.Options{NoSync: true})
		dial = func(ctx context.Context) (registry.Center, error) {
			return zookeeper.Dial(ctx, zookeeper.Options{Connect: e.Addr(0), SessionTimeout: 30 * time.Second})
		}
	}
	var err error
	if h.host, err = engine.New(engine.Config{Dial: dial, Namespace: namespace, ServerIP: "10.0.0.1", OnEvent: h.event}); err != nil {
		b.Fatal(err)
	}
	running, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- h.host.Run(running, context.Background()) }()
	h.end = append(h.end, func() {
		stop()
		if err := <-ended; err != nil {
			b.Error(err)
		}
	})
	return h
}

// close stops the host, and then its registry.
func (h *house) close() {
	for _, end := range slices.Backward(h.end) {
		end()
	}
}

// load makes the jobs from first up to last those of the host, and returns when
// it has them.
func (h *house) load(first, last int) {
	var jobs []engine.Job
	for i := first; i < last; i++ {
		name := fmt.Sprintf("job%05d", i)
		jobs = append(jobs, engine.Job{Module: noop{}, File: name + ".yaml", ModuleFile: "noop.wasm", Definition: jobconfig.Configuration{
			JobName: name, Cron: "* * * * * ?", TimeZone: "GMT", ShardingTotalCount: itemsPerJob, MonitorExecution: true, Misfire: true,
			MaxTimeDiffSeconds: -1, ReconcileIntervalMinutes: 10,
		}})
	}
	h.mu.Lock()
	h.relieved = time.Now()
	h.mu.Unlock()
	h.host.Apply(jobs, nil)
	end := time.Now().Add(5 * time.Minute)
	for {
		h.mu.Lock()
		n := len(h.defined) - len(h.gone)
		h.mu.Unlock()
		if n == last-first {
			return
		}
		if time.Now().After(end) {
			h.b.Fatalf("the host has %d of %d jobs after five minutes", n, last-first)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func (h *house) event(e event.Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch e.Kind {
	case event.Assigned:
		if _, known := h.defined[e.Job]; !known && len(e.Items) == itemsPerJob {
			h.defined[e.Job] = e.Time
		}
	case event.JobRemoved:
		h.gone[e.Job] = e.Time
	case event.JobError: // a wait that takes too long, mostly
		h.waits[e.Wait]++
	case event.ItemStarted:
		h.runs = append(h.runs, run{e.Time, e.Time.Sub(e.Instant)})
		h.account(e, *e.Item)
	case event.ItemSkipped:
		h.account(e, *e.Item)
	case event.FireSkipped:
		for _, item := range e.Items {
			h.account(e, item)
		}
	}
}

// account notes that an instant has a run or a reason. mu is held.
func (h *house) account(e event.Event, item int) {
	at := e.Instant.Unix()
	h.accounted[due{e.Job, item, at}] = true
	for at++; !e.Through.IsZero() && at <= e.Through.Unix(); at++ {
		h.accounted[due{e.Job, item, at}] = true
	}
}

// lag is what the share of the items that started from one time to another does
// not exceed.
func (h *house) lag(from, to time.Time, share float64) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	var lags []time.Duration
	for _, r := range h.runs {
		if !r.at.Before(from) && r.at.Before(to) {
			lags = append(lags, r.lag)
		}
	}
	if len(lags) == 0 {
		return 0
	}
	slices.Sort(lags)
	return lags[min(int(share*float64(len(lags))), len(lags)-1)]
}

// count is how many items started from one time to another.
func (h *house) count(from, to time.Time) (n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, r := range h.runs {
		if !r.at.Before(from) && r.at.Before(to) {
			n++
		}
	}
	return n
}

// missing counts the instants of items that have neither a run nor a reason,
// while their job was there, but for the last seconds.
func (h *house) missing() (missing, all int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for job, from := range h.defined {
		to := time.Now().Add(-5 * time.Second)
		if _, gone := h.gone[job]; gone {
			to = h.relieved.Add(-5 * time.Second) // what came due just then may not have been seen before it left
		}
		for at := from.Unix() + 2; at < to.Unix(); at++ {
			for item := range itemsPerJob {
				if all++; !h.accounted[due{job, item, at}] {
					missing++
				}
			}
		}
	}
	return missing, all
}

func (h *house) report(b *testing.B, from, to time.Time, ceiling int) {
	var seconds []string
	back := -1
	for s := 0; s < int(relieved/time.Second); s++ {
		at := to.Add(time.Duration(s) * time.Second)
		lag := h.lag(at, at.Add(time.Second), 0.99)
		seconds = append(seconds, fmt.Sprintf("%.1f", lag.Seconds()))
		switch {
		case lag == 0 || lag >= normal:
			back = -1
		case back < 0:
			back = s
		}
	}
	missing, all := h.missing()
	b.Logf("%d jobs for %s, then %d; lag (p99) of each second since then: %s", 2*ceiling, to.Sub(from).Round(time.Second), ceiling/2, strings.Join(seconds, " "))
	if len(h.waits) > 0 {
		b.Logf("waited too long, by what for: %v", h.waits)
	}
	if missing > 0 {
		b.Errorf("%d of %d instants of items have neither a run nor a reason", missing, all)
	}
	b.ReportMetric(float64(ceiling), "jobs")
	b.ReportMetric(float64(h.count(from, to))/to.Sub(from).Seconds(), "loaded-runs/s")
	b.ReportMetric(h.lag(from, to, 0.5).Seconds(), "loaded-p50-s")
	b.ReportMetric(h.lag(from, to, 0.99).Seconds(), "loaded-p99-s")
	b.ReportMetric(float64(back), "back-s")
	b.ReportMetric(0, "ns/op") // it is the clock's
}

// noop is a module in plain Go that does nothing.
type noop struct{}

func (noop) Digest() string                                         { return strings.Repeat("0", 64) }
func (noop) Granted() string                                        { return "" }
func (noop) Executor(jobconfig.Configuration) (abi.Executor, error) { return noop{}, nil }
func (noop) HasListener(string) bool                                { return false }
func (noop) NewWorker(context.Context) (abi.Worker, error)          { return noop{}, nil }
func (noop) Retain() bool                                           { return true }
func (noop) Expect(time.Time)                                       {}
func (noop) Release()                                               {}
func (noop) Close() error                                           { return nil }
func (noop) Listen(context.Context, string, *abi.Invocation) abi.Result {
	return abi.Result{Outcome: abi.OutcomeOK}
}
func (noop) Execute(context.Context, *abi.Invocation) abi.Result {
	return abi.Result{Outcome: abi.OutcomeOK}
}
