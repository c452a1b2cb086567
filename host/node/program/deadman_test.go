package program

import (
	"testing"

	"github.com/wasmjob/wasmjob/host/cli/command"
)

// TestWhoHasADeadMansTimer: with ZooKeeper, and under a supervisor, unless
// somebody says otherwise.
func TestWhoHasADeadMansTimer(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		when, registry, environ string
		terminal, want          bool
	}{
		{auto, registryZooKeeper, "", false, true},
		{auto, registryZooKeeper, "", true, true},
		{auto, registryEmbedded, "", false, false},
		{auto, registryEmbedded, "NOTIFY_SOCKET=/run/x", false, true},
		{auto, registryEmbedded, "INVOCATION_ID=1", false, true},
		{auto, registryEmbedded, "KUBERNETES_SERVICE_HOST=10.0.0.1", false, true},
		{auto, registryEmbedded, "INVOCATION_ID=1", true, false}, // a shell of a desktop
		{off, registryZooKeeper, "INVOCATION_ID=1", false, false},
		{"on", registryEmbedded, "", true, true},
	} {
		p := &program{Program: command.Program{OutTTY: c.terminal, ErrTTY: c.terminal, Environ: []string{c.environ}}}
		if got := deadMan(p, &loaded{Config: Config{DeadMan: c.when, Registry: c.registry}}); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}
