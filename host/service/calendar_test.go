package service_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/host"
	"github.com/wasmjob/wasmjob/host/access"
	"github.com/wasmjob/wasmjob/host/service/servicetest"
)

// TestCalendarIsBounded: jobs of every hour take only the room that others leave, and the rest of
// them are listed with their first instants.
func TestCalendarIsBounded(t *testing.T) {
	t.Parallel()
	jobs := []host.Job{servicetest.Job("z-daily", "0 0 3 * * ?", 1, servicetest.OK)}
	for n := range 60 { // times 168 is more than the 10,000 that a calendar has
		jobs = append(jobs, servicetest.Job(fmt.Sprintf("hourly-%02d", n), "0 0 * * * ?", 1, servicetest.OK))
	}
	s := servicetest.Start(t, servicetest.Options{Jobs: jobs})
	from := time.Now().Truncate(24 * time.Hour).Add(24 * time.Hour)
	c, err := s.Service.Calendar(access.With(t.Context(), access.HostToken(access.ByHostToken)), from, from.AddDate(0, 0, 7), nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Upcoming) != 7+59*168 || len(c.Frequent) != 1 || c.Omitted != 0 {
		t.Errorf("%d instants, %d frequent jobs, %d omitted; expected %d, 1 and 0", len(c.Upcoming), len(c.Frequent), c.Omitted, 7+59*168)
	}
}
