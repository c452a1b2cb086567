package coordination_test

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/wasmjob/wasmjob/coordination/admin/operate"
	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/tree"
)

// modelNode is a node of the model's registry. Transaction numbers are not kept:
// nothing that is modelled compares those of two nodes, and of one node they
// grow with its version. So nothing is said here about fences.
type modelNode struct {
	path, data string
	version    int32
	owner      int8 // 1 + the host whose session it goes with; 0: persistent
}

// modelClock is the node that stands for the clock, which all hosts see: its
// version is how many of the instants have come.
const modelClock = "/clock"

// modelTree is a state of the registry. It is never changed.
type modelTree struct {
	id     int32
	nodes  []*modelNode // by path
	serial int          // of the next sequential node
	wrong  string       // what no registry may ever hold
}

func (t *modelTree) find(path string) (int, bool) {
	return slices.BinarySearchFunc(t.nodes, path, func(n *modelNode, path string) int { return strings.Compare(n.path, path) })
}

func (t *modelTree) get(path string) *modelNode {
	if k, ok := t.find(path); ok {
		return t.nodes[k]
	}
	return nil
}

// below yields the names of the children of path.
func (t *modelTree) below(path string) []string {
	var names []string
	k, _ := t.find(path + "/")
	for ; k < len(t.nodes) && strings.HasPrefix(t.nodes[k].path, path+"/"); k++ {
		if name := t.nodes[k].path[len(path)+1:]; !strings.Contains(name, "/") {
			names = append(names, name)
		}
	}
	return names
}

func (t *modelTree) read(queries []registry.Query) []registry.Node {
	nodes := make([]registry.Node, len(queries))
	for k, q := range queries {
		nodes[k].Query = q
		n := t.get(q.Path)
		if n == nil {
			continue
		}
		nodes[k].Exists, nodes[k].Version, nodes[k].Ephemeral = true, n.version, n.owner != 0
		nodes[k].Czxid, nodes[k].Mzxid = 1, int64(n.version)+1
		if q.Children {
			nodes[k].Names = t.below(q.Path)
		} else {
			nodes[k].Data = []byte(n.data)
		}
	}
	return nodes
}

// nodeState tells two states of a node, or of its children, apart.
func nodeState(n registry.Node) string {
	return fmt.Sprint(n.Exists, n.Version, n.Names, string(n.Data))
}

// modelForest holds each state of the registry once.
type modelForest struct {
	layout tree.Layout
	nodes  map[modelNode]*modelNode
	number map[*modelNode]uint32
	trees  []*modelTree
	byKey  map[string]*modelTree
}

func newModelForest() *modelForest {
	return &modelForest{layout: tree.NewLayout("model", "demo"), nodes: make(map[modelNode]*modelNode), number: make(map[*modelNode]uint32),
		byKey: make(map[string]*modelTree)}
}

func (f *modelForest) node(n modelNode) *modelNode {
	known := f.nodes[n]
	if known == nil {
		known = &n
		f.nodes[n], f.number[known] = known, uint32(len(f.number))
	}
	return known
}

func (f *modelForest) tree(nodes []*modelNode, serial int) *modelTree {
	key := binary.LittleEndian.AppendUint32(nil, uint32(serial))
	for _, n := range nodes {
		key = binary.LittleEndian.AppendUint32(key, f.number[n])
	}
	if known := f.byKey[string(key)]; known != nil {
		return known
	}
	t := &modelTree{id: int32(len(f.trees)), nodes: nodes, serial: serial}
	t.wrong = f.owners(t)
	f.trees = append(f.trees, t)
	f.byKey[string(key)] = t
	return t
}

// owners says whether an item is in two assignments.
func (f *modelForest) owners(t *modelTree) string {
	owner := make(map[int]string)
	base := f.layout.Sibling() + "/assignment"
	for _, id := range t.below(base) {
		items, err := tree.ParseItems(t.get(base + "/" + id).data)
		if err != nil {
			return fmt.Sprintf("assignment of %s: %v", id, err)
		}
		for _, i := range items {
			if other, taken := owner[i]; taken {
				return fmt.Sprintf("item %d is assigned to %s and to %s", i, other, id)
			}
			owner[i] = id
		}
	}
	return ""
}

// without is the tree after the session of a host has ended.
func (f *modelForest) without(t *modelTree, host int) *modelTree {
	left := slices.DeleteFunc(slices.Clone(t.nodes), func(n *modelNode) bool { return n.owner == int8(host+1) })
	return f.tree(left, t.serial)
}

// edited is the tree after an operator has disabled or enabled a host's server,
// or for host -1 has changed the total count; nil where there is nothing to edit.
func (f *modelForest) edited(t *modelTree, host int) *modelTree {
	path := f.layout.Root() + "/config"
	if host >= 0 {
		path = f.layout.Root() + "/servers/" + modelSelf(host).ServerIP
	}
	k, found := t.find(path)
	if !found {
		return nil
	}
	n := *t.nodes[k]
	n.version++
	switch count := "shardingTotalCount: "; {
	case host < 0 && strings.Contains(n.data, count+fmt.Sprint(modelItems)):
		n.data = strings.Replace(n.data, count+fmt.Sprint(modelItems), count+fmt.Sprint(modelItems-1), 1)
	case host < 0:
		n.data = strings.Replace(n.data, count+fmt.Sprint(modelItems-1), count+fmt.Sprint(modelItems), 1)
	case n.data == "DISABLED":
		n.data = "ENABLED"
	default:
		n.data = "DISABLED"
	}
	nodes := slices.Clone(t.nodes)
	nodes[k] = f.node(n)
	return f.tree(nodes, t.serial)
}

// What an operator can say.
const (
	saysDisable = iota
	saysEnable
	saysStop
	saysRemove
	saysRestore
	modelWords
)

// said is the tree after an operator has said a word; nil if it cannot be said.
func (f *modelForest) said(t *modelTree, word int) *modelTree {
	r := &modelOperator{forest: f, tree: t}
	ctx, l, by := context.Background(), f.layout, tree.Word{By: "ann"}
	var err error
	switch word {
	case saysDisable, saysEnable:
		_, err = operate.SetServers(ctx, r, l, by, word == saysEnable)
	case saysStop:
		var ids []string
		ids = append(ids, t.below(l.Instances())...)
		_, err = operate.Stop(ctx, r, l, by, tree.WholeJob, ids)
	case saysRemove:
		err = operate.Remove(ctx, r, l, by, false)
	case saysRestore:
		err = operate.Restore(ctx, r, l, by)
	}
	if err != nil || r.tree == t {
		return nil
	}
	return r.tree
}

// modelOperator is the registry for what somebody does at one moment.
type modelOperator struct {
	forest *modelForest
	tree   *modelTree
}

func (r *modelOperator) Commit(_ context.Context, ops ...registry.Op) (results []registry.Result, err error) {
	r.tree, results, _, err = r.forest.commit(r.tree, -1, ops)
	return results, err
}

func (r *modelOperator) Read(_ context.Context, q ...registry.Query) ([]registry.Node, error) {
	return r.tree.read(q), nil
}

func (*modelOperator) Watch(context.Context, ...registry.Query) (<-chan registry.Snapshot, error) {
	return nil, registry.ErrUnavailable
}
func (*modelOperator) Trust() (registry.Trust, <-chan struct{}) { return registry.TrustLive, nil }
func (*modelOperator) Trusted() bool                            { return true }
func (*modelOperator) Lost() <-chan struct{}                    { return nil }
func (*modelOperator) Close() error                             { return nil }

// later is the tree when the next instant has come.
func (f *modelForest) later(t *modelTree) *modelTree {
	nodes := slices.Clone(t.nodes)
	k, _ := t.find(modelClock)
	n := *nodes[k]
	n.version++
	nodes[k] = f.node(n)
	return f.tree(nodes, t.serial)
}

// saying is what a commit says of an item.
type saying struct {
	item, instant int
	what          byte
	over          int  // the instant of the open run in whose place it is begun, of another host; -1: none
	owned         bool // the item is in the host's assignment, or was claimed from one that is gone
}

// What a commit can say: an item is begun, completed, lost, or handed back.
const (
	saysBegun byte = iota
	saysCompleted
	saysLost
	saysBack
)

func dirOf(path string) string { return path[:strings.LastIndexByte(path, '/')] }

// commit applies all ops of a host or none.
func (f *modelForest) commit(t *modelTree, host int, ops []registry.Op) (*modelTree, []registry.Result, []saying, error) {
	next := &modelTree{nodes: slices.Clone(t.nodes), serial: t.serial}
	put := func(n modelNode) {
		k, found := next.find(n.path)
		if !found {
			next.nodes = slices.Insert(next.nodes, k, nil)
		}
		next.nodes[k] = f.node(n)
	}
	var said []saying
	results := make([]registry.Result, len(ops))
	for i, op := range ops {
		fail := func(why registry.Reason) (*modelTree, []registry.Result, []saying, error) {
			return t, nil, nil, &registry.OpError{Index: i, Op: op, Reason: why}
		}
		n := next.get(op.Path)
		results[i].Path = op.Path
		switch op.Kind {
		case registry.OpEnsure:
			for k, c := range op.Path + "/" {
				if c == '/' && k > 0 && next.get(op.Path[:k]) == nil {
					put(modelNode{path: op.Path[:k]})
				}
			}
		case registry.OpCreate, registry.OpEphemeral, registry.OpSequential, registry.OpAbsent:
			path := op.Path
			if next.get(dirOf(path)) == nil {
				return fail(registry.ReasonParent)
			}
			if op.Kind == registry.OpSequential {
				next.serial++
				path += fmt.Sprintf("%010d", next.serial)
			} else if n != nil {
				return fail(registry.ReasonExists)
			}
			if op.Kind == registry.OpAbsent {
				break
			}
			made := modelNode{path: path, data: string(op.Data)}
			if op.Kind != registry.OpCreate {
				made.owner = int8(host + 1)
			}
			put(made)
			results[i].Path = path
		default:
			switch {
			case n == nil:
				return fail(registry.ReasonAbsent)
			case op.Version != registry.AnyVersion && op.Version != n.version:
				return fail(registry.ReasonVersion)
			}
			switch op.Kind {
			case registry.OpSet:
				put(modelNode{op.Path, string(op.Data), n.version + 1, n.owner})
				results[i].Version, results[i].Zxid = n.version+1, int64(n.version)+2
				if s, ok := f.says(next, host, n.data, op); ok {
					said = append(said, s)
				}
			case registry.OpDelete:
				if len(next.below(op.Path)) > 0 {
					return fail(registry.ReasonChildren)
				}
				k, _ := next.find(op.Path)
				next.nodes = slices.Delete(next.nodes, k, k+1)
			}
		}
	}
	return f.tree(next.nodes, next.serial), results, said, nil
}

func (f *modelForest) says(t *modelTree, host int, before string, op registry.Op) (saying, bool) {
	name, ok := strings.CutPrefix(op.Path, f.layout.Sibling()+"/sharding/")
	if !ok {
		return saying{}, false
	}
	var s saying
	r, was := tree.Record{}, tree.Record{}
	if _, err := fmt.Sscan(name, &s.item); err != nil || json.Unmarshal(op.Data, &r) != nil || r.Begun == 0 {
		return saying{}, false
	}
	if before != "" && json.Unmarshal([]byte(before), &was) != nil {
		return saying{}, false
	}
	if !r.Open() && !was.Open() && r.Ended == was.Ended && r.Outcome == was.Outcome {
		return saying{}, false // a division writes down an item that comes back
	}
	s.instant, s.over = slices.Index(modelInstants, max(r.Instant, was.Instant)), -1 // what is handed back is of an instant before
	if was.Open() && was.Instant != r.Instant {
		s.over = slices.Index(modelInstants, was.Instant)
	}
	switch {
	case r.Open():
		s.what = saysBegun
		if share := t.get(f.layout.Sibling() + "/assignment/" + modelSelf(host).ID); share != nil {
			items, err := tree.ParseItems(share.data)
			s.owned = err == nil && items.Contains(s.item)
		}
		s.owned = s.owned || r.Source == "failover"
	case r.Outcome == tree.OutcomeLost:
		s.what = saysLost
	case r.Outcome == tree.OutcomeCancelled:
		s.what = saysBack
	default:
		s.what = saysCompleted
	}
	return s, true
}

func describeOps(ops []registry.Op) string {
	var b strings.Builder
	for i, op := range ops {
		if op.Kind == registry.OpEnsure {
			continue
		}
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "%s %s %s", op.Kind, strings.TrimPrefix(op.Path, "/model"), op.Data)
	}
	return b.String()
}
