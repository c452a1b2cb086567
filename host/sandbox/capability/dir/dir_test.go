package dir

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tetratelabs/wazero/experimental/sys"
	"go.uber.org/goleak"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/config/grants"
	"github.com/wasmjob/wasmjob/host/sandbox/capability"
	"github.com/wasmjob/wasmjob/host/sandbox/capability/capabilitytest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// guest is a run with one directory, which calls what a worker process may call.
type guest struct {
	t     *testing.T
	owner *capabilitytest.Owner
	run   *capability.Run
	table map[string]*abi.Import
}

// begin begins a run in a directory. It ends with the test.
func begin(t *testing.T, host string, quotas *Quotas, limits grants.Dir) *guest {
	limits.Host, limits.Guest, limits.Write = host, "/out", true
	dirs := New([]grants.Dir{limits}, quotas)
	g := &guest{t: t, owner: capabilitytest.NewOwner(), table: map[string]*abi.Import{}}
	for _, f := range abi.DirectoryFunctions() {
		g.table[f.Name] = &f
	}
	g.run = capability.NewRun(capability.Info{Job: "report"}, &grants.Grant{}, g.owner, dirs.Functions())
	t.Cleanup(func() {
		g.run.Close()
		dirs.Close()
	})
	return g
}

// call makes a call. The errno is 0 if the result is one.
func (g *guest) call(name string, buf []byte, numbers []int64, texts ...string) (int64, syscall.Errno) {
	c := &abi.Call{Function: g.table[name], Numbers: numbers, Buf: buf}
	for _, text := range texts {
		c.Texts = append(c.Texts, []byte(text))
	}
	n := g.run.Call(context.Background(), c)
	if n <= -abi.DirError {
		return 0, syscall.Errno(-abi.DirError - n)
	}
	return n, 0
}

// open opens a file, which is made if it is not there.
func (g *guest) open(name string) int64 {
	g.t.Helper()
	h, errno := g.call("open", nil, []int64{0, int64(sys.O_RDWR | sys.O_CREAT), 0o666}, name)
	if errno != 0 || h <= 0 {
		g.t.Fatalf("open %s: %d, %v", name, h, errno)
	}
	return h
}

func must(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// A pipe has no entries, and opening one would wait for a writer: a directory that a
// guest lists may have become one.
func TestListOfAPipe(t *testing.T) {
	base := t.TempDir()
	must(t, syscall.Mkfifo(filepath.Join(base, "pipe"), 0o666), os.Mkdir(filepath.Join(base, "d"), 0o777),
		os.WriteFile(filepath.Join(base, "d", "a"), nil, 0o666), os.Symlink("d", filepath.Join(base, "l")))
	g := begin(t, base, NewQuotas(), grants.Dir{})
	done := make(chan syscall.Errno)
	go func() {
		_, errno := g.call("list", make([]byte, 100), []int64{0, 0}, "pipe")
		done <- errno
	}()
	select {
	case errno := <-done:
		if errno != syscall.ENOTDIR {
			t.Error(errno)
		}
	case <-time.After(5 * time.Second):
		w, err := os.OpenFile(filepath.Join(base, "pipe"), os.O_RDWR, 0)
		must(t, err)
		<-done
		w.Close()
		t.Fatal("it waits for a writer")
	}
	for _, name := range []string{"d", "l"} {
		buf := make([]byte, 100)
		if n, errno := g.call("list", buf, []int64{0, 0}, name); errno != 0 || string(buf[:max(n, 0)]) != "-a\x00" {
			t.Errorf("%s: %q, %v", name, buf[:max(n, 0)], errno)
		}
	}
}

// A file without a name takes room as long as it is open.
func TestQuotaOfUnlinkedFiles(t *testing.T) {
	base := t.TempDir()
	const limit = 100_000
	quotas := NewQuotas()
	g := begin(t, base, quotas, grants.Dir{Bytes: limit, Files: 10})
	other := begin(t, base, quotas, grants.Dir{Bytes: limit, Files: 10})
	data := strings.Repeat("x", limit)
	for i, drop := range []func(string) syscall.Errno{
		func(name string) syscall.Errno { _, errno := g.call("unlink", nil, []int64{0}, name); return errno },
		func(name string) syscall.Errno { _, errno := other.call("unlink", nil, []int64{0}, name); return errno },
		func(name string) syscall.Errno {
			over := g.open("empty")
			g.call("close", nil, []int64{over})
			_, errno := g.call("rename", nil, []int64{0}, "empty", name)
			return errno
		},
	} {
		name := fmt.Sprint("a", i)
		h := g.open(name)
		if n, errno := g.call("write", nil, []int64{h, 0}, data); n != limit || errno != 0 {
			t.Fatalf("%d: %d, %v", i, n, errno)
		}
		if errno := drop(name); errno != 0 {
			t.Fatal(errno)
		}
		second := g.open("b")
		if n, errno := g.call("write", nil, []int64{second, 0}, data); errno != syscall.EDQUOT {
			t.Errorf("%d: %d bytes beyond the quota were written: %v", i, n, errno)
		}
		// It is still counted if it changes its size.
		if _, errno := g.call("truncate", nil, []int64{h, limit / 2}); errno != 0 {
			t.Error(errno)
		}
		if n, errno := g.call("write", nil, []int64{second, 0}, data); n != limit/2 || errno != 0 {
			t.Errorf("%d: %d, %v", i, n, errno)
		}
		if _, errno := g.call("close", nil, []int64{h}); errno != 0 {
			t.Error(errno)
		}
		if n, errno := g.call("write", nil, []int64{second, 0}, data); n != limit || errno != 0 {
			t.Errorf("%d: closed, it still takes room: %d, %v", i, n, errno)
		}
		g.call("close", nil, []int64{second})
		g.call("unlink", nil, []int64{0}, "b")
		g.call("unlink", nil, []int64{0}, name)
	}
}

// Whether the item is still this host's is asked just before a change, however long it
// had to wait for its turn.
func TestLostWhileItWaits(t *testing.T) {
	base := t.TempDir()
	must(t, os.WriteFile(filepath.Join(base, "there"), []byte("x"), 0o666))
	quotas := NewQuotas()
	for name, change := range map[string]func(g *guest, h int64) (int64, syscall.Errno){
		"write":    func(g *guest, h int64) (int64, syscall.Errno) { return g.call("write", nil, []int64{h, 0}, "late") },
		"truncate": func(g *guest, h int64) (int64, syscall.Errno) { return g.call("truncate", nil, []int64{h, 0}) },
		"mkdir":    func(g *guest, _ int64) (int64, syscall.Errno) { return g.call("mkdir", nil, []int64{0, 0o777}, "new") },
		"unlink":   func(g *guest, _ int64) (int64, syscall.Errno) { return g.call("unlink", nil, []int64{0}, "there") },
		"rename": func(g *guest, _ int64) (int64, syscall.Errno) {
			return g.call("rename", nil, []int64{0}, "there", "new")
		},
		"create": func(g *guest, _ int64) (int64, syscall.Errno) {
			return g.call("open", nil, []int64{0, int64(sys.O_RDWR | sys.O_CREAT), 0o666}, "new")
		},
		"cut": func(g *guest, _ int64) (int64, syscall.Errno) {
			return g.call("open", nil, []int64{0, int64(sys.O_RDWR | sys.O_TRUNC), 0o666}, "there")
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := begin(t, base, quotas, grants.Dir{})
			h := g.open("there")
			q := quotas.dirs[base]
			q.mu.Lock()
			var n int64
			var errno syscall.Errno
			done := make(chan struct{})
			go func() {
				defer close(done)
				n, errno = change(g, h)
			}()
			time.Sleep(20 * time.Millisecond)
			g.owner.Cancel(abi.CancelLost)
			q.mu.Unlock()
			<-done
			if abi.Code(n) != abi.ErrCancelled {
				t.Errorf("%d, %v", n, errno)
			}
			if b, err := os.ReadFile(filepath.Join(base, "there")); string(b) != "x" || err != nil {
				t.Errorf("%q, %v", b, err)
			}
			if entries, err := os.ReadDir(base); len(entries) != 1 || err != nil {
				t.Errorf("%v, %v", entries, err)
			}
		})
	}
}

// A file with another name, which may lie elsewhere, is not changed in any way.
func TestHardLink(t *testing.T) {
	outside, base := filepath.Join(t.TempDir(), "outside"), t.TempDir()
	must(t, os.WriteFile(outside, []byte("x"), 0o666), os.Link(outside, filepath.Join(base, "a")))
	before, err := os.Stat(outside)
	must(t, err)
	g := begin(t, base, NewQuotas(), grants.Dir{})
	if _, errno := g.call("utimes", nil, []int64{0, 1e18, 1e18}, "a"); errno != syscall.EPERM {
		t.Error(errno)
	}
	if after, err := os.Stat(outside); err != nil || !after.ModTime().Equal(before.ModTime()) {
		t.Errorf("%v, %v", after.ModTime(), err)
	}
}

// Two jobs that write at once do not both take the last room.
func TestQuotaOfTwoJobs(t *testing.T) {
	base := t.TempDir()
	quotas := NewQuotas()
	const limit = 1 << 20
	var wg sync.WaitGroup
	for job := range 4 {
		g := begin(t, base, quotas, grants.Dir{Bytes: limit, Files: 30})
		wg.Go(func() {
			for i := range 300 {
				name := fmt.Sprint(job, "-", rand.IntN(20))
				h, errno := g.call("open", nil, []int64{0, int64(sys.O_RDWR | sys.O_CREAT), 0o666}, name)
				if errno == syscall.EDQUOT || errno == syscall.ENOENT {
					continue
				}
				if errno != 0 {
					t.Error(errno)
					return
				}
				g.call("write", nil, []int64{h, rand.Int64N(1 << 18)}, strings.Repeat("x", rand.IntN(1<<16)))
				if i%3 == 0 {
					g.call("truncate", nil, []int64{h, rand.Int64N(1 << 19)})
				}
				switch i % 4 {
				case 0:
					g.call("unlink", nil, []int64{0}, name)
				case 1:
					g.call("rename", nil, []int64{0}, name, fmt.Sprint(rand.IntN(4), "-", rand.IntN(20)))
				}
				g.call("close", nil, []int64{h})
				q := quotas.dirs[base]
				q.mu.Lock()
				bytes, files := sizeOf(t, base)
				counted := bytes == q.bytes || (len(q.nameless) > 0 && bytes < q.bytes)
				if q.bytes > limit || files > 30 || !counted || files != q.files {
					t.Errorf("%d bytes (%d counted) in %d files (%d counted)", bytes, q.bytes, files, q.files)
				}
				q.mu.Unlock()
				if t.Failed() {
					return
				}
			}
		})
	}
	wg.Wait()
	q := quotas.dirs[base]
	if bytes, _ := sizeOf(t, base); bytes != q.bytes || len(q.open)+len(q.nameless) > 0 {
		t.Errorf("%d bytes, %+v", bytes, q)
	}
}

// sizeOf measures a directory that has no others in it.
func sizeOf(t *testing.T, base string) (bytes, files int64) {
	entries, err := os.ReadDir(base)
	if err != nil {
		t.Error(err)
	}
	for _, e := range entries {
		if info, err := e.Info(); err == nil {
			bytes += info.Size()
		}
	}
	return bytes, int64(len(entries))
}

// While a directory is swapped for a link that leads out, and back, nothing comes to lie
// outside, and nothing outside is read, removed or changed.
func TestSwappedForALink(t *testing.T) {
	base, outside := t.TempDir(), t.TempDir()
	must(t, os.WriteFile(filepath.Join(outside, "a"), []byte("outside"), 0o666), os.Mkdir(filepath.Join(base, "real"), 0o777),
		os.Symlink(outside, filepath.Join(base, "link")))
	old := time.Unix(1e9, 0)
	must(t, os.Chtimes(filepath.Join(outside, "a"), old, old))
	stop := make(chan struct{})
	var swapping, wg sync.WaitGroup
	swapping.Go(func() {
		d, real, link := filepath.Join(base, "d"), filepath.Join(base, "real"), filepath.Join(base, "link")
		for {
			select {
			case <-stop:
				return
			default:
			}
			_ = os.Rename(real, d) // each may find that a guest was faster
			_ = os.Rename(d, real)
			_ = os.Rename(link, d)
			_ = os.Rename(d, link)
		}
	})
	quotas := NewQuotas()
	for range 4 {
		g := begin(t, base, quotas, grants.Dir{})
		wg.Go(func() {
			for i := range 2000 {
				name := "d/a"
				h, errno := g.call("open", nil, []int64{0, int64(sys.O_RDWR | sys.O_CREAT), 0o666}, name)
				if errno == 0 && h > 0 {
					buf := make([]byte, 20)
					if n, _ := g.call("read", buf, []int64{h, 0}); strings.HasPrefix(string(buf[:max(n, 0)]), "out") {
						t.Error("it was read")
						return
					}
					g.call("write", nil, []int64{h, 0}, "inside")
					g.call("close", nil, []int64{h})
				}
				g.call("utimes", nil, []int64{0, 2e18, 2e18}, name)
				g.call("mkdir", nil, []int64{0, 0o777}, "d/new")
				g.call("rename", nil, []int64{0}, name, "d/b")
				switch i % 3 {
				case 0:
					g.call("unlink", nil, []int64{0}, name)
				case 1:
					buf := make([]byte, 1000)
					n, _ := g.call("list", buf, []int64{0, 0}, "d")
					_ = n
				}
			}
		})
	}
	wg.Wait()
	close(stop)
	swapping.Wait()
	entries, err := os.ReadDir(outside)
	must(t, err)
	if len(entries) != 1 {
		t.Errorf("outside: %v", entries)
	}
	b, err := os.ReadFile(filepath.Join(outside, "a"))
	must(t, err)
	if info, err := os.Stat(filepath.Join(outside, "a")); string(b) != "outside" || err != nil || !info.ModTime().Equal(old) {
		t.Errorf("%q, %v, %v", b, info.ModTime(), err)
	}
}

// Numbers that make no sense come from a worker process only.
func TestNonsense(t *testing.T) {
	base := t.TempDir()
	g := begin(t, base, NewQuotas(), grants.Dir{Bytes: 1 << 20, Files: 10})
	h := g.open("a")
	const most = 1<<63 - 1
	for name, numbers := range map[string][][]int64{
		"write":    {{h, most}, {h, most - 2}, {h, -1 << 63}, {-1, 0}, {0, 0}, {h + 1, 0}},
		"truncate": {{h, most}, {h, -1}, {h, 1 << 62}},
		"read":     {{h, most}, {h, -1}, {99, 0}},
		"list":     {{1, 0}, {-1, 0}, {0, -5}, {0, most}},
		"utimes":   {{0, most, -most}, {7, 0, 0}},
		"mkdir":    {{0, -1}, {2, 0}},
		"open":     {{0, -1, -1}, {0, 1 << 30, 0}, {-3, 0, 0}},
		"stat":     {{0}, {9}},
		"fstat":    {{h}, {0}},
		"rename":   {{0}, {1}},
		"unlink":   {{0}, {-1}},
		"rmdir":    {{0}},
		"sync":     {{0}, {h}},
		"close":    {{0}, {-1}},
	} {
		for _, n := range numbers {
			for _, text := range []string{"", ".", "/", "a", "a/b", "../a", "b\x00c", strings.Repeat("n", 256), strings.Repeat("d/", 5000), "\xff"} {
				f := g.table[name]
				var texts []string
				var buf []byte
				for _, p := range f.Params {
					switch p.Kind {
					case abi.KindText, abi.KindBytes:
						texts = append(texts, text)
					case abi.KindBuffer:
						buf = make([]byte, len(text)%50)
					}
				}
				g.call(name, buf, n, texts...) // it returns
			}
		}
	}
	if bytes, _ := sizeOf(t, base); bytes > 1<<20 {
		t.Errorf("%d bytes", bytes)
	}
	if entries, err := os.ReadDir(filepath.Dir(base)); err != nil || len(entries) != 1 {
		t.Errorf("%v, %v", entries, err)
	}
}
