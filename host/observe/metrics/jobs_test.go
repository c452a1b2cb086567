package metrics

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/engine"
	"github.com/wasmjob/wasmjob/host/event"
)

func TestParseJobs(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]Jobs{"all": AllJobs, "none": NoJobs, "0": NoJobs, "20": 20} {
		got, err := ParseJobs(text)
		if err != nil || got != want {
			t.Errorf("%q: %v, %v", text, got, err)
		}
		again, err := ParseJobs(got.String())
		if err != nil || again != want {
			t.Errorf("%q, shown as %q: %v, %v", text, got, again, err)
		}
	}
	for _, text := range []string{"", "-1", "some", "1.5", "99999999999"} {
		if got, err := ParseJobs(text); err == nil {
			t.Errorf("%q: %v", text, got)
		}
	}
}

// stage is a host whose events a test makes.
type stage struct {
	t      *testing.T
	m      *Metrics
	now    time.Time
	status engine.Status
}

func newStage(t *testing.T, jobs Jobs, names ...string) *stage {
	s := &stage{t: t, now: time.Unix(1_800_000_000, 0)}
	s.m = New(Options{Version: "v7", Status: func() engine.Status { return s.status }, Jobs: jobs})
	for _, name := range names {
		s.observe(event.Event{Kind: event.JobAdded, Job: name})
	}
	return s
}

func (s *stage) observe(e event.Event) {
	e.Time = s.now
	s.m.Observe(e)
}

// runs has items of a job run.
func (s *stage) runs(job string, n int) {
	for range n {
		s.observe(event.Event{Kind: event.ItemEnded, Job: job, Outcome: abi.OutcomeOK, RunID: job + "/x/0"})
	}
}

// later lets time go by, after which the jobs are looked at again.
func (s *stage) later() {
	s.now = s.now.Add(chooseEvery)
	s.observe(event.Event{Kind: event.HostStarted})
}

// attempts are what is shown by job, without zeros.
func (s *stage) attempts() map[string]string {
	s.t.Helper()
	all := make(map[string]string)
	for series, value := range scrape(s.t, s.m) {
		var job string
		if _, err := fmt.Sscanf(series, `wasmjob_item_attempts_total{job_name=%q,outcome="OK"}`, &job); err == nil {
			all[job] = value
		}
	}
	return all
}

func (s *stage) want(want map[string]string) {
	s.t.Helper()
	if got := s.attempts(); fmt.Sprint(got) != fmt.Sprint(want) {
		s.t.Errorf("attempts are %v, want %v", got, want)
	}
}

// TestBusiestJobs: a job gets series of its own when it is twice as busy as one that has
// them. What was counted before stays where it was counted, so that no sum goes down.
func TestBusiestJobs(t *testing.T) {
	t.Parallel()
	s := newStage(t, 2, "a", "b", "c", "d")
	s.want(map[string]string{"a": "0", "b": "0", "other": "0"})
	s.runs("a", 1)
	s.runs("b", 10)
	s.runs("c", 20)
	s.runs("d", 4)
	s.want(map[string]string{"a": "1", "b": "10", "other": "24"})
	s.later()
	s.want(map[string]string{"b": "10", "c": "0", "other": "24"})
	s.runs("c", 3)
	s.runs("a", 10) // 10.5 now, b has 5, c 13
	s.want(map[string]string{"b": "10", "c": "3", "other": "34"})
	s.later()
	s.want(map[string]string{"a": "0", "c": "3", "other": "34"})
	s.runs("d", 10) // 12 now: not twice what a has
	s.runs("a", 2)
	s.later()
	s.want(map[string]string{"a": "2", "c": "3", "other": "44"})
	s.observe(event.Event{Kind: event.JobRemoved, Job: "c"})
	s.want(map[string]string{"a": "2", "other": "44"})
	s.later()
	s.want(map[string]string{"a": "2", "d": "0", "other": "44"})
	s.now = s.now.Add(-24 * time.Hour) // a clock that is set back
	s.runs("d", 1)
	s.later()
	s.want(map[string]string{"a": "2", "d": "1", "other": "44"})
}

// TestNoJobs: no series names a job, and nothing is lost from the sums.
func TestNoJobs(t *testing.T) {
	t.Parallel()
	s := newStage(t, NoJobs)
	s.want(map[string]string{"other": "0"})
	now := time.Now()
	for i := range 100 {
		name := fmt.Sprintf("job%d", i)
		s.observe(event.Event{Kind: event.JobAdded, Job: name, Digest: "d"})
		s.observe(event.Event{Kind: event.FireStarted, Job: name, Items: []int{0}, Lag: time.Millisecond})
		s.runs(name, 2)
		s.observe(event.Event{Kind: event.FireEnded, Job: name, Items: []int{0}, Outcome: abi.OutcomeFail, Duration: time.Second})
		s.observe(event.Event{Kind: event.OverQuota, Job: name, Ceiling: "logLines", Count: 1})
		if code := s.m.Guest(event.GuestMetric{Job: name, Kind: abi.MetricCounter, Name: "x", Value: 1}); code != abi.OK {
			t.Errorf("a guest's value: %d", code)
		}
		j := &engine.JobStatus{Name: name, State: engine.JobReady, Digest: "d", Next: now.Add(time.Duration(100-i) * time.Hour), Instances: []string{"h"},
			Items: []engine.ItemStatus{{Running: true, Done: 1, Total: 2}, {}},
			Waits: []engine.WaitStatus{{What: event.WaitMove, Since: now.Add(-time.Duration(i) * time.Hour)}}}
		if i < 3 {
			j.State = engine.JobError
		}
		s.status.Jobs = append(s.status.Jobs, j)
	}
	s.later()
	expect(t, s.m, map[string]string{
		`wasmjob_fires_total{job_name="other",outcome="FAIL"}`:          "100",
		`wasmjob_item_attempts_total{job_name="other",outcome="OK"}`:    "200",
		`wasmjob_fire_lag_seconds_count{job_name="other"}`:              "100",
		`wasmjob_over_quota_total{ceiling="logLines",job_name="other"}`: "100",
		`wasmjob_job_items{job_name="other"}`:                           "200",
		`wasmjob_job_items_running{job_name="other"}`:                   "100",
		`wasmjob_job_progress_expected{job_name="other"}`:               "200",
		`wasmjob_job_state{job_name="other",state="ready"}`:             "97",
		`wasmjob_job_state{job_name="other",state="error"}`:             "3",
		`wasmjob_job_instances{job_name="other"}`:                       "",
		`wasmjob_job_next_fire_timestamp_seconds{job_name="other"}`:     fmt.Sprint(float64(now.Add(time.Hour).UnixMilli()) / 1000),
		`wasmjob_guest_counts_total{job_name="other",name="x"}`:         "",
	})
	got := scrape(t, s.m)
	var age float64
	if _, err := fmt.Sscan(got[`wasmjob_waiting_seconds{job_name="other",what="move"}`], &age); err != nil || age < 99*3600 || age > 100*3600 {
		t.Errorf("the oldest wait lasts %v s, %v", age, err)
	}
	for series := range got {
		if strings.Contains(series, `="job`) {
			t.Errorf("%s names a job", series)
		}
	}
}

// TestJobCalledOther: a job that is called as the sum is a part of it, and leaves it whole.
func TestJobCalledOther(t *testing.T) {
	t.Parallel()
	s := newStage(t, 1, "other", "a", "b")
	s.runs("other", 3)
	s.runs("b", 1)
	s.status.Jobs = []*engine.JobStatus{{Name: "a", State: engine.JobReady}, {Name: "b", State: engine.JobReady}, {Name: "other", State: engine.JobReady}}
	s.want(map[string]string{"a": "0", "other": "4"})
	expect(t, s.m, map[string]string{`wasmjob_job_state{job_name="other",state="ready"}`: "2"})
	s.observe(event.Event{Kind: event.JobRemoved, Job: "other"})
	s.want(map[string]string{"a": "0", "other": "4"})
	all := newStage(t, AllJobs, "other")
	all.runs("other", 1)
	all.want(map[string]string{"other": "1"})
	all.observe(event.Event{Kind: event.JobRemoved, Job: "other"})
	all.want(map[string]string{})
}

// TestJobThatEndsAfterItIsRemoved: its last runs make no series, or they would stay for ever.
func TestJobThatEndsAfterItIsRemoved(t *testing.T) {
	t.Parallel()
	s := newStage(t, AllJobs, "a")
	s.observe(event.Event{Kind: event.FireStarted, Job: "a", Items: []int{0}})
	s.observe(event.Event{Kind: event.JobRemoved, Job: "a"})
	s.m.Guest(event.GuestMetric{Job: "a", Kind: abi.MetricCounter, Name: "x", Value: 1})
	s.runs("a", 1)
	s.observe(event.Event{Kind: event.ItemCompleted, Job: "a"})
	s.observe(event.Event{Kind: event.FireEnded, Job: "a", Items: []int{0}, Outcome: abi.OutcomeOK})
	s.observe(event.Event{Kind: event.Elected, Job: "a"})
	for series := range scrape(t, s.m) {
		if strings.Contains(series, `job_name="a"`) {
			t.Errorf("%s is there", series)
		}
	}
	s.observe(event.Event{Kind: event.JobAdded, Job: "a"}) // it comes back
	s.runs("a", 1)
	s.want(map[string]string{"a": "1"})
}

// TestGuestOfAJobThatLosesItsSeries: its values come and go with the job's.
func TestGuestOfAJobThatLosesItsSeries(t *testing.T) {
	t.Parallel()
	s := newStage(t, 1, "a", "b")
	report := func(job string) {
		t.Helper()
		if code := s.m.Guest(event.GuestMetric{Job: job, Kind: abi.MetricCounter, Name: "x", Value: 1}); code != abi.OK {
			t.Fatalf("code %d", code)
		}
	}
	report("a")
	report("b")
	expect(t, s.m, map[string]string{`wasmjob_guest_counts_total{job_name="a",name="x"}`: "1", `wasmjob_guest_counts_total{job_name="b",name="x"}`: ""})
	s.runs("b", 5)
	s.later()
	report("a")
	report("b")
	expect(t, s.m, map[string]string{`wasmjob_guest_counts_total{job_name="a",name="x"}`: "", `wasmjob_guest_counts_total{job_name="b",name="x"}`: "1"})
}
