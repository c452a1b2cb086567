// Package extism_test compares a call of a warm guest, and a request that a guest
// sends, with Extism's Go SDK, which runs guests on wazero, too. Both guests are in C and do the
// same (testdata).
package extism_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	extism "github.com/extism/go-sdk"
	"github.com/tetratelabs/wazero"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/config/grants"
	"github.com/wasmjob/wasmjob/host/sandbox/capability/dir"
	"github.com/wasmjob/wasmjob/host/sandbox/capability/offer"
	"github.com/wasmjob/wasmjob/host/sandbox/plugin"
)

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

// ours calls a warm guest of ours.
func ours(tb testing.TB, grant grants.Grant) func(parameter, want string) {
	ctx := context.Background()
	wasm, err := os.ReadFile("testdata/ours.wasm")
	if err != nil {
		tb.Fatal(err)
	}
	rt, err := plugin.NewRuntime(ctx, plugin.Options{})
	if err != nil {
		tb.Fatal(err)
	}
	m, err := rt.Load(ctx, "ours.wasm", wasm, time.Time{})
	if err != nil {
		tb.Fatal(err)
	}
	x, err := m.Executor(offer.Settings(plugin.Settings{JobName: "bench", Granted: []string{abi.ModuleIO, abi.ModuleHTTP}}, &grant))
	if err != nil {
		tb.Fatal(err)
	}
	x = offer.Wrap(x, &grant, "", dir.NewQuotas())
	w, err := x.NewWorker(ctx)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := w.Close(); err != nil {
			tb.Error(err)
		}
		x.Release()
		m.Close()
		if err := rt.Close(ctx); err != nil {
			tb.Error(err)
		}
	})
	return func(parameter, want string) {
		inv := &abi.Invocation{Host: silent{}}
		inv.Context.ShardingParameter, inv.Context.HasShardingParameter = parameter, true
		if r := w.Execute(ctx, inv); r.Outcome != abi.OutcomeOK || string(r.Offset) != want {
			tb.Fatalf("%+v", r)
		}
	}
}

// theirs calls a warm guest of Extism's. Like ours it can be interrupted.
func theirs(tb testing.TB, function string) func(input, want string) {
	ctx := context.Background()
	p, err := extism.NewPlugin(ctx, extism.Manifest{Wasm: []extism.Wasm{extism.WasmFile{Path: "testdata/theirs.wasm"}}, AllowedHosts: []string{"127.0.0.1"}},
		extism.PluginConfig{RuntimeConfig: wazero.NewRuntimeConfig().WithCloseOnContextDone(true)}, nil)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { p.Close(ctx) })
	return func(input, want string) {
		code, out, err := p.Call(function, []byte(input))
		if err != nil || code != 0 || string(out) != want {
			tb.Fatalf("%d %q %v", code, out, err)
		}
	}
}

// both runs two things in turns, so that what else the machine does meets both, and
// reports how much longer the second takes.
func both(b *testing.B, first, second func()) {
	var a, c time.Duration
	for b.Loop() {
		began := time.Now()
		first()
		half := time.Now()
		second()
		a, c = a+half.Sub(began), c+time.Since(half)
	}
	n := float64(b.N)
	b.ReportMetric(float64(a)/n, "ours-ns/op")
	b.ReportMetric(float64(c)/n, "extism-ns/op")
	b.ReportMetric(float64(c)/float64(a), "x")
}

func BenchmarkWarmCall(b *testing.B) {
	for _, size := range []int{64, 1024} {
		b.Run(strconv.Itoa(size), func(b *testing.B) {
			text := strings.Repeat("x", size)
			mine, other := ours(b, grants.Grant{}), theirs(b, "run")
			both(b, func() { mine(text, text) }, func() { other(text, text) })
		})
	}
}

func BenchmarkRequest(b *testing.B) {
	body := []byte(strings.Repeat("x", 1024))
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(body) }))
	defer s.Close()
	port, err := strconv.ParseUint(s.URL[strings.LastIndex(s.URL, ":")+1:], 10, 16)
	if err != nil {
		b.Fatal(err)
	}
	mine := ours(b, grants.Grant{HTTP: []grants.HTTP{{Scheme: "http", Host: "127.0.0.1", Port: uint16(port), Path: "/", Private: true}}})
	other := theirs(b, "fetch")
	both(b, func() { mine("@GET\n"+s.URL+"/\n", "200") }, func() { other(`{"method":"GET","url":"`+s.URL+`/","headers":{}}`, "200") })
}
