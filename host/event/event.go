// Package event has what a host reports to observers: events, reasons of skips, waits, and lines of guests.
// Histories store them.
package event

import (
	"strings"
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/config/ceiling"
	"github.com/wasmjob/wasmjob/internal/text/reason"
)

// Kind says what an Event reports. The set may grow; readers skip kinds
// they do not know.
type Kind string

// The kinds.
const (
	// FireStarted: this host begins items of a fire. Items lists them.
	FireStarted Kind = "fire.started"
	// FireEnded: the last of this host's items of the fire ended.
	// Outcome is OK only if all items were; Duration is from the begin.
	FireEnded Kind = "fire.ended"
	// FireSkipped: this host began nothing for a due instant. Reason
	// says why (no items here, disabled, resharding, missed, …); Items are
	// those that it owned.
	FireSkipped Kind = "fire.skipped"
	// ItemStarted, ItemEnded: one attempt of one item.
	ItemStarted Kind = "item.started"
	ItemEnded   Kind = "item.ended"
	// ItemCompleted: the item's completion took effect in the registry.
	// An item that has this event for an instant is never run again for it.
	ItemCompleted Kind = "item.completed"
	// ItemSkipped: an item of this host did not run for the instant, and
	// Reason says why (disabled, still running: misfire, failover off, …).
	ItemSkipped Kind = "item.skipped"
	// ItemHeld: too many hosts in a row have died in runs of the item. This
	// one is closed, Outcome is HELD, and the item is held back until an operator
	// releases it; Reason names the hosts.
	ItemHeld Kind = "item.held"
	// ItemReleased: an operator released the item. Its owner reports that when
	// it sees it: with status, and when the item is due.
	ItemReleased Kind = "item.released"
	// ItemRepaired: the item's record named an instant that was later than
	// the registry's clock, and the item was begun all the same: Instant is that of
	// the run, Drift by how much the record was ahead of it.
	ItemRepaired Kind = "item.repaired"
	// Listener: a listener export ended; Reason is its name.
	Listener Kind = "listener"

	JobAdded   Kind = "job.added"
	JobChanged Kind = "job.changed" // configuration or module; Reason says which
	// JobConfigured: Settings are in force on this host from now on. It follows
	// JobAdded, and every change of one of them. Reason is what this host refuses at the
	// same time, as a JobError has said; when that is over, it follows once more.
	JobConfigured Kind = "job.configured"
	JobRemoved    Kind = "job.removed" // Reason: definition gone, removed by operator, …
	JobStopped    Kind = "job.stopped" // by an operator: instance node deleted
	// JobPaused: this host has paused the job on all servers, as one of its policies demands; Reason says
	// which and why.
	JobPaused Kind = "job.paused"
	// BackfillGiven: Instant of a backfill was given out, as the round Trigger; Args has its items, Total is how many
	// items the job has. A host that looks after the job from then on reports the newest one again. With the next
	// one each item has begun this one, or has the reason why not.
	BackfillGiven Kind = "backfill.given"
	// BackfillEnded: no more instants are given out; Reason says why. If all were, each item has begun the last one, or has
	// the reason why not.
	BackfillEnded Kind = "backfill.ended"
	JobError      Kind = "job.error"     // the job cannot run, or Wait has taken too long; Reason
	OverQuota     Kind = "job.overQuota" // Count uses went beyond the Ceiling; Reason
	Refused       Kind = "file.refused"
	// Accepted: File, which was refused, is not any more, or is gone.
	Accepted Kind = "file.accepted"
	Sharded  Kind = "job.sharded" // this host, as leader, sharded the items
	Assigned Kind = "job.assigned"
	Elected  Kind = "job.elected" // this host became the job's leader
	// Janitor: this host looks after the job for all from now on, or, if Reason is set,
	// does not any more; nor does it when it has left the job, or lost its session.
	Janitor Kind = "job.janitor"
	Session Kind = "session" // Reason: SessionLive, SessionSuspect, SessionYield or SessionLost; or Wait is set
	Clock   Kind = "clock"   // this host's clock is too far from the registry's, by Drift, or is not any more
	// RegistryBehind: a session of this host found that the registry gives out transaction numbers
	// that were given out before: it was put back from a backup, or copied. Reason says how that
	// is known, and whether this host raised the base of the namespace and goes on, or begins
	// nothing. It comes before the Session that is live.
	RegistryBehind Kind = "registry.behind"
	// HostGone: this host has found that Other is gone, and has not left its jobs
	// in good order: its session with the registry has ended. Each host that looks
	// reports it once.
	HostGone Kind = "host.gone"
	// HostBack: this host has found that Other, which was gone, is back: its process has another
	// session, or a host of its server has begun since.
	HostBack Kind = "host.back"
	// HistoryLost: Count records of this host, from an event on that would have had the time Instant, are in no history; Reason.
	// The history that lost them has this event as soon as it takes records again.
	HistoryLost Kind = "history.lost"
	HostStarted Kind = "host.started" // Reason: how the last host here ended, unless well
	HostStopped Kind = "host.stopped"
)

// Reasons of a Session that is no wait.
const (
	SessionLive    = "live"
	SessionSuspect = "suspect" // the registry does not answer: nothing begins
	SessionYield   = "yield"   // for so long that what runs is asked to end
	SessionLost    = "lost"    // what runs was stopped; a new session is begun
)

// Event is one fact about a host; events are in the order in which the host saw them. The log, the terminal,
// the history and the metrics read events.
type Event struct {
	Time time.Time `json:"time"`
	Kind Kind      `json:"kind"`
	// Host is the instance id of the term, Job empty for events of the host. What
	// is of no term (HostStarted, HostStopped, Refused, RegistryBehind) has the server's address
	// and the process in place of the id, as [Process] makes them.
	Host string `json:"host"`
	Job  string `json:"job,omitempty"`
	// Other is the id of another host that the event is about: the one that is, or was,
	// gone, for HostGone and HostBack, or that died or left the job while it ran what is taken
	// over here or given up, for FireStarted, ItemSkipped and ItemHeld. Reason of a
	// FireStarted says that it was stopped. For a JobError with Wait it is a Java host that has items and runs none. Of a HostStarted it is the id of the process before
	// this one in its directory, which has ended.
	Other string `json:"other,omitempty"`
	// Instant is the scheduled time of the fire (for a trigger: when it was
	// seen), Trigger the number of the trigger round, 0 for other sources.
	Instant time.Time `json:"instant,omitzero"`
	Trigger int64     `json:"trigger,omitempty"`
	// Source is what made the fire; of JobAdded and JobChanged it is
	// trigger if the job has no cron, and fires by triggers alone.
	Source abi.Source `json:"source,omitempty"`
	// RunID is the run of the event: JOB/INSTANT/ITEM, or JOB/tROUND/ITEM for a trigger.
	RunID string `json:"runId,omitempty"`
	// Item is set for item events; Items for fire and sharding events.
	Item  *int  `json:"item,omitempty"`
	Items []int `json:"items,omitempty"`
	// Total is the number of the fire's items over all hosts, as far as this host knows, for FireStarted,
	// FireSkipped and BackfillGiven; for Sharded it is the number of assigned items.
	Total int `json:"total,omitempty"`
	// Args are the trigger's arguments, if any, for FireStarted, the first attempt of an ItemStarted,
	// FireSkipped, ItemSkipped and BackfillGiven.
	Args *TriggerArgs `json:"args,omitempty"`
	// Next is the job's scheduled instant after Instant, for a scheduled
	// FireStarted and FireSkipped.
	Next time.Time `json:"next,omitzero"`
	// Through is set when a skip stands for all instants from Instant on: the
	// last of them, or a time between that and the next.
	Through time.Time `json:"through,omitzero"`
	// Owed is set for a skip that promises a run of this instant, or of a newer one in its place. The run
	// follows when the obstacle is gone, or a later skip says why not.
	Owed bool `json:"owed,omitempty"`
	// Cause is the kind of Reason, for FireSkipped, ItemSkipped and
	// ItemHeld.
	Cause SkipCause `json:"cause,omitempty"`
	// Runs is set for a skip whose reason is that the item runs on this host: its
	// guest was started, and its completion has not taken effect.
	Runs bool `json:"runs,omitempty"`
	// Waited has the waits of an attempt: of the first since its fire began on this host, of later ones since
	// the pause before them; nil without a wait. For ItemStarted.
	Waited *Waited `json:"waited,omitempty"`
	// Settings are the job's settings in force from now on, for JobConfigured.
	Settings *Settings `json:"settings,omitempty"`
	// Previous is what the item's record said of its newest run when it was
	// begun again, for the first attempt of an ItemStarted whose item another
	// instance began before. It is nil if the record has none, if that run
	// was handed back, and for a run that was taken over: it is the same.
	Previous *PreviousRun `json:"previous,omitempty"`
	KeptOffset
	Fence  int64  `json:"fence,omitempty"`
	Digest string `json:"digest,omitempty"`
	// Signer is the name of the key that signed the module; empty without a signature by a key known to the
	// operator.
	Signer   string        `json:"signer,omitempty"`
	Attempt  int           `json:"attempt,omitempty"`
	Outcome  abi.Outcome   `json:"outcome,omitempty"`
	Duration time.Duration `json:"durationNs,omitempty"`
	// Lag is how much later than Instant the items were begun, for a FireStarted by the
	// schedule, a catch-up, a misfire or failover; 0 for a trigger.
	Lag    time.Duration `json:"lagNs,omitempty"`
	Memory int64         `json:"memoryBytes,omitempty"`
	AttemptEnd
	// DroppedLines counts the guest's log lines over the limits of one invocation, for ItemEnded and Listener.
	DroppedLines int64 `json:"droppedLines,omitempty"`
	// Outside counts the guest's uses of each capability, for ItemEnded and Listener.
	Outside map[string]abi.OutsideCount `json:"outside,omitempty"`
	// Ceiling is the quota that an OverQuota is about, and Count how many
	// uses went beyond it since the last such event: they were dropped, or, for
	// offsetCommits, had to wait. For ItemCompleted, Count is how many runs of
	// the item in a row were not OK, this one included, on whatever hosts.
	Ceiling ceiling.Name `json:"ceiling,omitempty"`
	Count   int64        `json:"count,omitempty"`
	// Reason is text for people: a failure's message, why something was skipped.
	// It has at most 1024 bytes.
	// That of Refused has a line for each reason, and at most 8192 bytes.
	Reason string `json:"reason,omitempty"`
	// Jobs has the job of each line of a Refused's Reason, at the line's index; empty for a line about the
	// file.
	Jobs []string `json:"jobs,omitempty"`
	// Because is Reason for programs: its code, and then that of each reason which stands in the one before. It is empty
	// for text of guests and errors. A Session has none: its Reason is one of the words beside that kind.
	Because reason.Codes `json:"because,omitempty"`
	// Wait is set when a wait has reached its deadline; Duration is its length, Items are the waiting items.
	Wait Wait `json:"wait,omitempty"`
	// Drift is how far a clock is ahead, or behind if negative, for Clock and ItemRepaired.
	Drift time.Duration `json:"driftNs,omitempty"`
	// File is the file in the plugins directory, for Refused.
	File string `json:"file,omitempty"`
	// Beside is set for an ItemCompleted in a job with Java hosts if the item's running mark was not this host's
	// any more: it is whose the mark was, BesideUnknown if there was none. That host ran the item at the same time,
	// unless the mark was edited.
	Beside string `json:"beside,omitempty"`
	// Backfill is the progress of the backfill, for BackfillGiven and BackfillEnded.
	Backfill *BackfillStep `json:"backfill,omitempty"`
	// Edit is set for a JobChanged or a JobAdded that changed the registry's configuration by a
	// definition file, and for a JobChanged that saw another program change it.
	Edit *Edit `json:"edit,omitempty"`
}

// BackfillStep is the progress of a backfill.
type BackfillStep struct {
	// Since is when the backfill was requested: a job has at most one of a time.
	Since time.Time `json:"since"`
	// Done is how many of its instants were given out.
	Done int `json:"done"`
	// Total is how many instants it has.
	Total int `json:"total"`
}

// BesideUnknown is the value of Event.Beside if the host that ran the item, or deleted its mark, is unknown.
const BesideUnknown = "unknown"

// KeptOffset is the item's offset when a run started, and when its completion took effect.
type KeptOffset struct {
	// OffsetWrites is how often the item's offset had been written when the
	// run started, and when its completion took effect.
	OffsetWrites int64 `json:"offsetWrites,omitempty"`
	// Offset is the item's offset then: at most 128 bytes of it, in hexadecimal digits after 0x if it is no text.
	Offset string `json:"offset,omitempty"`
}

// AttemptEnd has further facts of an ItemEnded. Batches and Records count what a DATAFLOW guest fetched.
type AttemptEnd struct {
	// Again is set if the item runs again: the job's retry policy has another attempt, or
	// the worker process has ended under the item for the first time. The run is not over. A
	// listener runs again in the second case only.
	Again bool `json:"again,omitempty"`

	Batches int64 `json:"batches,omitempty"`
	Records int64 `json:"records,omitempty"`
}

// Edit is a job's first configuration, or a change of it, that was not made by an operation of a host.
type Edit struct {
	// Who is the user, host or program that made it; From is its source: FromFile or FromRegistry.
	Who  string `json:"who"`
	From string `json:"from"`
	// Created is set if the job did not exist before.
	Created bool `json:"created,omitempty"`
	// Before and After are the settings that differ, by their names in a definition file.
	Before map[string]string `json:"before,omitempty"`
	After  map[string]string `json:"after,omitempty"`
}

// FromFile is a definition file; FromRegistry is another program that wrote to the registry.
const FromFile, FromRegistry = "file", "registry"

// TriggerArgs has what a trigger asked for beyond a run of all items.
type TriggerArgs struct {
	// Items are the requested items, as ranges: 0,3-5; empty for all.
	Items string `json:"items,omitempty"`
	// Param is the job's parameter in this fire; nil if it is the configured one.
	Param *string `json:"param,omitempty"`
	// At is set if it gave the instant of the fire, and Backfill if that is one of a backfill, which is so
	// of a run that another host takes over, too.
	At       bool `json:"at,omitempty"`
	Backfill bool `json:"backfill,omitempty"`
	// Queued is the trigger's number in the queue; 0 if it was not queued.
	Queued int64 `json:"queued,omitempty"`
}

// Waited is how long an item waited on its host before its guest ran.
type Waited struct {
	// Listener: for what listeners do before the items of the fire.
	Listener time.Duration `json:"listenerNs,omitempty"`
	// Slot: for one of the host's slots, or of those that the job may have.
	Slot time.Duration `json:"slotNs,omitempty"`
	// Memory: for the memory of a guest.
	Memory time.Duration `json:"memoryNs,omitempty"`
}

// LeastWaited is the shortest reported wait.
const LeastWaited = 10 * time.Millisecond

// Report returns the waits of at least LeastWaited, nil for none.
func (w Waited) Report() *Waited {
	for _, d := range []*time.Duration{&w.Listener, &w.Slot, &w.Memory} {
		if *d < LeastWaited {
			*d = 0
		}
	}
	if w == (Waited{}) {
		return nil
	}
	return &w
}

// Settings are those parts of a job's configuration that decide when and where its
// items run.
type Settings struct {
	// Cron is empty for a job that only triggers run; TimeZone is the zone in force.
	Cron     string `json:"cron"`
	TimeZone string `json:"timeZone"`
	// Terms has the further terms of the schedule, for programs of this project; empty for none.
	Terms string `json:"terms,omitempty"`
	// Labels are the job's labels, NAME=VALUE by name, separated by commas; empty for none.
	Labels   string `json:"labels,omitempty"`
	Items    int    `json:"items"` // how many sharding items the job has
	Misfire  bool   `json:"misfire"`
	Failover bool   `json:"failover"`
	// ErrorHandler is empty for LOG.
	ErrorHandler string `json:"errorHandler,omitempty"`
	// CatchUp is how late a missed instant may run.
	CatchUp time.Duration `json:"catchUpNs"`
}

// Process names a host's process without a term: the instance ids of its terms begin with that name. token is
// the part of the ids after the address.
func Process(server, token string) string {
	pid, _, _ := strings.Cut(token, "-")
	return server + "@-@" + pid
}

// ProcessOf returns the process of an instance, as [Process] names it.
func ProcessOf(id string) string {
	server, token, _ := strings.Cut(id, "@-@")
	return Process(server, token)
}

// Names reports whether a name stands for an instance: its id, its process, or its server.
func Names(name, id string) bool {
	server, _, _ := strings.Cut(id, "@-@")
	return name == id || name == server || name == ProcessOf(id)
}

// TermOf returns the term of an instance: its id without the number that the term adds when it joins a job
// again.
func TermOf(id string) string {
	server, token, _ := strings.Cut(id, "@-@")
	if parts := strings.SplitN(token, "-", 3); len(parts) == 3 {
		token = parts[0] + "-" + parts[1]
	}
	return server + "@-@" + token
}

// PreviousRun is a run of another instance, as the item's record has it. From it the histories show the outcome
// of a run whose host died before it could report one.
type PreviousRun struct {
	// Host is the instance id of the host that began it.
	Host string `json:"host"`
	// Instant is the scheduled time of its fire; Trigger is the number of the trigger round, 0 for other fires.
	Instant time.Time `json:"instant,omitzero"`
	Trigger int64     `json:"trigger,omitempty"`
	// Outcome is the outcome of the completion that took effect, LOST or HELD if the run was given up after its
	// host's death, and empty if it was open.
	Outcome abi.Outcome `json:"outcome,omitempty"`
}
