package api

import (
	"net/http"
	"strings"
	"testing"

	"github.com/wasmjob/wasmjob/host/control/cluster"
	"github.com/wasmjob/wasmjob/host/control/service"
	"github.com/wasmjob/wasmjob/host/control/service/servicetest"
	"github.com/wasmjob/wasmjob/host/engine"
)

// TestJobWithoutHost: a job whose only host is gone is still shown, changed, explained and
// removed.
func TestJobWithoutHost(t *testing.T) {
	t.Parallel()
	registry := servicetest.NewServer(t)
	s := serve(t, servicetest.Options{Server: registry, Jobs: []engine.Job{once("mine", 1)}})
	other := serve(t, servicetest.Options{Server: registry, IP: "127.0.0.2", Jobs: []engine.Job{once("theirs", 3)}})
	s.Until("the other host has its job", func() bool { return get[service.Jobs](s, "/v1/jobs").Counts[cluster.HealthOK] == 2 })
	if a := s.ask(http.MethodPost, "/v1/jobs/theirs/restore", ""); a.code != http.StatusConflict {
		t.Errorf("restore of a job that one host of two has, and that runs there: %d %s", a.code, a.body)
	}
	other.Stop()

	// Until its host is gone from the list, a job of a host that has ended its session is in error, too.
	s.Until("its job has no host", func() bool { return get[service.JobDetail](s, "/v1/jobs/theirs").State == cluster.StateNoHost })
	list := get[service.Jobs](s, "/v1/jobs?health=error")
	if len(list.Records) != 1 || list.Records[0].Name != "theirs" || list.Records[0].State != cluster.StateNoHost || list.Records[0].ShardingTotalCount != 3 {
		t.Errorf("jobs in error: %+v", list.Records)
	}
	d := get[service.JobDetail](s, "/v1/jobs/theirs")
	if d.State != cluster.StateNoHost || d.Reason == "" || len(d.Items)+len(d.On)+len(d.Hosts) != 0 {
		t.Errorf("the job: %+v", d)
	}
	for request, code := range map[string]int{
		"GET /v1/jobs/theirs/config":   http.StatusOK,
		"GET /v1/jobs/theirs/explain":  http.StatusOK,
		"POST /v1/jobs/theirs/disable": http.StatusNoContent,
		"POST /v1/jobs/theirs/restore": http.StatusNotFound,
	} {
		method, path, _ := strings.Cut(request, " ")
		if a := s.ask(method, path, ""); a.code != code {
			t.Errorf("%s: %d %s, expected %d", request, a.code, a.body, code)
		}
	}
	if a := s.ask(http.MethodDelete, "/v1/jobs/theirs", ""); a.code != http.StatusNoContent {
		t.Errorf("remove: %d %s", a.code, a.body)
	}
	s.Until("it is gone", func() bool { return s.ask(http.MethodGet, "/v1/jobs/theirs", "").code == http.StatusNotFound })
}
