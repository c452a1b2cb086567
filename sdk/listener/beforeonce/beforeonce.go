// Package beforeonce adds the listener export job_before_executed_at_last_started to a module:
// a handler that runs once per fire over all hosts, when the last items have been handed out and before any runs.
//
// A listener runs in an instance of its own, beside the job's. It has no
// item: ShardingItem is -1, and there is no offset. Its failure is reported,
// and the items run all the same.
package beforeonce

import "github.com/wasmjob/wasmjob/sdk"

// A module is one guest: it has one handler, as it has one export.
var handler sdk.Handler

// Register makes h the listener. Call it once, in an init function.
func Register(h sdk.Handler) { handler = h }

// Run is the export: it runs what is registered, so that a test can, too.
//
//go:wasmexport job_before_executed_at_last_started
func Run() int32 { return sdk.Invoke(handler) }
