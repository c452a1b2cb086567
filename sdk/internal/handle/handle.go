// Package handle lets goroutines wait for the host's handles: what one of them waits
// for does not keep the others from running.
//
// A guest has one thread, and a call of the host stops all of its goroutines. So a
// goroutine whose call is answered with ErrAgain asks the host itself when it may go on, if no other
// does. Else it parks, and while any are parked one more goroutine, the poller, asks which handle may
// go on. Whoever asks lets all others run first, and stays with the host for 10 ms at most, so that
// timers fire in time.
package handle

import (
	"errors"
	"io"
	"sync"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/sdk"
	"github.com/wasmjob/wasmjob/sdk/internal/border"
)

// Why a call was given up.
var (
	// ErrStopped reports that the channel was closed by which a caller gives up.
	ErrStopped = errors.New("given up")
	// ErrClosed reports that the handle was closed, or that its run is over.
	ErrClosed = errors.New("handle is closed: it was closed by the job, or it is of an earlier run")
)

// Error is what the host answered instead of a result.
type Error struct {
	Errno sdk.Errno
	// Text is the host's reason, empty if it has none.
	Text string
}

func (e *Error) Error() string {
	if e.Text != "" {
		return e.Text
	}
	return e.Errno.Error()
}

// Unwrap returns the Errno.
func (e *Error) Unwrap() error { return e.Errno }

// Timeout says whether a time of the host was up.
func (e *Error) Timeout() bool { return e.Errno == sdk.ErrTimeout }

// Fail makes an [*Error] of a code, with the host's reason. The host is asked at once: the
// next failure replaces it. Of handle 0 it is the newest reason of all.
func Fail(handle, code int32) error {
	switch sdk.Errno(code) {
	case sdk.ErrNotFound, sdk.ErrState: // for these it has no reason, but maybe an older one
		return &Error{Errno: sdk.Errno(code)}
	}
	text, _ := border.Whole(256, func(buf []byte) int32 { return border.IOError(handle, buf) })
	return &Error{sdk.Errno(code), string(text)}
}

// Handle is a request or a connection of the host's. It may be used by several
// goroutines. It ends with the run of the item that opened it.
type Handle struct {
	id     int32
	run    *border.Run
	room   *room
	once   sync.Once
	closed chan struct{}
}

// Open returns the handle whose number open has got from the host. The error is an
// [*Error].
func Open(open func() int32) (*Handle, error) {
	id := open()
	if id < 0 {
		return nil, Fail(0, id)
	}
	run := border.Current()
	return &Handle{id: id, run: run, room: roomOf(run), closed: make(chan struct{})}, nil
}

// Do calls act with the handle's number until it answers something else than ErrAgain,
// and returns that. In between it waits until act may go on, unless stop is closed
// before; a nil stop never is. The error is an [*Error], ErrStopped or ErrClosed.
func (h *Handle) Do(stop <-chan struct{}, act func(id int32) int32) (int32, error) {
	again := int32(abi.ErrAgain)
	for {
		if err := h.usable(stop); err != nil {
			return 0, err
		}
		n := act(h.id)
		if n == again && h.room.lead() {
			if err := h.room.pollFor(h, stop); err != nil {
				return 0, err
			}
			continue
		}
		if n == again {
			// What happens from here on is noticed.
			woken := h.room.park(h.id)
			if n = act(h.id); n == again {
				err := h.await(woken, stop)
				h.room.leave(h.id, woken)
				if err != nil {
					return 0, err
				}
				continue
			}
			h.room.leave(h.id, woken)
		}
		if n < 0 {
			return 0, Fail(h.id, n)
		}
		return n, nil
	}
}

func (h *Handle) usable(stop <-chan struct{}) error {
	select {
	case <-h.closed:
		return ErrClosed
	case <-stop:
		return ErrStopped
	default:
	}
	if h.run != border.Current() {
		return ErrClosed
	}
	return nil
}

func (h *Handle) await(woken, stop <-chan struct{}) error {
	select {
	case <-woken:
		return nil
	case <-h.closed:
		return ErrClosed
	case <-stop:
		return ErrStopped
	}
}

// Read is io.Reader's, until stop is closed.
func (h *Handle) Read(stop <-chan struct{}, p []byte) (int, error) {
	if len(p) == 0 {
		return 0, h.usable(stop)
	}
	n, err := h.Do(stop, func(id int32) int32 { return border.IORead(id, p) })
	if n == 0 && err == nil {
		err = io.EOF
	}
	return int(n), err
}

// Write is io.Writer's, until stop is closed. Of no bytes it waits for the connection.
func (h *Handle) Write(stop <-chan struct{}, p []byte) (int, error) {
	written := 0
	for {
		n, err := h.Do(stop, func(id int32) int32 { return border.IOWrite(id, p[written:]) })
		written += int(n)
		if err != nil || written == len(p) {
			return written, err
		}
	}
}

// Finish says that nothing more will be written.
func (h *Handle) Finish(stop <-chan struct{}) error {
	_, err := h.Do(stop, border.IOFinish)
	return err
}

// Close drops the handle and what is not done. Calls that wait end with ErrClosed, as
// does a second Close.
func (h *Handle) Close() error {
	err := ErrClosed
	h.once.Do(func() {
		close(h.closed)
		if h.run == border.Current() {
			border.IOClose(h.id)
		}
		err = nil
	})
	return err
}
