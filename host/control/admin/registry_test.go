package admin

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/wasmjob/wasmjob/coordination/admin/operate"
	"github.com/wasmjob/wasmjob/coordination/jobconfig"
	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/registry/embedded"
	"github.com/wasmjob/wasmjob/host/config/ceiling"
	"github.com/wasmjob/wasmjob/host/config/definition"
	"github.com/wasmjob/wasmjob/host/engine"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// namespace is a registry with jobs of two instances each, and a way to look.
func namespace(t *testing.T, jobs ...string) (*Registry, func(path string) (string, bool)) {
	t.Helper()
	s, err := embedded.Open(embedded.Options{})
	if err != nil {
		t.Fatal(err)
	}
	c, err := s.Connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(c.Close(), s.Close()); err != nil {
			t.Error(err)
		}
	})
	put := func(path, value string) {
		t.Helper()
		if _, err := c.Commit(t.Context(), registry.Ensure(path), registry.Set(path, []byte(value), registry.AnyVersion)); err != nil {
			t.Fatal(err)
		}
	}
	for _, job := range jobs {
		put("/ns/"+job+"/config", "cron: 0 0 * * * ?\njobName: "+job+"\nshardingTotalCount: 2\nshardingItemParameters: 0=A,1=B\n")
		for n, ip := range []string{"10.0.0.1", "10.0.0.2"} {
			id := ip + "@-@" + job
			put("/ns/"+job+"/servers/"+ip, "ENABLED")
			put("/ns/"+job+"/instances/"+id, "jobInstanceId: "+id+"\nserverIp: "+ip+"\n")
			put("/ns.wasmjob/"+job+"/instances/"+id, `{"state":"READY","digest":"`+strings.Repeat(string(rune('a'+n)), 64)+`"}`)
			put("/ns/"+job+"/sharding/"+string(rune('0'+n))+"/instance", id)
		}
	}
	look := func(path string) (string, bool) {
		t.Helper()
		n, err := c.Read(t.Context(), registry.Data(path))
		if err != nil {
			t.Fatal(err)
		}
		return string(n[0].Data), n[0].Exists
	}
	return NewRegistry("ns", func() registry.Center { return c }), look
}

func TestRegistryOperates(t *testing.T) {
	t.Parallel()
	r, look := namespace(t, "a", "b")
	ctx := t.Context()
	is := func(path, want string) {
		t.Helper()
		if got, _ := look(path); got != want {
			t.Errorf("%s is %q, want %q", path, got, want)
		}
	}
	there := func(path string, want bool) {
		t.Helper()
		if _, got := look(path); got != want {
			t.Errorf("%s exists: %t, want %t", path, got, want)
		}
	}
	do := func(err error) {
		t.Helper()
		if err != nil {
			t.Error(err)
		}
	}
	do(r.DisableServer(ctx, "a", "10.0.0.2"))
	is("/ns/a/servers/10.0.0.2", "DISABLED")
	is("/ns/a/servers/10.0.0.1", "ENABLED")
	is("/ns/b/servers/10.0.0.2", "ENABLED")
	do(r.DisableServer(ctx, "", "10.0.0.1"))
	is("/ns/a/servers/10.0.0.1", "DISABLED")
	is("/ns/b/servers/10.0.0.1", "DISABLED")
	if s, err := r.Shards(ctx, "a"); err != nil || !slices.Equal(s.DisabledServers, []string{"10.0.0.1", "10.0.0.2"}) {
		t.Errorf("shards %+v, %v", s, err)
	}
	do(r.EnableServer(ctx, "", "10.0.0.1"))
	is("/ns/b/servers/10.0.0.1", "ENABLED")
	do(r.Disable(ctx, ""))
	is("/ns/b/servers/10.0.0.2", "DISABLED")
	do(r.Enable(ctx, "a"))
	is("/ns/a/servers/10.0.0.2", "ENABLED")
	is("/ns/b/servers/10.0.0.2", "DISABLED")
	do(r.DisableItem(ctx, "a", 1))
	there("/ns/a/sharding/1/disabled", true)
	do(r.EnableItem(ctx, "a", 1))
	there("/ns/a/sharding/1/disabled", false)
	do(r.Trigger(ctx, "a"))
	there("/ns/a/trigger/10.0.0.1@-@a", true)

	s, err := r.Shards(ctx, "a")
	if err != nil || len(s.Items) != 2 || s.Items[1].Owner != "10.0.0.2@-@a" || s.Items[1].Parameter != "B" || len(s.Instances) != 2 || len(s.Digests) != 2 {
		t.Errorf("shards %+v, %v", s, err)
	}
	jobs, err := r.Jobs(ctx)
	if err != nil || len(jobs) != 2 || jobs[0].Name != "a" || jobs[0].Instances != 2 || jobs[0].ShardingTotalCount != 2 {
		t.Errorf("jobs %+v, %v", jobs, err)
	}

	do(r.Shutdown(ctx, "a", "", "10.0.0.1@-@a"))
	there("/ns/a/instances/10.0.0.1@-@a", false)
	there("/ns/a/instances/10.0.0.2@-@a", true)
	do(r.Shutdown(ctx, "", "10.0.0.2", ""))
	there("/ns/a/instances/10.0.0.2@-@a", false)
	there("/ns/b/instances/10.0.0.2@-@b", false)
	there("/ns/b/instances/10.0.0.1@-@b", true)
	do(r.Remove(ctx, "b", true))
	there("/ns/b", false)
	there("/ns.wasmjob/b/members", false)
	there("/ns.wasmjob/b/wanted", true) // it says that the job is removed
}

func TestRegistrySaysWhatIsNotThere(t *testing.T) {
	t.Parallel()
	r, _ := namespace(t, "a")
	ctx := t.Context()
	for name, c := range map[string]struct {
		err  error
		want string
	}{
		"trigger":           {r.Trigger(ctx, "x"), `namespace ns: there is no job "x"`},
		"shards":            {second(r.Shards(ctx, "x")), `namespace ns: there is no job "x"`},
		"remove":            {r.Remove(ctx, "x", false), `there is no job "x"`},
		"disable":           {r.Disable(ctx, "x"), `there is no job "x"`},
		"server of none":    {r.DisableServer(ctx, "x", "10.0.0.1"), `there is no job "x"`},
		"no such server":    {r.DisableServer(ctx, "a", "10.0.0.7"), "no server 10.0.0.7; there is 10.0.0.1, 10.0.0.2"},
		"no server at all":  {r.EnableServer(ctx, "", "10.0.0.7"), "no server 10.0.0.7; there is 10.0.0.1, 10.0.0.2"},
		"no such instance":  {r.Shutdown(ctx, "a", "", "y"), "no instance y; there is 10.0.0.1@-@a, 10.0.0.2@-@a"},
		"no such item":      {r.DisableItem(ctx, "a", 9), `job "a" has no item 9; there is 0-1`},
		"a name with slash": {r.Trigger(ctx, "a/config"), "without a slash"},
	} {
		if c.err == nil || !strings.Contains(c.err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", name, c.err, c.want)
		}
	}
	if err := r.Trigger(ctx, "x"); !errors.Is(err, engine.ErrNoJob) {
		t.Errorf("not a host.ErrNoJob: %v", err)
	}
	gone := NewRegistry("ns", func() registry.Center { return nil })
	for name, err := range map[string]error{
		"jobs": second(gone.Jobs(ctx)), "shards": second(gone.Shards(ctx, "a")), "server": gone.EnableServer(ctx, "a", "10.0.0.1"), "shutdown": gone.Shutdown(ctx, "", "x", ""),
	} {
		if !errors.Is(err, engine.ErrNotLive) {
			t.Errorf("%s without a session: %v", name, err)
		}
	}
}

func second[T any](_ T, err error) error { return err }

// TestItemsOfJavaHostsHaveNoTimes: what is recorded of an item that a Java host has is
// of a run before.
func TestItemsOfJavaHostsHaveNoTimes(t *testing.T) {
	t.Parallel()
	r, _ := namespace(t, "a")
	const java = "10.0.0.9@-@7"
	put := func(path, value string) registry.Op {
		return registry.Set(path, []byte(value), registry.AnyVersion)
	}
	for i, owner := range []string{java, "10.0.0.2@-@a"} {
		record := "/ns.wasmjob/a/sharding/" + string(rune('0'+i))
		if _, err := r.center().Commit(t.Context(), registry.Ensure(record), put(record, `{"owner":"10.0.0.1@-@a","instant":1000,"begun":1000,"ended":2000,"outcome":"OK"}`),
			put("/ns/a/sharding/"+string(rune('0'+i))+"/instance", owner)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := r.center().Commit(t.Context(), registry.Create("/ns/a/instances/"+java, nil)); err != nil {
		t.Fatal(err)
	}
	s, err := r.Shards(t.Context(), "a")
	if err != nil || len(s.Items) != 2 {
		t.Fatalf("%+v, %v", s, err)
	}
	if i := s.Items[0]; !i.Begun.IsZero() || !i.Ended.IsZero() || i.Outcome != "" {
		t.Errorf("an item of a Java host: %+v", i)
	}
	if i := s.Items[1]; i.Begun.IsZero() || i.Outcome != "OK" {
		t.Errorf("an item of ours: %+v", i)
	}
}

// An item that is to move says since when, and the others say nothing of it.
func TestAnItemThatMovesSaysSinceWhen(t *testing.T) {
	t.Parallel()
	r, _ := namespace(t, "a")
	before := time.Now().Add(-time.Minute)
	if s, err := r.Shards(t.Context(), "a"); err != nil || s.Items[1].Moves || !s.Items[1].MovesSince.IsZero() {
		t.Errorf("nothing moves: %+v, %v", s, err)
	}
	division := "/ns.wasmjob/a/assignment"
	if _, err := r.center().Commit(t.Context(), registry.Ensure(division),
		registry.Set(division, []byte(`{"total":2,"pending":"1"}`), registry.AnyVersion)); err != nil {
		t.Fatal(err)
	}
	s, err := r.Shards(t.Context(), "a")
	if err != nil || s.Items[0].Moves || !s.Items[0].MovesSince.IsZero() || !s.Items[1].Moves {
		t.Fatalf("item 1 moves: %+v, %v", s, err)
	}
	if at := s.Items[1].MovesSince; at.Before(before) || at.After(time.Now().Add(time.Minute)) {
		t.Errorf("it moves since %s", at)
	}
}

// TestRegistry_longSettings: the record of an edit does not make its commit larger than a registry takes.
func TestRegistry_longSettings(t *testing.T) {
	t.Parallel()
	r, _ := namespace(t, "a")
	r = r.LeavingRecords("ann@desk", "")
	for _, letter := range []string{"a", "b"} {
		e := Edit{Version: -1, Settings: map[string]string{"jobParameter": strings.Repeat(letter, 400<<10)}}
		if _, err := r.EditConfig(t.Context(), "a", e); err != nil {
			t.Fatal(err)
		}
	}
}

// TestRegistry_EditConfig: all settings at fault are named, and what changes nothing is not written.
func TestRegistry_EditConfig(t *testing.T) {
	t.Parallel()
	r, _ := namespace(t, "a")
	edit := func(settings map[string]string) (*Edited, error) {
		return r.EditConfig(t.Context(), "a", Edit{Version: -1, Settings: settings})
	}
	_, err := edit(map[string]string{"cron": "0 61 * * * ?", "discription": "x", "retry.attempts": "-1", "description": "fine"})
	for _, want := range []string{"cron: ", `discription: is no setting that can be edited; did you mean "description"?`, "retry.attempts: "} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in %v", want, err)
		}
	}
	first, err := edit(map[string]string{"timeout": "5m"})
	if err != nil || first.Unchanged() || first.After.Version == first.Before.Version {
		t.Fatalf("%+v, %v", first, err)
	}
	again, err := edit(map[string]string{"timeout": "300s"})
	if err != nil || !again.Unchanged() || again.After.Version != first.After.Version {
		t.Errorf("%+v, %v", again, err)
	}
	if c, err := r.Config(t.Context(), "a"); err != nil || c.Version != first.After.Version {
		t.Errorf("it was written again: %+v, %v", c, err)
	}
}

// TestRegistry_Config: what the registry knows of where settings come from, without and with a
// definition file that was applied.
func TestRegistry_Config(t *testing.T) {
	t.Parallel()
	r, look := namespace(t, "a")
	comeFrom := func(when string, want map[string]string) {
		t.Helper()
		c, err := r.Config(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		for setting, from := range want {
			if got := c.Origins[setting]; got != (Origin{From: from}) {
				t.Errorf("%s: %s comes from %+v, expected %s", when, setting, got, from)
			}
		}
	}
	edit := func(setting, value string) {
		t.Helper()
		if _, err := r.EditConfig(t.Context(), "a", Edit{Version: -1, Settings: map[string]string{setting: value}}); err != nil {
			t.Fatal(err)
		}
	}

	comeFrom("no file", map[string]string{"cron": FromRegistry, "shardingTotalCount": FromRegistry, "misfire": FromRegistry, "label": FromDefault})
	was, _ := look("/ns/a/config")
	definition := "/ns.wasmjob/a/definition"
	if _, err := r.center().Commit(t.Context(), registry.Ensure(definition), registry.Set(definition, []byte(was), registry.AnyVersion)); err != nil {
		t.Fatal(err)
	}
	comeFrom("a file", map[string]string{"cron": FromFile, "shardingTotalCount": FromFile, "misfire": FromFile, "label": FromDefault})
	edit("cron", "0 0 1 * * ?")
	edit("misfire", "true")
	comeFrom("edits", map[string]string{"cron": FromRegistry, "shardingTotalCount": FromFile, "misfire": FromRegistry, "label": FromDefault})
	edit("cron", "0 0 * * * ?")
	comeFrom("an edit that was taken back", map[string]string{"cron": FromFile})
}

// TestRegistry_EditAsValidated: an edit is refused for what a definition file is refused for, in the same
// words and at the same setting; what was there before, another program wrote.
func TestRegistry_EditAsValidated(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		settings map[string]string
		file     string // the same in a definition
		field    string
	}{
		"failover without marks":    {map[string]string{"failover": "true", "monitorExecution": "false"}, "failover: true\nmonitorExecution: false\n", "failover"},
		"no such item":              {map[string]string{"shardingItemParameters": "0=A,1=B,9=Z"}, "shardingItemParameters: 0=A,1=B,9=Z\n", "shardingItemParameters"},
		"fewer items":               {map[string]string{"shardingTotalCount": "1"}, "shardingTotalCount: 1\nshardingItemParameters: 0=A,1=B\n", "shardingItemParameters"},
		"two parameters":            {map[string]string{"shardingItemParameters": "0=A,0=B"}, "shardingItemParameters: 0=A,0=B\n", "shardingItemParameters"},
		"a setting of another type": {map[string]string{"type": "SIMPLE", "streamingProcess": "true"}, "type: SIMPLE\nstreamingProcess: true\n", "streamingProcess"},
		"an unknown need":           {map[string]string{"needs": `["foo"]`}, "needs: [foo]\n", "needs"},
		"pauses that shrink":        {map[string]string{"retry.backoff": "5s", "retry.maxBackoff": "1s"}, "retry: {backoff: 5s, maxBackoff: 1s}\n", "retry.maxBackoff"},
		"a bad cron":                {map[string]string{"cron": "0 61 * * * ?"}, "cron: 0 61 * * * ?\n", "cron"},
		"a bad zone":                {map[string]string{"timeZone": "Mars"}, "timeZone: Mars\n", "timeZone"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if !strings.Contains(c.file, "shardingTotalCount") {
				c.file += "shardingTotalCount: 2\n"
			}
			var refused *definition.Error
			if _, err := definition.Parse("a.yaml", []byte(c.file)); !errors.As(err, &refused) || len(refused.Problems) != 1 || refused.Problems[0].Field != c.field {
				t.Fatalf("as a file: %v", err)
			}
			r, look := namespace(t, "a")
			before, _ := look("/ns/a/config")
			for _, preview := range []bool{true, false} {
				_, err := r.EditConfig(t.Context(), "a", Edit{Version: -1, Settings: c.settings, Preview: preview})
				var f *jobconfig.FieldError
				if !errors.As(err, &f) || f.Field != c.field || f.Problem != refused.Problems[0].Message || strings.Count(err.Error(), f.Problem) != 1 {
					t.Errorf("preview %t: %v, expected %s: %s", preview, err, c.field, refused.Problems[0].Message)
				}
			}
			if now, _ := look("/ns/a/config"); now != before {
				t.Errorf("it was written:\n%s", now)
			}
		})
	}
	r, look := namespace(t, "a")
	other := "cron: 0 0 * * * ?\nfailover: true\njobName: a\nmonitorExecution: false\nshardingItemParameters: 0=A,9=Z\nshardingTotalCount: 2\n"
	if _, err := r.center().Commit(t.Context(), registry.Set("/ns/a/config", []byte(other), registry.AnyVersion)); err != nil {
		t.Fatal(err)
	}
	if _, err := r.EditConfig(t.Context(), "a", Edit{Version: -1, Settings: map[string]string{"description": "x"}}); err != nil {
		t.Errorf("what was there before: %v", err)
	}
	if now, _ := look("/ns/a/config"); !strings.Contains(now, "description: x") || !strings.Contains(now, "9=Z") {
		t.Error(now)
	}
}

// TestRegistry_EditOnHost: on a host an edit is refused for what that host would refuse to run, if the edit brings it.
func TestRegistry_EditOnHost(t *testing.T) {
	t.Parallel()
	r, look := namespace(t, "a")
	on := r.OnHost(nil, func(c jobconfig.Configuration) (problems []*jobconfig.FieldError) {
		if c.ShardingTotalCount > 10 {
			problems = append(problems, &jobconfig.FieldError{Field: "shardingTotalCount", Problem: fmt.Sprintf("found %d, expected less", c.ShardingTotalCount)})
		}
		return problems
	})
	before, _ := look("/ns/a/config")
	for _, preview := range []bool{true, false} {
		_, err := on.EditConfig(t.Context(), "a", Edit{Version: -1, Settings: map[string]string{"shardingTotalCount": "11"}, Preview: preview})
		if f := (*jobconfig.FieldError)(nil); !errors.As(err, &f) || f.Field != "shardingTotalCount" || f.Problem != "found 11, expected less" {
			t.Errorf("preview %t: %v", preview, err)
		}
	}
	if now, _ := look("/ns/a/config"); now != before {
		t.Errorf("it was written:\n%s", now)
	}
	for _, edit := range []struct {
		r    *Registry
		name string
		text string
		ok   bool
	}{
		{r, "shardingTotalCount", "12", true}, // as on a host that may have as many
		{on, "description", "x", true},
		{on, "shardingTotalCount", "11", false},
		{on, "shardingTotalCount", "3", true},
	} {
		if _, err := edit.r.EditConfig(t.Context(), "a", Edit{Version: -1, Settings: map[string]string{edit.name: edit.text}}); (err == nil) != edit.ok {
			t.Errorf("%s=%s: %v", edit.name, edit.text, err)
		}
	}
}

// TestRegistry_EditToDefault: an empty value takes a setting back to the default that it has in a definition file.
func TestRegistry_EditToDefault(t *testing.T) {
	t.Parallel()
	r, _ := namespace(t, "a")
	edit := func(r *Registry, name, value string) *Edited {
		t.Helper()
		e, err := r.EditConfig(t.Context(), "a", Edit{Version: -1, Settings: map[string]string{name: value}})
		if err != nil {
			t.Fatalf("%s=%s: %v", name, value, err)
		}
		return e
	}
	edit(r, "timeout", "5s")
	list, err := definition.Parse("a.yaml", []byte("shardingTotalCount: 2\n"))
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range operate.Editable() {
		if s.Required {
			continue
		}
		if got, want := edit(r, s.Name, "").After.Settings[s.Name], operate.Text(s, list[0].Configuration); got != want {
			t.Errorf("%s: %q, expected %q", s.Name, got, want)
		}
	}
	config, err := r.Config(t.Context(), "a")
	for name, o := range config.Origins {
		if err != nil || (o.From != FromDefault && name != "shardingTotalCount") {
			t.Errorf("%s comes from %+v, %v", name, o, err)
		}
	}
	edit(r, "retry.backoff", "1h")
	if e := edit(r, "retry.maxBackoff", ""); e.After.Settings["retry.maxBackoff"] != "1h0m0s" {
		t.Errorf("the longest pause is %s, below the first", e.After.Settings["retry.maxBackoff"])
	}
	if e := edit(r, "timeout", "0"); e.After.Settings["timeout"] != "0s" {
		t.Errorf("no limit is %s", e.After.Settings["timeout"])
	}
	within := r.OnHost(ceiling.List{{Jobs: "*", Values: map[ceiling.Name]int64{ceiling.Timeout: int64(time.Minute)}}}, r.refuses)
	if e := edit(within, "timeout", ""); e.After.Settings["timeout"] != "1m0s" {
		t.Errorf("within a ceiling of 1m the default is %s", e.After.Settings["timeout"])
	}
	if _, err := r.EditConfig(t.Context(), "a", Edit{Version: -1, Settings: map[string]string{"shardingTotalCount": ""}}); err == nil || !strings.Contains(err.Error(), "expected a whole number") {
		t.Errorf("what has no default: %v", err)
	}
}
