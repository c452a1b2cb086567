package life

import (
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// environment is an environment.
func environment(list []string) func(string) string {
	return func(name string) string {
		for _, e := range list {
			if value, ok := strings.CutPrefix(e, name+"="); ok {
				return value
			}
		}
		return ""
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
		n, err := newNotifier(environment(append([]string{"NOTIFY_SOCKET=" + socket}, c.environ...)))
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
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	}
	none, err := newNotifier(environment(nil))
	if none != nil || err != nil {
		t.Errorf("without a socket: %+v, %v", none, err)
	}
	none.send("X=1")
	if _, err := newNotifier(environment([]string{"NOTIFY_SOCKET=" + socket + ".gone"})); err == nil {
		t.Error("a socket that is not there is fine")
	}
}
