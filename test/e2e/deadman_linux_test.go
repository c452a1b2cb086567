package e2e_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/tree"
	view "github.com/wasmjob/wasmjob/host/control/cluster"
	"github.com/wasmjob/wasmjob/host/event"
	"github.com/wasmjob/wasmjob/host/history"
	"github.com/wasmjob/wasmjob/test/pgserver"
	"github.com/wasmjob/wasmjob/test/zkserver"
)

const (
	// deadManSession is the session timeout T of hosts that the kernel ends.
	deadManSession = 5 * time.Second
	// deadManLimit is after what time without a proof of life it does: 0.9 T.
	deadManLimit = deadManSession / 10 * 9
	// deadManSlack is how late a busy machine may notice that.
	deadManSlack = 2 * time.Second
)

// endlessLoop is a module whose job_execute is `loop br 0 end`.
var endlessLoop = []byte("\x00asm\x01\x00\x00\x00" +
	"\x01\x08\x02\x60\x00\x00\x60\x00\x01\x7f" + // types ()->() and ()->(i32)
	"\x03\x03\x02\x00\x01" + // two functions
	"\x05\x03\x01\x00\x01" + // a page of memory
	"\x07\x25\x03\x06memory\x02\x00\x0ajob_abi_v1\x00\x00\x0bjob_execute\x00\x01" +
	"\x0a\x0d\x02\x02\x00\x0b\x08\x00\x03\x40\x0c\x00\x0b\x00\x0b")

// unmetered is the program without what interrupts guests: one in a loop freezes
// the host.
func unmetered(t *testing.T) string {
	t.Helper()
	return made(t, "wasmjob-unmetered", func(ctx context.Context, path string) error {
		return command(ctx, []string{"CGO_ENABLED=0"}, "go", "build", "-tags", "unmetered", "-trimpath", "-o", path, "./cmd/host")
	})
}

// over waits until the kernel has ended the host, and returns when that was seen.
func (h *process) over() time.Time {
	h.t.Helper()
	h.exit()
	seen := time.Now()
	if status := h.cmd.ProcessState.Sys().(syscall.WaitStatus); !status.Signaled() || status.Signal() != syscall.SIGKILL {
		h.t.Errorf("the host ended with %s, expected a SIGKILL", h.cmd.ProcessState)
	}
	return seen
}

// runs reports whether any thread of the process may still run: a zombie has none.
func (h *process) runs() bool { return lives(h.cmd.Process.Pid) }

func lives(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, state, _ := strings.Cut(string(stat), ") ")
	return state[0] != 'Z' && state[0] != 'X'
}

// timers are the clocks on which the kernel has a timer with SIGKILL for the host.
func (h *process) timers() (clocks []string) {
	h.t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/timers", h.cmd.Process.Pid))
	if err != nil {
		h.t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`signal: 9/.*\nnotify: signal/pid\..*\nClockID: (\d+)`).FindAllStringSubmatch(string(text), -1) {
		clocks = append(clocks, m[1])
	}
	slices.Sort(clocks)
	return clocks
}

// outlives watches a job's instances: each host whose session ends must have
// ended before, in ZooKeeper's own view. The channel closes when so many are left.
func (c *cluster) outlives(job string, left int) <-chan struct{} {
	c.t.Helper()
	path := tree.NewLayout(c.ns, job).Root() + "/instances"
	watch, err := c.session("").Watch(c.t.Context(), registry.Children(path))
	if err != nil {
		c.t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { // ends with the session, at the latest
		defer close(done)
		present := make(map[*member]bool)
		for s := range watch {
			for _, m := range c.members {
				there := slices.ContainsFunc(s[registry.Children(path)].Names, func(id string) bool { return strings.HasPrefix(id, m.ip+"@-@") })
				if present[m] && !there && m.process.runs() {
					c.t.Errorf("the session of %s is over, and its process is not", m.ip)
				}
				present[m] = there
			}
			if len(s[registry.Children(path)].Names) <= left {
				return
			}
		}
	}()
	return done
}

// freezer starts a host that cannot interrupt the guest of its job, freeze.
func (c *cluster) freezer(env []string, flags ...string) *member {
	c.t.Helper()
	m := &member{place: newPlace(c.t), ip: fmt.Sprintf("127.0.1.%d", len(c.members)+1)}
	m.place.program = unmetered(c.t)
	m.place.drop("freeze.wasm", endlessLoop)
	m.place.define("freeze", "shardingTotalCount: 1", "failover: true", "isolation: host")
	m.process = m.place.startEnv(env, append([]string{"--zk", c.zk, "--namespace", c.ns, "--server-ip", m.ip,
		"--session-timeout", deadManSession.String(), "--in-process", "freeze", "--cache", m.place.path("home", "cache")}, flags...)...)
	c.members = append(c.members, m)
	return m
}

// TestFrozenHosts: a module freezes each host that runs it, so that no goroutine
// of the host runs any more. The kernel ends the host before ZooKeeper ends its
// session. Another host takes the item, and freezes in turn. Then the item is
// held back: the third host goes on, and so do the others when they are back.
func TestFrozenHosts(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	for range 3 {
		// With one processor for Go, the host is frozen as soon as the guest runs.
		m := c.freezer([]string{"GOMAXPROCS=1"})
		m.place.guestJob("tick", everySecond, "shardingTotalCount: 3")
	}
	s := c.session("")
	layout := tree.NewLayout(c.ns, "freeze")
	instances, item := registry.Children(layout.Root()+"/instances"), layout.Root()+"/sharding/0"
	owned, running := registry.Data(item+"/instance"), registry.Data(item+"/running")
	watch, err := s.Watch(within(t), instances, owned, running)
	if err != nil {
		t.Fatal(err)
	}
	for look := range watch {
		if len(look[instances].Names) == len(c.members) && look[owned].Exists {
			break
		}
	}
	for _, m := range c.members {
		m.fires("tick", 0)
	}
	gone := c.outlives("freeze", 1)
	c.registry("job", "run", "freeze")

	// Each host that begins the item is frozen a moment later, and is not heard of
	// any more. Its last proof of life is older than that.
	left := slices.Clone(c.members)
	for look := range watch {
		owner := string(look[running].Data)
		i := slices.IndexFunc(left, func(m *member) bool { return strings.HasPrefix(owner, m.ip+"@-@") })
		if i < 0 {
			continue
		}
		began := time.Now()
		m := left[i]
		took := m.over().Sub(began)
		t.Logf("%s ended %s after it froze, of a session of %s", m.ip, took.Round(time.Millisecond), deadManSession)
		if took > deadManLimit+deadManSlack {
			t.Errorf("%s ended %s after it froze, expected at most %s", m.ip, took, deadManLimit)
		}
		if left = slices.Delete(left, i, i+1); len(left) == 1 {
			break
		}
	}
	<-gone
	last := left[0]
	last.of("freeze", 0, kind(event.ItemHeld), because("wasmjob job release freeze --item 0"))
	for _, m := range slices.Clone(c.members) {
		if n := m.count("freeze", kind(event.ItemCompleted)); n > 0 {
			t.Errorf("%s completed an item that never ends", m.ip)
		}
		if m != last {
			c.again(m)
		}
	}
	for _, m := range c.members {
		m.fires("tick", m.mark())
	}
	c.stopAll()
}

// TestStoppedHost: a host that is stopped by SIGSTOP is ended by the kernel before
// ZooKeeper ends its session, and never continued. The next start says so.
func TestStoppedHost(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.job("tick", everySecond, "shardingTotalCount: 2")
	m := c.add("--session-timeout", deadManSession.String(), "--cache", c.path("home", "cache"))
	m.fires("tick", 0)
	if got := m.timers(); !slices.Equal(got, []string{"1", "7"}) {
		t.Errorf("the kernel has timers on clocks %q, expected CLOCK_MONOTONIC (1) and CLOCK_BOOTTIME (7)", got)
	}
	gone := c.outlives("tick", 0)
	stopped := time.Now()
	m.signal(syscall.SIGSTOP)
	took := m.over().Sub(stopped)
	t.Logf("the host ended %s after it was stopped, of a session of %s", took.Round(time.Millisecond), deadManSession)
	if took > deadManLimit+deadManSlack {
		t.Errorf("the host ended %s after it was stopped, expected at most %s", took, deadManLimit)
	}
	<-gone
	next := c.again(m, "--cache", c.path("home", "cache"))
	next.line(0, "the last host here did not end well", `"ending":"dead_man"`, fmt.Sprintf(`"pid":%d`, m.cmd.Process.Pid))
	next.of("", 0, kind(event.HostStarted), because("its dead man's timer was due"))
	next.metric(`wasmjob_last_end_info{reason="dead_man"} 1`)
	next.metric("wasmjob_dead_man_armed 1")
	next.stop()
}

// TestKilledHostRunsNothing: a host with a history in a database is killed, and its registry has nothing of it any
// more. The next host there knows that it has ended, and nothing is shown as running.
func TestKilledHostRunsNothing(t *testing.T) {
	t.Parallel()
	db, p := pgserver.ForTest(t), newPlace(t)
	p.guestJob("held", "shardingTotalCount: 2", "monitorExecution: false", `jobParameter: "stubborn:a"`)
	start := func() *process {
		return p.startEnv([]string{"WASMJOB_HISTORY_CREDENTIALS=" + pgserver.User + ":" + db.Password},
			"--history", db.URL(), "--cache", p.path("home", "cache"), "--mount", "held="+p.path("gate")+":/gate")
	}
	running := func(want int) func() bool {
		return func() bool {
			return len(decoded[view.Found[history.Run]](t, p.must("job", "runs", "--running", "--json")).Records) == want &&
				len(decoded[view.Found[history.Fire]](t, p.must("job", "history", "--running", "--json")).Records) == min(want, 1)
		}
	}
	h := start()
	await(t, "job", func() bool { return p.cli("job", "run", "held").code == 0 })
	await(t, "two runs", running(2))
	h.kill()
	next := start()
	await(t, "no runs", running(0))
	for _, r := range decoded[view.Found[history.Run]](t, p.must("job", "runs", "--json")).Records {
		if r.Outcome != history.Unknown {
			t.Errorf("%+v", r)
		}
	}
	next.kill()
}

// TestStuckGuest: where the kernel does not end it, a host ends itself if a guest
// outlives the session. The next start says so.
func TestStuckGuest(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	proxy, err := zkserver.NewProxy(c.zk)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(proxy.Close)
	direct := c.zk
	c.zk = proxy.Addr()
	// More processors for Go than guests, and no collection that stops the world.
	m := c.freezer([]string{"GOMAXPROCS=4", "GOGC=off"}, "--dead-man", "off")
	c.zk = direct
	m.of("freeze", 0, owned())
	c.registry("job", "run", "freeze")
	m.of("freeze", 0, kind(event.ItemStarted))
	proxy.Cut()
	if code := m.exit(); code != 3 {
		t.Errorf("exit code %d, expected 3", code)
	}
	m.line(0, "a guest of a lost session cannot be stopped", `"jobs":["freeze"]`)
	next := m.place.start("--in-process", "freeze", "--cache", m.place.path("home", "cache"))
	next.line(0, "the last host here did not end well", `"ending":"stuck"`)
	next.stop()
}

// metric expects a line of a scrape.
func (h *process) metric(line string) {
	h.t.Helper()
	if _, body := h.get("/metrics"); !strings.Contains("\n"+body, "\n"+line+"\n") {
		h.t.Errorf("no metric %s", line)
	}
}

// TestProofOfLife: who gets a dead man's timer, what systemd hears, and what a
// start says of the host before.
func TestProofOfLife(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.guestJob("tick", everySecond, "shardingTotalCount: 1")
	socket := p.path("notify")
	systemd, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = systemd.Close() })
	hears := func(want string) {
		t.Helper()
		if err := systemd.SetReadDeadline(time.Now().Add(patience)); err != nil {
			t.Fatal(err)
		}
		for b := make([]byte, 1000); ; {
			n, err := systemd.Read(b)
			if err != nil {
				t.Fatalf("waiting for %s: %v", want, err)
			}
			if string(b[:n]) == want {
				return
			}
		}
	}
	record := func() (r struct {
		Ending  string `json:"ending"`
		BeatDue int64  `json:"beatDueNs"`
	}) {
		t.Helper()
		if err := json.Unmarshal(read(t, p.path("home", "cache", "last-host-0.json")), &r); err != nil {
			t.Fatal(err)
		}
		return r
	}
	own := []string{"--cache", p.path("home", "cache")}

	first := p.start(own...)
	if got := first.timers(); len(got) > 0 {
		t.Errorf("a host alone and without a supervisor has timers on clocks %q", got)
	}
	first.metric("wasmjob_dead_man_armed 0")
	first.stop()
	if r := record(); r.Ending != "ended" {
		t.Errorf("after a good end the record says %+v", r)
	}

	// Under systemd.
	h := p.startEnv([]string{"NOTIFY_SOCKET=" + socket, "INVOCATION_ID=1", "WATCHDOG_USEC=3000000"}, own...)
	hears("WATCHDOG=1")
	hears("READY=1")
	if code, _ := h.get("/readyz"); code != 200 {
		t.Errorf("systemd hears that the host is ready, but /readyz says %d", code)
	}
	if got := h.timers(); !slices.Equal(got, []string{"1", "7"}) {
		t.Errorf("the kernel has timers on clocks %q, expected 1 and 7", got)
	}
	h.metric(`wasmjob_last_end_info{reason="ended"} 1`)
	hears("WATCHDOG=1")
	hears("WATCHDOG=1")
	h.signal(syscall.SIGTERM)
	hears("STOPPING=1")
	if code := h.exit(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if r := record(); r.Ending != "ended" || r.BeatDue == 0 {
		t.Errorf("after a good end the record says %+v, expected a heartbeat, too", r)
	}
	if slices.ContainsFunc(h.lines, func(l logLine) bool { return strings.Contains(l.raw, "did not end well") }) {
		t.Error("a host that ended well is said not to have")
	}

	// Killed: the heartbeat was not due.
	h = p.start(append(own, "--dead-man", "on")...)
	h.fires("tick", h.mark())
	h.kill()
	h = p.startEnv([]string{"KUBERNETES_SERVICE_HOST=10.0.0.1"}, append(own, "--dead-man", "off")...)
	h.line(0, "the last host here did not end well", `"ending":"killed"`)
	if got := h.timers(); len(got) > 0 {
		t.Errorf("a host with --dead-man off has timers on clocks %q", got)
	}
	// Beside it another host keeps a record of its own.
	beside := p.startEnv(nil, append(own, "--history", p.path("events", "beside.jsonl"))...)
	if _, err := os.Stat(filepath.Join(p.path("home", "cache"), "last-host-1.json")); err != nil {
		t.Error(err)
	}
	beside.signal(syscall.SIGTERM)
	beside.exit()
	h.stop()
}
