// Package dataflow makes a module a DATAFLOW job: importing it adds the exports job_fetch and job_process, which the host
// calls alternately until a fetch finds nothing.
//
// The records of a batch stay in the guest's memory between the two calls. An offset that Fetch or Process sets becomes
// durable only when Process has ended with success: after a failure or a crash Fetch gets the same batch again. So Fetch
// should read the position with sdk.Offset each time, and not remember it.
package dataflow

import (
	"context"
	"errors"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/sdk"
)

// Fetch loads the next records of an item; none means that there are no more for now, and ends the loop. An offset that
// Fetch sets then is kept too. sc.FetchDataCount is how many records the job's configuration asks for; 0 leaves that to
// Fetch.
type Fetch[T any] func(ctx context.Context, sc sdk.ShardingContext) ([]T, error)

// Process works on the records that Fetch has loaded.
type Process[T any] func(ctx context.Context, sc sdk.ShardingContext, records []T) error

// Flow keeps the batch between a fetch and the process after it.
type Flow[T any] struct {
	fetch   Fetch[T]
	process Process[T]
	batch   []T
}

// New pairs the two functions. A job calls [Register] instead; New is for
// tests and for modules that write their exports themselves.
func New[T any](fetch Fetch[T], process Process[T]) *Flow[T] {
	return &Flow[T]{fetch: fetch, process: process}
}

// Fetch is the body of job_fetch: the number of records, or a negated status.
func (f *Flow[T]) Fetch() int32 {
	f.batch = nil
	status := sdk.Invoke(func(ctx context.Context, sc sdk.ShardingContext) error {
		batch, err := f.fetch(ctx, sc)
		if err == nil {
			f.batch = batch
		}
		return err
	})
	if status != int32(abi.StatusOK) {
		return -status
	}
	return int32(len(f.batch))
}

// errNoBatch is a mistake of the host.
var errNoBatch = errors.New("process: no batch has been fetched")

// Process is the body of job_process: a status.
func (f *Flow[T]) Process() int32 {
	batch := f.batch
	f.batch = nil
	return sdk.Invoke(func(ctx context.Context, sc sdk.ShardingContext) error {
		if len(batch) == 0 {
			return errNoBatch
		}
		return f.process(ctx, sc, batch)
	})
}

// A module is one guest: it has one flow, as it has one job_fetch.
var flow interface {
	Fetch() int32
	Process() int32
}

// Register makes the two functions the job. Call it once, in an init function.
func Register[T any](fetch Fetch[T], process Process[T]) { flow = New(fetch, process) }

// FetchExport is the export: it runs what is registered, so that a test can, too.
//
//go:wasmexport job_fetch
func FetchExport() int32 {
	if flow == nil {
		return -sdk.Invoke(nil)
	}
	return flow.Fetch()
}

// ProcessExport is the export: it runs what is registered, so that a test can, too.
//
//go:wasmexport job_process
func ProcessExport() int32 {
	if flow == nil {
		return sdk.Invoke(nil)
	}
	return flow.Process()
}
