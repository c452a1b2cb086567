package zookeeper

import (
	"context"
	"fmt"
	"slices"

	"github.com/go-zookeeper/zk"
	"go.uber.org/zap"

	"github.com/wasmjob/wasmjob/coordination/registry"
)

// entry is a query that somebody watches. Everybody who watches it shares it:
// ZooKeeper holds one watch for it, and a change costs one read. Everything is
// guarded by Session.mu.
type entry struct {
	query   registry.Query
	node    registry.Node
	watches map[*watch]struct{}

	// changes counts the events about the node and the connections. known is
	// the count that node covers, 0 if it was never read; due is the one that
	// it must cover before it may be sent: a commit of our own that was
	// answered since is not to be missed.
	changes, known, due uint64
}

// watch is one caller of Watch.
type watch struct {
	entries []*entry
	ch      chan registry.Snapshot
	news    bool          // there is something to send
	first   chan struct{} // closed when the first snapshot was sent
	begun   bool
	closed  bool
	err     error // why it ended before the first snapshot
	stop    func() bool
}

// touched notes that an event came about a node, whose path is as ZooKeeper
// has it.
func (s *Session) touched(path string, what zk.EventType) {
	path = s.mine(path)
	s.mu.Lock()
	defer s.mu.Unlock()
	if what != zk.EventNodeChildrenChanged {
		s.touch(s.entries[registry.Data(path)])
	}
	if what != zk.EventNodeDataChanged {
		s.touch(s.entries[registry.Children(path)])
	}
}

// allTouched has everything read again: the watches of a connection that is
// gone are gone with it. s.mu is held.
func (s *Session) allTouched() {
	for _, e := range s.entries {
		s.touch(e)
	}
}

// touch notes that an entry, which may be nil, is to be read. s.mu is held.
func (s *Session) touch(e *entry) {
	if e == nil {
		return
	}
	e.changes++
	s.stale[e] = struct{}{}
	select {
	case s.wake <- struct{}{}:
	default: // it is about to look
	}
}

// owned notes that a commit of this session was answered: its events came
// before the answer, and no snapshot without them may be sent from now on.
func (s *Session) owned() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for e := range s.stale {
		e.due = e.changes
	}
}

// dispatch reads what may have changed and notifies those who watch it.
func (s *Session) dispatch() {
	for {
		select {
		case <-s.wake:
		case <-s.lost:
			return
		}
		type job struct {
			of      *entry
			query   registry.Query
			changes uint64
		}
		var jobs []job
		s.mu.Lock()
		for e := range s.stale {
			jobs = append(jobs, job{e, e.query, e.changes})
		}
		unwatch := s.unneeded()
		s.mu.Unlock()
		// Before the reads: what is watched again meanwhile gets its watch by
		// the next one of them.
		unwatch()
		type finding struct {
			node registry.Node
			err  error
		}
		found, err := parallel(s.life, s, jobs, func(ctx context.Context, j job) (finding, error) {
			node, err := s.observe(ctx, j.query)
			if err != nil && s.over() != nil {
				return finding{}, err
			}
			return finding{node, err}, nil
		})
		if err != nil {
			return
		}
		s.mu.Lock()
		for i, j := range jobs {
			s.found(j.of, j.changes, found[i].node, found[i].err)
		}
		for _, j := range jobs {
			for w := range j.of.watches {
				s.show(w)
			}
		}
		if len(s.stale) > 0 {
			select {
			case s.wake <- struct{}{}:
			default:
			}
		}
		s.mu.Unlock()
	}
}

// unneeded removes the watches that ZooKeeper holds for no reader any more: the
// nodes may never change again, and their paths may be new ones each time. What
// it returns is to be called without s.mu, which is held here.
func (s *Session) unneeded() func() {
	forgotten := s.forgotten
	s.forgotten = make(map[string]struct{})
	w, up := s.wire, s.up != 0 // watches end with their connection
	remove := make(map[string]int32)
	for path := range forgotten {
		data, children := s.entries[registry.Data(path)], s.entries[registry.Children(path)]
		switch {
		case children != nil: // may wait for the node itself, too
		case data != nil:
			remove[path] = watchChildren
		default:
			remove[path] = watchAny
		}
	}
	return func() {
		for path, what := range remove {
			if up {
				w.unwatch(path, what)
			}
		}
	}
}

// observe reads a node and leaves a watch for its next change; the wire sets
// it on the reads of what is watched.
func (s *Session) observe(ctx context.Context, q registry.Query) (registry.Node, error) {
	for {
		node, err := s.fetch(ctx, q)
		if err != nil || node.Exists {
			return node, err
		}
		// A read of what does not exist leaves no watch.
		stat, err := s.status(ctx, q.Path)
		if err != nil || stat == nil {
			return node, err
		}
	}
}

// found takes what was read. s.mu is held.
func (s *Session) found(e *entry, changes uint64, node registry.Node, err error) {
	if s.entries[e.query] != e {
		delete(s.stale, e) // it has no watcher any more
		return
	}
	first := e.known == 0
	e.known = changes
	if e.changes == changes {
		delete(s.stale, e)
	}
	if err != nil {
		s.o.Logger.Error("a watched node cannot be read", zap.String("path", e.query.Path), zap.Error(err))
		for w := range e.watches {
			if !w.begun {
				w.err = err
				s.unwatch(w)
			}
		}
		return
	}
	if first || differs(e.node, node) {
		e.node = node
		for w := range e.watches {
			w.news = true
		}
	}
}

// differs reports whether there is anything to report. Of the node whose
// children are watched only their names and its identity count.
func differs(a, b registry.Node) bool {
	if a.Exists != b.Exists || a.Czxid != b.Czxid {
		return true
	}
	if a.Children {
		return !slices.Equal(a.Names, b.Names)
	}
	return a.Mzxid != b.Mzxid || a.Version != b.Version
}

// show puts a snapshot in a watch's channel in place of what is there, if
// there is news and all of it may be sent. s.mu is held.
func (s *Session) show(w *watch) {
	if !w.news || w.closed {
		return
	}
	for _, e := range w.entries {
		if e.known == 0 || e.known < e.due {
			return // the dispatcher comes back when it was read
		}
	}
	snapshot := make(registry.Snapshot, len(w.entries))
	for _, e := range w.entries {
		snapshot[e.query] = e.node
	}
	select {
	case <-w.ch:
	default:
	}
	w.ch <- snapshot
	w.news = false
	if !w.begun {
		w.begun = true
		close(w.first)
	}
}

// Watch implements registry.Center. It returns when the first
// snapshot is there. A watch of k queries costs k watches at the server, less
// those that this session has on the same nodes already.
func (s *Session) Watch(ctx context.Context, queries ...registry.Query) (<-chan registry.Snapshot, error) {
	if err := s.ready(ctx, "watch"); err != nil {
		return nil, err
	}
	for _, q := range queries {
		if err := registry.CheckPath(q.Path); err != nil {
			return nil, err
		}
	}
	w, err := s.enlist(ctx, queries)
	if err != nil {
		return nil, err
	}
	select {
	case <-w.first:
	case <-s.lost:
		return nil, s.over()
	case <-ctx.Done():
		return nil, fmt.Errorf("registry: watch: %w", ctx.Err())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case w.err != nil:
		return nil, w.err
	case !w.closed:
		return w.ch, nil
	case s.over() != nil:
		return nil, s.over()
	}
	return nil, fmt.Errorf("registry: watch: %w", ctx.Err())
}

// enlist registers a watch.
func (s *Session) enlist(ctx context.Context, queries []registry.Query) (*watch, error) {
	w := &watch{ch: make(chan registry.Snapshot, 1), first: make(chan struct{}), news: true}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stage.Load() != live {
		return nil, s.over()
	}
	for _, q := range queries {
		e := s.entries[q]
		if e == nil {
			e = &entry{query: q, watches: make(map[*watch]struct{})}
			s.entries[q] = e
			s.touch(e)
		}
		if !slices.Contains(w.entries, e) {
			w.entries = append(w.entries, e)
		}
		e.watches[w] = struct{}{}
	}
	s.watches[w] = struct{}{}
	s.work.Add(1)
	w.stop = context.AfterFunc(ctx, func() {
		defer s.work.Done()
		s.mu.Lock()
		defer s.mu.Unlock()
		s.unwatch(w)
	})
	s.show(w)
	return w, nil
}

// unwatch forgets a watch and closes its channel. s.mu is held.
func (s *Session) unwatch(w *watch) {
	if w.closed {
		return
	}
	w.closed = true
	delete(s.watches, w)
	for _, e := range w.entries {
		delete(e.watches, w)
		if len(e.watches) == 0 && s.entries[e.query] == e {
			delete(s.entries, e.query)
			delete(s.stale, e)
			s.forgotten[e.query.Path] = struct{}{}
			select {
			case s.wake <- struct{}{}:
			default: // the dispatcher is about to look
			}
		}
	}
	close(w.ch)
	if !w.begun {
		w.begun = true
		close(w.first)
	}
	if w.stop() {
		s.work.Done()
	}
}
