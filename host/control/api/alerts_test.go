package api

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/wasmjob/wasmjob/host/alert"
	"github.com/wasmjob/wasmjob/host/alert/store"
	"github.com/wasmjob/wasmjob/host/auth"
	"github.com/wasmjob/wasmjob/host/control/cluster"
	"github.com/wasmjob/wasmjob/host/control/service"
	"github.com/wasmjob/wasmjob/host/control/service/servicetest"
	"github.com/wasmjob/wasmjob/host/engine"
	"github.com/wasmjob/wasmjob/host/history"
)

// TestAlerts: what stands of alerts is shown to who may see its jobs, and silenced by who
// may do that.
func TestAlerts(t *testing.T) {
	t.Parallel()
	s := serve(t, servicetest.Options{})
	if list := get[service.Alerts](s, "/v1/alerts"); len(list.Alerts)+len(list.Silences) != 0 {
		t.Errorf("%+v", list)
	}
	b := store.Of(s.Center(), servicetest.Namespace)
	if err := b.Join(t.Context(), "10.0.0.1@-@1-a", nil); err != nil {
		t.Fatal(err)
	}
	since := time.Now().UTC().Truncate(time.Second)
	if err := b.Write(t.Context(), []alert.Alert{
		{ID: "0000000000000001", Rule: alert.Failures, Job: "etl-a", Text: "etl-a failed", Since: since},
		{ID: "0000000000000002", Rule: alert.HostGone, Subject: "10.0.0.2", Text: "gone", Since: since},
	}); err != nil {
		t.Fatal(err)
	}
	s.Until("the alerts are seen", func() bool { return len(get[service.Alerts](s, "/v1/alerts").Alerts) == 2 })
	if list := get[service.Alerts](s, "/v1/alerts"); list.Alerts[0].Text != "etl-a failed" || !list.Alerts[0].Since.Equal(since) {
		t.Errorf("%+v", list)
	}

	for body, want := range map[string]string{
		`{"jobs":"etl-*","for":"soon"}`:                                    "body.for",
		`{"jobs":"etl-*","for":"10s"}`:                                     "body.for",
		`{"jobs":"a,b","for":"1h"}`:                                        "body.jobs",
		`{"jobs":"etl-*","for":"1h","rules":["fail"]}`:                     "body.rules",
		`{"jobs":"etl-*","for":"91d"}`:                                     "body.for",
		`{"jobs":"x","for":"1h","why":"` + strings.Repeat("x", 600) + `"}`: "body.why",
	} {
		a := s.ask(http.MethodPost, "/v1/silences", body)
		if p := a.problem(t); a.code != http.StatusUnprocessableEntity || len(p.Errors) == 0 || p.Errors[0].Location != want {
			t.Errorf("%s: %d %s, want %s", body, a.code, a.body, want)
		}
	}
	a := s.ask(http.MethodPost, "/v1/silences", `{"jobs":"etl-*","for":"7d","rules":["failures","lost"],"why":"a migration"}`)
	if a.code != http.StatusOK {
		t.Fatalf("%d %s", a.code, a.body)
	}
	list := get[service.Alerts](s, "/v1/alerts")
	if len(list.Silences) != 1 || list.Silences[0].Why != "a migration" || list.Silences[0].By == "" || time.Until(list.Silences[0].Until) < 6*24*time.Hour {
		t.Fatalf("%+v", list.Silences)
	}
	if a := s.ask(http.MethodDelete, "/v1/silences/xyz", ""); a.code != http.StatusUnprocessableEntity {
		t.Errorf("%d %s", a.code, a.body)
	}
	if a := s.ask(http.MethodDelete, "/v1/silences/00000000000000ff", ""); a.code != http.StatusNotFound {
		t.Errorf("%d %s", a.code, a.body)
	}
	if a := s.ask(http.MethodDelete, "/v1/silences/"+list.Silences[0].ID, ""); a.code != http.StatusNoContent {
		t.Errorf("%d %s", a.code, a.body)
	}
	if list := get[service.Alerts](s, "/v1/alerts"); len(list.Silences) != 0 {
		t.Errorf("%+v", list.Silences)
	}
	s.Until("both changes are recorded", func() bool {
		page, err := s.Store.Changes(t.Context(), history.Filter{})
		return err == nil && len(page.Records) == 2 && page.Records[1].What == "silence alerts" && page.Records[1].Job == "etl-*" && page.Records[1].Why == "a migration"
	})
}

// TestAlerts_roles: who may see and silence what.
func TestAlerts_roles(t *testing.T) {
	t.Parallel()
	s := serve(t, servicetest.Options{})
	b := store.Of(s.Center(), servicetest.Namespace)
	if err := b.Join(t.Context(), "10.0.0.1@-@1-a", nil); err != nil {
		t.Fatal(err)
	}
	if err := b.Write(t.Context(), []alert.Alert{{ID: "0000000000000001", Rule: alert.Failures, Job: "etl-a"}, {ID: "0000000000000002", Rule: alert.Failures, Job: "bill"}, {ID: "0000000000000003", Rule: alert.HostGone}}); err != nil {
		t.Fatal(err)
	}
	as := func(role auth.Role, jobs ...string) context.Context {
		return auth.With(t.Context(), auth.Principal{Name: "alice", Method: auth.ByToken, Bindings: []auth.Binding{{Role: role, Jobs: jobs}}})
	}
	seen := func(ctx context.Context) int {
		list, err := s.Service.Alerting().List(ctx)
		if err != nil {
			t.Fatal(err)
		}
		return len(list.Alerts)
	}
	s.Until("the alerts are seen", func() bool { return seen(as(auth.RoleViewer, "*")) == 3 })
	if n, all := seen(as(auth.RoleViewer, "etl-*")), seen(as(auth.RoleViewer, "*")); n != 1 || all != 3 {
		t.Errorf("a viewer of some sees %d, one of all %d", n, all)
	}
	if _, err := s.Service.Alerting().List(t.Context()); err == nil {
		t.Error("who has not signed in sees alerts")
	}
	silence := func(ctx context.Context, jobs string) error {
		_, err := s.Service.Alerting().Silence(ctx, service.WantedSilence{Jobs: jobs, For: "1h"})
		return err
	}
	for _, c := range []struct {
		who  context.Context
		jobs string
		ok   bool
	}{
		{as(auth.RoleAuthor, "*"), "etl-a", false},
		{as(auth.RoleAdmin, "etl-*"), "etl-a", true},
		{as(auth.RoleAdmin, "etl-*"), "etl-*", true},
		{as(auth.RoleAdmin, "etl-*"), "etl-a*", false}, // which a pattern covers is not asked
		{as(auth.RoleAdmin, "etl-*"), "*", false},
		{as(auth.RoleAdmin, "*"), "*", true},
	} {
		if err := silence(c.who, c.jobs); (err == nil) != c.ok {
			t.Errorf("%s: %v", c.jobs, err)
		}
	}
}

// TestSilencesThatCannotBe: a silence that was ended meanwhile is not there, and one beyond
// the limit is a conflict with those that are.
func TestSilencesThatCannotBe(t *testing.T) {
	t.Parallel()
	for err, want := range map[error]int{store.ErrNoSilence: http.StatusNotFound, store.ErrTooManySilences: http.StatusConflict} {
		var answer *huma.ErrorModel
		if !errors.As(problem(fmt.Errorf("silence 12: %w", err)), &answer) || answer.Status != want {
			t.Errorf("%v: %+v, want %d", err, answer, want)
		}
	}
}

// TestStreamOfAlerts: who follows is sent the version of the alerts when it is another one
// than was seen, and whenever it changes.
func TestStreamOfAlerts(t *testing.T) {
	t.Parallel()
	s := serve(t, servicetest.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	follow := func(query string) <-chan string {
		t.Helper()
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+"/v1/stream"+query, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+token)
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		versions := make(chan string, 100)
		go func() { // ends with the answer
			defer close(versions)
			defer func() { _ = answer.Body.Close() }()
			event := ""
			for lines := bufio.NewScanner(answer.Body); lines.Scan(); {
				name, value, _ := strings.Cut(lines.Text(), ": ")
				if name == "event" {
					event = value
				}
				if name == "data" && event == "alerts" {
					versions <- value
				}
			}
		}()
		return versions
	}
	silence := func() string {
		t.Helper()
		before := get[service.Alerts](s, "/v1/alerts").Version
		if a := s.ask(http.MethodPost, "/v1/silences", `{"jobs":"*","for":"1h"}`); a.code != http.StatusOK {
			t.Fatalf("%d %s", a.code, a.body)
		}
		s.Until("the change is seen", func() bool { return get[service.Alerts](s, "/v1/alerts").Version != before })
		return strconv.FormatInt(get[service.Alerts](s, "/v1/alerts").Version, 10)
	}
	first := silence()
	seen, unseen, deaf := follow("?alerts="+first), follow("?alerts=0"), follow("")
	if got := <-unseen; got != first {
		t.Errorf("who has seen another version is sent %s, want %s", got, first)
	}
	second := silence()
	if a, b := <-seen, <-unseen; a != second || b != second {
		t.Errorf("after a change two who follow are sent %s and %s, want %s", a, b, second)
	}
	cancel()
	for got := range deaf {
		t.Errorf("who did not ask for alerts is sent %s", got)
	}
	for range seen { // until they have ended
	}
	for range unseen {
	}
}

// TestTestOfAlerts: a host sends a test message, and says who has taken it.
func TestTestOfAlerts(t *testing.T) {
	t.Parallel()
	f, err := alert.Parse("alerts.yaml", []byte(`{receivers: {ops: {webhook: {url: "http://127.0.0.1:1"}}, down: {webhook: {url: "http://127.0.0.1:1"}}}, routes: [{name: all, to: [ops, down]}]}`))
	if err != nil {
		t.Fatal(err)
	}
	s := serve(t, servicetest.Options{AlertFile: &service.AlertFile{Current: func() *alert.File { return f }, Send: func(_ context.Context, to alert.Receiver, _ *alert.Message) error {
		if to.Name == "down" {
			return errors.New("answered 503")
		}
		return nil
	}}})
	for _, body := range []string{`{}`, `{"route":"all"}`} {
		a := s.ask(http.MethodPost, "/v1/alerts/test?reason=new+file", body)
		var tried []alert.Tried
		if err := json.Unmarshal([]byte(a.body), &tried); err != nil || a.code != http.StatusOK || len(tried) != 2 || tried[0] != (alert.Tried{Target: "all/ops", Kind: alert.Webhook}) || tried[1].Error != "answered 503" {
			t.Errorf("%s: %d %s", body, a.code, a.body)
		}
	}
	a := s.ask(http.MethodPost, "/v1/alerts/test", `{"route":"al"}`)
	if p := a.problem(t); a.code != http.StatusUnprocessableEntity || len(p.Errors) == 0 || p.Errors[0].Location != "body.route" || !strings.Contains(p.Errors[0].Message, "its routes are all") {
		t.Errorf("%d %s", a.code, a.body)
	}
	s.Until("the tests are recorded", func() bool {
		page, err := s.Store.Changes(t.Context(), history.Filter{Text: "test alerts"})
		return err == nil && len(page.Records) == 3 && page.Records[1].After == "route all: taken by 1 of 2" && page.Records[1].Why == "new file"
	})
}

// TestPausedInLists: lists say who has paused a job.
func TestPausedInLists(t *testing.T) {
	t.Parallel()
	s := serve(t, servicetest.Options{Jobs: []engine.Job{servicetest.Job("a", "0 0 3 * * ?", 1, servicetest.OK)}})
	if a := s.ask(http.MethodPost, "/v1/jobs/a/disable?reason=maintenance", ""); a.code/100 != 2 {
		t.Fatalf("%d %s", a.code, a.body)
	}
	s.Until("the list names who", func() bool {
		list := get[service.Jobs](s, "/v1/jobs").Records
		return len(list) == 1 && list[0].Paused != nil && list[0].Paused.Why == "maintenance" && list[0].Paused.By == "host token"
	})
	// What is so already is on no record, and does not take the reason away.
	for _, again := range []string{"/v1/jobs/a/disable", "/v1/jobs/a/servers/127.0.0.1/disable", "/v1/jobs/a/items/0/enable?reason=no"} {
		if a := s.ask(http.MethodPost, again, ""); a.code/100 != 2 {
			t.Fatalf("%s: %d %s", again, a.code, a.body)
		}
	}
	if changes := get[cluster.Found[history.Change]](s, "/v1/audit?job=a&what=!create").Records; len(changes) != 1 {
		t.Errorf("on record is %+v, want the one change", changes)
	}
	if d := get[service.JobDetail](s, "/v1/jobs/a"); d.Paused == nil || d.Paused.Why != "maintenance" {
		t.Errorf("the job's page has %+v", d.Paused)
	}
}
