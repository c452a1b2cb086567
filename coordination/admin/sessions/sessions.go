// Package sessions runs a function in each session that a host has with its registry, for as long as the
// session lasts.
package sessions

import (
	"context"
	"sync"
	"time"

	"github.com/wasmjob/wasmjob/coordination/registry"
)

// RetryAfter lies between two attempts in one session.
const RetryAfter = time.Second

// Newest receives a host's sessions and keeps the newest. It is safe for concurrent use.
type Newest struct {
	mu    sync.Mutex // of the senders
	begun chan registry.Center
}

// New returns a Newest without a session.
func New() *Newest { return &Newest{begun: make(chan registry.Center, 1)} }

// Begun hands over a new session. It does not block.
func (n *Newest) Begun(c registry.Center) {
	n.mu.Lock()
	defer n.mu.Unlock()
	select {
	case <-n.begun: // an older one
	default:
	}
	n.begun <- c
}

// Each calls follow in each session, and again [RetryAfter] after it returned, until the session is over or ctx
// is done. The context of follow ends when follow returns. Only one goroutine may call Each.
func (n *Newest) Each(ctx context.Context, follow func(ctx context.Context, c registry.Center)) {
	for {
		select {
		case <-ctx.Done():
			return
		case c := <-n.begun:
			for again := true; again; {
				again = once(ctx, c, follow)
			}
		}
	}
}

// once calls follow, and reports whether to call it again in the same session.
func once(ctx context.Context, c registry.Center, follow func(ctx context.Context, c registry.Center)) (again bool) {
	following, cancel := context.WithCancel(ctx)
	defer cancel()
	follow(following, c)
	retry := time.NewTimer(RetryAfter)
	defer retry.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-c.Lost():
		return false
	case <-retry.C:
		return true
	}
}
