//go:build !wasip1

package sdktest

import (
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/abi"
	web "github.com/wasmjob/wasmjob/sdk/testdata/guests/web/handler"
)

// TestNetHTTP runs code with net/http natively and compiled.
func TestNetHTTP(t *testing.T) {
	t.Parallel()
	connections := newListener()
	plain := &http.Server{Handler: server(), ReadHeaderTimeout: time.Minute}
	var served sync.WaitGroup
	served.Go(func() { plain.Serve(connections) })
	t.Cleanup(func() {
		plain.Close()
		served.Wait()
	})
	host := func() *Host {
		h := &Host{Context: Context{FireTime: time.UnixMilli(1)}}
		h.AllowHTTP("https://api.example.com", server())
		h.AllowNet("tcp://plain.example.com:8080", connections.dial)
		h.AllowNet("tls://api.example.com:443", connections.dial)
		return h
	}
	native := host()
	want := told(native, native.Run(web.Web))
	compiled := host()
	g := guest(t, "web").load(t, &compiled).instance(t, t.Output())
	compiled.begin()
	r := compiled.item(export(t, g, abi.ExportExecute))
	if r.Outcome != abi.OutcomeOK {
		t.Errorf("%s %s", r.Outcome, r.Message)
	}
	got := told(compiled, r)
	if got != want {
		t.Errorf("compiled:\n%s\nnatively:\n%s", got, want)
	}
	for _, line := range []string{
		`INFO get status="200 OK" length=-1 type=text/plain body="GET api.example.com https://api.example.com/hello"`,
		`INFO redirect status="200 OK" length=-1 type="" body=arrived`,
		`INFO post status="200 OK" length=-1 type=text/plain body="300000 0123`,
		`INFO again status="200 OK" length=-1 type=text/plain body="4 body"`,
		`INFO refused denied=true error="Get \"https://elsewhere.example.com/\": http: GET https://elsewhere.example.com is not granted`,
		`Authorization [Basic dXNlcjpwYXNzd29yZA==]\nIdempotency-Key [test/1/0-`,
		`INFO timeout deadline=true`,
		`INFO body begin=x cancelled=true`,
		`INFO cloned status="200 OK"`,
		`INFO cloned, kept alive status="200 OK"`,
		`INFO cloned, TLS by the host status="200 OK"`,
		`INFO cloned, refused denied=true`,
		`INFO stream answer=third`,
	} {
		if !strings.Contains(got, line) {
			t.Errorf("no line %s in\n%s", line, got)
		}
	}
	if n := connections.count(); n != 4 {
		t.Errorf("%d connections, want one for each of two addresses, natively and compiled", n)
	}
}

// listener has connections that are made in memory.
type listener struct {
	accepted chan net.Conn
	done     chan struct{}
	once     sync.Once
	mu       sync.Mutex
	dialled  int
}

func newListener() *listener {
	return &listener{accepted: make(chan net.Conn), done: make(chan struct{})}
}

func (l *listener) dial() (net.Conn, error) {
	l.mu.Lock()
	l.dialled++
	l.mu.Unlock()
	here, there := net.Pipe()
	select {
	case l.accepted <- there:
		return here, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *listener) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.dialled
}

func (l *listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.accepted:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *listener) Addr() net.Addr { return &net.TCPAddr{} }

func (l *listener) Close() error {
	l.once.Do(func() { close(l.done) })
	return nil
}
