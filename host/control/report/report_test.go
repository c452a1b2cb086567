package report

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/host/auth"
	"github.com/wasmjob/wasmjob/host/engine"
)

// shown is a host that is ready.
type shown struct{}

func (shown) StatusWithin(time.Duration) engine.Status { return engine.Status{} }
func (shown) FullStatus() engine.Status                { return engine.Status{} }
func (shown) Ready() (bool, string)                    { return true, "" }

// TestReportFor: who may not see all jobs sees its own, and no file's name.
func TestReportFor(t *testing.T) {
	t.Parallel()
	r := Report{Status: engine.Status{Jobs: []*engine.JobStatus{{Name: "etl-1"}, {Name: "pay"}}, Refused: []engine.Refusal{{File: "pay.yaml"}}}, Reason: "compiling: pay.wasm",
		Compiling: []Compiling{{Module: "pay.wasm"}}, Warnings: []string{"pay"}, About: About{Plugins: "/srv/pay", Grants: "/srv/pay/grants.yaml", Alerts: "/srv/pay/alerts.yaml", Users: "/srv/pay/users.yaml", GuestLog: "/srv/pay/log"}}
	team := auth.Principal{Bindings: []auth.Binding{{Role: auth.RoleViewer, Jobs: []string{"etl-*"}}}}
	seen, err := json.Marshal(r.For(team))
	if err != nil {
		t.Fatal(err)
	}
	if text := string(seen); strings.Contains(text, "pay") || !strings.Contains(text, "etl-1") {
		t.Errorf("a viewer of etl-* sees %s", text)
	}
	if got := r.For(auth.HostToken(auth.ByHostToken)); !reflect.DeepEqual(got, r) {
		t.Errorf("who may see all jobs sees %+v", got)
	}
	if len(r.Status.Jobs) != 2 {
		t.Error("the report itself was changed")
	}
}

// TestReportFor_history: where the history is, is for who operates all jobs; others see its kind.
func TestReportFor_history(t *testing.T) {
	t.Parallel()
	const problem = "dial tcp 10.1.2.3:5432: connection refused"
	roles := func(role auth.Role, jobs string) auth.Principal {
		return auth.Principal{Bindings: []auth.Binding{{Role: role, Jobs: []string{jobs}}}}
	}
	for _, c := range []struct{ where, kind string }{
		{"postgres://wasmjob@db.internal:5432/history?sslmode=require", "postgres"}, {"mysql://wasmjob@db.internal/history", "mysql"},
		{"sqlite:/var/lib/wasmjob/history.db", "sqlite"}, {"/var/lib/wasmjob/events.jsonl", "file"}, {"memory", "memory"},
	} {
		r := Report{About: About{History: c.where}, History: &History{File: c.where, Problem: problem, Dropped: 3}}
		for _, p := range []auth.Principal{roles(auth.RoleViewer, "*"), roles(auth.RoleOperator, "etl-*"), {}} {
			got := r.For(p)
			if got.About.History != c.kind || got.History.File != c.kind || got.History.Problem != "the host's log says why" || got.History.Dropped != 3 {
				t.Errorf("%s: %v sees %+v, %+v", c.where, p.Bindings, got.About, got.History)
			}
		}
		for _, p := range []auth.Principal{roles(auth.RoleOperator, "*"), auth.HostToken(auth.ByHostToken)} {
			if got := r.For(p); !reflect.DeepEqual(got, r) {
				t.Errorf("%s: %v sees %+v, %+v", c.where, p.Bindings, got.About, got.History)
			}
		}
		if r.History.File != c.where || r.History.Problem != problem {
			t.Error("the report itself was changed")
		}
	}
	if got := (Report{}).For(auth.Principal{}); got.About.History != "" || got.History != nil {
		t.Errorf("without a history: %+v", got)
	}
}

func TestReportOfTheHistory(t *testing.T) {
	t.Parallel()
	want := History{File: "/h.jsonl", Dropped: 7, Problem: "no space left on device", Since: time.Unix(1e9, 0).UTC()}
	r := Reporter{Host: shown{}, History: func() *History { return &want }}
	if report := r.Report(false); report.History == nil || *report.History != want {
		t.Errorf("got %+v", report)
	}
	r = Reporter{Host: shown{}}
	if report := r.Report(false); report.History != nil {
		t.Errorf("without a history: %+v", report)
	}
}
