//go:build !wasip1

package sdktest

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tetratelabs/wazero"

	"github.com/wasmjob/wasmjob/abi"
)

// TestLanguages compiles programs of docs/writing-jobs.md in other languages, and runs them: those that send a request, and those that say
// when they are to run again.
func TestLanguages(t *testing.T) {
	t.Parallel()
	docs, err := os.ReadFile("../../docs/writing-jobs.md")
	if err != nil {
		t.Fatal(err)
	}
	rust := []string{"rustc", "--edition", "2024", "--target", "wasm32-unknown-unknown", "--crate-type", "cdylib", "-C", "panic=abort", "-C", "opt-level=s", "-C", "strip=symbols"}
	asks := func(t *testing.T, h *Host, execute func() int32) {
		h.begin()
		if r := h.item(execute); r.Outcome != abi.OutcomeOK || len(h.Logs()) != 1 || h.Logs()[0].Message != "GET api.example.com https://api.example.com/hello" {
			t.Errorf("%s %s, logs %v", r.Outcome, r.Message, h.Logs())
		}
	}
	waits := func(t *testing.T, h *Host, execute func() int32) {
		h.Context.FireTime = time.Now().Truncate(time.Millisecond)
		h.begin()
		if r := h.item(execute); r.Outcome != abi.OutcomeRetryAt || !r.RetryAt.Equal(h.Context.FireTime.Add(15*time.Minute)) || r.PauseKey {
			t.Errorf("before the time: %+v", r)
		}
		h.Context.FireTime = h.Context.FireTime.Add(-time.Hour)
		h.begin()
		if r := h.item(execute); r.Outcome != abi.OutcomeOK {
			t.Errorf("after it: %+v", r)
		}
	}
	for name, test := range map[string]struct {
		language, mark, file string
		command              []string
		everywhere           bool // where CI runs, it is there
		run                  func(t *testing.T, h *Host, execute func() int32)
	}{
		"c": {"c", `#include "wasmjob.h"`, "ask.c",
			[]string{"clang", "--target=wasm32", "-O2", "-Wall", "-Wextra", "-Werror", "-nostdlib", "-Wl,--no-entry", "-I../c"}, true, asks},
		"rust":                      {"rust", "job_v1_http", "ask.rs", rust, false, asks},
		"rust not before":           {"rust", "retry_at", "later.rs", rust, false, waits},
		"assemblyscript not before": {"ts", "retry_at", "later.ts", []string{"asc", "--runtime", "minimal", "-O"}, false, waits},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if _, err := exec.LookPath(test.command[0]); err != nil {
				if test.everywhere && os.Getenv("CI") != "" {
					t.Fatal(err)
				}
				t.Skip(err)
			}
			dir := t.TempDir()
			source, out := filepath.Join(dir, test.file), filepath.Join(dir, "job.wasm")
			if err := os.WriteFile(source, []byte(programOf(t, string(docs), test.language, test.mark)), 0o600); err != nil {
				t.Fatal(err)
			}
			cmd := exec.CommandContext(t.Context(), test.command[0], append(slices.Clone(test.command[1:]), "-o", out, source)...)
			if b, err := cmd.CombinedOutput(); err != nil {
				if !test.everywhere && strings.Contains(string(b), "target may not be installed") {
					t.Skip("there is no target wasm32-unknown-unknown")
				}
				t.Fatalf("%s: %v\n%s", cmd, err, b)
			}
			module, err := os.ReadFile(out)
			if err != nil {
				t.Fatal(err)
			}
			h := world("")
			p := program{module, wazero.NewCompilationCache()}
			t.Cleanup(func() { p.cache.Close(t.Context()) })
			test.run(t, h, export(t, p.load(t, &h).instance(t, t.Output()), abi.ExportExecute))
		})
	}
}

// programOf is the first program of a page in a language that has the mark.
func programOf(t *testing.T, page, language, mark string) string {
	t.Helper()
	for _, program := range programs(page, language) {
		if strings.Contains(program, mark) {
			return program
		}
	}
	t.Fatalf("there is no program in %s with %s", language, mark)
	return ""
}
