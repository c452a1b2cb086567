package process

import (
	"bufio"
	"cmp"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"sync"
	"time"

	"github.com/fxamacker/cbor/v2"
)

const headSize = 5

// codec encodes and decodes the bodies of frames.
type codec struct {
	cbor.EncMode
	// Modes for frames from a process, which may be hostile, and from the host, which may be long.
	strict, long cbor.DecMode
}

var theCodec = sync.OnceValue(func() codec {
	strict := cbor.DecOptions{ExtraReturnErrors: cbor.ExtraDecErrorUnknownField, DupMapKey: cbor.DupMapKeyEnforcedAPF,
		IndefLength: cbor.IndefLengthForbidden, TagsMd: cbor.TagsForbidden, UTF8: cbor.UTF8DecodeInvalid, MaxNestedLevels: 8,
		MaxArrayElements: 16 << 10, MaxMapPairs: 16 << 10}
	long := strict
	long.MaxArrayElements, long.MaxMapPairs, long.MaxNestedLevels = math.MaxInt32, math.MaxInt32, 32
	must := func(m cbor.DecMode, err error) cbor.DecMode {
		if err != nil {
			panic(err) // the options are constant, and tested
		}
		return m
	}
	enc, err := cbor.EncOptions{}.EncMode()
	if err != nil {
		panic(err)
	}
	return codec{enc, must(strict.DecMode()), must(long.DecMode())}
})

// reader reads frames of at most max bytes. One goroutine uses it.
type reader struct {
	r    *bufio.Reader
	max  uint32
	mode cbor.DecMode
	body []byte
}

// fromProcess reads what a worker process writes, fromHost what the host writes.
func fromProcess(r io.Reader) *reader {
	return &reader{r: bufio.NewReaderSize(r, 32<<10), max: maxFromProcess, mode: theCodec().strict}
}

func fromHost(r io.Reader) *reader {
	return &reader{r: bufio.NewReaderSize(r, 32<<10), max: maxFromHost, mode: theCodec().long}
}

// piece is how many bytes of a frame are read at once: memory is allocated as they arrive, not by the frame's
// stated length.
const piece = 64 << 10

// next reads a frame. The error is io.EOF if there is none. The body is valid until
// the next call.
func (r *reader) next() (kind, []byte, error) {
	var head [headSize]byte
	if _, err := io.ReadFull(r.r, head[:]); err != nil {
		return 0, nil, err
	}
	n, k := binary.LittleEndian.Uint32(head[:]), kind(head[4])
	if n > r.max {
		return 0, nil, fmt.Errorf("a frame of %d bytes, expected at most %d", n, r.max)
	}
	if cap(r.body) > piece {
		r.body = nil // of a long one
	}
	r.body = r.body[:0]
	for len(r.body) < int(n) {
		more := min(int(n)-len(r.body), max(piece, len(r.body)))
		had := len(r.body)
		if cap(r.body) < had+more {
			grown := make([]byte, had, had+more)
			copy(grown, r.body)
			r.body = grown
		}
		got, err := io.ReadFull(r.r, r.body[had:had+more])
		r.body = r.body[:had+got]
		if err != nil {
			return 0, nil, fmt.Errorf("a frame of %d bytes has ended after %d: %w", n, len(r.body), io.ErrUnexpectedEOF)
		}
	}
	return k, r.body, nil
}

// expect reads a frame of a kind.
func (r *reader) expect(want kind, into any) error {
	k, body, err := r.next()
	if err != nil {
		return err
	}
	if k != want {
		return fmt.Errorf("a frame of kind %d, expected %d", k, want)
	}
	return r.decode(body, into)
}

// decode reads a body. Unknown fields are errors: both sides are one program. The error wraps none, so that the
// end of a body is not taken for that of the stream.
func (r *reader) decode(body []byte, into any) error {
	if err := r.mode.Unmarshal(body, into); err != nil {
		return fmt.Errorf("a frame's body: %v", err)
	}
	return nil
}

const (
	// linger is the longest delay of a frame that no caller waits for.
	linger = 10 * time.Millisecond
	// lingering is how many bytes of such frames may wait.
	lingering = 32 << 10
	// backlog is how many bytes may wait for the other side to read before writers wait, too.
	backlog = 256 << 10
)

// writer writes frames. Frames that arrive during a write are combined in the next one. It is safe for
// concurrent use.
type writer struct {
	w io.Writer

	mu      sync.Mutex
	room    sync.Cond // the other side has read, or err is set
	buf     []byte    // frames that wait
	spare   []byte
	writing bool
	err     error
	armed   bool // a timer writes what waits
	// stuck is called if the other side does not read for patience; nil is ignored. Both are constant.
	stuck    func()
	patience time.Duration
}

func newWriter(w io.Writer) *writer {
	x := &writer{w: w}
	x.room.L = &x.mu
	return x
}

// send writes a frame. It returns when the frame is written, or when another goroutine is about to write it.
// The error of a closed pipe may be returned by a later call.
func (w *writer) send(k kind, body any) error { return w.put(k, body, nil, true) }

// sendBytes writes a frame with a body as it is.
func (w *writer) sendBytes(k kind, body []byte) error { return w.put(k, nil, body, true) }

// later writes a frame with the next one that is sent, or after linger.
func (w *writer) later(k kind, body any) error { return w.put(k, body, nil, false) }

// queueOpen queues an open, and its module if it has one, for push. It does not block.
func (w *writer) queueOpen(q *open, wasm []byte) {
	raw, err := theCodec().Marshal(q)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err = cmp.Or(w.err, err); w.err != nil {
		return
	}
	w.add(kindOpen, raw)
	if q.Bytes {
		w.add(kindModule, wasm)
	}
}

// push writes what is queued.
func (w *writer) push() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.flush()
}

// note writes a frame after linger, as later does, but never blocks: it is for few, short frames.
func (w *writer) note(k kind, body any) {
	raw, err := theCodec().Marshal(body)
	if err != nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil {
		return
	}
	w.add(k, raw)
	if !w.armed && !w.writing {
		w.armed = true
		time.AfterFunc(linger, w.late)
	}
}

func (w *writer) put(k kind, body any, raw []byte, now bool) error {
	if body != nil {
		var err error
		if raw, err = theCodec().Marshal(body); err != nil {
			return err
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for len(w.buf) > backlog && w.err == nil {
		w.room.Wait()
	}
	if w.err != nil {
		return w.err
	}
	w.add(k, raw)
	if now || len(w.buf) > lingering {
		w.flush()
	} else if !w.armed {
		w.armed = true
		time.AfterFunc(linger, w.late)
	}
	return w.err
}

// add appends a frame to those that wait. mu is held.
func (w *writer) add(k kind, body []byte) {
	var head [headSize]byte
	binary.LittleEndian.PutUint32(head[:], uint32(len(body)))
	head[4] = byte(k)
	w.buf = append(append(w.buf, head[:]...), body...)
}

// late writes queued frames when the timer fires.
func (w *writer) late() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.armed = false
	w.flush()
}

// flush writes everything queued, unless another goroutine does. mu is held, but released during the write.
func (w *writer) flush() {
	if w.writing {
		return
	}
	w.writing = true
	for len(w.buf) > 0 && w.err == nil {
		out := w.buf
		w.buf = w.spare[:0]
		w.mu.Unlock()
		var watchdog *time.Timer
		if w.stuck != nil {
			watchdog = time.AfterFunc(w.patience, w.stuck)
		}
		_, err := w.w.Write(out)
		if watchdog != nil {
			watchdog.Stop()
		}
		w.mu.Lock()
		w.spare = nil
		if cap(out) <= 2*backlog {
			w.spare = out
		}
		if err != nil {
			w.err = err
		}
		w.room.Broadcast()
	}
	w.writing = false
}
