package host_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/coordination"
	"github.com/wasmjob/wasmjob/coordination/embedded"
	"github.com/wasmjob/wasmjob/host"
	"github.com/wasmjob/wasmjob/host/verify"
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
	// As decided for real registries, the host itself is suspect after a third
	// of it, and gives up after two thirds.
	sessionTimeout = 12 * time.Second
)

type rig struct {
	t      testing.TB
	server *embedded.Server
	def    coordination.JobConfiguration
	guest  *guest
	// takes says how long a run of the item takes. It is called with mu held.
	takes func(item int) time.Duration
	// meddle, if not nil, decides what becomes of a call. It is called with mu
	// held.
	meddle func(m *machine, op string) meddling
	// clocks, if not nil, says by how much the clock of the next host is ahead
	// of time, or behind if it is negative.
	clocks func() time.Duration
	// earliest and latest are how far clocks were behind and ahead of time.
	earliest, latest time.Duration
	// lowered are the times at which the total count became smaller.
	lowered []lowered

	mu      sync.Mutex // guards takes and meddle too
	hosts   []*machine
	events  []rigEvent
	faults  []string
	records map[int]*journal
	born    map[int]int64                // the instant up to which nothing is owed to an item, when it was made or came back
	lists   map[string]coordination.Runs // what each instance has begun
	closed  map[string]bool              // run ids whose completion took effect, or that were written off
	notes   []note
}

// rigEvent is an event with the time at which it happened. Its own is what the
// host's clock showed.
type rigEvent struct {
	from int
	e    host.Event
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
)

func newRig(t testing.TB, items int) *rig {
	server, err := embedded.Open(embedded.Options{})
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, server: server, records: make(map[int]*journal), born: make(map[int]int64), lists: make(map[string]coordination.Runs), closed: make(map[string]bool)}
	r.def = definition(rigJob, "0/10 * * * * ?", items)
	r.def.Failover = true
	r.takes = func(int) time.Duration { return 3 * time.Second }
	r.guest = &guest{digest: "rig", run: r.run}
	return r
}

// machine is one process of a host.
type machine struct {
	rig  *rig
	n    int
	host *host.Host
	stop context.CancelFunc
	kill context.CancelFunc
	done chan error
	// ahead is by how much the machine's wall clock is, in nanoseconds.
	ahead atomic.Int64

	// guarded by rig.mu
	calls  int
	leaves bool // it was told to stop
	dead   bool // killed: nothing of it is heard or applied any more
	over   bool // Run has returned
	links  []*link
	halted chan struct{} // closed when it goes on; nil while it runs
	unsaid []host.Event
	cut    bool // from the registry
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
	h, err := host.New(host.Config{
		Dial:      m.dial,
		Namespace: rigNamespace, ServerIP: fmt.Sprintf("10.0.0.%d", m.n), Logger: zap.NewNop(), MaxConcurrency: 16,
		OnEvent: m.hear, Now: m.clock,
	})
	if err != nil {
		r.t.Fatal(err)
	}
	m.host = h
	ctx, stop := context.WithCancel(context.Background())
	kill, killNow := context.WithCancel(context.Background())
	m.stop, m.kill = stop, killNow
	h.Apply([]host.Job{job(r.def, r.guest)}, nil)
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

// clock is the machine's wall clock.
func (m *machine) clock() time.Time { return time.Now().Add(time.Duration(m.ahead.Load())) }

// set sets the machine's clock, so that it is so much ahead of time.
func (m *machine) set(ahead time.Duration) {
	before := time.Duration(m.ahead.Swap(int64(ahead)))
	if before == ahead {
		return
	}
	m.rig.note("the clock of host %d, which was %s ahead, is set to %s ahead", m.n, before, ahead)
	m.rig.mu.Lock()
	defer m.rig.mu.Unlock()
	m.rig.earliest, m.rig.latest = min(m.rig.earliest, ahead), max(m.rig.latest, ahead)
}

// spread is how far clocks have been apart at most. mu is held.
func (r *rig) spread() time.Duration { return r.latest - r.earliest }

// hear takes an event, unless its host is dead. What a halted one has to say it
// says when it goes on.
func (m *machine) hear(e host.Event) {
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
func (m *machine) say(e host.Event) {
	own := e.Time
	e.Time = time.Now()
	// A host whose clock is behind tells of fires that were before items came to
	// be, by the clock of the leader that made them: they do not owe those.
	for m.rig.spread() > 0 && e.Trigger == 0 && e.Total > 0 && m.rig.born[e.Total-1] >= e.Instant.UnixMilli() {
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
func (r *rig) apply(change func(*coordination.JobConfiguration)) {
	before := r.def.ShardingTotalCount
	change(&r.def)
	if total := r.def.ShardingTotalCount; total < before {
		r.mu.Lock()
		r.lowered = append(r.lowered, lowered{time.Now(), total})
		r.mu.Unlock()
	}
	r.note("the definition changes: %d items, failover %v, misfire %v, monitorExecution %v", r.def.ShardingTotalCount, r.def.Failover, r.def.Misfire, r.def.MonitorExecution)
	for _, m := range r.living() {
		m.host.Apply([]host.Job{job(r.def, r.guest)}, nil)
	}
}

// run is the guest. It has an effect outside every second, if it may.
func (r *rig) run(ctx context.Context, inv *abi.Invocation) abi.Result {
	item, fence := inv.Context.ShardingItem, inv.Context.Fence
	_, instance, _ := strings.Cut(inv.Context.TaskID, "@-@READY@-@")
	m := r.machineOf(instance)
	r.mu.Lock()
	deadline := time.Now().Add(r.takes(item))
	r.mu.Unlock()
	for n := 0; ; n++ {
		m.gate(ctx)
		if c := inv.Host.Cancelled(); c != abi.CancelNone && c != abi.CancelYield {
			return abi.Result{Outcome: abi.OutcomeCancelled, Message: fmt.Sprint("told to stop: ", c)}
		}
		if n%3 == 1 {
			inv.Host.StageOffset(ctx, strconv.AppendInt(nil, fence, 10))
		} else {
			r.effect(m, item, fence)
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

// dial opens a session.
func (m *machine) dial(ctx context.Context) (coordination.RegistryCenter, error) {
	m.gate(ctx)
	m.rig.mu.Lock()
	blocked := m.cut || m.dead
	m.rig.mu.Unlock()
	if blocked {
		return nil, coordination.ErrUnavailable
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
	rc   coordination.RegistryCenter
	lost chan struct{} // closed when the host gives up

	// guarded by rig.mu
	level   coordination.Trust
	changed chan struct{} // closed when level changes
	healed  chan struct{} // closed unless it is cut
	timers  []*time.Timer
}

// abandon has the registry end the session after a time. mu is held.
func (l *link) abandon(after time.Duration) {
	time.AfterFunc(after, func() { l.m.rig.server.Expire(l.rc) })
}

// trust sets the level. mu is held.
func (l *link) trust(level coordination.Trust) {
	if l.level == level || l.gone() {
		return
	}
	l.level = level
	close(l.changed)
	l.changed = make(chan struct{})
	if level == coordination.TrustLost {
		close(l.lost)
	}
}

// lose ends the session for the host. mu is held.
func (l *link) lose() { l.trust(coordination.TrustLost) }

// gone reports whether it has. mu is held.
func (l *link) gone() bool { return l.level == coordination.TrustLost }

// sever cuts the host from the registry: after a third of the session timeout
// it is in doubt, after two thirds it gives up, then the registry does.
func (m *machine) sever() {
	r := m.rig
	r.mu.Lock()
	defer r.mu.Unlock()
	if m.cut || m.dead {
		return
	}
	m.cut = true
	r.notes = append(r.notes, note{time.Now(), fmt.Sprintf("host %d is cut off", m.n)})
	for _, l := range m.links {
		if l.gone() {
			continue
		}
		l.healed = make(chan struct{})
		later := func(d time.Duration, what func()) {
			l.timers = append(l.timers, time.AfterFunc(d, func() {
				r.mu.Lock()
				defer r.mu.Unlock()
				what()
			}))
		}
		later(sessionTimeout/3, func() { l.trust(coordination.TrustSuspect) })
		later(sessionTimeout/2, func() { l.trust(coordination.TrustYield) })
		later(2*sessionTimeout/3, l.lose)
		l.timers = append(l.timers, time.AfterFunc(sessionTimeout, func() { r.server.Expire(l.rc) }))
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
		l.trust(coordination.TrustLive)
		close(l.healed)
	}
}

// halt stops the process as SIGSTOP does: nothing of it moves.
func (m *machine) halt() {
	m.rig.mu.Lock()
	defer m.rig.mu.Unlock()
	if m.halted != nil || m.dead || m.cut {
		return
	}
	m.rig.notes = append(m.rig.notes, note{time.Now(), fmt.Sprintf("host %d is halted", m.n)})
	m.halted = make(chan struct{})
	for _, l := range m.links {
		if !l.gone() {
			l.timers = append(l.timers, time.AfterFunc(sessionTimeout, func() { m.rig.server.Expire(l.rc) }))
		}
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
	}
	for _, e := range m.unsaid {
		e.Time = m.clock()
		m.say(e)
	}
	m.unsaid = nil
	close(m.halted)
	m.halted = nil
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
		return letBe, coordination.ErrSessionLost
	case l.level != coordination.TrustLive:
		r.mu.Unlock()
		return letBe, coordination.ErrSuspect
	}
	select {
	case <-l.healed:
		l.m.calls++
		what := letBe
		if r.meddle != nil {
			what = r.meddle(l.m, op)
		}
		return what, nil // the caller unlocks mu
	default:
		r.mu.Unlock()
		// The request is lost. To wait for its answer would be truer, and stop
		// the clock of the bubble: a guest may wait in a mutex meanwhile.
		if op == "commit" {
			return letBe, coordination.ErrUnknown
		}
		return letBe, coordination.ErrUnavailable
	}
}

// Commit implements coordination.RegistryCenter.
func (l *link) Commit(ctx context.Context, ops ...coordination.Op) ([]coordination.Result, error) {
	what, err := l.call(ctx, "commit")
	if err != nil {
		return nil, err
	}
	r := l.m.rig
	defer r.mu.Unlock()
	switch what {
	case killBefore:
		l.m.murder("before " + describe(ops))
		return nil, coordination.ErrSessionLost
	case loseRequest:
		return nil, coordination.ErrUnknown
	case refuse:
		return nil, coordination.ErrUnavailable
	case expireNow:
		l.lose()
		return nil, coordination.ErrSessionLost
	}
	results, err := l.rc.Commit(ctx, ops...)
	if err == nil {
		r.write(l.m, ops, results)
	}
	switch what {
	case killAfter:
		l.m.murder("after " + describe(ops))
		return nil, coordination.ErrSessionLost
	case loseAnswer:
		return nil, coordination.ErrUnknown
	case expireThen:
		l.lose()
		return nil, coordination.ErrUnknown
	}
	return results, err
}

// interrupted does to a call that changes nothing what is to be done.
func (l *link) interrupted(what meddling, op string) error {
	switch what {
	case killBefore, killAfter:
		l.m.murder("at a " + op)
		return coordination.ErrSessionLost
	case expireNow, expireThen:
		l.lose()
		return coordination.ErrSessionLost
	case loseAnswer, loseRequest, refuse:
		return coordination.ErrUnavailable
	}
	return nil
}

// Read implements coordination.RegistryCenter.
func (l *link) Read(ctx context.Context, q ...coordination.Query) ([]coordination.Node, error) {
	what, err := l.call(ctx, "read")
	if err != nil {
		return nil, err
	}
	defer l.m.rig.mu.Unlock()
	if err := l.interrupted(what, "read"); err != nil {
		return nil, err
	}
	return l.rc.Read(ctx, q...)
}

// Watch implements coordination.RegistryCenter.
func (l *link) Watch(ctx context.Context, q ...coordination.Query) (<-chan coordination.Snapshot, error) {
	what, err := l.call(ctx, "watch")
	if err != nil {
		return nil, err
	}
	defer l.m.rig.mu.Unlock()
	if err := l.interrupted(what, "watch"); err != nil {
		return nil, err
	}
	in, err := l.rc.Watch(ctx, q...)
	if err != nil {
		return nil, err
	}
	out := make(chan coordination.Snapshot)
	go l.relay(ctx, in, out)
	return out, nil
}

// relay passes snapshots on while the way is free; newer ones replace older.
func (l *link) relay(ctx context.Context, in <-chan coordination.Snapshot, out chan<- coordination.Snapshot) {
	defer close(out)
	var newest coordination.Snapshot
	for {
		l.m.gate(ctx)
		l.m.rig.mu.Lock()
		healed := l.healed
		l.m.rig.mu.Unlock()
		select {
		case <-healed:
		case <-l.lost:
			return
		case <-ctx.Done():
			return
		}
		to := out
		if newest == nil {
			to = nil
		}
		select {
		case s, ok := <-in:
			if !ok {
				return
			}
			newest = s
		case to <- newest:
			newest = nil
		case <-l.lost:
			return
		case <-ctx.Done():
			return
		}
	}
}

// Trust implements coordination.RegistryCenter.
func (l *link) Trust() (coordination.Trust, <-chan struct{}) {
	l.m.rig.mu.Lock()
	defer l.m.rig.mu.Unlock()
	if l.gone() || l.m.dead {
		return coordination.TrustLost, nil
	}
	return l.level, l.changed
}

// Trusted implements coordination.RegistryCenter.
func (l *link) Trusted() bool {
	level, _ := l.Trust()
	return level == coordination.TrustLive
}

// Lost implements coordination.RegistryCenter.
func (l *link) Lost() <-chan struct{} { return l.lost }

// Close implements coordination.RegistryCenter. Of a host that is dead or cut
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
	l.m.rig.mu.Unlock()
	if silent {
		return nil
	}
	return l.rc.Close()
}

func describe(ops []coordination.Op) string {
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
func (r *rig) write(m *machine, ops []coordination.Op, results []coordination.Result) {
	defer r.writeOff(ops)
	records := coordination.NewLayout(rigNamespace, rigJob).Sibling() + "/sharding/"
	for i, op := range ops {
		name, isRecord := strings.CutPrefix(op.Path, records)
		if !isRecord {
			continue
		}
		item, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		if op.Kind == coordination.OpDelete {
			delete(r.records, item)
			continue
		}
		var now coordination.Record
		if op.Kind == coordination.OpCheck || json.Unmarshal(op.Data, &now) != nil {
			continue
		}
		if before := r.records[item]; !now.Open() && (before == nil || !before.open) {
			r.born[item] = now.Instant
		}
		if op.Kind != coordination.OpSet {
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
			if before.open && now.Outcome != coordination.OutcomeCancelled {
				r.closed[before.run] = true
			}
			if before.open && now.Outcome == coordination.OutcomeCancelled && now.Instant == before.instant && now.Trigger == before.trigger {
				r.closed[before.run] = true // the guest's own end
			}
			before.open, before.instant, before.trigger = false, now.Instant, now.Trigger
			continue
		}
		fence := results[i].Zxid
		run := before.run
		switch {
		case now.Trigger > before.trigger:
			run = coordination.RunID(rigJob, coordination.Fire{Trigger: now.Trigger}, item)
		case now.Instant > before.instant:
			run = coordination.RunID(rigJob, coordination.Fire{Instant: now.Instant}, item)
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
		*before = journal{open: true, fence: fence, owner: now.Owner, instant: now.Instant, trigger: now.Trigger, run: run}
	}
}

// writeOff notes runs that went from a list of runs though their records tell of
// newer ones: whoever took them off tells that they are lost, if it lives. mu is
// held.
func (r *rig) writeOff(ops []coordination.Op) {
	for _, op := range ops {
		id, isList := strings.CutPrefix(op.Path, coordination.NewLayout(rigNamespace, rigJob).Sibling()+"/runs/")
		if !isList || op.Kind != coordination.OpSet && op.Kind != coordination.OpDelete {
			continue
		}
		var now coordination.Runs
		if len(op.Data) > 0 && json.Unmarshal(op.Data, &now) != nil {
			continue
		}
		for _, run := range r.lists[id].Runs {
			for _, i := range run.Items {
				name := coordination.RunID(rigJob, run.Fire, i)
				if j := r.records[i]; !now.Items().Contains(i) && j != nil && j.run != name {
					r.closed[name] = true
				}
			}
		}
		r.lists[id] = now
	}
}

// rest lets the cluster come to rest, with clocks that are right, and checks
// everything.
func (r *rig) rest(quiet time.Duration) {
	r.t.Helper()
	r.mu.Lock()
	r.meddle = nil
	all := slices.Clone(r.hosts)
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
	time.Sleep(quiet)
	// Nine seconds after an instant nothing runs.
	last := time.Now().Truncate(10 * time.Second).Add(30 * time.Second)
	time.Sleep(time.Until(last.Add(9 * time.Second)))
	rc, err := r.server.Connect(context.Background())
	if err != nil {
		r.t.Fatal(err)
	}
	left, err := verify.Registry(context.Background(), rc, rigNamespace)
	if err != nil {
		r.t.Error(err)
	}
	if err := rc.Close(); err != nil {
		r.t.Error(err)
	}
	r.mu.Lock()
	for _, f := range left {
		if strings.Contains(f.Nodes[0], "/trigger/") {
			continue // swept at the slow interval, and in nobody's way
		}
		r.wrong("left in the registry: %s %v", f.Text, f.Nodes)
	}
	// The last fire reached every item.
	done := make(map[int]bool)
	for _, e := range r.events {
		if e.e.Kind == host.EventItemCompleted && e.e.Instant.Equal(last) {
			done[*e.e.Item] = true
		}
	}
	if len(done) != r.def.ShardingTotalCount {
		r.wrong("of %d items %d ran at %s, when all was quiet", r.def.ShardingTotalCount, len(done), last.UTC().Format(time.TimeOnly))
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

// enableAll enables what an operator has disabled whose host died since.
func (r *rig) enableAll() {
	for range 30 {
		for _, m := range r.living() {
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
			err := m.host.Enable(ctx, rigJob)
			for i := range r.def.ShardingTotalCount {
				_ = m.host.EnableItem(ctx, rigJob, i) // it may not be there yet
			}
			cancel()
			if err == nil {
				return
			}
		}
		time.Sleep(time.Second)
	}
}

// verify runs the checker over the events, by the time at which they happened,
// which is stricter than by the clocks of the hosts.
func (r *rig) verify() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.check(verify.Options{Skew: -1}, func(e rigEvent) host.Event { return e.e })
}

// check runs the checker over the events, each as seen says. mu is held.
func (r *rig) check(o verify.Options, seen func(rigEvent) host.Event) {
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
		fmt.Fprintf(&b, "%4d host %d%s %s", i+1, e.from, fence, lines([]host.Event{e.e}))
	}
	for _, n := range notes {
		fmt.Fprintf(&b, "%s ---- %s\n", n.at.UTC().Format("15:04:05.000"), n.text)
	}
	return b.String()
}
