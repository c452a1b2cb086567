package servicetest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/coordination/jobconfig"
	"github.com/wasmjob/wasmjob/host/engine"
)

// Function is a module.
type Function func(ctx context.Context, inv *abi.Invocation) abi.Result

// OK is a module whose items succeed at once.
func OK(context.Context, *abi.Invocation) abi.Result { return abi.Result{Outcome: abi.OutcomeOK} }

// Fail is a module whose items fail.
func Fail(context.Context, *abi.Invocation) abi.Result {
	return abi.Result{Outcome: abi.OutcomeFail, Message: "disk on fire"}
}

// Wait is a module whose items run until they are stopped by force.
func Wait(ctx context.Context, _ *abi.Invocation) abi.Result {
	<-ctx.Done()
	return abi.Result{Outcome: abi.OutcomeCancelled, Message: context.Cause(ctx).Error()}
}

// Job is a job of such a module; without a cron only triggers run it.
func Job(name, cron string, items int, run Function) engine.Job {
	c := jobconfig.Configuration{
		JobName: name, Cron: cron, TimeZone: "GMT", ShardingTotalCount: items, MonitorExecution: true, Failover: true, Misfire: true,
		MaxTimeDiffSeconds: -1, ReconcileIntervalMinutes: 10, Props: map[string]string{},
	}
	sum := sha256.Sum256([]byte(name))
	return engine.Job{Definition: c, Module: &module{digest: hex.EncodeToString(sum[:]), run: run}, File: name + ".yaml", ModuleFile: name + ".wasm"}
}

// Listening has a listener export of the job's module do something.
func Listening(job engine.Job, export string, run Function) engine.Job {
	m := *job.Module.(*module)
	m.export, m.listener = export, run
	job.Module = &m
	return job
}

// module is a function as a module, an executor and a worker.
type module struct {
	digest   string
	run      Function
	export   string // of the listener; empty for none
	listener Function
}

func (m *module) Digest() string                                              { return m.digest }
func (*module) Granted() string                                               { return "" }
func (m *module) Executor(jobconfig.Configuration) (abi.Executor, error)      { return m, nil }
func (m *module) HasListener(export string) bool                              { return export == m.export }
func (m *module) NewWorker(context.Context) (abi.Worker, error)               { return m, nil }
func (*module) Expect(time.Time)                                              {}
func (*module) Retain() bool                                                  { return true }
func (*module) Release()                                                      {}
func (*module) Close() error                                                  { return nil }
func (m *module) Execute(ctx context.Context, inv *abi.Invocation) abi.Result { return m.run(ctx, inv) }
func (m *module) Listen(ctx context.Context, _ string, inv *abi.Invocation) abi.Result {
	return m.listener(ctx, inv)
}
