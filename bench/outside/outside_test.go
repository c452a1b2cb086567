// Package outside_test measures what guests do outside, in the host and in a process of their own:
// queries of a real PostgreSQL beside native ones, and what an item, and its start, cost with what
// is granted to it.
package outside_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/bench/outside/selects"
	"github.com/wasmjob/wasmjob/host/config/grants"
	"github.com/wasmjob/wasmjob/host/sandbox/capability/dir"
	"github.com/wasmjob/wasmjob/host/sandbox/capability/offer"
	"github.com/wasmjob/wasmjob/host/sandbox/plugin"
	"github.com/wasmjob/wasmjob/host/sandbox/process"
	"github.com/wasmjob/wasmjob/host/sandbox/wasm"
	"github.com/wasmjob/wasmjob/test/pgserver"
)

// The test binary is also the programs that it starts.
const (
	workWord    = "work-for-benchmarks"
	compileWord = "compile-for-benchmarks"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && (os.Args[1] == workWord || os.Args[1] == compileWord) {
		serve := process.Serve
		if os.Args[1] == compileWord {
			serve = plugin.ServeCompile
		}
		if err := serve(os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func command(word string) *exec.Cmd { return exec.Command(os.Args[0], word) }

// quiet is the host of an item: it notes the newest metric.
type quiet struct{ metric int64 }

func (*quiet) Log(int, string, []string)                      {}
func (*quiet) LogEnabled(int) bool                            { return false }
func (*quiet) Progress(int64, int64)                          {}
func (q *quiet) Metric(_ int, _ string, value int64) abi.Code { q.metric = value; return abi.OK }
func (*quiet) CommitOffset(context.Context, []byte) abi.Code  { return abi.OK }
func (*quiet) StageOffset(context.Context, []byte) abi.Code   { return abi.OK }
func (*quiet) Pause(context.Context)                          {}
func (*quiet) Cancelled() abi.Cancel                          { return abi.CancelNone }

// stage has a guest, with a grant, in the host and in processes of their own.
type stage struct {
	b        *testing.B
	grant    grants.Grant
	settings plugin.Settings
	here     *plugin.Module
	apart    *process.Module
	runtime  *plugin.Runtime
}

func newStage(b *testing.B, name string, grant grants.Grant) *stage {
	b.Helper()
	out := filepath.Join(b.TempDir(), name+".wasm")
	build := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-buildmode=c-shared", "-o", out, "./testdata/"+name)
	build.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm")
	if text, err := build.CombinedOutput(); err != nil {
		b.Fatalf("%v: %s", err, text)
	}
	code, err := os.ReadFile(out)
	if err != nil {
		b.Fatal(err)
	}
	ctx := context.Background()
	rt, err := plugin.NewRuntime(ctx, plugin.Options{CacheDir: filepath.Join(b.TempDir(), "cache"), Compiler: func() *exec.Cmd { return command(compileWord) }})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { rt.Close(ctx) })
	m, err := rt.Load(ctx, name+".wasm", code, time.Time{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(m.Close)
	w := process.New(process.Options{Runtime: rt, Command: func(string) *exec.Cmd { return command(workWord) }})
	b.Cleanup(w.Close)
	// What is not granted is refused call by call, so that one module serves all benchmarks.
	s := plugin.Settings{JobName: "bench", Type: wasm.TypeSimple, Granted: []string{abi.ModuleIO, abi.ModuleHTTP, abi.ModuleNet, abi.ModuleKV, abi.ModuleEnv}}
	return &stage{b: b, grant: grant, settings: offer.Settings(s, &grant), here: m, apart: w.Module(m), runtime: rt}
}

// executor makes one, of the kind that is wanted.
func (s *stage) executor(b *testing.B, apart bool) abi.Executor {
	b.Helper()
	var x abi.Executor
	var err error
	if apart {
		x, err = s.apart.Executor(b.Context(), s.settings, "guests")
	} else {
		x, err = s.here.Executor(s.settings)
	}
	if err != nil {
		b.Fatal(err)
	}
	return offer.Wrap(x, &s.grant, "", dir.NewQuotas())
}

// worker makes one that ends with the benchmark.
func (s *stage) worker(b *testing.B, apart bool) abi.Worker {
	b.Helper()
	x := s.executor(b, apart)
	b.Cleanup(x.Release)
	w, err := x.NewWorker(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { w.Close() })
	return w
}

// run runs an item, and returns its metric.
func run(b *testing.B, w abi.Worker, job, item string) int64 {
	b.Helper()
	host := &quiet{}
	inv := &abi.Invocation{Host: host}
	inv.Context.JobName, inv.Context.RunID = "bench", "bench/1/0"
	inv.Context.JobParameter = job
	inv.Context.ShardingParameter, inv.Context.HasShardingParameter = item, true
	if r := w.Execute(b.Context(), inv); r.Outcome != abi.OutcomeOK {
		b.Fatalf("%s: %s", r.Outcome, r.Message)
	}
	return host.metric
}

// kinds are where guests run.
var kinds = map[string]bool{"in the host": false, "in a process": true}

func median(times []float64) float64 { return slices.Sorted(slices.Values(times))[len(times)/2] }

// tenth is what a tenth of the turns are faster than: those that were disturbed least.
func tenth(times []float64) float64 { return slices.Sorted(slices.Values(times))[len(times)/10] }

// far is a server behind a network: what it answers comes later by the delay. It returns its address.
func far(b *testing.B, server string, delay time.Duration) netip.AddrPort {
	b.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { l.Close() })
	go func() { // it and what it starts end with the listener and the clients
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			up, err := net.Dial("tcp", server)
			if err != nil {
				client.Close()
				continue
			}
			go func() {
				_, _ = io.Copy(up, client)
				up.Close()
			}()
			go func() {
				defer client.Close()
				buf := make([]byte, 32<<10)
				for {
					n, err := up.Read(buf)
					if err != nil {
						return
					}
					time.Sleep(delay)
					if _, err := client.Write(buf[:n]); err != nil {
						return
					}
				}
			}()
		}
	}()
	return netip.MustParseAddrPort(l.Addr().String())
}

// BenchmarkSelect makes queries natively and in a guest in turns, so that what else the machine
// does meets both: of a server on this machine, and of one behind a network.
func BenchmarkSelect(b *testing.B) {
	server := pgserver.ForTest(b)
	local := netip.MustParseAddrPort(fmt.Sprint("127.0.0.1:", server.Port))
	const n = 50 // a turn is short, so that some are not disturbed
	for _, delay := range []time.Duration{0, 200 * time.Microsecond} {
		at := local
		if delay > 0 {
			at = far(b, local.String(), delay)
		}
		s := newStage(b, "database", grants.Grant{Net: []grants.Net{{Scheme: "tcp", Host: at.Addr().String(), Port: at.Port(), Private: true}}})
		url := fmt.Sprintf("postgres://%s:%s@%s/%s?sslmode=disable", pgserver.User, server.Password, at, pgserver.Database)
		config, err := pgx.ParseConfig(url)
		if err != nil {
			b.Fatal(err)
		}
		for name, apart := range kinds {
			b.Run(fmt.Sprintf("%s away %s", delay, name), func(b *testing.B) {
				w := s.worker(b, apart)
				run(b, w, url, "1")
				var native, guest, ratios []float64
				for b.Loop() {
					took, err := selects.Run(b.Context(), config, n)
					if err != nil {
						b.Fatal(err)
					}
					native = append(native, float64(took.Nanoseconds())/n/1e3)
					guest = append(guest, float64(run(b, w, url, fmt.Sprint(n)))/n/1e3)
					ratios = append(ratios, guest[len(guest)-1]/native[len(native)-1])
				}
				b.ReportMetric(0, "ns/op")
				b.ReportMetric(tenth(native), "native-µs")
				b.ReportMetric(tenth(guest), "guest-µs")
				b.ReportMetric(tenth(guest)/tenth(native), "guest/native")
				b.ReportMetric(median(ratios), "median-guest/native")
			})
		}
	}
}

// withAll grants what the guest item does.
func withAll(b *testing.B) (*stage, string) {
	body := make([]byte, 1024)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(body) }))
	b.Cleanup(server.Close)
	at := netip.MustParseAddrPort(server.Listener.Addr().String())
	return newStage(b, "item", grants.Grant{
		HTTP: []grants.HTTP{{Scheme: "http", Host: at.Addr().String(), Port: at.Port(), Path: "/", Private: true}},
		Dirs: []grants.Dir{{Host: b.TempDir(), Guest: "/out", Write: true, Bytes: 1 << 20, Files: 10}}, KV: true,
	}), server.URL + "/"
}

// BenchmarkItem runs items of a guest that is kept, each of which does one thing outside.
func BenchmarkItem(b *testing.B) {
	s, url := withAll(b)
	for _, what := range []string{"nothing", "state", "file", "request"} {
		for name, apart := range kinds {
			b.Run(what+" "+name, func(b *testing.B) {
				w := s.worker(b, apart)
				run(b, w, url, what)
				for b.Loop() {
					run(b, w, url, what)
				}
			})
		}
	}
}

// BenchmarkStart runs fires of one item: a worker, a guest made for it, and the item, which makes a
// request; in a process that is kept, and in one that is started for the fire.
func BenchmarkStart(b *testing.B) {
	s, url := withAll(b)
	fire := func(b *testing.B, x abi.Executor) {
		w, err := x.NewWorker(b.Context())
		if err != nil {
			b.Fatal(err)
		}
		run(b, w, url, "request")
		if err := w.Close(); err != nil {
			b.Fatal(err)
		}
	}
	for name, apart := range kinds {
		b.Run(name, func(b *testing.B) {
			x := s.executor(b, apart)
			b.Cleanup(x.Release)
			fire(b, x)
			for b.Loop() {
				fire(b, x)
			}
		})
	}
	b.Run("a process for each", func(b *testing.B) {
		x := s.executor(b, true)
		fire(b, x)
		x.Release()
		for b.Loop() {
			x := s.executor(b, true)
			fire(b, x)
			x.Release()
		}
	})
}
