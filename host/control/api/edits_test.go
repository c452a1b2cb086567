package api

import (
	"slices"
	"strings"
	"testing"

	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/tree"
	"github.com/wasmjob/wasmjob/host/control/admin"
	"github.com/wasmjob/wasmjob/host/control/cluster"
	"github.com/wasmjob/wasmjob/host/control/service/servicetest"
	"github.com/wasmjob/wasmjob/host/engine"
	"github.com/wasmjob/wasmjob/host/history"
)

// TestEditsAreRecordedOnce: who changed the configuration of a job is recorded once for all
// hosts, with the settings before and after, whether it was a request, another program that wrote
// to the registry, or a definition file that made the job or was changed. The configuration says
// where each value comes from.
func TestEditsAreRecordedOnce(t *testing.T) {
	t.Parallel()
	server := servicetest.NewServer(t)
	job := func(cron, description string) []engine.Job {
		j := servicetest.Job("cities", cron, 4, servicetest.OK)
		j.Definition.Description = description
		return []engine.Job{j}
	}
	const one, two, three = "0 0 1 1 1 ?", "0 0 2 1 1 ?", "0 0 3 1 1 ?"
	a := serve(t, servicetest.Options{Server: server, IP: "10.0.0.1", Jobs: job(one, "")})
	b := serve(t, servicetest.Options{Server: server, IP: "10.0.0.2", Jobs: job(one, "")})
	houses := []*servicetest.House{a.House, b.House}
	var list []history.Change
	recorded := func(n int) func() bool {
		return func() bool {
			list = nil
			for _, h := range houses {
				page, err := h.Store.Changes(t.Context(), history.Filter{Jobs: []string{"cities"}})
				if err != nil {
					t.Fatal(err)
				}
				list = append(list, page.Records...)
			}
			slices.SortFunc(list, func(x, y history.Change) int { return x.Time.Compare(y.Time) })
			return len(list) >= n
		}
	}
	follow := func(cron string) {
		t.Helper()
		for _, h := range houses {
			h.Until("the host goes by "+cron, func() bool {
				jobs := h.Host.Status().Jobs
				return len(jobs) == 1 && jobs[0].Cron == cron
			})
		}
	}

	comesFrom := func(from, who, why string) {
		t.Helper()
		c := get[admin.JobConfig](b, "/v1/jobs/cities/config")
		cron := c.Origins["cron"]
		if cron.From != from || !strings.Contains(cron.Who, who) || (who == "") != cron.Time.IsZero() || cron.Why != why || c.File != "cities.yaml" || len(c.Silent) > 0 {
			t.Errorf("cron comes from %+v of %q, missing is %q; want %s, %s, %s", cron, c.File, c.Silent, from, who, why)
		}
		if c.Origins["misfire"].From != "default" || c.Origins["shardingTotalCount"].From != "file" {
			t.Errorf("other settings come from %+v", c.Origins)
		}
	}

	comesFrom("file", "", "")
	// A request.
	if w := a.ask("PATCH", "/v1/jobs/cities/config?reason=earlier", `{"settings":{"cron":"`+two+`"}}`, "If-Match", "*"); w.code != 200 {
		t.Fatalf("%d %s", w.code, w.body)
	}
	follow(two)
	a.Until("the request is recorded", recorded(2))
	comesFrom("edit", "token", "earlier")
	// Another program, such as ElasticJob's console.
	config := tree.NewLayout(servicetest.Namespace, "cities").Config()
	nodes, err := a.Center().Read(t.Context(), registry.Data(config))
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Replace(string(nodes[0].Data), two, three, 1)
	if _, err := a.Center().Commit(t.Context(), registry.Set(config, []byte(text), registry.AnyVersion)); err != nil {
		t.Fatal(err)
	}
	follow(three)
	a.Until("the other program's edit is recorded", recorded(3))
	comesFrom("edit", "the registry", "")
	// The file, on both hosts.
	for _, h := range houses {
		h.Host.Apply(job(two, ""), nil)
	}
	follow(two)
	a.Until("the file's edit is recorded", recorded(4))
	comesFrom("file", "", "")
	// A host that comes with another file.
	c := serve(t, servicetest.Options{Server: server, IP: "10.0.0.3", Jobs: job(two, "new")})
	houses = append(houses, c.House)
	a.Until("the edit of the file of a host that came is recorded", recorded(5))

	if len(list) != 5 {
		t.Fatalf("%d records, want 5", len(list))
	}
	file := "file cities.yaml on host 10.0.0."
	for i, want := range []history.Change{
		{What: "create", Who: file, From: "file", Before: "{}", After: `{"cron":"` + one + `","failover":"true","maxTimeDiffSeconds":"-1","misfire":"true","monitorExecution":"true","reconcileIntervalMinutes":"10","shardingTotalCount":"4","timeZone":"GMT"}`},
		{What: "edit cron", Who: "token", Before: `{"cron":"` + one + `"}`, After: `{"cron":"` + two + `"}`},
		{What: "edit cron", Who: "the registry", From: "registry", Before: `{"cron":"` + two + `"}`, After: `{"cron":"` + three + `"}`},
		{What: "edit cron", Who: file, From: "file", Before: `{"cron":"` + three + `"}`, After: `{"cron":"` + two + `"}`},
		{What: "edit description", Who: file + "3", From: "file", Before: `{"description":""}`, After: `{"description":"new"}`},
	} {
		got := list[i]
		if !strings.Contains(got.Who, want.Who) || got.What != want.What || (want.From != "" && got.From != want.From) || got.Before != want.Before || got.After != want.After || got.Error != "" {
			t.Errorf("record %d is\n%+v, want\n%+v", i, got, want)
		}
	}
}

// TestEditOfSilentHost: if the host that knows who edited a setting does not answer, the
// configuration is there all the same, and says so.
func TestEditOfSilentHost(t *testing.T) {
	t.Parallel()
	server := servicetest.NewServer(t)
	jobs := []engine.Job{servicetest.Job("cities", "0 0 1 1 1 ?", 4, servicetest.OK)}
	a := serve(t, servicetest.Options{Server: server, IP: "10.0.0.1", Jobs: jobs})
	b := serve(t, servicetest.Options{Server: server, IP: "10.0.0.2", Jobs: jobs})
	if w := b.ask("PATCH", "/v1/jobs/cities/config", `{"settings":{"cron":"0 0 2 1 1 ?"}}`, "If-Match", "*"); w.code != 200 {
		t.Fatalf("%d %s", w.code, w.body)
	}
	if c := get[admin.JobConfig](a, "/v1/jobs/cities/config"); c.Origins["cron"].From != "edit" {
		t.Errorf("cron comes from %+v", c.Origins["cron"])
	}
	b.mute()
	a.Until("the host is silent", func() bool {
		c := get[admin.JobConfig](a, "/v1/jobs/cities/config")
		silent := len(c.Silent) == 1 && strings.HasPrefix(c.Silent[0], "10.0.0.2: ")
		return silent && c.Settings["cron"] == "0 0 2 1 1 ?" && c.Origins["cron"] == admin.Origin{From: "registry"} && c.Origins["failover"].From == "file"
	})
}

// TestEditOfDamagedConfiguration: while another program's property cannot be read, an edit of another setting is
// refused and says which property that is; an edit that repairs it takes effect, also one to the default, and hosts
// take over the whole configuration again.
func TestEditOfDamagedConfiguration(t *testing.T) {
	t.Parallel()
	const edited = "0 0 2 1 1 ?"
	a := serve(t, servicetest.Options{Server: servicetest.NewServer(t), IP: "10.0.0.1", Jobs: []engine.Job{servicetest.Job("cities", "0 0 1 1 1 ?", 4, servicetest.OK)}})
	damaged := tree.NewLayout(servicetest.Namespace, "cities").Config()
	nodes, err := a.Center().Read(t.Context(), registry.Data(damaged))
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Replace(string(nodes[0].Data), "0 0 1 1 1 ?", edited, 1) + "props:\n  wasm.timeout: soon\n"
	if _, err := a.Center().Commit(t.Context(), registry.Set(damaged, []byte(text), registry.AnyVersion)); err != nil {
		t.Fatal(err)
	}
	a.Until("the host refuses it", func() bool { return strings.Contains(a.Host.Status().Jobs[0].Reason, "wasm.timeout") })
	if w := a.ask("PATCH", "/v1/jobs/cities/config", `{"settings":{"description":"new"}}`, "If-Match", "*"); w.code != 422 || !strings.Contains(string(w.body), `found \"soon\"`) || !strings.Contains(string(w.body), "settings.timeout") {
		t.Errorf("another setting: %d %s", w.code, w.body)
	}
	if got := get[admin.JobConfig](a, "/v1/jobs/cities/config"); got.Settings["timeout"] != "soon" || got.Origins["timeout"].From == "default" {
		t.Errorf("the timeout is shown as %q from %+v", got.Settings["timeout"], got.Origins["timeout"])
	}
	if w := a.ask("PATCH", "/v1/jobs/cities/config", `{"settings":{"timeout":""}}`, "If-Match", "*"); w.code != 200 {
		t.Fatalf("the repair: %d %s", w.code, w.body)
	}
	a.Until("the host goes by the configuration", func() bool { j := a.Host.Status().Jobs[0]; return j.Cron == edited && j.Reason == "" })
	change := get[cluster.Found[history.Change]](a, "/v1/audit?job=cities&what=edit+timeout").Records
	if len(change) != 1 || !strings.Contains(change[0].Before, "soon") {
		t.Errorf("on record is %+v", change)
	}
}
