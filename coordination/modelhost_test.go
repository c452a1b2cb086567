package coordination_test

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"iter"
	"maps"
	"slices"
	"time"

	co "github.com/wasmjob/wasmjob/coordination"
	"github.com/wasmjob/wasmjob/coordination/jobconfig"
	"github.com/wasmjob/wasmjob/coordination/recipe/latch"
	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/tree"
)

// call is an operation that a host waits for, or a wait for news.
type call struct {
	ops     []registry.Op
	queries []registry.Query
	idle    []news
}

// print tells two calls apart.
func (c call) print() uint64 {
	h := fnv.New64a()
	say := func(s string) { _, _ = h.Write([]byte(s)) }
	for _, op := range c.ops {
		say(op.Path)
		_, _ = h.Write(op.Data)
		_, _ = h.Write([]byte{byte(op.Kind), byte(op.Version), '\n'})
	}
	for _, q := range c.queries {
		say(q.Path)
		say("?")
	}
	for _, n := range c.idle {
		say(n.query.Path)
		say(n.was)
	}
	return h.Sum64()
}

// news is what a host waits for: that a node is gone, or is not as it was.
type news struct {
	query registry.Query
	gone  bool
	was   string
}

// reply is what a host is told: what it read, what its commit did, or which of
// the nodes are gone for which it waited.
type reply struct {
	nodes   []registry.Node
	results []registry.Result
	err     error
	gone    []bool
}

func (r reply) key() string {
	if r.err != nil {
		return r.err.Error()
	}
	var b []byte
	for _, n := range r.nodes {
		b = fmt.Appendf(b, "%v %d %v %q %q,", n.Exists, n.Version, n.Ephemeral, n.Data, n.Names)
	}
	for _, n := range r.results {
		b = fmt.Appendf(b, "%s %d,", n.Path, n.Version)
	}
	return string(fmt.Append(b, r.gone))
}

// hostState is a state of a host: where it is in its code, and all that it
// knows. The code is the package's own and cannot be copied in its middle, so a
// state remembers by which answers it came to be, and is brought about again
// when an answer comes that it never had.
type hostState struct {
	id    int32
	host  int
	call  call
	wrong string // what the host found that cannot be

	from   *hostState
	answer reply
	key    string  // of answer
	print  uint64  // of call
	rested *memory // if the host has just rested
	next   map[string]*hostState
	live   *actor // is in this state now; nil if it has gone on
}

// left reports whether the host has left the job for good.
func (s *hostState) left() bool {
	return s.call.ops == nil && s.call.queries == nil && s.call.idle == nil
}

// modelRounds is how often a host tries to recover what is left before it sleeps.
const modelRounds = 3

// modelHosts holds each state of the hosts once.
type modelHosts struct {
	layout   tree.Layout
	failover bool
	states   []*hostState
	byKey    map[string]*hostState
}

func newModelHosts(layout tree.Layout, failover bool) *modelHosts {
	return &modelHosts{layout: layout, failover: failover, byKey: make(map[string]*hostState)}
}

func (h *modelHosts) close() {
	for _, s := range h.states {
		if s.live != nil {
			s.live.stop()
		}
	}
}

// start is the state of a host before its first operation.
func (h *modelHosts) start(host int) *hostState {
	return h.state(h.actor(host, nil), nil, "", reply{})
}

func modelSelf(host int) tree.JobInstance {
	return tree.NewJobInstance(fmt.Sprintf("10.0.0.%d", host+1), fmt.Sprint(host+1))
}

// actor is a host that is about to join, or one at rest.
func (h *modelHosts) actor(host int, knows *memory) *actor {
	a := &actor{failover: h.failover, n: host}
	a.Member = co.Member{Layout: h.layout, Self: modelSelf(host)}
	if knows != nil {
		a.memory = knows.clone()
	}
	a.Registry = a
	next, stop := iter.Pull(a.live)
	a.next, a.stop = next, stop
	a.pending, a.more = next()
	return a
}

// state finds the state in which the actor is.
func (h *modelHosts) state(a *actor, from *hostState, by string, answer reply) *hostState {
	if !a.more {
		a.pending = call{}
	}
	key := fmt.Sprintf("%d %v %s %s %+v", a.n, a.more, a.wrong, a.history, a.pending.idle)
	if known := h.byKey[key]; known != nil {
		known.same(a)
		if known.live == nil {
			known.live = a
		} else {
			a.stop()
		}
		return known
	}
	s := &hostState{id: int32(len(h.states)), host: a.n, call: a.pending, wrong: a.wrong, print: a.pending.print(), rested: a.rested,
		from: from, answer: answer, key: by, next: make(map[string]*hostState), live: a}
	h.states = append(h.states, s)
	h.byKey[key] = s
	return s
}

// same makes sure that an actor that is taken to be in the state is about to do
// the same.
func (s *hostState) same(a *actor) {
	if a.pending.print() != s.print {
		panic(fmt.Sprintf("two states of host %d that were taken for one are not: one is at %+v, the other at %+v", s.host+1, a.pending, s.call))
	}
}

// told is the state after s in which the host has been told r.
func (h *modelHosts) told(s *hostState, r reply) *hostState {
	key := r.key()
	if next := s.next[key]; next != nil {
		return next
	}
	a := s.live
	if a == nil {
		var way []*hostState
		at := s
		for ; at.from != nil && at.rested == nil; at = at.from {
			way = append(way, at)
		}
		a = h.actor(s.host, at.rested)
		for _, step := range slices.Backward(way) {
			a.tell(step.key, step.answer)
			step.same(a)
		}
	}
	s.live = nil
	a.tell(key, r)
	next := h.state(a, s, key, r)
	s.next[key] = next
	return next
}

// actor is a host: it looks, and does what the package says, for ever.
type actor struct {
	failover bool
	n        int
	next     func() (call, bool)
	stop     func()

	more    bool
	pending call
	reply   reply
	wrong   string
	history string // what it knew when it last was in no exchange, and what it was told since
	yield   func(call) bool

	memory
	rested *memory // at the operation that it waits for, if it has just rested
	due    []int64 // instants that have come
}

// memory is all that a host knows when it is in no exchange.
type memory struct {
	co.Member
	items  map[int]*simItem
	rounds int // of recovery since it last slept; in the second it takes whatever is left
}

func (m memory) clone() memory {
	items := make(map[int]*simItem, len(m.items))
	for i, it := range m.items {
		same := *it
		items[i] = &same
	}
	m.items = items
	return m
}

// tell lets the host go on to its next operation.
func (a *actor) tell(key string, r reply) {
	h := fnv.New128a()
	_, _ = h.Write([]byte(a.history))
	_, _ = h.Write([]byte(key))
	a.history = string(h.Sum(nil))
	a.reply, a.rested = r, nil
	a.pending, a.more = a.next()
}

func (a *actor) fault(format string, args ...any) {
	if a.wrong == "" {
		a.wrong = fmt.Sprintf(format, args...)
	}
}

// Commit, Read and the rest make the actor a registry to itself.
func (a *actor) Commit(_ context.Context, ops ...registry.Op) ([]registry.Result, error) {
	if !a.yield(call{ops: ops}) {
		return nil, registry.ErrSessionLost
	}
	return a.reply.results, a.reply.err
}

func (a *actor) Read(_ context.Context, q ...registry.Query) ([]registry.Node, error) {
	var nodes []registry.Node
	for len(nodes) < len(q) { // the nodes need not be of one instant
		if !a.yield(call{queries: q[len(nodes):]}) {
			return nil, registry.ErrSessionLost
		}
		nodes = append(nodes, a.reply.nodes...)
	}
	return nodes, nil
}

func (a *actor) Watch(context.Context, ...registry.Query) (<-chan registry.Snapshot, error) {
	return nil, registry.ErrUnavailable
}
func (a *actor) Trust() (registry.Trust, <-chan struct{}) { return registry.TrustLive, nil }
func (a *actor) Trusted() bool                            { return true }
func (a *actor) Lost() <-chan struct{}                    { return nil }
func (a *actor) Close() error                             { return nil }

// live is the host's loop.
func (a *actor) live(yield func(call) bool) {
	a.yield = yield
	file := jobconfig.Configuration{JobName: "demo", Cron: "0 * * * * ?", ShardingTotalCount: modelItems, MonitorExecution: true, Misfire: true,
		Failover: a.failover, MaxTimeDiffSeconds: -1}
	ctx := context.Background()
	err := registry.ErrUnknown
	for a.items == nil && err != nil {
		var out *co.StayOut
		if errors.As(err, &out) && !a.stayOut(ctx, file.YAML()) {
			return
		}
		if err = perform(ctx, a, moves.Join(&a.Member, co.Joining{Definition: file,
			Detail: tree.HostDetail{State: tree.DetailReady}})); !errors.As(err, &out) && !a.goOn(err) {
			return
		}
	}
	if a.items == nil {
		a.items = make(map[int]*simItem)
	}
	for {
		a.rest()
		nodes, err := a.Read(ctx, append(co.Control(a.Layout, a.Self), registry.Data(modelClock))...)
		if err != nil {
			return
		}
		a.due = nil
		if clock := nodes[len(nodes)-1]; clock.Exists {
			a.due = modelInstants[:clock.Version]
		}
		s := make(registry.Snapshot, len(nodes))
		for _, n := range nodes {
			s[n.Query] = n
		}
		a.Observe(s)
		if !a.View.Exists || !a.View.Joined() {
			a.leave(ctx, file.YAML())
			return
		}
		// A host that is not in the list of instances may be on its way there: the
		// others look again, now and then, until it is there or gone.
		dead := false
		if crashed := a.View.Crashed(); len(crashed) > 0 {
			var details []registry.Query
			for _, id := range crashed {
				details = append(details, registry.Data(a.Sibling()+"/instances/"+id))
			}
			more, err := a.Read(ctx, details...)
			if err != nil {
				return
			}
			nodes = append(nodes, more...)
			dead = slices.ContainsFunc(more, func(n registry.Node) bool { return !n.Exists })
		}
		idle, err := a.step(ctx)
		if !a.goOn(err) {
			return
		}
		if !idle {
			continue
		}
		if a.rounds < modelRounds && dead {
			a.rounds++ // time has passed, and something is left
			continue
		}
		if !a.wait(ctx, nodes) {
			return
		}
	}
}

// stayOut waits, out of the job, until what is wanted lets the host in.
func (a *actor) stayOut(ctx context.Context, mine []byte) bool {
	for {
		nodes, err := a.Read(ctx, co.Outside(a.Layout)...)
		if err != nil {
			return false
		}
		s := make(registry.Snapshot, len(nodes))
		var idle []news
		for _, n := range nodes {
			s[n.Query] = n
			idle = append(idle, news{query: n.Query, was: nodeState(n)})
		}
		if co.StaysOut(s, a.Layout, a.Self.ID, mine) == nil {
			return true
		}
		if !a.yield(call{idle: idle}) {
			return false
		}
	}
}

// leave takes the host, which is not to be in the job any more, out of it for good: it would come back
// under another id.
func (a *actor) leave(ctx context.Context, mine []byte) {
	now := time.UnixMilli(1000)
	for _, step := range []func() error{
		func() error {
			if busy := a.busy(); a.View.Exists && len(busy) > 0 {
				return a.complete(ctx, busy)
			}
			return nil
		},
		func() error {
			if a.View.Exists {
				return a.NoteStop(ctx, now)
			}
			return a.NoteRemoval(ctx, tree.Digest(mine), now)
		},
		func() error { return a.Leave(ctx) },
	} {
		for err := registry.ErrUnknown; err != nil; {
			if err = step(); errors.Is(err, tree.ErrRemoved) {
				err = nil
			}
			if !a.goOn(err) {
				return
			}
		}
	}
	a.yield(call{}) // it rests
}

// wait waits until something is not as it was seen, or the node is gone behind
// which the host stands in a line.
func (a *actor) wait(ctx context.Context, seen []registry.Node) bool {
	var marks []registry.Query
	for _, i := range slices.Sorted(maps.Keys(a.items)) {
		if a.items[i].held { // it was marked: look again when that has changed
			for _, mark := range []string{"running", "failover", "failovering"} {
				marks = append(marks, registry.Data(fmt.Sprintf("%s/sharding/%d/%s", a.Root(), i, mark)))
			}
		}
	}
	if len(marks) > 0 {
		nodes, err := a.Read(ctx, marks...)
		if err != nil {
			return false
		}
		if !slices.ContainsFunc(nodes, func(n registry.Node) bool { return n.Exists }) {
			a.release() // they went in the meantime
			return true
		}
		seen = append(slices.Clone(seen), nodes...)
	}
	var idle []news
	for _, n := range seen {
		idle = append(idle, news{query: n.Query, was: nodeState(n)})
	}
	lines := []*latch.Line{&a.Election, &a.Takeover}
	for _, line := range lines {
		if q, waiting := line.Waiting(); waiting {
			idle = append(idle, news{query: q, gone: true})
		}
	}
	if !a.yield(call{idle: idle}) {
		return false
	}
	a.rounds = 0
	a.release()
	gone := a.reply.gone
	for _, line := range lines {
		if _, waiting := line.Waiting(); waiting {
			if gone[0] {
				line.Behind = ""
			}
			gone = gone[1:]
		}
	}
	return true
}

func (a *actor) release() {
	for _, it := range a.items {
		it.held = false
	}
}

// goOn reports whether the host lives and the error is one to try again after.
func (a *actor) goOn(err error) bool {
	switch {
	case err == nil, errors.Is(err, registry.ErrUnknown), errors.Is(err, registry.ErrConflict), errors.Is(err, tree.ErrRemoved):
		return true
	case !errors.Is(err, registry.ErrSessionLost):
		a.fault("host %d: %v", a.n+1, err)
	}
	return false
}

// rest puts what the host knows in place of how it came to know it.
func (a *actor) rest() {
	h := fnv.New128a()
	fmt.Fprint(h, a.RunsVersion, a.Runs, co.Remembered(a.View, a.Share), a.rounds, a.Election, a.Takeover)
	for _, i := range slices.Sorted(maps.Keys(a.items)) {
		it := a.items[i]
		fmt.Fprint(h, i, it.owned, it.running, it.failover, it.held, it.fire, it.state)
	}
	a.history = string(h.Sum(nil))
	known := a.clone()
	a.rested = &known
}

// step takes the next step; idle means that there is none.
func (a *actor) step(ctx context.Context) (idle bool, err error) {
	v := a.View
	now := time.UnixMilli(1000)
	if action := a.Reconcile(now); action != co.ActionNone {
		_, err := a.Act(ctx, action, now)
		return err == nil && a.Election.Behind != "", err
	}
	if !a.Share.Current(v) {
		return false, a.readShare(ctx)
	}
	if busy := a.busy(); len(v.Crashed()) > 0 {
		for _, dead := range v.Crashed() {
			var out co.Recovered
			err := perform(ctx, a, moves.Recover(&a.Member, co.Recovery{Dead: dead, All: a.rounds > 0, Limit: 10, Busy: busy.Contains, Now: now}, &out))
			if err != nil {
				return false, err
			}
			if out.Commits > 0 {
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
	for _, at := range a.due {
		f := tree.Fire{Instant: at, Source: "schedule"}
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

func (a *actor) busy() tree.Items {
	var items tree.Items
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
	states, read, err := a.ReadShare(ctx, knownOf(known))
	if err != nil || !read {
		return err
	}
	share := a.Share
	for i, it := range a.items {
		if !share.Items.Contains(i) {
			if it.owned = false; !it.running {
				delete(a.items, i)
			}
		}
	}
	for _, i := range share.Items {
		if a.items[i] == nil {
			a.items[i] = &simItem{}
		}
		it := a.items[i]
		if it.owned = true; !it.running {
			it.state = states[i]
		}
	}
	return nil
}

func (a *actor) begin(ctx context.Context, f tree.Fire, states map[int]co.ItemState) error {
	var out co.Begun
	if err := perform(ctx, a, moves.Begin(&a.Member, co.Beginning{Fire: f, Items: states,
		Now: f.Time()}, &out)); err != nil {
		return err
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
	if len(out.Adopted) > 0 {
		a.fault("host %d is told of runs that it did not know of, though no exchange of its own broke off: %v", a.n+1, out.Adopted)
	}
	if out.Stale {
		return a.readShare(ctx)
	}
	return nil
}

func (a *actor) complete(ctx context.Context, items tree.Items) error {
	c := co.Completing{Items: make(map[int]co.Ended), Now: time.UnixMilli(5000)}
	for _, i := range items {
		it := a.items[i]
		c.Items[i] = co.Ended{State: it.state, Outcome: "OK", Failover: it.failover}
		if !it.owned {
			c.Wake = true
		}
		if a.Share.Pending.Contains(i) {
			c.AskForSharding = true
		}
	}
	var out co.Completed
	if err := perform(ctx, a, moves.Complete(&a.Member, c, &out)); err != nil {
		return err
	}
	if len(out.Adopted) > 0 {
		a.fault("host %d is told of runs that it did not know of, though no exchange of its own broke off: %v", a.n+1, out.Adopted)
	}
	for _, i := range out.Lost {
		a.fault("host %d lives and is told that item %d is not its own", a.n+1, i)
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
