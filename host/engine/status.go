package engine

import (
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/coordination/jobconfig"
	"github.com/wasmjob/wasmjob/coordination/tree"
	"github.com/wasmjob/wasmjob/host/event"
	"github.com/wasmjob/wasmjob/internal/labels"
)

// Status is what a host is doing, for people and for the admin address. It is
// a value; nothing in it changes later.
type Status struct {
	Instance  string    `json:"instance"`
	ServerIP  string    `json:"serverIp"`
	Namespace string    `json:"namespace"`
	State     HostState `json:"state"`
	Started   time.Time `json:"started"`
	// Zone is the one that the host goes by now, where a job has none of its own: "CET +01:00".
	Zone    string       `json:"zone"`
	Jobs    []*JobStatus `json:"jobs,omitzero"` // the jobs of the host, by name
	Refused []Refusal    `json:"refused"`       // the files that it refused, by name
	// Slots are those in which items run, one in each.
	Slots SlotsStatus `json:"slots"`
	// Waits are what the host waits for; what its jobs wait for is with them.
	Waits []WaitStatus `json:"waits,omitempty"`
	// RegistryFailures counts the requests to the registry that were not
	// answered, or refused, since the host began, by reason: timeout, unknown,
	// suspect, unavailable, too_large, other.
	RegistryFailures map[string]int64 `json:"registryFailures,omitempty"`
	// Clock compares this host's clock with the registry's; nil while that is not
	// known.
	Clock *ClockStatus `json:"clock,omitempty"`
}

// SlotsStatus is how many slots a host has, and how many of them are taken. What waits for one is
// [ItemStatus.Queued].
type SlotsStatus struct {
	// Total is how many items may run at once, Used how many slots are taken.
	Total int `json:"total"`
	Used  int `json:"used"`
}

// ClockStatus is how a host's clock and the registry's are apart. It is measured
// with every commit.
type ClockStatus struct {
	// Drift is by how much this host's is ahead, behind if it is negative, give or
	// take Uncertainty.
	Drift       time.Duration `json:"driftNs"`
	Uncertainty time.Duration `json:"uncertaintyNs"`
	// Bound is how much it may be; 0 if that is not bounded. Off is set if it is
	// more for certain.
	Bound time.Duration `json:"boundNs,omitempty"`
	Off   bool          `json:"off,omitempty"`
}

// WaitStatus is a wait that goes on.
type WaitStatus struct {
	What event.Wait `json:"what"`
	// Since is when it began: of several of a kind, the oldest.
	Since time.Time `json:"since"`
	Items []int     `json:"items,omitempty"`
	// Reason says in words what is waited for.
	Reason string `json:"reason"`
	// Until is when the last of it ends, if guests have said so, of their items or of the key of a rate; zero if they have not.
	Until time.Time `json:"until,omitzero"`
	// Expired is set when it has reached its deadline, which an event reported.
	Expired bool `json:"expired,omitempty"`
}

// HostState is the state of a host's term.
type HostState string

// The states of a host.
const (
	HostStarting HostState = "starting" // dialling the registry
	HostLive     HostState = "live"
	HostSuspect  HostState = "suspect" // the session is in doubt; nothing starts
	HostDraining HostState = "draining"
	HostStopped  HostState = "stopped"
)

// Refusal is a file in the plugins directory that was not taken, and why.
type Refusal struct {
	File    string   `json:"file"`
	Reasons []string `json:"reasons"`
	// Jobs are the jobs that Reasons are about, each at the place of its reason; empty for one that is about the file.
	Jobs []string `json:"jobs,omitempty"`
	// Modules are what is wrong with the modules of its jobs, by job.
	Modules map[string]string `json:"-"`
	Since   time.Time         `json:"since"`
	// Kept says that an earlier version of the file stays in force.
	Kept bool `json:"kept"`
}

// JobState is the state of a job on this host.
type JobState string

// The states of a job.
const (
	JobNoSession JobState = "no session" // with the registry
	JobJoining   JobState = "joining"    // registering
	JobReady     JobState = "ready"
	JobRunning   JobState = "running"
	JobQueued    JobState = "queued"   // items have begun, and all of them wait for a slot
	JobDisabled  JobState = "disabled" // this server is disabled for the job
	JobSharding  JobState = "sharding" // waits for a division of the items
	JobDraining  JobState = "draining"
	JobStopped   JobState = "stopped" // by an operator
	JobRemoved   JobState = "removed" // from the registry, while defined here
	JobError     JobState = "error"   // see Reason
)

// JobStatus is one job on this host.
type JobStatus struct {
	Name   string   `json:"name"`
	State  JobState `json:"state"`
	Reason string   `json:"reason,omitempty"`
	// SessionLost is when the host lost its session, in the state no session. LastState was the job's state then: ready,
	// disabled or error; LastItems are the items that the host had, as they were. All are missing if
	// the host has had no session since it began.
	SessionLost time.Time    `json:"sessionLost,omitzero"`
	LastState   JobState     `json:"lastState,omitempty"`
	LastItems   []ItemStatus `json:"lastItems,omitempty"`
	// Said is who has disabled, stopped or removed it, if the registry says so.
	Said *Said `json:"said,omitempty"`
	// Warnings do not keep the job from running.
	Warnings []string `json:"warnings,omitempty"`
	// Waits are what the job waits for on this host, at most one of a kind.
	Waits []WaitStatus `json:"waits,omitempty"`
	// Cron is the schedule in force, empty if there is none. RefusedCron is that of the
	// configuration if it is refused; Reason says why.
	Cron        string `json:"cron"`
	RefusedCron string `json:"refusedCron,omitempty"`
	TimeZone    string `json:"timeZone"`
	// Terms is what else the schedule goes by, for programs of this project: calendars and bounds
	// of instants, for example, or the crons of a job with several. It is empty for nothing.
	Terms string    `json:"terms,omitempty"`
	Next  time.Time `json:"next,omitzero"`
	// Arguments are those that the job declares; the default of each is what a run gets that is given none.
	Arguments jobconfig.Arguments `json:"arguments,omitempty"`
	// Starts is when the fire of Next starts, if that is put off by the job's jitter.
	Starts             time.Time `json:"starts,omitzero"`
	ShardingTotalCount int       `json:"shardingTotalCount"`
	Description        string    `json:"description,omitempty"`
	// Labels are those of the configuration in force, by name.
	Labels labels.Set `json:"labels,omitempty"`
	File   string     `json:"file"`
	// Inherited are the files of defaults, by the settings of the definition whose values they gave.
	Inherited map[string]string `json:"inherited,omitempty"`
	Module    string            `json:"module"`
	Type      string            `json:"type"`
	Digest    string            `json:"digest"`
	// Size and Imports are the module's, Needs what the definition wants granted.
	Size    int      `json:"sizeBytes,omitempty"`
	Imports []string `json:"imports,omitempty"`
	Needs   []string `json:"needs,omitempty"`
	// Isolation is how long a guest instance lives and where: fire and item, in a worker
	// process that jobs share; process, in one of the job's own, which the definition or
	// the host's operator asks for; host, in the host's own process.
	Isolation string `json:"isolation,omitempty"`
	// Granted says what the job is granted outside of its sandbox, in a few words each.
	Granted []string `json:"granted,omitempty"`
	// Signer is the name of the key that signed the module; empty if none did that the
	// operator knows.
	Signer string `json:"signer,omitempty"`
	// Leader is the instance id of the job's leader, empty while there is none.
	Leader string `json:"leader"`
	// Instances are the ids of all instances of the job, ascending.
	Instances []string `json:"instances"`
	// Servers are those that have an instance, or had one in the last day, ascending.
	Servers []string `json:"servers,omitempty"`
	// Hosts are what each of Instances publishes of itself, in the same order. They
	// may run different modules while a new one is being brought out:
	// DigestsDiffer says so, ZonesDiffer that they read the schedule in
	// different zones.
	Hosts         []InstanceStatus `json:"hosts,omitempty"`
	DigestsDiffer bool             `json:"digestsDiffer,omitempty"`
	ZonesDiffer   bool             `json:"zonesDiffer,omitempty"`
	// Items are those that this host owns or runs, ascending.
	Items []ItemStatus `json:"items"`
	// Listeners are those that have run here for a second, or wait for a slot, the oldest first: until they end, a kill of
	// the job ends them.
	Listeners []ListenerStatus `json:"listeners,omitempty"`
	// Backfill is the one that goes on, as one host of the job knows it; missing on other hosts and without one.
	Backfill *BackfillStatus `json:"backfill,omitempty"`
	// LastFire is the newest fire that ended here.
	LastFire *FireStatus `json:"lastFire,omitempty"`
}

// ListenerStatus is a listener that runs.
type ListenerStatus struct {
	// Export is its name in the module.
	Export string `json:"export"`
	// Since is when it began, or came to wait for a slot.
	Since time.Time `json:"since"`
	// Instant is that of its fire, or when that was triggered; Trigger is the number of the trigger, 0 for none.
	Instant time.Time `json:"instant"`
	Trigger int64     `json:"trigger,omitempty"`
}

// Said is what somebody has said of a job, a server or an item: that it is not to run.
type Said struct {
	// By is who said it, Why the reason that was given, Since when it was said.
	By    string    `json:"by,omitempty"`
	Why   string    `json:"why,omitempty"`
	Since time.Time `json:"since,omitzero"`
	// Until is when it ends by itself; zero: never.
	Until time.Time `json:"until,omitzero"`
}

// SaidBy is the word in which the registry has it; nil if nobody said anything.
func SaidBy(w tree.Word) *Said {
	at := func(ms int64) time.Time {
		if ms == 0 {
			return time.Time{}
		}
		return time.UnixMilli(ms)
	}
	s := Said{By: w.By, Why: w.Why, Since: at(w.Since), Until: at(w.Until)}
	if s == (Said{}) {
		return nil
	}
	return &s
}

// InstanceStatus is one instance of a job, as it describes itself.
type InstanceStatus struct {
	Instance string `json:"instance"`
	// Java is a host of ElasticJob's, which publishes nothing.
	Java bool `json:"java,omitempty"`
	// State is READY, RUNNING or DRAINING.
	State    string `json:"state,omitempty"`
	Digest   string `json:"digest,omitempty"`
	TimeZone string `json:"timeZone,omitempty"`
	// Succeeded and Failed count the items that it completed in this life; they
	// are some minutes old.
	Succeeded int64 `json:"succeeded,omitempty"`
	Failed    int64 `json:"failed,omitempty"`
}

// ItemStatus is one sharding item on this host.
type ItemStatus struct {
	Item      int    `json:"item"`
	Parameter string `json:"parameter,omitempty"`
	// Running is true from when the item has a slot until its completion took effect. Queued: it has
	// begun and waits for a slot, or for memory; a host of an earlier version calls that running, too.
	Running bool `json:"running"`
	Queued  bool `json:"queued,omitempty"`
	// Since is when the newest attempt began, or since when it is queued.
	Since    time.Time `json:"since,omitzero"`
	Attempt  int       `json:"attempt,omitempty"`
	Done     int64     `json:"done,omitempty"` // progress as the guest reported it
	Total    int64     `json:"total,omitempty"`
	Misfired bool      `json:"misfired,omitempty"`
	// Disabled: an operator keeps the item from running, on whatever host.
	Disabled bool `json:"disabled,omitempty"`
	// Said is who has disabled it, if the registry says so.
	Said  *Said `json:"said,omitempty"`
	Fence int64 `json:"fence,omitempty"`
	// Held is since when the item is held back, because hosts died in its runs,
	// as far as this host has seen: it learns of a release when the item is due.
	Held time.Time `json:"held,omitzero"`
	// NotBefore is before when the item does not begin, because its guest asked to be run again then; zero if that is not so.
	NotBefore time.Time `json:"notBefore,omitzero"`
	// LastOutcome, LastMessage and LastEnd are those of the last run here.
	LastOutcome abi.Outcome `json:"lastOutcome,omitempty"`
	LastMessage string      `json:"lastMessage,omitempty"`
	// LastOutside is what the last attempt of that run did with each capability.
	LastOutside map[string]abi.OutsideCount `json:"lastOutside,omitempty"`
	LastEnd     time.Time                   `json:"lastEnd,omitzero"`
	// Failures is how many runs of the item in a row were not OK, LastOK when one was, on
	// whatever hosts; zero if that is not known.
	Failures int       `json:"failures,omitempty"`
	LastOK   time.Time `json:"lastOk,omitzero"`
	// Failing is when the first of Failures ended; zero if there is none, or if that is not known.
	Failing time.Time `json:"failing,omitzero"`
}

// Begun reports whether the item has begun and not ended: it runs or is queued.
func (i *ItemStatus) Begun() bool { return i.Running || i.Queued }

// FireStatus is what this host ran of one fire. Hosts that took a trigger up at different times have
// instants of their own for it, and its round in Trigger.
type FireStatus struct {
	Instant time.Time   `json:"instant"`
	Trigger int64       `json:"trigger,omitempty"`
	Source  abi.Source  `json:"source"`
	Items   []int       `json:"items"`
	Outcome abi.Outcome `json:"outcome"`
	// Begun is when its items were begun here, Ended when the last of them ended, Duration the time
	// between the two, in nanoseconds. A host of an earlier version has Duration alone.
	Begun    time.Time     `json:"begun,omitzero"`
	Ended    time.Time     `json:"ended,omitzero"`
	Duration time.Duration `json:"durationNs"`
}

// Span is when the fire began and ended here.
func (f *FireStatus) Span() (begun, ended time.Time) {
	if f.Begun.IsZero() {
		return f.Instant, f.Instant.Add(f.Duration)
	}
	return f.Begun, f.Ended
}
