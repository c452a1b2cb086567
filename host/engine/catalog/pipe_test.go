package catalog

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestCheck_pipe: a named pipe that is called like a module, a definition or a signature is a
// problem. It is not read: that would wait for whoever writes.
func TestCheck_pipe(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, name := range []string{"a.wasm", "a.wasm.minisig", "b.yaml"} {
		if err := syscall.Mkfifo(filepath.Join(dir, name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	l, ended := newFakeLoader(t), make(chan []Finding, 1)
	for _, paths := range [][]string{{dir}, {filepath.Join(dir, "a.wasm"), filepath.Join(dir, "b.yaml")}} {
		go func() {
			ended <- check(t.Context(), l, fakeParse, Placement{}, paths)
		}()
		limit := time.NewTimer(time.Minute)
		defer limit.Stop()
		select {
		case found := <-ended:
			pipes := 0
			for _, f := range found {
				if strings.HasSuffix(f.Problem, "is a named pipe, expected a regular file") {
					pipes++
				}
			}
			if pipes < 2 {
				t.Errorf("%v: found %v", paths, found)
			}
			Defined(paths)
		case <-limit.C:
			t.Fatalf("%v: a pipe is read", paths)
		}
	}
}
