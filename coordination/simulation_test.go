package coordination_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	co "github.com/wasmjob/wasmjob/coordination"
	"github.com/wasmjob/wasmjob/coordination/jobconfig"
	"github.com/wasmjob/wasmjob/coordination/recipe/latch"
	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/registry/embedded"
	"github.com/wasmjob/wasmjob/coordination/registry/registrytest"
	"github.com/wasmjob/wasmjob/coordination/tree"
)

// cluster is one job on some simulated hosts: the pure core against a
// registry, with a clock that moves when it is told to. Everything happens in
// the goroutine of the test, one step of one host after the other.
type cluster struct {
	t      testing.TB
	ctx    context.Context
	server registrytest.Server
	layout tree.Layout
	op     registry.Center // the operator's session
	now    time.Time
	file   jobconfig.Configuration // the definition file
	hosts  []*simHost
	javas  []*javaPeer
	say    func(format string, args ...any)
}

// simHost does what a host's loop does, without guests: an item runs from its
// begin until the test completes it.
type simHost struct {
	*cluster
	name, ip string
	lives    int // sessions so far: every one gets an id of its own
	co.Member
	rc   *registrytest.FaultyCenter
	plan func(call int, op string) registrytest.Fault

	former    string // the digest of the definition that it brought last
	joined    bool
	why       string // why it is not in the job
	leaving   bool   // draining
	stopped   []int  // runs whose guests were stopped, to be left unfinished
	snapshot  registry.Snapshot
	items     map[int]*simItem
	recoverAt time.Time
	// seen is a trigger that was found to be of round; consumed is the newest.
	seen, round, consumed int64
	args                  tree.TriggerArgs // of round
	// permits are the paths of the tickets with which items run, or are to, under a limit.
	permits map[int]string
	// old is a host of a version that knows no arguments of triggers.
	old bool
	// knowsQueue is a host that begins queued triggers.
	knowsQueue bool
}

type simItem struct {
	owned    bool
	state    co.ItemState
	running  bool
	failover bool
	held     bool
	quiet    bool // it may begin beside Java hosts
	fire     tree.Fire
	due      *tree.Fire
	queue    []int64 // instants that follow due, each for itself
	to       int64   // up to when due and queue are all that is owed
}

// queues reports whether the job's instants wait in a queue.
func (h *simHost) queues() bool {
	guest, _ := h.View.Config.Guest()
	return guest.Overlap == jobconfig.OverlapQueueAll
}

// owing is the item's state with what it owes besides a fire in the record.
func (h *simHost) owing(it *simItem, besides tree.Fire) co.ItemState {
	state := it.state
	if !h.queues() {
		return state
	}
	var instants []int64
	if it.due != nil && it.due.Instant != besides.Instant {
		instants = append(instants, it.due.Instant)
	}
	state.Record = state.Record.Owes(append(instants, it.queue...), it.to)
	return state
}

// pop makes the next instant of the queue the one that is due.
func (it *simItem) pop() {
	it.due = nil
	if len(it.queue) > 0 {
		it.due, it.queue = &tree.Fire{Instant: it.queue[0], Source: "misfire"}, it.queue[1:]
	}
}

// start is the instant at which every cluster begins.
var start = time.Date(2026, 3, 1, 10, 0, 0, 0, time.UTC)

// inMemory starts a registry in one process.
func inMemory(t testing.TB) registrytest.Server {
	t.Helper()
	s, err := embedded.Open(embedded.Options{})
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return embeddedServer{s}
}

type embeddedServer struct{ *embedded.Server }

func (s embeddedServer) Connect(t testing.TB) registry.Center {
	t.Helper()
	rc, err := s.Server.Connect(context.Background())
	if err != nil {
		t.Fatalf("connect: %v", err)
	}
	return rc
}

func (s embeddedServer) Expire(_ testing.TB, r registry.Center) { s.Server.Expire(r) }

func newCluster(t testing.TB, server registrytest.Server) *cluster {
	c := &cluster{
		t: t, ctx: context.Background(), server: server, now: start,
		// The namespace is a new one: a registry may serve several tests.
		layout: tree.NewLayout("scenario-"+rand.Text(), "demo"),
		file: jobconfig.Configuration{JobName: "demo", Cron: "0/10 * * * * ?", ShardingTotalCount: 3, MonitorExecution: true, Misfire: true,
			MaxTimeDiffSeconds: -1, ReconcileIntervalMinutes: 10},
		say: func(string, ...any) {},
	}
	c.op = server.Connect(t)
	t.Cleanup(func() { _ = c.op.Close() })
	return c
}

func (c *cluster) addHost(name, ip string) *simHost {
	h := &simHost{cluster: c, name: name, ip: ip}
	c.hosts = append(c.hosts, h)
	slices.SortFunc(c.hosts, func(a, b *simHost) int { return strings.Compare(a.name, b.name) })
	c.t.Cleanup(func() {
		if h.rc != nil {
			_ = h.rc.Close()
		}
	})
	return h
}

// addJava adds a Java host; it is started with start.
func (c *cluster) addJava(name, ip string) *javaPeer {
	p := &javaPeer{cluster: c, name: name, ip: ip, id: ip + "@-@" + name}
	c.javas = append(c.javas, p)
	c.t.Cleanup(func() {
		p.end(&p.events)
		p.end(&p.fires)
		if p.rc != nil {
			_ = p.rc.Close()
		}
	})
	return p
}

func (c *cluster) host(name string) *simHost {
	for _, h := range c.hosts {
		if h.name == name {
			return h
		}
	}
	c.t.Fatalf("no host %s", name)
	return nil
}

// operate carries out a move for the operator.
func (c *cluster) operate(m move) error { return perform(c.ctx, c.op, m) }

// connect begins a new life of the host: a session, an id, an empty memory.
func (h *simHost) connect() {
	h.dial()
	h.lives++
	token := h.name
	if h.lives > 1 {
		token = fmt.Sprintf("%s%d", h.name, h.lives)
	}
	h.Member = co.Member{Layout: h.layout, Self: tree.NewJobInstance(h.ip, token)}
	h.items = make(map[int]*simItem)
	h.snapshot = nil
	h.joined, h.why, h.leaving, h.stopped, h.recoverAt = false, "", false, nil, time.Time{}
}

// dial opens a session.
func (h *simHost) dial() {
	h.rc = registrytest.Faulty(h.server.Connect(h.t), func(call int, op string) registrytest.Fault {
		if h.plan == nil {
			return registrytest.NoFault
		}
		return h.plan(call, op)
	})
}

func (h *simHost) perform(m move) error {
	err := perform(h.ctx, h.rc, m)
	if err != nil && h.lost() {
		h.gone()
	}
	return err
}

func (h *simHost) lost() bool {
	select {
	case <-h.rc.Lost():
		return true
	default:
		return false
	}
}

// alive reports whether the host takes part.
func (h *simHost) alive() bool { return h.joined && !h.lost() }

// gone is the host's end: its session is over, its guests with it.
func (h *simHost) gone() {
	if !h.joined {
		return
	}
	h.say("%s: its session is lost", h.name)
	h.joined, h.why = false, "lost"
	h.awaitGone()
}

// awaitGone waits until the registry has removed the ephemeral nodes.
func (h *simHost) awaitGone() {
	ctx, cancel := context.WithTimeout(h.ctx, time.Minute)
	defer cancel()
	path := h.layout.Root() + "/instances/" + h.Self.ID
	detail := h.layout.Sibling() + "/instances/" + h.Self.ID
	ch, err := h.op.Watch(ctx, registry.Data(path), registry.Data(detail))
	if err != nil {
		h.t.Fatalf("watch: %v", err)
	}
	for s := range ch {
		if !s.Data(path).Exists && !s.Data(detail).Exists {
			return
		}
	}
	h.t.Fatalf("the instance of %s does not go away", h.name)
}

// crash ends the host's session from outside.
func (h *simHost) crash() {
	h.server.Expire(h.t, h.rc.Unwrap())
	h.rc.Expire() // the process notices
	h.joined, h.why = false, "crashed"
	h.awaitGone()
}

// join registers the host. Applied tells what became of its definition.
func (h *simHost) join(definition jobconfig.Configuration) (co.Applied, error) {
	var applied co.Applied
	if h.rc == nil || h.lost() || h.why != "" {
		if h.rc != nil {
			_ = h.rc.Close()
		}
		h.connect()
	}
	err := h.perform(moves.Join(&h.Member, co.Joining{Definition: definition, Former: h.former, Applied: &applied,
		Detail: tree.HostDetail{State: tree.DetailReady, Digest: "sha256:d0", TriggerArgs: !h.old, TriggerQueue: h.knowsQueue, RecordedKills: !h.old}}))
	if err == nil {
		h.joined, h.why, h.former = true, "", tree.Digest(definition.YAML())
	}
	return applied, err
}

// look takes a snapshot.
func (h *simHost) look() error {
	queries := co.Control(h.layout, h.Self)
	nodes, err := h.rc.Read(h.ctx, queries...)
	if err != nil {
		if h.lost() {
			h.gone()
		}
		return err
	}
	s := make(registry.Snapshot, len(nodes))
	for _, n := range nodes {
		s[n.Query] = n
	}
	if !reflect.DeepEqual(s, h.snapshot) {
		for _, it := range h.items {
			it.held = false
		}
	}
	h.snapshot = s
	h.View = co.ParseView(s, h.layout, h.Self, h.View).WithExtra(nil)
	if q := h.View.Extra(); len(q) > 0 {
		extra := make(registry.Snapshot, len(q))
		for _, q := range q {
			extra[q] = h.read(q)
		}
		h.View = h.View.WithExtra(extra)
	}
	return nil
}

func (h *simHost) running() tree.Items {
	var items tree.Items
	for i, it := range h.items {
		if it.running {
			items = append(items, i)
		}
	}
	slices.Sort(items)
	return items
}

// step looks, and takes one step if there is one to take.
func (h *simHost) step() (stepped bool, err error) {
	if err := h.look(); err != nil {
		return false, err
	}
	v := h.View
	switch {
	case !v.Exists:
		if err := h.perform(moves.NoteRemoval(&h.Member, h.former, h.now)); err != nil {
			return true, err
		}
		h.say("%s: leaves, the job was removed", h.name)
		return true, h.leave("removed", nil)
	case len(h.stopped) > 0:
		h.say("%s: leaves", h.name) // once more, for it was refused
		return true, h.leave("left", h.stopped)
	case !v.Joined():
		if len(h.running()) > 0 {
			return false, nil // they finish first
		}
		if err := h.perform(moves.NoteStop(&h.Member, h.now)); err != nil {
			return true, err
		}
		h.say("%s: leaves, stopped by an operator", h.name)
		return true, h.leave("stopped", nil)
	case h.leaving && len(h.running()) == 0:
		h.say("%s: leaves, drained", h.name)
		return true, h.leave("drained", nil)
	}
	h.lookAhead(&h.Election)
	h.lookAhead(&h.Takeover)
	if action := h.Reconcile(h.now); action != co.ActionNone {
		why := v.DivisionStale().String()
		err := h.perform(func(ctx context.Context, r registry.Center) error {
			h.Registry = r
			return second(h.Act(ctx, action, h.now))
		})
		if action == co.ActionReshard {
			h.say("%s: divides the items%s", h.name, because(why))
		} else {
			h.say("%s: %s%s", h.name, action, because(why))
		}
		return true, err
	}
	if !h.Share.Current(v) {
		before := h.Share
		if err := h.readShare(); err != nil || !reflect.DeepEqual(before, h.Share) {
			return true, err
		}
	}
	if stepped, err := h.recoverAll(false); stepped || err != nil {
		return stepped, err
	}
	if h.leaving || v.Halted() {
		return false, nil
	}
	return h.followUp()
}

// lookAhead sees whether it is the host's turn in a latch.
func (h *simHost) lookAhead(line *latch.Line) {
	if q, waiting := line.Waiting(); waiting && !h.read(q).Exists {
		line.Behind = ""
	}
}

func because(why string) string {
	if why == "" {
		return ""
	}
	return ": " + why
}

func (h *simHost) leave(why string, unfinished tree.Items) error {
	for _, i := range unfinished {
		h.items[i].running = false // a host stops its guests before it leaves
	}
	h.stopped = unfinished
	if err := h.perform(moves.Leave(&h.Member)); err != nil {
		return err
	}
	h.joined, h.why = false, why
	return nil
}

// readShare reads what the host owns.
func (h *simHost) readShare() error {
	known := make(map[int]co.ItemState)
	for i, it := range h.items {
		if it.running {
			known[i] = it.state
		}
	}
	former := h.Share
	var states map[int]co.ItemState
	read := false
	err := h.perform(func(ctx context.Context, r registry.Center) (err error) {
		h.Registry = r
		states, read, err = h.ReadShare(ctx, knownOf(known))
		return err
	})
	if err != nil || !read { // no host knows now
		return err
	}
	share, before := h.Share, h.owned()
	edited := share.Edited(former)
	for i, it := range h.items {
		if !share.Items.Contains(i) {
			it.owned, it.due = false, nil
			if !it.running {
				delete(h.items, i)
			}
		}
	}
	for _, i := range share.Items {
		state, it := states[i], h.items[i]
		if it == nil {
			it = &simItem{}
			h.items[i] = it
		}
		if it.running {
			state = it.state
		}
		it.quiet = it.quiet && it.owned
		if !it.owned && h.queues() {
			it.queue, it.to = state.Record.OwedInstants(), state.Record.OwedTo
			it.pop()
		}
		it.owned = true
		if !it.running {
			it.state = state
		}
	}
	if now := h.owned(); !slices.Equal(before, now) {
		h.say("%s: owns %s", h.name, orNone(now))
	}
	if h.View.Trigger != 0 && h.consumed < share.Round {
		return nil // its own trigger is for them as well
	}
	for _, i := range share.Owing {
		fire := share.Args.Fire(share.Round, h.now.UnixMilli(), "trigger")
		if it := h.items[i]; it.owned && (!it.running || fire.HasArgs()) && it.due == nil {
			it.due = &fire
		}
	}
	if edited && !h.View.Necessary && h.View.Leader != "" {
		return h.perform(moves.AskForSharding(&h.Member))
	}
	return nil
}

func orNone(items tree.Items) string {
	if len(items) == 0 {
		return "nothing"
	}
	return items.String()
}

func (h *simHost) owned() tree.Items {
	var items tree.Items
	for i, it := range h.items {
		if it.owned {
			items = append(items, i)
		}
	}
	slices.Sort(items)
	return items
}

// recoverAll deals with crashed hosts. A second later the host takes what the
// others could have taken.
func (h *simHost) recoverAll(all bool) (bool, error) {
	crashed := h.View.Crashed()
	if len(h.View.FailoverItems) > 0 || len(crashed) == 0 && h.Takeover.Standing {
		crashed = append(crashed, "") // what Java hosts have marked; and it leaves the latch, in which they wait
	}
	if len(crashed) == 0 {
		h.recoverAt = time.Time{}
		return false, nil
	}
	again := !h.recoverAt.IsZero()
	if again && h.now.Before(h.recoverAt) && !all {
		return false, nil
	}
	h.recoverAt = h.now.Add(time.Second)
	for _, dead := range crashed {
		out, err := h.recover(dead, all || again, 100)
		if err != nil {
			return true, err
		}
		if out.Commits > 0 {
			h.recoverAt = time.Time{} // something has changed
		}
	}
	return true, nil
}

func (h *simHost) recover(dead string, all bool, limit int) (co.Recovered, error) {
	var out co.Recovered
	for next := -1; next != 0; next = out.Next {
		before := out
		r := co.Recovery{Dead: dead, All: all, Limit: limit - len(before.Claimed), Busy: h.running().Contains, From: max(next, 0), Now: h.now}
		if h.permits != nil {
			r.Permit = func(item int, _ tree.Fire) string { return h.permits[item] }
		}
		err := h.perform(moves.Recover(&h.Member, r, &out))
		out.Claimed, out.Lost, out.Held = slices.Concat(before.Claimed, out.Claimed), slices.Concat(before.Lost, out.Lost), slices.Concat(before.Held, out.Held)
		out.Killed, out.Elsewhere, out.Commits = slices.Concat(before.Killed, out.Killed), slices.Concat(before.Elsewhere, out.Elsewhere), before.Commits+out.Commits
		if err != nil {
			return out, err
		}
	}
	h.takeOver(dead, out.Claimed)
	for _, c := range out.Lost {
		h.say("%s: writes down that %d of %s is LOST (%s)", h.name, c.Item, dead, c.Fire.ID())
	}
	for _, c := range out.Held {
		h.say("%s: holds %d back: %s died in its runs (%s)", h.name, c.Item, c.State.Record.Died, c.Fire.ID())
	}
	for _, c := range out.Killed {
		h.say("%s: does not take over %d from %s: %s", h.name, c.Item, dead, c.State.Record.Reason)
	}
	if len(out.Left) > 0 {
		h.say("%s: leaves %s of %s to others", h.name, out.Left, dead)
	}
	if out.Settled {
		h.say("%s: nothing is left of %s", h.name, dead)
	}
	return out, nil
}

// takeOver runs items that were begun for a host that died, or by a commit whose
// answer was lost.
func (h *simHost) takeOver(dead string, claims []co.Claim) {
	for _, c := range claims {
		it := h.items[c.Item]
		if it == nil {
			it = &simItem{}
			h.items[c.Item] = it
		}
		it.running, it.failover, it.state, it.fire = true, true, c.State, c.Fire
		if dead == "" {
			h.say("%s: runs %d, which it had begun unheard (%s)", h.name, c.Item, c.Fire.ID())
		} else {
			with := ""
			if c.Fire.WithParam {
				with = fmt.Sprintf(", %q", c.Fire.Param)
			}
			h.say("%s: takes over %d from %s (%s%s)", h.name, c.Item, dead, c.Fire.ID(), with)
		}
	}
}

// followUp begins what is owed, and a trigger.
func (h *simHost) followUp() (bool, error) {
	for i, it := range h.sorted() {
		if it.owned && !it.running && it.due != nil && !it.held {
			return true, h.begin(*it.due, tree.Items{i}, false)
		}
	}
	if h.View.Trigger == 0 || len(h.running()) > 0 || !h.View.Enabled {
		return false, nil
	}
	if h.seen != h.View.Trigger {
		if err := h.perform(moves.TriggerRound(&h.Member, h.consumed, &h.round, &h.args)); err != nil {
			return true, err
		}
		h.seen = h.View.Trigger
	}
	if h.round == 0 {
		h.seen = 0
		return false, nil
	}
	fire := h.args.Fire(h.round, h.now.UnixMilli(), "trigger")
	err := h.begin(fire, slices.DeleteFunc(h.owned(), func(i int) bool { return !h.args.Has(i) }), true)
	if err == nil {
		h.consumed = max(h.consumed, h.round)
	}
	return true, err
}

func (h *simHost) sorted() func(func(int, *simItem) bool) {
	return func(yield func(int, *simItem) bool) {
		for _, i := range slices.Sorted(maps.Keys(h.items)) {
			if !yield(i, h.items[i]) {
				return
			}
		}
	}
}

// fire begins the idle items of a scheduled instant, and marks the others.
func (h *simHost) fire(at time.Time) error {
	id := tree.Fire{Instant: at.UnixMilli(), Source: "schedule"}
	if len(h.stopped) > 0 {
		return nil // it is about to leave
	}
	if !h.View.Enabled {
		h.say("%s: its server is disabled", h.name)
		return nil
	}
	if err := h.lookAtHeld(); err != nil {
		return err
	}
	var idle, busy tree.Items
	for i, it := range h.sorted() {
		switch {
		case !it.owned:
		case !it.running && h.View.Halted():
			it.due = &id // all wait
		case !it.running:
			it.due = nil
			idle = append(idle, i)
		default:
			due := id
			due.Source = "misfire"
			if it.to = id.Instant; h.queues() && it.due != nil {
				it.queue = append(it.queue, id.Instant)
			} else {
				it.due = &due
			}
			it.state.Misfire = true
			busy = append(busy, i)
		}
	}
	if len(busy) > 0 {
		h.say("%s: %s still runs: misfired", h.name, busy)
		if err := h.perform(moves.MarkMisfire(h.layout, busy)); err != nil {
			return err
		}
	}
	if len(idle) == 0 {
		return nil
	}
	return h.begin(id, idle, false)
}

// lookAtHeld reads the items that are held back, as far as the host knows.
func (h *simHost) lookAtHeld() error {
	var held tree.Items
	for i, it := range h.sorted() {
		if it.owned && !it.running && it.state.Record.Held != 0 {
			held = append(held, i)
		}
	}
	if len(held) == 0 {
		return nil
	}
	var states map[int]co.ItemState
	if err := h.perform(moves.ReadItems(h.layout, held, &states)); err != nil {
		return err
	}
	for i, state := range states {
		h.items[i].state = state
	}
	return nil
}

// quiet leaves out items that a Java host runs, or is about to run again, which it has the time to show.
func (h *simHost) quiet(id tree.Fire, items tree.Items) (rest tree.Items, err error) {
	if !h.MayRepeat() {
		return items, nil
	}
	var ask tree.Items
	for _, i := range items {
		if !h.items[i].quiet {
			ask = append(ask, i)
		}
	}
	if len(ask) == 0 {
		return items, nil
	}
	var out co.Quieted
	err = h.perform(moves.Quiet(&h.Member, ask, &out))
	for _, i := range ask {
		it := h.items[i]
		_, marked := out.Refused[i]
		it.held = marked
		if it.quiet = err == nil && !marked && !out.Stale; it.quiet {
			it.state.Misfire = false
		} else {
			it.due = &id
		}
	}
	if err == nil && out.Stale {
		err = h.readShare()
	}
	for _, p := range h.javas {
		p.lag()
	}
	return slices.DeleteFunc(slices.Clone(items), func(i int) bool { return !h.items[i].quiet }), err
}

func (h *simHost) begin(id tree.Fire, items tree.Items, trigger bool) error {
	items, err := h.quiet(id, items)
	if err != nil || (len(items) == 0 && !trigger) {
		return err
	}
	if h.permits != nil { // the job is under a limit
		var waiting tree.Items
		items = slices.DeleteFunc(slices.Clone(items), func(i int) bool {
			if h.permits[i] == "" {
				h.items[i].due = nil
				waiting = append(waiting, i)
			}
			return h.permits[i] == ""
		})
		if len(waiting) > 0 {
			h.say("%s: %s wait for a permit", h.name, waiting)
		}
		if len(items) == 0 {
			return nil
		}
	}
	states := make(map[int]co.ItemState)
	for _, i := range items {
		states[i] = h.owing(h.items[i], id)
	}
	var out co.Begun
	err = h.perform(moves.Begin(&h.Member, co.Beginning{Fire: id, Items: states,
		ConsumeTrigger: trigger, Permits: h.permits, Now: h.now}, &out))
	if err != nil {
		if !trigger {
			for _, i := range items {
				h.items[i].due = &id
			}
		}
		return err
	}
	h.takeOver("", out.Adopted)
	var begun tree.Items
	for i, state := range out.Items {
		it := h.items[i]
		it.running, it.quiet, it.failover, it.state, it.fire = true, true, false, state, id
		it.pop()
		begun = append(begun, i)
	}
	slices.Sort(begun)
	if len(begun) > 0 {
		with := ""
		if id.WithParam {
			with = fmt.Sprintf(", %q", id.Param)
		}
		h.say("%s: begins %s (%s, %s%s)", h.name, begun, id.Source, id.ID(), with)
	}
	for _, i := range out.Holds {
		h.say("%s: holds %d back: %s died in its runs", h.name, i, out.Held[i].Died)
	}
	for _, i := range slices.Sorted(maps.Keys(out.Refused)) {
		h.say("%s: does not begin %d: %s", h.name, i, out.Refused[i])
		it := h.items[i]
		it.due = nil
		switch out.Refused[i] {
		case co.RefusedHeld:
			it.state.Record = out.Held[i]
		case co.RefusedRunning, co.RefusedFailover:
			due := id
			due.Source = "misfire"
			it.due, it.held, it.quiet = &due, true, false
		case co.RefusedAgain:
			it.due, it.quiet = &id, false
		case co.RefusedStale:
			it.due = &id
		case co.RefusedPermit:
			delete(h.permits, i)
		}
	}
	if out.Stale {
		h.say("%s: its share is stale", h.name)
		return h.readShare()
	}
	return nil
}

// complete ends items.
func (h *simHost) complete(items tree.Items, outcome, offset string) error {
	c := co.Completing{Items: make(map[int]co.Ended), Now: h.now}
	for _, i := range items {
		it := h.items[i]
		if it == nil || !it.running {
			return fmt.Errorf("item %d does not run on %s", i, h.name)
		}
		c.Items[i] = co.Ended{State: h.owing(it, tree.Fire{}), Outcome: outcome, Failover: it.failover, Permit: h.permits[i], Offset: []byte(offset), HasOffset: offset != ""}
		if !it.owned {
			c.Wake = true
		}
		if h.Share.Pending.Contains(i) {
			c.AskForSharding = true
		}
	}
	var out co.Completed
	if err := h.perform(moves.Complete(&h.Member, c, &out)); err != nil {
		return err
	}
	for _, i := range items {
		delete(h.permits, i)
		it := h.items[i]
		it.running, it.failover = false, false
		if state, ok := out.Items[i]; ok {
			it.state = state
		}
		if !it.owned {
			delete(h.items, i)
		}
	}
	h.takeOver("", out.Adopted)
	done := tree.Items(slices.Sorted(maps.Keys(out.Items)))
	if len(done) > 0 {
		h.say("%s: completed %s (%s)", h.name, done, outcome)
	}
	for _, i := range out.Lost {
		h.say("%s: %d is no longer its own: completion and offset are refused", h.name, i)
	}
	return nil
}

// settle lets all hosts look and step until nobody has anything to do.
func (c *cluster) settle() {
	for round := 0; ; round++ {
		idle := true
		for _, h := range c.hosts {
			if !h.alive() {
				continue
			}
			stepped, err := h.step()
			if err != nil && h.alive() {
				c.say("%s: %v", h.name, err)
			}
			idle = idle && !stepped
			c.invariants()
		}
		for _, p := range c.javas {
			idle = !p.rest() && idle
			c.invariants()
		}
		if idle {
			return
		}
		if round > 200+c.file.ShardingTotalCount { // a host begins items that owe something one by one
			c.t.Fatalf("the hosts do not come to rest")
		}
	}
}

// invariants hold after every step: no item is in the assignment of two hosts
// of the job, and no item runs on two of them.
func (c *cluster) invariants() {
	c.t.Helper()
	owner := make(map[int]string)
	assignments := c.assignments()
	if len(c.node(c.layout.Sibling()+"/epoch").Data) > 0 {
		assignments = nil // a Java leader divided: what counts is in its own nodes
	}
	for id, items := range assignments {
		for _, i := range items {
			if other, taken := owner[i]; taken {
				c.t.Fatalf("item %d is assigned to %s and to %s", i, other, id)
			}
			owner[i] = id
		}
	}
	runs := make(map[int]string)
	for _, h := range c.hosts {
		if !h.alive() {
			continue
		}
		for _, i := range h.running() {
			if other, taken := runs[i]; taken {
				c.t.Fatalf("item %d runs on %s and on %s", i, other, h.name)
			}
			runs[i] = h.name
		}
	}
	for _, p := range c.javas {
		for _, i := range p.executing {
			if other, taken := runs[i]; taken {
				c.t.Fatalf("item %d runs on %s and on %s", i, other, p.name)
			}
			runs[i] = p.name
		}
	}
}

// assignments reads the shares of all hosts.
func (c *cluster) assignments() map[string]tree.Items {
	c.t.Helper()
	shares := make(map[string]tree.Items)
	base := c.layout.Sibling() + "/assignment"
	for _, id := range c.children(base) {
		items, err := tree.ParseItems(string(c.node(base + "/" + id).Data))
		if err != nil {
			c.t.Fatalf("assignment of %s: %v", id, err)
		}
		shares[id] = items
	}
	return shares
}

func (c *cluster) node(path string) registry.Node {
	c.t.Helper()
	return c.read(registry.Data(path))
}

func (c *cluster) children(path string) []string {
	c.t.Helper()
	return c.read(registry.Children(path)).Names
}

func (c *cluster) read(q registry.Query) registry.Node {
	c.t.Helper()
	nodes, err := c.op.Read(c.ctx, q)
	if err != nil {
		c.t.Fatalf("read %v: %v", q, err)
	}
	return nodes[0]
}

// edit changes the configuration as a console does.
func (c *cluster) edit(change func(*jobconfig.Configuration)) error {
	path := c.layout.Root() + "/config"
	n := c.node(path)
	if !n.Exists {
		return errors.New("the job is not there")
	}
	cfg, _, err := jobconfig.Parse(n.Data)
	if err != nil {
		return err
	}
	change(&cfg)
	_, err = c.op.Commit(c.ctx, registry.Set(path, cfg.YAML(), n.Version))
	return err
}
