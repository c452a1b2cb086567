//go:build !wasip1

package sdktest

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tetratelabs/wazero/api"

	"github.com/wasmjob/wasmjob/abi"
	outsideguest "github.com/wasmjob/wasmjob/sdk/testdata/guests/outside/handler"
)

// world makes a host that grants what the guest outside does.
func world(behaviour string) *Host {
	h := &Host{
		Context: Context{JobName: "outside", JobParameter: behaviour, FireTime: time.UnixMilli(1767225600123), PluginConfig: []byte(strings.Repeat("c", 300))},
		KV:      map[string][]byte{}, Env: map[string]string{"REGION": "eu-1"}, Secrets: map[string]string{"TOKEN": "s3cret"},
	}
	h.AllowHTTP(outsideguest.API, server())
	h.AllowHTTPTrip(outsideguest.API+"/broken", brokenTrip{})
	for _, scheme := range []string{"tcp://", "tls://"} {
		h.AllowNet(scheme+outsideguest.Echo, echo)
	}
	return h
}

type brokenTrip struct{}

func (brokenTrip) RoundTrip(*http.Request) (*http.Response, error) {
	return nil, errors.New("connection refused")
}

func server() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/hello", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/plain")
		fmt.Fprintf(w, "%s %s %s", r.Method, r.Host, r.URL)
	})
	mux.HandleFunc("/echo", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", r.Header.Get("Content-Type"))
		fmt.Fprintf(w, "%d ", r.ContentLength)
		io.Copy(w, r.Body)
	})
	mux.HandleFunc("/head", func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusTeapot)
		for _, name := range sorted(r.Header) {
			fmt.Fprintln(w, name, r.Header[name])
		}
	})
	mux.HandleFunc("/redirect/{n}", func(w http.ResponseWriter, r *http.Request) {
		n, _ := strconv.Atoi(r.PathValue("n"))
		if n == 0 {
			fmt.Fprint(w, "arrived")
			return
		}
		http.Redirect(w, r, strconv.Itoa(n-1), http.StatusFound)
	})
	mux.Handle("/away", http.RedirectHandler("https://elsewhere.example.com/", http.StatusFound))
	mux.Handle("/again", http.RedirectHandler("/echo", http.StatusTemporaryRedirect))
	mux.HandleFunc("/slow", func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-time.After(200 * time.Millisecond):
		case <-r.Context().Done():
		}
	})
	mux.HandleFunc("/hang", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	mux.HandleFunc("/endless", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, "x")
		<-r.Context().Done()
	})
	mux.HandleFunc("/lines", func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusOK)
		line := make([]byte, 5)
		for {
			if _, err := io.ReadFull(r.Body, line); err != nil {
				return
			}
			w.Write(line)
		}
	})
	return mux
}

// echo connects to a server that sends back what it gets.
func echo() (net.Conn, error) {
	here, there := newWire(), newWire()
	far := wireConn{in: here, out: there}
	go func() {
		io.Copy(far, far)
		far.CloseWrite()
	}()
	return wireConn{in: there, out: here}, nil
}

// wireConn is a connection that can be closed on one side, unlike net.Pipe's.
type wireConn struct {
	net.Conn
	in, out wire
}

type wire struct {
	*io.PipeReader
	w *io.PipeWriter
}

func newWire() wire {
	r, w := io.Pipe()
	return wire{r, w}
}

func (c wireConn) Read(p []byte) (int, error)  { return c.in.Read(p) }
func (c wireConn) Write(p []byte) (int, error) { return c.out.w.Write(p) }
func (c wireConn) CloseWrite() error           { return c.out.w.Close() }
func (c wireConn) Close() error {
	c.in.CloseWithError(io.EOF)
	return c.out.w.Close()
}

// outcomes are the behaviours of the guest outside, and how they end.
var outcomes = map[string]abi.Outcome{
	"get": abi.OutcomeOK, "post": abi.OutcomeOK, "head": abi.OutcomeOK, "redirect": abi.OutcomeOK, "stream": abi.OutcomeOK,
	"timeout": abi.OutcomeOK, "early": abi.OutcomeOK, "dial": abi.OutcomeOK, "turns": abi.OutcomeOK, "kv": abi.OutcomeOK,
	"refused": abi.OutcomeFail, "readers": abi.OutcomeFail, "deadline": abi.OutcomeFail, "full": abi.OutcomeFail, "env": abi.OutcomeFail,
	"cancelled": abi.OutcomeCancelled,
}

func prepare(behaviour string) *Host {
	h := world(behaviour)
	if behaviour == "cancelled" {
		h.AllowHTTP(outsideguest.API+"/hang", http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			h.Cancel(abi.CancelStop)
			<-r.Context().Done()
		}))
	}
	return h
}

// TestAnswerBeforeTheBody: a response can be read though its request's body is closed
// meanwhile. 300 times, since the body's goroutine may see that at any point.
func TestAnswerBeforeTheBody(t *testing.T) {
	t.Parallel()
	for range 300 {
		if got := prepare("early").Run(outsideguest.Outside); got.Outcome != abi.OutcomeOK {
			t.Fatalf("%s %s", got.Outcome, got.Message)
		}
	}
}

// TestOutside runs each behaviour natively and compiled, on equal hosts, and compares
// what they saw.
func TestOutside(t *testing.T) {
	t.Parallel()
	var current *Host
	var stderr strings.Builder
	rt := guest(t, "outside").load(t, &current)
	g := rt.instance(t, &stderr)
	for behaviour, outcome := range outcomes {
		native := prepare(behaviour)
		want := native.Run(outsideguest.Outside)
		if want.Outcome != outcome {
			t.Errorf("%s natively: %s %s, want %s", behaviour, want.Outcome, want.Message, outcome)
		}
		current = prepare(behaviour)
		current.begin()
		got := current.item(export(t, g, abi.ExportExecute))
		if a, b := told(current, got), told(native, want); a != b {
			t.Errorf("%s compiled:\n%s\nnatively:\n%s", behaviour, a, b)
		}
		if !maps.EqualFunc(current.KV, native.KV, func(a, b []byte) bool { return string(a) == string(b) }) {
			t.Errorf("%s: state compiled %q, natively %q", behaviour, current.KV, native.KV)
		}
	}
	if stderr.Len() > 0 {
		t.Errorf("stderr: %s", stderr.String())
	}
	t.Run("goroutines run on", func(t *testing.T) { goroutinesRunOn(t, &current, g) })
}

// TestTimersOfOneGoroutine: a timer fires though the only goroutine waits often, and never long.
func TestTimersOfOneGoroutine(t *testing.T) {
	t.Parallel()
	var h *Host
	g := guest(t, "outside").load(t, &h).instance(t, t.Output())
	h = prepare("turns")
	h.begin()
	if r := h.item(export(t, g, abi.ExportExecute)); r.Outcome != abi.OutcomeOK {
		t.Errorf("%s %s", r.Outcome, r.Message)
	}
}

// goroutinesRunOn: 50 requests that are answered after 200 ms each end in less than 400
// ms, and timers fire in the meantime. A machine that is busy has several tries, and
// more time with the race detector: one after the other they would take 10 s.
func goroutinesRunOn(t *testing.T, current **Host, g api.Module) {
	limit := int64(400)
	if raceDetector {
		limit = 5000
	}
	for behaviour, good := range map[string]func(n int64) bool{
		"fifty":  func(ms int64) bool { return ms >= 200 && ms < limit },
		"timers": func(ticks int64) bool { return ticks >= 6 },
	} {
		var seen []int64
		for len(seen) < 20 && !slices.ContainsFunc(seen, good) {
			*current = prepare(behaviour)
			(*current).begin()
			r := (*current).item(export(t, g, abi.ExportExecute))
			if r.Outcome != abi.OutcomeOK || len((*current).Metrics()) != 1 {
				t.Fatalf("%s: %s %s", behaviour, r.Outcome, r.Message)
			}
			seen = append(seen, (*current).Metrics()[0].Value)
		}
		t.Logf("%s: %d", behaviour, seen)
		if !slices.ContainsFunc(seen, good) {
			t.Errorf("%s: %d", behaviour, seen)
		}
	}
}
