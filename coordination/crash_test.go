package coordination_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/coordination/admin/cleanup"
	"github.com/wasmjob/wasmjob/coordination/admin/operate"
	"github.com/wasmjob/wasmjob/coordination/jobconfig"
	"github.com/wasmjob/wasmjob/coordination/registry/registrytest"
	"github.com/wasmjob/wasmjob/coordination/tree"
)

// chronicle notes what hosts say, so that a failure can be read, and counts
// who took over what.
type chronicle struct {
	*cluster
	log       strings.Builder
	intruding bool // another host acts within an exchange
	edited    bool // by a hand: what is assigned proves nothing
}

func newChronicle(t *testing.T) *chronicle {
	c := &chronicle{cluster: newCluster(t, inMemory(t))}
	c.say = func(format string, args ...any) {
		fmt.Fprintf(&c.log, "%s "+format+"\n", append([]any{c.now.Format("15:04:05")}, args...)...)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log("what happened:\n" + c.log.String())
		}
	})
	return c
}

// try notes an error of a host, which is no failure here: a fault was made.
func (c *chronicle) try(h *simHost, what string, err error) {
	if err != nil {
		c.say("%s: %s: %v", h.name, what, err)
	}
	if !c.edited {
		c.invariants()
	}
}

func (c *chronicle) living() []*simHost {
	var list []*simHost
	for _, h := range c.hosts {
		if h.alive() {
			list = append(list, h)
		}
	}
	return list
}

// enter joins a host, unless it is dead.
func (c *chronicle) enter(h *simHost) {
	if h.rc != nil && h.lost() || h.joined {
		return
	}
	_, err := h.join(c.file)
	if h.rc != nil && h.lost() {
		h.why = "lost"
	}
	c.try(h, "join", err)
	if err == nil {
		c.say("%s: joins as %s", h.name, h.Self.ID)
	}
}

// pass lets time go by, and fires the scheduled instant on all hosts.
func (c *chronicle) pass(d time.Duration) {
	c.now = c.now.Add(d)
	for _, h := range c.living() {
		if h.snapshot != nil {
			c.try(h, "fire", h.fire(c.now))
		}
	}
}

// complete ends some of what runs.
func (c *chronicle) complete(some func(item int) bool) {
	for _, h := range c.living() {
		if h.snapshot == nil {
			continue
		}
		items := slices.DeleteFunc(h.running(), func(i int) bool { return !some(i) })
		if len(items) > 0 {
			c.try(h, "complete", h.complete(items, "OK", fmt.Sprintf("by %s at %s", h.name, c.now.Format("15:04:05"))))
		}
	}
}

func all(int) bool { return true }

// finish lets the survivors come to rest, with no more faults, and checks what
// must be true then.
func (c *chronicle) finish() {
	c.t.Helper()
	for _, h := range c.hosts {
		h.plan = nil
	}
	for range 6 {
		for _, h := range c.hosts {
			if h.rc != nil && !h.lost() && !h.joined && h.why == "" {
				c.enter(h) // its join was refused
			}
		}
		c.settle()
		c.complete(all)
		c.now = c.now.Add(2 * time.Second)
	}
	if len(c.living()) == 0 {
		h := c.addHost("Z", "10.0.0.26")
		c.enter(h)
	}
	c.settle()
	c.release()
	c.pass(time.Minute)
	c.settle()
	c.complete(all)
	for range 3 {
		c.now = c.now.Add(2 * time.Second)
		c.settle()
		c.complete(all)
	}
	for _, h := range c.living() {
		if err := h.look(); err != nil {
			c.t.Fatalf("%s: %v", h.name, err)
		}
		var swept cleanup.Swept
		if err := h.perform(moves.Sweep(&h.Member, c.now, &swept)); err != nil {
			c.t.Errorf("%s: sweep: %v", h.name, err)
		}
		// Nothing that hosts of ours do leaves a mark that only Sweep finds.
		for _, path := range swept.Nodes {
			if !strings.Contains(path, "/trigger/") {
				c.t.Errorf("%s had to sweep %s", h.name, path)
			}
		}
	}
	c.settle()
	c.check()
	// No session was lost without its host knowing.
	if strings.Contains(c.log.String(), "no longer its own") {
		c.t.Error("a host that lived was told that its items are not its own")
	}
}

// release lets run again what is held back: of that, hosts died in a row.
func (c *chronicle) release() {
	c.t.Helper()
	for i := range tree.MaxItems {
		n := c.node(fmt.Sprintf("%s/sharding/%d", c.layout.Sibling(), i))
		if !n.Exists {
			break
		}
		var r tree.Record
		decode(c.t, n.Data, &r)
		if r.Held != 0 && (r.Outcome != tree.OutcomeHeld || r.Deaths < 2 || len(strings.Fields(r.Died)) < 2 || r.Open()) {
			c.t.Errorf("item %d is held back with %+v", i, r)
		}
	}
	var out operate.Released
	if err := c.operate(moves.Release(c.layout, -1, c.now, &out)); err != nil {
		c.t.Errorf("release: %v", err)
	}
	if len(out.Items) > 0 {
		c.say("operator: releases %s", out.Items)
	}
}

// check is what must be true when all is quiet.
func (c *chronicle) check() {
	t := c.t
	t.Helper()
	root, sibling := c.layout.Root(), c.layout.Sibling()
	cfg, _, err := jobconfig.Parse(c.node(root + "/config").Data)
	if err != nil {
		t.Fatalf("configuration: %v", err)
	}
	alive := make(map[string]bool)
	for _, h := range c.living() {
		alive[h.Self.ID] = true
		if !h.View.DivisionStale().IsZero() {
			t.Errorf("%s sees a stale division: %s", h.name, h.View.DivisionStale())
		}
	}
	var assigned tree.Items
	for id, items := range c.assignments() {
		if !alive[id] {
			t.Errorf("%s is gone and has an assignment", id)
		}
		assigned = append(assigned, items...)
	}
	slices.Sort(assigned)
	var want tree.Items
	for i := range cfg.ShardingTotalCount {
		want = append(want, i)
	}
	if !slices.Equal(assigned, want) {
		t.Errorf("assigned are %s, want %s", assigned, want)
	}
	if flags := c.children(root + "/leader/sharding"); len(flags) > 0 {
		t.Errorf("flags %v stand", flags)
	}
	if got := len(strings.Fields(string(c.node(sibling + "/members").Data))); got != len(alive) {
		t.Errorf("members are %q, alive %v", c.node(sibling+"/members").Data, alive)
	}
	for _, id := range c.children(sibling + "/runs") {
		if data := c.node(sibling + "/runs/" + id).Data; !alive[id] || len(data) > 0 {
			t.Errorf("runs of %s (alive %v): %q", id, alive[id], data)
		}
	}
	if items := c.children(root + "/sharding"); len(items) != cfg.ShardingTotalCount {
		t.Errorf("items %v, want %d", items, cfg.ShardingTotalCount)
	}
	for i := range cfg.ShardingTotalCount {
		path := fmt.Sprintf("%s/sharding/%d", root, i)
		for _, mark := range c.children(path) {
			if mark != "instance" && mark != "misfire" {
				t.Errorf("item %d: mark %s is left, by %s", i, mark, c.node(path+"/"+mark).Data)
			}
		}
		owner := string(c.node(path + "/instance").Data)
		if !alive[owner] {
			t.Errorf("item %d belongs to %s, who is gone", i, owner)
		}
		var r tree.Record
		decode(t, c.node(fmt.Sprintf("%s/sharding/%d", sibling, i)).Data, &r)
		// The last fire reached every item.
		if r.Open() || r.Outcome != "OK" || r.Begun < c.now.Add(-30*time.Second).UnixMilli() {
			t.Errorf("item %d ends as %+v", i, r)
		}
	}
}

// faults are what can happen to one call of a host.
var faults = map[string]registrytest.Fault{
	"dies before": registrytest.ExpireBefore,
	"dies after":  registrytest.ExpireAfter,
	"lost answer": registrytest.LostAnswer,
	"lost wish":   registrytest.LostRequest,
	"refused":     registrytest.Refused,
	"in doubt":    registrytest.InDoubt,
}

// story is a life with joins, fires, completions, resharding and a recovery.
func (c *chronicle) story(victim string, call int, fault registrytest.Fault) (reached bool) {
	a, b, d := c.addHost("A", "10.0.0.1"), c.addHost("B", "10.0.0.2"), c.addHost("D", "10.0.0.4")
	left := call
	c.host(victim).plan = func(_ int, _ string) registrytest.Fault {
		if left--; left == 0 {
			reached = true
			return fault
		}
		return registrytest.NoFault
	}
	even := func(i int) bool { return i%2 == 0 }
	c.enter(a)
	c.enter(b)
	c.settle()
	c.pass(10 * time.Second)
	c.complete(even)
	c.settle()
	c.enter(d) // scale out while the others run
	c.settle()
	c.pass(10 * time.Second)
	c.complete(all)
	c.settle()
	c.pass(10 * time.Second)
	if d.alive() {
		d.crash() // with what it runs
	}
	c.settle()
	c.now = c.now.Add(2 * time.Second)
	c.settle()
	c.complete(even)
	if err := c.edit(func(cfg *jobconfig.Configuration) { cfg.ShardingTotalCount = 3 }); err != nil {
		c.say("operator: %v", err)
	}
	c.settle()
	c.complete(all)
	c.settle()
	if err := c.operate(moves.TriggerJob(c.layout)); err != nil {
		c.say("operator: %v", err)
	}
	c.settle()
	c.complete(all)
	c.settle()
	if b.alive() {
		c.try(b, "drain", b.perform(moves.Drain(&b.Member, tree.HostDetail{})))
		b.leaving = true
	}
	c.settle()
	c.complete(all)
	return reached
}

// TestCrashAtEveryStep makes one call of one host go wrong, for every call
// that it makes in the story and for every way to go wrong.
func TestCrashAtEveryStep(t *testing.T) {
	t.Parallel()
	stride := crashStep
	if testing.Short() {
		stride = 5
	}
	for _, setting := range []struct{ failover, monitor bool }{{true, true}, {false, true}, {false, false}} {
		for _, victim := range []string{"A", "B"} {
			for name, fault := range faults {
				if !setting.failover && fault != registrytest.ExpireAfter && fault != registrytest.LostAnswer {
					continue // the same paths as with failover
				}
				t.Run(fmt.Sprintf("failover %v monitor %v/%s %s", setting.failover, setting.monitor, victim, name), func(t *testing.T) {
					t.Parallel()
					for call := 1; ; call += stride {
						reached := false
						ok := t.Run(fmt.Sprint(call), func(t *testing.T) {
							c := newChronicle(t)
							c.file.ShardingTotalCount, c.file.Failover, c.file.MonitorExecution = 6, setting.failover, setting.monitor
							reached = c.story(victim, call, fault)
							c.finish()
						})
						if !ok || !reached {
							if call < 20 && ok {
								t.Fatalf("the story made %d calls only", call)
							}
							return
						}
					}
				})
			}
		}
	}
}

// intrude lets another host act between two calls of one exchange of h.
func (c *chronicle) intrude(h *simHost, r *rand.Rand) {
	other := c.hosts[r.IntN(len(c.hosts))]
	if c.intruding || other == h || !other.alive() || r.IntN(4) > 0 {
		return
	}
	c.intruding = true
	defer func() { c.intruding = false }()
	if other.snapshot != nil && r.IntN(3) == 0 {
		if items := other.running(); len(items) > 0 {
			items = items[:1+r.IntN(len(items))]
			c.try(other, "complete", other.complete(items, "OK", ""))
			return
		}
		c.try(other, "fire", other.fire(c.now))
		return
	}
	_, err := other.step()
	c.try(other, "step", err)
}

var lives = flag.Int("lives", livesDefault, "how many seeds TestRandomLives runs")

// TestRandomLives lets hosts come, go, crash and lose answers in random order.
func TestRandomLives(t *testing.T) {
	t.Parallel()
	seeds := *lives
	if testing.Short() {
		seeds = min(seeds, 40)
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			c := newChronicle(t)
			r := rand.New(rand.NewPCG(uint64(seed), 7))
			c.file.ShardingTotalCount, c.file.Failover, c.file.MonitorExecution = 1+r.IntN(9), r.IntN(2) == 0, r.IntN(4) > 0
			c.file.StaticSharding = r.IntN(4) == 0
			for n := range 4 {
				h := c.addHost(string(rune('A'+n)), fmt.Sprintf("10.0.0.%d", 1+n/2*2)) // two on each server
				h.plan = func(int, string) registrytest.Fault {
					c.intrude(h, r)
					if r.IntN(60) > 0 {
						return registrytest.NoFault
					}
					return []registrytest.Fault{registrytest.ExpireBefore, registrytest.ExpireAfter, registrytest.LostAnswer, registrytest.LostAnswer,
						registrytest.LostRequest, registrytest.Refused, registrytest.InDoubt}[r.IntN(7)]
				}
			}
			some := func(int) bool { return r.IntN(2) == 0 }
			for range 60 {
				h := c.hosts[r.IntN(len(c.hosts))]
				c.now = c.now.Add(time.Duration(r.IntN(2000)) * time.Millisecond)
				switch r.IntN(12) {
				case 0, 1:
					if !h.joined && h.rc != nil && h.lost() {
						h.why = "crashed" // it is started again
						_, err := h.join(c.file)
						c.try(h, "join", err)
					} else {
						c.enter(h)
					}
				case 2:
					if h.alive() && r.IntN(3) == 0 {
						c.say("%s: crashes", h.name)
						h.crash()
					}
				case 3:
					if h.alive() && r.IntN(3) == 0 && h.snapshot != nil {
						c.say("operator: stops %s", h.name)
						_ = c.operate(moves.StopInstance(c.layout, h.Self.ID))
					}
				case 4:
					if h.alive() && h.snapshot != nil && r.IntN(3) == 0 {
						c.say("%s: leaves with %s unfinished", h.name, orNone(h.running()))
						c.try(h, "leave", h.leave("left", h.running()))
					}
				case 5:
					_ = c.edit(func(cfg *jobconfig.Configuration) { cfg.ShardingTotalCount = 1 + r.IntN(9) })
				case 6:
					_ = c.operate(moves.SetServers(c.layout, r.IntN(3) > 0, h.ip))
				case 7:
					_ = c.operate(moves.TriggerJob(c.layout))
				case 8:
					c.pass(time.Duration(1+r.IntN(10)) * time.Second)
				case 9:
					c.complete(some)
				case 10:
					c.settle()
				default:
					if h.alive() {
						_, err := h.step()
						c.try(h, "step", err)
					}
				}
			}
			if err := c.operate(moves.SetServers(c.layout, true)); err != nil {
				for _, h := range c.hosts { // nobody has ever joined
					h.plan = nil
				}
				c.enter(c.addHost("Y", "10.0.0.25"))
			}
			c.finish()
		})
	}
}
