package latch

import (
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"

	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/step"
	"github.com/wasmjob/wasmjob/coordination/tree"
)

// Line is a host's place in one of ElasticJob's latches. Java hosts queue there before they elect or take over,
// which takes them several requests: a host that did the same without the latch would be undone. The zero Line
// has no place. It belongs to one host and one latch.
type Line struct {
	// Standing is set while the registry may hold a node of this host in the
	// latch.
	Standing bool
	// Behind is the node that must go before it is this host's turn; empty if
	// the host does not wait. Watch it, and try again when it is gone.
	Behind string
	// Around is set by a host that has waited too long for Behind and proceeds without its turn. Our protocol
	// does not depend on the latch, see package coordination.
	Around bool
}

// Waiting returns the query for the node that the host waits for; false if it waits for none.
func (l Line) Waiting() (registry.Query, bool) { return registry.Data(l.Behind), l.Behind != "" }

// latchName is the name of a host's node in a latch, without the number that the registry appends. It never
// changes, so that the host finds a node whose creation had an unknown outcome. It has Curator's form:
// _c_{uuid}-latch-.
func latchName(self string) string {
	h := sha256.Sum256([]byte(self))
	return fmt.Sprintf("_c_%x-%x-%x-%x-%x-latch-", h[0:4], h[4:6], h[6:8], h[8:10], h[10:16])
}

// Turn is what a host may do once it is first in a latch.
type Turn struct {
	// leave are the ops that leave the latch; they belong in the commit for which
	// the host stood there.
	Leave []registry.Op
	// nodes is what was read while it was this host's turn.
	Nodes registry.Snapshot
}

// Stand takes a place in a latch, and reads the queries with it. It returns nil while it is another host's
// turn, with line.Behind set, and for a job that was removed. Calling it again keeps the place.
func Stand(ctx context.Context, x *step.Exchange, l tree.Layout, self, latch string, line *Line, queries ...registry.Query) (*Turn, error) {
	line.Behind = ""
	queries = append([]registry.Query{registry.Children(latch)}, queries...)
	for {
		if !line.Standing {
			removed, err := enterLatch(ctx, x, l, self, latch, line)
			if removed || err != nil {
				return nil, err
			}
		}

		n, err := x.Read(ctx, queries...)
		if err != nil {
			return nil, err
		}
		mine, behind := Place(n.Children(latch), self)
		if len(mine) == 0 {
			line.Standing = false
			continue
		}
		if behind != "" && !line.Around {
			line.Behind = latch + "/" + behind
			return nil, nil
		}
		return &Turn{Leaving(latch, mine), n}, nil
	}
}

// enterLatch makes this host's node in a latch. removed is true if the job is gone.
func enterLatch(ctx context.Context, x *step.Exchange, l tree.Layout, self, latch string, line *Line) (removed bool, err error) {
	line.Standing = true // it may have been created
	_, err = x.Commit(ctx,
		// The server deletes an empty latch.
		registry.Check(l.Config(), registry.AnyVersion), registry.Ensure(latch), registry.CreateSequential(latch+"/"+latchName(self), nil))
	if conflict := step.ConflictOf(err); conflict != nil && conflict.Index == 0 {
		line.Standing = false
		return true, nil
	}
	if step.Contested(err) { // the next read shows the place, if there is one
		return false, nil
	}
	return false, err
}

// Leaving are the ops that delete nodes of a latch, by name.
func Leaving(latch string, nodes []string) []registry.Op {
	var ops []registry.Op
	for _, name := range nodes {
		ops = append(ops, registry.Delete(latch+"/"+name, registry.AnyVersion))
	}
	return ops
}

// Place finds this host's nodes in a latch, and the node before the first
// of them; that is empty if there is none.
func Place(names []string, self string) (mine []string, behind string) {
	const word = "latch-"
	number := func(name string) string {
		if k := strings.LastIndex(name, word); k >= 0 {
			return name[k+len(word):]
		}
		return name
	}
	sorted := slices.Clone(names)
	slices.SortStableFunc(sorted, func(a, b string) int { return strings.Compare(number(a), number(b)) })
	for k, name := range sorted {
		if !strings.HasPrefix(name, latchName(self)) {
			continue
		}
		if len(mine) == 0 && k > 0 {
			behind = sorted[k-1]
		}
		mine = append(mine, name)
	}
	return mine, behind
}

// Leave takes the host out of a latch, and clears its line. Leaving without a place is no error.
func Leave(ctx context.Context, x *step.Exchange, self, latch string, line *Line) error {
	for {
		n, err := x.Read(ctx, registry.Children(latch))
		if err != nil {
			return err
		}
		mine, _ := Place(n.Children(latch), self)
		if len(mine) > 0 {
			_, err = x.Commit(ctx, Leaving(latch, mine)...)
			if step.Contested(err) {
				continue
			}
			if err != nil {
				return err
			}
		}
		*line = Line{}
		return nil
	}
}
