package coordination_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	co "github.com/wasmjob/wasmjob/coordination"
	"github.com/wasmjob/wasmjob/coordination/inspect"
	"github.com/wasmjob/wasmjob/coordination/jobconfig"
	"github.com/wasmjob/wasmjob/coordination/operate"
	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/registrytest"
	"github.com/wasmjob/wasmjob/coordination/tree"
)

// killing is an operator's wish to end what runs.
func (c *chronicle) killing(item int, grace time.Duration) operate.Killing {
	return operate.Killing{Layout: c.layout, Item: item, By: "op", Grace: grace, Now: c.now}
}

// asked is what a host is asked to end.
func (h *simHost) asked() (items tree.Items, kills tree.Kills) {
	kills = tree.ReadKills(h.read(tree.KillQuery(h.layout, h.Self)))
	for i, it := range h.sorted() {
		if _, ok := kills.Of(i, it.state.RecordZxid); ok && it.running {
			items = append(items, i)
		}
	}
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
			items, kills := h.asked()
			want := running[k]
			if k == 0 && !h.items[want[0]].state.Record.Open() {
				t.Fatal("the item has not begun anew")
			}
			if k == 0 && h.items[want[0]].state.Record.Instant == c.now.Add(2*time.Second).UnixMilli() {
				want = want[1:]
			}
			if !slices.Equal(items, want) || len(kills) != 1 {
				t.Errorf("fault %d: %s is asked to end %v by %+v, want %v", fault, h.name, items, kills, want)
			}
		}
		// Once more, with less grace: that counts, and is no second wish.
		must(t, c.operate(moves.AskKill(c.killing(-1, 0), &out)))
		for _, h := range h {
			if _, kills := h.asked(); len(kills) == 0 || kills[len(kills)-1].Grace != 0 || len(kills) > 2 {
				t.Errorf("%s: %+v", h.name, kills)
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

// TestAskKillJava: what runs on a Java host is listed, and no node asks it to end.
func TestAskKillJava(t *testing.T) {
	t.Parallel()
	c, _ := group(t, 1, nil)
	c.hand(registry.CreateEphemeral(c.layout.Root()+"/instances/10.0.0.9@-@J", nil), registry.CreateEphemeral(c.mark(4, "running"), []byte("10.0.0.9@-@J")))
	var out []operate.KillTarget
	must(t, c.operate(moves.AskKill(c.killing(-1, 0), &out)))
	if len(out) != 1 || !out[0].Java || out[0].Item != 4 || len(operate.KillWatch(c.layout, out)) != 0 {
		t.Errorf("targets %+v", out)
	}
	if n := c.children(c.layout.Sibling() + "/kill"); len(n) != 0 {
		t.Errorf("asked are %v", n)
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
	if says := r.HeldBack("a demo", 0); !strings.HasSuffix(says, fmt.Sprintf(`a host died in its runs (%s); wasmjob release "a demo" --item 0 lets it run again`, dead.Self.ID)) {
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
