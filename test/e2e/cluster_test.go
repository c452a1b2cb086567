package e2e_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/coordination/admin/inspect"
	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/registry/zookeeper"
	"github.com/wasmjob/wasmjob/coordination/tree"
	"github.com/wasmjob/wasmjob/host/control/admin"
	"github.com/wasmjob/wasmjob/host/engine"
	"github.com/wasmjob/wasmjob/host/event"
	"github.com/wasmjob/wasmjob/host/history/verify"
	"github.com/wasmjob/wasmjob/test/zkserver"
)

// clusterSession is the session timeout of hosts that are going to be killed.
const clusterSession = 3 * time.Second

// ensemble is one real ZooKeeper server that all tests share; each has a
// namespace of its own.
func ensemble(t *testing.T) string {
	t.Helper()
	return string(read(t, made(t, "zookeeper.address", func(ctx context.Context, path string) error {
		e, err := zkserver.Start(ctx, zkserver.Options{Dir: path + ".d", TickTime: 200 * time.Millisecond, NoSync: true})
		if err != nil {
			return err
		}
		artefacts.mu.Lock()
		artefacts.closers = append(artefacts.closers, e.Close)
		artefacts.mu.Unlock()
		return os.WriteFile(path, []byte(e.Connect()), 0o600)
	})))
}

// cluster is the hosts of one test, on one namespace of a real ZooKeeper.
type cluster struct {
	*place  // of the commands; its gate is everybody's
	zk, ns  string
	jobs    map[string][]string // definitions, by job
	members []*member
}

// member is one host of a cluster.
type member struct {
	*place
	*process
	ip string
	// flags are those that it was started with. supervised: it is started again when it has ended itself; see revive.
	flags      []string
	supervised bool
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	return &cluster{place: newPlace(t), zk: ensemble(t), ns: "e2e/" + strings.ReplaceAll(t.Name(), "/", "."), jobs: make(map[string][]string)}
}

// job defines a job of the guest for the hosts that are there and that come.
func (c *cluster) job(name string, lines ...string) {
	c.t.Helper()
	c.jobs[name] = lines
	for _, m := range c.members {
		m.place.guestJob(name, lines...)
	}
}

// add starts a host. Its server is 127.0.1.N, N from 1.
func (c *cluster) add(flags ...string) *member {
	c.t.Helper()
	return c.addOf("", flags...)
}

// addOf starts a host of another program; empty is wasmjob.
func (c *cluster) addOf(program string, flags ...string) *member {
	c.t.Helper()
	m := &member{place: newPlace(c.t), ip: fmt.Sprintf("127.0.1.%d", len(c.members)+1)}
	m.place.program = program
	for name, lines := range c.jobs {
		m.place.guestJob(name, lines...)
	}
	m.flags = append(c.flags(m.ip), flags...)
	m.process = m.place.start(m.flags...)
	c.members = append(c.members, m)
	return m
}

// flags are those of every host.
func (c *cluster) flags(ip string) []string {
	args := []string{"--zk", c.zk, "--namespace", c.ns, "--session-timeout", clusterSession.String(), "--server-ip", ip}
	for name := range c.jobs {
		args = append(args, "--mount", name+"="+c.path("gate")+":/gate")
	}
	return args
}

// registry runs a command against the registry itself.
func (c *cluster) registry(args ...string) string {
	c.t.Helper()
	return c.must(append(args, "--registry", "zookeeper://"+c.zk, "--namespace", c.ns)...)
}

// shards is what `wasmjob job items` says of a job.
func (c *cluster) shards(job string) (s admin.Shards) {
	c.t.Helper()
	if err := json.Unmarshal([]byte(c.registry("job", "items", job, "--json")), &s); err != nil {
		c.t.Fatal(err)
	}
	return s
}

// leader splits the members into the job's leader and the others.
func (c *cluster) leader(job string, of ...*member) (leads *member, others []*member) {
	c.t.Helper()
	id := c.shards(job).Leader
	for _, m := range of {
		if strings.HasPrefix(id, m.ip+"@-@") {
			leads = m
		} else {
			others = append(others, m)
		}
	}
	if leads == nil {
		c.t.Fatalf("%q leads %s, and is none of the hosts", id, job)
	}
	return leads, others
}

// assigned: the host was given so many items.
func assigned(n int) test {
	return test{fmt.Sprintf("%d items", n), func(e event.Event) bool { return e.Kind == event.Assigned && len(e.Items) == n }}
}

// session is a session of the test's own, to look at the registry with.
func (c *cluster) session(credentials string) *zookeeper.Session {
	c.t.Helper()
	s, err := zookeeper.Dial(c.t.Context(), zookeeper.Options{Connect: c.zk, SessionTimeout: 30 * time.Second, Credentials: credentials})
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() {
		if err := s.Close(); err != nil {
			c.t.Error(err)
		}
	})
	return s
}

// put makes nodes, "path = value" each.
func (c *cluster) put(s registry.Center, nodes ...string) {
	c.t.Helper()
	for _, n := range nodes {
		path, value, _ := strings.Cut(n, " = ")
		if _, err := s.Commit(c.t.Context(), registry.Ensure(path), registry.Set(path, []byte(value), registry.AnyVersion)); err != nil {
			c.t.Fatal(err)
		}
	}
}

// judge stops the hosts that still run and holds all histories, and what is
// left in the registry, against what is promised.
func (c *cluster) judge(jobs ...string) *verify.Report {
	c.t.Helper()
	var files []string
	for _, m := range c.members {
		select {
		case <-m.ended:
		default:
			m.stop()
		}
		files = append(files, m.history)
	}
	report, err := verify.Files(context.Background(), verify.Options{}, files...)
	if err != nil {
		c.t.Fatal(err)
	}
	for _, f := range report.Findings {
		if f.Class == verify.Violated || strings.Contains(f.Text, "a history is missing") {
			c.t.Errorf("%s: job %s item %d: %s\n%+v", f.Invariant, f.Job, f.Item, f.Text, f.Lines)
		}
	}
	for _, name := range jobs {
		i := slices.IndexFunc(report.Jobs, func(j verify.JobReport) bool { return j.Job == name })
		if i < 0 || report.Jobs[i].Completed == 0 {
			c.t.Errorf("nothing of %s was judged: %+v", name, report.Jobs)
		}
	}
	s := c.session("")
	left, err := verify.Registry(c.t.Context(), s, c.ns)
	if err != nil {
		c.t.Fatal(err)
	}
	for _, f := range left {
		c.t.Errorf("left in the registry: %s: job %s item %d: %s", f.Class, f.Job, f.Item, f.Text)
	}
	for _, name := range jobs {
		l := tree.NewLayout(c.ns, name)
		shards, err := inspect.ReadShards(c.t.Context(), s, l)
		if err != nil {
			c.t.Fatal(err)
		}
		if len(shards.Instances) > 0 {
			c.t.Errorf("instances of %s are left: %+v", name, shards.Instances)
		}
		for _, i := range shards.Items {
			if i.RunningOn != "" || i.Failover || i.Record.Open() {
				c.t.Errorf("item %d of %s is left as %+v", i.Item, name, i)
			}
		}
	}
	return report
}

// everywhere waits until each host has the number of items that is named, from
// its own place on, and returns the places after that.
func everywhere(job string, from map[*member]int, want map[*member]int) map[*member]int {
	after := make(map[*member]int)
	for m, n := range want {
		after[m] = m.of(job, from[m], assigned(n)).at + 1
	}
	return after
}

// marks are the places of the next events.
func marks(members ...*member) map[*member]int {
	list := make(map[*member]int)
	for _, m := range members {
		list[m] = m.mark()
	}
	return list
}

// TestClusterScales: hosts come and go in good order, while a job fires each
// second.
func TestClusterScales(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.job("tick", everySecond, "shardingTotalCount: 6", "failover: true")
	a := c.add()
	a.of("tick", 0, assigned(6))
	a.of("tick", 0, kind(event.FireEnded), outcome(abi.OutcomeOK))
	at := marks(a)
	b := c.add()
	everywhere("tick", at, map[*member]int{a: 3, b: 3})
	at = marks(a, b)
	d := c.add()
	at = everywhere("tick", at, map[*member]int{a: 2, b: 2, d: 2})
	for m, from := range at {
		m.of("tick", from, kind(event.FireEnded), outcome(abi.OutcomeOK))
	}
	if s := c.shards("tick"); len(s.Instances) != 3 || len(s.Digests) != 1 || len(s.Items) != 6 {
		t.Errorf("three hosts, six items, one module are %+v", s)
	}
	at = marks(a, d)
	b.stop()
	at = everywhere("tick", at, map[*member]int{a: 3, d: 3})
	at = everywhereFires(t, at)
	a.stop()
	d.of("tick", at[d], assigned(6))
	d.of("tick", d.mark(), kind(event.FireEnded), outcome(abi.OutcomeOK))
	c.judge("tick")
}

// everywhereFires waits for a whole fire on each host.
func everywhereFires(t *testing.T, from map[*member]int) map[*member]int {
	t.Helper()
	after := make(map[*member]int)
	for m, at := range from {
		after[m] = m.of("tick", at, kind(event.FireEnded), outcome(abi.OutcomeOK)).at + 1
	}
	return after
}

// TestClusterFailsOver: the leader is killed, and then a follower, both with
// items in flight. Each of those items runs again on another host, once, in
// the same fire.
func TestClusterFailsOver(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.job("tick", everySecond, "shardingTotalCount: 6", "failover: true")
	c.job("first", "shardingTotalCount: 6", "failover: true", `jobParameter: "hold:a"`)
	c.job("second", "shardingTotalCount: 6", "failover: true", `jobParameter: "hold:b"`)
	a, b, d := c.add(), c.add(), c.add()
	for _, job := range []string{"first", "second", "tick"} {
		everywhere(job, nil, map[*member]int{a: 2, b: 2, d: 2})
	}
	crash := func(job, gate string, victim *member, rest ...*member) {
		t.Helper()
		at := marks(append(rest, victim)...)
		c.registry("job", "run", job)
		var flying []int
		fire := victim.of(job, at[victim], kind(event.FireStarted))
		for n := range 6 {
			if i := slices.Index(fire.Items, n); i >= 0 {
				victim.of(job, fire.at, kind(event.ItemStarted), item(n))
				flying = append(flying, n)
			}
		}
		for _, m := range rest {
			m.of(job, at[m], kind(event.FireStarted))
		}
		if len(flying) == 0 {
			t.Fatalf("nothing of %s ran on %s", job, victim.ip)
		}
		victim.kill()
		again := make(map[int]*member)
		deadline := time.Now().Add(patience)
		for len(again) < len(flying) && time.Now().Before(deadline) {
			// Whoever takes an item over says so; wait for news of any host.
			news := newsOf(rest)
			for _, m := range rest {
				for _, e := range m.all(job, at[m], kind(event.ItemStarted), source(abi.SourceFailover)) {
					again[*e.Item] = m
				}
			}
			if len(again) < len(flying) {
				waitAny(t, news)
			}
		}
		if got := slices.Sorted(maps.Keys(again)); !slices.Equal(got, flying) {
			t.Fatalf("items %v of %s were in flight, %v run again", flying, job, got)
		}
		c.open(gate)
		for n, m := range again {
			done := m.of(job, at[m], kind(event.ItemCompleted), item(n))
			if done.Outcome != abi.OutcomeOK || done.Trigger != fire.Trigger {
				t.Errorf("item %d of trigger %d is completed as %+v", n, fire.Trigger, done.Event)
			}
		}
	}
	leads, others := c.leader("first", a, b, d)
	crash("first", "a", leads, others...)
	fresh := c.add()
	for _, job := range []string{"second", "tick"} {
		at := map[*member]int{}
		everywhere(job, at, map[*member]int{fresh: 2})
	}
	_, followers := c.leader("second", append(others, fresh)...)
	victim := followers[0]
	rest := slices.DeleteFunc(append(slices.Clone(others), fresh), func(m *member) bool { return m == victim })
	crash("second", "b", victim, rest...)
	everywhereFires(t, marks(rest...))
	c.judge("tick", "first", "second")
}

// newsOf are the channels that are closed when a host has said something more.
func newsOf(members []*member) (list []<-chan struct{}) {
	for _, m := range members {
		m.mu.Lock()
		list = append(list, m.news)
		m.mu.Unlock()
	}
	return list
}

// waitAny waits until one of the channels is closed.
func waitAny(t *testing.T, channels []<-chan struct{}) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	one := make(chan struct{}, len(channels))
	for _, c := range channels {
		go func() { // ends with ctx
			select {
			case <-c:
				one <- struct{}{}
			case <-ctx.Done():
			}
		}()
	}
	select {
	case <-one:
	case <-ctx.Done():
		t.Fatalf("waited %s in vain for news of any host", patience)
	}
}

// TestClusterChangesTotalCount: more and fewer items, from one host's file,
// while all fire.
func TestClusterChangesTotalCount(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.job("tick", everySecond, "shardingTotalCount: 3", "failover: true")
	a, b, d := c.add(), c.add(), c.add()
	at := everywhere("tick", nil, map[*member]int{a: 1, b: 1, d: 1})
	at = everywhereFires(t, at)
	b.place.define("tick", everySecond, "shardingTotalCount: 9", "failover: true")
	at = everywhere("tick", at, map[*member]int{a: 3, b: 3, d: 3})
	at = everywhereFires(t, at)
	b.place.define("tick", everySecond, "shardingTotalCount: 2", "failover: true")
	for _, m := range []*member{a, b, d} { // two of them have one, the third none
		found := m.of("tick", at[m], kind(event.Assigned), test{"few items", func(e event.Event) bool { return len(e.Items) < 2 }})
		at[m] = found.at
	}
	ran := 0
	for _, m := range []*member{a, b, d} {
		ran += len(m.of("tick", at[m], kind(event.Assigned)).Items)
	}
	if s := c.shards("tick"); ran != 2 || len(s.Items) != 2 || s.ShardingTotalCount != 2 {
		t.Errorf("%d of 2 items are assigned; %+v", ran, s)
	}
	c.judge("tick")
}

// TestClusterIsOperated: what operators do by way of a host and by way of the
// registry takes effect on all hosts.
func TestClusterIsOperated(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.job("tick", everySecond, "shardingTotalCount: 6", "failover: true")
	c.job("manual", "shardingTotalCount: 3")
	a, b, d := c.add(), c.add(), c.add()
	at := everywhere("tick", nil, map[*member]int{a: 2, b: 2, d: 2})
	everywhere("manual", nil, map[*member]int{a: 1, b: 1, d: 1})

	// Who has started several of its hosts need not say which one to ask, except where one is meant.
	notes := filepath.Join(".cache", "wasmjob", "hosts")
	for _, m := range []*member{a, b} {
		if err := os.CopyFS(c.path("home", notes), os.DirFS(m.place.path("home", notes))); err != nil {
			t.Fatal(err)
		}
	}
	for _, args := range [][]string{{"job", "list"}, {"__complete", "status", ""}} {
		if text := c.must(args...); !strings.Contains(text, "tick") {
			t.Errorf("wasmjob %v by any host:\n%s", args, text)
		}
	}
	c.refused(1, []string{"several hosts are running here", "namespace " + c.ns + " on ZooKeeper, " + c.zk}, "job", "start", "tick")

	// A server is disabled in the registry, and enabled by way of its host.
	if out := c.registry("job", "pause", "tick", "--server", b.ip); out != "paused server "+b.ip+" for tick\n" {
		t.Errorf("pause says %q", out)
	}
	at = everywhere("tick", at, map[*member]int{a: 3, b: 0, d: 3})
	if s := b.place.must("status", "tick"); !strings.Contains(s, "READY, paused") {
		t.Errorf("status of the job says\n%s", s)
	}
	b.place.must("job", "resume", "tick", "--server", b.ip)
	at = everywhere("tick", at, map[*member]int{a: 2, b: 2, d: 2})

	// All hosts run the items of a trigger, whoever is asked.
	a.place.must("job", "run", "manual")
	trigger := int64(0)
	for _, m := range []*member{a, b, d} {
		done := m.of("manual", 0, kind(event.FireEnded), source(abi.SourceTrigger), outcome(abi.OutcomeOK))
		if trigger != 0 && done.Trigger != trigger {
			t.Errorf("one trigger is %d and %d", trigger, done.Trigger)
		}
		trigger = done.Trigger
	}

	// Item 0 does not run while it is disabled.
	c.registry("job", "pause", "manual", "--item", "0")
	marked := marks(a, b, d)
	c.registry("job", "run", "manual")
	ran := 0
	for _, m := range []*member{a, b, d} {
		e := m.of("manual", marked[m], test{"end of a fire", func(e event.Event) bool {
			return e.Kind == event.FireEnded || e.Kind == event.ItemSkipped && *e.Item == 0
		}})
		if e.Kind == event.FireEnded {
			ran += len(e.Items)
		}
	}
	if ran != 2 {
		t.Errorf("%d of 3 items ran while one was disabled", ran)
	}

	// Another version on one host: everybody can see it.
	b.place.drop("manual.wasm", guest(t, 2))
	b.of("manual", 0, kind(event.JobChanged), digestOf(guest(t, 2)))
	c.registry("job", "run", "manual") // with it the host tells the others
	b.of("manual", b.of("manual", 0, kind(event.JobChanged), digestOf(guest(t, 2))).at, kind(event.FireEnded))
	if s := c.shards("manual"); len(s.Digests) != 2 {
		t.Errorf("two versions are seen as %v", s.Digests)
	}
	if text := c.registry("status", "manual"); !strings.Contains(text, "warning: 2 different modules run for this job:") {
		t.Errorf("status does not warn of two versions:\n%s", text)
	}

	// An instance is stopped, and stays so; the others have its items.
	id := d.of("tick", 0, owned()).Host
	c.registry("job", "drain", "tick", "--instance", id)
	d.of("tick", 0, kind(event.JobStopped))
	at = everywhere("tick", at, map[*member]int{a: 3, b: 3})
	everywhereFires(t, at)
	if r := d.place.job("tick"); r.State != engine.JobStopped {
		t.Errorf("the instance that was shut down is %s", r.State)
	}

	// Jobs and status, with and without a host.
	if text := c.registry("job", "list"); !strings.Contains(text, "manual") || !strings.Contains(text, "tick") {
		t.Errorf("jobs of the registry:\n%s", text)
	}
	if text := a.place.must("status"); !strings.Contains(text, "session    live, connected to "+c.zk+", id 0x") {
		t.Errorf("status tells of no session:\n%s", text)
	}
	for _, c := range []struct {
		text  string
		wants []string
	}{
		{a.place.must("status", "tick"), []string{"health     ok\n", "next       in ", "last       OK in "}},
		{a.place.must("status", "tick", "--json"), []string{`"health": "ok"`, `"lastOutcome": "OK"`}},
		{c.registry("status", "tick"), []string{"health     ok\n", "last       OK, "}},
	} {
		for _, want := range c.wants {
			if !strings.Contains(c.text, want) {
				t.Errorf("%q is not in\n%s", want, c.text)
			}
		}
	}
	for _, name := range []string{"wasmjob_registry_connected 1", `wasmjob_registry_session_trust{trust="live"} 1`, `wasmjob_registry_operations_total{kind="multi"}`,
		"wasmjob_registry_session_answer_age_seconds", "wasmjob_registry_reconnects 0"} {
		if code, body := a.get("/metrics"); code != 200 || !strings.Contains(body, name) {
			t.Errorf("/metrics (%d) has no %s", code, name)
		}
	}

	// The audit has what a host was asked for, and what was done to the registry beside it, once each.
	if text := a.place.must("access", "audit", "tick"); strings.Count(text, " resume ") != 1 || strings.Count(text, " pause ") != 1 || strings.Count(text, " drain ") != 1 {
		t.Errorf("the audit has\n%s", text)
	}

	// A job is removed for good.
	c.registry("job", "remove", "manual", "--purge")
	for _, m := range []*member{a, b} {
		m.of("manual", 0, kind(event.JobRemoved))
	}
	c.registry("job", "pause", "tick", "--item", "5")
	c.registry("job", "resume", "tick", "--item", "5")
	c.judge("tick")
	s := c.session("")
	l := tree.NewLayout(c.ns, "manual")
	nodes, err := s.Read(t.Context(), registry.Data(l.Root()), registry.Children(l.Sibling()))
	if err != nil || nodes[0].Exists || !slices.Equal(nodes[1].Names, []string{"wanted"}) { // which says that it is removed
		t.Errorf("a purged job is still there: %+v, %v", nodes, err)
	}
}

// TestClusterDump: ElasticJob's dump request is answered.
func TestClusterDump(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.job("tick", everySecond, "shardingTotalCount: 1")
	m := c.add("--dump-port", "0")
	m.of("tick", m.of("tick", 0, kind(event.FireEnded)).at+1, kind(event.FireEnded))
	address := ""
	for _, f := range strings.Split(m.line(0, "host starts").raw, `"`) {
		if strings.HasPrefix(f, "127.0.0.1:") && f != m.address {
			address = f
		}
	}
	out := dumped(t, address, "dump@tick\n")
	for _, want := range []string{"/tick/sharding/0/instance | ip1@-@", "/tick/servers/ip1 | ENABLED\n", "jobName: tick\n"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not in the dump:\n%s", want, out)
		}
	}
	c.judge("tick")
}

// stopAll ends hosts, of which nothing is judged.
func (c *cluster) stopAll() {
	c.t.Helper()
	for _, m := range c.members {
		m.stop()
	}
}

// files are those below a directory, by name.
func files(t *testing.T, dir string) (list []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(name string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			rel, rerr := filepath.Rel(dir, name)
			list, err = append(list, filepath.ToSlash(rel)), rerr
		}
		return err
	})
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return list
}
