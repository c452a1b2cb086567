package e2e_test

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/host/event"
)

// outsideGuest is testdata/outside, compiled.
func outsideGuest(t *testing.T) []byte {
	t.Helper()
	return read(t, made(t, "outside.wasm", func(ctx context.Context, path string) error {
		return command(ctx, []string{"GOOS=wasip1", "GOARCH=wasm", "CGO_ENABLED=0"}, "go", "build", "-trimpath", "-ldflags", "-s -w",
			"-buildmode=c-shared", "-o", path, "./test/e2e/testdata/outside")
	}))
}

// traffic counts what a server gets: the bytes of its connections, and its requests, by the
// fence token of who sent them.
type traffic struct {
	mu       sync.Mutex
	bytes    map[string]int64
	requests map[string]int64
	accepted int
}

// counted is a connection that is counted, for its requests' fence.
type counted struct {
	net.Conn
	t     *traffic
	mu    sync.Mutex
	fence string
	early int64 // before the fence was known
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.mu.Lock()
	fence := c.fence
	if fence == "" {
		c.early += int64(n)
	}
	c.mu.Unlock()
	if fence != "" {
		c.t.mu.Lock()
		c.t.bytes[fence] += int64(n)
		c.t.mu.Unlock()
	}
	return n, err
}

type countedListener struct {
	net.Listener
	t *traffic
}

func (l countedListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	l.t.mu.Lock()
	l.t.accepted++
	l.t.mu.Unlock()
	return &counted{Conn: c, t: l.t}, nil
}

type connKey struct{}

func (tr *traffic) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	fence, c := r.Header.Get("Wasmjob-Fence"), r.Context().Value(connKey{}).(*counted)
	c.mu.Lock()
	early := c.early
	c.fence, c.early = fence, 0
	c.mu.Unlock()
	tr.mu.Lock()
	tr.requests[fence]++
	tr.bytes[fence] += early
	tr.mu.Unlock()
	_, _ = io.Copy(io.Discard, r.Body) // the host resets the connection
}

// least reports whether each has sent so many requests.
func (tr *traffic) least(n int64) bool {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	for _, m := range tr.requests {
		if m < n {
			return false
		}
	}
	return true
}

// seen is what was got from each, and what the files of each hold.
func (tr *traffic) seen(t *testing.T, out string) map[string]string {
	t.Helper()
	tr.mu.Lock()
	defer tr.mu.Unlock()
	list := map[string]string{}
	for fence := range tr.requests {
		size := int64(-1)
		if info, err := os.Stat(filepath.Join(out, fence)); err == nil {
			size = info.Size()
		}
		list[fence] = fmt.Sprintf("%d bytes, %d requests, a file of %d bytes", tr.bytes[fence], tr.requests[fence], size)
	}
	return list
}

// TestNothingLeavesAHostThatWasHalted: a host is stopped by SIGSTOP while its item streams a request
// and writes a file, until another host has taken the item over. When it goes on, not one byte
// leaves it for that run any more, in no connection and to no file. One is without its dead man's timer,
// so that it does go on.
func TestNothingLeavesAHostThatWasHalted(t *testing.T) {
	t.Parallel()
	for name, lines := range places() {
		for _, deadMan := range []string{"off", "auto"} {
			t.Run(name+" "+deadMan, func(t *testing.T) {
				t.Parallel()
				c := newCluster(t)
				tr := &traffic{bytes: map[string]int64{}, requests: map[string]int64{}}
				server := httptest.NewUnstartedServer(tr)
				server.Listener = countedListener{server.Listener, tr}
				server.Config.ConnContext = func(ctx context.Context, conn net.Conn) context.Context {
					return context.WithValue(ctx, connKey{}, conn)
				}
				server.Start()
				t.Cleanup(server.Close)
				out := c.path("out")
				if err := os.Mkdir(out, 0o755); err != nil {
					t.Fatal(err)
				}
				c.place.put("grants.yaml", []byte(fmt.Sprintf("grants:\n  - jobs: outside\n    http: [{url: \"%s/\", methods: [GET, POST], private: true}]\n"+
					"    dirs: [{host: %q, guest: /out, write: true}]\n    quotas: {requests: 1000000, sent: 100GiB}\n", server.URL, out)))
				member := func() *member {
					m := &member{place: newPlace(t), ip: fmt.Sprintf("127.0.1.%d", len(c.members)+1)}
					m.place.drop("outside.wasm", outsideGuest(t))
					m.place.define("outside", append(slices.Clone(lines), "shardingTotalCount: 1", "failover: true", "jobParameter: "+server.URL+"/")...)
					m.process = m.place.start("--zk", c.zk, "--namespace", c.ns, "--server-ip", m.ip, "--session-timeout", clusterSession.String(),
						"--grants", c.path("grants.yaml"), "--in-process", "*", "--dead-man", deadMan, "--drain-timeout", "1s")
					c.members = append(c.members, m)
					return m
				}
				a := member()
				a.of("outside", 0, owned())
				c.registry("job", "run", "outside")
				a.of("outside", 0, kind(event.ItemStarted))
				b := member()
				await(t, "a stream, requests and a file", func() bool {
					for _, s := range tr.seen(t, out) {
						return !strings.Contains(s, "of -1 bytes") && tr.least(10)
					}
					return false
				})
				a.signal(syscall.SIGSTOP)
				b.of("outside", 0, kind(event.ItemStarted))
				await(t, "what the other host does", func() bool { return len(tr.seen(t, out)) == 2 })
				time.Sleep(300 * time.Millisecond) // what was on its way has come
				before := tr.seen(t, out)
				mine := slices.MinFunc(slices.Collect(maps.Keys(before)), func(x, y string) int { return len(x)*1000 - len(y)*1000 + strings.Compare(x, y) })
				if deadMan == "off" {
					a.signal(syscall.SIGCONT)
					a.of("outside", 0, kind(event.ItemEnded))
				} else {
					a.over()
				}
				time.Sleep(time.Second)
				after := tr.seen(t, out)
				t.Logf("%s: %s; in all %v", mine, before[mine], after)
				if after[mine] != before[mine] {
					t.Errorf("the host that was halted: %s, and later %s", before[mine], after[mine])
				}
				if len(after) != 2 {
					t.Errorf("runs: %v", after)
				}
				for fence := range after {
					if fence != mine && after[fence] == before[fence] {
						t.Errorf("the new owner does nothing: %s", after[fence])
					}
				}
				b.kill()
				if deadMan == "off" {
					a.kill()
				}
			})
		}
	}
}

// await waits until look says so.
func await(t *testing.T, what string, look func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !look(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waiting for %s", what)
		}
	}
}
