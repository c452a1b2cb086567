package engine

import (
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/coordination/jobconfig"
	"github.com/wasmjob/wasmjob/coordination/tree"
	"github.com/wasmjob/wasmjob/host/event"
	"github.com/wasmjob/wasmjob/internal/labels"
)

// Status is the state of a host, for people and for the admin address. It is a value that does not change later.
type Status struct {
	Instance  string    `json:"instance"`
	ServerIP  string    `json:"serverIp"`
	Namespace string    `json:"namespace"`
	State     HostState `json:"state"`
	Started   time.Time `json:"started"`
	// Zone is the host's present time zone, for jobs without one: "CET +01:00".
	Zone    string       `json:"zone"`
	Jobs    []*JobStatus `json:"jobs,omitzero"` // the jobs of the host, by name
	Refused []Refusal    `json:"refused"`       // the files that it refused, by name
	// Slots are the host's slots; each running item takes one.
	Slots SlotsStatus `json:"slots"`
	// Waits are the waits of the host itself; those of its jobs are in Jobs.
	Waits []WaitStatus `json:"waits,omitempty"`
	// RegistryFailures counts the requests to the registry that failed or were refused since the host started, by reason:
	// timeout, unknown, suspect, unavailable, too_large, other.
	RegistryFailures map[string]int64 `json:"registryFailures,omitempty"`
	// Clock compares this host's clock with the registry's; nil while unknown.
	Clock *ClockStatus `json:"clock,omitempty"`
}

// SlotsStatus is how many slots a host has, and how many are used. Items that wait for a slot are [ItemStatus.Queued].
type SlotsStatus struct {
	// Total is how many items may run at the same time, Used is how many slots are used.
	Total int `json:"total"`
	Used  int `json:"used"`
}

// ClockStatus is the difference between a host's clock and the registry's. The host measures it with every commit.
type ClockStatus struct {
	// Drift is how far this host's clock is ahead of the registry's, negative if it is behind. The true value differs by
	// at most Uncertainty.
	Drift       time.Duration `json:"driftNs"`
	Uncertainty time.Duration `json:"uncertaintyNs"`
	// Bound is the allowed Drift; 0 without a bound. Off is set if the clock is certainly beyond the bound.
	Bound time.Duration `json:"boundNs,omitempty"`
	Off   bool          `json:"off,omitempty"`
}

// WaitStatus is a wait that has not ended.
type WaitStatus struct {
	What event.Wait `json:"what"`
	// Since is when the oldest wait of this kind began.
	Since time.Time `json:"since"`
	Items []int     `json:"items,omitempty"`
	// Reason says what is waited for.
	Reason string `json:"reason"`
	// Until is when the last wait ends for which guests have asked, for their items or for the key of a rate; zero
	// without one.
	Until time.Time `json:"until,omitzero"`
	// Expired is set when the wait has reached its deadline, which an event reported.
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

// Refusal is a file in the plugins directory that the host refused, and why.
type Refusal struct {
	File    string   `json:"file"`
	Reasons []string `json:"reasons"`
	// Jobs are the jobs of Reasons, by index; empty for a reason about the file.
	Jobs []string `json:"jobs,omitempty"`
	// Modules has the problems of the modules of its jobs, by job.
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
	// disabled or error. LastItems are the host's items in their last state. All three are missing if the host has had no
	// session since it started.
	SessionLost time.Time    `json:"sessionLost,omitzero"`
	LastState   JobState     `json:"lastState,omitempty"`
	LastItems   []ItemStatus `json:"lastItems,omitempty"`
	// Said is who has disabled, stopped or removed the job, if the registry says so.
	Said *Said `json:"said,omitempty"`
	// Warnings are problems that do not keep the job from running.
	Warnings []string `json:"warnings,omitempty"`
	// Waits are the job's waits on this host, at most one of a kind.
	Waits []WaitStatus `json:"waits,omitempty"`
	// Cron is the schedule in force, empty without one. RefusedCron is the configuration's cron if it is refused; Reason
	// says why.
	Cron        string `json:"cron"`
	RefusedCron string `json:"refusedCron,omitempty"`
	TimeZone    string `json:"timeZone"`
	// Terms are the settings besides cron and zone that determine the schedule, for programs of this project: calendars
	// and bounds of instants, for example, or the crons of a job with several. It is empty without any.
	Terms string    `json:"terms,omitempty"`
	Next  time.Time `json:"next,omitzero"`
	// Arguments are those that the job declares; a run without a value gets the default.
	Arguments jobconfig.Arguments `json:"arguments,omitempty"`
	// Starts is when the fire of Next starts, if the job's jitter delays it.
	Starts             time.Time `json:"starts,omitzero"`
	ShardingTotalCount int       `json:"shardingTotalCount"`
	Description        string    `json:"description,omitempty"`
	// Labels are those of the configuration in force, by name.
	Labels labels.Set `json:"labels,omitempty"`
	File   string     `json:"file"`
	// Inherited has, by setting of the definition, the file of defaults that gave the setting's value.
	Inherited map[string]string `json:"inherited,omitempty"`
	Module    string            `json:"module"`
	Type      string            `json:"type"`
	Digest    string            `json:"digest"`
	// Size and Imports are those of the module, Needs are the grants that the definition needs.
	Size    int      `json:"sizeBytes,omitempty"`
	Imports []string `json:"imports,omitempty"`
	Needs   []string `json:"needs,omitempty"`
	// Isolation is where guests run and how long a guest instance lives: fire and item, in a worker process that jobs
	// share; process, in a process of the job's own, because the definition or the host's operator asks for it; host, in
	// the host's own process.
	Isolation string `json:"isolation,omitempty"`
	// Granted lists what the job may do outside its sandbox, in a few words each.
	Granted []string `json:"granted,omitempty"`
	// Signer is the name of the key that signed the module; empty without a signature by a key that the operator knows.
	Signer string `json:"signer,omitempty"`
	// Leader is the instance id of the job's leader, empty while there is none.
	Leader string `json:"leader"`
	// Instances are the ids of all instances of the job, ascending.
	Instances []string `json:"instances"`
	// Servers are those that have an instance, or had one in the last day, ascending.
	Servers []string `json:"servers,omitempty"`
	// Hosts are what each of Instances publishes, in the same order. DigestsDiffer says that they run different modules,
	// as while a new version is rolled out; ZonesDiffer says that they read the schedule in different zones.
	Hosts         []InstanceStatus `json:"hosts,omitempty"`
	DigestsDiffer bool             `json:"digestsDiffer,omitempty"`
	ZonesDiffer   bool             `json:"zonesDiffer,omitempty"`
	// Items are those that this host owns or runs, ascending.
	Items []ItemStatus `json:"items"`
	// Listeners are those that have run on this host for a second, or wait for a slot, oldest first. Until they end, a
	// kill of the job ends them.
	Listeners []ListenerStatus `json:"listeners,omitempty"`
	// Backfill is the current backfill, as one host of the job knows it; missing on other hosts and without a backfill.
	Backfill *BackfillStatus `json:"backfill,omitempty"`
	// LastFire is the newest fire that ended on this host.
	LastFire *FireStatus `json:"lastFire,omitempty"`
}

// ListenerStatus is a listener that runs.
type ListenerStatus struct {
	// Export is its name in the module.
	Export string `json:"export"`
	// Since is when it began to run, or to wait for a slot.
	Since time.Time `json:"since"`
	// Instant is the instant of its fire, or when a trigger was seen; Trigger is the number of the trigger, 0 for other
	// fires.
	Instant time.Time `json:"instant"`
	Trigger int64     `json:"trigger,omitempty"`
}

// Said is a user's word that a job, a server or an item must not run.
type Said struct {
	// By is the user, Why the given reason, Since the time of the word.
	By    string    `json:"by,omitempty"`
	Why   string    `json:"why,omitempty"`
	Since time.Time `json:"since,omitzero"`
	// Until is when the word ends by itself; zero: never.
	Until time.Time `json:"until,omitzero"`
}

// SaidBy returns the registry's word; nil without one.
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
	// Java is set for a host of ElasticJob, which publishes nothing.
	Java bool `json:"java,omitempty"`
	// State is READY, RUNNING or DRAINING.
	State    string `json:"state,omitempty"`
	Digest   string `json:"digest,omitempty"`
	TimeZone string `json:"timeZone,omitempty"`
	// Succeeded and Failed count the items that the instance has completed; they may be some minutes old.
	Succeeded int64 `json:"succeeded,omitempty"`
	Failed    int64 `json:"failed,omitempty"`
}

// ItemStatus is one sharding item on this host.
type ItemStatus struct {
	Item      int    `json:"item"`
	Parameter string `json:"parameter,omitempty"`
	// Running is true from when the item gets a slot until its completion took effect. Queued: it has begun and waits for
	// a slot, or for memory; a host of an earlier version reports such an item as running.
	Running bool `json:"running"`
	Queued  bool `json:"queued,omitempty"`
	// Since is when the newest attempt began, or when the item was queued.
	Since    time.Time `json:"since,omitzero"`
	Attempt  int       `json:"attempt,omitempty"`
	Done     int64     `json:"done,omitempty"` // progress as the guest reported it
	Total    int64     `json:"total,omitempty"`
	Misfired bool      `json:"misfired,omitempty"`
	// Disabled: an operator keeps the item from running on any host.
	Disabled bool `json:"disabled,omitempty"`
	// Said is who has disabled the item, if the registry says so.
	Said  *Said `json:"said,omitempty"`
	Fence int64 `json:"fence,omitempty"`
	// Held is since when the item is held back, because hosts died in its runs. This host learns of a release only when
	// the item is due.
	Held time.Time `json:"held,omitzero"`
	// NotBefore is the time before which the item does not begin, because its guest asked for that; zero otherwise.
	NotBefore time.Time `json:"notBefore,omitzero"`
	// LastOutcome, LastMessage and LastEnd are those of the last run on this host.
	LastOutcome abi.Outcome `json:"lastOutcome,omitempty"`
	LastMessage string      `json:"lastMessage,omitempty"`
	// LastOutside counts what the last attempt of that run did with each capability.
	LastOutside map[string]abi.OutsideCount `json:"lastOutside,omitempty"`
	LastEnd     time.Time                   `json:"lastEnd,omitzero"`
	// Failures is how many runs of the item in a row were not OK, on any hosts; LastOK is when a run was last OK. Both
	// are zero if unknown.
	Failures int       `json:"failures,omitempty"`
	LastOK   time.Time `json:"lastOk,omitzero"`
	// Failing is when the first of Failures ended; zero without one, or if unknown.
	Failing time.Time `json:"failing,omitzero"`
}

// Begun reports whether the item has begun and not ended: it runs or is queued.
func (i *ItemStatus) Begun() bool { return i.Running || i.Queued }

// FireStatus is what this host ran of one fire. Hosts that saw a trigger at different times have different instants for
// it, and its round in Trigger.
type FireStatus struct {
	Instant time.Time   `json:"instant"`
	Trigger int64       `json:"trigger,omitempty"`
	Source  abi.Source  `json:"source"`
	Items   []int       `json:"items"`
	Outcome abi.Outcome `json:"outcome"`
	// Begun is when its items began on this host, Ended when the last of them ended, Duration the time between the two,
	// in nanoseconds. A host of an earlier version reports only Duration.
	Begun    time.Time     `json:"begun,omitzero"`
	Ended    time.Time     `json:"ended,omitzero"`
	Duration time.Duration `json:"durationNs"`
}

// Span returns when the fire began and ended on this host.
func (f *FireStatus) Span() (begun, ended time.Time) {
	if f.Begun.IsZero() {
		return f.Instant, f.Instant.Add(f.Duration)
	}
	return f.Begun, f.Ended
}
