package process

import (
	"runtime"
	"runtime/debug"
	"testing"
)

// TestHeapOfSession: the collector's limit follows what guests may have of the heap, and it is
// run when there is much for it that guests have left. It runs alone: the limit is the process'.
func TestHeapOfSession(t *testing.T) {
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(-1))
	s := newSession(nil, nil)
	least := int64(heapLimit)
	for _, more := range []int64{0, 100 << 20, 300 << 20, -400 << 20} {
		s.addHeap(more)
		least += max(more, 0)
		if limit := debug.SetMemoryLimit(-1); limit < least || limit > least+2*heapStep {
			t.Errorf("a limit of %d MiB, expected at least %d", limit>>20, least>>20)
		}
	}

	collected := func() uint32 {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.NumForcedGC
	}
	before := collected()
	s.stackGrown(stackGarbage - 1)
	if n := collected() - before; n != 0 {
		t.Errorf("collected %d times for little", n)
	}
	s.stackGrown(1)
	if n := collected() - before; n != 1 {
		t.Errorf("collected %d times for much", n)
	}
	s.stackGrown(stackLeft - 1)
	if n := collected() - before; n != 1 {
		t.Errorf("collected %d times for what was collected", n)
	}
	s.collectLeft()
	if n := collected() - before; n != 1 {
		t.Errorf("collected %d times for little that is left", n)
	}
	s.stackGrown(1)
	s.addHeap(1)
	s.collectLeft()
	if n := collected() - before; n != 1 {
		t.Errorf("collected %d times while there are guests", n)
	}
	s.addHeap(-1)
	s.collectLeft()
	s.collectLeft()
	if n := collected() - before; n != 2 {
		t.Errorf("collected %d times for much that is left", n-1)
	}
}
