package process

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/sandbox/plugin"
	"github.com/wasmjob/wasmjob/host/sandbox/wasm"
)

// TestRelativeCache: processes find the compiled code where it is, also if the host was
// given a directory below its own.
func TestRelativeCache(t *testing.T) {
	file := wasmOf(t, "c/guest")
	t.Chdir(t.TempDir())
	w := workers(t, "good", plugin.Options{CacheDir: "cache"}, Options{})
	m, err := w.o.Runtime.Open("guest.wasm", file)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	worked(t, executorOf(t, w.Module(m), plugin.Settings{JobName: "j", Type: wasm.TypeSimple}))
}

// TestDamagedCode: compiled code that a process cannot use is compiled anew.
func TestDamagedCode(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "cache")
	run := func() {
		t.Helper()
		w := workers(t, "good", plugin.Options{CacheDir: dir}, Options{})
		x := executorOf(t, moduleOf(t, w, "c/guest"), plugin.Settings{JobName: "j", Type: wasm.TypeSimple})
		if r := worked(t, x).Execute(t.Context(), item(newRecorder(), "ok")); r.Outcome != abi.OutcomeOK {
			t.Errorf("%+v", r)
		}
	}
	run()
	files, err := filepath.Glob(filepath.Join(dir, "wazero-*", "*"))
	if err != nil || len(files) != 1 {
		t.Fatal(files, err)
	}
	code, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	code[len(code)/2] ^= 0xff // its checksum is wrong; its end says still that the module was accepted
	if err := os.WriteFile(files[0], code, 0o600); err != nil {
		t.Fatal(err)
	}
	run()
	mended, err := os.ReadFile(files[0])
	if err != nil || string(mended) == string(code) {
		t.Errorf("it was not compiled anew: %v", err)
	}
}
