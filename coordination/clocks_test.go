package coordination_test

import (
	"encoding/json"
	"strconv"
	"testing"
	"time"

	co "github.com/wasmjob/wasmjob/coordination"
	"github.com/wasmjob/wasmjob/coordination/jobconfig"
	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/registrytest"
)

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
		try := func(fire co.Fire, ahead time.Time) co.Begun {
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

		out := try(co.Fire{Instant: limit.UnixMilli() + 1, Source: "schedule"}, limit)
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
		fire := co.Fire{Instant: limit.UnixMilli(), Source: "schedule"}
		h.nextCommit(fault)
		out = try(fire, c.now.Add(2*time.Hour))
		if len(out.Items) != 2 || out.Refused[0] != co.RefusedPast {
			t.Errorf("fault %d: begun %v, refused %v; want 1, which is a day ahead, and 2", fault, out.Items, out.Refused)
		}
		for i, want := range map[int]time.Time{0: c.now.Add(time.Hour), 1: limit, 2: limit} {
			var states map[int]co.ItemState
			must(t, h.perform(moves.ReadItems(h.layout, co.Items{i}, &states)))
			if got := states[i].Record.Instant; got != want.UnixMilli() {
				t.Errorf("fault %d: the record of item %d names %s, want %s", fault, i, time.UnixMilli(got).UTC(), want.UTC())
			}
		}
		must(t, h.complete(h.running(), "OK", ""))
		out = try(co.Fire{Instant: limit.UnixMilli() + 1, Trigger: 1 << 40, Source: "trigger"}, c.now.Add(2*time.Hour))
		if len(out.Items) != 3 {
			t.Errorf("a trigger: begun %v, refused %v", out.Items, out.Refused)
		}
	}
}

// TestReshardDatesItemsByTheRegistrysClock: the clock of the leader is remembered
// nowhere.
func TestReshardDatesItemsByTheRegistrysClock(t *testing.T) {
	t.Parallel()
	for _, wrong := range []time.Duration{-24 * time.Hour, 24 * time.Hour} {
		c, hosts := group(t, 1, nil)
		h := hosts[0]
		mine := c.file
		mine.ShardingTotalCount = 9
		must(t, h.perform(moves.ApplyDefinition(c.layout, mine, h.former, nil, nil)))
		h.View.Clock = c.now.Add(time.Minute)
		must(t, h.perform(moves.Reshard(&h.Member, c.now.Add(wrong), nil)))
		var states map[int]co.ItemState
		must(t, h.perform(moves.ReadItems(h.layout, co.Items{7}, &states)))
		if got := time.UnixMilli(states[7].Record.Instant); !got.Equal(h.View.Clock.Truncate(time.Millisecond)) {
			t.Errorf("a leader whose clock is %s ahead: the new item begins with %s, want the registry's %s", wrong, got.UTC(), h.View.Clock.UTC())
		}
	}
}
