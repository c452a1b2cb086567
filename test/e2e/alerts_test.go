package e2e_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/tree"
	"github.com/wasmjob/wasmjob/host/control/service"
	"github.com/wasmjob/wasmjob/host/event"
)

// sent is a message as a webhook gets it.
type sent struct {
	Status, Group string
	Alerts        []struct{ Status, Rule, Job, Text string }
	at            time.Time
}

// pager is who gets the messages of a cluster.
type pager struct {
	t        *testing.T
	messages chan sent
	had      []sent
	url      string
}

func newPager(t *testing.T) *pager {
	t.Helper()
	p := &pager{t: t, messages: make(chan sent, 100)}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var m sent
		if err := json.NewDecoder(r.Body).Decode(&m); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		m.at = time.Now()
		p.messages <- m
	}))
	t.Cleanup(server.Close)
	p.url = server.URL
	return p
}

// await waits for a message with an alert of a rule, about a job or a host.
func (p *pager) await(status, rule, about string) sent {
	p.t.Helper()
	late := time.After(time.Minute)
	for n := 0; ; n++ {
		if n == len(p.had) {
			select {
			case m := <-p.messages:
				p.had = append(p.had, m)
			case <-late:
				p.t.Fatalf("no message that %s of %s is %s: %+v", rule, about, status, p.had)
			}
		}
		for _, a := range p.had[n].Alerts {
			if a.Status == status && a.Rule == rule && (a.Job == about || strings.Contains(a.Text, "host "+about+" ")) {
				return p.had[n]
			}
		}
	}
}

// TestAlertsOutliveTheirSender: a failed run is told, and so are the next one and the dead
// host, when the host that sends the messages is killed. Within which time is asserted where that
// does not depend on a machine: TestDispatcher_promptly in host/alert/keeper.
func TestAlertsOutliveTheirSender(t *testing.T) {
	t.Parallel()
	c, ops := newCluster(t), newPager(t)
	c.place.put("alerts.yaml", fmt.Appendf(nil, "receivers:\n  ops: {webhook: {url: %q}}\nroutes:\n  - {name: all, to: ops, wait: 0s}\n", ops.url))
	c.job("bad", "shardingTotalCount: 1", `jobParameter: "fail"`)
	c.job("worse", "shardingTotalCount: 1", `jobParameter: "fail"`)
	alerts := []string{"--alerts", c.path("alerts.yaml")}
	a, b := c.add(alerts...), c.add(alerts...)
	b.of("bad", 0, kind(event.JobAdded))
	b.of("worse", 0, kind(event.JobAdded))

	begun := time.Now()
	a.must("job", "run", "bad")
	t.Logf("a message %s after the trigger of a run that fails", ops.await("firing", "failures", "bad").at.Sub(begun).Round(time.Millisecond))

	keeper, other := a, b
	if _, metrics := b.get("/metrics"); strings.Contains(metrics, "\nwasmjob_alerts_keeper 1\n") {
		keeper, other = b, a
	}
	if _, metrics := keeper.get("/metrics"); !strings.Contains(metrics, "\nwasmjob_alerts_keeper 1\n") {
		t.Fatalf("no host sends alerts:\n%s", metrics)
	}
	other.must("alert", "silence", "bad", "--for", "1h", "--reason", "it is known")
	killed := time.Now()
	keeper.kill()
	other.must("job", "run", "worse")
	t.Logf("a message %s after the host that sends them was killed, with a session of %s", ops.await("firing", "failures", "worse").at.Sub(killed).Round(time.Millisecond), clusterSession)
	ops.await("firing", "hostGone", keeper.ip)

	for _, args := range [][]string{{"--json"}, {"--json", "--registry", "zookeeper://" + c.zk, "--namespace", c.ns}} {
		list := decoded[service.Alerts](t, other.must(append([]string{"alert", "list"}, args...)...))
		if len(list.Alerts) != 3 || len(list.Silences) != 1 || list.Silences[0].Why != "it is known" {
			t.Errorf("%v: %+v", args, list)
		}
	}
	id := decoded[service.Alerts](t, other.must("alert", "list", "--json")).Silences[0].ID
	other.must("alert", "unsilence", id)
	if list := decoded[service.Alerts](t, other.must("alert", "list", "--json")); len(list.Silences) != 0 {
		t.Errorf("silences %+v", list.Silences)
	}
	other.place.refused(1, []string{"there is no silence"}, "alert", "unsilence", id)
}

// TestHostWithoutJobsStops: a host that has nothing to end stops in good order all the same:
// the others do not report it as gone.
func TestHostWithoutJobsStops(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.place.put("alerts.yaml", []byte("receivers:\n  ops: {webhook: {url: \"http://127.0.0.1:9\"}}\nroutes:\n  - {name: all, to: ops}\n"))
	m, hosts := c.add("--alerts", c.path("alerts.yaml")), registry.Children(tree.AlertsOf(c.ns).Hosts())
	watched, end := context.WithCancel(t.Context())
	defer end()
	seen, err := c.session("").Watch(watched, hosts)
	if err != nil {
		t.Fatal(err)
	}
	for snapshot := range seen {
		if len(snapshot[hosts].Names) == 1 {
			break
		}
	}
	m.stop()
	if n, err := c.session("").Read(t.Context(), hosts); err != nil || len(n) != 1 || len(n[0].Names) != 0 {
		t.Errorf("%+v, %v: it is listed as one that has not stopped", n, err)
	}
}
