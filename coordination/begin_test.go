package coordination_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	co "github.com/wasmjob/wasmjob/coordination"
	"github.com/wasmjob/wasmjob/coordination/jobconfig"
	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/registry/registrytest"
	"github.com/wasmjob/wasmjob/coordination/tree"
)

// TestBeginWhileSharding: a host begins items after the leader has read what
// runs, and before it commits. They stay.
func TestBeginWhileSharding(t *testing.T) {
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
		must(t, h.complete(tree.Items{0, 1, 2}, "OK", "done"))
		if string(c.node(c.layout.Sibling()+"/offset/0").Data) != "done" || c.record(0).Open() || !c.record(3).Open() || !slices.Equal(h.Runs.Items(), tree.Items{3, 4, 5}) {
			t.Errorf("fault %d: after the completion: %+v, runs %v", fault, c.record(0), h.Runs)
		}
		must(t, h.complete(tree.Items{3, 4, 5}, "OK", ""))
		c.finish()
	}
}

// TestBeginOutcomeUnknown: a begin took effect, and the host could not find out. It
// is found by whatever the host does next.
func TestBeginOutcomeUnknown(t *testing.T) {
	t.Parallel()
	unheard := func(t *testing.T) (*chronicle, *simHost, tree.Fire) {
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
		fire := tree.Fire{Instant: c.now.Add(time.Second).UnixMilli(), Source: "schedule"}
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
			if r := c.record(i); r.Open() || r.Outcome != tree.OutcomeCancelled || r.Accepts(fire) != nil {
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

// TestTriggerGoneBeforeManyItems: the items of a trigger fill several commits, and the trigger is gone before the first of
// them: none begins. If it goes after the first, the rest begins as well.
func TestTriggerGoneBeforeManyItems(t *testing.T) {
	t.Parallel()
	const total = 3000
	for after, want := range []int{0, total} {
		c, hosts := group(t, 1, func(cfg *jobconfig.Configuration) { cfg.Failover, cfg.ShardingTotalCount = true, total })
		h := hosts[0]
		must(t, c.operate(moves.TriggerJob(c.layout)))
		states := make(map[int]co.ItemState)
		for i, it := range h.items {
			states[i] = it.state
		}
		commits := 0
		h.plan = func(_ int, op string) registrytest.Fault {
			if op == "commit" {
				if commits == after {
					c.hand(registry.Delete(c.layout.Trigger(h.Self.ID), registry.AnyVersion))
				}
				commits++
			}
			return registrytest.NoFault
		}
		var out co.Begun
		must(t, h.perform(moves.Begin(&h.Member, co.Beginning{Fire: tree.Fire{Instant: c.now.UnixMilli(), Trigger: 1 << 40, Source: "trigger"},
			Items: states, ConsumeTrigger: true, Now: c.now}, &out)))
		if len(out.Items) != want || len(h.Runs.Items()) != want || (want > 0 && out.Commits < 3) {
			t.Errorf("the trigger went after %d commits: %d items begun in %d commits, %d listed; want %d", after, len(out.Items), out.Commits, len(h.Runs.Items()), want)
		}
	}
}

// TestBeginGoesByTheRegistrysClock: an instant that is later than the limit does
// not begin, a trigger always does; a record that is ahead of all clocks refuses no
// instant and is repaired by the begin, also if its answer is lost; one that is
// ahead by less is left alone.
//
// It kills the mutant "begin later than the registry's clock and the bound".
func TestBeginGoesByTheRegistrysClock(t *testing.T) {
	t.Parallel()
	for _, fault := range []registrytest.Fault{registrytest.NoFault, registrytest.LostAnswer, registrytest.LostRequest} {
		c, hosts := group(t, 1, func(cfg *jobconfig.Configuration) { cfg.ShardingTotalCount = 3 })
		h := hosts[0]
		limit := c.now.Add(time.Second)
		try := func(fire tree.Fire, ahead time.Time) co.Begun {
			t.Helper()
			states := make(map[int]co.ItemState)
			for i, it := range h.items {
				states[i] = it.state
			}
			var out co.Begun
			must(t, h.perform(moves.Begin(&h.Member, co.Beginning{Fire: fire, Items: states, Now: c.now, Latest: limit.UnixMilli(), Ahead: ahead.UnixMilli()}, &out)))
			for i, state := range out.Items {
				h.items[i].running, h.items[i].state, h.items[i].fire = true, state, fire
			}
			return out
		}

		out := try(tree.Fire{Instant: limit.UnixMilli() + 1, Source: "schedule"}, limit)
		if len(out.Items) != 0 || len(out.Refused) != 3 || out.Refused[1] != co.RefusedAhead || out.Commits != 0 {
			t.Errorf("an instant after the limit: begun %v, refused %v in %d commits", out.Items, out.Refused, out.Commits)
		}

		// Records as a wrong clock has left them: 0 an hour ahead, 1 a day ahead.
		for i, by := range map[int]time.Duration{0: time.Hour, 1: 24 * time.Hour} {
			state := &h.items[i].state
			state.Record.Instant = c.now.Add(by).UnixMilli()
			data, err := json.Marshal(state.Record)
			must(t, err)
			r, err := h.rc.Commit(c.ctx, registry.Set(h.layout.Sibling()+"/sharding/"+strconv.Itoa(i), data, registry.AnyVersion))
			must(t, err)
			state.RecordVersion = r[0].Version
		}
		fire := tree.Fire{Instant: limit.UnixMilli(), Source: "schedule"}
		h.nextCommit(fault)
		out = try(fire, c.now.Add(2*time.Hour))
		if len(out.Items) != 2 || out.Refused[0] != co.RefusedPast {
			t.Errorf("fault %d: begun %v, refused %v; want 1, which is a day ahead, and 2", fault, out.Items, out.Refused)
		}
		for i, want := range map[int]time.Time{0: c.now.Add(time.Hour), 1: limit, 2: limit} {
			var states map[int]co.ItemState
			must(t, h.perform(moves.ReadItems(h.layout, tree.Items{i}, &states)))
			if got := states[i].Record.Instant; got != want.UnixMilli() {
				t.Errorf("fault %d: the record of item %d names %s, want %s", fault, i, time.UnixMilli(got).UTC(), want.UTC())
			}
		}
		must(t, h.complete(h.running(), "OK", ""))
		out = try(tree.Fire{Instant: limit.UnixMilli() + 1, Trigger: 1 << 40, Source: "trigger"}, c.now.Add(2*time.Hour))
		if len(out.Items) != 3 {
			t.Errorf("a trigger: begun %v, refused %v", out.Items, out.Refused)
		}
	}
}

// TestBeginAfterTheScheduleChanged: a host that has not heard that the configuration was changed
// begins what is still due by it, and no instant after a change of the schedule.
func TestBeginAfterTheScheduleChanged(t *testing.T) {
	t.Parallel()
	cron := func(c *jobconfig.Configuration) { c.Cron = "0/7 * * * * ?" }
	for name, test := range map[string]struct {
		in      time.Duration // the instant, from now
		trigger int64
		change  func(*jobconfig.Configuration)
		refused bool
	}{
		"another schedule":                    {time.Hour, 0, cron, true},
		"another zone":                        {time.Hour, 0, func(c *jobconfig.Configuration) { c.TimeZone = "GMT+03:00" }, true},
		"another schedule, in force later on": {time.Second, 0, cron, false},
		"a trigger":                           {time.Hour, 1 << 40, cron, false},
		"another description":                 {time.Hour, 0, func(c *jobconfig.Configuration) { c.Description = "else" }, false},
		"nothing that can be read":            {time.Hour, 0, func(c *jobconfig.Configuration) { c.Cron, c.ShardingTotalCount = "0/7 * * * * ?", -1 }, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, hosts := group(t, 1, nil)
			h := hosts[0]
			changed := h.View.Config
			test.change(&changed)
			h.beforeCommit(func() { c.hand(registry.Set(c.layout.Config(), changed.YAML(), registry.AnyVersion)) })
			states := make(map[int]co.ItemState)
			for i, it := range h.items {
				states[i] = it.state
			}
			var out co.Begun
			fire := tree.Fire{Instant: time.Now().Add(test.in).UnixMilli(), Trigger: test.trigger, Source: "schedule"}
			must(t, h.perform(moves.Begin(&h.Member, co.Beginning{Fire: fire, Items: states, Now: c.now}, &out)))
			for i := range states {
				if why, refused := out.Refused[i]; refused != test.refused || (refused && why != co.RefusedChanged) {
					t.Errorf("item %d: refused %v: %q", i, refused, why)
				}
			}
			if (len(out.Items) == 0) != test.refused || out.Stale {
				t.Errorf("begun are %v", out.Items)
			}
		})
	}
}

// TestBeginOfALaterCommitIsFound: items of several commits, of which the second has no answer, are begun
// when the host tries again, whatever the first commit of that meets.
func TestBeginOfALaterCommitIsFound(t *testing.T) {
	t.Parallel()
	const items = 3000
	c, hosts := group(t, 1, func(cfg *jobconfig.Configuration) { cfg.ShardingTotalCount = items })
	h := hosts[0]
	states := make(map[int]co.ItemState)
	for i, it := range h.items {
		states[i] = it.state
	}
	wish := co.Beginning{Fire: tree.Fire{Instant: c.now.UnixMilli() + 1, Source: "schedule"}, Items: states, Now: c.now}
	commits := 0
	h.plan = func(_ int, op string) registrytest.Fault {
		if op == "commit" {
			commits++
		}
		switch {
		case op == "commit" && commits == 2:
			return registrytest.LostAnswer
		case commits >= 2:
			return registrytest.Refused
		}
		return registrytest.NoFault
	}
	var out co.Begun
	if err := h.perform(moves.Begin(&h.Member, wish, &out)); err == nil || commits < 2 {
		t.Fatalf("%d commits, %v; expected a second one whose outcome is unknown", commits, err)
	}
	h.plan = nil
	must(t, h.perform(moves.Begin(&h.Member, wish, &out)))
	if len(out.Items) != items || len(out.Refused) != 0 {
		t.Errorf("%d of %d items are begun, %d are refused", len(out.Items), items, len(out.Refused))
	}
}

// TestManyItemsOfOneHost: what a fire costs grows with the items, however
// many a host has: its list of runs is ranges, and takes no room from them.
func TestManyItemsOfOneHost(t *testing.T) {
	t.Parallel()
	fire := func(t *testing.T, items int) (begin, complete int) {
		c := newCluster(t, inMemory(t))
		c.file.ShardingTotalCount, c.file.Failover = items, true
		h := c.addHost("A", "10.0.0.1")
		must(t, second(h.join(c.file)))
		c.settle()
		h.plan = countCalls(&begin)
		c.now = c.now.Add(time.Second)
		must(t, h.fire(c.now))
		h.plan = countCalls(&complete)
		must(t, h.complete(h.running(), "OK", ""))
		if n := len(h.running()); n > 0 {
			t.Fatalf("%d items run still", n)
		}
		return begin, complete
	}
	t.Run("commits", func(t *testing.T) {
		const few, times = 9_000, 8 // 8 bytes for each of so many would be more than a commit holds
		begin, complete := fire(t, few)
		if b, c := fire(t, times*few); b > times*begin+times || c > times*complete+times {
			t.Errorf("%d items: %d commits begin and %d complete them; %d times as many: %d and %d", few, begin, complete, times, b, c)
		}
	})
}

// TestEveryRunHasAnIDAndItsSource: of all runs of all fires, and what was
// failed over or misfired says so.
func TestEveryRunHasAnIDAndItsSource(t *testing.T) {
	t.Parallel()
	c, h := group(t, 2, func(cfg *jobconfig.Configuration) { cfg.Failover = true })
	ids := make(map[string]bool)
	note := func(source string, items tree.Items) {
		t.Helper()
		for _, i := range items {
			r := c.record(i)
			if !r.Open() || r.Source != source {
				t.Errorf("item %d is recorded as %+v, want a run from %s", i, r, source)
			}
		}
		for _, host := range c.living() {
			for i, it := range host.items {
				if it.running && items.Contains(i) {
					id := tree.RunID("demo", it.fire, i)
					if ids[id] {
						t.Errorf("two runs are %s", id)
					}
					ids[id] = source != "failover" // which is the same run once more
				}
			}
		}
	}
	items := tree.Items{0, 1, 2, 3, 4, 5}
	c.pass(10 * time.Second)
	note("schedule", items)
	c.pass(10 * time.Second) // a misfire of all
	c.complete(all)
	c.settle()
	note("misfire", items)
	c.complete(all)
	must(t, c.operate(moves.TriggerJob(c.layout)))
	c.settle()
	note("trigger", items)
	owed := h[1].running()
	must(t, h[0].complete(h[0].running(), "OK", ""))
	for _, i := range owed { // the run goes on elsewhere under its id
		delete(ids, tree.RunID("demo", h[1].items[i].fire, i))
	}
	h[1].crash()
	c.settle()
	note("failover", owed)
	if len(ids) != 18 {
		t.Errorf("%d runs of three fires of six items", len(ids))
	}
	c.complete(all)
	c.finish()
}
