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

// View is one host's parsed snapshot of the control nodes of a job. It is a value; a stale one costs a conflict
// and is replaced by the next.
type View struct {
	tree.Layout
	Self tree.JobInstance
	// Exists is false when the job's configuration node is gone: the job was
	// removed.
	Exists bool
	// Config is the newest readable configuration; ConfigErr says why the one in the registry cannot be read.
	Config         jobconfig.Configuration
	ConfigWarnings []string
	ConfigErr      error
	configNode     registry.Node
	// Accept refuses a valid configuration that exceeds this host's limits; nil accepts all. A refused one is
	// treated like an unreadable one. It is carried over from view to view.
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
	// Trigger is the transaction that created the trigger that waits for this instance, 0 for none;
	// TriggerRound returns its round. TriggerArgs is set if it has arguments.
	Trigger     int64
	TriggerArgs bool
	// FailoverItems are marked as crashed and wait for a host to take them.
	FailoverItems tree.Items
	Members       tree.Members
	membersNode   registry.Node
	Division      tree.Division
	divisionNode  registry.Node
	// FlagSeen is when this host first saw the flag; the host sets it, and a snapshot without the flag clears
	// it. The leader of a job with Java hosts does not divide until FlagSettle later.
	FlagSeen time.Time
	// DeferredSeen is when this host first saw a division with deferred items; the host sets it. The leader
	// asks for the next division JavaLag later.
	DeferredSeen time.Time
	// Clock is the present time of the registry's clock, as the host computes it; zero means unknown. A
	// division's times come from it, so that no single host's clock is stored.
	Clock time.Time
	// round counts how often this host has seen the flags raised under a leader that is not ours.
	round int
	// extra is the snapshot of the nodes of Extra.
	extra registry.Snapshot
}

// Control are the nodes that a host of the job watches. None of them is a mark of a single item.
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

// ParseView parses a snapshot of the Control nodes. before is the previous view; it supplies the configuration
// while the registry's cannot be read, and saves parsing unchanged nodes.
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

// invalidLeaderNode reports whether an external edit made or set the leader node: it is neither Java's
// (ephemeral, never set) nor ours (ephemeral, set once, to the id of one of our hosts).
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

// Joined reports whether this instance is in the job's list. If it has joined and its session lives, false
// means that an operator removed it: that is how ElasticJob's console stops an instance.
func (v View) Joined() bool { return slices.Contains(v.Instances, v.Self.ID) }

// Leading reports whether this instance is the job's leader.
func (v View) Leading() bool { return v.Leader == v.Self.ID && v.OurTerm }

// Java returns the instances that are not ours.
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

// Crashed returns our hosts that are gone and did not leave in good order.
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

// Flagged reports whether a division is requested or in progress.
func (v View) Flagged() bool { return v.Necessary || v.Processing }

// Halted reports whether Java hosts begin nothing, because a division is requested or in progress; then our
// hosts begin nothing either. A waiting Java host begins its instant after the division, with its new items: an
// item that a host of ours had begun meanwhile would run twice.
func (v View) Halted() bool { return v.Flagged() && (v.JavaLed() || v.Mixed()) }

// FlagSettle is how long the flag must exist before a leader of ours divides items that Java hosts own. A Java
// host checks the flag before a fire and makes its running marks some requests later; when the leader reads the
// marks it must have made them, or seen the flag.
const FlagSettle = 500 * time.Millisecond

// JavaLag is how long a Java host may take to notice an instant or a division. It checks the flag some
// milliseconds after an instant is due, and while it waits for a division it checks every 100 ms.
const JavaLag = 300 * time.Millisecond

// DivideAt returns when this host, as the leader, may take the next step: divide the items if the flag exists,
// otherwise ask for the division that moves deferred items. Zero means now.
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

// IsJanitor reports whether this host removes what Java hosts leave behind: it is our leader, or the first of
// ours under a Java leader. If several hosts do so it does no harm.
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

// Extra returns the nodes that this host, as the leader, watches besides Control while Java hosts are in the
// job: the servers without a host of ours, and one running mark of a Java host that delays a move. Pass the
// snapshot to WithExtra.
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

// WithExtra returns the view with a snapshot of Extra.
func (v View) WithExtra(s registry.Snapshot) View {
	v.extra = s
	return v
}

// javaChanged returns the change in the extra watch that makes the division stale, or "".
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

// DivisionStale returns why the items must be resharded; zero if the last division is still right. Any host may
// find out and raise the flag. An unreadable configuration changes nothing.
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
	if d.Java { // its leader handles changes of servers
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

// NeverSharded reports whether no host of ours has ever sharded the job's items: no item has an owner yet.
func (v View) NeverSharded() bool { return !v.divisionNode.Exists || len(v.divisionNode.Data) == 0 }

// instancesChanged reports that the items were divided over other instances than
// there are.
func (v View) instancesChanged() bool {
	divided := slices.Clone(v.Division.Instances)
	slices.Sort(divided)
	slices.Reverse(divided)
	return !slices.Equal(divided, v.Instances)
}

// leaderSees reports whether a leader of ours notices by itself that the items must be resharded: the instances
// have changed, and it watches them too. If every other host asked it to, each join would cost as many commits
// as there are hosts.
func (v View) leaderSees() bool {
	return v.OurTerm && !v.Mixed() && slices.Contains(v.Instances, v.Leader) && v.instancesChanged()
}

// LeaderRefuses reports whether the last division was made by a leader that refuses the registry's present
// configuration: it is useless to ask for another one.
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

// ScheduleDelay is how long after its write a changed schedule takes effect, so that all hosts know it by then.
// A host that does not know it yet begins no later instant: its begin is refused, and it reads the
// configuration.
const ScheduleDelay = 2 * time.Second

// ScheduleSince is when the configuration's schedule takes effect, by the registry's clock: the same on all
// hosts, whenever they see it. Java hosts follow it at once.
func (v View) ScheduleSince() time.Time { return v.scheduleSince(v.configNode) }

func (v View) scheduleSince(config registry.Node) time.Time {
	if v.Mixed() {
		return config.Mtime
	}
	return config.Mtime.Add(ScheduleDelay)
}

// reschedules reports whether another configuration than the view's makes it uncertain whether an instant is
// scheduled: its schedule differs and takes effect before the instant.
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

// ServerChange is the transaction that last wrote this host's server node, ServerTime the registry's clock at
// that time; zero if there is no node.
func (v View) ServerChange() int64 { return v.serverNode.Mzxid }

// ServerTime is when ServerChange was, by the registry's clock.
func (v View) ServerTime() time.Time { return v.serverNode.Mtime }

// ConfigChange is the transaction that last wrote the configuration; it distinguishes two configurations.
func (v View) ConfigChange() int64 { return v.configNode.Mzxid }
