package process

import (
	"testing"

	"github.com/wasmjob/wasmjob/host/plugin"
	"github.com/wasmjob/wasmjob/host/plugin/wasm"
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
