package metrics

import (
	"fmt"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"go.uber.org/zap"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/config/ceiling"
	"github.com/wasmjob/wasmjob/host/engine"
	"github.com/wasmjob/wasmjob/host/event"
)

// scrape returns the lines that are not comments.
func scrape(t *testing.T, m *Metrics) map[string]string {
	t.Helper()
	w := httptest.NewRecorder()
	m.Handler(zap.NewNop()).ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	if w.Code != 200 {
		t.Fatalf("scrape: %d %s", w.Code, w.Body)
	}
	lines := make(map[string]string)
	for line := range strings.SplitSeq(w.Body.String(), "\n") {
		if i := strings.LastIndexByte(line, ' '); i > 0 && line[0] != '#' {
			lines[line[:i]] = line[i+1:]
		}
	}
	return lines
}

func expect(t *testing.T, m *Metrics, want map[string]string) {
	t.Helper()
	got := scrape(t, m)
	for k, v := range want {
		if got[k] != v {
			t.Errorf("%s is %q, want %q", k, got[k], v)
		}
	}
}

// TestSeriesBeginWithZero: all counters of a job are there before anything happened,
// so that Prometheus sees the first failure as an increase.
func TestSeriesBeginWithZero(t *testing.T) {
	t.Parallel()
	m := New(Options{Version: "v7", Status: func() engine.Status { return engine.Status{} }})
	m.Observe(event.Event{Kind: event.JobAdded, Job: "a", Digest: "d"})
	want := make(map[string]string)
	for _, outcome := range abi.Outcomes() {
		want[fmt.Sprintf("wasmjob_item_attempts_total{job_name=%q,outcome=%q}", "a", outcome)] = "0"
		want[fmt.Sprintf("wasmjob_fires_total{job_name=%q,outcome=%q}", "a", outcome)] = "0"
	}
	for _, cause := range event.SkipCauses() {
		want[fmt.Sprintf("wasmjob_items_skipped_total{job_name=%q,reason=%q}", "a", cause)] = "0"
		want[fmt.Sprintf("wasmjob_fires_skipped_total{job_name=%q,reason=%q}", "a", cause)] = "0"
	}
	for _, quota := range ceiling.Quotas() {
		want[fmt.Sprintf("wasmjob_over_quota_total{ceiling=%q,job_name=%q}", quota, "a")] = "0"
	}
	for _, name := range networks {
		want[fmt.Sprintf("wasmjob_outside_calls_total{capability=%q,job_name=%q}", name, "a")] = "0"
		want[fmt.Sprintf("wasmjob_outside_failed_total{capability=%q,job_name=%q}", name, "a")] = "0"
	}
	for _, name := range []string{"items_completed_total", "items_repaired_total", "log_lines_dropped_total", "elections_won_total", "reshardings_total", "fire_lag_seconds_count"} {
		want[fmt.Sprintf("wasmjob_%s{job_name=%q}", name, "a")] = "0"
	}
	expect(t, m, want)
	all := scrape(t, m)
	m.Observe(event.Event{Kind: event.FireSkipped, Job: "a", Cause: event.SkipMissed})
	m.Observe(event.Event{Kind: event.ItemHeld, Job: "a", Cause: event.SkipHeld})
	m.Observe(event.Event{Kind: event.ItemEnded, Job: "a", Outcome: abi.OutcomeTrap})
	for series := range scrape(t, m) {
		if _, before := all[series]; !before && strings.Contains(series, "job_name") {
			t.Errorf("%s was not there from the beginning", series)
		}
	}
}

func TestEventsBecomeMetrics(t *testing.T) {
	t.Parallel()
	at := time.Unix(1_800_000_000, 0)
	status := engine.Status{State: engine.HostLive, Refused: []engine.Refusal{{File: "x"}}, Jobs: []*engine.JobStatus{{
		Name: "a", State: engine.JobRunning, Digest: "d1", Next: at, Instances: []string{"h1", "h2"},
		Items: []engine.ItemStatus{{Running: true, Done: 3, Total: 10}, {Running: true, Done: 1, Total: -1}, {Misfired: true, Done: 99}},
	}}}
	m := New(Options{Version: "v7", Status: func() engine.Status { return status }})
	e := func(kind event.Kind, set func(*event.Event)) {
		ev := event.Event{Kind: kind, Job: "a", Instant: at, Source: abi.SourceSchedule}
		if set != nil {
			set(&ev)
		}
		m.Observe(ev)
	}
	e(event.JobAdded, nil)
	e(event.FireStarted, func(e *event.Event) { e.Items = []int{0, 1, 2}; e.Lag = 2 * time.Millisecond })
	m.Observe(event.Event{Kind: event.FireStarted, Job: "a", Source: abi.SourceTrigger, Trigger: 7}) // has no instant to be late for
	one := 1
	e(event.ItemStarted, func(e *event.Event) { e.Item, e.Attempt = &one, 1 })
	e(event.ItemEnded, func(e *event.Event) { e.Attempt, e.Outcome, e.Again = 1, abi.OutcomeWorker, true })
	e(event.ItemStarted, func(e *event.Event) { e.Item, e.Attempt = &one, 1 }) // which does not count as another item
	e(event.ItemStarted, func(e *event.Event) { e.Item, e.Attempt = &one, 2 })
	e(event.ItemEnded, func(e *event.Event) { e.Outcome = abi.OutcomeRetry; e.Batches = 2; e.Records = 30; e.DroppedLines = 5 })
	e(event.ItemEnded, func(e *event.Event) {
		e.Outcome = abi.OutcomeOK
		e.Outside = map[string]abi.OutsideCount{"http": {Calls: 5, Failed: 2, Sent: 70, Received: 900, Refused: map[string]int64{"denied": 3, "made up": 1}}, "kv": {Calls: 1}}
	})
	e(event.Listener, func(e *event.Event) {
		e.DroppedLines = 2
		e.Outside = map[string]abi.OutsideCount{"http": {Calls: 1, Sent: 5}}
	})
	e(event.ItemCompleted, nil)
	e(event.ItemSkipped, func(e *event.Event) { e.Cause = event.SkipLost })
	e(event.FireSkipped, func(e *event.Event) { e.Cause = event.SkipDisabled })
	e(event.Elected, nil)
	e(event.Sharded, nil)
	e(event.Refused, nil)
	e(event.OverQuota, func(e *event.Event) { e.Ceiling, e.Count = ceiling.LogLines, 40 })
	e(event.OverQuota, func(e *event.Event) { e.Ceiling, e.Count = ceiling.LogLines, 2 })
	e(event.Kind("of a later version"), nil)
	if err := m.CounterFunc("history_dropped_total", "x", func() float64 { return 4 }); err != nil {
		t.Fatal(err)
	}
	of := func(cause string) float64 { return float64(len(cause)) }
	if err := m.CountersFunc("worker_processes_ended_total", "x", NewLabel("cause", []string{"a", "bc"}), of); err != nil {
		t.Fatal(err)
	}
	expect(t, m, map[string]string{
		`wasmjob_worker_processes_ended_total{cause="a"}`:  "1",
		`wasmjob_worker_processes_ended_total{cause="bc"}`: "2",

		`wasmjob_items_waiting`: "2",
		`wasmjob_item_attempts_total{job_name="a",outcome="RETRY"}`:  "1",
		`wasmjob_item_attempts_total{job_name="a",outcome="WORKER"}`: "1",
		`wasmjob_items_completed_total{job_name="a"}`:                "1",

		`wasmjob_outside_calls_total{capability="http",job_name="a"}`:                    "6",
		`wasmjob_outside_calls_total{capability="kv",job_name="a"}`:                      "1",
		`wasmjob_outside_failed_total{capability="http",job_name="a"}`:                   "2",
		`wasmjob_outside_sent_bytes_total{capability="http",job_name="a"}`:               "75",
		`wasmjob_outside_received_bytes_total{capability="http",job_name="a"}`:           "900",
		`wasmjob_outside_refused_total{capability="http",job_name="a",reason="denied"}`:  "3",
		`wasmjob_outside_refused_total{capability="http",job_name="a",reason="quota"}`:   "0",
		`wasmjob_outside_refused_total{capability="http",job_name="a",reason="made up"}`: "",

		`wasmjob_items_skipped_total{job_name="a",reason="lost"}`:     "1",
		`wasmjob_fires_skipped_total{job_name="a",reason="disabled"}`: "1",
		`wasmjob_elections_won_total{job_name="a"}`:                   "1",
		`wasmjob_reshardings_total{job_name="a"}`:                     "1",
		`wasmjob_files_refused_total`:                                 "1",
		`wasmjob_over_quota_total{ceiling="logLines",job_name="a"}`:   "42",
		`wasmjob_log_lines_dropped_total{job_name="a"}`:               "7",
		`wasmjob_dataflow_batches_total{job_name="a"}`:                "2",
		`wasmjob_dataflow_records_total{job_name="a"}`:                "30",
		`wasmjob_fire_lag_seconds_count{job_name="a"}`:                "1",
		`wasmjob_fire_lag_seconds_bucket{job_name="a",le="0.001"}`:    "0",
		`wasmjob_fire_lag_seconds_bucket{job_name="a",le="0.004"}`:    "1",
		`wasmjob_history_dropped_total`:                               "4",
		`wasmjob_host_state{state="live"}`:                            "1",
		`wasmjob_host_state{state="draining"}`:                        "0",
		`wasmjob_refused_files`:                                       "1",
		`wasmjob_job_state{job_name="a",state="running"}`:             "1",
		`wasmjob_job_module_info{digest="d1",job_name="a"}`:           "1",
		`wasmjob_job_next_fire_timestamp_seconds{job_name="a"}`:       "1.8e+09",
		`wasmjob_job_items{job_name="a"}`:                             "3",
		`wasmjob_job_items_running{job_name="a"}`:                     "2",
		`wasmjob_job_items_misfired{job_name="a"}`:                    "1",
		`wasmjob_job_instances{job_name="a"}`:                         "2",
		`wasmjob_job_progress_done{job_name="a"}`:                     "4",
		`wasmjob_job_progress_expected{job_name="a"}`:                 "10",
	})
	e(event.FireEnded, func(e *event.Event) { e.Outcome = abi.OutcomeFail; e.Duration = time.Second })
	expect(t, m, map[string]string{
		`wasmjob_items_waiting`:                            "0",
		`wasmjob_fires_total{job_name="a",outcome="FAIL"}`: "1",
		`wasmjob_fire_duration_seconds_sum{job_name="a"}`:  "1",
	})
	lint(t, m)

	// A session that finds that the registry has gone back, and the one after it.
	for _, step := range []struct{ kind, host, reason, want string }{
		{"session", "x", "live", "0"}, {"registry.behind", "", "", "1"}, {"session", "y", "live", "1"}, {"session", "z", "live", "0"},
	} {
		e(event.Kind(step.kind), func(e *event.Event) { e.Host, e.Reason = step.host, step.reason })
		expect(t, m, map[string]string{`wasmjob_registry_behind`: step.want})
	}
	// A fire in whose midst the session was lost, and one whose job left.
	e(event.FireStarted, func(e *event.Event) { e.Items = []int{0, 1} })
	e(event.Session, func(e *event.Event) { e.Reason = "lost" })
	expect(t, m, map[string]string{`wasmjob_items_waiting`: "0", `wasmjob_sessions_lost_total`: "1"})
	e(event.FireStarted, func(e *event.Event) { e.Items = []int{0, 1} })
	status.Jobs = nil
	e(event.JobRemoved, nil)
	for k := range scrape(t, m) {
		if strings.Contains(k, `job_name="a"`) {
			t.Errorf("%s is left of a job that was removed", k)
		}
	}
	expect(t, m, map[string]string{`wasmjob_items_waiting`: "0"})
}

// lint judges names and types as promtool does.
func lint(t *testing.T, m *Metrics) {
	t.Helper()
	families, err := m.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	problems, err := promlint.NewWithMetricFamilies(families).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

func TestGuestMetricsAreBounded(t *testing.T) {
	t.Parallel()
	m := New(Options{Version: "v7", Status: func() engine.Status { return engine.Status{} }})
	for _, job := range []string{"a", "b", "c", "d"} {
		m.Observe(event.Event{Kind: event.JobAdded, Job: job})
	}
	add := func(job string, kind int, name string, v int64) abi.Code {
		return m.Guest(event.GuestMetric{Job: job, Kind: kind, Name: name, Value: v})
	}
	for _, c := range []struct {
		job  string
		kind int
		name string
		v    int64
		want abi.Code
	}{
		{"a", abi.MetricCounter, "x", 2, abi.OK},
		{"a", abi.MetricCounter, "x", 3, abi.OK},
		{"a", abi.MetricCounter, "x", -1, abi.ErrInvalid},
		{"a", abi.MetricGauge, "x", 1, abi.ErrInvalid},
		{"b", abi.MetricGauge, "x", -7, abi.OK},
		{"b", abi.MetricHistogram, "y_total", 20, abi.OK},
		{"a", 3, "z", 1, abi.ErrInvalid},
		{"a", -1, "z", 1, abi.ErrInvalid},
	} {
		if got := add(c.job, c.kind, c.name, c.v); got != c.want {
			t.Errorf("%v: %d, want %d", c, got, c.want)
		}
	}
	expect(t, m, map[string]string{
		`wasmjob_guest_counts_total{job_name="a",name="x"}`:                      "5",
		`wasmjob_guest_values{job_name="b",name="x"}`:                            "-7",
		`wasmjob_guest_observations_bucket{job_name="b",name="y_total",le="16"}`: "0",
		`wasmjob_guest_observations_bucket{job_name="b",name="y_total",le="64"}`: "1",
	})
	lint(t, m)

	// 1,000 names from many goroutines: 64 are taken, whichever came first.
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for n := range 1000 {
				add("c", abi.MetricCounter, fmt.Sprintf("n%d", (n+g*250)%1000), 1)
			}
		})
	}
	wg.Wait()
	series := 0
	for k := range scrape(t, m) {
		if strings.HasPrefix(k, `wasmjob_guest_counts_total{job_name="c"`) {
			series++
		}
	}
	if series != abi.MaxMetricNames {
		t.Errorf("%d names, want %d", series, abi.MaxMetricNames)
	}
	if got := add("c", abi.MetricCounter, "late", 1); got != abi.ErrQuota {
		t.Errorf("name 65: %d, want %d", got, abi.ErrQuota)
	}
	if got := add("d", abi.MetricCounter, "late", 1); got != abi.OK {
		t.Errorf("another job: %d", got)
	}
	// A new module of the job begins with all its names free; a mere change
	// of the configuration keeps what was counted.
	m.Observe(event.Event{Kind: event.JobAdded, Job: "c", Digest: "d1"})
	m.Observe(event.Event{Kind: event.JobChanged, Job: "c", Digest: "d1"})
	if got := add("c", abi.MetricCounter, "late", 1); got != abi.ErrQuota {
		t.Errorf("after a change of the configuration: %d, want %d", got, abi.ErrQuota)
	}
	m.Observe(event.Event{Kind: event.JobChanged, Job: "c", Digest: "d2"})
	if got := add("c", abi.MetricCounter, "late", 1); got != abi.OK {
		t.Errorf("after a change of the module: %d", got)
	}
}

// TestBackfillMetrics: the host that gives the instants of a backfill out says how many it has given, and how many are left; jobs without
// series of their own are summed.
func TestBackfillMetrics(t *testing.T) {
	t.Parallel()
	of := func(name string, b *engine.BackfillStatus) *engine.JobStatus {
		return &engine.JobStatus{Name: name, State: engine.JobReady, Backfill: b}
	}
	status := engine.Status{Jobs: []*engine.JobStatus{of("a", &engine.BackfillStatus{Total: 31, Done: 4}), of("b", &engine.BackfillStatus{Total: 9, Done: 9}), of("c", nil)}}
	all := func() engine.Status { return status }
	expect(t, New(Options{Version: "v7", Status: all}), map[string]string{
		`wasmjob_job_backfill_instants_done{job_name="a"}`: "4", `wasmjob_job_backfill_instants_left{job_name="a"}`: "27",
		`wasmjob_job_backfill_instants_done{job_name="b"}`: "9", `wasmjob_job_backfill_instants_left{job_name="b"}`: "0",
		`wasmjob_job_backfill_instants_left{job_name="c"}`: "",
	})
	expect(t, New(Options{Version: "v7", Status: all, Jobs: NoJobs}), map[string]string{
		`wasmjob_job_backfill_instants_done{job_name="other"}`: "13", `wasmjob_job_backfill_instants_left{job_name="other"}`: "27",
	})
}

func TestWaitsAndFailuresOfTheRegistryBecomeMetrics(t *testing.T) {
	t.Parallel()
	status := engine.Status{
		Waits:            []engine.WaitStatus{{What: event.WaitSession, Since: time.Now().Add(-30 * time.Second)}},
		RegistryFailures: map[string]int64{"timeout": 2, "unavailable": 0},
		Jobs: []*engine.JobStatus{{Name: "a", State: engine.JobSharding, Waits: []engine.WaitStatus{
			{What: event.WaitMove, Since: time.Now().Add(-90 * time.Second), Items: []int{3}}, {What: event.WaitMark, Since: time.Now().Add(time.Hour)},
		}}},
	}
	m := New(Options{Version: "v7", Status: func() engine.Status { return status }})
	for _, what := range event.Waits() {
		expect(t, m, map[string]string{`wasmjob_waits_expired_total{what="` + string(what) + `"}`: "0"})
	}
	m.Observe(event.Event{Kind: event.JobError, Job: "a", Reason: "a schedule that cannot be read"})
	m.Observe(event.Event{Kind: event.JobError, Job: "a", Wait: event.WaitListener})
	m.Observe(event.Event{Kind: event.JobError, Job: "b", Wait: event.WaitListener})
	m.Observe(event.Event{Kind: event.Session, Wait: event.WaitSession})
	expect(t, m, map[string]string{
		`wasmjob_waits_expired_total{what="listener"}`:          "2",
		`wasmjob_waits_expired_total{what="session"}`:           "1",
		`wasmjob_waits_expired_total{what="move"}`:              "0",
		`wasmjob_registry_failures_total{reason="timeout"}`:     "2",
		`wasmjob_registry_failures_total{reason="unavailable"}`: "0",
		`wasmjob_waiting_seconds{job_name="a",what="mark"}`:     "0", // its clock was set back
		`wasmjob_sessions_lost_total`:                           "0",
	})
	got := scrape(t, m)
	for series, least := range map[string]float64{
		`wasmjob_waiting_seconds{job_name="a",what="move"}`:   90,
		`wasmjob_waiting_seconds{job_name="",what="session"}`: 30,
	} {
		if v, err := strconv.ParseFloat(got[series], 64); err != nil || v < least || v > least+60 {
			t.Errorf("%s is %q, want %v and a little", series, got[series], least)
		}
	}
	families, err := m.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	problems, err := promlint.NewWithMetricFamilies(families).Lint()
	if err != nil || len(problems) > 0 {
		t.Errorf("%v, %v", problems, err)
	}
	// What is not waited for any more is absent.
	status.Waits, status.Jobs[0].Waits = nil, nil
	for series := range scrape(t, m) {
		if strings.HasPrefix(series, "wasmjob_waiting_seconds") {
			t.Errorf("%s, and nothing is waited for", series)
		}
	}
}

// The drift of the clock is shown while it is known, and records that were ahead
// of all clocks are counted.
func TestClocksBecomeMetrics(t *testing.T) {
	t.Parallel()
	var status engine.Status
	m := New(Options{Version: "v7", Status: func() engine.Status { return status }})
	if v, shown := scrape(t, m)["wasmjob_clock_drift_seconds"]; shown {
		t.Errorf("the drift is %s, and it is not known", v)
	}
	status.Clock = &engine.ClockStatus{Drift: -90 * time.Second}
	item := 3
	m.Observe(event.Event{Kind: event.JobAdded, Job: "a"})
	m.Observe(event.Event{Kind: event.ItemRepaired, Job: "a", Item: &item})
	expect(t, m, map[string]string{
		`wasmjob_clock_drift_seconds`:                "-90",
		`wasmjob_items_repaired_total{job_name="a"}`: "1",
	})
	m.Observe(event.Event{Kind: event.JobRemoved, Job: "a"})
	if _, shown := scrape(t, m)[`wasmjob_items_repaired_total{job_name="a"}`]; shown {
		t.Error("a series of a job that is gone")
	}
}
