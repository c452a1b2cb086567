//go:build !wasip1

package sdktest

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tetratelabs/wazero"

	"github.com/wasmjob/wasmjob/abi"
)

// TestLanguages compiles the programs of docs/writing-jobs.md in other languages that
// send a request, and runs them.
func TestLanguages(t *testing.T) {
	t.Parallel()
	docs, err := os.ReadFile("../../docs/writing-jobs.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		language, mark, file string
		command              []string
		everywhere           bool // where CI runs, it is there
	}{
		{"c", `#include "wasmjob.h"`, "ask.c",
			[]string{"clang", "--target=wasm32", "-O2", "-Wall", "-Wextra", "-Werror", "-nostdlib", "-Wl,--no-entry", "-I../c"}, true},
		{"rust", "job_v1_http", "ask.rs",
			[]string{"rustc", "--edition", "2024", "--target", "wasm32-unknown-unknown", "--crate-type", "cdylib", "-C", "panic=abort", "-C", "opt-level=s", "-C", "strip=symbols"}, false},
	} {
		t.Run(test.language, func(t *testing.T) {
			t.Parallel()
			if _, err := exec.LookPath(test.command[0]); err != nil {
				if test.everywhere && os.Getenv("CI") != "" {
					t.Fatal(err)
				}
				t.Skip(err)
			}
			dir := t.TempDir()
			source, out := filepath.Join(dir, test.file), filepath.Join(dir, "ask.wasm")
			if err := os.WriteFile(source, []byte(programOf(t, string(docs), test.language, test.mark)), 0o600); err != nil {
				t.Fatal(err)
			}
			cmd := exec.CommandContext(t.Context(), test.command[0], append(test.command[1:], "-o", out, source)...)
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
			execute := export(t, p.load(t, &h).instance(t, t.Output()), abi.ExportExecute)
			h.begin()
			if r := h.item(execute); r.Outcome != abi.OutcomeOK || len(h.Logs()) != 1 || h.Logs()[0].Message != "GET api.example.com https://api.example.com/hello" {
				t.Errorf("%s %s, logs %v", r.Outcome, r.Message, h.Logs())
			}
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
