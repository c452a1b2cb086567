package filewatch

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// looks runs Files until the test ends; each look sends what read finds.
func looks(t *testing.T, names func() []string, read func() string) <-chan string {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	seen, done := make(chan string, 1000), make(chan error, 1)
	go func() { done <- Files(ctx, names, func() { seen <- read() }) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return seen
}

func await(t *testing.T, seen <-chan string, want string) {
	t.Helper()
	late := time.After(20 * time.Second)
	for {
		select {
		case got := <-seen:
			if got == want {
				return
			}
		case <-late:
			t.Fatalf("%q was not noticed", want)
		}
	}
}

func text(name string) string {
	data, err := os.ReadFile(name)
	if err != nil {
		return "missing"
	}
	return string(data)
}

func do(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestFile: one that comes, changes, is replaced, goes and comes back.
func TestFile(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "a", "b")
	name := filepath.Join(dir, "f")
	seen := looks(t, func() []string { return []string{name} }, func() string { return text(name) })
	await(t, seen, "missing")
	do(t, os.MkdirAll(dir, 0o700))
	do(t, os.WriteFile(name, []byte("1"), 0o600))
	await(t, seen, "1")
	do(t, os.WriteFile(name, []byte("2"), 0o600))
	await(t, seen, "2")
	do(t, os.WriteFile(name+".new", []byte("3"), 0o600))
	do(t, os.Rename(name+".new", name))
	await(t, seen, "3")
	do(t, os.RemoveAll(dir))
	await(t, seen, "missing")
	do(t, os.MkdirAll(dir, 0o700))
	do(t, os.WriteFile(name, []byte("4"), 0o600))
	await(t, seen, "4")
}

// TestVolume: as Kubernetes changes the files of a volume, by turning one link.
func TestVolume(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	version := func(n, contents string) {
		do(t, os.Mkdir(filepath.Join(dir, n), 0o700))
		do(t, os.WriteFile(filepath.Join(dir, n, "f"), []byte(contents), 0o600))
		do(t, os.Symlink(n, filepath.Join(dir, "..tmp")))
		do(t, os.Rename(filepath.Join(dir, "..tmp"), filepath.Join(dir, "..data")))
	}
	version("v1", "1")
	name := filepath.Join(dir, "f")
	do(t, os.Symlink(filepath.Join("..data", "f"), name))
	seen := looks(t, func() []string { return []string{name} }, func() string { return text(name) })
	await(t, seen, "1")
	version("v2", "2")
	await(t, seen, "2")
	do(t, os.RemoveAll(filepath.Join(dir, "v1")))
	version("v3", "3")
	await(t, seen, "3")
}

// TestNamed: a file may name others, which count from then on.
func TestNamed(t *testing.T) {
	t.Parallel()
	first, second := filepath.Join(t.TempDir(), "first"), filepath.Join(t.TempDir(), "second")
	do(t, os.WriteFile(second, []byte("a"), 0o600))
	names := func() []string {
		list := []string{first}
		if n := text(first); n != "missing" {
			list = append(list, n)
		}
		return list
	}
	seen := looks(t, names, func() string { return text(first) + " " + text(second) })
	await(t, seen, "missing a")
	do(t, os.WriteFile(first, []byte(second), 0o600))
	await(t, seen, second+" a")
	do(t, os.WriteFile(second, []byte("b"), 0o600))
	await(t, seen, second+" b")
}

// TestDirectory: every entry of a directory counts.
func TestDirectory(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	seen := looks(t, func() []string { return []string{dir} }, func() string { return text(filepath.Join(dir, "any")) })
	await(t, seen, "missing")
	do(t, os.WriteFile(filepath.Join(dir, "any"), []byte("1"), 0o600))
	await(t, seen, "1")
}

// TestLinks: links that lead in a circle end.
func TestLinks(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	name := filepath.Join(dir, "a")
	do(t, os.Symlink("b", name))
	do(t, os.Symlink("a", filepath.Join(dir, "b")))
	seen := looks(t, func() []string { return []string{name} }, func() string { return text(name) })
	await(t, seen, "missing")
	do(t, os.Remove(name))
	do(t, os.WriteFile(name, []byte("1"), 0o600))
	await(t, seen, "1")
}
