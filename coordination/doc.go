// Package coordination decides what the hosts of a job do together: who leads, who owns which sharding item,
// what begins, what is completed, and which host takes over from a crashed one. A [Member] is one host's
// membership of one job. Each of its methods is a protocol step that reads from top to bottom: read nodes by
// name, decide by pure functions, commit, and look again after a conflict. Package step bounds the conflicts of
// a step. It has no clock and no goroutine; package engine runs the items.
//
// The words and the nodes are those of ElasticJob 3.0.5, whose consoles and hosts can share the tree. Data that
// ElasticJob does not know is kept in a second tree beside it.
//
// Below this package stand the nodes and their content (tree), how a step reads and commits (step),
// ElasticJob's latch (latch) and numbers that only grow (fence); beside it what operators see (inspect) and do
// (operate), and the barrier of listeners (guarantee); above it the removal of leftovers (cleanup).
//
// # A picture
//
// A host that takes part in a job watches ten nodes ([Control]) and understands them as a [View]. After every
// change it asks the view what to do ([Member.Reconcile]), does that one thing, and waits for the next
// snapshot:
//
//	registry ── snapshot ──▶ Observe ──▶ View ──▶ Reconcile ──▶ Action
//	    ▲                                                          │
//	    └──────────────── Act: reads, guarded commits ◀────────────┘
//
// Hosts never talk to each other. A view may be outdated; every commit proves what it relies on, so that an
// outdated view costs a conflict and another read, never a wrong write.
//
// # The states of an item
//
//	               Reshard                    Begin
//	unassigned ────────────▶ assigned to A ──────────▶ running on A ──┐
//	                             ▲   ▲                  │    │        │ Begin of a
//	                             │   └──── Complete ────┘    │        │ later instant:
//	                             │                           │        │ misfired, begins
//	                    Complete │           A's session is  │   ◀────┘ once more after
//	                             │           over            ▼          Complete
//	      running on B as failover ◀──────── owed by A ─────────▶ LOST
//	              │               Recover         ▲     Recover, with failover off,
//	              └── B's session is over ────────┘     or beyond the total count
//
// Assignment and running are two things. While a live host runs an item, Reshard leaves the item with it
// (pending) and gives it to its new owner after the completion; and while B repeats a run that A owed, the item
// may belong to C, whose begin is refused until B has completed it.
//
// An instance of a job:
//
//	         Join                     Drain                       Leave
//	outside ──────▶ ready / running ────────▶ draining: gets ────────▶ outside
//	                    │        │            nothing new
//	                    │        └─ its instance node is deleted while its session
//	                    │           lives: stopped by an operator. It finishes what
//	                    │           it runs and leaves; that is no crash.
//	                    └─ its session is over: instance and detail node are gone,
//	                       it is still among the members: crashed. Others Recover.
//
// The leader is the instance that the leader node names. Only it may Reshard and record items as LOST. A term
// is one leadership of one of our hosts: the version of the node leader in our tree, raised by every Elect. Any
// host may find that the division is out of date ([View.DivisionStale]) and raise the flag.
//
// # The nodes
//
// Package tree says which nodes there are, and what they hold.
//
// # What guards what
//
// A guard is an op of the same commit. It compares a node's data version, or demands that a node is or is not
// there; a node that is recreated begins at version 0, so that only nodes which are never recreated are
// compared.
//
//	every division       the term, the leader node (one of ours), members, config, and the
//	                     list of runs of every host that loses something
//	begin                config exists; the share is the one that was read ([ShareGuard]: the
//	                     host's assignment node, the epoch, the anchor); the item's record
//	                     is; not disabled; no running mark (it is made); the host's list of
//	                     runs has its version. With failover, unless this host was the last
//	                     to run the item: no failover mark, and none of a crash; beside Java
//	                     hosts no misfire mark that it does not know. Under a Java leader:
//	                     neither flag
//	election             the latch; no leader; and Java has not divided since one of ours
//	                     did, or the division is marked to be recreated
//	share under Java     the leader is a Java host; neither flag; afterwards: item 0 was not
//	                     recreated meanwhile
//	completion, offset   the record's version: since every begin sets it, by whomever, it
//	                     is the fence. Its transaction is the token that guests see. And
//	                     the host's list of runs is there: records of a job that was
//	                     purged and recreated may come to the same versions
//	end of a fire        in the commit of the completion: the version of the node ends, if other
//	                     jobs come after this one. Every host knows whether: the division that says
//	                     it raises the epoch
//	queued trigger       an earlier one waits: a node trigger/{id} is there, or an item that owes that
//	                     round has not begun it (its record's version); the queue's version
//	round of the queue   the queue's version, which loses the trigger in the same commit, and all that
//	                     guards the round of a command
//	round after others   the version of the node after, which names the triggers that were
//	                     consumed
//	kill                 config exists; the record has its version
//	begin, claim under   the item's ticket is there, and becomes the item's; the completion deletes it.
//	a limit              A change of the configuration refuses the begin; see package permit
//	claim of a crash     instance and detail of the dead host are gone; its list of runs and
//	                     the record have their versions; not disabled; a mark of a Java host
//	                     is there as it was read, or not there
//	join                 what is wanted (node wanted) has the version that was read; who makes the
//	                     job sets it
//	operators' words     the same; they are written with their effect on ElasticJob's nodes
//	a time that is over  the mark, or the version of what is wanted, that names the time
//	                     until which an item or a server is disabled
//	join, leave          the version of members. A host that joins in a crowd is announced
//	                     by its detail node, may be enrolled by another, and makes its
//	                     instance node when it is a member: an instance that is none
//	                     is a Java host
//	marks of a job       config exists: no mark brings a removed job back
//
// Why no item is in two hands: all assignment nodes are written by divisions alone, each under one term; a
// division of several commits takes away first and gives last, and what it takes away was not running. Why no
// item runs twice: a begin sets the record that the other would have to know, and makes the mark that it would
// find. Why none is forgotten: what was begun stays in the host's list of runs until the commit that completes
// it, or that enters it in the list of who takes it over.
//
// # Java hosts
//
// An instance that is not among the members is a Java host of ElasticJob. It keeps no record, guards nothing,
// and waits for flags where ours look at versions.
//
//	      ours is elected                      a Java host is elected, and
//	                                           divides at its next instant
//	┌────────────────────────┐  leader ends  ┌─────────────────────────────┐
//	│ led by ours            │ ────────────▶ │ led by Java                 │
//	│ shares: assignment/{id}│               │ shares: sharding/{i}/instance
//	│ a flag stops everybody │ ◀──────────── │ a flag stops everybody      │
//	└────────────────────────┘  leader ends: └─────────────────────────────┘
//	                            reshards
//
// A leader of ours raises the flag first, gives Java hosts [FlagSettle] to have made their marks, leaves with
// them what has a mark, and watches one such mark until it goes. What our hosts began later than [JavaLag]
// before the flag does not go to Java hosts in that division: one that waits begins the instant at which it
// found the flag. The leader asks for the next division JavaLag after this one, so that who waits has noticed
// this one. Under a Java leader each of ours reads the owners once per division, writes its own items into its
// assignment node, and sets the instance node of the lowest (version 0 becomes 1): Java recreates all of them,
// so that one node shows that the whole share is void. That another of ours brings the node to the same version
// is what the epoch is for.
//
// With failover a Java host runs an item of a host that died, also one that another host owns, and once more if it has a
// misfire mark. In between it has no mark. So a host of ours deletes the misfire marks of items that it was
// given ([Member.Quiet]), and begins them [JavaLag] later at the earliest.
//
// The latches keep Java from undoing what ours do (its leader and failover marks are made by looking, deleting
// and creating). Nothing of ours is unsafe without them: who waits too long goes ahead.
//
// What a dead Java host left running is written down by cleanup.Sweep as a list of runs, and recovered like any
// other. What a dead host of ours left, Java hosts may take too: an item whose persistent mark is gone, with no
// other in its place, was run by one of them and is closed as ELSEWHERE, if one was in the job since the run
// began.
//
// # What operators end, and what ends hosts
//
// A kill is in the record of the run that is meant: a later run is never meant, and whatever else becomes of
// the run meets it as another version of the record. The run keeps its fence. The host completes what it ends
// as CANCELLED; who recovers a dead host closes the run, and so does the begin that finds it open. A node of
// the job is set besides, which hosts watch while something has run for long ([tree.KillQuery]): a hint to look
// ([Member.ReadKills]), and nothing is lost without it.
//
// A record counts the hosts that died in a row with its item: at a takeover, when a run is written down as
// LOST, and at the begin that finds it open. The one that reaches the job's limit closes the run as HELD and
// holds the item back: no begin gets past that before [operate.Release]. A list of runs says whether its host
// left in good order, and then it did not die of them.
//
// # When an answer is lost
//
// A commit may take effect without an answer to its host. No other host writes a host's list of runs while it
// lives, and every begin, completion and claim does; so its version shows what became of the commit. Whatever
// meets another version than it knows reads the list: a begin of the same fire takes for begun what it finds
// there, a completion takes for completed what is closed, and items that no host runs are handed back, their
// instant due again. The functions that write ([Member.Begin], [Member.Complete], [Member.Recover],
// [Member.Join], SaveOffsets) may simply be called again after an error.
//
// # One fire, in registry operations
//
// Three hosts, nine items, failover on; the cron instant is 10:00:10. On each host, for its three items:
//
//  1. Nothing is read. The view and the share are known.
//  2. [Member.Begin], one commit: check config and the share's version; for each item
//     set its record (owner, 10:00:10, open), demand that disabled and failover
//     are absent, create running; set runs/{id} to "10:00:10: 0-2". The set of
//     the record yields the fence token.
//  3. The guests run. Offsets that they stage are saved now and then
//     (SaveOffsets): check the record's version and the list of runs, set the offset.
//  4. [Member.Complete], one commit for all that ended about the same time: set the
//     records (ended, outcome), delete running, write offsets, set runs/{id}.
//
// If an item still runs at 10:00:20 the other two begin, and [MarkMisfire] marks it; right after its completion
// it begins for 10:00:20, in a commit that also deletes the mark.
//
// If the host dies in step 3, its session ends after a while: instance, detail, and leader node if it led, are
// gone at once. Every survivor sees that. One is elected ([Member.Elect]) and divides the items
// ([Member.Reshard]); each calls [Member.Recover], which reads runs/{id} of the dead host and of the others,
// and the marks of those items, and takes its part of them in one commit: set the record (new owner, same
// instant, failover), create failover, failovering and running, move the items from one list of runs to the
// other. Those take part that run nothing of the job, or all if each runs something, each with a block of the
// items; the first to commit writes down who they are, beside what is left. The last one deletes what is left
// of the dead host. Of very many items a call takes some thousand, and says where the next goes on.
//
// Commits that would be too large for a registry are cut; each part is right by itself.
//
// The scripts in testdata/scenarios show all this, a page each.
package coordination
