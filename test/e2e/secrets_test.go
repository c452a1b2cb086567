package e2e_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/wasmjob/wasmjob/host/event"
)

// TestSecretSentBack: a server answers each request of a guest twice, with the request's secret in
// both answers. Neither the log, not even for debugging, nor the history has it.
func TestSecretSentBack(t *testing.T) {
	t.Parallel()
	const secret = "cl0sed-secret"
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan struct{})
	broken := make(chan string, 100) // a connection that the host closed, because of the second answer
	go func() {
		defer close(served)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			r, err := http.ReadRequest(bufio.NewReader(c))
			if err == nil {
				_, err = io.Copy(io.Discard, r.Body)
			}
			if err == nil {
				const answer = "HTTP/1.1 200 %s\r\nX: %s\r\nContent-Length: 0\r\n\r\n"
				value := r.Header.Get("Authorization")
				fmt.Fprintf(c, answer+answer, value, value, value, value)
				_, _ = io.Copy(io.Discard, c) // until the host closes it
				broken <- value
			}
			_ = c.Close()
		}
	}()
	t.Cleanup(func() {
		if err := l.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
			t.Error(err)
		}
		<-served
	})
	p := newPlace(t)
	if err := os.Mkdir(p.path("out"), 0o755); err != nil {
		t.Fatal(err)
	}
	p.put("open", []byte("0pen-word"))
	p.put("closed", []byte(secret))
	p.put("grants.yaml", []byte(fmt.Sprintf("grants:\n  - jobs: callers\n    http: [{url: 'http://%s/', methods: [POST], private: true, secrets: [CLOSED]}]\n"+
		"    net: ['tcp://db.example.com:5432']\n    dirs: [{host: out, guest: /out, write: true}]\n    kv: true\n    env: {ZONE: Berlin}\n"+
		"    secrets: {OPEN: {file: open, readable: true}, CLOSED: {file: closed}}\n", l.Addr())))
	p.drop("callers.wasm", callersGuest(t))
	p.define("callers", "shardingTotalCount: 1", "jobParameter: http://"+l.Addr().String()+"/", "retry: {attempts: 2, backoff: 10ms}")
	h := p.start("--grants", p.path("grants.yaml"), "--log-level", "debug")
	h.of("callers", 0, owned())
	p.must("job", "run", "callers")
	h.of("callers", 0, kind(event.FireEnded))
	if got := <-broken; got != secret {
		t.Fatalf("the request had %q", got)
	}
	h.stop()
	h.tell(func() {
		for _, line := range append(h.strange, string(read(t, h.history))) {
			if strings.Contains(line, secret) || strings.Contains(line, "Unsolicited") {
				t.Errorf("%.2000q", line)
			}
		}
		for _, line := range h.lines {
			if strings.Contains(line.raw, secret) {
				t.Errorf("the log has %s", line.raw)
			}
		}
	})
}

// TestNoSecretIsInTheRegistry: whatever a host is told, and whatever it writes.
func TestNoSecretIsInTheRegistry(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.job("tick", everySecond, "shardingTotalCount: 1")
	c.ns = "guarded" // what is above it is made with the credentials, too
	const credentials = "owner:very-secret-word"
	m := &member{place: newPlace(t), ip: "127.0.1.1"}
	m.place.guestJob("tick", c.jobs["tick"]...)
	m.process = m.place.startEnv([]string{"WASMJOB_ZK_CREDENTIALS=" + credentials}, "--zk", c.zk, "--namespace", c.ns, "--session-timeout", "2m", "--server-ip", m.ip)
	m.of("tick", 0, kind(event.FireEnded))
	s := c.session(credentials)
	found := 0
	for path, data := range subtree(t, s, "/"+c.ns, "/"+c.ns+".wasmjob") {
		found++
		if strings.Contains(path+string(data), "secret-word") {
			t.Errorf("%s holds %q", path, data)
		}
	}
	if found < 20 {
		t.Errorf("%d nodes were looked at", found)
	}
	m.stop()
}
