package coordination_test

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"hash/fnv"
	"iter"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	co "github.com/wasmjob/wasmjob/coordination"
)

var (
	modelSwitches = flag.Int("model.switches", 1, "how often a host that could go on is made to wait for another")
	modelCrashes  = flag.Int("model.crashes", 1, "how many hosts die, at any point")
	modelTime     = flag.Duration("model.time", 10*time.Second, "how long the model is explored at most, for each size; 0 is to the end")
)

// TestModel explores what hosts can do to each other: two and three of them run
// the real moves of this package on a registry that is a map, one operation at
// a time, and every order of the operations is tried with at most so many
// switches away from a host that could go on, so many deaths, each at any point,
// and one answer that is lost. A host that waits for news is left for any other
// without counting. States that were met with as much left to try are not gone
// into again.
//
// It covers joining, the election with its latch, the division of three items,
// two fires (begin and complete), and recovery with failover on and off. After
// every operation: no item runs on two hosts, no completed run begins again,
// fences grow, no item is in two assignments. When nobody has anything to do:
// every item has run for every fire, or is written down as lost, and no mark is
// left.
func TestModel(t *testing.T) {
	t.Parallel()
	for _, size := range []struct {
		hosts    int
		failover bool
	}{{2, true}, {2, false}, {3, true}} {
		t.Run(fmt.Sprintf("%d hosts, failover %v", size.hosts, size.failover), func(t *testing.T) {
			t.Parallel()
			limit := *modelTime
			if testing.Short() {
				limit = min(limit, 3*time.Second)
			}
			m := &model{t: t, hosts: size.hosts, failover: size.failover, seen: make(map[uint64]bool)}
			if limit > 0 {
				ctx, cancel := context.WithTimeout(t.Context(), limit)
				defer cancel()
				m.ctx = ctx
			} else {
				m.ctx = t.Context()
			}
			done := m.explore()
			t.Logf("%d states, %d operations, %d endings; all orders with %d switches, %d deaths and a lost answer: %v",
				len(m.seen), m.operations, m.endings, *modelSwitches, *modelCrashes, done)
			if m.endings == 0 {
				t.Error("no path came to its end")
			}
		})
	}
}

// The choices at a point, besides letting the host with the number go on.
const (
	crashChoice = 100 // + host
	loseChoice  = 200 // + host: its commit is applied and the answer lost
)

// model explores depth first. A state cannot be copied, for it is in the
// closures of moves; so a path is remembered by its choices, and gone again.
type model struct {
	t        *testing.T
	ctx      context.Context
	hosts    int
	failover bool

	seen                map[uint64]bool
	operations, endings int
}

// branch is a point of the path with choices that are left.
type branch struct {
	depth int
	left  []int
}

// explore reports whether it came to the end.
func (m *model) explore() bool {
	var path []int
	var open []branch
	for {
		w := newModelWorld(m)
		for _, choice := range path {
			w.do(choice)
		}
		for {
			choices := w.choices()
			key := w.key(choices)
			if m.seen[key] {
				break
			}
			m.seen[key] = true
			if len(choices) == 0 {
				m.endings++
				w.ending()
				break
			}
			if len(choices) > 1 {
				open = append(open, branch{len(path), choices[1:]})
			}
			path = append(path, choices[0])
			w.do(choices[0])
			if w.wrong != "" {
				break
			}
		}
		wrong := w.wrong
		story := w.story
		w.close()
		if wrong != "" {
			m.t.Fatalf("%s\n\npath %v\n%s", wrong, path, strings.Join(story, "\n"))
		}
		if len(open) == 0 {
			return true
		}
		if m.ctx.Err() != nil {
			return false
		}
		last := &open[len(open)-1]
		path = append(slices.Clone(path[:last.depth]), last.left[0])
		if last.left = last.left[1:]; len(last.left) == 0 {
			open = open[:len(open)-1]
		}
	}
}

// modelNode is a node of the registry that is a map.
type modelNode struct {
	data         string
	version      int32
	czxid, mzxid int64
	owner        int // 1 + the host whose session it goes with; 0: persistent
}

// modelWorld is one state, on its path.
type modelWorld struct {
	m      *model
	layout co.Layout
	tree   map[string]*modelNode
	zxid   int64
	serial int
	actors []*actor
	at     int // the host that acted last
	// What is left to try.
	switches, crashes, losses int

	running map[int]int // item → 1 + host
	fence   map[int]int64
	closed  map[string]bool // item/instant
	lost    map[string]bool
	story   []string
	wrong   string
}

func newModelWorld(m *model) *modelWorld {
	w := &modelWorld{m: m, layout: co.NewLayout("model", "demo"), tree: map[string]*modelNode{"": {}},
		switches: *modelSwitches, crashes: *modelCrashes, losses: 1, at: -1,
		running: make(map[int]int), fence: make(map[int]int64), closed: make(map[string]bool), lost: make(map[string]bool)}
	for n := range m.hosts {
		a := &actor{w: w, n: n, self: co.NewJobInstance(fmt.Sprintf("10.0.0.%d", n+1), fmt.Sprint(n+1))}
		next, stop := iter.Pull(a.live)
		a.next, a.stop = next, stop
		a.pending, a.more = next()
		w.actors = append(w.actors, a)
	}
	return w
}

func (w *modelWorld) close() {
	for _, a := range w.actors {
		a.stop()
	}
}

func (w *modelWorld) fault(format string, args ...any) {
	if w.wrong == "" {
		w.wrong = fmt.Sprintf(format, args...)
	}
}

// choices are what can happen now; the first is what happens undisturbed.
func (w *modelWorld) choices() []int {
	var list, others []int
	for n, a := range w.actors {
		switch {
		case !a.enabled():
		case n == w.at:
			list = append(list, n)
		default:
			others = append(others, n)
		}
	}
	if len(list) == 0 || w.switches > 0 {
		list = append(list, others...)
	}
	if len(list) == 0 {
		return nil
	}
	for n, a := range w.actors {
		if a.dead {
			continue
		}
		if w.losses > 0 && n == list[0] && a.enabled() && a.pending.ops != nil {
			list = append(list, loseChoice+n)
		}
		if w.crashes > 0 {
			list = append(list, crashChoice+n)
		}
	}
	return list
}

func (w *modelWorld) do(choice int) {
	switch {
	case choice >= loseChoice:
		w.losses--
		w.act(w.actors[choice-loseChoice], true)
	case choice >= crashChoice:
		w.crashes--
		w.crash(w.actors[choice-crashChoice])
	default:
		if w.at >= 0 && w.at != choice && w.actors[w.at].enabled() {
			w.switches--
		}
		w.act(w.actors[choice], false)
	}
}

// act carries out the operation that the host waits for.
func (w *modelWorld) act(a *actor, loseAnswer bool) {
	w.m.operations++
	w.at = a.n
	c := a.pending
	switch {
	case c.ops != nil:
		a.results, a.err = w.commit(a, c.ops)
		what := ""
		if a.err != nil {
			what = ": " + a.err.Error()
		}
		if loseAnswer {
			a.results, a.err = nil, co.ErrUnknown
			what += ": the answer is lost"
		}
		w.story = append(w.story, fmt.Sprintf("%d commits %s%s", a.n+1, describeOps(c.ops), what))
		a.note(what, a.results)
	case c.queries != nil:
		a.nodes = w.read(c.queries)
		a.note("", a.nodes)
	}
	a.waits = nil
	a.pending, a.more = a.next()
	w.invariants()
}

func (w *modelWorld) crash(a *actor) {
	w.story = append(w.story, fmt.Sprintf("%d dies", a.n+1))
	a.dead, a.more = true, false
	a.stop()
	w.zxid++
	maps.DeleteFunc(w.tree, func(_ string, n *modelNode) bool { return n.owner == a.n+1 })
	for i, by := range w.running {
		if by == a.n+1 {
			delete(w.running, i)
		}
	}
}

func describeOps(ops []co.Op) string {
	var b strings.Builder
	for i, op := range ops {
		if op.Kind == co.OpEnsure {
			continue
		}
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "%s %s %s", op.Kind, strings.TrimPrefix(op.Path, "/model"), op.Data)
	}
	return b.String()
}

func dirOf(path string) string { return path[:strings.LastIndexByte(path, '/')] }

// commit applies all ops or none.
func (w *modelWorld) commit(a *actor, ops []co.Op) ([]co.Result, error) {
	next := make(map[string]*modelNode, len(w.tree)+len(ops))
	maps.Copy(next, w.tree)
	a.entries = nil // of a commit that was refused half way
	zxid := w.zxid + 1
	results := make([]co.Result, len(ops))
	children := func(path string) bool {
		for p := range next {
			if strings.HasPrefix(p, path+"/") {
				return true
			}
		}
		return false
	}
	for i, op := range ops {
		fail := func(why co.Reason) ([]co.Result, error) { return nil, &co.OpError{Index: i, Op: op, Reason: why} }
		n := next[op.Path]
		results[i].Path = op.Path
		switch op.Kind {
		case co.OpEnsure:
			for k, c := range op.Path + "/" {
				if c == '/' && k > 0 && next[op.Path[:k]] == nil {
					next[op.Path[:k]] = &modelNode{czxid: zxid, mzxid: zxid}
				}
			}
		case co.OpCreate, co.OpEphemeral, co.OpSequential, co.OpAbsent:
			path := op.Path
			if next[dirOf(path)] == nil {
				return fail(co.ReasonParent)
			}
			if op.Kind == co.OpSequential {
				w.serial++
				path += fmt.Sprintf("%010d", w.serial)
			} else if n != nil {
				return fail(co.ReasonExists)
			}
			if op.Kind == co.OpAbsent {
				break
			}
			made := &modelNode{data: string(op.Data), czxid: zxid, mzxid: zxid}
			if op.Kind != co.OpCreate {
				made.owner = a.n + 1
			}
			next[path], results[i].Path = made, path
		default:
			switch {
			case n == nil:
				return fail(co.ReasonAbsent)
			case op.Version != co.AnyVersion && op.Version != n.version:
				return fail(co.ReasonVersion)
			}
			switch op.Kind {
			case co.OpSet:
				next[op.Path] = &modelNode{string(op.Data), n.version + 1, n.czxid, zxid, n.owner}
				results[i].Version, results[i].Zxid = n.version+1, zxid
				w.journal(a, op, zxid)
			case co.OpDelete:
				if children(op.Path) {
					return fail(co.ReasonChildren)
				}
				delete(next, op.Path)
			}
		}
	}
	w.tree, w.zxid = next, zxid
	for _, e := range a.entries {
		e()
	}
	return results, nil
}

// journal remembers what a commit says of an item, until it is applied.
func (w *modelWorld) journal(a *actor, op co.Op, zxid int64) {
	name, ok := strings.CutPrefix(op.Path, w.layout.Sibling()+"/sharding/")
	if !ok {
		return
	}
	var i int
	var r co.Record
	if _, err := fmt.Sscan(name, &i); err != nil || json.Unmarshal(op.Data, &r) != nil {
		return
	}
	run := fmt.Sprintf("%d/%d", i, r.Instant)
	a.entries = append(a.entries, func() {
		switch {
		case !r.Open() && r.Begun == 0: // it comes to be
		case r.Open():
			if w.closed[run] {
				w.fault("host %d begins item %d for %d, which is completed", a.n+1, i, r.Instant)
			}
			if zxid <= w.fence[i] {
				w.fault("fence %d of item %d after %d", zxid, i, w.fence[i])
			}
			w.fence[i] = zxid
			if by := w.running[i]; by != 0 && by != a.n+1 {
				w.fault("host %d begins item %d, which runs on host %d", a.n+1, i, by)
			}
			w.running[i] = a.n + 1
		case r.Outcome == co.OutcomeLost:
			w.lost[run], w.closed[run] = true, true
		case r.Outcome == co.OutcomeCancelled: // handed back
			delete(w.running, i)
		default:
			w.closed[run] = true
			if by := w.running[i]; by != a.n+1 {
				w.fault("host %d completes item %d, which runs on host %d", a.n+1, i, by)
			}
			delete(w.running, i)
		}
	})
}

func (w *modelWorld) read(queries []co.Query) []co.Node {
	nodes := make([]co.Node, len(queries))
	for k, q := range queries {
		nodes[k].Query = q
		n := w.tree[q.Path]
		if n == nil {
			continue
		}
		nodes[k].Exists, nodes[k].Version, nodes[k].Czxid, nodes[k].Mzxid, nodes[k].Ephemeral = true, n.version, n.czxid, n.mzxid, n.owner != 0
		if !q.Children {
			nodes[k].Data = []byte(n.data)
			continue
		}
		for p := range w.tree {
			if len(p) > len(q.Path) && dirOf(p) == q.Path && p[len(q.Path)] == '/' {
				nodes[k].Names = append(nodes[k].Names, p[len(q.Path)+1:])
			}
		}
		slices.Sort(nodes[k].Names)
	}
	return nodes
}

// version tells two states of a node, or of its children, apart.
func (w *modelWorld) version(q co.Query) string {
	n := w.read([]co.Query{q})[0]
	return fmt.Sprint(n.Exists, n.Version, n.Names, string(n.Data))
}

func (w *modelWorld) assignments() map[string]co.Items {
	shares := make(map[string]co.Items)
	base := w.layout.Sibling() + "/assignment/"
	for path, n := range w.tree {
		if id, ok := strings.CutPrefix(path, base); ok {
			items, err := co.ParseItems(n.data)
			if err != nil {
				w.fault("assignment of %s: %v", id, err)
			}
			shares[id] = items
		}
	}
	return shares
}

func (w *modelWorld) invariants() {
	owner := make(map[int]string)
	for id, items := range w.assignments() {
		for _, i := range items {
			if other, taken := owner[i]; taken {
				w.fault("item %d is assigned to %s and to %s", i, other, id)
			}
			owner[i] = id
		}
	}
}

const modelItems = 3

// The instants of the model: the items come to be, and two fires.
var modelInstants = []int64{2000, 3000}

// ending is checked when nobody has anything to do.
func (w *modelWorld) ending() {
	alive := make(map[string]bool)
	for _, a := range w.actors {
		if !a.dead {
			alive[a.self.ID] = true
		}
	}
	if len(alive) == 0 {
		return
	}
	for i := range modelItems {
		for _, at := range modelInstants {
			if !w.closed[fmt.Sprintf("%d/%d", i, at)] {
				w.fault("all hosts rest, and item %d did not run for %d", i, at)
			}
		}
	}
	root, sibling := w.layout.Root(), w.layout.Sibling()
	for path, n := range w.tree {
		tail := path[strings.LastIndexByte(path, '/')+1:]
		switch {
		case strings.HasPrefix(path, root+"/sharding/") && slices.Contains([]string{"running", "failover", "failovering"}, tail):
			w.fault("all hosts rest, and %s is left (%s)", path, n.data)
		case strings.HasPrefix(path, root+"/leader/sharding/"), strings.HasPrefix(path, root+"/leader/failover/items/"):
			w.fault("all hosts rest, and flag %s stands", path)
		case strings.HasPrefix(path, sibling+"/runs/"), strings.HasPrefix(path, sibling+"/assignment/"):
			if !alive[tail] {
				w.fault("all hosts rest, and %s is left", path)
			}
		case path == sibling+"/members":
			if got := len(strings.Fields(n.data)); got != len(alive) {
				w.fault("all hosts rest, and the members are %q", n.data)
			}
		}
	}
}

// key tells states apart: the registry, what each host knows, and what is left
// to try. Transaction numbers are left out: a node's version stands for them.
func (w *modelWorld) key(choices []int) uint64 {
	h := fnv.New64a()
	for _, path := range slices.Sorted(maps.Keys(w.tree)) {
		n := w.tree[path]
		fmt.Fprint(h, path, "\x00", n.data, "\x00", n.version, n.owner)
	}
	for _, a := range w.actors {
		fmt.Fprint(h, a.dead, a.more, a.history, a.waits)
	}
	fmt.Fprint(h, w.at, w.switches, w.crashes, w.losses, choices)
	for _, run := range slices.Sorted(maps.Keys(w.closed)) {
		fmt.Fprint(h, run)
	}
	return h.Sum64()
}

// call is an operation that a host waits for, or a wait for news.
type call struct {
	ops     []co.Op
	queries []co.Query
	idle    []co.Query // goes on when one of these has changed
}

// actor is a host: it looks, and does what the package says, for ever.
type actor struct {
	w    *modelWorld
	n    int
	self co.JobInstance
	next func() (call, bool)
	stop func()

	dead    bool
	more    bool
	pending call
	results []co.Result
	nodes   []co.Node
	err     error
	entries []func()
	history uint64   // of all that it was told since it last was in no exchange
	waits   []string // the state of what it waits for
	yield   func(call) bool

	view         co.View
	share        co.Share
	runs         co.Runs
	version      int32
	items        map[int]*simItem
	line, behind co.Line
	all          bool
}

// enabled reports whether the host has something to do.
func (a *actor) enabled() bool {
	if a.dead || !a.more {
		return false
	}
	if a.pending.idle == nil {
		return true
	}
	for k, q := range a.pending.idle {
		if a.w.version(q) != a.waits[k] {
			return true
		}
	}
	return false
}

// note takes into the history what the host was told, without numbers of
// transactions.
func (a *actor) note(what string, told any) {
	h := fnv.New64a()
	fmt.Fprint(h, a.history, what)
	switch told := told.(type) {
	case []co.Node:
		for _, n := range told {
			fmt.Fprint(h, n.Exists, n.Version, string(n.Data), n.Names)
		}
	case []co.Result:
		for _, r := range told {
			fmt.Fprint(h, r.Path, r.Version)
		}
	}
	a.history = h.Sum64()
}

// Commit, Read and the rest make the actor a registry to itself.
func (a *actor) Commit(_ context.Context, ops ...co.Op) ([]co.Result, error) {
	if !a.yield(call{ops: ops}) {
		return nil, co.ErrSessionLost
	}
	return a.results, a.err
}

func (a *actor) Read(_ context.Context, q ...co.Query) ([]co.Node, error) {
	if !a.yield(call{queries: q}) {
		return nil, co.ErrSessionLost
	}
	return a.nodes, nil
}

func (a *actor) Watch(context.Context, ...co.Query) (<-chan co.Snapshot, error) {
	return nil, co.ErrUnavailable
}
func (a *actor) Trust() (co.Trust, <-chan struct{}) { return co.TrustLive, nil }
func (a *actor) Trusted() bool                      { return true }
func (a *actor) Lost() <-chan struct{}              { return nil }
func (a *actor) Close() error                       { return nil }

// live is the host's loop.
func (a *actor) live(yield func(call) bool) {
	a.yield = func(c call) bool { return yield(c) }
	file := co.JobConfiguration{JobName: "demo", Cron: "0 * * * * ?", ShardingTotalCount: modelItems, MonitorExecution: true, Misfire: true,
		Failover: a.w.m.failover, MaxTimeDiffSeconds: -1}
	ctx := context.Background()
	err := co.ErrUnknown
	for err != nil {
		if err = co.Perform(ctx, a, co.Join(co.Joining{Layout: a.w.layout, Self: a.self, Definition: file,
			Detail: co.HostDetail{State: co.DetailReady}})); !a.goOn(err) {
			return
		}
	}
	a.items = make(map[int]*simItem)
	for {
		a.rest()
		queries := co.Control(a.w.layout, a.self)
		nodes, err := a.Read(ctx, queries...)
		if err != nil {
			return
		}
		s := make(co.Snapshot, len(nodes))
		for _, n := range nodes {
			s[n.Query] = n
		}
		a.view = co.ParseView(s, a.w.layout, a.self, a.view)
		idle, err := a.step(ctx)
		if !a.goOn(err) {
			return
		}
		if !idle {
			continue
		}
		if !a.all && len(a.view.Crashed()) > 0 {
			a.all = true // time has passed, and something is left
			continue
		}
		// Wait for news: the states are those that were read.
		wait := queries
		a.waits = nil
		for _, n := range nodes {
			a.waits = append(a.waits, fmt.Sprint(n.Exists, n.Version, n.Names, string(n.Data)))
		}
		for _, line := range []co.Line{a.line, a.behind} {
			if q, waiting := line.Waiting(); waiting {
				wait = append(wait, q)
				a.waits = append(a.waits, "gone")
				if a.w.tree[q.Path] != nil {
					a.waits[len(a.waits)-1] = a.w.version(q)
				}
			}
		}
		for i, it := range a.items {
			if it.held { // it was marked: look again when the mark is another
				q := co.Data(fmt.Sprintf("%s/sharding/%d/running", a.w.layout.Root(), i))
				wait = append(wait, q)
				a.waits = append(a.waits, a.w.version(q))
			}
		}
		if !yield(call{idle: wait}) {
			return
		}
		a.all = false
		for _, it := range a.items {
			it.held = false
		}
		for _, line := range []*co.Line{&a.line, &a.behind} {
			if q, waiting := line.Waiting(); waiting && a.w.tree[q.Path] == nil {
				line.Behind = ""
			}
		}
	}
}

// goOn reports whether the host lives and the error is one to try again after.
func (a *actor) goOn(err error) bool {
	switch {
	case err == nil:
	case strings.Contains(err.Error(), co.ErrSessionLost.Error()):
		return false
	case strings.Contains(err.Error(), co.ErrUnknown.Error()), strings.Contains(err.Error(), co.ErrConflict.Error()):
	default:
		a.w.fault("host %d: %v", a.n+1, err)
	}
	return !a.dead
}

// rest puts what the host knows in place of how it came to know it.
func (a *actor) rest() {
	h := fnv.New64a()
	fmt.Fprint(h, a.version, a.runs, a.share.Guard, a.share.Pending, a.all, a.line, a.behind, a.share.Current(a.view))
	for _, i := range slices.Sorted(maps.Keys(a.items)) {
		it := a.items[i]
		fmt.Fprint(h, i, it.owned, it.running, it.failover, it.held, it.fire, it.state.Record, it.state.RecordVersion, it.state.Misfire)
	}
	a.history = h.Sum64()
}

// step takes the next step; idle means that there is none.
func (a *actor) step(ctx context.Context) (idle bool, err error) {
	v := a.view
	now := time.UnixMilli(1000)
	var sharded co.Sharded
	if m, ok := v.Reconcile(now, a.share, &sharded, &a.line); ok {
		err := co.Perform(ctx, a, m)
		return err == nil && a.line.Behind != "", err
	}
	if !a.share.Current(v) {
		return false, a.readShare(ctx)
	}
	if busy := a.busy(); len(v.Crashed()) > 0 {
		for _, dead := range v.Crashed() {
			var out co.Recovered
			err := co.Perform(ctx, a, co.Recover(co.Recovery{View: v, Dead: dead, All: a.all, Limit: 10, Busy: busy, Line: &a.behind,
				Runs: a.runs, RunsVersion: a.version, Now: now}, &out))
			if err != nil {
				return false, err
			}
			if out.Commits > 0 {
				a.runs, a.version = out.Runs, out.RunsVersion
				for _, c := range out.Claimed {
					if a.items[c.Item] == nil {
						a.items[c.Item] = &simItem{}
					}
					it := a.items[c.Item]
					it.running, it.failover, it.state, it.fire = true, true, c.State, c.Fire
				}
				return false, nil
			}
		}
	}
	if busy := a.busy(); len(busy) > 0 {
		return false, a.complete(ctx, busy)
	}
	for _, at := range modelInstants {
		f := co.Fire{Instant: at, Source: "schedule"}
		states := make(map[int]co.ItemState)
		for i, it := range a.items {
			if it.owned && !it.running && !it.held && it.state.Record.Accepts(f) == nil {
				states[i] = it.state
			}
		}
		if len(states) > 0 {
			return false, a.begin(ctx, f, states)
		}
	}
	return true, nil
}

func (a *actor) busy() co.Items {
	var items co.Items
	for i, it := range a.items {
		if it.running {
			items = append(items, i)
		}
	}
	slices.Sort(items)
	return items
}

func (a *actor) readShare(ctx context.Context) error {
	known := make(map[int]co.ItemState)
	for i, it := range a.items {
		if it.running {
			known[i] = it.state
		}
	}
	var share co.Share
	if err := co.Perform(ctx, a, co.ReadShare(a.view, known, &share)); err != nil || share.Items == nil {
		return err
	}
	a.share = share
	for i, it := range a.items {
		if _, mine := share.Items[i]; !mine {
			if it.owned = false; !it.running {
				delete(a.items, i)
			}
		}
	}
	for i, state := range share.Items {
		if a.items[i] == nil {
			a.items[i] = &simItem{}
		}
		it := a.items[i]
		if it.owned = true; !it.running {
			it.state = state
		}
	}
	return nil
}

func (a *actor) begin(ctx context.Context, f co.Fire, states map[int]co.ItemState) error {
	var out co.Begun
	if err := co.Perform(ctx, a, co.Begin(co.Beginning{Layout: a.w.layout, Self: a.self, Fire: f, Config: a.view.Config, Items: states,
		Guard: a.share.Guard, HasGuard: true, Runs: a.runs, RunsVersion: a.version, Now: f.Time()}, &out)); err != nil {
		return err
	}
	if out.Items != nil {
		a.runs, a.version = out.Runs, out.RunsVersion
	}
	for i, state := range out.Items {
		it := a.items[i]
		it.running, it.failover, it.state, it.fire = true, false, state, f
	}
	for i, why := range out.Refused {
		if why == co.RefusedRunning || why == co.RefusedFailover {
			a.items[i].held = true
		}
	}
	if out.Stale {
		return a.readShare(ctx)
	}
	return nil
}

func (a *actor) complete(ctx context.Context, items co.Items) error {
	c := co.Completing{Layout: a.w.layout, Self: a.self, Config: a.view.Config, Items: make(map[int]co.Ended), Runs: a.runs, RunsVersion: a.version,
		Now: time.UnixMilli(5000)}
	for _, i := range items {
		it := a.items[i]
		c.Items[i] = co.Ended{State: it.state, Outcome: "OK", Failover: it.failover}
		if !it.owned {
			c.Wake = &a.view
		}
		if a.share.Pending.Contains(i) {
			c.AskForSharding = true
		}
	}
	var out co.Completed
	if err := co.Perform(ctx, a, co.Complete(c, &out)); err != nil {
		return err
	}
	a.runs, a.version = out.Runs, out.RunsVersion
	for _, i := range out.Lost {
		a.w.fault("host %d lives and is told that item %d is not its own", a.n+1, i)
	}
	for _, i := range items {
		it := a.items[i]
		it.running, it.failover = false, false
		if state, ok := out.Items[i]; ok {
			it.state = state
		}
		if !it.owned {
			delete(a.items, i)
		}
	}
	return nil
}
