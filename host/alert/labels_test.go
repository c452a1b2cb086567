package alert_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/alert"
	"github.com/wasmjob/wasmjob/host/event"
	"github.com/wasmjob/wasmjob/internal/labels"
)

// TestAlertHasLabels: an alert has the labels that its job had when it began.
func TestAlertHasLabels(t *testing.T) {
	t.Parallel()
	j := alert.NewJudge(file(t, ""), server)
	item := 1
	for _, e := range []event.Event{
		{Kind: event.Session, Host: self, Reason: "live"},
		{Kind: event.JobConfigured, Job: "j", Settings: &event.Settings{Cron: "0 * * * * ?", TimeZone: "UTC", Items: 2, Labels: "team=billing,tier=gold"}},
		{Kind: event.ItemStarted, Job: "j", Item: &item, Attempt: 1, Instant: noon, RunID: "j/1"},
		{Kind: event.ItemCompleted, Job: "j", Item: &item, Attempt: 1, Instant: noon, RunID: "j/1", Outcome: abi.OutcomeFail, Count: 1},
	} {
		e.Time, e.Host = noon, self
		j.See(e)
	}
	changes, _ := j.Take()
	if len(changes) != 1 || changes[0].Labels.String() != "team=billing,tier=gold" {
		t.Errorf("found %+v, expected one alert with the labels of the job", changes)
	}
}

// TestRouteByLabels: a route with a selector takes the alerts of jobs with such labels, and none of hosts.
func TestRouteByLabels(t *testing.T) {
	t.Parallel()
	f, err := alert.Parse("alerts.yaml", []byte(`receivers:
  hook: {webhook: {url: https://hook.example}}
routes:
  - {name: billing, labels: "team=billing,tier!=test", to: hook}
  - {name: unowned, labels: "!team", to: hook}
  - {name: rest, to: hook}
`))
	if err != nil {
		t.Fatal(err)
	}
	for _, one := range []struct {
		a    alert.Alert
		want string
	}{
		{alert.Alert{Rule: alert.Failures, Job: "a", Labels: labels.Set{"team": "billing"}}, "billing/hook"},
		{alert.Alert{Rule: alert.Failures, Job: "a", Labels: labels.Set{"team": "billing", "tier": "test"}}, "rest/hook"},
		{alert.Alert{Rule: alert.Failures, Job: "a"}, "unowned/hook"},
		{alert.Alert{Rule: alert.HostGone, Subject: "10.0.0.1"}, "rest/hook"},
	} {
		if got := f.Targets(&one.a); !slices.Equal(got, []alert.Target{alert.Target(one.want)}) {
			t.Errorf("%+v goes to %v, expected %s", one.a, got, one.want)
		}
	}
	_, err = alert.Parse("alerts.yaml", []byte("receivers:\n  hook: {webhook: {url: https://hook.example}}\nroutes:\n  - {name: all, labels: a b, to: hook}\n"))
	if err == nil || !strings.Contains(err.Error(), "routes.labels") || !strings.Contains(err.Error(), `"a b"`) {
		t.Errorf("found %v, expected what is wrong with routes.labels", err)
	}
}

// TestSilenceByLabels: a silence with a selector covers the alerts of jobs with such labels, also after it was stored.
func TestSilenceByLabels(t *testing.T) {
	t.Parallel()
	of, err := labels.ParseSelector("team=billing")
	if err != nil {
		t.Fatal(err)
	}
	data, err := json.Marshal(alert.Silence{Jobs: "*", Labels: of, From: noon, Until: noon.Add(time.Hour), By: "ann"})
	if err != nil {
		t.Fatal(err)
	}
	var s alert.Silence
	if err := json.Unmarshal(data, &s); err != nil {
		t.Fatalf("%s: %v", data, err)
	}
	for _, one := range []struct {
		a    alert.Alert
		want bool
	}{
		{alert.Alert{Rule: alert.Failures, Job: "a", Labels: labels.Set{"team": "billing"}}, true},
		{alert.Alert{Rule: alert.Failures, Job: "a", Labels: labels.Set{"team": "etl"}}, false},
		{alert.Alert{Rule: alert.HostGone, Subject: "10.0.0.1"}, false},
	} {
		if s.Covers(&one.a, noon) != one.want {
			t.Errorf("%s covers %+v: %v", data, one.a, !one.want)
		}
	}
	if err := json.Unmarshal([]byte(`{"jobs":"*","labels":"a b"}`), &s); err == nil {
		t.Error("a silence with a selector that cannot be read is taken")
	}
	if data, _ := json.Marshal(alert.Silence{Jobs: "*"}); strings.Contains(string(data), "labels") {
		t.Errorf("%s has labels", data)
	}
}

// ruled is a file with rules by labels.
const ruled = `receivers: {}
routes: []
defaults: {failures: 3}
jobs:
  - {labels: "team=billing,tier!=test", failures: 1, longerThan: 1m}
  - {labels: team=billing, jobs: "bill-*", failures: 7}
  - {jobs: odd, failures: off}
`

// TestRulesByLabels: rules of jobs go by their labels, alone or with patterns; later entries win.
func TestRulesByLabels(t *testing.T) {
	t.Parallel()
	f, err := alert.Parse("alerts.yaml", []byte(ruled))
	if err != nil {
		t.Fatal(err)
	}
	for _, one := range []struct {
		job    string
		labels labels.Set
		want   int
	}{
		{"a", nil, 3}, {"a", labels.Set{"team": "billing"}, 1}, {"a", labels.Set{"team": "billing", "tier": "test"}, 3}, {"bill-x", labels.Set{"team": "billing", "tier": "test"}, 7},
		{"bill-x", nil, 3}, {"odd", labels.Set{"team": "billing"}, 0}, {"", labels.Set{"team": "billing"}, 3},
	} {
		if got := f.For(one.job, one.labels).Failures; got != one.want {
			t.Errorf("%s %v: %d failures, want %d", one.job, one.labels, got, one.want)
		}
	}
	for file, want := range map[string]string{
		`[{failures: 2}]`:                "found neither jobs nor labels",
		`[{labels: "a b", failures: 2}]`: `jobs.labels: found "a b"`,
		`[{labels: "", failures: 2}]`:    "jobs.labels: found no conditions, expected some such as team=billing",
		`[{labels: [a], failures: 2}]`:   "jobs.labels",
	} {
		if _, err := alert.Parse("alerts.yaml", []byte("receivers: {}\nroutes: []\njobs: "+file+"\n")); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", file, err, want)
		}
	}
}

// TestRelabelled: a job that gets other labels has the rules of these at once: an alert whose rule is off then is over.
func TestRelabelled(t *testing.T) {
	t.Parallel()
	f, err := alert.Parse("alerts.yaml", []byte(ruled))
	if err != nil {
		t.Fatal(err)
	}
	j := alert.NewJudge(f, server)
	item := 1
	see := func(after time.Duration, e event.Event) []alert.Change {
		e.Time, e.Host, e.Job = noon.Add(after), self, "j"
		j.See(e)
		changes, _ := j.Take()
		return changes
	}
	labelled := func(labels string) event.Event {
		return event.Event{Kind: event.JobConfigured, Settings: &event.Settings{Cron: "0 0 3 * * ?", TimeZone: "UTC", Items: 2, Labels: labels}}
	}
	see(0, event.Event{Kind: event.Session, Reason: "live"})
	see(0, labelled("team=billing"))
	fails := event.Event{Kind: event.ItemCompleted, Item: &item, Attempt: 1, Instant: noon, RunID: "j/1", Outcome: abi.OutcomeFail, Count: 1}
	see(time.Second, event.Event{Kind: event.ItemStarted, Item: &item, Attempt: 1, Instant: noon, RunID: "j/1"})
	if got := see(2*time.Second, fails); len(got) != 1 || got[0].Rule != alert.Failures || !got[0].Resolved.IsZero() {
		t.Fatalf("one failure of a job with the label: %+v", got)
	}
	if got := see(3*time.Second, labelled("team=shop")); len(got) != 0 {
		t.Errorf("the rule is on for the other label, with another limit: %+v", got)
	}
	// Of the default's rules, this one is off.
	f, err = alert.Parse("alerts.yaml", []byte(strings.Replace(ruled, "failures: 3", "failures: off", 1)))
	if err != nil {
		t.Fatal(err)
	}
	j.Use(f, noon.Add(4*time.Second))
	if got, _ := j.Take(); len(got) != 1 || got[0].Resolved.IsZero() {
		t.Errorf("the rule is off for the other label: %+v", got)
	}
	see(5*time.Second, labelled("team=billing"))
	see(6*time.Second, fails)
	if got := see(7*time.Second, labelled("")); len(got) != 1 || got[0].Resolved.IsZero() {
		t.Errorf("the label is gone, and its rule: %+v", got)
	}
}

// TestPrometheusByLabels: rules by labels go by the metric that has them, and the file names the setting of hosts that makes it.
func TestPrometheusByLabels(t *testing.T) {
	t.Parallel()
	f, err := alert.Parse("alerts.yaml", []byte(ruled))
	if err != nil {
		t.Fatal(err)
	}
	text := strings.ReplaceAll(f.Prometheus("alerts.yaml"), `\"`, `"`)
	for _, want := range []string{
		"hosts show only with the setting metricsLabels: team,tier (--metrics-labels)",
		`"(max by (job, job_name) (wasmjob_job_failures_in_a_row{job_name=~"bill-.*", job_name!~"odd"}) >= 7) and on (job, job_name) wasmjob_job_labels{label_team="billing"}"`,
		`"(max by (job, job_name) (wasmjob_job_failures_in_a_row{job_name!~"odd"}) >= 1) and on (job, job_name) wasmjob_job_labels{label_team="billing", label_tier!="test"} unless on (job, job_name) wasmjob_job_labels{job_name=~"bill-.*", label_team="billing"}"`,
		`"(max by (job, job_name) (wasmjob_job_failures_in_a_row{job_name!~"odd"}) >= 3) unless on (job, job_name) wasmjob_job_labels{job_name=~"bill-.*", label_team="billing"} unless on (job, job_name) wasmjob_job_labels{label_team="billing", label_tier!="test"}"`,
		`jobs: "bill-* {team=billing}"`, `jobs: "{team=billing,tier!=test}"`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%s is not in\n%s", want, text)
		}
	}
	// An entry behind which another one is for all that have its labels makes no rule.
	f, err = alert.Parse("alerts.yaml", []byte("receivers: {}\nroutes: []\njobs: [{jobs: a, labels: team=x, failures: 2}, {labels: team=x, failures: 4}, {jobs: b, failures: 5}]\n"))
	if err != nil {
		t.Fatal(err)
	}
	if text := f.Prometheus(""); strings.Contains(text, ">= 2") || !strings.Contains(text, ">= 4") {
		t.Errorf("%s", text)
	}
	if text := file(t, "").Prometheus(""); strings.Contains(text, "metricsLabels") {
		t.Errorf("no rule goes by labels, and a setting is named:\n%s", text)
	}
}
