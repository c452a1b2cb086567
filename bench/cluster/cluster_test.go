// Package cluster_test counts what hosts ask of a real ZooKeeper: against the
// budget that they keep to (budget_test.go), and at the sizes that clusters
// reach (scale_test.go). The hosts are real ones in one process, each with a
// session of its own; only their modules are Go functions.
package cluster_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/coordination/admin/operate"
	"github.com/wasmjob/wasmjob/coordination/jobconfig"
	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/registry/zookeeper"
	"github.com/wasmjob/wasmjob/coordination/tree"
	"github.com/wasmjob/wasmjob/host/engine"
	"github.com/wasmjob/wasmjob/host/event"
	"github.com/wasmjob/wasmjob/test/zkserver"
)

// patience bounds every wait for the next event on the way to something that must
// happen, and longPatience the whole way: how many events a machine has in a
// minute is its own affair. A benchmark waits for an event that long, too.
const (
	patience     = 2 * time.Minute
	longPatience = 15 * time.Minute
)

// call is one exchange with the registry. The nodes of a read are asked for
// without waiting for answers in between; the ops of a commit are one request.
type call struct {
	kind callKind
	job  string
	n    int // nodes, or ops
	size int // of a commit in bytes, about
	what string
	err  string    // of a conflict
	at   time.Time // when a read or a watch was asked for, or a commit was answered
}

type callKind string

const (
	readCall     callKind = "read"
	commitCall   callKind = "commit"
	conflictCall callKind = "conflict" // a commit that was refused
	watchCall    callKind = "watch"
)

func (c call) String() string {
	unit := "nodes"
	if c.kind == commitCall || c.kind == conflictCall {
		unit = "ops"
	}
	text := fmt.Sprintf("%-10s %-8s %6d %-5s %s", c.purpose(), c.kind, c.n, unit, c.what)
	if c.err != "" {
		text += " (" + c.err + ")"
	}
	return text
}

// purpose tells what a call is made for, from the nodes that it is about.
func (c call) purpose() string {
	begins := func(prefix string) bool { return strings.HasPrefix(c.what, prefix) }
	has := func(part string) bool { return strings.Contains(c.what, part) }
	write := c.kind == commitCall || c.kind == conflictCall
	switch {
	case c.kind == watchCall:
		return "watch"
	case write && begins("check +/leader"), begins("/config, /instances, +/members, +/leader"), begins("/servers/IP, +/instances/ID"):
		return "divide"
	case has("/leader/election/latch"), write && has("ephemeral /leader/election/instance"):
		return "elect"
	case write && begins("check /config, create /leader/sharding/necessary"):
		return "flag"
	case write && has("ephemeral /sharding/N/failover"), write && has("delete +/runs/ID"),
		begins("+/runs/ID, /instances/ID, +/instances/ID"), has("/sharding/N/failovering, /leader/failover/items/N"), begins("+/runs/ID, +/members, +/assignment/ID"):
		return "recover"
	case write && begins("check /config, check +/assignment/ID"), write && begins("set +/sharding/N"), begins("+/runs/ID, +/members, +/sharding/N"):
		return "fire"
	case begins("/sharding, +/runs, /instances"), begins("/sharding/N/running, /sharding/N/failovering"):
		return "sweep"
	case begins("+/assignment/ID, +/assignment"), begins("+/sharding/N, +/offset/N"), c.what == "/sharding/N/instance":
		return "share"
	case write && has("ensure /servers"), begins("/, /config, +/definition"):
		return "join"
	case begins("/config, +/definition"), begins("set /config"), begins("check /config, set /config"):
		return "definition"
	}
	return "other"
}

// meter counts what one host asks for: calls as the host makes them, and
// requests by kind as they are sent.
type meter struct {
	mu    sync.Mutex
	calls []call
	wire  map[string]int
	last  time.Time // of a request that is no sign of life
}

func newMeter() *meter { return &meter{wire: make(map[string]int), last: time.Now()} }

// sent is zookeeper.Options.OnOperation.
func (m *meter) sent(op string, n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.wire[op] += n
	if !signsOfLife[op] {
		m.last = time.Now()
	}
}

func (m *meter) requests(op string) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.wire[op]
}

// signsOfLife are requests that sessions make by themselves: one sync every
// twelfth of the session timeout, and the client's pings.
var signsOfLife = map[string]bool{"sync": true, "ping": true}

func (m *meter) made(c call) {
	m.mu.Lock()
	defer m.mu.Unlock()
	c.at = time.Now()
	m.calls = append(m.calls, c)
}

// mark is how far a meter was at some moment.
type mark struct {
	calls int
	wire  map[string]int
}

func (m *meter) mark() mark {
	m.mu.Lock()
	defer m.mu.Unlock()
	return mark{len(m.calls), maps.Clone(m.wire)}
}

// between are the calls for a job between two marks; "" is all jobs.
func (m *meter) between(from, to mark, job string) []call {
	m.mu.Lock()
	defer m.mu.Unlock()
	var calls []call
	for _, c := range m.calls[from.calls:to.calls] {
		if job == "" || c.job == job {
			calls = append(calls, c)
		}
	}
	return calls
}

// requests are those by kind between two marks.
func requests(from, to mark) map[string]int {
	n := make(map[string]int)
	for op, count := range to.wire {
		if d := count - from.wire[op]; d > 0 {
			n[op] = d
		}
	}
	return n
}

// reads are the requests that read or look.
func reads(requests map[string]int) int {
	return requests["getData"] + requests["getChildren"] + requests["exists"]
}

// words are the requests for people.
func words(requests map[string]int) string {
	var list []string
	for _, op := range slices.Sorted(maps.Keys(requests)) {
		list = append(list, fmt.Sprintf("%s %d", op, requests[op]))
	}
	return cmp.Or(strings.Join(list, ", "), "none")
}

// pick are the calls for a purpose, "" for any, of the kinds.
func pick(calls []call, purpose string, kinds ...callKind) []call {
	return slices.DeleteFunc(slices.Clone(calls), func(c call) bool {
		return purpose != "" && c.purpose() != purpose || !slices.Contains(kinds, c.kind)
	})
}

// counted is a session whose calls are counted.
type counted struct {
	registry.Center
	meter *meter
}

func (c counted) Commit(ctx context.Context, ops ...registry.Op) ([]registry.Result, error) {
	results, err := c.Center.Commit(ctx, ops...)
	made := call{kind: commitCall, n: len(ops)}
	if errors.Is(err, registry.ErrConflict) {
		made.kind = conflictCall
	}
	paths := make([]string, len(ops))
	for i, op := range ops {
		paths[i] = op.Path
		made.size += 60 + len(op.Path) + len(op.Data)
	}
	made.job, made.what = about(paths, func(i int) string { return ops[i].Kind.String() + " " })
	if made.kind == conflictCall {
		made.err = err.Error()
	}
	c.meter.made(made)
	return results, err
}

func (c counted) Read(ctx context.Context, queries ...registry.Query) ([]registry.Node, error) {
	c.meter.made(asked(readCall, queries))
	return c.Center.Read(ctx, queries...)
}

func (c counted) Watch(ctx context.Context, queries ...registry.Query) (<-chan registry.Snapshot, error) {
	c.meter.made(asked(watchCall, queries))
	return c.Center.Watch(ctx, queries...)
}

func asked(kind callKind, queries []registry.Query) call {
	made := call{kind: kind, n: len(queries)}
	paths := make([]string, len(queries))
	for i, q := range queries {
		paths[i] = q.Path
	}
	made.job, made.what = about(paths, func(int) string { return "" })
	return made
}

// about says in short which nodes a call is about, and of which job. Of very
// many it looks at the first and the last.
func about(paths []string, verb func(int) string) (job, what string) {
	const first, last = 100, 20
	var list []string
	for i, p := range paths {
		if i >= first && i < len(paths)-last {
			continue
		}
		name, of := short(p)
		job = cmp.Or(job, of)
		if name = verb(i) + name; !slices.Contains(list, name) {
			list = append(list, name)
		}
	}
	return job, strings.Join(list, ", ")
}

// short names a node without its namespace and job, with N for numbers and ID
// for hosts. Nodes of our own tree begin with "+/", ElasticJob's with "/".
func short(path string) (name, job string) {
	parts := strings.Split(strings.TrimPrefix(path, "/"), "/")
	if len(parts) < 2 {
		return path, ""
	}
	for i, part := range parts[2:] {
		_, notNumber := strconv.Atoi(part)
		_, notAddress := netip.ParseAddr(part)
		switch {
		case strings.Contains(part, "@-@"):
			parts[2+i] = "ID"
		case notNumber == nil:
			parts[2+i] = "N"
		case notAddress == nil:
			parts[2+i] = "IP"
		}
	}
	name = "/" + strings.Join(parts[2:], "/")
	if strings.HasSuffix(parts[0], ".wasmjob") {
		name = "+" + name
	}
	return name, parts[1]
}

// cluster is hosts of one namespace.
type cluster struct {
	t                  testing.TB
	connect, namespace string
	timeout            time.Duration // of sessions
	patience           time.Duration
	hosts              []*node

	mu      sync.Mutex
	changed chan struct{} // closed with every event
	outage  bool          // sessions may be lost; guarded by mu
}

// node is one of the hosts.
type node struct {
	c          *cluster
	name       string
	host       *engine.Host
	meter      *meter
	stop, kill context.CancelFunc
	done       chan error

	// Guarded by cluster.mu.
	session   registry.Center          // the newest
	lost      bool                     // its first session
	owned     map[string][]int         // by job
	completed map[string]int           // by job
	elected   map[string]bool          // by job
	divided   map[string]int           // by job: how often this host has divided the items
	see       func(*node, event.Event) // gets every event, in order
}

func newCluster(t testing.TB, connect, namespace string, timeout time.Duration) *cluster {
	c := &cluster{t: t, connect: connect, namespace: namespace, timeout: timeout, patience: patience, changed: make(chan struct{})}
	t.Cleanup(c.end)
	return c
}

// end stops all hosts. It may be called more than once.
func (c *cluster) end() {
	for _, n := range c.hosts {
		n.kill()
	}
	for _, n := range c.hosts {
		n.wait()
	}
}

// start runs one more host, with the jobs. Its events go to see, if that is
// not nil, with the cluster at rest.
func (c *cluster) start(see func(*node, event.Event), jobs ...engine.Job) *node {
	c.t.Helper()
	n := &node{c: c, name: fmt.Sprintf("10.0.%d.%d", len(c.hosts)/250, len(c.hosts)%250+1), meter: newMeter(), done: make(chan error, 1), see: see,
		owned: make(map[string][]int), completed: make(map[string]int), elected: make(map[string]bool), divided: make(map[string]int)}
	h, err := engine.New(engine.Config{
		Dial: func(ctx context.Context) (registry.Center, error) {
			s, err := zookeeper.Dial(ctx, zookeeper.Options{Connect: c.connect, SessionTimeout: c.timeout, OnOperation: n.sent})
			if err != nil {
				return nil, err
			}
			c.mu.Lock()
			defer c.mu.Unlock()
			n.session = counted{s, n.meter}
			return n.session, nil
		},
		Namespace: c.namespace, ServerIP: n.name, MaxConcurrency: 1 << 14, OnEvent: n.event,
	})
	if err != nil {
		c.t.Fatal(err)
	}
	running, stop := context.WithCancel(context.Background())
	alive, kill := context.WithCancel(context.Background())
	n.host, n.stop, n.kill = h, stop, kill
	h.Apply(jobs, nil)
	go func() { n.done <- h.Run(running, alive); close(n.done) }()
	c.hosts = append(c.hosts, n)
	return n
}

// trigger triggers a job as the host's admin address does, through its session.
func (n *node) trigger(ctx context.Context, job string) error {
	n.c.mu.Lock()
	session := n.session
	n.c.mu.Unlock()
	return operate.TriggerJob(ctx, session, tree.NewLayout(n.c.namespace, job))
}

// wait joins a host that was told to stop.
func (n *node) wait() {
	n.c.t.Helper()
	if err := <-n.done; err != nil {
		n.c.t.Errorf("host %s: %v", n.name, err)
	}
	n.stop()
	n.kill()
}

// crash ends a host as kill -9 does, except that its session ends at once: it
// says nothing to anybody.
func (n *node) crash() {
	n.c.t.Helper()
	n.kill()
	n.wait()
}

func (n *node) sent(op string, count int) {
	n.meter.sent(op, count)
	if op == "connect" {
		n.c.mu.Lock()
		defer n.c.mu.Unlock()
		n.c.news()
	}
}

// news wakes whoever awaits something. mu is held.
func (c *cluster) news() {
	close(c.changed)
	c.changed = make(chan struct{})
}

func (n *node) event(e event.Event) {
	n.c.mu.Lock()
	defer n.c.mu.Unlock()
	switch e.Kind {
	case event.Assigned:
		n.owned[e.Job] = e.Items
	case event.ItemCompleted:
		n.completed[e.Job]++
	case event.Elected:
		n.elected[e.Job] = true
	case event.Sharded:
		n.divided[e.Job]++
	case event.Session:
		switch {
		case e.Reason == "lost" && n.c.outage:
			n.owned, n.lost = make(map[string][]int), true
		case e.Reason == "lost":
			n.c.t.Errorf("host %s has lost its session: the machine is too slow for a timeout of %s", n.name, n.c.timeout)
		}
	}
	if n.see != nil {
		n.see(n, e)
	}
	n.c.news()
}

// await waits until events have made something true. ready is called with the
// events at rest.
func (c *cluster) await(what string, ready func() bool) {
	c.t.Helper()
	silence, all := time.NewTimer(c.patience), time.NewTimer(longPatience)
	defer silence.Stop()
	defer all.Stop()
	for {
		c.mu.Lock()
		done, changed := ready(), c.changed
		c.mu.Unlock()
		if done {
			return
		}
		select {
		case <-changed:
			silence.Reset(c.patience)
		case <-silence.C:
			c.t.Fatalf("nothing has happened for %s: still waiting until %s", c.patience, what)
		case <-all.C:
			c.t.Fatalf("after %s: still waiting until %s", longPatience, what)
		}
	}
}

// divided waits until the items of a job are divided over n hosts, all of
// them evenly but for one.
func (c *cluster) divided(job string, total int, hosts ...*node) {
	c.t.Helper()
	c.await(fmt.Sprintf("the %d items of %s are divided over %d hosts", total, job, len(hosts)), func() bool {
		sum := 0
		for _, n := range hosts {
			if own := len(n.owned[job]); own < total/len(hosts) || own > total/len(hosts)+total%len(hosts) {
				return false
			}
			sum += len(n.owned[job])
		}
		return sum == total
	})
}

// quiet waits until no host has asked for anything for a while.
func (c *cluster) quiet(d time.Duration) {
	c.t.Helper()
	begun := time.Now()
	for {
		rest := time.Duration(0)
		for _, n := range c.hosts {
			n.meter.mu.Lock()
			rest = max(rest, d-time.Since(n.meter.last))
			n.meter.mu.Unlock()
		}
		if rest <= 0 {
			return
		}
		if time.Since(begun) > c.patience {
			c.t.Fatalf("the hosts are never quiet for %s", d)
		}
		time.Sleep(rest)
	}
}

// marks notes where all hosts are.
func (c *cluster) marks() map[*node]mark {
	m := make(map[*node]mark)
	for _, n := range c.hosts {
		m[n] = n.meter.mark()
	}
	return m
}

// divisions tells how often each host has divided the items of a job.
func (c *cluster) divisions(job string) map[*node]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	m := make(map[*node]int)
	for _, n := range c.hosts {
		m[n] = n.divided[job]
	}
	return m
}

// watches asks the server how many watches it holds.
func watches(t testing.TB, e *zkserver.Ensemble) int {
	t.Helper()
	text, err := e.Ask(context.Background(), 0, "mntr")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.SplitSeq(text, "\n") {
		if value, ok := strings.CutPrefix(line, "zk_watch_count\t"); ok {
			n, err := strconv.Atoi(strings.TrimSpace(value))
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	t.Fatalf("the server does not tell how many watches it holds:\n%s", text)
	return 0
}

// module is a job in plain Go.
type module func(ctx context.Context, inv *abi.Invocation) abi.Result

var ok = abi.Result{Outcome: abi.OutcomeOK}

func noop(context.Context, *abi.Invocation) abi.Result { return ok }

func (m module) Digest() string                                              { return strings.Repeat("0", 64) }
func (module) Granted() string                                               { return "" }
func (m module) Executor(jobconfig.Configuration) (abi.Executor, error)      { return m, nil }
func (m module) HasListener(string) bool                                     { return false }
func (m module) NewWorker(context.Context) (abi.Worker, error)               { return m, nil }
func (m module) Retain() bool                                                { return true }
func (m module) Expect(time.Time)                                            {}
func (m module) Release()                                                    {}
func (m module) Close() error                                                { return nil }
func (m module) Listen(context.Context, string, *abi.Invocation) abi.Result  { return ok }
func (m module) Execute(ctx context.Context, inv *abi.Invocation) abi.Result { return m(ctx, inv) }

// together is a module whose items of one fire on one host all end when the
// last of them has begun.
func together() module {
	type gate struct {
		missing int
		open    chan struct{}
	}
	var mu sync.Mutex
	gates := make(map[string]*gate)
	return func(ctx context.Context, inv *abi.Invocation) abi.Result {
		fire := inv.Context.TaskID + inv.Context.FireTime.String()
		mu.Lock()
		g := gates[fire]
		if g == nil {
			items := strings.Split(inv.Context.TaskID, "@-@")[1]
			g = &gate{1 + strings.Count(items, ","), make(chan struct{})}
			gates[fire] = g
		}
		if g.missing--; g.missing == 0 {
			close(g.open)
			delete(gates, fire)
		}
		mu.Unlock()
		select {
		case <-g.open:
			return ok
		case <-ctx.Done():
			return abi.Result{Outcome: abi.OutcomeCancelled}
		}
	}
}

// job is a job of which all items of a host may run at once.
func job(name, cron string, total int, failover bool, m module) engine.Job {
	return engine.Job{Module: m, File: name + ".yaml", ModuleFile: name + ".wasm", Definition: jobconfig.Configuration{
		JobName: name, Cron: cron, TimeZone: "GMT", ShardingTotalCount: total, MonitorExecution: true, Failover: failover, Misfire: true,
		MaxTimeDiffSeconds: -1, ReconcileIntervalMinutes: 10, Props: map[string]string{"wasm.maxConcurrency": "10000"},
	}}
}
