package catalog

import (
	"fmt"
	"io"
	"maps"
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

// TestUnshownNames: a file whose name is no line of text is refused, under a name that is one,
// and hides no other.
func TestUnshownNames(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, name := range []string{"a\nb.yaml", "a\tb.yaml", "\x1b[31m.wasm", "\u202egnp.yaml", "\xff.wasm", `c\nd.yaml`, "c\nd.yaml", "é ü.yaml", "notes\n.txt"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("x\ny", filepath.Join(dir, "link.yaml")); err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for name, e := range lookAt(dir).entries {
		found[name] = e.problem
	}
	want := map[string]string{`a\nb.yaml`: unshown, `a\tb.yaml`: unshown, `\x1b[31m.wasm`: unshown, `\u202egnp.yaml`: unshown, `\ufffd.wasm`: unshown, `c\nd.yaml`: "", "é ü.yaml": "",
		"link.yaml": `is a symbolic link to x\ny, which does not exist`}
	if !maps.Equal(found, want) {
		t.Errorf("found %q, expected %q", found, want)
	}
}
