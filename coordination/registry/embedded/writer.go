package embedded

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/wasmjob/wasmjob/coordination/registry"
)

// request is one commit, or the end of one session, in the writer's queue of a durable registry.
type request struct {
	by  *session
	end bool
	ops []registry.Op

	// Guarded by Server.mu while the request is in the queue. It belongs to the goroutine that takes it out:
	// the writer, or the caller whose context ended first.
	done    chan struct{}
	results []registry.Result
	err     error
}

// nudge wakes the writer. s.mu is held.
func (s *Server) nudge() {
	select {
	case s.wake <- struct{}{}:
	default: // it will look anyway
	}
}

// enqueue hands a commit to the writer and waits for the answer.
func (s *Server) enqueue(ctx context.Context, r *request) ([]registry.Result, error) {
	r.done = make(chan struct{})
	s.mu.Lock()
	if err := r.by.over(); err != nil {
		s.mu.Unlock()
		return nil, err
	}
	s.queue = append(s.queue, r)
	s.nudge()
	s.mu.Unlock()

	select {
	case <-r.done:
		return r.results, r.err
	case <-ctx.Done():
	}
	s.mu.Lock()
	for i, q := range s.queue {
		if q == r {
			s.queue = append(s.queue[:i], s.queue[i+1:]...)
			s.mu.Unlock()
			return nil, fmt.Errorf("registry: commit: %w", ctx.Err())
		}
	}
	s.mu.Unlock()
	<-r.done
	return r.results, r.err
}

// write is the writer goroutine.
func (s *Server) write() {
	defer close(s.stopped)
	debug.SetPanicOnFault(true) // for a page of the file that cannot be read; see store.apply
	batch := newLayer()
	for {
		select {
		case <-s.wake:
		case <-s.stop:
			// Every session is over, so the remaining requests fail.
		}
		for requests := s.take(); len(requests) > 0; requests = s.take() {
			if requests[0].end {
				s.mu.Lock()
				s.bury(requests[0].by)
				s.mu.Unlock()
				continue
			}
			s.commit(requests, batch)
			batch.reset()
		}
		select {
		case <-s.stop:
			return
		default:
		}
	}
}

// take empties the queue up to the next end of a session, which it takes alone: the end needs the session's
// nodes after all earlier requests are published.
func (s *Server) take() []*request {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for n < len(s.queue) && !s.queue[n].end {
		n++
	}
	if n == 0 {
		n = min(1, len(s.queue))
	}
	taken := append([]*request(nil), s.queue[:n]...)
	rest := copy(s.queue, s.queue[n:])
	clear(s.queue[rest:])
	s.queue = s.queue[:rest]
	return taken
}

// commit computes the requests one after the other, writes the result, publishes it, and answers.
func (s *Server) commit(requests []*request, batch *layer) {
	now := time.Now().UnixMilli()
	s.mu.Lock()
	zxid := s.zxid
	for _, r := range requests {
		if r.err = r.by.over(); r.err != nil {
			continue
		}
		t := txn{layer: s.scratch, tree: s.tree, batch: batch, by: r.by, zxid: zxid + 1, now: now}
		if r.results, r.err = t.apply(r.ops); r.err == nil && len(t.changes) > 0 {
			zxid++
			batch.fold(t.layer)
		}
		s.scratch.reset()
	}
	store := s.store
	plan := store.plan(batch, zxid)
	s.mu.Unlock()

	err := store.apply(plan)

	s.mu.Lock()
	switch {
	case err == nil:
		s.zxid = zxid
		s.publish(batch)
		if plan != nil {
			s.writeErr = nil
		}
	default:
		err = fmt.Errorf("data directory %s: %w", s.dir, err)
		answer := errBroken(err)
		if errors.Is(err, errUnknown) {
			answer = fmt.Errorf("%w: %w", registry.ErrUnknown, err)
			s.fail(err)
		} else {
			s.writeErr = answer
		}
		for _, r := range requests {
			// Also those with a conflict: it may be a conflict with a commit that has now failed.
			if !errors.Is(r.err, registry.ErrSessionLost) && !errors.Is(r.err, registry.ErrClosed) {
				r.results, r.err = nil, answer
			}
		}
	}
	s.mu.Unlock()
	for _, r := range requests {
		close(r.done)
	}
}

// fail gives up the store, because memory and disk may differ: all sessions end, nothing more is written, and
// the next Connect starts from the disk. s.mu is held.
func (s *Server) fail(why error) {
	s.broken = errBroken(why)
	for c := range s.sessions {
		s.mute(c, lost)
		close(c.gone)
	}
	queue := s.queue
	s.queue = nil
	for _, r := range queue {
		if r.end {
			close(r.by.gone)
			continue
		}
		r.err = registry.ErrSessionLost
		close(r.done)
	}
	s.store.abandon()
	s.tree = map[string]*node{"/": {}}
}

// reopen restarts a registry that was given up from its file.
func (s *Server) reopen() error {
	if s.dir == "" {
		return nil
	}
	s.connect.Lock()
	defer s.connect.Unlock()
	s.mu.Lock()
	if s.broken == nil || s.closed {
		s.mu.Unlock()
		return nil
	}
	s.mu.Unlock()

	store, tree, zxid, err := openStore(s.dir, s.fault)

	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.broken = errBroken(err)
		return s.broken
	}
	if s.closed {
		return errors.Join(registry.ErrClosed, store.close(0))
	}
	s.store, s.tree, s.zxid = store, tree, zxid
	s.broken, s.writeErr = nil, nil
	return nil
}

// closeStore closes the store at last: the writer has returned, no session is left.
func (s *Server) closeStore() error {
	s.connect.Lock()
	defer s.connect.Unlock()
	if s.broken != nil {
		return nil
	}
	s.broken = errBroken(errStopped)
	return s.store.close(s.zxid)
}
