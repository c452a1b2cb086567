package plugin

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/tetratelabs/wazero/sys"

	"github.com/wasmjob/wasmjob/abi"
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
