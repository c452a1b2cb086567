package tree

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Layout names the nodes of one job. It is the only place that knows paths.
//
// The tree under Root is ElasticJob 3.0.5's; Java peers and consoles read and
// write it. The tree under Sibling is ours: Java parses its own nodes
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

// Sibling is the root of our own tree.
func (l Layout) Sibling() string { return l.sibling }

// The nodes of ElasticJob's tree.

// Config is the job's configuration, ElasticJob's YAML. A job without it was removed.
func (l Layout) Config() string { return l.root + "/config" }

// Servers is the parent of all Server nodes.
func (l Layout) Servers() string { return l.root + "/servers" }

// Server holds ENABLED or DISABLED: an operator's choice, kept over restarts.
func (l Layout) Server(ip string) string { return l.root + "/servers/" + ip }

// Instances is the parent of all Instance nodes.
func (l Layout) Instances() string { return l.root + "/instances" }

// Instance is there while the instance takes part; ephemeral.
func (l Layout) Instance(id string) string { return l.root + "/instances/" + id }

// Election is the parent of Leader and ElectionLatch.
func (l Layout) Election() string { return l.root + "/leader/election" }

// Leader names the leader; ephemeral. Its version is 1 if one of ours made it, 0 for Java.
func (l Layout) Leader() string { return l.root + "/leader/election/instance" }

// ElectionLatch is the queue of hosts that want to elect (Curator's recipe).
func (l Layout) ElectionLatch() string { return l.root + "/leader/election/latch" }

// FailoverLatch is the queue of hosts that want to take over beside Java hosts.
func (l Layout) FailoverLatch() string { return l.root + "/leader/failover/latch" }

// ShardingFlags is the parent of Necessary and Processing.
func (l Layout) ShardingFlags() string { return l.root + "/leader/sharding" }

// Necessary is the flag that asks for a division.
func (l Layout) Necessary() string { return l.root + "/leader/sharding/necessary" }

// Processing is there while a division of several commits is made; ephemeral.
func (l Layout) Processing() string { return l.root + "/leader/sharding/processing" }

// FailoverItems is the parent of all FailoverItem nodes.
func (l Layout) FailoverItems() string { return l.root + "/leader/failover/items" }

// FailoverItem is a Java host's mark that the item waits for a taker.
func (l Layout) FailoverItem(i int) string { return l.root + "/leader/failover/items/" + itoa(i) }

// Sharding is the parent of all Item nodes.
func (l Layout) Sharding() string { return l.root + "/sharding" }

// Item is the parent of the item's marks.
func (l Layout) Item(i int) string { return l.root + "/sharding/" + itoa(i) }

// ItemInstance names the item's owner.
func (l Layout) ItemInstance(i int) string { return l.root + "/sharding/" + itoa(i) + "/instance" }

// ItemRunning names the instance that runs the item; persistent with failover, else ephemeral.
func (l Layout) ItemRunning(i int) string { return l.root + "/sharding/" + itoa(i) + "/running" }

// ItemMisfire marks that an instant came while the item ran.
func (l Layout) ItemMisfire(i int) string { return l.root + "/sharding/" + itoa(i) + "/misfire" }

// ItemDisabled is an operator's mark: the item keeps its owner and does not begin.
func (l Layout) ItemDisabled(i int) string { return l.root + "/sharding/" + itoa(i) + "/disabled" }

// ItemFailover names the instance that repeats a crashed run; ephemeral.
func (l Layout) ItemFailover(i int) string { return l.root + "/sharding/" + itoa(i) + "/failover" }

// ItemFailovering is the same as ItemFailover, persistent: it outlives the taker's crash.
func (l Layout) ItemFailovering(i int) string {
	return l.root + "/sharding/" + itoa(i) + "/failovering"
}

// IsRunMark reports whether a node of that name below an item's says who runs the item: ItemRunning, ItemFailover or
// ItemFailovering.
func IsRunMark(name string) bool {
	return name == "running" || name == "failover" || name == "failovering"
}

// Triggers is the parent of all Trigger nodes; its mzxid is the round.
func (l Layout) Triggers() string { return l.root + "/trigger" }

// Trigger asks the instance to run its items now.
func (l Layout) Trigger(id string) string { return l.root + "/trigger/" + id }

// Started is the parent of the marks of items that have begun a fire.
func (l Layout) Started() string { return l.root + "/guarantee/started" }

// Completed is the parent of the marks of items that have completed a fire.
func (l Layout) Completed() string { return l.root + "/guarantee/completed" }

// SystemTime is written to learn the registry's clock.
func (l Layout) SystemTime() string { return l.root + "/systemTime/current" }

// The nodes of ours, all below Sibling except one.

// Enabled is set by each change that enables a server when none was: instants that came due until then are not
// caught up. Its data is that time if it differs from the time of the write; see [EnabledAt].
func (l Layout) Enabled() string { return l.sibling + "/enabled" }

// NamespaceNode is the node of the namespace: its data is the number added to transactions.
func (l Layout) NamespaceNode() string { return l.sibling[:strings.LastIndexByte(l.sibling, '/')] }

// Term is the node whose version is the term of leadership among our hosts.
func (l Layout) Term() string { return l.sibling + "/leader" }

// Members lists the ids of our hosts that have joined and not left in good order. A host that is in Members but
// not in Instances has crashed.
func (l Layout) Members() string { return l.sibling + "/members" }

// Epoch has a version that is raised when hosts of ours find, or undo, a division by a Java leader. If the
// division in force is Java's, its data is the transaction that created sharding/0/instance; otherwise it is
// empty.
func (l Layout) Epoch() string { return l.sibling + "/epoch" }

// Assignment holds the input of the last resharding; see [Division].
func (l Layout) Assignment() string { return l.sibling + "/assignment" }

// AssignmentOf holds the items of one host, as ranges.
func (l Layout) AssignmentOf(id string) string { return l.sibling + "/assignment/" + id }

// Details is the parent of all Detail nodes.
func (l Layout) Details() string { return l.sibling + "/instances" }

// Detail is what a host of ours publishes about itself, ephemeral; see [HostDetail].
func (l Layout) Detail(id string) string { return l.sibling + "/instances/" + id }

// Runs is the parent of all lists of runs.
func (l Layout) Runs() string { return l.sibling + "/runs" }

// RunsOf holds what one host has begun and not completed; see [Runs].
func (l Layout) RunsOf(id string) string { return l.sibling + "/runs/" + id }

// Records is the parent of all Record nodes.
func (l Layout) Records() string { return l.sibling + "/sharding" }

// Record holds the item's [Record]. Every begin sets it.
func (l Layout) Record(i int) string { return l.sibling + "/sharding/" + itoa(i) }

// EndsName is the name of the node Ends, beside those of the items' records.
const EndsName = "ends"

// Ends holds how fires of the job have ended over all items, if other jobs come after it; see [Ends].
func (l Layout) Ends() string { return l.sibling + "/sharding/" + EndsName }

// BackfillName is the name of the node Backfill, beside those of the items' records.
const BackfillName = "backfill"

// Backfill is there while past instants of the job are run again; see [Backfill].
func (l Layout) Backfill() string { return l.sibling + "/sharding/" + BackfillName }

// LastBackfill holds how the last backfill has ended; see [Backfill].
func (l Layout) LastBackfill() string { return l.sibling + "/backfill" }

// QueueName is the name of the node Queue, beside those of the items' records.
const QueueName = "queue"

// Queue holds the triggers that wait behind the one of node trigger; see [Queue]. Like Ends it is where the
// leader finds it in each division.
func (l Layout) Queue() string { return l.sibling + "/sharding/" + QueueName }

// Chained holds which triggers of earlier jobs have triggered this one; see [Chained].
func (l Layout) Chained() string { return l.sibling + "/after" }

// Offsets is the parent of all Offset nodes.
func (l Layout) Offsets() string { return l.sibling + "/offset" }

// Offset holds the progress of the item's guest.
func (l Layout) Offset(i int) string { return l.sibling + "/offset/" + itoa(i) }

// Definition is the definition file as it was last applied.
func (l Layout) Definition() string { return l.sibling + "/definition" }

// Superseded holds digests of the definitions that were applied before that one; see [Superseded].
func (l Layout) Superseded() string { return l.sibling + "/superseded" }

// Wanted holds what operators want of the job; see [Wanted]. It outlives the job.
func (l Layout) Wanted() string { return l.sibling + "/wanted" }

// UnusedServers holds since when which servers have had no instance.
func (l Layout) UnusedServers() string { return l.sibling + "/servers" }

// Kills is set with each kill of runs; see [KillQuery]. Hosts of earlier versions were
// asked by nodes below it.
func (l Layout) Kills() string { return l.sibling + "/kill" }

// Listeners is the parent of all Listener nodes.
func (l Layout) Listeners() string { return l.sibling + "/listeners" }

// Listener is there while a host runs a listener that has run for long; ephemeral, a [Listening].
func (l Layout) Listener(name string) string { return l.Listeners() + "/" + name }

// Recorded names the newest changes of a job that have a record; see coordination/admin/changelog.
func Recorded(l Layout) string { return l.sibling + "/recorded" }

func itoa(i int) string { return strconv.Itoa(i) }

// ItemNumber parses the name of an item's node; Java parses it as an int.
func ItemNumber(name string) (int, bool) {
	n, err := strconv.Atoi(name)
	return n, err == nil && n >= 0 && strconv.Itoa(n) == name
}

// ErrRemoved says that the job was removed from the registry. A running host does not bring it back; see
// docs/standing-orders.md.
var ErrRemoved = errors.New("the job was removed from the registry")

// ClusterHosts is the node whose children are the hosts of a namespace, regardless of their jobs; it holds the
// key by which they authenticate each other. No job can have its name.
func ClusterHosts(namespace string) string { return JobsPath(namespace) + ".wasmjob/" + clusterHosts }

const clusterHosts = "@-@hosts"

// JobsOf returns those of the nodes below a root that are jobs.
func JobsOf(names []string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool { return strings.Contains(name, delimiter) })
}

// ClusterHost is there while a host has a session; ephemeral, a [ClusterDetail].
func ClusterHost(namespace, id string) string { return ClusterHosts(namespace) + "/" + id }

// ClusterSignedOut holds browser sessions that were signed out and have not expired yet; JSON.
func ClusterSignedOut(namespace string) string { return JobsPath(namespace) + ".wasmjob/@-@signedout" }

// ClusterChanges is the parent of the records of changes that were made without a host's API,
// until a host has them in its history.
func ClusterChanges(namespace string) string { return JobsPath(namespace) + ".wasmjob/@-@changes" }

// NumberPath is a node that hosts create, set and delete in one commit when they begin a session, to learn the
// registry's next transaction number. It exists only within that commit.
func NumberPath(namespace string) string { return JobsPath(namespace) + ".wasmjob/@-@number" }

// Limits is the parent of all Limit nodes: a limit is of the namespace, not of a job.
func Limits(namespace string) string { return JobsPath(namespace) + ".wasmjob/@-@limits" }

// Limit is the parent of the tickets of a key; see package permit.
func Limit(namespace, key string) string { return Limits(namespace) + "/" + limitName(key) }

// Rates is the parent of all Rate nodes: a rate is of the namespace, too.
func Rates(namespace string) string { return JobsPath(namespace) + ".wasmjob/@-@rates" }

// Rate is the node of a key under which items begin at a rate; see package rate.
func Rate(namespace, key string) string { return Rates(namespace) + "/" + limitName(key) }

// longestLimitName bounds the name of a limit's node, in bytes. A longer name ends in a hash.
const longestLimitName = 200

// limitName returns a key as the name of a node, with invalid and special characters escaped.
func limitName(key string) string {
	var b strings.Builder
	for i := range len(key) {
		c := key[i]
		plain := ('a' <= c && c <= 'z') || ('A' <= c && c <= 'Z') || ('0' <= c && c <= '9') || c == '-' || c == '_' || (c == '.' && i > 0)
		if plain {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	name := b.String()
	if len(name) <= longestLimitName {
		return name
	}
	sum := sha256.Sum256([]byte(key))
	return name[:longestLimitName-33] + "~" + hex.EncodeToString(sum[:16])
}

// ClusterRecorder exists while a host takes these records into its history; ephemeral.
func ClusterRecorder(namespace string) string { return JobsPath(namespace) + ".wasmjob/@-@recorder" }
