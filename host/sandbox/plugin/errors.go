package plugin

import (
	"context"
	"errors"
	"fmt"
	"path"
	"runtime"
	"strings"

	"github.com/tetratelabs/wazero/sys"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/internal/text/words"
)

// Kind says what an [Error] is about.
type Kind string

// The kinds.
const (
	KindLoad      Kind = "load"      // the module or its configuration was refused
	KindTrap      Kind = "trap"      // the guest did something that WebAssembly or the contract forbids
	KindExit      Kind = "exit"      // the guest ended itself
	KindTimeout   Kind = "timeout"   // the time was up
	KindCancelled Kind = "cancelled" // the invocation was stopped, or ownership lost
	KindHost      Kind = "host"      // the host's own fault
)

// Error is a failure in the guest or at the border. errors.Is(err, context.DeadlineExceeded) holds for
// KindTimeout, errors.Is(err, context.Canceled) for KindCancelled.
type Error struct {
	Kind Kind
	// Op is the operation: the guest's export, or "load".
	Op string
	// ExitCode is set for KindExit.
	ExitCode uint32
	// Stack is the guest's stack, one frame a line, innermost first; empty
	// if it is not known.
	Stack string
	// Stderr is the end of what the guest wrote there during the invocation.
	Stderr string
	// Err is the cause; for KindExit nil, or that the guest was refused memory.
	Err error
}

// Error names kind, place and cause in one line, without stack and stderr.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.Op)
	b.WriteString(": ")
	switch e.Kind {
	case KindExit:
		fmt.Fprintf(&b, "guest exited with code %d", e.ExitCode)
	case KindLoad:
	default:
		b.WriteString(string(e.Kind))
	}
	if e.Err != nil {
		if e.Kind != KindLoad {
			b.WriteString(": ")
		}
		b.WriteString(e.Err.Error())
	}
	if e.Kind == KindExit || e.Kind == KindTrap {
		if reason := lastWords(e.Stderr); reason != "" {
			b.WriteString(": ")
			b.WriteString(reason)
		}
	}
	return b.String()
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Is reports whether target is the context error that the kind stands for.
func (e *Error) Is(target error) bool {
	switch target {
	case context.DeadlineExceeded:
		return e.Kind == KindTimeout
	case context.Canceled:
		return e.Kind == KindCancelled
	}
	return false
}

// lastWords picks the most useful line from the end of a guest's stderr: the runtime's panic message if there
// is one, otherwise the last line.
func lastWords(stderr string) string {
	last := ""
	for line := range strings.Lines(stderr) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "panic: ") || strings.HasPrefix(line, "fatal error: ") || strings.Contains(line, " panicked at ") {
			return line
		}
		if line != "" {
			last = line
		}
	}
	return last
}

// LoadError says why a module was refused. It lists all problems, and counts those beyond [words.MostProblems].
type LoadError struct {
	// Name is the module's, for people; empty if it has none.
	Name     string
	Problems []string
	more     int // problems that are only counted, by the last of Problems
	// Err is the cause if the module failed while it was compiled or tried: an *Error, or an error of a
	// context; otherwise nil.
	Err error
}

// Error lists all problems, one a line if there are several.
func (e *LoadError) Error() string {
	var b strings.Builder
	if e.Name != "" {
		b.WriteString(e.Name)
		b.WriteString(": ")
	}
	switch len(e.Problems) {
	case 0:
		b.WriteString("module refused")
	case 1:
		b.WriteString(e.Problems[0])
	default:
		fmt.Fprintf(&b, "%d problems", len(e.Problems))
		for _, p := range e.Problems {
			b.WriteString("\n  - ")
			b.WriteString(p)
		}
	}
	return b.String()
}

func (e *LoadError) add(format string, args ...any) {
	const most = words.MostProblems - 1 // and one that counts the others
	if len(e.Problems) < most {
		e.Problems = append(e.Problems, words.Reason(fmt.Sprintf(format, args...)))
		return
	}
	e.more++
	e.Problems = append(e.Problems[:most], words.More(e.more))
}

// Unwrap returns an *Error of KindLoad.
func (e *LoadError) Unwrap() error {
	return &Error{Kind: KindLoad, Op: "load", Err: e.Err}
}

// fault is the panic with which a host function stops a guest. wazero wraps
// it with %w and adds the guest's stack.
type fault struct {
	text string
	// ended is set if the guest was stopped because its time was up, not because of its own action.
	ended bool
}

func (f *fault) Error() string { return f.text }

// classify classifies a call that failed with err, or whose context ended. It checks ctx first: an ended
// context and an exit both surface as *sys.ExitError in wazero, and a guest may choose any exit code, including
// wazero's codes for ended contexts.
func classify(ctx context.Context, op string, err error) (abi.Outcome, *Error) {
	if cause := ctx.Err(); cause != nil {
		if errors.Is(cause, context.DeadlineExceeded) {
			return abi.OutcomeTimeout, &Error{Kind: KindTimeout, Op: op, Err: errTimeUp}
		}
		return abi.OutcomeCancelled, &Error{Kind: KindCancelled, Op: op, Err: errStopped}
	}
	if exit, ok := errors.AsType[*sys.ExitError](err); ok {
		return abi.OutcomeExit, &Error{Kind: KindExit, Op: op, ExitCode: exit.ExitCode()}
	}
	text, stack := splitStack(err.Error())
	if f, ok := errors.AsType[*fault](err); ok {
		if f.ended {
			return abi.OutcomeTimeout, &Error{Kind: KindTimeout, Op: op, Stack: stack, Err: f}
		}
		return abi.OutcomeTrap, &Error{Kind: KindTrap, Op: op, Stack: stack, Err: f}
	}
	if _, ok := errors.AsType[*enginePanic](err); ok {
		return abi.OutcomeError, &Error{Kind: KindHost, Op: op, Err: err}
	}
	if bug, ok := errors.AsType[runtime.Error](err); ok {
		function, ours := faulty(stack)
		if ours {
			return abi.OutcomeError, &Error{Kind: KindHost, Op: op, Stack: stack, Err: errors.New("host function failed: " + text)}
		}
		// wazero did not expect the guest's arguments. wazero's stack is of no use to the operator.
		stack, _, _ = strings.Cut(stack, "\n\n"+goTrace)
		return abi.OutcomeTrap, &Error{Kind: KindTrap, Op: op, Stack: stack, Err: fmt.Errorf("the engine failed in %s: %w", function, bug)}
	}
	return abi.OutcomeTrap, &Error{Kind: KindTrap, Op: op, Stack: stack, Err: errors.New(strings.TrimPrefix(text, "wasm error: "))}
}

// goTrace is the beginning of the host's own stack. wazero v1.12.0 puts it after the guest's stack if a Go
// runtime error ended the call.
const goTrace = "Go runtime stack trace:"

// faulty finds the cause of a Go runtime error in the host's stack: the innermost function of ours or wazero's.
// It returns wazero's function. If neither is found the fault is ours.
func faulty(stack string) (function string, ours bool) {
	const us, engine = "github.com/wasmjob/wasmjob/", "github.com/tetratelabs/wazero/"
	_, trace, _ := strings.Cut(stack, goTrace)
	_, trace, _ = strings.Cut(trace, "\npanic(") // the functions before it have recovered
	for line := range strings.Lines(trace) {
		switch {
		case strings.HasPrefix(line, us):
			return "", true
		case strings.HasPrefix(line, engine):
			function, _, _ = strings.Cut(path.Base(strings.TrimSpace(line)), "(")
			return function, false
		}
	}
	return "", true
}

var (
	errTimeUp  = errors.New("the time was up")
	errStopped = errors.New("stopped")
)

// splitStack splits wazero's text of a trap.
func splitStack(text string) (message, stack string) {
	message, stack, ok := strings.Cut(text, "\nwasm stack trace:\n")
	if !ok {
		return text, ""
	}
	lines := strings.Split(strings.TrimRight(stack, "\n"), "\n")
	for i, l := range lines {
		lines[i] = strings.TrimPrefix(l, "\t")
	}
	return strings.TrimSuffix(message, " (recovered by wazero)"), strings.Join(lines, "\n")
}
