// Package pipe is a bounded queue of bytes between a guest, whose calls do not block,
// and a goroutine of the host, which waits.
package pipe

import (
	"io"
	"sync"

	"github.com/wasmjob/wasmjob/host/sandbox/capability"
)

const (
	// Limit is how many bytes a pipe holds.
	Limit = 256 << 10
	first = 2 << 10 // what it allocates at first
	// piece is how much is written at once: the writer may be stopped between two pieces.
	piece = 32 << 10
	// worth is how much free room is worth waking a writer for.
	worth = Limit / 4
)

// Pipe is one direction of a stream: the guest puts bytes in and a goroutine takes them
// out, or the other way round. Each side is used by one goroutine at a time; End and
// Break may be called by any.
type Pipe struct {
	notify func()

	mu          sync.Mutex
	ring        []byte // grows up to Limit
	start, size int    // what is in it
	full        bool   // the last Fill used all room that it was given
	end         error  // what follows the bytes; nil: more
	again       bool   // the guest was answered with Again
	parked      bool   // the goroutine waits
	wake        chan struct{}
}

// New makes a pipe. It calls notify when a call that was answered with Again may succeed.
func New(notify func()) *Pipe {
	return &Pipe{notify: notify, wake: make(chan struct{}, 1)}
}

// Put takes as many bytes as fit. It does not block.
func (p *Pipe) Put(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.end != nil {
		return 0, p.end
	}
	if len(b) == 0 {
		return 0, nil
	}
	for len(p.ring) < min(p.size+len(b), Limit) {
		p.grow(max(first, 2*len(p.ring)))
	}
	n := 0
	for n < len(b) && p.size < len(p.ring) {
		k := copy(p.room(), b[n:])
		n += k
		p.size += k
	}
	if n == 0 {
		p.again = true
		return 0, capability.Again()
	}
	p.unpark()
	return n, nil
}

// Get returns available bytes, as many as fit in b. It does not block. After the last byte it returns the error
// of End.
func (p *Pipe) Get(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := p.take(b)
	if n > 0 || len(b) == 0 {
		if Limit-p.size >= worth {
			p.unpark()
		}
		return n, nil
	}
	if p.end != nil {
		return 0, p.end
	}
	p.again = true
	return 0, capability.Again()
}

// Read waits for bytes that were Put. After the last one it returns the error of End.
func (p *Pipe) Read(b []byte) (int, error) {
	for {
		p.mu.Lock()
		n, end := p.take(b), p.end
		if n > 0 || end != nil || len(b) == 0 {
			again := p.roomy()
			p.mu.Unlock()
			if again {
				p.notify()
			}
			if n > 0 {
				end = nil
			}
			return n, end
		}
		p.parked = true
		p.mu.Unlock()
		<-p.wake
	}
}

// WriteTo implements io.WriterTo: it writes what is Put, without copying, until the End; io.EOF is no error.
func (p *Pipe) WriteTo(w io.Writer) (int64, error) {
	var all int64
	for {
		b, err := p.next()
		if err != nil {
			if err == io.EOF {
				err = nil
			}
			return all, err
		}
		n, err := w.Write(b)
		all += int64(n)
		p.discard(n)
		if err != nil {
			return all, err
		}
	}
}

// next waits for bytes, and returns a contiguous part.
func (p *Pipe) next() ([]byte, error) {
	for {
		p.mu.Lock()
		if p.size > 0 {
			b := p.ring[p.start:min(p.start+p.size, len(p.ring))]
			p.mu.Unlock()
			return b[:min(len(b), piece)], nil
		}
		if p.end != nil {
			p.mu.Unlock()
			return nil, p.end
		}
		p.parked = true
		p.mu.Unlock()
		<-p.wake
	}
}

// discard drops the first bytes, which next returned.
func (p *Pipe) discard(n int) {
	p.mu.Lock()
	n = min(n, p.size) // less after Break
	if n > 0 {
		p.start = (p.start + n) % len(p.ring)
		p.size -= n
	}
	again := p.roomy()
	p.mu.Unlock()
	if again {
		p.notify()
	}
}

// Fill waits for room, and passes it to read, once. If read fails, that is the End. check, which may be nil, is
// called before the bytes become available: if it fails they are dropped, and that is the End.
func (p *Pipe) Fill(read func([]byte) (int, error), check func(n int) error) (int, error) {
	for {
		p.mu.Lock()
		if p.end != nil {
			p.mu.Unlock()
			return 0, p.end
		}
		// Only this side moves the start of an empty ring, and only before it
		// reads: the guest takes nothing from the room that is read into.
		if p.full || p.size == len(p.ring) {
			p.full = false
			p.grow(max(first, 2*len(p.ring)))
		}
		if p.size < len(p.ring) {
			break
		}
		p.parked = true
		p.mu.Unlock()
		<-p.wake
	}
	if p.size == 0 {
		p.start = 0
	}
	room := p.room()
	p.mu.Unlock()

	n, err := read(room)
	if n > 0 && check != nil {
		if refused := check(n); refused != nil {
			n, err = 0, refused
		}
	}

	p.mu.Lock()
	if p.end != nil {
		n, err = 0, p.end
	}
	p.size += n
	p.full = n == len(room)
	if err != nil && p.end == nil {
		p.end = err
	}
	again := p.again && (n > 0 || err != nil)
	p.again = p.again && !again
	p.mu.Unlock()
	if again {
		p.notify()
	}
	return n, err
}

// End says that no more bytes follow, and why: io.EOF, or the failure. The first reason stays.
func (p *Pipe) End(reason error) { p.over(reason, false) }

// Break is End, and also drops the bytes in the pipe.
func (p *Pipe) Break(reason error) { p.over(reason, true) }

func (p *Pipe) over(reason error, drop bool) {
	p.mu.Lock()
	if p.end == nil || (drop && p.size > 0) {
		p.end = reason
	}
	if drop {
		p.size = 0
	}
	again := p.again
	p.again = false
	p.unpark()
	p.mu.Unlock()
	if again {
		p.notify()
	}
}

// Size is how many bytes are in the pipe.
func (p *Pipe) Size() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.size
}

// All takes all bytes of an ended pipe from which nothing was taken.
func (p *Pipe) All() []byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := p.ring[:p.size]
	p.ring, p.size = nil, 0
	return all
}

// The following functions need the lock.

func (p *Pipe) unpark() {
	if !p.parked {
		return
	}
	p.parked = false
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// roomy reports whether to notify the guest of room, and notes that it was notified.
func (p *Pipe) roomy() bool {
	if !p.again || Limit-p.size < worth {
		return false
	}
	p.again = false
	return true
}

// room is the free part behind the bytes, as far as it has no break.
func (p *Pipe) room() []byte {
	if end := p.start + p.size; end < len(p.ring) {
		return p.ring[end:]
	}
	return p.ring[(p.start+p.size)%len(p.ring) : p.start]
}

// grow moves the bytes into a larger ring, unless it is as large as it may be.
func (p *Pipe) grow(size int) {
	if size = min(size, Limit); size <= len(p.ring) {
		return
	}
	ring := make([]byte, size)
	n := copy(ring, p.ring[p.start:min(p.start+p.size, len(p.ring))])
	copy(ring[n:], p.ring[:p.size-n])
	p.ring, p.start = ring, 0
}

// take moves the first bytes to b.
func (p *Pipe) take(b []byte) int {
	n := 0
	for n < len(b) && p.size > 0 {
		k := copy(b[n:], p.ring[p.start:min(p.start+p.size, len(p.ring))])
		p.start = (p.start + k) % len(p.ring)
		p.size -= k
		n += k
	}
	return n
}
