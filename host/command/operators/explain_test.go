package operators

import (
	"testing"
	"time"
)

func TestFireTime(t *testing.T) {
	t.Parallel()
	zone := time.FixedZone("UTC+2", 2*3600)
	now := time.Date(2026, 3, 1, 2, 30, 0, 0, zone)
	for text, want := range map[string]string{
		"02:00": "2026-03-01T02:00:00+02:00", "03:00": "2026-02-28T03:00:00+02:00", "02:29:59": "2026-03-01T02:29:59+02:00",
		"2026-02-01 03:00": "2026-02-01T03:00:00+02:00", "2026-02-01T03:00:00Z": "2026-02-01T03:00:00Z",
	} {
		if got, err := fireTime("--at", text, now); err != nil || got.Format(time.RFC3339) != want {
			t.Errorf("%s: %s, %v, want %s", text, got.Format(time.RFC3339), err, want)
		}
	}
}
