package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/wasmjob/wasmjob/host/access"
	"github.com/wasmjob/wasmjob/host/alert"
	"github.com/wasmjob/wasmjob/host/alert/board"
	"github.com/wasmjob/wasmjob/host/history"
	"github.com/wasmjob/wasmjob/host/service"
	"github.com/wasmjob/wasmjob/host/service/servicetest"
)

// TestAlerts: what stands of alerts is shown to who may see its jobs, and silenced by who
// may do that.
func TestAlerts(t *testing.T) {
	t.Parallel()
	s := serve(t, servicetest.Options{})
	if list := get[service.Alerts](s, "/v1/alerts"); len(list.Alerts)+len(list.Silences) != 0 {
		t.Errorf("%+v", list)
	}
	b := board.Of(s.Center(), servicetest.Namespace)
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
	b := board.Of(s.Center(), servicetest.Namespace)
	if err := b.Join(t.Context(), "10.0.0.1@-@1-a", nil); err != nil {
		t.Fatal(err)
	}
	if err := b.Write(t.Context(), []alert.Alert{{ID: "0000000000000001", Rule: alert.Failures, Job: "etl-a"}, {ID: "0000000000000002", Rule: alert.Failures, Job: "bill"}, {ID: "0000000000000003", Rule: alert.HostGone}}); err != nil {
		t.Fatal(err)
	}
	as := func(role access.Role, jobs ...string) context.Context {
		return access.With(t.Context(), access.Principal{Name: "alice", Method: access.ByToken, Bindings: []access.Binding{{Role: role, Jobs: jobs}}})
	}
	seen := func(ctx context.Context) int {
		list, err := s.Service.Alerting().List(ctx)
		if err != nil {
			t.Fatal(err)
		}
		return len(list.Alerts)
	}
	s.Until("the alerts are seen", func() bool { return seen(as(access.RoleViewer, "*")) == 3 })
	if n, all := seen(as(access.RoleViewer, "etl-*")), seen(as(access.RoleViewer, "*")); n != 1 || all != 3 {
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
		{as(access.RoleAuthor, "*"), "etl-a", false},
		{as(access.RoleAuthor, "*"), access.NoJob, false},
		{as(access.RoleAdmin, "etl-*"), "etl-a", true},
		{as(access.RoleAdmin, "etl-*"), "etl-*", true},
		{as(access.RoleAdmin, "etl-*"), "etl-a*", false}, // which a pattern covers is not asked
		{as(access.RoleAdmin, "etl-*"), "*", false},
		{as(access.RoleAdmin, "*"), "*", true},
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
	for err, want := range map[error]int{board.ErrNoSilence: http.StatusNotFound, board.ErrTooManySilences: http.StatusConflict} {
		var answer *huma.ErrorModel
		if !errors.As(problem(fmt.Errorf("silence 12: %w", err)), &answer) || answer.Status != want {
			t.Errorf("%v: %+v, want %d", err, answer, want)
		}
	}
}
