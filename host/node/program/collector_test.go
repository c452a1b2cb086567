package program

import (
	"runtime"
	"runtime/debug"
	"testing"
)

func TestGCPercent(t *testing.T) {
	t.Parallel()
	for live, want := range map[int64]int{0: 400, 64 << 20: 250, 192 << 20: 175, 64 << 30: 100} {
		if got := gcPercent(live); got != want {
			t.Errorf("GOGC beside %d bytes is %d, want %d", live, got, want)
		}
	}
}

// TestAfterCollections collects until it was heard of, and not any more when it has ended.
func TestAfterCollections(t *testing.T) {
	t.Parallel()
	heard := make(chan struct{}, 1)
	calls := 0 // by one call at a time, and after stop
	stop := afterCollections(func() {
		calls++
		select {
		case heard <- struct{}{}:
		default:
		}
	})
	for range 3 { // the first is not after a collection
		<-heard
		runtime.GC()
	}
	stop()
	before := calls
	runtime.GC()
	if calls != before {
		t.Errorf("%d calls came after the end", calls-before)
	}
}

// TestCollectorKnowsModules has modules that no collection has seen, and ends as it began.
func TestCollectorKnowsModules(t *testing.T) {
	before := debug.SetGCPercent(77)
	defer debug.SetGCPercent(before)
	c := &collector{}
	end := c.run()
	c.changed()(64 << 30)
	if now := debug.SetGCPercent(100); now != 100 {
		t.Errorf("GOGC is %d beside modules of 64 GiB, want 100", now)
	}
	end()
	if after := debug.SetGCPercent(before); after != 77 {
		t.Errorf("GOGC is %d afterwards, want 77", after)
	}
	if none := (*collector)(nil); none.changed() != nil {
		t.Error("a collector that the environment paces is paced by modules, too")
	}
}
