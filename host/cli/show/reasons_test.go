package show

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/host/cli/terminal"
	"github.com/wasmjob/wasmjob/host/control/cluster"
	"github.com/wasmjob/wasmjob/host/engine"
)

// TestClusterJobs_reasons: a list of many jobs that wait has a line for each job and a few about
// the waits; what is in error comes first.
func TestClusterJobs_reasons(t *testing.T) {
	t.Parallel()
	now := time.Now()
	var list []cluster.Job
	for n := range 1000 {
		list = append(list, cluster.Job{Name: fmt.Sprintf("job-%d", n), Health: cluster.HealthLate, State: engine.JobReady,
			Waits: []engine.WaitStatus{{Reason: "a slot", Since: now.Add(-time.Minute)}, {Reason: "the registry", Since: now.Add(-time.Minute)}}})
	}
	list[900].Health, list[900].Reason = cluster.HealthError, "no module"
	text := ClusterJobs(terminal.Style{}, list, now)
	if lines := strings.Count(text, "\n"); lines > 1000+mostReasons+5 {
		t.Errorf("%d lines for 1000 jobs", lines)
	}
	if !strings.Contains(text, "\njob-900: no module\njob-0: waits for") || !strings.HasSuffix(text, "1981 more such lines; --output json has all, wasmjob status those of one host\n") {
		t.Errorf("found …%s", text[len(text)-2000:])
	}
	if few := ClusterJobs(terminal.Style{}, list[:2], now); strings.Count(few, "waits for") != 4 || strings.Contains(few, "more such") {
		t.Errorf("of two jobs: %s", few)
	}
}
