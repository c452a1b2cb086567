package catalog

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"testing"
)

// TestSmallFilesTakeLittleMemory: the definitions of ten thousand jobs are read again every half minute.
// Another 32 KiB for each was a third of all that such a host allocated. The test is not parallel,
// since it looks at what the process allocates.
func TestSmallFilesTakeLittleMemory(t *testing.T) {
	const files, each = 200, 8 << 10
	dir := t.TempDir()
	var seen []stamp
	for n := range files {
		name := filepath.Join(dir, fmt.Sprint(n))
		if err := os.WriteFile(name, []byte("module: noop.wasm\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(name)
		if err != nil {
			t.Fatal(err)
		}
		seen = append(seen, stampOf(info))
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for n, s := range seen {
		if c := digestFile(dir, fmt.Sprint(n), s, 1<<20, io.Discard); c.digest == "" {
			t.Fatalf("file %d: %+v", n, c)
		}
	}
	runtime.ReadMemStats(&after)
	if got := (after.TotalAlloc - before.TotalAlloc) / files; got > each {
		t.Errorf("a small file takes %d bytes of memory, expected at most %d", got, each)
	}
}
