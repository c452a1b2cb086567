package e2e_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/coordination/admin/inspect"
	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/registry/zookeeper"
	"github.com/wasmjob/wasmjob/coordination/tree"
	"github.com/wasmjob/wasmjob/host/event"
	"github.com/wasmjob/wasmjob/test/zkserver"
)

// allFire waits until every job has an instant after now of which all items
// were completed, by the hosts that are named, each of which did some. It reads
// events of all hosts, and returns how long it took.
func (c *cluster) allFire(jobs []string, by, all []*member) time.Duration {
	c.t.Helper()
	const items = 2
	start := time.Now()
	ctx, cancel := context.WithTimeout(c.t.Context(), 2*patience)
	defer cancel()
	type fire struct {
		job     string
		instant int64
	}
	ran := make(map[fire]map[int]*member)
	silent := make(map[string]bool)
	for _, name := range jobs {
		silent[name] = true
	}
	for from := marks(all...); ; {
		news := newsOf(all)
		for _, m := range all {
			if m.supervised {
				if m.revive() {
					from[m], news = 0, newsOf(all)
				}
				news = append(news, m.ended)
			}
			for _, e := range m.since(from[m]) {
				from[m]++
				if e.Kind != event.ItemCompleted || e.Outcome != abi.OutcomeOK || !e.Instant.After(start) {
					continue
				}
				f := fire{e.Job, e.Instant.UnixMilli()}
				if ran[f] == nil {
					ran[f] = make(map[int]*member)
				}
				ran[f][*e.Item] = m
				hosts := slices.Collect(maps.Values(ran[f]))
				if len(ran[f]) == items && !slices.ContainsFunc(by, func(m *member) bool { return !slices.Contains(hosts, m) }) {
					delete(silent, e.Job)
				}
			}
		}
		if len(silent) == 0 {
			return time.Since(start)
		}
		more := make(chan struct{})
		waiting, stop := context.WithCancel(ctx)
		for _, n := range news {
			go func() { // ends with waiting
				select {
				case <-n:
					select {
					case more <- struct{}{}:
					case <-waiting.Done():
					}
				case <-waiting.Done():
				}
			}()
		}
		select {
		case <-more:
		case <-ctx.Done():
			stop()
			c.t.Fatalf("silent for %s: %v", time.Since(start).Round(time.Second), slices.Sorted(maps.Keys(silent)))
		}
		stop()
	}
}

// revive starts a host again, as systemd does, if it has ended itself: on a machine that gives it no processor it may be
// too late to end its guests while the session is still its own.
func (m *member) revive() bool {
	m.process.t.Helper()
	select {
	case <-m.ended:
	default:
		return false
	}
	stuck := m.cmd.ProcessState.ExitCode() == 3
	if late := m.cmd.ProcessState.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL; !stuck && !late {
		m.process.t.Fatalf("%s ended: %s", m.ip, m.cmd.ProcessState)
	}
	m.process.t.Logf("%s was too late, ended itself (%s), and is started again", m.ip, m.cmd.ProcessState)
	m.process = m.place.start(m.flags...)
	return true
}

// lost waits until the host has given its session up, since the given place, or has ended itself.
func (m *member) lost(from int) {
	m.process.t.Helper()
	for {
		news := newsOf([]*member{m})
		if len(m.all("", from, kind(event.Session), because("lost"))) > 0 {
			return
		}
		select {
		case <-m.ended:
			return
		default:
		}
		waitAny(m.process.t, append(news, m.ended))
	}
}

// since are the events from the given place on.
func (h *process) since(at int) []event.Event {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.events[at:])
}

// running are the items of a job as they are shown.
func (c *cluster) running(s *zookeeper.Session, job string) []inspect.ShardItem {
	c.t.Helper()
	shards, err := inspect.ReadShards(within(c.t), s, tree.NewLayout(c.ns, job))
	if err != nil {
		c.t.Fatal(err)
	}
	return shards.Items
}

// gone waits until the session of an instance is over.
func (c *cluster) gone(s *zookeeper.Session, job, id string) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), patience)
	defer cancel()
	q := registry.Children(tree.NewLayout(c.ns, job).Root() + "/instances")
	watch, err := s.Watch(ctx, q)
	if err != nil {
		c.t.Fatal(err)
	}
	for seen := range watch {
		if !slices.Contains(seen[q].Names, id) {
			return
		}
	}
	c.t.Fatalf("%s has been an instance of %s for %s", id, job, patience)
}

// Sessions of hosts whose end is waited for, and of those that shall not end
// however busy the machine is.
var (
	mortal  = []string{"--session-timeout", "8s"}
	longest = []string{"--session-timeout", "2m"}
)

// again starts a host that has ended anew, in its place and at its address.
func (c *cluster) again(m *member, flags ...string) *member {
	c.t.Helper()
	n := &member{place: m.place, ip: m.ip, flags: append(c.flags(m.ip), flags...)}
	n.process = n.place.start(n.flags...)
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
	c.registry("job", "run", job)
	for _, m := range on {
		fire := m.of(job, f.at[m], kind(event.FireStarted), source(abi.SourceTrigger))
		for _, n := range fire.Items {
			f.runs[m] = append(f.runs[m], m.of(job, fire.at, kind(event.ItemStarted), item(n), ofFire(fire)))
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
			return test{fmt.Sprintf("trigger %d", run.Trigger), func(e event.Event) bool { return e.Trigger == run.Trigger }}
		}
	}
	return test{"of a fire without items", func(event.Event) bool { return false }}
}

// takenOver waits until each of the items runs again, as a failover, on one of
// the hosts, and returns where.
func (f *flight) takenOver(t *testing.T, items []int, by ...*member) map[int]*member {
	t.Helper()
	taken := make(map[int]*member)
	for {
		news := newsOf(by)
		for _, m := range by {
			for _, e := range m.all(f.job, f.at[m], kind(event.ItemStarted), source(abi.SourceFailover), f.same()) {
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
		done := m.of(f.job, f.at[m], kind(event.ItemCompleted), item(n), f.same())
		if done.Outcome != abi.OutcomeOK || done.Source != abi.SourceFailover {
			t.Errorf("item %d of %s ends as %+v", n, f.job, done.Event)
		}
		starts := 0
		for _, m := range on {
			starts += len(m.all(f.job, f.at[m], kind(event.ItemStarted), item(n), f.same()))
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
	c.registry("job", "run", job)
	for {
		news := newsOf(on)
		ran := make(map[int]int)
		for _, m := range on {
			for _, e := range m.all(job, at[m], kind(event.ItemCompleted), source(abi.SourceTrigger), outcome(abi.OutcomeOK)) {
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
		var d tree.Division
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

// subtree is all that is below some nodes, and they themselves.
func subtree(t *testing.T, s *zookeeper.Session, roots ...string) map[string][]byte {
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
