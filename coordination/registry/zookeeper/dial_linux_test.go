package zookeeper_test

import (
	"context"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/coordination/registry/zookeeper"
)

// silent is an address that does not refuse and does not answer, as that of a
// machine that is gone: its queue of connections is full.
func silent(t *testing.T, host string, port int) string {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Close(fd) })
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: netip.MustParseAddr(host).As4(), Port: port}); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Listen(fd, 0); err != nil {
		t.Fatal(err)
	}
	name, err := syscall.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	address := net.JoinHostPort(host, strconv.Itoa(name.(*syscall.SockaddrInet4).Port))
	for range 16 {
		c, err := net.DialTimeout("tcp", address, 300*time.Millisecond)
		if err != nil {
			return address
		}
		t.Cleanup(func() { _ = c.Close() })
	}
	t.Fatal("it never falls silent")
	return ""
}

// A server that is silent is not waited for while another one answers: it never
// comes so far that it has failed.
func TestSilentServers(t *testing.T) {
	t.Parallel()
	e := shared.get(t, 1)
	_, port, err := net.SplitHostPort(e.Addr(0))
	if err != nil {
		t.Fatal(err)
	}
	var gone []string
	for range 3 {
		gone = append(gone, silent(t, "127.0.0.1", 0))
	}
	number, err := strconv.Atoi(port)
	if err != nil {
		t.Fatal(err)
	}
	silent(t, "127.0.0.2", number)
	silent(t, "127.0.0.3", number)
	for name, o := range map[string]zookeeper.Options{
		"servers": {Connect: strings.Join(gone, ",") + "," + e.Connect()},
		"addresses of one name": zookeeper.Options{Connect: "zk.test:" + port}.WithLookup(func(context.Context, string) ([]string, error) {
			return []string{"127.0.0.2", "127.0.0.3", "127.0.0.1"}, nil
		}),
		"names": zookeeper.Options{Connect: "a.test:1,b.test:1,zk.test:" + port}.WithLookup(func(ctx context.Context, host string) ([]string, error) {
			if host != "zk.test" {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			return []string{"127.0.0.1"}, nil
		}),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o.SessionTimeout = 60 * time.Second
			rc := dial(t, o)
			if why := rc.Failed(); why != nil {
				t.Errorf("it was waited for until it failed: %v", why)
			}
		})
	}
}

// Servers that accept connections and give no session, because they have no
// quorum, do not keep a host for ever from a good one that takes longer.
func TestHollowServers(t *testing.T) {
	t.Parallel()
	e := shared.get(t, 1)
	_, good, err := net.SplitHostPort(e.Addr(0))
	if err != nil {
		t.Fatal(err)
	}
	var hollow [2]string
	for i := range hollow {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		_, hollow[i], _ = net.SplitHostPort(l.Addr().String())
		over := make(chan struct{})
		t.Cleanup(func() { _ = l.Close(); <-over })
		go func() {
			defer close(over)
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				_ = c.Close()
			}
		}()
	}
	dial(t, zookeeper.Options{
		Connect:        "a.test:" + hollow[0] + ",b.test:" + hollow[1] + ",good.test:" + good,
		SessionTimeout: 6 * time.Second,
	}.WithLookup(func(ctx context.Context, host string) ([]string, error) {
		if host == "good.test" {
			select {
			case <-time.After(400 * time.Millisecond):
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
		return []string{"127.0.0.1"}, nil
	}))
}
