package registrytest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/wasmjob/wasmjob/coordination/registry"
)

// model is a registry that is obviously correct: a commit works on a copy. It takes sequential numbers from the
// registry's results, since their values are up to the registry.
type model map[string]modelNode

type modelNode struct {
	data    string
	version int32
	owner   int // 0: persistent
}

func parentOf(path string) string { return path[:strings.LastIndexByte(path, '/')] }

func (m model) hasChildren(path string) bool {
	for p := range m {
		if strings.HasPrefix(p, path+"/") {
			return true
		}
	}
	return false
}

// commit returns what the registry must answer, or which op must fail and why. made has the paths of the
// sequential nodes, by op.
func (m model) commit(owner int, ops []registry.Op, made func(i int) string) (model, *registry.OpError) {
	next := maps.Clone(m)
	for i, op := range ops {
		n, exists := next[op.Path]
		parent, hasParent := next[parentOf(op.Path)]
		var why registry.Reason
		switch op.Kind {
		case registry.OpCreate, registry.OpEphemeral, registry.OpSequential, registry.OpAbsent:
			if !hasParent || parent.owner != 0 {
				why = registry.ReasonParent
			} else if exists && op.Kind != registry.OpSequential {
				why = registry.ReasonExists
			}
		case registry.OpSet, registry.OpDelete, registry.OpCheck:
			if !exists {
				why = registry.ReasonAbsent
			} else if op.Version != registry.AnyVersion && op.Version != n.version {
				why = registry.ReasonVersion
			} else if op.Kind == registry.OpDelete && next.hasChildren(op.Path) {
				why = registry.ReasonChildren
			}
		}
		if why != "" {
			return m, &registry.OpError{Index: i, Op: op, Reason: why}
		}
		switch op.Kind {
		case registry.OpCreate:
			next[op.Path] = modelNode{data: string(op.Data)}
		case registry.OpEphemeral:
			next[op.Path] = modelNode{data: string(op.Data), owner: owner}
		case registry.OpSequential:
			next[made(i)] = modelNode{data: string(op.Data), owner: owner}
		case registry.OpSet:
			next[op.Path] = modelNode{string(op.Data), n.version + 1, n.owner}
		case registry.OpDelete:
			delete(next, op.Path)
		case registry.OpEnsure:
			if !exists {
				if _, err := next.ensure(op.Path); err != "" {
					return m, &registry.OpError{Index: i, Op: op, Reason: err}
				}
			}
		}
	}
	return next, nil
}

func (m model) ensure(path string) (modelNode, registry.Reason) {
	if n, ok := m[path]; ok {
		return n, ""
	}
	if p, err := m.ensure(parentOf(path)); err != "" || p.owner != 0 {
		return p, registry.ReasonParent
	}
	m[path] = modelNode{}
	return m[path], ""
}

func (m model) end(owner int) model {
	next := maps.Clone(m)
	maps.DeleteFunc(next, func(_ string, n modelNode) bool { return n.owner == owner })
	return next
}

// differs says where a registry's tree differs from the model's, "" if nowhere.
func (m model) differs(tree Tree) string {
	for _, n := range tree {
		want, ok := m[n.Path]
		switch {
		case !ok:
			return fmt.Sprintf("%s exists", n.Path)
		case !bytes.Equal(n.Data, []byte(want.data)), n.Version != want.version, n.Ephemeral != (want.owner != 0):
			return fmt.Sprintf("%s is %q, version %d, ephemeral %v; want %q, %d, %v",
				n.Path, n.Data, n.Version, n.Ephemeral, want.data, want.version, want.owner != 0)
		}
	}
	if len(tree) != len(m) {
		have := make(map[string]bool)
		for _, n := range tree {
			have[n.Path] = true
		}
		for path := range m {
			if !have[path] {
				return fmt.Sprintf("%s does not exist", path)
			}
		}
	}
	return ""
}

// RandomCommit returns random ops on a handful of paths below root, about half of them bound to fail. A
// [registry.Ensure] can only be the first op.
func RandomCommit(r *rand.Rand, root string) []registry.Op {
	path := func() string {
		p := root
		for range 1 + r.IntN(3) {
			p += "/" + string(rune('a'+r.IntN(3)))
		}
		return p
	}
	version := func() int32 {
		if r.IntN(2) == 0 {
			return registry.AnyVersion
		}
		return r.Int32N(4)
	}
	data := func() []byte { return fmt.Appendf(nil, "%d", r.IntN(1000)) }
	var ops []registry.Op
	if r.IntN(6) == 0 {
		ops = append(ops, registry.Ensure(path()))
	}
	for range 1 + r.IntN(4) {
		switch r.IntN(9) {
		case 0, 1:
			ops = append(ops, registry.Create(path(), data()))
		case 2:
			ops = append(ops, registry.CreateEphemeral(path(), data()))
		case 3:
			ops = append(ops, registry.CreateSequential(path()+"-", data()))
		case 4, 5:
			ops = append(ops, registry.Set(path(), data(), version()))
		case 6:
			ops = append(ops, registry.Delete(path(), version()))
		case 7:
			ops = append(ops, registry.Check(path(), version()))
		case 8:
			ops = append(ops, registry.Absent(path()))
		}
	}
	return ops
}

// Walk sends the same random commits, by sessions that come and end, to each server and to a naive model, and
// demands the same answers and the same tree below root, which must exist and be empty. r is the only source of
// randomness: the same seed is the same walk.
func Walk(t testing.TB, r *rand.Rand, steps int, root string, servers ...Server) {
	t.Helper()
	const sessions = 3
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	walkers := make([]*walker, len(servers))
	for i, s := range servers {
		walkers[i] = &walker{TB: t, ctx: ctx, server: s, root: root, model: model{root: {}}, rcs: make([]registry.Center, sessions), ids: make([]int, sessions)}
		for j := range sessions {
			walkers[i].connect(j)
		}
	}
	for step := range steps {
		who := r.IntN(sessions)
		switch dice := r.IntN(30); {
		case dice < 2:
			for _, w := range walkers {
				w.end(who, dice == 0)
			}
		default:
			ops := RandomCommit(r, root)
			for i, w := range walkers {
				if what := w.commit(who, ops); what != "" {
					t.Fatalf("step %d, session %d, server %d: commit %s: %s", step, who, i, describe(ops), what)
				}
			}
		}
		for i, w := range walkers {
			if what := w.model.differs(dump(ctx, t, w.rcs[who], root)); what != "" {
				t.Fatalf("step %d, session %d, server %d: %s", step, who, i, what)
			}
		}
	}
	for _, w := range walkers {
		for _, rc := range w.rcs {
			if err := rc.Close(); err != nil {
				t.Errorf("close: %v", err)
			}
		}
	}
}

// walker is one server's side of a walk.
type walker struct {
	testing.TB
	ctx    context.Context
	server Server
	root   string
	model  model
	rcs    []registry.Center
	ids    []int // the session's owner in the model
	last   int
	order  map[string]string // the last sequential number, by parent
}

func (w *walker) connect(i int) {
	w.last++
	w.rcs[i], w.ids[i] = w.server.Connect(w.TB), w.last
	w.settle(i)
}

// settle waits until session i sees the current tree: sessions of a networked registry may lag behind each
// other.
func (w *walker) settle(i int) {
	ctx, cancel := context.WithCancel(w.ctx)
	defer cancel()
	var queries []registry.Query
	for path := range w.model {
		queries = append(queries, registry.Data(path), registry.Children(path))
	}
	ch, err := w.rcs[i].Watch(ctx, queries...)
	if err != nil {
		w.Fatalf("watch: %v", err)
	}
	for s := range ch {
		ok := true
		for path, n := range w.model {
			var names []string
			for p := range w.model {
				if p != w.root && parentOf(p) == path {
					names = append(names, p[len(path)+1:])
				}
			}
			slices.Sort(names)
			got := s.Data(path)
			ok = ok && got.Exists && got.Version == n.version && string(got.Data) == n.data && slices.Equal(s.Children(path), names)
		}
		if ok {
			return
		}
	}
	w.Fatal("a session never saw the tree as another one left it")
}

func (w *walker) end(i int, expire bool) {
	if expire {
		w.server.Expire(w.TB, w.rcs[i])
	}
	if err := w.rcs[i].Close(); err != nil {
		w.Errorf("close: %v", err)
	}
	w.model = w.model.end(w.ids[i])
	w.connect(i)
}

// commit returns what is wrong with the registry's answer, "" if nothing.
func (w *walker) commit(who int, ops []registry.Op) string {
	w.settle(who)
	results, err := w.rcs[who].Commit(w.ctx, ops...)
	next, want := w.model.commit(w.ids[who], ops, func(i int) string {
		if i < len(results) {
			return results[i].Path
		}
		return ops[i].Path + "?"
	})
	var got *registry.OpError
	switch {
	case err != nil && !errors.As(err, &got):
		return fmt.Sprintf("error %v", err)
	case (got == nil) != (want == nil):
		return fmt.Sprintf("error %v, want %v", err, want)
	case got != nil && (got.Index != want.Index || got.Reason != want.Reason):
		return fmt.Sprintf("error %v, want %v", got, want)
	case got != nil:
		return w.ensured(who, ops)
	}
	for i, op := range ops {
		if op.Kind == registry.OpSequential {
			number, ok := strings.CutPrefix(results[i].Path, op.Path)
			if parent := parentOf(op.Path); !ok || len(number) != 10 || number <= w.order[parent] {
				return fmt.Sprintf("sequential path %q after number %q", results[i].Path, w.order[parent])
			} else if w.order == nil {
				w.order = map[string]string{parent: number}
			} else {
				w.order[parent] = number
			}
		}
		if op.Kind == registry.OpDelete {
			delete(w.order, op.Path) // a new node counts anew
		}
	}
	w.model = next
	return ""
}

// ensured adds to the model the nodes that a failed commit's Ensure created.
func (w *walker) ensured(who int, ops []registry.Op) string {
	if ops[0].Kind != registry.OpEnsure {
		return ""
	}
	for i, c := range ops[0].Path {
		if c != '/' || i <= len(w.root) {
			continue
		}
		w.adopt(who, ops[0].Path[:i])
	}
	w.adopt(who, ops[0].Path)
	return ""
}

func (w *walker) adopt(who int, path string) {
	if _, known := w.model[path]; known {
		return
	}
	nodes, err := w.rcs[who].Read(w.ctx, registry.Data(path))
	if err != nil {
		w.Fatalf("read %s: %v", path, err)
	}
	if nodes[0].Exists {
		w.model[path] = modelNode{}
	}
}
