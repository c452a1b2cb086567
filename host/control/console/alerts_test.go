package console

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/host/alert"
	"github.com/wasmjob/wasmjob/host/alert/store"
	"github.com/wasmjob/wasmjob/host/auth"
	"github.com/wasmjob/wasmjob/host/control/service"
	"github.com/wasmjob/wasmjob/host/control/service/servicetest"
	"github.com/wasmjob/wasmjob/host/engine"
)

// receivers are what stands for them: each takes what it is sent, but for the one that is
// called broken.
type receivers struct {
	mu   sync.Mutex
	sent []alert.Message
}

func (r *receivers) send(_ context.Context, to alert.Receiver, m *alert.Message) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if to.Name == "broken" {
		return errors.New("answered 503")
	}
	r.sent = append(r.sent, *m)
	return nil
}

// alerting is a file of alerts with the routes etl, to the receiver ops, and rest, to broken
// and ops.
func alerting(t *testing.T, r *receivers) *service.AlertFile {
	t.Helper()
	f, err := alert.Parse("alerts.yaml", []byte(`
receivers:
  ops: {webhook: {url: "http://127.0.0.1:1/ops"}}
  broken: {webhook: {url: "http://127.0.0.1:1/broken"}}
routes:
  - {name: etl, jobs: "etl-*", to: ops}
  - {name: rest, rules: [hostGone, failures], to: [broken, ops]}
`))
	if err != nil {
		t.Fatal(err)
	}
	return &service.AlertFile{Current: func() *alert.File { return f }, Send: r.send}
}

// stand puts alerts on the board of a site, with a host that sends them, and waits until
// the site knows.
func (s *site) stand(alerts ...alert.Alert) *store.Board {
	s.t.Helper()
	b := store.Of(s.Center(), servicetest.Namespace)
	instance := s.Host.Status().Instance
	if err := errors.Join(b.Join(s.t.Context(), instance, nil), b.Keep(s.t.Context(), instance), b.Write(s.t.Context(), alerts)); err != nil {
		s.t.Fatal(err)
	}
	s.until("/alerts", alerts[len(alerts)-1].Text)
	s.until("/alerts", "Messages are sent by 127.0.0.1")
	return b
}

// standing are alerts of two jobs and of a host.
func standing() []alert.Alert {
	item := 3
	since := time.Now().Add(-90 * time.Second)
	return []alert.Alert{
		{ID: "0000000000000001", Rule: alert.Failures, Job: "etl-a", Item: &item, Host: "10.0.0.9@-@17-x", Text: "item 3 of etl-a failed: <b>disk</b>", Since: since},
		{ID: "0000000000000002", Rule: alert.StartWithin, Job: "pay", Text: "pay has not begun", Since: since},
		{ID: "0000000000000003", Rule: alert.HostGone, Host: "10.0.0.9@-@17-x", Subject: "10.0.0.9", Text: "the host 10.0.0.9 is gone", Since: since},
	}
}

// TestAlerts: what stands of alerts is shown, with who gets it; one is silenced by a form
// that its button fills in, and the silence is ended.
func TestAlerts(t *testing.T) {
	t.Parallel()
	s := open(t, servicetest.Options{Jobs: []engine.Job{servicetest.Job("etl-a", "0 0 3 * * ?", 4, servicetest.OK)}, AlertFile: alerting(t, &receivers{})})
	s.get("/alerts").has(t, 200, "No alert is firing.", "Nothing is silenced.", "Add a silence")
	b := s.stand(standing()...)
	a := s.get("/alerts")
	a.has(t, 200, "Alerts 3 firing", "etl-a item 3", "<b>disk</b>", "1m30s ago", "etl/ops not sent yet", "rest/broken not sent yet", "host gone 10.0.0.9 (17)", "no route takes it")
	s.lang = "zh"
	s.get("/alerts").has(t, 200, "3 个未恢复", "没有匹配的路由")
	s.lang = "en"
	a.lacks(t, "without --alerts", "No host looks for alerts")
	s.get("/").has(t, 200, "3 Alerts")
	if err := b.Sent(t.Context(), "etl/ops", time.Now(), []string{"0000000000000001"}, nil); err != nil {
		t.Fatal(err)
	}
	if sent := s.until("/alerts", "etl/ops sent").text(); strings.Count(sent, "etl/ops") != 1 {
		t.Errorf("a receiver is named more than once: %s", sent)
	}

	link := ""
	for _, l := range a.links() {
		if strings.HasPrefix(l, "/alerts?") && strings.Contains(l, "etl-a") {
			link = l
		}
	}
	form := s.get(strings.TrimSuffix(link, "#silence"))
	if !strings.HasSuffix(link, "#silence") || !strings.Contains(form.body, `name="jobs" value="etl-a"`) || !strings.Contains(form.body, `name="rule" value="failures" checked`) || !strings.Contains(form.body, `name="for" value="2h"`) {
		t.Errorf("%s does not fill the form in:\n%s", link, form.body)
	}
	done := s.post("/alerts", "jobs", "etl-a", "rule", "failures", "for", "2h", "reason", "disk is <i>changed</i>")
	if done.path != "/alerts" {
		t.Errorf("after a silence the page is %s", done.path)
	}
	done.has(t, 200, "Alerts of etl-a are silenced until", "silenced by", "disk is <i>changed</i>", "End")
	done.lacks(t, "etl/ops not sent yet")
	s.get("/").has(t, 200, "3 Alerts")

	silences, err := b.Silences(t.Context())
	if err != nil || len(silences) != 1 {
		t.Fatal(silences, err)
	}
	s.post("/alerts/unsilence", "id", silences[0].ID, "reason", "done", "back", "/alerts").has(t, 200, "The silence is ended.", "Nothing is silenced.")
	s.get("/audit").has(t, 200, "silence alerts", "disk is <i>changed</i>", "end a silence of alerts")
	// Somebody else was faster, or it has ended.
	s.post("/alerts/unsilence", "id", silences[0].ID, "back", "/alerts").has(t, 200, "it has ended, or somebody has ended it")
	s.post("/alerts/unsilence", "id", "x", "back", "/alerts").has(t, 400, "expected the id of a silence")
	s.post("/alerts/none", "back", "/alerts").has(t, 200, "there is no page")

	if err := b.Write(t.Context(), []alert.Alert{{ID: "0000000000000002", Rule: alert.StartWithin, Job: "pay", Resolved: time.Now(), Why: "all items have begun"}}); err != nil {
		t.Fatal(err)
	}
	s.until("/alerts", "Ended lately").has(t, 200, "Alerts 2 firing", "all items have begun")
	s.lang = "zh"
	s.get("/alerts").has(t, 200, "2 个未恢复", "最近已恢复", "添加静默", "主机失联")
}

// TestAlertCauses: all items of a job that fail are one line with their number, and each of them is in it; so it is when
// they are over. The overview counts what the page has lines of.
func TestAlertCauses(t *testing.T) {
	t.Parallel()
	s := open(t, servicetest.Options{Jobs: []engine.Job{servicetest.Job("etl-a", "0 0 3 * * ?", 240, servicetest.OK)}, AlertFile: alerting(t, &receivers{})})
	list := standing()[1:]
	for n := range 240 {
		list = append(list, alert.Alert{ID: fmt.Sprintf("10000000%08x", n), Rule: alert.Failures, Job: "etl-a", Item: new(n), Host: "10.0.0.9@-@17-x", Text: fmt.Sprintf("item %d of etl-a failed: <b>disk</b>", n),
			Since: time.Now().Add(time.Duration(n-300) * time.Second)})
	}
	for n := range 6 {
		list = append(list, alert.Alert{ID: fmt.Sprintf("20000000%08x", n), Rule: alert.Refused, Subject: fmt.Sprintf("10.0.0.9 f%d.yaml", n), OfHost: true, Host: "10.0.0.9@-@17-x", Since: time.Now(), Text: fmt.Sprintf("f%d.yaml is refused", n)})
	}
	b := s.stand(list...)
	a := s.get("/alerts")
	a.has(t, 200, "Alerts 4 firing · 248 alerts", "etl-a items 0-239", "240 alerts The first: item 0 of etl-a failed: <b>disk</b> All of them", "item 199 of etl-a failed", "and 40 more", "6 alerts The first: f0.yaml is refused", "f5.yaml is refused")
	if n := strings.Count(a.body, `<tr class="is-failing" data-key=`); n != 4 {
		t.Errorf("%d lines", n)
	}
	s.get("/").has(t, 200, "4 Alerts")
	if err := b.Sent(t.Context(), "etl/ops", time.Now(), []string{list[2].ID, list[3].ID}, nil); err != nil {
		t.Fatal(err)
	}
	s.until("/alerts", "; 238 not sent yet")
	over := slices.Clone(list[2:242])
	for n := range over {
		over[n].Resolved, over[n].Why = time.Now(), "the item has succeeded"
	}
	if err := b.Write(t.Context(), over); err != nil {
		t.Fatal(err)
	}
	a = s.until("/alerts", "Ended lately")
	a.has(t, 200, "Alerts 3 firing · 8 alerts", "etl-a items 0-239", "240 alerts The first: item 0 of etl-a failed")
	s.lang = "zh"
	s.get("/alerts").has(t, 200, "240 条告警", "最早的一条：")
}

// TestAlertFileProblems: what keeps a host from judging or sending as it should is on the page.
func TestAlertFileProblems(t *testing.T) {
	t.Parallel()
	const wrong = "alerts: the file of alerts is not taken: alerts.yaml, line 3"
	s := open(t, servicetest.Options{AlertFile: alerting(t, &receivers{}), AlertProblems: []string{wrong}})
	s.until("/alerts", "127.0.0.1: "+wrong)
}

// TestSilenceProblems: what is wrong with a silence stands at its field, and what was typed
// stays.
func TestSilenceProblems(t *testing.T) {
	t.Parallel()
	s := open(t, servicetest.Options{AlertFile: alerting(t, &receivers{})})
	for _, c := range []struct{ jobs, span, why, rule, field, want string }{
		{"etl-*", "soon", "", "lost", "for", `found "soon", expected a duration`},
		{"etl-*", "10s", "", "lost", "for", "expected 1m to 90d"},
		{"etl-[", "2h", "", "lost", "jobs", "etl-["},
		{"", "2h", "", "lost", "jobs", "expected"},
		{"a", "2h", strings.Repeat("x", 501), "lost", "why", "found 501 bytes"},
		{"a", "2h", "", "none", "rules", `found the rule "none"`},
	} {
		a := s.post("/alerts", "jobs", c.jobs, "for", c.span, "reason", c.why, "rule", c.rule)
		a.has(t, http.StatusUnprocessableEntity, c.want)
		if !strings.Contains(a.body, `id="problem-`+c.field+`"`) || !strings.Contains(a.body, `name="jobs" value="`+c.jobs+`"`) || !strings.Contains(a.body, `name="for" value="`+c.span+`"`) || strings.Contains(a.body, `data-live="all"`) {
			t.Errorf("%+v:\n%s", c, a.body)
		}
		if c.field != "rules" && !strings.Contains(a.body, `aria-describedby="problem-`+c.field+`"`) {
			t.Errorf("%+v: no field is marked:\n%s", c, a.body)
		}
	}
}

// TestAlertRoles: who may not silence sees no button and no form, and is refused; alerts of
// what somebody may not see are not there.
func TestAlertRoles(t *testing.T) {
	t.Parallel()
	r := &receivers{}
	s := open(t, servicetest.Options{AlertFile: alerting(t, r)})
	b := s.stand(standing()...)
	made, err := b.Silence(t.Context(), alert.Silence{Jobs: "*", Until: time.Now().Add(time.Hour), By: "bob", Why: "moving"})
	if err != nil {
		t.Fatal(err)
	}
	s.until("/alerts", "moving").has(t, 200, "silenced by bob until", "Send a test message", "rest", "broken, ops")

	s.who = as(auth.RoleViewer, "*")
	s.get("/alerts").has(t, 200, "Alerts 3 firing", "moving", "silenced by bob")
	none := s.get("/alerts")
	none.lacks(t, "Add a silence", "Send a test message")
	if strings.Contains(none.body, "<form method=\"post\" action=\"/alerts") || strings.Contains(none.body, "#silence") {
		t.Errorf("who may only look has forms:\n%s", none.body)
	}
	s.post("/alerts", "jobs", "etl-a", "for", "2h").has(t, http.StatusForbidden, "You may not do this", "admin")
	s.post("/alerts/unsilence", "id", made.ID, "back", "/alerts").has(t, http.StatusForbidden, "admin")
	s.post("/alerts/test", "route", "etl", "back", "/alerts").has(t, http.StatusForbidden, "admin")
	if len(r.sent) != 0 {
		t.Errorf("%+v", r.sent)
	}

	s.who = as(auth.RoleAdmin, "etl-*")
	some := s.get("/alerts")
	some.has(t, 200, "Alerts 1 firing", "etl-a", "silenced until", "Add a silence")
	some.lacks(t, "pay", "is gone", "moving", "bob", "Send a test message")
	s.get("/").has(t, 200, "1 Alerts")
	s.post("/alerts", "jobs", "pay", "for", "2h").has(t, http.StatusForbidden, "pay")
	s.post("/alerts", "jobs", "etl-*", "for", "2h").has(t, 200, "Alerts of etl-* are silenced until")
	s.who = auth.Principal{}
	s.get("/alerts").has(t, http.StatusUnauthorized, "sign in first")
}

// TestAlertRoutes: a test message goes to the receivers of a route, and the page says who has
// taken it.
func TestAlertRoutes(t *testing.T) {
	t.Parallel()
	r := &receivers{}
	s := open(t, servicetest.Options{AlertFile: alerting(t, r)})
	s.post("/alerts/test", "route", "etl", "back", "/alerts").has(t, 200, "The test message was taken by etl/ops.")
	s.post("/alerts/test", "route", "rest", "back", "/alerts").has(t, 200, "was taken by rest/ops.", "rest/broken has not taken the message: answered 503")
	s.post("/alerts/test", "route", "etc", "back", "/alerts").has(t, 400, `there is no route "etc"`, "etl, rest")
	if len(r.sent) != 2 || r.sent[0].Route != "etl" || !strings.Contains(r.sent[0].Firing[0].Text, "this is a test of the route etl") {
		t.Errorf("%+v", r.sent)
	}
	s.get("/audit").has(t, 200, "test alerts", "taken by 1 of 2")
}

// TestAlertsNowhere: without a file of alerts the page says how to begin; where only others
// have one, what is missing here.
func TestAlertsNowhere(t *testing.T) {
	t.Parallel()
	s := open(t, servicetest.Options{})
	a := s.get("/alerts")
	a.has(t, 200, "No host looks for alerts", "wasmjob run --alerts alerts.yaml", "Nothing is silenced.")
	a.lacks(t, "No alert is firing", "Messages are sent by", "Send a test message")
	s.post("/alerts/test", "route", "etl", "back", "/alerts").has(t, 200, "this host has no file of alerts")
	s.lang = "zh"
	s.get("/alerts").has(t, 200, "没有主机检查告警")
	s.lang = "en"

	b := store.Of(s.Center(), servicetest.Namespace)
	if err := b.Join(t.Context(), "10.0.0.9@-@17-x", nil); err != nil {
		t.Fatal(err)
	}
	a = s.until("/alerts", "no host at the moment")
	a.has(t, 200, "Judged on 10.0.0.9 (17)", "started without --alerts: 127.0.0.1", "No alert is firing.")
	a.lacks(t, "No host looks for alerts")
}

// TestAlertsRegistryDown: without the registry the page shows what was read, says so, and
// silences nothing.
func TestAlertsRegistryDown(t *testing.T) {
	t.Parallel()
	server := servicetest.NewServer(t)
	s := open(t, servicetest.Options{Server: server, AlertFile: alerting(t, &receivers{})})
	s.stand(standing()...)
	if err := server.Close(); err != nil {
		t.Fatal(err)
	}
	s.until("/alerts", "Alerts and silences are shown as they were read at")
	s.until("/alerts", "has not been reachable from this host since").has(t, 200, "pay has not begun")
	s.get("/").has(t, 200, "3 Alerts")
	s.post("/alerts", "jobs", "etl-a", "for", "2h").has(t, http.StatusServiceUnavailable, "Not now")
}
