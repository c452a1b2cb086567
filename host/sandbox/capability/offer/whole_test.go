package offer

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/config/grants"
	"github.com/wasmjob/wasmjob/host/sandbox/plugin"
)

// ended is a worker whose runs end with a result.
type ended struct {
	abi.Worker
	result abi.Result
}

func (e *ended) Execute(context.Context, *abi.Invocation) abi.Result        { return e.result }
func (e *ended) Listen(context.Context, string, *abi.Invocation) abi.Result { return e.result }

// TestSecretOfRun: neither the message nor the error of a run has the value of a secret; what kind of
// error it is stays known.
//
// It kills the mutant "secret in the error of a run".
func TestSecretOfRun(t *testing.T) {
	t.Parallel()
	const value = "0pen-secret"
	trap := &plugin.Error{Kind: plugin.KindTimeout, Op: "job_execute", Stderr: "panic: " + value, Err: errors.New(value)}
	w := &worker{Worker: &ended{result: abi.Result{Outcome: abi.OutcomeTimeout, Message: "it was " + value, Err: trap}}, x: &executor{grant: &grants.Grant{},
		secrets: &secrets{redactor: grants.NewRedactor(grants.Named{Name: "OPEN", Value: value})}}}
	inv := &abi.Invocation{Host: struct{ abi.Host }{}}
	for name, r := range map[string]abi.Result{"item": w.Execute(t.Context(), inv), "listener": w.Listen(t.Context(), "before", inv)} {
		if r.Message != "it was [secret OPEN]" || strings.Contains(fmt.Sprintf("%v %+v", r.Err, r.Err), value) || !errors.Is(r.Err, context.DeadlineExceeded) {
			t.Errorf("%s: %q, %v", name, r.Message, r.Err)
		}
	}
}

// TestSecretsThatChange: what a guest may have read is redacted, also after another value was read.
func TestSecretsThatChange(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "secret")
	s := newSecrets(map[string]grants.Secret{"A": {File: file}})
	value := func(i int) string { return fmt.Sprintf("%04d-is-the-number-of-this", i) }
	const changes = 40
	for i := range changes {
		if err := os.WriteFile(file, []byte(value(i)), 0o600); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if got, err := s.value("A"); err != nil || got != value(i) {
				t.Fatalf("%q, %v", got, err)
			}
		}
		for old := max(0, i-maxFormer); old <= i; old++ {
			if got := s.redact(value(old)); got != "[secret A]" {
				t.Fatalf("after change %d, value %d is %q", i, old, got)
			}
		}
	}
	if len(s.former) != maxFormer {
		t.Errorf("%d former values are kept", len(s.former))
	}
}

// TestWholeLog: the value of a secret is in the whole log no more than in the host's.
func TestWholeLog(t *testing.T) {
	t.Parallel()
	const value = "0pen-secret"
	w := &worker{x: &executor{nothing: true, secrets: &secrets{redactor: grants.NewRedactor(grants.Named{Name: "OPEN", Value: value})}}}
	var lines []string
	inv := &abi.Invocation{WholeLog: &abi.WholeLog{Where: "all.log", Add: func(_ context.Context, _ int, msg string, kv []string) {
		lines = append(lines, msg+strings.Join(kv, " "))
	}}}
	w.begin(&w.plain, inv)
	w.plain.inv.WholeLog.Add(t.Context(), abi.LevelInfo, "it is "+value, []string{"key", value})
	if w.plain.inv.WholeLog.Where != "all.log" || len(lines) != 1 || strings.Contains(lines[0], value) {
		t.Errorf("%q", lines)
	}
}
