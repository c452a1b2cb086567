package coordination

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
)

// HostDetail is what a host of ours tells the others about itself for a job:
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
	Layout Layout
	Self   JobInstance
	// Definition is the configuration as the definition file has it.
	Definition JobConfiguration
	// JobClass is written to the root node if that is blank.
	JobClass string
	Detail   HostDetail
	// Applied is filled in: what the registry holds afterwards, and which
	// fields of it the definition changed, empty if none.
	Applied *Applied
}

// Applied tells what became of a definition.
type Applied struct {
	Configuration JobConfiguration
	// Created is true if the job was not in the registry before.
	Created bool
	// Changed are the fields that the definition file changed; Kept are those
	// where the registry differs from the file and stays.
	Changed, Kept []string
}

// Join registers the host for the job: configuration, server, instance. It
// does not divide items; the next look at the view finds that the instances
// have changed. After an error the same wish may be put again: a host that has
// joined nevertheless is found to have.
func Join(j Joining) Move {
	l, id := j.Layout, j.Self.ID
	return Move{
		Name: "join",
		Read: []Query{Data(l.root), Data(l.config()), Data(l.definition()), Data(l.server(j.Self.ServerIP)), Data(l.members()),
			Data(l.instance(id)), Data(l.runsOf(id)), Data(l.assignmentOf(id)), Data(l.detail(id))},
		Then: func(nodes []Node, _ []Result) (Move, error) {
			root, config, definition, server, members := nodes[0], nodes[1], nodes[2], nodes[3], nodes[4]
			instance, runs := nodes[5], nodes[6]
			change, applied, err := applyDefinition(l, j.Definition, config, definition)
			if err != nil {
				return Move{}, err
			}
			if j.Applied != nil {
				*j.Applied = applied
			}
			again := func(*OpError) (Move, error) { return Join(j), nil }
			if instance.Exists && config.Exists {
				// It has joined: an id is used by one session only.
				if len(change) == 0 {
					return Done()
				}
				return Move{Commit: change, Else: again}, nil
			}
			if len(runs.Data) > 0 {
				return Move{}, fmt.Errorf("instance id %s was used before: node %s holds unfinished runs; every start needs an id of its own", id, runs.Path)
			}
			var ops []Op
			if config.Exists {
				// It must not be removed meanwhile: a host does not bring back
				// a job that it found.
				ops = append(ops, Check(l.config(), config.Version))
			}
			ops = append(ops, l.skeleton()...)
			if j.JobClass != "" && len(root.Data) == 0 {
				ops = append(ops, Set(l.root, []byte(j.JobClass), AnyVersion))
			}
			ops = append(ops, change...)
			state := []byte(serverEnabled)
			if applied.Configuration.Disabled {
				state = []byte(serverDisabled)
			}
			switch {
			case !server.Exists:
				ops = append(ops, Create(l.server(j.Self.ServerIP), state))
			case len(server.Data) == 0:
				ops = append(ops, Set(l.server(j.Self.ServerIP), state, server.Version))
			}
			if applied.Created {
				// What is left of an earlier life of the job divides nothing.
				ops = append(ops, Set(l.assignment(), nil, AnyVersion))
			}
			version := members.Version
			if !members.Exists {
				version = 0
			}
			ops = append(ops, Set(l.members(), parseMembers(members.Data).with(id).data(), version))
			for _, old := range nodes[6:] {
				if old.Exists {
					ops = append(ops, Delete(old.Path, old.Version))
				}
			}
			ops = append(ops,
				Create(l.runsOf(id), nil),
				Create(l.assignmentOf(id), nil),
				CreateEphemeral(l.detail(id), j.Detail.data()),
				CreateEphemeral(l.instance(id), j.Self.yaml()),
			)
			return Move{Name: "join", Commit: ops, Else: again, Unknown: func() (Move, error) { return Join(j), nil }}, nil
		},
	}
}

// skeleton are the nodes below which marks are made. They are only ever made
// when a host joins, so that no mark brings a removed job back.
func (l Layout) skeleton() []Op {
	var ops []Op
	for _, p := range []string{
		l.servers(), l.instances(), l.election(), l.shardingFlags(), l.failoverItems(), l.sharding(), l.triggers(),
		l.term(), l.members(), l.epoch(), l.assignment(), l.details(), l.runs(), l.records(), l.offsets(),
	} {
		ops = append(ops, Ensure(p))
	}
	return ops
}

// applyDefinition decides what the registry's configuration becomes: a field
// that was changed in the file since it was last applied is applied, one that
// was changed in the registry only stays.
func applyDefinition(l Layout, mine JobConfiguration, config, definition Node) ([]Op, Applied, error) {
	if !config.Exists {
		ops := []Op{Create(l.config(), mine.YAML())}
		if definition.Exists {
			ops = append(ops, Set(l.definition(), mine.YAML(), definition.Version))
		} else {
			ops = append(ops, Create(l.definition(), mine.YAML()))
		}
		return ops, Applied{Configuration: mine, Created: true}, nil
	}
	theirs, _, err := ParseConfiguration(config.Data)
	if err != nil {
		if !mine.Overwrite {
			return nil, Applied{}, fmt.Errorf("the job's configuration in the registry (node %s) cannot be read, and overwrite is false: %w", l.config(), err)
		}
		theirs = JobConfiguration{JobName: mine.JobName}
	}
	base, _, baseErr := ParseConfiguration(definition.Data)
	hasBase := definition.Exists && baseErr == nil
	result, changed, kept := Merge(base, hasBase, mine, theirs)
	if invalid := result.Validate(); invalid != nil {
		return nil, Applied{}, fmt.Errorf("the job's configuration in the registry (node %s), with what the definition changes in it, is refused: %w", l.config(), invalid)
	}
	applied := Applied{Configuration: result, Changed: changed, Kept: kept}
	var ops []Op
	if string(result.YAML()) != string(config.Data) && len(changed) > 0 || err != nil {
		ops = append(ops, Set(l.config(), result.YAML(), config.Version))
	}
	switch {
	case !definition.Exists:
		ops = append(ops, Create(l.definition(), mine.YAML()))
	case string(definition.Data) != string(mine.YAML()):
		ops = append(ops, Set(l.definition(), mine.YAML(), definition.Version))
	}
	return ops, applied, nil
}

// ApplyDefinition brings a changed definition file to the registry. applied
// may be nil.
func ApplyDefinition(l Layout, mine JobConfiguration, applied *Applied) Move {
	return Move{
		Name: "apply definition",
		Read: []Query{Data(l.config()), Data(l.definition())},
		Then: func(nodes []Node, _ []Result) (Move, error) {
			if !nodes[0].Exists {
				return Move{}, ErrRemoved
			}
			ops, a, err := applyDefinition(l, mine, nodes[0], nodes[1])
			if err != nil {
				return Move{}, err
			}
			if applied != nil {
				*applied = a
			}
			if len(ops) == 0 {
				return Done()
			}
			return Move{Commit: ops, Else: func(*OpError) (Move, error) { return ApplyDefinition(l, mine, applied), nil }}, nil
		},
	}
}

// ErrRemoved says that the job is not in the registry any more. It is not brought back
// by a host that is running; see docs/operating.md.
var ErrRemoved = errors.New("the job was removed from the registry")

// Announce publishes the host's detail.
func Announce(v View, d HostDetail) Move {
	return Move{Name: "announce", Commit: []Op{Set(v.detail(v.Self.ID), d.data(), AnyVersion)}} // Mend makes it anew if it is gone
}

// Drain announces that the host is stopping and asks for a division of the
// items without it.
func Drain(v View, d HostDetail) Move {
	l := v.Layout
	d.State = DetailDraining
	return Move{Name: "drain", Read: []Query{Data(l.detail(v.Self.ID)), Data(l.members()), Data(l.necessary()), Data(l.shardingFlags())}, Then: func(n []Node, _ []Result) (Move, error) {
		detail, members, necessary, flags := n[0], n[1], n[2], n[3]
		var ops []Op
		if detail.Exists {
			ops = append(ops, Set(detail.Path, d.data(), AnyVersion))
		}
		if v.others() {
			if members.Exists {
				// A division that is being made has not seen this: the leader
				// has to start over.
				ops = append(ops, Set(members.Path, members.Data, members.Version))
			}
			if !necessary.Exists && flags.Exists {
				ops = append(ops, Create(necessary.Path, nil))
			}
		}
		if len(ops) == 0 {
			return Done()
		}
		return Move{Commit: ops, Else: func(*OpError) (Move, error) { return Drain(v, d), nil }}, nil
	}}
}

// others reports whether the job has an instance besides this one.
func (v View) others() bool {
	return slices.ContainsFunc(v.Instances, func(id string) bool { return id != v.Self.ID })
}

// Leave takes the host out of the job in good order. If unfinished is not
// empty, or the registry knows of runs of this host, those items stay recorded
// as begun by a host that is gone, and failover is owed for them.
func Leave(v View, unfinished Items) Move {
	l, id := v.Layout, v.Self.ID
	read := []Query{Data(l.members()), Data(l.instance(id)), Data(l.leader()), Data(l.detail(id)),
		Data(l.assignmentOf(id)), Data(l.runsOf(id)), Data(l.trigger(id)), Data(l.necessary()), Data(l.config()), Data(l.term()), Data(l.shardingFlags()), Children(l.instances()),
		Children(l.electionLatch()), Children(l.failoverLatch())}
	return Move{
		Name: "leave", Read: read,
		Then: func(nodes []Node, _ []Result) (Move, error) {
			var ops []Op
			drop := func(n Node) {
				if n.Exists {
					ops = append(ops, Delete(n.Path, AnyVersion))
				}
			}
			members, instance, leader, term := nodes[0], nodes[1], nodes[2], nodes[9]
			if string(leader.Data) == id && leader.Exists && leader.Version == 1 {
				if term.Exists { // nobody else was elected since
					ops = append(ops, Check(term.Path, term.Version))
				}
				ops = append(ops, Delete(leader.Path, 1)) // a Java host's has version 0
			}
			for _, latch := range nodes[12:] {
				mine, _ := placeInLine(latch.Names, id)
				ops = append(ops, leaving(latch.Path, mine)...)
			}
			drop(instance)
			drop(nodes[3])
			// The registry may know of runs that the host has not heard of:
			// those of a begin whose answer was lost.
			if len(unfinished) == 0 && len(nodes[5].Data) == 0 {
				drop(nodes[4])
				drop(nodes[5])
				if left := parseMembers(members.Data).without(id); members.Exists {
					ops = append(ops, Set(l.members(), left.data(), members.Version))
				}
			}
			drop(nodes[6])
			others := slices.ContainsFunc(nodes[11].Names, func(other string) bool { return other != id })
			if others && !nodes[7].Exists && nodes[8].Exists && nodes[10].Exists {
				ops = append(ops, Create(l.necessary(), nil))
			}
			if len(ops) == 0 {
				return Done()
			}
			again := func() (Move, error) { return Leave(v, unfinished), nil }
			return Move{Commit: ops, Else: func(*OpError) (Move, error) { return again() }, Unknown: again}, nil
		},
	}
}

// Elect makes this host the leader if there is none, or if the one there is
// is a host of ours that was stopped by an operator and only finishes what it
// runs, or if a hand has made or set the leader node. Of several that try, one
// succeeds; the others find out and that is no error. A host that has to wait
// for its turn in ElasticJob's latch has line.Behind set afterwards, and calls
// Elect again when that is gone.
//
// If a Java leader has divided the items since one of ours did, the new leader
// divides them anew: until then nobody of ours begins by the old division.
func Elect(v View, line *Line) Move {
	l := v.Layout
	give := func() (Move, error) { return leaveLine(v.Self.ID, l.electionLatch(), line), nil }
	read := []Query{Data(l.leader()), Data(l.term()), Data(l.epoch()), Data(l.assignment()), Data(l.itemInstance(0))}
	m := inLine(l, v.Self.ID, l.electionLatch(), line, read, func(leave []Op, n []Node) (Move, error) {
		leader, term, epoch, division, first := n[0], n[1], n[2], n[3], n[4]
		ops := slices.Clone(leave)
		switch {
		case leader.Exists && v.nobodys(leader):
			if v.Leader != "" || !term.Exists {
				return give()
			}
			ops = append(ops, Check(term.Path, term.Version), Delete(leader.Path, leader.Version))
		case leader.Exists:
			if string(leader.Data) != v.Leader || leader.Version != 1 || v.Leader == v.Self.ID || !term.Exists {
				return give() // somebody has been elected
			}
			ops = append(ops, Absent(l.instance(v.Leader)), Check(term.Path, term.Version), Delete(leader.Path, leader.Version))
		}
		ops = append(ops, Check(l.config(), AnyVersion),
			CreateEphemeral(l.leader(), []byte(v.Self.ID)),
			Set(l.leader(), []byte(v.Self.ID), 0), // version 1: one of ours
			Set(l.term(), []byte(v.Self.ID), AnyVersion))
		switch d := parseDivision(division.Data); {
		case d.Java || len(d.Members) == 0: // it is divided anew, or nothing is owned
		case byJava(epoch, first) || !first.Exists:
			d.Java = true // as far as the new leader can know
			ops = append(ops, Set(division.Path, d.data(), division.Version))
		default: // and Java has not divided until now
			ops = append(ops, Check(first.Path, first.Version))
		}
		return Move{Commit: ops,
			Then: func([]Node, []Result) (Move, error) { *line = Line{}; return Done() },
			Else: func(e *OpError) (Move, error) {
				switch {
				case e.Op.Path == l.term() && e.Reason == ReasonAbsent, e.Op.Path == l.leader() && e.Reason == ReasonParent:
					return Move{}, e
				case e.Op.Path == l.config() || e.Op.Path == l.leader() || e.Op.Path == l.term() || e.Op.Path == l.instance(v.Leader):
					return give()
				}
				return Elect(v, line), nil // the place in line, or a division, has changed
			}}, nil
	})
	m.Name = "elect"
	return m
}

// Resign gives up leadership, for a leader whose server is disabled.
func Resign(v View) Move {
	l := v.Layout
	return Move{Name: "resign", Read: []Query{Data(l.leader()), Data(l.term())}, Then: func(n []Node, _ []Result) (Move, error) {
		leader, term := n[0], n[1]
		if string(leader.Data) != v.Self.ID || !leader.Exists || leader.Version != 1 {
			return Done()
		}
		// The leader node's version is the same for all of ours, and another
		// one for Java. The term's proves that it is still this host's.
		return Move{Commit: []Op{Check(term.Path, term.Version), Delete(leader.Path, 1)},
			Else: func(*OpError) (Move, error) { return Done() }}, nil
	}}
}

// AskForSharding sets the flag that the items must be divided anew.
func AskForSharding(v View) Move {
	return Move{
		Name:   "ask for sharding",
		Commit: []Op{Check(v.config(), AnyVersion), Create(v.necessary(), nil)},
		Else:   func(*OpError) (Move, error) { return Done() },
	}
}

// CanLead reports whether this host should stand for election: there is no
// leader, or a host of ours is leader that is not in the job any more, and this
// host has joined and its server is enabled. A Java host becomes leader before
// it is in the list of instances, and gives up leadership by itself.
func (v View) CanLead() bool {
	vacant := v.Leader == "" || v.OurTerm && !slices.Contains(v.Instances, v.Leader)
	return v.Exists && vacant && v.Enabled && v.Joined() && slices.Contains(v.Members, v.Self.ID)
}
