package database

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/wasmjob/wasmjob/host/history"
)

const (
	// mostPending is how many records may wait in memory behind the feed, mostChunk how many
	// one transaction takes.
	mostPending = 8192
	mostChunk   = 2000
	// writeTimeout bounds one transaction.
	writeTimeout = 30 * time.Second
	// leastPause and mostPause are between two tries to reach a database.
	leastPause = 500 * time.Millisecond
	mostPause  = 15 * time.Second
)

// backlog is what the database has not taken yet: chunks in memory, and behind them,
// newer, the spool. It is safe for concurrent use.
type backlog struct {
	log *zap.Logger

	mu      sync.Mutex
	pending []history.Entry // oldest first
	written int64           // records of this process that were not in the spool
	spool   *spool
	problem *problem
	full    bool          // the spool's trouble was logged
	news    chan struct{} // has room for one: there is something to do
	closed  bool

	// seen is what state says: who asks does not wait for the spool's disk.
	seen atomic.Pointer[history.State]
}

type problem struct {
	err   error
	since time.Time
}

// add takes a batch. It returns how many records were lost.
func (b *backlog) add(batch []history.Entry) (lost int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	defer b.publish()
	if b.spool.empty() && len(b.pending)+len(batch) <= mostPending {
		b.pending = append(b.pending, batch...)
	} else if err := b.spool.add(batch); err != nil {
		lost = int64(len(batch))
		if !b.full {
			b.full = true
			b.log.Warn("the history's spool cannot take records: they are dropped", zap.Error(err))
		}
	} else {
		b.full = false
	}
	b.wake()
	return lost
}

func (b *backlog) wake() {
	select {
	case b.news <- struct{}{}:
	default:
	}
}

// next is what is to be written now; ok is false if there is nothing.
func (b *backlog) next(writer string) (c chunk, ok bool, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.pending) > 0 {
		n := min(len(b.pending), mostChunk)
		c = chunk{entries: b.pending[:n:n], writer: writer}
		for i := range c.entries {
			c.ends = append(c.ends, b.written+int64(i)+1)
		}
		return c, true, nil
	}
	f, entries, ends, err := b.spool.read(mostChunk)
	if f == nil || err != nil {
		return chunk{}, false, err
	}
	return chunk{entries: entries, writer: f.name, ends: ends, spool: f}, true, nil
}

// done notes that a part of what next returned is written.
func (b *backlog) done(c chunk) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	defer b.publish()
	if c.spool != nil {
		return b.spool.done(c.spool, c.ends[len(c.ends)-1], int64(len(c.entries)))
	}
	n := len(c.entries)
	b.written += int64(n)
	clear(b.pending[:n])
	b.pending = b.pending[n:]
	return nil
}

// fail notes why nothing could be written.
func (b *backlog) fail(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	defer b.publish()
	if b.problem == nil {
		b.log.Warn("the history cannot be written; jobs go on, and records wait on the disk", zap.Error(err))
		b.problem = &problem{since: time.Now()}
	}
	b.problem.err = err
}

// good notes that something was written.
func (b *backlog) good() {
	b.mu.Lock()
	defer b.mu.Unlock()
	defer b.publish()
	if b.problem != nil {
		b.log.Info("the history is written again", zap.Duration("after", time.Since(b.problem.since)), zap.Int64("spooled", b.spool.records))
		b.problem = nil
	}
}

// publish has state say what is so now. The caller holds b.mu.
func (b *backlog) publish() {
	state := history.State{Queued: int64(len(b.pending)), Spooled: b.spool.records}
	if b.problem != nil {
		state.Problem, state.Since = b.problem.err.Error(), b.problem.since
	}
	b.seen.Store(&state)
}

// state fills in what the backlog knew after its last change.
func (b *backlog) state(s *history.State) {
	if seen := b.seen.Load(); seen != nil {
		s.Queued += seen.Queued
		s.Spooled, s.Problem, s.Since = seen.Spooled, seen.Problem, seen.Since
	}
}

// end says that nothing is added any more.
func (b *backlog) end() {
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	b.wake()
}

func (b *backlog) ended() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.closed
}

// close spools what is left in memory. A batch whose commit had no answer may be written
// twice by that. It returns how many records were lost.
func (b *backlog) close() (lost int64, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.pending) > 0 {
		if err = b.spool.addFirst(b.pending); err != nil {
			lost = int64(len(b.pending))
		}
		b.pending = nil
	}
	b.publish()
	return lost, errors.Join(err, b.spool.close())
}
