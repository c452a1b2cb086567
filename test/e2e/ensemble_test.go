package e2e_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/event"
	"github.com/wasmjob/wasmjob/test/zkserver"
)

// within is a context that bounds one thing.
func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

// TestEnsemble: three real servers, and two fleets of hosts on them, whose
// items are in flight whatever happens. The sessions of the steady one outlive
// everything: not a single item is run again, no id changes. Those of the other
// end when the quorum is lost for too long: what it ran is run again, once, and
// the ids are new.
func TestEnsemble(t *testing.T) {
	t.Parallel()
	e := zkserver.ForTest(t, zkserver.Options{Servers: 3, TickTime: 200 * time.Millisecond, NoSync: true})
	steady := newCluster(t)
	steady.zk, steady.ns = e.Connect(), "steady"
	steady.job("tick", everySecond, "shardingTotalCount: 6", "failover: true")
	for _, name := range []string{"election", "restart", "quorum"} {
		steady.job(name, "shardingTotalCount: 6", "failover: true", `jobParameter: "stubborn:`+name+`"`)
	}
	brief := newCluster(t)
	brief.zk, brief.ns = e.Connect(), "brief"
	brief.job("tick", everySecond, "shardingTotalCount: 4", "failover: true")
	brief.job("quorum", "shardingTotalCount: 4", "failover: true", `jobParameter: "hold:quorum"`)
	fleet := []*member{steady.add(longest...), steady.add(longest...), steady.add(longest...)}
	short := []*member{brief.add(mortal...), brief.add(mortal...)}

	ids := make(map[*member]string)
	same := func() {
		t.Helper()
		for _, m := range fleet {
			id := m.of("tick", m.mark(), kind(event.ItemCompleted), outcome(abi.OutcomeOK)).Host
			if ids[m] == "" {
				ids[m] = id
			}
			if id != ids[m] || !strings.HasPrefix(id, m.ip+"@-@") {
				t.Errorf("%s was %s and is %s", m.ip, ids[m], id)
			}
		}
	}
	// landed: what was in flight has ended where it ran.
	landed := func(c *cluster, f *flight, on ...*member) {
		t.Helper()
		c.open(f.job)
		for _, m := range on {
			for _, run := range f.runs[m] {
				done := m.of(f.job, run.at, kind(event.ItemCompleted), item(*run.Item), f.same())
				if done.Outcome != abi.OutcomeOK || done.Source != abi.SourceTrigger || done.Host != run.Host || done.Fence != run.Fence {
					t.Errorf("item %d of %s ran on %s (fence %d) and was completed as %+v", *run.Item, f.job, run.Host, run.Fence, done.Event)
				}
			}
			if n := len(m.all(f.job, f.at[m], kind(event.ItemStarted), f.same())); n != len(f.runs[m]) {
				t.Errorf("%d items of %s were started on %s, %d were in flight", n, f.job, m.ip, len(f.runs[m]))
			}
		}
	}
	steady.divided("tick", fleet...)
	same()

	// The leader is killed; meanwhile somebody changes the total count.
	steady.divided("election", fleet...)
	f := steady.fly("election", fleet...)
	leader, err := e.Leader()
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Kill(leader); err != nil {
		t.Fatal(err)
	}
	at := marks(fleet...)
	fleet[0].place.define("tick", everySecond, "shardingTotalCount: 9", "failover: true")
	everywhere("tick", at, map[*member]int{fleet[0]: 3, fleet[1]: 3, fleet[2]: 3})
	same()
	landed(steady, f, fleet...)
	if err := e.Restart(leader); err != nil {
		t.Fatal(err)
	}
	if err := e.Await(within(t), leader); err != nil {
		t.Fatal(err)
	}

	// All servers are killed, and started again.
	steady.divided("restart", fleet...)
	f = steady.fly("restart", fleet...)
	for i := range e.Len() {
		if err := e.Kill(i); err != nil {
			t.Fatal(err)
		}
	}
	for i := range e.Len() {
		if err := e.Restart(i); err != nil {
			t.Fatal(err)
		}
	}
	for i := range e.Len() {
		if err := e.Await(within(t), i); err != nil {
			t.Fatal(err)
		}
	}
	same()
	landed(steady, f, fleet...)

	// Two of three servers are away for longer than the sessions of the other
	// fleet can be trusted.
	steady.divided("quorum", fleet...)
	brief.divided("quorum", short...)
	f = steady.fly("quorum", fleet...)
	g := brief.fly("quorum", short...)
	at = marks(short...)
	for _, i := range []int{0, 1} {
		if err := e.Stop(i); err != nil {
			t.Fatal(err)
		}
	}
	for _, m := range short {
		m.of("", at[m], kind(event.Session), because("lost"))
	}
	for _, i := range []int{0, 1} {
		if err := e.Restart(i); err != nil {
			t.Fatal(err)
		}
	}
	taken := g.takenOver(t, g.of(short...), short...)
	for n, m := range taken {
		again := m.of("quorum", at[m], kind(event.ItemStarted), item(n), source(abi.SourceFailover))
		for _, old := range short {
			if again.Host == g.runs[old][0].Host {
				t.Errorf("a session was lost, and %s runs item %d again", again.Host, n)
			}
		}
	}
	brief.open("quorum")
	for n, m := range taken {
		m.of("quorum", at[m], kind(event.ItemCompleted), item(n), source(abi.SourceFailover), outcome(abi.OutcomeOK))
	}
	same()
	landed(steady, f, fleet...)

	// And hosts come and go as ever.
	fresh := steady.add(longest...)
	fleet[2].stop()
	now := []*member{fleet[0], fleet[1], fresh}
	steady.divided("tick", now...)
	steady.wholeFire("quorum", 6, now...)
	brief.wholeFire("quorum", 4, short...)
	for _, m := range fleet {
		if n := m.count("", kind(event.Session), because("lost")); n > 0 {
			t.Errorf("%s lost its session", m.ip)
		}
	}
	steady.judge("tick", "election", "restart", "quorum")
	brief.judge("tick", "quorum")
}
