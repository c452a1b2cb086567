package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/go-zookeeper/zk"

	"github.com/wasmjob/wasmjob/coordination/registry"
)

// maxAttempts is how often a commit is tried when others create and delete the nodes that it ensures, or when
// connections break first.
const maxAttempts = 100

// A commit of at least suspectSize bytes whose connection broke maxBroken times is taken for the cause: a
// server drops a client that sends more than its jute.maxbuffer, which only its administrator knows.
const (
	maxBroken   = 5
	suspectSize = 4 << 10
)

// commits sends multis one after the other, and resolves their outcomes.
type commits struct {
	o        *Options
	life     *life
	link     *link
	requests *requests
	watches  *watches
	claims   *claims
	handoff  chan struct{} // holds one value while a multi is on its way to the socket

	mu     sync.Mutex
	ticket *ticket // of the multi on its way to the socket
}

func newCommits(o *Options, r *requests, w *watches) *commits {
	return &commits{
		o: o, life: r.life, link: r.link, requests: r, watches: w,
		claims:  &claims{o: o, makes: make(map[string][]*ticket)},
		handoff: make(chan struct{}, 1),
	}
}

// commit tries until the outcome is known, or certainly unknown.
func (c *commits) commit(ctx context.Context, ops []registry.Op) ([]registry.Result, error) {
	var known map[string]bool
	var after uint64 // the connection that failed
	broken := 0
	for range maxAttempts {
		p := c.plan(ops, known)
		p.of = after
		if limit := c.o.MaxRequest - wrapping; p.size > limit {
			return nil, fmt.Errorf("%w: %d ops of %d bytes together, the limit is %d", registry.ErrTooLarge, len(ops), p.size, limit)
		}
		results, err := c.send(ctx, p)
		switch {
		case errors.Is(err, errEnsure):
			if known, err = c.survey(ctx, ops); err == nil {
				continue
			}
		case errors.Is(err, errNotApplied):
			if broken++; broken == maxBroken && p.size >= suspectSize {
				return nil, fmt.Errorf("%w: the connection broke each of the %d times that this commit of %d ops and %d bytes was sent; servers do that if their jute.maxbuffer is smaller",
					registry.ErrUnavailable, broken, len(ops), p.size)
			}
			after = p.of
			continue
		case errors.Is(err, errNotSent):
			after = p.of
			continue
		}
		if err != nil && errors.Is(err, ctx.Err()) && !errors.Is(err, registry.ErrUnknown) {
			err = fmt.Errorf("registry: commit: %w", err)
		}
		return results, err
	}
	return nil, fmt.Errorf("%w: the commit did not get through in %d attempts", registry.ErrUnavailable, maxAttempts)
}

// Results of send besides the errors of the contract.
var (
	errEnsure     = errors.New("an ensured node is not as it was believed to be")
	errNotSent    = errors.New("the connection was lost before the request was sent")
	errNotApplied = errors.New("the connection was lost, and the request with it")
)

// ticket accompanies a multi to the socket, where it is decided whether it is sent.
type ticket struct {
	// decided is closed when the request has reached the socket. The fields below are guarded by commits.mu
	// before and constant afterwards.
	decided chan struct{}
	given   bool // no caller waits for it any more
	sent    bool
	of      uint64 // the connection
	seen    int64  // the newest zxid that this session had seen at that time

	// shared, guarded by claims.mu, says that another concurrent commit creates one of the same ephemeral
	// nodes.
	shared bool
}

// admit decides, just before it is sent, whether the multi may be sent.
func (c *commits) admit() bool {
	trusted := c.life.trusted()
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.ticket
	if t == nil {
		return false
	}
	c.ticket = nil
	defer close(t.decided)
	if t.given || !trusted || c.life.stage.Load() != live {
		return false
	}
	t.sent, t.of, t.seen = true, c.link.dialled(), c.link.zxid.Load()
	return true
}

// send makes one attempt at a commit.
func (c *commits) send(ctx context.Context, p *plan) (results []registry.Result, err error) {
	if p.of, err = c.link.connected(ctx, p.of, true); err != nil {
		return nil, err
	}
	select {
	case c.handoff <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-c.life.lost:
		return nil, c.life.over()
	}
	t := &ticket{decided: make(chan struct{})}
	c.mu.Lock()
	c.ticket = t
	c.mu.Unlock()
	c.claims.claim(p, t)
	defer func() {
		if errors.Is(err, registry.ErrUnknown) {
			c.claims.leaveOpen(p, t)
			return
		}
		c.claims.disclaim(p, t)
	}()

	done := make(chan answer[[]zk.MultiResponse], 1)
	if !c.life.spawn(func() {
		r, err := c.link.conn.Multi(p.requests...)
		// If it never reached the socket, the client dropped it.
		c.mu.Lock()
		if c.ticket == t {
			c.ticket = nil
		}
		c.mu.Unlock()
		done <- answer[[]zk.MultiResponse]{r, err}
	}) {
		c.withdraw(t)
		<-c.handoff
		return nil, c.life.over()
	}
	if err := c.awaitWire(ctx, t, done); err != nil {
		return nil, err
	}
	<-c.handoff
	if !t.sent {
		if err := c.life.over(); err != nil {
			return nil, err
		}
		if t.given {
			return nil, ctx.Err()
		}
		return nil, c.life.doubted()
	}
	select {
	case a := <-done:
		return c.concluded(ctx, p, t, a)
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: %v", registry.ErrUnknown, ctx.Err())
	case <-c.life.lost:
		select {
		case a := <-done: // an answer that came in time counts
			if a.err == nil || !lossy(a.err) {
				return c.concluded(ctx, p, t, a)
			}
		default:
		}
		return nil, fmt.Errorf("%w: %v", registry.ErrUnknown, c.life.over())
	}
}

// awaitWire waits until the multi has reached the socket. On an error the multi is not sent, and the next one
// is handed over automatically.
func (c *commits) awaitWire(ctx context.Context, t *ticket, done chan answer[[]zk.MultiResponse]) error {
	_, changed := c.life.level()
	for {
		select {
		case <-t.decided:
			return nil
		case a := <-done:
			select {
			case <-t.decided: // and answered, or lost
				done <- a
				return nil
			default:
			}
			<-c.handoff
			if lossy(a.err) {
				return errNotSent
			}
			return fmt.Errorf("%w: not sent: %w", registry.ErrUnavailable, a.err)
		case <-changed:
			var level registry.Trust
			if level, changed = c.life.level(); level != registry.TrustLive && c.withdraw(t) {
				return c.letGo(t, done, c.life.doubted())
			}
		case <-ctx.Done():
			if c.withdraw(t) {
				return c.letGo(t, done, ctx.Err())
			}
			<-t.decided
			return nil
		case <-c.life.lost:
			if c.withdraw(t) {
				return c.letGo(t, done, c.life.over())
			}
			<-t.decided
			return nil
		}
	}
}

// withdraw prevents the multi from being sent; false if it is too late.
func (c *commits) withdraw(t *ticket) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	select {
	case <-t.decided:
		return false
	default:
	}
	t.given = true
	return true
}

// letGo returns err to a caller whose multi is still in flight. The next one is handed over when this one has
// reached the socket or has ended.
func (c *commits) letGo(t *ticket, done chan answer[[]zk.MultiResponse], err error) error {
	if !c.life.spawn(func() {
		select {
		case <-t.decided:
		case <-done:
		}
		<-c.handoff
	}) {
		<-c.handoff // it has no receiver any more
	}
	return err
}

// concluded turns the answer to a multi into that of a commit.
func (c *commits) concluded(ctx context.Context, p *plan, t *ticket, a answer[[]zk.MultiResponse]) ([]registry.Result, error) {
	c.watches.owned()
	if a.err == nil {
		return c.results(p, a.value), nil
	}
	if lossy(a.err) {
		p.of = t.of
		if errors.Is(a.err, zk.ErrSessionMoved) {
			return nil, errNotApplied
		}
		return c.resolve(ctx, p, t)
	}
	for k, r := range a.value {
		if r.Error != nil && k < len(p.owner) {
			return nil, c.refused(p, k, r.Error)
		}
	}
	if err := c.life.expired(a.err); c.life.over() != nil {
		return nil, err
	}
	return nil, fmt.Errorf("%w: %w", registry.ErrUnavailable, a.err)
}
