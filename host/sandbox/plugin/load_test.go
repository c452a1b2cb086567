package plugin

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tetratelabs/wazero"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/sandbox/wasm"
)

// What a user may drop into a plugins directory, and what must be said.
func TestLoadRefuses(t *testing.T) {
	t.Parallel()
	r := newRuntime(t, Options{})
	noop := guest(t, "wat/noop")
	section := func(id byte, body ...byte) []byte {
		return append(appendU32([]byte{id}, uint32(len(body))), body...)
	}
	header := "\x00asm\x01\x00\x00\x00"
	for _, c := range []struct {
		name string
		wasm []byte
		want []string // each in a problem of its own
	}{
		{"empty", nil, []string{"the file is empty"}},
		{"text", []byte("hello, this is no module\n"), []string{"the file is text"}},
		{"wat", []byte("  ;; a comment\n(module)"), []string{"WebAssembly text; assemble it"}},
		{"binary", []byte("\x7fELF\x02\x01\x01\x00\x00"), []string{"begins with 7f 45 4c 46, expected 00 61 73 6d; this is a native program; build with GOOS=wasip1 GOARCH=wasm"}},
		{"PE", []byte("MZ\x90\x00\x03\x00\x00\x00"), []string{"begins with 4d 5a 90 00, expected 00 61 73 6d; this is a native program"}},
		{"Mach-O", []byte("\xcf\xfa\xed\xfe\x0c\x00\x00\x01"), []string{"begins with cf fa ed fe, expected 00 61 73 6d; this is a native program"}},
		{"neither", []byte("\x1f\x8b\x08\x00\x00\x00\x00\x00"), []string{"begins with 1f 8b 08 00, expected 00 61 73 6d"}},
		{"header cut", noop[:5], []string{"truncated module: the file ends after 5 bytes"}},
		{"header only", noop[:8], []string{"truncated module: it has no section"}},
		{"cut", noop[:len(noop)-7], []string{"truncated module: section code"}},
		{"cut before code", noop[:bytes.LastIndex(noop, []byte{10})], []string{"truncated"}},
		{"component", []byte("\x00asm\x0d\x00\x01\x00"), []string{"WebAssembly component, expected a core module"}},
		{"version", []byte("\x00asm\x02\x00\x00\x00"), []string{"binary version 02 00 00 00"}},
		{"too large", make([]byte, abi.MaxModuleSize+1), []string{"the limit is 33554432"}},
		{"no marker", guest(t, "wat/no_marker"), []string{"not a job module: no job_abi_vN export"}},
		{"abi v2", guest(t, "wat/abi_v2"), []string{"speaks job ABI v2, this host supports v1"}},
		{"marker type", guest(t, "wat/marker_type"), []string{"export job_abi_v1 is ()->(i32), expected ()->()"}},
		{"unknown imports", guest(t, "wat/unknown_import"), []string{
			"job_v1.teleport(i32)->(i32): unknown import",
			"job_v1.ctx_str is (i32)->(i64) in the module, the host has (i32,i32,i32)->(i32)",
			"wasi_snapshot_preview1.fd_levitate()->(): unknown import",
			"env.emscripten_run_script(i32)->(): unknown import",
			"built with GOOS=js, expected GOOS=wasip1",
		}},
		{"import type", guest(t, "wat/wrong_import_type"), []string{"job_v1.ctx_str is (i32)->(i64) in the module, the host has (i32,i32,i32)->(i32)"}},
		{"export type", guest(t, "wat/wrong_export_type"), []string{"export job_execute is (i32)->(i64), expected ()->(i32)"}},
		{"no entry", guest(t, "wat/no_entry"), []string{"no entry point: expected job_execute ()->(i32)"}},
		{"fetch only", guest(t, "wat/fetch_only"), []string{"exports job_fetch but not job_process"}},
		{"start and initialize", guest(t, "wat/start_and_initialize"), []string{"exports both _start and _initialize"}},
		{"no memory", guest(t, "wat/no_memory"), []string{"no export memory"}},
		{"imports memory", guest(t, "wat/imports_memory"), []string{
			"imports memory env.memory: only functions may be imported",
			"imports table env.table: only functions may be imported",
			"imports global env.base: only functions may be imported",
		}},
		{"capability", guest(t, "wat/capability"), []string{
			"job_v1_http.send(i32,i32,i32,i32,i32)->(i32): unknown import; the host may be too old for this module",
			"job_v1_http.read(i32,i32,i32)->(i32): unknown import; the host may be too old for this module",
		}},
		{"table", guest(t, "wat/big_table"), []string{"table begins with 50000000, the limit is 100000"}},
		{"start traps", guest(t, "wat/start_trap"), []string{"instantiate: trap: ", "unreachable"}[:1]},
		{"initialize traps", guest(t, "wat/init_trap"), []string{"_initialize: trap: out of bounds memory access"}},
		{"initialize exits", guest(t, "wat/init_exit"), []string{"_initialize: guest exited with code 0"}},
		{"section order", []byte(header + "\x03\x01\x00\x01\x01\x00"), []string{"section type at byte 11 is out of order"}},
		{"tags", []byte(header + "\x0d\x01\x00"), []string{"exception handling is not offered"}},
		{"unknown section", []byte(header + "\x3f\x01\x00"), []string{"unknown section 63"}},
		{"locals", []byte(header + "\x01\x04\x01\x60\x00\x00" + "\x03\x02\x01\x00" + "\x0a\x0b\x01\x09\x01\xff\xff\xff\xff\x0f\x7f\x0b\x0b"),
			[]string{"declares more than 50000 locals"}},
		{"imports without end", append([]byte(header), section(2, 0xff, 0xff, 0xff, 0xff, 0x0f)...), []string{"4294967295 imports, the limit is 1000"}},
		{"shared memory", append([]byte(header), section(5, 1, 3, 1, 1)...), []string{"shared or 64-bit"}},
		{"manifest", append(bytes.Clone(noop), section(0, append([]byte{12}, "job.manifest{oops"...)...)...), []string{"job.manifest is not valid JSON"}},
		{"code that does not validate", []byte(header + "\x01\x08\x02\x60\x00\x00\x60\x00\x01\x7f" + "\x03\x03\x02\x00\x01" + "\x05\x03\x01\x00\x01" +
			"\x07\x25\x03\x06memory\x02\x00\x0ajob_abi_v1\x00\x00\x0bjob_execute\x00\x01" + "\x0a\x07\x02\x02\x00\x0b\x02\x00\x0b"),
			[]string{"invalid function[1]"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			m, err := r.Load(context.Background(), "bad.wasm", c.wasm, time.Time{})
			if err == nil {
				m.Close()
				t.Fatal("loaded")
			}
			refused, ok := errors.AsType[*LoadError](err)
			if !ok {
				t.Fatalf("%T, want a *LoadError", err)
			}
			if len(refused.Problems) != len(c.want) {
				t.Errorf("%d problems, want %d", len(refused.Problems), len(c.want))
			}
			for _, w := range c.want {
				if n := strings.Count(strings.Join(refused.Problems, "\n"), w); n != 1 {
					t.Errorf("%d times %q in\n%s", n, w, err)
				}
			}
			if e, ok := errors.AsType[*Error](err); !ok || e.Kind != KindLoad {
				t.Errorf("no *Error of kind load inside")
			}
			if !strings.HasPrefix(err.Error(), "bad.wasm: ") {
				t.Errorf("%q does not name the module", err)
			}
		})
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.codes) != 0 {
		t.Errorf("%d refused modules are still held", len(r.codes))
	}
}

func TestInitializeTimeout(t *testing.T) {
	t.Parallel()
	r := newRuntime(t, Options{initialize: 20 * time.Millisecond})
	_, err := r.Load(context.Background(), "init.wasm", guest(t, "wat/init_spin"), time.Time{})
	if err == nil || !strings.Contains(err.Error(), "_initialize: timeout: ran longer than 20ms") {
		t.Error(err)
	}
}

func TestLoadCancelled(t *testing.T) {
	t.Parallel()
	r := newRuntime(t, Options{})
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err := r.Load(ctx, "x.wasm", guest(t, "wat/noop"), time.Time{})
	if _, blamed := errors.AsType[*LoadError](err); blamed || !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// What package abi says is what the runtime registers, and nothing else.
func TestImportsAreRegistered(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	rt := wazero.NewRuntime(ctx)
	defer rt.Close(ctx)
	if err := register(ctx, rt, map[string][]string{abi.Module: nil}); err != nil {
		t.Fatal(err)
	}
	defs := rt.Module(abi.Module).ExportedFunctionDefinitions()
	if len(implementations()) != len(abi.Imports()) || len(defs) != len(abi.Imports()) {
		t.Errorf("%d implementations, %d registered functions of %d imports", len(implementations()), len(defs), len(abi.Imports()))
	}
	for _, f := range abi.Imports() {
		def := defs[f.Name]
		if def == nil {
			t.Errorf("%s is not registered", f.Name)
			continue
		}
		if !bytes.Equal(def.ParamTypes(), valueTypes(f.Type.Params)) || !bytes.Equal(def.ResultTypes(), valueTypes(f.Type.Results)) {
			t.Errorf("%s is registered as %v %v, not as %s", f.Name, def.ParamTypes(), def.ResultTypes(), f.Type)
		}
	}
}

// A custom section may be empty.
func TestLoadEmptySection(t *testing.T) {
	t.Parallel()
	load(t, newRuntime(t, Options{}), append(guest(t, "wat/noop"), "\x00\x02\x01x"...))
}

func TestExecutorSettings(t *testing.T) {
	t.Parallel()
	r := newRuntime(t, Options{})
	dir := t.TempDir()
	for _, c := range []struct {
		guest string
		s     Settings
		want  string // "" = no error
	}{
		{"wat/noop", Settings{}, ""},
		{"wat/noop", Settings{Type: wasm.TypeSimple}, ""},
		{"wat/noop", Settings{Type: wasm.TypeDataflow}, "job type DATAFLOW needs the exports job_fetch ()->(i32), job_process ()->(i32), which the module does not have; it can be run as SIMPLE"},
		{"wat/noop", Settings{Type: wasm.TypeScript}, "job type SCRIPT needs the exports _start ()->()"},
		{"wat/noop", Settings{Type: "simple"}, `job type "simple", expected SIMPLE, DATAFLOW or SCRIPT`},
		{"wat/command", Settings{}, ""},
		{"wat/command", Settings{Type: wasm.TypeSimple}, "needs the exports job_abi_v1 ()->(), job_execute ()->(i32)"},
		{"wat/both_types", Settings{}, "can be run as DATAFLOW or SIMPLE: the job's type must say which"},
		{"wat/both_types", Settings{Type: wasm.TypeDataflow}, ""},
		{"wat/big_memory", Settings{}, "begins with 268435456 bytes of memory, the limit is 134217728"},
		{"wat/big_memory", Settings{MemoryLimit: 512 << 20}, ""},
		{"wat/noop", Settings{MemoryLimit: 100}, "memory limit of 100 bytes, expected at least one page"},
		{"wat/noop", Settings{MemoryLimit: 2<<30 + 1<<16}, "expected at most 2 GiB"},
		{"wat/noop", Settings{Args: []string{"a\x00"}}, "argument 0 contains a NUL byte"},
		{"wat/noop", Settings{Env: map[string]string{"A=B": "c"}}, `environment variable "A=B"`},
		{"wat/noop", Settings{Env: map[string]string{"A": "\x00"}}, "environment variable A contains a NUL"},
		{"wat/noop", Settings{Mounts: []Mount{{Host: dir, Guest: "/data"}}}, ""},
		{"wat/noop", Settings{Mounts: []Mount{{Host: filepath.Join(dir, "none"), Guest: "/data"}}}, "mount at /data: "},
		{"wat/noop", Settings{Mounts: []Mount{{Host: dir, Guest: "data"}}}, `guest path "data", expected an absolute path`},
		{"wat/noop", Settings{Mounts: []Mount{{Host: dir, Guest: "/d"}, {Host: dir, Guest: "/d"}}}, "guest path /d is mounted twice"},
		{"wat/noop", Settings{CallTimeout: -1}, "call timeout"},
	} {
		m := load(t, r, guest(t, c.guest))
		x, err := m.Executor(c.s)
		switch {
		case err == nil && c.want == "":
			x.Release()
		case err == nil:
			x.Release()
			t.Errorf("%s %+v: no error, want %q", c.guest, c.s, c.want)
		case c.want == "" || !strings.Contains(err.Error(), c.want):
			t.Errorf("%s %+v: %v, want %q", c.guest, c.s, err, c.want)
		}
		m.Close()
	}
}

// However many load the same bytes at once, they are compiled once, and the
// last use frees them.
func TestSharedCode(t *testing.T) {
	t.Parallel()
	r := newRuntime(t, Options{})
	file := guest(t, "c/guest")
	var wg sync.WaitGroup
	modules := make([]*Module, 8)
	for i := range modules {
		wg.Go(func() { modules[i] = load(t, r, bytes.Clone(file)) })
	}
	wg.Wait()
	for _, m := range modules[1:] {
		if m.code != modules[0].code {
			t.Fatal("compiled twice")
		}
	}
	compiled := modules[0].code.engine
	small, err := modules[0].Executor(Settings{Type: wasm.TypeSimple, MemoryLimit: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	if modules[0].code.engine != compiled {
		t.Error("compiled once more for another memory limit")
	}
	x, err := modules[1].Executor(Settings{Type: wasm.TypeSimple})
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range modules {
		m.Close()
		m.Close()
	}
	w := worked(t, x)
	small.Release()
	if small.Retain() {
		t.Error("a released executor could be retained")
	}
	x.Release() // the worker's use remains
	if got := w.Execute(context.Background(), item(newRecorder(), "ok")); got.Outcome != abi.OutcomeOK {
		t.Errorf("after the loader has gone: %+v", got)
	}
	if x.Retain() {
		x.Release()
	} else {
		t.Error("the worker does not hold the executor")
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
	if got := w.Execute(context.Background(), item(newRecorder(), "ok")); got.Outcome != abi.OutcomeError {
		t.Errorf("a closed worker ran: %+v", got)
	}
	if w, err := x.NewWorker(context.Background()); err == nil {
		t.Errorf("a closed executor made %v", w)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.codes) != 0 {
		t.Errorf("%d modules are still held", len(r.codes))
	}
}

func TestCloseWaits(t *testing.T) {
	t.Parallel()
	r, err := NewRuntime(context.Background(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	x, err := load(t, r, guest(t, "wat/noop")).Executor(Settings{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := r.Close(ctx); !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "1 modules are still in use") {
		t.Error(err)
	}
	if _, err := r.Load(context.Background(), "late.wasm", guest(t, "wat/noop"), time.Time{}); !errors.Is(err, errClosed) {
		t.Error(err)
	}
	done := make(chan error)
	go func() { done <- r.Close(context.Background()) }()
	x.Release()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if err := r.Close(context.Background()); err != nil {
		t.Error(err)
	}
}

func TestCacheDir(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "cache")
	run := func(o Options) {
		t.Helper()
		r := newRuntime(t, o)
		w := newWorker(t, load(t, r, guest(t, "wat/noop")), Settings{})
		if got := w.Execute(context.Background(), item(newRecorder(), "")); got.Outcome != abi.OutcomeOK {
			t.Errorf("%+v", got)
		}
	}
	run(Options{CacheDir: dir})
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Error(info.Mode(), err)
	}
	files, err := filepath.Glob(filepath.Join(dir, "*", "*"))
	if err != nil || len(files) != 1 {
		t.Fatal(files, err)
	}
	stored, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	run(Options{CacheDir: dir}) // from the directory

	// Damaged files, a directory in a file's place, and a directory that has
	// vanished cost time, not jobs.
	for _, b := range [][]byte{nil, []byte("garbage"), stored[:len(stored)/2]} {
		if err := os.WriteFile(files[0], b, 0o600); err != nil {
			t.Fatal(err)
		}
		run(Options{CacheDir: dir})
	}
	r := newRuntime(t, Options{CacheDir: dir})
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		m := load(t, r, guest(t, "wat/noop"))
		if !m.code.engine.owed {
			t.Error("the write that failed was not noticed")
		}
		m.Close()
	}

	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := NewRuntime(context.Background(), Options{CacheDir: dir}); err == nil || !strings.Contains(err.Error(), "expected 0700: chmod 700 "+dir) {
		t.Error(err)
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := NewRuntime(context.Background(), Options{CacheDir: file}); err == nil {
		t.Error("a file was taken for a cache directory")
	}
}
