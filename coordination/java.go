package coordination

import (
	"context"
	"errors"
	"slices"
	"strconv"

	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/step"
	"github.com/wasmjob/wasmjob/coordination/tree"
)

// readDivided reads nodes and the first instance node: that of item 0, or of the lowest item whose node can be
// read. That node is read last.
func readDivided(ctx context.Context, x *step.Exchange, v View, queries ...registry.Query) (n registry.Snapshot, first registry.Node, err error) {
	for i := 0; ; {
		path := registry.Data(v.Layout.ItemInstance(i))
		n, err = x.Read(ctx, slices.Insert(slices.Clone(queries), len(queries)-1, path)...)
		next, ok := v.nextFirst(i, err)
		if !ok {
			return n, n[path], err
		}
		i = next
	}
}

// nextFirst returns the next item whose instance node to read if the one of item cannot be read. ok is false
// unless the error says that the registry denies exactly that node.
func (v View) nextFirst(item int, err error) (next int, ok bool) {
	var unreadable *registry.UnreadableError
	if !errors.As(err, &unreadable) || len(unreadable.Denied) != 1 || unreadable.Denied[registry.Data(v.Layout.ItemInstance(item))] == nil {
		return item, false
	}
	return item + 1, item+1 < max(v.Config.ShardingTotalCount, v.Division.Total)
}

// byJava reports whether the division in force was made by a Java leader, from
// the epoch node and the first instance node; see readDivided. Java deletes and creates
// the instance nodes of all items, so that they have version 0; a leader of ours leaves every
// one of them with a version above 0, and empties the epoch.
func byJava(epoch, first registry.Node) bool {
	return len(epoch.Data) > 0 || (first.Exists && first.Version == 0)
}

// adoption is how a host of ours takes its share of a division by a Java leader: it reads the owner of every
// item, writes its own items into its assignment node, and sets the instance node of the lowest of them, the
// anchor. The first of our hosts also raises the epoch and records the division.
type adoption struct {
	*shareReading
	had                              tree.Items // what the host owned before
	assigned, division, epoch, first registry.Node
}

// adopt takes the share; done is false if a Java leader divided the items meanwhile. The share that was read stays unchanged
// while a Java leader is about to divide them.
func (a adoption) adopt(ctx context.Context, x *step.Exchange) (done bool, err error) {
	v, l := a.view, a.view.Layout
	total := v.Config.ShardingTotalCount
	read := make([]registry.Query, 0, total+len(v.Servers))
	for i := range total {
		read = append(read, registry.Data(l.ItemInstance(i)))
	}
	for _, ip := range v.Servers {
		read = append(read, registry.Data(l.Server(ip)))
	}
	if len(read) == 0 {
		return true, nil
	}
	n, denied, err := x.ReadSome(ctx, read...)
	if err != nil {
		return false, err
	}
	items := make([]registry.Node, total)
	for i := range items {
		items[i] = n.Data(l.ItemInstance(i))
	}
	disabled := make(map[string]bool)
	for _, ip := range v.Servers {
		disabled[ip] = !tree.IsEnabled(n.Data(l.Server(ip)).Data)
	}

	s, mine, ops := a.take(items, disabled)
	for i := range items {
		if why := denied[registry.Data(l.ItemInstance(i))]; why != nil { // its owner is unknown
			s.Denied.note(i, why)
		}
	}
	results, err := x.Commit(ctx, ops...)
	if conflict := step.ConflictOf(err); conflict != nil {
		path := conflict.Op.Path
		divides := path == l.Leader() || path == l.Necessary() || path == l.Processing()
		return divides, nil // the next snapshot decides
	}
	if step.IsUnknown(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	for k, op := range ops {
		if op.Path == a.division.Path {
			s.division = results[k].Zxid
		}
	}

	// The reads are of several instants, and Java may have divided between them and the commit. It has not if
	// the node that it recreates each time is still the one that was read first; after the commit the anchor
	// shows it.
	n, err = x.Read(ctx, registry.Data(a.first.Path))
	if err != nil || n.Data(a.first.Path).Czxid != a.first.Czxid {
		return false, err
	}
	if _, err := a.fill(ctx, x, &s, mine); err != nil {
		return false, err
	}
	a.share = s
	return true, nil
}

// take returns the host's share, and the ops that record it and prove that no Java leader divides at that
// moment.
func (a adoption) take(items []registry.Node, disabled map[string]bool) (s Share, mine tree.Items, ops []registry.Op) {
	v, l := a.view, a.view.Layout
	for i, n := range items {
		if n.Exists && string(n.Data) == v.Self.ID {
			mine = append(mine, i)
		}
	}
	s = Share{Java: true, division: a.division.Mzxid, round: v.round}
	for _, i := range mine {
		if _, held := a.known.of(i); !held && !a.had.Contains(i) {
			s.Foreign = append(s.Foreign, i)
		}
	}
	made := strconv.FormatInt(a.first.Czxid, 10)
	ops = []registry.Op{registry.Check(l.Leader(), 0), registry.Absent(l.Necessary()), registry.Absent(l.Processing())}
	if string(a.epoch.Data) == made {
		ops = append(ops, registry.Check(a.epoch.Path, a.epoch.Version))
		s.Guard.Epoch = a.epoch.Version
	} else {
		ops = append(ops, registry.Set(a.epoch.Path, []byte(made), a.epoch.Version),
			registry.Set(a.division.Path, a.divided(items, disabled).Data(), a.division.Version))
		s.Guard.Epoch = a.epoch.Version + 1
	}
	version := a.assigned.Version
	if !a.assigned.Exists { // deleted by an external edit
		ops = append(ops, registry.Create(a.assigned.Path, nil))
		version = 0
	}
	ops = append(ops, registry.Set(a.assigned.Path, []byte(mine.String()), version))
	s.Guard.Assignment = version + 1
	if len(mine) > 0 {
		if anchor := items[mine[0]]; anchor.Version == 0 {
			ops = append(ops, registry.Set(anchor.Path, []byte(v.Self.ID), 0))
		} else {
			ops = append(ops, registry.Check(anchor.Path, anchor.Version))
		}
	}
	return s, mine, ops
}

// divided describes Java's division as far as the owners show it. The instances that Java divided over may
// differ from those of now; in doubt the result names other instances, so that a new division is asked for, but
// only once for the same doubt.
func (a adoption) divided(items []registry.Node, disabled map[string]bool) tree.Division {
	v := a.view
	owns := make(map[string]bool)
	for _, n := range items {
		if n.Exists {
			owns[string(n.Data)] = true
		}
	}
	able := 0
	for _, id := range v.Instances {
		if !disabled[tree.ServerOf(id)] {
			able++
		}
	}
	d := tree.Division{Counts: tree.Counts{Total: len(items)}, Strategy: v.strategyName(), Java: true, Foreigners: v.Java()}
	for _, id := range v.Instances {
		if !owns[id] && !disabled[tree.ServerOf(id)] && able <= len(items) {
			d.Doubts = append(d.Doubts, id)
		} else {
			d.Instances = append(d.Instances, id)
		}
	}
	for id := range owns {
		if !slices.Contains(v.Instances, id) {
			d.Doubts, d.Instances = append(d.Doubts, id), append(d.Instances, id)
		}
	}
	slices.Sort(d.Doubts)
	if before := tree.ParseDivision(a.division.Data); before.Java && slices.Equal(before.Doubts, d.Doubts) {
		d.Instances = slices.Clone(v.Instances)
	}
	return d
}

// ItemMarks are the nodes that keep an item from beginning while they exist. A host that waits for a Java
// host's run watches them.
func ItemMarks(l tree.Layout, item int) []registry.Query {
	return []registry.Query{registry.Data(l.ItemRunning(item)), registry.Data(l.ItemFailover(item)), registry.Data(l.FailoverItem(item))}
}

// ReadHosts reads what hosts of ours publish for a job; it omits ids without such a node, which are Java hosts.
func ReadHosts(ctx context.Context, r registry.Center, l tree.Layout, ids []string) (map[string]tree.HostDetail, error) {
	var read []registry.Query
	for _, id := range ids {
		read = append(read, registry.Data(l.Detail(id)), registry.Data(l.RunsOf(id)))
	}
	hosts := make(map[string]tree.HostDetail, len(ids))
	err := step.Perform(ctx, r, "read hosts", func(ctx context.Context, x *step.Exchange) error {
		n, err := x.Read(ctx, read...)
		for _, id := range ids {
			detail := n.Data(l.Detail(id))
			if !detail.Exists {
				continue
			}
			d := tree.ParseDetail(detail.Data)
			if d.State == tree.DetailReady && len(n.Data(l.RunsOf(id)).Data) > 0 {
				d.State = tree.DetailRunning
			}
			hosts[id] = d
		}
		return err
	})
	return hosts, err
}
