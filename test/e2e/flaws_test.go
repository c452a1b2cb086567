package e2e_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/coordination"
	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/zookeeper"
	"github.com/wasmjob/wasmjob/host"
	"github.com/wasmjob/wasmjob/host/admin"
	"github.com/wasmjob/wasmjob/test/zkserver"
)

// The tests of this file are named after what people complain about in
// ElasticJob; the table in docs/elasticjob.md says which is which. They are
// here because time and sessions matter.

// Sessions of hosts whose end is waited for, and of those that shall not end
// however busy the machine is.
var (
	mortal  = []string{"--session-timeout", "8s"}
	longest = []string{"--session-timeout", "2m"}
)

// again starts a host that has ended anew, in its place and at its address.
func (c *cluster) again(m *member, flags ...string) *member {
	c.t.Helper()
	args := []string{"--zk", c.zk, "--namespace", c.ns, "--session-timeout", clusterSession.String(), "--server-ip", m.ip}
	for name := range c.jobs {
		args = append(args, "--mount", name+"="+c.path("gate")+":/gate")
	}
	n := &member{place: m.place, ip: m.ip}
	n.process = n.place.start(append(args, flags...)...)
	c.members[slices.Index(c.members, m)] = n // one history, written on
	return n
}

// behind starts a host whose way to ZooKeeper can be cut.
func (c *cluster) behind(flags ...string) (*member, *zkserver.Proxy) {
	c.t.Helper()
	proxy, err := zkserver.NewProxy(c.zk)
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(proxy.Close)
	direct := c.zk
	c.zk = proxy.Addr()
	defer func() { c.zk = direct }()
	return c.add(flags...), proxy
}

// flight is a fire whose items hold, by host.
type flight struct {
	job  string
	at   map[*member]int // where its events begin
	runs map[*member][]seen
}

// fly triggers a job, and waits until all items of all hosts run.
func (c *cluster) fly(job string, on ...*member) *flight {
	c.t.Helper()
	f := &flight{job: job, at: marks(on...), runs: make(map[*member][]seen)}
	c.registry("trigger", job)
	for _, m := range on {
		fire := m.of(job, f.at[m], kind(host.EventFireStarted), source(abi.SourceTrigger))
		for _, n := range fire.Items {
			f.runs[m] = append(f.runs[m], m.of(job, fire.at, kind(host.EventItemStarted), item(n), ofFire(fire)))
		}
	}
	return f
}

// of are the items that flew on the hosts.
func (f *flight) of(on ...*member) (items []int) {
	for _, m := range on {
		for _, run := range f.runs[m] {
			items = append(items, *run.Item)
		}
	}
	slices.Sort(items)
	return items
}

// same: the event belongs to the fire. Of a trigger each host notes its own
// time; the number is the same for all.
func (f *flight) same() test {
	for _, runs := range f.runs {
		for _, run := range runs {
			return test{fmt.Sprintf("trigger %d", run.Trigger), func(e host.Event) bool { return e.Trigger == run.Trigger }}
		}
	}
	return test{"of a fire without items", func(host.Event) bool { return false }}
}

// takenOver waits until each of the items runs again, as a failover, on one of
// the hosts, and returns where.
func (f *flight) takenOver(t *testing.T, items []int, by ...*member) map[int]*member {
	t.Helper()
	taken := make(map[int]*member)
	for {
		news := newsOf(by)
		for _, m := range by {
			for _, e := range m.all(f.job, f.at[m], kind(host.EventItemStarted), source(abi.SourceFailover), f.same()) {
				if !slices.Contains(items, *e.Item) {
					t.Fatalf("item %d of %s was taken over, and nothing was wrong with it", *e.Item, f.job)
				}
				taken[*e.Item] = m
			}
		}
		if len(taken) == len(items) {
			return taken
		}
		waitAny(t, news)
	}
}

// once: the items were started on these hosts as a failover exactly once each,
// and completed well.
func (f *flight) once(t *testing.T, items []int, taken map[int]*member, on ...*member) {
	t.Helper()
	for _, n := range items {
		m := taken[n]
		done := m.of(f.job, f.at[m], kind(host.EventItemCompleted), item(n), f.same())
		if done.Outcome != abi.OutcomeOK || done.Source != abi.SourceFailover {
			t.Errorf("item %d of %s ends as %+v", n, f.job, done.Event)
		}
		starts := 0
		for _, m := range on {
			starts += len(m.all(f.job, f.at[m], kind(host.EventItemStarted), item(n), f.same()))
		}
		if starts != 1 {
			t.Errorf("item %d of %s was run again %d times", n, f.job, starts)
		}
	}
}

// wholeFire triggers a job and waits until its items were run, all of them,
// each once.
func (c *cluster) wholeFire(job string, total int, on ...*member) {
	c.t.Helper()
	c.divided(job, on...)
	at := marks(on...)
	c.registry("trigger", job)
	for {
		news := newsOf(on)
		ran := make(map[int]int)
		for _, m := range on {
			for _, e := range m.all(job, at[m], kind(host.EventItemCompleted), source(abi.SourceTrigger), outcome(abi.OutcomeOK)) {
				if ran[*e.Item]++; ran[*e.Item] > 1 {
					c.t.Errorf("a trigger ran item %d of %s twice", *e.Item, job)
				}
			}
		}
		if len(ran) == total {
			return
		}
		waitAny(c.t, news)
	}
}

// divided waits until the items of a job are divided over these hosts and
// nobody else.
func (c *cluster) divided(job string, on ...*member) {
	c.t.Helper()
	s := c.session("")
	root := "/" + c.ns + "/" + job
	instances, flags, division := registry.Children(root+"/instances"), registry.Children(root+"/leader/sharding"), registry.Data("/"+c.ns+".wasmjob/"+job+"/assignment")
	ctx, cancel := context.WithTimeout(c.t.Context(), patience)
	defer cancel()
	watch, err := s.Watch(ctx, instances, flags, division)
	if err != nil {
		c.t.Fatal(err)
	}
	var last registry.Snapshot
	for last = range watch {
		there := last.Children(root + "/instances")
		var d coordination.Division
		if json.Unmarshal(last[division].Data, &d) != nil || len(last[flags].Names) > 0 || len(there) != len(on) || len(d.Instances) != len(on) || len(d.Pending) > 0 {
			continue
		}
		if !slices.ContainsFunc(on, func(m *member) bool {
			id := func(id string) bool { return strings.HasPrefix(id, m.ip+"@-@") }
			return !slices.ContainsFunc(there, id) || !slices.ContainsFunc(d.Instances, id)
		}) {
			return
		}
	}
	c.t.Fatalf("%s is not divided over %d hosts: %+v", job, len(on), last)
}

// nodes reads nodes of a job as they are.
func (c *cluster) nodes(s *zookeeper.Session, paths ...string) []registry.Node {
	c.t.Helper()
	queries := make([]registry.Query, len(paths))
	for i, p := range paths {
		queries[i] = registry.Data("/" + c.ns + "/" + p)
	}
	nodes, err := s.Read(c.t.Context(), queries...)
	if err != nil {
		c.t.Fatal(err)
	}
	return nodes
}

// TestAFleetThatCrashedAndCameBackTogetherRecovers: all hosts are killed with
// items in flight, and all start again before the registry has noticed.
func TestAFleetThatCrashedAndCameBackTogetherRecovers(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.job("tick", everySecond, "shardingTotalCount: 3", "failover: true")
	c.job("held", "shardingTotalCount: 6", "failover: true", `jobParameter: "stubborn:a"`)
	fleet := []*member{c.add(mortal...), c.add(mortal...), c.add(mortal...)}
	for _, m := range fleet {
		m.of("held", 0, assigned(2))
		m.of("tick", 0, assigned(1))
	}
	f := c.fly("held", fleet...)
	items := f.of(fleet...)
	for _, m := range fleet {
		m.kill()
	}
	started := make([]*member, len(fleet))
	for i, m := range fleet {
		started[i] = c.again(m, mortal...)
		f.at[started[i]] = 0
	}
	taken := f.takenOver(t, items, started...)
	c.open("a")
	f.once(t, items, taken, started...)
	c.divided("tick", started...)
	for _, m := range started {
		m.of("tick", m.mark(), kind(host.EventFireEnded), outcome(abi.OutcomeOK))
	}
	c.wholeFire("held", 6, started...)
	c.judge("tick", "held")
}

// TestAShortDisconnectIsNoCrash: the connection of a host breaks and comes back
// while its session lives. Nothing is deleted, nothing is made anew, nothing is
// run again.
func TestAShortDisconnectIsNoCrash(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.job("tick", everySecond, "shardingTotalCount: 2", "failover: true")
	c.job("held", "shardingTotalCount: 4", "failover: true", `jobParameter: "stubborn:a"`)
	a, proxy := c.behind(longest...)
	b := c.add(longest...)
	everywhere("held", nil, map[*member]int{a: 2, b: 2})
	everywhere("tick", nil, map[*member]int{a: 1, b: 1})
	f := c.fly("held", a, b)
	id := f.runs[a][0].Host
	paths := []string{"held/instances/" + id, "tick/instances/" + id}
	for _, n := range f.of(a) {
		paths = append(paths, fmt.Sprintf("held/sharding/%d/running", n))
	}
	s := c.session("")
	before := c.nodes(s, paths...)
	proxy.Drop() // and it connects again
	at := marks(a, b)
	a.of("tick", at[a], kind(host.EventItemCompleted))
	proxy.Cut() // for as long as the other fires twice
	away := a.mark()
	second := b.of("tick", b.of("tick", b.mark(), kind(host.EventFireEnded)).at+1, kind(host.EventFireEnded))
	proxy.Heal()
	a.of("tick", away, kind(host.EventItemCompleted), test{"after that", func(e host.Event) bool { return e.Time.After(second.Time) }})
	for i, n := range c.nodes(s, paths...) {
		if !n.Exists || n.Czxid != before[i].Czxid {
			t.Errorf("%s was made in transaction %d, and now it is %+v", paths[i], before[i].Czxid, n)
		}
	}
	c.open("a")
	for _, m := range []*member{a, b} {
		for _, n := range f.of(m) {
			done := m.of("held", f.at[m], kind(host.EventItemCompleted), item(n))
			if done.Outcome != abi.OutcomeOK || done.Source != abi.SourceTrigger {
				t.Errorf("item %d ends as %+v", n, done.Event)
			}
		}
		if n := m.count("held", kind(host.EventItemStarted)); n != 2 {
			t.Errorf("%s started %d items, want its 2", m.ip, n)
		}
		if n := m.count("", kind(host.EventSession), because("lost")); n != 0 {
			t.Errorf("%s lost its session", m.ip)
		}
		if e := m.of("tick", m.mark(), kind(host.EventItemCompleted)); !strings.HasPrefix(e.Host, m.ip) || m == a && e.Host != id {
			t.Errorf("%s is now %s", m.ip, e.Host)
		}
	}
	if _, body := a.get("/metrics"); strings.Contains(body, "wasmjob_registry_reconnects 0") {
		t.Error("the host counts no reconnects")
	}
	c.judge("tick", "held")
}

// TestAHostThatComesWhileItemsRunIsNotForgotten: it gets its share of what is
// idle at once, and of what runs as that ends.
func TestAHostThatComesWhileItemsRunIsNotForgotten(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.job("idle", "shardingTotalCount: 6", "failover: true")
	c.job("held", "shardingTotalCount: 6", "failover: true", `jobParameter: "stubborn:a"`)
	a, b := c.add(longest...), c.add(longest...)
	everywhere("held", nil, map[*member]int{a: 3, b: 3})
	everywhere("idle", nil, map[*member]int{a: 3, b: 3})
	f := c.fly("held", a, b)
	at := marks(a, b)
	d := c.add(longest...)
	everywhere("idle", at, map[*member]int{a: 2, b: 2, d: 2})
	// One goes, too, and others are still waiting for the rest.
	e := c.add(longest...)
	e.of("idle", 0, owned())
	e.stop()
	everywhere("idle", nil, map[*member]int{d: 2})
	at = marks(a, b)
	c.open("a")
	everywhere("held", at, map[*member]int{a: 2, b: 2, d: 2})
	for _, m := range []*member{a, b} {
		for _, n := range f.of(m) {
			m.of("held", f.at[m], kind(host.EventItemCompleted), item(n), outcome(abi.OutcomeOK))
		}
	}
	c.wholeFire("held", 6, a, b, d)
	c.judge("held")
}

// TestALeaderThatIsShutDownLeavesNoItemBehind, neither by our command nor by the
// deletion that ElasticJob's console makes.
func TestALeaderThatIsShutDownLeavesNoItemBehind(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	names := []string{"one", "two", "three", "four"}
	for _, name := range names {
		c.job(name, "shardingTotalCount: 6", "failover: true")
	}
	all := []*member{c.add(longest...), c.add(longest...), c.add(longest...)}
	for _, name := range names {
		everywhere(name, nil, map[*member]int{all[0]: 2, all[1]: 2, all[2]: 2})
	}
	s := c.session("")
	for i, name := range names {
		at := marks(all...)
		leads, others := c.leader(name, all...)
		id := c.shards(name).Leader
		if i%2 == 0 {
			c.registry("shutdown", name, "--instance", id)
		} else if _, err := s.Commit(t.Context(), registry.Delete("/"+c.ns+"/"+name+"/instances/"+id, registry.AnyVersion)); err != nil {
			t.Fatal(err)
		}
		leads.of(name, at[leads], kind(host.EventJobStopped))
		everywhere(name, at, map[*member]int{others[0]: 3, others[1]: 3})
		c.wholeFire(name, 6, others...)
	}
	c.judge(names...)
}

// TestAHostThatComesBackAtOnceIsAnotherOne: a host is killed and started again,
// at the same address, before its session has ended. Its old marks are not
// taken for its own.
func TestAHostThatComesBackAtOnceIsAnotherOne(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.job("held", "shardingTotalCount: 3", "failover: true", `jobParameter: "stubborn:a"`)
	m := c.add(mortal...)
	m.of("held", 0, assigned(3))
	f := c.fly("held", m)
	old := f.runs[m][0].Host
	m.kill()
	next := c.again(m, mortal...)
	f.at[next] = 0
	taken := f.takenOver(t, f.of(m), next)
	if e := next.of("held", 0, kind(host.EventItemStarted)); e.Host == old || !strings.HasPrefix(e.Host, m.ip+"@-@") {
		t.Errorf("%s came back as %s", old, e.Host)
	}
	c.open("a")
	f.once(t, f.of(m), taken, next)
	c.wholeFire("held", 3, next)
	c.judge("held")
}

// TestAGracefulStopWithRunningItemsIsNoCrash: what runs ends where it runs, what
// is idle goes to others at once, and nothing is failed over.
func TestAGracefulStopWithRunningItemsIsNoCrash(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.job("idle", "shardingTotalCount: 4", "failover: true")
	c.job("held", "shardingTotalCount: 4", "failover: true", `jobParameter: "stubborn:a"`)
	a, b := c.add(append(longest, "--drain-timeout", "10m")...), c.add(longest...)
	everywhere("held", nil, map[*member]int{a: 2, b: 2})
	everywhere("idle", nil, map[*member]int{a: 2, b: 2})
	f := c.fly("held", a, b)
	at := marks(b)
	a.signal(syscall.SIGTERM)
	b.of("idle", at[b], assigned(4))
	if s := c.shards("held"); !slices.ContainsFunc(s.Instances, func(i admin.Instance) bool { return i.State == coordination.DetailDraining }) {
		t.Errorf("nobody is shown as draining: %+v", s.Instances)
	}
	c.open("a")
	for _, m := range []*member{a, b} {
		for _, n := range f.of(m) {
			if done := m.of("held", f.at[m], kind(host.EventItemCompleted), item(n)); done.Outcome != abi.OutcomeOK || done.Source != abi.SourceTrigger {
				t.Errorf("item %d ends as %+v", n, done.Event)
			}
		}
	}
	if code := a.exit(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	b.of("held", at[b], assigned(4))
	c.wholeFire("held", 4, b)
	if n := b.count("held", kind(host.EventItemStarted), source(abi.SourceFailover)); n != 0 {
		t.Errorf("%d items were failed over from a host that stopped in good order", n)
	}
	c.judge("held")
}

// TestALeaderThatSleptThroughItsSessionHasNoSay: a host is halted until its
// session is over, and goes on. What it ran was run by others meanwhile, or
// written down as lost; of what it does then, nothing counts.
func TestALeaderThatSleptThroughItsSessionHasNoSay(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.job("over", "shardingTotalCount: 3", "failover: true", `jobParameter: "stubborn:a"`)
	c.job("lost", "shardingTotalCount: 3", "failover: false", `jobParameter: "stubborn:a"`)
	sleepers := append(slices.Clone(mortal), "--dead-man", "off") // the kernel would end the one that is halted
	all := []*member{c.add(sleepers...), c.add(sleepers...), c.add(sleepers...)}
	for _, m := range all {
		m.of("over", 0, assigned(1))
		m.of("lost", 0, assigned(1))
	}
	over, lost := c.fly("over", all...), c.fly("lost", all...)
	leads, others := c.leader("over", all...)
	from := leads.mark()
	leads.signal(syscall.SIGSTOP)
	t.Cleanup(func() { _ = leads.cmd.Process.Signal(syscall.SIGCONT) })
	taken := over.takenOver(t, over.of(leads), others...)
	left := lost.of(leads)[0]
	for skipped := false; !skipped; {
		news := newsOf(others)
		for _, m := range others {
			skipped = skipped || len(m.all("lost", lost.at[m], kind(host.EventItemSkipped), item(left), outcome("LOST"))) > 0
		}
		if !skipped {
			waitAny(t, news)
		}
	}
	c.open("a")
	over.once(t, over.of(leads), taken, others...)
	for _, name := range []string{"over", "lost"} {
		if id := c.shards(name).Leader; strings.HasPrefix(id, leads.ip+"@-@") {
			t.Errorf("%s still leads %s", id, name)
		}
	}
	leads.signal(syscall.SIGCONT)
	leads.of("", from, kind(host.EventSession), because("lost"))
	for _, f := range []*flight{over, lost} {
		fresh := leads.of(f.job, from, owned())
		if old := f.runs[leads][0].Host; fresh.Host == old {
			t.Errorf("%s woke and is still itself", old)
		}
		if done := leads.all(f.job, from, kind(host.EventItemCompleted), f.same()); len(done) > 0 {
			t.Errorf("the host woke and completed %+v", done)
		}
		for _, m := range others {
			m.of(f.job, f.at[m], kind(host.EventFireEnded), f.same())
		}
	}
	for _, name := range []string{"over", "lost"} {
		c.wholeFire(name, 3, all...)
	}
	c.judge("over", "lost")
}

// TestATriggerWhileTheJobRunsIsNotLost: on the host that is busy it waits, and a
// new one does not take it away.
func TestATriggerWhileTheJobRunsIsNotLost(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.job("held", "shardingTotalCount: 2", `shardingItemParameters: "0=stubborn:a,1=stubborn:b"`)
	a, b := c.add(longest...), c.add(longest...)
	everywhere("held", nil, map[*member]int{a: 1, b: 1})
	f := c.fly("held", a, b)
	first, slow := a, b
	if f.of(a)[0] == 1 {
		first, slow = b, a
	}
	c.registry("trigger", "held") // kept on both
	c.open("a")
	ends := []seen{}
	for at := f.at[first]; len(ends) < 2; {
		e := first.of("held", at, kind(host.EventItemCompleted), source(abi.SourceTrigger), outcome(abi.OutcomeOK))
		ends, at = append(ends, e), e.at+1
	}
	c.registry("trigger", "held") // the one that is kept on the slow one counts for both
	last := first.of("held", ends[1].at+1, kind(host.EventItemCompleted), source(abi.SourceTrigger), outcome(abi.OutcomeOK))
	c.open("b")
	at := f.at[slow]
	for _, want := range []int64{ends[0].Trigger, last.Trigger} {
		e := slow.of("held", at, kind(host.EventItemCompleted), source(abi.SourceTrigger), outcome(abi.OutcomeOK))
		if e.Trigger != want {
			t.Errorf("the slow host ran trigger %d, want %d", e.Trigger, want)
		}
		at = e.at + 1
	}
	if last.Trigger <= ends[1].Trigger || ends[1].Trigger <= ends[0].Trigger {
		t.Errorf("three triggers are %d, %d and %d", ends[0].Trigger, ends[1].Trigger, last.Trigger)
	}
	c.wholeFire("held", 2, a, b) // and all is idle again
	c.judge("held")
}

// TestNoSecretIsInTheRegistry: whatever a host is told, and whatever it writes.
func TestNoSecretIsInTheRegistry(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.job("tick", everySecond, "shardingTotalCount: 1")
	c.ns = "guarded" // what is above it is made with the credentials, too
	const credentials = "owner:very-secret-word"
	m := &member{place: newPlace(t), ip: "127.0.1.1"}
	m.place.guestJob("tick", c.jobs["tick"]...)
	m.process = m.place.startEnv([]string{"WASMJOB_ZK_CREDENTIALS=" + credentials}, "--zk", c.zk, "--namespace", c.ns, "--session-timeout", "2m", "--server-ip", m.ip)
	m.of("tick", 0, kind(host.EventFireEnded))
	s := c.session(credentials)
	found := 0
	for path, data := range tree(t, s, "/"+c.ns, "/"+c.ns+".wasmjob") {
		found++
		if strings.Contains(path+string(data), "secret-word") {
			t.Errorf("%s holds %q", path, data)
		}
	}
	if found < 20 {
		t.Errorf("%d nodes were looked at", found)
	}
	m.stop()
}

// tree is all that is below some nodes, and they themselves.
func tree(t *testing.T, s *zookeeper.Session, roots ...string) map[string][]byte {
	t.Helper()
	all := make(map[string][]byte)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for len(roots) > 0 {
		path := roots[0]
		roots = roots[1:]
		n, err := s.Read(ctx, registry.Data(path), registry.Children(path))
		if err != nil {
			t.Fatal(err)
		}
		if !n[0].Exists {
			continue
		}
		all[path] = n[0].Data
		for _, name := range n[1].Names {
			roots = append(roots, path+"/"+name)
		}
	}
	return all
}
