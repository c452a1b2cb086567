package embedded

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/wasmjob/wasmjob/coordination/registry"
)

// state is a node's data and metadata.
type state struct {
	data         []byte
	czxid, mzxid int64
	mtime        int64 // Unix milliseconds
	version      int32
	children     int32
	sequence     int32    // the next number of a sequential child
	owner        *session // nil: persistent
}

// node is a place in the tree.
type node struct {
	state
	names []string    // the children as of the last list, ascending; shared with readers
	moved []childMove // changes since then
}

type childMove struct {
	name    string
	present bool
}

// move notes that a child came or went.
func (n *node) move(name string, present bool) {
	n.moved = append(n.moved, childMove{name, present})
	if len(n.moved) > len(n.names)+16 {
		n.list() // bounds moved if no reader ever calls list
	}
}

// list returns the children's names.
func (n *node) list() []string {
	if len(n.moved) == 0 {
		return n.names
	}
	slices.SortStableFunc(n.moved, func(a, b childMove) int { return strings.Compare(a.name, b.name) })
	names := make([]string, 0, len(n.names)+len(n.moved))
	old := n.names
	for i, m := range n.moved {
		if i+1 < len(n.moved) && n.moved[i+1].name == m.name {
			continue // only the last change of a name counts
		}
		for len(old) > 0 && old[0] < m.name {
			names = append(names, old[0])
			old = old[1:]
		}
		if len(old) > 0 && old[0] == m.name {
			old = old[1:]
		}
		if m.present {
			names = append(names, m.name)
		}
	}
	n.names = append(names, old...)
	clear(n.moved)
	n.moved = n.moved[:0]
	return n.names
}

// change is a layer's change of one path.
type change struct {
	state
	path   string
	at     *node // where the tree has the path, nil if it has not
	exists bool
	wrote  bool // created, set or deleted; otherwise only counted
	stored bool // something that must survive a restart differs
}

// layer is a set of changes over a tree that it does not modify. A failed commit is a discarded layer.
type layer struct {
	index   map[string]int
	changes []change
}

func newLayer() *layer { return &layer{index: make(map[string]int)} }

func (l *layer) reset() {
	const keep = 8192
	if len(l.changes) > keep {
		*l = *newLayer()
		return
	}
	clear(l.index)
	clear(l.changes)
	l.changes = l.changes[:0]
}

// add appends the first change of a path.
func (l *layer) add(c change) *change {
	l.index[c.path] = len(l.changes)
	l.changes = append(l.changes, c)
	return &l.changes[len(l.changes)-1]
}

// fold lays another layer on this one.
func (l *layer) fold(upper *layer) {
	for _, c := range upper.changes {
		i, ok := l.index[c.path]
		if !ok {
			l.add(c)
			continue
		}
		c.wrote = c.wrote || l.changes[i].wrote
		c.stored = c.stored || l.changes[i].stored
		l.changes[i] = c
	}
}

// txn computes one commit as a layer over the tree and, in a batch, over the changes of the commits before it.
type txn struct {
	*layer
	tree  map[string]*node
	batch *layer // or nil
	by    *session
	zxid  int64
	now   int64
}

// spot is the state of one path in a transaction.
type spot struct {
	path string
	*state
	own int // place in the layer, -1 if it is not there
	at  *node
}

// exists reports whether there is a node. Its state is valid until the next
// edit.
func (s spot) exists() bool { return s.state != nil }

// look returns the state of a path.
func (t *txn) look(path string) spot {
	s := spot{path: path, own: -1}
	if i, ok := t.index[path]; ok {
		s.own = i
		s.from(&t.changes[i])
		return s
	}
	if t.batch != nil {
		if i, ok := t.batch.index[path]; ok {
			s.from(&t.batch.changes[i])
			return s
		}
	}
	if s.at = t.tree[path]; s.at != nil {
		s.state = &s.at.state
	}
	return s
}

func (s *spot) from(c *change) {
	s.at = c.at
	if c.exists {
		s.state = &c.state
	}
}

// edit returns the layer's own copy of a node. It is valid until the next edit, as are other spots: do not edit
// a spot that was found before an edit of the same path.
func (t *txn) edit(s spot) *change {
	if s.own >= 0 {
		return &t.changes[s.own]
	}
	c := change{path: s.path, at: s.at}
	if s.exists() {
		c.state, c.exists = *s.state, true
	}
	return t.add(c)
}

// apply computes all ops; after an error the layer must be discarded.
func (t *txn) apply(ops []registry.Op) ([]registry.Result, error) {
	results := make([]registry.Result, len(ops))
	for i := range ops {
		results[i].Path = ops[i].Path
		if why := t.one(&ops[i], &results[i]); why != "" {
			return nil, &registry.OpError{Index: i, Op: ops[i], Reason: why}
		}
	}
	return results, nil
}

func (t *txn) one(op *registry.Op, r *registry.Result) registry.Reason {
	switch op.Kind {
	case registry.OpCreate:
		return t.create(op.Path, op.Data, nil)
	case registry.OpEphemeral:
		return t.create(op.Path, op.Data, t.by)
	case registry.OpSequential:
		return t.createSequential(op, r)
	case registry.OpEnsure:
		return t.ensure(op.Path)
	case registry.OpAbsent:
		_, _, why := t.vacant(op.Path)
		return why
	}
	s := t.look(op.Path)
	switch {
	case !s.exists():
		return registry.ReasonAbsent
	case op.Version != registry.AnyVersion && op.Version != s.version:
		return registry.ReasonVersion
	}
	switch op.Kind {
	case registry.OpDelete:
		if s.children > 0 {
			return registry.ReasonChildren
		}
		t.remove(op.Path)
	case registry.OpSet:
		c := t.edit(s)
		c.data = slices.Clone(op.Data)
		c.mzxid, c.mtime = t.zxid, t.now
		c.wrote, c.stored = true, true
		if c.version == math.MaxInt32 {
			c.version = -1 // AnyVersion and below are not versions
		}
		c.version++
		r.Version, r.Zxid, r.Time = c.version, t.zxid, time.UnixMilli(t.now)
	}
	return ""
}

// vacant finds a path and its parent, and says why no node could be created there; "" if one could.
func (t *txn) vacant(path string) (parent, here spot, why registry.Reason) {
	if path == "/" {
		return parent, here, registry.ReasonExists
	}
	above, _ := split(path)
	if parent = t.look(above); !parent.exists() || parent.owner != nil {
		return parent, here, registry.ReasonParent
	}
	if here = t.look(path); here.exists() {
		return parent, here, registry.ReasonExists
	}
	return parent, here, ""
}

func (t *txn) create(path string, data []byte, owner *session) registry.Reason {
	parent, here, why := t.vacant(path)
	if why != "" {
		return why
	}
	t.edit(parent).children++
	c := t.edit(here)
	c.state = state{data: slices.Clone(data), czxid: t.zxid, mzxid: t.zxid, mtime: t.now, owner: owner}
	c.exists, c.wrote, c.stored = true, true, true
	return ""
}

func (t *txn) createSequential(op *registry.Op, r *registry.Result) registry.Reason {
	above, _ := split(op.Path)
	parent := t.look(above)
	if !parent.exists() || parent.owner != nil {
		return registry.ReasonParent
	}
	t.edit(parent).stored = true
	for {
		p := t.edit(t.look(above))
		r.Path = fmt.Sprintf("%s%010d", op.Path, p.sequence)
		p.sequence++
		// An external edit may have created a node of that name.
		if why := t.create(r.Path, op.Data, t.by); why != registry.ReasonExists {
			return why
		}
	}
}

func (t *txn) ensure(path string) registry.Reason {
	if t.look(path).exists() {
		return ""
	}
	parent, _ := split(path)
	if why := t.ensure(parent); why != "" {
		return why
	}
	return t.create(path, nil, nil)
}

// remove deletes a node that exists and has no children.
func (t *txn) remove(path string) {
	parent, _ := split(path)
	t.edit(t.look(parent)).children--
	c := t.edit(t.look(path))
	c.state = state{}
	c.exists, c.wrote, c.stored = false, true, true
}
