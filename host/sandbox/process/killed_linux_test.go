package process

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/sandbox/plugin"
	"github.com/wasmjob/wasmjob/host/sandbox/wasm"
)

// TestKilled freezes a process, which is what a guest can do at most, and lets the
// limit of one of its guests pass.
func TestKilled(t *testing.T) {
	t.Parallel()
	w := workers(t, "good", plugin.Options{}, Options{grace: 300 * time.Millisecond})
	m := moduleOf(t, w, "c/guest")
	x := executorOf(t, m, plugin.Settings{Type: wasm.TypeSimple, JobName: "bad"})
	beside := worked(t, executorOf(t, m, plugin.Settings{Type: wasm.TypeSimple, JobName: "good"}))
	beside.Execute(t.Context(), item(newRecorder(), "ok"))

	one, two := worked(t, x), worked(t, x)
	one.Execute(t.Context(), item(newRecorder(), "ok"))
	c, neighbour := running(t, two, "spin-log", 0)
	begun := time.Now()
	_, ended := running(t, one, "spin-log", 500*time.Millisecond)
	if err := c.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if r := beside.Execute(t.Context(), item(newRecorder(), "ok")); r.Outcome != abi.OutcomeOK {
		t.Errorf("another job: %+v", r)
	}
	want := "the worker process was killed because item 2 of job probe overran its limit"
	if r := <-ended; r.Outcome != abi.OutcomeTimeout || !strings.Contains(r.Message, want) || !strings.Contains(r.Message, "did not stop within 300ms") {
		t.Errorf("%+v", r)
	}
	if took := time.Since(begun); took < 800*time.Millisecond {
		t.Errorf("it was killed after %s, before its grace was over", took)
	}
	if r := <-neighbour; r.Outcome != abi.OutcomeWorker || !strings.HasSuffix(r.Message, want) {
		t.Errorf("its neighbour: %+v", r)
	}
	if r := one.Execute(t.Context(), item(newRecorder(), "ok")); r.Outcome != abi.OutcomeOK {
		t.Errorf("the next one: %+v", r)
	}
	if s := w.Stats(); s.Killed != 1 || s.Running != 3 || len(s.Ended) != 0 {
		t.Errorf("%+v", s)
	}
}

// TestStopped has a frozen process ignore that its item is cancelled.
func TestStopped(t *testing.T) {
	t.Parallel()
	w := workers(t, "deaf", plugin.Options{}, Options{grace: 100 * time.Millisecond})
	one := worked(t, executorOf(t, moduleOf(t, w, "c/guest"), plugin.Settings{Type: wasm.TypeSimple}))
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(300*time.Millisecond, cancel)
	r := one.Execute(ctx, item(newRecorder(), "ok"))
	if r.Outcome != abi.OutcomeCancelled || !strings.Contains(r.Message, "item 2 of job probe did not stop when it was asked to") && !strings.Contains(r.Message, "stopped") {
		t.Errorf("%+v", r)
	}
}

// TestHostKilled kills a host whose worker process is frozen: no end of a pipe, and
// nothing that is written in Go, can end that.
func TestHostKilled(t *testing.T) {
	t.Parallel()
	cmd := exec.Command(self(), workWord, "host")
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	var pid int
	if _, err := fmt.Sscan(line, &pid); err != nil {
		t.Fatal(err)
	}
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := unix.PidfdSendSignal(fd, unix.SIGSTOP, nil, 0); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // it was killed
	events := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	for {
		n, err := unix.Poll(events, 30_000)
		if err == unix.EINTR {
			continue
		}
		if n != 1 || err != nil {
			t.Errorf("the worker process %d has outlived its host: %d, %v", pid, n, err)
			_ = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
		}
		return
	}
}

// TestStoppedProcess: a process that reads nothing any more is killed, also if no guest in it
// has a limit.
func TestStoppedProcess(t *testing.T) {
	t.Parallel()
	w := workers(t, "good", plugin.Options{}, Options{patience: 2 * time.Second})
	one := worked(t, executorOf(t, moduleOf(t, w, "c/guest"), plugin.Settings{Type: wasm.TypeSimple}))
	c, ended := running(t, one, "spin-log", 0)
	if err := c.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	_ = c.out.sendBytes(kindModule, make([]byte, 4*backlog)) // lasts until it is killed
	if r := <-ended; r.Outcome != abi.OutcomeWorker || !strings.Contains(r.Message, "killed because it has read nothing for 2s") {
		t.Errorf("%+v", r)
	}
}
