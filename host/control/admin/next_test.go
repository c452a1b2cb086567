package admin

import (
	"testing"
	"time"
)

// TestNext: the instants of a schedule are those that all of its settings leave.
func TestNext(t *testing.T) {
	t.Parallel()
	from := time.Date(2026, 12, 23, 10, 0, 0, 0, time.UTC)
	terms := `{"wasm.calendars.exclude":"[\"h\"]","wasm.calendarDays":"{\"h\":\"{\\\"days\\\":[\\\"2026-12-24\\\"]}\"}"}`
	for _, tt := range []struct {
		of   Schedule
		want string
	}{
		{Schedule{Cron: "0 0 9 * * ?", TimeZone: "UTC"}, "2026-12-24T09:00:00Z"},
		{Schedule{Cron: "0 0 9 * * ?", TimeZone: "UTC", Terms: terms}, "2026-12-25T09:00:00Z"},
		{Schedule{TimeZone: "UTC", Terms: `{"wasm.at":"2026-12-26T00:00:00Z"}`}, "2026-12-26T00:00:00Z"},
	} {
		next, err := Next(tt.of, from, 1)
		if err != nil || len(next) != 1 || next[0].Format(time.RFC3339) != tt.want {
			t.Errorf("%+v: %v, %v, want %s", tt.of, next, err, tt.want)
		}
	}
	if next, err := Next(Schedule{}, from, 1); next != nil || err != nil {
		t.Errorf("without a schedule: %v, %v", next, err)
	}
	if _, err := Next(Schedule{Terms: `{"wasm.at":"x"}`}, from, 1); err == nil {
		t.Error("a time that cannot be read")
	}
}
