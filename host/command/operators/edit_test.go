package operators

import (
	"testing"

	"github.com/wasmjob/wasmjob/host/admin"
	"github.com/wasmjob/wasmjob/host/console"
)

// TestSettingsText: a 0 that stands for a default says which.
func TestSettingsText(t *testing.T) {
	t.Parallel()
	c := &admin.JobConfig{Settings: map[string]string{"memoryLimit": "0", "maxConcurrency": "0", "fetchDataCount": "0", "reconcileIntervalMinutes": "0", "retry.attempts": "3", "cron": ""}}
	want := `SETTING                   VALUE
cron                      -
fetchDataCount            0: none
maxConcurrency            0: 2 per processor
memoryLimit               0: 128MiB
reconcileIntervalMinutes  0
retry.attempts            3
`
	if got := settingsText(console.Style{}, c); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
