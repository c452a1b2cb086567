//go:build unix

package engine_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/registry/embedded"
	"github.com/wasmjob/wasmjob/host/engine"
	"github.com/wasmjob/wasmjob/host/event"
)

// benched runs a host with the jobs on a registry in memory, in real time.
func benched(b *testing.B, onEvent func(event.Event), jobs ...engine.Job) *engine.Host {
	b.Helper()
	server, err := embedded.Open(embedded.Options{})
	if err != nil {
		b.Fatal(err)
	}
	h, err := engine.New(engine.Config{Dial: server.Connect, Namespace: "bench", ServerIP: "127.0.0.1", OnEvent: onEvent})
	if err != nil {
		b.Fatal(err)
	}
	h.Apply(jobs, nil)
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- h.Run(ctx, ctx) }()
	b.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			b.Error(err)
		}
		if err := server.Close(); err != nil {
			b.Error(err)
		}
	})
	for ready, _ := h.Ready(); !ready; ready, _ = h.Ready() {
		time.Sleep(time.Millisecond)
	}
	return h
}

func idle() *guest {
	return &guest{digest: "idle", run: func(context.Context, *abi.Invocation) abi.Result { return ok }}
}

// BenchmarkFire measures a fire of a job with many items, from the trigger to
// the event of the last completion.
func BenchmarkFire(b *testing.B) {
	for _, total := range []int{1, 100, 1_000, 10_000, 100_000, 1_000_000} {
		b.Run(fmt.Sprint(total), func(b *testing.B) {
			over := make(chan struct{}, 1)
			h := benched(b, func(e event.Event) {
				if e.Kind == event.FireEnded {
					over <- struct{}{}
				}
			}, job(definition("wide", "", total), idle()))
			for owned := 0; owned < total; {
				time.Sleep(10 * time.Millisecond)
				owned = len(h.Status().Jobs[0].Items)
			}
			before := processorTime(b)
			for b.Loop() {
				if err := operator(h, "bench").Trigger(b.Context(), "wide"); err != nil {
					b.Fatal(err)
				}
				<-over
			}
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N*total), "µs/item")
			b.ReportMetric(float64((processorTime(b)-before).Microseconds())/float64(b.N*total), "cpu-µs/item")
		})
	}
}

// BenchmarkManyJobs measures a thousand jobs of four items that all fire every
// second: how late items start, and what it takes of the processors.
func BenchmarkManyJobs(b *testing.B) {
	const count, items = 1000, 4
	for _, cron := range []string{"* * * * * ?", "0 0 0 1 1 ?"} {
		name := "every second"
		if cron[0] == '0' {
			name = "idle"
		}
		b.Run(name, func(b *testing.B) {
			var mu sync.Mutex
			var lags []time.Duration
			var completed atomic.Int64
			g := idle()
			jobs := make([]engine.Job, count)
			for i := range jobs {
				jobs[i] = job(definition(fmt.Sprintf("job-%04d", i), cron, items), g)
			}
			benched(b, func(e event.Event) {
				switch e.Kind {
				case event.ItemStarted:
					mu.Lock()
					lags = append(lags, e.Time.Sub(e.Instant))
					mu.Unlock()
				case event.ItemCompleted:
					completed.Add(1)
				}
			}, jobs...)
			time.Sleep(2 * time.Second)
			mu.Lock()
			lags = nil
			mu.Unlock()
			completed.Store(0)
			before, wall := processorTime(b), time.Now()
			for b.Loop() {
				time.Sleep(time.Second)
			}
			spent, took := processorTime(b)-before, time.Since(wall)
			mu.Lock()
			defer mu.Unlock()
			b.ReportMetric(spent.Seconds()/took.Seconds()*100, "%cpu")
			b.ReportMetric(float64(completed.Load())/took.Seconds(), "items/s")
			if slices.Sort(lags); len(lags) > 0 {
				b.ReportMetric(float64(lags[len(lags)/2].Microseconds())/1000, "ms-lag-p50")
				b.ReportMetric(float64(lags[len(lags)*99/100].Microseconds())/1000, "ms-lag-p99")
			}
		})
	}
}

// processorTime is what this process has used of the processors.
func processorTime(b *testing.B) time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		b.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// BenchmarkTakeover: of three hosts the one dies that had begun all items of a job. It takes until the others have begun
// them all, or, with failover off, until all are written down as lost. Another job fires each second on both meanwhile.
func BenchmarkTakeover(b *testing.B) {
	for _, failover := range []bool{true, false} {
		for _, total := range []int{10_000, 100_000, 1_000_000} {
			b.Run(fmt.Sprintf("failover=%v/%d", failover, total), func(b *testing.B) {
				for b.Loop() {
					benchTakeover(b, total, failover)
				}
			})
		}
	}
}

func benchTakeover(b *testing.B, total int, failover bool) {
	b.Helper()
	server, err := embedded.Open(embedded.Options{})
	if err != nil {
		b.Fatal(err)
	}
	var begun, taken atomic.Int64
	var worst atomic.Int64 // of the other job, nanoseconds, while items are taken over
	var died atomic.Bool
	all, over := make(chan struct{}), make(chan struct{})
	onEvent := func(e event.Event) {
		n := int64(0)
		switch {
		case e.Kind == event.FireStarted && e.Job == "tick":
			if died.Load() && int64(e.Lag) > worst.Load() {
				worst.Store(int64(e.Lag))
			}
		case e.Kind == event.FireStarted && e.Source == abi.SourceFailover:
			n = int64(len(e.Items))
		case e.Kind == event.FireStarted:
			if begun.Add(int64(len(e.Items))) == int64(total) {
				close(all)
			}
		case e.Kind == event.ItemSkipped && e.Cause == event.SkipLost:
			n = 1
		}
		if n > 0 && taken.Add(n) == int64(total) {
			close(over)
		}
	}
	stuck := &guest{digest: "stuck", run: func(ctx context.Context, _ *abi.Invocation) abi.Result {
		<-ctx.Done()
		return abi.Result{Outcome: abi.OutcomeCancelled}
	}}
	d, tick := definition("big", "", total), definition("tick", "* * * * * ?", 2)
	d.Failover = failover
	var sessions [3]registry.Center
	var stops [3]context.CancelFunc
	var done [3]chan error
	start := func(n int, jobs ...engine.Job) *engine.Host {
		h, err := engine.New(engine.Config{Namespace: "bench", ServerIP: fmt.Sprintf("127.0.0.%d", n+1), OnEvent: onEvent, Dial: func(ctx context.Context) (registry.Center, error) {
			c, err := server.Connect(ctx)
			sessions[n] = c
			return c, err
		}})
		if err != nil {
			b.Fatal(err)
		}
		ctx, stop := context.WithCancel(context.Background())
		stops[n], done[n] = stop, make(chan error, 1)
		h.Apply(jobs, nil)
		go func() { done[n] <- h.Run(ctx, ctx) }()
		for ready, _ := h.Ready(); !ready; ready, _ = h.Ready() {
			time.Sleep(time.Millisecond)
		}
		return h
	}
	first := start(0, job(d, stuck))
	for len(first.Status().Jobs[0].Items) < total {
		time.Sleep(10 * time.Millisecond)
	}
	if err := operator(first, "bench").Trigger(context.Background(), "big"); err != nil {
		b.Fatal(err)
	}
	<-all
	start(1, job(d, stuck), job(tick, idle()))
	start(2, job(d, stuck), job(tick, idle()))
	time.Sleep(3 * time.Second)
	died.Store(true)
	stops[0]()
	<-done[0]
	before, at := processorTime(b), time.Now()
	<-over
	b.ReportMetric(time.Since(at).Seconds(), "s")
	b.ReportMetric((processorTime(b) - before).Seconds(), "cpu-s")
	b.ReportMetric(0, "ns/op") // most of it is the setting up
	b.ReportMetric(float64(time.Duration(worst.Load()).Milliseconds()), "ms-lag")
	for n := 1; n < 3; n++ {
		stops[n]()
	}
	for n := 1; n < 3; n++ {
		<-done[n]
	}
	if err := server.Close(); err != nil {
		b.Error(err)
	}
}
