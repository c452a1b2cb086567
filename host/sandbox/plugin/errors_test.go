package plugin

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/tetratelabs/wazero/sys"

	"github.com/wasmjob/wasmjob/abi"
	w "github.com/wasmjob/wasmjob/test/wasm"
)

func TestClassify(t *testing.T) {
	t.Parallel()
	live := context.Background()
	stopped, cancel := context.WithCancel(live)
	cancel()
	late, cancel := context.WithTimeout(live, 0)
	defer cancel()
	oops := func() error {
		return guard(func() error {
			panic("boom")
		})
	}
	for _, c := range []struct {
		name    string
		ctx     context.Context
		err     error
		outcome abi.Outcome
		text    string
		stack   string
	}{
		{"deadline", late, sys.NewExitError(sys.ExitCodeDeadlineExceeded), abi.OutcomeTimeout, "op: timeout: the time was up", ""},
		{"deadline, but it returned", late, nil, abi.OutcomeTimeout, "op: timeout: the time was up", ""},
		{"cancelled", stopped, sys.NewExitError(sys.ExitCodeContextCanceled), abi.OutcomeCancelled, "op: cancelled: stopped", ""},
		{"trap just when cancelled", stopped, errors.New("wasm error: unreachable"), abi.OutcomeCancelled, "op: cancelled: stopped", ""},
		// A guest may exit with wazero's own codes.
		{"liar", live, sys.NewExitError(sys.ExitCodeDeadlineExceeded), abi.OutcomeExit, "op: guest exited with code 4026531839", ""},
		{"exit 0", live, sys.NewExitError(0), abi.OutcomeExit, "op: guest exited with code 0", ""},
		{"trap", live, errors.New("wasm error: unreachable\nwasm stack trace:\n\t.a()\n\t.b()"), abi.OutcomeTrap, "op: trap: unreachable", ".a()\n.b()"},
		{"overflow", live, errors.New("stack overflow"), abi.OutcomeTrap, "op: trap: stack overflow", ""},
		{"fault", live, fmt.Errorf("%w (recovered by wazero)\nwasm stack trace:\n\t.a()", &fault{text: "log: bad"}), abi.OutcomeTrap, "op: trap: log: bad", ".a()"},
		{"clock", live, fmt.Errorf("%w (recovered by wazero)", &fault{text: "late", ended: true}), abi.OutcomeTimeout, "op: timeout: late", ""},
		{"engine", live, oops(), abi.OutcomeError, "op: host: the engine failed: boom", ""},
	} {
		outcome, e := classify(c.ctx, "op", c.err)
		if outcome != c.outcome || e.Error() != c.text || e.Stack != c.stack {
			t.Errorf("%s: %s %q %q, want %s %q %q", c.name, outcome, e, e.Stack, c.outcome, c.text, c.stack)
		}
		if errors.Is(e, context.DeadlineExceeded) != (outcome == abi.OutcomeTimeout) || errors.Is(e, context.Canceled) != (outcome == abi.OutcomeCancelled) {
			t.Errorf("%s: %v is the wrong context error", c.name, e)
		}
	}
}

func TestLastWords(t *testing.T) {
	t.Parallel()
	for stderr, want := range map[string]string{
		"":                                 "",
		"one\ntwo\n\n":                     "two",
		"x\npanic: no\n\ngoroutine 1:\n":   "panic: no",
		"thread 'main' panicked at a.rs:1": "thread 'main' panicked at a.rs:1",
		"fatal error: out of memory\nmore": "fatal error: out of memory",
	} {
		if got := lastWords(stderr); got != want {
			t.Errorf("%q: %q, want %q", stderr, got, want)
		}
	}
}

// A mistake of wazero's that a guest brings about is the guest's trap. One of ours is the host's.
func TestWhoseMistake(t *testing.T) {
	t.Parallel()
	for _, interpreter := range []bool{false, true} {
		var log bytes.Buffer
		r := newRuntime(t, Options{interpreter: interpreter, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		c := newCaller()
		module := c.untilError(false, w.Code(w.I32Const(1), w.I64Const(0), w.I64Const(0), w.I32Const(0), w.Call(c.times)))
		got := newWorker(t, load(t, r, module), Settings{}).Execute(t.Context(), item(newRecorder(), ""))
		const want = "job_execute: trap: the engine failed in wasi_snapshot_preview1.fdFilestatSetTimesFn: runtime error: invalid memory address or nil pointer dereference"
		if got.Outcome != abi.OutcomeTrap || got.Message != want {
			t.Errorf("%s %q, expected %q", got.Outcome, got.Message, want)
		}
		if e := got.Err.(*Error); e.Kind != KindTrap || strings.Contains(e.Stack, "goroutine") || !strings.Contains(e.Stack, "fd_filestat_set_times") {
			t.Errorf("kind %s, stack %q", e.Kind, e.Stack)
		}
		if strings.Contains(log.String(), "level=ERROR") {
			t.Errorf("the log blames the host: %s", &log)
		}

		m := w.New()
		f := m.Import(abi.Module, "progress", "ll", "")
		m.Memory(1, 1)
		m.ExportMemory(abi.ExportMemory)
		m.Export(abi.Marker, m.Func("", "", ""))
		m.Export(abi.ExportExecute, m.Func("", "i", "", w.I64Const(1), w.I64Const(2), w.Call(f), w.I32Const(0)))
		worker := newWorker(t, load(t, r, m.Bytes()), Settings{})
		got = worker.Execute(t.Context(), item(&broken{recorder: newRecorder()}, ""))
		if e, ok := got.Err.(*Error); !ok || e.Kind != KindHost || !strings.Contains(e.Stack, "broken") || !strings.Contains(got.Message, "index out of range") {
			t.Errorf("%s %q, expected a fault of the host", got.Outcome, got.Message)
		}
		if !strings.Contains(log.String(), "level=ERROR") {
			t.Error("a fault of the host is not logged")
		}
		// It harms nothing else.
		if got := worker.Execute(t.Context(), item(newRecorder(), "")); got.Outcome != abi.OutcomeOK {
			t.Errorf("the next one: %s %q", got.Outcome, got.Message)
		}
	}
}

// broken is a host with a bug.
type broken struct {
	*recorder
	none []int
}

func (b *broken) Progress(done, _ int64) { b.none[done]++ }

// The names in a guest's stack are the guest's: they are cut before the engine writes them 30 times.
func TestStackOfLongNames(t *testing.T) {
	t.Parallel()
	const long = 4 << 20
	name := bytes.Repeat([]byte("é"), long/2)
	m := w.New()
	m.Memory(1, 1)
	m.ExportMemory(abi.ExportMemory)
	m.Export(abi.Marker, m.Func("", "", ""))
	f := m.Declare("i", "")
	m.Body(f, "", w.Get(0), w.Eqz(), w.If(w.Unreachable()), w.Get(0), w.I32Const(1), w.Sub(), w.Call(f))
	m.Export(abi.ExportExecute, m.Func("", "i", "", w.I32Const(50), w.Call(f), w.I32Const(0)))
	names := w.Code(w.U32(1), w.U32(f), w.U32(long), name)
	m.Custom("name", w.Code([]byte{1}, w.U32(uint32(len(names))), names))
	r := newRuntime(t, Options{interpreter: raceEnabled})
	got := newWorker(t, load(t, r, m.Bytes()), Settings{}).Execute(t.Context(), item(newRecorder(), ""))
	e, ok := got.Err.(*Error)
	if !ok || got.Outcome != abi.OutcomeTrap {
		t.Fatalf("%s %q", got.Outcome, got.Message)
	}
	if n := len(e.Stack); n < 30*250 || n > 30*300 || !utf8.ValidString(e.Stack) {
		t.Errorf("the stack has %d bytes", n)
	}
}
