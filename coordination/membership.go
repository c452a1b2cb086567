package coordination

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/wasmjob/wasmjob/coordination/jobconfig"
	"github.com/wasmjob/wasmjob/coordination/recipe/latch"
	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/step"
	"github.com/wasmjob/wasmjob/coordination/tree"
)

// Joining is a host's request to join a job.
type Joining struct {
	// Definition is the configuration of the definition file.
	Definition jobconfig.Configuration
	// Former is the digest of the definition that this host brought before, empty for none. A superseded
	// definition is applied only if it replaces Former: then the file was changed back.
	Former string
	// JobClass is written to the root node if that is blank.
	JobClass string
	Detail   tree.HostDetail
	// Said is who brings the definition, and when. It is recorded with what the definition changes in
	// tree.Wanted.
	Said tree.Word
	// Recorded wraps the session for a commit in which the definition switches servers, so that the change is
	// recorded. nil: it is not.
	Recorded func(registry.Center) registry.Center
	// Accept refuses a configuration that exceeds this host's limits; nil accepts all. A host does not join a
	// job whose configuration it refuses.
	Accept func(jobconfig.Configuration) error
	// CheckRecord refuses an item's record that shows a copied registry; nil accepts all. A host does not join
	// a job if it refuses the record of item 0.
	CheckRecord func(registry.Node) error
	// Applied is filled in: what the registry holds afterwards, and the fields that the definition changed.
	Applied *Applied
	// Wait, if not nil, is set when another host that joins at the same time should enroll this one first: it
	// has not joined then. Call Join again after that time, with the same Applied, and with Waited increased by
	// it.
	Wait   *time.Duration
	Waited time.Duration
}

// Join registers the host for the job: configuration, server, instance. It does not divide items; the next
// reconcile finds that the instances have changed. After an error Join may be called again with the same
// request: it finds that the host has joined. If operators want the host out of the job the error is a
// [StayOut].
//
// A host that joins an existing job alone needs one commit, which also adds its name to the list of members. If
// many did so at once, each would conflict with each. So a host that finds other hosts joining or dead, or no
// job, or whose commit was refused, joins in two steps: it announces itself by its detail node, which no other
// host writes, and creates its instance node when its name is among the members. The host that writes that list
// adds all announced names; the host with the lowest name does so at once.
func (m *Member) Join(ctx context.Context, j Joining) error {
	a := arrival{Member: m, Joining: j}
	return step.Perform(ctx, &carrier{m.Registry, &a}, "join", func(ctx context.Context, x *step.Exchange) error {
		for {
			if err := a.look(ctx, x); err != nil {
				return err
			}
			ops := a.next()
			if len(ops) == 0 {
				return a.out
			}
			_, err := x.Commit(ctx, ops...)
			if step.ConflictOf(err) != nil {
				a.crowd = true
				continue
			}
			if step.IsUnknown(err) {
				continue
			}
			if err == nil && a.carries {
				err = SwitchLate(ctx, x, a.Layout, a.known)
			}
			if err != nil || a.isLast(ops) {
				return err
			}
			if a.Applied != nil {
				a.Applied.stepped = a.Applied.stepped || len(a.change) > 0
			}
		}
	})
}

// carrier is the session of a joining host.
type carrier struct {
	registry.Center
	a *arrival
}

func (c *carrier) Commit(ctx context.Context, ops ...registry.Op) ([]registry.Result, error) {
	if c.a.carries && c.a.Recorded != nil {
		return c.a.Recorded(c.Center).Commit(ctx, ops...)
	}
	return c.Center.Commit(ctx, ops...)
}

// arrival is the state of a Join: what was read.
type arrival struct {
	*Member
	Joining
	findings
	root, server, membersNode registry.Node
	// wanted is what operators want once the host has joined; out, if set, says why it must stay out.
	wanted  tree.Wanted
	verdict verdict
	out     error
	// details are the hosts of ours with a live session, including announced ones.
	details                          []string
	instance, detail, runs, assigned registry.Node
	change                           []registry.Op // of the definition, and of servers by it
	applied                          Applied
	carries                          bool // the change switches servers whose state is known
	known                            []string
	crowd                            bool // a commit was refused
}

// look reads the nodes, and decides what the definition changes.
func (a *arrival) look(ctx context.Context, x *step.Exchange) error {
	l, id := a.Layout, a.Self.ID
	n, err := x.Read(ctx, append(wantedQueries(l), registry.Data(l.Root()), registry.Data(l.Server(a.Self.ServerIP)), registry.Data(l.Members()), registry.Children(l.Details()),
		registry.Data(l.Record(0)), registry.Data(l.Instance(id)), registry.Data(l.Detail(id)), registry.Data(l.RunsOf(id)), registry.Data(l.AssignmentOf(id)))...)
	if err != nil {
		return err
	}
	a.findings = findingsOf(n, l)
	a.root, a.server, a.membersNode = n.Data(l.Root()), n.Data(l.Server(a.Self.ServerIP)), n.Data(l.Members())
	a.details = n.Children(l.Details())
	a.instance, a.detail, a.runs, a.assigned = n.Data(l.Instance(id)), n.Data(l.Detail(id)), n.Data(l.RunsOf(id)), n.Data(l.AssignmentOf(id))
	if a.CheckRecord != nil { // every fire begins item 0, unless it is disabled
		if err := a.CheckRecord(n.Data(l.Record(0))); err != nil {
			return err
		}
	}

	mine := a.Definition.YAML()
	a.wanted, a.verdict, a.out = tree.ParseWanted(a.findings.wanted.Data), verdictJoin, nil
	if !a.joined() {
		a.verdict = a.decide(id, mine)
	}
	if a.out = a.stayOut(a.verdict, id); a.out != nil || a.verdict == verdictVanished {
		return nil
	}
	d := definitions{layout: l, config: a.config, last: a.definition, superseded: a.superseded}
	if a.verdict == verdictCreate {
		if a.wanted.Removed == nil && a.definition.Exists { // another program has removed it, and that is not recorded yet
			a.wanted = a.tombstone(tree.Word{})
		}
		a.wanted, d.before = a.wanted.Made(mine)
	}
	if a.verdict == verdictReturned {
		a.wanted = a.wanted.Back(true)
	}
	if a.change, a.applied, err = d.apply(a.Definition, a.Former, a.Accept); err != nil {
		return err
	}
	a.fillApplied()
	return a.heed(ctx, x)
}

// heed decides what the host writes to tree.Wanted, and which servers are enabled by it.
func (a *arrival) heed(ctx context.Context, x *step.Exchange) error {
	id := a.Self.ID
	a.wanted = a.wanted.Came(id)
	a.carries = a.config.Exists && slices.Contains(a.applied.Changed, "disabled")
	if a.carries {
		ops, words, known, err := carried(ctx, x, a.Layout, a.applied.Configuration.Disabled, a.Said, a.wanted.Disabled)
		if err != nil {
			return err
		}
		a.wanted.Disabled, a.known = words, known
		a.change = append(a.change, ops...)
		for _, op := range ops {
			if op.Path == a.Layout.Server(a.Self.ServerIP) {
				a.server.Data, a.server.Version = op.Data, op.Version+1 // it is set again below
			}
		}
	} else if a.config.Exists && !a.joined() && len(a.server.Data) == 0 {
		if err := a.ordered(ctx, x); err != nil {
			return err
		}
	}
	if !a.joined() && len(a.runs.Data) > 0 {
		return fmt.Errorf("instance id %s was used before: node %s holds unfinished runs; every start needs an id of its own", id, a.runs.Path)
	}
	return nil
}

// joined reports whether the host is in the job: an id is used by one session only.
func (a *arrival) joined() bool { return a.instance.Exists && a.config.Exists }

// isLast reports whether these ops complete the joining.
func (a *arrival) isLast(ops []registry.Op) bool {
	last := ops[len(ops)-1]
	return a.instance.Exists || (last.Kind == registry.OpEphemeral && last.Path == a.Layout.Instance(a.Self.ID))
}

// fillApplied reports what this step and those before have done with the definition.
func (a *arrival) fillApplied() {
	if a.Applied == nil {
		return
	}
	before := *a.Applied
	*a.Applied = a.applied
	if before.stepped { // what an earlier step has changed differs no longer
		a.Applied.stepped = true
		a.Applied.Created = before.Created || a.applied.Created
		a.Applied.Changed, a.Applied.Before = before.Changed, before.Before
		for _, field := range a.applied.Changed {
			if !slices.Contains(before.Changed, field) {
				a.Applied.Changed = append(a.Applied.Changed, field)
			}
		}
	}
}

// next returns the next commit of a joining host; none if it has joined, waits, or must stay out.
func (a *arrival) next() []registry.Op {
	if a.out != nil {
		return nil
	}
	if a.verdict == verdictVanished {
		return []registry.Op{step.Put(a.findings.wanted, a.tombstone(tree.Word{By: anotherProgram, Since: a.Said.Since}).Data())}
	}
	if a.joined() {
		if len(a.change) == 0 {
			return nil
		}
		return append(a.change, a.wish())
	}
	id, members := a.Self.ID, tree.ParseMembers(a.membersNode.Data)
	coming := slices.DeleteFunc(slices.Clone(a.details), func(other string) bool { return slices.Contains(members, other) })
	if !a.detail.Exists {
		dead := slices.ContainsFunc(members, func(other string) bool { return !slices.Contains(a.details, other) })
		others := slices.ContainsFunc(coming, func(other string) bool { return other != id })
		if alone := !a.crowd && !dead && !others && a.config.Exists; alone {
			return slices.Concat(a.ground(), a.enroll(tree.Members{id}), a.own(), a.appear())
		}
		if !a.config.Exists {
			a.change = nil // the host that writes the names creates the job
			return append([]registry.Op{registry.Ensure(a.Layout.Details())}, a.announce()...)
		}
		return slices.Concat(a.ground(), a.announce())
	}
	if slices.Contains(members, id) {
		return slices.Concat(a.ground(), a.own(), a.appear())
	}
	if rank := slices.Index(coming, id); rank > 0 && a.Wait != nil && a.Waited < joinPatience+time.Duration(rank)*joinStep {
		// In a crowd an answer takes time: check less and less often.
		*a.Wait = min(max(time.Duration(rank)*joinStep, a.Waited, leastJoinWait), joinPatience/2)
		return nil
	}
	return slices.Concat(a.ground(), a.enroll(append(coming, id)), a.own(), a.appear()) // its own announcement may be newer than the list
}

// A host waits for the host with the lowest name until joinPatience is over, and joinStep longer for each host
// before it; then it enrolls itself.
const (
	joinPatience  = 4 * time.Second
	joinStep      = 5 * time.Millisecond
	leastJoinWait = 20 * time.Millisecond
)

// ground returns the ops of the first commit that other hosts may also make: configuration, server, and the
// parent nodes of marks.
func (a *arrival) ground() []registry.Op {
	l := a.Layout
	var ops []registry.Op
	if a.config.Exists {
		// It must still exist: a host does not bring back a job that it found.
		ops = append(ops, registry.Check(l.Config(), a.config.Version))
	}
	if !a.detail.Exists || !a.membersNode.Exists || !a.config.Exists || a.crowd { // a refusal may be that of a missing parent
		ops = append(ops, skeleton(l)...)
	}
	if a.JobClass != "" && len(a.root.Data) == 0 {
		ops = append(ops, registry.Set(l.Root(), []byte(a.JobClass), registry.AnyVersion))
	}
	ops = append(ops, a.wish())
	ops = append(ops, a.change...)
	state := []byte(serverState(a.wanted.DisabledOn(a.Self.ServerIP, a.applied.Configuration.Disabled)))
	switch {
	case !a.server.Exists:
		// The answer to a set shows the registry's clock, and no later set is certain.
		ops = append(ops, registry.Create(l.Server(a.Self.ServerIP), nil), registry.Set(l.Server(a.Self.ServerIP), state, 0))
	case len(a.server.Data) == 0:
		ops = append(ops, registry.Set(l.Server(a.Self.ServerIP), state, a.server.Version))
	default: // as a Java host does: RetireServers then keeps it
		ops = append(ops, registry.Set(l.Server(a.Self.ServerIP), a.server.Data, a.server.Version))
	}
	if !a.config.Exists || a.verdict == verdictReturned {
		// An assignment of the job's earlier life must not count.
		ops = append(ops, registry.Set(l.Assignment(), nil, registry.AnyVersion))
	}
	return ops
}

// wish returns the op on the node of tree.Wanted: a check that it is as read, or the change that this host
// makes. The host that creates the job always sets it; see wantedQueries.
func (a *arrival) wish() registry.Op {
	node, data := a.findings.wanted, a.wanted.Data()
	if !node.Exists || a.verdict == verdictCreate || string(data) != string(node.Data) {
		return step.Put(node, data)
	}
	return registry.Check(node.Path, node.Version)
}

// announce returns the ops that announce this host.
func (a *arrival) announce() []registry.Op {
	return []registry.Op{registry.CreateEphemeral(a.Layout.Detail(a.Self.ID), a.Detail.Data())}
}

// enroll returns the ops that add names to the list of members.
func (a *arrival) enroll(ids []string) []registry.Op {
	version := a.membersNode.Version
	if !a.membersNode.Exists {
		version = 0
	}
	return []registry.Op{registry.Set(a.Layout.Members(), tree.ParseMembers(a.membersNode.Data).With(ids...).Data(), version)}
}

// own returns the ops that create the host's own nodes.
func (a *arrival) own() []registry.Op {
	l, id := a.Layout, a.Self.ID
	var ops []registry.Op
	for _, old := range []registry.Node{a.runs, a.assigned} {
		if old.Exists {
			ops = append(ops, registry.Delete(old.Path, old.Version))
		}
	}
	ops = append(ops, registry.Create(l.RunsOf(id), nil), registry.Create(l.AssignmentOf(id), nil))
	if !a.detail.Exists {
		ops = append(ops, a.announce()...)
	}
	return ops
}

// appear returns the ops that add the host to the list of instances, for Java hosts too. Its name must be among
// the members already: an instance that is not is a Java host.
func (a *arrival) appear() []registry.Op {
	return []registry.Op{registry.CreateEphemeral(a.Layout.Instance(a.Self.ID), a.Self.YAML())}
}

// skeleton returns the ops that create the parent nodes of marks. Only a joining host creates them, so that no
// mark brings a removed job back.
func skeleton(l tree.Layout) []registry.Op {
	var ops []registry.Op
	for _, p := range []string{
		l.Servers(), l.Instances(), l.Election(), l.ShardingFlags(), l.FailoverItems(), l.Sharding(), l.Triggers(),
		l.Term(), l.Members(), l.Epoch(), l.Assignment(), l.Details(), l.Runs(), l.Records(), l.Offsets(),
	} {
		ops = append(ops, registry.Ensure(p))
	}
	return ops
}

// Announce publishes the host's detail.
func (m *Member) Announce(ctx context.Context, d tree.HostDetail) error {
	return m.perform(ctx, "announce", func(ctx context.Context, x *step.Exchange) error {
		_, err := x.Commit(ctx, registry.Set(m.Layout.Detail(m.Self.ID), d.Data(), registry.AnyVersion)) // Repair recreates a missing one
		return err
	})
}

// Drain announces that the host is stopping and asks for a division without it.
func (m *Member) Drain(ctx context.Context, d tree.HostDetail) error {
	l, v := m.Layout, m.View
	d.State = tree.DetailDraining
	return m.perform(ctx, "drain", func(ctx context.Context, x *step.Exchange) error {
		for {
			n, err := x.Read(ctx, registry.Data(l.Detail(v.Self.ID)), registry.Data(l.Members()), registry.Data(l.Necessary()), registry.Data(l.ShardingFlags()))
			if err != nil {
				return err
			}
			var ops []registry.Op
			if detail := n.Data(l.Detail(v.Self.ID)); detail.Exists {
				ops = append(ops, registry.Set(detail.Path, d.Data(), registry.AnyVersion))
			}
			if members := n.Data(l.Members()); v.others() && members.Exists {
				// A division in progress has not seen this: make its commit conflict.
				ops = append(ops, registry.Set(members.Path, members.Data, members.Version))
			}
			if v.others() && !n.Data(l.Necessary()).Exists && n.Data(l.ShardingFlags()).Exists {
				ops = append(ops, registry.Create(l.Necessary(), nil))
			}
			if len(ops) == 0 {
				return nil
			}
			_, err = x.Commit(ctx, ops...)
			if step.ConflictOf(err) == nil {
				return err
			}
		}
	})
}

// others reports whether the job has an instance besides this one.
func (v View) others() bool {
	return slices.ContainsFunc(v.Instances, func(id string) bool { return id != v.Self.ID })
}

// Leave takes the host out of the job in good order. Unfinished runs stay recorded, and other hosts take them
// over.
func (m *Member) Leave(ctx context.Context) error {
	l, id := m.Layout, m.Self.ID
	return m.perform(ctx, "leave", func(ctx context.Context, x *step.Exchange) error {
		for {
			n, err := x.Read(ctx, registry.Data(l.Members()), registry.Data(l.Instance(id)), registry.Data(l.Leader()), registry.Data(l.Detail(id)),
				registry.Data(l.AssignmentOf(id)), registry.Data(l.RunsOf(id)), registry.Data(l.Trigger(id)), registry.Data(l.Necessary()), registry.Data(l.Config()), registry.Data(l.Term()), registry.Data(l.ShardingFlags()), registry.Children(l.Instances()),
				registry.Children(l.ElectionLatch()), registry.Children(l.FailoverLatch()))
			if err != nil {
				return err
			}
			ops := m.leaving(n)
			if len(ops) == 0 {
				return nil
			}
			_, err = x.Commit(ctx, ops...)
			if !step.Contested(err) {
				return err
			}
		}
	})
}

// leaving returns the ops by which this host leaves the job, from what Leave reads.
func (m *Member) leaving(n registry.Snapshot) []registry.Op {
	l, id := m.Layout, m.Self.ID
	var ops []registry.Op
	drop := func(paths ...string) {
		for _, p := range paths {
			if n.Data(p).Exists {
				ops = append(ops, registry.Delete(p, registry.AnyVersion))
			}
		}
	}
	leader, term := n.Data(l.Leader()), n.Data(l.Term())
	if string(leader.Data) == id && leader.Exists && leader.Version == 1 {
		if term.Exists { // no other host has been elected since
			ops = append(ops, registry.Check(term.Path, term.Version))
		}
		ops = append(ops, registry.Delete(leader.Path, 1)) // a Java host's has version 0
	}
	for _, queue := range []string{l.ElectionLatch(), l.FailoverLatch()} {
		mine, _ := latch.Place(n.Children(queue), id)
		ops = append(ops, latch.Leaving(queue, mine)...)
	}
	drop(l.Instance(id), l.Detail(id))

	// Known runs, and those of a begin whose outcome is unknown.
	own, members := n.Data(l.RunsOf(id)), n.Data(l.Members())
	runs, err := tree.ParseRuns(own.Data)
	if err != nil || len(runs.Runs) == 0 { // as bury would
		drop(l.AssignmentOf(id), l.RunsOf(id))
		if left := tree.ParseMembers(members.Data).Without(id); members.Exists {
			ops = append(ops, registry.Set(l.Members(), left.Data(), members.Version))
		}
	} else if !runs.Left { // leaving is not dying of them
		runs.Left = true
		ops = append(ops, registry.Set(own.Path, runs.Data(), own.Version))
	}
	others := slices.ContainsFunc(n.Children(l.Instances()), func(other string) bool { return other != id })
	divides := others && n.Data(l.Config()).Exists && n.Data(l.ShardingFlags()).Exists
	if divides && !n.Data(l.Necessary()).Exists {
		ops = append(ops, registry.Create(l.Necessary(), nil))
	}
	// The next division notes which items owe its round, and deletes it. The last host that an operator stops takes it along.
	if m.View.JavaLed() || !(divides || n.Data(l.Instance(id)).Exists) {
		drop(l.Trigger(id))
	}
	return ops
}

// Elect makes this host the leader if there is none, if the leader is a host of ours that an operator has
// stopped, or if an external edit made or set the leader node. If several hosts try, one succeeds; for the
// others that is no error. A host that must wait for its turn in ElasticJob's latch has line.Behind set
// afterwards, and calls Elect again when that node is gone.
//
// If a Java leader has divided the items since one of ours did, the new leader reshards them; until then no
// host of ours begins by the old division.
func (m *Member) Elect(ctx context.Context) error {
	return m.perform(ctx, "elect", func(ctx context.Context, x *step.Exchange) error { return elect(ctx, x, m.View, &m.Election) })
}

func elect(ctx context.Context, x *step.Exchange, v View, line *latch.Line) error {
	l, queue := v.Layout, v.Layout.ElectionLatch()
	for first := 0; ; {
		turn, err := latch.Stand(ctx, x, l, v.Self.ID, queue, line, registry.Data(l.Leader()), registry.Data(l.Term()), registry.Data(l.Epoch()), registry.Data(l.Assignment()), registry.Data(l.ItemInstance(first)))
		if next, ok := v.nextFirst(first, err); ok {
			first = next
			continue
		}
		if err != nil || turn == nil {
			return err
		}
		ops, vacant := v.election(turn, first)
		if !vacant {
			return latch.Leave(ctx, x, v.Self.ID, queue, line)
		}
		_, err = x.Commit(ctx, ops...)
		if err == nil {
			*line = latch.Line{}
			return nil
		}
		conflict := step.ConflictOf(err)
		if conflict == nil {
			return err
		}
		path := conflict.Op.Path
		if (path == l.Term() && conflict.Reason == registry.ReasonAbsent) || (path == l.Leader() && conflict.Reason == registry.ReasonParent) {
			return conflict
		}
		if path == l.Config() || path == l.Leader() || path == l.Term() || path == l.Instance(v.Leader) {
			return latch.Leave(ctx, x, v.Self.ID, queue, line) // another host has been elected
		}
		// The place in line, or a division, has changed.
	}
}

// election returns the ops that make this host the leader; vacant is false if the present leader stays. lowest
// is the lowest item whose instance node can be read.
func (v View) election(t *latch.Turn, lowest int) (ops []registry.Op, vacant bool) {
	l, n := v.Layout, t.Nodes
	leader, term, division, first := n.Data(l.Leader()), n.Data(l.Term()), n.Data(l.Assignment()), n.Data(l.ItemInstance(lowest))
	ops = slices.Clone(t.Leave)
	if leader.Exists {
		if v.invalidLeaderNode(leader) {
			if v.Leader != "" || !term.Exists {
				return nil, false
			}
		} else {
			if string(leader.Data) != v.Leader || leader.Version != 1 || v.Leader == v.Self.ID || !term.Exists {
				return nil, false
			}
			ops = append(ops, registry.Absent(l.Instance(v.Leader)))
		}
		ops = append(ops, registry.Check(term.Path, term.Version), registry.Delete(leader.Path, leader.Version))
	}
	ops = append(ops, registry.Check(l.Config(), registry.AnyVersion),
		registry.CreateEphemeral(l.Leader(), []byte(v.Self.ID)),
		registry.Set(l.Leader(), []byte(v.Self.ID), 0), // version 1: one of ours
		registry.Set(l.Term(), []byte(v.Self.ID), registry.AnyVersion))
	d := tree.ParseDivision(division.Data)
	if d.Java || len(d.Members) == 0 { // it is resharded, or nothing is owned
		return ops, true
	}
	if byJava(n.Data(l.Epoch()), first) || !first.Exists {
		d.Java = true // as far as the new leader knows
		return append(ops, registry.Set(division.Path, d.Data(), division.Version)), true
	}
	return append(ops, registry.Check(first.Path, first.Version)), true // and Java has not divided since
}

// Resign gives up leadership, for a leader whose server is disabled.
func (m *Member) Resign(ctx context.Context) error {
	l, v := m.Layout, m.View
	return m.perform(ctx, "resign", func(ctx context.Context, x *step.Exchange) error {
		n, err := x.Read(ctx, registry.Data(l.Leader()), registry.Data(l.Term()))
		if err != nil {
			return err
		}
		leader, term := n.Data(l.Leader()), n.Data(l.Term())
		if string(leader.Data) != v.Self.ID || !leader.Exists || leader.Version != 1 {
			return nil
		}
		// The leader node's version is the same for all hosts of ours, and differs for Java. The term's version
		// proves that it is still this host's.
		_, err = x.Commit(ctx, registry.Check(term.Path, term.Version), registry.Delete(leader.Path, 1))
		return step.UnlessConflict(err)
	})
}

// AskForSharding raises the flag that asks for a division.
func (m *Member) AskForSharding(ctx context.Context) error {
	return m.perform(ctx, "ask for sharding", func(ctx context.Context, x *step.Exchange) error { return AskForSharding(ctx, x, m.View) })
}

// AskForSharding raises the sharding flag within another step. A conflict is no error: the flag exists, or the
// job was removed.
func AskForSharding(ctx context.Context, x *step.Exchange, v View) error {
	_, err := x.Commit(ctx, registry.Check(v.Layout.Config(), registry.AnyVersion), registry.Create(v.Layout.Necessary(), nil))
	return step.UnlessConflict(err)
}

// CanLead reports whether this host should stand for election: there is no leader, or the leader is a host of
// ours that has left the job, and this host has joined and its server is enabled. A Java host becomes leader
// before it is in the list of instances, and gives up leadership by itself.
func (v View) CanLead() bool {
	vacant := v.Leader == "" || (v.OurTerm && !slices.Contains(v.Instances, v.Leader))
	return v.Exists && vacant && v.Enabled && v.Joined() && slices.Contains(v.Members, v.Self.ID)
}
