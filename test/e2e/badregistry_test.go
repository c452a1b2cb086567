package e2e_test

import (
	"crypto/rand"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/registry/zookeeper"
	"github.com/wasmjob/wasmjob/host/engine"
	"github.com/wasmjob/wasmjob/host/event"
	"github.com/wasmjob/wasmjob/test/zkserver"
)

// write sets a node by hand.
func (c *cluster) write(s *zookeeper.Session, path, data string) {
	c.t.Helper()
	if _, err := s.Commit(c.t.Context(), registry.Set("/"+c.ns+"/"+path, []byte(data), registry.AnyVersion)); err != nil {
		c.t.Fatal(err)
	}
}

// TestBrokenConfiguration: somebody writes nonsense into the registry while
// hosts run. They say so, and go on with what they had; a host that comes
// then has nothing to go on with, and waits.
func TestBrokenConfiguration(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.ns += "." + rand.Text() // the registry's configuration outlives the test
	c.job("tick", everySecond, "shardingTotalCount: 4", "failover: true")
	a, b := c.add(longest...), c.add(longest...)
	everywhere("tick", nil, map[*member]int{a: 2, b: 2})
	s := c.session("")
	good := string(c.nodes(s, "tick/config")[0].Data)
	change := func(from, to string) string {
		t.Helper()
		if strings.Count(good, from) != 1 {
			t.Fatalf("%q is not once in\n%s", from, good)
		}
		return strings.Replace(good, from, to, 1)
	}
	for _, bad := range []struct{ text, why string }{
		{"no: [configuration", "yaml"},
		{"\x00\xff\xfe", "control characters are not allowed"},
		{"", "config"},
		{change("shardingTotalCount: 4", "shardingTotalCount: four"), "shardingTotalCount"},
		{change("shardingTotalCount: 4", "shardingTotalCount: -4"), "shardingTotalCount"},
		{change("jobName: tick", "jobName: tock"), "jobName"},
		{change("misfire: true", "misfire: {maybe: [yes]}"), "misfire"},
		{change("props:", "jobShardingStrategyType: BY_THE_MOON\nprops:"), "BY_THE_MOON"},
		{change("props:", "jobErrorHandlerType: PIGEON\nprops:"), "PIGEON"},
		{change("cron: '* * * * * ?'", "cron: at noon"), "at noon"},
		{change("cron: '* * * * * ?'", "cron: '* * * * * ?'\ntimeZone: Mars/Olympus"), "Mars/Olympus"},
		{change("wasm.timeout: 10m0s", "wasm.timeout: soon"), "wasm.timeout"},
	} {
		at := marks(a, b)
		c.write(s, "tick/config", bad.text)
		for _, m := range []*member{a, b} {
			e := m.of("tick", at[m], kind(event.JobError))
			if !strings.Contains(strings.ToLower(e.Reason), strings.ToLower(bad.why)) {
				t.Errorf("of %q the host says %q, which does not tell of %s", bad.text, e.Reason, bad.why)
			}
			ran := m.of("tick", e.at, kind(event.FireEnded), outcome(abi.OutcomeOK))
			if len(ran.Items) != 2 {
				t.Errorf("with %q a fire is of items %v", bad.text, ran.Items)
			}
		}
		if j := a.place.job("tick"); j.State != engine.JobError || j.Reason == "" || j.ShardingTotalCount != 4 {
			t.Errorf("with %q the status is %s, %q, %d items", bad.text, j.State, j.Reason, j.ShardingTotalCount)
		}
	}
	at := marks(a, b)
	c.write(s, "tick/config", "no: [configuration")
	a.of("tick", at[a], kind(event.JobError))
	late := c.add(longest...)
	line := late.line(0, "joining the job", "tick/config", "cannot be read, and overwrite is false")
	if line.Level != "warn" {
		t.Errorf("that a host cannot join is told as %s", line.Level)
	}
	if j := late.place.job("tick"); j.State != engine.JobError || !strings.Contains(j.Reason, "cannot be read") {
		t.Errorf("a host that comes to a broken configuration is %s: %s", j.State, j.Reason)
	}
	at = marks(a, b)
	c.write(s, "tick/config", change("shardingTotalCount: 4", "shardingTotalCount: 6"))
	everywhere("tick", at, map[*member]int{a: 2, b: 2, late: 2})
	if j := a.place.job("tick"); j.State == engine.JobError || j.ShardingTotalCount != 6 {
		t.Errorf("the configuration is good again, and the status is %s, %q, %d items", j.State, j.Reason, j.ShardingTotalCount)
	}
	c.judge("tick")
}

// TestInstanceDeletedByHand: while it runs items. That is how ElasticJob's
// console tells a host to stop: it finishes, and stays stopped until it is
// started again.
func TestInstanceDeletedByHand(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.job("held", "shardingTotalCount: 4", "failover: true", `jobParameter: "stubborn:a"`)
	a, b := c.add(longest...), c.add(longest...)
	everywhere("held", nil, map[*member]int{a: 2, b: 2})
	f := c.fly("held", a, b)
	s := c.session("")
	if _, err := s.Commit(t.Context(), registry.Delete("/"+c.ns+"/held/instances/"+f.runs[a][0].Host, registry.AnyVersion)); err != nil {
		t.Fatal(err)
	}
	c.open("a")
	for _, m := range []*member{a, b} {
		for _, n := range f.of(m) {
			if done := m.of("held", f.at[m], kind(event.ItemCompleted), item(n)); done.Outcome != abi.OutcomeOK || done.Source != abi.SourceTrigger {
				t.Errorf("item %d ends as %+v", n, done.Event)
			}
		}
	}
	a.of("held", f.at[a], kind(event.JobStopped), because("removed by an operator"))
	c.divided("held", b)
	c.wholeFire("held", 4, b)
	if j := a.place.job("held"); j.State != engine.JobStopped || !strings.Contains(j.Reason, "stopped by an operator") {
		t.Errorf("the host is %s: %s", j.State, j.Reason)
	}
	if n := b.count("held", kind(event.ItemStarted), source(abi.SourceFailover)); n > 0 {
		t.Errorf("%d items were failed over from a host that finishes them", n)
	}
	a.stop()
	a = c.again(a, longest...)
	c.divided("held", a, b)
	c.wholeFire("held", 4, a, b)
	c.judge("held")
}

// raze deletes trees as a shell of the registry does: node by node, leaves
// first, and once more if something has come meanwhile.
func raze(t *testing.T, s *zookeeper.Session, roots ...string) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for time.Now().Before(deadline) {
		nodes := subtree(t, s, roots...)
		if len(nodes) == 0 {
			return
		}
		var paths []string
		for path := range nodes {
			paths = append(paths, path)
		}
		slices.SortFunc(paths, func(a, b string) int {
			if n := strings.Count(b, "/") - strings.Count(a, "/"); n != 0 {
				return n
			}
			return strings.Compare(a, b)
		})
		for _, path := range paths {
			_, _ = s.Commit(t.Context(), registry.Delete(path, registry.AnyVersion)) // if somebody was faster, all the better
		}
	}
	t.Fatalf("%v cannot be deleted: hosts go on writing %v", roots, subtree(t, s, roots...))
}

// TestJobDeletedByHand: the whole tree of a job, and of another one both trees,
// are deleted while items run. What runs ends, nothing brings them back, other
// jobs do not notice; a restart does bring them back.
func TestJobDeletedByHand(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.job("tick", everySecond, "shardingTotalCount: 2", "failover: true")
	for _, name := range []string{"first", "both"} {
		c.job(name, "shardingTotalCount: 4", "failover: true", `jobParameter: "stubborn:`+name+`"`)
	}
	a, b := c.add(longest...), c.add(longest...)
	s := c.session("")
	all := []*member{a, b}
	for name, roots := range map[string][]string{
		"first": {"/" + c.ns + "/first"},
		"both":  {"/" + c.ns + "/both", "/" + c.ns + ".wasmjob/both"},
	} {
		c.divided(name, all...)
		f := c.fly(name, all...)
		raze(t, s, roots...)
		c.open(name)
		for _, m := range all {
			for _, n := range f.of(m) {
				ended := m.of(name, f.at[m], kind(event.ItemEnded), item(n), f.same())
				if ended.Outcome != abi.OutcomeOK && ended.Outcome != abi.OutcomeCancelled {
					t.Errorf("item %d of %s, which was deleted, ends as %+v", n, name, ended.Event)
				}
			}
			m.of(name, f.at[m], kind(event.JobRemoved))
			if j := m.place.job(name); j.State != engine.JobRemoved && j.State != engine.JobStopped || j.Reason == "" {
				t.Errorf("%s is %s on %s: %s", name, j.State, m.ip, j.Reason)
			}
			m.of("tick", m.of("tick", m.mark(), kind(event.FireEnded)).at+1, kind(event.FireEnded), outcome(abi.OutcomeOK))
		}
		left := subtree(t, s, roots...)
		for path := range left { // what says that it is removed
			if strings.HasSuffix(path, ".wasmjob/"+name) || strings.HasSuffix(path, ".wasmjob/"+name+"/wanted") {
				delete(left, path)
			}
		}
		if len(left) > 0 {
			t.Errorf("%s is back: %v", name, left)
		}
		if out := c.registry("job", "list"); strings.Contains(out, name) {
			t.Errorf("%s is still listed:\n%s", name, out)
		}
	}
	for i, m := range all {
		m.stop()
		all[i] = c.again(m, longest...)
	}
	for _, name := range []string{"first", "both"} {
		all[0].place.must("job", "restore", name)
		c.wholeFire(name, 4, all...)
	}
	c.judge("tick", "first", "both")
}

// TestRegistryIsFull: ZooKeeper takes no more nodes. Nothing begins that could
// not be written down, and that is told; what runs is completed; when there is
// room again, everything goes on.
func TestRegistryIsFull(t *testing.T) {
	t.Parallel()
	e := zkserver.ForTest(t, zkserver.Options{TickTime: 200 * time.Millisecond, NoSync: true, JavaArgs: []string{"-Dzookeeper.enforceQuota=true"}})
	c := newCluster(t)
	c.zk, c.ns = e.Connect(), "full"
	c.job("tick", everySecond, "shardingTotalCount: 2", "failover: true")
	c.job("held", "shardingTotalCount: 2", "failover: true", `jobParameter: "stubborn:a"`)
	a, b := c.add(longest...), c.add(longest...)
	c.divided("tick", a, b)
	c.divided("held", a, b)
	f := c.fly("held", a, b)
	s := c.session("")
	limits := "/zookeeper/quota/full/zookeeper_limits"
	c.put(s, limits+" = count=-1,bytes=-1,byteHardLimit=-1,countHardLimit=1", "/zookeeper/quota/full/zookeeper_stats = count=1000,bytes=1000")
	for _, m := range []*member{a, b} {
		m.line(0, "does not permit to write or to read an item", `"job":"tick"`, "ZooKeeper's quota for nodes or bytes there is used up")
		m.await("tick is in error", func() bool {
			j := m.place.job("tick")
			return j.State == engine.JobError && strings.Contains(j.Reason, "quota")
		})
	}
	c.open("a")
	for _, m := range []*member{a, b} {
		for _, n := range f.of(m) {
			m.of("held", f.at[m], kind(event.ItemCompleted), item(n), outcome(abi.OutcomeOK))
		}
	}
	if _, err := s.Commit(t.Context(), registry.Delete(limits, registry.AnyVersion)); err != nil {
		t.Fatal(err)
	}
	for _, m := range []*member{a, b} {
		m.of("tick", m.mark(), kind(event.ItemCompleted), outcome(abi.OutcomeOK))
		if n := m.count("", kind(event.Session), because("lost")); n > 0 {
			t.Errorf("%s lost its session", m.ip)
		}
	}
	c.wholeFire("held", 2, a, b)
	c.judge("tick", "held")
}

// TestServerThatTakesLittle: the servers' largest request is a fraction of the
// usual one, and hosts do not know that. The job that needs more gets no
// further and says why; others go on, in the same session.
func TestServerThatTakesLittle(t *testing.T) {
	t.Parallel()
	e := zkserver.ForTest(t, zkserver.Options{TickTime: 200 * time.Millisecond, NoSync: true, JavaArgs: []string{"-Djute.maxbuffer=32768"}})
	c := newCluster(t)
	c.zk, c.ns = e.Connect(), "little"
	c.job("small", everySecond, "shardingTotalCount: 2", "failover: true")
	m := c.add(longest...)
	id := m.of("small", 0, kind(event.FireEnded)).Host
	c.job("large", "shardingTotalCount: 500", "failover: true")
	m.line(0, "coordination; trying again", `"job":"large"`, "jute.maxbuffer is smaller")
	j := m.place.job("large")
	if j.State != engine.JobSharding || !slices.ContainsFunc(j.Warnings, func(w string) bool {
		return strings.Contains(w, "the registry refused") && strings.Contains(w, "jute.maxbuffer")
	}) {
		t.Errorf("a job whose items cannot be divided is %s (%s), with warnings %q", j.State, j.Reason, j.Warnings)
	}
	for at, n := m.mark(), 0; n < 3; n++ {
		ended := m.of("small", at, kind(event.FireEnded), outcome(abi.OutcomeOK))
		if at = ended.at + 1; ended.Host != id {
			t.Errorf("the host was %s and is %s", id, ended.Host)
		}
	}
	c.judge("small")
}

// TestLargeConfiguration: a file whose configuration the registry would not
// take is refused, with the reason; the job goes on. What somebody else has
// written there, and is larger than we would write, is refused alike.
func TestLargeConfiguration(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.job("tick", everySecond, "shardingTotalCount: 2")
	m := c.add(longest...)
	m.of("tick", 0, kind(event.FireEnded))
	s := c.session("")
	long := strings.Repeat("a long story ", 70_000) // 910,000 bytes
	from := m.logMark()
	m.place.define("tick", everySecond, "shardingTotalCount: 3", "description: "+long)
	m.line(from, "file is refused", "bytes in the registry, expected at most 524288")
	if r := m.place.refusal("tick.yaml"); r == nil || !r.Kept {
		t.Errorf("the file is refused as %+v", r)
	}
	good := string(c.nodes(s, "tick/config")[0].Data)
	at := m.mark()
	c.write(s, "tick/config", strings.Replace(strings.Replace(good, "description: ''", "description: "+long, 1), "shardingTotalCount: 2", "shardingTotalCount: 3", 1))
	e := m.of("tick", at, kind(event.JobError), because("bytes in the registry, expected at most 524288"))
	m.of("tick", e.at, kind(event.FireEnded), outcome(abi.OutcomeOK))
	m.place.define("tick", everySecond, "shardingTotalCount: 4", "overwrite: true")
	m.of("tick", e.at, assigned(4))
	c.judge("tick")
}
