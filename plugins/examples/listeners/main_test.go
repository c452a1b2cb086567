package main

import (
	"testing"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/sdk/listener/after"
	"github.com/wasmjob/wasmjob/sdk/listener/afteronce"
	"github.com/wasmjob/wasmjob/sdk/listener/before"
	"github.com/wasmjob/wasmjob/sdk/listener/beforeonce"
	"github.com/wasmjob/wasmjob/sdk/sdktest"
	"github.com/wasmjob/wasmjob/sdk/simple"
)

// TestRegistered runs what the module exports.
func TestRegistered(t *testing.T) {
	for what, export := range map[string]func() int32{
		"the fire begins, on all hosts":    beforeonce.Run,
		"this host begins":                 before.Run,
		"item":                             simple.Execute,
		"this host has ended":              after.Run,
		"the fire has ended, on all hosts": afteronce.Run,
	} {
		host := &sdktest.Host{Listener: what != "item"}
		if r := host.RunExport(export); r.Outcome != abi.OutcomeOK {
			t.Errorf("%s: %s %s", what, r.Outcome, r.Message)
		}
		if logs := host.Logs(); len(logs) != 1 || logs[0].Message != what {
			t.Errorf("%s: %v", what, logs)
		}
	}
}
