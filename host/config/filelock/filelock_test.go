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

// TestEdit: an edit replaces the file that a link leads to, with a mode that keeps it from
// others; one that fails changes nothing, and none leaves a file behind.
func TestEdit(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "new")
	link, path := filepath.Join(t.TempDir(), "link"), filepath.Join(dir, "f")
	to := func(text string, err error) func(string) ([]byte, error) {
		return func(string) ([]byte, error) { return []byte(text), err }
	}
	if err := Edit(path, to("first", nil)); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	if err := Edit(link, func(at string) ([]byte, error) {
		old, err := os.ReadFile(at)
		return append(old, ", second"...), err
	}); err != nil {
		t.Fatal(err)
	}
	mistake := errors.New("a mistake")
	if err := Edit(path, to("third", mistake)); err != mistake {
		t.Errorf("%v, want the mistake itself", err)
	}
	if data, err := os.ReadFile(path); err != nil || string(data) != "first, second" {
		t.Errorf("%q, %v", data, err)
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != 0o600 {
		t.Errorf("its mode is %v", info.Mode())
	}
	if files, err := os.ReadDir(dir); err != nil || len(files) != 1 {
		t.Errorf("left in the directory: %v, %v", files, err)
	}
}
