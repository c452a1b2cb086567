package main

import (
	"strings"
	"testing"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/sdk/sdktest"
)

func TestWays(t *testing.T) {
	for _, test := range []struct {
		job, item string
		outcome   abi.Outcome
		message   string
	}{
		{"", "", abi.OutcomeTrap, "panic: item 0 crashes, as it should, at "},
		{"fail", "", abi.OutcomeFail, "this item fails"},
		{"fail", "nil", abi.OutcomeTrap, "panic: runtime error: invalid memory address"},
		{"", "retry", abi.OutcomeRetry, "this item asks"},
		{"", "ok", abi.OutcomeOK, ""},
		{"softly", "", abi.OutcomeFail, `"softly" is no way to crash`},
	} {
		host := &sdktest.Host{Context: sdktest.Context{JobParameter: test.job, ShardingParameter: test.item}}
		if r := host.Run(run); r.Outcome != test.outcome || !strings.HasPrefix(r.Message, test.message) {
			t.Errorf("%q %q: %s %q", test.job, test.item, r.Outcome, r.Message)
		}
	}
}
