package handle

import (
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/sdk/internal/border"
)

// pollTime is how long the poller stays with the host, in ms: a timer of another
// goroutine is late by this at most.
const pollTime = 10

// busyTime is how long other goroutines have run at least if they may want to run on.
const busyTime = 20 * time.Microsecond

// room is where the goroutines of one run wait. There is one for all handles, because
// the host can be asked by one goroutine only; it lives as long as the run does, whose
// handles it is about.
type room struct {
	run *border.Run

	mu      sync.Mutex
	parked  map[int32][]chan struct{} // by handle; each channel has room for one
	polling bool
}

func roomOf(run *border.Run) *room {
	return run.Companion(func() any { return &room{run: run, parked: make(map[int32][]chan struct{})} }).(*room)
}

// park returns a channel that gets a value when a call for the handle may go on, and
// after the run. The caller ends it with leave.
func (r *room) park(handle int32) chan struct{} {
	woken := make(chan struct{}, 1)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.parked[handle] = append(r.parked[handle], woken)
	if !r.polling {
		r.polling = true
		go r.poll()
	}
	return woken
}

func (r *room) leave(handle int32, woken chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	rest := slices.DeleteFunc(r.parked[handle], func(c chan struct{}) bool { return c == woken })
	if len(rest) == 0 {
		delete(r.parked, handle)
		return
	}
	r.parked[handle] = rest
}

// wake lets those go on who wait for a handle.
func (r *room) wake(handle int32) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.wakeLocked(handle)
}

func (r *room) wakeLocked(handle int32) {
	for _, woken := range r.parked[handle] {
		select {
		case woken <- struct{}{}:
		default: // it has been woken already
		}
	}
}

func (r *room) wakeAll() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for handle := range r.parked {
		r.wakeLocked(handle)
	}
}

// needed says whether the poller is to go on; if not, the next park starts another.
func (r *room) needed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	over := r.run != border.Current()
	if over || len(r.parked) == 0 {
		r.polling = false
		for handle := range r.parked {
			r.wakeLocked(handle)
		}
		return false
	}
	return true
}

// poll asks the host while anybody waits.
func (r *room) poll() {
	for {
		// All that can run do so, twice: once woken, and once more for what they wake.
		began := time.Now()
		runtime.Gosched()
		runtime.Gosched()
		stay := int32(pollTime)
		if time.Since(began) > busyTime {
			stay = 0 // they may not be done: only what is ready
		}
		if !r.needed() {
			return
		}
		switch n := border.IOWait(stay); {
		case n > 0:
			r.wake(n)
		case abi.Code(n) == abi.ErrTimeout:
		case abi.Code(n) == abi.ErrCancelled:
			r.run.NoteCancel()
		default: // nothing to wait for: who is parked has missed nothing, but asks again
			r.wakeAll()
		}
	}
}
