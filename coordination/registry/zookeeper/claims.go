package zookeeper

import (
	"slices"
	"sync"
	"time"

	"github.com/wasmjob/wasmjob/coordination/registry"
)

// claims says which commit creates which ephemeral node: commits in flight, and those of unknown outcome, until
// a later sync is answered.
type claims struct {
	o *Options

	mu     sync.Mutex
	makes  map[string][]*ticket // who makes an ephemeral node; see claim
	doubts []doubt
}

// doubt is a multi whose caller got ErrUnknown. It may have taken effect or may still do so: its nodes stay
// claimed.
type doubt struct {
	plan   *plan
	ticket *ticket
	since  time.Duration // the time at which it had been sent for sure
}

// claim notes which ephemeral nodes a commit creates.
func (c *claims) claim(p *plan, t *ticket) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, op := range p.ops {
		if op.Kind != registry.OpEphemeral {
			continue
		}
		for _, other := range c.makes[op.Path] {
			if other != t {
				other.shared, t.shared = true, true
			}
		}
		c.makes[op.Path] = append(c.makes[op.Path], t)
	}
}

func (c *claims) disclaim(p *plan, t *ticket) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.unclaim(p, t)
}

// leaveOpen keeps the claims of a commit of unknown outcome until settle.
func (c *claims) leaveOpen(p *plan, t *ticket) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.doubts = append(c.doubts, doubt{p, t, c.o.clock()})
}

// settle ends the claims of multis sent before a sync that was answered. On the same connection the multi's
// answer came first; on a later one it has taken effect by now, or never will. Either way this session has seen
// its zxid.
func (c *claims) settle(sync time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.doubts = slices.DeleteFunc(c.doubts, func(d doubt) bool {
		past := d.since < sync
		if past {
			c.unclaim(d.plan, d.ticket)
		}
		return past
	})
}

// shared reports whether another commit creates one of the same ephemeral nodes.
func (c *claims) shared(t *ticket) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return t.shared
}

// unclaim is disclaim. c.mu is held.
func (c *claims) unclaim(p *plan, t *ticket) {
	for _, op := range p.ops {
		if op.Kind != registry.OpEphemeral {
			continue
		}
		left := slices.DeleteFunc(c.makes[op.Path], func(o *ticket) bool { return o == t })
		if c.makes[op.Path] = left; len(left) == 0 {
			delete(c.makes, op.Path)
		}
	}
}
