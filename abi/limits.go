package abi

import "time"

// Limits of one invocation. A host may grant more, never less, except that the log budget of the job on this
// host may be used up.
const (
	// MaxLogMessage is the longest log message in bytes; longer ones are cut.
	MaxLogMessage = 8 << 10
	// MaxLogBytes is how much one invocation may log, including stdout and stderr. Beyond it only the newest
	// lines are kept; the others are counted and dropped.
	MaxLogBytes = 1 << 20
	// LogLinesPerSecond and LogBurst bound the rate of log lines per invocation.
	LogLinesPerSecond = 200
	LogBurst          = 1000
	// MaxError is the longest text of set_error in bytes; longer ones are cut.
	MaxError = 8 << 10
	// MaxOffset is the largest offset in bytes; larger ones are ErrTooLarge.
	MaxOffset = 4 << 10
	// MaxRetryAt is how far ahead a guest may postpone its next run.
	MaxRetryAt = 30 * 24 * time.Hour
	// MaxMetricName is the longest metric name; names match
	// [a-z][a-z0-9_]{0,63}.
	MaxMetricName = 64
	// MaxMetricNames is how many names a job may use.
	MaxMetricNames = 64
	// InitializeTimeout bounds _initialize and a start section.
	InitializeTimeout = 5 * time.Second
	// DefaultMemory is the default limit of linear memory in bytes.
	DefaultMemory = 128 << 20
	// MaxStack bounds the native stack of a guest's calls, in bytes. It is not part of linear memory; a guest
	// that needs more, by deep recursion, traps. The engine doubles a full stack, so that up to three times as
	// much is allocated before the guest is stopped: the old stack and the new one.
	MaxStack = 16 << 20
	// MaxModuleSize is the largest module file in bytes.
	MaxModuleSize = 32 << 20
	// MaxManifest is the largest job.manifest section in bytes.
	MaxManifest = 64 << 10
)

// ManifestSection is the name of the optional custom section that describes a module to people, as JSON. Hosts
// do not depend on it.
const ManifestSection = "job.manifest"
