package e2e_test

import (
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/engine"
	"github.com/wasmjob/wasmjob/host/event"
)

// startDurable starts a host whose registry outlives it, and whose gate is
// mounted for the named jobs.
func (p *place) startDurable(jobs []string, flags ...string) *process {
	p.t.Helper()
	flags = append([]string{"--data", p.path("data")}, flags...)
	for _, j := range jobs {
		flags = append(flags, "--mount", j+"="+p.path("gate")+":/gate")
	}
	return p.start(flags...)
}

// TestFailoverOntoItself: a host is killed while items run; the next one runs
// exactly those again, once. What operators and files have set stays set.
func TestFailoverOntoItself(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	jobs := []string{"held", "lost", "half", "still", "edited"}
	p.guestJob("held", "shardingTotalCount: 3", "failover: true", `shardingItemParameters: "1=hold:a,2=hold:a"`)
	p.guestJob("lost", "shardingTotalCount: 1", "failover: false", `jobParameter: "hold:b"`)
	p.guestJob("half", everySecond, "shardingTotalCount: 2")
	p.guestJob("still", everySecond, "shardingTotalCount: 1")
	p.guestJob("edited", `cron: "0 0 0 1 1 ? 2099"`, "shardingTotalCount: 1", "jobParameter: say")
	h := p.startDurable(jobs)
	for _, j := range jobs {
		h.of(j, 0, owned())
	}
	p.must("job", "pause", "half", "--item", "1")
	p.must("job", "pause", "still")
	h.of("half", 0, kind(event.ItemSkipped), item(1), because("paused"))
	p.must("job", "run", "held")
	p.must("job", "run", "lost")
	fire := h.of("held", 0, kind(event.FireStarted), source(abi.SourceTrigger))
	for _, n := range []int{1, 2} {
		h.of("held", fire.at, kind(event.ItemStarted), item(n), ofFire(fire))
	}
	done := h.of("held", fire.at, kind(event.ItemCompleted), item(0), ofFire(fire))
	lost := h.of("lost", 0, kind(event.ItemStarted))
	h.kill()
	p.refused(1, []string{"no host is running here"}, "status") // whatever note it left

	p.define("edited", `cron: "0 0 0 1 1 ? 2098"`, "shardingTotalCount: 2", "jobParameter: say")
	h = p.startDurable(jobs)
	for _, n := range []int{1, 2} {
		again := h.of("held", 0, kind(event.ItemStarted), item(n))
		if again.Source != abi.SourceFailover || !ofFire(fire).ok(again.Event) || again.Fence <= done.Fence {
			t.Errorf("item %d of the fire %s (fence %d) is run again as %+v", n, fire.Instant, done.Fence, again.Event)
		}
	}
	h.of("lost", 0, kind(event.ItemSkipped), item(0), outcome("LOST"), because("failover is off"))
	p.open("a")
	for _, n := range []int{1, 2} {
		h.of("held", 0, kind(event.ItemCompleted), item(n), outcome(abi.OutcomeOK), ofFire(fire))
	}

	// What was set is still set.
	skipped := h.of("half", 0, kind(event.ItemSkipped), item(1), because("paused"))
	h.of("half", skipped.at, kind(event.ItemCompleted), item(0))
	if n := h.count("half", kind(event.ItemStarted), item(1)); n != 0 {
		t.Errorf("the disabled item was run %d times", n)
	}
	if n := h.count("still", kind(event.ItemStarted)); n != 0 {
		t.Errorf("the disabled job was run %d times", n)
	}
	if j := p.job("still"); j.State != engine.JobDisabled {
		t.Errorf("the disabled job is %s", j.State)
	}
	if j := p.job("edited"); j.ShardingTotalCount != 2 || !strings.HasSuffix(j.Cron, "2098") {
		t.Errorf("the file was edited while no host ran; in force is %q, %d items", j.Cron, j.ShardingTotalCount)
	}

	// A life later nothing is owed any more.
	h.stop()
	for _, n := range []int{1, 2} {
		if c := h.count("held", kind(event.ItemStarted), item(n)); c != 1 {
			t.Errorf("item %d was run again %d times, want once", n, c)
		}
	}
	if c := h.count("lost", kind(event.ItemStarted)); c != 0 {
		t.Errorf("failover is off, but %+v was run again", lost.Event)
	}
	h = p.startDurable(jobs)
	p.must("job", "resume", "still")
	p.must("job", "resume", "half", "--item", "1")
	h.of("still", 0, kind(event.ItemCompleted))
	h.of("half", 0, kind(event.ItemCompleted), item(1))
	if c := h.count("held", kind(event.ItemStarted)) + h.count("lost", kind(event.ItemStarted)); c != 0 {
		t.Errorf("%d items were run that nobody asked for", c)
	}
	h.stop()
}

// TestDrain: what runs at SIGTERM completes, what waits is handed back and
// made up for after the restart.
func TestDrain(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.guestJob("queue", everySecond, "shardingTotalCount: 3", "maxConcurrency: 1", `jobParameter: "hold:a"`)
	h := p.startDurable([]string{"queue"}, "--drain-timeout", "10m")
	running := h.of("queue", 0, kind(event.ItemStarted))
	h.signal(syscall.SIGTERM)
	h.line(0, "a second signal stops at once")
	queued := []int{0, 1, 2}
	queued = slices.Delete(queued, *running.Item, *running.Item+1)
	for _, n := range queued {
		// Handed back at once, while the other one still runs.
		h.of("queue", running.at, kind(event.ItemSkipped), item(n), ofFire(running), because("handed back"))
	}
	if h.count("queue", kind(event.ItemEnded)) != 0 {
		t.Error("the running item has ended, but nobody let it")
	}
	if code, _ := h.get("/readyz"); code != 503 {
		t.Errorf("/readyz says %d while the host drains, want 503", code)
	}
	p.open("a")
	if code := h.exit(); code != 0 {
		t.Errorf("exit code %d, want 0", code)
	}
	h.of("queue", running.at, kind(event.ItemCompleted), item(*running.Item), ofFire(running), outcome(abi.OutcomeOK))
	if n := h.count("queue", kind(event.ItemStarted)); n != 1 {
		t.Errorf("%d items were begun, want the one that ran at the signal", n)
	}

	h = p.startDurable([]string{"queue"})
	for _, n := range queued {
		made := h.of("queue", 0, kind(event.ItemCompleted), item(n))
		// An instant that came just then stands for the one that is owed.
		if made.Source != abi.SourceCatchUp && made.Source != abi.SourceSchedule || made.Instant.Before(running.Instant) {
			t.Errorf("item %d was run as %+v, want the instant %s made up for", n, made.Event, running.Instant)
		}
	}
	h.stop()
}

// TestDrainTimeout: who does not end in time is stopped, and is unfinished.
func TestDrainTimeout(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.guestJob("deaf", "shardingTotalCount: 1", "failover: true", `jobParameter: "stubborn:a"`)
	h := p.startDurable([]string{"deaf"}, "--drain-timeout", "1s")
	h.of("deaf", 0, owned())
	p.must("job", "run", "deaf")
	running := h.of("deaf", 0, kind(event.ItemStarted))
	h.signal(os.Interrupt)
	if code := h.exit(); code != 0 {
		t.Errorf("exit code %d after a drain with its timeout, want 0", code)
	}
	h.line(0, "the drain timeout is over")
	h.of("deaf", running.at, kind(event.ItemEnded), outcome(abi.OutcomeCancelled))
	if n := h.count("deaf", kind(event.ItemCompleted)); n != 0 {
		t.Error("the item counts as completed")
	}
	h = p.startDurable([]string{"deaf"})
	again := h.of("deaf", 0, kind(event.ItemStarted))
	if again.Source != abi.SourceFailover || !ofFire(running).ok(again.Event) {
		t.Errorf("run again as %+v", again.Event)
	}
	p.open("a")
	h.of("deaf", 0, kind(event.ItemCompleted), outcome(abi.OutcomeOK))
	h.stop()
}

// TestSecondSignal: it ends the host at once.
func TestSecondSignal(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.guestJob("deaf", "shardingTotalCount: 2", `jobParameter: "stubborn:a"`, "failover: true")
	h := p.startDurable([]string{"deaf"}, "--drain-timeout", "10m")
	h.of("deaf", 0, owned())
	p.must("job", "run", "deaf")
	h.of("deaf", 0, kind(event.ItemStarted), item(0))
	h.of("deaf", 0, kind(event.ItemStarted), item(1))
	h.signal(syscall.SIGTERM)
	h.line(0, "a second signal stops at once")
	h.signal(syscall.SIGTERM)
	if code := h.exit(); code != 1 {
		t.Errorf("exit code %d, want 1", code)
	}
	h.line(0, "stopped at once by a second signal")
	h.of("", 0, kind(event.HostStopped))
	p.refused(1, []string{"no host is running here"}, "status")

	// It is as after a crash.
	p.open("a")
	h = p.startDurable([]string{"deaf"})
	h.of("deaf", 0, kind(event.ItemCompleted), item(0), source(abi.SourceFailover))
	h.of("deaf", 0, kind(event.ItemCompleted), item(1), source(abi.SourceFailover))
	h.stop()
}

// TestSuspended: a host that was stopped for a while, as by a closed lid, goes
// on with the newest instant, and says which it missed.
func TestSuspended(t *testing.T) {
	t.Parallel()
	p, other := newPlace(t), newPlace(t)
	for _, q := range []*place{p, other} {
		q.guestJob("clock", everySecond, "shardingTotalCount: 1")
	}
	h, clock := p.start(), other.start()
	h.fires("clock", 0)
	h.signal(syscall.SIGSTOP)
	stopped := clock.fires("clock", clock.mark())
	woken := stopped
	for range 4 {
		woken = clock.fires("clock", woken.at+1)
	}
	from := h.mark()
	h.signal(syscall.SIGCONT)
	missed := h.of("clock", from, kind(event.FireSkipped))
	if missed.Reason == "" || missed.Instant.After(woken.Instant) {
		t.Errorf("of what was missed it says %+v", missed.Event)
	}
	next := h.fires("clock", missed.at)
	if next.Instant.Before(stopped.Instant) {
		t.Errorf("after it woke it fired for %s", next.Instant)
	}
	h.stop()
	clock.stop()
}
