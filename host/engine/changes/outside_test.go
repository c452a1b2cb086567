package changes

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/coordination/admin/changelog"
	"github.com/wasmjob/wasmjob/coordination/admin/operate"
	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/registry/embedded"
	"github.com/wasmjob/wasmjob/coordination/tree"
)

// seen is what a host has seen of a job whose nodes the test writes.
type seen struct {
	t       *testing.T
	center  *counting
	layout  tree.Layout
	self    tree.JobInstance
	outside Outside
}

// counting counts what is asked of the registry.
type counting struct {
	registry.Center
	reads int
}

func (c *counting) Read(ctx context.Context, queries ...registry.Query) ([]registry.Node, error) {
	c.reads++
	return c.Center.Read(ctx, queries...)
}

func watched(t *testing.T) *seen {
	t.Helper()
	s, err := embedded.Open(embedded.Options{})
	if err != nil {
		t.Fatal(err)
	}
	c, err := s.Connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	h := &seen{t: t, center: &counting{Center: c}, layout: tree.NewLayout("ns", "j"), self: tree.JobInstance{ID: "10.0.0.1@-@1", ServerIP: "10.0.0.1"}}
	l := h.layout
	h.commit(registry.Ensure(l.Config()), registry.Ensure(l.Sibling()), registry.Ensure(l.Servers()), registry.Ensure(l.Instance(h.self.ID)), registry.Ensure(l.Item(3)))
	return h
}

func (h *seen) commit(ops ...registry.Op) {
	h.t.Helper()
	if _, err := h.center.Commit(h.t.Context(), ops...); err != nil {
		h.t.Fatal(err)
	}
}

// look shows the host a snapshot of what it watches, and has it leave records.
func (h *seen) look() {
	h.t.Helper()
	l := h.layout
	s := make(registry.Snapshot)
	nodes, err := h.center.Center.Read(h.t.Context(), registry.Data(l.Config()), registry.Children(l.Instances()), registry.Data(l.Server(h.self.ServerIP)),
		registry.Data(l.Server("10.0.0.9")), registry.Data(l.Trigger(h.self.ID)))
	if err != nil {
		h.t.Fatal(err)
	}
	for _, n := range nodes {
		s[n.Query] = n
	}
	h.outside.See(s, l, h.self)
	h.record(0, 0)
}

func (h *seen) record(trigger, round int64) {
	h.t.Helper()
	if err := h.outside.Record(h.t.Context(), h.center, h.layout, time.Now(), trigger, round); err != nil {
		h.t.Fatal(err)
	}
}

// expect compares the records that were left since, which it removes.
func (h *seen) expect(want ...string) {
	h.t.Helper()
	var got []string
	list := tree.ClusterChanges("ns")
	names, err := h.center.Center.Read(h.t.Context(), registry.Children(list))
	if err != nil {
		h.t.Fatal(err)
	}
	for _, n := range names {
		for _, id := range n.Names {
			nodes, err := h.center.Center.Read(h.t.Context(), registry.Data(list+"/"+id))
			if err != nil {
				h.t.Fatal(err)
			}
			for _, node := range nodes {
				var r changelog.Record
				if err := json.Unmarshal(node.Data, &r); err != nil {
					h.t.Fatal(err)
				}
				text := r.What + " " + r.Host
				if r.Item != nil {
					text += fmt.Sprint("item ", *r.Item)
				}
				got = append(got, text)
				h.commit(registry.Delete(node.Path, registry.AnyVersion))
			}
		}
	}
	if !slices.Equal(got, want) {
		h.t.Errorf("the records are %q, want %q", got, want)
	}
}

// TestOutside_servers: a server's state has a record when it changes, this host's and a Java host's; not when
// the node comes, is blank or is written as it is.
func TestOutside_servers(t *testing.T) {
	t.Parallel()
	for _, ip := range []string{"10.0.0.1", "10.0.0.9"} {
		h := watched(t)
		node := h.layout.Server(ip)
		h.look()
		for _, step := range []struct {
			op   registry.Op
			want []string
		}{
			{registry.Create(node, nil), nil},
			{registry.Set(node, []byte(tree.Disabled), registry.AnyVersion), nil},
			{registry.Set(node, []byte(tree.Enabled), registry.AnyVersion), []string{"enable " + ip}},
			{registry.Set(node, []byte(tree.Enabled), registry.AnyVersion), nil},
			{registry.Set(node, []byte(tree.Disabled), registry.AnyVersion), []string{"disable " + ip}},
			{registry.Delete(node, registry.AnyVersion), nil},
			{registry.Create(node, []byte(tree.Enabled)), nil},
		} {
			h.commit(step.op)
			h.look()
			h.expect(step.want...)
		}
	}
}

// TestOutside_again: what was seen in a membership that has ended says nothing in the next.
func TestOutside_again(t *testing.T) {
	t.Parallel()
	h := watched(t)
	l := h.layout
	h.commit(registry.Create(l.Server("10.0.0.1"), []byte(tree.Enabled)), registry.Create(l.ItemDisabled(3), nil))
	h.look()
	h.outside.Mark(3, h.node(l.ItemDisabled(3)))
	h.record(0, 0)
	h.commit(registry.Set(l.Server("10.0.0.1"), []byte(tree.Disabled), registry.AnyVersion))
	h.self.ID = "10.0.0.1@-@2"
	h.look()
	h.outside.Enabled(3)
	h.record(0, 0)
	h.expect()
	h.commit(registry.Delete(l.Config(), registry.AnyVersion))
	h.look()
	h.expect("remove ")
}

func (h *seen) node(path string) registry.Node {
	h.t.Helper()
	nodes, err := h.center.Center.Read(h.t.Context(), registry.Data(path))
	if err != nil {
		h.t.Fatal(err)
	}
	for _, n := range nodes {
		return n
	}
	return registry.Node{}
}

// TestOutside_asksNothing: what this host's programs do, and what has no record to be left, costs no
// request; a trigger waits for its round.
func TestOutside_asksNothing(t *testing.T) {
	t.Parallel()
	h := watched(t)
	l := h.layout
	h.look()
	h.commit(registry.Ensure(l.Triggers()), registry.Create(l.Trigger(h.self.ID), []byte(tree.TriggerPlain)))
	h.look()
	h.commit(registry.Delete(l.Trigger(h.self.ID), registry.AnyVersion), registry.Create(l.Trigger(h.self.ID), []byte(tree.TriggerWithArgs)))
	h.look()
	h.record(h.node(l.Trigger(h.self.ID)).Czxid, 7)
	h.outside.Enabled(3)
	h.look()
	if h.center.reads != 0 {
		t.Errorf("%d reads, want none", h.center.reads)
	}
	h.commit(registry.Delete(l.Trigger(h.self.ID), registry.AnyVersion), registry.Create(l.Trigger(h.self.ID), nil))
	h.look()
	if h.center.reads != 0 {
		t.Errorf("%d reads before the round is known, want none", h.center.reads)
	}
	made := h.node(l.Trigger(h.self.ID)).Czxid
	h.record(made, made)
	h.expect("trigger " + h.self.ID)
}

// TestOutside_items: an item has a record when it is disabled after the host came, also if the host sees
// that with its first look at the item, and when it is enabled again; one that was disabled before has one when it is enabled.
func TestOutside_items(t *testing.T) {
	t.Parallel()
	for _, before := range []bool{false, true} {
		h := watched(t)
		mark := h.layout.ItemDisabled(3)
		come := func() {
			h.commit(registry.Set(h.layout.Config(), nil, registry.AnyVersion))
			h.look()
		}
		disable := func() { h.commit(registry.Create(mark, nil)) }
		steps, want := []func(){come, disable}, []string{"disable item 3"}
		if before {
			steps, want = []func(){disable, come}, nil
		}
		for _, step := range steps {
			step()
		}
		h.outside.Mark(3, h.node(mark))
		h.record(0, 0)
		h.expect(want...)
		reads := h.center.reads
		h.outside.Mark(3, h.node(mark)) // with each snapshot
		h.record(0, 0)
		if h.center.reads != reads {
			t.Error("an item that is known to be disabled is read again")
		}
		h.commit(registry.Delete(mark, registry.AnyVersion))
		h.outside.Enabled(3)
		h.record(0, 0)
		h.expect("enable item 3")
	}
}

// TestOutside_manyItems: of items that our programs disabled and enabled one after the other there is no record,
// however many they are and however late they are seen.
func TestOutside_manyItems(t *testing.T) {
	t.Parallel()
	const many = 300
	h := watched(t)
	for i := range many {
		h.commit(registry.Ensure(h.layout.Item(i)))
	}
	h.look()
	for _, enable := range []bool{false, true} {
		for i := range many {
			if _, err := operate.SetItem(t.Context(), changelog.By(h.center.Center, h.layout), h.layout, tree.Word{}, i, enable); err != nil {
				t.Fatal(err)
			}
		}
		for i := range many {
			if enable {
				h.outside.Enabled(i)
			} else {
				h.outside.Mark(i, h.node(h.layout.ItemDisabled(i)))
			}
		}
		for range many/mostAtOnce + 1 {
			h.record(0, 0)
		}
		h.expect()
	}
}
