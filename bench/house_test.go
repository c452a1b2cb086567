// Package bench_test measures the whole system in one process: definitions and
// modules in a plugins directory, the catalog, the runtime, the host and the
// embedded registry, put together as the program does.
package bench_test

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/registry/embedded"
	"github.com/wasmjob/wasmjob/host/engine"
	"github.com/wasmjob/wasmjob/host/engine/catalog"
	"github.com/wasmjob/wasmjob/host/event"
	"github.com/wasmjob/wasmjob/host/sandbox/plugin"
	"github.com/wasmjob/wasmjob/host/sandbox/process"
)

// noop is a module whose SIMPLE job does nothing, and the jobParameter that
// makes it do that.
type noop struct {
	name, parameter string
	wasm            []byte
}

// cGuest is some 10 KB of C, without WASI's start-up.
func cGuest(b *testing.B) noop {
	wasm, err := os.ReadFile(filepath.FromSlash("../host/sandbox/plugin/testdata/c/guest.wasm"))
	if err != nil {
		b.Fatal(err)
	}
	return noop{"c", "ok", wasm}
}

// goGuest is a Go job with the SDK, built as the README says, with the flags
// of make examples.
func goGuest(b *testing.B) noop {
	b.Helper()
	out := filepath.Join(b.TempDir(), "noop.wasm")
	cmd := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-buildmode=c-shared", "-o", out, "./testdata/noop")
	cmd.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm", "CGO_ENABLED=0")
	if text, err := cmd.CombinedOutput(); err != nil {
		b.Fatalf("build the guest: %v\n%s", err, text)
	}
	wasm, err := os.ReadFile(out)
	if err != nil {
		b.Fatal(err)
	}
	return noop{"go", "", wasm}
}

// edition returns the Go guest with other data in it: to the compiler, and to
// its cache, it is a module of its own.
func edition(b *testing.B, wasm []byte) []byte {
	at := bytes.Index(wasm, []byte("edition 0000000000000000"))
	if at < 0 {
		b.Fatal("the guest has no place for its edition")
	}
	out := bytes.Clone(wasm)
	var random [8]byte
	rand.Read(random[:])
	hex.Encode(out[at+len("edition "):], random[:])
	return out
}

// Where the registry keeps its nodes.
const (
	memory  = "memory"
	durable = "durable"
)

// house is the system, running.
type house struct {
	b      *testing.B
	dir    string // of plugins
	host   *engine.Host
	server *embedded.Server

	mu  sync.Mutex
	see func(event.Event) // gets every event, in order; nil drops them
}

// open starts the system with what is in the plugins directory and waits until
// all n jobs of it are ready. change changes the host's configuration. It ends with the
// benchmark.
func open(b *testing.B, name, dir string, n int, change ...func(*engine.Config)) *house {
	b.Helper()
	return openKeeping(b, name, dir, n, nil, change...)
}

// openKeeping gives all events to keep as well, unless that is nil.
func openKeeping(b *testing.B, name, dir string, n int, keep func(event.Event), change ...func(*engine.Config)) *house {
	b.Helper()
	o := embedded.Options{}
	if name == durable {
		o.Dir = b.TempDir()
	}
	server, err := embedded.Open(o)
	if err != nil {
		b.Fatal(err)
	}
	rt, err := plugin.NewRuntime(b.Context(), plugin.Options{CacheDir: filepath.Join(b.TempDir(), "cache"), Compiler: func() *exec.Cmd { return itself(compileWord) }})
	if err != nil {
		b.Fatal(err)
	}
	var workers *process.Workers
	if !*inside {
		workers = process.New(process.Options{Runtime: rt, Command: func(label string) *exec.Cmd { return itself(workWord, label) }})
	}
	files, err := catalog.New(catalog.Options{Dir: dir, Runtime: rt, Workers: workers})
	if err != nil {
		b.Fatal(err)
	}
	h := &house{b: b, dir: dir, server: server}
	cfg := engine.Config{
		Dial:      func(ctx context.Context) (registry.Center, error) { return server.Connect(ctx) },
		Namespace: "bench", ServerIP: "10.0.0.1",
		OnEvent: func(e event.Event) {
			if keep != nil {
				keep(e)
			}
			h.mu.Lock()
			defer h.mu.Unlock()
			if h.see != nil {
				h.see(e)
			}
		},
	}
	for _, f := range change {
		f(&cfg)
	}
	h.host, err = engine.New(cfg)
	if err != nil {
		b.Fatal(err)
	}
	ready := make(chan struct{})
	refused := make(chan []engine.Refusal, 1)
	joined := make(map[string]bool)
	h.watch(func(e event.Event) {
		// A job has its items, and can fire, from the first assignment on.
		if e.Kind == event.Assigned && !joined[e.Job] {
			if joined[e.Job] = true; len(joined) == n {
				close(ready)
			}
		}
	})
	ctx, stop := context.WithCancel(context.Background())
	var parts sync.WaitGroup
	parts.Go(func() {
		err := files.Run(ctx, func(jobs []engine.Job, bad []engine.Refusal) {
			if len(bad) > 0 {
				select {
				case refused <- bad:
				default: // once is enough
				}
			}
			h.host.Apply(jobs, bad)
		})
		if err != nil {
			b.Errorf("catalog: %v", err)
		}
	})
	running, leave := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- h.host.Run(running, context.Background()) }()
	b.Cleanup(func() {
		leave()
		if err := <-ended; err != nil {
			b.Errorf("host: %v", err)
		}
		stop()
		parts.Wait()
		if err := server.Close(); err != nil {
			b.Errorf("registry: %v", err)
		}
		if workers != nil {
			workers.Close()
		}
		if err := rt.Close(context.Background()); err != nil {
			b.Errorf("runtime: %v", err)
		}
	})
	timer := time.NewTimer(5 * time.Minute)
	defer timer.Stop()
	select {
	case <-ready:
	case files := <-refused:
		b.Fatalf("refused: %+v", files)
	case <-timer.C:
		b.Fatalf("the %d jobs are not ready after five minutes", n)
	}
	h.watch(nil)
	return h
}

// watch changes who is told the events.
func (h *house) watch(see func(event.Event)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.see = see
}

// sleepUntil waits for an instant.
func sleepUntil(t time.Time) { time.Sleep(time.Until(t)) }

// put writes a file of the plugins directory as an operator should: beside,
// then renamed.
func put(b *testing.B, dir, name string, data []byte) {
	b.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path+".tmp", data, 0o600); err != nil {
		b.Fatal(err)
	}
	if err := os.Rename(path+".tmp", path); err != nil {
		b.Fatal(err)
	}
}

// define writes the guest and the definition of a job of it.
func define(b *testing.B, dir, job string, g noop, cron string, items int) {
	b.Helper()
	put(b, dir, g.name+".wasm", g.wasm)
	put(b, dir, job+".yaml", definition(job, g, cron, items))
}

func definition(job string, g noop, cron string, items int) []byte {
	text := fmt.Sprintf("jobName: %s\ntype: SIMPLE\nmodule: %s.wasm\nshardingTotalCount: %d\n", job, g.name, items)
	if cron != "" {
		text += fmt.Sprintf("cron: %q\n", cron)
	}
	if g.parameter != "" {
		text += fmt.Sprintf("jobParameter: %s\n", g.parameter)
	}
	return []byte(text)
}

// spread is a sample of durations.
type spread []time.Duration

// at is the duration that the given share of the sample does not exceed.
func (s spread) at(share float64) time.Duration {
	if len(s) == 0 {
		return 0
	}
	slices.Sort(s)
	return s[min(int(share*float64(len(s))), len(s)-1)]
}

// report adds the sample's figures to the benchmark's, in milliseconds.
func (s spread) report(b *testing.B, name string) {
	for _, q := range []struct {
		name  string
		share float64
	}{{"p50", 0.5}, {"p99", 0.99}, {"max", 1}} {
		b.ReportMetric(milliseconds(s.at(q.share)), cmp.Or(name, "lag")+"-"+q.name+"-ms")
	}
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// went complains of an event that has no place in an undisturbed run.
func (h *house) went(e event.Event) {
	switch {
	case e.Kind == event.ItemEnded && e.Outcome != abi.OutcomeOK:
		h.b.Errorf("item %s: %s %s", e.RunID, e.Outcome, e.Reason)
	case e.Kind == event.JobError:
		h.b.Errorf("job %s: %s", e.Job, e.Reason)
	}
}
