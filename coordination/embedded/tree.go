package embedded

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/wasmjob/wasmjob/coordination"
)

// state is what a node is.
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
	moved []childMove // what happened to them since
}

type childMove struct {
	name    string
	present bool
}

// move notes that a child came or went.
func (n *node) move(name string, present bool) {
	n.moved = append(n.moved, childMove{name, present})
	if len(n.moved) > len(n.names)+16 {
		n.list() // keeps the notes from growing where nobody ever asks
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
			continue // the last one counts
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

// change is what a layer makes of one path.
type change struct {
	state
	path   string
	exists bool
	wrote  bool // created, set or deleted, rather than only counted
	stored bool // something that must survive a restart differs
}

// layer is a set of changes that lies on a tree without touching it. A failed
// commit is a layer that was thrown away.
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

func (l *layer) put(c change) *change {
	if i, ok := l.index[c.path]; ok {
		l.changes[i] = c
		return &l.changes[i]
	}
	l.index[c.path] = len(l.changes)
	l.changes = append(l.changes, c)
	return &l.changes[len(l.changes)-1]
}

// fold lays another layer on this one.
func (l *layer) fold(upper *layer) {
	for _, c := range upper.changes {
		if i, ok := l.index[c.path]; ok {
			c.wrote = c.wrote || l.changes[i].wrote
			c.stored = c.stored || l.changes[i].stored
		}
		l.put(c)
	}
}

// txn computes one commit as a layer over the tree and, in a batch, over what
// the commits before it did.
type txn struct {
	*layer
	tree  map[string]*node
	batch *layer // or nil
	by    *session
	zxid  int64
	now   int64
}

// look returns a node's state, nil if there is none. It is valid until the
// next edit.
func (t *txn) look(path string) *state {
	for _, l := range [...]*layer{t.layer, t.batch} {
		if l == nil {
			continue
		}
		if i, ok := l.index[path]; ok {
			if !l.changes[i].exists {
				return nil
			}
			return &l.changes[i].state
		}
	}
	if n := t.tree[path]; n != nil {
		return &n.state
	}
	return nil
}

// edit returns the layer's own copy of a node. It is valid until the next edit.
func (t *txn) edit(path string) *change {
	if i, ok := t.index[path]; ok {
		return &t.changes[i]
	}
	c := change{path: path}
	if st := t.look(path); st != nil {
		c.state, c.exists = *st, true
	}
	return t.put(c)
}

// apply computes all ops; the layer is of no use after an error.
func (t *txn) apply(ops []coordination.Op) ([]coordination.Result, error) {
	results := make([]coordination.Result, len(ops))
	for i := range ops {
		results[i].Path = ops[i].Path
		if why := t.one(&ops[i], &results[i]); why != "" {
			return nil, &coordination.OpError{Index: i, Op: ops[i], Reason: why}
		}
	}
	return results, nil
}

func (t *txn) one(op *coordination.Op, r *coordination.Result) coordination.Reason {
	switch op.Kind {
	case coordination.OpCreate:
		return t.create(op.Path, op.Data, nil)
	case coordination.OpEphemeral:
		return t.create(op.Path, op.Data, t.by)
	case coordination.OpSequential:
		return t.createSequential(op, r)
	case coordination.OpEnsure:
		return t.ensure(op.Path)
	case coordination.OpAbsent:
		return t.vacant(op.Path)
	}
	st := t.look(op.Path)
	switch {
	case st == nil:
		return coordination.ReasonAbsent
	case op.Version != coordination.AnyVersion && op.Version != st.version:
		return coordination.ReasonVersion
	}
	switch op.Kind {
	case coordination.OpDelete:
		if st.children > 0 {
			return coordination.ReasonChildren
		}
		t.remove(op.Path)
	case coordination.OpSet:
		c := t.edit(op.Path)
		c.data = slices.Clone(op.Data)
		c.mzxid, c.mtime = t.zxid, t.now
		c.wrote, c.stored = true, true
		if c.version == math.MaxInt32 {
			c.version = -1 // AnyVersion and below are not versions
		}
		c.version++
		r.Version, r.Zxid = c.version, t.zxid
	}
	return ""
}

// vacant says why a node could not be made at the path; "" if it could.
func (t *txn) vacant(path string) coordination.Reason {
	if path == "/" {
		return coordination.ReasonExists
	}
	parent, _ := split(path)
	if st := t.look(parent); st == nil || st.owner != nil {
		return coordination.ReasonParent
	}
	if t.look(path) != nil {
		return coordination.ReasonExists
	}
	return ""
}

func (t *txn) create(path string, data []byte, owner *session) coordination.Reason {
	if why := t.vacant(path); why != "" {
		return why
	}
	parent, _ := split(path)
	t.edit(parent).children++
	c := t.edit(path)
	c.state = state{data: slices.Clone(data), czxid: t.zxid, mzxid: t.zxid, mtime: t.now, owner: owner}
	c.exists, c.wrote, c.stored = true, true, true
	return ""
}

func (t *txn) createSequential(op *coordination.Op, r *coordination.Result) coordination.Reason {
	parent, _ := split(op.Path)
	if st := t.look(parent); st == nil || st.owner != nil {
		return coordination.ReasonParent
	}
	for {
		p := t.edit(parent)
		r.Path = fmt.Sprintf("%s%010d", op.Path, p.sequence)
		p.sequence++
		p.stored = true
		// Somebody may have made a node of that very name by hand.
		if why := t.create(r.Path, op.Data, t.by); why != coordination.ReasonExists {
			return why
		}
	}
}

func (t *txn) ensure(path string) coordination.Reason {
	if t.look(path) != nil {
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
	t.edit(parent).children--
	c := t.edit(path)
	c.state = state{}
	c.exists, c.wrote, c.stored = false, true, true
}
