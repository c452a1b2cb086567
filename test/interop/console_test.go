//go:build interop

package interop_test

import (
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/event"
	"github.com/wasmjob/wasmjob/test/interop/peer"
)

// What the lifecycle API answers with.
type (
	briefJob struct {
		JobName, Status, Description, Cron string
		InstanceCount, ShardingTotalCount  int
	}
	briefServer struct {
		ServerIP              string `json:"serverIp"`
		Instances, JobNames   []string
		InstancesNum, JobsNum int
		DisabledJobsNum       int
	}
	itemInfo struct {
		Item       int
		ServerIP   string `json:"serverIp"`
		InstanceID string `json:"instanceId"`
		Status     string
		Failover   bool
	}
)

func (c *cluster) brief() (b *briefJob) {
	c.t.Helper()
	c.console("job", nil, &b)
	return b
}

// status demands the status that the API gives the job.
func (c *cluster) status(want string) {
	c.t.Helper()
	if b := c.brief(); b == nil || b.Status != want {
		c.t.Errorf("the API says of the job: %+v; want status %s", b, want)
	}
}

func (c *cluster) sharding() (list []itemInfo) {
	c.t.Helper()
	c.console("sharding", nil, &list)
	return list
}

// states demands what the API says of the items, in their order, and that it
// names the owners.
func (c *cluster) states(want ...string) {
	c.t.Helper()
	list := c.sharding()
	var got []string
	for _, i := range list {
		got = append(got, i.Status)
	}
	if !slices.Equal(got, want) {
		c.t.Errorf("the API says of the items: %v, want %v", got, want)
	}
	c.now(func(v *view) {
		owners := v.owners(len(list))
		for i, info := range list {
			ip, _, _ := strings.Cut(owners[i], "@-@")
			if info.Item != i || info.InstanceID != owners[i] || info.ServerIP != ip {
				c.t.Errorf("the API says of item %d: %+v, but its owner is %s", i, info, owners[i])
			}
		}
	})
}

func every(state string, n int) []string { return slices.Repeat([]string{state}, n) }

// TestConsoleShows: jobs, servers and items as ElasticJob's API lists them,
// while nothing runs and while all items do.
func TestConsoleShows(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "shown")
	a := c.start(definition(4, "description: for all to see"))
	b := c.start(definition(4, "description: for all to see"))
	c.divided(4, 2)

	want := briefJob{"shown", "OK", "for all to see", never, 2, 4}
	if got := c.brief(); got == nil || *got != want {
		t.Errorf("job: %+v, want %+v", got, want)
	}
	var jobs []briefJob
	c.console("jobs", peer.Request{"job": ""}, &jobs)
	if len(jobs) != 1 || jobs[0] != want {
		t.Errorf("jobs: %+v, want %+v: ours keep no other node where Java looks for jobs", jobs, want)
	}
	var n int
	c.console("count jobs", peer.Request{"job": ""}, &n)
	if n != 1 {
		t.Errorf("%d jobs, want 1", n)
	}
	c.console("jobs", peer.Request{"job": "", "ip": a.ip}, &jobs)
	if len(jobs) != 1 || jobs[0].Status != "OK" || jobs[0].InstanceCount != 1 {
		t.Errorf("jobs of %s: %+v, want one, OK, with 1 instance", a.ip, jobs)
	}
	var servers []briefServer
	c.console("servers", peer.Request{"job": ""}, &servers)
	if len(servers) != 2 {
		t.Fatalf("servers: %+v, want 2", servers)
	}
	for i, o := range []*ours{a, b} {
		s := servers[i]
		if s.ServerIP != o.ip || s.InstancesNum != 1 || s.JobsNum != 1 || s.DisabledJobsNum != 0 || !slices.Equal(s.JobNames, []string{"shown"}) {
			t.Errorf("server: %+v, want %s with 1 instance and the job", s, o.ip)
		}
	}
	c.console("count servers", peer.Request{"job": ""}, &n)
	if n != 2 {
		t.Errorf("%d servers, want 2", n)
	}

	c.states(every("PENDING", 4)...)
	a.hold()
	b.hold()
	mark := c.log.Mark()
	c.console("trigger", nil, nil)
	c.begun(mark, items(4)...)
	c.states(every("RUNNING", 4)...)
	a.release()
	b.release()
	c.ended(mark, items(4)...)
	c.until("quiet", func(v *view) bool { return v.idle(4) })
	c.once(mark, 4, items(4)...)
	c.states(every("PENDING", 4)...)
	c.status("OK")

	// One of ours is killed: until somebody has divided, items of a host that
	// is gone would break the API's page.
	a.Kill()
	c.divided(4, 1)
	c.states(every("PENDING", 4)...)
	b.stop()
	c.until("all instances to be gone", func(v *view) bool { return len(v.children("instances")) == 0 })
	c.status("CRASHED")
}

// TestConsoleEdits: the configuration is read and written by ElasticJob's
// classes, and takes effect on our hosts at once.
func TestConsoleEdits(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "edited")
	a := c.start(definition(3, `shardingItemParameters: "0=hold:go,1=hold:go,2=say"`, "props: {custom: kept}", "timeout: 1m"))
	b := c.start(definition(3, `shardingItemParameters: "0=hold:go,1=hold:go,2=say"`, "props: {custom: kept}", "timeout: 1m"))
	c.divided(3, 2)
	var config map[string]any
	c.console("configuration", nil, &config)
	for key, want := range map[string]any{
		"jobName": "edited", "cron": never, "shardingTotalCount": 3.0, "failover": true, "misfire": false, "monitorExecution": true,
		"jobParameter": "hold:go", "shardingItemParameters": "0=hold:go,1=hold:go,2=say", "disabled": false, "staticSharding": false,
		"props": map[string]any{"custom": "kept", "wasm.timeout": "1m0s"},
	} {
		if m, ok := want.(map[string]any); ok {
			got, _ := config[key].(map[string]any)
			for k, v := range m {
				if got[k] != v {
					t.Errorf("the API reads %s.%s: %v, want %v", key, k, got[k], v)
				}
			}
			continue
		}
		if config[key] != want {
			t.Errorf("the API reads %s: %v, want %v", key, config[key], want)
		}
	}

	update := func(change peer.Request) {
		t.Helper()
		c.console("update configuration", peer.Request{"change": change}, nil)
	}
	c.round(3)
	update(peer.Request{"shardingTotalCount": 5, "shardingItemParameters": ""})
	c.divided(5, 2)
	c.round(5)
	update(peer.Request{"shardingTotalCount": 2})
	c.divided(2, 2)
	c.round(2)
	c.states(every("PENDING", 2)...)

	// A schedule: each instant once over both hosts, then none any more.
	mark, marks := c.log.Mark(), [2]int{a.Mark(), b.Mark()}
	update(peer.Request{"cron": "0/1 * * * * ?"})
	c.runs("three instants", mark, func(list []peer.Run) bool { return len(list) >= 6 })
	update(peer.Request{"cron": never})
	for i, o := range []*ours{a, b} {
		o.await("the schedule to end", marks[i], scheduled(never))
	}
	c.until("quiet", func(v *view) bool { return v.idle(2) })
	once := make(map[string]int)
	for _, o := range []*ours{a, b} {
		for _, e := range o.Events(func(e event.Event) bool { return e.Kind == event.ItemStarted && e.Source == abi.SourceSchedule }) {
			once[e.Instant.Format(time.TimeOnly)+" "+strconv.Itoa(*e.Item)]++
		}
	}
	for run, n := range once {
		if n != 1 {
			t.Errorf("%s ran %d times, want once", run, n)
		}
	}
	if len(once) < 6 {
		t.Errorf("scheduled runs: %v, want those of three instants", slices.Collect(maps.Keys(once)))
	}

	// What no host can use is refused, and the last good one stays in force.
	events := a.Mark()
	update(peer.Request{"cron": "not a cron"})
	a.await("the refusal", events, func(e event.Event) bool { return e.Kind == event.JobError && strings.Contains(e.Reason, "cron") })
	c.round(2)
	update(peer.Request{"cron": never})
	c.round(2)
	c.console("configuration", nil, &config)
	if p, _ := config["props"].(map[string]any); p["custom"] != "kept" || p["wasm.timeout"] != "1m0s" {
		t.Errorf("props after the console wrote them: %v", config["props"])
	}
	c.apart()
}

// TestConsoleDisables: an item, a server, the whole job.
func TestConsoleDisables(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "disabled")
	a := c.start(definition(4))
	b := c.start(definition(4))
	c.divided(4, 2)

	c.console("disable item", peer.Request{"item": "2"}, nil)
	c.states("PENDING", "PENDING", "DISABLED", "PENDING")
	c.round(4, 0, 1, 3)
	c.console("enable item", peer.Request{"item": "2"}, nil)
	c.states(every("PENDING", 4)...)
	c.round(4)

	c.console("disable", peer.Request{"ip": a.ip}, nil)
	c.divided(4, 2)
	c.status("OK")
	var jobs []briefJob
	c.console("jobs", peer.Request{"job": "", "ip": a.ip}, &jobs)
	if len(jobs) != 1 || jobs[0].Status != "DISABLED" {
		t.Errorf("jobs of the disabled server: %+v", jobs)
	}
	var servers []briefServer
	c.console("servers", peer.Request{"job": ""}, &servers)
	if len(servers) != 2 || servers[0].DisabledJobsNum != 1 || servers[1].DisabledJobsNum != 0 {
		t.Errorf("servers while one is disabled: %+v", servers)
	}
	cron := func(text string) {
		t.Helper()
		c.console("update configuration", peer.Request{"change": peer.Request{"cron": text}}, nil)
	}
	mark, events := c.log.Mark(), [2]int{a.Mark(), b.Mark()}
	cron("0/1 * * * * ?")
	c.runs("two instants", mark, func(list []peer.Run) bool { return len(list) >= 8 })
	cron(never)
	for i, o := range []*ours{a, b} {
		o.await("the schedule to end", events[i], scheduled(never))
	}
	c.until("quiet", func(v *view) bool { return v.idle(4) })
	for _, r := range c.log.Runs(c.job, mark) {
		if r.Host == a.Name() {
			t.Errorf("%s, whose server is disabled", r)
		}
	}
	c.console("enable", peer.Request{"job": "", "ip": a.ip}, nil)
	c.divided(4, 2)
	c.round(4)

	c.console("disable", nil, nil)
	c.status("DISABLED")
	events, mark = [2]int{a.Mark(), b.Mark()}, c.log.Mark()
	cron("0/1 * * * * ?")
	for i, o := range []*ours{a, b} {
		o.await("an instant to be skipped", events[i], func(e event.Event) bool {
			return e.Kind == event.FireSkipped && e.Cause == event.SkipDisabled
		})
	}
	cron(never)
	for i, o := range []*ours{a, b} {
		o.await("the schedule to end", events[i], scheduled(never))
	}
	if list := c.log.Runs(c.job, mark); len(list) > 0 {
		t.Errorf("ran while all servers are disabled:\n%s", peer.Text(list))
	}
	c.console("enable", nil, nil)
	c.divided(4, 2)
	c.status("OK")
	c.round(4)
	c.apart()
}

// scheduled is the event that a host goes by another cron expression.
func scheduled(cron string) func(event.Event) bool {
	return func(e event.Event) bool { return e.Kind == event.JobChanged && strings.Contains(e.Reason, cron) }
}

// TestConsoleEnds: dump, the shutdown of an instance while it works, removal of
// a server and of the job.
func TestConsoleEnds(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "ended")
	a := c.start(definition(4))
	port := freePort(t)
	b := c.start(definition(4), "--dump-port", strconv.Itoa(port))
	c.divided(4, 2)

	var dump string
	c.console("dump", peer.Request{"ip": "127.0.0.1", "port": port}, &dump)
	for _, line := range []string{"/ended/config | ", "cron: " + never, "/ended/sharding/0/instance | ip", "/ended/leader/election/instance | ip", "/ended/servers/ip"} {
		if !strings.Contains(dump, line) {
			t.Errorf("the dump has no %q:\n%s", line, dump)
		}
	}
	if strings.Contains(dump, a.ip) {
		t.Errorf("the dump shows an address:\n%s", dump)
	}

	// An instance is shut down while its items run: they end where they are,
	// once, and the next fire is the other host's.
	a.hold()
	b.hold()
	mark := c.log.Mark()
	c.console("trigger", nil, nil)
	c.begun(mark, items(4)...)
	events := a.Mark()
	c.console("shutdown", peer.Request{"ip": a.ip}, nil)
	a.release()
	b.release()
	a.await("to stop", events, func(e event.Event) bool { return e.Kind == event.JobStopped })
	c.ended(mark, items(4)...)
	c.until("quiet", func(v *view) bool { return v.idle(4) })
	c.divided(4, 1)
	if list := c.log.Runs(c.job, mark); len(list) != 4 {
		t.Errorf("%d runs, want each item once, though its host was shut down:\n%s", len(list), peer.Text(list))
	}
	c.round(4)
	var brief briefJob
	if c.console("job", nil, &brief); brief.InstanceCount != 1 || brief.Status != "OK" {
		t.Errorf("the API says after the shutdown: %+v", brief)
	}
	select {
	case <-a.Ended():
		t.Error("the process has ended, too: it may have other jobs")
	default:
	}

	c.console("remove", peer.Request{"ip": a.ip}, nil)
	c.until("the server to be gone", func(v *view) bool { return slices.Equal(v.children("servers"), []string{b.ip}) })
	c.round(4)

	events = b.Mark()
	c.console("remove configuration", nil, nil)
	b.await("to leave the removed job", events, func(e event.Event) bool { return e.Kind == event.JobRemoved || e.Kind == event.JobStopped })
	var gone *briefJob
	if c.console("job", nil, &gone); gone != nil {
		t.Errorf("the API still shows %+v", gone)
	}
	b.stop()
	a.stop()
	c.now(func(v *view) {
		if v.has("") {
			t.Errorf("the removed job has come back:\n%s", c.dump())
		}
	})
	c.apart()
}

// freePort is a port that nobody listens on.
func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, text, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(fmt.Errorf("port %q: %w", text, err))
	}
	return port
}
