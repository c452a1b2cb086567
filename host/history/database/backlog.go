package database

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/wasmjob/wasmjob/host/history"
)

const (
	// mostPending bounds the records that wait in memory behind the feed, mostChunk those of one transaction.
	mostPending = 8192
	mostChunk   = 2000
	// writeTimeout bounds one transaction.
	writeTimeout = 30 * time.Second
	// latePatience is the time after which the records of an unfinished transaction are spooled: the database
	// may be away.
	latePatience = 2 * time.Second
	// leastPause and mostPause bound the pause between two tries to reach a database.
	leastPause = 500 * time.Millisecond
	mostPause  = 15 * time.Second
)

// queue has the records that the database has not taken yet: a [backlog] of a database alone, or a [follower]
// of a log on the disk. It is safe for concurrent use; only the loader calls next, done, fail, good and late.
type queue interface {
	// add takes a batch and returns how many records were lost.
	add(batch []history.Entry) (lost int64)
	// end closes the queue for new records; ended reports whether it is closed.
	end()
	ended() bool
	// news has a value when there may be something to do.
	news() <-chan struct{}

	// next returns what to write now; ok is false if there is nothing. position asks the database for a
	// writer's position. doubt: a commit without an answer may have taken effect.
	next(ctx context.Context, position positionFunc, doubt bool) (c chunk, ok bool, err error)
	// done notes that a part of next's result is written; fail, why nothing could be written; good, that
	// something was; late, that a write takes long.
	done(c chunk) error
	fail(err error)
	good()
	late()

	// settle returns when the database has the records pending at the call, the wait would be long, or ctx is
	// done.
	settle(ctx context.Context)
	// state fills in the present state.
	state(s *history.State)
	// close closes files and returns how many records were lost.
	close() (lost int64, err error)
}

// positionFunc returns the position of a writer as the database has it; 0 if it has written nothing.
type positionFunc func(ctx context.Context, writer string) (int64, error)

// trouble has the reason why a queue cannot be written. Callers hold a lock.
type trouble struct {
	log     *zap.Logger
	problem *problem
}

// fail notes why nothing could be written.
func (t *trouble) fail(err error) {
	if t.problem == nil {
		t.log.Warn("the history cannot be written; jobs go on, and records wait on the disk", zap.Error(err))
		t.problem = &problem{since: time.Now()}
	}
	t.problem.err = err
}

// good notes that something was written.
func (t *trouble) good() {
	if t.problem != nil {
		t.log.Info("the history is written again", zap.Duration("after", time.Since(t.problem.since)))
		t.problem = nil
	}
}

// show adds the reason to a state.
func (t *trouble) show(s *history.State) {
	if t.problem != nil {
		s.Problem, s.Since = t.problem.err.Error(), t.problem.since
	}
}

// backlog is a queue of chunks in memory, followed by the spool, which has the newer records.
type backlog struct {
	trouble trouble
	name    string // under which the database notes the position of this process

	mu      sync.Mutex
	pending []history.Entry // oldest first
	// Positions count the bytes of all records that this process took. written is the position of the first
	// pending record, added of the next one to come.
	written, added int64
	spool          *spool
	// spilled has the records that were pending at the last call of next and have been spooled since.
	spilled *spoolFile
	full    bool          // the spool's trouble was logged, and the spool has not been empty since
	woken   chan struct{} // has room for one: there is something to do
	moved   chan struct{} // closed when something was written or spooled; nil: no query waits
	closed  bool
	copy    *copied // gets every added record; may be nil

	// seen is the result of state: its callers do not wait for the spool's disk.
	seen atomic.Pointer[history.State]
}

type problem struct {
	err   error
	since time.Time
}

// add takes a batch and returns how many records were lost.
func (b *backlog) add(batch []history.Entry) (lost int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	defer b.publish()
	if b.spool.empty() && len(b.pending)+len(batch) <= mostPending {
		if len(b.pending) == 0 {
			b.written = b.added
		}
		b.pending = append(b.pending, batch...)
		b.added += size(batch)
		if b.trouble.problem != nil {
			b.spill()
		}
	} else if err := b.spool.add(b.added, batch); err != nil {
		lost = int64(len(batch))
		if !b.full {
			b.full = true
			b.trouble.log.Warn("the history's spool cannot take records: they are dropped", zap.Error(err))
		}
	} else {
		b.added += size(batch)
	}
	if b.copy != nil {
		b.copy.take(batch)
	}
	b.wake()
	return lost
}

// size returns how many bytes records take in a spool.
func size(entries []history.Entry) (n int64) {
	for i := range entries {
		n += int64(len(entries[i].JSON)) + 1
	}
	return n
}

// spill moves the pending records to the spool, so that they outlive this process. Without room there they stay
// in memory. The caller holds b.mu.
func (b *backlog) spill() {
	if len(b.pending) == 0 || b.spool.bytes+size(b.pending) > b.spool.most {
		return
	}
	f, err := b.spool.addFirst(b.written, b.pending)
	if err != nil {
		if !b.full {
			b.full = true
			b.trouble.log.Warn("the history's spool cannot take records: they wait in memory", zap.Error(err))
		}
		return
	}
	b.pending, b.spilled = nil, f
}

// late spools the pending records because a transaction takes long.
func (b *backlog) late() {
	b.mu.Lock()
	defer b.mu.Unlock()
	defer b.publish()
	b.spill()
}

func (b *backlog) wake() {
	select {
	case b.woken <- struct{}{}:
	default:
	}
}

func (b *backlog) news() <-chan struct{} { return b.woken }

// next first asks how much of an earlier process's spool was loaded; in doubt, it asks for every spool.
func (b *backlog) next(ctx context.Context, position positionFunc, doubt bool) (c chunk, ok bool, err error) {
	for ; ; doubt = false {
		if c, ok, err = b.first(); err != nil || !ok || c.spool == nil || (c.spool.known && !doubt) {
			return c, ok, err
		}
		loaded, err := position(ctx, c.writer)
		if err != nil {
			return c, false, err
		}
		// The first records may have been written before or while they were spooled.
		before, err := position(ctx, c.spool.process())
		if err != nil {
			return c, false, err
		}
		if err := b.skip(c.spool, max(loaded, before-c.spool.from)); err != nil {
			return c, false, err
		}
	}
}

func (b *backlog) skip(f *spoolFile, position int64) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	defer b.publish()
	return b.loaded(b.spool.skip(f, position))
}

// loaded logs the spool's next trouble, once the spool has been empty. The caller holds b.mu.
func (b *backlog) loaded(err error) error {
	b.full = b.full && !b.spool.empty()
	return err
}

func (b *backlog) first() (c chunk, ok bool, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.spilled = nil
	if len(b.pending) > 0 {
		n := min(len(b.pending), mostChunk)
		c = chunk{entries: b.pending[:n:n], writer: b.name}
		end := b.written
		for i := range c.entries {
			end += size(c.entries[i : i+1])
			c.ends = append(c.ends, end)
		}
		return c, true, nil
	}
	f, entries, ends, err := b.spool.read(mostChunk)
	if f == nil || err != nil {
		return chunk{}, false, err
	}
	return chunk{entries: entries, writer: f.name, ends: ends, spool: f}, true, nil
}

// done notes that a part of next's result is written.
func (b *backlog) done(c chunk) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	defer b.publish()
	n, end := len(c.entries), c.ends[len(c.ends)-1]
	if c.spool != nil {
		return b.loaded(b.spool.done(c.spool, end, int64(n)))
	}
	if f := b.spilled; f != nil {
		return b.loaded(b.spool.done(f, end-f.from, int64(n)))
	}
	b.written = end
	clear(b.pending[:n])
	b.pending = b.pending[n:]
	return nil
}

// fail notes why nothing could be written.
func (b *backlog) fail(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	defer b.publish()
	b.trouble.fail(err)
	b.spill()
}

// good notes that something was written.
func (b *backlog) good() {
	b.mu.Lock()
	defer b.mu.Unlock()
	defer b.publish()
	b.trouble.good()
}

// publish stores the present state for state. The caller holds b.mu.
func (b *backlog) publish() {
	state := history.State{Queued: int64(len(b.pending)), Spooled: b.spool.records}
	b.trouble.show(&state)
	b.seen.Store(&state)
	if b.moved != nil {
		close(b.moved)
		b.moved = nil
	}
}

// settle returns when the pending records are in the database or spooled, or ctx is done.
func (b *backlog) settle(ctx context.Context) {
	b.mu.Lock()
	for end := b.added; len(b.pending) > 0 && b.written < end; {
		if b.moved == nil {
			b.moved = make(chan struct{})
		}
		moved := b.moved
		b.mu.Unlock()
		select {
		case <-moved:
		case <-ctx.Done():
			return
		}
		b.mu.Lock()
	}
	b.mu.Unlock()
}

// state fills in the state after the last change.
func (b *backlog) state(s *history.State) {
	if seen := b.seen.Load(); seen != nil {
		s.Queued += seen.Queued
		s.Spooled, s.Problem, s.Since = seen.Spooled, seen.Problem, seen.Since
	}
}

// end closes the backlog for new records.
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

// close spools what is left in memory, even beyond the spool's limit. It returns how many records were lost.
func (b *backlog) close() (lost int64, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.pending) > 0 && b.spool.most == 0 { // in memory alone
		b.pending = nil
	}
	if len(b.pending) > 0 {
		if _, err = b.spool.addFirst(b.written, b.pending); err != nil {
			lost = int64(len(b.pending))
		}
		b.pending = nil
	}
	b.publish()
	return lost, errors.Join(err, b.spool.close())
}
