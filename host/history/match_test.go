package history_test

import (
	"strings"
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/event"
	"github.com/wasmjob/wasmjob/host/history"
)

// TestFilterHost: a host is found by what tables call it: its server, its process, or its id.
func TestFilterHost(t *testing.T) {
	t.Parallel()
	const id = "10.0.0.1@-@4711-1f2e3d4c"
	for name, want := range map[string]bool{
		"": true, id: true, "10.0.0.1": true, "10.0.0.1@-@4711": true,
		"10.0.0.10": false, "10.0.0": false, "10.0.0.1@-@471": false, "10.0.0.1@-@4711-1f": false, "10.0.0.1@-@": false,
	} {
		f := history.Filter{Host: name}
		run, fire, line := history.Run{Host: id}, history.Fire{Hosts: []string{"10.0.0.9@-@1-x", id}}, history.Line{Host: id}
		e, c := event.Event{Host: id}, history.Change{Host: id}
		for of, found := range map[string]bool{"run": f.MatchRun(&run), "fire": f.MatchFire(&fire), "line": f.MatchLine(&line), "event": f.MatchEvent(&e), "change": f.MatchChange(&c)} {
			if found != want {
				t.Errorf("host %q: a %s on %s: %v, want %v", name, of, id, found, want)
			}
		}
	}
}

// TestFilterFailed: what was stopped has not failed; of what is unknown that is not known.
func TestFilterFailed(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 3, 1, 3, 0, 0, 0, time.UTC)
	for outcome, want := range map[abi.Outcome]bool{
		"": false, abi.OutcomeOK: false, abi.OutcomeCancelled: false, abi.OutcomeRetry: true, abi.OutcomeFail: true, abi.OutcomeTrap: true,
		history.Lost: true, history.Held: true, history.Unknown: true,
	} {
		f := history.Filter{Failed: true}
		run := history.Run{Begun: at, Outcome: outcome}
		if outcome != "" {
			run.Ended = at.Add(time.Second)
		}
		fire := history.Sum(nil, []history.Run{run})
		byPart := history.Sum([]history.Part{{Begun: at, Ended: run.Ended, Outcome: outcome, Items: []int{0}}}, nil)
		e := event.Event{Kind: event.ItemEnded, Outcome: outcome}
		for of, found := range map[string]bool{"run": f.MatchRun(&run), "fire": f.MatchFire(&fire), "fire without runs": f.MatchFire(&byPart), "event": f.MatchEvent(&e)} {
			if found != want {
				t.Errorf("%s of outcome %q: failed %v, want %v", of, outcome, found, want)
			}
		}
		if fire.Succeeded+fire.Failed+fire.Cancelled+fire.Unknown+fire.Running != 1 || (fire.Failed+fire.Unknown > 0) != want {
			t.Errorf("outcome %q: the fire is %+v", outcome, fire)
		}
	}
}

// TestFilterWhat: a change is found by its operation, by the first words of it, and an edit by
// each of its settings.
func TestFilterWhat(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		what, operation string
		want            bool
	}{
		{"sign in", "sign in", true}, {"sign", "sign in", true}, {"sign in", "sign out", false}, {"!sign in", "sign out", true}, {"!sign in", "sign in", false}, {"!sign", "sign out", false},
		{"sig", "sign in", false}, {"silence alerts", "silence alerts", true}, {"end a silence of alerts", "end a silence of alerts", true},
		{"edit", "edit cron", true}, {"edit cron", "edit cron", true}, {"edit cron", "edit cron, timeZone", true}, {"edit timeZone", "edit cron, timeZone", true},
		{"edit cron, timeZone", "edit cron, timeZone", true}, {"edit cron, timeZone", "edit cron", false}, {"edit cron", "edit cronExpression", false},
		{"!edit cron", "edit timeZone", true}, {"change what is kept", "change what is kept", true},
	} {
		f := history.Filter{What: []string{c.what}}
		if got := f.MatchChange(&history.Change{What: c.operation}); got != c.want {
			t.Errorf("%q finds %q: %v, want %v", c.what, c.operation, got, c.want)
		}
	}
}

// TestOperations: what cannot be an operation is refused.
func TestOperations(t *testing.T) {
	t.Parallel()
	for what, want := range map[string]string{"sing": `did you mean "sign"?`, "!trigger job": "expected create, edit", "": "expected create", "editcron": "expected create",
		"edit crom": `found "crom", which is no setting`, "!edit cron, timezon": `did you mean "timeZone"?`, "edit cron,": `found ""`} {
		if err := history.CheckOperation(what, []string{"cron", "timeZone"}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", what, err, want)
		}
	}
	for _, what := range []string{"edit cron", "!edit timeZone, cron", "edit config", "edit", "!sign"} {
		if err := history.CheckOperation(what, []string{"cron", "timeZone"}); err != nil {
			t.Errorf("%q: %v", what, err)
		}
	}
}
