package plugin

import "sync/atomic"

// Uses counts the uses of an object that is closed with the last one. It is safe for concurrent use.
type Uses struct{ n atomic.Int64 }

// Begin sets the first use.
func (u *Uses) Begin() { u.n.Store(1) }

// Retain adds a use. It reports false if the last one has ended.
func (u *Uses) Retain() bool {
	for n := u.n.Load(); n > 0; n = u.n.Load() {
		if u.n.CompareAndSwap(n, n+1) {
			return true
		}
	}
	return false
}

// End ends a use, and reports whether it was the last. Beyond that it does nothing.
func (u *Uses) End() bool {
	for n := u.n.Load(); n > 0; n = u.n.Load() {
		if u.n.CompareAndSwap(n, n-1) {
			return n == 1
		}
	}
	return false
}
