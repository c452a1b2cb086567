package dump

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/registry/embedded"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// registryOf is a registry that holds nodes by path.
func registryOf(t *testing.T, nodes ...string) registry.Center {
	t.Helper()
	s, err := embedded.Open(embedded.Options{})
	if err != nil {
		t.Fatal(err)
	}
	r, err := s.Connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(r.Close(), s.Close()); err != nil {
			t.Error(err)
		}
	})
	for _, n := range nodes {
		path, value, _ := strings.Cut(n, " = ")
		if _, err := r.Commit(t.Context(), registry.Ensure(path), registry.Set(path, []byte(value), registry.AnyVersion)); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

func TestText(t *testing.T) {
	t.Parallel()
	r := registryOf(t,
		"/team/ns/report/config = cron: 0/5 * * * * ?\njobName: report\n",
		"/team/ns/report/servers/10.0.0.12 = ENABLED",
		"/team/ns/report/servers/10.0.0.1 = DISABLED",
		"/team/ns/report/instances/10.0.0.1@-@7 = jobInstanceId: 10.0.0.1@-@7\nserverIp: 10.0.0.1\n",
		"/team/ns/report/sharding/10",
		"/team/ns/report/sharding/9/instance = 10.0.0.12@-@8",
		"/team/ns/report/sharding/2",
		"/team/ns/other/config = never",
	)
	got, err := Text(t.Context(), r.Read, "team/ns", "report")
	if err != nil {
		t.Fatal(err)
	}
	want := `/report/sharding | 
/report/sharding/9 | 
/report/sharding/9/instance | ip1@-@8
/report/sharding/2 | 
/report/sharding/10 | 
/report/servers | 
/report/servers/ip1 | ENABLED
/report/servers/ip2 | DISABLED
/report/instances | 
/report/instances/ip2@-@7 | jobInstanceId: ip2@-@7
serverIp: ip2

/report/config | cron: 0/5 * * * * ?
jobName: report

`
	if got != want {
		t.Errorf("found\n%s\nwant\n%s", got, want)
	}
	for _, none := range []string{"nothing", "report/sharding", "..", "a@-@b"} {
		if got, err := Text(t.Context(), r.Read, "team/ns", none); err != nil || got != "\n" {
			t.Errorf("job %q: %q, %v; want an empty line", none, got, err)
		}
	}
}

func TestMasking(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"10.0.0.1 10.0.0.12 10.0.0.1":     "ip1 ip2 ip1",
		"255.255.255.255/0.0.0.0":         "ip1/ip2",
		"256.1.1.1 1.2.3 v1.2.3.4x":       "256.1.1.1 1.2.3 v1.2.3.4x",
		"jdbc:mysql://192.168.7.200:3306": "jdbc:mysql://ip1:3306",
	} {
		if got := masked(text); got != want {
			t.Errorf("%q: found %q, want %q", text, got, want)
		}
	}
}

// serve runs a server for the test and returns its address.
func serve(t *testing.T, read func(context.Context, ...registry.Query) ([]registry.Node, error)) string {
	t.Helper()
	s, err := Listen(Options{Address: "127.0.0.1:0", Namespace: "ns", Read: read})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return s.Address()
}

// ask sends a request and returns what came until the server closed.
func ask(t *testing.T, address, request string) string {
	t.Helper()
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(c, request); err != nil {
		t.Fatal(err)
	}
	answer, err := io.ReadAll(c)
	if err != nil && len(request) <= maxRequest { // what is not read resets the connection
		t.Fatal(err)
	}
	return string(answer)
}

func TestServer(t *testing.T) {
	t.Parallel()
	r := registryOf(t, "/ns/report/config = a: 1\n")
	address := serve(t, r.Read)
	for request, want := range map[string]string{
		"dump@report\n":                   "/report/config | a: 1\n\n",
		"dump@report\r\n":                 "/report/config | a: 1\n\n",
		"dump@unknown\n":                  "\n",
		"dump\n":                          "",
		"DUMP@report\n":                   "",
		"dump@\n":                         "",
		"dump@re@port\n":                  "",
		"hello@report\n":                  "",
		"\n":                              "",
		strings.Repeat("x", 2*maxRequest): "",
	} {
		if got := ask(t, address, request); got != want {
			t.Errorf("%.20q: found %q, want %q", request, got, want)
		}
	}
}

// TestServerClosesWhenTheRegistryFails: no answer is better than half of one.
func TestServerClosesWhenTheRegistryFails(t *testing.T) {
	t.Parallel()
	address := serve(t, func(context.Context, ...registry.Query) ([]registry.Node, error) {
		return nil, registry.ErrSessionLost
	})
	if got := ask(t, address, "dump@report\n"); got != "" {
		t.Errorf("found %q, want nothing", got)
	}
}

// TestServerBoundsConnections: clients that say nothing hold a few
// connections, and the end of the server does not wait for them.
func TestServerBoundsConnections(t *testing.T) {
	t.Parallel()
	asked, proceed := make(chan struct{}, maxConnections), make(chan struct{})
	address := serve(t, func(ctx context.Context, q ...registry.Query) ([]registry.Node, error) {
		asked <- struct{}{}
		select {
		case <-proceed:
		case <-ctx.Done():
		}
		return nil, registry.ErrSessionLost
	})
	for range maxConnections {
		c, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		if _, err := io.WriteString(c, "dump@report\n"); err != nil {
			t.Fatal(err)
		}
		<-asked
	}
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if n, err := c.Read(make([]byte, 1)); n != 0 || err == nil || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a connection too many was not closed: %d, %v", n, err)
	}
	close(proceed)
}

func FuzzRequest(f *testing.F) {
	for _, s := range []string{"dump@report\n", "dump@report", "dump@\r\n", "dump@a@b\n", "dump\n", "\x00", strings.Repeat("dump@", 200)} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, request string) {
		job, err := readRequest(strings.NewReader(request))
		line, _, _ := strings.Cut(request, "\n")
		if err != nil {
			if job != "" {
				t.Errorf("%q: a name %q and an error", request, job)
			}
			return
		}
		if job == "" || strings.ContainsAny(job, "@\n") || len(job) > maxRequest {
			t.Errorf("%q: %q is not a name", request, job)
		}
		if strings.TrimSuffix(line, "\r") != "dump@"+job {
			t.Errorf("%q was read as a request for %q", request, job)
		}
	})
}
