package main

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/sdk/sdktest"
)

func TestTakesItsTime(t *testing.T) {
	for parameter, want := range map[string]time.Duration{"": 30 * time.Second, "2h": 2 * time.Hour, "0s": 0} {
		synctest.Test(t, func(t *testing.T) {
			host := &sdktest.Host{Context: sdktest.Context{JobParameter: parameter}}
			begin := time.Now()
			if r := host.Run(run); r.Outcome != abi.OutcomeOK {
				t.Errorf("%s %s", r.Outcome, r.Message)
			}
			if took := time.Since(begin); took != want {
				t.Errorf("took %v, want %v", took, want)
			}
			if p := host.Progress(); len(p) != steps+1 || p[steps] != (sdktest.Progress{Done: steps, Total: steps}) {
				t.Errorf("progress %v", p)
			}
		})
	}
}

func TestStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		host := &sdktest.Host{Context: sdktest.Context{JobParameter: "1h"}}
		begin := time.Now()
		time.AfterFunc(10*time.Minute, func() { host.Cancel(abi.CancelStop) })
		r := host.Run(run)
		if r.Outcome != abi.OutcomeCancelled || r.Message != "stopped at step 3 of 20: cancelled: the job or the host is stopping" {
			t.Errorf("%s %s", r.Outcome, r.Message)
		}
		if took := time.Since(begin); took > 10*time.Minute+time.Second {
			t.Errorf("stopped after %v", took)
		}
	})
}

func TestParameter(t *testing.T) {
	for _, parameter := range []string{"soon", "-1s"} {
		host := &sdktest.Host{Context: sdktest.Context{JobParameter: parameter}}
		if r := host.Run(run); r.Outcome != abi.OutcomeFail || !strings.Contains(r.Message, parameter) {
			t.Errorf("%s %s", r.Outcome, r.Message)
		}
	}
}
