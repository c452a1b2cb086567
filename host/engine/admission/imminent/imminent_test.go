package imminent

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// TestWait: a wait ends when the last job of the instant has begun, at the latest 50 ms after it.
func TestWait(t *testing.T) {
	for _, c := range []struct {
		name string
		at   time.Duration // of the wait, from the instant
		// begin is when the two jobs of the instant begin, from the instant; 0 is never.
		begin [2]time.Duration
		want  time.Duration // how long the wait lasts
	}{
		{"long before", -11 * time.Millisecond, [2]time.Duration{}, 0},
		{"just before", -10 * time.Millisecond, [2]time.Duration{2 * time.Millisecond, 5 * time.Millisecond}, 15 * time.Millisecond},
		{"between the two", 3 * time.Millisecond, [2]time.Duration{2 * time.Millisecond, 5 * time.Millisecond}, 2 * time.Millisecond},
		{"both have begun", 6 * time.Millisecond, [2]time.Duration{2 * time.Millisecond, 5 * time.Millisecond}, 0},
		{"they do not begin", -10 * time.Millisecond, [2]time.Duration{}, 60 * time.Millisecond},
		{"one does not begin", 10 * time.Millisecond, [2]time.Duration{2 * time.Millisecond, 0}, 40 * time.Millisecond},
		{"long after", 50 * time.Millisecond, [2]time.Duration{}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := New(time.Now)
				instant := time.Now().Truncate(time.Second).Add(2 * time.Second)
				for n, begin := range c.begin {
					job := fmt.Sprint(n)
					f.Expect(job, instant)
					if begin != 0 {
						time.AfterFunc(time.Until(instant.Add(begin)), func() { f.Expect(job, instant.Add(time.Minute)) })
					}
				}
				time.Sleep(time.Until(instant.Add(c.at)))
				before := time.Now()
				f.Wait(t.Context())
				if took := time.Since(before); took != c.want {
					t.Errorf("waited %v, want %v", took, c.want)
				}
				time.Sleep(time.Second)
			})
		})
	}
}

// TestWait_nothingDue: with no job that is due, or a job that was taken away, nothing waits.
func TestWait_nothingDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := New(time.Now)
		instant := time.Now().Truncate(time.Second).Add(time.Second)
		f.Expect("moved", instant)
		f.Expect("moved", instant.Add(time.Second))
		f.Expect("gone", instant)
		f.Expect("gone", time.Time{})
		time.Sleep(time.Until(instant))
		f.Wait(t.Context())
		if took := time.Since(instant); took != 0 {
			t.Errorf("waited %v", took)
		}
		if len(f.next) != 1 || len(f.jobs) != 1 {
			t.Errorf("next %v, jobs %v: only the job that was moved is left", f.next, f.jobs)
		}
	})
}

// TestWait_canceled: who gives up does not wait.
func TestWait_canceled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := New(time.Now)
		instant := time.Now().Truncate(time.Second).Add(time.Second)
		f.Expect("job", instant)
		time.Sleep(time.Until(instant))
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		f.Wait(ctx)
		if took := time.Since(instant); took != time.Millisecond {
			t.Errorf("waited %v, want 1ms", took)
		}
	})
}
