package deadman

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// asked is the environment variable that makes the test binary a child, and says
// what it does.
const asked = "WASMJOB_DEADMAN_TEST"

// soon is how far ahead of a child its deadline is.
const soon = 300 * time.Millisecond

// slack is how late a machine with other work may notice that a child has ended.
const slack = 5 * time.Second

func TestMain(m *testing.M) {
	if what := os.Getenv(asked); what != "" {
		if err := child(what); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		return
	}
	// What is handled here is not ignored in children, also under nohup.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
	os.Exit(m.Run())
}

// child sets its timers, says when they are due by the boot clock, and then does
// what a host could do. It ends well if nothing ends it until some time after.
func child(what string) error {
	g, err := New(soon)
	if err != nil {
		return err
	}
	began := now(bootClock)
	due := began + soon
	f := g.Fence()
	if what != "not armed" {
		f.Arm()
	}
	switch what {
	case "beat":
		g.Beat()
	case "beats":
		for now(bootClock) < began+3*soon {
			g.Beat()
			runtime.Gosched()
		}
		due = now(bootClock) // of the last beat, or before
	case "renewed":
		for now(bootClock) < began+3*soon { // longer than one deadline
			due = now(bootClock) + soon
			f.Renew(due-9*time.Second, 10*time.Second)
			runtime.Gosched()
		}
		f.Renew(due-20*time.Second, 10*time.Second) // an old proof
	case "armed later":
		f = g.Fence()
		f.Renew(due-9*time.Second, 10*time.Second)
		f.Arm()
	default:
		f.Renew(due-9*time.Second, 10*time.Second)
	}
	switch what {
	case "lifted":
		f.Lift()
		f.Renew(due-8*time.Second, 10*time.Second) // of the session that is over
	case "closed":
		g.Beat()
		g.Close()
		f.Renew(due-8*time.Second, 10*time.Second)
		g.Beat()
	}
	fmt.Println(int64(due))
	if what == "frozen" {
		go runtime.GC()
		for n := uint64(0); ; n++ { // never preempted: see TestTimers
			sink = n
		}
	}
	for now(bootClock) < due+2*soon {
		runtime.Gosched()
	}
	fmt.Println("alive")
	return nil
}

var sink uint64

// TestTimers: what ends a process, when and how, and what does not.
func TestTimers(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		what   string
		stop   bool // by SIGSTOP
		first  bool // of a PID namespace
		lives  bool
		status string
	}{
		{what: "waits", status: "signal: killed"},
		{what: "frozen", status: "signal: killed"},
		{what: "waits", stop: true, status: "signal: killed"},
		{what: "renewed", status: "signal: killed"},
		{what: "beat", status: "signal: killed"},
		{what: "beats", status: "signal: killed"},
		{what: "not armed", lives: true},
		{what: "armed later", status: "signal: killed"},
		{what: "lifted", lives: true},
		{what: "closed", lives: true},
		{what: "waits", first: true, status: "exit status 2"},
		{what: "frozen", first: true, status: "exit status 2"},
	} {
		name := c.what
		if c.stop {
			name += ", stopped"
		}
		if c.first {
			name += ", process 1"
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cmd := exec.Command(os.Args[0], "-test.run", "^$")
			// A loop without a call is not preempted, and so stops the world at a
			// garbage collection, as a guest does that is not interrupted.
			cmd.Env = append(os.Environ(), asked+"="+c.what, "GODEBUG=asyncpreemptoff=1")
			if c.first {
				cmd.SysProcAttr = firstProcess()
			}
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			watch := time.AfterFunc(time.Minute, func() { _ = cmd.Process.Kill() })
			defer watch.Stop()
			lines := bufio.NewScanner(out)
			lines.Scan()
			due, err := strconv.ParseInt(lines.Text(), 10, 64)
			if err != nil {
				t.Fatalf("the child says %q", lines.Text())
			}
			if c.stop {
				if err := cmd.Process.Signal(syscall.SIGSTOP); err != nil {
					t.Fatal(err)
				}
			}
			alive := lines.Scan()
			err = cmd.Wait()
			late := now(bootClock) - time.Duration(due)
			if c.lives {
				if err != nil || !alive {
					t.Errorf("the child ended: %v", err)
				}
				return
			}
			if alive || err == nil || !strings.HasPrefix(err.Error(), c.status) {
				t.Errorf("the child ended with %v, alive after its deadline: %v; expected %q", err, alive, c.status)
			}
			if late < 0 || late > slack {
				t.Errorf("the child ended %s after its deadline, expected 0 to %s", late, slack)
			}
		})
	}
}

// firstProcess has a child be process 1 of a PID namespace.
func firstProcess() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWPID,
		UidMappings: []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}},
	}
}

// TestFirstProcessIgnoresHangups: no timer that could not end its process.
func TestFirstProcessIgnoresHangups(t *testing.T) {
	t.Parallel()
	cmd := exec.Command("sh", "-c", `trap "" HUP; exec "$0" -test.run '^$'`, os.Args[0])
	cmd.Env = append(os.Environ(), asked+"=waits")
	cmd.SysProcAttr = firstProcess()
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "start it without nohup") {
		t.Errorf("the child ended with %v and says %q, expected that it refuses", err, out)
	}
}

// TestKernelsView: the kernel has the timers as they are meant, and forgets them.
func TestKernelsView(t *testing.T) {
	t.Parallel()
	timers := func() string {
		b, err := os.ReadFile("/proc/self/timers")
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	before := timers()
	g, err := New(time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []int{unix.CLOCK_BOOTTIME, unix.CLOCK_MONOTONIC} {
		if want := fmt.Sprintf("notify: signal/pid.%d\nClockID: %d\n", os.Getpid(), id); !strings.Contains(timers(), want) {
			t.Errorf("no %q in\n%s", want, timers())
		}
	}
	if n := strings.Count(timers(), "signal: 9/"); n != strings.Count(before, "signal: 9/")+2 {
		t.Errorf("%d timers that kill in\n%s", n, timers())
	}
	g.Close()
	g.Close()
	if timers() != before {
		t.Errorf("after Close there are\n%s", timers())
	}
}
