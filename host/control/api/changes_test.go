package api

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/tree"
	"github.com/wasmjob/wasmjob/host/control/admin"
	"github.com/wasmjob/wasmjob/host/control/cluster"
	"github.com/wasmjob/wasmjob/host/control/service/servicetest"
	"github.com/wasmjob/wasmjob/host/engine"
	"github.com/wasmjob/wasmjob/host/history"
)

// recording is three hosts of a job on one registry, and what their histories have of it.
type recording struct {
	t      *testing.T
	server []*served
	layout tree.Layout
}

func record(t *testing.T) *recording { return recordOf(t, servicetest.OK) }

func recordOf(t *testing.T, run servicetest.Function) *recording {
	registry := servicetest.NewServer(t)
	r := &recording{t: t, layout: tree.NewLayout(servicetest.Namespace, "cities")}
	for n := range 3 {
		jobs := []engine.Job{servicetest.Job("cities", "0 0 1 1 1 ?", 6, run)}
		r.server = append(r.server, serve(t, servicetest.Options{Server: registry, IP: fmt.Sprint("10.0.0.", n+1), Jobs: jobs}))
	}
	return r
}

// changes are the records of all hosts, but that of the job's creation, as one line each.
func (r *recording) changes() (list []string) {
	r.t.Helper()
	var all []history.Change
	for _, s := range r.server {
		page, err := s.Store.Changes(r.t.Context(), history.Filter{Jobs: []string{"cities"}})
		if err != nil {
			r.t.Fatal(err)
		}
		all = append(all, page.Records...)
	}
	slices.SortStableFunc(all, func(a, b history.Change) int { return a.Time.Compare(b.Time) })
	for _, c := range all {
		if c.What == "create" {
			continue
		}
		line := c.What
		if c.Item != nil {
			line += fmt.Sprint(" item ", *c.Item)
		}
		if c.Host != "" {
			line += " host " + c.Host
		}
		line += " by " + strings.TrimPrefix(c.Who, `"`)
		if c.Before+c.After != "" {
			line += fmt.Sprintf(" %s->%s", c.Before, c.After)
		}
		if c.Why != "" {
			line += " because " + c.Why
		}
		list = append(list, line)
	}
	return list
}

// commit writes as another program does.
func (r *recording) commit(ops ...registry.Op) {
	r.t.Helper()
	for _, op := range ops { // ElasticJob makes each a request
		if _, err := r.server[0].Center().Commit(r.t.Context(), op); err != nil {
			r.t.Fatal(err)
		}
	}
}

// until waits for the records; one too many of a step fails the next.
func (r *recording) until(want ...string) {
	r.t.Helper()
	var got []string
	r.server[0].Until("the records", func() bool {
		for _, s := range r.server {
			s.Host.FullStatus() // a host looks then which items are disabled
		}
		got = r.changes()
		return len(got) >= len(want)
	})
	if !slices.Equal(got, want) {
		r.t.Fatalf("the records are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// instance is the id of a host for the job.
func (r *recording) instance(ip string) string {
	r.t.Helper()
	n, err := r.server[0].Center().Read(r.t.Context(), registry.Children(r.layout.Instances()))
	if err != nil {
		r.t.Fatal(err)
	}
	for _, id := range n[0].Names {
		if strings.HasPrefix(id, ip+"@-@") {
			return id
		}
	}
	r.t.Fatalf("%s has no instance among %v", ip, n[0].Names)
	return ""
}

// fires waits until so many fires have ended on all hosts together.
func (r *recording) fires(n int) {
	r.t.Helper()
	r.server[0].Until(fmt.Sprint(n, " fires"), func() bool {
		ended := 0
		for _, s := range r.server {
			page, err := s.Store.Fires(r.t.Context(), history.Filter{Jobs: []string{"cities"}})
			if err != nil {
				r.t.Fatal(err)
			}
			ended += len(page.Records)
		}
		return ended >= n
	})
}

// TestChangesAreRecordedOnce: who changed a job has one record for all hosts that see it, whether it was a
// request, a command that asked the registry itself, or another program.
func TestChangesAreRecordedOnce(t *testing.T) {
	t.Parallel()
	request := func(r *recording, method, path, body string) {
		r.t.Helper()
		if w := r.server[0].ask(method, path, body); w.code >= 300 {
			r.t.Fatalf("%d %s", w.code, w.body)
		}
	}
	command := func(r *recording, do func(ctx context.Context, c *admin.Registry) error) {
		r.t.Helper()
		if err := do(r.t.Context(), admin.NewRegistry(servicetest.Namespace, r.server[0].Center).LeavingRecords("ann@desk", "a test")); err != nil {
			r.t.Fatal(err)
		}
	}
	t.Run("trigger", func(t *testing.T) {
		t.Parallel()
		r := record(t)
		l := r.layout
		request(r, "POST", "/v1/jobs/cities/trigger?reason=now", "")
		r.fires(3)
		r.until("trigger by host token because now")
		command(r, func(ctx context.Context, c *admin.Registry) error { return c.Trigger(ctx, "cities") })
		r.fires(6)
		r.until("trigger by host token because now", "trigger by ann@desk because a test")
		// As ElasticJob does: the subtree is deleted and created again.
		r.commit(registry.Delete(l.Triggers(), registry.AnyVersion), registry.Create(l.Triggers(), nil))
		for n := range 3 {
			r.commit(registry.Create(l.Trigger(r.instance(fmt.Sprint("10.0.0.", n+1))), nil))
		}
		r.fires(9)
		r.until("trigger by host token because now", "trigger by ann@desk because a test", "trigger by the registry")
		// A node that somebody makes.
		second := r.instance("10.0.0.2")
		r.commit(registry.Create(l.Trigger(second), nil))
		r.fires(10)
		r.until("trigger by host token because now", "trigger by ann@desk because a test", "trigger by the registry", "trigger host "+second+" by the registry")
		command(r, func(ctx context.Context, c *admin.Registry) error { return c.Disable(ctx, "cities") })
		var disabled []history.Change
		r.server[1].Until("the disable is on record", func() bool {
			disabled = get[cluster.Found[history.Change]](r.server[1], "/v1/audit?job=cities&what=disable").Records
			return len(disabled) > 0
		})
		if disabled[0].Trigger != 0 {
			t.Errorf("the disable has the number of a trigger: %+v", disabled[0])
		}
		// Each is found by its number, which its fire has.
		rounds := make(map[int64]bool)
		for _, f := range get[cluster.Found[history.Fire]](r.server[1], "/v1/fires?job=cities").Records {
			rounds[f.Trigger] = true
		}
		var by []string
		for _, round := range slices.Sorted(maps.Keys(rounds)) {
			for _, c := range get[cluster.Found[history.Change]](r.server[1], fmt.Sprint("/v1/audit?job=cities&trigger=", round)).Records {
				by = append(by, fmt.Sprint(rounds[c.Trigger], " ", strings.TrimPrefix(c.Who, `"`), " ", c.Host))
			}
		}
		if want := []string{"true host token ", "true ann@desk ", "true the registry ", "true the registry " + second}; !slices.Equal(by, want) {
			t.Errorf("who triggered is, by their numbers, %q, want %q", by, want)
		}
	})
	t.Run("server", func(t *testing.T) {
		t.Parallel()
		r := record(t)
		disabled := func(ip string, is bool) {
			t.Helper()
			r.server[0].Until("the host sees it", func() bool {
				for _, s := range r.server {
					st := s.Host.Status()
					if st.ServerIP == ip {
						return (st.Jobs[0].State == engine.JobDisabled) == is
					}
				}
				return false
			})
		}
		request(r, "POST", "/v1/jobs/cities/disable?reason=now", "")
		for n := range 3 {
			disabled(fmt.Sprint("10.0.0.", n+1), true)
		}
		command(r, func(ctx context.Context, c *admin.Registry) error { return c.Enable(ctx, "cities") })
		for n := range 3 {
			disabled(fmt.Sprint("10.0.0.", n+1), false)
		}
		r.commit(registry.Set(r.layout.Server("10.0.0.2"), []byte("DISABLED"), registry.AnyVersion))
		disabled("10.0.0.2", true)
		r.commit(registry.Set(r.layout.Server("10.0.0.2"), []byte("ENABLED"), registry.AnyVersion))
		disabled("10.0.0.2", false)
		r.until("disable by host token because now", "enable by ann@desk because a test",
			"disable host 10.0.0.2 by the registry ENABLED->DISABLED", "enable host 10.0.0.2 by the registry DISABLED->ENABLED")
	})
	t.Run("item", func(t *testing.T) {
		t.Parallel()
		r := record(t)
		mark := r.layout.ItemDisabled(1)
		disabled := func(is bool) {
			t.Helper()
			r.server[0].Until("the owner sees it", func() bool {
				for _, s := range r.server {
					for _, i := range s.Host.FullStatus().Jobs[0].Items {
						if i.Item == 1 && i.Disabled == is {
							return true
						}
					}
				}
				return false
			})
		}
		request(r, "POST", "/v1/jobs/cities/items/1/disable?reason=now", "")
		disabled(true)
		command(r, func(ctx context.Context, c *admin.Registry) error { return c.EnableItem(ctx, "cities", 1) })
		disabled(false)
		r.commit(registry.Create(mark, nil))
		disabled(true)
		want := []string{"disable item 1 by host token because now", "enable item 1 by ann@desk because a test", "disable item 1 by the registry ENABLED->DISABLED"}
		r.until(want...)
		r.commit(registry.Delete(mark, registry.AnyVersion))
		disabled(false)
		r.until(append(want, "enable item 1 by the registry DISABLED->ENABLED")...)
	})
	t.Run("shutdown", func(t *testing.T) {
		t.Parallel()
		r := record(t)
		var want []string
		for n, how := range []func(id string) string{
			func(id string) string {
				request(r, "POST", "/v1/jobs/cities/shutdown?instance="+id+"&reason=now", "")
				return "shutdown host " + id + " by host token because now"
			},
			func(id string) string {
				command(r, func(ctx context.Context, c *admin.Registry) error { return c.Shutdown(ctx, "cities", "", id) })
				return "shutdown host " + id + " by ann@desk because a test"
			},
			func(id string) string {
				r.commit(registry.Delete(r.layout.Instance(id), registry.AnyVersion))
				return "shutdown host " + id + " by the registry"
			},
		} {
			want = append(want, how(r.instance(fmt.Sprint("10.0.0.", n+1))))
			r.server[n].Until("it has stopped", func() bool { return r.server[n].Host.Status().Jobs[0].State == engine.JobStopped })
			r.until(want...)
		}
	})
	for name, remove := range map[string]func(r *recording) string{
		"request": func(r *recording) string {
			request(r, "DELETE", "/v1/jobs/cities?reason=now", "")
			return "remove by host token because now"
		},
		"request with records": func(r *recording) string {
			request(r, "DELETE", "/v1/jobs/cities?purge=true&reason=now", "")
			return "remove by host token ->its records are removed, too because now"
		},
		"command": func(r *recording) string {
			command(r, func(ctx context.Context, c *admin.Registry) error { return c.Remove(ctx, "cities", false) })
			return "remove by ann@desk because a test"
		},
		"command with records": func(r *recording) string {
			command(r, func(ctx context.Context, c *admin.Registry) error { return c.Remove(ctx, "cities", true) })
			return "remove by ann@desk ->its records are removed, too because a test"
		},
		"another program": func(r *recording) string {
			r.erase(r.layout.Root())
			return "remove by the registry"
		},
	} {
		t.Run("remove/"+name, func(t *testing.T) {
			t.Parallel()
			r := record(t)
			want := remove(r)
			for _, s := range r.server {
				s.Until("the job is removed", func() bool { return s.Host.Status().Jobs[0].State == engine.JobRemoved })
			}
			r.until(want)
		})
	}
	t.Run("edit", func(t *testing.T) {
		t.Parallel()
		r := record(t)
		command(r, func(ctx context.Context, c *admin.Registry) error {
			_, err := c.EditConfig(ctx, "cities", admin.Edit{Version: -1, Settings: map[string]string{"cron": "0 0 2 1 1 ?"}})
			return err
		})
		for _, s := range r.server {
			s.Until("it goes by it", func() bool { return s.Host.Status().Jobs[0].Cron == "0 0 2 1 1 ?" })
		}
		r.until(`edit cron by ann@desk {"cron":"0 0 1 1 1 ?"}->{"cron":"0 0 2 1 1 ?"} because a test`)
	})
	t.Run("definition", func(t *testing.T) {
		t.Parallel()
		r := record(t)
		for _, s := range r.server {
			j := servicetest.Job("cities", "0 0 1 1 1 ?", 6, servicetest.OK)
			j.Definition.Disabled = true
			s.Host.Apply([]engine.Job{j}, nil)
		}
		for _, s := range r.server {
			s.Until("it is disabled", func() bool { return s.Host.Status().Jobs[0].State == engine.JobDisabled })
		}
		r.commit(registry.Set(r.layout.Server("10.0.0.2"), []byte("ENABLED"), registry.AnyVersion))
		list := r.changes()
		r.server[0].Until("the records", func() bool { list = r.changes(); return len(list) >= 2 })
		for i, want := range []string{"edit disabled by file", "enable host 10.0.0.2 by the registry"} {
			if len(list) != 2 || !strings.HasPrefix(list[i], want) {
				t.Errorf("the records are\n%s\nwant the edit and the other program's", strings.Join(list, "\n"))
			}
		}
	})
	t.Run("a Java host's server", func(t *testing.T) {
		t.Parallel()
		r := record(t)
		const java = "10.0.0.9@-@7"
		server := r.layout.Server("10.0.0.9")
		r.commit(registry.Create(server, []byte("ENABLED")), registry.CreateEphemeral(r.layout.Instance(java), []byte("jobInstanceId: "+java+"\nserverIp: 10.0.0.9\n")))
		state, list := "ENABLED", []string{}
		r.server[0].Until("the leader, which watches it before long, sees a change", func() bool {
			state = map[string]string{"ENABLED": "DISABLED", "DISABLED": "ENABLED"}[state]
			r.commit(registry.Set(server, []byte(state), registry.AnyVersion))
			list = r.changes()
			return len(list) > 0
		})
		if !strings.Contains(list[0], "able host 10.0.0.9 by the registry ") {
			t.Errorf("the record is %s", list[0])
		}
	})
	t.Run("what is kept", func(t *testing.T) {
		t.Parallel()
		r := record(t)
		offset := admin.Bytes("7")
		command(r, func(ctx context.Context, c *admin.Registry) error {
			_, err := c.ChangeKept(ctx, "cities", 1, admin.KeptChange{Offset: &offset})
			return err
		})
		r.until("change what is kept item 1 by ann@desk ->set the offset, 1 bytes because a test")
	})
}

// erase deletes a node and all below it, node by node, as ElasticJob's console does.
func (r *recording) erase(path string) {
	r.t.Helper()
	n, err := r.server[0].Center().Read(r.t.Context(), registry.Children(path))
	if err != nil {
		r.t.Fatal(err)
	}
	for _, name := range n[0].Names {
		r.erase(path + "/" + name)
	}
	_, err = r.server[0].Center().Commit(r.t.Context(), registry.Delete(path, registry.AnyVersion))
	if err != nil && !strings.Contains(err.Error(), "does not exist") {
		r.t.Fatal(err)
	}
}

// TestKillsAndReleasesAreRecorded: a kill says which runs were to end, and what did nothing is on no record, whether a
// host was asked or the registry.
func TestKillsAndReleasesAreRecorded(t *testing.T) {
	t.Parallel()
	r := recordOf(t, servicetest.Wait)
	direct := admin.NewRegistry(servicetest.Namespace, r.server[0].Center).LeavingRecords("ann@desk", "a test")
	kill := func(by func(context.Context, string, admin.KillOptions, func(*admin.Kills)) (*admin.Kills, error), item int) *admin.Kills {
		t.Helper()
		kills, err := by(t.Context(), "cities", admin.KillOptions{Item: item, Wait: time.Minute}, nil)
		if err != nil || kills.Open() > 0 {
			t.Fatalf("%+v, %v", kills, err)
		}
		return kills
	}
	release := func(by func(context.Context, string, int) (tree.Items, error)) tree.Items {
		t.Helper()
		items, err := by(t.Context(), "cities", -1)
		if err != nil {
			t.Fatal(err)
		}
		return items
	}
	trigger := func() (fire string) {
		t.Helper()
		round, err := r.server[0].client.TriggerWith(t.Context(), "cities", tree.TriggerArgs{})
		if err != nil {
			t.Fatal(err)
		}
		fire = fmt.Sprint("cities/t", round.Trigger)
		r.server[0].Until("all items run", func() bool {
			s, err := direct.Shards(t.Context(), "cities")
			if err != nil {
				t.Fatal(err)
			}
			return !slices.ContainsFunc(s.Items, func(i admin.Shard) bool { return i.RunningOn == "" })
		})
		return fire
	}

	kill(r.server[0].client.Kill, -1)
	kill(direct.Kill, -1)
	release(r.server[0].client.Release)
	release(direct.Release)
	first := trigger()
	want := []string{"trigger by host token"}
	r.until(want...)

	kill(r.server[0].client.Kill, -1)
	want = append(want, "kill by host token ->"+first+" items 0-5")
	r.until(want...)
	second := trigger()
	kill(direct.Kill, 2)
	want = append(want, "trigger by host token", "kill item 2 by ann@desk ->"+second+"/2 because a test")
	r.until(want...)
	kill(r.server[0].client.Kill, -1)
	want = append(want, "kill by host token ->"+second+" items 0-1,3-5")
	r.until(want...)

	data, _ := r.server[0].Look(r.layout.Record(4))
	r.commit(registry.Set(r.layout.Record(4), tree.ParseRecord([]byte(data)).Hold(time.Now().UnixMilli()).Data(), registry.AnyVersion))
	for range 2 {
		release(r.server[0].client.Release)
	}
	r.until(append(want, "release by host token")...)
}
