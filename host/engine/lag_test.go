package engine_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/event"
)

// TestLag: whatever has a scheduled instant is so much late as it begins after it, also if it
// could not begin in time; a trigger has none.
func TestLag(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		hourly := definition("hourly", "0 0 * * * ?", 2)
		hourly.Failover = true
		jobs := []struct {
			name string
			play func()
		}{
			{"a run that takes too long", func() {
				s.start(1, job(definition("long", "0 * * * * ?", 1), sleeper(80*time.Second)), job(hourly, sleeper(20*time.Minute)), job(definition("once", "", 1), sleeper(time.Second)))
				until(minute(3))
			}},
			{"a trigger", func() {
				if err := s.hosts["10.0.0.1"].operator().Trigger(t.Context(), "once"); err != nil {
					t.Fatal(err)
				}
				until(minute(10))
			}},
			{"a host that dies", func() {
				until(minute(60).Add(time.Second))
				s.start(2, job(hourly, sleeper(20*time.Minute)))
				until(minute(60).Add(90 * time.Second))
				s.die(1)
				until(minute(63))
			}},
			{"no host", func() {
				until(minute(90))
				s.die(2)
				until(minute(120).Add(3 * time.Minute))
				s.start(3, job(hourly, sleeper(time.Minute)))
				until(minute(130))
			}},
		}
		for _, j := range jobs {
			j.play()
		}
		seen := make(map[abi.Source]int)
		for _, e := range s.list(event.FireStarted) {
			want := e.Time.Sub(e.Instant)
			if e.Trigger != 0 {
				want = 0
			}
			if e.Lag != want {
				t.Errorf("%s is %s late, want %s", lines([]event.Event{e}), e.Lag, want)
			}
			if e.Trigger != 0 || e.Source == abi.SourceSchedule || e.Lag >= 20*time.Second {
				seen[e.Source]++
			}
		}
		for _, source := range []abi.Source{abi.SourceSchedule, abi.SourceMisfire, abi.SourceTrigger, abi.SourceFailover, abi.SourceCatchUp} {
			if seen[source] == 0 {
				t.Errorf("nothing began by %s, or in time\n%s", source, s.all())
			}
		}
	})
}
