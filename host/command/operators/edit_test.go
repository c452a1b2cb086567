package operators

import (
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/host/admin"
	"github.com/wasmjob/wasmjob/host/console"
)

// TestSettingsText: a 0 that stands for a default says which, and each setting where it comes from.
func TestSettingsText(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	c := &admin.JobConfig{
		File:     "cities.yaml",
		Settings: map[string]string{"memoryLimit": "0", "maxConcurrency": "0", "fetchDataCount": "0", "reconcileIntervalMinutes": "0", "retry.attempts": "3", "cron": "", "timeout": "5m0s"},
		Origins: map[string]admin.Origin{
			"memoryLimit": {From: admin.FromDefault}, "maxConcurrency": {From: admin.FromDefault}, "fetchDataCount": {From: admin.FromFile}, "reconcileIntervalMinutes": {From: admin.FromRegistry},
			"cron":    {From: admin.FromEdit, Who: "ann", Time: now.Add(-3 * time.Minute), Why: "the backup runs until 3\nas before"},
			"timeout": {From: admin.FromEdit, Who: "the registry", Time: now.Add(-48 * time.Hour)},
		},
	}
	want := `SETTING                   VALUE               COMES FROM
cron                      -                   edited by ann 3m ago: the backup runs until 3
fetchDataCount            0: none             cities.yaml
maxConcurrency            0: 2 per processor  default
memoryLimit               0: 128MiB           default
reconcileIntervalMinutes  0                   the registry
retry.attempts            3                   -
timeout                   5m0s                edited by the registry 2d ago
`
	if got := settingsText(console.Style{}, c, now); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
