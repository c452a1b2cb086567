package plugin

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/sandbox/wasm"
)

// cpu reports the processor time of an operation, all threads and the garbage
// collector included: on a busy machine the only time that means something.
func cpu(b *testing.B) func() {
	before := cpuTime()
	return func() { b.ReportMetric(float64(cpuTime()-before)/float64(b.N), "cpu-ns/op") }
}

// silent is a host that has nothing to do.
type silent struct{}

func (silent) Log(int, string, []string)                     {}
func (silent) LogEnabled(int) bool                           { return false }
func (silent) Progress(int64, int64)                         {}
func (silent) Metric(int, string, int64) abi.Code            { return abi.OK }
func (silent) CommitOffset(context.Context, []byte) abi.Code { return abi.OK }
func (silent) StageOffset(context.Context, []byte) abi.Code  { return abi.OK }
func (silent) Pause(context.Context)                         {}
func (silent) Cancelled() abi.Cancel                         { return abi.CancelNone }

// bareNoop is what the cheapest host could do with wat/noop: a call, in which
// the guest reads one integer of its context, with the same interruption.
func bareNoop(tb testing.TB) func(ctx context.Context) {
	ctx := context.Background()
	rt := wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfig().WithCloseOnContextDone(true))
	tb.Cleanup(func() { rt.Close(ctx) })
	_, err := rt.NewHostModuleBuilder(abi.Module).NewFunctionBuilder().
		WithGoModuleFunction(api.GoModuleFunc(func(_ context.Context, _ api.Module, stack []uint64) {
			stack[0] = 2
		}), []api.ValueType{api.ValueTypeI32}, []api.ValueType{api.ValueTypeI64}).
		Export("ctx_int").Instantiate(ctx)
	if err != nil {
		tb.Fatal(err)
	}
	mod, err := rt.Instantiate(ctx, guest(tb, "wat/noop"))
	if err != nil {
		tb.Fatal(err)
	}
	f := mod.ExportedFunction(abi.ExportExecute)
	var stack [1]uint64
	return func(ctx context.Context) {
		if err := f.CallWithStack(ctx, stack[:]); err != nil || stack[0] != 0 {
			tb.Fatal(err, stack)
		}
	}
}

// BenchmarkItem compares an item of a SIMPLE job in steady state with a bare
// wazero call of the same guest.
func BenchmarkItem(b *testing.B) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	b.Run("bare", func(b *testing.B) {
		call := bareNoop(b)
		b.ReportAllocs()
		defer cpu(b)()
		for b.Loop() {
			call(ctx)
		}
	})
	b.Run("worker", func(b *testing.B) {
		w := newWorker(b, load(b, newRuntime(b, Options{}), guest(b, "wat/noop")), Settings{})
		inv := item(silent{}, "")
		b.ReportAllocs()
		defer cpu(b)()
		for b.Loop() {
			if r := w.Execute(ctx, inv); r.Outcome != abi.OutcomeOK {
				b.Fatal(r)
			}
		}
	})
	b.Run("go", func(b *testing.B) {
		w := newWorker(b, load(b, newRuntime(b, Options{}), goGuest(b, "goguest")), Settings{})
		inv := item(silent{}, "noop")
		b.ReportAllocs()
		defer cpu(b)()
		for b.Loop() {
			if r := w.Execute(ctx, inv); r.Outcome != abi.OutcomeOK {
				b.Fatal(r)
			}
		}
	})
}

// In steady state an item allocates nothing but what wazero's call does.
func TestItemAllocations(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	call := bareNoop(t)
	w := newWorker(t, load(t, newRuntime(t, Options{}), guest(t, "wat/noop")), Settings{})
	inv := item(silent{}, "")
	bare := testing.AllocsPerRun(1000, func() { call(ctx) })
	ours := testing.AllocsPerRun(1000, func() { w.Execute(ctx, inv) })
	if ours > bare {
		t.Errorf("an item allocates %g times, a bare call %g times", ours, bare)
	}
}

// BenchmarkFire1000 is a fire of 1,000 items that do nothing, of a Go guest,
// on two goroutines with a worker each: two instances are made and dropped.
func BenchmarkFire1000(b *testing.B) {
	for _, name := range []string{"go", "c"} {
		b.Run(name, func(b *testing.B) {
			file, parameter := goGuest(b, "goguest"), "noop"
			if name == "c" {
				file, parameter = guest(b, "c/guest"), "ok"
			}
			x, err := load(b, newRuntime(b, Options{}), file).Executor(Settings{Type: wasm.TypeSimple})
			if err != nil {
				b.Fatal(err)
			}
			defer x.Release()
			b.ReportAllocs()
			defer cpu(b)()
			for b.Loop() {
				var next atomic.Int64
				var wg sync.WaitGroup
				for range 2 {
					wg.Go(func() {
						w := worked(b, x)
						defer w.Close()
						ctx, cancel := context.WithCancel(context.Background())
						defer cancel()
						inv := item(silent{}, parameter)
						for {
							i := next.Add(1) - 1
							if i >= 1000 {
								return
							}
							inv.Context.ShardingItem = int(i)
							if r := w.Execute(ctx, inv); r.Outcome != abi.OutcomeOK {
								b.Error(r)
								return
							}
						}
					})
				}
				wg.Wait()
			}
		})
	}
}

// BenchmarkInstance is what an instance costs, from nothing to its end.
func BenchmarkInstance(b *testing.B) {
	for _, name := range []string{"go", "c"} {
		b.Run(name, func(b *testing.B) {
			file, parameter := goGuest(b, "goguest"), "noop"
			if name == "c" {
				file, parameter = guest(b, "c/guest"), "ok"
			}
			w := newWorker(b, load(b, newRuntime(b, Options{}), file), Settings{Type: wasm.TypeSimple, FreshPerItem: true})
			inv := item(silent{}, parameter)
			b.ReportAllocs()
			defer cpu(b)()
			for b.Loop() {
				if r := w.Execute(context.Background(), inv); r.Outcome != abi.OutcomeOK {
					b.Fatal(r)
				}
			}
		})
	}
}

// edition returns a module that differs from the given one in a custom section
// only: another digest, the same code.
func edition(wasm []byte) []byte {
	var random [16]byte
	rand.Read(random[:])
	name := "edition " + hex.EncodeToString(random[:])
	body := append(append(appendU32(nil, uint32(len(name))), name...), 1)
	out := append(append([]byte(nil), wasm...), 0)
	return append(appendU32(out, uint32(len(body))), body...)
}

// reload does what a replaced file costs: load, configure, run an item, drop.
func reload(tb testing.TB, r *Runtime, file []byte, parameter string) {
	m, err := r.Load(context.Background(), "reload.wasm", file, time.Time{})
	if err != nil {
		tb.Fatal(err)
	}
	x, err := m.Executor(Settings{Type: wasm.TypeSimple})
	if err != nil {
		tb.Fatal(err)
	}
	w := worked(tb, x)
	if got := w.Execute(context.Background(), item(silent{}, parameter)); got.Outcome != abi.OutcomeOK {
		tb.Fatal(got)
	}
	if err := w.Close(); err != nil {
		tb.Error(err)
	}
	x.Release()
	m.Close()
}

func BenchmarkReload(b *testing.B) {
	b.Run("c-new", func(b *testing.B) {
		r := newRuntime(b, Options{})
		wasm := guest(b, "c/guest")
		defer cpu(b)()
		for b.Loop() {
			reload(b, r, edition(wasm), "ok")
		}
	})
	b.Run("go-new", func(b *testing.B) {
		r := newRuntime(b, Options{})
		wasm := goGuest(b, "goguest")
		defer cpu(b)()
		for b.Loop() {
			reload(b, r, edition(wasm), "noop")
		}
		b.ReportMetric(float64(len(wasm))/1e6, "MB")
	})
	b.Run("go-cached", func(b *testing.B) {
		r := newRuntime(b, Options{CacheDir: b.TempDir() + "/cache"})
		wasm := goGuest(b, "goguest")
		reload(b, r, wasm, "noop")
		defer cpu(b)()
		for b.Loop() {
			reload(b, r, wasm, "noop")
		}
	})
}

// lateness sleeps a few milliseconds, again and again, until it is asked by how
// much each sleep was too long.
func lateness() func() []time.Duration {
	stop := make(chan struct{})
	late := make(chan []time.Duration)
	go func() {
		const nap = 2 * time.Millisecond
		var list []time.Duration
		for {
			began := time.Now()
			select {
			case <-time.After(nap):
				list = append(list, time.Since(began)-nap)
			case <-stop:
				late <- append(list, 0) // there is always one
				return
			}
		}
	}()
	return func() []time.Duration { close(stop); return <-late }
}

// BenchmarkCold is what a module costs that nobody has seen before, compiled in
// this process or by another one. The two take turns, for a machine with
// neighbours is not the same a minute later; best-ms is what they disturb least.
// late is how long a goroutine that sleeps meanwhile is woken too late, as a
// fire would be.
func BenchmarkCold(b *testing.B) {
	for _, c := range []struct{ name, wasm string }{{"c", "c/guest"}, {"go-2MB", "gosmall"}, {"go-3MB", "goguest"}} {
		b.Run(c.name, func(b *testing.B) {
			wasm, parameter := []byte(nil), "noop"
			if c.name == "c" {
				wasm, parameter = guest(b, c.wasm), "ok"
			} else {
				wasm = goGuest(b, c.wasm)
			}
			ways := []struct {
				name       string
				r          *Runtime
				best, used time.Duration
				late       []time.Duration
			}{
				{name: "here", r: newRuntime(b, Options{CacheDir: filepath.Join(b.TempDir(), "cache")})},
				{name: "child", r: newRuntime(b, Options{CacheDir: filepath.Join(b.TempDir(), "cache"), Compiler: compiler("good")})},
			}
			for b.Loop() {
				for i := range ways {
					w := &ways[i]
					wasm := edition(wasm)
					late := lateness()
					began, used := time.Now(), cpuTime()
					reload(b, w.r, wasm, parameter)
					w.late = append(w.late, late()...)
					if took := time.Since(began); w.best == 0 || took < w.best {
						w.best = took
					}
					w.used += cpuTime() - used
				}
			}
			for _, w := range ways {
				b.ReportMetric(float64(w.best.Microseconds())/1e3, w.name+"-best-ms")
				b.ReportMetric(float64(w.used.Microseconds())/1e3/float64(b.N), w.name+"-cpu-ms")
				slices.Sort(w.late)
				b.ReportMetric(float64(w.late[len(w.late)*99/100].Microseconds())/1e3, w.name+"-late-p99-ms")
			}
			b.ReportMetric(float64(len(wasm))/1e6, "MB")
		})
	}
}

// Replacing modules over and over leaves nothing behind. A short run belongs
// to every test; WASMJOB_RELOADS=10000 makes it a soak, to be read in the log.
func TestReloads(t *testing.T) {
	n := 200
	if raceEnabled {
		n = 20
	}
	if s := os.Getenv("WASMJOB_RELOADS"); s != "" {
		var err error
		if n, err = strconv.Atoi(s); err != nil {
			t.Fatal(err)
		}
	}
	r := newRuntime(t, Options{})
	wasm := guest(t, "c/guest")
	memory := func() (heap, resident int64) {
		runtime.GC() // finds the code unreachable
		runtime.GC() // has had its finalizers run
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		if b, err := os.ReadFile("/proc/self/statm"); err == nil {
			if f := strings.Fields(string(b)); len(f) > 1 {
				resident, _ = strconv.ParseInt(f[1], 10, 64)
			}
		}
		return int64(m.HeapAlloc), resident * int64(os.Getpagesize())
	}
	for range 20 {
		reload(t, r, edition(wasm), "ok")
	}
	heap, resident := memory()
	for i := range n {
		reload(t, r, edition(wasm), "ok")
		if n > 1000 && (i+1)%(n/10) == 0 {
			h, rss := memory()
			t.Logf("%6d reloads: heap %d KiB, resident %d KiB", i+1, h>>10, rss>>10)
		}
	}
	heapAfter, residentAfter := memory()
	t.Logf("%d reloads: heap %d KiB, then %d KiB; resident %d KiB, then %d KiB", n, heap>>10, heapAfter>>10, resident>>10, residentAfter>>10)
	// Each module is some 10 KB of file and 100 KB compiled: 200 of them
	// held back would show.
	if grown := heapAfter - heap; grown > 4<<20 {
		t.Errorf("the heap grew by %d bytes", grown)
	}
	if grown := residentAfter - resident; resident > 0 && grown > 48<<20 {
		t.Errorf("the process grew by %d bytes", grown)
	}
	if len(r.codes) != 0 || len(r.modules) != 0 {
		t.Errorf("%d modules are still held", len(r.codes))
	}
}
