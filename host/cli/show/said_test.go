package show

import (
	"strings"
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/host/cli/terminal"
	"github.com/wasmjob/wasmjob/host/control/admin"
	"github.com/wasmjob/wasmjob/host/control/cluster"
	"github.com/wasmjob/wasmjob/host/engine"
)

// TestSaid: status JOB and lists say who has disabled servers and items, why, since when and until when.
func TestSaid(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	ann := engine.Said{By: "user ann", Why: "the database moves\nthis night", Since: at, Until: at.Add(time.Hour)}
	bob := engine.Said{By: "user bob", Since: at}
	s := &admin.Shards{Job: "j", Instances: []admin.Instance{{ID: "a", Server: "10.0.0.1"}}, DisabledServers: []string{"10.0.0.1", "10.0.0.2"},
		Said:  []admin.ServersSaid{{Servers: []string{"10.0.0.1"}, Said: ann}, {Servers: []string{"10.0.0.2"}, Said: bob}},
		Items: []admin.Shard{{Item: 0}, {Item: 1, Disabled: true, Said: &bob}, {Item: 2, Disabled: true, Said: &bob}, {Item: 3, Disabled: true, Said: &ann}, {Item: 4, Disabled: true}}}
	text := Instances(terminal.Style{}, s, nil, at)
	for _, want := range []string{
		"server 10.0.0.1 is paused by user ann since 2026-03-01T12:00:00Z until 2026-03-01T13:00:00Z: the database moves\n",
		"server 10.0.0.2 is paused by user bob since 2026-03-01T12:00:00Z\n",
		"items 1-2 are paused by user bob since 2026-03-01T12:00:00Z\n",
		"item 3 is paused by user ann since",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
	s.Said = []admin.ServersSaid{{Servers: s.DisabledServers, Said: bob}}
	if text := Instances(terminal.Style{}, s, nil, at); !strings.Contains(text, "\nby user bob since 2026-03-01T12:00:00Z\n") {
		t.Errorf("one has disabled all:\n%s", text)
	}
	j := &cluster.Job{State: engine.JobDisabled, Paused: &cluster.Paused{By: "user ann", At: at, Why: "why", Until: at.Add(time.Hour)}}
	if got, want := stateText(j), "paused by user ann until 2026-03-01T13:00Z: why"; got != want {
		t.Errorf("found %q, expected %q", got, want)
	}
	if got := Since(j.Paused, at); !strings.Contains(got, "until 2026-03-01T13:00:00Z: why") {
		t.Errorf("found %q", got)
	}
}
