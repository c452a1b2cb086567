package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/wasmjob/wasmjob/coordination/registry"
)

// pipeline is how many reads are on their way at once.
const pipeline = 128

// Read implements registry.Center. All queries are sent without
// waiting for answers in between; they are asked again if the connection is
// lost.
func (s *Session) Read(ctx context.Context, queries ...registry.Query) ([]registry.Node, error) {
	if err := s.ready(ctx, "read"); err != nil {
		return nil, err
	}
	for _, q := range queries {
		if err := registry.CheckPath(q.Path); err != nil {
			return nil, err
		}
	}
	nodes, err := parallel(ctx, s, queries, s.fetch)
	if err != nil && ctx.Err() != nil && s.over() == nil {
		err = fmt.Errorf("registry: read: %w", err)
	}
	return nodes, err
}

// parallel asks for one thing per question, in parallel and in order. What f
// returns must not touch anything of the caller's: it may run on after ctx.
func parallel[Q, A any](ctx context.Context, s *Session, questions []Q, f func(context.Context, Q) (A, error)) ([]A, error) {
	answers := make([]A, len(questions))
	if len(questions) == 0 {
		return answers, nil
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var next atomic.Int64
	var workers sync.WaitGroup
	done := make(chan struct{})
	for range min(pipeline, len(questions)) {
		workers.Add(1)
		if !s.spawn(func() {
			defer workers.Done()
			for ctx.Err() == nil {
				i := int(next.Add(1)) - 1
				if i >= len(questions) {
					return
				}
				a, err := f(ctx, questions[i])
				if err != nil {
					cancel(err)
					return
				}
				answers[i] = a
			}
		}) {
			workers.Done()
			return nil, s.over()
		}
	}
	if !s.spawn(func() { workers.Wait(); close(done) }) {
		return nil, s.over()
	}
	select {
	case <-done:
	case <-ctx.Done():
	case <-s.lost:
		return nil, s.over()
	}
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	return answers, nil
}

// fetch reads one node. It blocks in the client until there is an answer or
// the connection is gone, whatever ctx says.
func (s *Session) fetch(ctx context.Context, q registry.Query) (registry.Node, error) {
	for n := uint64(0); ; {
		var err error
		if n, err = s.connected(ctx, n, false); err != nil {
			return registry.Node{}, err
		}
		node, err := s.ask(q)
		switch {
		case err == nil:
			return node, nil
		case errors.Is(err, zk.ErrNoAuth):
			return node, s.denied(s.real(q.Path), "read")
		case !lossy(err):
			if err = s.expired(err); s.over() == nil {
				err = fmt.Errorf("%w: read %s: %w", registry.ErrUnavailable, q.Path, err)
			}
			return node, err
		}
	}
}

// ask is one request.
func (s *Session) ask(q registry.Query) (registry.Node, error) {
	node := registry.Node{Query: q}
	var stat *zk.Stat
	var err error
	if q.Children {
		node.Names, stat, err = s.conn.Children(s.real(q.Path))
		slices.Sort(node.Names)
	} else {
		node.Data, stat, err = s.conn.Get(s.real(q.Path))
	}
	if errors.Is(err, zk.ErrNoNode) {
		return registry.Node{Query: q}, nil
	}
	if err != nil {
		return node, err
	}
	node.Exists = true
	node.Version, node.Czxid, node.Mzxid = stat.Version, stat.Czxid, stat.Mzxid
	node.Mtime = time.UnixMilli(stat.Mtime)
	node.Ephemeral = stat.EphemeralOwner != 0
	return node, nil
}

// status is a node's, or nil if there is no node. It waits for a connection as
// fetch does.
func (s *Session) status(ctx context.Context, path string) (*zk.Stat, error) {
	for n := uint64(0); ; {
		var err error
		if n, err = s.connected(ctx, n, false); err != nil {
			return nil, err
		}
		exists, stat, err := s.conn.Exists(s.real(path))
		switch {
		case err == nil && !exists:
			return nil, nil
		case err == nil:
			return stat, nil
		case !lossy(err):
			return nil, s.expired(err)
		}
	}
}
