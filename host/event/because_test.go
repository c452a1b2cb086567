package event_test

import (
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/host/event"
	"github.com/wasmjob/wasmjob/internal/text/reason"
)

// TestRecordedEvents: lines of histories of hosts that gave no codes have them when they are read.
func TestRecordedEvents(t *testing.T) {
	t.Parallel()
	coded := func(code reason.Code, args ...string) reason.Coded {
		c := reason.Coded{Code: code}
		for i := 0; i < len(args); i += 2 {
			if c.Args == nil {
				c.Args = make(map[string]string)
			}
			c.Args[args[i]] = args[i+1]
		}
		return c
	}
	for line, want := range map[string]reason.Codes{
		`{"time":"2026-03-01T12:00:00Z","kind":"item.skipped","host":"10.0.0.1@-@1-a","job":"j","item":2,"cause":"later","reason":"the item still runs; it runs again right after"}`:                            {coded(reason.RunsAgain), coded(reason.ItemRuns)},
		`{"time":"2026-03-01T12:00:00Z","kind":"item.skipped","host":"10.0.0.1@-@1-a","job":"j","item":2,"cause":"disabled","reason":"the item is disabled"}`:                                                   {coded(reason.ItemDisabled)},
		`{"time":"2026-03-01T12:00:00Z","kind":"job.removed","host":"10.0.0.1@-@1-a","job":"j","reason":"removed from the registry; 'wasmjob restore j' brings it back"}`:                                       {coded(reason.JobRemoved, "command", "wasmjob restore j")},
		`{"time":"2026-03-01T12:00:00Z","kind":"job.sharded","host":"10.0.0.1@-@1-a","job":"j","total":3,"reason":"items were never divided"}`:                                                                  {coded(reason.NeverSharded)},
		`{"time":"2026-03-01T12:00:00Z","kind":"clock","host":"10.0.0.1@-@1-a","reason":"this host's clock is 1ms ahead of the registry's, which is within 5s again"}`:                                          {coded(reason.ClockRight, "took", "5s"), coded(reason.AheadOfRegistry, "took", "1ms")},
		`{"time":"2026-03-01T12:00:00Z","kind":"host.started","host":"10.0.0.1@-@8","reason":"the last host here (pid 7, started 2026-03-01T11:00:00Z) did not end well: the machine was started again since"}`: {coded(reason.LastHostDied, "pid", "7", "at", "2026-03-01T11:00:00Z"), coded(reason.MachineRestarted)},
		`{"time":"2026-03-01T12:00:00Z","kind":"listener","host":"10.0.0.1@-@1-a","job":"j","reason":"job_v1_before: the item still runs"}`:                                                                     {coded(reason.Listener, "listener", "job_v1_before")},
		`{"time":"2026-03-01T12:00:00Z","kind":"session","host":"10.0.0.1@-@1-a","reason":"lost"}`:                                                                                                              nil,
		`{"time":"2026-03-01T12:00:00Z","kind":"item.ended","host":"10.0.0.1@-@1-a","job":"j","item":0,"outcome":"FAIL","reason":"disk on fire"}`:                                                               nil,
		`{"time":"2026-03-01T12:00:00Z","kind":"job.error","host":"10.0.0.1@-@1-a","job":"j","reason":"as a newer host says it","because":[{"code":"of_a_newer_host","args":{"n":"1"}}]}`:                       {coded("of_a_newer_host", "n", "1")},
	} {
		var e event.Event
		if err := json.Unmarshal([]byte(line), &e); err != nil || !reflect.DeepEqual(e.Because, want) {
			t.Errorf("%s\nis read with %+v, %v; expected %+v", line, e.Because, err, want)
		}
		data, err := json.Marshal(e)
		var again event.Event
		if err = errors.Join(err, json.Unmarshal(data, &again)); err != nil || !reflect.DeepEqual(again, e) {
			t.Errorf("%s\nis written as %s, %v", line, data, err)
		}
	}
	var refused event.Event
	line := `{"kind":"file.refused","file":"many.yaml","reason":"line 1: no cron\nline 2: job \"pay \\\"now\\\"\": module \"pay.wasm\": too large\nline 3: job \"etl\" is given twice"}`
	if err := json.Unmarshal([]byte(line), &refused); err != nil || !slices.Equal(refused.Jobs, []string{"", `pay "now"`, ""}) || refused.Because != nil {
		t.Errorf("%s\nis about the jobs %q, %v", line, refused.Jobs, err)
	}
	if err := json.Unmarshal([]byte(`{"kind":1}`), new(event.Event)); err == nil {
		t.Error("a kind that is a number is read")
	}
}

// TestWhy: an event has the text of its reason, and its codes with arguments that are bounded and harmless.
func TestWhy(t *testing.T) {
	t.Parallel()
	e := event.Event{Kind: event.JobError}.Why(reason.New(reason.ItemUnreadable, strings.Repeat("é\x01", event.MaxReason)))
	if arg := e.Because.Arg("reason"); !strings.HasPrefix(e.Reason, "the item cannot be read: é") || len(arg) > event.MaxReason/4 || len(arg) < event.MaxReason/8 || strings.Contains(arg, "\x01") {
		t.Errorf("%.80q, %q", e.Reason, e.Because)
	}
	if e := (event.Event{}).Why(reason.Free("disk on fire")); e.Reason != "disk on fire" || e.Because != nil {
		t.Errorf("%q, %+v", e.Reason, e.Because)
	}
}

// TestSessionReasons: a session's reasons are the words that the registry's adapters have for their trust.
func TestSessionReasons(t *testing.T) {
	t.Parallel()
	for trust, want := range map[registry.Trust]string{registry.TrustLive: event.SessionLive, registry.TrustSuspect: event.SessionSuspect, registry.TrustYield: event.SessionYield, registry.TrustLost: event.SessionLost} {
		if trust.String() != want {
			t.Errorf("the trust %s is reported as %s", trust, want)
		}
	}
}
