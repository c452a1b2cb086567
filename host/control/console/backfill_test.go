package console

import (
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/host/auth"
	"github.com/wasmjob/wasmjob/host/control/service/servicetest"
	"github.com/wasmjob/wasmjob/host/engine"
)

// hiddens are the fields of a form that people do not see.
var hiddens = regexp.MustCompile(`<input type="hidden" name="([^"]*)" value="([^"]*)">`)

// TestBackfill: the page of a backfill shows what a range would run, and the button begins just that; what goes on is a bar that
// can be cancelled; what is wrong with a range is on the page.
func TestBackfill(t *testing.T) {
	t.Parallel()
	declares := servicetest.Job("declares", "0 0 3 * * ?", 1, servicetest.OK)
	declares.Definition.Props["wasm.arguments"] = `[{"name":"day","type":"date"}]`
	s := open(t, servicetest.Options{Jobs: []engine.Job{declares, servicetest.Job("cities", "0 0 3 * * ?", 2, servicetest.OK), servicetest.Job("none", "", 1, servicetest.OK)}})
	s.until("/jobs/cities", "Backfill")
	day := func(ago int) string {
		return time.Now().UTC().Truncate(24*time.Hour).AddDate(0, 0, -ago).Format("2006-01-02T15:04:05")
	}
	ask := func(job, from, to string, more ...string) string {
		q := url.Values{"from": {from}, "to": {to}}
		for n := 0; n < len(more); n += 2 {
			q.Set(more[n], more[n+1])
		}
		return jobPath(job, "backfill") + "?" + q.Encode()
	}
	s.get("/jobs/cities/backfill").has(t, 200, "Each past instant of the schedule of cities in a range runs once more", "Show what would run")
	for path, want := range map[string]string{
		ask("cities", day(3), day(5)):                           "expected a time not before from",
		ask("cities", "yesterday?", day(3)):                     "from: ",
		ask("cities", day(5), day(3), "items", "7"):             "items: found 7, expected 0 to 1",
		ask("cities", day(5), day(3), "every", "0"):             `every: found "0", expected a number of seconds from 1 to 86400`,
		ask("declares", day(5), day(3)):                         "arguments.day: is missing, expected a date",
		ask("cities", day(5), day(5)):                           "the job has no instant in the range",
		ask("cities", day(5), day(3), "overlap", `cancel"><b>`): `expected queue_all or skip`,
		ask("cities", day(5), ""):                               "found no range, expected from and to",
	} {
		s.get(path).has(t, http.StatusBadRequest, want)
		s.get(path).lacks(t, "What would run")
	}
	s.get(ask("none", day(5), day(3))).has(t, http.StatusConflict, `job "none" has no schedule: trigger it for an instant`)
	plan := s.get(ask("cities", day(5), day(2), "every", "3600", "items", "0"))
	plan.has(t, 200, "What would run", "3 instants with 1 item each", "It takes 2h or more", "Begin")
	if n := strings.Count(plan.body, "03:00:00</td>"); n < 3 {
		t.Errorf("%d instants are shown:\n%s", n, plan.text())
	}
	s.get(ask("cities", day(100), day(2))).has(t, 200, "98 instants with 2 items each", "and 58 more")
	form := []string{"reason", "wrong <rates>", "back", "/jobs/cities"}
	_, button, _ := strings.Cut(plan.body, `id="begin"`)
	for _, m := range hiddens.FindAllStringSubmatch(button, -1) {
		if m[1] != "back" {
			form = append(form, m[1], m[2])
		}
	}
	if len(form) != 4+2*5 {
		t.Fatalf("the button sends %q", form)
	}
	s.post("/jobs/cities/backfill", form...).has(t, 200, "The backfill of cities has begun: 3 instants.")
	s.until("/jobs/cities", "of 3 instants").has(t, 200, "Cancel backfill", "items 0")
	s.get("/jobs/cities/backfill").has(t, 200, "of 3 instants", "Cancel backfill")
	s.get("/jobs/cities/backfill").lacks(t, "Show what would run")
	s.post("/jobs/cities/backfill", form...).has(t, 200, "another backfill goes on")
	s.post("/jobs/cities/cancelBackfill", "back", "/jobs/cities/backfill").has(t, 200, "The backfill of cities is cancelled.", "Last backfill", "cancelled by")
	s.get("/audit").has(t, 200, "wrong <rates>")
	s.who = as(auth.RoleViewer, "*")
	s.get("/jobs/cities").lacks(t, "Pause Backfill")
	s.get(ask("cities", day(5), day(2))).lacks(t, "Begin")
	s.post("/jobs/cities/backfill", form...).has(t, 403, "You may not do this")
	s.lang = "zh"
	s.get("/jobs/cities/backfill").has(t, 200, "补跑", "上一次补跑")
}
