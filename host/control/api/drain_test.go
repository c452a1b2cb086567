package api

import (
	"errors"
	"net/http"
	"slices"
	"testing"

	"github.com/wasmjob/wasmjob/coordination/tree"
	"github.com/wasmjob/wasmjob/host/control/cluster"
	"github.com/wasmjob/wasmjob/host/control/service"
	"github.com/wasmjob/wasmjob/host/control/service/servicetest"
	"github.com/wasmjob/wasmjob/host/engine"
)

// TestDrainedHost: any host says that an operator stopped the jobs of another one, and has it
// join them again; a job that was removed stays removed.
func TestDrainedHost(t *testing.T) {
	t.Parallel()
	registry := servicetest.NewServer(t)
	jobs := []engine.Job{once("a", 2), once("b", 2), once("gone", 1)}
	s := serve(t, servicetest.Options{Server: registry, Jobs: jobs})
	other := serve(t, servicetest.Options{Server: registry, IP: "127.0.0.2", Jobs: jobs})
	there := func() (h cluster.Host) {
		list := get[[]cluster.Host](s, "/v1/hosts")
		if at := slices.IndexFunc(list, func(h cluster.Host) bool { return h.ServerIP == "127.0.0.2" }); at >= 0 {
			h = list[at]
		}
		return h
	}
	s.Until("both hosts have the jobs", func() bool { h := there(); return h.State == engine.HostLive && h.Jobs == 3 })
	if err := s.client.Remove(t.Context(), "gone", false); err != nil {
		t.Fatal(err)
	}
	s.Until("the other host has left it", func() bool { return state(other, "gone") == engine.JobRemoved })
	if a := s.ask(http.MethodPost, "/v1/start?server=127.0.0.2", ""); a.code != http.StatusConflict {
		t.Errorf("nothing is stopped there: %d %s", a.code, a.body)
	}
	if err := s.client.Shutdown(t.Context(), "a", "127.0.0.2", ""); err != nil {
		t.Fatal(err)
	}
	s.Until("one job is stopped there", func() bool { return there().Stopped == 1 })
	if h := there(); h.State != engine.HostLive || h.Jobs != 2 {
		t.Errorf("a host with one of its jobs: %+v", h)
	}
	if err := s.client.Shutdown(t.Context(), "", "127.0.0.2", ""); err != nil {
		t.Fatal(err)
	}
	s.Until("all are", func() bool { h := there(); return h.State == engine.HostStopped && h.Stopped == 2 && h.Jobs == 1 })
	d := get[service.JobDetail](s, "/v1/jobs/a")
	if len(d.Hosts) != 2 || len(d.Stopped) != 1 || d.Stopped[0] != there().ID {
		t.Errorf("the job: on %v, stopped on %v", d.Hosts, d.Stopped)
	}
	var r service.Restored
	if err := s.client.Send(t.Context(), http.MethodPost, "/v1/start?instance="+tree.ServerOf(there().Report.Status.Instance), nil, &r); err == nil {
		t.Error("a part of an instance's id is taken for it")
	}
	if err := s.client.Send(t.Context(), http.MethodPost, "/v1/start?instance="+there().Report.Status.Instance, nil, &r); err != nil || len(r.Hosts) != 1 || len(r.Failed) > 0 {
		t.Errorf("%+v %v", r, err)
	}
	s.Until("the host has its jobs again", func() bool {
		h := there()
		return h.State == engine.HostLive && h.Stopped == 0 && state(other, "a") == engine.JobReady && state(other, "b") == engine.JobReady
	})
	if got := state(other, "gone"); got != engine.JobRemoved {
		t.Errorf("the removed job is %s", got)
	}
}

// TestDisabledServer: a host names the jobs that its server is disabled for, but for those that
// are disabled on all servers.
func TestDisabledServer(t *testing.T) {
	t.Parallel()
	server := servicetest.NewServer(t)
	jobs := []engine.Job{servicetest.Job("pay", "0 0 3 1 1 ?", 2, servicetest.OK), servicetest.Job("etl", "0 0 3 1 1 ?", 2, servicetest.OK)}
	a := serve(t, servicetest.Options{Server: server, IP: "10.0.0.1", Jobs: jobs})
	b := serve(t, servicetest.Options{Server: server, IP: "10.0.0.2", Jobs: jobs})
	if err := errors.Join(a.client.DisableServer(t.Context(), "pay", "10.0.0.2"), a.client.Disable(t.Context(), "etl")); err != nil {
		t.Fatal(err)
	}
	var disabled map[string][]string
	for _, asked := range []*served{a, b} {
		asked.Until("the server is known to be disabled", func() bool {
			disabled = make(map[string][]string)
			for _, h := range get[[]cluster.Host](asked, "/v1/hosts") {
				disabled[h.ServerIP] = h.Disabled
			}
			paused := get[service.JobDetail](asked, "/v1/jobs/etl").State == engine.JobDisabled
			return paused && slices.Equal(disabled["10.0.0.2"], []string{"pay"}) && len(disabled["10.0.0.1"]) == 0
		})
	}
}
