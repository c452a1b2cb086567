package program

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestGivenFilesAreBounded: of a file that a command is given, or a pipe or a device, no more is read than such a file may have.
func TestGivenFilesAreBounded(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	large := filepath.Join(dir, "large")
	if err := os.WriteFile(large, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(large, 8<<20); err != nil {
		t.Fatal(err)
	}
	module := filepath.Join(dir, "a.wasm")
	if err := os.WriteFile(module, []byte("\x00asm\x01\x00\x00\x00"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"job", "offset", "cities", "--item", "0", "--set", "@" + large},
		{"job", "kv", "cities", "--item", "0", "--set", "k=@" + large},
		{"invoke", module, "--plugin-config", "@" + large},
		{"invoke", module, "--offset", "@" + large},
		{"module", "sign", "--new-key", filepath.Join(dir, "key"), "--password-file", large},
		{"module", "sign", "--key", large, module},
		{"module", "verify-signature", "--key", large, module},
		{"access", "user", "add", "eve", "--users", filepath.Join(dir, "users.yaml"), "--role", "viewer", "--password-file", large},
		{"run", "--config", large},
	} {
		if r := runCLI(t, nil, args...); r.code == exitOK || !strings.Contains(r.err, large+" has more than ") {
			t.Errorf("%s: exit code %d\n%s%s", strings.Join(args, " "), r.code, r.out, r.err)
		}
	}
}
