package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/coordination/jobconfig"
	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/registry/embedded"
	"github.com/wasmjob/wasmjob/coordination/tree"
	"github.com/wasmjob/wasmjob/host/engine"
	"github.com/wasmjob/wasmjob/host/event"
	"github.com/wasmjob/wasmjob/host/history/verify"
)

// A rig is a cluster that is attacked: hosts that can be killed between two
// operations, cut off, halted, and a registry that takes its time to notice.
// What a killed host would have said is not heard, and what it did is judged by
// the events of all hosts, by the registry's journal, and by what is left in
// the registry.

const (
	rigJob       = "rig"
	rigNamespace = "test"
	// sessionTimeout is how long the registry waits for a host that is silent.
	// As with real registries, the host itself is suspect after a third of it,
	// tells its guests to stop after five eighths, and gives up after two thirds.
	sessionTimeout = 12 * time.Second
	// deafTimeout is how long it takes to give up one that is half cut off: it
	// speaks until it gives up itself.
	deafTimeout = 5 * sessionTimeout / 3
)

type rig struct {
	t      testing.TB
	server *embedded.Server
	def    jobconfig.Configuration
	// changes is how often def was changed.
	changes int
	guest   *guest
	// takes says how long a run of the item takes. It is called with mu held.
	takes func(item int) time.Duration
	// args are those of all triggers of the scenario; triggered is set once one was accepted.
	args      tree.TriggerArgs
	triggered bool
	// backfilled is how many instants of a backfill were accepted.
	backfilled int
	// meddle, if not nil, decides what becomes of a call. It is called with mu
	// held.
	meddle func(m *machine, op string) meddling
	// clocks, if not nil, says by how much the clock of the next host is ahead
	// of time, or behind if it is negative.
	clocks func() time.Duration
	// bound is the hosts' Config.ClockBound.
	bound time.Duration
	// seed is what chance goes by, see dice.
	seed uint64
	// stagger keeps hosts apart that would do the same at the same instant: the
	// clock of host n is behind by n times as much, and by as much later it hears
	// of changes. Items begin an eighth of it apart.
	stagger time.Duration
	// earliest and latest are how far clocks were behind and ahead of time.
	earliest, latest time.Duration
	// lowered are the times at which the total count became smaller.
	lowered []lowered

	mu      sync.Mutex // guards takes and meddle too
	hosts   []*machine
	events  []rigEvent
	faults  []string
	records map[int]*journal
	born    map[int]int64        // the instant up to which nothing is owed to an item, when it was made or came back
	lists   map[string]tree.Runs // what each instance has begun
	closed  map[string]bool      // run ids whose completion took effect, or that were written off
	offsets map[int]offset       // what is durable
	heard   map[int]int64        // the newest step of each item of which a guest was told that it is durable
	step    int64
	spans   map[int][]span // when items ran
	notes   []note
}

// rigEvent is an event with the time at which it happened. Its own is what the
// host's clock showed.
type rigEvent struct {
	from int
	e    event.Event
	own  time.Time
}

type lowered struct {
	at    time.Time
	total int
}

// note is a line of the timeline that is no event.
type note struct {
	at   time.Time
	text string
}

// journal is what was written to an item's record.
type journal struct {
	open             bool
	fence            int64
	owner            string
	instant, trigger int64
	run              string
}

// offset is where an item has come: the steps of all guests are counted
// together, so that a later one is greater.
type offset struct{ fence, step int64 }

func (o offset) bytes() []byte { return fmt.Appendf(nil, "%d %d", o.fence, o.step) }

func offsetOf(data []byte) (o offset, err error) {
	_, err = fmt.Sscan(string(data), &o.fence, &o.step)
	return o, err
}

// span is from an item's begin to its end; the zero time while it runs.
type span struct {
	began, ended time.Time
	instant      int64 // the newest that was begun then, Unix ms
}

// meddling is what becomes of a call.
type meddling uint8

const (
	letBe meddling = iota
	killBefore
	killAfter
	loseAnswer  // applied, ErrUnknown
	loseRequest // not applied, ErrUnknown
	refuse      // ErrUnavailable
	expireNow   // the session ends with this call, and it is not applied
	expireThen  // applied, and the session ends
	slowRequest // applied a while later
	slowAnswer  // answered a while later
)

func newRig(t testing.TB, items int) *rig {
	server, err := embedded.Open(embedded.Options{})
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, server: server, records: make(map[int]*journal), born: make(map[int]int64), lists: make(map[string]tree.Runs), closed: make(map[string]bool),
		offsets: make(map[int]offset), heard: make(map[int]int64), spans: make(map[int][]span)}
	r.def = definition(rigJob, "0/10 * * * * ?", items)
	r.def.Failover = true
	r.def.Props[jobconfig.PropMaxHostDeaths] = "0" // its hosts do not die of what they run
	r.takes = func(int) time.Duration { return 3 * time.Second }
	r.guest = &guest{digest: "rig", run: r.run}
	return r
}

// machine is one process of a host.
type machine struct {
	rig  *rig
	n    int
	host *engine.Host
	stop context.CancelFunc
	kill context.CancelFunc
	done chan error
	// ahead is by how much the machine's wall clock is, in nanoseconds.
	ahead atomic.Int64
	terms atomic.Int64 // sessions that it had

	// guarded by rig.mu
	calls  int
	leaves bool // it was told to stop
	dead   bool // killed: nothing of it is heard or applied any more
	over   bool // Run has returned
	links  []*link
	halted chan struct{} // closed when it goes on; nil while it runs
	unsaid []event.Event
	cut    bool      // from the registry
	slow   time.Time // until then its way to the registry and back takes a while
	thrown time.Time // when dice were thrown last
	throws int       // how many then
}

// mix is a number that follows from others.
func mix(parts ...uint64) uint64 {
	h := uint64(0x9e3779b97f4a7c15)
	for _, p := range parts {
		h = (h ^ p) * 0xff51afd7ed558ccd
		h = (h ^ h>>32) * 0xc4ceb9fe1a85ec53
		h ^= h >> 29
	}
	return h
}

// dice is a number below n. It follows from the seed, the host and the moment,
// and not from the order in which hosts come to throw. mu is held.
func (m *machine) dice(n int) int {
	if now := time.Now(); !now.Equal(m.thrown) {
		m.thrown, m.throws = now, 0
	}
	m.throws++
	return int(mix(m.rig.seed, uint64(m.n), uint64(m.thrown.UnixNano()), uint64(m.throws)) % uint64(n))
}

// while is a time between low and high. mu is held.
func (m *machine) while(low, high time.Duration) time.Duration {
	return low + time.Duration(m.dice(int((high-low)/time.Microsecond)))*time.Microsecond
}

// start runs a host.
func (r *rig) start() *machine {
	r.t.Helper()
	r.mu.Lock()
	m := &machine{rig: r, n: len(r.hosts) + 1, done: make(chan error, 1)}
	r.hosts = append(r.hosts, m)
	r.mu.Unlock()
	if r.clocks != nil {
		m.set(r.clocks())
	}
	config := engine.Config{
		Dial:      m.dial,
		Namespace: rigNamespace, ServerIP: fmt.Sprintf("10.0.0.%d", m.n), Logger: zap.NewNop(), MaxConcurrency: 16,
		OnEvent: m.hear, Now: m.clock, ClockBound: r.bound,
	}
	engine.SetToken(&config, m.token)
	h, err := engine.New(config)
	if err != nil {
		r.t.Fatal(err)
	}
	m.host = h
	ctx, stop := context.WithCancel(context.Background())
	kill, killNow := context.WithCancel(context.Background())
	m.stop, m.kill = stop, killNow
	h.Apply([]engine.Job{job(r.def, r.guest)}, nil)
	r.note("host %d is started", m.n)
	go func() {
		m.done <- h.Run(ctx, kill)
		r.mu.Lock()
		m.over = true
		r.mu.Unlock()
	}()
	return m
}

func (r *rig) note(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.notes = append(r.notes, note{time.Now(), fmt.Sprintf(format, args...)})
}

// wrong notes that a promise was broken. mu is held.
func (r *rig) wrong(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	r.faults = append(r.faults, text)
	r.notes = append(r.notes, note{time.Now(), "WRONG: " + text})
}

// token ends the ids of the machine's next session.
func (m *machine) token() string {
	return fmt.Sprintf("%d-%08x", m.n, m.terms.Add(1))
}

// clock is the machine's wall clock.
func (m *machine) clock() time.Time {
	return time.Now().Add(time.Duration(m.ahead.Load()) - time.Duration(m.n)*m.rig.stagger)
}

// set sets the machine's clock, so that it is so much ahead of time.
func (m *machine) set(ahead time.Duration) {
	before := time.Duration(m.ahead.Swap(int64(ahead)))
	if before == ahead {
		return
	}
	m.rig.note("the clock of host %d, which was %s ahead, is set to %s ahead", m.n, before, ahead)
	m.rig.mu.Lock()
	defer m.rig.mu.Unlock()
	if m.rig.bound >= 0 { // whatever the clock shows, the host goes no further ahead of the registry's
		ahead = min(ahead, 6*time.Second)
	}
	m.rig.earliest, m.rig.latest = min(m.rig.earliest, ahead), max(m.rig.latest, ahead)
}

// spread is how far clocks have been apart at most. mu is held.
func (r *rig) spread() time.Duration { return r.latest - r.earliest }

// hear takes an event, unless its host is dead. What a halted one has to say it
// says when it goes on.
func (m *machine) hear(e event.Event) {
	m.rig.mu.Lock()
	defer m.rig.mu.Unlock()
	switch {
	case m.dead:
	case m.halted != nil:
		m.unsaid = append(m.unsaid, e)
	default:
		m.say(e)
	}
}

// say tells of an event, which happens now. mu is held.
func (m *machine) say(e event.Event) {
	own := e.Time
	e.Time = time.Now()
	// A host whose clock is behind tells of fires that were before items came to
	// be, by the clock of the leader that made them: they do not owe those.
	for m.rig.spread() > 0 && e.Trigger == 0 && !e.Instant.IsZero() && e.Total > 0 && m.rig.born[e.Total-1] >= e.Instant.UnixMilli() {
		e.Total--
	}
	m.rig.events = append(m.rig.events, rigEvent{m.n, e, own})
}

// gate waits while the host is halted.
func (m *machine) gate(ctx context.Context) {
	for {
		m.rig.mu.Lock()
		halted := m.halted
		m.rig.mu.Unlock()
		if halted == nil {
			return
		}
		select {
		case <-halted:
		case <-ctx.Done():
			return
		}
	}
}

// murder kills the host as kill -9 does: its sessions live on until the
// registry gives them up. mu is held.
func (m *machine) murder(why string) {
	if m.dead {
		return
	}
	m.dead = true
	m.rig.notes = append(m.rig.notes, note{time.Now(), fmt.Sprintf("host %d is killed (%s)", m.n, why)})
	if m.halted != nil {
		close(m.halted)
		m.halted = nil
	}
	for _, l := range m.links {
		l.abandon(sessionTimeout)
	}
	m.kill()
}

func (m *machine) murdered(why string) {
	m.rig.mu.Lock()
	defer m.rig.mu.Unlock()
	m.murder(why)
}

// retire tells the host to stop.
func (m *machine) retire() {
	m.rig.note("host %d is told to stop", m.n)
	m.rig.mu.Lock()
	m.leaves = true
	m.rig.mu.Unlock()
	m.stop()
}

// alive reports whether the host runs, and will.
func (m *machine) alive() bool {
	m.rig.mu.Lock()
	defer m.rig.mu.Unlock()
	return !m.dead && !m.over && !m.leaves
}

func (r *rig) living() []*machine {
	r.mu.Lock()
	all := slices.Clone(r.hosts)
	r.mu.Unlock()
	return slices.DeleteFunc(all, func(m *machine) bool { return !m.alive() })
}

// apply changes the definition on all hosts.
func (r *rig) apply(change func(*jobconfig.Configuration)) {
	before := r.def.ShardingTotalCount
	change(&r.def)
	// One that was superseded would not be applied again, if the hosts that know
	// that it was changed back die first.
	r.changes++
	r.def.Description = fmt.Sprintf("change %d", r.changes)
	if total := r.def.ShardingTotalCount; total < before {
		r.mu.Lock()
		r.lowered = append(r.lowered, lowered{time.Now(), total})
		r.mu.Unlock()
	}
	r.note("the definition changes: %d items, failover %v, misfire %v, monitorExecution %v", r.def.ShardingTotalCount, r.def.Failover, r.def.Misfire, r.def.MonitorExecution)
	for _, m := range r.living() {
		m.host.Apply([]engine.Job{job(r.def, r.guest)}, nil)
		time.Sleep(r.stagger)
	}
}

// commits reports whether an item's guest commits its offsets. The others stage
// them.
func commits(item int) bool { return item%2 == 0 }

// run is the guest. It has an effect outside every second, if it may, or its
// offset moves on.
func (r *rig) run(ctx context.Context, inv *abi.Invocation) abi.Result {
	item, fence := inv.Context.ShardingItem, inv.Context.Fence
	_, instance, _ := strings.Cut(inv.Context.TaskID, "@-@READY@-@")
	m := r.machineOf(instance)
	if r.stagger > 0 {
		time.Sleep(time.Duration(item) * r.stagger / 8)
	}
	r.mu.Lock()
	deadline := time.Now().Add(r.takes(item))
	r.handed(m, item, fence, inv)
	r.meant(m, item, inv)
	r.mu.Unlock()
	for n := 0; ; n++ {
		m.gate(ctx)
		if c := inv.Host.Cancelled(); c != abi.CancelNone && c != abi.CancelYield {
			return abi.Result{Outcome: abi.OutcomeCancelled, Message: fmt.Sprint("told to stop: ", c)}
		}
		switch {
		case n%3 != 1:
			r.effect(m, item, fence)
		case commits(item):
			o := r.next(fence)
			if inv.Host.CommitOffset(ctx, o.bytes()) == abi.OK {
				r.durable(m, item, o)
			}
		default:
			inv.Host.StageOffset(ctx, r.next(fence).bytes())
		}
		wait := min(time.Second, time.Until(deadline))
		if wait <= 0 {
			return ok
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			m.gate(context.Background())
			return abi.Result{Outcome: abi.OutcomeCancelled, Message: context.Cause(ctx).Error()}
		}
	}
}

func (r *rig) machineOf(instance string) *machine {
	server, _, _ := strings.Cut(instance, "@-@")
	n, err := strconv.Atoi(strings.TrimPrefix(server, "10.0.0."))
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil || n < 1 || n > len(r.hosts) {
		r.t.Errorf("no host has the instance %q", instance)
		return r.hosts[0]
	}
	return r.hosts[n-1]
}

// effect is what a guest does outside: no former owner may do it.
func (r *rig) effect(m *machine, item int, fence int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if m.dead {
		return
	}
	if j := r.records[item]; j != nil && j.fence > fence {
		r.wrong("host %d has an effect for item %d under fence %d, after the item was begun under fence %d by %s", m.n, item, fence, j.fence, j.owner)
	}
}

// next is the next offset.
func (r *rig) next(fence int64) offset {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.step++
	return offset{fence, r.step}
}

// durable notes that a guest was told that its offset is durable.
func (r *rig) durable(m *machine, item int, o offset) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if m.dead {
		return
	}
	if is, there := r.offsets[item]; there && is.step < o.step {
		r.wrong("host %d was told that offset %v of item %d is durable, and it is %v", m.n, o, item, is)
	}
	r.heard[item] = max(r.heard[item], o.step)
}

// handed looks at the offset that a guest begins with: it cannot be older than
// one that was said to be durable. mu is held.
func (r *rig) handed(m *machine, item int, fence int64, inv *abi.Invocation) {
	if j := r.records[item]; m.dead || j == nil || j.fence != fence || r.heard[item] == 0 {
		return // removed, or another's meanwhile
	}
	o, err := offsetOf(inv.Offset)
	if !inv.HasOffset || err != nil || o.step < r.heard[item] {
		r.wrong("host %d begins item %d under fence %d with offset %q, after a guest was told that step %d is durable", m.n, item, fence, inv.Offset, r.heard[item])
	}
}

// meant judges what a guest of a trigger's round was given. It is called with mu held.
func (r *rig) meant(m *machine, item int, inv *abi.Invocation) {
	want := ""
	if strings.HasPrefix(inv.Context.RunID, rigJob+"/t") {
		if !r.args.Has(item) {
			r.wrong("host %d runs item %d in %s, for which it was not asked", m.n, item, inv.Context.RunID)
		}
		if r.args.Param != nil {
			want = *r.args.Param
		}
	}
	if got := inv.Context.JobParameter; got != want && !m.dead {
		r.wrong("host %d runs %s with parameter %q, want %q", m.n, inv.Context.RunID, got, want)
	}
}

// served judges, when all is quiet, that a trigger that was accepted has run everywhere.
func (r *rig) served() {
	r.mu.Lock()
	defer r.mu.Unlock()
	ran, rounds := make(map[int]bool), make(map[int]int)
	for name := range r.closed {
		var item int
		var round int64
		if n, err := fmt.Sscanf(name, rigJob+"/t%d/%d", &round, &item); n == 2 && err == nil {
			ran[item] = true
			rounds[item]++
		}
	}
	for item := range r.def.ShardingTotalCount {
		if r.triggered && r.args.Has(item) && !ran[item] {
			r.wrong("item %d has not run in the round, which was accepted", item)
		}
		if r.backfilled > 0 && rounds[item] != r.backfilled {
			r.wrong("item %d has run for %d instants of the backfill, which has %d", item, rounds[item], r.backfilled)
		}
	}
}

// dial opens a session.
func (m *machine) dial(ctx context.Context) (registry.Center, error) {
	m.gate(ctx)
	m.rig.mu.Lock()
	var wait time.Duration
	if time.Now().Before(m.slow) {
		wait = m.while(50*time.Millisecond, 3*time.Second)
	}
	m.rig.mu.Unlock()
	if wait > 0 {
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	m.rig.mu.Lock()
	blocked := m.cut || m.dead
	m.rig.mu.Unlock()
	if blocked {
		return nil, registry.ErrUnavailable
	}
	rc, err := m.rig.server.Connect(ctx)
	if err != nil {
		return nil, err
	}
	l := &link{m: m, rc: rc, lost: make(chan struct{}), changed: make(chan struct{}), healed: make(chan struct{})}
	close(l.healed)
	m.rig.mu.Lock()
	defer m.rig.mu.Unlock()
	m.links = append(m.links, l)
	return l, nil
}

// link is a session that can be cut.
type link struct {
	m    *machine
	rc   registry.Center
	lost chan struct{} // closed when the host gives up

	// guarded by rig.mu
	level   registry.Trust
	changed chan struct{} // closed when level changes
	healed  chan struct{} // closed unless it is cut
	timers  []*time.Timer
	half    bool      // while it is cut requests arrive, and no answers
	transit bool      // what was on its way when it was cut arrives
	heals   int       // how often it was connected again
	last    *place    // the newest request that did not go through at once
	applyAt time.Time // when that is applied
	tellAt  time.Time // when it is answered
	told    time.Time // when a commit was answered last
}

// place is a request's among those of its session: they are applied and
// answered in the order in which they were sent.
type place struct{ applied, answered chan struct{} }

// abandon has the registry end the session after a time. mu is held.
func (l *link) abandon(after time.Duration) {
	time.AfterFunc(after, func() { l.m.rig.server.Expire(l.rc) })
}

// trust sets the level. mu is held.
func (l *link) trust(level registry.Trust) {
	if l.level == level || l.gone() {
		return
	}
	l.level = level
	close(l.changed)
	l.changed = make(chan struct{})
	if level == registry.TrustLost {
		close(l.lost)
	}
}

// lose ends the session for the host. mu is held.
func (l *link) lose() { l.trust(registry.TrustLost) }

// gone reports whether it has. mu is held.
func (l *link) gone() bool { return l.level == registry.TrustLost }

// sever cuts the host from the registry: after a third of the session timeout
// it is in doubt, after two thirds it gives up, then the registry does.
func (m *machine) sever() { m.part(false) }

// deafen cuts it off by half: what it asks for arrives, and no answer does. The
// registry gives it up when it has heard nothing since the host gave up.
func (m *machine) deafen() { m.part(true) }

func (m *machine) part(half bool) {
	r := m.rig
	r.mu.Lock()
	defer r.mu.Unlock()
	if m.cut || m.dead {
		return
	}
	m.cut = true
	how, end := "cut off", sessionTimeout
	if half {
		how, end = "deaf to the registry, which hears it", deafTimeout
	}
	r.notes = append(r.notes, note{time.Now(), fmt.Sprintf("host %d is %s", m.n, how)})
	for _, l := range m.links {
		if l.gone() {
			continue
		}
		l.healed = make(chan struct{})
		l.half, l.transit = half, m.dice(2) == 0
		healed := l.healed
		later := func(d time.Duration, what func()) {
			l.timers = append(l.timers, time.AfterFunc(d, func() {
				r.mu.Lock()
				defer r.mu.Unlock()
				select {
				case <-healed: // at the same moment, and too late to be stopped
				default:
					what()
				}
			}))
		}
		later(sessionTimeout/3, func() { l.trust(registry.TrustSuspect) })
		later(5*sessionTimeout/8, func() { l.trust(registry.TrustYield) })
		later(2*sessionTimeout/3, l.lose)
		l.timers = append(l.timers, time.AfterFunc(end, func() { r.server.Expire(l.rc) }))
	}
}

// heal ends the cut. A session that the host has given up stays so.
func (m *machine) heal() {
	r := m.rig
	r.mu.Lock()
	defer r.mu.Unlock()
	if !m.cut {
		return
	}
	m.cut = false
	r.notes = append(r.notes, note{time.Now(), fmt.Sprintf("host %d is connected again", m.n)})
	for _, l := range m.links {
		select {
		case <-l.healed:
			continue
		default:
		}
		if l.gone() { // it will be expired
			close(l.healed)
			continue
		}
		for _, t := range l.timers {
			t.Stop()
		}
		l.timers = nil
		// Trust comes with the answer to a sync on a new connection: the old
		// one's requests have arrived by then, or never will.
		l.heals++
		l.told = time.Now()
		l.trust(registry.TrustLive)
		close(l.healed)
	}
}

// halt stops the process as SIGSTOP does: nothing of it moves. Its loops do, up to their next call, and report then what they
// saw. So it is in doubt when a real one would find itself to be: else it would report of instants that it never lived to see.
func (m *machine) halt() {
	m.rig.mu.Lock()
	defer m.rig.mu.Unlock()
	if m.halted != nil || m.dead || m.cut {
		return
	}
	m.rig.notes = append(m.rig.notes, note{time.Now(), fmt.Sprintf("host %d is halted", m.n)})
	halted := make(chan struct{})
	m.halted = halted
	for _, l := range m.links {
		if l.gone() {
			continue
		}
		l.timers = append(l.timers, time.AfterFunc(sessionTimeout, func() { m.rig.server.Expire(l.rc) }), time.AfterFunc(sessionTimeout/3, func() {
			m.rig.mu.Lock()
			defer m.rig.mu.Unlock()
			if m.halted == halted {
				l.trust(registry.TrustSuspect)
			}
		}))
	}
}

// goOn lets it go on after so long. If that was too long it finds out at once.
func (m *machine) goOn(after time.Duration) {
	m.rig.mu.Lock()
	defer m.rig.mu.Unlock()
	if m.halted == nil || m.dead {
		return
	}
	m.rig.notes = append(m.rig.notes, note{time.Now(), fmt.Sprintf("host %d goes on", m.n)})
	for _, l := range m.links {
		if l.gone() {
			continue
		}
		if after >= 2*sessionTimeout/3 {
			l.lose()
			continue // what remains of its time in the registry runs out
		}
		for _, t := range l.timers {
			t.Stop()
		}
		l.timers = nil
		l.trust(registry.TrustLive)
	}
	for _, e := range m.unsaid {
		e.Time = m.clock()
		m.say(e)
	}
	m.unsaid = nil
	close(m.halted)
	m.halted = nil
}

// slowFor makes the host's way to the registry slow for so long.
func (m *machine) slowFor(d time.Duration) {
	m.rig.note("requests, answers and news of host %d are up to 3 s late for %s", m.n, d.Round(time.Second))
	m.rig.mu.Lock()
	defer m.rig.mu.Unlock()
	m.slow = time.Now().Add(d)
}

// expire ends the newest session in the way of an adapter: the host is told
// first.
func (m *machine) expire() {
	m.rig.mu.Lock()
	defer m.rig.mu.Unlock()
	m.rig.notes = append(m.rig.notes, note{time.Now(), fmt.Sprintf("the session of host %d ends", m.n)})
	if len(m.links) > 0 {
		m.links[len(m.links)-1].lose()
	}
}

// call says what becomes of a call. If it returns no error, mu is held.
func (l *link) call(ctx context.Context, op string) (meddling, error) {
	l.m.gate(ctx)
	r := l.m.rig
	r.mu.Lock()
	switch {
	case l.m.dead || l.gone():
		r.mu.Unlock()
		return letBe, registry.ErrSessionLost
	case l.level != registry.TrustLive:
		r.mu.Unlock()
		return letBe, registry.ErrSuspect
	}
	what := letBe
	if !l.severed() {
		l.m.calls++
		if r.meddle != nil {
			what = r.meddle(l.m, op)
		}
	}
	return what, nil // the caller unlocks mu
}

// severed reports whether the link is cut. mu is held.
func (l *link) severed() bool {
	select {
	case <-l.healed:
		return false
	default:
		return true
	}
}

// delays says how long a call is on its way, and its answer. mu is held.
func (l *link) delays(what meddling) (request, answer time.Duration) {
	least, most := 50*time.Millisecond, 1500*time.Millisecond
	slow := time.Now().Before(l.m.slow)
	if what == slowRequest || slow && l.m.dice(3) > 0 {
		request = l.m.while(least, most)
	}
	if what == slowAnswer || slow && l.m.dice(3) > 0 {
		answer = l.m.while(least, most)
	}
	return request, answer
}

// idle reports whether all that was sent has been answered. mu is held.
func (l *link) idle() bool {
	if l.last == nil {
		return true
	}
	select {
	case <-l.last.answered:
		l.last = nil
		return true
	default:
		return false
	}
}

// post sends a request on its way. do applies it, with mu held. mu is held.
func (l *link) post(request, answer time.Duration, do func()) *place {
	later := func(a, b time.Time) time.Time {
		if a.After(b) {
			return a
		}
		return b
	}
	before, p := l.last, &place{applied: make(chan struct{}), answered: make(chan struct{})}
	l.last = p
	l.applyAt = later(l.applyAt, time.Now().Add(request))
	l.tellAt = later(l.tellAt, l.applyAt.Add(answer))
	applyAt, tellAt, heals, whileCut := l.applyAt, l.tellAt, l.heals, l.severed()
	go func() {
		if before != nil {
			<-before.applied
		}
		time.Sleep(time.Until(applyAt))
		l.m.rig.mu.Lock()
		lost := false
		switch {
		case l.heals != heals: // the session has moved to another connection
			lost = true
		case l.severed():
			lost = !l.half && (whileCut || !l.transit)
		case whileCut: // and given up meanwhile
			lost = !l.half
		}
		if !lost {
			do()
		}
		l.m.rig.mu.Unlock()
		close(p.applied)
		if before != nil {
			<-before.answered
		}
		time.Sleep(time.Until(tellAt))
		close(p.answered)
	}()
	return p
}

// Why no answer was heard.
var (
	errMoved = errors.New("the connection broke")
	errGone  = errors.New("the session is over")
)

// await waits for the answer to a request that was sent when the link had been
// connected again so often.
func (l *link) await(ctx context.Context, p *place, heals int) error {
	r := l.m.rig
	for {
		r.mu.Lock()
		answered, healed := p.answered, l.healed
		cut, moved := l.severed(), l.heals != heals
		r.mu.Unlock()
		if moved {
			return errMoved
		}
		if cut {
			answered = nil
		} else {
			healed = nil
		}
		select {
		case <-answered:
			r.mu.Lock()
			cut, moved := l.severed(), l.heals != heals
			r.mu.Unlock()
			switch {
			case moved:
				return errMoved
			case !cut:
				l.m.gate(ctx)
				r.mu.Lock()
				defer r.mu.Unlock()
				if l.gone() || l.m.dead {
					return errGone
				}
				return nil
			}
		case <-healed:
		case <-l.lost:
			return errGone
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Commit implements registry.Center.
func (l *link) Commit(ctx context.Context, ops ...registry.Op) ([]registry.Result, error) {
	what, err := l.call(ctx, "commit")
	if err != nil {
		return nil, err
	}
	r := l.m.rig
	locked := true
	defer func() {
		if locked {
			r.mu.Unlock()
		}
	}()
	switch what {
	case killBefore:
		l.m.murder("before " + describe(ops))
		return nil, registry.ErrSessionLost
	case loseRequest:
		return nil, registry.ErrUnknown
	case refuse:
		return nil, registry.ErrUnavailable
	case expireNow:
		l.lose()
		return nil, registry.ErrSessionLost
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("registry: commit: %w", err)
	}
	var results []registry.Result
	apply := func() {
		if l.severed() {
			r.notes = append(r.notes, note{time.Now(), fmt.Sprintf("what host %d sent arrives: %s", l.m.n, describe(ops))})
		}
		if results, err = l.rc.Commit(context.Background(), ops...); err == nil {
			r.write(l.m, ops, results)
		}
		switch what {
		case killAfter:
			l.m.murder("after " + describe(ops))
			results, err = nil, registry.ErrSessionLost
		case loseAnswer:
			results, err = nil, registry.ErrUnknown
		case expireThen:
			l.lose()
			results, err = nil, registry.ErrUnknown
		}
	}
	request, answer := l.delays(what)
	switch cut := l.severed(); {
	case !cut && l.idle() && (request+answer == 0 || held(ops)):
		apply()
		l.told = time.Now()
		return results, err
	case held(ops):
		// To wait would be truer, and stop the clock of the bubble: a guest may
		// wait in the mutex that the caller holds.
		if l.m.dice(2) == 0 {
			if cut {
				return nil, registry.ErrUnknown
			}
			return nil, registry.ErrUnavailable
		}
		if request == 0 {
			request = l.m.while(50*time.Millisecond, 3*time.Second)
		}
		l.post(request, answer, apply)
		return nil, registry.ErrUnknown
	case cut && request == 0:
		request = l.m.while(50*time.Millisecond, 3*time.Second)
	}
	p, heals := l.post(request, answer, apply), l.heals
	locked = false
	r.mu.Unlock()
	if heardNot := l.await(ctx, p, heals); heardNot != nil {
		return nil, fmt.Errorf("%w: %v", registry.ErrUnknown, heardNot)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	l.told = time.Now()
	return results, err
}

// held reports whether the commit is the one that makes staged offsets durable.
func held(ops []registry.Op) bool {
	stages := false
	for _, op := range ops {
		item, isOffset := offsetItem(op.Path)
		if !isOffset && !(op.Kind == registry.OpCheck && provesRun(op.Path)) {
			return false
		}
		stages = stages || isOffset && !commits(item)
	}
	return stages
}

// looksForHeld reports whether the read is the one with which it is found out
// what became of such a commit.
func looksForHeld(queries []registry.Query) bool {
	stages := false
	for _, q := range queries {
		item, isOffset := offsetItem(q.Path)
		if q.Children || !isOffset && !provesRun(q.Path) {
			return false
		}
		stages = stages || isOffset && !commits(item)
	}
	return stages
}

// provesRun reports whether the node is one of those that prove that a run is its
// host's: a record, or a list of runs.
func provesRun(path string) bool {
	sibling := tree.NewLayout(rigNamespace, rigJob).Sibling()
	return strings.HasPrefix(path, sibling+"/sharding/") || strings.HasPrefix(path, sibling+"/runs/")
}

// look carries out a call that changes nothing.
func (l *link) look(ctx context.Context, op string, held bool, do func() error) error {
	what, err := l.call(ctx, op)
	if err != nil {
		return err
	}
	r := l.m.rig
	switch what {
	case killBefore, killAfter:
		l.m.murder("at a " + op)
		r.mu.Unlock()
		return registry.ErrSessionLost
	case expireNow, expireThen:
		l.lose()
		r.mu.Unlock()
		return registry.ErrSessionLost
	case loseAnswer, loseRequest, refuse:
		r.mu.Unlock()
		return registry.ErrUnavailable
	}
	request, answer := l.delays(what)
	switch {
	case !l.severed() && l.idle() && (request+answer == 0 || held):
		defer r.mu.Unlock()
		return do()
	case held:
		r.mu.Unlock()
		return registry.ErrUnavailable
	}
	var done error
	p, heals := l.post(request, answer, func() { done = do() }), l.heals
	r.mu.Unlock()
	switch err := l.await(ctx, p, heals); err {
	case nil:
		return done
	case errMoved:
		return registry.ErrUnavailable
	case errGone:
		return registry.ErrSessionLost
	default:
		return fmt.Errorf("registry: %s: %w", op, err)
	}
}

// Read implements registry.Center.
func (l *link) Read(ctx context.Context, q ...registry.Query) ([]registry.Node, error) {
	var nodes []registry.Node
	err := l.look(ctx, "read", looksForHeld(q), func() (err error) {
		nodes, err = l.rc.Read(ctx, q...)
		return err
	})
	if err != nil {
		return nil, err
	}
	return nodes, nil
}

// Watch implements registry.Center.
func (l *link) Watch(ctx context.Context, q ...registry.Query) (<-chan registry.Snapshot, error) {
	watching, stop := context.WithCancel(ctx)
	var in <-chan registry.Snapshot
	err := l.look(ctx, "watch", false, func() (err error) {
		in, err = l.rc.Watch(watching, q...)
		return err
	})
	if err != nil {
		stop()
		return nil, err
	}
	out := make(chan registry.Snapshot)
	go func() {
		defer stop()
		l.relay(watching, in, out)
	}()
	return out, nil
}

// news is a snapshot that is on its way.
type news struct {
	snapshot registry.Snapshot
	sent     time.Time
	comes    time.Time
}

// relay passes snapshots on while the way is free; newer ones replace older.
// They come in order, and late if the way is slow, but none that is behind a
// commit of the session is offered after that was answered.
func (l *link) relay(ctx context.Context, in <-chan registry.Snapshot, out chan<- registry.Snapshot) {
	defer close(out)
	r := l.m.rig
	var newest registry.Snapshot
	var waiting []news
	var due *time.Timer
	take := func(s registry.Snapshot) {
		r.mu.Lock()
		defer r.mu.Unlock()
		n := news{s, time.Now(), time.Now().Add(time.Duration(l.m.n) * r.stagger)}
		if n.sent.Before(l.m.slow) {
			n.comes = n.comes.Add(l.m.while(50*time.Millisecond, 3*time.Second))
		}
		if k := len(waiting); k > 0 && waiting[k-1].comes.After(n.comes) {
			n.comes = waiting[k-1].comes
		}
		waiting = append(waiting, n)
	}
	for {
		l.m.gate(ctx)
		r.mu.Lock()
		healed := l.healed
		r.mu.Unlock()
		select {
		case <-healed:
		case <-l.lost:
			return
		case <-ctx.Done():
			return
		}
		select {
		case s, ok := <-in:
			if !ok {
				return
			}
			take(s)
		default:
		}
		r.mu.Lock()
		told := l.told
		r.mu.Unlock()
		for len(waiting) > 0 && (!waiting[0].comes.After(time.Now()) || !waiting[0].sent.After(told)) {
			newest, waiting = waiting[0].snapshot, waiting[1:]
		}
		var comes <-chan time.Time
		if len(waiting) > 0 {
			due = time.NewTimer(time.Until(waiting[0].comes))
			comes = due.C
		}
		to := out
		if newest == nil {
			to = nil
		}
		over := false
		select {
		case s, ok := <-in:
			if ok {
				take(s)
			}
			over = !ok
		case to <- newest:
			newest = nil
		case <-comes:
		case <-l.lost:
			over = true
		case <-ctx.Done():
			over = true
		}
		if comes != nil {
			due.Stop()
		}
		if over {
			return
		}
	}
}

// Trust implements registry.Center.
func (l *link) Trust() (registry.Trust, <-chan struct{}) {
	l.m.rig.mu.Lock()
	defer l.m.rig.mu.Unlock()
	if l.gone() || l.m.dead {
		return registry.TrustLost, nil
	}
	return l.level, l.changed
}

// Trusted implements registry.Center.
func (l *link) Trusted() bool {
	level, _ := l.Trust()
	return level == registry.TrustLive
}

// Lost implements registry.Center.
func (l *link) Lost() <-chan struct{} { return l.lost }

// Close implements registry.Center. Of a host that is dead or cut
// off the registry hears nothing.
func (l *link) Close() error {
	l.m.rig.mu.Lock()
	l.lose()
	silent := l.m.dead
	select {
	case <-l.healed:
	default:
		silent = true
	}
	last := l.last
	l.m.rig.mu.Unlock()
	if silent {
		return nil
	}
	if last != nil {
		<-last.applied // what was sent before
	}
	return l.rc.Close()
}

func describe(ops []registry.Op) string {
	var b strings.Builder
	for i, op := range ops {
		if i == 6 {
			fmt.Fprintf(&b, ", and %d more", len(ops)-i)
			break
		}
		if i > 0 {
			b.WriteString(", ")
		}
		path := strings.TrimPrefix(op.Path, "/"+rigNamespace)
		fmt.Fprintf(&b, "%s %s", op.Kind, path)
	}
	return b.String()
}

// write reads in a commit what became of items, and checks it against what was
// written before. mu is held.
func (r *rig) write(m *machine, ops []registry.Op, results []registry.Result) {
	defer r.writeOff(ops)
	defer r.writeOffsets(m, ops)
	records := tree.NewLayout(rigNamespace, rigJob).Sibling() + "/sharding/"
	for i, op := range ops {
		name, isRecord := strings.CutPrefix(op.Path, records)
		if !isRecord {
			continue
		}
		item, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		if op.Kind == registry.OpDelete {
			delete(r.records, item)
			continue
		}
		var now tree.Record
		if op.Kind == registry.OpCheck || json.Unmarshal(op.Data, &now) != nil {
			continue
		}
		if before := r.records[item]; !now.Open() && (before == nil || !before.open) {
			r.born[item] = now.Instant
		}
		if op.Kind != registry.OpSet {
			continue
		}
		state := "begins"
		if !now.Open() {
			state = "ends " + now.Outcome
		}
		r.notes = append(r.notes, note{time.Now(), fmt.Sprintf("host %d writes: item %d %s, of %s, instant %s, trigger %d, %s", m.n, item, state, now.Owner,
			time.UnixMilli(now.Instant).UTC().Format("15:04:05.000"), now.Trigger, now.Source)})
		before := r.records[item]
		if before == nil {
			before = &journal{}
			r.records[item] = before
		}
		if !now.Open() {
			if before.open && now.Outcome != tree.OutcomeCancelled {
				r.closed[before.run] = true
			}
			if before.open && now.Outcome == tree.OutcomeCancelled && now.Instant == before.instant && now.Trigger == before.trigger {
				r.closed[before.run] = true // the guest's own end
			}
			if all := r.spans[item]; before.open && len(all) > 0 {
				all[len(all)-1].ended = time.Now()
			}
			before.open, before.instant, before.trigger = false, now.Instant, now.Trigger
			continue
		}
		fence := results[i].Zxid
		run := before.run
		switch {
		case now.Trigger > before.trigger:
			run = tree.RunID(rigJob, tree.Fire{Trigger: now.Trigger}, item)
		case now.Instant > before.instant:
			run = tree.RunID(rigJob, tree.Fire{Instant: now.Instant}, item)
		}
		if r.closed[run] {
			r.wrong("host %d begins %s under fence %d although its completion took effect", m.n, run, fence)
		}
		if before.open && now.Source != string(abi.SourceFailover) && run == before.run {
			r.wrong("host %d begins %s once more, and it is open on %s", m.n, run, before.owner)
		}
		if fence <= before.fence {
			r.wrong("host %d begins %s under fence %d, after fence %d", m.n, run, fence, before.fence)
		}
		r.spans[item] = append(r.spans[item], span{began: time.Now(), instant: now.Instant})
		*before = journal{open: true, fence: fence, owner: now.Owner, instant: now.Instant, trigger: now.Trigger, run: run}
	}
}

// writeOffsets reads in a commit where items have come: never behind where they
// were, and only by who began them last. mu is held.
func (r *rig) writeOffsets(m *machine, ops []registry.Op) {
	for _, op := range ops {
		item, isOffset := offsetItem(op.Path)
		switch {
		case !isOffset:
			continue
		case op.Kind == registry.OpDelete:
			delete(r.offsets, item)
			delete(r.heard, item)
			continue
		case op.Kind != registry.OpSet && op.Kind != registry.OpCreate:
			continue
		}
		now, err := offsetOf(op.Data)
		before := r.offsets[item]
		if j := r.records[item]; err != nil || j == nil || j.fence != now.fence || now.step < before.step {
			r.wrong("host %d writes the offset %q of item %d after %v; its newest fence is %+v", m.n, op.Data, item, before, j)
		}
		r.offsets[item] = now
	}
}

// offsetItem is the item whose offset the path is.
func offsetItem(path string) (item int, is bool) {
	name, is := strings.CutPrefix(path, tree.NewLayout(rigNamespace, rigJob).Sibling()+"/offset/")
	item, err := strconv.Atoi(name)
	return item, is && err == nil
}

// writeOff notes runs that went from a list of runs though their records tell of
// newer ones: whoever took them off tells that they are lost, if it lives. mu is
// held.
func (r *rig) writeOff(ops []registry.Op) {
	for _, op := range ops {
		id, isList := strings.CutPrefix(op.Path, tree.NewLayout(rigNamespace, rigJob).Sibling()+"/runs/")
		if !isList || op.Kind != registry.OpSet && op.Kind != registry.OpDelete {
			continue
		}
		var now tree.Runs
		if len(op.Data) > 0 && json.Unmarshal(op.Data, &now) != nil {
			continue
		}
		for _, run := range r.lists[id].Runs {
			for i := range run.Items.All() {
				name := tree.RunID(rigJob, run.Fire, i)
				if j := r.records[i]; !now.Items().Contains(i) && j != nil && j.run != name {
					r.closed[name] = true
				}
			}
		}
		r.lists[id] = now
	}
}

// period is how often the job fires.
const period = 10 * time.Second

// rest lets the cluster come to rest, with clocks that are right, and checks
// everything.
func (r *rig) rest(quiet time.Duration) {
	r.t.Helper()
	r.mu.Lock()
	r.meddle = nil
	all := slices.Clone(r.hosts)
	for _, m := range all {
		m.slow = time.Time{}
	}
	r.mu.Unlock()
	for _, m := range all {
		m.heal()
		m.goOn(sessionTimeout)
	}
	r.clocks = nil
	for _, m := range all {
		m.set(0)
	}
	r.slowly(2 * time.Second)
	if len(r.living()) == 0 {
		r.start()
		time.Sleep(time.Second)
	}
	r.enableAll()
	rc, err := r.server.Connect(context.Background())
	if err != nil {
		r.t.Fatal(err)
	}
	r.note("the trouble is over")
	still := time.Now().Add(quiet)
	expected := r.whole(rc, still)
	time.Sleep(time.Until(still))
	// Nine seconds after an instant nothing runs.
	last := time.Now().Truncate(period).Add(3 * period)
	time.Sleep(time.Until(last.Add(9 * time.Second)))
	r.settled(rc)
	if err := rc.Close(); err != nil {
		r.t.Error(err)
	}
	r.mu.Lock()
	// The last fire reached every item.
	done := make(map[int]bool)
	for _, e := range r.events {
		if e.e.Kind == event.ItemCompleted && e.e.Instant.Equal(last) {
			done[*e.e.Item] = true
		}
	}
	if len(done) != r.def.ShardingTotalCount {
		r.wrong("of %d items %d ran at %s, when all was quiet", r.def.ShardingTotalCount, len(done), last.UTC().Format(time.TimeOnly))
	}
	for item := range r.def.ShardingTotalCount {
		r.again(item, expected[item])
	}
	r.mu.Unlock()
	time.Sleep(20 * time.Second) // so that what was due when it came to rest is judged
	for _, m := range all {
		m.stop()
	}
	for _, m := range r.living() {
		m.stop()
	}
	r.mu.Lock()
	all = slices.Clone(r.hosts)
	r.mu.Unlock()
	for _, m := range all {
		<-m.done
	}
	time.Sleep(2 * sessionTimeout) // sessions of the dead
	if err := r.server.Close(); err != nil {
		r.t.Error(err)
	}
	r.verify()
	if uses := r.guest.inUse(); uses != 0 {
		r.faults = append(r.faults, fmt.Sprintf("%d uses of the module are left", uses))
	}
}

// expectation is when an item has to begin again.
type expectation struct {
	at   time.Time
	busy bool // it runs then
}

// whole waits until the hosts that live, and no others, are members and have
// divided the items, and returns when each has to begin: at the first instant
// after that, or the first that no host has begun or skipped for good by a clock
// that was ahead.
func (r *rig) whole(rc registry.Center, end time.Time) map[int]expectation {
	r.t.Helper()
	time.Sleep(333 * time.Microsecond) // not at a full millisecond, where hosts act
	for why := r.lacks(rc); why != ""; why = r.lacks(rc) {
		if time.Now().After(end) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.wrong("the cluster is not whole: %s", why)
			return nil
		}
		time.Sleep(100 * time.Millisecond)
	}
	r.note("the cluster is whole again")
	first := time.Now().Truncate(period).Add(period)
	time.Sleep(time.Until(first) - time.Millisecond)
	r.mu.Lock()
	defer r.mu.Unlock()
	all := make(map[int]expectation)
	for item := range r.def.ShardingTotalCount {
		begun, e := r.born[item], expectation{at: first}
		if j := r.records[item]; j != nil {
			begun, e.busy = max(begun, j.instant), j.open
		}
		for _, said := range r.events {
			if s := said.e; s.Kind == event.ItemSkipped && *s.Item == item && s.Fence == 0 && s.Trigger == 0 && !s.Owed {
				begun = max(begun, s.Instant.UnixMilli())
			}
		}
		if at := time.UnixMilli(begun); !at.Before(first) {
			e.at = at.Truncate(period).Add(period)
		}
		all[item] = e
	}
	return all
}

// lacks says what the cluster lacks to be whole.
func (r *rig) lacks(rc registry.Center) string {
	ctx, l := context.Background(), tree.NewLayout(rigNamespace, rigJob)
	left, err := verify.Registry(ctx, rc, rigNamespace)
	if err != nil {
		return err.Error()
	}
	for _, f := range left {
		if !strings.Contains(f.Nodes[0], "/trigger/") {
			return fmt.Sprint(f.Text, f.Nodes)
		}
	}
	living := r.living()
	queries := []registry.Query{registry.Children(l.Root() + "/instances")}
	for item := range r.def.ShardingTotalCount {
		queries = append(queries, registry.Data(fmt.Sprintf("%s/sharding/%d/instance", l.Root(), item)))
	}
	nodes, err := rc.Read(ctx, queries...)
	if err != nil {
		return err.Error()
	}
	if ids := nodes[0].Names; len(ids) != len(living) {
		return fmt.Sprintf("%d hosts live, and %v are registered", len(living), ids)
	}
	for _, m := range living {
		s := m.host.Status()
		// The job may have been left and joined again, as instance -2 of the term.
		registered := slices.ContainsFunc(nodes[0].Names, func(id string) bool { return id == s.Instance || strings.HasPrefix(id, s.Instance+"-") })
		if s.State != engine.HostLive || !registered {
			return fmt.Sprintf("%s is %s, and %v are registered", s.Instance, s.State, nodes[0].Names)
		}
	}
	for item, n := range nodes[1:] {
		if !slices.Contains(nodes[0].Names, string(n.Data)) {
			return fmt.Sprintf("item %d belongs to %q", item, n.Data)
		}
	}
	return ""
}

// again checks that an item began when it had to, or within a period after it
// had ended what it did then. mu is held.
func (r *rig) again(item int, expected expectation) {
	if expected.at.IsZero() {
		return // the cluster was never whole
	}
	limit := expected.at.Add(time.Second)
	for _, s := range r.spans[item] {
		if expected.busy && s.began.Before(expected.at) && s.ended.After(expected.at) {
			limit = s.ended.Add(period + time.Second)
		}
		if s.began.Before(expected.at) && s.instant >= expected.at.UnixMilli() {
			return // a clock that was ahead had owed it, and it was begun since the cluster is whole
		}
		if !s.began.Before(expected.at) {
			if s.began.After(limit) {
				r.wrong("item %d began at %s, and should have by %s", item, s.began.UTC().Format("15:04:05.000"), limit.UTC().Format("15:04:05.000"))
			}
			return
		}
	}
	r.wrong("item %d has not begun since %s", item, expected.at.UTC().Format(time.TimeOnly))
}

// settled checks that the registry is in order, and that offsets are as they
// were written. A trigger of an instance that is gone is in nobody's way and
// stays until the next sweep.
func (r *rig) settled(rc registry.Center) {
	r.t.Helper()
	ctx := context.Background()
	look := func() []verify.Finding {
		left, err := verify.Registry(ctx, rc, rigNamespace)
		if err != nil {
			r.t.Error(err)
		}
		return left
	}
	isTrigger := func(f verify.Finding) bool { return strings.Contains(f.Nodes[0], "/trigger/") }
	left := look()
	if slices.ContainsFunc(left, isTrigger) {
		time.Sleep(time.Duration(r.def.ReconcileIntervalMinutes+1) * time.Minute)
		now := look()
		left = slices.DeleteFunc(left, func(f verify.Finding) bool {
			return isTrigger(f) && !slices.ContainsFunc(now, func(o verify.Finding) bool { return slices.Equal(f.Nodes, o.Nodes) })
		})
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, f := range left {
		r.wrong("left in the registry: %s %v", f.Text, f.Nodes)
	}
	offsets := tree.NewLayout(rigNamespace, rigJob).Sibling() + "/offset"
	items, err := rc.Read(ctx, registry.Children(offsets))
	if err != nil {
		r.t.Error(err)
		return
	}
	found := make(map[int]offset)
	for _, name := range items[0].Names {
		nodes, err := rc.Read(ctx, registry.Data(offsets+"/"+name))
		if err != nil {
			r.t.Error(err)
			return
		}
		item, _ := offsetItem(nodes[0].Path)
		if found[item], err = offsetOf(nodes[0].Data); err != nil {
			r.wrong("the offset of item %s is %q", name, nodes[0].Data)
		}
	}
	if !maps.Equal(found, r.offsets) {
		r.wrong("the offsets are %v, and %v was written", found, r.offsets)
	}
}

// enableAll enables what an operator has disabled whose host died since. Hosts
// whose links are slow take long.
func (r *rig) enableAll() {
	enable := func(m *machine) bool {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if m.operator().Enable(ctx, rigJob) != nil {
			return false
		}
		for i := range r.def.ShardingTotalCount {
			err := m.operator().EnableItem(ctx, rigJob, i)
			if err != nil && !strings.Contains(err.Error(), "has no item") { // it may not be there yet
				return false
			}
		}
		return true
	}
	for range 30 {
		if slices.ContainsFunc(r.living(), enable) {
			return
		}
		time.Sleep(time.Second)
	}
}

// verify runs the checker over the events, by the time at which they happened,
// which is stricter than by the clocks of the hosts.
func (r *rig) verify() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.check(verify.Options{Skew: -1}, func(e rigEvent) event.Event { return e.e })
}

// check runs the checker over the events, each as seen says. mu is held.
func (r *rig) check(o verify.Options, seen func(rigEvent) event.Event) {
	// By a clock that is wrong a fire comes up so much earlier or later.
	o.Settle = 90*time.Second + r.spread()
	o.Completed = func(id string) bool { return r.closed[id] }
	c := verify.New(o)
	lastOf := make(map[int]int)
	for i, e := range r.events {
		lastOf[e.from] = i
	}
	for i, e := range r.events {
		// Items that went with a smaller total count may have gone before a
		// clock that is behind came to the instant.
		e.e = seen(e)
		for _, l := range r.lowered {
			if e.e.Total > 0 && e.e.Trigger == 0 && r.spread() > 0 && l.at.Sub(e.e.Instant).Abs() <= r.spread() {
				e.e.Total = min(e.e.Total, l.total)
			}
		}
		at := verify.Place{File: fmt.Sprintf("host %d", e.from), Line: i + 1}
		c.Add(e.e, at)
		if lastOf[e.from] == i {
			c.End(at.File)
		}
	}
	report := c.Finish()
	for _, f := range report.Findings {
		switch {
		case f.Class == verify.Fenced: // the effects were looked at one by one
			continue
		case f.Class == verify.Unproven && r.closed[f.RunID]:
			continue
		case r.spread() > 0 && strings.HasSuffix(f.Text, "a host had said why it would not") && f.Lines[1].Time.Sub(f.Lines[0].Time) <= r.spread():
			continue // it moved to a host whose clock is behind, to which the instant came then
		}
		var b strings.Builder
		fmt.Fprintf(&b, "invariant %d, %s: item %d: %s", f.Invariant, f.Class, f.Item, f.Text)
		for _, l := range f.Lines {
			fmt.Fprintf(&b, "\n    %s %s %s", l.Place, l.Time.UTC().Format("15:04:05.000"), l.Text)
		}
		r.faults = append(r.faults, b.String())
	}
}

// timeline is everything that happened, one line each.
func (r *rig) timeline() string {
	var b strings.Builder
	notes := r.notes
	for i, e := range r.events {
		for len(notes) > 0 && !notes[0].at.After(e.e.Time) {
			fmt.Fprintf(&b, "%s ---- %s\n", notes[0].at.UTC().Format("15:04:05.000"), notes[0].text)
			notes = notes[1:]
		}
		fence := ""
		if e.e.Fence != 0 {
			fence = fmt.Sprintf(" fence %d", e.e.Fence)
		}
		fmt.Fprintf(&b, "%4d host %d%s %s", i+1, e.from, fence, lines([]event.Event{e.e}))
	}
	for _, n := range notes {
		fmt.Fprintf(&b, "%s ---- %s\n", n.at.UTC().Format("15:04:05.000"), n.text)
	}
	return b.String()
}
