package plugin

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/abi"
)

func TestGoGuest(t *testing.T) {
	t.Parallel()
	m := loadGo(t, "goguest")
	w := newWorker(t, m, Settings{MemoryLimit: 32 << 20, Args: []string{"x"}, Env: map[string]string{"K": "v"}})
	run := func(parameter string) (abi.Result, []string) {
		h := newRecorder()
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		got := w.Execute(ctx, item(h, parameter))
		return got, h.texts()
	}
	for _, c := range []struct {
		parameter string
		outcome   abi.Outcome
		message   string
	}{
		{"noop", abi.OutcomeOK, ""},
		{"panic", abi.OutcomeTrap, "panic: went wrong"},
		{"exit", abi.OutcomeExit, "guest exited with code 0"},
		{"deadlock", abi.OutcomeTrap, "all goroutines are asleep"},
		{"alloc", abi.OutcomeTrap, "out of memory"},
		{"sleep:2ms", abi.OutcomeOK, ""},
	} {
		got, _ := run(c.parameter)
		if got.Outcome != c.outcome || !strings.Contains(got.Message, c.message) {
			t.Errorf("%s: %+v", c.parameter, got)
		}
		if got.Memory > 32<<20 {
			t.Errorf("%s: %d bytes of memory", c.parameter, got.Memory)
		}
	}
	for _, p := range []string{"spin", "sleep:1h"} {
		ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
		got := w.Execute(ctx, item(newRecorder(), p))
		cancel()
		if got.Outcome != abi.OutcomeTimeout || !errors.Is(got.Err, context.DeadlineExceeded) {
			t.Errorf("%s: %+v", p, got)
		}
	}
	if _, got := run("calls"); !slices.Equal(got, []string{"1"}) {
		t.Errorf("%q: an instance outlived a timeout", got)
	}
	before := time.Now().Add(-time.Second)
	_, got := run("now")
	if at, err := time.Parse(time.RFC3339Nano, got[0]); err != nil || at.Before(before) || at.After(time.Now().Add(time.Second)) {
		t.Errorf("the guest's clock says %q", got)
	}
	_, a := run("random")
	w2 := newWorker(t, m, Settings{})
	h := newRecorder()
	w2.Execute(context.Background(), item(h, "random"))
	if len(a) != 1 || slices.Equal(a, h.texts()) {
		t.Errorf("two instances got the same random bytes: %q", a)
	}
	if _, got := run("env"); !slices.Equal(got, []string{"guest|x", "K=v"}) {
		t.Errorf("%q", got)
	}
}

func TestMounts(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	dir := filepath.Join(base, "data")
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.MkdirAll(filepath.Join(dir, "sub", "deep"), 0o755))
	must(os.WriteFile(filepath.Join(dir, "a.txt"), []byte("hello"), 0o644))
	must(os.WriteFile(filepath.Join(dir, "sub", "deep", "b.txt"), []byte("bb"), 0o644))
	must(os.WriteFile(filepath.Join(base, "secret"), []byte("secret"), 0o644))
	must(os.Symlink("../../secret", filepath.Join(dir, "out-relative")))
	must(os.Symlink(filepath.Join(base, "secret"), filepath.Join(dir, "out-absolute")))
	must(os.Symlink("..", filepath.Join(dir, "sub", "up")))
	must(os.Symlink("a.txt", filepath.Join(dir, "inside")))
	must(os.Symlink("../../..", filepath.Join(dir, "sub", "up-and-out")))
	must(mkfifo(filepath.Join(dir, "pipe")))

	w := newWorker(t, loadGo(t, "goguest"), Settings{Mounts: []Mount{{Host: dir, Guest: "/data"}}})
	run := func(parameter string) (abi.Result, []string) {
		h := newRecorder()
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		got := w.Execute(ctx, item(h, parameter))
		return got, h.texts()
	}
	for parameter, want := range map[string]string{
		"read:/data/a.txt":          "hello",
		"read:/data/sub/up/a.txt":   "hello",
		"read:/data/inside":         "hello",
		"read:/data/sub/../a.txt":   "hello",
		"read:/data/sub/deep/b.txt": "bb",
	} {
		if got, lines := run(parameter); got.Outcome != abi.OutcomeOK || !slices.Equal(lines, []string{want}) {
			t.Errorf("%s: %+v %q", parameter, got, lines)
		}
	}
	if got, _ := run("read:/data/a.txt"); got.Reads == 0 || got.ReadBytes != 5 {
		t.Errorf("%d bytes in %d reads of a file of 5", got.ReadBytes, got.Reads)
	}
	for _, parameter := range []string{
		"read:/data/out-relative", "read:/data/out-absolute", "read:/data/../secret", "read:/data/sub/up-and-out/secret",
		"read:" + filepath.Join(base, "secret"), "read:/data/pipe", "read:/data/none",
		"write:/data/new", "write:/data/a.txt",
	} {
		got, lines := run(parameter)
		if got.Outcome != abi.OutcomeFail || strings.Contains(fmt.Sprint(lines), "secret\"") || slices.Contains(lines, "secret") {
			t.Errorf("%s: %+v %q", parameter, got, lines)
		}
	}
	// The guest learns what is wrong, as on any system.
	for parameter, want := range map[string]string{
		"read:/elsewhere/file": "No such file or directory", "read:/data/none": "No such file or directory", "write:/elsewhere": "Read-only file system",
		"write:/data/new": "Read-only file system", "write:/data/a.txt": "Read-only file system", "write:/data/sub": "Is a directory",
	} {
		if got, lines := run(parameter); got.Outcome != abi.OutcomeFail || !strings.HasSuffix(strings.Join(lines, ""), want) {
			t.Errorf("%s: %s %q, want %q", parameter, got.Outcome, lines, want)
		}
	}
	h := newRecorder()
	newWorker(t, loadGo(t, "goguest"), Settings{}).Execute(t.Context(), item(h, "read:/etc/hosts"))
	if lines := h.texts(); !strings.HasSuffix(strings.Join(lines, ""), "No such file or directory") {
		t.Errorf("without a mount: %q", lines)
	}
	if b, err := os.ReadFile(filepath.Join(dir, "a.txt")); err != nil || string(b) != "hello" {
		t.Error("the guest wrote", string(b), err)
	}
	if _, err := os.Stat(filepath.Join(dir, "new")); err == nil {
		t.Error("the guest made a file")
	}
	got, lines := run("walk:/data/sub/deep")
	if got.Outcome != abi.OutcomeOK || !slices.Equal(lines, []string{"/data/sub/deep", "/data/sub/deep/b.txt 2"}) {
		t.Errorf("%+v %q", got, lines)
	}
	// Open files are counted.
	if _, lines := run("open-many:/data/a.txt"); !slices.Equal(lines, []string{fmt.Sprint(maxOpenFiles)}) {
		t.Errorf("%q", lines)
	}
	in := w.(*worker).in
	if n := len(in.mounts[0].open); n != 1 {
		t.Errorf("%d files are open after the guest closed its own", n)
	}
	must(os.RemoveAll(dir))
	w.(*worker).drop()
	if got, _ := run("noop"); got.Outcome != abi.OutcomeError || !strings.Contains(got.Message, "no such file") {
		t.Errorf("%+v", got)
	}
}
