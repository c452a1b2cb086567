package store

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/wasmjob/wasmjob/coordination/admin/sessions"
	"github.com/wasmjob/wasmjob/coordination/registry"
)

// ErrUnread is the error of a copy that has never read the board, and cannot now.
var ErrUnread = errors.New("alerts and silences stand in the registry, which this host cannot reach")

// ErrOutdated is joined to the error of a read if the board has changed since the held content was read.
var ErrOutdated = errors.New("some alerts or silences may have begun or ended since")

// Copy is a cached copy of a namespace's board. It watches the board, and reads it again only on request and if
// it has changed: however many people look at alerts, the registry gets one read per change. It is safe for
// concurrent use.
type Copy struct {
	namespace string
	sessions  *sessions.Newest
	reading   chan struct{} // has room for the one who reads the board

	mu     sync.Mutex
	center registry.Center // of the session in which the board is watched; nil: it is not
	seen   Stand
	more   chan struct{} // closed when seen changes
	held   Content
	of     int64     // the Stand.Change that held corresponds to; none: read it again
	at     time.Time // when held was read; zero: never
	was    int64     // the same, even if it must be read again
}

// none is a Stand.Change that there is not.
const none = -1

// Stand is the state that the watch of a board shows.
type Stand struct {
	// Change is another number whenever an alert or a silence was changed; 0: none ever was.
	Change int64
	// Keeper is the host that sends the alerts of all, empty if none does. Judges are the
	// hosts that have a file of alerts.
	Keeper string
	Judges []string
}

// NewCopy returns a copy of a namespace's board. It is empty before Run.
func NewCopy(namespace string) *Copy {
	return &Copy{namespace: namespace, sessions: sessions.New(), reading: make(chan struct{}, 1), more: make(chan struct{}), of: none}
}

// Begun hands over a new session with the registry. It does not block.
func (c *Copy) Begun(r registry.Center) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.center, c.of = r, none // it can be read at once, before the watch shows anything
	c.sessions.Begun(r)
}

// Run watches the board until ctx is done.
func (c *Copy) Run(ctx context.Context) error {
	c.sessions.Each(ctx, func(ctx context.Context, r registry.Center) {
		b := Of(r, c.namespace)
		snapshots, err := r.Watch(ctx, registry.Data(b.paths.Changes()), registry.Data(b.paths.Keeper()), registry.Children(b.paths.Alive()))
		if err != nil {
			return // it is tried again
		}
		for s := range snapshots {
			c.look(r, Stand{s.Data(b.paths.Changes()).Mzxid, string(s.Data(b.paths.Keeper()).Data), s.Children(b.paths.Alive())})
		}
		c.lose(r)
	})
	return nil
}

// look takes what the watch shows in a session.
func (c *Copy) look(r registry.Center, s Stand) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.center, c.seen = r, s
	close(c.more)
	c.more = make(chan struct{})
}

// lose notes that the board is not watched any more in a session. What was read is kept.
func (c *Copy) lose(r registry.Center) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.center == r {
		c.center = nil
	}
}

// Stand is what the watch showed last. more is closed when that changes.
func (c *Copy) Stand() (s Stand, more <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.seen, c.more
}

// Expire makes the next Read read the board: this host has changed it, and the watch may not have shown that
// yet.
func (c *Copy) Expire() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.of = none
}

// Read returns the content of the board, and when it was read. With an error, which says why it cannot be read
// now, it returns the last content; if there is none, at is zero.
func (c *Copy) Read(ctx context.Context) (held Content, at time.Time, err error) {
	if held, at, _, fresh := c.now(); fresh {
		return held, at, nil
	}
	select {
	case c.reading <- struct{}{}:
	case <-ctx.Done():
		held, at, _, _ = c.now()
		return held, at, ctx.Err()
	}
	defer func() { <-c.reading }()
	held, at, r, fresh := c.now() // another may have read it meanwhile
	switch {
	case fresh:
		return held, at, nil
	case r == nil:
		return held, at, c.outdated(ErrUnread)
	}
	of := c.take()
	read, err := Of(r, c.namespace).Read(ctx)
	if err != nil { // of stays reads, which is no state of the board: the next call reads again
		return held, at, c.outdated(err)
	}
	return read, c.keep(read, of), nil
}

// outdated is the error of a reading, with ErrOutdated if that is so.
func (c *Copy) outdated(err error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.at.IsZero() && c.was != c.seen.Change {
		return fmt.Errorf("%w; %w", err, ErrOutdated)
	}
	return err
}

// now is what is held; fresh reports whether that is what stands on the board.
func (c *Copy) now() (held Content, at time.Time, r registry.Center, fresh bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.held, c.at, c.center, c.center != nil && c.of == c.seen.Change
}

// take begins a read: an Expire before keep makes the result outdated.
func (c *Copy) take() (of int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.of = reads
	return c.seen.Change
}

// reads is Copy.of while the board is read.
const reads = -2

// keep keeps what was read.
func (c *Copy) keep(read Content, of int64) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.held, c.at, c.was = read, time.Now(), of; c.of == reads {
		c.of = of
	}
	return c.at
}
