package coordination

import (
	"fmt"
	"slices"
	"time"

	"github.com/wasmjob/wasmjob/coordination/jobconfig"
	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/tree"
	"github.com/wasmjob/wasmjob/internal/text/reason"
	"github.com/wasmjob/wasmjob/strategy"
)

// View is what one host knows of a job without asking: the control nodes that
// it watches, understood. It is a value; a stale one costs a conflict and is
// repaired by the next.
type View struct {
	tree.Layout
	Self tree.JobInstance
	// Exists is false when the job's configuration node is gone: the job was
	// removed.
	Exists bool
	// Config is the newest configuration that could be read; ConfigErr says
	// why the one in the registry could not.
	Config         jobconfig.Configuration
	ConfigWarnings []string
	ConfigErr      error
	configNode     registry.Node
	// Accept refuses a configuration that is in order but asks for more than
	// this host allows; nil refuses none. What it refuses is treated as one
	// that cannot be read. It is carried from view to view.
	Accept func(jobconfig.Configuration) error
	// Instances are all instance ids in ElasticJob's order: descending.
	Instances []string
	// Servers are the addresses that have a server node, ascending.
	Servers []string
	// Enabled is false while this server is disabled for the job.
	Enabled    bool
	serverNode registry.Node
	// Leader is the leader's instance id, empty while there is none. OurTerm
	// is true when one of our hosts wrote it.
	Leader  string
	OurTerm bool
	// Necessary and Processing are ElasticJob's resharding flags.
	Necessary, Processing bool
	// Trigger is the transaction that made the trigger which waits for this
	// instance, 0 for none. TriggerRound says which round it is of. It has arguments
	// if TriggerArgs is set.
	Trigger     int64
	TriggerArgs bool
	// FailoverItems are marked as crashed and wait for a host to take them.
	FailoverItems tree.Items
	Members       tree.Members
	membersNode   registry.Node
	Division      tree.Division
	divisionNode  registry.Node
	// FlagSeen is when this host first saw the flag standing; the host notes
	// it, and a snapshot without the flag clears it. The leader of a job with
	// Java hosts does not divide before FlagSettle has passed since.
	FlagSeen time.Time
	// DeferredSeen is when this host first saw a division that defers items; the
	// host notes it. The leader asks for the next division JavaLag later.
	DeferredSeen time.Time
	// Clock is the registry's clock at this moment, as the host reckons it. The
	// host notes it; zero means that it is not known. What a division dates is
	// dated by it, so that the clock of no single host is remembered.
	Clock time.Time
	// round counts how often the flags were raised under a leader that is not
	// one of ours, as far as this host has seen.
	round int
	// extra is what Extra asked for.
	extra registry.Snapshot
}

// Control is the set of nodes that a host of the job watches. None of them is
// a mark of a single item.
func Control(l tree.Layout, self tree.JobInstance) []registry.Query {
	return []registry.Query{
		registry.Data(l.Config()),
		registry.Children(l.Instances()),
		registry.Children(l.Servers()),
		registry.Data(l.Server(self.ServerIP)),
		registry.Data(l.Leader()),
		registry.Children(l.ShardingFlags()),
		registry.Data(l.Trigger(self.ID)),
		registry.Children(l.FailoverItems()),
		registry.Data(l.Members()),
		registry.Data(l.Assignment()),
	}
}

// ParseView understands a snapshot of the Control nodes. before is the view
// of the snapshot before it; it supplies the configuration while the one in
// the registry cannot be read, and saves parsing what has not changed.
func ParseView(s registry.Snapshot, l tree.Layout, self tree.JobInstance, before View) View {
	v := View{Layout: l, Self: self, Accept: before.Accept}
	v.configNode = s.Data(l.Config())
	v.Exists = v.configNode.Exists
	v.Config, v.ConfigWarnings, v.ConfigErr = before.Config, before.ConfigWarnings, before.ConfigErr
	if v.Exists && (v.configNode.Mzxid != before.configNode.Mzxid || !before.configNode.Exists) {
		v.Config, v.ConfigWarnings, v.ConfigErr = readConfiguration(l.Job, v.configNode.Data, before.Config, v.Accept)
	}

	v.Instances = slices.Clone(s.Children(l.Instances()))
	slices.Sort(v.Instances)
	slices.Reverse(v.Instances)
	v.Servers = s.Children(l.Servers())
	v.serverNode = s.Data(l.Server(self.ServerIP))
	v.Enabled = !v.serverNode.Exists || tree.IsEnabled(v.serverNode.Data)

	v.membersNode = s.Data(l.Members())
	v.Members = tree.ParseMembers(v.membersNode.Data)
	leader := s.Data(l.Leader())
	if !v.invalidLeaderNode(leader) {
		v.Leader = string(leader.Data)
	}
	// Java creates the leader node and never sets it; we create and set it in
	// one commit, so that ours has version 1.
	v.OurTerm = v.Leader != "" && leader.Version == 1
	for _, flag := range s.Children(l.ShardingFlags()) {
		v.Necessary = v.Necessary || flag == "necessary"
		v.Processing = v.Processing || flag == "processing"
	}
	v.round = before.round
	if !v.OurTerm && v.Flagged() && !before.Flagged() {
		v.round++
	}
	if v.Necessary {
		v.FlagSeen = before.FlagSeen
	}
	v.extra = before.extra
	if t := s.Data(l.Trigger(self.ID)); t.Exists {
		v.Trigger, v.TriggerArgs = t.Czxid, string(t.Data) == tree.TriggerWithArgs
	}
	for _, name := range s.Children(l.FailoverItems()) {
		if i, ok := tree.ItemNumber(name); ok {
			v.FailoverItems = append(v.FailoverItems, i)
		}
	}
	slices.Sort(v.FailoverItems)

	v.divisionNode = s.Data(l.Assignment())
	if v.divisionNode.Exists && v.divisionNode.Mzxid == before.divisionNode.Mzxid {
		v.Division, v.DeferredSeen = before.Division, before.DeferredSeen
	} else {
		v.Division = tree.ParseDivision(v.divisionNode.Data)
	}
	return v
}

// invalidLeaderNode reports that a leader node was made or set by an external edit: neither Java's,
// which is ephemeral and never set, nor ours, which is ephemeral and set once,
// to the id of one of us.
func (v View) invalidLeaderNode(leader registry.Node) bool {
	id := string(leader.Data)
	ours := slices.Contains(v.Members, id)
	return leader.Exists && (!leader.Ephemeral || leader.Version > 1 || !tree.FitsANode(id) || (leader.Version == 0 && ours))
}

// readConfiguration parses and checks; on error the last good one stays.
func readConfiguration(job string, data []byte, last jobconfig.Configuration, accept func(jobconfig.Configuration) error) (jobconfig.Configuration, []string, error) {
	c, warnings, err := jobconfig.Parse(data)
	if err == nil && c.JobName != job {
		err = fmt.Errorf("jobName: found %q, expected %q, the name of the node", c.JobName, job)
	}
	if err == nil {
		err = c.Validate()
	}
	if err == nil && accept != nil {
		err = accept(c)
	}
	if err != nil {
		return last, warnings, err
	}
	if c.Failover && !c.MonitorExecution {
		warnings = append(warnings, "failover is true, but monitorExecution is false: items of a host that dies are not taken over")
	}
	return c, warnings, nil
}

// Divided is the transaction that wrote the division; 0 if there is none.
func (v View) Divided() int64 { return v.divisionNode.Mzxid }

// Joined reports whether this instance is in the job's list. Once it has
// joined and its session lives, false means that an operator removed it: the
// way in which ElasticJob's console stops an instance.
func (v View) Joined() bool { return slices.Contains(v.Instances, v.Self.ID) }

// Leading reports whether this instance is the job's leader.
func (v View) Leading() bool { return v.Leader == v.Self.ID && v.OurTerm }

// Java are the instances that are not ours.
func (v View) Java() []string {
	var java []string
	for _, id := range v.Instances {
		if !slices.Contains(v.Members, id) {
			java = append(java, id)
		}
	}
	return java
}

// Mixed reports whether Java hosts are in the job.
func (v View) Mixed() bool { return len(v.Java()) > 0 }

// Crashed are our hosts that are gone and did not leave in good order.
func (v View) Crashed() []string {
	var gone []string
	for _, id := range v.Members {
		if !slices.Contains(v.Instances, id) {
			gone = append(gone, id)
		}
	}
	return gone
}

// JavaLed reports that the leader is a Java host. It divides the items by
// ElasticJob's rules.
func (v View) JavaLed() bool { return v.Leader != "" && !v.OurTerm }

// Flagged reports that a division is asked for or being made.
func (v View) Flagged() bool { return v.Necessary || v.Processing }

// Halted reports that Java hosts begin nothing, because a division is asked for
// or being made; then our hosts begin nothing either. A Java host that waits
// begins its instant after the division, with the items that it gets: one that
// a host of ours had begun meanwhile would run twice.
func (v View) Halted() bool { return v.Flagged() && (v.JavaLed() || v.Mixed()) }

// FlagSettle is how long the flag must stand before a leader of ours divides
// items that Java hosts own. A Java host looks for the flag before a fire, and
// makes its running marks some requests later; it must have made them, or seen
// the flag, when the leader looks for marks.
const FlagSettle = 500 * time.Millisecond

// JavaLag is for how long an instant, or a division, may go unnoticed by a Java
// host. It looks for the flag some milliseconds after an instant is due, and
// while it waits for a division it looks every 100 ms.
const JavaLag = 300 * time.Millisecond

// DivideAt is when this host, being the leader, may take the next step of a
// division: divide the items if the flag stands, else ask for the division that
// moves deferred items. It is zero for now.
func (v View) DivideAt() time.Time {
	switch {
	case !v.Mixed():
	case !v.FlagSeen.IsZero():
		return v.FlagSeen.Add(FlagSettle)
	case len(v.Division.Deferred) > 0 && !v.DeferredSeen.IsZero():
		return v.DeferredSeen.Add(JavaLag)
	}
	return time.Time{}
}

// IsJanitor reports whether this host is the one of ours that looks after what
// Java hosts leave behind: our leader, or the first of ours under a Java
// leader. Others do the same without harm.
func (v View) IsJanitor() bool {
	if v.OurTerm {
		return v.Leading()
	}
	return v.First()
}

// First reports whether this host is the first of ours in the list of instances.
func (v View) First() bool {
	n := slices.IndexFunc(v.Instances, func(id string) bool { return slices.Contains(v.Members, id) })
	return n >= 0 && v.Instances[n] == v.Self.ID
}

// Extra is what this host, being the leader, watches besides Control because
// Java hosts are in the job: the servers that have no host of ours, and one
// running mark of a Java host that holds up a move. What it shows goes to
// WithExtra.
func (v View) Extra() []registry.Query {
	if !v.Leading() {
		return nil
	}
	var servers []string
	for _, id := range v.Java() {
		servers = append(servers, tree.ServerOf(id))
	}
	slices.Sort(servers)
	var q []registry.Query
	for _, ip := range slices.Compact(servers) {
		if ip != v.Self.ServerIP {
			q = append(q, registry.Data(v.Layout.Server(ip)))
		}
	}
	if len(v.Division.Foreign) > 0 {
		q = append(q, registry.Data(v.Layout.ItemRunning(v.Division.Foreign[0])))
	}
	return q
}

// WithExtra is the view with what Extra asked for.
func (v View) WithExtra(s registry.Snapshot) View {
	v.extra = s
	return v
}

// javaChanged says what the extra watch has shown that makes the division
// stale, or "".
func (v View) javaChanged() reason.Reason {
	if !v.Leading() {
		return reason.Reason{}
	}
	for _, id := range v.Java() {
		n, watched := v.extra[registry.Data(v.Layout.Server(tree.ServerOf(id)))]
		if watched && n.Exists && slices.Contains(v.Division.Instances, id) && slices.Contains(v.Division.Excluded, id) == tree.IsEnabled(n.Data) {
			return reason.New(reason.ServerOfJavaSwitched, id)
		}
	}
	if len(v.Division.Foreign) > 0 {
		if n, watched := v.extra[registry.Data(v.Layout.ItemRunning(v.Division.Foreign[0]))]; watched && !n.Exists {
			return reason.New(reason.EndedOnJava, v.Division.Foreign[0])
		}
	}
	return reason.Reason{}
}

// DivisionStale says why the items must be resharded; it is zero if the last
// division is still right. Anybody may find out and set the flag. A
// configuration that cannot be read changes nothing.
func (v View) DivisionStale() reason.Reason {
	d := v.Division
	switch {
	case v.NeverSharded():
		return reason.New(reason.NeverSharded)
	case v.ConfigErr != nil, v.LeaderRefuses():
	case d.Total != v.Config.ShardingTotalCount:
		return reason.New(reason.CountChanged, d.Total, v.Config.ShardingTotalCount)
	case !d.Java && d.Strategy != v.strategyName():
		return reason.New(reason.StrategyChanged, d.Strategy, v.strategyName())
	}
	if d.Java && v.OurTerm {
		return reason.New(reason.JavaSharded)
	}
	if v.instancesChanged() {
		return reason.New(reason.InstancesChanged)
	}
	if d.Java { // its leader sees to the servers
		return reason.Reason{}
	}
	if slices.Contains(d.Excluded, v.Self.ID) == v.Enabled && slices.Contains(d.Instances, v.Self.ID) {
		if v.Enabled {
			return reason.New(reason.ServerEnabledNow)
		}
		return reason.New(reason.ServerDisabledNow)
	}
	return v.javaChanged()
}

// NeverSharded reports that no host of ours has sharded the job's items: none of them is anybody's yet.
func (v View) NeverSharded() bool { return !v.divisionNode.Exists || len(v.divisionNode.Data) == 0 }

// instancesChanged reports that the items were divided over other instances than
// there are.
func (v View) instancesChanged() bool {
	divided := slices.Clone(v.Division.Instances)
	slices.Sort(divided)
	slices.Reverse(divided)
	return !slices.Equal(divided, v.Instances)
}

// leaderSees reports that a leader of ours finds by itself that the items must be
// resharded: the instances are others, which it watches too. If all the others
// asked it for that, every join would cost as many commits as there are hosts.
func (v View) leaderSees() bool {
	return v.OurTerm && !v.Mixed() && slices.Contains(v.Instances, v.Leader) && v.instancesChanged()
}

// LeaderRefuses reports that the last division was made by a leader that refuses
// the configuration now in the registry: asking for another one is of no use.
func (v View) LeaderRefuses() bool {
	return v.Division.Refused != 0 && v.Division.Refused == v.ConfigChange()
}

// strategyName is the name that the division will have: the configuration may
// hold an alias.
func (v View) strategyName() string {
	_, name, err := strategy.ByName(v.Config.JobShardingStrategyType)
	if err != nil {
		return v.Division.Strategy // cannot be divided by; Validate says so
	}
	return name
}

// ScheduleDelay is how long after its write a changed schedule takes effect, so that all hosts
// have heard of it by then. A host that has not heard begins no instant later than that: its
// begin is refused, and it looks.
const ScheduleDelay = 2 * time.Second

// ScheduleSince is when the schedule of the configuration takes effect, by the registry's clock:
// the same on all hosts, whenever they hear of it. Java hosts follow it at once.
func (v View) ScheduleSince() time.Time { return v.scheduleSince(v.configNode) }

func (v View) scheduleSince(config registry.Node) time.Time {
	if v.Mixed() {
		return config.Mtime
	}
	return config.Mtime.Add(ScheduleDelay)
}

// reschedules reports whether another configuration than the view's leaves it open whether an
// instant is one: it has another schedule, which takes effect before.
func (v View) reschedules(config registry.Node, instant time.Time) bool {
	c, _, err := readConfiguration(v.Layout.Job, config.Data, v.Config, v.Accept)
	same := err != nil || (c.Cron == v.Config.Cron && c.TimeZone == v.Config.TimeZone)
	return !same && instant.After(v.scheduleSince(config))
}

// configVersion is the version of the configuration's node, if the view has seen one.
func (v View) configVersion() int32 {
	if !v.configNode.Exists {
		return registry.AnyVersion
	}
	return v.configNode.Version
}

// ServerChange is the registry's number of the write that made this host's server what it is,
// ServerTime the registry's clock then; zero if it has no node.
func (v View) ServerChange() int64 { return v.serverNode.Mzxid }

// ServerTime is explained at ServerChange.
func (v View) ServerTime() time.Time { return v.serverNode.Mtime }

// ConfigChange is the registry's number of the write that made the
// configuration what it is; it distinguishes two configurations.
func (v View) ConfigChange() int64 { return v.configNode.Mzxid }
