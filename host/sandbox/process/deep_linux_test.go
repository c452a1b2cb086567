//go:build !race

package process

import (
	"fmt"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/sandbox/plugin"
)

// TestRecursion: guests that recurse at once, as deep as they may, end with a trap each, again
// and again, and none of them ends the process. With little memory in the budget they have it in
// turn, or trap sooner. The race detector takes more memory than a worker process may have.
func TestRecursion(t *testing.T) {
	t.Parallel()
	for _, budget := range []int64{0, 256 << 20} {
		t.Run(fmt.Sprintf("budget of %d MiB", budget>>20), func(t *testing.T) {
			t.Parallel()
			const guests, jobs, rounds = 24, 3, 2
			w := workers(t, "good", plugin.Options{MemoryBudget: budget}, Options{})
			m := moduleOf(t, w, "c/guest")
			beside := worked(t, jobOf(t, m, "beside"))
			c := processOf(t, beside)
			var wg sync.WaitGroup
			for i := range guests {
				x := jobOf(t, m, fmt.Sprint("deep", i%jobs))
				wg.Go(func() {
					for range rounds {
						one, err := x.NewWorker(t.Context())
						if err != nil {
							t.Error(err)
							return
						}
						if r := one.Execute(t.Context(), item(newRecorder(), "recurse")); r.Outcome != abi.OutcomeTrap {
							t.Errorf("%+v", r)
						}
						if err := one.Close(); err != nil {
							t.Error(err)
						}
					}
				})
			}
			wg.Wait()
			if processOf(t, beside) != c {
				t.Error("recursion has ended the process")
			}
			var limit unix.Rlimit
			if err := unix.Prlimit(c.pid, unix.RLIMIT_DATA, nil, &limit); err != nil {
				t.Fatal(err)
			}
			// What Go has mapped it keeps: it is nothing that guests may have no more.
			if has := dataOf(t, c.pid); has > limit.Cur {
				t.Errorf("when they are gone, the process has %d MiB and may have %d", has>>20, limit.Cur>>20)
			}
		})
	}
}
