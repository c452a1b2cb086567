package api

import (
	"fmt"
	"net/http/httptest"
	"net/url"
	"testing"

	"github.com/wasmjob/wasmjob/host/auth"
	"github.com/wasmjob/wasmjob/host/control/service/servicetest"
	"github.com/wasmjob/wasmjob/host/engine"
)

// TestTimesAtTheEdges: a time of a request at the end of what RFC 3339 can say, of which UTC or
// what is counted from it is beyond that, is answered or refused, and panics nowhere.
func TestTimesAtTheEdges(t *testing.T) {
	t.Parallel()
	s := serve(t, servicetest.Options{Jobs: []engine.Job{servicetest.Job("a", "0 0 0 ? 2 1#5", 2, servicetest.OK)}})
	ctx := auth.With(t.Context(), auth.HostToken(auth.ByHostToken))
	ask := func(method, path string) {
		defer func() {
			if p := recover(); p != nil {
				t.Errorf("%s %s: panic: %.200s", method, path, fmt.Sprint(p))
			}
		}()
		w := httptest.NewRecorder()
		s.api.ServeHTTP(w, httptest.NewRequest(method, path, nil).WithContext(ctx))
		if w.Code >= 500 {
			t.Errorf("%s %s: %d %s", method, path, w.Code, w.Body)
		}
	}
	ask("GET", "/v1/schedule?limit=1000&cron="+url.QueryEscape("0 0 0 ? 2 1#5"))
	for _, at := range []string{"9999-12-31T23:59:59-23:59", "9999-12-31T23:59:59Z", "0000-01-01T00:00:00Z", "0000-01-01T00:00:00+23:59", "0001-01-01T00:00:00Z", "106751d", "99999d"} {
		at := url.QueryEscape(at)
		for _, path := range []string{
			"/v1/schedule?limit=1000&cron=" + url.QueryEscape("0 0 0 * * ?") + "&from=", "/v1/schedule?timeZone=Pacific%2FKiritimati&cron=" + url.QueryEscape("0 0 0 * * ?") + "&from=",
			"/v1/calendar?from=", "/v1/calendar?to=", "/v1/calendar?to=" + at + "&from=",
			"/v1/fires?from=", "/v1/fires?to=", "/v1/fires?instant=", "/v1/runs?from=", "/v1/runs?to=", "/v1/runs?instant=", "/v1/events?from=", "/v1/events?instant=",
			"/v1/logs?from=", "/v1/logs?to=", "/v1/audit?from=", "/v1/audit?to=", "/v1/jobs/a/explain?at=", "/v1/jobs/a/explain?before=",
			"/v1/jobs/a/explain?run=a%2F", "/v1/run?id=a%2F",
		} {
			ask("GET", path+at)
		}
		for _, path := range []string{"/v1/jobs/a/disable?until=", "/v1/jobs/a/items/0/disable?until="} {
			ask("POST", path+at)
		}
		for _, path := range []string{"/v1/status", "/v1/jobs", "/v1/jobs/a", "/v1/overview", "/v1/jobs/a/shards", "/v1/audit"} {
			ask("GET", path) // what was disabled
		}
	}
}
