package e2e_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/event"
)

// callersGuest is testdata/callers, compiled.
func callersGuest(t *testing.T) []byte {
	t.Helper()
	return read(t, made(t, "callers.wasm", func(ctx context.Context, path string) error {
		return command(ctx, []string{"GOOS=wasip1", "GOARCH=wasm", "CGO_ENABLED=0"}, "go", "build", "-trimpath", "-ldflags", "-s -w",
			"-buildmode=c-shared", "-o", path, "./test/e2e/testdata/callers")
	}))
}

// places are where guests run, with lines for the definition: in the host's process, if it has
// --in-process, in a worker process that jobs share, and in one of the job's own.
func places() map[string][]string {
	return map[string][]string{"host": {"isolation: host"}, "shared": nil, "process": {"isolation: process"}}
}

// atEachPlace runs a test with guests at each of the places.
func atEachPlace(t *testing.T, test func(t *testing.T, lines []string)) {
	for name, lines := range places() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, lines)
		})
	}
}

// TestListenersAndAttempts: listeners do what their job is granted, all but state; an attempt that is
// tried again within the fire leaves of its state and offset what it has committed.
func TestListenersAndAttempts(t *testing.T) {
	t.Parallel()
	atEachPlace(t, func(t *testing.T, lines []string) {
		p := newPlace(t)
		var mu sync.Mutex
		came := map[string]string{}
		server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			mu.Lock()
			defer mu.Unlock()
			came[r.URL.Path] += fmt.Sprintf("%s %s;", r.Header.Get("Authorization"), body)
		}))
		t.Cleanup(server.Close)
		if err := os.Mkdir(p.path("out"), 0o755); err != nil {
			t.Fatal(err)
		}
		p.put("open", []byte("0pen-secret"))
		p.put("closed", []byte("cl0sed-secret"))
		p.put("grants.yaml", []byte(fmt.Sprintf("grants:\n  - jobs: callers\n    http: [{url: '%s/', methods: [POST], private: true, secrets: [CLOSED]}]\n"+
			"    net: ['tcp://db.example.com:5432']\n    dirs: [{host: out, guest: /out, write: true}]\n    kv: true\n    env: {ZONE: Berlin}\n"+
			"    secrets: {OPEN: {file: open, readable: true}, CLOSED: {file: closed}}\n", server.URL)))
		p.drop("callers.wasm", callersGuest(t))
		p.define("callers", append(slices.Clone(lines), "shardingTotalCount: 1", "jobParameter: "+server.URL+"/", "retry: {attempts: 2, backoff: 10ms}")...)
		h := p.start("--grants", p.path("grants.yaml"), "--in-process", "*")
		h.of("callers", 0, owned())
		p.must("job", "run", "callers")
		fired := h.of("callers", 0, kind(event.FireEnded))
		if fired.Outcome != abi.OutcomeOK {
			t.Fatalf("the fire: %+v", fired.Event)
		}

		listeners := []string{"after", "after-once", "before", "before-once"}
		mu.Lock()
		if got := slices.Sorted(maps.Keys(came)); len(got) != len(listeners) {
			t.Errorf("requests of %q", got)
		}
		for _, name := range listeners {
			if got := came["/"+name]; got != "cl0sed-secret 0pen-secret;" {
				t.Errorf("%s has sent %q", name, got)
			}
			if zone := read(t, p.path("out", name)); string(zone) != "Berlin" {
				t.Errorf("%s has written %q", name, zone)
			}
		}
		mu.Unlock()
		events := h.all("callers", 0, kind(event.Listener), outcome(abi.OutcomeOK))
		if len(events) != len(listeners) {
			t.Errorf("%d listeners have ended well: %+v", len(events), h.all("callers", 0, kind(event.Listener)))
		}
		for _, e := range events {
			if e.Outside["http"].Calls != 1 || e.Outside["env"].Calls != 2 || e.Outside["dir"].Sent != int64(len("Berlin")) || e.Outside["kv"].Calls != 0 {
				t.Errorf("the listener's event says %+v", e.Outside)
			}
		}

		h.line(0, "attempt 2: committed 1, staged false, offset one")
		if k := kept(t, p.must("job", "kv", "callers", "--item", "0", "--json")); len(k.Values) != 2 || k.Values["committed"] != "1" || k.Values["attempts"] != "2" || *k.Offset != "one" {
			t.Errorf("the item keeps %+v", k)
		}
		if n := len(h.all("callers", 0, kind(event.ItemEnded), outcome(abi.OutcomeRetry))); n != 1 {
			t.Errorf("%d attempts are to be tried again", n)
		}
		h.stop()
	})
}

// peer is a server to which a guest holds connections.
type peer struct {
	t     *testing.T
	conns chan net.Conn
	at    string
}

func newPeer(t *testing.T) *peer {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &peer{t, make(chan net.Conn, 10), l.Addr().String()}
	over := make(chan struct{})
	go func() {
		defer close(over)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			p.conns <- c
		}
	}()
	t.Cleanup(func() {
		l.Close()
		<-over
	})
	return p
}

// accept is the next connection.
func (p *peer) accept() net.Conn {
	p.t.Helper()
	select {
	case c := <-p.conns:
		p.t.Cleanup(func() { c.Close() })
		return c
	case <-p.t.Context().Done():
		p.t.Fatal("no connection")
		return nil
	}
}

// TestConnectionsOfATakenGrant: a run keeps its connections, and makes others, when the grant is
// taken away; they end with the run, and the next one gets none.
func TestConnectionsOfATakenGrant(t *testing.T) {
	t.Parallel()
	atEachPlace(t, func(t *testing.T, lines []string) {
		p, peer := newPlace(t), newPeer(t)
		grant := func(net string) {
			p.put("grants.yaml", []byte("grants: [{jobs: callers, kv: true, env: {A: b}, http: ['https://example.com/'], net: ["+net+"]}]\n"))
		}
		granted := "{to: 'tcp://" + peer.at + "', private: true}"
		grant(granted)
		p.drop("callers.wasm", callersGuest(t))
		p.define("callers", append(slices.Clone(lines), "shardingTotalCount: 1", "jobParameter: tcp://"+peer.at)...)
		h := p.start("--grants", p.path("grants.yaml"), "--in-process", "*")
		h.of("callers", 0, owned())
		p.must("job", "run", "callers")
		conn := peer.accept()
		answers := bufio.NewReader(conn)
		says := func(line, want string) {
			t.Helper()
			if _, err := fmt.Fprintln(conn, line); err != nil {
				t.Fatal(err)
			}
			if got, err := answers.ReadString('\n'); err != nil || strings.TrimSpace(got) != want {
				t.Errorf("%s is answered with %q, %v", line, got, err)
			}
		}
		says("before", "before")
		logged := h.logMark()
		grant("'tcp://other.example.com:1'")
		h.line(logged, "other grants are in force")
		says("after", "after")
		says("dial", "dialled: <nil>")
		other := peer.accept()
		from := h.mark()
		says("end", "end")
		h.of("callers", from, kind(event.FireEnded), outcome(abi.OutcomeOK))
		for _, c := range []net.Conn{conn, other} {
			if n, err := io.Copy(io.Discard, c); n != 0 {
				t.Errorf("%d bytes after the end of the run, %v", n, err)
			}
		}

		from = h.mark()
		p.must("job", "run", "callers")
		ended := h.of("callers", from, kind(event.ItemEnded))
		if want := "net: tcp://" + peer.at + ` is not granted to job "callers": grants.yaml:1 has tcp://other.example.com:1`; ended.Outcome != abi.OutcomeFail || !strings.Contains(ended.Reason, want) {
			t.Errorf("without the grant: %s, %s", ended.Outcome, ended.Reason)
		}
		if n := len(peer.conns); n != 0 {
			t.Errorf("%d connections without the grant", n)
		}

		logged = h.logMark()
		grant(granted)
		h.line(logged, "other grants are in force")
		p.must("job", "run", "callers")
		conn = peer.accept()
		answers = bufio.NewReader(conn)
		says("end", "end")
		h.stop()
	})
}
