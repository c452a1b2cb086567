package peers

import (
	"bytes"
	"context"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"go.uber.org/zap"

	"github.com/wasmjob/wasmjob/coordination/admin/sessions"
	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/tree"
)

const keyBytes = 32

// mostInstances bounds [tree.ClusterDetail.Sessions].
const mostInstances = 100

// Peer is another host of the namespace.
type Peer struct {
	ID string
	tree.ClusterDetail
}

// Peers publishes a host and knows the others. It is safe for concurrent use.
type Peers struct {
	// Changed, if it is not nil, is called after each change of the list. It is set before Run.
	Changed func()

	namespace string
	self      func() tree.ClusterDetail
	log       *zap.Logger
	sessions  *sessions.Newest
	renew     chan struct{} // has a value when the host is to be published again

	trouble string // that was logged last; it belongs to Run

	mu sync.Mutex
	id string // of this life, empty while there is none
	// instances are the host's ids in its sessions, the newest last.
	instances []string
	key       []byte
	others    []Peer // by id
	// used are the nonces of changes that peers asked for, by this id.
	used map[string]bool
}

// New returns the peers of a host; self is what it publishes. Nothing happens before
// Run.
func New(namespace string, self func() tree.ClusterDetail, log *zap.Logger) *Peers {
	return &Peers{namespace: namespace, self: self, log: log, sessions: sessions.New(), renew: make(chan struct{}, 1), used: make(map[string]bool)}
}

// Begun hands over the host's session, with its instance id; a known session is ignored. It does not block; Run
// publishes the host in a new one.
func (p *Peers) Begun(c registry.Center, instance string) {
	p.mu.Lock()
	known := len(p.instances) > 0 && p.instances[len(p.instances)-1] == instance
	if !known {
		p.instances = append(p.instances[max(len(p.instances)-mostInstances+1, 0):], instance)
	}
	p.mu.Unlock()
	if !known {
		p.sessions.Begun(c)
	}
}

// Renew publishes the host again, with what it says of itself now. It does not block.
func (p *Peers) Renew() {
	select {
	case p.renew <- struct{}{}:
	default: // it is about to be
	}
}

// Derive returns a secret for a purpose, derived from the namespace's key and the same on all hosts; ok is
// false before this host's first session.
func (p *Peers) Derive(purpose string) (secret []byte, ok bool) {
	p.mu.Lock()
	key := p.key
	p.mu.Unlock()
	if key == nil {
		return nil, false
	}
	secret, err := hkdf.Key(sha256.New, key, nil, "wasmjob "+purpose, 32)
	return secret, err == nil
}

// List are the other hosts, by id. While there is no session it is as it was.
func (p *Peers) List() []Peer {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.others)
}

// Self is this host, as others know it; its id is empty before its first session.
func (p *Peers) Self() Peer {
	d := p.self()
	p.mu.Lock()
	defer p.mu.Unlock()
	d.Sessions = p.instances
	return Peer{p.id, d}
}

// ID names this host among its peers; empty before its first session.
func (p *Peers) ID() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.id
}

// Run publishes the host in each session until ctx is done.
func (p *Peers) Run(ctx context.Context) error {
	p.sessions.Each(ctx, func(ctx context.Context, c registry.Center) {
		err := p.publish(ctx, c)
		if err == nil {
			err = p.watch(ctx, c)
		}
		p.report(ctx, c, err)
	})
	return nil
}

// report logs why the host has to be published once more, each reason once in a row.
func (p *Peers) report(ctx context.Context, c registry.Center, err error) {
	select {
	case <-c.Lost():
		return
	default:
	}
	if err == nil || ctx.Err() != nil || errors.Is(err, errRenew) {
		p.trouble = ""
		return
	}
	if p.trouble != err.Error() {
		p.trouble = err.Error()
		p.log.Warn("the host has to be published for its peers once more", zap.Duration("in", sessions.RetryAfter), zap.Error(err))
	}
}

// publish makes the host's node, and the key if there is none yet.
func (p *Peers) publish(ctx context.Context, c registry.Center) error {
	all := tree.ClusterHosts(p.namespace)
	key, err := p.readKey(ctx, c, all)
	if err != nil {
		return err
	}
	p.mu.Lock()
	before := p.id
	id := strings.ToLower(rand.Text()) // also if the commit fails: its outcome may be unknown
	p.id, p.key = id, key
	clear(p.used) // they were for another id
	p.mu.Unlock()
	ops := []registry.Op{registry.CreateEphemeral(tree.ClusterHost(p.namespace, id), p.Self().Data())}
	if before != "" { // published in this session, or in an earlier one whose nodes may still exist
		there, err := c.Read(ctx, registry.Data(tree.ClusterHost(p.namespace, before)))
		if err != nil {
			return fmt.Errorf("publish the host: %w", err)
		}
		if there[0].Exists {
			ops = append(ops, registry.Delete(there[0].Path, registry.AnyVersion))
		}
	}
	if _, err := c.Commit(ctx, ops...); err != nil {
		return fmt.Errorf("publish the host: %w", err)
	}
	return nil
}

// readKey reads the namespace's key; the first host makes it.
func (p *Peers) readKey(ctx context.Context, c registry.Center, path string) ([]byte, error) {
	for {
		n, err := c.Read(ctx, registry.Data(path))
		if err != nil {
			return nil, fmt.Errorf("read the hosts' key: %w", err)
		}
		if key, err := hex.DecodeString(string(n[0].Data)); n[0].Exists && err == nil && len(key) == keyBytes {
			return key, nil
		}
		if !n[0].Exists {
			if _, err := c.Commit(ctx, registry.Ensure(path)); err != nil {
				return nil, fmt.Errorf("make the hosts' key: %w", err)
			}
			continue
		}
		key := make([]byte, keyBytes)
		if _, err := rand.Read(key); err != nil {
			return nil, fmt.Errorf("make the hosts' key: %w", err)
		}
		_, err = c.Commit(ctx, registry.Set(path, []byte(hex.EncodeToString(key)), n[0].Version))
		if err != nil && !errors.Is(err, registry.ErrConflict) { // else another host was first
			return nil, fmt.Errorf("make the hosts' key: %w", err)
		}
	}
}

// watch keeps the list of peers until the session is over, the host's own node is
// gone, or the key is another one.
func (p *Peers) watch(ctx context.Context, c registry.Center) error {
	all := tree.ClusterHosts(p.namespace)
	changes, err := c.Watch(ctx, registry.Children(all), registry.Data(all))
	if err != nil {
		return fmt.Errorf("watch the hosts: %w", err)
	}
	known := make(map[string]tree.ClusterDetail)
	for {
		var s registry.Snapshot
		select {
		case <-p.renew:
			return errRenew
		case next, ok := <-changes:
			if !ok {
				return nil
			}
			s = next
		}
		ids := s.Children(all)
		if err := p.learn(ctx, c, ids, known); err != nil {
			return err
		}
		p.mu.Lock()
		gone := !slices.Contains(ids, p.id)
		changed := !bytes.Equal([]byte(hex.EncodeToString(p.key)), s.Data(all).Data)
		p.others = p.others[:0:0]
		for _, id := range ids {
			if id != p.id {
				p.others = append(p.others, Peer{id, known[id]})
			}
		}
		p.mu.Unlock()
		if p.Changed != nil {
			p.Changed()
		}
		if changed {
			return errors.New("the hosts' key was changed outside wasmjob")
		}
		if gone {
			return errors.New("the host's node was deleted outside wasmjob")
		}
	}
}

// errRenew ends a watch to publish the host again.
var errRenew = errors.New("the host says something else of itself now")

// learn reads the details of hosts that are new, and forgets those that are gone.
func (p *Peers) learn(ctx context.Context, c registry.Center, ids []string, known map[string]tree.ClusterDetail) error {
	var read []registry.Query
	var fresh []string
	for _, id := range ids {
		if _, ok := known[id]; !ok {
			read, fresh = append(read, registry.Data(tree.ClusterHost(p.namespace, id))), append(fresh, id)
		}
	}
	for id := range known {
		if !slices.Contains(ids, id) {
			delete(known, id)
		}
	}
	if len(read) == 0 {
		return nil
	}
	nodes, err := c.Read(ctx, read...)
	if err != nil {
		return fmt.Errorf("read the hosts: %w", err)
	}
	for n, node := range nodes {
		if node.Exists {
			known[fresh[n]] = tree.ParseClusterDetail(node.Data)
		}
	}
	return nil
}
