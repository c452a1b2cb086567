package show

import (
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/cli/terminal"
	"github.com/wasmjob/wasmjob/host/control/cluster"
	"github.com/wasmjob/wasmjob/host/control/report"
	"github.com/wasmjob/wasmjob/host/control/service"
	"github.com/wasmjob/wasmjob/host/engine"
	"github.com/wasmjob/wasmjob/host/history"
)

// TestUpcoming: what fires too often to be listed is named, and is not nothing.
func TestUpcoming(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 1, 10, 0, 0, 0, time.Local)
	list := []service.Upcoming{{Time: now.Add(time.Hour), Job: "report"}}
	often := []service.Upcoming{{Time: now.Add(time.Second), Job: "pulse"}}
	const line = "pulse fires too often to be listed, first at 10:00:01\n"
	if got := Upcoming(terminal.Style{}, nil, nil, now); got != "nothing fires\n" {
		t.Errorf("nothing: %q", got)
	}
	if got := Upcoming(terminal.Style{}, nil, often, now); got != line {
		t.Errorf("only what is often: %q", got)
	}
	if got := Upcoming(terminal.Style{}, list, often, now); !strings.Contains(got, "report") || !strings.HasSuffix(got, "\n"+line) {
		t.Errorf("both: %q", got)
	}
}

// TestTwoHostsOnAServer: fires and runs name the process where a server has had several.
func TestTwoHostsOnAServer(t *testing.T) {
	t.Parallel()
	const one, other, next = "10.0.0.1@-@11-aa", "10.0.0.1@-@22-bb", "10.0.0.2@-@11-cc"
	runs := func(hosts ...string) (list []history.Run) {
		for _, h := range hosts {
			list = append(list, history.Run{ID: "j/t1/0", Host: h})
		}
		return list
	}
	for name, c := range map[string]struct {
		text string
		want []string
		not  string
	}{
		"fires of two":      {Fires(terminal.Style{}, []history.Fire{{Hosts: []string{one, next}}, {Hosts: []string{other}}}, time.Now(), false), []string{"10.0.0.1@-@11, 10.0.0.2", "10.0.0.1@-@22"}, "10.0.0.2@"},
		"fires of one":      {Fires(terminal.Style{}, []history.Fire{{Hosts: []string{one, one + "-2"}}}, time.Now(), false), []string{"  10.0.0.1\n"}, "@-@"},
		"runs of two":       {Runs(terminal.Style{}, runs(one, other, next), time.Now()), []string{"10.0.0.1@-@11 ", "10.0.0.1@-@22 ", "10.0.0.2 "}, "10.0.0.2@"},
		"runs of two terms": {Runs(terminal.Style{}, runs(one, "10.0.0.1@-@11-dd"), time.Now()), []string{"10.0.0.1 "}, "@-@"},
	} {
		for _, w := range c.want {
			if !strings.Contains(c.text, w) || strings.Contains(c.text, c.not) {
				t.Errorf("%s: want %q and no %q in\n%s", name, w, c.not, c.text)
			}
		}
	}
}

// TestRuns_took: a run takes all its attempts on the host that has it.
func TestRuns_took(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.Local)
	r := history.Run{ID: "j/t1/0", Begun: at, Ended: at.Add(1002 * time.Millisecond), Attempt: 2, Duration: 287 * time.Microsecond, Outcome: abi.OutcomeRetry}
	if got := Runs(terminal.Style{}, []history.Run{r}, at); !strings.Contains(got, " 1s ") || strings.Contains(got, "287") {
		t.Errorf("ended: %s", got)
	}
	r = history.Run{ID: "j/t1/0", First: at, Begun: at.Add(time.Minute), Attempt: 1}
	if got := Runs(terminal.Style{}, []history.Run{r}, at.Add(2*time.Minute)); !strings.Contains(got, "1m so far") {
		t.Errorf("runs: %s", got)
	}
	r.Usual = 30 * time.Second
	if got := Runs(terminal.Style{}, []history.Run{r}, at.Add(2*time.Minute)); !strings.Contains(got, "1m so far (usually 30s)") {
		t.Errorf("with what is usual: %s", got)
	}
	r = history.Run{ID: "j/t1/0", Begun: at, Ended: at, Outcome: history.Lost}
	if got := Runs(terminal.Style{}, []history.Run{r}, at); !strings.Contains(got, "LOST     -     -") || strings.Contains(got, "0s") {
		t.Errorf("how long it took, and its attempts, are not known: %s", got)
	}
}

// TestFires_items: a fire's items are those that are known of it; how many it has is said if there are more, and
// that nothing is known of them if histories are missing.
func TestFires_items(t *testing.T) {
	t.Parallel()
	for want, f := range map[string]history.Fire{
		"  0-3  ":                         {Items: []int{0, 1, 2, 3}, Total: 4, Succeeded: 4},
		"  2 (1 failed)  ":                {Items: []int{2}, Total: 1, Failed: 1}, // which a trigger asked for
		"  0-1  ":                         {Items: []int{0, 1}, Succeeded: 2},
		"  0-1 (2 of 4, 1 failed)  ":      {Items: []int{0, 1}, Total: 4, Succeeded: 1, Failed: 1},
		"  0 (1 of 2 known, 1 unknown)  ": {Items: []int{0}, Total: 2, Unknown: 1},
		"  0 (1 of 2 known)  ":            {Items: []int{0}, Total: 2, Succeeded: 1},
	} {
		if got := Fires(terminal.Style{}, []history.Fire{f}, time.Now(), strings.Contains(want, "known")); !strings.Contains(got, want) {
			t.Errorf("want %q in\n%s", want, got)
		}
	}
}

// TestLine: before a line stands how many of its run are missing there.
func TestLine(t *testing.T) {
	t.Parallel()
	l := history.Line{Time: time.Date(2026, 3, 1, 12, 0, 0, 0, time.Local), Job: "cities", Item: 2, Message: "on and on"}
	line := "2026-03-01 12:00:00.000 info cities/2 on and on\n"
	for gap, want := range map[int64]string{0: line, 1: "… missing here: 1 line of the run\n" + line, 442: "… missing here: 442 lines of the run\n" + line} {
		if l.Gap = gap; Line(terminal.Style{}, &l) != want {
			t.Errorf("%d missing: %q, want %q", gap, Line(terminal.Style{}, &l), want)
		}
	}
}

// TestChanges: what a change was about is named: the item, the server, the instance; and the operation as the commands
// name it.
func TestChanges(t *testing.T) {
	t.Parallel()
	now, item := time.Date(2026, 3, 1, 12, 0, 0, 0, time.Local), 1
	at := now.Add(-time.Minute)
	text := Changes(terminal.Style{}, []history.Change{
		{Time: at, Who: "ann", What: "disable", Job: "hello3", Item: &item},
		{Time: at, Who: "ann", What: "disable", Job: "hello3", Host: "10.0.0.7"},
		{Time: at, Who: "ann", What: "shutdown", Host: "10.0.0.7@-@8"},
		{Time: at, Who: "ann", What: "disable", Job: "hello3"},
		{Time: at, Who: "ann", What: "run now", Job: "hello3", Trigger: 26},
		{Time: at, Who: "ann", What: "run now", Job: "hello3", Trigger: 27, After: "items 0"},
	}, now)
	for i, want := range []string{"hello3/1", "hello3 on 10.0.0.7", "on 10.0.0.7@-@8", "hello3", "hello3 - trigger 26", "hello3 - trigger 27: items 0"} {
		_, after, _ := strings.Cut(strings.Split(text, "\n")[i+1], []string{"pause", "pause", "drain", "pause", "run now", "run now"}[i])
		if got := strings.Join(strings.Fields(strings.TrimRight(after, " -")), " "); got != want {
			t.Errorf("line %d says %q of the job, want %q:\n%s", i+1, got, want, text)
		}
	}
}

// TestLongChanges: a change of many settings does not push the reason out of sight, and is all there
// where no terminal bounds it; a reason has its bound.
func TestLongChanges(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.Local)
	long := strings.Repeat("n", 400)
	list := []history.Change{
		{Time: now, Who: "ann", What: "create", Job: "a", Before: "{}", After: `{"description":"` + long + `"}`, Why: "because"},
		{Time: now, Who: "ann", What: "edit", Job: "a", Why: strings.Repeat("y", 300), Error: long},
	}
	lines := strings.Split(Changes(terminal.Style{}, list, now), "\n")
	for i, want := range []string{"because", strings.Repeat("y", 59) + "…"} {
		before, after, found := strings.Cut(lines[i+1], want)
		if !found || terminal.Width(before) > 60 || !strings.Contains(after, long) {
			t.Errorf("line %d: %q", i+1, lines[i+1])
		}
	}
	for _, line := range strings.Split(Changes(terminal.Style{Width: 80}, list, now), "\n") {
		if terminal.Width(line) > 80 {
			t.Errorf("wider than the terminal: %q", line)
		}
	}
	if line := strings.Split(Changes(terminal.Style{Width: 80}, list[:1], now), "\n")[1]; !strings.Contains(line, "because") {
		t.Errorf("no reason: %q", line)
	}
}

// TestHosts: what is wrong with a host is in its line, also while it runs jobs; of one that is silent, what
// it said last.
func TestHosts(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.Local)
	says := func(state engine.HostState, h *report.History) *report.Report {
		return &report.Report{Ready: true, Status: engine.Status{State: state, Instance: "10.0.0.6@-@7-x"}, History: h}
	}
	started, seen := now.Add(-time.Hour), now.Add(-20*time.Second)
	warned := says(engine.HostLive, nil)
	warned.Warnings = []string{"a file is not taken:\nline 1\nline 2", "b", "c", "d", "e"}
	text := Hosts(terminal.Style{}, []cluster.Host{
		{Name: "10.0.0.1", ServerIP: "10.0.0.1", Started: started, Seen: now, Jobs: 2, Running: 1, Report: says(engine.HostLive, &report.History{File: "x"}), State: engine.HostLive},
		{Name: "10.0.0.2", ServerIP: "10.0.0.2", Started: started, Seen: now, Jobs: 2, Running: 1, Report: says(engine.HostLive, &report.History{Problem: "it is away", Since: now.Add(-time.Minute)}), State: engine.HostLive},
		{Name: "10.0.0.3", ServerIP: "10.0.0.3", Started: started, Seen: now, Jobs: 2, Running: 1, Report: says(engine.HostSuspect, nil), State: engine.HostSuspect},
		{Name: "10.0.0.4", ServerIP: "10.0.0.4", Started: started, Seen: seen, Jobs: 2, Running: 1, Report: says(engine.HostLive, nil), Silent: "no answer"},
		{Name: "10.0.0.5", ServerIP: "10.0.0.5", Started: started, Silent: "no answer"},
		{Name: "10.0.0.6", ServerIP: "10.0.0.6", Started: started, Seen: now, Report: says(engine.HostLive, nil), State: engine.HostStopped, Stopped: 2},
		{Name: "10.0.0.7", ServerIP: "10.0.0.7", Started: started, Seen: now, Jobs: 2, Running: 4, Report: says(engine.HostLive, nil), State: engine.HostDraining, Draining: []cluster.Draining{{Job: "a", Items: []int{0, 1, 3}}, {Job: "b"}}},
		{Name: "10.0.0.8", ServerIP: "10.0.0.8", Started: started, Seen: now, Jobs: 4, Report: says(engine.HostLive, nil), State: engine.HostLive, Disabled: []string{"a", "b", "c", "d"}},
		{Name: "10.0.0.9", ServerIP: "10.0.0.9", Started: started, Seen: now, Report: warned, State: engine.HostLive},
	}, now)
	lines := strings.Split(text, "\n")
	for i, want := range [][]string{
		{"live", "2", "1", "-"},
		{"live", "2", "1", "its history cannot be written since 11:59:00: it is away"},
		{"suspect", "2", "1", "its session with the registry is suspect: nothing begins"},
		{"silent", "2", "1", "no answer; it last answered 20s ago, and its jobs are as of then"},
		{"silent", "-", "-", "no answer"},
		{"stopped", "0", "0", "2 jobs stopped here by an operator; 'wasmjob host start --instance 10.0.0.6@-@7-x' runs them again"},
		{"draining", "2", "4", "leaves 2 jobs, and waits for items 0-1,3 of a"},
		{"live", "4", "0", "paused for 4 jobs: a, b, c, …"},
		{"live", "0", "0", "a file is not taken: line 1 line 2; b; c; 2 more warnings in 'wasmjob status'"},
	} {
		fields := regexp.MustCompile(" {2,}").Split(strings.TrimSpace(lines[i+1]), -1)
		got := append(slices.Clone(fields[2:5]), fields[len(fields)-1])
		if !slices.Equal(got, want) {
			t.Errorf("line %d says %q, want %q:\n%s", i+1, got, want, text)
		}
		if up := fields[len(fields)-2]; (up == "1h") == (want[0] == "silent") { // whether it still runs is not known
			t.Errorf("line %d has UP %q:\n%s", i+1, up, text)
		}
	}
}

// TestGone: a host that is gone is named with who saw it.
func TestGone(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.Local)
	text := Gone(terminal.Style{}, []service.GoneHost{{Instance: "10.0.0.2@-@7-x", ServerIP: "10.0.0.2", Since: now.Add(-time.Minute), SeenBy: []string{"10.0.0.1", "10.0.0.3"}}}, now)
	if want := "10.0.0.2 is gone since 11:59:00, as 10.0.0.1, 10.0.0.3 saw (10.0.0.2@-@7-x)\n"; text != want {
		t.Errorf("%q, expected %q", text, want)
	}
}

// TestClusterJobs: a job that is paused names who did that, and why; one in error says why, and what it waits for.
func TestClusterJobs(t *testing.T) {
	t.Parallel()
	now := time.Now()
	text := ClusterJobs(terminal.Style{}, []cluster.Job{
		{Name: "a", Health: cluster.HealthPaused, State: engine.JobDisabled, Paused: &cluster.Paused{By: "ann", Why: "broken disk\n" + strings.Repeat("x", 100)}},
		{Name: "b", Health: cluster.HealthPaused, State: engine.JobRemoved, Paused: &cluster.Paused{By: "bob", Why: strings.Repeat("y", 100)}},
		{Name: "c", Health: cluster.HealthPaused, State: engine.JobStopped, Paused: &cluster.Paused{By: "eve"}},
		{Name: "d", Health: cluster.HealthPaused, State: engine.JobDisabled, Hosts: []string{"1", "2", "3"}, Stopped: []string{"2"}},
		{Name: "e", Health: cluster.HealthOK, State: engine.JobReady, Hosts: []string{"1", "2", "3"}, DisabledOn: []string{"2"}},
		{Name: "f", Health: cluster.HealthError, State: engine.JobError, Reason: "too many items\nxxx"},
		{Name: "g", Health: cluster.HealthLate, State: engine.JobReady, Waits: []engine.WaitStatus{{Since: now.Add(-time.Minute), Reason: "a free slot"}}},
	}, now)
	for _, want := range []string{"paused by ann: broken disk", "removed by bob: " + strings.Repeat("y", 40) + "…", "stopped by eve ", "paused  paused ", " 2 of 3 ", " 3, 1 paused ",
		"\nf: too many items\ng: waits for 1m: a free slot\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
	if strings.Contains(text, "xxx") {
		t.Errorf("more than the first line of a reason is shown:\n%s", text)
	}
}

// TestOverview_more: a list that has no room for all jobs says how many there are besides.
func TestOverview_more(t *testing.T) {
	t.Parallel()
	o := &service.Overview{Queued: []cluster.Job{{Name: "a"}}, More: service.More{Queued: 3}}
	if text := Overview(terminal.Style{}, o); !strings.Contains(text, "and 3 more jobs\n") || strings.Count(text, "more job") != 1 {
		t.Errorf("top does not say that 3 more are queued:\n%s", text)
	}
}
