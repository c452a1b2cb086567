package api

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/host/control/cluster"
	"github.com/wasmjob/wasmjob/host/control/service"
	"github.com/wasmjob/wasmjob/host/control/service/servicetest"
	"github.com/wasmjob/wasmjob/host/engine"
	"github.com/wasmjob/wasmjob/host/history"
)

// TestBackfill: a range shows what would run, runs, and can be cancelled; what is wrong with it is named. It is on record, and the
// history says that the runs are of a backfill.
func TestBackfill(t *testing.T) {
	t.Parallel()
	declares := servicetest.Job("declares", "0 0 0 * * ?", 1, servicetest.OK)
	declares.Definition.Props["wasm.arguments"] = `[{"name":"day","type":"date"},{"name":"shop","type":"string"}]`
	s := serve(t, servicetest.Options{Jobs: []engine.Job{declares, servicetest.Job("cities", "0 0 0 * * ?", 2, servicetest.OK), servicetest.Job("none", "", 1, servicetest.OK)}})
	now := time.Now().UTC()
	day := func(ago int) string { return now.Truncate(24*time.Hour).AddDate(0, 0, -ago).Format(time.RFC3339) }
	for name, tc := range map[string]struct {
		job, body, place string
		code             int
	}{
		"no range":       {"cities", `{"from":"0001-01-01T00:00:00Z","to":"0001-01-01T00:00:00Z"}`, "body.from", 422},
		"turned":         {"cities", fmt.Sprintf(`{"from":%q,"to":%q}`, day(3), day(5)), "body.to", 422},
		"to come":        {"cities", fmt.Sprintf(`{"from":%q,"to":%q}`, day(3), day(-2)), "body.to", 422},
		"too many":       {"cities", fmt.Sprintf(`{"from":%q,"to":%q}`, day(2000), day(3)), "body.to", 422},
		"no instant":     {"cities", fmt.Sprintf(`{"from":%q,"to":%q}`, now.Add(-2*time.Second).Format(time.RFC3339Nano), now.Add(-time.Second).Format(time.RFC3339Nano)), "body.from", 422},
		"no such item":   {"cities", fmt.Sprintf(`{"from":%q,"to":%q,"items":"2"}`, day(5), day(3)), "body.items", 422},
		"no schedule":    {"none", fmt.Sprintf(`{"from":%q,"to":%q}`, day(5), day(3)), "", 409},
		"no such job":    {"towns", fmt.Sprintf(`{"from":%q,"to":%q}`, day(5), day(3)), "", 404},
		"no default":     {"declares", fmt.Sprintf(`{"from":%q,"to":%q}`, day(5), day(3)), "body.arguments.day", 422},
		"another policy": {"cities", fmt.Sprintf(`{"from":%q,"to":%q,"overlap":"cancel"}`, day(5), day(3)), "body.overlap", 422},
	} {
		a := s.ask("POST", "/v1/jobs/"+tc.job+"/backfill", tc.body)
		if a.code != tc.code {
			t.Errorf("%s: %d %s", name, a.code, a.body)
		} else if e := a.problem(t).Errors; tc.place != "" && e[0].Location != tc.place {
			t.Errorf("%s: %+v", name, e)
		}
	}
	for _, a := range []answer{
		s.ask("GET", fmt.Sprintf("/v1/jobs/declares/backfill?from=%s&to=%s", day(5), day(3)), ""),
		s.ask("POST", "/v1/jobs/declares/backfill", fmt.Sprintf(`{"from":%q,"to":%q}`, day(5), day(3))),
	} {
		if e := a.problem(t).Errors; a.code != 422 || len(e) != 2 || !strings.HasSuffix(e[0].Location, ".arguments.day") || !strings.HasSuffix(e[1].Location, ".arguments.shop") {
			t.Errorf("arguments without a default: %d %s", a.code, a.body)
		}
	}
	if a := s.ask("DELETE", "/v1/jobs/cities/backfill", ""); a.code != 409 {
		t.Errorf("cancelled none: %d %s", a.code, a.body)
	}
	shown := get[service.Backfills](s, fmt.Sprintf("/v1/jobs/cities/backfill?from=%s&to=%s", day(5), day(3)))
	if shown.Now != nil || shown.Last != nil || shown.Plan == nil || len(shown.Plan.Instants) < 2 || shown.Plan.Items != 2 {
		t.Fatalf("what would run: %+v", shown)
	}
	n := len(shown.Plan.Instants)
	if a := s.ask("POST", "/v1/jobs/cities/backfill?reason=wrong+rates", fmt.Sprintf(`{"from":%q,"to":%q}`, day(5), day(3))); a.code != 200 {
		t.Fatalf("%d %s", a.code, a.body)
	}
	s.Until("all have run", func() bool {
		return len(get[cluster.Found[history.Run]](s, "/v1/runs?limit=1000&outcome=ok&job=cities").Records) == 2*n
	})
	s.Until("it has ended", func() bool { return get[service.Backfills](s, "/v1/jobs/cities/backfill").Now == nil })
	last := get[service.Backfills](s, "/v1/jobs/cities/backfill").Last
	if last == nil || last.Done != n || last.Why != "wrong rates" || last.By == "" || last.Cancelled != "" {
		t.Errorf("afterwards: %+v", last)
	}
	for _, r := range get[cluster.Found[history.Run]](s, "/v1/runs?limit=1000&job=cities").Records {
		if r.Source != "backfill" || r.Instant.After(now.AddDate(0, 0, -1)) {
			t.Errorf("a run: %+v", r)
		}
	}
	if a := s.ask("POST", "/v1/jobs/cities/backfill", fmt.Sprintf(`{"from":%q,"to":%q,"everySeconds":3600}`, day(5), day(3))); a.code != 200 {
		t.Fatalf("%d %s", a.code, a.body)
	}
	if a := s.ask("POST", "/v1/jobs/cities/backfill", fmt.Sprintf(`{"from":%q,"to":%q}`, day(4), day(3))); a.code != 409 {
		t.Errorf("a second one: %d %s", a.code, a.body)
	}
	if a := s.ask("DELETE", "/v1/jobs/cities/backfill", ""); a.code != 204 {
		t.Errorf("cancelled: %d %s", a.code, a.body)
	}
	if c := get[cluster.Found[history.Change]](s, "/v1/audit?job=cities&what=backfill").Records; len(c) < 3 {
		t.Errorf("on record: %+v", c)
	}
}
