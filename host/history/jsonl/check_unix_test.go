//go:build unix

package jsonl

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestCheckFile_device: what has no end, or nothing writes to, is refused and not read.
func TestCheckFile_device(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	pipe, file := filepath.Join(dir, "pipe"), filepath.Join(dir, "events.jsonl")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{pipe, "/dev/zero", dir} {
		if err := CheckFile(name); err == nil || !strings.HasPrefix(err.Error(), name+" is no regular file, expected ") {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, name := range []string{file, filepath.Join(dir, "missing")} {
		if err := CheckFile(name); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
