package history_test

import (
	"testing"

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
