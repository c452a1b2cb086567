package lines

import (
	"path/filepath"
	"testing"

	"github.com/wasmjob/wasmjob/host/history"
	"github.com/wasmjob/wasmjob/host/history/historytest"
)

func TestContract(t *testing.T) {
	t.Parallel()
	for name, path := range map[string]string{"memory": "", "file": "h.jsonl"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			historytest.Run(t, func(t *testing.T) history.Store {
				o := Options{}
				if path != "" {
					o.Path = filepath.Join(t.TempDir(), path)
				}
				return open(t, o)
			})
		})
	}
}
