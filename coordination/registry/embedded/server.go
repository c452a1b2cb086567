// Package embedded is a registry inside one process: sessions, ephemeral nodes, versions, watches and atomic
// commits, as registry.Center demands them. Several hosts in the process can share one [Server].
//
// In memory, a commit is computed as a layer over the tree and then applied to the tree under one lock; every
// affected watch gets its new snapshot before the lock is released. There are no goroutines.
//
// With a directory the persistent nodes are kept in a bbolt file. One writer goroutine takes all waiting
// commits, computes them in order as one layer over the tree, writes that layer in one transaction, and only
// when it is on disk applies it to the tree and answers. So no session ever sees what a crash could take back,
// and simultaneous commits share one disk write. A commit that changes only ephemeral nodes is not written at
// all.
//
// A write that fails leaves the tree as it was: the commits get registry.ErrUnavailable, the sessions continue,
// and the next commit tries again. If it is unknown whether the write took effect, all sessions end, and the
// next Connect reads the tree from disk again.
package embedded

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/wasmjob/wasmjob/coordination/registry"
)

// maxCommit is the size limit of a commit in bytes, ZooKeeper's default. A commit is counted as ZooKeeper
// would: paths, data, and some tens of bytes per op. A larger one gets registry.ErrTooLarge.
const maxCommit = 1<<20 - 1

// Options is what Open needs.
type Options struct {
	// Dir is where the registry keeps its file, registry.db. It is made if
	// it does not exist. Empty: in memory.
	Dir string

	fault faults // tests only
}

// Server is a registry. It is safe for concurrent use.
type Server struct {
	dir       string
	maxCommit int
	fault     faults

	mu       sync.Mutex
	tree     map[string]*node
	zxid     int64 // the last one that was published
	watched  map[string]*interest
	dirty    []*watch // scratch of notify
	scratch  *layer
	sessions map[*session]struct{}
	closed   bool
	writeErr error      // of the last write, if it failed
	broken   error      // the store was given up; see fail
	queue    []*request // durable: what waits for the writer

	callbacks sync.WaitGroup // of context.AfterFunc; each returns at once

	// The rest is of the durable registry.
	store   *store // the writer's; replaced by Connect only while broken is set
	wake    chan struct{}
	stop    chan struct{}
	stopped chan struct{} // closed when the writer has returned
	connect sync.Mutex    // one reopening at a time
}

// Open creates a registry, or opens the one in Dir. Sessions of earlier processes are over, and their ephemeral
// nodes are gone. The errors name the directory and what is wrong: in use by another host, not writable,
// damaged, of a newer version, full.
//
// Close must be called.
func Open(o Options) (*Server, error) {
	s := &Server{
		dir:       o.Dir,
		maxCommit: maxCommit,
		fault:     o.fault,
		tree:      map[string]*node{"/": {}},
		watched:   make(map[string]*interest),
		scratch:   newLayer(),
		sessions:  make(map[*session]struct{}),
	}
	if s.dir == "" {
		return s, nil
	}
	var err error
	if s.store, s.tree, s.zxid, err = openStore(s.dir, s.fault); err != nil {
		return nil, err
	}
	s.wake = make(chan struct{}, 1)
	s.stop = make(chan struct{})
	s.stopped = make(chan struct{})
	go s.write() // ends in Close, which waits for it
	return s, nil
}

// Connect opens a session. It fails with registry.ErrUnavailable if the
// registry was given up after a write of unknown outcome and its file cannot
// be opened again, and with registry.ErrClosed after Server.Close.
func (s *Server) Connect(ctx context.Context) (registry.Center, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("registry: connect: %w", err)
	}
	if err := s.reopen(); err != nil {
		return nil, err
	}
	c := &session{
		server:     s,
		ended:      make(chan struct{}),
		gone:       make(chan struct{}),
		watches:    make(map[*watch]struct{}),
		ephemerals: make(map[string]struct{}),
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return nil, registry.ErrClosed
	case s.broken != nil: // also after reopen
		return nil, s.broken
	}
	s.sessions[c] = struct{}{}
	return c, nil
}

// Expire ends a session as a registry does that has not heard from it for too long: its Lost is closed, and
// then its ephemeral nodes are deleted. It returns when they are gone. It is for tests. Sessions of other
// backends are ignored.
func (s *Server) Expire(r registry.Center) {
	if c, ok := r.(*session); ok && c.server == s {
		s.end(c, lost)
		<-c.gone
	}
}

// Close ends all sessions, finishes the current write and closes the file. The persistent nodes stay in Dir.
// Further calls return nil.
func (s *Server) Close() error {
	s.mu.Lock()
	first := !s.closed
	s.closed = true
	open := slices.Collect(maps.Keys(s.sessions))
	s.mu.Unlock()
	for _, c := range open {
		s.end(c, lost)
		<-c.gone
	}
	var err error
	if s.dir != "" {
		if first {
			close(s.stop)
		}
		<-s.stopped
		if first {
			err = s.closeStore()
		}
	}
	s.callbacks.Wait()
	return err
}

// Err returns why the registry cannot be written, nil if it can. It is the outcome of the last write: an error
// stays until a commit succeeds.
func (s *Server) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.broken != nil {
		return s.broken
	}
	return s.writeErr
}

// commitNow is a commit of the registry in memory.
func (s *Server) commitNow(c *session, ops []registry.Op) ([]registry.Result, error) {
	now := time.Now().UnixMilli()
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := c.over(); err != nil {
		return nil, err
	}
	defer s.scratch.reset()
	t := txn{layer: s.scratch, tree: s.tree, by: c, zxid: s.zxid + 1, now: now}
	results, err := t.apply(ops)
	if err != nil {
		return nil, err
	}
	if len(t.changes) > 0 {
		s.zxid = t.zxid
		s.publish(t.layer)
	}
	return results, nil
}

// publish lays a layer on the tree and notifies the watches. s.mu is held.
func (s *Server) publish(l *layer) {
	for i := range l.changes {
		c := &l.changes[i]
		n := c.at
		if n == nil && !c.exists {
			continue // created and deleted within the layer
		}
		var before state
		existed := n != nil
		if existed {
			before = n.state
		} else {
			n = new(node)
			s.tree[c.path] = n
		}
		n.state = c.state
		if before.owner != n.owner {
			if before.owner != nil {
				delete(before.owner.ephemerals, c.path)
			}
			if n.owner != nil {
				n.owner.ephemerals[c.path] = struct{}{}
			}
		}
		if !c.exists {
			delete(s.tree, c.path)
		}
		if existed != c.exists {
			// The parent is created before its first child and deleted after its last: if it is missing, it is
			// deleted in this very layer.
			parent, name := split(c.path)
			if p := s.tree[parent]; p != nil {
				p.move(name, c.exists)
			}
			s.touch(registry.Children(parent))
		}
		if c.wrote {
			s.touch(registry.Data(c.path))
			if before.czxid != n.czxid {
				s.touch(registry.Children(c.path))
			}
		}
	}
	s.notify()
}

// end ends a session, in this order: it accepts no more requests, its watches and Lost are closed, its
// ephemeral nodes are deleted, gone is closed. Only the first call has an effect, except that a later one with
// closed changes the error of the methods.
func (s *Server) end(c *session, stage int32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.stage.Load() != live {
		c.stage.Store(max(stage, c.stage.Load()))
		return
	}
	s.mute(c, stage)
	if s.dir != "" && s.broken == nil {
		// Requests in flight come first.
		s.queue = append(s.queue, &request{by: c, end: true})
		s.nudge()
		return
	}
	s.bury(c)
}

// mute makes a session reject requests. s.mu is held.
func (s *Server) mute(c *session, stage int32) {
	c.stage.Store(stage)
	delete(s.sessions, c)
	for w := range c.watches {
		s.unwatch(w)
	}
	close(c.ended)
}

// bury deletes a dead session's ephemeral nodes. They were never on disk, and no answer contains the
// transaction of a deletion, so it needs no transaction. s.mu is held.
func (s *Server) bury(c *session) {
	l := newLayer()
	t := txn{layer: l, tree: s.tree}
	for _, path := range slices.Sorted(maps.Keys(c.ephemerals)) {
		t.remove(path)
	}
	s.publish(l)
	close(c.gone)
}

// errBroken joins the sentinel error with its cause.
func errBroken(why error) error {
	return fmt.Errorf("%w: %w", registry.ErrUnavailable, why)
}

var errStopped = errors.New("the registry was closed")
