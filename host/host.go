package host

import (
	"context"
	"errors"
	"time"

	"go.uber.org/zap"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/coordination"
)

// Module is a loaded module that can be configured for a job. It is safe for
// concurrent use.
type Module interface {
	// Digest is the lower-case hex SHA-256 of the module's bytes.
	Digest() string
	// Executor configures the module for the job. The caller owns one use
	// of the result and ends it with Release.
	Executor(c coordination.JobConfiguration) (abi.Executor, error)
}

// Job is a job that this host should run: its definition and its module.
type Job struct {
	// Definition is the configuration as the definition file has it. What
	// is in force is what the registry says; see coordination.Merge.
	Definition coordination.JobConfiguration
	// JobClass is written as the data of the job's root node if that is blank.
	JobClass string
	Module   Module
	// File and ModuleFile are names for people.
	File, ModuleFile string
}

// Config is what New needs. It is not changed after New.
type Config struct {
	// Dial opens a registry session; it is called once per term.
	Dial func(context.Context) (coordination.RegistryCenter, error)
	// Namespace is the first segment (or segments) of every path.
	Namespace string
	// ServerIP names this server to operators: an IPv4 address.
	ServerIP string
	// MaxConcurrency bounds the items that run at once on this host.
	// 0 is 8 per processor.
	MaxConcurrency int
	// DrainTimeout is how long running items may go on after Run was told to
	// stop. 0 is 30 s; negative is not at all.
	DrainTimeout time.Duration
	// OnEvent is called with every event, from one goroutine at a time and
	// in order. It must not block. nil drops them.
	OnEvent func(Event)
	// OnLog is called with every line that a guest logs, from the guest's
	// goroutine. nil drops them.
	OnLog func(GuestLog)
	// OnMetric is called with every value that a guest reports, from the
	// guest's goroutine; it returns an abi code. nil accepts and drops.
	OnMetric func(GuestMetric) abi.Code
	// HostInfo is the text of abi.CtxHostInfo.
	HostInfo string
	Logger   *zap.Logger
}

// GuestLog is one line of a guest.
type GuestLog struct {
	Job, TaskID, RunID string
	Item               int // -1 in a listener
	Level              int // see abi.LevelInfo
	Message            string
	// Attrs alternates keys and values.
	Attrs []string
}

// GuestMetric is one value that a guest reported.
type GuestMetric struct {
	Job   string
	Item  int
	Kind  int // abi.MetricCounter, …
	Name  string
	Value int64
}

// Errors of the operations.
var (
	ErrNoJob   = errors.New("no such job on this host")
	ErrNotLive = errors.New("the host has no live registry session")
)

