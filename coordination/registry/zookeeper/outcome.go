package zookeeper

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/wasmjob/wasmjob/coordination/registry"
)

// maxEvidence is how many nodes are read to find out what became of a commit.
const maxEvidence = 32

// resolve finds out what became of a multi that was sent and not answered. A new connection proves that no
// request of the old one is still in flight: ZooKeeper refuses requests of a session that has moved. After a
// sync the nodes are final.
//
// A node that a transaction writes gets its number, and the multi's number would be greater than any that this
// session had seen when it was sent. So one older node that the multi would have written proves that it did
// nothing. A younger ephemeral node of this session that no other commit can have created proves that it did
// everything. Otherwise the outcome stays unknown.
func (c *commits) resolve(ctx context.Context, p *plan, t *ticket) ([]registry.Result, error) {
	unknown := func(err error) error {
		if err == nil {
			return registry.ErrUnknown
		}
		return fmt.Errorf("%w: %v", registry.ErrUnknown, err)
	}
	if _, err := c.link.connected(ctx, t.of, false); err != nil {
		return nil, unknown(err)
	}
	if err := c.requests.sync(ctx); err != nil {
		return nil, unknown(err)
	}
	paths := evidence(p.ops)
	found, err := parallel(ctx, c.life, paths, c.requests.status)
	if err != nil {
		return nil, unknown(err)
	}
	stats := make(map[string]*zk.Stat, len(paths))
	for i, path := range paths {
		stats[path] = found[i]
	}
	did, applied := c.transaction(p.ops, stats, t.seen)
	if !applied {
		return nil, errNotApplied
	}
	if did == 0 || c.claims.shared(t) {
		return nil, unknown(nil)
	}
	return c.reconstruct(ctx, p, did)
}

// evidence returns the nodes that ops write: they show what became of ops.
func evidence(ops []registry.Op) (paths []string) {
	for _, op := range ops {
		switch op.Kind {
		case registry.OpSet:
			paths = append(paths, op.Path)
		case registry.OpDelete, registry.OpEphemeral:
			paths = append(paths, op.Path, parent(op.Path))
		case registry.OpCreate, registry.OpSequential, registry.OpAbsent:
			paths = append(paths, parent(op.Path))
		}
		if len(paths) >= maxEvidence {
			break
		}
	}
	return paths
}

// transaction judges by the evidence. did is the transaction that did all of the ops, 0 if unproved; applied is
// false if none was done for certain.
func (c *commits) transaction(ops []registry.Op, stats map[string]*zk.Stat, seen int64) (did int64, applied bool) {
	for _, op := range ops {
		here, above := stats[op.Path], stats[parent(op.Path)]
		switch {
		case op.Kind == registry.OpSet && here != nil && here.Mzxid <= seen,
			op.Kind == registry.OpDelete && here != nil && here.Czxid <= seen,
			op.Kind != registry.OpSet && above != nil && above.Pzxid <= seen:
			if c.writes(op) {
				return 0, false
			}
		case op.Kind == registry.OpEphemeral && here != nil && here.Czxid > seen && here.EphemeralOwner == c.link.conn.SessionID():
			did = here.Czxid
		}
	}
	return did, true
}

// writes reports whether an op leaves a trace at all.
func (c *commits) writes(op registry.Op) bool {
	return op.Kind != registry.OpCheck && op.Kind != registry.OpEnsure
}

// reconstruct returns the results of a commit that took effect as transaction zxid, if they can still be read.
func (c *commits) reconstruct(ctx context.Context, p *plan, zxid int64) ([]registry.Result, error) {
	results := make([]registry.Result, len(p.ops))
	sets := make(map[string]int)
	var paths []string
	for i, op := range p.ops {
		results[i].Path = op.Path
		switch op.Kind {
		case registry.OpSequential:
			return nil, fmt.Errorf("%w: it took effect, but the number of %s is not known", registry.ErrUnknown, op.Path)
		case registry.OpSet:
			if sets[op.Path]++; sets[op.Path] == 1 {
				paths = append(paths, op.Path)
			}
		}
	}
	stats, err := parallel(ctx, c.life, paths, c.requests.status)
	if err != nil {
		return nil, fmt.Errorf("%w: %v", registry.ErrUnknown, err)
	}
	last, at := make(map[string]int32), time.Time{}
	for i, path := range paths {
		if stats[i] == nil || stats[i].Mzxid != zxid {
			return nil, fmt.Errorf("%w: it took effect, but %s has changed since", registry.ErrUnknown, path)
		}
		last[path], at = stats[i].Version, time.UnixMilli(stats[i].Mtime) // the same for all
	}
	for i := len(p.ops) - 1; i >= 0; i-- {
		op := p.ops[i]
		if op.Kind != registry.OpSet {
			continue
		}
		results[i].Version, results[i].Zxid, results[i].Time = last[op.Path], zxid, at
		if last[op.Path]--; last[op.Path] < 0 {
			last[op.Path] = math.MaxInt32
		}
	}
	return results, nil
}
