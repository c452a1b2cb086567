package offer

import (
	"context"
	"strings"
	"testing"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/grants"
)

// TestWholeLog: the value of a secret is in the whole log no more than in the host's.
func TestWholeLog(t *testing.T) {
	t.Parallel()
	const value = "0pen-secret"
	w := &worker{x: &executor{nothing: true, secrets: &secrets{redactors: []*grants.Redactor{grants.NewRedactor(map[string]string{"OPEN": value})}}}}
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
