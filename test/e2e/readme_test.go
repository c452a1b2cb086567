package e2e_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestModuleOfItsOwn: the commands that the README gives for a job outside of the
// clone work as they are printed there.
func TestModuleOfItsOwn(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	program := regexp.MustCompile("(?s)```go\n// hello/main.go\n(.*?)```").FindSubmatch(readme)
	commands := regexp.MustCompile("(?s)```sh\n(go mod init hello\n.*?)```").FindSubmatch(readme)
	if program == nil || commands == nil {
		t.Fatal("the README has no program, or no commands")
	}
	clone, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "main.go"), program[1], 0o600); err != nil {
		t.Fatal(err)
	}
	sh := exec.CommandContext(t.Context(), "sh", "-ec", strings.ReplaceAll(string(commands[1]), "/path/to/clone", clone))
	sh.Dir, sh.Env = dir, append(os.Environ(), "GOWORK=off")
	if out, err := sh.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if _, err := os.Stat(filepath.Join(dir, "hello.wasm")); err != nil {
		t.Error(err)
	}
}
