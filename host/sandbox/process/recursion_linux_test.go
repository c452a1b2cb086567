package process

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// TestHeapLimit: what guests had of the heap at once stays allowed when they have ended, and
// what they had beside it does not.
func TestHeapLimit(t *testing.T) {
	t.Parallel()
	var l limits
	want := func(data uint64, heap int64) {
		t.Helper()
		if l.data != data || l.heap.most != heap {
			t.Errorf("found %d and %d bytes of the heap, expected %d and %d", l.data, l.heap.most, data, heap)
		}
	}
	l.add(100, 40, 0)
	l.add(100, 40, 0)
	want(200, 80)
	l.add(-100, -40, 0)
	want(100, 80)
	l.add(100, 20, 0)
	want(200, 80)
	l.add(0, 60, 0)
	want(200, 120)
}

// dataOf is how many bytes of data a process has, as RLIMIT_DATA counts them.
func dataOf(t *testing.T, pid int) uint64 {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(status), "VmData:")
	var kib uint64
	if _, err := fmt.Sscan(after, &kib); err != nil {
		t.Fatal(err)
	}
	return kib << 10
}
