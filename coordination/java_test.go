package coordination_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	co "github.com/wasmjob/wasmjob/coordination"
	"github.com/wasmjob/wasmjob/coordination/admin/cleanup"
	"github.com/wasmjob/wasmjob/coordination/jobconfig"
	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/registry/registrytest"
	"github.com/wasmjob/wasmjob/coordination/tree"
)

// mixed is a chronicle with Java hosts in it, which may make a request before
// every call of ours.
type mixed struct {
	*chronicle
	r *rand.Rand
}

// settleJava lets Java hosts finish what FlagSettle and the pause before a
// takeover give them time for: a fire that has looked for the flag, or ended a run, makes its
// marks, and the death of an instance has been handled.
func (m mixed) settleJava() {
	for n := 0; n < 10_000; n++ {
		busy := false
		for _, p := range m.javas {
			if p.up && (p.deciding || p.events != nil || len(p.backlog) > 0) {
				busy = p.advance(m.r.IntN) || busy
			}
		}
		if !busy {
			return
		}
	}
	m.t.Fatal("the Java hosts do not come to rest")
}

func (m mixed) step(h *simHost) {
	if h.alive() {
		m.settleJava()
		_, err := h.step()
		m.try(h, "step", err)
	}
}

func (m mixed) pass(d time.Duration) {
	m.chronicle.pass(d)
	for _, p := range m.javas {
		p.due()
	}
}

// calm lets everybody come to rest, with what runs ended.
func (m mixed) calm() {
	for range 8 {
		for range 4 {
			for _, h := range m.hosts {
				if h.rc != nil && !h.lost() && !h.joined && h.why == "" {
					m.enter(h)
				}
				m.step(h)
			}
			for _, p := range m.javas {
				p.rest()
				p.finish = len(p.executing) > 0
				p.rest()
			}
			m.invariants()
		}
		m.settle()
		m.complete(all)
		for _, h := range m.living() {
			var swept cleanup.Swept
			m.try(h, "sweep", h.perform(moves.Sweep(&h.Member, m.now, &swept)))
		}
		m.now = m.now.Add(2 * time.Second)
	}
}

// TestLivesWithJava lets hosts of ours and of ElasticJob come, go and crash in
// random order, the Java hosts a request at a time. Ours never run an item that
// somebody else runs, and none is forgotten.
//
// Two of ElasticJob's own races are left out, because the same happens between
// Java hosts: a fire that looks for the flag and makes its marks so late that
// the division is over (FlagSettle is the time that ours leave it), and the
// handling of a death that comes after the takeover.
func TestLivesWithJava(t *testing.T) {
	t.Parallel()
	seeds := *lives / 2
	if testing.Short() {
		seeds = min(seeds, 40)
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			m := mixed{newChronicle(t), rand.New(rand.NewPCG(uint64(seed), 11))}
			m.live()
		})
	}
}

func (m mixed) live() {
	r := m.r
	m.file.ShardingTotalCount, m.file.Failover = 1+r.IntN(6), r.IntN(2) == 0
	quiet := false
	for n := range 3 {
		h := m.addHost(string(rune('A'+n)), fmt.Sprintf("10.0.0.%d", 1+n))
		h.plan = func(int, string) registrytest.Fault {
			if len(m.javas) > 0 && !quiet && r.IntN(2) == 0 {
				for range 1 + r.IntN(12) {
					m.javas[r.IntN(len(m.javas))].advance(r.IntN)
				}
			}
			if quiet || r.IntN(80) > 0 {
				return registrytest.NoFault
			}
			return []registrytest.Fault{registrytest.ExpireBefore, registrytest.ExpireAfter, registrytest.LostAnswer, registrytest.LostRequest, registrytest.Refused}[r.IntN(5)]
		}
	}
	m.enter(m.hosts[0])
	m.step(m.hosts[0])
	j, k := m.addJava("J", "10.0.0.8"), m.addJava("K", "10.0.0.9")
	for range 80 {
		h, p := m.hosts[r.IntN(len(m.hosts))], []*javaPeer{j, k}[r.IntN(2)]
		m.now = m.now.Add(time.Duration(r.IntN(1500)) * time.Millisecond)
		switch r.IntN(14) {
		case 0, 1:
			if !h.joined && h.rc != nil && h.lost() {
				h.why = "crashed"
				m.try(h, "join", second(h.join(m.file)))
			} else {
				m.enter(h)
			}
		case 2:
			if h.alive() && r.IntN(3) == 0 {
				m.settleJava()
				m.say("%s: crashes", h.name)
				h.crash()
			}
		case 3:
			if m.node(m.layout.Root()+"/config").Exists && !p.up && r.IntN(2) == 0 {
				p.id = fmt.Sprintf("%s@-@%d%s", p.ip, m.now.UnixMilli(), p.name)
				m.say("%s: starts", p.name)
				p.start()
			}
		case 4:
			if p.up && r.IntN(4) == 0 && p.joined() {
				m.say("%s: crashes", p.name)
				p.crash()
			}
		case 5:
			if p.up && r.IntN(4) == 0 && len(p.executing) == 0 && p.fires == nil && p.joined() {
				m.say("%s: is shut down", p.name)
				p.shutdown()
			}
		case 6:
			_ = m.operate(moves.SetServers(m.layout, r.IntN(3) > 0, []string{h.ip, p.ip}[r.IntN(2)]))
		case 7, 8:
			m.pass(time.Duration(1+r.IntN(10)) * time.Second)
		case 9:
			m.complete(func(int) bool { return r.IntN(2) == 0 })
		case 10:
			p.finish = len(p.executing) > 0
		case 11:
			for range r.IntN(60) {
				p.advance(r.IntN)
				m.invariants()
			}
		case 12:
			if h.alive() && h.snapshot != nil && r.IntN(3) == 0 {
				m.settleJava()
				m.say("%s: leaves with %s unfinished", h.name, orNone(h.running()))
				m.try(h, "leave", h.leave("left", h.running()))
			}
		default:
			m.step(h)
		}
		m.invariants()
	}
	quiet = true
	m.must(m.operate(moves.SetServers(m.layout, true)))
	m.calm()
	m.release()
	m.wholeFire()
	for _, p := range m.javas {
		if p.up {
			p.finish = len(p.executing) > 0
			p.rest()
			p.shutdown()
		}
		for _, who := range p.crowded {
			m.t.Errorf("%s has overwritten the running mark %s", p.name, who)
		}
	}
	m.calm()
	m.finish()
}

// wholeFire is an instant that everybody runs to its end: each item is run
// once, by somebody.
func (m mixed) wholeFire() {
	m.t.Helper()
	ids := m.children(m.layout.Root() + "/instances")
	if len(m.living()) == 0 {
		return // a Java leader that is left alone may not find out for ten minutes
	}
	for range 2 { // a Java leader divides at the first
		for _, p := range m.javas {
			clear(p.ran)
		}
		m.now = m.now.Add(10 * time.Second)
		for _, p := range m.javas {
			p.due()
			p.rest()
		}
		m.settle()
		for _, h := range m.living() {
			if h.look() == nil {
				m.try(h, "fire", h.fire(m.now))
			}
		}
		m.settle()
		for n := range 6 {
			for _, p := range m.javas {
				p.finish = len(p.executing) > 0
				p.rest()
			}
			m.complete(all)
			m.settle()
			_ = n
		}
	}
	for i := range m.file.ShardingTotalCount {
		by := 0
		for _, p := range m.javas {
			by += p.ran[i]
		}
		var rec tree.Record
		if n := m.node(fmt.Sprintf("%s/sharding/%d", m.layout.Sibling(), i)); n.Exists { // not while only Java hosts have had it
			rec = m.record(i)
		}
		if rec.Instant == m.now.UnixMilli() && rec.Outcome == "OK" {
			by++
		}
		if by != 1 {
			m.t.Errorf("item %d was run %d times in the last fire, instances %v, owner %s, marks %v", i, by, ids, m.node(m.mark(i, "instance")).Data, m.children(fmt.Sprintf("%s/sharding/%d", m.layout.Root(), i)))
		}
	}
	if flags := m.children(m.layout.Root() + "/leader/sharding"); slices.Contains(flags, "processing") {
		m.t.Errorf("flags %v", flags)
	}
}

// TestFireOfAThousandItems: a fire of a thousand items, with failover, is two
// commits, the first after a division aside; and each is under the limit.
func TestFireOfAThousandItems(t *testing.T) {
	t.Parallel()
	c, h := group(t, 1, func(cfg *jobconfig.Configuration) { cfg.Failover, cfg.ShardingTotalCount = true, 1000 })
	a := h[0]
	for fire := range 3 {
		c.now = c.now.Add(10 * time.Second)
		commits, reads := 0, 0
		a.plan = func(_ int, op string) registrytest.Fault {
			if op == "commit" {
				commits++
			} else {
				reads++
			}
			return registrytest.NoFault
		}
		must(t, a.fire(c.now))
		must(t, a.complete(a.running(), "OK", ""))
		want := 2
		if fire == 0 {
			want = 3 // with guards against who might be taking an item over
		}
		if commits > want || reads != 0 {
			t.Errorf("fire %d: %d commits and %d reads, want at most %d and none", fire, commits, reads, want)
		}
	}
	if got := len(a.owned()); got != 1000 {
		t.Errorf("%d items", got)
	}
}

// TestItemsMoveToJavaHostsBetweenInstants: a Java host that found the flag at an
// instant begins that instant after the division, with the items that it has then.
// So what ours began about then stays with ours, and moves at a later division.
// It kills the mutant "fresh item moved to a Java host" and
// the mutant "division that Java hosts cannot have noticed".
func TestItemsMoveToJavaHostsBetweenInstants(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name        string
		began       time.Duration // of the instant, before the flag
		after, then time.Duration // the second and the third flag, each after the division before it
		want        [3]bool       // whether the items of the second host stay with ours, by division
	}{
		{"long before the flag", co.JavaLag + time.Millisecond, co.JavaLag, co.JavaLag, [3]bool{false, false, false}},
		{"just before the flag", co.JavaLag, co.JavaLag, co.JavaLag, [3]bool{true, false, false}},
		{"after the flag", -time.Millisecond, co.JavaLag, co.JavaLag, [3]bool{true, false, false}},
		{"the flag is back before Java hosts look", 10 * time.Millisecond, co.JavaLag - time.Millisecond, co.JavaLag, [3]bool{true, true, false}},
		{"twice", 10 * time.Millisecond, co.JavaLag - time.Millisecond, co.JavaLag - time.Millisecond, [3]bool{true, true, true}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c, h := group(t, 2, func(cfg *jobconfig.Configuration) { cfg.ShardingTotalCount = 12 })
			leader, other := h[0], h[1]
			j := c.addJava("J", "10.0.0.9")
			j.start()
			j.rest()
			c.settle()
			c.pass(10 * time.Second)
			instant := c.now
			for _, p := range h {
				must(t, p.look())
				must(t, p.fire(instant))
			}
			c.complete(all)
			must(t, leader.look())
			gone := other.owned()
			if len(gone) == 0 {
				t.Fatal("the second host has no items")
			}
			toJava := func(owners []string) bool {
				return slices.ContainsFunc(gone, func(i int) bool { return owners[i] == j.id })
			}

			// Its server is disabled: its items go to the leader and to the Java host.
			c.hand(registry.Set(c.layout.Root()+"/servers/"+other.ip, []byte("DISABLED"), registry.AnyVersion))
			flag := instant.Add(tt.began)
			for k, want := range tt.want {
				must(t, leader.look())
				must(t, leader.perform(moves.AskForSharding(&leader.Member)))
				must(t, leader.look())
				leader.View.FlagSeen, leader.View.Clock = flag, flag.Add(co.FlagSettle)
				var sharded co.Sharded
				must(t, leader.perform(moves.Reshard(&leader.Member, leader.View.Clock, &sharded)))
				if stay := !toJava(sharded.Items); stay != want {
					t.Errorf("division %d: the items stay with ours: %v, want %v; %v", k+1, stay, want, sharded.Division)
				}
				if (len(sharded.Division.Deferred) > 0) != want {
					t.Errorf("division %d: deferred are %s, want some: %v", k+1, sharded.Division.Deferred, want)
				}
				for _, i := range sharded.Division.Deferred {
					if owner := sharded.Items[i]; owner != leader.Self.ID {
						t.Errorf("division %d: item %d goes to %s, whose server is disabled", k+1, i, owner)
					}
				}
				flag = leader.View.Clock.Add([]time.Duration{tt.after, tt.then, 0}[k])
			}
		})
	}
}

// TestAJavaHostThatTheViewDoesNotShow: a host of ours begins by a view in which
// no Java host is, while one has come, has been elected after the leader's end,
// has divided, and begun. The begin finds out, whatever came before it.
func TestAJavaHostThatTheViewDoesNotShow(t *testing.T) {
	t.Parallel()
	for _, failover := range []bool{false, true} {
		for _, adopted := range []bool{false, true} { // another of ours takes its share of Java's division
			c, h := group(t, 3, func(cfg *jobconfig.Configuration) { cfg.Failover = failover })
			leader, stale, other := h[0], h[1], h[2]
			c.pass(10 * time.Second)
			c.complete(all)
			must(t, stale.look())
			had := stale.owned()
			leader.crash()
			j := c.addJava("J", "10.0.0.9")
			j.start()
			j.rest()
			c.now = c.now.Add(10 * time.Second)
			j.due()
			j.rest()
			if adopted {
				must(t, other.look())
				must(t, other.fire(c.now)) // finds out, and reads its share
				if c.node(c.layout.Sibling()+"/epoch").Version == 0 {
					t.Fatal("nobody has taken a share of Java's division")
				}
				// The node by which the stale host would find out is the other's
				// anchor now, and has its old version again.
				if n := c.node(c.mark(had[0], "instance")); n.Version != 1 || string(n.Data) != other.Self.ID {
					t.Fatalf("item %d belongs to %s, version %d", had[0], n.Data, n.Version)
				}
			}
			// What the stale host still believes to own is its neighbours' now.
			must(t, stale.fire(c.now))
			c.invariants()
			if running := stale.running(); len(running) > 0 {
				t.Errorf("failover %v, adopted %v: it has begun %s of %s by an old share", failover, adopted, running, had)
			}
			j.finish = true
			j.rest()
		}
	}
}

// TestJavasDivisionThatAnotherHasWrittenDown: a host that has read its share of a Java leader's division, and not yet seen
// that another of ours has written that division down, does not ask for another one because of the one before.
func TestJavasDivisionThatAnotherHasWrittenDown(t *testing.T) {
	t.Parallel()
	c, h := group(t, 3, func(*jobconfig.Configuration) {})
	leader, late, other := h[0], h[1], h[2]
	c.pass(10 * time.Second)
	c.complete(all)
	leader.crash()
	j := c.addJava("J", "10.0.0.9")
	j.start()
	j.rest()
	c.now = c.now.Add(10 * time.Second)
	j.due()
	j.rest()
	must(t, late.look())
	must(t, other.look())
	must(t, other.fire(c.now)) // reads its share, and writes the division down
	if _, _, err := late.ReadShare(c.ctx, nil); err != nil {
		t.Fatal(err)
	}
	if !late.Share.Java || !other.Share.Java {
		t.Error("the share does not say that a Java host has divided the items")
	}
	if action := late.Reconcile(c.now); action != co.ActionNone {
		t.Errorf("it is to %s before it has seen the division", action)
	}
	must(t, late.look())
	if action := late.Reconcile(c.now); action != co.ActionNone || !late.Share.Current(late.View) {
		t.Errorf("it is to %s when it has seen the division, whose share is current: %v", action, late.Share.Current(late.View))
	}
	j.finish = true
	j.rest()
}

// TestMarksOfFailedJavaRuns: a version of ElasticJob after 3.0.5 leaves the running marks of runs that
// failed. As long as that host lives, an item of it is not begun by ours; when its session has ended,
// it is: at once without failover, else as a run of the Java host that is repeated. That holds if its server was disabled before, too.
func TestMarksOfFailedJavaRuns(t *testing.T) {
	t.Parallel()
	for _, failover := range []bool{false, true} {
		c, h := group(t, 1, func(cfg *jobconfig.Configuration) { cfg.Failover, cfg.ShardingTotalCount = failover, 4 })
		a := h[0]
		j := c.addJava("J", "10.0.0.9")
		j.start()
		j.rest()
		c.settle()
		c.pass(10 * time.Second)
		c.complete(all)
		var theirs tree.Items
		for i := range 4 {
			if string(c.node(j.j(item(i, "instance"))).Data) == j.id {
				theirs = append(theirs, i)
			}
		}
		if len(theirs) == 0 {
			t.Fatal("the Java host has no items")
		}
		j.fails = true
		j.due()
		j.rest()
		j.finish = true
		j.rest()
		for _, i := range theirs {
			if !c.node(j.j(item(i, "running"))).Exists {
				t.Fatalf("item %d: its mark is gone", i)
			}
		}

		c.hand(registry.Set(c.layout.Root()+"/servers/10.0.0.9", []byte("DISABLED"), registry.AnyVersion))
		c.settle()
		c.pass(10 * time.Second)
		must(t, a.look())
		must(t, a.fire(c.now))
		for _, i := range theirs {
			if slices.Contains(a.running(), i) {
				t.Errorf("failover %t: item %d was begun beside the mark of a Java host that lives", failover, i)
			}
		}
		c.invariants()

		c.complete(all)
		j.crash()
		c.settle()
		if failover { // its marks outlive the session
			var swept cleanup.Swept
			must(t, a.look())
			must(t, a.perform(moves.Sweep(&a.Member, c.now, &swept)))
			c.settle()
		}
		c.pass(10 * time.Second)
		must(t, a.look())
		must(t, a.fire(c.now))
		for _, i := range theirs {
			if !slices.Contains(a.running(), i) {
				t.Errorf("failover %t: item %d does not run when the Java host is gone: %v", failover, i, a.running())
			}
		}
	}
}

// TestMarksOfAJavaHostThatWasStartedAgain: a container has the same id when it is started again. What it ran before
// does not run any more, and what it runs now does.
func TestMarksOfAJavaHostThatWasStartedAgain(t *testing.T) {
	t.Parallel()
	for _, runs := range []bool{false, true} {
		c, _, j := runningJava(t)
		a := c.host("A")
		theirs := j.executing
		j.crash()
		j.start()
		j.rest()
		if runs {
			for _, i := range theirs {
				c.hand(registry.Set(c.mark(i, "running"), []byte(j.id), registry.AnyVersion)) // as it makes its marks
			}
		}
		must(t, a.look())
		var swept cleanup.Swept
		must(t, a.perform(moves.Sweep(&a.Member, c.now, &swept)))
		for _, i := range theirs {
			if stays := c.node(c.mark(i, "running")).Exists; stays != runs {
				t.Errorf("the host runs again: %t; the mark of item %d stays: %t", runs, i, stays)
			}
		}
	}
}

// TestAJavaHostTakesAnItemThatTheViewDoesNotShow: a Java host that came after
// the view takes what a host that died was running, while the item's new owner
// begins.
func TestAJavaHostTakesAnItemThatTheViewDoesNotShow(t *testing.T) {
	t.Parallel()
	for requests := range 80 {
		c, h := group(t, 2, func(cfg *jobconfig.Configuration) { cfg.Failover, cfg.ShardingTotalCount = true, 2 })
		a, b := h[0], h[1]
		c.pass(10 * time.Second)
		must(t, a.complete(a.running(), "OK", ""))
		j := c.addJava("J", "10.0.0.9")
		j.start()
		for range 4 { // it listens, and is in no list yet
			j.advance(func(int) int { return 0 })
		}
		b.crash()
		must(t, a.look())
		for range 3 {
			must(t, second(a.step())) // divides, and reads its share
		}
		for range requests {
			j.advance(func(int) int { return 0 })
		}
		c.now = c.now.Add(10 * time.Second)
		must(t, a.fire(c.now))
		c.invariants()
		for range 100 {
			j.advance(func(int) int { return 0 })
			c.invariants()
		}
		if len(j.crowded) > 0 {
			t.Errorf("after %d requests: it has overwritten the running mark %v", requests, j.crowded)
		}
	}
}

// TestAJavaHostRepeatsForAMisfire: a Java host takes items of a host of ours that died, one after the other, while our leader
// has given one of them to itself. That one has a misfire mark, for which the Java host runs it twice, and has no mark of its own in
// between. Ours begins it wherever between two requests of the Java host it looks, and never beside it.
func TestAJavaHostRepeatsForAMisfire(t *testing.T) {
	t.Parallel()
	const item = 4
	begun, repeated := 0, 0
	for n := range 48 {
		requests, early := n/2, n%2 == 0 // early: ours looks while the Java host runs the item for the first time
		c, h := group(t, 2, func(cfg *jobconfig.Configuration) { cfg.Failover, cfg.ShardingTotalCount = true, 9 })
		a, b := h[0], h[1]
		j := c.addJava("J", "10.0.0.9")
		j.start()
		j.rest()
		c.settle()
		for range 2 { // the second time all that B has is misfired
			c.now = c.now.Add(10 * time.Second)
			must(t, b.fire(c.now))
			must(t, b.fire(c.now.Add(time.Second)))
		}
		if !c.node(c.mark(item, "misfire")).Exists {
			t.Fatalf("item %d is not marked as misfired: B runs %s", item, b.running())
		}
		b.crash()
		j.rest() // takes the last of B's items
		for n := 0; !a.owned().Contains(item); n++ {
			if n > 5 {
				t.Fatalf("A has %s, and not item %d", a.owned(), item)
			}
			must(t, second(a.step()))
			c.invariants()
		}
		for n := 0; !j.executing.Contains(item); n++ {
			if n > 5 {
				t.Fatalf("the Java host does not take item %d", item)
			}
			j.finish = len(j.executing) > 0
			j.rest()
		}
		c.now = c.now.Add(10 * time.Second)
		if early {
			must(t, a.fire(c.now))
			c.invariants()
		}
		j.finish = true
		for range requests {
			j.advance(func(int) int { return 0 })
		}
		for _, it := range a.items {
			it.held = false // as when it sees that a mark is gone
		}
		if !early {
			must(t, a.fire(c.now))
			c.invariants()
		}
		for range 6 {
			must(t, second(a.followUp()))
			c.invariants()
		}
		j.rest()
		c.invariants()
		if j.ran[item] > 0 && j.executing.Contains(item) {
			repeated++
		}
		j.finish = len(j.executing) > 0
		j.rest()
		for _, it := range a.items {
			it.held = false
		}
		for range 6 {
			must(t, second(a.followUp()))
			c.invariants()
		}
		if a.running().Contains(item) {
			begun++
		}
		if c.node(c.mark(item, "misfire")).Exists {
			t.Errorf("after %d requests: the misfire mark is left", requests)
		}
		for _, who := range j.crowded {
			t.Errorf("after %d requests: the Java host has overwritten the running mark %s", requests, who)
		}
	}
	if begun != 48 || repeated == 0 {
		t.Errorf("of 48: A runs the item in %d, the Java host ran it again before in %d; expected all, and some", begun, repeated)
	}
}

// TestMarksThatTheHostDoesNotKnow: a misfire mark that has come since this host looked keeps an item from beginning beside
// Java hosts: one of them may be about to run it again.
func TestMarksThatTheHostDoesNotKnow(t *testing.T) {
	t.Parallel()
	for _, java := range []bool{false, true} {
		c, h := group(t, 1, func(cfg *jobconfig.Configuration) { cfg.Failover = true })
		a := h[0]
		if java {
			j := c.addJava("J", "10.0.0.9")
			j.start()
			j.rest()
			c.settle()
		}
		c.now = c.now.Add(10 * time.Second)
		must(t, a.look())
		item := a.owned()[0]
		c.hand(registry.Create(c.mark(item, "misfire"), nil))
		out := begin(t, a, c.now)
		if _, refused := out.Refused[item]; refused != java || (java && out.Refused[item] != co.RefusedAgain) {
			t.Errorf("a Java host is there: %t; item %d is refused: %q", java, item, out.Refused[item])
		}
		if len(out.Items) == 0 {
			t.Error("the other items do not begin either")
		}
	}
}

// TestRunningMarksOfOthers: a Java host has overwritten the running mark of a run of ours, or has deleted it. The completion
// takes effect, leaves the mark of that host, and says whose it was.
func TestRunningMarksOfOthers(t *testing.T) {
	t.Parallel()
	for _, failover := range []bool{false, true} {
		c, h := group(t, 1, func(cfg *jobconfig.Configuration) { cfg.Failover = failover })
		a := h[0]
		j := c.addJava("J", "10.0.0.9")
		j.start()
		j.rest()
		c.settle()
		c.now = c.now.Add(10 * time.Second)
		must(t, a.look())
		must(t, a.fire(c.now))
		items := a.running()
		if len(items) < 3 {
			t.Fatalf("A runs %s", items)
		}
		if failover {
			c.hand(registry.Set(c.mark(items[0], "running"), []byte(j.id), registry.AnyVersion))
		} else {
			c.hand(registry.Delete(c.mark(items[0], "running"), registry.AnyVersion))
			if _, err := j.rc.Commit(c.ctx, registry.CreateEphemeral(c.mark(items[0], "running"), []byte(j.id))); err != nil {
				t.Fatal(err)
			}
		}
		c.hand(registry.Delete(c.mark(items[1], "running"), registry.AnyVersion))
		done := co.Completing{Items: make(map[int]co.Ended), Marked: true, Now: c.now}
		for _, i := range items {
			done.Items[i] = co.Ended{State: a.items[i].state, Outcome: "OK"}
		}
		var out co.Completed
		must(t, a.perform(moves.Complete(&a.Member, done, &out)))
		if len(out.Items) != len(items) {
			t.Errorf("failover %t: completed %v of %s", failover, out.Items, items)
		}
		if want := map[int]string{items[0]: j.id, items[1]: ""}; !maps.Equal(out.Crowded, want) {
			t.Errorf("failover %t: crowded are %v, expected %v", failover, out.Crowded, want)
		}
		if n := c.node(c.mark(items[0], "running")); string(n.Data) != j.id {
			t.Errorf("failover %t: the mark of the Java host is gone", failover)
		}
		if c.node(c.mark(items[2], "running")).Exists {
			t.Errorf("failover %t: the mark of A is left", failover)
		}
	}
}
