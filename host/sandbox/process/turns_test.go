package process

import (
	"context"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/sandbox/plugin"
	"github.com/wasmjob/wasmjob/host/sandbox/wasm"
)

// What comes between two steps of another, each brought about by an event.

// TestEvictedWhileItEnters: a module leaves while a worker that has found it there waits for
// memory. The worker pays for the module then.
func TestEvictedWhileItEnters(t *testing.T) {
	t.Parallel()
	w := workers(t, "good", plugin.Options{MemoryBudget: 200 << 20}, Options{idle: time.Hour})
	x := jobOf(t, moduleOf(t, w, "c/guest"), "a").(*executor)
	stays := worked(t, jobOf(t, moduleOf(t, w, "wat/noop"), "b"))
	one, err := x.NewWorker(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := one.Close(); err != nil {
		t.Fatal(err)
	}
	c := stays.(*worker).process
	if !c.holds(x) {
		t.Fatal("the module is not in memory")
	}
	before := w.o.Runtime.Memory()
	rest, err := w.o.Runtime.Admit(t.Context(), "rest", 140<<20)
	if err != nil {
		t.Fatal(err)
	}
	x.expected.Store(100 << 20)
	waits := 0
	ctx := abi.WithWaiting(t.Context(), func() func() {
		if waits++; waits == 1 {
			if !x.home.evict(x.Digest()) {
				t.Error("the module does not leave")
			}
			rest.Close()
		}
		return func() {}
	})
	again, err := x.NewWorker(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if waits != 1 {
		t.Fatalf("it has waited %d times", waits)
	}
	if !c.holds(x) || again.(*worker).process != c {
		t.Error("the module has not come back")
	}
	if after := w.o.Runtime.Memory(); after.Guests != before.Guests+again.(*worker).account.Bytes() {
		t.Errorf("%+v, before that %+v: the module is not paid for", after, before)
	}
}

// TestLateCover: a guest whose process has ended gets no more memory.
func TestLateCover(t *testing.T) {
	t.Parallel()
	w := workers(t, "good", plugin.Options{}, Options{})
	one := worked(t, executorOf(t, moduleOf(t, w, "c/guest"), plugin.Settings{Type: wasm.TypeSimple})).(*worker)
	old := processOf(t, one)
	if err := one.cover(old, 1<<20, 0); err != nil {
		t.Fatal(err)
	}
	old.end()
	<-old.dead
	if processOf(t, one) == old {
		t.Fatal("it has no other process")
	}
	before, limit := one.account.Bytes(), one.granted
	if err := one.cover(old, before+1<<20, 1<<20); !errors.Is(err, errGone) || one.account.Bytes() != before || one.granted != limit {
		t.Errorf("%v, and %d bytes, before that %d", err, one.account.Bytes(), before)
	}
}

// TestLoadAheadYields: a module that is loaded ahead of a fire takes no memory that another
// one has, though nobody needs that at the moment.
func TestLoadAheadYields(t *testing.T) {
	t.Parallel()
	w := workers(t, "good", plugin.Options{MemoryBudget: 100 << 20}, Options{idle: time.Hour})
	idle, ahead := jobOf(t, moduleOf(t, w, "c/guest"), "a").(*executor), jobOf(t, moduleOf(t, w, "wat/noop"), "b").(*executor)
	stays := worked(t, idle) // the process is in use
	c := processOf(t, stays)
	other := jobOf(t, moduleOf(t, w, "wat/listeners"), "c").(*executor)
	one, err := other.NewWorker(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := one.Close(); err != nil { // its module is idle
		t.Fatal(err)
	}
	free := func() int64 { m := w.o.Runtime.Memory(); return m.Budget - m.Guests - m.Code }
	for _, job := range []string{"d", "e"} { // a job has three quarters at most
		rest, err := w.o.Runtime.Admit(t.Context(), job, min(free(), 70<<20))
		if err != nil {
			t.Fatal(err)
		}
		defer rest.Close()
	}
	if err := ahead.load(t.Context()); !errors.Is(err, context.Canceled) {
		t.Errorf("found %v, expected that there is no memory", err)
	}
	if !c.holds(other) || c.holds(ahead) {
		t.Error("an idle module has left for one that nobody needs yet")
	}
	if waiting := w.o.Runtime.Memory().Waiting; waiting != 0 {
		t.Errorf("%d wait for memory", waiting)
	}
}

// TestConvictedOnce: two guests of a job that end with their process have ended one process.
func TestConvictedOnce(t *testing.T) {
	t.Parallel()
	w := workers(t, "good", plugin.Options{}, Options{})
	m := moduleOf(t, w, "c/guest")
	x := executorOf(t, m, plugin.Settings{Type: wasm.TypeSimple, JobName: "a"})
	one, two := worked(t, x), worked(t, x)
	c, first := running(t, one, "spin-log", 0)
	beside, second := running(t, two, "spin-log", 0)
	if c != beside {
		t.Fatal("they do not share a process")
	}
	if err := c.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-first
	<-second
	if s := w.suspects[suspect{"a", m.m.Digest()}]; s == nil || s.alone || time.Until(s.until) > quarantine {
		t.Errorf("%+v after one end of a process", s)
	}
}

// TestCancelledStart: who does not wait any more for a process that is not ready leaves none,
// and keeps nobody else from starting one.
func TestCancelledStart(t *testing.T) {
	t.Parallel()
	w := workers(t, "mute", plugin.Options{}, Options{})
	g := w.group("a", "a", nil)
	defer w.unref(g)
	for range 2 {
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			_, err := g.current(ctx)
			ended <- err
		}()
		for w.Stats().Running == 0 {
			pause(t)
		}
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("found %v, expected %v", err, context.Canceled)
		}
		if s := w.Stats(); s.Running != 0 || s.Killed != 0 {
			t.Errorf("%+v", s)
		}
	}
}

// TestNotReady: a process that does not become ready is killed.
func TestNotReady(t *testing.T) {
	t.Parallel()
	w := workers(t, "mute", plugin.Options{}, Options{patience: 50 * time.Millisecond})
	g := w.group("a", "a", nil)
	defer w.unref(g)
	if _, err := g.current(t.Context()); err == nil || err.Error() != "a worker process was not ready within 50ms, and was killed" {
		t.Errorf("found %v", err)
	}
	if s := w.Stats(); s.Running != 0 {
		t.Errorf("%+v", s)
	}
}

// TestExpectedIsTooMuch: a job whose guests have needed more than it gets beside its process
// and its module begins with what it begins with.
func TestExpectedIsTooMuch(t *testing.T) {
	t.Parallel()
	w := workers(t, "good", plugin.Options{MemoryBudget: 100 << 20}, Options{})
	x := executorOf(t, moduleOf(t, w, "c/guest"), plugin.Settings{Type: wasm.TypeSimple}).(*executor)
	x.expected.Store(75 << 20) // all that a job may have
	ctx := abi.WithWaiting(t.Context(), func() func() {
		t.Error("it waits for what it never gets")
		return func() {}
	})
	one, err := x.NewWorker(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer one.Close()
	if n := one.(*worker).account.Bytes(); n != x.needs.Least {
		t.Errorf("it begins with %d bytes, expected %d", n, x.needs.Least)
	}
}

// TestEndFollowsRun: an invocation whose context ends before its process knows of it tells the
// process of its end after that: else its guest would run on.
func TestEndFollowsRun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := &Workers{o: Options{grace: time.Hour}}
		in, out := io.Pipe()
		c := &child{w: w, out: newWriter(out), dead: make(chan struct{}), runs: map[int64]*invocation{}, life: t.Context()}
		v := &invocation{w: &worker{x: &executor{w: w}}, c: c, id: 7, inv: item(slow{newRecorder()}, ""), inbox: make(chan message, inboxSize), over: make(chan struct{})}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		ended := make(chan abi.Result, 1)
		go func() { ended <- v.run(ctx, "") }()
		r := fromHost(in)
		for _, want := range []kind{kindRun, kindEnd} {
			if k, _, err := r.next(); err != nil || k != want {
				t.Fatalf("found a frame of kind %d, %v, expected %d", k, err, want)
			}
		}
		v.inbox <- message{result: &result{Run: 7, Outcome: abi.OutcomeCancelled}}
		if r := <-ended; r.Outcome != abi.OutcomeCancelled {
			t.Errorf("%+v", r)
		}
	})
}

// slow is a host that answers when nothing else goes on.
type slow struct{ *recorder }

func (slow) LogEnabled(int) bool {
	synctest.Wait()
	return true
}
