package border

import "sync/atomic"

// Run is what the guest does for its host: an item with all of its batches, or a
// listener. What the host gives it, handles above all, ends with it.
type Run struct {
	id        string
	fence     int64
	attempt   int
	onCancel  atomic.Pointer[func()]
	companion atomic.Value
}

// run is the run that goes on; like the host, a guest finds it without being handed
// one.
var run atomic.Pointer[Run]

// Begin says to which run the invocation belongs that begins. onCancel is called by
// [Run.NoteCancel], until the next Begin.
func Begin(id string, fence int64, attempt int, onCancel func()) {
	r := run.Load()
	if r == nil || r.id != id || r.fence != fence || r.attempt != attempt {
		r = &Run{id: id, fence: fence, attempt: attempt}
		run.Store(r)
	}
	r.onCancel.Store(&onCancel)
}

// Current returns the run that goes on, never nil: a program whose main is the job has
// one that lasts as long as itself. Two runs are the same if the pointers are.
func Current() *Run {
	if r := run.Load(); r != nil {
		return r
	}
	run.CompareAndSwap(nil, &Run{})
	return Current()
}

// NoteCancel says that the host has begun to cancel the run.
func (r *Run) NoteCancel() {
	if f := r.onCancel.Load(); f != nil {
		(*f)()
	}
}

// Companion returns what lives as long as the run, the same value in each call: the
// first one's.
func (r *Run) Companion(first func() any) any {
	if v := r.companion.Load(); v != nil {
		return v
	}
	r.companion.CompareAndSwap(nil, first())
	return r.companion.Load()
}
