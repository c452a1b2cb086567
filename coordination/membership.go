package coordination

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/wasmjob/wasmjob/coordination/jobconfig"
	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/step"
)

// HostDetail is what a host of ours publishes about itself for a job:
// node instances/{id} of our tree, ephemeral.
type HostDetail struct {
	// State is READY or DRAINING as it is written. RUNNING is what a reader
	// makes of READY while the host's list of runs is not empty.
	State string `json:"state"`
	// Digest is the module that the host runs for the job.
	Digest string `json:"digest,omitempty"`
	// TimeZone is the zone in which the host reads a schedule without one.
	TimeZone string `json:"timeZone,omitempty"`
	// Admin is the address of the host's admin interface.
	Admin string `json:"admin,omitempty"`
	// Succeeded and Failed count the items that the host has completed for the
	// job in this life. They are written now and then.
	Succeeded int64 `json:"succeeded,omitempty"`
	Failed    int64 `json:"failed,omitempty"`
}

// The states of a host.
const (
	DetailReady    = "READY"
	DetailRunning  = "RUNNING"
	DetailDraining = "DRAINING"
)

func (d HostDetail) data() []byte {
	b, err := json.Marshal(d)
	if err != nil { // strings always marshal
		return nil
	}
	return b
}

func parseDetail(data []byte) HostDetail {
	var d HostDetail
	if json.Unmarshal(data, &d) != nil {
		return HostDetail{}
	}
	return d
}

// Joining is a host's wish to take part in a job.
type Joining struct {
	// Definition is the configuration as the definition file has it.
	Definition jobconfig.Configuration
	// Former is the definition that this host brought before, as YAML; nil for
	// none. A superseded definition is applied only if Former is the one that it
	// replaces: then somebody has changed the file back.
	Former []byte
	// JobClass is written to the root node if that is blank.
	JobClass string
	Detail   HostDetail
	// Accept refuses a configuration that asks for more than this host
	// allows; nil refuses none. A host does not join a job whose configuration
	// it refuses.
	Accept func(jobconfig.Configuration) error
	// Applied is filled in: what the registry holds afterwards, and which
	// fields of it the definition changed, empty if none.
	Applied *Applied
	// Wait, if not nil, is set when others who come at the same time are to
	// write this host's name down first: it has not joined then. Call Join again
	// after so long, with the same Applied and with Waited raised by it.
	Wait   *time.Duration
	Waited time.Duration
}

// Applied says what became of a definition.
type Applied struct {
	Configuration jobconfig.Configuration
	// Created is true if the job was not in the registry before.
	Created bool
	// Changed are the fields that the definition file changed; Kept are those
	// where the registry differs from the file and stays.
	Changed, Kept []string
	// Superseded is set when the definition was applied to the job before, has
	// been replaced by a newer one since, and differs from what is in force:
	// nothing of it was applied, and the host's file is out of date.
	Superseded bool
	// Base is what the host has to add to all transaction numbers of the job.
	Base int64

	stepped bool // a step of a joining that is not its last took effect
}

// Join registers the host for the job: configuration, server, instance. It
// does not divide items; the next look at the view finds that the instances
// have changed. After an error the same wish may be put again: a host that has
// joined nevertheless is found to have.
//
// A host that comes alone to a job that is there joins in one commit, which
// writes its name into the list of members. Of many that do so at once each
// would be refused by each. So a host that finds others on the way or dead, or
// no job, or that was refused, joins in two steps: it announces itself by its
// detail node, which no other host writes, and makes its instance node when its
// name is among the members. The host that writes that list adds the names of all who
// are announced; the one with the lowest name does so at once.
func (m *Member) Join(ctx context.Context, j Joining) error {
	return m.perform(ctx, "join", func(ctx context.Context, x *step.Exchange) error {
		a := arrival{Member: m, Joining: j}
		for {
			if err := a.look(ctx, x); err != nil {
				return err
			}
			ops := a.next()
			if len(ops) == 0 {
				return nil
			}
			_, err := x.Commit(ctx, ops...)
			if step.ConflictOf(err) != nil {
				a.crowd = true
				continue
			}
			if step.IsUnknown(err) {
				continue
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

// arrival is a Joining on its way: what was read.
type arrival struct {
	*Member
	Joining
	root, config, server, membersNode registry.Node
	// details are the hosts of ours whose session lives, and those that have
	// announced themselves.
	details                          []string
	instance, detail, runs, assigned registry.Node
	change                           []registry.Op // of the definition
	applied                          Applied
	crowd                            bool // a commit was refused
}

// look reads what is there, and decides what the definition changes.
func (a *arrival) look(ctx context.Context, x *step.Exchange) error {
	l, id := a.Layout, a.Self.ID
	n, err := x.Read(ctx, registry.Data(l.root), registry.Data(l.config()), registry.Data(l.definition()), registry.Data(l.server(a.Self.ServerIP)), registry.Data(l.members()), registry.Children(l.details()), registry.Data(l.superseded()),
		registry.Data(l.adopted()), registry.Data(l.record(0)), registry.Data(l.instance(id)), registry.Data(l.detail(id)), registry.Data(l.runsOf(id)), registry.Data(l.assignmentOf(id)))
	if err != nil {
		return err
	}
	a.root, a.config, a.server, a.membersNode = n.Data(l.root), n.Data(l.config()), n.Data(l.server(a.Self.ServerIP)), n.Data(l.members())
	a.details = n.Children(l.details())
	a.instance, a.detail, a.runs, a.assigned = n.Data(l.instance(id)), n.Data(l.detail(id)), n.Data(l.runsOf(id)), n.Data(l.assignmentOf(id))
	base := parseAdopted(n.Data(l.adopted()).Data).Base
	if err := copied(n.Data(l.record(0)), base); err != nil { // every fire begins item 0, unless that is disabled
		return err
	}

	d := definitions{layout: l, config: a.config, last: n.Data(l.definition()), superseded: n.Data(l.superseded())}
	if a.change, a.applied, err = d.apply(a.Definition, a.Former, a.Accept); err != nil {
		return err
	}
	a.applied.Base = base
	a.fillApplied()
	if !a.joined() && len(a.runs.Data) > 0 {
		return fmt.Errorf("instance id %s was used before: node %s holds unfinished runs; every start needs an id of its own", id, a.runs.Path)
	}
	return nil
}

// joined reports whether the host is in the job: an id is used by one session only.
func (a *arrival) joined() bool { return a.instance.Exists && a.config.Exists }

// isLast reports whether the host has joined with these ops.
func (a *arrival) isLast(ops []registry.Op) bool {
	last := ops[len(ops)-1]
	return a.instance.Exists || (last.Kind == registry.OpEphemeral && last.Path == a.Layout.instance(a.Self.ID))
}

// fillApplied says what has become of the definition, by this step and those before.
func (a *arrival) fillApplied() {
	if a.Applied == nil {
		return
	}
	before := *a.Applied
	*a.Applied = a.applied
	if before.stepped { // what an earlier step has changed is no change any more
		a.Applied.stepped = true
		a.Applied.Created = before.Created || a.applied.Created
		a.Applied.Changed = before.Changed
		for _, field := range a.applied.Changed {
			if !slices.Contains(before.Changed, field) {
				a.Applied.Changed = append(a.Applied.Changed, field)
			}
		}
	}
}

// next is the next commit of a host that joins; none if it has joined, or waits.
func (a *arrival) next() []registry.Op {
	if a.joined() {
		return a.change
	}
	id, members := a.Self.ID, parseMembers(a.membersNode.Data)
	coming := slices.DeleteFunc(slices.Clone(a.details), func(other string) bool { return slices.Contains(members, other) })
	if !a.detail.Exists {
		dead := slices.ContainsFunc(members, func(other string) bool { return !slices.Contains(a.details, other) })
		others := slices.ContainsFunc(coming, func(other string) bool { return other != id })
		if alone := !a.crowd && !dead && !others && a.config.Exists; alone {
			return slices.Concat(a.ground(), a.enroll(Members{id}), a.own(), a.appear())
		}
		if !a.config.Exists {
			a.change = nil // who writes the names makes the job
			return append([]registry.Op{registry.Ensure(a.Layout.details())}, a.announce()...)
		}
		return slices.Concat(a.ground(), a.announce())
	}
	if slices.Contains(members, id) {
		return slices.Concat(a.ground(), a.own(), a.appear())
	}
	if rank := slices.Index(coming, id); rank > 0 && a.Wait != nil && a.Waited < joinPatience+time.Duration(rank)*joinStep {
		// In a crowd an answer may take its time: it looks again, less and less often.
		*a.Wait = min(max(time.Duration(rank)*joinStep, a.Waited, leastJoinWait), joinPatience/2)
		return nil
	}
	return slices.Concat(a.ground(), a.enroll(append(coming, id)), a.own(), a.appear()) // its own announcement may be younger than the list
}

// A host waits for the one with the lowest name until joinPatience is over, and
// for joinStep more for each of those before it; then it does not rely on them.
const (
	joinPatience  = 4 * time.Second
	joinStep      = 5 * time.Millisecond
	leastJoinWait = 20 * time.Millisecond
)

// ground is what the first commit makes that others make too: configuration,
// server, and the nodes below which marks are made.
func (a *arrival) ground() []registry.Op {
	l := a.Layout
	var ops []registry.Op
	if a.config.Exists {
		// It must not be removed meanwhile: a host does not bring back
		// a job that it found.
		ops = append(ops, registry.Check(l.config(), a.config.Version))
	}
	if !a.detail.Exists || !a.membersNode.Exists || !a.config.Exists {
		ops = append(ops, l.skeleton()...)
	}
	if a.JobClass != "" && len(a.root.Data) == 0 {
		ops = append(ops, registry.Set(l.root, []byte(a.JobClass), registry.AnyVersion))
	}
	ops = append(ops, a.change...)
	state := []byte(serverEnabled)
	if a.applied.Configuration.Disabled {
		state = []byte(serverDisabled)
	}
	switch {
	case !a.server.Exists:
		// The answer to a set shows the registry's clock, and no other is sure to follow.
		ops = append(ops, registry.Create(l.server(a.Self.ServerIP), nil), registry.Set(l.server(a.Self.ServerIP), state, 0))
	case len(a.server.Data) == 0:
		ops = append(ops, registry.Set(l.server(a.Self.ServerIP), state, a.server.Version))
	default: // as a Java host does: RetireServers then leaves it
		ops = append(ops, registry.Set(l.server(a.Self.ServerIP), a.server.Data, a.server.Version))
	}
	if !a.config.Exists {
		// What is left of an earlier life of the job divides nothing.
		ops = append(ops, registry.Set(l.assignment(), nil, registry.AnyVersion))
	}
	return ops
}

// announce says that this host is on its way.
func (a *arrival) announce() []registry.Op {
	return []registry.Op{registry.CreateEphemeral(a.Layout.detail(a.Self.ID), a.Detail.data())}
}

// enroll writes names into the list of members.
func (a *arrival) enroll(ids []string) []registry.Op {
	version := a.membersNode.Version
	if !a.membersNode.Exists {
		version = 0
	}
	return []registry.Op{registry.Set(a.Layout.members(), parseMembers(a.membersNode.Data).with(ids...).data(), version)}
}

// own makes the host's own nodes.
func (a *arrival) own() []registry.Op {
	l, id := a.Layout, a.Self.ID
	var ops []registry.Op
	for _, old := range []registry.Node{a.runs, a.assigned} {
		if old.Exists {
			ops = append(ops, registry.Delete(old.Path, old.Version))
		}
	}
	ops = append(ops, registry.Create(l.runsOf(id), nil), registry.Create(l.assignmentOf(id), nil))
	if !a.detail.Exists {
		ops = append(ops, a.announce()...)
	}
	return ops
}

// appear puts the host into the list of instances, for Java hosts too. Its name
// is among the members then: an instance that is not is a Java host.
func (a *arrival) appear() []registry.Op {
	return []registry.Op{registry.CreateEphemeral(a.Layout.instance(a.Self.ID), a.Self.yaml())}
}

// skeleton are the nodes below which marks are made. They are only ever made
// when a host joins, so that no mark brings a removed job back.
func (l Layout) skeleton() []registry.Op {
	var ops []registry.Op
	for _, p := range []string{
		l.servers(), l.instances(), l.election(), l.shardingFlags(), l.failoverItems(), l.sharding(), l.triggers(),
		l.term(), l.members(), l.epoch(), l.assignment(), l.details(), l.runs(), l.records(), l.offsets(),
	} {
		ops = append(ops, registry.Ensure(p))
	}
	return ops
}

// definitions are the nodes that a definition file is applied to: the
// configuration in force, the definition as it was last applied, and the list of
// those before it.
type definitions struct {
	layout                   Layout
	config, last, superseded registry.Node
}

// apply decides what the registry's configuration becomes: a field that was
// changed in the file since it was last applied is applied, one that was changed
// in the registry only stays. former is as in Joining.
func (d definitions) apply(mine jobconfig.Configuration, former []byte, accept func(jobconfig.Configuration) error) ([]registry.Op, Applied, error) {
	l, yaml := d.layout, mine.YAML()
	if accept == nil {
		accept = func(jobconfig.Configuration) error { return nil }
	}
	if !d.config.Exists {
		if beyond := accept(mine); beyond != nil {
			return nil, Applied{}, fmt.Errorf("the job's definition is refused: %w", beyond)
		}
		ops := []registry.Op{registry.Create(l.config(), yaml), step.Put(d.last, yaml)}
		if d.superseded.Exists { // by what was applied to the job before it was removed
			ops = append(ops, registry.Set(d.superseded.Path, nil, d.superseded.Version))
		}
		return ops, Applied{Configuration: mine, Created: true}, nil
	}
	list := parseSuperseded(d.superseded.Data)
	outdated := d.last.Exists && string(d.last.Data) != string(yaml) && string(d.last.Data) != string(former) && list.contains(yaml)
	stays := "overwrite is false"
	if outdated && mine.Overwrite {
		mine.Overwrite, stays = false, "the definition file was superseded by a newer one"
	}
	theirs, _, err := jobconfig.Parse(d.config.Data)
	if err != nil {
		if !mine.Overwrite {
			return nil, Applied{}, fmt.Errorf("the job's configuration in the registry (node %s) cannot be read, and %s: %w", l.config(), stays, err)
		}
		theirs = jobconfig.Configuration{JobName: mine.JobName}
	}
	base, _, baseErr := jobconfig.Parse(d.last.Data)
	hasBase := d.last.Exists && baseErr == nil && !outdated
	result, changed, kept := jobconfig.Merge(base, hasBase, mine, theirs)
	if outdated {
		result = theirs
	}
	invalid := result.Validate()
	if invalid == nil {
		invalid = accept(result)
	}
	if invalid != nil {
		return nil, Applied{}, fmt.Errorf("the job's configuration in the registry (node %s), with what the definition changes in it, is refused: %w", l.config(), invalid)
	}
	if outdated {
		differs := slices.Sorted(slices.Values(slices.Concat(kept, changed)))
		return nil, Applied{Configuration: result, Kept: differs, Superseded: len(differs) > 0}, nil
	}
	applied := Applied{Configuration: result, Changed: changed, Kept: kept}
	var ops []registry.Op
	if (string(result.YAML()) != string(d.config.Data) && len(changed) > 0) || err != nil {
		ops = append(ops, registry.Set(l.config(), result.YAML(), d.config.Version))
	}
	switch {
	case !d.last.Exists:
		ops = append(ops, step.Put(d.last, yaml))
	case string(d.last.Data) != string(yaml):
		ops = append(ops, step.Put(d.last, yaml), step.Put(d.superseded, list.replace(d.last.Data, yaml).data()))
	}
	return ops, applied, nil
}

// ApplyDefinition brings a changed definition file to the registry. former and accept
// are as in Joining. It returns ErrRemoved for a job that is not in the registry.
func ApplyDefinition(ctx context.Context, r registry.Center, l Layout, mine jobconfig.Configuration, former []byte, accept func(jobconfig.Configuration) error) (applied Applied, err error) {
	err = step.Perform(ctx, r, "apply definition", func(ctx context.Context, x *step.Exchange) error {
		for {
			n, err := x.Read(ctx, registry.Data(l.config()), registry.Data(l.definition()), registry.Data(l.superseded()))
			if err != nil {
				return err
			}
			d := definitions{layout: l, config: n.Data(l.config()), last: n.Data(l.definition()), superseded: n.Data(l.superseded())}
			if !d.config.Exists {
				return ErrRemoved
			}
			var ops []registry.Op
			if ops, applied, err = d.apply(mine, former, accept); err != nil || len(ops) == 0 {
				return err
			}
			_, err = x.Commit(ctx, ops...)
			if step.ConflictOf(err) == nil {
				return err
			}
		}
	})
	return applied, err
}

// ErrRemoved says that the job is not in the registry any more. It is not brought back
// by a host that is running; see docs/operating.md.
var ErrRemoved = errors.New("the job was removed from the registry")

// Announce publishes the host's detail.
func (m *Member) Announce(ctx context.Context, d HostDetail) error {
	return m.perform(ctx, "announce", func(ctx context.Context, x *step.Exchange) error {
		_, err := x.Commit(ctx, registry.Set(m.detail(m.Self.ID), d.data(), registry.AnyVersion)) // Repair recreates it if it is gone
		return err
	})
}

// Drain announces that the host is stopping and asks for a division of the
// items without it.
func (m *Member) Drain(ctx context.Context, d HostDetail) error {
	l, v := m.Layout, m.View
	d.State = DetailDraining
	return m.perform(ctx, "drain", func(ctx context.Context, x *step.Exchange) error {
		for {
			n, err := x.Read(ctx, registry.Data(l.detail(v.Self.ID)), registry.Data(l.members()), registry.Data(l.necessary()), registry.Data(l.shardingFlags()))
			if err != nil {
				return err
			}
			var ops []registry.Op
			if detail := n.Data(l.detail(v.Self.ID)); detail.Exists {
				ops = append(ops, registry.Set(detail.Path, d.data(), registry.AnyVersion))
			}
			if members := n.Data(l.members()); v.others() && members.Exists {
				// A division that is being made has not seen this: the leader
				// has to start over.
				ops = append(ops, registry.Set(members.Path, members.Data, members.Version))
			}
			if v.others() && !n.Data(l.necessary()).Exists && n.Data(l.shardingFlags()).Exists {
				ops = append(ops, registry.Create(l.necessary(), nil))
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

// Leave takes the host out of the job in good order. If unfinished is not
// empty, or the registry knows of runs of this host, those items stay recorded
// as begun by a host that is gone, and failover is owed for them.
func (m *Member) Leave(ctx context.Context, unfinished Items) error {
	l, id := m.Layout, m.Self.ID
	return m.perform(ctx, "leave", func(ctx context.Context, x *step.Exchange) error {
		for {
			n, err := x.Read(ctx, registry.Data(l.members()), registry.Data(l.instance(id)), registry.Data(l.leader()), registry.Data(l.detail(id)),
				registry.Data(l.assignmentOf(id)), registry.Data(l.runsOf(id)), registry.Data(l.trigger(id)), registry.Data(l.necessary()), registry.Data(l.config()), registry.Data(l.term()), registry.Data(l.shardingFlags()), registry.Children(l.instances()),
				registry.Children(l.electionLatch()), registry.Children(l.failoverLatch()), registry.Data(l.kill(id)))
			if err != nil {
				return err
			}
			ops := m.leaving(n, unfinished)
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

// leaving are the ops by which this host leaves the job, from what Leave reads.
func (m *Member) leaving(n registry.Snapshot, unfinished Items) []registry.Op {
	l, id := m.Layout, m.Self.ID
	var ops []registry.Op
	drop := func(paths ...string) {
		for _, p := range paths {
			if n.Data(p).Exists {
				ops = append(ops, registry.Delete(p, registry.AnyVersion))
			}
		}
	}
	leader, term := n.Data(l.leader()), n.Data(l.term())
	if string(leader.Data) == id && leader.Exists && leader.Version == 1 {
		if term.Exists { // no other host was elected since
			ops = append(ops, registry.Check(term.Path, term.Version))
		}
		ops = append(ops, registry.Delete(leader.Path, 1)) // a Java host's has version 0
	}
	for _, latch := range []string{l.electionLatch(), l.failoverLatch()} {
		mine, _ := placeInLine(n.Children(latch), id)
		ops = append(ops, leaving(latch, mine)...)
	}
	drop(l.instance(id), l.detail(id))

	// The registry may know of runs that the host does not know: those of a begin
	// whose outcome is unknown.
	own, members := n.Data(l.runsOf(id)), n.Data(l.members())
	runs, err := parseRuns(own.Data)
	if len(unfinished) == 0 && len(own.Data) == 0 {
		drop(l.assignmentOf(id), l.runsOf(id), l.kill(id))
		if left := parseMembers(members.Data).without(id); members.Exists {
			ops = append(ops, registry.Set(l.members(), left.data(), members.Version))
		}
	} else if err == nil && len(runs.Runs) > 0 && !runs.Left { // it does not die of them
		runs.Left = true
		ops = append(ops, registry.Set(own.Path, runs.data(), own.Version))
	}
	drop(l.trigger(id))
	others := slices.ContainsFunc(n.Children(l.instances()), func(other string) bool { return other != id })
	if others && !n.Data(l.necessary()).Exists && n.Data(l.config()).Exists && n.Data(l.shardingFlags()).Exists {
		ops = append(ops, registry.Create(l.necessary(), nil))
	}
	return ops
}

// Elect makes this host the leader if there is none, or if the one there is
// is a host of ours that was stopped by an operator and only finishes what it
// runs, or if an external edit has made or set the leader node. Of several that try, one
// succeeds; the others find out and that is no error. A host that has to wait
// for its turn in ElasticJob's latch has line.Behind set afterwards, and calls
// Elect again when that is gone.
//
// If a Java leader has divided the items since one of ours did, the new leader
// reshards them: until then no host of ours begins by the old division.
func (m *Member) Elect(ctx context.Context) error {
	return m.perform(ctx, "elect", func(ctx context.Context, x *step.Exchange) error { return elect(ctx, x, m.View, &m.Election) })
}

func elect(ctx context.Context, x *step.Exchange, v View, line *Line) error {
	l, latch := v.Layout, v.electionLatch()
	for {
		turn, err := standInLine(ctx, x, l, v.Self.ID, latch, line, registry.Data(l.leader()), registry.Data(l.term()), registry.Data(l.epoch()), registry.Data(l.assignment()), registry.Data(l.itemInstance(0)))
		if err != nil || turn == nil {
			return err
		}
		ops, vacant := v.election(turn)
		if !vacant {
			return leaveLine(ctx, x, v.Self.ID, latch, line)
		}
		_, err = x.Commit(ctx, ops...)
		if err == nil {
			*line = Line{}
			return nil
		}
		conflict := step.ConflictOf(err)
		if conflict == nil {
			return err
		}
		path := conflict.Op.Path
		if (path == l.term() && conflict.Reason == registry.ReasonAbsent) || (path == l.leader() && conflict.Reason == registry.ReasonParent) {
			return conflict
		}
		if path == l.config() || path == l.leader() || path == l.term() || path == l.instance(v.Leader) {
			return leaveLine(ctx, x, v.Self.ID, latch, line) // somebody has been elected
		}
		// The place in line, or a division, has changed.
	}
}

// election are the ops that make this host the leader; vacant is false if there is
// one that stays.
func (v View) election(t *turn) (ops []registry.Op, vacant bool) {
	l, n := v.Layout, t.nodes
	leader, term, division, first := n.Data(l.leader()), n.Data(l.term()), n.Data(l.assignment()), n.Data(l.itemInstance(0))
	ops = slices.Clone(t.leave)
	if leader.Exists {
		if v.invalidLeaderNode(leader) {
			if v.Leader != "" || !term.Exists {
				return nil, false
			}
		} else {
			if string(leader.Data) != v.Leader || leader.Version != 1 || v.Leader == v.Self.ID || !term.Exists {
				return nil, false
			}
			ops = append(ops, registry.Absent(l.instance(v.Leader)))
		}
		ops = append(ops, registry.Check(term.Path, term.Version), registry.Delete(leader.Path, leader.Version))
	}
	ops = append(ops, registry.Check(l.config(), registry.AnyVersion),
		registry.CreateEphemeral(l.leader(), []byte(v.Self.ID)),
		registry.Set(l.leader(), []byte(v.Self.ID), 0), // version 1: one of ours
		registry.Set(l.term(), []byte(v.Self.ID), registry.AnyVersion))
	d := parseDivision(division.Data)
	if d.Java || len(d.Members) == 0 { // it is resharded, or nothing is owned
		return ops, true
	}
	if byJava(n.Data(l.epoch()), first) || !first.Exists {
		d.Java = true // as far as the new leader can know
		return append(ops, registry.Set(division.Path, d.data(), division.Version)), true
	}
	return append(ops, registry.Check(first.Path, first.Version)), true // and Java has not divided until now
}

// Resign gives up leadership, for a leader whose server is disabled.
func (m *Member) Resign(ctx context.Context) error {
	l, v := m.Layout, m.View
	return m.perform(ctx, "resign", func(ctx context.Context, x *step.Exchange) error {
		n, err := x.Read(ctx, registry.Data(l.leader()), registry.Data(l.term()))
		if err != nil {
			return err
		}
		leader, term := n.Data(l.leader()), n.Data(l.term())
		if string(leader.Data) != v.Self.ID || !leader.Exists || leader.Version != 1 {
			return nil
		}
		// The leader node's version is the same for all of ours, and another
		// one for Java. The term's proves that it is still this host's.
		_, err = x.Commit(ctx, registry.Check(term.Path, term.Version), registry.Delete(leader.Path, 1))
		return step.UnlessConflict(err)
	})
}

// AskForSharding sets the flag that the items must be resharded.
func (m *Member) AskForSharding(ctx context.Context) error {
	return m.perform(ctx, "ask for sharding", func(ctx context.Context, x *step.Exchange) error { return askForSharding(ctx, x, m.View) })
}

func askForSharding(ctx context.Context, x *step.Exchange, v View) error {
	_, err := x.Commit(ctx, registry.Check(v.config(), registry.AnyVersion), registry.Create(v.necessary(), nil))
	return step.UnlessConflict(err)
}

// CanLead reports whether this host should stand for election: there is no
// leader, or a host of ours is leader that is not in the job any more, and this
// host has joined and its server is enabled. A Java host becomes leader before
// it is in the list of instances, and gives up leadership by itself.
func (v View) CanLead() bool {
	vacant := v.Leader == "" || (v.OurTerm && !slices.Contains(v.Instances, v.Leader))
	return v.Exists && vacant && v.Enabled && v.Joined() && slices.Contains(v.Members, v.Self.ID)
}
