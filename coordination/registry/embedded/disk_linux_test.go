package embedded

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/wasmjob/wasmjob/coordination/registry"
)

// mount mounts a tmpfs, which only root can.
func mount(t *testing.T, flags uintptr, options string) string {
	t.Helper()
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", flags, options); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatalf("mount a file system: %v", err)
		}
		t.Skipf("cannot mount a file system here: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Errorf("unmount %s: %v", dir, err)
		}
	})
	return dir
}

// A disk that really is full, and then is not.
func TestDiskFull(t *testing.T) {
	dir := mount(t, 0, "size=512k")
	ballast := filepath.Join(dir, "ballast")
	write(t, ballast, make([]byte, 200<<10))
	s := open(t, Options{Dir: filepath.Join(dir, "data")})
	rc := connect(t, s.Server)
	commit(t, rc, registry.Create("/a", nil), registry.CreateEphemeral("/e", nil))
	n := 0
	var err error
	for ; err == nil; n++ {
		if n > 1000 {
			t.Fatal("the disk does not get full")
		}
		_, err = rc.Commit(t.Context(), registry.Create(fmt.Sprintf("/a/%d", n), make([]byte, 4000)), registry.Set("/a", fmt.Append(nil, n), registry.AnyVersion))
	}
	n--
	if !errors.Is(err, registry.ErrUnavailable) || !strings.Contains(err.Error(), "no space left on device") || !strings.Contains(err.Error(), s.dir) {
		t.Fatalf("commit on a full disk: %v", err)
	}
	if s.Err() == nil {
		t.Error("Err is nil on a full disk")
	}
	look := func() {
		t.Helper()
		nodes := read(t, rc, registry.Data("/a"), registry.Children("/a"), registry.Data("/e"))
		if nodes[0].Version != int32(n) || string(nodes[0].Data) != fmt.Sprint(n-1) || len(nodes[1].Names) != n || !nodes[2].Exists {
			t.Errorf("on a full disk: version %d, data %s, %d children, want %d commits", nodes[0].Version, nodes[0].Data, len(nodes[1].Names), n)
		}
	}
	look()
	for range 5 { // more than the free pages of the file have room for
		if _, err := rc.Commit(t.Context(), registry.Create("/a/more", make([]byte, 100<<10))); !errors.Is(err, registry.ErrUnavailable) {
			t.Errorf("commit on a full disk: %v", err)
		}
		look()
	}
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	commit(t, rc, registry.Create(fmt.Sprintf("/a/%d", n), nil), registry.Set("/a", fmt.Append(nil, n), registry.AnyVersion))
	n++
	look()
	if err := s.Err(); err != nil {
		t.Errorf("Err with room on the disk: %v", err)
	}
	s = restart(t, s)
	checked := read(t, connect(t, s.Server), registry.Data("/a"), registry.Children("/a"), registry.Data("/e"))
	if checked[0].Version != int32(n) || len(checked[1].Names) != n || checked[2].Exists {
		t.Errorf("after a restart: %+v", checked[0])
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	checkFile(t, filepath.Join(s.dir, fileName))

	// A host that starts on a full disk says so, and leaves nothing broken.
	room := make([]byte, 1<<20)
	if err := os.WriteFile(ballast, room, 0o600); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("filling the disk: %v", err)
	}
	refused(t, filepath.Join(dir, "fresh"), "no space left on device")
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	open(t, Options{Dir: filepath.Join(dir, "fresh")})
	open(t, Options{Dir: s.dir})
}

// Writes fail although the file is open: it stands for a disk with errors, and
// needs no rights.
func TestWriteError(t *testing.T) {
	t.Parallel()
	var file *os.File
	s := open(t, Options{Dir: t.TempDir(), fault: faults{opened: func(f *os.File) { file = f }}})
	rc := connect(t, s.Server)
	commit(t, rc, registry.Create("/a", nil))

	fd := int(file.Fd())
	kept, err := syscall.Dup(fd) // also keeps the lock
	if err != nil {
		t.Fatal(err)
	}
	readOnly, err := os.Open(file.Name())
	if err != nil {
		t.Fatal(err)
	}
	swap := func(to int) {
		t.Helper()
		if err := syscall.Dup3(to, fd, syscall.O_CLOEXEC); err != nil {
			t.Fatal(err)
		}
	}
	for round := range 3 {
		swap(int(readOnly.Fd()))
		for _, ops := range [][]registry.Op{{registry.Create("/b", nil)}, {registry.Set("/a", make([]byte, 500_000), registry.AnyVersion)}, {registry.Delete("/a", registry.AnyVersion)}} {
			if _, err := rc.Commit(t.Context(), ops...); !errors.Is(err, registry.ErrUnavailable) || !errors.Is(err, syscall.EBADF) && !strings.Contains(err.Error(), "resize") {
				t.Errorf("commit while writes fail: %v", err)
			}
		}
		if n := read(t, rc, registry.Data("/a"), registry.Children("/")); n[0].Version != int32(round) || !slices.Equal(n[1].Names, []string{"a"}) {
			t.Errorf("a failed write left a trace: %+v", n)
		}
		swap(kept)
		commit(t, rc, registry.Set("/a", nil, int32(round)))
	}
	if err := errors.Join(readOnly.Close(), syscall.Close(kept)); err != nil {
		t.Fatal(err)
	}
	s = restart(t, s)
	if n := read(t, connect(t, s.Server), registry.Data("/a"), registry.Data("/b")); n[0].Version != 3 || n[1].Exists {
		t.Errorf("after a restart: %+v", n)
	}
}

func TestOpenNotWritable(t *testing.T) {
	var dir string
	why := "permission denied"
	if os.Geteuid() == 0 { // root writes wherever it likes, except here
		dir, why = mount(t, syscall.MS_RDONLY, ""), "read-only file system"
	} else {
		dir = t.TempDir()
		if err := os.Chmod(dir, 0o500); err != nil {
			t.Fatal(err)
		}
	}
	refused(t, dir, why)
	refused(t, filepath.Join(dir, "below"), why)
}
