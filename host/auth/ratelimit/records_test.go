package ratelimit

import (
	"fmt"
	"testing"
	"time"
)

// TestRecords: of a storm from one address few failures are recorded, the rest is counted,
// and other addresses have records of their own.
func TestRecords(t *testing.T) {
	t.Parallel()
	c := &clock{t: time.Unix(1e9, 0)}
	r := NewRecords(c.now)
	recorded, counted := 0, 0
	for range 6000 { // ten minutes
		if ok, left := r.Take("192.0.2.1"); ok {
			recorded, counted = recorded+1, counted+1+left
		}
		c.pass(100 * time.Millisecond)
	}
	if recorded < 100 || recorded > 110 {
		t.Errorf("%d are recorded in ten minutes", recorded)
	}
	c.pass(time.Minute)
	if ok, left := r.Take("192.0.2.1"); !ok || counted+1+left != 6001 {
		t.Errorf("%t; %d failures are recorded or counted, and 6001 were made", ok, counted+1+left)
	}
	if ok, left := r.Take("192.0.2.2"); !ok || left != 0 {
		t.Errorf("another address: %t, %d", ok, left)
	}
	n := 0
	for i := range 100 { // of one home
		if ok, _ := r.Take(fmt.Sprintf("2001:db8::%x", i)); ok {
			n++
		}
	}
	if n != 10 {
		t.Errorf("%d are recorded of one network", n)
	}
	for i := range 2 * maxEntries {
		r.Take(fmt.Sprintf("10.0.%d.%d", i/256, i%256))
	}
	if n := len(r.sources.at); n > maxEntries {
		t.Errorf("%d entries", n)
	}
}
