package bench_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/host/engine"
	"github.com/wasmjob/wasmjob/host/event"
	"github.com/wasmjob/wasmjob/host/observe/trace"
)

// BenchmarkTraces is BenchmarkFire without traces, with traces of no fire, of all fires, and
// of all fires with a collector that is not there.
func BenchmarkTraces(b *testing.B) {
	asTheProgram(b)
	g := cGuest(b)
	taker := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // who sends may be gone
	}))
	b.Cleanup(taker.Close)
	for _, items := range []int{1, 100} {
		for _, c := range []struct {
			name, endpoint string
			ratio          float64
		}{{"off", "", 0}, {"none", taker.URL, 0}, {"all", taker.URL, 1}, {"dead", "http://127.0.0.1:1", 1}} {
			b.Run(fmt.Sprintf("items=%d/traces=%s", items, c.name), func(b *testing.B) {
				if c.endpoint == "" {
					fires(b, g, items, memory)
					return
				}
				t, err := trace.Open(b.Context(), trace.Options{Settings: trace.Settings{Endpoint: c.endpoint + "/v1/traces", Timeout: 10 * time.Second}, Ratio: c.ratio, Namespace: "bench"})
				if err != nil {
					b.Fatal(err)
				}
				defer t.Close() // its error is that of the dead collector
				fires(b, g, items, memory, func(cfg *engine.Config) {
					see := cfg.OnEvent
					cfg.OnEvent = func(e event.Event) {
						t.Observe(e)
						see(e)
					}
					cfg.Traceparent, cfg.OnCall = t.Traceparent, t.Called
				})
			})
		}
	}
}
