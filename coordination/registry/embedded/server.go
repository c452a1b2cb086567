// Package embedded is the registry inside one process: sessions, ephemeral
// nodes, versions, watches and atomic commits, as registry.Center
// demands them. Several hosts in the process can share one [Server].
//
// In memory, a commit is computed as a layer beside the tree, laid on the tree
// under one lock, and every watch that it touches gets its new snapshot before
// the lock is let go. There are no goroutines.
//
// With a directory the persistent nodes are kept in a bbolt file. One writer
// goroutine takes all commits that wait, computes them in order as one layer
// over the tree, writes that layer in one transaction, and only when it is on
// disk lays it on the tree and answers. So no session ever sees, or is sent, what
// a crash could take back; and commits that come together share one disk
// write. A commit that changes ephemeral nodes alone is not written at all.
//
// A write that fails leaves the tree as it was: the commits get
// registry.ErrUnavailable, the sessions live on, and the next commit
// tries again. Should it not be known whether the write took effect, all
// sessions end, and the next Connect reads the tree from disk again.
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

// maxCommit is the size of a commit in bytes, that of a ZooKeeper server as it
// comes, counted about as that would: paths, data, and some tens of bytes per
// op. A larger one gets registry.ErrTooLarge.
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

	callbacks sync.WaitGroup // of context.AfterFunc, at most an instant each

	// The rest is of the durable registry.
	store   *store // the writer's; replaced by Connect only while broken is set
	wake    chan struct{}
	stop    chan struct{}
	stopped chan struct{} // closed when the writer has returned
	connect sync.Mutex    // one reopening at a time
}

// Open makes a registry, or takes up the one that Dir holds. All sessions of
// earlier processes are over then, and their ephemeral nodes are gone. The
// errors name the directory and what is wrong: in use by another host, not
// writable, damaged, of a newer version, full.
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
	go s.write() // ends, and is waited for, in Close
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
	case s.broken != nil: // again, since reopen
		return nil, s.broken
	}
	s.sessions[c] = struct{}{}
	return c, nil
}

// Expire ends a session as a registry does that got no sign of it for too
// long: its Lost is closed, and then its ephemeral nodes go. It returns when
// they are gone. It is for tests. A session of another kind is left alone.
func (s *Server) Expire(r registry.Center) {
	if c, ok := r.(*session); ok && c.server == s {
		s.end(c, lost)
		<-c.gone
	}
}

// Close ends all sessions, finishes what is being written and closes the
// file. The ephemeral nodes are gone, the persistent ones stay in Dir.
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

// Err says why the registry cannot be written now, nil if all is well. It is
// the outcome of the last write: after a failure it stays until a commit
// succeeds.
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
			continue // made and deleted again within the layer
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
			// The parent came before its first child and goes after its last:
			// if it is not there, it goes in this very layer.
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

// end brings a session to its end, in this order: nothing more of it is
// accepted, its watches and Lost are closed, its ephemeral nodes go, gone is
// closed. Only the first call does anything, except that one with closed
// changes what the methods of a lost session say.
func (s *Server) end(c *session, stage int32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.stage.Load() != live {
		c.stage.Store(max(stage, c.stage.Load()))
		return
	}
	s.mute(c, stage)
	if s.dir != "" && s.broken == nil {
		// What the session has in flight comes first.
		s.queue = append(s.queue, &request{by: c, end: true})
		s.nudge()
		return
	}
	s.bury(c)
}

// mute takes a session out of service. s.mu is held.
func (s *Server) mute(c *session, stage int32) {
	c.stage.Store(stage)
	delete(s.sessions, c)
	for w := range c.watches {
		s.unwatch(w)
	}
	close(c.ended)
}

// bury removes a dead session's ephemeral nodes. They were never on disk, and
// no answer has the transaction of a deletion, so it needs none of its own.
// s.mu is held.
func (s *Server) bury(c *session) {
	l := newLayer()
	t := txn{layer: l, tree: s.tree}
	for _, path := range slices.Sorted(maps.Keys(c.ephemerals)) {
		t.remove(path)
	}
	s.publish(l)
	close(c.gone)
}

// errBroken joins what the caller must know with why.
func errBroken(why error) error {
	return fmt.Errorf("%w: %w", registry.ErrUnavailable, why)
}

var errStopped = errors.New("the registry was closed")
