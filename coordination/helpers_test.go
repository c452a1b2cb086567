package coordination_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	co "github.com/wasmjob/wasmjob/coordination"
	"github.com/wasmjob/wasmjob/coordination/admin/cleanup"
	"github.com/wasmjob/wasmjob/coordination/admin/inspect"
	"github.com/wasmjob/wasmjob/coordination/admin/operate"
	"github.com/wasmjob/wasmjob/coordination/jobconfig"
	"github.com/wasmjob/wasmjob/coordination/recipe/guarantee"
	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/registry/registrytest"
	"github.com/wasmjob/wasmjob/coordination/tree"
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

func (c *chronicle) division() tree.Division {
	c.t.Helper()
	var d tree.Division
	decode(c.t, c.node(c.layout.Sibling()+"/assignment").Data, &d)
	return d
}

func (c *chronicle) record(i int) tree.Record {
	c.t.Helper()
	var r tree.Record
	decode(c.t, c.node(fmt.Sprintf("%s/sharding/%d", c.layout.Sibling(), i)).Data, &r)
	return r
}

func (c *chronicle) mark(i int, name string) string {
	return fmt.Sprintf("%s/sharding/%d/%s", c.layout.Root(), i, name)
}

func second[T any](_ T, err error) error { return err }

// begin begins all items that the host owns, and takes note of it.
func begin(t *testing.T, h *simHost, at time.Time) co.Begun {
	t.Helper()
	states := make(map[int]co.ItemState)
	for i, it := range h.items {
		states[i] = it.state
	}
	var out co.Begun
	fire := tree.Fire{Instant: at.UnixMilli(), Source: "schedule"}
	must(t, h.perform(moves.Begin(&h.Member, co.Beginning{Fire: fire, Items: states, Now: at}, &out)))
	for i, state := range out.Items {
		h.items[i].running, h.items[i].state, h.items[i].fire = true, state, fire
	}
	return out
}

// reader counts what is asked of a registry.
type reader struct {
	registry.Center
	queries, most int // most: in one read
}

func (c *reader) Read(ctx context.Context, queries ...registry.Query) ([]registry.Node, error) {
	c.queries += len(queries)
	c.most = max(c.most, len(queries))
	return c.Center.Read(ctx, queries...)
}

// counted performs a step of the host and counts what it read.
func (h *simHost) counted(m move) *reader {
	h.t.Helper()
	c := &reader{Center: h.rc}
	if err := perform(h.ctx, c, m); err != nil {
		h.t.Fatal(err)
	}
	return c
}

// everything is a list of runs that was edited outside wasmjob: a few bytes.
const everything = `{"runs":[{"instant":1772359210000,"source":"schedule","items":"0-999999","marked":true}]}`

func failoverOn(cfg *jobconfig.Configuration) { cfg.Failover = true }

// edited is a group in the middle of a fire whose nodes the test will edit.
func edited(t *testing.T, n int) (*chronicle, []*simHost) {
	c, h := group(t, n, failoverOn)
	c.edited = true
	c.pass(10 * time.Second)
	return c, h
}

// beginAt begins one item on a host that knows its state and a configuration.
// Whatever share it has is current: another guard must do.
func beginAt(t *testing.T, h *simHost, item int, state co.ItemState, config jobconfig.Configuration, at time.Time) co.Begun {
	t.Helper()
	config.Failover = false // or the marks of a takeover would be looked at as well
	m := h.Member
	m.View.Config = config
	sibling := h.layout.Sibling()
	m.Share = co.Share{Guard: co.ShareGuard{Assignment: h.node(sibling + "/assignment/" + h.Self.ID).Version, Epoch: h.node(sibling + "/epoch").Version}}
	var out co.Begun
	must(t, h.perform(moves.Begin(&m, co.Beginning{Fire: tree.Fire{Instant: at.UnixMilli(), Source: "schedule"},
		Items: map[int]co.ItemState{item: state}, Now: at}, &out)))
	h.Runs, h.RunsVersion = m.Runs, m.RunsVersion
	return out
}

// move is a protocol step that a test hands to a host of its own, which takes it with
// its own session.
type move func(ctx context.Context, r registry.Center) error

// perform takes a step.
func perform(ctx context.Context, r registry.Center, m move) error { return m(ctx, r) }

// moves makes moves of the package's steps, of a member's and of an operator's. What a
// step returns goes to out.
var moves stepper

type stepper struct{}

// with makes a move of a member's step.
func with(m *co.Member, step func(context.Context) error) move {
	return func(ctx context.Context, r registry.Center) error {
		m.Registry = r
		return step(ctx)
	}
}

// into makes a move of a step with a result.
func into[T any](out *T, step func(ctx context.Context, r registry.Center) (T, error)) move {
	return func(ctx context.Context, r registry.Center) (err error) {
		*out, err = step(ctx, r)
		return err
	}
}

func (stepper) Join(m *co.Member, j co.Joining) move {
	return with(m, func(ctx context.Context) error { return m.Join(ctx, j) })
}

func (stepper) ApplyDefinition(l tree.Layout, mine jobconfig.Configuration, former string, accept func(jobconfig.Configuration) error, out *co.Applied) move {
	return func(ctx context.Context, r registry.Center) error {
		applied, err := co.ApplyDefinition(ctx, r, l, mine, former, accept, said)
		if out != nil {
			*out = applied
		}
		return err
	}
}

func (stepper) Drain(m *co.Member, d tree.HostDetail) move {
	return with(m, func(ctx context.Context) error { return m.Drain(ctx, d) })
}

func (stepper) Leave(m *co.Member) move {
	return with(m, func(ctx context.Context) error { return m.Leave(ctx) })
}

func (stepper) NoteRemoval(m *co.Member, mine string, now time.Time) move {
	return with(m, func(ctx context.Context) error { return m.NoteRemoval(ctx, mine, now) })
}

func (stepper) NoteStop(m *co.Member, now time.Time) move {
	return with(m, func(ctx context.Context) error { return m.NoteStop(ctx, now) })
}

func (stepper) Elect(m *co.Member) move {
	return with(m, m.Elect)
}

func (stepper) Resign(m *co.Member) move {
	return with(m, func(ctx context.Context) error { return m.Resign(ctx) })
}

func (stepper) AskForSharding(m *co.Member) move {
	return with(m, func(ctx context.Context) error { return m.AskForSharding(ctx) })
}

func (stepper) Reshard(m *co.Member, now time.Time, out *co.Sharded) move {
	return with(m, func(ctx context.Context) error {
		sharded, err := m.Reshard(ctx, now)
		if out != nil {
			*out = sharded
		}
		return err
	})
}

// knownOf is what a host knows of items.
func knownOf(states map[int]co.ItemState) co.Known {
	return func(item int) (co.ItemState, bool) {
		state, known := states[item]
		return state, known
	}
}

func (stepper) ReadShare(m *co.Member, known map[int]co.ItemState) move {
	return with(m, func(ctx context.Context) error {
		_, _, err := m.ReadShare(ctx, knownOf(known))
		return err
	})
}

func (stepper) ReadItems(l tree.Layout, items tree.Items, out *map[int]co.ItemState) move {
	return into(out, func(ctx context.Context, r registry.Center) (map[int]co.ItemState, error) {
		return co.ReadItems(ctx, r, l, items)
	})
}

func (stepper) Begin(m *co.Member, b co.Beginning, out *co.Begun) move {
	return with(m, func(ctx context.Context) (err error) { *out, err = m.Begin(ctx, b); return err })
}

func (stepper) Quiet(m *co.Member, items tree.Items, out *co.Quieted) move {
	return with(m, func(ctx context.Context) (err error) { *out, err = m.Quiet(ctx, items); return err })
}

func (stepper) Complete(m *co.Member, c co.Completing, out *co.Completed) move {
	return with(m, func(ctx context.Context) (err error) { *out, err = m.Complete(ctx, c); return err })
}

func (stepper) SaveOffsets(l tree.Layout, items map[int]co.Ended, out *co.Saved) move {
	return into(out, func(ctx context.Context, r registry.Center) (co.Saved, error) {
		return co.SaveOffsets(ctx, r, l, items)
	})
}

func (stepper) Recover(m *co.Member, rec co.Recovery, out *co.Recovered) move {
	return with(m, func(ctx context.Context) (err error) { *out, err = m.Recover(ctx, rec); return err })
}

func (stepper) Bury(m *co.Member, dead []string, bury bool, out *[]string) move {
	return with(m, func(ctx context.Context) (err error) { *out, _, err = m.Bury(ctx, dead, bury); return err })
}

func (stepper) Sweep(m *co.Member, now time.Time, out *cleanup.Swept) move {
	return with(m, func(ctx context.Context) (err error) {
		*out, err = cleanup.Sweep(ctx, m.Registry, m.View, now)
		return err
	})
}

func (stepper) RetireServers(m *co.Member, now time.Time, keep time.Duration, out *[]string) move {
	return with(m, func(ctx context.Context) (err error) {
		*out, err = cleanup.RetireServers(ctx, m.Registry, m.Layout, now, keep)
		return err
	})
}

func (stepper) Repair(m *co.Member, p co.Repairing, out *[]string) move {
	return with(m, func(ctx context.Context) (err error) { *out, err = m.Repair(ctx, p); return err })
}

func (stepper) MarkMisfire(l tree.Layout, items tree.Items) move {
	return func(ctx context.Context, r registry.Center) error { return co.MarkMisfire(ctx, r, l, items) }
}

func (stepper) RegistryTime(l tree.Layout, out *time.Time) move {
	return into(out, func(ctx context.Context, r registry.Center) (time.Time, error) { return co.RegistryTime(ctx, r, l) })
}

func (stepper) Arrive(l tree.Layout, self tree.JobInstance, p guarantee.Phase, items tree.Items, total int, last *bool) move {
	return into(last, func(ctx context.Context, r registry.Center) (bool, error) {
		s, err := guarantee.Arrive(ctx, r, l, guarantee.Arrival{Self: self, Phase: p, Items: items, Total: total})
		return s.Last, err
	})
}

func (stepper) ClearGuarantee(l tree.Layout, p guarantee.Phase) move {
	return func(ctx context.Context, r registry.Center) error { return guarantee.Clear(ctx, r, l, p) }
}

func (stepper) ReadKills(m *co.Member, running map[int]co.ItemState, out *map[int]co.ItemState) move {
	return with(m, func(ctx context.Context) (err error) { *out, _, err = m.ReadKills(ctx, running); return err })
}

func (stepper) AskKill(k operate.Killing, out *[]operate.KillTarget) move {
	return into(out, func(ctx context.Context, r registry.Center) ([]operate.KillTarget, error) {
		return operate.AskKill(ctx, r, k)
	})
}

func (stepper) ReadEndings(l tree.Layout, targets []operate.KillTarget, out *[]operate.Ending) move {
	return into(out, func(ctx context.Context, r registry.Center) ([]operate.Ending, error) {
		return operate.ReadEndings(ctx, r, l, targets)
	})
}

func (stepper) Release(l tree.Layout, item int, now time.Time, out *operate.Released) move {
	return into(out, func(ctx context.Context, r registry.Center) (operate.Released, error) {
		return operate.Release(ctx, r, l, item, now)
	})
}

func (stepper) ChangeKept(l tree.Layout, item int, now time.Time, change func([]byte, bool) ([]byte, error), out *operate.Kept) move {
	return into(out, func(ctx context.Context, r registry.Center) (operate.Kept, error) {
		return operate.ChangeKept(ctx, r, l, item, now, change)
	})
}

func (stepper) ReadKept(l tree.Layout, item int, out *[]operate.Kept) move {
	return into(out, func(ctx context.Context, r registry.Center) ([]operate.Kept, error) {
		return operate.ReadKept(ctx, r, l, item)
	})
}

func (stepper) TriggerJob(l tree.Layout) move {
	return func(ctx context.Context, r registry.Center) error { return operate.TriggerJob(ctx, r, l) }
}

func (stepper) TriggerWith(l tree.Layout, args tree.TriggerArgs) move {
	return func(ctx context.Context, r registry.Center) error {
		_, err := operate.TriggerWith(ctx, r, l, args)
		return err
	}
}

func (stepper) TriggerRound(m *co.Member, consumed int64, out *int64, args *tree.TriggerArgs) move {
	return with(m, func(ctx context.Context) (err error) { *out, *args, err = m.TriggerRound(ctx, consumed); return err })
}

func (stepper) SetServers(l tree.Layout, enable bool, ips ...string) move {
	return func(ctx context.Context, r registry.Center) error {
		_, err := operate.SetServers(ctx, r, l, said, enable, ips...)
		return err
	}
}

func (stepper) SetItem(l tree.Layout, item int, enable bool) move {
	return func(ctx context.Context, r registry.Center) error {
		_, err := operate.SetItem(ctx, r, l, tree.Word{}, item, enable)
		return err
	}
}

func (stepper) Stop(l tree.Layout, of string, ids ...string) move {
	return func(ctx context.Context, r registry.Center) error {
		_, err := operate.Stop(ctx, r, l, said, of, ids)
		return err
	}
}

// StopInstance stops one of ours, or a Java host.
func (stepper) StopInstance(l tree.Layout, id string) move {
	return func(ctx context.Context, r registry.Center) error {
		n, err := r.Read(ctx, registry.Data(l.Detail(id)))
		if err != nil {
			return err
		}
		if !n[0].Exists {
			return operate.StopJava(ctx, r, l, id)
		}
		_, err = operate.Stop(ctx, r, l, said, tree.ProcessOf(id), []string{id})
		return err
	}
}

func (stepper) Start(l tree.Layout, id string) move {
	return func(ctx context.Context, r registry.Center) error { return operate.Start(ctx, r, l, said, id) }
}

func (stepper) Restore(l tree.Layout) move {
	return func(ctx context.Context, r registry.Center) error { return operate.Restore(ctx, r, l, said) }
}

// said is what the operator of the tests says.
var said = tree.Word{By: "user alice", Why: "a test", Since: 1}

func (stepper) Remove(l tree.Layout, purge bool) move {
	return func(ctx context.Context, r registry.Center) error { return operate.Remove(ctx, r, l, said, purge) }
}

func (stepper) ReadShards(l tree.Layout, out *inspect.Shards) move {
	return into(out, func(ctx context.Context, r registry.Center) (inspect.Shards, error) {
		return inspect.ReadShards(ctx, r, l)
	})
}

func (stepper) ReadJobs(namespace string, out *[]inspect.JobBrief) move {
	return into(out, func(ctx context.Context, r registry.Center) ([]inspect.JobBrief, error) {
		return inspect.ReadJobs(ctx, r, namespace)
	})
}

// countCommits counts the commits.
func countCommits(n *int) func(int, string) registrytest.Fault {
	return func(_ int, op string) registrytest.Fault {
		if op == "commit" {
			*n++
		}
		return registrytest.NoFault
	}
}

// runningJava is two hosts of ours and a Java host that runs its share of a job with
// failover.
func runningJava(t *testing.T) (*chronicle, []*simHost, *javaPeer) {
	t.Helper()
	c, h := group(t, 2, func(cfg *jobconfig.Configuration) { cfg.Failover = true })
	j := c.addJava("J", "10.0.0.9")
	j.start()
	j.rest()
	c.settle()
	c.now = c.now.Add(10 * time.Second)
	j.due()
	j.rest()
	if len(j.executing) == 0 {
		t.Fatal("the Java host runs nothing")
	}
	return c, h, j
}

// beforeCommits lets something happen before each commit.
type beforeCommits struct {
	registry.Center
	do func()
}

func (b beforeCommits) Commit(ctx context.Context, ops ...registry.Op) ([]registry.Result, error) {
	b.do()
	return b.Center.Commit(ctx, ops...)
}

// countCalls counts every call to the registry.
func countCalls(n *int) func(int, string) registrytest.Fault {
	return func(int, string) registrytest.Fault {
		*n++
		return registrytest.NoFault
	}
}

// decode reads JSON, or fails the test.
func decode(t testing.TB, data []byte, into any) {
	t.Helper()
	if err := json.Unmarshal(data, into); err != nil {
		t.Fatalf("%q: %v", data, err)
	}
}
