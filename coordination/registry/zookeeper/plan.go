package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/wasmjob/wasmjob/coordination/registry"
)

// plan is a commit as a multi.
type plan struct {
	ops      []registry.Op
	requests []any
	owner    []int  // the op of each request
	size     int    // of the whole request in bytes
	of       uint64 // the connection that it was tried on
}

// The parts of a request in bytes.
const (
	sizeHead   = 8 // number and kind
	sizeOp     = 9 // kind, end, error: before each op and at the end
	sizeText   = 4 // a text's or list's length
	sizeNumber = 4 // a version or flag
	noVersion  = 1<<31 - 1
)

func (p *plan) add(op int, request any, size int) {
	p.requests = append(p.requests, request)
	p.owner = append(p.owner, op)
	p.size += sizeOp + size
}

// plan turns ops into requests. known says which ensured nodes and their ancestors exist; without it they are
// assumed to exist, and a check proves it.
func (c *commits) plan(ops []registry.Op, known map[string]bool) *plan {
	p := &plan{ops: ops, size: sizeHead + sizeOp, requests: make([]any, 0, len(ops)), owner: make([]int, 0, len(ops))}
	access := sizeText
	for _, a := range c.requests.acl {
		access += sizeNumber + 2*sizeText + len(a.Scheme) + len(a.ID)
	}
	made := make(map[string]bool) // by the ops so far: exists or not
	check := func(i int, path string, version int32) {
		p.add(i, &zk.CheckVersionRequest{Path: path, Version: version}, sizeText+len(path)+sizeNumber)
	}
	create := func(i int, path string, data []byte, flags int32) {
		if path == c.requests.real("/") {
			check(i, path, noVersion) // fails like a create of an existing node
			return
		}
		p.add(i, &zk.CreateRequest{Path: path, Data: data, Acl: c.requests.acl, Flags: flags}, 2*sizeText+len(path)+len(data)+access+sizeNumber)
	}
	remove := func(i int, path string, version int32) {
		p.add(i, &zk.DeleteRequest{Path: path, Version: version}, sizeText+len(path)+sizeNumber)
	}
	ensures := slices.ContainsFunc(ops, func(op registry.Op) bool { return op.Kind == registry.OpEnsure })
	for i, op := range ops {
		path := c.requests.real(op.Path)
		if op.Kind == registry.OpSequential {
			path = c.requests.chroot + op.Path // "/" may be a prefix
		}
		data := op.Data
		if data == nil {
			data = []byte{} // ElasticJob's empty data is zero bytes, not null
		}
		switch op.Kind {
		case registry.OpCreate:
			create(i, path, data, zk.FlagPersistent)
		case registry.OpEphemeral:
			create(i, path, data, zk.FlagEphemeral)
		case registry.OpSequential:
			create(i, path, data, zk.FlagEphemeral|zk.FlagSequence)
		case registry.OpSet:
			p.add(i, &zk.SetDataRequest{Path: path, Data: data, Version: op.Version}, 2*sizeText+len(path)+len(data)+sizeNumber)
		case registry.OpDelete:
			remove(i, path, op.Version)
		case registry.OpCheck:
			check(i, path, op.Version)
		case registry.OpAbsent:
			create(i, path, []byte{}, zk.FlagPersistent)
			remove(i, path, registry.AnyVersion)
		case registry.OpEnsure:
			lacks, proof := missing(op.Path, func(path string) bool {
				if exists, ok := made[path]; ok {
					return exists
				}
				return known == nil || known[path]
			})
			check(i, c.requests.real(proof), registry.AnyVersion)
			for _, path := range lacks {
				create(i, c.requests.real(path), []byte{}, zk.FlagPersistent)
				made[path] = true
			}
		}
		if ensures {
			switch op.Kind {
			case registry.OpCreate, registry.OpEphemeral:
				made[op.Path] = true
			case registry.OpDelete:
				made[op.Path] = false
			}
		}
	}
	return p
}

// missing returns the nodes to create so that path exists, from the top, and the nearest existing one.
func missing(path string, exists func(string) bool) (paths []string, nearest string) {
	for path != "/" && !exists(path) {
		paths = append(paths, path)
		path = parent(path)
	}
	slices.Reverse(paths)
	return paths, path
}

func parent(path string) string {
	if i := strings.LastIndexByte(path, '/'); i > 0 {
		return path[:i]
	}
	return "/"
}

// survey finds out which of the ensured nodes and their ancestors exist, and recreates the chroot if it was
// deleted. If many have one parent it lists the children.
func (c *commits) survey(ctx context.Context, ops []registry.Op) (map[string]bool, error) {
	const many = 5
	known := make(map[string]bool)
	below := make(map[string]int)
	var paths []string
	for _, op := range ops {
		if op.Kind != registry.OpEnsure {
			continue
		}
		for p := op.Path; p != "/"; p = parent(p) {
			if _, seen := known[p]; seen {
				break
			}
			known[p] = false
			below[parent(p)]++
			paths = append(paths, p)
		}
	}
	single := slices.DeleteFunc(slices.Clone(paths), func(p string) bool { return below[parent(p)] >= many })
	var lists []registry.Query
	for p, n := range below {
		if n >= many {
			lists = append(lists, registry.Children(p))
		}
	}
	stats, err := parallel(ctx, c.life, single, c.requests.status)
	if err != nil {
		return nil, err
	}
	nodes, err := parallel(ctx, c.life, lists, c.requests.fetch)
	if err != nil {
		return nil, err
	}
	for i, p := range single {
		known[p] = stats[i] != nil
	}
	for _, n := range nodes {
		for _, name := range n.Names {
			known[strings.TrimSuffix(n.Path, "/")+"/"+name] = true
		}
	}
	if !slices.Contains(slices.Collect(maps.Values(known)), true) && c.requests.chroot != "" {
		if err := c.requests.makeChroot(ctx); err != nil {
			return nil, err
		}
	}
	return known, nil
}

// results are those of a multi that succeeded.
func (c *commits) results(p *plan, answers []zk.MultiResponse) []registry.Result {
	results := make([]registry.Result, len(p.ops))
	for i := range p.ops {
		results[i].Path = p.ops[i].Path
	}
	for k, a := range answers {
		if k >= len(p.owner) {
			break
		}
		i := p.owner[k]
		switch p.ops[i].Kind {
		case registry.OpSequential:
			results[i].Path = strings.TrimPrefix(a.String, c.requests.chroot)
		case registry.OpSet:
			results[i].Version, results[i].Zxid, results[i].Time = a.Stat.Version, a.Stat.Mzxid, time.UnixMilli(a.Stat.Mtime)
		}
	}
	return results
}

// quotaExceeded ends the error that the client makes of a code which is newer
// than the client.
const quotaExceeded = ": -125"

// refused returns the op at which a multi failed, and why.
func (c *commits) refused(p *plan, k int, err error) error {
	i := p.owner[k]
	op := p.ops[i]
	conflict := func(why registry.Reason) error { return &registry.OpError{Index: i, Op: op, Reason: why} }
	switch {
	case errors.Is(err, zk.ErrNoAuth):
		return &registry.DeniedError{Index: i, Op: op, Err: c.requests.denied(c.requests.real(op.Path), op.Kind.String())}
	case strings.HasSuffix(err.Error(), quotaExceeded):
		why := fmt.Errorf("%w: %s %s: ZooKeeper's quota for nodes or bytes there is used up", registry.ErrUnavailable, op.Kind, op.Path)
		return &registry.DeniedError{Index: i, Op: op, Err: why}
	case errors.Is(err, zk.ErrNoChildrenForEphemerals):
		return conflict(registry.ReasonParent)
	case op.Kind == registry.OpEnsure:
		return errEnsure
	case errors.Is(err, zk.ErrNodeExists):
		return conflict(registry.ReasonExists)
	case errors.Is(err, zk.ErrNotEmpty):
		return conflict(registry.ReasonChildren)
	}
	creates := false
	switch op.Kind {
	case registry.OpCreate, registry.OpEphemeral, registry.OpSequential, registry.OpAbsent:
		creates = true
	}
	switch {
	case errors.Is(err, zk.ErrNoNode) && creates:
		return conflict(registry.ReasonParent)
	case errors.Is(err, zk.ErrNoNode):
		return conflict(registry.ReasonAbsent)
	case errors.Is(err, zk.ErrBadVersion) && creates:
		return conflict(registry.ReasonExists) // the root
	case errors.Is(err, zk.ErrBadVersion):
		return conflict(registry.ReasonVersion)
	}
	return fmt.Errorf("%w: op %d (%s %s): %w", registry.ErrUnavailable, i, op.Kind, op.Path, err)
}
