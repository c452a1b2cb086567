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
