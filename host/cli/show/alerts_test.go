package show_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/host/alert"
	"github.com/wasmjob/wasmjob/host/cli/show"
	"github.com/wasmjob/wasmjob/host/cli/terminal"
	"github.com/wasmjob/wasmjob/host/control/service"
)

// TestAlerts: what goes on comes first, and it is said what a silence covers.
func TestAlerts(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.Local)
	if text := show.Alerts(terminal.Style{}, &service.Alerts{}, nil, nil, now); text != "there are no alerts\n" {
		t.Errorf("of none it says %q", text)
	}
	silences := []alert.Silence{
		{ID: "0123456789abcdef", Jobs: "etl-*", Rules: []alert.Rule{alert.StartWithin}, Until: now.Add(time.Hour), By: "ann", Why: "moves"},
		{ID: "fedcba9876543210", Jobs: "*", Until: now, By: "bob"},
	}
	alerts := service.AlertsOf([]alert.Alert{
		{Rule: alert.Lost, Job: "over", Since: now.Add(-time.Minute), Resolved: now, Text: "a run was lost"},
		{Rule: alert.Failures, Job: "report", Since: now.Add(-time.Hour), Text: "item 3 failed", Sent: map[alert.Target]alert.Sent{"b/x": {}, "a/y": {}}},
		{Rule: alert.StartWithin, Job: "etl-1", Since: now.Add(-2 * time.Hour), Text: "has not\nbegun"},
		{Rule: alert.HostGone, Host: "10.0.0.2@-@1-bb", Subject: "10.0.0.2", Since: now.Add(-3 * time.Hour), Text: "a host is gone"},
		{Rule: alert.Refused, Host: "10.0.0.3@-@1-cc", Subject: "10.0.0.3 x.wasm", Since: now.Add(-4 * time.Hour), Text: "a file is refused"},
	}, silences, nil, now)
	text := show.Alerts(terminal.Style{}, &service.Alerts{Alerts: alerts, Silences: silences}, []string{"10.0.0.8", "10.0.0.9"}, []string{"10.0.0.1: alerts: nothing is sent"}, now)
	down := show.Alerts(terminal.Style{}, &service.Alerts{Problem: "no session", Read: now.Add(-time.Minute)}, nil, nil, now)
	if want := "there are no alerts\n\nthis is as it was read at 11:59:00: no session\n"; down != want {
		t.Errorf("without the registry it says %q, want %q", down, want)
	}
	want := strings.TrimPrefix(`
SINCE     RULE         JOB OR HOST  STATE     SENT TO   WHAT
11:00:00  failures     report       firing    a/y, b/x  item 3 failed
10:00:00  startWithin  etl-1        silenced  -         has not begun
09:00:00  hostGone     10.0.0.2     firing    -         a host is gone
08:00:00  refused      10.0.0.3     firing    -         a file is refused
11:59:00  lost         over         over      -         a run was lost

SILENCE           JOBS   RULES        UNTIL     BY   WHY
0123456789abcdef  etl-*  startWithin  13:00:00  ann  moves

not judged, because these hosts were started without --alerts: 10.0.0.8, 10.0.0.9

10.0.0.1: alerts: nothing is sent
`, "\n")
	if text != want {
		t.Errorf("shown is\n%s\nwant\n%s", text, want)
	}
}

// TestAlertCauses: alerts of one cause are one line with their number.
func TestAlertCauses(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.Local)
	var list []alert.Alert
	for n := range 240 {
		a := alert.Alert{Rule: alert.Failures, Job: "report", Item: new(n), Since: now.Add(time.Duration(n-600) * time.Second), Text: fmt.Sprintf("item %d failed", n), Sent: map[alert.Target]alert.Sent{"a/y": {}}}
		if n == 7 {
			a.Sent["b/x"] = alert.Sent{} // and of no other
		}
		list = append(list, a)
	}
	for n := range 2 {
		list = append(list, alert.Alert{Rule: alert.Refused, Host: "10.0.0.3@-@1-cc", Subject: fmt.Sprintf("10.0.0.3 %d.wasm", n), OfHost: true, Since: now.Add(-time.Hour), Text: fmt.Sprintf("%d.wasm is refused", n)})
	}
	want := `SINCE     RULE      JOB OR HOST  STATE   SENT TO  WHAT
11:50:00  failures  report       firing  a/y      240 alerts about 240 items of report (0-239); the first: item 0 failed
11:00:00  refused   10.0.0.3     firing  -        2 alerts about 10.0.0.3; the first: 0.wasm is refused
242 alerts in all; --output json has each
`
	if text := show.Alerts(terminal.Style{}, &service.Alerts{Alerts: service.AlertsOf(list, nil, nil, now)}, nil, nil, now); text != want {
		t.Errorf("shown is\n%s\nwant\n%s", text, want)
	}
}
