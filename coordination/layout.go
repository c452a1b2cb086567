package coordination

import (
	"strconv"
	"strings"
)

// Layout names the nodes of one job. It is the only place that knows paths.
//
// The tree under Root is ElasticJob 3.0.5's; Java peers and consoles read and
// write it. The tree under sibling is ours: Java parses its own nodes
// strictly, takes every child of a namespace for a job, and pays for every
// change below a job, so nothing of ours may live there.
type Layout struct {
	Namespace, Job string
	root, sibling  string
}

// NewLayout returns the layout of a job. The namespace may have several
// segments ("team/prod").
func NewLayout(namespace, job string) Layout {
	ns := "/" + strings.Trim(namespace, "/")
	return Layout{Namespace: namespace, Job: job, root: ns + "/" + job, sibling: ns + ".wasmjob/" + job}
}

// JobsPath is the node whose children are the jobs of a namespace.
func JobsPath(namespace string) string { return "/" + strings.Trim(namespace, "/") }

// Root is the job's node; its data is ElasticJob's job class.
func (l Layout) Root() string { return l.root }

// Sibling is the root of what ElasticJob does not know.
func (l Layout) Sibling() string { return l.sibling }

// The nodes of ElasticJob's tree.

func (l Layout) config() string            { return l.root + "/config" }
func (l Layout) servers() string           { return l.root + "/servers" }
func (l Layout) server(ip string) string   { return l.root + "/servers/" + ip }
func (l Layout) instances() string         { return l.root + "/instances" }
func (l Layout) instance(id string) string { return l.root + "/instances/" + id }
func (l Layout) election() string          { return l.root + "/leader/election" }
func (l Layout) leader() string            { return l.root + "/leader/election/instance" }
func (l Layout) electionLatch() string     { return l.root + "/leader/election/latch" }
func (l Layout) failoverLatch() string     { return l.root + "/leader/failover/latch" }
func (l Layout) shardingFlags() string     { return l.root + "/leader/sharding" }
func (l Layout) necessary() string         { return l.root + "/leader/sharding/necessary" }
func (l Layout) processing() string        { return l.root + "/leader/sharding/processing" }
func (l Layout) failoverItems() string     { return l.root + "/leader/failover/items" }
func (l Layout) failoverItem(i int) string { return l.root + "/leader/failover/items/" + itoa(i) }
func (l Layout) sharding() string          { return l.root + "/sharding" }
func (l Layout) item(i int) string         { return l.root + "/sharding/" + itoa(i) }
func (l Layout) itemInstance(i int) string { return l.root + "/sharding/" + itoa(i) + "/instance" }
func (l Layout) itemRunning(i int) string  { return l.root + "/sharding/" + itoa(i) + "/running" }
func (l Layout) itemMisfire(i int) string  { return l.root + "/sharding/" + itoa(i) + "/misfire" }
func (l Layout) itemDisabled(i int) string { return l.root + "/sharding/" + itoa(i) + "/disabled" }
func (l Layout) itemFailover(i int) string { return l.root + "/sharding/" + itoa(i) + "/failover" }
func (l Layout) itemFailovering(i int) string {
	return l.root + "/sharding/" + itoa(i) + "/failovering"
}
func (l Layout) triggers() string           { return l.root + "/trigger" }
func (l Layout) trigger(id string) string   { return l.root + "/trigger/" + id }
func (l Layout) started() string            { return l.root + "/guarantee/started" }
func (l Layout) startedItem(i int) string   { return l.root + "/guarantee/started/" + itoa(i) }
func (l Layout) completed() string          { return l.root + "/guarantee/completed" }
func (l Layout) completedItem(i int) string { return l.root + "/guarantee/completed/" + itoa(i) }
func (l Layout) systemTime() string         { return l.root + "/systemTime/current" }

// The nodes of ours, all below sibling but one.

// adopted: the namespace's node; its data is what is added to transactions.
func (l Layout) adopted() string { return l.sibling[:strings.LastIndexByte(l.sibling, '/')] }

// term: its version is the term of leadership among our hosts.
func (l Layout) term() string { return l.sibling + "/leader" }

// members: the ids of our hosts that have joined and not left in good order.
// One that is listed here and not in instances has crashed.
func (l Layout) members() string { return l.sibling + "/members" }

// epoch: its version is raised whenever hosts of ours find, or undo, a division
// by a Java leader. Its data names the division in force if that is Java's: the
// transaction that made sharding/0/instance; else it is empty.
func (l Layout) epoch() string { return l.sibling + "/epoch" }

// assignment: what the last resharding was made from; see Division.
func (l Layout) assignment() string { return l.sibling + "/assignment" }

// assignmentOf: the items of one host, as ranges.
func (l Layout) assignmentOf(id string) string { return l.sibling + "/assignment/" + id }
func (l Layout) details() string               { return l.sibling + "/instances" }
func (l Layout) detail(id string) string       { return l.sibling + "/instances/" + id }
func (l Layout) runs() string                  { return l.sibling + "/runs" }

// runsOf: what one host has begun and not completed; see Runs.
func (l Layout) runsOf(id string) string { return l.sibling + "/runs/" + id }
func (l Layout) records() string         { return l.sibling + "/sharding" }

// record: the item's Record. Every begin sets it.
func (l Layout) record(i int) string { return l.sibling + "/sharding/" + itoa(i) }
func (l Layout) offsets() string     { return l.sibling + "/offset" }
func (l Layout) offset(i int) string { return l.sibling + "/offset/" + itoa(i) }
func (l Layout) definition() string  { return l.sibling + "/definition" }

// superseded: the definitions that were applied before that one; see superseded.
func (l Layout) superseded() string { return l.sibling + "/superseded" }

// unusedServers: since when which servers have had no instance; see unused.
func (l Layout) unusedServers() string { return l.sibling + "/servers" }
func (l Layout) kills() string         { return l.sibling + "/kill" }

// kill: which runs of one host operators want to end; see Kill.
func (l Layout) kill(id string) string { return l.sibling + "/kill/" + id }

func itoa(i int) string { return strconv.Itoa(i) }

// itemNumber parses the name of an item's node; Java parses it as an int.
func itemNumber(name string) (int, bool) {
	n, err := strconv.Atoi(name)
	return n, err == nil && n >= 0 && strconv.Itoa(n) == name
}
