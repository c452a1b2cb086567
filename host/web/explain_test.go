package web

import (
	"net/http"
	"strings"
	"testing"

	"github.com/wasmjob/wasmjob/host"
	"github.com/wasmjob/wasmjob/host/access"
	"github.com/wasmjob/wasmjob/host/service/servicetest"
)

// TestExplain: the page of a run, and that of a job's fires, say why, in sentences with
// the events that show it.
func TestExplain(t *testing.T) {
	t.Parallel()
	s := open(t, servicetest.Options{Jobs: []host.Job{servicetest.Job("pay", "0 0 3 * * ?", 2, servicetest.Fail)}})
	s.post("/jobs/pay/trigger", "back", "/jobs", "reason", "month end")
	s.until("/runs?failed=true&job=pay", "pay")
	var run string
	for _, link := range s.get("/runs?job=pay").links() {
		if strings.HasPrefix(link, "/run?") {
			run = link
		}
	}
	s.get(run).has(t, http.StatusOK, "Why it went this way", "was triggered at", "began in time on host 127.0.0.1", "disk on fire", ": month end.")
	page := s.get("/jobs/pay/explain")
	page.has(t, http.StatusOK, "Why did it run, or not?", "failed", "disk on fire", "item.ended")
	s.get("/jobs/pay/explain?at=2026-01-01T04:00:00&item=1").has(t, http.StatusOK, "never due", "was not due at 04:00:00", `"0 0 3 * * ?"`)
	s.get("/jobs/pay/explain?at=2026-01-01T04:00:00Z").has(t, http.StatusOK, "never due")
	s.get("/jobs/pay/explain?at=&item=").has(t, http.StatusOK, "disk on fire") // as its form sends it
	s.get("/jobs/pay/explain?at=noonish").has(t, http.StatusBadRequest, "at", "noonish")
	s.get("/jobs/pay/explain?item=x").has(t, http.StatusBadRequest, "item", "a number from 0")
	s.lang = "zh"
	s.get("/jobs/pay/explain").has(t, http.StatusOK, "为何运行或未运行？", "失败", "disk on fire")
	s.who = as(access.RoleViewer, "etl-*")
	s.get("/jobs/pay/explain").has(t, http.StatusForbidden)
	s.get("/jobs/pay/explain").lacks(t, "disk on fire")
}
