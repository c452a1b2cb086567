package e2e_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/tree"
	view "github.com/wasmjob/wasmjob/host/control/cluster"
	"github.com/wasmjob/wasmjob/host/event"
	"github.com/wasmjob/wasmjob/host/history"
)

// TestAudit: what a command does in ZooKeeper itself, and what another program writes there, has one record
// each, which every host shows; what a host was asked for has its own alone.
func TestAudit(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.job("manual", "shardingTotalCount: 3")
	a, b, d := c.add(), c.add(), c.add()
	instances := make(map[*member]string)
	for _, m := range []*member{a, b, d} {
		instances[m] = m.of("manual", 0, assigned(1)).Host
	}
	l := tree.NewLayout(c.ns, "manual")
	zk := c.session("")
	commit := func(ops ...registry.Op) {
		t.Helper()
		for _, op := range ops { // each is a request of its own, as ElasticJob's are
			if _, err := zk.Commit(t.Context(), op); err != nil {
				t.Fatal(err)
			}
		}
	}
	var want []string
	records := func(more ...string) {
		t.Helper()
		want = append(want, more...)
		var got []string
		for limit := time.Now().Add(patience); ; {
			got = nil
			found := decoded[view.Found[history.Change]](t, b.place.must("access", "audit", "manual", "--json")).Records
			slices.SortStableFunc(found, func(x, y history.Change) int { return x.Time.Compare(y.Time) })
			for _, r := range found {
				if r.What == "create" {
					continue
				}
				if r.Item != nil {
					r.What += fmt.Sprint(" item ", *r.Item)
				}
				who, user, _ := strings.Cut(r.Who, " (")
				if who == "host token" && !strings.Contains(user, "@") {
					t.Errorf("%q does not name the command's user", r.Who)
				}
				who, _, _ = strings.Cut(who, "@")
				if r.From == event.FromRegistry && r.Who != "the registry" {
					who = "command"
				}
				got = append(got, strings.TrimSpace(fmt.Sprintf("%s %s, by %s %s", r.What, r.Host, who, r.Why)))
			}
			if len(got) >= len(want) || time.Now().After(limit) {
				break
			}
		}
		if !slices.Equal(got, want) {
			t.Fatalf("the audit has\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
	ended := func(from map[*member]int) {
		t.Helper()
		for _, m := range []*member{a, b, d} {
			m.of("manual", from[m], kind(event.FireEnded))
		}
	}

	c.divided("manual", a, b, d) // so that each has an item to run
	from := marks(a, b, d)
	a.place.must("job", "run", "manual", "--reason", "by a host")
	ended(from)
	records("trigger , by host token by a host")

	from = marks(a, b, d)
	c.registry("job", "run", "manual", "--reason", "no host answers")
	ended(from)
	records("trigger , by command no host answers")
	c.registry("job", "pause", "manual", "--server", b.ip, "--reason", "new disk")
	records("disable " + b.ip + ", by command new disk")
	c.registry("job", "resume", "manual", "--server", b.ip)
	records("enable " + b.ip + ", by command")
	c.registry("job", "edit", "manual", "description=by hand", "--reason", "a note")
	records("edit description , by command a note")

	// ElasticJob's console triggers a job, and disables a server.
	c.divided("manual", a, b, d)
	from = marks(a, b, d)
	commit(registry.Delete(l.Triggers(), registry.AnyVersion), registry.Create(l.Triggers(), nil))
	for _, m := range []*member{a, b, d} {
		commit(registry.Create(l.Trigger(instances[m]), nil))
	}
	ended(from)
	records("trigger , by the registry")
	commit(registry.Set(l.Server(d.ip), []byte(tree.Disabled), registry.AnyVersion))
	records("disable " + d.ip + ", by the registry")
	commit(registry.Set(l.Server(d.ip), []byte(tree.Enabled), registry.AnyVersion))
	records("enable " + d.ip + ", by the registry")

	// An item is disabled: its owner sees that when it is to run.
	commit(registry.Create(l.ItemDisabled(0), nil))
	c.registry("job", "run", "manual")
	records("trigger , by command", "disable item 0 , by the registry")

	commit(registry.Delete(l.ItemDisabled(0), registry.AnyVersion)) // which its owner watches
	records("enable item 0 , by the registry")
	from = marks(a, b, d)
	c.registry("job", "run", "manual")
	records("trigger , by command")

	// An instance is stopped, and the job is removed.
	commit(registry.Delete(l.Instance(instances[d]), registry.AnyVersion))
	d.of("manual", from[d], kind(event.JobStopped))
	records("shutdown " + instances[d] + ", by the registry")
	c.registry("job", "remove", "manual", "--purge", "--reason", "it is over")
	for _, m := range []*member{a, b} {
		m.of("manual", from[m], kind(event.JobRemoved))
	}
	records("remove , by command it is over")
}
