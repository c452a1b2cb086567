package terminal

import (
	"fmt"
	"io"
	"sync"
	"time"
)

// Output lets many goroutines write lines to the streams of the process without
// ever waiting for them: a terminal that is halted with Ctrl-S, or a pipe that
// no one reads, must not keep a host from renewing its session. Lines wait in a
// queue of fixed length; what does not fit is dropped, and that is said. One
// goroutine writes, so that lines of both streams keep their order.
type Output struct {
	done chan struct{} // closed when run has returned

	mu      sync.Mutex
	closed  bool
	queue   chan chunk
	dropped int
	last    io.Writer // where the last line was dropped
}

type chunk struct {
	to   io.Writer
	data []byte
}

const (
	outputQueue = 4096
	// outputGrace is how long close waits for a stream that takes nothing.
	outputGrace = 2 * time.Second
)

func NewOutput() *Output {
	o := &Output{done: make(chan struct{}), queue: make(chan chunk, outputQueue)}
	go o.run()
	return o
}

func (o *Output) run() {
	defer close(o.done)
	for c := range o.queue {
		// A closed stream cannot report its own error.
		_, _ = c.to.Write(c.data)
	}
	o.mu.Lock()
	dropped, last := o.dropped, o.last
	o.mu.Unlock()
	if dropped > 0 {
		_, _ = io.WriteString(last, droppedLine(dropped))
	}
}

// To returns the writer for a stream. Each Write should be whole lines.
func (o *Output) To(w io.Writer) io.Writer { return stream{o, w} }

type stream struct {
	o  *Output
	to io.Writer
}

// Write queues a copy of the lines and never fails.
func (s stream) Write(p []byte) (int, error) {
	o := s.o
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return len(p), nil
	}
	if o.dropped > 0 && len(o.queue) < cap(o.queue)/2 {
		o.queue <- chunk{o.last, []byte(droppedLine(o.dropped))}
		o.dropped = 0
	}
	// Only this method sends, under the lock, so that room stays room.
	if o.dropped > 0 || len(o.queue) == cap(o.queue) {
		o.dropped++
		o.last = s.to
		return len(p), nil
	}
	o.queue <- chunk{s.to, append([]byte(nil), p...)}
	return len(p), nil
}

func droppedLine(n int) string {
	return fmt.Sprintf("… %d lines dropped: they came faster than they could be shown\n", n)
}

// Close writes what is queued and joins the goroutine, unless the stream takes
// nothing for some time: then it is left to the end of the process.
func (o *Output) Close() {
	o.mu.Lock()
	if !o.closed {
		o.closed = true
		close(o.queue)
	}
	o.mu.Unlock()
	timer := time.NewTimer(outputGrace)
	defer timer.Stop()
	select {
	case <-o.done:
	case <-timer.C:
	}
}
