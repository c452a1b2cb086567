package cleanup

import (
	"context"
	"fmt"
	"maps"
	"path"
	"slices"
	"time"

	"github.com/wasmjob/wasmjob/coordination"
	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/step"
	"github.com/wasmjob/wasmjob/coordination/tree"
)

// Sweep removes marks of items that belong to no living host: an external edit left them, or a host whose own
// list of runs was lost. A host calls it at the slow reconcile interval, after it has joined, and when a Java
// host has gone, never during a fire. It has an item whose owner is gone resharded. It does not look into nodes
// of items beyond the total count, since there may be any number of them: it asks for a division, which removes
// them.
//
// If failover is on, what a Java host ran when it went must be taken over. Sweep writes a list of runs in the
// Java host's name and adds it to the members: from then on it is one of the crashed hosts, and Recover does
// the rest.
//
// A missing instance node does not prove that its host is gone: a console may have removed it, and ElasticJob
// does not interrupt what runs then. The process lives if it has an ephemeral failover mark, or takes part in
// another job of the namespace under the same id: a Java process has one id for all its jobs. Its marks stay
// until it removes them. A process with a single job leaves no other trace.
//
// A container that is restarted has the same id. A running mark that is older than its instance node is from
// its earlier life, and is removed.
func Sweep(ctx context.Context, r registry.Center, v coordination.View, now time.Time) (Swept, error) {
	s := sweeping{view: v, now: now}
	err := step.Perform(ctx, r, "sweep", s.run)
	return s.swept, err
}

// Swept is the result of a Sweep.
type Swept struct {
	// Nodes were removed.
	Nodes []string
	// JavaLives is set if a Java host that has left the job may still run items: sweep again later.
	JavaLives bool
}

// sweeping is a Sweep on its way: what was read.
type sweeping struct {
	view                                coordination.View
	now                                 time.Time
	swept                               Swept
	instances, details, lists, triggers []string
	kills                               []string // nodes of kills of earlier versions
	items                               []int    // those that have marks
	owned                               int      // items of the division whose owner lives
	members                             registry.Node
	ours                                tree.Members
	// surplus are nodes of items beyond the total count that no division keeps for a host that still runs the
	// item. The next division removes them.
	surplus tree.Items
	marks   registry.Snapshot // marks of items, lists of runs and triggers
	// elsewhere are Java hosts that are not in the job, and whose processes live.
	elsewhere map[string]bool
	// since is the transaction that created the instance node of a Java host with running marks.
	since map[string]int64
}

func (s *sweeping) run(ctx context.Context, x *step.Exchange) error {
	if err := s.read(ctx, x); err != nil {
		return err
	}
	if err := s.lookElsewhere(ctx, x); err != nil {
		return err
	}
	if err := s.lookSince(ctx, x); err != nil {
		return err
	}
	j := s.judge()
	if j.ask {
		if err := coordination.AskForSharding(ctx, x, s.view); err != nil {
			return err
		}
	}
	if len(j.owed) > 0 {
		_, err := x.Commit(ctx, j.owed...)
		if step.UnlessConflict(err) != nil { // otherwise another host has done it, or the Java host is back
			return err
		}
	}
	return sweepEach(ctx, x, j.groups, &s.swept.Nodes)
}

// read reads the job's items and the marks that are there.
func (s *sweeping) read(ctx context.Context, x *step.Exchange) error {
	v, l := s.view, s.view.Layout
	n, err := x.Read(ctx, registry.Children(l.Sharding()), registry.Children(l.Runs()), registry.Children(l.Instances()), registry.Children(l.Triggers()), registry.Children(l.Details()), registry.Data(l.Members()), registry.Children(l.Kills()))
	if err != nil {
		return err
	}
	s.instances, s.lists, s.triggers = n.Children(l.Instances()), n.Children(l.Runs()), n.Children(l.Triggers())
	s.details, s.members, s.kills = n.Children(l.Details()), n.Data(l.Members()), n.Children(l.Kills())
	s.ours = tree.ParseMembers(s.members.Data)
	var items tree.Items
	total := max(v.Config.ShardingTotalCount, v.Division.Total)
	for _, name := range n.Children(l.Sharding()) {
		i, ok := tree.ItemNumber(name)
		if !ok {
			continue
		}
		if i >= total && !v.Division.Pending.Contains(i) {
			s.surplus = append(s.surplus, i)
		} else {
			items = append(items, i)
		}
	}
	var marks []markOf
	for part := range slices.Chunk(items, itemsAtOnce) {
		found, err := s.readItems(ctx, x, part)
		if err != nil {
			return err
		}
		marks = append(marks, found...)
	}
	var read []registry.Query
	for _, m := range marks {
		read = append(read, registry.Data(m.path))
	}
	for _, id := range s.lists {
		read = append(read, registry.Data(l.RunsOf(id)))
	}
	for _, id := range s.triggers {
		if !slices.Contains(s.instances, id) {
			read = append(read, registry.Data(l.Trigger(id)))
		}
	}
	var unread map[registry.Query]error
	if s.marks, unread, err = x.ReadSome(ctx, read...); err != nil || len(unread) == 0 {
		return err
	}
	for k, q := range read {
		why := unread[q]
		if why == nil {
			continue
		}
		if k >= len(marks) { // without a list it is not known what runs
			return &registry.UnreadableError{Denied: map[registry.Query]error{q: why}}
		}
		if at := slices.Index(s.items, marks[k].item); at >= 0 {
			s.items = slices.Delete(s.items, at, at+1)
			if marks[k].owned {
				s.owned--
			}
		}
	}
	return nil
}

// itemsAtOnce is of how many items one request asks what is below them.
const itemsAtOnce = 4096

// markOf is where an item has a mark.
type markOf struct {
	item  int
	path  string
	owned bool // the item's owner lives
}

// readItems counts the items that have owners, notes those that have marks, and returns these. It leaves items alone of which
// something cannot be read.
func (s *sweeping) readItems(ctx context.Context, x *step.Exchange, items tree.Items) (marks []markOf, err error) {
	l := s.view.Layout
	read := make([]registry.Query, 0, 2*len(items))
	for _, i := range items {
		read = append(read, registry.Children(l.Item(i)), registry.Data(l.ItemInstance(i)))
	}
	nodes, unread, err := x.ReadList(ctx, read...)
	if err != nil {
		return nil, err
	}
	for k, i := range items {
		below, instance := nodes[2*k], nodes[2*k+1]
		if len(unread) > 0 && (unread[below.Query] != nil || unread[instance.Query] != nil) {
			continue
		}
		owned := i < s.view.Division.Total && s.lives(string(instance.Data))
		if owned {
			s.owned++
		}
		before := len(marks)
		for _, name := range below.Names {
			if tree.IsRunMark(name) {
				marks = append(marks, markOf{i, l.Item(i) + "/" + name, owned})
			}
		}
		if len(marks) > before {
			s.items = append(s.items, i)
		}
	}
	return marks, nil
}

// lookElsewhere finds the hosts that still live although their instance node is gone.
func (s *sweeping) lookElsewhere(ctx context.Context, x *step.Exchange) error {
	s.elsewhere = make(map[string]bool)
	gone := s.goneJava()
	for _, i := range s.items {
		if n := s.marks.Data(s.view.Layout.ItemFailover(i)); n.Exists && n.Ephemeral && gone[string(n.Data)] {
			s.elsewhere[string(n.Data)] = true
		}
	}
	if len(gone) == 0 {
		return nil
	}
	return s.lookInOtherJobs(ctx, x, gone)
}

// lookSince reads since when Java hosts with persistent running marks have been in the job.
func (s *sweeping) lookSince(ctx context.Context, x *step.Exchange) error {
	l := s.view.Layout
	s.since = make(map[string]int64)
	for _, i := range s.items {
		n := s.marks.Data(l.ItemRunning(i))
		if id := string(n.Data); n.Exists && !n.Ephemeral && slices.Contains(s.instances, id) && s.javaRan(id) && !slices.Contains(s.details, id) {
			s.since[id] = 0
		}
	}
	var read []registry.Query
	for _, id := range slices.Sorted(maps.Keys(s.since)) {
		read = append(read, registry.Data(l.Instance(id)))
	}
	if len(read) == 0 {
		return nil
	}
	n, err := x.Read(ctx, read...)
	for id := range s.since {
		s.since[id] = n.Data(l.Instance(id)).Czxid
	}
	return err
}

// outlived reports whether a running mark is from an earlier life of a Java host. An item with the failover
// mark still runs: the host took it over.
func (s *sweeping) outlived(running, failover registry.Node) bool {
	id := string(running.Data)
	return running.Exists && running.Mzxid < s.since[id] && string(failover.Data) != id
}

// goneJava returns the Java hosts that are not in the job but have persistent marks in it.
func (s *sweeping) goneJava() map[string]bool {
	l, gone := s.view.Layout, make(map[string]bool)
	for _, i := range s.items {
		for _, path := range []string{l.ItemRunning(i), l.ItemFailovering(i)} {
			n := s.marks.Data(path)
			if n.Exists && !n.Ephemeral && s.isGoneJava(string(n.Data)) {
				gone[string(n.Data)] = true
			}
		}
	}
	return gone
}

// isGoneJava reports whether an id belongs to a Java host that is not in the job.
func (s *sweeping) isGoneJava(id string) bool {
	ours := slices.Contains(s.ours, id) || slices.Contains(s.lists, id)
	return !ours && !s.lives(id) && tree.FitsANode(id)
}

// lookInOtherJobs finds the hosts that are in another job of the namespace.
func (s *sweeping) lookInOtherJobs(ctx context.Context, x *step.Exchange, hosts map[string]bool) error {
	l := s.view.Layout
	jobs := registry.Children(tree.JobsPath(l.Namespace))
	n, err := x.Read(ctx, jobs)
	if err != nil {
		return err
	}

	idOf := make(map[registry.Query]string)
	var read []registry.Query
	for _, job := range n[jobs].Names {
		for _, id := range slices.Sorted(maps.Keys(hosts)) {
			if job != l.Job {
				q := registry.Data(tree.NewLayout(l.Namespace, job).Instance(id))
				read, idOf[q] = append(read, q), id
			}
		}
	}
	if n, err = x.Read(ctx, read...); err != nil {
		return err
	}
	for q, id := range idOf {
		s.elsewhere[id] = s.elsewhere[id] || n[q].Exists
	}
	return nil
}

func (s *sweeping) lives(id string) bool {
	return slices.Contains(s.instances, id) || slices.Contains(s.details, id)
}

// judgement is what a sweep writes.
type judgement struct {
	groups [][]registry.Op // each removes something; a group is committed together
	owed   []registry.Op   // write down what gone hosts ran; empty if nothing has to be taken over
	ask    bool            // the items must be resharded
}

func (s *sweeping) judge() (j judgement) {
	listed, runsOf := s.readLists()
	owed := make(map[string]tree.Items)
	for _, i := range s.items {
		j.groups = append(j.groups, s.sweepItem(i, listed(i), runsOf, owed)...)
	}
	j.groups = append(j.groups, s.sweepRequests()...)

	// A dead host that an external edit removed from the members still has a list of runs to be taken over:
	// make it one of the crashed again.
	members, forgotten := s.ours, false
	for _, id := range s.lists {
		if s.members.Exists && !s.lives(id) && !slices.Contains(members, id) && tree.FitsANode(id) {
			members, forgotten = members.With(id), true
		}
	}
	if len(owed) > 0 || forgotten {
		j.owed = s.owe(owed, members)
	}
	j.ask = s.orphans() || s.leftover(listed)
	return j
}

// readLists returns which items are in some host's list of runs, and the lists of
// the hosts that live.
func (s *sweeping) readLists() (listed func(item int) bool, runsOf map[string]registry.Node) {
	var all tree.Ranges
	runsOf = make(map[string]registry.Node)
	for _, id := range s.lists {
		node := s.marks.Data(s.view.Layout.RunsOf(id))
		runs, err := tree.ParseRuns(node.Data)
		if err != nil {
			continue
		}
		all = all.With(runs.Ranges())
		if s.lives(id) {
			runsOf[id] = node
		}
	}
	return all.Contains, runsOf
}

// sweepRequests removes triggers whose host is gone, and kill requests to hosts of earlier versions.
func (s *sweeping) sweepRequests() (groups [][]registry.Op) {
	l := s.view.Layout
	for _, id := range s.kills {
		if !s.lives(id) && !slices.Contains(s.lists, id) {
			groups = append(groups, []registry.Op{registry.Delete(path.Join(l.Kills(), id), registry.AnyVersion)})
		}
	}
	for _, id := range s.triggers {
		if slices.Contains(s.view.Division.Instances, id) {
			continue // the next division notes who owes its round, and removes it
		}
		if trigger := s.marks.Data(l.Trigger(id)); trigger.Exists {
			groups = append(groups, []registry.Op{registry.Delete(trigger.Path, trigger.Version)})
		}
	}
	return groups
}

// sweepItem removes the marks of one item that belong to no living host. It adds the item to owed if a Java
// host that is gone was running it; listed is true if the item is in a host's list of runs.
func (s *sweeping) sweepItem(i int, listed bool, runsOf map[string]registry.Node, owed map[string]tree.Items) (groups [][]registry.Op) {
	l := s.view.Layout
	running, failovering, failover := s.marks.Data(l.ItemRunning(i)), s.marks.Data(l.ItemFailovering(i)), s.marks.Data(l.ItemFailover(i))
	if failover.Exists && !failover.Ephemeral { // no host makes one that outlives its session
		groups, failover = append(groups, []registry.Op{registry.Delete(failover.Path, failover.Version)}), registry.Node{}
	}
	if listed {
		return groups
	}
	if failover.Exists && !running.Exists && !tree.IsInstanceID(string(failover.Data)) {
		// The session may last, but the mark's data is not its maker's. The host that runs the item has the
		// running mark or a list of runs.
		groups = append(groups, []registry.Op{registry.Absent(l.ItemRunning(i)), registry.Delete(failover.Path, failover.Version)})
		failover = registry.Node{}
	}
	if s.outlived(running, failover) {
		groups = append(groups, []registry.Op{registry.Delete(running.Path, running.Version)})
	}
	taken := failover.Exists && s.lives(string(failover.Data)) // another host repeats it
	for _, mark := range []registry.Node{running, failovering, failover} {
		id := string(mark.Data)
		if !mark.Exists {
			continue
		}
		if runs, ours := runsOf[id]; ours {
			// Its host lives but does not run it, unless it has begun the item since.
			groups = append(groups, []registry.Op{registry.Check(runs.Path, runs.Version), registry.Delete(mark.Path, mark.Version)})
			continue
		}
		if mark.Ephemeral || s.lives(id) {
			continue
		}
		if s.elsewhere[id] {
			s.swept.JavaLives = true
			continue
		}
		if taken {
			continue
		}
		if mark.Path != l.ItemFailover(i) && s.repeats() && s.javaRan(id) {
			owed[id] = append(owed[id], i)
		} else {
			groups = append(groups, []registry.Op{registry.Delete(mark.Path, mark.Version)})
		}
	}
	return groups
}

// repeats reports whether failover is in effect: hosts repeat items of crashed hosts.
func (s *sweeping) repeats() bool {
	cfg := s.view.Config
	return cfg.Failover && cfg.MonitorExecution && s.view.ConfigErr == nil && s.members.Exists
}

// javaRan reports whether a mark's host, which is gone, is no host of ours.
func (s *sweeping) javaRan(id string) bool {
	return !slices.Contains(s.ours, id) && !slices.Contains(s.lists, id) && tree.FitsANode(id)
}

// orphans reports whether an item has no living owner although there are instances to own it, for example
// because a former leader went on dividing.
func (s *sweeping) orphans() bool {
	d := s.view.Division
	if s.view.Flagged() || (len(d.Members) == 0 && !d.Java) {
		return false
	}
	return s.owned < d.Total
}

// leftover reports whether there is a node of an item beyond the total count
// that is in no host's list.
func (s *sweeping) leftover(listed func(item int) bool) bool {
	if s.view.Flagged() || s.view.ConfigErr != nil || s.view.Division.Total == 0 {
		return false
	}
	return slices.ContainsFunc(s.surplus, func(i int) bool { return !listed(i) })
}

// owe writes lists of runs for Java hosts that are gone.
func (s *sweeping) owe(owed map[string]tree.Items, members tree.Members) []registry.Op {
	l := s.view.Layout
	fire := tree.Fire{Instant: s.now.UnixMilli(), Source: tree.SourceFailover}
	ops := []registry.Op{registry.Check(l.Config(), registry.AnyVersion)}
	for _, id := range slices.Sorted(maps.Keys(owed)) {
		items := owed[id]
		slices.Sort(items)
		runs := tree.Runs{Java: id}.With(fire, true, slices.Compact(items))
		name := fmt.Sprintf("%s-owed-%d", id, fire.Instant)
		ops = append(ops, registry.Absent(l.Instance(id)), registry.Create(l.RunsOf(name), runs.Data()))
		members = members.With(name)
	}
	return append(ops, registry.Set(l.Members(), members.Data(), s.members.Version))
}

// sweepEach removes groups in commits that fit. It skips a mark that has changed since it was read, because a
// host uses it, and one that the registry does not permit to remove; the error is that of one such mark.
func sweepEach(ctx context.Context, x *step.Exchange, groups [][]registry.Op, swept *[]string) error {
	var refused error
	for len(groups) > 0 {
		var ops []registry.Op
		var of []int // op → group
		n := 0
		for k, group := range groups {
			if step.Size(ops)+step.Size(group) > step.Budget && k > 0 {
				break
			}
			for _, op := range group {
				ops, of = append(ops, op), append(of, k)
			}
			n++
		}
		_, err := x.Commit(ctx, ops...)
		if conflict := step.ConflictOf(err); conflict != nil {
			k := of[conflict.Index]
			groups = slices.Delete(slices.Clone(groups), k, k+1)
			continue
		}
		if denied := step.DeniedOf(err); denied != nil {
			k := of[denied.Index]
			groups, refused = slices.Delete(slices.Clone(groups), k, k+1), err
			continue
		}
		if err != nil {
			return err
		}
		for _, op := range ops {
			if op.Kind == registry.OpDelete {
				*swept = append(*swept, op.Path)
			}
		}
		groups = groups[n:]
	}
	return refused
}
