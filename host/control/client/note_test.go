package client

import (
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/wasmjob/wasmjob/host/control/server"
)

func leave(t *testing.T, dirs []string, n Note) func() error {
	t.Helper()
	_, remove, err := n.Leave(dirs)
	if err != nil {
		t.Fatal(err)
	}
	return remove
}

func TestAClientFindsTheOneHost(t *testing.T) {
	t.Parallel()
	blocked := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(blocked, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "run", "wasmjob")
	dirs := []string{filepath.Join(blocked, "x"), dir} // the first cannot be made
	if _, err := Find(t.Context(), Where{Dirs: dirs}); !errors.Is(err, ErrNoHost) || !strings.Contains(err.Error(), dir) {
		t.Fatalf("without a host: %v", err)
	}

	var asked atomic.Pointer[string]
	s := start(t, server.Options{API: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { asked.Store(new(r.Method + " " + r.URL.Path)) })})
	remove := leave(t, dirs, Note{Address: s.Address().String(), Token: token})
	for path, want := range map[string]os.FileMode{dir: 0o700, filepath.Join(dir, noteName(s.Address().String())): 0o600} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v, %v; want mode %o", path, info, err, want)
		}
	}
	find := func(w Where) {
		t.Helper()
		w.Dirs = dirs
		c, err := Find(t.Context(), w)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Trigger(t.Context(), "x"); err != nil {
			t.Fatal(err)
		}
		if got := asked.Swap(nil); got == nil || *got != "POST /v1/jobs/x/trigger" {
			t.Fatalf("asked for %v", got)
		}
	}
	find(Where{})
	find(Where{Address: s.Address().String()})
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(token+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	find(Where{TokenFile: file})

	// The note of a host that was killed: its port is closed.
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	gone := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	leave(t, dirs, Note{Address: gone, Token: token})
	find(Where{})
	if _, err := os.Stat(filepath.Join(dir, noteName(gone))); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the note of the host that is gone: %v", err)
	}
	if _, err := Find(t.Context(), Where{Address: gone, Dirs: dirs}); !errors.Is(err, ErrNoHost) || !strings.Contains(err.Error(), gone) {
		t.Errorf("a closed port: %v", err)
	}

	// A second host: now one must say which.
	s2 := start(t, server.Options{})
	remove2 := leave(t, dirs, Note{Address: s2.Address().String(), Token: token, Plugins: "/other"})
	if _, err := Find(t.Context(), Where{Dirs: dirs}); err == nil || !strings.Contains(err.Error(), "several hosts") || !strings.Contains(err.Error(), "--admin ADDRESS") || !strings.Contains(err.Error(), "/other") {
		t.Errorf("two hosts: %v", err)
	}
	find(Where{Address: s.Address().String()})
	if err := remove2(); err != nil {
		t.Fatal(err)
	}
	find(Where{})
	if err := remove(); err != nil {
		t.Fatal(err)
	}
	if _, err := Find(t.Context(), Where{Dirs: dirs}); !errors.Is(err, ErrNoHost) {
		t.Errorf("after the note was removed: %v", err)
	}
	if _, err := Find(t.Context(), Where{Address: s.Address().String(), Dirs: dirs}); err == nil || !strings.Contains(err.Error(), "token is not known") {
		t.Errorf("an address without a note: %v", err)
	}
}

// TestAClientFindsACluster: any host of one cluster is asked, but none that hangs; hosts of several
// clusters are named.
func TestAClientFindsACluster(t *testing.T) {
	t.Parallel()
	dirs := []string{t.TempDir()}
	const cluster = "namespace jobs on ZooKeeper, zk1:2181"
	hangs, err := net.Listen("tcp", "127.0.0.1:0") // nothing accepts
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = hangs.Close() }()
	leave(t, dirs, Note{Address: hangs.Addr().String(), Token: token, Cluster: cluster})
	answering := make(map[string]bool)
	for range 2 {
		address := start(t, server.Options{}).Address().String()
		answering[address] = true
		leave(t, dirs, Note{Address: address, Token: token, Cluster: cluster})
	}
	c, err := Find(t.Context(), Where{Dirs: dirs})
	if err != nil || !answering[c.address.Name] {
		t.Fatalf("found %+v, %v; want one of %v", c, err, answering)
	}
	if _, err := Find(t.Context(), Where{Dirs: dirs, One: true}); err == nil || !strings.Contains(err.Error(), "("+cluster+")") {
		t.Errorf("a host of its own is wanted: %v", err)
	}
	other := start(t, server.Options{}).Address().String()
	for what, n := range map[string]Note{
		"namespace more on ZooKeeper, zk1:2181": {Cluster: "namespace more on ZooKeeper, zk1:2181"},
		"alone, jobs of /srv":                   {Plugins: "/srv"},
	} {
		n.Address, n.Token = other, token
		remove := leave(t, dirs, n)
		if _, err := Find(t.Context(), Where{Dirs: dirs}); err == nil || !strings.Contains(err.Error(), other+" ("+what+")") || !strings.Contains(err.Error(), "("+cluster+")") {
			t.Errorf("beside another cluster: %v", err)
		}
		if err := remove(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestNotesOfOthers: a note that another user may have left where this one looks is passed over, with
// the host that it names: that would get the token.
func TestNotesOfOthers(t *testing.T) {
	t.Parallel()
	s := start(t, server.Options{API: http.NotFoundHandler()})
	dir, real := filepath.Join(t.TempDir(), "notes"), filepath.Join(t.TempDir(), "real")
	leave(t, []string{dir}, Note{Address: s.Address().String(), Token: token})
	finds := func(dir string) error {
		_, err := Find(t.Context(), Where{Dirs: []string{dir}})
		return err
	}
	if err := finds(dir); err != nil {
		t.Fatal(err)
	}
	for _, mode := range []os.FileMode{0o722, 0o770} {
		if err := os.Chmod(dir, mode); err != nil {
			t.Fatal(err)
		}
		if err := finds(dir); !errors.Is(err, ErrNoHost) {
			t.Errorf("mode %04o: %v", mode, err)
		}
	}
	if err := errors.Join(os.Chmod(dir, 0o700), os.Rename(dir, real), os.Symlink(real, dir)); err != nil {
		t.Fatal(err)
	}
	if err := finds(dir); !errors.Is(err, ErrNoHost) {
		t.Errorf("a link: %v", err)
	}
	if os.Getuid() != 0 {
		return // who is not root cannot make somebody else's directory
	}
	if err := os.Chown(real, 65534, 65534); err != nil {
		t.Fatal(err)
	}
	if err := finds(real); !errors.Is(err, ErrNoHost) {
		t.Errorf("another user's: %v", err)
	}
	if _, _, err := (Note{Address: s.Address().String(), Token: token}).Leave([]string{real}); err == nil {
		t.Error("a note is left in another user's directory")
	}
}

func TestANoteIsNotTakenFromItsNextOwner(t *testing.T) {
	t.Parallel()
	dirs := []string{t.TempDir()}
	first := leave(t, dirs, Note{Address: "127.0.0.1:1", Token: "one"})
	second := leave(t, dirs, Note{Address: "127.0.0.1:1", Token: "two"})
	if err := first(); err != nil {
		t.Fatal(err)
	}
	if got := notes(dirs); len(got) != 1 || got[0].Token != "two" {
		t.Fatalf("notes %v", got)
	}
	if err := second(); err != nil {
		t.Fatal(err)
	}
	if got := notes(dirs); len(got) != 0 {
		t.Fatalf("notes %v", got)
	}
	entries, err := os.ReadDir(dirs[0])
	if err != nil || len(entries) != 0 {
		t.Fatalf("left behind: %v %v", entries, err)
	}
}

func TestNoteDirs(t *testing.T) {
	t.Parallel()
	env := map[string]string{"XDG_RUNTIME_DIR": "/run/user/7", "HOME": "/home/x", "XDG_CACHE_HOME": "relative"}
	got := NoteDirs(func(k string) string { return env[k] })
	want := []string{"/run/user/7/wasmjob", "/home/x/.cache/wasmjob/hosts"}
	if len(got) != 3 || !reflect.DeepEqual(got[:2], want) {
		t.Fatalf("got %v", got)
	}
	if got := NoteDirs(func(string) string { return "" }); len(got) != 1 || !strings.HasPrefix(got[0], os.TempDir()) {
		t.Fatalf("with an empty environment: %v", got)
	}
}
