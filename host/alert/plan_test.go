package alert_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/host/alert"
	"github.com/wasmjob/wasmjob/test/schemas"
)

// post plays the one that sends: it plans, and notes what was sent on the alerts.
type post struct {
	t        *testing.T
	file     *alert.File
	now      time.Time
	alerts   []alert.Alert
	silences []alert.Silence
	down     map[alert.Target]bool
	sent     []string
}

const receivers = `receivers:
  ops: {webhook: {url: "https://ops.example"}}
  team: {slack: {url: "https://team.example"}}
  mail: {email: {to: ops@example.com, from: wasmjob@example.com, server: "smtp.example.com:587"}}
`

func newPost(t *testing.T, routes string) *post {
	t.Helper()
	f, err := alert.Parse("alerts.yaml", []byte(receivers+routes))
	schemas.New(t, alert.Schema()).Check(t, receivers+routes, err)
	if err != nil {
		t.Fatal(err)
	}
	return &post{t: t, file: f, now: noon, down: make(map[alert.Target]bool)}
}

// fire begins an alert, or ends one.
func (p *post) fire(rule alert.Rule, job string) {
	p.alerts = append(p.alerts, alert.Named(alert.Alert{Rule: rule, Job: job, Text: string(rule) + " of " + job, Since: p.now}))
}

func (p *post) end(rule alert.Rule, job string) {
	for i := range p.alerts {
		if a := &p.alerts[i]; a.Rule == rule && a.Job == job && a.Firing() {
			a.Resolved, a.Why = p.now, "it is well"
		}
	}
}

// wait lets time pass: what is due is sent.
func (p *post) wait(d time.Duration) {
	for end := p.now.Add(d); ; {
		plan := alert.PlanNow(p.file, p.alerts, p.silences, func(to alert.Target) bool { return p.down[to] }, p.now)
		for _, m := range plan.Messages {
			p.take(&m)
		}
		p.alerts = slices.DeleteFunc(p.alerts, func(a alert.Alert) bool { return slices.Contains(plan.Done, a.ID) })
		if len(plan.Messages) > 0 {
			continue
		}
		if plan.Next.IsZero() || plan.Next.After(end) {
			p.now = end
			return
		}
		if !plan.Next.After(p.now) {
			p.t.Fatalf("at %s it wants to plan again at %s", p.now, plan.Next)
		}
		p.now = plan.Next
	}
}

func (p *post) take(m *alert.Message) {
	texts := func(list []alert.Alert) string {
		var all []string
		for _, a := range list {
			all = append(all, a.Text)
		}
		return strings.Join(all, ", ")
	}
	line := fmt.Sprintf("%s %s: %s", p.now.Format("15:04:05"), m.Target(), texts(m.Firing[:m.New]))
	if old := texts(m.Firing[m.New:]); old != "" {
		line += "; still " + old
	}
	if over := texts(m.Over); over != "" {
		line += "; over " + over
	}
	p.sent = append(p.sent, line)
	for i := range p.alerts {
		a := &p.alerts[i]
		for _, list := range []struct {
			alerts []alert.Alert
			over   bool
		}{{m.Firing, false}, {m.Over, true}} {
			if slices.ContainsFunc(list.alerts, func(b alert.Alert) bool { return a.ID == b.ID }) {
				if a.Sent == nil {
					a.Sent = make(map[alert.Target]alert.Sent)
				}
				a.Sent[m.Target()] = alert.Sent{At: p.now, Resolved: list.over}
			}
		}
	}
}

func (p *post) expect(want ...string) {
	p.t.Helper()
	if !slices.Equal(p.sent, want) {
		p.t.Errorf("sent\n%s\nwant\n%s", strings.Join(p.sent, "\n"), strings.Join(want, "\n"))
	}
	p.sent = nil
}

// TestPlan: what comes together is one message for each job; what goes on is repeated; the
// end is said, and that is the end of it.
func TestPlan(t *testing.T) {
	t.Parallel()
	p := newPost(t, "routes: [{name: all, to: ops, wait: 3s, repeat: 1h}]")
	p.fire(alert.Failures, "a")
	p.wait(time.Second)
	p.fire(alert.StartWithin, "a")
	p.fire(alert.Failures, "b")
	p.wait(30 * time.Minute)
	p.fire(alert.Lost, "a")
	p.wait(time.Minute)
	p.expect(
		"12:00:03 all/ops: failures of a, startWithin of a",
		"12:00:04 all/ops: failures of b",
		"12:30:04 all/ops: lost of a; still failures of a, startWithin of a",
	)
	p.wait(2 * time.Hour)
	p.expect(
		"13:00:04 all/ops: ; still failures of b", "13:30:04 all/ops: ; still failures of a, startWithin of a, lost of a",
		"14:00:04 all/ops: ; still failures of b", "14:30:04 all/ops: ; still failures of a, startWithin of a, lost of a",
	)
	p.end(alert.Failures, "a")
	p.end(alert.Failures, "b")
	p.wait(10 * time.Second)
	p.expect("14:31:04 all/ops: ; still startWithin of a, lost of a; over failures of a", "14:31:04 all/ops: ; over failures of b")
	if len(p.alerts) != 2 {
		t.Errorf("%d alerts stay, want 2", len(p.alerts))
	}
}

// TestPlan_brief: what is over before it was sent is sent once, with its end, also on a route
// that says no ends, and to a receiver that was down.
func TestPlan_brief(t *testing.T) {
	t.Parallel()
	p := newPost(t, "routes: [{name: all, to: [ops, team], resolved: false}]")
	p.down["all/team"] = true
	p.fire(alert.Failures, "a")
	p.wait(time.Second)
	p.end(alert.Failures, "a")
	p.wait(time.Hour)
	p.expect("12:00:02 all/ops: ; over failures of a")
	p.down["all/team"] = false
	p.wait(time.Hour)
	p.expect("13:00:01 all/team: ; over failures of a")
	if len(p.alerts) != 0 {
		t.Errorf("%+v stays", p.alerts)
	}
}

// TestPlan_busy: an alert that is over stays while a message is under way that may be about it.
func TestPlan_busy(t *testing.T) {
	t.Parallel()
	p := newPost(t, "routes: [{name: all, to: ops}]")
	p.silences = []alert.Silence{{Jobs: "a", Until: noon.Add(2 * time.Hour)}}
	p.fire(alert.Failures, "a")
	p.end(alert.Failures, "a")
	p.down["all/ops"] = true
	p.wait(time.Minute)
	if len(p.alerts) != 1 {
		t.Fatal("it is gone before what became of the message is known")
	}
	p.alerts[0].Sent = map[alert.Target]alert.Sent{"all/ops": {At: p.now}}
	p.down["all/ops"] = false
	p.wait(time.Minute)
	p.expect("12:01:00 all/ops: ; over failures of a")
	if len(p.alerts) != 0 {
		t.Errorf("%+v stays", p.alerts)
	}
}

// TestPlan_silenceAfter: the end of what was sent before a silence is said during it.
func TestPlan_silenceAfter(t *testing.T) {
	t.Parallel()
	p := newPost(t, "routes: [{name: all, to: ops, repeat: 1h}]")
	p.fire(alert.Failures, "a")
	p.wait(time.Minute)
	p.expect("12:00:02 all/ops: failures of a")
	p.silences = []alert.Silence{{Jobs: "a", Until: noon.Add(9 * time.Hour)}}
	p.wait(2 * time.Hour)
	p.expect()
	p.end(alert.Failures, "a")
	p.wait(time.Minute)
	p.expect("14:01:02 all/ops: ; over failures of a")
	if len(p.alerts) != 0 {
		t.Errorf("%+v stays", p.alerts)
	}
}

// TestPlan_routes: an alert takes the first route that it matches, and goes on where that
// says so; what is of no job takes those that name none.
func TestPlan_routes(t *testing.T) {
	t.Parallel()
	p := newPost(t, `routes:
  - {name: audit, rules: [lost, held], to: mail, continue: true, wait: 0s, group: []}
  - {name: team, jobs: ["team-a-*", solo], to: [team, mail], wait: 0s, group: [rule], resolved: false}
  - {name: rest, to: ops, wait: 0s}
`)
	p.fire(alert.Failures, "team-a-x")
	p.fire(alert.Failures, "team-a-y")
	p.fire(alert.Lost, "solo")
	p.fire(alert.Failures, "other")
	p.fire(alert.HostGone, "")
	p.alerts = append(p.alerts, alert.Named(alert.Alert{Rule: alert.Failures, Job: "mailed", Text: "by its handler", Since: p.now, Route: "team"}))
	p.wait(time.Second)
	p.expect(
		"12:00:00 audit/mail: lost of solo",
		"12:00:00 rest/ops: hostGone of ",
		"12:00:00 rest/ops: failures of other",
		"12:00:00 team/team: by its handler, failures of team-a-x, failures of team-a-y",
		"12:00:00 team/mail: by its handler, failures of team-a-x, failures of team-a-y",
		"12:00:00 team/team: lost of solo",
		"12:00:00 team/mail: lost of solo",
	)
	p.end(alert.Lost, "solo")
	p.end(alert.Failures, "team-a-x")
	p.wait(time.Second)
	p.expect("12:00:01 audit/mail: ; over lost of solo") // resolved: false
}

// TestPlan_silence: nothing is sent while a silence lasts; what goes on then is.
func TestPlan_silence(t *testing.T) {
	t.Parallel()
	p := newPost(t, "routes: [{name: all, to: ops, repeat: 1h}]")
	p.silences = []alert.Silence{{Jobs: "team-*", Rules: []alert.Rule{alert.Failures}, Until: noon.Add(2 * time.Hour)}}
	p.fire(alert.Failures, "team-a")
	p.fire(alert.Lost, "team-a")
	p.fire(alert.Failures, "team-b")
	p.fire(alert.Failures, "other")
	p.wait(time.Minute)
	p.expect("12:00:02 all/ops: failures of other", "12:00:02 all/ops: lost of team-a")
	p.end(alert.Failures, "team-b")
	p.wait(58 * time.Minute)
	p.expect()
	p.wait(70 * time.Minute)
	p.expect(
		"13:00:02 all/ops: ; still failures of other", "13:00:02 all/ops: ; still lost of team-a",
		"14:00:00 all/ops: failures of team-a; still lost of team-a", "14:00:02 all/ops: ; still failures of other",
	)
}

// TestPlan_down: a receiver that does not take messages gets them when it does; others do
// not wait for it, and an alert that is over stays until both know.
func TestPlan_down(t *testing.T) {
	t.Parallel()
	p := newPost(t, "routes: [{name: all, to: [ops, team]}]")
	p.down["all/team"] = true
	p.fire(alert.Failures, "a")
	p.wait(time.Minute)
	p.expect("12:00:02 all/ops: failures of a")
	p.down["all/team"] = false
	p.wait(time.Second)
	p.expect("12:01:00 all/team: failures of a")
	p.down["all/team"] = true
	p.end(alert.Failures, "a")
	p.wait(time.Minute)
	p.expect("12:01:03 all/ops: ; over failures of a")
	p.down["all/team"] = false
	p.wait(time.Second)
	p.expect("12:02:01 all/team: ; over failures of a")
	if len(p.alerts) != 0 {
		t.Errorf("%+v stays", p.alerts)
	}
}

// TestPlan_newKeeper: who takes over goes by what the alerts say of what was sent.
func TestPlan_newKeeper(t *testing.T) {
	t.Parallel()
	p := newPost(t, "routes: [{name: all, to: ops, repeat: 1h}]")
	p.fire(alert.Failures, "a")
	p.fire(alert.Failures, "b")
	p.alerts[0].Sent = map[alert.Target]alert.Sent{"all/ops": {At: noon.Add(10 * time.Second)}}
	p.now = noon.Add(20 * time.Minute)
	p.wait(time.Hour)
	p.expect("12:20:00 all/ops: failures of b", "13:00:10 all/ops: ; still failures of a", "13:20:00 all/ops: ; still failures of b")
}

// TestMessage_text: a message fits what its receiver takes, whatever is in it.
func TestMessage_text(t *testing.T) {
	t.Parallel()
	m := alert.Message{Route: "all", Receiver: "ops", Group: "job report", New: 300}
	for n := range 300 {
		m.Firing = append(m.Firing, alert.Alert{Rule: alert.Failures, Job: fmt.Sprintf("the report %d", n), Item: number(n), Text: fmt.Sprintf("item %d of report failed: ✗", n), Since: noon})
	}
	m.Over = []alert.Alert{{Rule: alert.Lost, Text: "gone", Since: noon, Resolved: noon, Why: "it is well"}}
	for _, most := range []int{20, 60, 100, 2000, 100_000} {
		text := m.Text(most)
		if len(text) > most || !strings.HasPrefix("ALERT: report (300 new of 300)", strings.TrimSuffix(text[:min(len(text), 10)], "…")) {
			t.Errorf("at most %d: %d bytes, %q", most, len(text), text[:min(len(text), 100)])
		}
	}
	short := m.Text(2000)
	if !strings.Contains(short, "… and 2") || !strings.HasSuffix(short, " more") {
		t.Errorf("what was left out is not counted: %q", short[len(short)-50:])
	}
	whole := m.Text(1 << 20)
	for _, want := range []string{"- item 7 of report failed: ✗ [failures, 2026-03-01T12:00:00Z]\n  wasmjob explain \"the report 7\" --item 7\n", "- over: gone [lost, 2026-03-01T12:00:00Z to 2026-03-01T12:00:00Z: it is well]"} {
		if !strings.Contains(whole, want) {
			t.Errorf("%q is not in the message", want)
		}
	}
	m = alert.Message{Group: "", Over: m.Over}
	if got := m.Title(); got != "OK: wasmjob (1 alert over)" {
		t.Error(got)
	}
}
