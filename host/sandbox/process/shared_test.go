package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/sandbox/plugin"
	"github.com/wasmjob/wasmjob/host/sandbox/wasm"
)

// jobOf is an executor of a job that shares its worker process.
func jobOf(t testing.TB, m *Module, job string, mounts ...plugin.Mount) abi.Executor {
	t.Helper()
	x, err := m.Executor(t.Context(), plugin.Settings{Type: wasm.TypeSimple, JobName: job, Mounts: mounts}, "guests")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(x.Release)
	return x
}

func processOf(t testing.TB, w abi.Worker) *child {
	t.Helper()
	if r := w.Execute(t.Context(), item(newRecorder(), "ok")); r.Outcome != abi.OutcomeOK {
		t.Fatalf("%+v", r)
	}
	return w.(*worker).process
}

// TestShared: jobs share a process, also with different modules; those that read other
// directories have another one.
func TestShared(t *testing.T) {
	t.Parallel()
	w := workers(t, "good", plugin.Options{}, Options{})
	m, other := moduleOf(t, w, "c/guest"), moduleOf(t, w, "wat/noop")
	one := processOf(t, worked(t, jobOf(t, m, "a")))
	if processOf(t, worked(t, jobOf(t, m, "b"))) != one {
		t.Error("jobs with one module have two processes")
	}
	x, err := other.Executor(t.Context(), plugin.Settings{JobName: "c"}, "guests")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(x.Release)
	if processOf(t, worked(t, x)) != one {
		t.Error("jobs with two modules have two processes")
	}
	dir := plugin.Mount{Host: t.TempDir(), Guest: "/data"}
	reads := processOf(t, worked(t, jobOf(t, m, "d", dir)))
	if reads == one || processOf(t, worked(t, jobOf(t, m, "e", dir))) != reads {
		t.Error("who reads directories shares a process with those that read the same, and with no others")
	}
	written := plugin.Mount{Host: t.TempDir(), Guest: "/data", Write: true}
	if processOf(t, worked(t, jobOf(t, m, "f", written))) != one {
		t.Error("directories in which the host acts need no process")
	}
	alone, err := m.Executor(t.Context(), plugin.Settings{Type: wasm.TypeSimple, JobName: "g"}, "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(alone.Release)
	if c := processOf(t, worked(t, alone)); c == one || c == reads {
		t.Error("a job that is to be alone shares a process")
	}
}

// TestSuspects: when a process ends by itself, the jobs that ran in it run alone for a
// while, and no other job; one that ends its own process stays alone for long.
func TestSuspects(t *testing.T) {
	t.Parallel()
	w := workers(t, "good", plugin.Options{}, Options{})
	m := moduleOf(t, w, "c/guest")
	bad, good, idle := worked(t, jobOf(t, m, "bad")), worked(t, jobOf(t, m, "good")), worked(t, jobOf(t, m, "idle"))
	processOf(t, idle)
	c, first := running(t, bad, "spin-log", 0)
	beside, second := running(t, good, "spin-log", 0)
	if c != beside {
		t.Fatal("they do not share a process")
	}
	if err := c.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	for _, ended := range []<-chan abi.Result{first, second} {
		if r := <-ended; r.Outcome != abi.OutcomeWorker {
			t.Errorf("%+v", r)
		}
	}
	shared, badly, goodly := processOf(t, idle), processOf(t, bad), processOf(t, good)
	if shared == badly || shared == goodly || badly == goodly {
		t.Error("jobs share a process after they may have ended one")
	}
	if until := w.suspects[suspect{"good", m.m.Digest()}].until; time.Until(until) > quarantine {
		t.Errorf("a job that may be innocent is alone until %s", until)
	}
	again, third := running(t, bad, "spin-log", 0)
	if again != badly {
		t.Error("a suspect has another process for each run")
	}
	if err := again.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-third
	if s := w.suspects[suspect{"bad", m.m.Digest()}]; !s.alone || time.Until(s.until) < quarantine {
		t.Errorf("%+v of a job that has ended a process alone", s)
	}
	if w.suspects[suspect{"idle", m.m.Digest()}] != nil {
		t.Error("a job is suspected of whose guests none ran")
	}
	// A new module of the job begins without suspicion.
	x, err := moduleOf(t, w, "wat/noop").Executor(t.Context(), plugin.Settings{JobName: "bad"}, "guests")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(x.Release)
	if processOf(t, worked(t, x)) != shared {
		t.Error("another module of the job is alone")
	}
}

// TestPipelined gives a guest several items at once: each runs once, in turn.
func TestPipelined(t *testing.T) {
	t.Parallel()
	w := workers(t, "good", plugin.Options{}, Options{})
	one := worked(t, jobOf(t, moduleOf(t, w, "c/guest"), "a"))
	if d := one.(abi.Pipelined).Depth(); d != Depth {
		t.Fatalf("a depth of %d", d)
	}
	processOf(t, one)
	var mu sync.Mutex
	begun, back := 0, 0
	var wg sync.WaitGroup
	for range Depth {
		wg.Go(func() {
			for range 500 {
				r := one.Execute(t.Context(), item(newRecorder(), "calls"))
				mu.Lock()
				switch {
				case r.NotBegun:
					back++
				case r.Outcome == abi.OutcomeOK:
					begun++
				default:
					t.Errorf("%+v", r)
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if begun+back != Depth*500 {
		t.Errorf("%d were begun, %d were given back", begun, back)
	}
	// The guest counts its calls: one of the first item is before them.
	h := newRecorder()
	if r := one.Execute(t.Context(), item(h, "calls")); r.Outcome != abi.OutcomeOK || len(h.Lines) != 1 || h.Lines[0].Msg != fmt.Sprint(begun+2) {
		t.Errorf("%d begun, and the guest has had: %+v, %+v", begun, h.Lines, r)
	}
}

// TestGivenBack: what waits behind an item that takes its time is given back before
// that ends, and has no effect.
func TestGivenBack(t *testing.T) {
	t.Parallel()
	w := workers(t, "good", plugin.Options{}, Options{})
	one := worked(t, jobOf(t, moduleOf(t, w, "c/guest"), "a"))
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	h := newRecorder()
	began, ended := make(chan struct{}), make(chan abi.Result, 1)
	once := sync.OnceFunc(func() { close(began) })
	h.heard = func(string) { once() }
	go func() { ended <- one.Execute(ctx, item(h, "spin-log")) }()
	<-began
	behind := newRecorder()
	r := one.Execute(t.Context(), item(behind, "attrs"))
	if !r.NotBegun || len(behind.Lines) != 0 {
		t.Errorf("%+v, %+v", r, behind.Lines)
	}
	select {
	case r := <-ended:
		t.Errorf("the item before it has ended: %+v", r)
	default:
	}
	stop()
	if r := <-ended; r.Outcome != abi.OutcomeCancelled || r.NotBegun {
		t.Errorf("%+v", r)
	}
	if r := one.Execute(t.Context(), item(behind, "ok")); r.Outcome != abi.OutcomeOK {
		t.Errorf("%+v", r)
	}
}

// pause lets others run until something has happened that this test cannot wait for
// otherwise, for as long as the test may last.
func pause(t testing.TB) {
	if t.Context().Err() != nil {
		t.FailNow()
	}
	runtime.Gosched()
}

// TestExpect starts a process and loads a module ahead of a fire.
func TestExpect(t *testing.T) {
	t.Parallel()
	w := workers(t, "good", plugin.Options{}, Options{idle: 10 * time.Millisecond})
	x := jobOf(t, moduleOf(t, w, "c/guest"), "a")
	here := func() bool {
		g := x.(*executor).home
		g.mu.Lock()
		c := g.process
		g.mu.Unlock()
		return c != nil && c.alive() && c.holds(x.(*executor))
	}
	x.Expect(time.Now().Add(time.Hour))
	if here() {
		t.Error("a process is there an hour ahead")
	}
	x.Expect(time.Now().Add(plugin.Soon / 2))
	for !here() {
		pause(t)
	}
	x.Expect(time.Now().Add(time.Hour))
	for here() { // it is idle
		pause(t)
	}
}

// TestModulesLeave: what is not needed leaves a process for which there is a limit.
func TestModulesLeave(t *testing.T) {
	t.Parallel()
	w := workers(t, "good", plugin.Options{ModuleMemory: 1}, Options{})
	m, other := moduleOf(t, w, "c/guest"), moduleOf(t, w, "wat/noop")
	busy := worked(t, jobOf(t, m, "a"))
	c := processOf(t, busy)
	x, err := other.Executor(t.Context(), plugin.Settings{JobName: "b"}, "guests")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(x.Release)
	one, err := x.NewWorker(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if processOf(t, one) != c {
		t.Fatal("they do not share a process")
	}
	if err := one.Close(); err != nil {
		t.Fatal(err)
	}
	for c.holds(x.(*executor)) {
		pause(t)
	}
	if !c.holds(busy.(*worker).x) {
		t.Error("a module in which a guest runs has left")
	}
	if one, err = x.NewWorker(t.Context()); err != nil { // it comes back
		t.Fatal(err)
	}
	defer one.Close()
	if processOf(t, one) != c {
		t.Error("it came to another process")
	}
}

// TestTrialEndsProcess: a module on trial that ends its process is refused; one that is
// tried beside it is not.
func TestTrialEndsProcess(t *testing.T) {
	t.Parallel()
	w := workers(t, "trap", plugin.Options{}, Options{})
	_, err := moduleOf(t, w, "c/guest").Executor(t.Context(), plugin.Settings{Type: wasm.TypeSimple}, "")
	if load := (*plugin.LoadError)(nil); !errors.As(err, &load) || !strings.Contains(err.Error(), "the worker process ended") {
		t.Errorf("found %v, expected a refusal", err)
	}
	if s := w.Stats(); s.Started != 2 || s.Ended[CauseCrashed] != 2 {
		t.Errorf("%+v, expected that it was tried once more, alone, and crashed", s)
	}
}

// endsInTrial is a process that ends when it is to try a module.
func endsInTrial() error {
	in, out := fromHost(os.Stdin), newWriter(os.Stdout)
	if err := in.expect(kindStart, &start{}); err != nil {
		return err
	}
	if err := out.send(kindReady, ready{}); err != nil {
		return err
	}
	_, _, err := in.next()
	return err
}

// TestClipList keeps messages short.
func TestClipList(t *testing.T) {
	t.Parallel()
	long := make([]string, 1000)
	if got := clipList(long); len(got) != 21 || got[20] != "and 980 more" {
		t.Errorf("%q", got)
	}
	if got := clipList([]string{"a"}); !slices.Equal(got, []string{"a"}) {
		t.Errorf("%q", got)
	}
}
