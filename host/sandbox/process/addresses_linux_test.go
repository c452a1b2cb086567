//go:build !race

package process

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/sandbox/plugin"
	"github.com/wasmjob/wasmjob/host/sandbox/wasm"
)

// TestBoundedAddresses: in a process with 8 GiB of addresses many more guests run at once than their limits would let in, and there are addresses
// left for the process itself. The race detector takes more.
func TestBoundedAddresses(t *testing.T) {
	t.Parallel()
	const guests, limit, most = 48, 416 << 20, 8 << 30
	w := workers(t, "good", plugin.Options{}, Options{Items: guests, Command: func(job string) *exec.Cmd {
		return exec.Command("/bin/sh", "-c", fmt.Sprintf(`ulimit -v %d; exec "$@"`, most>>10), "sh", self(), workWord, "good", job)
	}})
	x, err := moduleOf(t, w, "c/guest").Executor(t.Context(), plugin.Settings{Type: wasm.TypeSimple, JobName: "many", MemoryLimit: limit}, "guests")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(x.Release)
	var all []abi.Worker
	for range guests {
		all = append(all, worked(t, x))
	}
	c := processOf(t, all[0])
	var wg sync.WaitGroup
	for _, one := range all {
		wg.Go(func() {
			for range 3 {
				if r := one.Execute(t.Context(), item(newRecorder(), "ok")); r.Outcome != abi.OutcomeOK {
					t.Errorf("%+v", r)
				}
			}
		})
	}
	wg.Wait()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", c.pid))
	if err != nil {
		t.Fatal(err)
	}
	var pages int
	if _, err := fmt.Fscan(strings.NewReader(string(text)), &pages); err != nil {
		t.Fatal(err)
	}
	if left := most - pages*os.Getpagesize(); left < most/8 {
		t.Errorf("%d MiB of addresses are left for the process, want %d at least", left>>20, most/8>>20)
	}
	if processOf(t, all[0]) != c || processOf(t, all[guests-1]) != c {
		t.Error("the process has ended, or there are several")
	}
}
