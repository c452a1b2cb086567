package times_test

import (
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/internal/text/times"
)

func TestDuration(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]time.Duration{"0": 0, "0s": 0, "90m": 90 * time.Minute, "7d": 168 * time.Hour, "1d12h": 36 * time.Hour, "-5s": -5 * time.Second, "0d": 0, "106751d": 106751 * 24 * time.Hour} {
		if d, err := times.Duration(text); err != nil || d != want {
			t.Errorf("%s: %s, %v, want %s", text, d, err, want)
		}
	}
	for _, text := range []string{"", "5", "d", "1.5d", "-1d", "1d-1h", "7dd", "106752d", "999999d", "106751d24h", "7 d"} {
		if d, err := times.Duration(text); err == nil {
			t.Errorf("%q is %s", text, d)
		}
	}
}

func TestInstant(t *testing.T) {
	t.Parallel()
	zone := time.FixedZone("UTC+2", 2*3600)
	now := time.Date(2026, 3, 1, 2, 30, 0, 0, zone)
	for text, want := range map[string]struct{ back, ahead string }{
		"90m":                  {"2026-03-01T01:00:00+02:00", "2026-03-01T04:00:00+02:00"},
		"7d":                   {"2026-02-22T02:30:00+02:00", "2026-03-08T02:30:00+02:00"},
		"02:00":                {"2026-03-01T02:00:00+02:00", "2026-03-02T02:00:00+02:00"},
		"03:00":                {"2026-02-28T03:00:00+02:00", "2026-03-01T03:00:00+02:00"},
		"02:29:59":             {"2026-03-01T02:29:59+02:00", "2026-03-02T02:29:59+02:00"},
		"2026-02-01":           {"2026-02-01T00:00:00+02:00", "2026-02-01T00:00:00+02:00"},
		"2026-02-01 03:00":     {"2026-02-01T03:00:00+02:00", "2026-02-01T03:00:00+02:00"},
		"2026-02-01T03:00:01":  {"2026-02-01T03:00:01+02:00", "2026-02-01T03:00:01+02:00"},
		"2026-02-01T03:00:00Z": {"2026-02-01T03:00:00Z", "2026-02-01T03:00:00Z"},
	} {
		for to, want := range map[times.Direction]string{times.Back: want.back, times.Ahead: want.ahead} {
			if got, err := times.Instant(text, now, to); err != nil || got.Format(time.RFC3339) != want {
				t.Errorf("%s: %s, %v, want %s", text, got.Format(time.RFC3339), err, want)
			}
		}
	}
	for _, text := range []string{"9999-12-31T23:59:59-23:59", "9999-01-01T00:00:00Z", "0000-12-31", "0001-01-01T00:00:00+02:00", "", "noonish", "-5m", "25:00", "2026-13-01", "5"} {
		if got, err := times.Instant(text, now, times.Back); err == nil {
			t.Errorf("%q is %s", text, got)
		}
	}
}
