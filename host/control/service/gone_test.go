package service

import (
	"slices"
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/host/control/cluster"
	"github.com/wasmjob/wasmjob/host/event"
)

// TestNotBack: of hosts that are gone, those are shown whose server has no host that began since, and
// whose process has no other session; each once, since the first that saw it.
func TestNotBack(t *testing.T) {
	t.Parallel()
	now := time.Now()
	ago := func(d time.Duration) time.Time { return now.Add(-d) }
	gone := func(other, by string, at time.Time) event.Event {
		return event.Event{Kind: event.HostGone, Other: other, Host: by, Time: at}
	}
	events := []event.Event{ // newest first
		gone("10.0.0.3@-@9-x", "10.0.0.1@-@1-x", ago(time.Minute)),
		gone("10.0.0.2@-@7-x", "10.0.0.4@-@4-x", ago(time.Hour-time.Second)),
		gone("10.0.0.2@-@7-x-2", "10.0.0.1@-@1-x", ago(time.Hour)), // by a job that it had joined twice
		gone("10.0.0.5@-@1-x", "10.0.0.4@-@4-x", ago(time.Hour)),
		gone("10.0.0.5@-@1-v", "10.0.0.4@-@4-x", ago(90*time.Minute)), // another container on its network
		gone("10.0.0.6@-@6-x", "10.0.0.4@-@4-x", ago(100*time.Minute)),
		gone("10.0.0.1@-@0-x", "10.0.0.4@-@4-x", ago(2*time.Hour)),
		gone("10.0.0.4@-@3-x", "10.0.0.1@-@1-x", ago(3*time.Hour)),
	}
	again := []string{"10.0.0.5@-@1-x", "10.0.0.5@-@1-y", "10.0.0.5@-@1-z"}
	hosts := []cluster.Host{
		{ServerIP: "10.0.0.1", Started: ago(30 * time.Minute)},                                  // it came back
		{ServerIP: "10.0.0.4", Started: ago(3*time.Hour + 30*time.Second)},                      // before its earlier session had ended
		{ServerIP: "10.0.0.3", Started: ago(5 * time.Hour)},                                     // another host of that server
		{ServerIP: "10.0.0.5", Started: ago(5 * time.Hour), Sessions: again},                    // the same process has another session
		{ServerIP: "10.0.0.6", Started: ago(time.Minute), Sessions: []string{"10.0.0.6@-@6-x"}}, // listed a moment longer
	}
	// What hosts remember of one that was killed twice, came back each time, and was stopped in good order.
	back := func(other string, at time.Time) event.Event {
		return event.Event{Kind: event.HostBack, Other: other, Host: "10.0.0.1@-@1-x", Time: at}
	}
	events = append([]event.Event{back("10.0.0.7@-@2-x", ago(10*time.Minute))}, events...)
	events = append(events, gone("10.0.0.7@-@2-x", "10.0.0.4@-@4-x", ago(4*time.Hour)), gone("10.0.0.7@-@1-x", "10.0.0.4@-@4-x", ago(5*time.Hour)),
		gone("10.0.0.3@-@8-x", "10.0.0.4@-@4-x", ago(5*time.Hour))) // of one that is gone again only that is shown
	got := notBack(events, hosts)
	if len(got) != 4 || got[3].Instance != "10.0.0.6@-@6-x" || got[0].Instance != "10.0.0.3@-@9-x" || got[1].Instance != "10.0.0.2@-@7-x" || got[2].Instance != "10.0.0.5@-@1-v" {
		t.Fatalf("gone: %+v", got)
	}
	if g := got[1]; !g.Since.Equal(ago(time.Hour)) || !slices.Equal(g.SeenBy, []string{"10.0.0.1", "10.0.0.4"}) || g.ServerIP != "10.0.0.2" {
		t.Errorf("%+v", g)
	}
}
