package plugin

import (
	"fmt"
	"sync"

	"github.com/tetratelabs/wazero/experimental"
)

// linearMemory is a guest's memory, of at most max bytes. It belongs to one instance, which returns it after
// its last call: wazero calls Free too early in some cases and not at all in others.
//
// Where the system allows it, the addresses for all that the guest may ever
// have are reserved at first and made usable as it grows. So nothing is
// copied when it grows, what the guest never touches is never cleared, and the
// garbage collector has nothing to do with it. If the process may have so many addresses
// only (RLIMIT_AS), few are reserved at first; a memory that has outgrown them moves to twice as
// many. Otherwise it is a slice of the
// collector's, which grows by half at least: a guest that asks for one page
// after the other makes the host copy each byte a few times, not thousands of
// times.
type linearMemory struct {
	buf      []byte
	account  *account // of the worker that has it now
	max      uint64
	from     *addresses // of reserved; nil: there are as many as one likes
	reserved []byte     // all addresses that it has; nil if buf is the collector's
	usable   uint64     // bytes of reserved that have been made usable
	resident int        // bytes that an idle memory keeps from the system
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
	if m.from != nil && !m.move(size) {
		m.account.denied = fmt.Errorf("the process may have %s of addresses for guests (RLIMIT_AS, ulimit -v), which others have", mebibytes(int64(m.from.most)))
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

// move has the memory reserve as many addresses as size needs, twice those that it has if there are as many, and takes
// with it what it holds. It reports false if there are none.
func (m *linearMemory) move(size uint64) bool {
	have := uint64(len(m.reserved))
	if size <= have {
		return true
	}
	next := min(max(2*have, firstAddresses, size), m.max)
	b := m.from.reserve(next)
	if b == nil && next > size {
		b = m.from.reserve(size)
	}
	if b == nil || !use(b[:size]) {
		m.from.unreserve(b)
		return false
	}
	copy(b, m.buf)
	m.from.unreserve(m.reserved)
	m.reserved, m.usable = b, size
	return true
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
	from     *addresses // of all memories; nil: there are as many as one likes
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
	if p.from != nil {
		return &linearMemory{max: limit, account: a, from: p.from}
	}
	return &linearMemory{max: limit, account: a, reserved: reserve(limit)}
}

// firstAddresses is how many bytes of addresses a memory reserves at first if they are bounded: what a small guest of Go's has.
const firstAddresses = 16 << 20

// addresses are those of a process that may have so many only. It is safe for concurrent use.
type addresses struct {
	most uint64
	idle func() // gives back those of memories that are out of use

	mu   sync.Mutex
	used uint64
}

// boundedBy returns the addresses for the memories of a process that may have limit bytes of them, and has taken some already. A quarter of
// the others is left for what else the process does: Go ends a process that gets no addresses for its heap.
func (p *memories) boundedBy(limit, taken uint64) {
	p.from = &addresses{most: (limit - min(limit, taken)) / 4 * 3, idle: p.drop}
}

// reserve takes addresses; nil if there are none to be had.
func (a *addresses) reserve(size uint64) []byte {
	if !a.take(size) {
		if a.idle(); !a.take(size) {
			return nil
		}
	}
	b := reserve(size)
	if b == nil {
		a.give(size)
	}
	return b
}

func (a *addresses) take(size uint64) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if size > a.most-a.used {
		return false
	}
	a.used += size
	return true
}

func (a *addresses) give(size uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.used -= size
}

// unreserve gives addresses back that reserve has returned; nil is none. A nil a counts none.
func (a *addresses) unreserve(b []byte) {
	if b == nil {
		return
	}
	unreserve(b)
	if a != nil {
		a.give(uint64(len(b)))
	}
}

// put takes a memory back. Nothing may use it any more.
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
		m.from.unreserve(m.reserved)
	}
}

// close drops the idle memories; what is put back later is dropped, too.
func (p *memories) close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.drop()
}

// drop drops the idle memories.
func (p *memories) drop() {
	p.mu.Lock()
	idle := p.idle
	p.idle, p.resident, p.usable = nil, 0, 0
	p.mu.Unlock()
	for _, m := range idle {
		m.from.unreserve(m.reserved)
	}
}

var _ experimental.LinearMemory = (*linearMemory)(nil)
