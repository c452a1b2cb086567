package service_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/host/auth"
	"github.com/wasmjob/wasmjob/host/control/service"
	"github.com/wasmjob/wasmjob/host/control/service/servicetest"
	"github.com/wasmjob/wasmjob/host/engine"
)

// TestCalendarIsOfWhatComes: an instant that has been is not in it. Whether the job fired then, and whether there
// was such a job, its schedule does not say.
func TestCalendarIsOfWhatComes(t *testing.T) {
	t.Parallel()
	s := servicetest.Start(t, servicetest.Options{Jobs: []engine.Job{servicetest.Job("hourly", "0 0 * * * ?", 1, servicetest.OK), servicetest.Job("minutely", "0 * * * * ?", 1, servicetest.OK)}})
	ctx := auth.With(t.Context(), auth.HostToken(auth.ByHostToken))
	now := time.Now()
	c, err := s.Service.Calendar(ctx, now.Add(-12*time.Hour), now.Add(12*time.Hour), service.JobFilter{})
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Upcoming) != 12 || c.Upcoming[0].Time.Before(now) || len(c.Frequent) != 1 || c.Frequent[0].Time.Before(now) {
		t.Errorf("%d instants from %v on, frequent: %v; expected 12 from %v on", len(c.Upcoming), c.Upcoming, c.Frequent, now)
	}
	if c, err = s.Service.Calendar(ctx, now.Add(-12*time.Hour), now, service.JobFilter{}); err != nil || len(c.Upcoming)+len(c.Frequent) > 0 {
		t.Errorf("of what was: %+v, %v", c, err)
	}
}

// TestCalendarIsBounded: jobs of every hour take only the room that others leave, and the rest of
// them are listed with their first instants.
func TestCalendarIsBounded(t *testing.T) {
	t.Parallel()
	jobs := []engine.Job{servicetest.Job("z-daily", "0 0 3 * * ?", 1, servicetest.OK)}
	for n := range 60 { // times 168 is more than the 10,000 that a calendar has
		jobs = append(jobs, servicetest.Job(fmt.Sprintf("hourly-%02d", n), "0 0 * * * ?", 1, servicetest.OK))
	}
	s := servicetest.Start(t, servicetest.Options{Jobs: jobs})
	from := time.Now().Truncate(24 * time.Hour).Add(24 * time.Hour)
	c, err := s.Service.Calendar(auth.With(t.Context(), auth.HostToken(auth.ByHostToken)), from, from.AddDate(0, 0, 7), service.JobFilter{})
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Upcoming) != 7+59*168 || len(c.Frequent) != 1 || c.Omitted != 0 {
		t.Errorf("%d instants, %d frequent jobs, %d omitted; expected %d, 1 and 0", len(c.Upcoming), len(c.Frequent), c.Omitted, 7+59*168)
	}
}

// asked is a context that ends when it has been asked so often who asks: once for each job.
type asked struct {
	context.Context
	end   context.CancelFunc
	times int
}

func (a *asked) Value(key any) any {
	if a.times--; a.times == 0 {
		a.end()
	}
	return a.Context.Value(key)
}

// TestCalendarEnds: the instants of jobs are not computed any more when the caller has gone, neither
// those of the rest nor of the jobs with many.
func TestCalendarEnds(t *testing.T) {
	t.Parallel()
	var jobs []engine.Job
	for n := range 20 {
		jobs = append(jobs, servicetest.Job(fmt.Sprintf("hourly-%02d", n), "0 0 * * * ?", 1, servicetest.OK))
	}
	s := servicetest.Start(t, servicetest.Options{Jobs: jobs})
	from := time.Now().Truncate(24 * time.Hour).Add(24 * time.Hour)
	for _, times := range []int{10, len(jobs)} {
		ctx, end := context.WithCancel(auth.With(t.Context(), auth.HostToken(auth.ByHostToken)))
		a := &asked{ctx, end, times}
		if _, err := s.Service.Calendar(a, from, from.AddDate(0, 0, 7), service.JobFilter{}); !errors.Is(err, context.Canceled) || a.times != 0 {
			t.Errorf("ended after %d jobs: %v, went on for %d", times, err, -a.times)
		}
		end()
	}
}
