package coordination_test

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	co "github.com/wasmjob/wasmjob/coordination"
	"github.com/wasmjob/wasmjob/coordination/jobconfig"
	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/registrytest"
)

// group starts hosts A, B, … each on a server of its own, with the job's items
// divided among them.
func group(t *testing.T, n int, set func(*jobconfig.Configuration)) (*chronicle, []*simHost) {
	t.Helper()
	c := newChronicle(t)
	c.file.ShardingTotalCount = 6
	if set != nil {
		set(&c.file)
	}
	for k := range n {
		h := c.addHost(string(rune('A'+k)), fmt.Sprintf("10.0.0.%d", k+1))
		if _, err := h.join(c.file); err != nil {
			t.Fatalf("join: %v", err)
		}
	}
	c.settle()
	return c, slices.Clone(c.hosts)
}

// beforeCommit lets something happen before the next commit of a host.
func (h *simHost) beforeCommit(what func()) {
	h.plan = func(_ int, op string) registrytest.Fault {
		if op == "commit" {
			h.plan = nil
			what()
		}
		return registrytest.NoFault
	}
}

// nextCommit makes the next commit of a host go wrong.
func (h *simHost) nextCommit(fault registrytest.Fault) {
	h.plan = func(_ int, op string) registrytest.Fault {
		if op != "commit" {
			return registrytest.NoFault
		}
		h.plan = nil
		return fault
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (c *chronicle) must(err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatal(err)
	}
}

func (c *chronicle) hand(ops ...registry.Op) {
	c.t.Helper()
	if _, err := c.op.Commit(c.ctx, ops...); err != nil {
		c.t.Fatalf("by hand: %v", err)
	}
}

func (c *chronicle) division() co.Division {
	c.t.Helper()
	var d co.Division
	decode(c.t, c.node(c.layout.Sibling()+"/assignment").Data, &d)
	return d
}

func (c *chronicle) record(i int) co.Record {
	c.t.Helper()
	var r co.Record
	decode(c.t, c.node(fmt.Sprintf("%s/sharding/%d", c.layout.Sibling(), i)).Data, &r)
	return r
}

func (c *chronicle) mark(i int, name string) string {
	return fmt.Sprintf("%s/sharding/%d/%s", c.layout.Root(), i, name)
}

// TestBeginWhileDividing: a host begins items after the leader has read what
// runs, and before it commits. They stay.
func TestBeginWhileDividing(t *testing.T) {
	t.Parallel()
	for _, monitor := range []bool{true, false} {
		c, h := group(t, 2, func(cfg *jobconfig.Configuration) { cfg.MonitorExecution = monitor })
		d := c.addHost("C", "10.0.0.3")
		must(t, second(d.join(c.file)))
		b, leader := h[1], h[0]
		c.now = c.now.Add(10 * time.Second)
		leader.beforeCommit(func() { must(t, b.fire(c.now)) })
		must(t, second(leader.step()))
		mine := c.assignments()[b.Self.ID]
		for _, i := range b.running() {
			if !mine.Contains(i) {
				t.Errorf("B runs %s and is assigned %s", b.running(), mine)
			}
		}
		if pending := c.division().Pending; len(pending) == 0 {
			t.Error("nothing is pending")
		}
		c.settle()
		c.pass(10 * time.Second)
		c.finish()
	}
}

func second[T any](_ T, err error) error { return err }

// TestDrainWhileDividing: the leader has read that a host is ready, and the
// host says that it drains before the leader commits.
func TestDrainWhileDividing(t *testing.T) {
	t.Parallel()
	c, h := group(t, 2, nil)
	must(t, c.edit(func(cfg *jobconfig.Configuration) { cfg.ShardingTotalCount = 7 }))
	h[0].beforeCommit(func() { must(t, h[1].perform(moves.Drain(&h[1].Member, co.HostDetail{}))) })
	must(t, second(h[0].step()))
	if d := c.division(); !slices.Equal(d.Draining, []string{h[1].Self.ID}) {
		t.Errorf("draining are %v", d.Draining)
	}
	if items := c.assignments()[h[1].Self.ID]; len(items) > 0 {
		t.Errorf("the draining host has %s", items)
	}
	if flags := c.children(c.layout.Root() + "/leader/sharding"); len(flags) > 0 {
		t.Errorf("flags %v", flags)
	}
}

// TestCompleteBeforeHearing: an item that stays only because it runs is
// completed before its host has heard of that. It moves all the same, and one
// beyond the total count goes.
func TestCompleteBeforeHearing(t *testing.T) {
	t.Parallel()
	for _, total := range []int{6, 2} {
		c, h := group(t, 1, nil)
		c.pass(10 * time.Second)
		d := c.addHost("B", "10.0.0.2")
		must(t, second(d.join(c.file)))
		must(t, c.edit(func(cfg *jobconfig.Configuration) { cfg.ShardingTotalCount = total }))
		must(t, second(h[0].step()))
		if len(c.division().Pending) == 0 {
			t.Fatal("nothing is pending")
		}
		must(t, h[0].complete(h[0].running(), "OK", "")) // with what it knew
		c.settle()
		if d := c.division(); len(d.Pending) > 0 || len(c.assignments()[h[0].Self.ID]) != total/2 {
			t.Errorf("pending %s, A has %s", d.Pending, c.assignments()[h[0].Self.ID])
		}
		c.finish()
	}
}

// TestTwoTakersAtOnce: both survivors want all that a dead host left. Each
// item is claimed once.
func TestTwoTakersAtOnce(t *testing.T) {
	t.Parallel()
	c, h := group(t, 3, func(cfg *jobconfig.Configuration) { cfg.Failover = true })
	c.pass(10 * time.Second)
	for _, other := range h[:2] {
		must(t, other.complete(other.running(), "OK", ""))
	}
	owed := h[2].running()
	h[2].crash()
	must(t, h[0].look())
	must(t, h[1].look())
	var first, late co.Recovered
	var err error
	h[0].beforeCommit(func() {
		first, err = h[1].recover(h[2].Self.ID, true, 1)
		must(t, err)
	})
	late, err = h[0].recover(h[2].Self.ID, true, 100)
	must(t, err)
	if len(first.Claimed) != 1 || len(late.Claimed) != len(owed)-1 {
		t.Errorf("B claimed %d, A %d, of %s", len(first.Claimed), len(late.Claimed), owed)
	}
	c.invariants()
	c.settle()
	c.finish()
}

// TestRecoverDivides: N survivors share what a dead host left; All and Limit;
// disabled items wait; busy ones too.
func TestRecoverDivides(t *testing.T) {
	t.Parallel()
	for survivors := 1; survivors <= 5; survivors++ {
		c, h := group(t, 1, func(cfg *jobconfig.Configuration) { cfg.Failover, cfg.ShardingTotalCount = true, 23 })
		c.pass(10 * time.Second)
		var others []*simHost
		for k := range survivors {
			o := c.addHost(string(rune('B'+k)), fmt.Sprintf("10.0.0.%d", 2+k))
			must(t, second(o.join(c.file)))
			others = append(others, o)
		}
		c.settle()
		must(t, c.operate(moves.SetItem(c.layout, 5, false)))
		h[0].crash()
		for _, o := range others {
			must(t, o.look())
		}
		claimed := make(map[int]string)
		for _, o := range others {
			out, err := o.recover(h[0].Self.ID, false, 100)
			must(t, err)
			for _, claim := range out.Claimed {
				if by, twice := claimed[claim.Item]; twice {
					t.Errorf("%d survivors: %d was claimed by %s and %s", survivors, claim.Item, by, o.name)
				}
				claimed[claim.Item] = o.name
				if claim.Fire.Instant != c.now.UnixMilli() || claim.Owner != h[0].Self.ID || claim.State.RecordZxid == 0 {
					t.Errorf("claim %+v", claim)
				}
			}
			if n := len(out.Claimed); n < 23/survivors-1 || n > 23/survivors+1 {
				t.Errorf("%d survivors: %s claimed %d of 22", survivors, o.name, n)
			}
		}
		if len(claimed) != 22 || claimed[5] != "" {
			t.Errorf("%d survivors claimed %d items, the disabled one by %q", survivors, len(claimed), claimed[5])
		}
		must(t, c.operate(moves.SetItem(c.layout, 5, true)))
		must(t, others[0].look())
		limited, err := others[0].recover(h[0].Self.ID, true, 0)
		must(t, err)
		if len(limited.Claimed) > 0 || !slices.Equal(limited.Left, co.Items{5}) {
			t.Errorf("with no place left: %+v", limited)
		}
		c.settle()
		c.finish()
	}
}

// TestRecoverDividesAmongTheIdle: hosts that run something of the job take
// nothing while others run nothing, whichever looks first, and the items are
// divided evenly whatever their numbers are.
func TestRecoverDividesAmongTheIdle(t *testing.T) {
	t.Parallel()
	for _, busy := range []int{0, 1, 3} { // of the three survivors
		for first := range 3 {
			c, h := group(t, 4, func(cfg *jobconfig.Configuration) { cfg.Failover, cfg.ShardingTotalCount = true, 24 })
			dead, survivors := h[3], h[:3]
			c.pass(10 * time.Second)
			had := dead.running()
			must(t, dead.complete(co.Items{had[1], had[3], had[5]}, "OK", ""))
			crashed := dead.running() // every other one
			for k, o := range survivors {
				if k >= busy {
					must(t, o.complete(o.running(), "OK", ""))
				}
			}
			dead.crash()
			for _, o := range survivors {
				must(t, o.look())
			}
			var all co.Items
			for k := range 3 {
				n := (first + k) % 3
				out, err := survivors[n].recover(dead.Self.ID, false, 100)
				must(t, err)
				want := len(crashed) / (3 - busy%3)
				if n < busy%3 {
					want = 0
				}
				if got := len(out.Claimed); got < want || got > want+1 || want == 0 && got > 0 {
					t.Errorf("%d busy, %d looks first: %d claims %d of %s, want %d or one more", busy, first, n, got, crashed, want)
				}
				for _, claim := range out.Claimed {
					all = append(all, claim.Item)
				}
			}
			if slices.Sort(all); !slices.Equal(all, crashed) {
				t.Errorf("%d busy, %d looks first: %s were taken over in one round, want %s", busy, first, all, crashed)
			}
			c.settle()
			c.finish()
		}
	}
}

// TestRecoverOdds: what is not owed any more.
func TestRecoverOdds(t *testing.T) {
	t.Parallel()
	c, h := group(t, 2, func(cfg *jobconfig.Configuration) { cfg.Failover = true })
	c.pass(10 * time.Second)
	must(t, h[0].complete(h[0].running(), "OK", ""))
	dead := h[1].Self.ID
	owed := h[1].running()
	h[1].crash()
	// The first item's record was written by somebody else since; the second
	// is beyond a total count that was lowered.
	other, err := json.Marshal(co.Record{Owner: "somebody", Instant: 1, Begun: 2})
	must(t, err)
	c.hand(registry.Set(fmt.Sprintf("%s/sharding/%d", c.layout.Sibling(), owed[0]), other, registry.AnyVersion))
	must(t, c.edit(func(cfg *jobconfig.Configuration) { cfg.ShardingTotalCount = owed[1] }))
	must(t, h[0].look())
	out, err := h[0].recover(dead, true, 100)
	must(t, err)
	if !out.Settled || len(out.Claimed) != 0 {
		t.Errorf("recovered %+v", out)
	}
	var lost co.Items
	for _, l := range out.Lost {
		lost = append(lost, l.Item)
	}
	if !slices.Equal(lost, owed) {
		t.Errorf("lost are %s, want %s", lost, owed)
	}
	if r := c.record(owed[0]); r.Owner != "somebody" {
		t.Errorf("the record of somebody else became %+v", r)
	}
	for _, i := range owed {
		if c.node(c.mark(i, "running")).Exists {
			t.Errorf("item %d is still marked as running", i)
		}
	}

	// A list that cannot be read: the marks alone tell what is owed.
	d := c.addHost("D", "10.0.0.4")
	must(t, second(d.join(c.file)))
	must(t, c.edit(func(cfg *jobconfig.Configuration) { cfg.ShardingTotalCount = 6 }))
	c.settle()
	c.pass(10 * time.Second)
	d.crash()
	c.hand(registry.Set(c.layout.Sibling()+"/runs/"+d.Self.ID, []byte("nonsense"), registry.AnyVersion))
	must(t, h[0].look())
	out, err = h[0].recover(d.Self.ID, true, 100)
	must(t, err)
	if !out.Settled {
		t.Errorf("recovered %+v", out)
	}
	var swept co.Swept
	must(t, h[0].perform(moves.Sweep(&h[0].Member, c.now, &swept)))
	if len(swept.Nodes) != 0 {
		t.Errorf("swept %v", swept)
	}
	must(t, h[0].look())
	crashed := h[0].View.Crashed()
	if len(crashed) != 1 {
		t.Fatalf("crashed are %v", crashed)
	}
	out, err = h[0].recover(crashed[0], true, 100)
	must(t, err)
	if len(out.Claimed) != 3 || !out.Settled {
		t.Errorf("recovered %+v", out)
	}
	c.settle()
	c.finish()
}

// TestBeginConflicts: every reason for which an item does not begin, with the
// others beginning in the same commit.
func TestBeginConflicts(t *testing.T) {
	t.Parallel()
	type test struct {
		name  string
		spoil func(*chronicle, *simHost)
		want  map[int]co.Refusal
		stale bool
	}
	none := map[int]co.Refusal{}
	tests := []test{
		{"nothing", func(*chronicle, *simHost) {}, none, false},
		{"disabled", func(c *chronicle, _ *simHost) {
			must(t, c.operate(moves.SetItem(c.layout, 1, false)))
			must(t, c.operate(moves.SetItem(c.layout, 4, false)))
		}, map[int]co.Refusal{1: co.RefusedDisabled, 4: co.RefusedDisabled}, false},
		{"running", func(c *chronicle, _ *simHost) {
			c.hand(registry.Create(c.mark(2, "running"), []byte("java")))
		}, map[int]co.Refusal{2: co.RefusedRunning}, false},
		{"failover", func(c *chronicle, _ *simHost) {
			c.hand(registry.Create(c.mark(0, "failover"), []byte("java")))
		}, map[int]co.Refusal{0: co.RefusedFailover}, false},
		{"record", func(c *chronicle, _ *simHost) {
			c.hand(registry.Set(c.layout.Sibling()+"/sharding/3", []byte("{}"), registry.AnyVersion))
		}, map[int]co.Refusal{3: co.RefusedStale}, true},
		{"record gone", func(c *chronicle, _ *simHost) {
			c.hand(registry.Delete(c.layout.Sibling()+"/sharding/3", registry.AnyVersion))
		}, map[int]co.Refusal{3: co.RefusedStale}, true},
		{"item gone", func(c *chronicle, _ *simHost) {
			c.hand(registry.Delete(c.mark(5, "instance"), registry.AnyVersion), registry.Delete(c.layout.Root()+"/sharding/5", registry.AnyVersion))
		}, map[int]co.Refusal{5: co.RefusedStale}, true},
		{"misfire appeared", func(c *chronicle, _ *simHost) { c.hand(registry.Create(c.mark(1, "misfire"), nil)) }, none, false},
		{"misfire gone", func(c *chronicle, h *simHost) {
			for _, it := range h.items {
				it.state.Misfire = true
			}
		}, none, false},
		{"all of it", func(c *chronicle, h *simHost) {
			must(t, c.operate(moves.SetItem(c.layout, 0, false)))
			c.hand(registry.Create(c.mark(1, "running"), []byte("java")), registry.Create(c.mark(2, "failover"), []byte("java")),
				registry.Set(c.layout.Sibling()+"/sharding/3", []byte("{}"), registry.AnyVersion), registry.Create(c.mark(4, "running"), nil))
			h.items[5].state.Misfire = true
		}, map[int]co.Refusal{0: co.RefusedDisabled, 1: co.RefusedRunning, 2: co.RefusedFailover, 3: co.RefusedStale, 4: co.RefusedRunning}, true},
		{"share", func(c *chronicle, h *simHost) {
			path := c.layout.Sibling() + "/assignment/" + h.Self.ID
			c.hand(registry.Set(path, c.node(path).Data, registry.AnyVersion))
		}, none, true},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			c, hosts := group(t, 1, func(cfg *jobconfig.Configuration) { cfg.Failover = true })
			h := hosts[0]
			test.spoil(c, h)
			out := begin(t, h, c.now.Add(10*time.Second))
			if fmt.Sprint(out.Refused) != fmt.Sprint(test.want) || out.Stale != test.stale {
				t.Errorf("refused %v stale %v, want %v %v", out.Refused, out.Stale, test.want, test.stale)
			}
			want := 6 - len(test.want)
			if test.name == "share" {
				want = 0
			}
			if len(out.Items) != want || len(h.Runs.Items()) != want {
				t.Errorf("begun %v, runs %v", out.Items, h.Runs)
			}
			for i, state := range out.Items {
				n := c.node(fmt.Sprintf("%s/sharding/%d", c.layout.Sibling(), i))
				if n.Version != state.RecordVersion || n.Mzxid != state.RecordZxid || c.record(i) != state.Record || !state.Record.Open() {
					t.Errorf("item %d: state %+v, node %+v", i, state, n)
				}
				if string(c.node(c.mark(i, "running")).Data) != h.Self.ID {
					t.Errorf("item %d has no mark", i)
				}
			}
			if out.Commits > 3 {
				t.Errorf("it took %d commits", out.Commits)
			}
		})
	}
}

// begin begins all items that the host owns, and takes note of it.
func begin(t *testing.T, h *simHost, at time.Time) co.Begun {
	t.Helper()
	states := make(map[int]co.ItemState)
	for i, it := range h.items {
		states[i] = it.state
	}
	var out co.Begun
	fire := co.Fire{Instant: at.UnixMilli(), Source: "schedule"}
	must(t, h.perform(moves.Begin(&h.Member, co.Beginning{Fire: fire, Items: states, Now: at}, &out)))
	for i, state := range out.Items {
		h.items[i].running, h.items[i].state, h.items[i].fire = true, state, fire
	}
	return out
}

// TestLostAnswers: a begin, a completion and a saved offset whose answers are
// lost, when they took effect and when they did not.
func TestLostAnswers(t *testing.T) {
	t.Parallel()
	for _, fault := range []registrytest.Fault{registrytest.LostAnswer, registrytest.LostRequest} {
		c, hosts := group(t, 1, func(cfg *jobconfig.Configuration) { cfg.Failover = true })
		h := hosts[0]
		h.nextCommit(fault)
		out := begin(t, h, c.now)
		if len(out.Items) != 0 || len(out.Refused) != 6 { // that instant is past
			t.Errorf("begun %v", out.Items)
		}
		h.nextCommit(fault)
		out = begin(t, h, c.now.Add(time.Second))
		if len(out.Items) != 6 || len(out.Refused) != 0 || h.RunsVersion != 1 {
			t.Fatalf("fault %d: begun %v, refused %v", fault, out.Items, out.Refused)
		}
		for i, state := range out.Items {
			if n := c.node(fmt.Sprintf("%s/sharding/%d", c.layout.Sibling(), i)); n.Mzxid != state.RecordZxid || n.Version != state.RecordVersion {
				t.Errorf("item %d: state %+v, node %+v", i, state, n)
			}
		}
		for n := range 3 { // a new offset, and then one over it
			h.nextCommit(fault)
			it := h.items[0]
			var saved co.Saved
			text := fmt.Sprintf("offset %d", n)
			must(t, h.perform(moves.SaveOffsets(c.layout, map[int]co.Ended{0: {State: it.state, Offset: []byte(text), HasOffset: true}}, &saved)))
			state, ok := saved.Items[0]
			if node := c.node(c.layout.Sibling() + "/offset/0"); !ok || string(node.Data) != text || node.Version != state.OffsetVersion {
				t.Fatalf("fault %d: saved %+v, node %+v", fault, saved, node)
			}
			if n > 0 { // the first time the host did not hear of it at all
				it.state = state
			}
		}
		h.nextCommit(fault)
		must(t, h.complete(co.Items{0, 1, 2}, "OK", "done"))
		if string(c.node(c.layout.Sibling()+"/offset/0").Data) != "done" || c.record(0).Open() || !c.record(3).Open() || !slices.Equal(h.Runs.Items(), co.Items{3, 4, 5}) {
			t.Errorf("fault %d: after the completion: %+v, runs %v", fault, c.record(0), h.Runs)
		}
		must(t, h.complete(co.Items{3, 4, 5}, "OK", ""))
		c.finish()
	}
}

// TestACompletionOfWhichTheHostDidNotHearStands: items move as soon as they are
// completed, and their new owner has begun the next fire before the host that
// completed them asks what became of the commit.
func TestACompletionOfWhichTheHostDidNotHearStands(t *testing.T) {
	t.Parallel()
	for _, fault := range []registrytest.Fault{registrytest.LostAnswer, registrytest.LostRequest} {
		c, hosts := group(t, 2, nil)
		leader, h := hosts[0], hosts[1]
		begin(t, h, c.now.Add(time.Second))
		items := h.running()
		c.hand(registry.Set(c.layout.Root()+"/servers/"+h.ip, []byte("DISABLED"), registry.AnyVersion))
		if stepped, err := h.step(); !stepped || err != nil {
			t.Fatalf("a disabled host does not ask for another division: %v", err)
		}
		wish := co.Completing{Items: make(map[int]co.Ended), Now: c.now}
		for _, i := range items {
			wish.Items[i] = co.Ended{State: h.items[i].state, Outcome: "OK", Offset: []byte("done"), HasOffset: true}
		}
		lost := false
		h.plan = func(_ int, op string) registrytest.Fault {
			switch {
			case op == "commit" && !lost:
				lost = true
				return fault
			case lost:
				h.plan = nil
				for stepped := true; stepped; {
					var err error
					stepped, err = leader.step()
					must(t, err)
				}
				begin(t, leader, c.now.Add(11*time.Second))
			}
			return registrytest.NoFault
		}
		var out co.Completed
		must(t, h.perform(moves.Complete(&h.Member, wish, &out)))
		if len(out.Lost) > 0 || len(out.Items) != len(items) {
			t.Errorf("fault %d: of %v, completed %v, lost %v", fault, items, out.Items, out.Lost)
		}
		for i, state := range out.Items {
			if state.Record.Open() || state.Record.Outcome != "OK" || string(state.Offset) != "done" {
				t.Errorf("fault %d: item %d: %+v", fault, i, state)
			}
			if owner := c.record(i).Owner; (owner == leader.Self.ID) != (fault == registrytest.LostAnswer) {
				t.Errorf("fault %d: item %d was last begun by %s", fault, i, owner)
			}
		}
		for i := range h.items {
			h.items[i].running = false
		}
		must(t, leader.complete(leader.running(), "OK", ""))
		c.finish()
	}
}

// TestUnheardBegin: a begin took effect, and the host could not find out. It
// is found by whatever the host does next.
func TestUnheardBegin(t *testing.T) {
	t.Parallel()
	unheard := func(t *testing.T) (*chronicle, *simHost, co.Fire) {
		c, hosts := group(t, 2, func(cfg *jobconfig.Configuration) { cfg.Failover = true })
		h := hosts[0]
		states := make(map[int]co.ItemState)
		for i, it := range h.items {
			states[i] = it.state
		}
		lost := false
		h.plan = func(_ int, op string) registrytest.Fault {
			if op == "commit" && !lost {
				lost = true
				return registrytest.LostAnswer
			}
			return registrytest.Refused
		}
		fire := co.Fire{Instant: c.now.Add(time.Second).UnixMilli(), Source: "schedule"}
		var out co.Begun
		err := h.perform(moves.Begin(&h.Member, co.Beginning{Fire: fire, Items: states, Now: c.now}, &out))
		if !errors.Is(err, registry.ErrUnavailable) {
			t.Fatalf("begin: %v", err)
		}
		h.plan = nil
		return c, h, fire
	}
	t.Run("the same again", func(t *testing.T) {
		c, h, fire := unheard(t)
		if out := begin(t, h, fire.Time()); len(out.Items) != 3 || out.Commits != 1 {
			t.Errorf("begun %+v", out)
		}
		must(t, h.complete(h.running(), "OK", ""))
		c.finish()
	})
	t.Run("the same again, with states read since", func(t *testing.T) {
		c, h, fire := unheard(t)
		must(t, h.look())
		must(t, h.readShare())
		if out := begin(t, h, fire.Time()); len(out.Items) != 3 {
			t.Errorf("begun %+v", out)
		}
		must(t, h.complete(h.running(), "OK", ""))
		c.finish()
	})
	t.Run("the next instant", func(t *testing.T) {
		c, h, fire := unheard(t)
		out := begin(t, h, fire.Time().Add(time.Second))
		if !out.Stale || len(out.Items) != 0 {
			t.Errorf("begun %+v", out)
		}
		must(t, h.readShare())
		for i := range h.items {
			if r := c.record(i); r.Open() || r.Outcome != co.OutcomeCancelled || r.Accepts(fire) != nil {
				t.Errorf("item %d was not handed back: %+v", i, r)
			}
			if c.node(c.mark(i, "running")).Exists {
				t.Errorf("item %d is still marked", i)
			}
		}
		if out := begin(t, h, fire.Time().Add(time.Second)); len(out.Items) != 3 {
			t.Errorf("begun %+v", out)
		}
		must(t, h.complete(h.running(), "OK", ""))
		c.finish()
	})
	t.Run("a recovery", func(t *testing.T) {
		c, h, _ := unheard(t)
		c.host("B").crash()
		c.settle()
		if len(h.running()) != 3 {
			t.Errorf("adopted are %s", h.running())
		}
		must(t, h.complete(h.running(), "OK", ""))
		c.finish()
	})
}

// TestUnheardCompletion: the same for a completion, put again as it was.
func TestUnheardCompletion(t *testing.T) {
	t.Parallel()
	c, hosts := group(t, 1, nil)
	h := hosts[0]
	c.pass(time.Second)
	lost := false
	h.plan = func(_ int, op string) registrytest.Fault {
		if op == "commit" && !lost {
			lost = true
			return registrytest.LostAnswer
		}
		return registrytest.Refused
	}
	if err := h.complete(co.Items{0, 1}, "OK", "end"); !errors.Is(err, registry.ErrUnavailable) {
		t.Fatalf("complete: %v", err)
	}
	h.plan = nil
	must(t, h.complete(co.Items{0, 1, 2}, "OK", "end"))
	if strings.Contains(c.log.String(), "no longer") || !slices.Equal(h.Runs.Items(), co.Items{3, 4, 5}) {
		t.Errorf("runs are %v", h.Runs)
	}
	if h.items[0].state.OffsetVersion != c.node(c.layout.Sibling()+"/offset/0").Version || string(c.node(c.layout.Sibling()+"/offset/2").Data) != "end" {
		t.Error("offsets are not what the host believes")
	}
	c.finish()
}

// TestCompleteOdds: marks and offsets that are not what they were.
func TestCompleteOdds(t *testing.T) {
	t.Parallel()
	c, hosts := group(t, 1, nil) // the marks are ephemeral
	h := hosts[0]
	c.pass(time.Second)
	l := c.layout
	if !c.node(c.mark(0, "running")).Ephemeral {
		t.Error("without failover the mark is persistent")
	}
	c.hand(registry.Delete(c.mark(0, "running"), registry.AnyVersion))                                                                                                  // a console
	c.hand(registry.Delete(c.mark(1, "running"), registry.AnyVersion), registry.Create(c.mark(1, "running"), []byte("java")))                                           // Java
	c.hand(registry.Create(l.Sibling()+"/offset/2", []byte("by hand")))                                                                                                 // an offset that the host has not seen
	c.hand(registry.Set(l.Sibling()+"/sharding/3", []byte(`{"owner":"other","instant":1,"begun":2}`), registry.AnyVersion))                                             // another owner
	c.hand(registry.Delete(c.mark(4, "running"), registry.AnyVersion), registry.Create(c.mark(4, "running"), nil))                                                      // 2.x
	c.hand(registry.Set(l.Sibling()+"/members", c.node(l.Sibling()+"/members").Data, registry.AnyVersion), registry.Create(l.Root()+"/leader/sharding/necessary", nil)) // news
	completing := co.Completing{Items: make(map[int]co.Ended), Wake: true, AskForSharding: true, Now: c.now}
	for i, it := range h.items {
		completing.Items[i] = co.Ended{State: it.state, Outcome: "OK", Offset: []byte("end"), HasOffset: i == 2 || i == 3}
	}
	before := c.node(l.Sibling() + "/members").Version
	var out co.Completed
	must(t, h.perform(moves.Complete(&h.Member, completing, &out)))
	if len(out.Items) != 5 || !slices.Equal(out.Lost, co.Items{3}) || len(h.Runs.Runs) != 0 {
		t.Errorf("completed %+v", out)
	}
	if got := string(c.node(l.Sibling() + "/offset/2").Data); got != "end" || out.Items[2].OffsetVersion != 1 {
		t.Errorf("offset %q, state %+v", got, out.Items[2])
	}
	if c.node(l.Sibling() + "/offset/3").Exists {
		t.Error("the offset of a lost item was written")
	}
	if string(c.node(c.mark(1, "running")).Data) != "java" || c.node(c.mark(4, "running")).Exists {
		t.Error("the marks of others and of 2.x")
	}
	if c.node(l.Sibling()+"/members").Version == before {
		t.Error("the others were not woken after the completion")
	}
}

// TestJoinOdds: joins at once, a lost answer, leftovers of the same id, a job
// that is removed meanwhile, a tree that is half there.
func TestJoinOdds(t *testing.T) {
	t.Parallel()
	t.Run("at once", func(t *testing.T) {
		c := newChronicle(t)
		a, b := c.addHost("A", "10.0.0.1"), c.addHost("B", "10.0.0.1")
		a.connect()
		a.beforeCommit(func() { must(t, second(b.join(c.file))) })
		applied, err := a.join(c.file)
		must(t, err)
		if applied.Created {
			t.Error("both made the job")
		}
		c.settle()
		c.finish()
	})
	for _, fault := range []registrytest.Fault{registrytest.LostAnswer, registrytest.LostRequest} {
		c := newChronicle(t)
		a := c.addHost("A", "10.0.0.1")
		a.connect()
		a.nextCommit(fault)
		must(t, second(a.join(c.file)))
		c.settle()
		// And again, as a host does that has not heard of it.
		before := c.node(c.layout.Sibling() + "/assignment/" + a.Self.ID)
		must(t, second(a.join(c.file)))
		if after := c.node(c.layout.Sibling() + "/assignment/" + a.Self.ID); after.Version != before.Version || after.Czxid != before.Czxid {
			t.Error("joining again took the share away")
		}
		c.finish()
	}
	t.Run("leftovers", func(t *testing.T) {
		c, _ := group(t, 1, nil)
		b := c.addHost("B", "10.0.0.2")
		b.connect()
		c.hand(registry.Create(c.layout.Sibling()+"/runs/"+b.Self.ID, nil), registry.Create(c.layout.Sibling()+"/assignment/"+b.Self.ID, nil),
			registry.Set(c.layout.Sibling()+"/runs/"+b.Self.ID, nil, 0))
		must(t, second(b.join(c.file)))
		c.settle()
		c.finish()
		d := c.addHost("D", "10.0.0.4")
		d.connect()
		c.hand(registry.Create(c.layout.Sibling()+"/runs/"+d.Self.ID, []byte(`{"runs":[{"instant":1,"source":"schedule","items":"0"}]}`)))
		if err := second(d.join(c.file)); err == nil || !strings.Contains(err.Error(), "used before") {
			t.Errorf("an id that has unfinished runs: %v", err)
		}
	})
	t.Run("removed meanwhile", func(t *testing.T) {
		c, h := group(t, 1, nil)
		b := c.addHost("B", "10.0.0.2")
		b.connect()
		b.beforeCommit(func() { must(t, c.operate(moves.Remove(c.layout, true))) })
		applied, err := b.join(c.file)
		must(t, err)
		if !applied.Created {
			t.Error("the job that was removed was joined")
		}
		if _, err := h[0].step(); err != nil {
			t.Errorf("A: %v", err)
		}
		c.settle()
		c.finish()
	})
	t.Run("bad configuration", func(t *testing.T) {
		c, _ := group(t, 1, nil)
		must(t, c.edit(func(cfg *jobconfig.Configuration) { cfg.ShardingTotalCount = 0 }))
		b := c.addHost("B", "10.0.0.2")
		if err := second(b.join(c.file)); err == nil || !strings.Contains(err.Error(), "shardingTotalCount") {
			t.Errorf("join: %v", err)
		}
		c.settle()
		if shares := c.assignments(); len(shares) != 1 {
			t.Errorf("shares %v", shares)
		}
		for _, items := range c.assignments() {
			if len(items) != 6 {
				t.Errorf("the items are %s", items)
			}
		}
	})
	t.Run("half a tree", func(t *testing.T) {
		c, h := group(t, 1, nil)
		root := c.layout.Root()
		c.hand(registry.Delete(root+"/leader/sharding", registry.AnyVersion), registry.Delete(root+"/trigger", registry.AnyVersion),
			registry.Delete(root+"/leader/failover/items", registry.AnyVersion), registry.Delete(root+"/leader/failover", registry.AnyVersion),
			registry.Delete(root+"/sharding/0/instance", registry.AnyVersion), registry.Delete(root+"/sharding/0", registry.AnyVersion))
		must(t, c.edit(func(cfg *jobconfig.Configuration) { cfg.ShardingTotalCount = 5 }))
		c.settle()
		must(t, c.operate(moves.TriggerJob(c.layout)))
		c.settle()
		if len(h[0].running()) != 5 {
			t.Errorf("running are %s", h[0].running())
		}
		c.complete(all)
		must(t, h[0].leave("left", nil))
	})
}

// TestResign: a leader that was replaced does not depose its successor.
func TestResign(t *testing.T) {
	t.Parallel()
	c, h := group(t, 2, nil)
	leader := c.layout.Root() + "/leader/election/instance"
	stale := h[0].Member
	c.hand(registry.Delete(leader, registry.AnyVersion)) // an operator
	must(t, second(h[1].step()))
	if got := string(c.node(leader).Data); got != h[1].Self.ID {
		t.Fatalf("leader is %s", got)
	}
	must(t, h[0].perform(moves.Resign(&stale)))
	must(t, h[0].perform(moves.Elect(&stale)))
	if got := string(c.node(leader).Data); got != h[1].Self.ID {
		t.Errorf("leader is %s", got)
	}
	// Nor can it divide, even in the middle of it.
	var sharded co.Sharded
	must(t, h[0].perform(moves.Reshard(&stale, c.now, &sharded)))
	if sharded.Commits != 0 {
		t.Error("a former leader divided the items")
	}
}

// TestLeaveUnfinished: what a host leaves behind is taken over, even while the
// session that made its marks lives on for other jobs.
func TestLeaveUnfinished(t *testing.T) {
	t.Parallel()
	c, h := group(t, 2, func(cfg *jobconfig.Configuration) { cfg.Failover = true })
	c.pass(time.Second)
	h[1].crash()
	c.settle()
	c.now = c.now.Add(2 * time.Second)
	c.settle()
	if len(h[0].running()) != 6 {
		t.Fatalf("A runs %s", h[0].running())
	}
	d := c.addHost("D", "10.0.0.4")
	must(t, second(d.join(c.file)))
	must(t, h[0].look())
	must(t, h[0].leave("left", h[0].running())) // some of them as failover: those marks are ephemeral
	c.settle()
	if len(d.running()) != 6 {
		t.Errorf("D runs %s", d.running())
	}
	must(t, h[0].rc.Close())
	c.complete(all)
	c.finish()
}

// TestRemoveLarge: a job of 30,000 nodes goes in several commits, while hosts
// watch; a removal that had to start over does not say that there was nothing.
func TestRemoveLarge(t *testing.T) {
	t.Parallel()
	c, h := group(t, 1, func(cfg *jobconfig.Configuration) { cfg.ShardingTotalCount = 15_000 })
	r := registrytest.Faulty(c.op, func(call int, op string) registrytest.Fault {
		if call == 8 && op == "commit" {
			return registrytest.LostAnswer
		}
		return registrytest.NoFault
	})
	commits := 0
	counted := counting{r, &commits}
	must(t, perform(context.Background(), counted, moves.Remove(c.layout, true)))
	if commits < 5 {
		t.Errorf("it took %d commits", commits)
	}
	if c.node(c.layout.Root()).Exists || c.node(c.layout.Sibling()).Exists {
		t.Error("something is left")
	}
	if err := perform(context.Background(), c.op, moves.Remove(c.layout, true)); !errors.Is(err, co.ErrRemoved) {
		t.Errorf("removing it again: %v", err)
	}
	must(t, second(h[0].step()))
	c.settle()
	if c.node(c.layout.Root()).Exists || c.node(c.layout.Sibling()).Exists {
		t.Error("a host brought something back")
	}
	// The last commit took effect, and the answer was lost.
	small, _ := group(t, 1, nil)
	lossy := registrytest.Faulty(small.op, func(_ int, op string) registrytest.Fault {
		if op == "commit" {
			return registrytest.LostAnswer
		}
		return registrytest.NoFault
	})
	must(t, perform(context.Background(), lossy, moves.Remove(small.layout, false)))
}

// counting counts commits.
type counting struct {
	registry.Center
	commits *int
}

func (c counting) Commit(ctx context.Context, ops ...registry.Op) ([]registry.Result, error) {
	*c.commits++
	return c.Center.Commit(ctx, ops...)
}

// TestTriggerKeepsPending: no trigger is lost, none is doubled.
func TestTriggerKeepsPending(t *testing.T) {
	t.Parallel()
	c, h := group(t, 2, nil)
	trigger := func() { must(t, c.operate(moves.TriggerJob(c.layout))) }
	node := func(h *simHost) registry.Node { return c.node(c.layout.Root() + "/trigger/" + h.Self.ID) }
	trigger()
	first := node(h[0]).Czxid
	if node(h[1]).Czxid != first {
		t.Error("a round has two numbers")
	}
	must(t, second(h[1].step())) // consumes its own
	trigger()
	if node(h[0]).Czxid != first || node(h[1]).Czxid <= first {
		t.Error("a pending trigger was replaced")
	}
	c.hand(registry.Create(c.layout.Root()+"/trigger/10.9.9.9@-@gone", nil))
	trigger()
	if c.node(c.layout.Root() + "/trigger/10.9.9.9@-@gone").Exists {
		t.Error("a trigger of nobody is kept")
	}
	for _, host := range h {
		host.crash()
	}
	if err := c.operate(moves.TriggerJob(c.layout)); err == nil || !strings.Contains(err.Error(), "no instance") {
		t.Errorf("nobody is there: %v", err)
	}
}

// TestGuaranteeConcurrently: of several hosts that arrive, in any order and
// in the middle of each other's arrival, one is the last.
func TestGuaranteeConcurrently(t *testing.T) {
	t.Parallel()
	c, h := group(t, 3, func(cfg *jobconfig.Configuration) { cfg.ShardingTotalCount = 9 })
	for round := range 20 {
		last := make([]bool, 3)
		arrive := func(k int) {
			must(t, h[k].perform(moves.Arrive(c.layout, h[k].View.Self, co.PhaseStarted, h[k].owned(), 9, &last[k])))
		}
		calls := 0
		h[round%3].plan = func(int, string) registrytest.Fault {
			if calls++; calls == 1+round%4 {
				arrive((round + 1) % 3)
			}
			return registrytest.NoFault
		}
		arrive(round % 3)
		h[round%3].plan = nil
		if calls < 1+round%4 {
			arrive((round + 1) % 3)
		}
		path := c.layout.Root() + "/guarantee/started"
		if n := c.read(registry.Children(path)); co.GuaranteePassed(n, h[0].owned()) != !slices.Contains(n.Names, h[0].owned()[:1].String()) {
			t.Errorf("passed with %v", n.Names)
		}
		arrive((round + 2) % 3)
		n := 0
		for _, l := range last {
			if l {
				n++
			}
		}
		if n != 1 || !c.node(path).Exists {
			t.Fatalf("round %d: %d hosts were the last, %v; the others wait until it is cleared", round, n, last)
		}
		must(t, h[0].perform(moves.ClearGuarantee(c.layout, co.PhaseStarted)))
	}
	// Very many marks take several commits.
	var items co.Items
	for i := range 20_000 {
		items = append(items, i)
	}
	done := false
	must(t, h[0].perform(moves.Arrive(c.layout, h[0].View.Self, co.PhaseCompleted, items[:19_999], 20_000, &done)))
	if done {
		t.Error("one item is missing")
	}
	must(t, h[1].perform(moves.Arrive(c.layout, h[1].View.Self, co.PhaseCompleted, items[19_999:], 20_000, &done)))
	if !done {
		t.Error("the last item did not end it")
	}
	must(t, h[1].perform(moves.ClearGuarantee(c.layout, co.PhaseCompleted)))
	if c.node(c.layout.Root() + "/guarantee/completed").Exists {
		t.Error("marks are left")
	}
	must(t, h[0].perform(moves.Arrive(c.layout, h[0].View.Self, co.PhaseCompleted, items[:3], 20_000, &done)))
	must(t, h[0].perform(moves.ClearGuarantee(c.layout, co.PhaseCompleted)))
	must(t, h[0].perform(moves.ClearGuarantee(c.layout, co.PhaseCompleted)))
	if c.node(c.layout.Root() + "/guarantee/completed").Exists {
		t.Error("not cleared")
	}
}

// TestLeaveUnheard: a host leaves and believes that nothing of it runs, but a
// begin took effect whose answer was lost. The others take it over.
func TestLeaveUnheard(t *testing.T) {
	t.Parallel()
	c, h := group(t, 2, func(cfg *jobconfig.Configuration) { cfg.Failover = true })
	c.now = c.now.Add(10 * time.Second)
	n := 0
	h[0].plan = func(int, string) registrytest.Fault {
		n++
		return []registrytest.Fault{registrytest.LostAnswer, registrytest.Refused}[min(n, 2)-1]
	}
	if err := h[0].fire(c.now); err == nil {
		t.Fatal("the begin was heard")
	}
	h[0].plan = nil
	must(t, h[0].leave("left", nil))
	c.settle()
	c.now = c.now.Add(2 * time.Second)
	c.settle()
	if len(h[1].running()) != 3 {
		t.Errorf("B runs %s", h[1].running())
	}
	c.finish()
}

// TestRecoverLeavesTheLatch has a host stand in the failover latch when nothing
// is left for it to take: it makes way for those that wait behind it.
func TestRecoverLeavesTheLatch(t *testing.T) {
	t.Parallel()
	c, h := group(t, 1, func(cfg *jobconfig.Configuration) { cfg.Failover, cfg.ShardingTotalCount = true, 1 })
	c.pass(10 * time.Second)
	var others []*simHost
	for k := range 2 {
		o := c.addHost(string(rune('B'+k)), fmt.Sprintf("10.0.0.%d", 2+k))
		must(t, second(o.join(c.file)))
		others = append(others, o)
	}
	c.settle()
	h[0].crash()
	looked := 0
	latch := c.layout.Root() + "/leader/failover/latch"
	for _, o := range others {
		must(t, o.look())
		sum := sha256.Sum256([]byte(o.Self.ID))
		name := fmt.Sprintf("_c_%x-%x-%x-%x-%x-latch-", sum[0:4], sum[4:6], sum[6:8], sum[8:10], sum[10:16])
		if _, err := o.rc.Commit(c.ctx, registry.Ensure(latch), registry.CreateSequential(latch+"/"+name, nil)); err != nil {
			t.Fatal(err)
		}
		o.Takeover = co.Line{Standing: true}
		out, err := o.recover(h[0].Self.ID, false, 100)
		must(t, err)
		if len(out.Left) == 0 {
			continue // it was this one's share
		}
		looked++
		left, err := c.op.Read(c.ctx, registry.Children(latch))
		must(t, err)
		if len(left[0].Names) > 0 || o.Takeover.Standing {
			t.Errorf("%s has nothing to take and stands in the latch: %v", o.name, left[0].Names)
		}
	}
	if looked == 0 {
		t.Error("both had something to take")
	}
}

// TestLostThoughBegunAnew: failover is off, and the new owner of a dead host's
// item begins it for the next instant before anybody looks at what that host has
// left. The run that was cut off is told of nevertheless.
func TestLostThoughBegunAnew(t *testing.T) {
	t.Parallel()
	c, h := group(t, 2, nil)
	c.pass(10 * time.Second)
	survivor, dead, owed := h[0], h[1].Self.ID, h[1].running()
	must(t, survivor.complete(survivor.running(), "OK", ""))
	cut := co.Fire{Instant: c.now.UnixMilli(), Source: "schedule"}
	h[1].crash()
	for !slices.Equal(survivor.owned(), co.Items{0, 1, 2, 3, 4, 5}) {
		if stepped, err := survivor.step(); err != nil || !stepped {
			t.Fatalf("it does not get the dead host's items: %v", err)
		}
	}
	c.now = c.now.Add(10 * time.Second)
	must(t, survivor.fire(c.now))
	if got := survivor.running(); !slices.Equal(got, survivor.owned()) {
		t.Fatalf("begun are %s", got)
	}
	must(t, survivor.look())
	out, err := survivor.recover(dead, false, 100)
	must(t, err)
	var lost co.Items
	for _, l := range out.Lost {
		lost = append(lost, l.Item)
		if l.Fire != cut {
			t.Errorf("item %d is lost in the fire %+v, want %+v", l.Item, l.Fire, cut)
		}
	}
	if !slices.Equal(lost, owed) {
		t.Errorf("lost are %s, want %s", lost, owed)
	}
	for _, i := range owed {
		if r := c.record(i); !r.Open() || r.Owner != survivor.Self.ID {
			t.Errorf("the record of the run that goes on is %+v", r)
		}
	}
	c.settle()
	c.finish()
}
