package cleanup

import (
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/tree"
)

// TestStaleKill: a kill stays as long as its guests may go on, and an hour more for its host
// to answer it; that of a host that is gone, with its runs, goes at once.
func TestStaleKill(t *testing.T) {
	t.Parallel()
	at := time.Unix(1_000_000, 0)
	kill := func(grace time.Duration) registry.Node {
		kills := tree.Kills{{Grace: grace.Milliseconds(), Runs: []tree.KillRun{{Fence: 7, Items: tree.Items{0}}}}}
		return registry.Node{Exists: true, Mtime: at, Data: kills.Data()}
	}
	for _, c := range []struct {
		name          string
		node          registry.Node
		lives, listed bool
		after         time.Duration
		stale         bool
	}{
		{"no grace, within the hour", kill(0), true, true, 59 * time.Minute, false},
		{"no grace, after it", kill(0), true, true, 61 * time.Minute, true},
		{"its guests may go on", kill(2 * time.Hour), true, true, 2*time.Hour + 59*time.Minute, false},
		{"they may not any more", kill(2 * time.Hour), true, true, 3*time.Hour + time.Minute, true},
		{"the host is gone, its runs are not", kill(0), false, true, time.Minute, false},
		{"both are gone", kill(2 * time.Hour), false, false, time.Minute, true},
		{"a grace that cannot be asked for", registry.Node{Exists: true, Mtime: at, Data: []byte(`[{"graceMs":9223372036854775807}]`)}, true, true, 25*time.Hour + time.Minute, true},
		{"no kill", registry.Node{Mtime: at}, false, false, 2 * time.Hour, false},
		{"nonsense", registry.Node{Exists: true, Mtime: at, Data: []byte("{")}, true, true, 61 * time.Minute, true},
	} {
		if got := staleKill(c.node, c.lives, c.listed, at.Add(c.after)); got != c.stale {
			t.Errorf("%s: stale %v, want %v", c.name, got, c.stale)
		}
	}
}
