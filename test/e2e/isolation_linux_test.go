package e2e_test

import (
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/event"
)

// workers are the worker processes of the host, by id, that have the label.
func (h *process) workers(label string) []int {
	h.t.Helper()
	return children(h.t, h.cmd.Process.Pid, "run-guests", label)
}

// TestIsolatedFreeze runs guests that nothing interrupts in processes. One that does
// not end is killed with its process two seconds after its limit; the host and another
// job go on.
func TestIsolatedFreeze(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.program = unmetered(t)
	p.drop("freeze.wasm", endlessLoop)
	p.define("freeze", "cron: 0 0 0 1 1 ?", "shardingTotalCount: 1", "timeout: 1s", "isolation: process")
	p.guestJob("tick", everySecond, "shardingTotalCount: 2")
	h := p.start("--isolation", "process=tick", "--cache", p.path("home", "cache"))
	h.of("freeze", 0, owned())
	for _, j := range p.status().Status.Jobs { // by the definition, and by the operator
		if j.Isolation != "process" {
			t.Errorf("job %s: isolation %q", j.Name, j.Isolation)
		}
	}
	from, line := h.mark(), h.logMark()
	p.must("job", "run", "freeze")
	h.of("freeze", from, kind(event.ItemEnded), outcome(abi.OutcomeTimeout),
		because("the worker process was killed because item 0 of job freeze overran its limit"))
	h.line(line, "a worker process was killed", `"job":"freeze"`, "item 0 of job freeze overran its limit")
	h.metric("wasmjob_worker_processes_killed_total 1")
	// The next run has a process of its own.
	from = h.mark()
	p.must("job", "run", "freeze")
	h.of("freeze", from, kind(event.ItemEnded), outcome(abi.OutcomeTimeout))
	h.metric("wasmjob_worker_processes_killed_total 2")
	from = h.mark()
	h.of("tick", from, kind(event.ItemEnded), outcome(abi.OutcomeOK))
	if n := h.count("tick", kind(event.ItemEnded)) - h.count("tick", kind(event.ItemEnded), outcome(abi.OutcomeOK)); n != 0 {
		t.Errorf("%d items of the other job did not end well", n)
	}
	pids := h.workers("tick")
	if len(pids) != 1 {
		t.Fatalf("the other job, which the operator has named, has the processes %v, expected one", pids)
	}
	ended := watchEnd(t, pids[0])
	h.stop()
	ended()
}

// TestIsolatedHostKilled kills a host whose worker process is frozen.
func TestIsolatedHostKilled(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.program = unmetered(t)
	p.drop("freeze.wasm", endlessLoop)
	p.define("freeze", "cron: 0 0 0 1 1 ?", "shardingTotalCount: 1", "isolation: process")
	h := p.start("--cache", p.path("home", "cache"))
	h.of("freeze", 0, owned())
	p.must("job", "run", "freeze")
	h.of("freeze", 0, kind(event.ItemStarted))
	var pids []int
	for len(pids) == 0 { // it is started at the same time
		pids = h.workers("freeze")
	}
	ended := watchEnd(t, pids[0])
	if err := syscall.Kill(pids[0], syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	h.kill()
	ended()
}

// TestWorkerProcessEnds kills the process that jobs share under two runs of two jobs. Each runs
// again at once, in a process of its job's own, and is done: nothing has failed. The host goes
// on, and so do its other jobs.
func TestWorkerProcessEnds(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	for _, job := range []string{"a", "b"} {
		p.guestJob(job, "cron: 0 0 0 1 1 ?", "shardingTotalCount: 1", `jobParameter: "stubborn:a"`)
	}
	p.guestJob("tick", everySecond, "shardingTotalCount: 2")
	h := p.start("--mount", "a="+p.path("gate")+":/gate", "--mount", "b="+p.path("gate")+":/gate")
	for _, job := range []string{"a", "b"} {
		h.of(job, 0, owned())
		p.must("job", "run", job)
		h.of(job, 0, kind(event.ItemStarted))
	}
	h.of("tick", 0, kind(event.ItemEnded))
	from, line := h.mark(), h.logMark()
	for _, pid := range h.workers("guests") { // what reads the gate shares one, and tick is in another
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
	h.line(line, "a worker process ended", `"worker":"guests"`, "signal: killed", `"jobs":["a","b"]`)
	for _, job := range []string{"a", "b"} {
		if e := h.of(job, from, kind(event.ItemEnded), outcome(abi.OutcomeWorker)); !e.Again || e.Attempt != 1 {
			t.Errorf("%s ended %+v", job, e)
		}
		if e := h.of(job, from, kind(event.ItemStarted)); e.Attempt != 1 {
			t.Errorf("%s started %+v", job, e)
		}
		await(t, "a process of the job's own", func() bool { return len(h.workers(job)) == 1 })
	}
	p.open("a")
	for _, job := range []string{"a", "b"} {
		if e := h.of(job, from, kind(event.ItemCompleted)); e.Outcome != abi.OutcomeOK || e.Attempt != 1 {
			t.Errorf("%s is over: %+v", job, e)
		}
		await(t, "an explanation", func() bool {
			return strings.Contains(p.cli("explain", job).out, "The worker process in which it ran ended at ")
		})
	}
	h.fires("tick", h.mark())
	if n := h.count("tick", kind(event.ItemCompleted)) - h.count("tick", kind(event.ItemCompleted), outcome(abi.OutcomeOK)); n != 0 {
		t.Errorf("%d items of the other job did not end well", n)
	}
	h.metric(`wasmjob_item_attempts_total{job_name="a",outcome="WORKER"} 1`)
	h.metric("wasmjob_worker_processes_killed_total 0")
}

// watchEnd returns a function that waits for the end of a process that is no child of
// this one.
func watchEnd(t *testing.T, pid int) func() {
	t.Helper()
	const pidfdOpen = 434 // on all architectures
	fd, _, errno := syscall.Syscall(pidfdOpen, uintptr(pid), syscall.O_NONBLOCK, 0)
	if errno != 0 {
		t.Fatalf("process %d: %v", pid, errno)
	}
	f := os.NewFile(fd, "process")
	t.Cleanup(func() { _ = f.Close() })
	return func() {
		t.Helper()
		err := f.SetReadDeadline(time.Now().Add(patience))
		var c syscall.RawConn
		if err == nil {
			c, err = f.SyscallConn()
		}
		if err == nil {
			err = c.Read(func(uintptr) bool { return !lives(pid) })
		}
		if err != nil {
			t.Errorf("the worker process %d has outlived its host: %v", pid, err)
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}
