package filelock

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// TestTake: of two open files one has the lock, until it is closed.
func TestTake(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "f")
	open := func() *os.File {
		t.Helper()
		f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		return f
	}
	first, second := open(), open()
	free, err := Take(first)
	if errors.Is(err, errors.ErrUnsupported) {
		return // nothing is locked here
	}
	if !free || err != nil {
		t.Fatalf("the first: %v, %v", free, err)
	}
	if free, err := Take(second); free || err != nil {
		t.Errorf("the second: %v, %v", free, err)
	}
	first.Close()
	if free, err := Take(second); !free || err != nil {
		t.Errorf("the second, when the first is closed: %v, %v", free, err)
	}
}
