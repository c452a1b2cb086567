package service_test

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/coordination/jobconfig"
	"github.com/wasmjob/wasmjob/coordination/tree"
	"github.com/wasmjob/wasmjob/host/auth"
	"github.com/wasmjob/wasmjob/host/control/admin"
	"github.com/wasmjob/wasmjob/host/control/service"
	"github.com/wasmjob/wasmjob/host/control/service/servicetest"
	"github.com/wasmjob/wasmjob/host/engine"
	"github.com/wasmjob/wasmjob/host/event"
	"github.com/wasmjob/wasmjob/host/event/operation"
	"github.com/wasmjob/wasmjob/host/explain"
	"github.com/wasmjob/wasmjob/host/history"
)

// TestHosts_roles: hosts are shown with the counts of those jobs alone that the principal may see.
func TestHosts_roles(t *testing.T) {
	t.Parallel()
	h := servicetest.Start(t, servicetest.Options{Jobs: []engine.Job{
		servicetest.Job("a-1", "0 0 3 * * ?", 2, servicetest.OK), servicetest.Job("a-2", "0 0 3 * * ?", 1, servicetest.OK), servicetest.Job("b", "0 0 3 * * ?", 4, servicetest.Wait),
	}})
	all := auth.With(t.Context(), auth.HostToken(auth.ByHostToken))
	if _, err := h.Service.Trigger(all, "b", tree.TriggerArgs{}, ""); err != nil {
		t.Fatal(err)
	}
	h.Until("an item runs", func() bool {
		hosts, err := h.Service.Hosts(all)
		return err == nil && len(hosts) == 1 && hosts[0].Running > 0
	})
	if err := h.Service.Shutdown(all, "a-2", "", "", ""); err != nil {
		t.Fatal(err)
	}
	h.Until("a job is stopped", func() bool {
		hosts, err := h.Service.Hosts(all)
		return err == nil && len(hosts) == 1 && hosts[0].Stopped == 1 && hosts[0].Jobs == 2
	})
	for pattern, want := range map[string]struct{ jobs, items, stopped int }{"*": {2, 6, 1}, "a-*": {1, 2, 1}, "a-1": {1, 2, 0}, "b": {1, 4, 0}, "c": {0, 0, 0}} {
		ctx := auth.With(t.Context(), auth.Principal{Name: "eve", Method: auth.ByToken, Bindings: []auth.Binding{{Role: auth.RoleViewer, Jobs: []string{pattern}}}})
		hosts, err := h.Service.Hosts(ctx)
		if err != nil || len(hosts) != 1 {
			t.Fatalf("%d hosts, %v", len(hosts), err)
		}
		one := hosts[0]
		runs := auth.From(ctx).May(operation.View, "b")
		if one.Jobs != want.jobs || one.Items != want.items || one.Stopped != want.stopped || (one.Running > 0) != runs {
			t.Errorf("%s: %d jobs, %d items, %d stopped, %d run; want %+v", pattern, one.Jobs, one.Items, one.Stopped, one.Running, want)
		}
	}
}

// TestHostNames: jobs and runs are found by what tables call a host.
func TestHostNames(t *testing.T) {
	t.Parallel()
	h := servicetest.Start(t, servicetest.Options{Jobs: []engine.Job{servicetest.Job("a", "", 2, servicetest.OK)}})
	ctx := auth.With(t.Context(), auth.HostToken(auth.ByHostToken))
	if _, err := h.Service.Trigger(ctx, "a", tree.TriggerArgs{}, ""); err != nil {
		t.Fatal(err)
	}
	id := h.Host.Status().Instance
	h.Until("both items ran", func() bool {
		runs, err := h.Service.Runs(ctx, history.Filter{Outcomes: []abi.Outcome{abi.OutcomeOK}})
		return err == nil && len(runs.Records) == 2
	})
	for name, want := range map[string]int{"127.0.0.1": 2, event.ProcessOf(id): 2, id: 2, "127.0.0.11": 0} {
		runs, err := h.Service.Runs(ctx, history.Filter{Host: name})
		if err != nil || len(runs.Records) != want {
			t.Errorf("%s: %d runs, want %d, %v", name, len(runs.Records), want, err)
		}
		jobs, err := h.Service.Jobs(ctx, service.JobFilter{Host: name})
		if err != nil || (len(jobs.Records) == 1) != (want > 0) {
			t.Errorf("%s: %d jobs, %v", name, len(jobs.Records), err)
		}
	}
}

// TestGone_stoppedInGoodOrder: a host that was killed, came back and was stopped in good order is not
// listed as gone, and the history of a host that saw it remembers that.
func TestGone_stoppedInGoodOrder(t *testing.T) {
	t.Parallel()
	h := servicetest.Start(t, servicetest.Options{})
	ctx := auth.With(t.Context(), auth.HostToken(auth.ByHostToken))
	gone := func(want int) {
		t.Helper()
		if list, err := h.Service.Gone(ctx); err != nil || len(list) != want {
			t.Errorf("gone: %+v, %v", list, err)
		}
	}
	h.Local.NoteGone(event.Event{Kind: event.HostGone, Time: time.Now().Add(-time.Minute), Host: "127.0.0.1@-@1-a", Other: "127.0.0.2@-@1-a"})
	gone(1)
	other := servicetest.Start(t, servicetest.Options{Server: h.Server, IP: "127.0.0.2"})
	h.Until("it sees the other host", func() bool { return len(h.Peers.List()) == 1 })
	other.Stop()
	h.Until("its history has that the host was back", func() bool {
		page, err := h.Store.Events(t.Context(), history.Filter{Kinds: []event.Kind{event.HostBack}})
		return err == nil && len(page.Records) == 1 && page.Records[0].Other == "127.0.0.2@-@1-a"
	})
	h.Cluster.Expire()
	gone(0)
}

// TestGone_regainedSession: a host whose session ended, and that has another one in the same process, is
// not listed as gone from then on, also if it is stopped in good order at once.
func TestGone_regainedSession(t *testing.T) {
	t.Parallel()
	h := servicetest.Start(t, servicetest.Options{})
	ctx := auth.With(t.Context(), auth.HostToken(auth.ByHostToken))
	other := servicetest.Start(t, servicetest.Options{Server: h.Server, IP: "127.0.0.2"})
	h.Until("it sees the other host", func() bool { return len(h.Peers.List()) == 1 })
	first, before := other.Host.Status().Instance, h.Peers.List()
	h.Local.NoteGone(event.Event{Kind: event.HostGone, Time: time.Now().Add(time.Hour), Host: "127.0.0.1@-@1-a", Other: first}) // long after its process began
	h.Server.Expire(other.Center())
	h.Until("it sees the other host again", func() bool {
		now := h.Peers.List()
		return len(now) == 1 && now[0].ID != before[0].ID
	})
	other.Stop()
	h.Until("its history has that the host was back", func() bool {
		page, err := h.Store.Events(t.Context(), history.Filter{Kinds: []event.Kind{event.HostBack}})
		return err == nil && len(page.Records) == 1 && page.Records[0].Other == first
	})
	h.Cluster.Expire()
	if list, err := h.Service.Gone(ctx); err != nil || len(list) != 0 {
		t.Errorf("gone: %+v, %v", list, err)
	}
}

// TestHostNames_ofOneServer: of several hosts of a server each is found by what tables call it, and
// what can be none is refused.
func TestHostNames_ofOneServer(t *testing.T) {
	t.Parallel()
	server := servicetest.NewServer(t)
	start := func(url, job string) *servicetest.House {
		return servicetest.Start(t, servicetest.Options{Server: server, Jobs: []engine.Job{servicetest.Job(job, "", 2, servicetest.OK)}, Listen: func(*servicetest.House) string { return url }})
	}
	start("http://127.0.0.1:1", "b")
	h := start("http://127.0.0.1:2", "a")
	ctx := auth.With(t.Context(), auth.HostToken(auth.ByHostToken))
	if _, err := h.Service.Trigger(ctx, "a", tree.TriggerArgs{}, ""); err != nil {
		t.Fatal(err)
	}
	h.Until("both items ran, and both hosts are known", func() bool {
		runs, err := h.Service.Runs(ctx, history.Filter{Outcomes: []abi.Outcome{abi.OutcomeOK}})
		hosts, _ := h.Service.Hosts(ctx)
		return err == nil && len(runs.Records) == 2 && len(hosts) == 2 && hosts[0].Name == "127.0.0.1:2"
	})
	hosts, err := h.Service.Hosts(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{hosts[0].Name, hosts[0].ID} {
		runs, err := h.Service.Runs(ctx, history.Filter{Host: name})
		if err != nil || len(runs.Records) != 2 {
			t.Errorf("%s: %d runs, want 2, %v", name, len(runs.Records), err)
		}
		jobs, err := h.Service.Jobs(ctx, service.JobFilter{Host: name})
		if err != nil || len(jobs.Records) != 1 || jobs.Records[0].Name != "a" {
			t.Errorf("%s: %d jobs, %v", name, len(jobs.Records), err)
		}
	}
	if jobs, err := h.Service.Jobs(ctx, service.JobFilter{Host: strings.Repeat("a2", 13)}); err != nil || len(jobs.Records) > 0 {
		t.Errorf("a host that has another id now: %v", err)
	}
	for _, name := range []string{"127.0.0.1:3", "a"} {
		var wrong *service.InputError
		if _, err := h.Service.Runs(ctx, history.Filter{Host: name}); !errors.As(err, &wrong) || wrong.Where != "query.host" {
			t.Errorf("runs of %s: %v", name, err)
		}
		if _, err := h.Service.Jobs(ctx, service.JobFilter{Host: name}); !errors.As(err, &wrong) || wrong.Where != "query.host" {
			t.Errorf("jobs of %s: %v", name, err)
		}
	}
}

// TestNamespaces: those are named that have jobs, and in which hosts of ours were.
func TestNamespaces(t *testing.T) {
	t.Parallel()
	h := servicetest.Start(t, servicetest.Options{Jobs: []engine.Job{servicetest.Job("a", "", 1, servicetest.OK)}})
	h.Put("/java/job/config", "x", "/prod/job/config", "x", "/prod.wasmjob/job", "", "/empty.wasmjob/job", "", "/empty", "")
	if list, err := h.Registry.Namespaces(t.Context()); err != nil || !slices.Equal(list, []string{servicetest.Namespace, "prod"}) {
		t.Errorf("found %q, %v", list, err)
	}
}

// TestKill_begunAgain: a kill says how the run ended that it was for, by its history, if the item has begun
// again before the record was read.
func TestKill_begunAgain(t *testing.T) {
	t.Parallel()
	h := servicetest.Start(t, servicetest.Options{Jobs: []engine.Job{servicetest.Job("a", "", 1, servicetest.Wait)}})
	ctx := auth.With(t.Context(), auth.HostToken(auth.ByHostToken))
	running := func(trigger int64) func() bool {
		return func() bool {
			runs, err := h.Service.Runs(ctx, history.Filter{Running: true})
			return err == nil && len(runs.Records) == 1 && runs.Records[0].Trigger >= trigger
		}
	}
	trigger := func() int64 {
		round, err := h.Service.Trigger(ctx, "a", tree.TriggerArgs{}, "")
		if err != nil {
			t.Fatal(err)
		}
		return round.Trigger
	}
	first := trigger()
	h.Until("it runs", running(first))
	next := trigger()
	asked := false
	kills, err := h.Service.Kill(ctx, "a", admin.KillOptions{Item: -1, Wait: time.Minute}, "", func(*admin.Kills) {
		if !asked {
			asked = true
			h.Until("the item has begun again", running(next))
		}
	})
	if err != nil || len(kills.Runs) != 1 {
		t.Fatalf("%+v, %v", kills, err)
	}
	if r := kills.Runs[0]; r.State != admin.KillEnded || r.Outcome != "CANCELLED" || r.Reason == "" {
		t.Errorf("%+v", r)
	}
}

// TestShares: who asks for much at once is told so; others are answered.
func TestShares(t *testing.T) {
	t.Parallel()
	h := servicetest.Start(t, servicetest.Options{})
	as := func(name string) context.Context {
		return auth.With(t.Context(), auth.Principal{Name: name, Method: auth.ByPassword, Bindings: []auth.Binding{{Role: auth.RoleViewer, Jobs: []string{auth.AllJobs}}}})
	}
	for what, x := range map[string]struct {
		places *auth.Places
		each   int
		do     func(ctx context.Context) error
	}{
		"queries of histories": {service.Reads(h.Service), 64, func(ctx context.Context) error {
			_, err := h.Service.Runs(ctx, history.Filter{})
			return err
		}},
		"searches in logs": {service.Searches(h.Service), 8, func(ctx context.Context) error {
			_, err := h.Service.Lines(ctx, history.Filter{Text: "x"})
			return err
		}},
		"explanations": {service.Explanations(h.Service), 8, func(ctx context.Context) error {
			_, err := h.Service.Explain(ctx, explain.Question{Job: "x"})
			var gone *service.NotFoundError
			if errors.As(err, &gone) {
				return nil
			}
			return err
		}},
	} {
		var leaves []func()
		for range x.each {
			leave, err := x.places.Take(as("ann"))
			if err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			leaves = append(leaves, leave)
		}
		var no *auth.Problem
		if err := x.do(as("ann")); !errors.As(err, &no) || no.Status != http.StatusTooManyRequests || !strings.Contains(no.Detail, what+" of ann are open") {
			t.Errorf("%s, one more: %v", what, err)
		}
		if err := x.do(as("bob")); err != nil {
			t.Errorf("%s of someone else: %v", what, err)
		}
		leaves[0]()
		for range 3 { // each gives its place back
			if err := x.do(as("ann")); err != nil {
				t.Errorf("%s, when one has ended: %v", what, err)
			}
		}
		for _, leave := range leaves[1:] {
			leave()
		}
	}
	if _, err := h.Service.Lines(as("ann"), history.Filter{}); err != nil {
		t.Error(err)
	}
}

// TestShards_queued: items that wait for a slot are not said to run, and instances say which of theirs wait.
func TestShards_queued(t *testing.T) {
	t.Parallel()
	slots := engine.DefaultMaxConcurrency()
	many := servicetest.Job("many", "", slots+2, servicetest.Wait)
	many.Definition.Props[jobconfig.PropMaxConcurrency] = strconv.Itoa(slots + 2)
	h := servicetest.Start(t, servicetest.Options{Jobs: []engine.Job{many}})
	ctx := auth.With(t.Context(), auth.HostToken(auth.ByHostToken))
	if _, err := h.Service.Trigger(ctx, "many", tree.TriggerArgs{}, ""); err != nil {
		t.Fatal(err)
	}
	h.Until("all slots are taken", func() bool {
		hosts, err := h.Service.Hosts(ctx)
		return err == nil && len(hosts) == 1 && hosts[0].Running == slots && hosts[0].Queued == 2
	})
	shards, err := h.Service.Shards(ctx, "many")
	if err != nil || len(shards.Instances) != 1 {
		t.Fatalf("%+v, %v", shards, err)
	}
	in := map[string]tree.Items{}
	for _, i := range shards.Items {
		in[i.State] = append(in[i.State], i.Item)
	}
	one := shards.Instances[0]
	if len(in["RUNNING"]) != slots || len(in["QUEUED"]) != 2 || one.Running != in["RUNNING"].String() || one.Queued != in["QUEUED"].String() {
		t.Errorf("items %v, running %q, queued %q; want %d running and 2 queued", in, one.Running, one.Queued, slots)
	}
}
