package service

import (
	"slices"
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/host/control/cluster"
	"github.com/wasmjob/wasmjob/host/control/report"
	"github.com/wasmjob/wasmjob/host/engine"
)

// TestMayRestart: a host may restart if nothing runs there, another one can run each of its jobs, and the others have room. What
// rests on a host that cannot be asked is unknown.
func TestMayRestart(t *testing.T) {
	t.Parallel()
	host := func(name string, slots, used int) cluster.Host {
		return cluster.Host{ID: name, Name: name, State: engine.HostLive, Report: &report.Report{Status: engine.Status{Slots: engine.SlotsStatus{Total: slots, Used: used}}}}
	}
	silent := func(h cluster.Host) cluster.Host { h.Silent = "it has not answered within 1s"; return h }
	in := func(h cluster.Host, s engine.HostState) cluster.Host { h.State = s; return h }
	job := func(state engine.JobState, reason string, items ...engine.ItemStatus) *engine.JobStatus {
		return &engine.JobStatus{Name: "pay", State: state, Reason: reason, Items: items}
	}
	ready := job(engine.JobReady, "")
	runs := engine.ItemStatus{Item: 3, Running: true, Since: time.Unix(1, 0)}
	waits := engine.ItemStatus{Item: 4, Queued: true}
	for name, c := range map[string]struct {
		other       []cluster.Host
		here, there *engine.JobStatus
		want        string
		only        []string
		unknown     []string
		self        engine.HostState
	}{
		"all is well":    {[]cluster.Host{host("b", 4, 3)}, ready, ready, RestartYes, nil, nil, ""},
		"a run":          {[]cluster.Host{host("b", 4, 0)}, job(engine.JobRunning, "", runs), ready, RestartNo, nil, nil, ""},
		"no other host":  {nil, ready, nil, RestartNo, []string{}, nil, ""},
		"no such job":    {[]cluster.Host{host("b", 4, 0)}, ready, nil, RestartNo, []string{"b: it does not have the job"}, nil, ""},
		"not granted":    {[]cluster.Host{host("b", 4, 0)}, ready, job(engine.JobError, "needs http, which is not granted\nsee grants"), RestartNo, []string{"b: error: needs http, which is not granted"}, nil, ""},
		"disabled there": {[]cluster.Host{host("b", 4, 0)}, ready, job(engine.JobDisabled, ""), RestartNo, []string{"b: paused"}, nil, ""},
		"disabled here":  {[]cluster.Host{host("b", 4, 0)}, job(engine.JobDisabled, ""), job(engine.JobDisabled, ""), RestartYes, nil, nil, ""},
		"it drains":      {[]cluster.Host{in(host("b", 4, 0), engine.HostDraining)}, ready, ready, RestartNo, []string{"b: the host is draining"}, nil, ""},
		"no room":        {[]cluster.Host{host("b", 4, 4)}, job(engine.JobQueued, "", waits), ready, RestartNo, nil, nil, ""},
		"room":           {[]cluster.Host{host("b", 4, 3)}, job(engine.JobQueued, "", waits), ready, RestartYes, nil, nil, ""},
		"silent":         {[]cluster.Host{silent(host("b", 4, 0))}, ready, ready, RestartUnknown, []string{"b: it is not known"}, []string{"host b does not answer: it has not answered within 1s"}, ""},
		"one is silent":  {[]cluster.Host{silent(host("b", 4, 0)), host("c", 4, 0)}, ready, nil, RestartUnknown, []string{"b: it is not known", "c: it does not have the job"}, []string{"host b does not answer: it has not answered within 1s"}, ""},
		"silent, a run":  {[]cluster.Host{silent(host("b", 4, 0))}, job(engine.JobRunning, "", runs), ready, RestartNo, []string{"b: it is not known"}, []string{"host b does not answer: it has not answered within 1s"}, ""},
		"no session":     {[]cluster.Host{in(host("b", 4, 0), engine.HostSuspect)}, ready, ready, RestartUnknown, []string{"b: it is not known"}, []string{"host b has no session with the registry that is sure to live"}, ""},
		"itself":         {[]cluster.Host{host("b", 4, 0)}, ready, ready, RestartUnknown, nil, []string{"host a has no session with the registry that is sure to live"}, engine.HostStarting},
		"never answered": {[]cluster.Host{{ID: "b", Name: "b"}}, ready, nil, RestartUnknown, []string{"b: it is not known"}, []string{"host b has not answered yet"}, ""},
	} {
		self := host("a", 4, 1)
		if c.self != "" {
			self.State = c.self
		}
		on := map[string]map[string]*engine.JobStatus{"a": {"pay": c.here}}
		if c.there != nil && len(c.other) > 0 {
			on["b"] = map[string]*engine.JobStatus{"pay": c.there}
		}
		r := mayRestart(self, append([]cluster.Host{self}, c.other...), on)
		if r.Answer != c.want || !slices.Equal(r.Unknown, c.unknown) {
			t.Errorf("%s: %+v", name, r)
		}
		if (c.only == nil) != (len(r.Only) == 0) || (len(r.Only) > 0 && !slices.Equal(r.Only[0].Why, c.only)) {
			t.Errorf("%s: only it can run %+v, want %q", name, r.Only, c.only)
		}
	}
	java := job(engine.JobReady, "")
	java.Hosts = []engine.InstanceStatus{{Java: true}}
	if r := mayRestart(host("a", 4, 0), []cluster.Host{host("a", 4, 0)}, map[string]map[string]*engine.JobStatus{"a": {"pay": java}}); r.Answer != RestartYes {
		t.Errorf("beside a Java host: %+v", r)
	}
}
