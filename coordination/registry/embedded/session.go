package embedded

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/wasmjob/wasmjob/coordination/registry"
)

// The stages of a session's life. It only ever goes forward.
const (
	live int32 = iota
	lost
	closed
)

// session implements registry.Center.
type session struct {
	server *Server
	stage  atomic.Int32  // written under Server.mu
	ended  chan struct{} // closed when stage leaves live: Lost
	gone   chan struct{} // closed when the ephemeral nodes are gone

	// guarded by Server.mu
	watches    map[*watch]struct{}
	ephemerals map[string]struct{}
}

var _ registry.Center = (*session)(nil)

// over returns the error of a session that ended.
func (c *session) over() error {
	switch c.stage.Load() {
	case lost:
		return registry.ErrSessionLost
	case closed:
		return registry.ErrClosed
	}
	return nil
}

// ready is the first check of every method.
func (c *session) ready(ctx context.Context, deed string) error {
	if err := c.over(); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("registry: %s: %w", deed, err)
	}
	return nil
}

// Commit implements registry.Center. On a durable registry it returns when the commit is on disk. It waits for
// a commit that is being written even if ctx ends: the outcome is known one disk write later.
func (c *session) Commit(ctx context.Context, ops ...registry.Op) ([]registry.Result, error) {
	if err := c.ready(ctx, "commit"); err != nil {
		return nil, err
	}
	if err := checkOps(ops, c.server.maxCommit); err != nil {
		return nil, err
	}
	if c.server.dir != "" {
		return c.server.enqueue(ctx, &request{by: c, ops: ops})
	}
	return c.server.commitNow(c, ops)
}

// Read implements registry.Center. The nodes are of one instant.
func (c *session) Read(ctx context.Context, queries ...registry.Query) ([]registry.Node, error) {
	if err := c.ready(ctx, "read"); err != nil {
		return nil, err
	}
	for _, q := range queries {
		if err := checkPath(q.Path); err != nil {
			return nil, err
		}
	}
	nodes := make([]registry.Node, len(queries))
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	if err := c.over(); err != nil {
		return nil, err
	}
	for i, q := range queries {
		nodes[i] = c.server.answer(q)
	}
	return nodes, nil
}

// Trust implements registry.Center. Inside one process a session is trusted until Lost is closed.
func (c *session) Trust() (registry.Trust, <-chan struct{}) {
	select {
	case <-c.ended:
		return registry.TrustLost, nil
	default:
		return registry.TrustLive, c.ended
	}
}

// Trusted implements registry.Center.
func (c *session) Trusted() bool { return c.stage.Load() == live }

// Lost implements registry.Center. Close closes it too.
func (c *session) Lost() <-chan struct{} { return c.ended }

// Close implements registry.Center.
func (c *session) Close() error {
	c.server.end(c, closed)
	<-c.gone
	return nil
}
