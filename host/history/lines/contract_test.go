package lines

import (
	"path/filepath"
	"testing"

	"github.com/wasmjob/wasmjob/host/history"
	"github.com/wasmjob/wasmjob/host/history/historytest"
)

func TestContract(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]Options{"memory": {}, "file": {Path: "h.jsonl"}, "file without an index": {Path: "h.jsonl", MaxBytes: 2 << 20, index: 1 << 10},
		"a file for each page": {Path: "h.jsonl", MaxBytes: 2 << 20, index: 1 << 10, look: 1}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			historytest.Run(t, func(t *testing.T) history.Store {
				own := o
				if own.Path != "" {
					own.Path = filepath.Join(t.TempDir(), own.Path)
				}
				return open(t, own)
			})
		})
	}
}
