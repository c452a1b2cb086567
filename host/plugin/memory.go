package plugin

import "github.com/tetratelabs/wazero/experimental"

// linearMemory is a guest's memory. Go's collector owns it, so nothing has to
// be freed. It grows by half at least: a guest that asks for one page after the
// other makes the host copy each byte a few times, not thousands of times.
type linearMemory struct {
	buf []byte
	max uint64
}

// roomy is the size from which a new memory gets room to grow: runtimes with a
// heap of their own, such as Go's, grow it as they start.
const roomy = 1 << 20

func allocate(_, limit uint64) experimental.LinearMemory { return &linearMemory{max: limit} }

// Reallocate implements experimental.LinearMemory. Memory never shrinks, so
// what lies between length and capacity is still zero.
func (m *linearMemory) Reallocate(size uint64) []byte {
	if size > m.max {
		return nil
	}
	if size > uint64(cap(m.buf)) || m.buf == nil {
		room := size
		if size >= roomy {
			room = min(max(size+size/4, uint64(cap(m.buf))/2*3), m.max)
		}
		grown := make([]byte, size, room)
		copy(grown, m.buf)
		m.buf = grown
	}
	m.buf = m.buf[:size]
	return m.buf
}

// Free implements experimental.LinearMemory.
func (m *linearMemory) Free() { m.buf = nil }
