package due_test

import (
	"testing"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/wasmjob/wasmjob/host/schedule/due"
)

// TestChange: instants up to the change are those of the schedule before, later ones those of
// the new one, whenever a host hears of it; what has come due meanwhile is due.
func TestChange(t *testing.T) {
	t.Parallel()
	const second = time.Second
	every7 := every(7 * time.Minute)
	at := minute(10).Add(30 * second)
	for _, tt := range []struct {
		name          string
		before, after cron.Schedule
		from, next    time.Time // the instants up to from were taken; next is the next one
		later         time.Time // the first after minute 11
	}{
		{"before the change", everyMinute, every7, minute(10).Add(-second), minute(10), minute(14)},
		{"between the last instant and the change", everyMinute, every7, minute(10).Add(second), minute(14), minute(14)},
		{"late", every7, everyMinute, minute(13), minute(11), minute(12)},
		{"to none", everyMinute, nil, minute(10).Add(-second), minute(10), time.Time{}},
		{"from none", nil, everyMinute, minute(9), minute(11), minute(12)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := due.Calendar{Schedule: tt.before}
			c.Arm(tt.from)
			c.Change(tt.after, at)
			if !c.Next.Equal(tt.next) {
				t.Errorf("next is %v, expected %v", c.Next, tt.next)
			}
			if n := c.After(minute(11)); !n.Equal(tt.later) {
				t.Errorf("after minute 11 there is %v, expected %v", n, tt.later)
			}
			if tt.before != nil && !c.After(minute(5)).Equal(tt.before.Next(minute(5))) {
				t.Errorf("after minute 5 there is %v, as the schedule before has %v", c.After(minute(5)), tt.before.Next(minute(5)))
			}
			// Once more, much later: the first schedule is forgotten.
			c.Change(everyMinute, at.Add(100*time.Hour))
			if n := c.After(minute(5)); tt.after != nil && !n.Equal(tt.after.Next(minute(5))) {
				t.Errorf("a hundred hours later there is %v after minute 5", n)
			}
		})
	}
}
