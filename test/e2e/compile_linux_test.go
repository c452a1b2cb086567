package e2e_test

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/event"
)

// compilation watches a directory for compiled modules until a host begins to
// have one compiled.
type compilation struct {
	t   *testing.T
	dir string
	w   *fsnotify.Watcher
}

func newCompilation(t *testing.T, dir string) *compilation {
	t.Helper()
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	w, err := fsnotify.NewWatcher()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.Close() })
	if err := w.Add(dir); err != nil {
		t.Fatal(err)
	}
	return &compilation{t, dir, w}
}

// begun waits until the process is started that compiles.
func (c *compilation) begun() { c.t.Helper(); c.await(fsnotify.Create) }

// ended waits until what it has left was taken.
func (c *compilation) ended() { c.t.Helper(); c.await(fsnotify.Remove) }

func (c *compilation) await(op fsnotify.Op) {
	c.t.Helper()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for {
		select {
		case e := <-c.w.Events:
			if e.Has(op) && strings.HasPrefix(filepath.Base(e.Name), "compile-") {
				return
			}
		case err := <-c.w.Errors:
			c.t.Fatal(err)
		case <-timer.C:
			c.t.Fatalf("no module is compiled: no %s", op)
		}
	}
}

// children are the processes that a process has and that were started with the arguments.
func children(t *testing.T, pid int, args ...string) (list []int) {
	t.Helper()
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range stats {
		b, err := os.ReadFile(name)
		if err != nil {
			continue // it has ended
		}
		line, err := os.ReadFile(filepath.Join(filepath.Dir(name), "cmdline"))
		if _, found, _ := strings.Cut(string(line), "\x00"); err != nil || found != strings.Join(args, "\x00")+"\x00" {
			continue
		}
		_, rest, _ := strings.Cut(string(b), ") ")
		if f := strings.Fields(rest); len(f) > 1 && f[1] == strconv.Itoa(pid) {
			if child, err := strconv.Atoi(filepath.Base(filepath.Dir(name))); err == nil {
				list = append(list, child)
			}
		}
	}
	return list
}

// A host that ends, or is ended, while a module is being compiled leaves no
// process behind.
func TestEndsWhileCompiling(t *testing.T) {
	t.Parallel()
	for name, sig := range map[string]syscall.Signal{"drained": syscall.SIGTERM, "killed": syscall.SIGKILL} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t)
			p.drop("hello.wasm", read(t, example(t, "cities")))
			p.define("hello", "cron: 0 0 0 1 1 ?", "shardingTotalCount: 1")
			c := newCompilation(t, p.path("compiled"))
			// Whoever descends from the host has the other end of this.
			alive, mine, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer alive.Close()
			h := exec.Command(wasmjob(t), "run", "--plugins", p.path("plugins"), "--admin", "127.0.0.1:0",
				"--cache", c.dir, "--server-ip", "127.0.0.1", "--log-format", "json")
			var log strings.Builder
			h.Env, h.Dir, h.Stderr, h.ExtraFiles = p.env(), p.dir, &log, []*os.File{mine}
			if err := h.Start(); err != nil {
				t.Fatal(err)
			}
			mine.Close()
			c.begun()
			if err := h.Process.Signal(sig); err != nil {
				t.Error(err)
			}
			err = h.Wait()
			if code := h.ProcessState.ExitCode(); sig == syscall.SIGTERM && code != 0 {
				t.Errorf("exit code %d: %v\n%s", code, err, &log)
			}
			if err := alive.SetReadDeadline(time.Now().Add(patience)); err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadAll(alive); err != nil {
				t.Errorf("a process that compiles has outlived its host: %v", err)
			}
		})
	}
}

// Whatever happens to the process that compiles, the host goes on, and the
// module gets another chance.
func TestCompilerIsKilled(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.guestJob("other", "cron: 0 0 0 1 1 ?", "shardingTotalCount: 1")
	c := newCompilation(t, p.path("compiled"))
	h := p.start("--cache", c.dir, "--rescan", "1s")
	h.of("other", 0, owned())
	c.begun() // that of other

	p.drop("hello.wasm", read(t, example(t, "cities")))
	p.define("hello", "cron: 0 0 0 1 1 ?", "shardingTotalCount: 1", "shardingItemParameters: 0=Beijing")
	c.begun()
	// It is started in a moment, and takes a second or so. If it is missed,
	// the rest has to hold all the same.
	killed := 0
	for _, child := range children(t, h.cmd.Process.Pid, "compile-module") {
		if syscall.Kill(child, syscall.SIGKILL) == nil {
			killed++
		}
	}
	t.Logf("%d processes were killed", killed)
	h.of("hello", 0, owned())
	p.must("job", "run", "hello")
	h.of("hello", 0, kind(event.FireEnded), outcome(abi.OutcomeOK))
	if left := children(t, h.cmd.Process.Pid, "compile-module"); len(left) > 0 {
		t.Errorf("processes %v that compile are left", left)
	}
}

// The process that compiles is made of the program that runs, also if another
// one has taken the place of its file since, or none.
func TestCompilesAfterUpgrade(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	program := p.path("wasmjob")
	content := read(t, wasmjob(t))
	syscall.ForkLock.RLock() // a process that another test starts meanwhile would keep the file open for writing
	err := os.WriteFile(program, content, 0o755)
	syscall.ForkLock.RUnlock()
	if err != nil {
		t.Fatal(err)
	}
	c := newCompilation(t, p.path("compiled"))
	h := exec.Command(program, "run", "--plugins", p.path("plugins"), "--admin", "127.0.0.1:0",
		"--cache", c.dir, "--server-ip", "127.0.0.1", "--log-format", "json")
	var log strings.Builder
	h.Env, h.Dir, h.Stderr = p.env(), p.dir, &log
	if err := h.Start(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(program+".new", []byte("#!/bin/sh\nexit 1\n"), 0o755); err != nil {
		t.Error(err)
	}
	if err := os.Rename(program+".new", program); err != nil {
		t.Error(err)
	}
	p.guestJob("hello", "cron: 0 0 0 1 1 ?", "shardingTotalCount: 1")
	c.ended()
	if files, err := filepath.Glob(filepath.Join(c.dir, "wazero-*", "*")); err != nil || len(files) != 1 {
		t.Errorf("%q %v", files, err)
	}
	if err := h.Process.Signal(syscall.SIGTERM); err != nil {
		t.Error(err)
	}
	if err := h.Wait(); err != nil || strings.Contains(log.String(), "no process compiles") {
		t.Errorf("%v\n%s", err, &log)
	}
}

// The commands that try modules have them compiled in the same way, and find
// what a host has compiled.
func TestCommandsCompile(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	module := p.path("hello.wasm")
	p.put("hello.wasm", read(t, example(t, "cities")))
	c := newCompilation(t, p.path("compiled"))
	p.must("validate", "--cache", c.dir, module)
	c.begun()
	files := func() []string {
		list, err := filepath.Glob(filepath.Join(c.dir, "*", "*"))
		if err != nil {
			t.Fatal(err)
		}
		return list
	}
	if n := len(files()); n != 1 {
		t.Errorf("%q", files())
	}
	before, err := os.Stat(files()[0])
	if err != nil {
		t.Fatal(err)
	}
	p.must("invoke", "--cache", c.dir, "--param", "0=Beijing", module)
	if after, err := os.Stat(files()[0]); err != nil || !os.SameFile(before, after) || len(files()) != 1 {
		t.Errorf("compiled once more: %q %v", files(), err)
	}
	p.must("invoke", "--cache", "off", "--param", "0=Beijing", module)
	if left, err := os.ReadDir(p.path("tmp")); err != nil || len(left) > 0 {
		t.Errorf("%v is left of a module that is not kept: %v", left, err)
	}
}
