package embedded

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/wasmjob/wasmjob/coordination"
)

// The stages of a session's life. It only ever goes forward.
const (
	live int32 = iota
	lost
	closed
)

// session implements coordination.RegistryCenter.
type session struct {
	server *Server
	stage  atomic.Int32  // written under Server.mu
	ended  chan struct{} // closed when stage leaves live: Lost
	gone   chan struct{} // closed when the ephemeral nodes are gone

	// guarded by Server.mu
	watches    map[*watch]struct{}
	ephemerals map[string]struct{}
}

var _ coordination.RegistryCenter = (*session)(nil)

// over returns the error of a session that ended.
func (c *session) over() error {
	switch c.stage.Load() {
	case lost:
		return coordination.ErrSessionLost
	case closed:
		return coordination.ErrClosed
	}
	return nil
}

// ready is the first look of every method.
func (c *session) ready(ctx context.Context, deed string) error {
	if err := c.over(); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("registry: %s: %w", deed, err)
	}
	return nil
}

// Commit implements coordination.RegistryCenter. On a durable registry it
// returns when the commit is on disk. A commit that is being written then is
// waited for even if ctx ends: its outcome is known one disk write later.
func (c *session) Commit(ctx context.Context, ops ...coordination.Op) ([]coordination.Result, error) {
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

// Read implements coordination.RegistryCenter. The nodes are of one instant.
func (c *session) Read(ctx context.Context, queries ...coordination.Query) ([]coordination.Node, error) {
	if err := c.ready(ctx, "read"); err != nil {
		return nil, err
	}
	for _, q := range queries {
		if err := checkPath(q.Path); err != nil {
			return nil, err
		}
	}
	nodes := make([]coordination.Node, len(queries))
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

// Trust implements coordination.RegistryCenter. There is no doubt inside one
// process: a session is alive until Lost is closed.
func (c *session) Trust() (coordination.Trust, <-chan struct{}) {
	select {
	case <-c.ended:
		return coordination.TrustLost, nil
	default:
		return coordination.TrustLive, c.ended
	}
}

// Trusted implements coordination.RegistryCenter.
func (c *session) Trusted() bool { return c.stage.Load() == live }

// Lost implements coordination.RegistryCenter. Close closes it too.
func (c *session) Lost() <-chan struct{} { return c.ended }

// Close implements coordination.RegistryCenter.
func (c *session) Close() error {
	c.server.end(c, closed)
	<-c.gone
	return nil
}
