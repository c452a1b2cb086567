// Package signedout remembers for all hosts of a namespace which sessions of browsers were
// signed out. They stand in one node of the registry, which each host watches: a sign-out
// is one commit, and a request costs none.
package signedout

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/wasmjob/wasmjob/coordination/admin/sessions"
	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/tree"
	"github.com/wasmjob/wasmjob/host/auth/cookie"
)

const (
	// most bounds the sessions and floors in the node: at most 100 kB.
	most = 1000
	// tries bounds the conflicts of one commit.
	tries = 20
)

// List is the list of a namespace, as this host knows it. It is safe for concurrent use.
type List struct {
	path     string
	now      func() time.Time
	log      *zap.Logger
	sessions *sessions.Newest

	mu     sync.Mutex
	ledger cookie.Ledger
	center registry.Center // the newest session; nil: there was none
	loaded bool
}

// New makes a list with a clock. Nothing happens before Run.
func New(namespace string, now func() time.Time, log *zap.Logger) *List {
	return &List{path: tree.ClusterSignedOut(namespace), now: now, log: log, sessions: sessions.New()}
}

// Begun hands over a new session with the registry. It does not block.
func (l *List) Begun(c registry.Center) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.center = c
	l.sessions.Begun(c)
}

// Loaded reports whether the registry's list was read. Before that no session may be
// taken: it may have been signed out.
func (l *List) Loaded() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.loaded
}

// Has reports whether a session was signed out.
func (l *List) Has(user, id string, begun time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ledger.Has(user, id, begun)
}

// Add remembers a session of a user on this host, and then on all. If the error says that the latter
// could not be done, Run does it when the registry can be reached.
func (l *List) Add(ctx context.Context, user, id string, begun time.Time) error {
	l.mu.Lock()
	l.ledger.Add(user, id, begun, l.now(), most)
	c := l.center
	l.mu.Unlock()
	if c == nil {
		return errors.New("the sign-out is not known to other hosts: there is no session with the registry")
	}
	return l.write(ctx, c)
}

// Run keeps what this host knows and what the registry has the same, until ctx is done.
func (l *List) Run(ctx context.Context) error {
	l.sessions.Each(ctx, func(ctx context.Context, c registry.Center) {
		if err := l.follow(ctx, c); err != nil && ctx.Err() == nil {
			l.log.Debug("the list of sessions that were signed out cannot be kept", zap.Error(err))
		}
	})
	return nil
}

func (l *List) follow(ctx context.Context, c registry.Center) error {
	snapshots, err := c.Watch(ctx, registry.Data(l.path))
	if err != nil {
		return fmt.Errorf("watch %s: %w", l.path, err)
	}
	for s := range snapshots {
		if l.learn(s.Data(l.path)) {
			continue
		}
		if err := l.write(ctx, c); err != nil {
			return err
		}
	}
	return nil
}

// learn takes over what a node has, and reports whether it has all that is known here.
func (l *List) learn(n registry.Node) (whole bool) {
	theirs := parse(n)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ledger.Merge(theirs, l.now(), most)
	l.loaded = true
	return !theirs.Merge(l.ledger, l.now(), most)
}

// parse reads a node; what cannot be read is empty, and written again.
func parse(n registry.Node) (ledger cookie.Ledger) {
	if n.Exists && json.Unmarshal(n.Data, &ledger) != nil {
		return cookie.Ledger{}
	}
	return ledger
}

// write adds to the node what it lacks.
func (l *List) write(ctx context.Context, c registry.Center) error {
	for range tries {
		nodes, err := c.Read(ctx, registry.Data(l.path))
		if err != nil {
			return fmt.Errorf("read %s: %w", l.path, err)
		}
		node := nodes[0]
		ledger := parse(node)
		l.mu.Lock()
		changed := ledger.Merge(l.ledger, l.now(), most)
		l.mu.Unlock()
		if !changed {
			return nil
		}
		data, err := json.Marshal(ledger)
		if err != nil {
			return err
		}
		if !node.Exists {
			_, err = c.Commit(ctx, registry.Ensure(l.path))
		} else {
			_, err = c.Commit(ctx, registry.Set(l.path, data, node.Version))
		}
		switch {
		case err != nil && !errors.Is(err, registry.ErrConflict):
			return fmt.Errorf("write %s: %w", l.path, err)
		case err == nil && node.Exists:
			return nil
		}
	}
	return fmt.Errorf("write %s: other hosts write there all the time", l.path)
}
