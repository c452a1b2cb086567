package database

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/wasmjob/wasmjob/host/event"
	"github.com/wasmjob/wasmjob/host/history"
	"github.com/wasmjob/wasmjob/host/history/jsonl"
)

// standIn answers queries while a server's database does not: from what this host has not written there, which waits in
// memory and in the spool. It begins with the first query without an answer, and ends when the database has taken something
// again. It is safe for concurrent use.
type standIn struct {
	backlog *backlog
	ctx     context.Context // of the store's goroutines

	mu     sync.Mutex
	now    *copied // nil: the database answers, as far as is known
	closed bool
}

// copied is a history in memory with what a backlog has, and what it gets.
type copied struct {
	store  *Store
	done   chan struct{} // closed when fill has returned
	cancel context.CancelFunc
	// using is held for reading by queries, and for closing the store.
	using sync.RWMutex
	over  bool // guarded by using: the store is closed

	mu      sync.Mutex
	filled  bool
	waiting []history.Entry // that came before it was
	// omitted: there is more than a history in memory has room for.
	omitted bool
}

// waitingFile is a file of a spool, from where the database has not loaded it to the end.
type waitingFile struct {
	name       string
	from, size int64
}

// answered asks the database, and the stand-in if the database does not answer.
func answered[T any](ctx context.Context, s *Store, f history.Filter, ask func(*Store, context.Context, history.Filter) (history.Page[T], error)) (history.Page[T], error) {
	if s.standIn == nil {
		return ask(s, ctx, f)
	}
	if f.Unwritten && s.presence.err() == nil && s.State().Problem == "" {
		return history.Page[T]{Records: []T{}}, f.Check() // the database has it, or will in a moment
	}
	var why error
	if !f.Unwritten {
		page, err := ask(s, ctx, f)
		if !errors.Is(err, history.ErrUnavailable) || ctx.Err() != nil {
			return page, err
		}
		why = err
	}
	c, err := s.standIn.begin(ctx)
	if err != nil {
		return history.Page[T]{}, errors.Join(why, err)
	}
	c.using.RLock()
	defer c.using.RUnlock()
	if c.over {
		return ask(s, ctx, f) // it answers again
	}
	page, err := ask(c.store, ctx, f)
	if err == nil && !f.Unwritten {
		if page.Missing = history.Away; c.lacks() {
			page.Missing = history.AwayForLong
		}
	}
	return page, err
}

// begin returns the copy, which it makes if there is none. It waits until that has all, but not for long.
func (i *standIn) begin(ctx context.Context) (*copied, error) {
	c, err := i.copy()
	if err != nil {
		return nil, err
	}
	timer := time.NewTimer(settleTimeout)
	defer timer.Stop()
	select {
	case <-c.done:
	case <-timer.C:
	case <-ctx.Done():
	}
	return c, nil
}

func (i *standIn) copy() (*copied, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	switch {
	case i.closed:
		return nil, history.ErrUnavailable
	case i.now != nil:
		return i.now, nil
	}
	store, err := Open(i.ctx, Options{Config: InMemory(), Logger: zap.NewNop()})
	if err != nil {
		return nil, err
	}
	c := &copied{store: store, done: make(chan struct{})}
	var ctx context.Context
	ctx, c.cancel = context.WithCancel(i.ctx)
	pending, files := i.backlog.copyTo(c)
	go c.fill(ctx, pending, files) // end waits for it
	i.now = c
	return c, nil
}

// end lets go of the copy: the database answers again, or, with closing, the store ends.
func (i *standIn) end(closing bool) error {
	i.mu.Lock()
	c := i.now
	i.now, i.closed = nil, i.closed || closing
	i.mu.Unlock()
	if c == nil {
		return nil
	}
	i.backlog.copyTo(nil)
	c.cancel()
	<-c.done
	c.using.Lock()
	defer c.using.Unlock()
	c.over = true
	return c.store.Close()
}

// fill copies what there was, and then what came meanwhile: of very much the newest.
func (c *copied) fill(ctx context.Context, pending []history.Entry, files []waitingFile) {
	defer close(c.done)
	c.put(ctx, pending)
	over := -int64(memoryBytes / rowsToText)
	for _, f := range files {
		over += f.size - f.from
	}
	for _, f := range files {
		if over > 0 {
			skipped := min(over, f.size-f.from)
			over -= skipped
			f.from += skipped // a line that this cuts is no record
			c.omit()
		}
		if f.from < f.size && c.read(ctx, f) != nil {
			c.omit() // what can be read is better than nothing
		}
	}
	for {
		c.mu.Lock()
		waiting := c.waiting
		c.waiting = nil
		if len(waiting) == 0 || ctx.Err() != nil {
			c.filled = true
			c.mu.Unlock()
			return
		}
		c.mu.Unlock()
		c.put(ctx, waiting)
	}
}

// read copies a file of the spool. One that is gone was loaded.
func (c *copied) read(ctx context.Context, f waitingFile) (err error) {
	file, err := os.Open(f.name)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	r := jsonl.NewReader(io.NewSectionReader(file, f.from, f.size-f.from), file, f.from)
	defer func() { err = errors.Join(err, r.Close()) }()
	for ctx.Err() == nil {
		entries, _, err := r.Next(mostChunk)
		if len(entries) == 0 || err != nil {
			return err
		}
		c.put(ctx, entries)
	}
	return nil
}

// put writes records, in parts that the queue of the copy takes.
func (c *copied) put(ctx context.Context, entries []history.Entry) {
	for len(entries) > 0 && ctx.Err() == nil {
		n := min(len(entries), mostChunk)
		if c.store.queue.add(entries[:n:n]) > 0 {
			c.omit()
		}
		c.store.queue.settle(ctx)
		entries = entries[n:]
	}
}

// take gets what the backlog gets. It does not wait.
func (c *copied) take(batch []history.Entry) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.filled:
		c.omitted = c.store.queue.add(batch) > 0 || c.omitted
	case len(c.waiting) < mostPending:
		c.waiting = append(c.waiting, batch...)
	default:
		c.omitted = true
	}
}

func (c *copied) omit() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.omitted = true
}

func (c *copied) lacks() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.omitted
}

// copyTo has a copy get what comes from now on, and returns what there is: what waits in memory is older than the files. With nil
// nothing gets it any more.
func (b *backlog) copyTo(c *copied) (pending []history.Entry, files []waitingFile) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.copy = c; c == nil {
		return nil, nil
	}
	for _, f := range b.spool.files {
		files = append(files, waitingFile{filepath.Join(b.spool.dir, f.name), f.loaded, f.size})
	}
	return append(pending, b.pending...), files
}

// Fires implements [history.Store].
func (s *Store) Fires(ctx context.Context, f history.Filter) (history.Page[history.Fire], error) {
	return answered(ctx, s, f, (*Store).fires)
}

// Runs implements [history.Store].
func (s *Store) Runs(ctx context.Context, f history.Filter) (history.Page[history.Run], error) {
	return answered(ctx, s, f, (*Store).runs)
}

// Events implements [history.Store].
func (s *Store) Events(ctx context.Context, f history.Filter) (history.Page[event.Event], error) {
	return answered(ctx, s, f, (*Store).events)
}

// Lines implements [history.Store].
func (s *Store) Lines(ctx context.Context, f history.Filter) (history.Page[history.Line], error) {
	return answered(ctx, s, f, (*Store).lines)
}

// Changes implements [history.Store]. What was added before it was called is found, unless the
// database is slow or away: who has changed something looks whether it was recorded.
func (s *Store) Changes(ctx context.Context, f history.Filter) (history.Page[history.Change], error) {
	return answered(ctx, s, f, (*Store).changes)
}
