// Package before adds the listener export job_before_executed to a module:
// a handler that runs on each host before its items of a fire.
//
// A listener runs in an instance of its own, beside the job's. It has no
// item: ShardingItem is -1, and there is no offset. Its failure is reported,
// and the items run all the same.
package before

import "github.com/wasmjob/wasmjob/sdk"

// A module is one guest: it has one handler, as it has one export.
var handler sdk.Handler

// Register makes h the listener. Call it once, in an init function.
func Register(h sdk.Handler) { handler = h }

// Run is the export: it runs what is registered, so that a test can, too.
//
//go:wasmexport job_before_executed
func Run() int32 { return sdk.Invoke(handler) }
