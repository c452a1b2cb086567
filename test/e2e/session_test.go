package e2e_test

import (
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/event"
)

// TestAShortDisconnectIsNoCrash: the connection of a host breaks and comes back
// while its session lives. Nothing is deleted, nothing is made anew, nothing is
// run again.
func TestAShortDisconnectIsNoCrash(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.job("tick", everySecond, "shardingTotalCount: 2", "failover: true")
	c.job("held", "shardingTotalCount: 4", "failover: true", `jobParameter: "stubborn:a"`)
	a, proxy := c.behind(longest...)
	b := c.add(longest...)
	everywhere("held", nil, map[*member]int{a: 2, b: 2})
	everywhere("tick", nil, map[*member]int{a: 1, b: 1})
	f := c.fly("held", a, b)
	id := f.runs[a][0].Host
	paths := []string{"held/instances/" + id, "tick/instances/" + id}
	for _, n := range f.of(a) {
		paths = append(paths, fmt.Sprintf("held/sharding/%d/running", n))
	}
	s := c.session("")
	before := c.nodes(s, paths...)
	proxy.Drop() // and it connects again
	at := marks(a, b)
	a.of("tick", at[a], kind(event.ItemCompleted))
	proxy.Cut() // for as long as the other fires twice
	away := a.mark()
	second := b.of("tick", b.of("tick", b.mark(), kind(event.FireEnded)).at+1, kind(event.FireEnded))
	proxy.Heal()
	a.of("tick", away, kind(event.ItemCompleted), test{"after that", func(e event.Event) bool { return e.Time.After(second.Time) }})
	for i, n := range c.nodes(s, paths...) {
		if !n.Exists || n.Czxid != before[i].Czxid {
			t.Errorf("%s was made in transaction %d, and now it is %+v", paths[i], before[i].Czxid, n)
		}
	}
	c.open("a")
	for _, m := range []*member{a, b} {
		for _, n := range f.of(m) {
			done := m.of("held", f.at[m], kind(event.ItemCompleted), item(n))
			if done.Outcome != abi.OutcomeOK || done.Source != abi.SourceTrigger {
				t.Errorf("item %d ends as %+v", n, done.Event)
			}
		}
		if n := m.count("held", kind(event.ItemStarted)); n != 2 {
			t.Errorf("%s started %d items, want its 2", m.ip, n)
		}
		if n := m.count("", kind(event.Session), because("lost")); n != 0 {
			t.Errorf("%s lost its session", m.ip)
		}
		if e := m.of("tick", m.mark(), kind(event.ItemCompleted)); !strings.HasPrefix(e.Host, m.ip) || m == a && e.Host != id {
			t.Errorf("%s is now %s", m.ip, e.Host)
		}
	}
	if _, body := a.get("/metrics"); strings.Contains(body, "wasmjob_registry_reconnects 0") {
		t.Error("the host counts no reconnects")
	}
	c.judge("tick", "held")
}

// TestALeaderThatSleptThroughItsSessionHasNoSay: a host is halted until its
// session is over, and goes on. What it ran was run by others meanwhile, or
// written down as lost; of what it does then, nothing counts.
func TestALeaderThatSleptThroughItsSessionHasNoSay(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.job("over", "shardingTotalCount: 3", "failover: true", `jobParameter: "stubborn:a"`)
	c.job("lost", "shardingTotalCount: 3", "failover: false", `jobParameter: "stubborn:a"`)
	sleepers := append(slices.Clone(mortal), "--dead-man", "off") // the kernel would end the one that is halted
	all := []*member{c.add(sleepers...), c.add(sleepers...), c.add(sleepers...)}
	for _, m := range all {
		m.of("over", 0, assigned(1))
		m.of("lost", 0, assigned(1))
	}
	over, lost := c.fly("over", all...), c.fly("lost", all...)
	leads, others := c.leader("over", all...)
	from := leads.mark()
	leads.signal(syscall.SIGSTOP)
	t.Cleanup(func() { _ = leads.cmd.Process.Signal(syscall.SIGCONT) })
	taken := over.takenOver(t, over.of(leads), others...)
	left := lost.of(leads)[0]
	for skipped := false; !skipped; {
		news := newsOf(others)
		for _, m := range others {
			skipped = skipped || len(m.all("lost", lost.at[m], kind(event.ItemSkipped), item(left), outcome("LOST"))) > 0
		}
		if !skipped {
			waitAny(t, news)
		}
	}
	c.open("a")
	over.once(t, over.of(leads), taken, others...)
	for _, name := range []string{"over", "lost"} {
		if id := c.shards(name).Leader; strings.HasPrefix(id, leads.ip+"@-@") {
			t.Errorf("%s still leads %s", id, name)
		}
	}
	leads.signal(syscall.SIGCONT)
	leads.of("", from, kind(event.Session), because("lost"))
	for _, f := range []*flight{over, lost} {
		fresh := leads.of(f.job, from, owned())
		if old := f.runs[leads][0].Host; fresh.Host == old {
			t.Errorf("%s woke and is still itself", old)
		}
		if done := leads.all(f.job, from, kind(event.ItemCompleted), f.same()); len(done) > 0 {
			t.Errorf("the host woke and completed %+v", done)
		}
		for _, m := range others {
			m.of(f.job, f.at[m], kind(event.FireEnded), f.same())
		}
	}
	for _, name := range []string{"over", "lost"} {
		c.wholeFire(name, 3, all...)
	}
	c.judge("over", "lost")
}
