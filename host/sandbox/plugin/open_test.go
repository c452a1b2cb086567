package plugin

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/sandbox/wasm"
	w "github.com/wasmjob/wasmjob/test/wasm"
)

// WASI's numbers of errors.
const (
	errnoInvalid     = 28
	errnoMfile       = 33
	errnoNameTooLong = 37
)

// caller is a job that calls functions of WASI. Its memory has ".", at 16.
type caller struct {
	*w.Module
	open, close, renumber, times, readdir uint32
}

const atDot, atResult, atEntries = 16, 32, 4096

func newCaller() caller {
	c := caller{Module: w.New()}
	c.open = c.Import(abi.ModuleWASI, "path_open", "iiiiillii", "i")
	c.close = c.Import(abi.ModuleWASI, "fd_close", "i", "i")
	c.renumber = c.Import(abi.ModuleWASI, "fd_renumber", "ii", "i")
	c.times = c.Import(abi.ModuleWASI, "fd_filestat_set_times", "illi", "i")
	c.readdir = c.Import(abi.ModuleWASI, "fd_readdir", "iiili", "i")
	c.Memory(3, 3)
	c.ExportMemory(abi.ExportMemory)
	c.Data(atDot, []byte("."))
	return c
}

// opened opens "." below a directory; its errno is left.
func (c caller) opened(below []byte) []byte {
	return w.Code(below, w.I32Const(0), w.I32Const(atDot), w.I32Const(1), w.I32Const(0), w.I64Const(0), w.I64Const(0), w.I32Const(0),
		w.I32Const(atResult), w.Call(c.open))
}

// result is what path_open gave.
func result() []byte { return w.Code(w.I32Const(atResult), w.Load()) }

// untilError does something until it leaves an errno, and at most 5000 times. The job returns the errno, or the
// number of times that it was done if that is asked for.
func (c caller) untilError(count bool, code []byte) []byte {
	answer := w.Get(1)
	if count {
		answer = w.Get(0)
	}
	c.Export(abi.Marker, c.Func("", "", ""))
	c.Export(abi.ExportExecute, c.Func("", "i", "iii", w.Block(w.Loop(
		code, w.Tee(1), w.BrIf(1),
		w.Get(0), w.I32Const(1), w.Add(), w.Tee(0), w.I32Const(5000), []byte{0x48}, w.BrIf(0))), answer))
	return c.Bytes()
}

func TestOpenFilesAreBounded(t *testing.T) {
	t.Parallel()
	bothEngines(t, func(t *testing.T, r *Runtime) {
		status := func(module []byte, s Settings) int32 {
			t.Helper()
			got := newWorker(t, load(t, r, module), s).Execute(t.Context(), item(newRecorder(), ""))
			if got.Err != nil {
				t.Fatal(got.Err)
			}
			return int32(got.Status)
		}
		root := w.I32Const(3)
		for name, s := range map[string]Settings{
			"in the empty root":   {},
			"in a directory":      {Mounts: []Mount{{Host: t.TempDir(), Guest: "/"}}},
			"in two, and no root": {Mounts: []Mount{{Host: t.TempDir(), Guest: "/"}, {Host: t.TempDir(), Guest: "/b"}}},
		} {
			c := newCaller()
			if n := status(c.untilError(true, c.opened(root)), s); n != maxOpenFiles {
				t.Errorf("%s: %d files could be opened, expected %d", name, n, maxOpenFiles)
			}
		}
		c := newCaller()
		if errno := status(c.untilError(false, c.opened(root)), Settings{}); errno != errnoMfile {
			t.Errorf("errno %d, expected %d", errno, errnoMfile)
		}
		// What is closed is not counted, also if it is closed by taking its number.
		c = newCaller()
		if n := status(c.untilError(true, w.Code(c.opened(root), w.Drop(), result(), w.Call(c.close))), Settings{}); n != 5000 {
			t.Errorf("%d files could be opened and closed", n)
		}
		c = newCaller()
		if n := status(c.untilError(true, w.Code(c.opened(root), w.Drop(), result(), w.I32Const(100), w.Call(c.renumber))), Settings{}); n != 5000 {
			t.Errorf("%d files could be opened and get the same number", n)
		}
		// wazero would close the file, and keep its place.
		c = newCaller()
		if errno := status(c.untilError(false, w.Code(c.opened(root), w.Drop(), result(), result(), w.Call(c.renumber))), Settings{}); errno != errnoInvalid {
			t.Errorf("a descriptor that gets its own number: errno %d, expected %d", errno, errnoInvalid)
		}
		// wazero keeps the path of a file: each is longer than that of the directory in which it is.
		c = newCaller()
		below := w.Code(c.opened(w.Code(w.Get(2), []byte{0x45}, w.If(root, w.Set(2)), w.Get(2))), w.Get(2), w.I32Const(3), []byte{0x47}, w.If(w.Get(2), w.Call(c.close), w.Drop()), result(), w.Set(2))
		if errno := status(c.untilError(false, below), Settings{}); errno != errnoNameTooLong {
			t.Errorf("files below each other: errno %d, expected %d", errno, errnoNameTooLong)
		}
	})
}

// What the host keeps of open files is part of the memory that the guests may have.
func TestOpenFilesArePaidFor(t *testing.T) {
	t.Parallel()
	c := newCaller()
	module := c.untilError(true, c.opened(w.I32Const(3)))
	// The guest's own memory, and room for half of the files.
	least := int64(guestBase+3*wasm.PageSize) + maxOpenFiles/2*openBytes
	r := newRuntime(t, Options{MemoryBudget: least/jobShareOf4*4 + 4})
	one := newWorker(t, load(t, r, module), Settings{MemoryLimit: 3 * wasm.PageSize})
	n := int64(one.Execute(t.Context(), item(newRecorder(), "")).Status)
	if n < maxOpenFiles/4 || n > maxOpenFiles/2 {
		t.Errorf("%d files could be opened, expected about %d", n, maxOpenFiles/2)
	}
	account := one.(*worker).account
	if held := account.held; held < n*openBytes {
		t.Errorf("%d bytes are paid for", held)
	}
	one.(*worker).drop()
	if held := account.held; held != 0 {
		t.Errorf("%d bytes are paid for when the guest is gone", held)
	}
}

// So are the entries of directories, which wazero reads ahead and keeps.
func TestListedEntriesArePaidFor(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	const files, size = 500, 200
	for n := range files {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%0*d", size, n)), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c := newCaller()
	listed := w.Code(c.opened(w.I32Const(3)), w.If(w.Get(0), w.Return()),
		result(), w.I32Const(1<<16), w.I32Const(1<<16), w.I64Const(0), w.I32Const(atResult+8), w.Call(c.readdir))
	module := c.untilError(true, listed)
	settings := Settings{MemoryLimit: 3 * wasm.PageSize, Mounts: []Mount{{Host: dir, Guest: "/"}}}
	const entries = files * (size + direntBytes)

	one := newWorker(t, load(t, newRuntime(t, Options{}), module), settings)
	if n := one.Execute(t.Context(), item(newRecorder(), "")).Status; n != maxOpenFiles {
		t.Errorf("%d directories could be listed", n)
	}
	if most := one.(*worker).account.most; most < maxOpenFiles*entries || most > maxOpenFiles*entries*5/2 {
		t.Errorf("%d bytes are paid for, expected about %d", most, maxOpenFiles*entries)
	}
	least := int64(guestBase+3*wasm.PageSize) + 10*entries
	r := newRuntime(t, Options{MemoryBudget: least/jobShareOf4*4 + 4})
	few := newWorker(t, load(t, r, module), settings).Execute(t.Context(), item(newRecorder(), "")).Status
	if few < 2 || few > 10 {
		t.Errorf("%d directories could be listed in the memory for 10", few)
	}
}

// A loop of the calls that take most ends with its time, also while the module is initialised.
func TestCallsWhileInitialised(t *testing.T) {
	t.Parallel()
	m := w.New()
	f := m.Import(abi.ModuleWASI, "random_get", "ii", "i")
	m.Memory(1024, 1024)
	m.ExportMemory(abi.ExportMemory)
	m.Export(abi.Marker, m.Func("", "", ""))
	m.Export(abi.ExportExecute, m.Func("", "i", "", w.I32Const(0)))
	m.Start(m.Func("", "", "", w.Loop(w.I32Const(0), w.I32Const(1<<26), w.Call(f), w.Drop(), w.Br(0))))
	r := newRuntime(t, Options{interpreter: raceEnabled, initialize: 50 * time.Millisecond})
	_, err := r.Load(context.Background(), "start.wasm", m.Bytes(), time.Time{})
	if err == nil || !strings.Contains(err.Error(), "instantiate: timeout: ran longer than 50ms") {
		t.Error(err)
	}
}
