//go:build unix

package importing

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/wasmjob/wasmjob/host/cli/command"
)

// TestInput_device: what has no end, or nothing writes to, is refused and not read.
func TestInput_device(t *testing.T) {
	t.Parallel()
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{pipe, "/dev/zero"} {
		if _, err := input(&command.Program{}, name); err == nil || !strings.Contains(err.Error(), "is no regular file") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
