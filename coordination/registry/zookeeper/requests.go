package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/wasmjob/wasmjob/coordination/registry"
)

// requests reads and writes single nodes, again if the connection is lost. Callers use paths below the chroot.
type requests struct {
	o      *Options
	life   *life
	link   *link
	places *places
	chroot string // "" or "/path"
	acl    []zk.ACL
}

// fetch reads one node. Once it has a place it blocks in the client until there is an answer or
// the connection is gone, whatever ctx says.
func (r *requests) fetch(ctx context.Context, q registry.Query) (registry.Node, error) {
	for n := uint64(0); ; {
		var err error
		if n, err = r.link.connected(ctx, n, false); err != nil {
			return registry.Node{}, err
		}
		if err = r.places.enter(ctx, r.life); err != nil {
			return registry.Node{}, err
		}
		node, err := r.ask(q)
		r.places.leave()
		switch {
		case err == nil:
			return node, nil
		case errors.Is(err, zk.ErrNoAuth):
			return registry.Node{Query: q}, r.denied(r.real(q.Path), "read")
		case !lossy(err):
			if err = r.life.expired(err); r.life.over() == nil {
				err = fmt.Errorf("%w: read %s: %w", registry.ErrUnavailable, q.Path, err)
			}
			return node, err
		}
	}
}

// unreadable collects denied queries of several goroutines.
type unreadable struct {
	mu sync.Mutex
	of map[registry.Query]error
}

// note stores the error of a denied query, and returns any other error.
func (u *unreadable) note(q registry.Query, err error) error {
	if !errors.Is(err, ErrNoAuth) {
		return err
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.of[q] = err
	return nil
}

// ask is one request.
func (r *requests) ask(q registry.Query) (registry.Node, error) {
	node := registry.Node{Query: q}
	var stat *zk.Stat
	var err error
	if q.Children {
		node.Names, stat, err = r.link.conn.Children(r.real(q.Path))
		slices.Sort(node.Names)
	} else {
		node.Data, stat, err = r.link.conn.Get(r.real(q.Path))
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

// status is a node's, or nil if there is no node. It waits for a connection and for a place as
// fetch does.
func (r *requests) status(ctx context.Context, path string) (*zk.Stat, error) {
	for n := uint64(0); ; {
		var err error
		if n, err = r.link.connected(ctx, n, false); err != nil {
			return nil, err
		}
		if err = r.places.enter(ctx, r.life); err != nil {
			return nil, err
		}
		exists, stat, err := r.link.conn.Exists(r.real(path))
		r.places.leave()
		switch {
		case err == nil && !exists:
			return nil, nil
		case err == nil:
			return stat, nil
		case !lossy(err):
			return nil, r.life.expired(err)
		}
	}
}

// sync returns once the server has caught up with the ensemble.
func (r *requests) sync(ctx context.Context) error {
	_, err := retry(ctx, r.link, func() (string, error) { return r.link.conn.Sync(r.real("/")) })
	return err
}

// makeChroot makes the missing parts of the chroot.
func (r *requests) makeChroot(ctx context.Context) error {
	for i := 1; i <= len(r.chroot); i++ {
		if i < len(r.chroot) && r.chroot[i] != '/' {
			continue
		}
		path := r.chroot[:i]
		_, err := retry(ctx, r.link, func() (struct{}, error) {
			exists, _, err := r.link.conn.Exists(path)
			if err == nil && !exists {
				_, err = r.link.conn.Create(path, nil, zk.FlagPersistent, r.acl)
			}
			if errors.Is(err, zk.ErrNodeExists) {
				err = nil
			}
			return struct{}{}, err
		})
		if errors.Is(err, zk.ErrNoAuth) {
			return r.denied(path, "create")
		}
		if err != nil {
			return fmt.Errorf("chroot %s: %w", path, err)
		}
	}
	return nil
}

// denied turns a denial into an error. path is below the chroot or the chroot's own.
func (r *requests) denied(path, deed string) error {
	whose := "the parent node's" // that of a node is about its data
	switch deed {
	case "read", registry.OpSet.String(), registry.OpCheck.String():
		whose = "the node's"
	case registry.OpEnsure.String(): // is there, or is made
		whose = "the node's or its parent's"
	}
	if r.o.Credentials == "" {
		return fmt.Errorf("%w: %s %s: this session has no credentials; %s ACL expects some", ErrNoAuth, deed, path, whose)
	}
	user, _, _ := strings.Cut(r.o.Credentials, ":")
	return fmt.Errorf("%w: %s %s: %s ACL does not allow it to user %q with this password", ErrNoAuth, deed, path, whose, user)
}

// real returns a path as ZooKeeper has it.
func (r *requests) real(path string) string {
	if r.chroot == "" {
		return path
	}
	if path == "/" {
		return r.chroot
	}
	return r.chroot + path
}

// mine returns a path of ZooKeeper's without the chroot.
func (r *requests) mine(path string) string {
	if r.chroot == "" {
		return path
	}
	if path == r.chroot {
		return "/"
	}
	below, _ := strings.CutPrefix(path, r.chroot)
	return below
}
