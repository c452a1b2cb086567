package embedded

import (
	"context"
	"slices"
	"time"

	"github.com/wasmjob/wasmjob/coordination/registry"
)

// watch is one caller of Watch. Everything is guarded by Server.mu, including sends on ch, which never block
// because the old value is taken out first.
type watch struct {
	by      *session
	queries []registry.Query // each once
	ch      chan registry.Snapshot
	stop    func() bool // stops the wait for the caller's context
	dirty   bool        // is in Server.dirty
	closed  bool
}

// interest are the watches of one path.
type interest struct{ data, children []*watch }

func (in *interest) of(q registry.Query) *[]*watch {
	if q.Children {
		return &in.children
	}
	return &in.data
}

// answer reads one node. Server.mu is held.
func (s *Server) answer(q registry.Query) registry.Node {
	a := registry.Node{Query: q}
	n := s.tree[q.Path]
	if n == nil {
		return a
	}
	a.Exists = true
	if q.Children {
		a.Names = n.list()
	} else {
		a.Data = n.data
	}
	a.Version, a.Czxid, a.Mzxid = n.version, n.czxid, n.mzxid
	a.Mtime = time.UnixMilli(n.mtime)
	a.Ephemeral = n.owner != nil
	return a
}

// send replaces the value in the watch's channel by the present state.
func (s *Server) send(w *watch) {
	snapshot := make(registry.Snapshot, len(w.queries))
	for _, q := range w.queries {
		snapshot[q] = s.answer(q)
	}
	select {
	case <-w.ch:
	default:
	}
	w.ch <- snapshot
}

// touch marks the watches of a query. Server.mu is held.
func (s *Server) touch(q registry.Query) {
	in := s.watched[q.Path]
	if in == nil {
		return
	}
	for _, w := range *in.of(q) {
		if !w.dirty {
			w.dirty = true
			s.dirty = append(s.dirty, w)
		}
	}
}

// notify sends a snapshot to every watch that was touched. Server.mu is held.
func (s *Server) notify() {
	for i, w := range s.dirty {
		w.dirty = false
		s.send(w)
		s.dirty[i] = nil
	}
	s.dirty = s.dirty[:0]
}

// Watch implements registry.Center.
func (c *session) Watch(ctx context.Context, queries ...registry.Query) (<-chan registry.Snapshot, error) {
	if err := c.ready(ctx, "watch"); err != nil {
		return nil, err
	}
	w := &watch{by: c, ch: make(chan registry.Snapshot, 1)}
	for _, q := range queries {
		if err := checkPath(q.Path); err != nil {
			return nil, err
		}
		if !slices.Contains(w.queries, q) {
			w.queries = append(w.queries, q)
		}
	}
	s := c.server
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := c.over(); err != nil {
		return nil, err
	}
	c.watches[w] = struct{}{}
	for _, q := range w.queries {
		in := s.watched[q.Path]
		if in == nil {
			in = new(interest)
			s.watched[q.Path] = in
		}
		list := in.of(q)
		*list = append(*list, w)
	}
	s.send(w)
	s.callbacks.Add(1)
	w.stop = context.AfterFunc(ctx, func() {
		defer s.callbacks.Done()
		s.mu.Lock()
		defer s.mu.Unlock()
		s.unwatch(w)
	})
	return w.ch, nil
}

// unwatch forgets a watch and closes its channel. Server.mu is held.
func (s *Server) unwatch(w *watch) {
	if w.closed {
		return
	}
	w.closed = true
	delete(w.by.watches, w)
	for _, q := range w.queries {
		in := s.watched[q.Path]
		list := in.of(q)
		*list = slices.DeleteFunc(*list, func(o *watch) bool { return o == w })
		if len(in.data) == 0 && len(in.children) == 0 {
			delete(s.watched, q.Path)
		}
	}
	close(w.ch)
	if w.stop() {
		s.callbacks.Done()
	}
}
