package plugin

import (
	"fmt"
	"sync"

	"github.com/tetratelabs/wazero/experimental"
)

// linearMemory is a guest's memory, of at most max bytes. It belongs to one instance, which returns it after
// its last call: wazero calls Free too early in some cases and not at all in others.
//
// Where the system allows it, all addresses that the guest may ever use are reserved first and made usable as
// it grows. So growing copies nothing, untouched memory is never cleared, and the garbage collector is not
// involved. Elsewhere it is a slice on Go's heap that grows by at least half: so a guest that asks for one page
// after the other makes the host copy each byte a few times, not thousands of times.
type linearMemory struct {
	buf      []byte
	account  *account // of the worker that has it now
	max      uint64
	reserved []byte // all addresses; nil if buf is the collector's
	usable   uint64 // bytes of reserved that have been made usable
	resident int    // bytes that an idle memory keeps from the system
}

// roomy is the size from which a new memory on Go's heap gets extra capacity: runtimes with a heap of their
// own, such as Go's, grow it as they start.
const roomy = 1 << 20

// Reallocate implements experimental.LinearMemory. Memory never shrinks while it has an owner, so the bytes
// between length and capacity are still zero.
func (m *linearMemory) Reallocate(size uint64) []byte {
	if size > m.max {
		m.account.denied = fmt.Errorf("the job's memoryLimit is %s", mebibytes(int64(m.max)))
		return nil
	}
	if !m.account.covers(int64(size), m.account.stack) {
		return nil
	}
	if m.reserved != nil {
		if size > m.usable {
			if !use(m.reserved[m.usable:size]) {
				return nil
			}
			m.usable = size
		}
		m.buf = m.reserved[:size:size]
		return m.buf
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
func (m *linearMemory) Free() {}

// memories makes memories, and keeps some for reuse: clearing pages that the process has is much cheaper than
// getting new ones. It is safe for concurrent use.
type memories struct {
	mu       sync.Mutex
	idle     []*linearMemory // all zero; the newest is the last
	resident int             // bytes of all of them
	usable   uint64          // likewise
	closed   bool
}

// keptMemory bounds the resident bytes of idle memories, and keptUsable their usable addresses, which the
// kernel counts against a process's data limit.
const (
	keptMemory = 32 << 20
	keptUsable = 128 << 20
)

// take returns a zeroed memory of length 0, new or reused. The account pays for it.
func (p *memories) take(limit uint64, a *account) *linearMemory {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := len(p.idle) - 1; i >= 0; i-- {
		if m := p.idle[i]; m.max == limit {
			p.idle = append(p.idle[:i], p.idle[i+1:]...)
			p.resident -= m.resident
			p.usable -= m.usable
			m.account = a
			return m
		}
	}
	return &linearMemory{max: limit, account: a, reserved: reserve(limit)}
}

// put takes a memory back. The caller must not use it any more.
func (p *memories) put(m *linearMemory) {
	used := len(m.buf)
	m.buf, m.account = nil, nil
	if m.reserved == nil {
		return
	}
	// The last owner may have used less than an earlier one.
	resident, ok := wipe(m.reserved[:m.usable], used, keptMemory/2)
	p.mu.Lock()
	ok = ok && !p.closed && p.resident+resident <= keptMemory && p.usable+m.usable <= keptUsable
	if ok {
		m.resident = resident
		p.resident += resident
		p.usable += m.usable
		p.idle = append(p.idle, m)
	}
	p.mu.Unlock()
	if !ok {
		unreserve(m.reserved)
	}
}

// close drops the idle memories; what is put back later is dropped, too.
func (p *memories) close() {
	p.mu.Lock()
	idle := p.idle
	p.idle, p.resident, p.usable, p.closed = nil, 0, 0, true
	p.mu.Unlock()
	for _, m := range idle {
		unreserve(m.reserved)
	}
}

var _ experimental.LinearMemory = (*linearMemory)(nil)
