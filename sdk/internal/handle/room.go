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
		stay := yield()
		if !r.needed() {
			return
		}
		r.ask(stay)
	}
}

// yield lets all others run first, and says how long to stay with the host then, in ms.
func yield() int32 {
	// All that can run do so, twice: once woken, and once more for what they wake.
	began := time.Now()
	runtime.Gosched()
	runtime.Gosched()
	if time.Since(began) > busyTime {
		return 0 // they may not be done: only what is ready
	}
	return pollTime
}

// ask asks the host which handle may go on, and wakes those that wait for it. It returns the handle;
// 0 is none, and -1 any.
func (r *room) ask(stay int32) int32 {
	switch n := border.IOWait(stay); {
	case n > 0:
		r.wake(n)
		return n
	case abi.Code(n) == abi.ErrTimeout:
		return 0
	case abi.Code(n) == abi.ErrCancelled:
		r.run.NoteCancel()
		return 0
	}
	// Nothing to wait for: who is parked has missed nothing, but asks again.
	r.wakeAll()
	return -1
}

// lead reports whether the caller is to ask the host itself, with pollFor: nobody else does. It
// saves a goroutine, where one alone waits.
func (r *room) lead() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.polling {
		return false
	}
	r.polling = true
	return true
}

// pollFor asks the host until a call for the handle may go on, or it is time to try: another
// goroutine may have been woken for it before. The error is why it was given up.
func (r *room) pollFor(h *Handle, stop <-chan struct{}) error {
	defer r.follow()
	for {
		stay := yield()
		if err := h.usable(stop); err != nil {
			return err
		}
		n := r.ask(stay)
		late := n == 0 && stay > 0
		if n == h.id || n < 0 || late {
			return nil
		}
	}
}

// follow ends what lead began: if others wait, a goroutine goes on to ask.
func (r *room) follow() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.polling = len(r.parked) > 0; r.polling {
		go r.poll()
	}
}
