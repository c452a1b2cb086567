package process

// heap is what the guests of a process may have of Go's heap, in bytes: their native stacks,
// which the engine keeps there. The host and the process count alike.
//
// Go keeps the addresses of its heap when what was there is gone, and the kernel counts
// them. So limits follow the most that guests had at once.
type heap struct{ now, most int64 }

// add takes so many bytes, or gives them back.
func (h *heap) add(bytes int64) {
	h.now += bytes
	h.most = max(h.most, h.now)
}
