package changelog_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/wasmjob/wasmjob/coordination/admin/changelog"
	"github.com/wasmjob/wasmjob/coordination/admin/operate"
	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/registry/registrytest"
	"github.com/wasmjob/wasmjob/coordination/tree"
	"github.com/wasmjob/wasmjob/test/registries"
)

// backends are the registries: each opens sessions, which end with the test.
func backends(t *testing.T, run func(t *testing.T, dial func() registry.Center)) {
	registries.Each(t, func(t *testing.T, dial func() registry.Center) {
		run(t, func() registry.Center {
			c := dial()
			t.Cleanup(func() {
				if err := c.Close(); err != nil {
					t.Error(err)
				}
			})
			return c
		})
	})
}

const instance = "10.0.0.1@-@1"

// job makes the nodes of a job that a host of ours has.
func job(t *testing.T, c registry.Center, name string) tree.Layout {
	t.Helper()
	l := tree.NewLayout("ns", name)
	var ops []registry.Op
	for _, path := range []string{l.Root(), l.Config(), l.Server("10.0.0.1"), l.Instance(instance), l.Item(0), l.Item(1), l.Sibling(), l.Members()} {
		ops = append(ops, registry.Ensure(path))
	}
	ops = append(ops, registry.Set(l.Config(), []byte("jobName: "+name+"\nshardingTotalCount: 2\n"), registry.AnyVersion),
		registry.Set(l.Server("10.0.0.1"), []byte(tree.Enabled), registry.AnyVersion), registry.Set(l.Members(), []byte(instance), registry.AnyVersion))
	if _, err := c.Commit(t.Context(), ops...); err != nil {
		t.Fatal(err)
	}
	return l
}

func node(t *testing.T, c registry.Center, path string) registry.Node {
	t.Helper()
	for _, n := range must(c.Read(t.Context(), registry.Data(path)))(t) {
		return n
	}
	return registry.Node{}
}

func must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// records are those that wait.
func records(t *testing.T, c registry.Center) (all []changelog.Record) {
	t.Helper()
	list := tree.ClusterChanges("ns")
	for _, n := range must(c.Read(t.Context(), registry.Children(list)))(t) {
		for _, id := range n.Names {
			var r changelog.Record
			if err := json.Unmarshal(node(t, c, list+"/"+id).Data, &r); err != nil {
				t.Fatal(err)
			}
			all = append(all, r)
		}
	}
	return all
}

// take removes them, as a host does that has taken them.
func take(t *testing.T, c registry.Center) {
	t.Helper()
	list := tree.ClusterChanges("ns")
	for _, n := range must(c.Read(t.Context(), registry.Children(list)))(t) {
		for _, id := range n.Names {
			must(c.Commit(t.Context(), registry.Delete(list+"/"+id, registry.AnyVersion)))(t)
		}
	}
}

// change is a change of a job: as a program of ours makes it, and how a host names it that sees it.
type change struct {
	name string
	do   func(ctx context.Context, c registry.Center, l tree.Layout) error
	seen func(t *testing.T, c registry.Center, before map[string]int64, l tree.Layout) changelog.Change
}

func changes() []change {
	wrote := func(path func(tree.Layout) string) func(*testing.T, registry.Center, map[string]int64, tree.Layout) changelog.Change {
		return func(t *testing.T, c registry.Center, _ map[string]int64, l tree.Layout) changelog.Change {
			return changelog.Wrote(node(t, c, path(l)).Mzxid)
		}
	}
	deleted := func(path func(tree.Layout) string) func(*testing.T, registry.Center, map[string]int64, tree.Layout) changelog.Change {
		return func(_ *testing.T, _ registry.Center, before map[string]int64, l tree.Layout) changelog.Change {
			return changelog.Deleted(before[path(l)])
		}
	}
	return []change{
		{"disable", func(ctx context.Context, c registry.Center, l tree.Layout) error {
			_, err := operate.SetServers(ctx, c, l, tree.Word{}, false)
			return err
		}, wrote(func(l tree.Layout) string { return l.Server("10.0.0.1") })},
		{"shutdown", func(ctx context.Context, c registry.Center, l tree.Layout) error {
			_, err := operate.Stop(ctx, c, l, tree.Word{}, tree.ProcessOf(instance), []string{instance})
			return err
		}, func(*testing.T, registry.Center, map[string]int64, tree.Layout) changelog.Change {
			return changelog.Stopped(instance)
		}},
		{"remove", func(ctx context.Context, c registry.Center, l tree.Layout) error {
			return operate.Remove(ctx, c, l, tree.Word{}, false)
		}, deleted(tree.Layout.Config)},
		{"purge", func(ctx context.Context, c registry.Center, l tree.Layout) error {
			return operate.Remove(ctx, c, l, tree.Word{}, true)
		}, deleted(tree.Layout.Config)},
	}
}

// TestRecorded: of a change that a program of ours made no host that sees it leaves a record; of
// another program's one host does, however many see it at once.
func TestRecorded(t *testing.T) {
	t.Parallel()
	backends(t, func(t *testing.T, dial func() registry.Center) {
		hosts := []registry.Center{dial(), dial(), dial()}
		c := hosts[0]
		for n, test := range changes() {
			for _, by := range []string{"caller", "command", "another program"} {
				l := job(t, c, fmt.Sprint("job-", n, "-", strings.ReplaceAll(by, " ", "-")))
				before := map[string]int64{l.Config(): node(t, c, l.Config()).Czxid}
				r, want := c, []string{}
				switch by {
				case "caller":
					r = changelog.By(c, l)
				case "command":
					r = changelog.Leaving(c, l, func() changelog.Record { return changelog.Record{Job: l.Job, Who: "ann"} })
					want = []string{"ann"}
				case "another program":
					if want = []string{"seen"}; test.name == "purge" {
						want = []string{} // it deletes what would say that it is not recorded
					}
				}
				if err := test.do(t.Context(), r, l); err != nil {
					t.Fatalf("%s by %s: %v", test.name, by, err)
				}
				seen := test.seen(t, c, before, l)
				for range 2 {
					var all sync.WaitGroup
					for _, h := range hosts {
						all.Go(func() {
							if err := changelog.Leave(t.Context(), h, l, seen, changelog.Record{Job: l.Job, Who: "seen"}); err != nil {
								t.Error(err)
							}
						})
					}
					all.Wait()
				}
				got := []string{}
				for _, r := range records(t, c) {
					if r.Job == l.Job {
						got = append(got, r.Who)
					}
				}
				if !slices.Equal(got, want) {
					t.Errorf("%s by %s has the records %v, want %v", test.name, by, got, want)
				}
				left, err := c.Read(t.Context(), registry.Children(l.Sibling()))
				if err != nil {
					t.Fatal(err)
				}
				if names := left[0].Names; test.name == "purge" && len(names) > 1 {
					t.Errorf("purge by %s has left %v besides what is wanted", by, names)
				}
			}
		}
	})
}

// TestRecorded_many: changes are named while others are made, and far back.
func TestRecorded_many(t *testing.T) {
	t.Parallel()
	backends(t, func(t *testing.T, dial func() registry.Center) {
		c := dial()
		l := job(t, c, "j")
		var mu sync.Mutex
		var seen []changelog.Change
		var all sync.WaitGroup
		for h := range 3 {
			ip := fmt.Sprint("10.0.1.", h)
			must(c.Commit(t.Context(), registry.Create(l.Server(ip), []byte(tree.Enabled))))(t)
			r := changelog.By(dial(), l)
			all.Go(func() {
				for n := range 30 {
					if _, err := operate.SetServers(t.Context(), r, l, tree.Word{}, n%2 == 1, ip); err != nil {
						t.Error(err)
						return
					}
					nodes, err := r.Read(t.Context(), registry.Data(l.Server(ip)))
					if err != nil {
						t.Error(err)
						return
					}
					mu.Lock()
					for _, n := range nodes {
						seen = append(seen, changelog.Wrote(n.Mzxid))
					}
					mu.Unlock()
				}
			})
		}
		all.Wait()
		for _, s := range seen {
			if err := changelog.Leave(t.Context(), c, l, s, changelog.Record{}); err != nil {
				t.Fatal(err)
			}
		}
		if got := records(t, c); len(got) > 0 {
			t.Errorf("%d of %d changes of ours are not named as recorded", len(got), len(seen))
		}
		outside := changelog.Wrote(node(t, c, l.Item(0)).Czxid)
		leave := func() {
			if err := changelog.Leave(t.Context(), c, l, outside, changelog.Record{}); err != nil {
				t.Fatal(err)
			}
		}
		leave()
		take(t, c)
		r := changelog.By(c, l)
		for n := range 520 {
			if _, err := operate.SetServers(t.Context(), r, l, tree.Word{}, n%2 == 1, "10.0.0.1"); err != nil {
				t.Fatal(err)
			}
		}
		if named := len(strings.Fields(string(node(t, c, tree.Recorded(l)).Data))); named != 500 {
			t.Errorf("the node recorded names %d changes, want 500", named)
		}
		leave() // a host that gets an item sees what others saw long ago
		if again := records(t, c); len(again) > 0 {
			t.Errorf("a change that was named before 500 others is on record again: %v", again)
		}
	})
}

// TestLeaving_lostAnswer: a change whose answer is lost, and that is made again, has one record.
func TestLeaving_lostAnswer(t *testing.T) {
	t.Parallel()
	backends(t, func(t *testing.T, dial func() registry.Center) {
		c := dial()
		l := job(t, c, "j")
		faulty := registrytest.Faulty(c, func(call int, _ string) registrytest.Fault {
			if call == 2 { // the first commit, after a read
				return registrytest.LostAnswer
			}
			return registrytest.NoFault
		})
		r := changelog.Leaving(faulty, l, func() changelog.Record { return changelog.Record{Who: "ann"} })
		disable := registry.Set(l.Server("10.0.0.1"), []byte(tree.Disabled), registry.AnyVersion)
		if _, err := r.Commit(t.Context(), disable); !errors.Is(err, registry.ErrUnknown) {
			t.Fatalf("%v, want that the outcome is unknown", err)
		}
		must(r.Commit(t.Context(), disable))(t)
		if got := records(t, c); len(got) != 1 {
			t.Errorf("%d records, want 1", len(got))
		}
		// A host may have taken the record before it is made again.
		again := changelog.Leaving(registrytest.Faulty(c, func(call int, _ string) registrytest.Fault {
			if call == 2 {
				return registrytest.LostAnswer
			}
			return registrytest.NoFault
		}), l, func() changelog.Record { return changelog.Record{Who: "ann"} })
		if _, err := again.Commit(t.Context(), disable); !errors.Is(err, registry.ErrUnknown) {
			t.Fatalf("%v, want that the outcome is unknown", err)
		}
		take(t, c)
		must(again.Commit(t.Context(), disable))(t)
		if got := records(t, c); len(got) != 0 {
			t.Errorf("another %d records", len(got))
		}
	})
}

// between has something done before each commit, after what it was decided on was read.
type between struct {
	registry.Center
	do func()
}

func (b *between) Commit(ctx context.Context, ops ...registry.Op) ([]registry.Result, error) {
	b.do()
	return b.Center.Commit(ctx, ops...)
}

// TestCenter_contested: a conflict about the node recorded alone is not returned to the caller, which
// would take it for one about the job; one about the job is.
func TestCenter_contested(t *testing.T) {
	t.Parallel()
	backends(t, func(t *testing.T, dial func() registry.Center) {
		c, other := dial(), dial()
		l := job(t, c, "j")
		times := 0
		r := changelog.By(&between{c, func() {
			if times++; times < 3 {
				must(changelog.By(other, l).Commit(t.Context(), registry.Set(l.Server("10.0.0.1"), nil, registry.AnyVersion)))(t)
			}
		}}, l)
		must(r.Commit(t.Context(), registry.Delete(l.Instance(instance), registry.AnyVersion)))(t)
		if times != 3 {
			t.Errorf("%d commits, want 3", times)
		}
		var conflict *registry.OpError
		if _, err := r.Commit(t.Context(), registry.Delete(l.Instance(instance), registry.AnyVersion)); !errors.As(err, &conflict) || conflict.Index != 0 {
			t.Errorf("%v, want a conflict of the first op", err)
		}
	})
}

// TestCenter_elasticJob: a job that no host of ours has been in gets no nodes of ours.
func TestCenter_elasticJob(t *testing.T) {
	t.Parallel()
	backends(t, func(t *testing.T, dial func() registry.Center) {
		c := dial()
		l := tree.NewLayout("ns", "java")
		must(c.Commit(t.Context(), registry.Ensure(l.Config()), registry.Ensure(l.Server("10.0.0.1"))))(t)
		if _, err := operate.SetServers(t.Context(), changelog.By(c, l), l, tree.Word{}, false); err != nil {
			t.Fatal(err)
		}
		r := changelog.Leaving(c, l, func() changelog.Record { return changelog.Record{What: "remove"} })
		if err := operate.Remove(t.Context(), r, l, tree.Word{}, false); err != nil {
			t.Fatal(err)
		}
		if node(t, c, l.Sibling()).Exists {
			t.Errorf("there is %s", l.Sibling())
		}
		if got := records(t, c); len(got) != 1 {
			t.Errorf("%d records, want that of the removal", len(got))
		}
	})
}

// TestLeaving_taken: a change of several commits leaves its record with the first, also if a host has taken it
// before the next.
func TestLeaving_taken(t *testing.T) {
	t.Parallel()
	backends(t, func(t *testing.T, dial func() registry.Center) {
		c := dial()
		l := job(t, c, "j")
		r := changelog.Leaving(c, l, func() changelog.Record { return changelog.Record{What: "remove"} })
		must(r.Commit(t.Context(), registry.Delete(l.Config(), registry.AnyVersion)))(t)
		take(t, c)
		must(r.Commit(t.Context(), registry.Delete(l.Server("10.0.0.1"), registry.AnyVersion)))(t)
		if got := records(t, c); len(got) != 0 {
			t.Errorf("another %d records", len(got))
		}
	})
}

// TestCenter_unseen: what hosts do not look for is not named, and asks for nothing: it would push out of the list
// what they look for later. A trigger that finds another program's waiting is named, since both are one then.
func TestCenter_unseen(t *testing.T) {
	t.Parallel()
	backends(t, func(t *testing.T, dial func() registry.Center) {
		c := dial()
		l := job(t, c, "j")
		reads := 0
		r := changelog.By(registrytest.Faulty(c, func(_ int, op string) registrytest.Fault {
			if op == "read" {
				reads++
			}
			return registrytest.NoFault
		}), l)
		for _, op := range []registry.Op{
			registry.Set(l.Config(), []byte("jobName: j\nshardingTotalCount: 2\n"), registry.AnyVersion), registry.Ensure(l.Offsets()), registry.Create(l.ItemDisabled(1), nil),
			registry.Delete(l.ItemDisabled(1), registry.AnyVersion), registry.Check(l.Server("10.0.0.1"), registry.AnyVersion), registry.Create(l.Triggers(), nil),
		} {
			must(r.Commit(t.Context(), op))(t)
		}
		if n := node(t, c, tree.Recorded(l)); n.Exists || reads != 0 {
			t.Errorf("%d reads, and there is %s: %v", reads, n.Path, n.Exists)
		}
		must(c.Commit(t.Context(), registry.Create(l.Trigger(instance), nil)))(t)
		if err := operate.TriggerJob(t.Context(), r, l); err != nil {
			t.Fatal(err)
		}
		if err := changelog.Leave(t.Context(), c, l, changelog.Wrote(node(t, c, l.Triggers()).Mzxid), changelog.Record{}); err != nil {
			t.Fatal(err)
		}
		if got := records(t, c); len(got) != 0 {
			t.Errorf("%d records of our own trigger", len(got))
		}
	})
}

// TestCenter_manyHosts: of a job with many hosts that are stopped at once none leaves a record.
func TestCenter_manyHosts(t *testing.T) {
	t.Parallel()
	backends(t, func(t *testing.T, dial func() registry.Center) {
		c := dial()
		l := job(t, c, "j")
		var ids []string
		for n := range 120 {
			ids = append(ids, fmt.Sprint("10.0.1.", n, "@-@1"))
			must(c.Commit(t.Context(), registry.Create(l.Instance(ids[n]), nil)))(t)
		}
		r := changelog.By(c, l)
		for _, id := range ids {
			must(r.Commit(t.Context(), registry.Delete(l.Instance(id), registry.AnyVersion)))(t)
		}
		for _, id := range ids {
			if err := changelog.Leave(t.Context(), c, l, changelog.Stopped(id), changelog.Record{}); err != nil {
				t.Fatal(err)
			}
		}
		if got := records(t, c); len(got) != 0 {
			t.Errorf("%d records of instances that we stopped", len(got))
		}
	})
}

// TestLeaving_nothing: a command that finds everything as it wants it leaves no record.
func TestLeaving_nothing(t *testing.T) {
	t.Parallel()
	backends(t, func(t *testing.T, dial func() registry.Center) {
		c := dial()
		l := job(t, c, "j")
		r := changelog.Leaving(c, l, func() changelog.Record { return changelog.Record{Who: "ann"} })
		if _, err := operate.SetServers(t.Context(), r, l, tree.Word{}, true); err != nil {
			t.Fatal(err)
		}
		if got := records(t, c); len(got) != 0 {
			t.Errorf("%d records of nothing", len(got))
		}
	})
}

// TestLeaving_full: while no host takes records their number is bounded, and changes are made all the same.
func TestLeaving_full(t *testing.T) {
	t.Parallel()
	backends(t, func(t *testing.T, dial func() registry.Center) {
		c := dial()
		l := job(t, c, "j")
		list := tree.ClusterChanges("ns")
		for n := range 10 {
			ops := []registry.Op{registry.Ensure(list)}
			for i := range 1000 {
				ops = append(ops, registry.Create(fmt.Sprintf("%s/%d-%d", list, n, i), nil))
			}
			must(c.Commit(t.Context(), ops...))(t)
		}
		r := changelog.Leaving(c, l, func() changelog.Record { return changelog.Record{Who: "ann"} })
		if _, err := operate.SetServers(t.Context(), r, l, tree.Word{}, false); err != nil {
			t.Fatal(err)
		}
		for _, n := range must(c.Read(t.Context(), registry.Children(list)))(t) {
			if len(n.Names) != 10_000 {
				t.Errorf("%d records wait, want no more than the 10,000 that did", len(n.Names))
			}
		}
		if state := string(node(t, c, l.Server("10.0.0.1")).Data); state != tree.Disabled {
			t.Errorf("the server is %s", state)
		}
	})
}
