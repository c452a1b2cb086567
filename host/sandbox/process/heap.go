package process

// heap is how much of Go's heap the guests of a process may use, in bytes: the engine keeps their native stacks
// there. The host and the process compute the same number.
//
// Go keeps addresses of its heap after they are freed, and the kernel counts them. So limits follow the highest
// use.
type heap struct{ now, most int64 }

// add takes so many bytes, or gives them back.
func (h *heap) add(bytes int64) {
	h.now += bytes
	h.most = max(h.most, h.now)
}
