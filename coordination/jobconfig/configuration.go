// Package jobconfig is a job's configuration: ElasticJob's document (node "config"), its valid values, and how
// a definition file is merged into it. It does not access the registry.
package jobconfig

import (
	"time"

	"github.com/wasmjob/wasmjob/internal/labels"
)

// Configuration is a job's configuration in the cluster: ElasticJob's document (node "config"), field by field,
// with ElasticJob's names. Settings that ElasticJob does not have are in Props, as strings whose keys begin
// with "wasm."; Guest reads them.
type Configuration struct {
	JobName string
	// Cron is the schedule; empty for a one-off job that only a trigger runs.
	Cron string
	// TimeZone is an IANA name, or GMT±hh:mm as ElasticJob has it. Empty is
	// the host's own zone.
	TimeZone           string
	ShardingTotalCount int
	// ShardingItemParameters is "0=Beijing,1=Shanghai".
	ShardingItemParameters string
	JobParameter           string
	// MonitorExecution, Failover and Misfire are ElasticJob's switches; see
	// docs/definitions.md.
	MonitorExecution bool
	Failover         bool
	Misfire          bool
	// MaxTimeDiffSeconds is how far this host's clock may be from the
	// registry's; negative is no check.
	MaxTimeDiffSeconds int
	// ReconcileIntervalMinutes is the interval of the slow re-read; 0 or less turns it off.
	ReconcileIntervalMinutes int
	JobShardingStrategyType  string
	// JobExecutorThreadPool is kept unchanged (key and value), for Java hosts.
	JobExecutorThreadPoolKey, JobExecutorThreadPoolValue string
	JobErrorHandlerType                                  string
	JobListenerTypes                                     []string
	// ExtraConfigurations is the text of ElasticJob's tracing block, kept unchanged, for Java hosts.
	ExtraConfigurations string
	Description         string
	Props               map[string]string
	// Disabled is the state in which servers are first registered.
	Disabled       bool
	Overwrite      bool
	Label          *string
	StaticSharding bool
}

// Guest are the settings of the guest, read from Props.
type Guest struct {
	// Type is SIMPLE, DATAFLOW, SCRIPT or HTTP; empty means that the module's exports decide.
	Type             JobType
	StreamingProcess bool // "streaming.process", ElasticJob's key
	// Timeout per item, 0 = none. "wasm.timeout", a Go duration.
	Timeout time.Duration
	// MaxConcurrency of this job's items on one host, 0 = the default.
	// "wasm.maxConcurrency"
	MaxConcurrency int
	// Isolation is how long a guest instance lives, and where. "wasm.isolation"
	Isolation Isolation
	// Args of a SCRIPT. "wasm.args", a JSON list of strings.
	Args []string
	// Arguments are the named values of each run. "wasm.arguments", a JSON list
	Arguments Arguments
	// MemoryLimit of a guest's linear memory in bytes, 0 = the default.
	// "wasm.memoryLimit"
	MemoryLimit int64
	// FetchDataCount is the preferred batch size of a DATAFLOW job, 0 = abi's default. "wasm.fetchDataCount"
	FetchDataCount int
	Retry          RetryPolicy
	// CatchUpWindow is how old a missed instant may be to be caught up. "wasm.catchUpWindow"
	CatchUpWindow time.Duration
	// CatchUp says which missed instants are caught up, at most CatchUpMax; empty: see [Guest.CatchesUp].
	// "wasm.catchUp", "wasm.catchUpMax"
	CatchUp    CatchUp
	CatchUpMax int
	// Overlap says what happens to an instant that comes due while the item runs; empty: see [Guest.Overlaps].
	// QueueMax is how many instants may wait for an item with [OverlapQueueAll]. "wasm.overlap",
	// "wasm.queueMax"
	Overlap  Overlap
	QueueMax int
	// Concurrency bounds the items that run at once in the whole namespace.
	Concurrency Concurrency
	// Rate bounds how often items begin in the whole namespace.
	Rate Rate
	// Priority orders waiting items for the slots of a host, from 1 (first) to 4. "wasm.priority"
	Priority int
	// StartWithin is how long after its instant an item may start, 0 = any time.
	// "wasm.startWithin"
	StartWithin time.Duration
	// MaxRuns is the number of instants after which the job is paused, 0 = no limit. "wasm.maxRuns"
	MaxRuns int
	// PauseAfterFailures is how many failures of an item in a row pause the job, 0 = never.
	// "wasm.pauseAfterFailures"
	PauseAfterFailures int
	// MaxHostDeaths is how many hosts in a row may die in runs of an item before the item is held back, 0 = no
	// limit. "wasm.maxHostDeaths"
	MaxHostDeaths int
	// HTTP is the request of a job of type HTTP.
	HTTP HTTPRequest
	// Needs is what the job needs of the operator's grants, in the form of
	// host/grants.ParseNeed. "wasm.needs", a JSON list of strings.
	Needs []string
	// Labels are for people and filters. "wasm.labels", NAME=VALUE separated by commas.
	Labels labels.Set
	// When has the settings that determine the job's instants besides its cron.
	When When
}

// JobType says which exports of the module the host calls.
type JobType string

// The types.
const (
	TypeSimple   JobType = "SIMPLE"
	TypeDataflow JobType = "DATAFLOW"
	TypeScript   JobType = "SCRIPT"
	// TypeHTTP has no module: the host sends Guest.HTTP.
	TypeHTTP JobType = "HTTP"
)

// Isolation says how long a guest instance lives, and where.
type Isolation string

// The isolations.
const (
	// IsolationFire: one instance per worker per fire.
	IsolationFire Isolation = "fire"
	// IsolationItem: a fresh instance for every item and attempt.
	IsolationItem Isolation = "item"
	// IsolationProcess: as IsolationFire, in a process of the job's own.
	IsolationProcess Isolation = "process"
	// IsolationHost: as IsolationFire, in the host's own process, if its operator allows
	// that.
	IsolationHost Isolation = "host"
)

// Overlap says what happens to an instant that comes due while the item still runs.
type Overlap string

// The overlaps.
const (
	// OverlapSkip drops the instant.
	OverlapSkip Overlap = "skip"
	// OverlapQueueOne runs the item once more when it has ended, for the newest instant.
	OverlapQueueOne Overlap = "queue_one"
	// OverlapQueueAll runs the item for each instant, oldest first.
	OverlapQueueAll Overlap = "queue_all"
	// OverlapCancel asks the run to stop, and then runs the item for the newest instant.
	OverlapCancel Overlap = "cancel"
	// OverlapTerminate stops the run by force, and then runs the item for the newest instant.
	OverlapTerminate Overlap = "terminate"
)

// CatchUp says which instants are caught up that no host could run.
type CatchUp string

// The catch-ups.
const (
	CatchUpNone   CatchUp = "none"
	CatchUpLatest CatchUp = "latest" // the newest one
	CatchUpAll    CatchUp = "all"    // each, oldest first
)

// RetryPolicy says when and how often a failed item is tried again. Retries run within the fire, on the host
// that owns the item.
type RetryPolicy struct {
	// Attempts is the total, from 1. "wasm.retry.attempts", default 3.
	Attempts int
	// Backoff before the second attempt, doubling up to MaxBackoff.
	// "wasm.retry.backoff" (1s), "wasm.retry.maxBackoff" (30s)
	Backoff, MaxBackoff time.Duration
	// On lists the outcomes that are tried again: RETRY, FAIL, TRAP, EXIT,
	// TIMEOUT, WORKER. "wasm.retry.on", comma separated, default RETRY.
	On []string
}
