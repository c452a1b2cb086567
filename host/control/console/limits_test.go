package console

import (
	"testing"

	"github.com/wasmjob/wasmjob/host/auth"
	"github.com/wasmjob/wasmjob/host/control/service/servicetest"
	"github.com/wasmjob/wasmjob/host/engine"
)

// TestLimits: the page of limits shows who runs and who waits under each key, and to a reader of some jobs no other one.
func TestLimits(t *testing.T) {
	t.Parallel()
	under := func(j engine.Job, props ...string) engine.Job {
		for n := 0; n < len(props); n += 2 {
			j.Definition.Props["wasm."+props[n]] = props[n+1]
		}
		return j
	}
	s := open(t, servicetest.Options{Jobs: []engine.Job{
		under(servicetest.Job("export", "", 3, servicetest.Wait), "concurrency.key", "db<1>", "concurrency.max", "2"),
		under(servicetest.Job("import", "", 1, servicetest.Wait), "concurrency.key", "db<1>", "concurrency.max", "2"),
		under(servicetest.Job("mail", "", 2, servicetest.OK), "rate.key", "smtp", "rate.per", "1h", "rate.max", "1"),
	}})
	s.get("/limits").has(t, 200, "No item runs or waits under a limit over the cluster.")
	s.post("/jobs/export/trigger")
	s.until("/limits", "2 of 2 run · 1 waits")
	s.post("/jobs/import/trigger")
	s.post("/jobs/mail/trigger")
	page := s.until("/limits", "2 of 2 run · 2 wait")
	page.has(t, 200, "concurrency db<1>", "runs export", "waits export", "waits import")
	s.until("/limits", "1 of 1 begun in 1h · 1 waits").has(t, 200, "rate smtp", "May begin from", "mail")
	s.who = as(auth.RoleViewer, "import")
	s.get("/limits").has(t, 200, "import", "and 3 more")
	s.get("/limits").lacks(t, "export", "mail")
	s.who, s.lang = as(auth.RoleViewer, "*"), "zh"
	s.get("/limits").has(t, 200, "限额", "2 个等待")
	s.lang = "en"
	s.who = auth.HostToken(auth.ByHostToken)
	for _, job := range []string{"export", "import", "mail"} {
		s.post("/jobs/" + job + "/kill")
	}
}
