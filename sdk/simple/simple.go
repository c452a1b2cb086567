// Package simple makes a module a SIMPLE job: importing it adds the export
// job_execute, which runs one sharding item.
package simple

import "github.com/wasmjob/wasmjob/sdk"

// A module is one guest: it has one handler, as it has one job_execute.
var handler sdk.Handler

// Register makes h the job. Call it once, in an init function.
func Register(h sdk.Handler) { handler = h }

// Execute is the export: it runs what is registered, so that a test can, too.
//
//go:wasmexport job_execute
func Execute() int32 { return sdk.Invoke(handler) }
