package show

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/cli/terminal"
	"github.com/wasmjob/wasmjob/host/control/cluster"
	"github.com/wasmjob/wasmjob/host/control/report"
	"github.com/wasmjob/wasmjob/host/engine"
	"github.com/wasmjob/wasmjob/internal/labels"
)

// busy is the status of a host with a bit of everything.
func busy(now time.Time) engine.Status {
	return engine.Status{
		Instance: "10.0.0.1@-@7-x", State: engine.HostLive, Namespace: "ns", Started: now.Add(-time.Hour),
		Jobs: []*engine.JobStatus{
			{
				Name: "cities", State: engine.JobRunning, Cron: "*/5 * * * * ?", TimeZone: "Asia/Shanghai", Next: now.Add(90 * time.Second),
				ShardingTotalCount: 5, Module: "cities.wasm", Digest: strings.Repeat("ab", 32), Type: "SIMPLE", Isolation: "process", Instances: []string{"a", "b"},
				Warnings: []string{"hosts differ in their zone"},
				Items: []engine.ItemStatus{
					{Item: 0, LastOutcome: abi.OutcomeOK, LastEnd: now},
					{Item: 1, Parameter: "Shanghai", Running: true, Since: now.Add(-3 * time.Second), Attempt: 2, Done: 5, Total: 10, Misfired: true},
					{Item: 2, LastOutcome: abi.OutcomeTrap, LastMessage: "boom\x1b[2J\nstack", LastEnd: now.Add(-time.Minute)},
					{Item: 3, Queued: true},
				},
				LastFire: &engine.FireStatus{Instant: now.Add(-5 * time.Second), Source: abi.SourceTrigger, Items: []int{0, 1, 2}, Outcome: abi.OutcomeFail, Duration: time.Second},
			},
			{Name: "once", State: engine.JobError, Reason: "no such zone", ShardingTotalCount: 1, Module: "cities.wasm", Digest: strings.Repeat("ab", 32), Type: "SIMPLE"},
		},
		Refused: []engine.Refusal{{File: "bad.wasm", Reasons: []string{"not a module", "too large"}, Since: now.Add(-time.Minute), Kept: true}},
	}
}

func TestStatusText(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	shown := &report.Report{
		About: report.About{Version: "v9", PID: 7, Plugins: "/jobs", Registry: "embedded, in memory"},
		Now:   now, Ready: true, Status: busy(now),
	}
	want := `host       live, ready, up 1h
instance   10.0.0.1@-@7-x
version    v9, process 7
registry   embedded, in memory, namespace ns
plugins    /jobs

Jobs
NAME    STATE    CRON                         NEXT      ITEMS HERE  HOSTS  LAST FIRE
cities  running  */5 * * * * ? Asia/Shanghai  in 1m30s  0-3 of 5    2      FAIL in 1s, 4s ago, trigger
once    error    (by trigger)                 -         none of 1   0      -

Items
JOB     ITEM  PARAMETER  NOW                              PROGRESS  LAST RUN
cities  1     Shanghai   running 3s, attempt 2, misfired  5/10 50%  -
cities  2                idle                             -         TRAP 1m ago: boom\x1b[2J
cities  3                queued                           -         -

Modules
MODULE       DIGEST        TYPE    ISOLATION  JOBS
cities.wasm  abababababab  SIMPLE             once
cities.wasm  abababababab  SIMPLE  process    cities

Notes
cities: warning: hosts differ in their zone
once: no such zone

Refused files
bad.wasm  1m ago, an earlier version stays in force
  not a module
  too large
`
	if got := Status(terminal.Style{}, shown, false); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if got := Status(terminal.Style{}, shown, true); !strings.Contains(got, "cities  0 ") {
		t.Errorf("not all items are in\n%s", got)
	}
	if got := Status(terminal.Style{}, &report.Report{Now: now}, false); !strings.Contains(got, "no jobs\n") {
		t.Errorf("of an idle host:\n%s", got)
	}
	narrow := &report.Report{Now: now, Ready: true, Status: busy(now)}
	narrow.Status.Jobs[1].Reason = strings.Repeat("many words ", 20)
	for _, width := range []int{80, 60, 200} {
		got := Status(terminal.Style{Width: width}, narrow, true)
		for l := range strings.Lines(got) {
			if n := utf8.RuneCountInString(strings.TrimSuffix(l, "\n")); n > width {
				t.Errorf("%d columns, want at most %d: %s", n, width, l)
			}
		}
		if strings.Contains(got, "HOSTS") != (width == 200) || strings.Contains(got, "…") != (width < 200) {
			t.Errorf("in %d columns:\n%s", width, got)
		}
	}
	off := &report.Report{Now: now, Status: engine.Status{Jobs: []*engine.JobStatus{{
		Name: "cities", State: engine.JobReady, ShardingTotalCount: 4,
		Items: []engine.ItemStatus{{Item: 0}, {Item: 1, Disabled: true}, {Item: 2, Disabled: true, Running: true, Since: now}, {Item: 3, Held: now}},
	}}}}
	text := Status(terminal.Style{}, off, false)
	for _, want := range []string{"  0-3 of 4, 2 items paused, 1 item held  ", "\ncities  1                paused ", "\ncities  3                held ", "\ncities  2                running 0s, then paused "} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
	starting := &report.Report{Now: now, Reason: "compiling: slow.wasm, spin.wasm", Compiling: []report.Compiling{
		{Module: "slow.wasm", Jobs: []string{"slow", "slower"}, Since: now.Add(-1500 * time.Millisecond)}, {Module: "spin.wasm"},
	}}
	got := Status(terminal.Style{}, starting, false)
	for _, want := range []string{
		"not ready (compiling: slow.wasm, spin.wasm)\n", "\nno jobs yet\n\nBeing compiled\n",
		"\nslow.wasm  compiling for 2s  slow, slower\nspin.wasm  waiting           none\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is not in\n%s", want, got)
		}
	}
}

// TestStatusOfAClock shows how far it is from the registry's, if that is not just
// what cannot be measured.
func TestStatusOfAClock(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		clock *engine.ClockStatus
		want  string
	}{
		{nil, ""},
		{&engine.ClockStatus{Drift: 90 * time.Millisecond, Bound: 5 * time.Second}, ""},
		{&engine.ClockStatus{Drift: time.Second, Uncertainty: 2 * time.Second, Bound: 5 * time.Second}, ""},
		{&engine.ClockStatus{Drift: time.Second, Bound: 5 * time.Second}, "clock      1s ahead of the registry's\n"},
		{&engine.ClockStatus{Drift: -90 * time.Minute, Bound: 5 * time.Second, Off: true}, "clock      1h30m0s behind the registry's; expected at most 5s (clockBound)\n"},
	} {
		got := Status(terminal.Style{}, &report.Report{Status: engine.Status{Clock: tc.clock}}, false)
		if !strings.Contains(got, tc.want) || tc.want == "" && strings.Contains(got, "clock") {
			t.Errorf("%+v: want %q in\n%s", tc.clock, tc.want, got)
		}
	}
}

// TestStatusWithoutSession: that a host has no session is one line, and its jobs are shown as they were.
func TestStatusWithoutSession(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.Local)
	shown := &report.Report{Now: now, Status: engine.Status{State: engine.HostStarting}}
	for _, name := range []string{"a", "b"} {
		shown.Status.Jobs = append(shown.Status.Jobs, &engine.JobStatus{Name: name, State: engine.JobNoSession, Reason: "the host has no session", SessionLost: now.Add(-5 * time.Minute), LastState: engine.JobReady,
			ShardingTotalCount: 2, LastItems: []engine.ItemStatus{{Item: 1, LastOutcome: abi.OutcomeFail, LastMessage: "disk", LastEnd: now.Add(-time.Hour)}}})
	}
	shown.Status.Jobs = append(shown.Status.Jobs, &engine.JobStatus{Name: "bad", State: engine.JobNoSession, Reason: "no module", SessionLost: now.Add(-5 * time.Minute), LastState: engine.JobError, ShardingTotalCount: 1})
	text := Status(terminal.Style{}, shown, false)
	const line = "Jobs\nno session with the registry since 11:55:00 (5m ago): 3 jobs as known then; nothing begins\n"
	if !strings.Contains(text, line) || strings.Contains(text, "the host has no session") || !strings.Contains(text, "bad: no module") || !strings.Contains(text, "a     ready  (by trigger)  -     1 of 2") || strings.Count(text, "FAIL 1h ago: disk") != 2 {
		t.Errorf("%s", text)
	}
	shown.Status.Jobs = append(shown.Status.Jobs[:1], &engine.JobStatus{Name: "new", State: engine.JobNoSession, Reason: "the host has no session"})
	if text := Status(terminal.Style{}, shown, false); !strings.Contains(text, "1 job as known then; nothing begins; no session with the registry since the start: nothing is known of 1 job\n") {
		t.Errorf("%s", text)
	}
	list := []cluster.Job{{Name: "a", Health: cluster.HealthFailing, State: engine.JobNoSession, Reason: "the host has no session", SessionLost: now.Add(-5 * time.Minute)}, {Name: "b", Health: cluster.HealthOK, State: engine.JobNoSession, SessionLost: now.Add(-6 * time.Minute)},
		{Name: "new", Health: cluster.HealthError, State: engine.JobNoSession, Reason: "the host has no session"}}
	text = ClusterJobs(terminal.Style{}, list, now)
	if !strings.HasPrefix(text, "no session with the registry since 11:55:00 (5m ago): 2 jobs as known then; nothing begins; no session with the registry since the start: nothing is known of 1 job\nNAME") || strings.Contains(text, "the host has no session") {
		t.Errorf("%s", text)
	}
}

// TestLabelsColumn: labels have a column if a job has some, which gives way first.
func TestLabelsColumn(t *testing.T) {
	t.Parallel()
	jobs := []cluster.Job{{Name: "bill", Labels: labels.Set{"team": "billing", "a": "1"}}, {Name: "etl"}}
	if text := ClusterJobs(terminal.Style{}, jobs, time.Now()); !strings.Contains(text, "LABELS") || !strings.Contains(text, "a=1,team=billing") {
		t.Errorf("the labels are missing:\n%s", text)
	}
	if text := ClusterJobs(terminal.Style{Width: 60}, jobs, time.Now()); strings.Contains(text, "LABELS") || !strings.Contains(text, "LAST FIRE") {
		t.Errorf("the labels do not give way:\n%s", text)
	}
	if text := ClusterJobs(terminal.Style{}, jobs[1:], time.Now()); strings.Contains(text, "LABELS") {
		t.Errorf("there is a column without labels:\n%s", text)
	}
}
