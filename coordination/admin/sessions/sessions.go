// Package sessions has something done in each session that a host has with its registry,
// for as long as the session lasts.
package sessions

import (
	"context"
	"sync"
	"time"

	"github.com/wasmjob/wasmjob/coordination/registry"
)

// RetryAfter lies between two attempts in one session.
const RetryAfter = time.Second

// Newest is handed the sessions of a host, and knows the newest. It is safe for
// concurrent use.
type Newest struct {
	mu    sync.Mutex // of those who send
	begun chan registry.Center
}

// New knows no session yet.
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

// Each calls follow in each session, and [RetryAfter] after it has returned once more, until
// the session is over or ctx is done. What follow begins with its context ends when it
// returns. One goroutine may call Each.
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

// once calls follow, and reports whether it is to be called again in the session.
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
