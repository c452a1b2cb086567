package main

import (
	"net"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"
)

// TestWhoHasADeadMansTimer: with ZooKeeper, and under a supervisor, unless
// somebody says otherwise.
func TestWhoHasADeadMansTimer(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		when, registry, environ string
		terminal, want          bool
	}{
		{auto, registryZooKeeper, "", false, true},
		{auto, registryZooKeeper, "", true, true},
		{auto, registryEmbedded, "", false, false},
		{auto, registryEmbedded, "NOTIFY_SOCKET=/run/x", false, true},
		{auto, registryEmbedded, "INVOCATION_ID=1", false, true},
		{auto, registryEmbedded, "KUBERNETES_SERVICE_HOST=10.0.0.1", false, true},
		{auto, registryEmbedded, "INVOCATION_ID=1", true, false}, // a shell of a desktop
		{off, registryZooKeeper, "INVOCATION_ID=1", false, false},
		{"on", registryEmbedded, "", true, true},
	} {
		p := &program{outTTY: c.terminal, errTTY: c.terminal, environ: []string{c.environ}}
		if got := p.deadMan(&loaded{Config: Config{DeadMan: c.when, Registry: c.registry}}); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

// TestNotifier: who is to be notified, and how often.
func TestNotifier(t *testing.T) {
	t.Parallel()
	socket := filepath.Join(t.TempDir(), "notify")
	listener, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		t.Skipf("no such sockets here: %v", err)
	}
	defer listener.Close()
	pid := strconv.Itoa(os.Getpid())
	for _, c := range []struct {
		environ  []string
		watchdog time.Duration
	}{
		{nil, 0},
		{[]string{"WATCHDOG_USEC=3000000"}, 3 * time.Second},
		{[]string{"WATCHDOG_USEC=3000000", "WATCHDOG_PID=" + pid}, 3 * time.Second},
		{[]string{"WATCHDOG_USEC=3000000", "WATCHDOG_PID=1" + pid}, 0}, // somebody else's
		{[]string{"WATCHDOG_USEC=often"}, 0},
	} {
		p := &program{environ: append([]string{"NOTIFY_SOCKET=" + socket}, c.environ...)}
		n, err := newNotifier(p.getenv)
		if err != nil {
			t.Fatal(err)
		}
		if n.watchdog != c.watchdog {
			t.Errorf("%q: every %s, expected %s", c.environ, n.watchdog, c.watchdog)
		}
		n.send("X=1")
		b := make([]byte, 10)
		if size, err := listener.Read(b); err != nil || string(b[:size]) != "X=1" {
			t.Errorf("%q: heard %q, %v", c.environ, b[:size], err)
		}
		if err := n.close(); err != nil {
			t.Error(err)
		}
	}
	none, err := newNotifier((&program{}).getenv)
	if none != nil || err != nil {
		t.Errorf("without a socket: %+v, %v", none, err)
	}
	none.send("X=1")
	if _, err := newNotifier((&program{environ: []string{"NOTIFY_SOCKET=" + socket + ".gone"}}).getenv); err == nil {
		t.Error("a socket that is not there is fine")
	}
}
