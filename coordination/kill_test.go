package coordination_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	co "github.com/wasmjob/wasmjob/coordination"
	"github.com/wasmjob/wasmjob/coordination/admin/inspect"
	"github.com/wasmjob/wasmjob/coordination/admin/operate"
	"github.com/wasmjob/wasmjob/coordination/jobconfig"
	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/registry/registrytest"
	"github.com/wasmjob/wasmjob/coordination/tree"
)

// killing is an operator's wish to end what runs.
func (c *chronicle) killing(item int, grace time.Duration) operate.Killing {
	return operate.Killing{Layout: c.layout, Item: item, By: "op", Grace: grace, Now: c.now}
}

// asked is what a host is asked to end, with how.
func (h *simHost) asked() (items tree.Items, kills map[int]tree.Kill) {
	h.t.Helper()
	running, kills := make(map[int]co.ItemState), make(map[int]tree.Kill)
	for _, i := range h.running() {
		running[i] = h.items[i].state
	}
	var killed map[int]co.ItemState
	if err := h.perform(moves.ReadKills(&h.Member, running, &killed)); err != nil {
		h.t.Fatal(err)
	}
	for i, state := range killed {
		items, kills[i] = append(items, i), state.Record.Kill
	}
	slices.Sort(items)
	return items, kills
}

// TestAskKill: whatever becomes of the commit, every run that the operator saw is
// asked for once, and none that began since.
func TestAskKill(t *testing.T) {
	t.Parallel()
	for _, fault := range []registrytest.Fault{registrytest.NoFault, registrytest.LostAnswer, registrytest.LostRequest} {
		c, h := group(t, 2, nil)
		begin(t, h[0], c.now.Add(time.Second))
		begin(t, h[1], c.now.Add(time.Second))
		running := []tree.Items{h[0].running(), h[1].running()}
		rc := registrytest.Faulty(c.server.Connect(t), func(_ int, op string) registrytest.Fault {
			f := fault
			if op != "commit" {
				return registrytest.NoFault
			}
			if fault != registrytest.NoFault { // meanwhile the item ends, and begins anew
				fault = registrytest.NoFault
				must(t, h[0].complete(running[0][:1], "OK", ""))
				must(t, h[0].begin(tree.Fire{Instant: c.now.Add(2 * time.Second).UnixMilli(), Source: "schedule"}, running[0][:1], false))
			}
			return f
		})
		var out []operate.KillTarget
		must(t, perform(c.ctx, rc, moves.AskKill(c.killing(-1, 5*time.Second), &out)))
		if len(out) != 6 {
			t.Errorf("fault %d: %d runs are meant, want 6", fault, len(out))
		}
		for k, h := range h {
			items, _ := h.asked()
			want := running[k]
			if k == 0 && !h.items[want[0]].state.Record.Open() {
				t.Fatal("the item has not begun anew")
			}
			if k == 0 && h.items[want[0]].state.Record.Instant == c.now.Add(2*time.Second).UnixMilli() {
				want = want[1:]
			}
			if !slices.Equal(items, want) {
				t.Errorf("fault %d: %s is asked to end %v, want %v", fault, h.name, items, want)
			}
			if signal := c.node(c.layout.Sibling() + "/kill"); signal.Version == 0 {
				t.Errorf("fault %d: nothing tells hosts to look", fault)
			}
		}
		// Once more, with less grace: that counts, and is no second wish.
		must(t, c.operate(moves.AskKill(c.killing(-1, 0), &out)))
		for _, h := range h {
			items, kills := h.asked()
			if len(items) != len(h.running()) {
				t.Errorf("%s is asked to end %s, and runs %s", h.name, items, h.running())
			}
			for i, k := range kills {
				if k.Grace != 0 || k.By != "op" {
					t.Errorf("%s: item %d: %+v", h.name, i, k)
				}
			}
		}
		_ = rc.Close()
	}
	nobody := tree.NewLayout("nobody", "none")
	c := newChronicle(t)
	if err := c.operate(moves.AskKill(operate.Killing{Layout: nobody, Item: -1}, new([]operate.KillTarget))); !errors.Is(err, tree.ErrRemoved) {
		t.Errorf("of a job that is not there: %v", err)
	}
	if err := c.operate(moves.Release(nobody, -1, c.now, new(operate.Released))); !errors.Is(err, tree.ErrRemoved) {
		t.Errorf("release of a job that is not there: %v", err)
	}
}

// TestKillOfARemovedJob: a kill that meets the removal of its job says that, and writes nothing.
func TestKillOfARemovedJob(t *testing.T) {
	t.Parallel()
	c, h := group(t, 1, nil)
	begin(t, h[0], c.now.Add(time.Second))
	rc := registrytest.Faulty(c.server.Connect(t), func(_ int, op string) registrytest.Fault {
		if op == "commit" && c.node(c.layout.Config()).Exists {
			must(t, c.operate(moves.Remove(c.layout, false)))
		}
		return registrytest.NoFault
	})
	defer rc.Close()
	err := perform(c.ctx, rc, moves.AskKill(c.killing(-1, 0), new([]operate.KillTarget)))
	if items, _ := h[0].asked(); !errors.Is(err, tree.ErrRemoved) || len(items) != 0 {
		t.Errorf("asked to end %v: %v", items, err)
	}
}

// TestKillMeetsTheEnd: an operator kills a run at the moment at which something else becomes of
// it, and the run's host does not hear of that. What the operator is told is what has become of it;
// what has not ended can be killed, and nothing that was killed runs again.
// It kills the mutant "kill without the record's version" and
// the mutant "killed run taken over".
func TestKillMeetsTheEnd(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		failover bool
		// first is whether the kill comes first; what happens is what else becomes of the run of host a, b is the other.
		happens func(t *testing.T, c *chronicle, a, b *simHost, item int)
		// outcome is how the run has ended in the end, whoever came first.
		outcome map[bool]string
	}{
		"taken over": {true, func(t *testing.T, _ *chronicle, a, b *simHost, _ int) {
			must(t, second(b.recover(a.Self.ID, true, 100)))
		}, map[bool]string{true: "CANCELLED", false: ""}},
		"lost": {false, func(t *testing.T, _ *chronicle, a, b *simHost, _ int) {
			must(t, second(b.recover(a.Self.ID, true, 100)))
		}, map[bool]string{true: "CANCELLED", false: "LOST"}},
		"completed": {true, func(t *testing.T, _ *chronicle, a, _ *simHost, item int) {
			must(t, a.complete(tree.Items{item}, "OK", ""))
		}, map[bool]string{true: "OK", false: "OK"}}, // its work is done
		"handed back": {true, func(t *testing.T, _ *chronicle, a, _ *simHost, item int) {
			handBack(t, a, item)
		}, map[bool]string{true: "CANCELLED", false: "CANCELLED"}},
		"begun over": {false, func(t *testing.T, c *chronicle, a, b *simHost, item int) {
			for range 3 { // the new owner is faster than who records what is lost
				must(t, b.look())
				must(t, second(b.step()))
			}
			must(t, b.look())
			must(t, b.readShare())
			must(t, b.begin(tree.Fire{Instant: c.now.Add(time.Minute).UnixMilli(), Source: "schedule"}, tree.Items{item}, false))
		}, map[bool]string{true: "CANCELLED", false: ""}},
	} {
		for _, killFirst := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, kill first %v", name, killFirst), func(t *testing.T) {
				t.Parallel()
				c, h := group(t, 2, func(cfg *jobconfig.Configuration) { cfg.Failover = tt.failover })
				c.pass(10 * time.Second)
				a, b := h[0], h[1]
				item := a.running()[0]
				if name != "completed" && name != "handed back" {
					a.crash()
					must(t, b.look())
					for !b.View.IsJanitor() {
						must(t, second(b.step()))
						must(t, b.look())
					}
				}
				other := func() { tt.happens(t, c, a, b, item) }
				var targets []operate.KillTarget
				kill := func(rc registry.Center) {
					must(t, perform(c.ctx, rc, moves.AskKill(c.killing(item, 0), &targets)))
				}
				writer := a
				if !a.alive() {
					writer = b
				}
				if killFirst {
					writer.beforeCommit(func() { kill(c.op) })
					other()
				} else {
					rc := registrytest.Faulty(c.server.Connect(t), func(call int, op string) registrytest.Fault {
						if op == "commit" && other != nil {
							do := other
							other = nil
							do()
						}
						return registrytest.NoFault
					})
					kill(rc)
					_ = rc.Close()
				}
				if len(targets) != 1 {
					t.Fatalf("%d runs are meant: %+v", len(targets), targets)
				}
				var endings []operate.Ending
				must(t, c.operate(moves.ReadEndings(c.layout, targets, &endings)))
				e := endings[0]
				if name == "taken over" && !killFirst { // it goes on, and is asked to end
					if items, _ := b.asked(); !slices.Contains(items, item) || !e.Open || e.Now.Host != b.Self.ID || targets[0].Host != b.Self.ID || targets[0].Gone {
						t.Errorf("B is asked to end %v; the operator is told of %+v: %+v", items, targets[0], e)
					}
					must(t, b.complete(tree.Items{item}, tree.OutcomeCancelled, ""))
					must(t, c.operate(moves.ReadEndings(c.layout, targets, &endings)))
					if e = endings[0]; e.Open || e.Outcome != tree.OutcomeCancelled {
						t.Errorf("told is %+v", e)
					}
					return
				}
				if e.Open || e.Outcome != tt.outcome[killFirst] {
					t.Errorf("the operator is told %+v, want it ended with %q; the record is %+v", e, tt.outcome[killFirst], c.record(item))
				}
				if r := c.record(item); r.Kill.Asked() || (killFirst && tt.outcome[true] == "CANCELLED" && r.Deaths > 0) {
					t.Errorf("the record is %+v", r)
				}
				for _, h := range c.hosts {
					if h.alive() && slices.Contains(h.running(), item) && name != "begun over" {
						t.Errorf("%s runs it", h.name)
					}
				}
				if r := c.record(item); name == "handed back" && (r.HandedBack() != 0) == killFirst {
					t.Errorf("kill first %v: the record is %+v", killFirst, r)
				}
				c.settle()
				c.finish()
			})
		}
	}
}

// handBack hands an item back that has not started.
func handBack(t *testing.T, h *simHost, item int) co.Completed {
	t.Helper()
	it := h.items[item]
	back := it.state.Record.HandBack(it.fire)
	var out co.Completed
	must(t, h.perform(moves.Complete(&h.Member, co.Completing{Items: map[int]co.Ended{item: {State: it.state, Outcome: tree.OutcomeCancelled, HandBack: &back}}, Marked: true, Now: h.now}, &out)))
	if _, took := out.Items[item]; !took {
		t.Fatalf("%+v", out)
	}
	it.running, it.state = false, out.Items[item]
	return out
}

// TestKilledRunIsHandedBack: a host that does not know of the kill hands the run back. It is told
// that it has ended. It kills the mutant "killed run handed back".
func TestKilledRunIsHandedBack(t *testing.T) {
	t.Parallel()
	c, h := group(t, 1, failoverOn)
	c.pass(10 * time.Second)
	must(t, c.operate(moves.AskKill(c.killing(0, 0), new([]operate.KillTarget))))
	if out := handBack(t, h[0], 0); !slices.Equal(out.Killed, tree.Items{0}) || out.Items[0].Record.Outcome != tree.OutcomeCancelled || !strings.HasSuffix(out.Items[0].Record.Reason, "; its host handed it back") {
		t.Errorf("%+v", out)
	}
	if out := handBack(t, h[0], 1); len(out.Killed) != 0 {
		t.Errorf("%+v", out)
	}
}

// TestKillKeepsOffsetsAndFence: what the guest of a killed run stages in its grace is saved, and
// its fence stays.
func TestKillKeepsOffsetsAndFence(t *testing.T) {
	t.Parallel()
	c, h := group(t, 1, failoverOn)
	c.pass(10 * time.Second)
	a, it := h[0], h[0].items[0]
	fence := it.state.RecordZxid
	for round := range 2 {
		var targets []operate.KillTarget
		must(t, c.operate(moves.AskKill(c.killing(0, time.Duration(round)*time.Second), &targets)))
		if len(targets) != 1 || targets[0].Fence != fence {
			t.Fatalf("round %d: %+v, want fence %d", round, targets, fence)
		}
		var shards inspect.Shards
		must(t, c.operate(moves.ReadShards(c.layout, &shards)))
		if shards.Items[0].Fence != fence {
			t.Errorf("round %d: shown is fence %d, want %d", round, shards.Items[0].Fence, fence)
		}
		var kept []operate.Kept
		must(t, c.operate(moves.ReadKept(c.layout, 0, &kept)))
		if kept[0].Fence != fence {
			t.Errorf("round %d: beside what it keeps is fence %d, want %d", round, kept[0].Fence, fence)
		}
		var saved co.Saved
		must(t, a.perform(moves.SaveOffsets(a.layout, map[int]co.Ended{0: {State: it.state, Offset: fmt.Append(nil, round), HasOffset: true}}, &saved)))
		state, is := saved.Items[0]
		if !is || len(saved.Lost) > 0 || string(c.node(c.layout.Sibling()+"/offset/0").Data) != fmt.Sprint(round) {
			t.Fatalf("round %d: %+v", round, saved)
		}
		it.state = state
	}
	must(t, a.complete(tree.Items{0}, tree.OutcomeCancelled, "x"))
	if r := c.record(0); r.After != fence || r.Kill.Asked() || string(c.node(c.layout.Sibling()+"/offset/0").Data) != "x" {
		t.Errorf("the record is %+v, want fence %d", r, fence)
	}
}

// TestKillOfAnUnknownBegin: a begin or a takeover takes effect without an answer, and an operator
// kills what it began. It is not run.
func TestKillOfAnUnknownBegin(t *testing.T) {
	t.Parallel()
	t.Run("begin", func(t *testing.T) {
		t.Parallel()
		c, h := group(t, 1, failoverOn)
		a := h[0]
		answers := 0
		a.plan = func(_ int, op string) registrytest.Fault {
			switch {
			case op == "commit" && answers == 0:
				answers++
				return registrytest.LostAnswer
			case answers == 1: // the look after it
				answers++
				must(t, c.operate(moves.AskKill(c.killing(0, 0), new([]operate.KillTarget))))
			}
			return registrytest.NoFault
		}
		out := begin(t, a, c.now.Add(time.Second))
		if _, begun := out.Items[0]; begun || len(out.Items) != 5 {
			t.Errorf("begun are %v", out.Items)
		}
		if r := c.record(0); r.Open() || r.Outcome != tree.OutcomeCancelled || r.HandedBack() != 0 || !strings.HasSuffix(r.Reason, "; it had not started") {
			t.Errorf("%+v", r)
		}
	})
	t.Run("takeover", func(t *testing.T) {
		t.Parallel()
		c, h := group(t, 2, failoverOn)
		c.pass(10 * time.Second)
		a, b := h[0], h[1]
		item := a.running()[0]
		a.crash()
		must(t, b.look())
		lost := false
		b.plan = func(_ int, op string) registrytest.Fault {
			switch {
			case op == "commit" && !lost:
				lost = true
				return registrytest.LostAnswer
			case lost:
				b.plan = nil
				must(t, c.operate(moves.AskKill(c.killing(item, 0), new([]operate.KillTarget))))
			}
			return registrytest.NoFault
		}
		must(t, second(b.recover(a.Self.ID, true, 100)))
		if r := c.record(item); slices.Contains(b.running(), item) || r.Outcome != tree.OutcomeCancelled {
			t.Errorf("B runs %s; the record is %+v", b.running(), r)
		}
	})
}

// TestKillOnAnOlderHost: a host of an earlier version takes a record that was set for one of a run that is
// not its own any more. Its runs are listed, and not touched.
func TestKillOnAnOlderHost(t *testing.T) {
	t.Parallel()
	c, h := group(t, 2, nil)
	c.pass(10 * time.Second)
	detail := c.node(c.layout.Detail(h[0].Self.ID))
	older := tree.ParseDetail(detail.Data)
	older.RecordedKills = false
	c.hand(registry.Set(detail.Path, older.Data(), detail.Version))
	var out []operate.KillTarget
	must(t, c.operate(moves.AskKill(c.killing(-1, 0), &out)))
	for _, target := range out {
		if mine := target.Host == h[0].Self.ID; target.Older != mine || c.record(target.Item).Kill.Asked() == mine {
			t.Errorf("%+v: %+v", target, c.record(target.Item))
		}
	}
	if watched := operate.KillWatch(c.layout, out); len(out) != 6 || len(watched) != 1 {
		t.Errorf("%d are meant, watched is %v", len(out), watched)
	}
}

// TestAskKillJava: what runs on a Java host is listed, and nothing asks it to end.
func TestAskKillJava(t *testing.T) {
	t.Parallel()
	c, _ := group(t, 1, nil)
	c.hand(registry.CreateEphemeral(c.layout.Root()+"/instances/10.0.0.9@-@J", nil), registry.CreateEphemeral(c.mark(4, "running"), []byte("10.0.0.9@-@J")))
	var out []operate.KillTarget
	must(t, c.operate(moves.AskKill(c.killing(-1, 0), &out)))
	if len(out) != 1 || !out[0].Java || out[0].Item != 4 || len(operate.KillWatch(c.layout, out)) != 0 {
		t.Errorf("targets %+v", out)
	}
	if c.record(4).Kill.Asked() || c.node(c.layout.Sibling()+"/kill").Exists {
		t.Error("it is asked")
	}
	var endings []operate.Ending
	must(t, c.operate(moves.ReadEndings(c.layout, out, &endings)))
	if !endings[0].Open {
		t.Errorf("it has ended as %+v", endings[0])
	}
}

// TestReleaseLostAnswer: a release of which the answer is lost, and which did not
// take effect.
func TestReleaseLostAnswer(t *testing.T) {
	t.Parallel()
	for _, fault := range []registrytest.Fault{registrytest.LostAnswer, registrytest.LostRequest} {
		c, h := group(t, 3, func(cfg *jobconfig.Configuration) { cfg.Failover, cfg.ShardingTotalCount = true, 1 })
		c.pass(time.Second)
		for range 2 {
			for _, x := range h {
				if x.alive() && len(x.running()) > 0 {
					x.crash()
					break
				}
			}
			c.settle()
			c.now = c.now.Add(2 * time.Second)
			c.settle()
		}
		var jobs []inspect.JobBrief
		if must(t, c.operate(moves.ReadJobs(c.layout.Namespace, &jobs))); jobs[0].Held != 1 {
			t.Errorf("the job in a line: %+v, want one item held", jobs[0])
		}
		if r := c.record(0); r.Held == 0 {
			t.Fatalf("not held: %+v", r)
		}
		once := fault
		rc := registrytest.Faulty(c.server.Connect(t), func(_ int, op string) registrytest.Fault {
			f := registrytest.NoFault
			if op == "commit" {
				f, once = once, registrytest.NoFault
			}
			return f
		})
		var out operate.Released
		must(t, perform(c.ctx, rc, moves.Release(c.layout, 0, c.now, &out)))
		_ = rc.Close()
		if r := c.record(0); r.Held != 0 || r.Deaths != 0 || r.Died != "" || r.Instant != c.now.UnixMilli() || !slices.Equal(out.Items, tree.Items{0}) {
			t.Errorf("fault %d: %+v, released %v", fault, r, out.Items)
		}
	}
}

// TestHoldLostAnswer: a begin finds an open run of a dead host that is one too
// many, and gets no answer to the commit that holds the item back.
func TestHoldLostAnswer(t *testing.T) {
	t.Parallel()
	c, h := group(t, 2, func(cfg *jobconfig.Configuration) {
		cfg.ShardingTotalCount, cfg.Props = 1, map[string]string{jobconfig.PropMaxHostDeaths: "1"}
	})
	c.pass(time.Second)
	dead, left := h[0], h[1]
	if len(dead.running()) == 0 {
		dead, left = left, dead
	}
	dead.crash()
	must(t, left.look())
	// It is given the item, and begins it before anybody has looked after the dead.
	must(t, second(left.step())) // election
	must(t, left.look())
	must(t, second(left.step())) // division
	must(t, left.look())
	must(t, left.readShare())
	left.nextCommit(registrytest.LostAnswer)
	out := begin(t, left, c.now.Add(time.Second))
	r := c.record(0)
	if r.Held == 0 || r.Outcome != tree.OutcomeHeld || out.Refused[0] != co.RefusedHeld || !slices.Equal(out.Holds, tree.Items{0}) {
		t.Errorf("%+v\nrefused %v, holds %v", r, out.Refused, out.Holds)
	}
	if says := r.HeldBack("a demo", 0).String(); !strings.HasSuffix(says, fmt.Sprintf(`a host died in its runs (%s); wasmjob job release "a demo" --item 0 lets it run again`, dead.Self.ID)) {
		t.Errorf("says %q", says)
	}
}

// TestHoldOnlyTheDead: a begin finds an open run whose host left in good order, or
// lives and does not have it in its list: neither has died of it.
func TestHoldOnlyTheDead(t *testing.T) {
	t.Parallel()
	limit := func(cfg *jobconfig.Configuration) {
		cfg.ShardingTotalCount, cfg.Props = 1, map[string]string{jobconfig.PropMaxHostDeaths: "1"}
	}
	check := func(what string, c *chronicle, h *simHost, out co.Begun) {
		t.Helper()
		if r := c.record(0); len(out.Items) != 1 || r.Owner != h.Self.ID || r.Held != 0 || r.Deaths != 0 {
			t.Errorf("%s: refused %v, %+v", what, out.Refused, r)
		}
	}
	c, h := group(t, 2, limit)
	c.pass(time.Second)
	left, next := h[0], h[1]
	if len(left.running()) == 0 {
		left, next = next, left
	}
	must(t, left.leave("left", left.running()))
	must(t, left.rc.Close())
	for range 2 { // election, division
		must(t, second(next.step()))
	}
	must(t, next.look())
	must(t, next.readShare())
	check("it left", c, next, begin(t, next, c.now.Add(time.Second)))

	c, h = group(t, 2, limit)
	owner, other := h[0], h[1]
	if len(owner.owned()) == 0 {
		owner, other = other, owner
	}
	record := c.record(0)
	c.hand(registry.Set(c.layout.Sibling()+"/sharding/0", fmt.Appendf(nil, `{"owner":%q,"instant":%d,"begun":%d}`, other.Self.ID, record.Instant, record.Instant), registry.AnyVersion))
	must(t, owner.readShare())
	check("it lives", c, owner, begin(t, owner, c.now.Add(time.Second)))
}
