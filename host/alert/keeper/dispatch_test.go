package keeper_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/coordination/admin/operate"
	"github.com/wasmjob/wasmjob/coordination/jobconfig"
	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/registry/embedded"
	"github.com/wasmjob/wasmjob/coordination/registry/registrytest"
	"github.com/wasmjob/wasmjob/coordination/tree"
	"github.com/wasmjob/wasmjob/host/alert"
	"github.com/wasmjob/wasmjob/host/alert/keeper"
	"github.com/wasmjob/wasmjob/host/alert/store"
	"github.com/wasmjob/wasmjob/host/engine"
	"github.com/wasmjob/wasmjob/host/event"
)

// Real hosts share a registry in one process, in virtual time, each with a dispatcher; what
// they send is noted. test/e2e has real processes, a ZooKeeper and real receivers.

const (
	namespace = "test"
	// sessionTimeout is how long the registry keeps what a host has that is killed.
	sessionTimeout = 12 * time.Second
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// cluster is a registry, hosts, and what was sent.
type cluster struct {
	t      *testing.T
	server *embedded.Server
	file   *alert.File
	fails  atomic.Bool  // what jobs do
	takes  atomic.Int64 // how long the runs that begin take, nanoseconds
	ops    atomic.Int64
	turns  atomic.Int64 // of the dispatchers' loops, about
	nodes  []*node
	// withoutHistory has the dispatchers of the hosts that start not look at histories every five
	// seconds, which wakes them.
	withoutHistory bool

	mu     sync.Mutex
	sent   []string
	down   map[string]bool // receivers
	partly atomic.Bool     // not all of a receiver get messages
	bad    string          // no receiver takes what has this in it
}

// node is a host with its dispatcher.
type node struct {
	c       *cluster
	n       int
	service *keeper.Dispatcher
	host    *engine.Host
	dead    atomic.Bool
	problem atomic.Pointer[string] // of its history
	unseen  atomic.Pointer[string] // what its watches do not show yet among those that live, by prefix
	slow    atomic.Bool            // its commits of alerts take a second
	deaf    atomic.Bool            // it does not notice that its session is over

	stop, kill context.CancelFunc
	done       chan struct{}

	mu      sync.Mutex
	session *session
}

// session counts what is asked of the registry; of a host that was killed it lives on
// for a while.
type session struct {
	*registrytest.FaultyCenter
	node *node
}

func (s *session) Commit(ctx context.Context, ops ...registry.Op) ([]registry.Result, error) {
	if s.node.dead.Load() {
		return nil, registry.ErrClosed
	}
	s.count(ops)
	if s.node.slow.Load() && ofAlerts(ops) {
		time.Sleep(time.Second)
	}
	return s.FaultyCenter.Commit(ctx, ops...)
}

// count counts commits of alerts alone.
func (s *session) count(ops []registry.Op) {
	if ofAlerts(ops) {
		s.node.c.ops.Add(1)
	}
}

func ofAlerts(ops []registry.Op) bool {
	return slices.ContainsFunc(ops, func(op registry.Op) bool { return strings.Contains(op.Path, "@-@alerts") })
}

func (s *session) Read(ctx context.Context, q ...registry.Query) ([]registry.Node, error) {
	if slices.ContainsFunc(q, func(q registry.Query) bool { return strings.Contains(q.Path, "@-@alerts") }) {
		s.node.c.ops.Add(1)
	}
	return s.FaultyCenter.Read(ctx, q...)
}

// Watch shows what a watch may: nodes that are not of one instant.
func (s *session) Watch(ctx context.Context, q ...registry.Query) (<-chan registry.Snapshot, error) {
	in, err := s.FaultyCenter.Watch(ctx, q...)
	if err != nil {
		return nil, err
	}
	out := make(chan registry.Snapshot)
	go func() { // ends with the watch
		defer close(out)
		for snapshot := range in {
			shown := maps.Clone(snapshot)
			for query, n := range shown {
				if unseen := s.node.unseen.Load(); unseen != nil && strings.HasSuffix(query.Path, "@-@alerts/alive") {
					n.Names = slices.DeleteFunc(slices.Clone(n.Names), func(id string) bool { return strings.HasPrefix(id, *unseen) })
					shown[query] = n
				}
			}
			select {
			case out <- shown:
			case <-ctx.Done():
				return
			}
		}
	}()
	return out, nil
}

// Lost is nil for a host that has just gone on after a halt.
func (s *session) Lost() <-chan struct{} {
	if s.node.deaf.Load() {
		return nil
	}
	return s.FaultyCenter.Lost()
}

func (s *session) Close() error {
	if s.node.dead.Load() {
		time.AfterFunc(sessionTimeout, func() { _ = s.FaultyCenter.Close() })
		return nil
	}
	return s.FaultyCenter.Close()
}

func newCluster(t *testing.T, rules string) *cluster {
	t.Helper()
	server, err := embedded.Open(embedded.Options{})
	if err != nil {
		t.Fatal(err)
	}
	f, err := alert.Parse("alerts.yaml", []byte("receivers: {ops: {webhook: {url: \"https://ops.example\"}}}\nroutes: [{name: all, to: ops}]\n"+rules))
	if err != nil {
		t.Fatal(err)
	}
	c := &cluster{t: t, server: server, file: f, down: make(map[string]bool)}
	t.Cleanup(func() {
		for _, n := range c.nodes {
			n.kill()
			<-n.done
		}
		time.Sleep(2 * sessionTimeout)
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// fixed are rules that do not change.
type fixed struct {
	file  *alert.File
	asked *atomic.Int64 // how often; may be nil
}

func (f fixed) File() *alert.File {
	if f.asked != nil {
		f.asked.Add(1)
	}
	return f.file
}
func (fixed) Changed() <-chan struct{}    { return nil }
func (fixed) Problem() string             { return "" }
func (fixed) Watch(context.Context) error { return nil }

// guest is a module in plain Go.
type guest struct{ c *cluster }

func (*guest) Digest() string  { return "guest" }
func (*guest) Granted() string { return "" }
func (g *guest) Executor(jobconfig.Configuration) (abi.Executor, error) {
	return g, nil
}
func (*guest) HasListener(string) bool                         { return false }
func (g *guest) NewWorker(context.Context) (abi.Worker, error) { return g, nil }
func (*guest) Close() error                                    { return nil }
func (*guest) Retain() bool                                    { return true }
func (*guest) Expect(time.Time)                                {}
func (*guest) Release()                                        {}
func (g *guest) Execute(ctx context.Context, _ *abi.Invocation) abi.Result {
	select {
	case <-time.After(time.Duration(g.c.takes.Load())):
	case <-ctx.Done():
	}
	if g.c.fails.Load() {
		return abi.Result{Outcome: abi.OutcomeFail, Message: "no file"}
	}
	return abi.Result{Outcome: abi.OutcomeOK}
}
func (*guest) Listen(context.Context, string, *abi.Invocation) abi.Result { return abi.Result{} }

func job(c *cluster, name string, items int) engine.Job {
	return engine.Job{Module: &guest{c}, File: name + ".yaml", ModuleFile: name + ".wasm", Definition: jobconfig.Configuration{
		JobName: name, Cron: "0 * * * * ?", TimeZone: "GMT", ShardingTotalCount: items, MonitorExecution: true, Misfire: true,
		MaxTimeDiffSeconds: -1, ReconcileIntervalMinutes: 10, Props: map[string]string{},
	}}
}

// start runs a host with jobs.
func (c *cluster) start(jobs ...engine.Job) *node {
	c.t.Helper()
	n := &node{c: c, n: len(c.nodes) + 1, done: make(chan struct{})}
	c.nodes = append(c.nodes, n)
	log := zap.NewNop()
	if testing.Verbose() {
		log = zaptest.NewLogger(c.t).Named(fmt.Sprint(n.n))
	}
	server := fmt.Sprintf("10.0.0.%d", n.n)
	options := keeper.Options{Rules: fixed{c.file, &c.turns}, Namespace: namespace, Server: server, Session: n.center, Send: n.send, Logger: log}
	if !c.withoutHistory {
		options.History = func() (string, time.Time) {
			if p := n.problem.Load(); p != nil {
				return *p, time.Now()
			}
			return "", time.Time{}
		}
	}
	n.service = keeper.New(options)
	h, err := engine.New(engine.Config{
		Namespace: namespace, ServerIP: server, Logger: zap.NewNop(),
		Dial: func(ctx context.Context) (registry.Center, error) {
			r, err := c.server.Connect(ctx)
			if err != nil {
				return nil, err
			}
			n.mu.Lock()
			defer n.mu.Unlock()
			n.session = &session{registrytest.Faulty(r, nil), n}
			return n.session, nil
		},
		OnEvent: func(e event.Event) {
			if !n.dead.Load() {
				n.service.Add(e)
			}
		},
		BeforeClose: n.service.Leave,
	})
	if err != nil {
		c.t.Fatal(err)
	}
	n.host = h
	h.Apply(jobs, nil)
	ctx, stop := context.WithCancel(context.Background())
	kill, killNow := context.WithCancel(context.Background())
	around, end := context.WithCancel(context.Background())
	n.stop, n.kill = stop, func() { killNow(); end() }
	var wg sync.WaitGroup
	wg.Go(func() {
		defer end()
		if err := h.Run(ctx, kill); err != nil {
			c.t.Error(err)
		}
	})
	wg.Go(func() { n.service.Run(ctx, around) })
	go func() { // joined by done
		wg.Wait()
		close(n.done)
	}()
	synctest.Wait()
	time.Sleep(time.Second)
	return n
}

func (n *node) center() registry.Center {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.session == nil {
		return nil
	}
	return n.session
}

// die ends the host as kill -9 does.
func (n *node) die() {
	synctest.Wait()
	n.dead.Store(true)
	n.kill()
	<-n.done
}

// has says that the host has a job.
func (n *node) has(job string) {
	n.service.Add(event.Event{Kind: event.FireStarted, Host: "x", Job: job, Time: time.Now()})
}

// send notes a message.
func (n *node) send(_ context.Context, r alert.Receiver, m *alert.Message) (err error) {
	n.c.mu.Lock()
	defer n.c.mu.Unlock()
	if n.c.down[r.Name] {
		return errors.New("it does not answer")
	}
	bad := func(a alert.Alert) bool { return n.c.bad != "" && strings.Contains(a.Text, n.c.bad) }
	if slices.ContainsFunc(m.Firing, bad) {
		return errors.New("it is refused")
	}
	var texts []string
	for i, a := range m.Firing {
		mark := "still "
		if i < m.New {
			mark = ""
		}
		texts = append(texts, mark+a.Text)
	}
	for _, a := range m.Over {
		texts = append(texts, "over: "+a.Text)
	}
	defer func() {
		if n.c.partly.Load() {
			err = &alert.PartlyError{Err: errors.New("nobody@example.com: 550")}
		}
	}()
	n.c.sent = append(n.c.sent, fmt.Sprintf("%s %d %s", time.Now().UTC().Format("04:05"), n.n, strings.Join(texts, "; ")))
	return nil
}

// take returns what was sent since it was called last.
func (c *cluster) take() []string {
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	sent := c.sent
	c.sent = nil
	return sent
}

func (c *cluster) expect(want ...string) {
	c.t.Helper()
	got := c.take()
	match := func(got, want string) bool { return strings.HasPrefix(got, want) }
	if !slices.EqualFunc(got, want, match) {
		c.t.Errorf("sent\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// minute is so many minutes after the begin of the hour.
func until(minutes, seconds int) {
	time.Sleep(time.Until(time.Date(2000, 1, 1, 0, minutes, seconds, 0, time.UTC)))
}

func bubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, f)
}

// TestDispatcher: what fails on any host is sent by one, within five seconds, and its end as
// well; an undisturbed cluster asks nothing of the registry for alerts.
func TestDispatcher(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, "")
		for range 3 {
			c.start(job(c, "j", 3))
		}
		until(1, 0)
		before := c.ops.Load()
		until(9, 30)
		if asked := c.ops.Load() - before; asked != 0 {
			t.Errorf("%d requests in eight undisturbed minutes", asked)
		}
		c.expect()
		c.fails.Store(true)
		until(10, 5)
		got := c.take()
		if len(got) != 1 || !strings.HasPrefix(got[0], "10:02 1 ") || strings.Count(got[0], "failed, the run for 2000-01-01 00:10:00 GMT: FAIL (no file)") != 3 {
			t.Errorf("%q", got)
		}
		until(13, 30) // it goes on failing
		c.expect()
		c.fails.Store(false)
		until(14, 10)
		got = c.take()
		if len(got) != 1 || strings.Count(got[0], "over: item") != 3 {
			t.Errorf("%q", got)
		}
		until(15, 30)
		c.expect()
		if st := c.nodes[0].service.Status(); !st.Keeper || st.Firing != 0 || st.Sent != 2 || c.nodes[1].service.Status().Keeper {
			t.Errorf("%+v, %+v", st, c.nodes[1].service.Status())
		}
	})
}

// TestDispatcher_judgeDies: the host dies that judges and sends, and that alone had a job. That
// it is gone, that its job does not run, and what has failed since is sent by another,
// within the session time-out and ten seconds; what was sent before is not sent again.
func TestDispatcher_judgeDies(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, "defaults: {startWithin: 5s}")
		judge := c.start(job(c, "both", 1), job(c, "lone", 1))
		c.start(job(c, "both", 1))
		until(2, 30)
		c.fails.Store(true)
		until(3, 30)
		if got := c.take(); len(got) == 0 {
			t.Fatal("nothing was sent")
		}
		until(3, 58)
		judge.die()
		gone := time.Now()
		until(4, 40)
		var late []string
		found := make(map[string]bool)
		for _, line := range c.take() {
			for _, want := range []string{"host 10.0.0.1 is gone", "item 0 of lone has not begun: due at 2000-01-01 00:04:00 GMT, wanted within 5s; no host has the job"} {
				if strings.Contains(line, want) {
					found[want] = true
				}
			}
			if at, err := time.Parse("2006-01-02 15:04:05", "2000-01-01 00:"+line[:5]); err != nil || at.Sub(gone) > sessionTimeout+10*time.Second {
				late = append(late, line)
			}
			if strings.HasPrefix(line[8:], "still") || line[6] != '2' {
				t.Errorf("%s", line)
			}
		}
		if len(found) != 2 || len(late) > 0 {
			t.Errorf("found %v, late %q", found, late)
		}
		// The server comes back, and so does its job.
		c.fails.Store(false)
		c.start(job(c, "both", 1), job(c, "lone", 1))
		until(7, 0)
		all := strings.Join(c.take(), "\n")
		for _, want := range []string{"over: item 0 of lone has not begun", "over: item 0 of lone failed", "over: item 0 of both failed"} {
			if !strings.Contains(all, want) {
				t.Errorf("%q is not in\n%s", want, all)
			}
		}
	})
}

// promptly is within which time of its cause a message is sent, and afterDeath within which time
// of the death of the host that judges and sends.
const (
	promptly   = 5 * time.Second
	afterDeath = sessionTimeout + 10*time.Second
)

// TestDispatcher_promptly: a message is sent within five seconds of its cause, on whichever host that
// is, and not before; and within the session time-out and ten seconds if the host that judges and
// sends was killed just before the cause, whose session stays open until it expires. It kills the
// mutant "deadline of an alert that wakes nothing", and the
// mutant "keeper of the alerts without a successor".
func TestDispatcher_promptly(t *testing.T) {
	const rules = "defaults: {failures: off}\njobs: [{jobs: fails, failures: 1}, {jobs: late, startWithin: 30s}, {jobs: dry, succeedEvery: 2m}, {jobs: long, longerThan: 45s}]"
	for name, tt := range map[string]struct {
		// alert is the begin of its text, minute and second are when the cause is.
		alert          string
		minute, second int
		takes          time.Duration // the runs from 2:00 on
		fails          bool          // they do
		dies           bool          // a host that has the job, a session time-out before the cause
		refused        bool          // a module is, at the cause
	}{
		"fails":   {alert: "of fails failed, the run for 2000-01-01 00:02:00 GMT: FAIL", minute: 2, second: 7, takes: 7 * time.Second, fails: true},
		"late":    {alert: "of late have not begun: due at 2000-01-01 00:03:00 GMT", minute: 3, second: 30, takes: 4 * time.Minute},
		"dry":     {alert: "of dry have not succeeded for 2m", minute: 3, second: 0, fails: true},
		"long":    {alert: "of long runs longer than 45s", minute: 2, second: 45, takes: 4 * time.Minute},
		"lost":    {alert: "of lost for 2000-01-01 00:02:00 GMT is lost", minute: 2, second: 42, takes: 4 * time.Minute, dies: true},
		"gone":    {alert: "host 10.0.0.3 is gone", minute: 2, second: 42, dies: true},
		"refused": {alert: "host 10.0.0.2 refuses bad.yaml: bad.wasm", minute: 2, second: 10, refused: true},
	} {
		for _, killed := range []bool{false, true} {
			t.Run(fmt.Sprint(name, map[bool]string{true: ", the host that sends was killed"}[killed]), func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					c := newCluster(t, rules)
					c.withoutHistory = true
					jobs := []engine.Job{job(c, name, 6)}
					sender, other, third := c.start(jobs...), c.start(jobs...), c.start(jobs...)
					cause := time.Date(2000, 1, 1, 0, tt.minute, tt.second, 0, time.UTC)
					until(1, 30)
					c.takes.Store(int64(tt.takes))
					c.fails.Store(tt.fails)
					if tt.dies {
						time.Sleep(time.Until(cause.Add(-sessionTimeout)))
						third.die()
					}
					time.Sleep(time.Until(cause.Add(-time.Second)))
					limit := cause.Add(promptly)
					if killed {
						limit = time.Now().Add(afterDeath)
						sender.die()
					}
					time.Sleep(time.Until(cause.Add(-time.Millisecond)))
					if got := strings.Join(c.take(), "\n"); strings.Contains(got, tt.alert) {
						t.Errorf("sent before the cause:\n%s", got)
					}
					time.Sleep(time.Until(cause))
					if tt.refused {
						other.host.Apply(jobs, []engine.Refusal{{File: "bad.yaml", Reasons: []string{"bad.wasm: it is no module"}}})
					}
					time.Sleep(time.Until(limit))
					if got := strings.Join(c.take(), "\n"); !strings.Contains(got, tt.alert) {
						t.Errorf("not sent at %s:\n%s", limit.Format(time.TimeOnly), got)
					}
				})
			})
		}
	}
}

// TestDispatcher_otherJanitor: the janitor of a job dies before an absence is due; the next
// one finds it at the same time.
func TestDispatcher_otherJanitor(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, "jobs: [{jobs: j, succeedEvery: 2m}]")
		judge := c.start(job(c, "j", 2))
		c.start(job(c, "j", 2))
		until(3, 30)
		c.expect()
		c.fails.Store(true)
		until(3, 40)
		judge.die()
		until(5, 0)
		c.take()
		until(5, 20)
		if all := strings.Join(c.take(), "\n"); !strings.Contains(all, "of j have not succeeded for 2m: since 2000-01-01 00:03:00 GMT") {
			t.Errorf("sent\n%s", all)
		}
	})
}

// TestDispatcher_enabled: a job that was disabled at an instant does not have to begin for it,
// and one whose hosts come late has to.
func TestDispatcher_enabled(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, "defaults: {startWithin: 30s}")
		n := c.start(withoutCatchUp(job(c, "j", 2)))
		set := func(enable bool) {
			if _, err := operate.SetServers(t.Context(), n.center(), tree.NewLayout(namespace, "j"), tree.Word{}, enable); err != nil {
				t.Fatal(err)
			}
		}
		until(1, 30)
		set(false)
		until(2, 10)
		set(true)
		until(4, 50)
		c.expect()
		n.stop()
		<-n.done
		c.start() // keeps what the other host has left
		until(5, 10)
		c.start(withoutCatchUp(job(c, "j", 2)))
		until(5, 50)
		c.expect("05:32 2 items 0-1 of j have not begun: due at 2000-01-01 00:05:00 GMT, wanted within 30s")
	})
}

// TestDispatcher_itemEnabled: an item that was disabled at an instant does not have to begin for
// it, whichever host judges, also while an earlier run of it goes on, and if no host was there.
func TestDispatcher_itemEnabled(t *testing.T) {
	for name, tt := range map[string]struct {
		takes time.Duration
		hosts bool
	}{"idle": {0, true}, "earlier runs go on": {95 * time.Second, true}, "no host has the job": {0, false}} {
		for item := range 2 { // one of them is the judge's own
			t.Run(fmt.Sprint(name, ", item ", item), func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					c := newCluster(t, "defaults: {startWithin: 30s}")
					keeper := c.start()
					hosts := []*node{c.start(withoutCatchUp(job(c, "j", 3))), c.start(withoutCatchUp(job(c, "j", 3)))}
					set := func(enable bool) {
						for _, i := range []int{item, 2} {
							if _, err := operate.SetItem(t.Context(), keeper.center(), tree.NewLayout(namespace, "j"), tree.Word{}, i, enable); err != nil {
								t.Fatal(err)
							}
						}
					}
					until(0, 30)
					c.takes.Store(int64(tt.takes))
					until(1, 30)
					set(false)
					if !tt.hosts {
						for _, n := range hosts {
							n.stop()
							<-n.done
						}
					}
					c.takes.Store(0)
					until(2, 10)
					set(true)
					until(2, 34)
					var want []string
					if !tt.hosts || tt.takes > 0 {
						want = []string{fmt.Sprintf("02:32 1 item %d of j has not begun: due at 2000-01-01 00:02:00 GMT, wanted within 30s", 1-item)}
					}
					c.expect(want...)
				})
			})
		}
	}
}

// TestDispatcher_enabledAgain: who enables what is enabled does not hide that it is late.
func TestDispatcher_enabledAgain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, "defaults: {startWithin: 30s}")
		keeper := c.start()
		n := c.start(withoutCatchUp(job(c, "j", 1)))
		until(1, 30)
		n.stop()
		<-n.done
		until(2, 10)
		l := tree.NewLayout(namespace, "j")
		if _, err := operate.SetServers(t.Context(), keeper.center(), l, tree.Word{}, true); err != nil {
			t.Fatal(err)
		}
		if _, err := operate.SetItem(t.Context(), keeper.center(), l, tree.Word{}, 0, true); err != nil {
			t.Fatal(err)
		}
		until(2, 34)
		c.expect("02:32 1 item 0 of j has not begun: due at 2000-01-01 00:02:00 GMT, wanted within 30s; no host has the job")
	})
}

// TestDispatcher_edited: an item does not have to begin for an instant at which the job had fewer
// items, or another cron, also if its judge came later.
func TestDispatcher_edited(t *testing.T) {
	edit := func(c *cluster, n *node, setting, value string) {
		c.t.Helper()
		_, _, err := operate.EditConfig(c.t.Context(), n.center(), tree.NewLayout(namespace, "j"), -1, func(before jobconfig.Configuration) (jobconfig.Configuration, error) {
			return operate.Edit(before, map[string]string{setting: value})
		})
		if err != nil {
			c.t.Fatal(err)
		}
	}
	t.Run("items", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			c := newCluster(t, "defaults: {startWithin: 30s}")
			n := c.start(withoutCatchUp(job(c, "j", 4)))
			c.start(withoutCatchUp(job(c, "j", 4)))
			until(1, 30)
			edit(c, n, "shardingTotalCount", "2")
			until(2, 10)
			edit(c, n, "shardingTotalCount", "6")
			until(4, 50)
			c.expect()
		})
	})
	t.Run("cron", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			c := newCluster(t, "defaults: {startWithin: 30s}")
			n := c.start(withoutCatchUp(job(c, "j", 2)))
			until(0, 10)
			edit(c, n, "cron", "0 0 * * * ?")
			until(12, 0)
			edit(c, n, "cron", "0 10 * * * ?")
			until(12, 30)
			c.start(withoutCatchUp(job(c, "j", 2)))
			until(12, 40)
			n.stop()
			<-n.done
			until(13, 30)
			c.expect()
		})
	})
}

// withoutCatchUp is a job that does not run for instants that its hosts have missed.
func withoutCatchUp(j engine.Job) engine.Job {
	j.Definition.Misfire = false
	return j
}

// TestDispatcher_session: a host whose session is in doubt says so itself; when it is lost the
// others say that the host is gone, and when it is back that is over.
func TestDispatcher_session(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, "")
		c.start(job(c, "j", 2))
		n := c.start(job(c, "j", 2))
		until(1, 30)
		n.session.Doubt(registry.TrustSuspect)
		until(1, 35)
		c.expect("01:32 2 the session of host 10.0.0.2 with the registry is in doubt")
		if own := n.service.Own(); len(own) != 1 || !own[0].Firing() || len(own[0].Sent) != 1 {
			t.Errorf("what no other host knows of: %+v", own)
		}
		n.session.Doubt(registry.TrustLive)
		until(1, 40)
		c.expect("01:37 2 over: the session of host 10.0.0.2 with the registry is in doubt")
		n.session.Doubt(registry.TrustLost)
		until(1, 50)
		got := strings.Join(c.take(), "\n")
		if !strings.Contains(got, "host 10.0.0.2 has lost its session") && got != "" {
			t.Errorf("sent\n%s", got)
		}
		until(3, 0)
		if got := c.take(); slices.ContainsFunc(got, func(s string) bool { return strings.Contains(s, "is gone") && !strings.Contains(s, "over") }) {
			t.Errorf("sent %q: it was back at once", got)
		}
	})
}

// TestDispatcher_ownAtOnce: what the keeper has to say of itself does not wait until an alert of the
// cluster is due to be repeated.
func TestDispatcher_ownAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, "")
		n := c.start(job(c, "j", 1))
		until(0, 20)
		n.has("j")
		n.service.Add(event.Event{Kind: event.ItemHeld, Host: "x", Job: "j", Item: new(int), Time: time.Now(), Reason: "a test"})
		until(0, 40)
		c.expect("00:22 1 item 0 of j is held back: a test")
		n.service.Add(event.Event{Kind: event.RegistryBehind, Host: "x", Time: time.Now(), Reason: "this registry has gone back"})
		until(0, 45)
		c.expect("00:42 1 host 10.0.0.1 has found: this registry has gone back")
	})
}

// TestDispatcher_stops: a host that stops in good order is not gone, and what it had to say of
// itself is over.
func TestDispatcher_stops(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, "")
		first := c.start(job(c, "j", 2))
		second := c.start(job(c, "j", 2))
		problem := "no space left on device"
		second.problem.Store(&problem)
		until(1, 10)
		c.expect("00:08 1 host 10.0.0.2 cannot write its history since 2000-01-01T00:00:06Z: no space left on device")
		second.stop()
		<-second.done
		until(2, 0)
		got := strings.Join(c.take(), "\n")
		if !strings.Contains(got, "over: host 10.0.0.2 cannot write its history") || strings.Contains(got, "is gone") {
			t.Errorf("sent\n%s", got)
		}
		first.stop()
		<-first.done
		c.start(job(c, "j", 2))
		until(5, 0)
		c.expect()
	})
}

// TestDispatcher_stopsWithoutJobs: a host without jobs has nothing to wait for when it stops, but
// that the others know it, also if that takes a while.
func TestDispatcher_stopsWithoutJobs(t *testing.T) {
	for name, slow := range map[string]bool{"fast": false, "slow": true} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				c := newCluster(t, "")
				c.start(job(c, "j", 2))
				idle := c.start()
				until(1, 10)
				idle.slow.Store(slow)
				idle.stop()
				<-idle.done
				until(2, 0)
				c.expect()
			})
		})
	}
}

// TestDispatcher_stopsAtOnce: a host that is to end at once does not wait for the registry.
func TestDispatcher_stopsAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, "")
		n := c.start()
		until(1, 10)
		n.session.Doubt(registry.TrustSuspect) // it answers nothing
		before := time.Now()
		n.stop()
		n.kill()
		<-n.done
		if took := time.Since(before); took > 0 {
			t.Errorf("took %s", took)
		}
	})
}

// TestDispatcher_leavesWithoutSession: a host without a session has nobody who could know that it stops, and
// does not wait for that.
func TestDispatcher_leavesWithoutSession(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f, err := alert.Parse("a.yaml", []byte("receivers: {ops: {webhook: {url: \"https://ops.example\"}}}\nroutes: [{name: all, to: ops}]\n"))
		if err != nil {
			t.Fatal(err)
		}
		s := keeper.New(keeper.Options{Rules: fixed{f, nil}, Namespace: namespace, Server: "10.0.0.1",
			Session: func() registry.Center { return nil }, Logger: zap.NewNop()})
		stop, end := context.WithCancel(context.Background())
		done := make(chan struct{})
		go func() {
			defer close(done)
			s.Run(context.Background(), stop)
		}()
		before := time.Now()
		s.Leave(context.Background())
		if took := time.Since(before); took > 0 {
			t.Errorf("it waited %s", took)
		}
		end()
		<-done
	})
}

// TestDispatcher_receiverDown: what is not taken is sent until it is, once; that shows, and
// holds up nothing else.
func TestDispatcher_receiverDown(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, "")
		n := c.start(job(c, "j", 1))
		c.down["ops"] = true
		until(1, 30)
		c.fails.Store(true)
		until(4, 0)
		st := n.service.Status()
		if st.Failed < 4 || st.Failed > 12 || len(st.Failing) != 1 || st.Failing[0].Target != "all/ops" || st.Failing[0].Error != "it does not answer" {
			t.Errorf("%+v", st)
		}
		if p := n.service.Problems(); len(p) != 1 || !strings.Contains(p[0], "nothing can be sent to all/ops since") {
			t.Errorf("%q", p)
		}
		c.mu.Lock()
		c.down["ops"] = false
		c.mu.Unlock()
		until(6, 0)
		if got := c.take(); len(got) != 1 || !strings.Contains(got[0], "item 0 of j failed") {
			t.Errorf("%q", got)
		}
		if st := n.service.Status(); len(st.Failing) != 0 || len(n.service.Problems()) != 0 {
			t.Errorf("%+v", st)
		}
	})
}

// TestDispatcher_silence: a silence that stands in the registry holds for all hosts, and ends
// by itself.
func TestDispatcher_silence(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, "")
		n := c.start(job(c, "j", 1))
		b := store.Of(n.center(), namespace)
		if _, err := b.Silence(t.Context(), alert.Silence{Jobs: "j", From: time.Now(), Until: time.Now().Add(3 * time.Minute), By: "alice"}); err != nil {
			t.Fatal(err)
		}
		c.fails.Store(true)
		until(2, 50)
		c.expect()
		until(3, 30)
		c.expect("03:01 1 item 0 of j failed")
		content, err := b.Read(t.Context())
		if err != nil || len(content.Alerts) != 1 {
			t.Errorf("%+v, %v", content, err)
		}
	})
}

// TestDispatcher_registryDown: what was found while the registry did not answer is written
// when it does.
func TestDispatcher_registryDown(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, "")
		n := c.start(job(c, "j", 1))
		until(0, 30)
		n.service.Add(event.Event{Kind: event.ItemHeld, Host: "x", Job: "j", Item: new(int), Time: time.Now(), Reason: "a test"})
		n.session.Doubt(registry.TrustSuspect)
		until(0, 50)
		c.take()
		n.session.Doubt(registry.TrustLive)
		until(1, 0)
		if all := strings.Join(c.take(), "\n"); !strings.Contains(all, "item 0 of j is held back: a test") {
			t.Errorf("sent\n%s", all)
		}
	})
}

// TestDispatcher_flood: more events than can be looked at are counted, and nobody waits.
func TestDispatcher_flood(t *testing.T) {
	t.Parallel()
	f, err := alert.Parse("a.yaml", []byte("receivers: {ops: {webhook: {url: \"https://ops.example\"}}}\nroutes: [{name: all, to: ops}]\n"))
	if err != nil {
		t.Fatal(err)
	}
	s := keeper.New(keeper.Options{Rules: fixed{f, nil}, Logger: zap.NewNop()})
	for range 1 << 15 {
		s.Add(event.Event{Kind: event.ItemCompleted, Job: "j"})
		s.Add(event.Event{Kind: event.Listener, Job: "j"}) // does not matter
	}
	if d := s.Status().Dropped; d != 1<<14 {
		t.Errorf("%d events were dropped, want %d", d, 1<<14)
	}
	if p := s.Problems(); !slices.Equal(p, []string{"alerts: 16384 events came too fast to be looked at"}) {
		t.Errorf("problems are %q", p)
	}
}

// TestDispatcher_leftovers: alerts of jobs and of items that there are not any more are over.
func TestDispatcher_leftovers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, "")
		n := c.start(job(c, "j", 2))
		until(0, 20)
		held := func(name string, item int) {
			n.has(name)
			n.service.Add(event.Event{Kind: event.ItemHeld, Host: "x", Job: name, Item: &item, Time: time.Now(), Reason: name})
		}
		held("j", 2)
		held("removed", 0)
		until(0, 30)
		c.take()
		until(11, 0)
		got := strings.Join(c.take(), "\n")
		if strings.Count(got, "over: ") != 2 || !strings.Contains(got, "over: item 2 of j ") || !strings.Contains(got, "over: item 0 of removed ") {
			t.Errorf("sent\n%s", got)
		}
	})
}

// TestDispatcher_sessionOfRefusal: a file that is refused before there is a session is an
// alert, and is one again after the session was lost.
func TestDispatcher_sessionOfRefusal(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, "")
		c.start(job(c, "j", 1))
		refused := c.start()
		refused.host.Apply(nil, []engine.Refusal{{File: "bad.yaml", Reasons: []string{"no cron"}}})
		until(0, 20)
		c.expect("00:04 1 host 10.0.0.2 refuses bad.yaml: no cron")
		refused.session.Doubt(registry.TrustLost)
		until(3, 0)
		content, err := store.Of(c.nodes[0].center(), namespace).Read(t.Context())
		if err != nil || len(content.Alerts) != 1 || !content.Alerts[0].Firing() {
			t.Errorf("%+v, %v", content, err)
		}
	})
}

// TestDispatcher_restart: a host that is killed and is back at once, and is killed again, is
// gone, and not before.
func TestDispatcher_restart(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, "")
		keeper := c.start(job(c, "j", 1))
		for range 3 {
			late := fmt.Sprintf("10.0.0.%d@", len(c.nodes)+1)
			keeper.unseen.Store(&late)
			n := c.start()
			time.Sleep(5 * time.Second)
			if got := strings.Join(c.take(), "\n"); strings.Contains(got, fmt.Sprintf("host 10.0.0.%d is gone", n.n)) {
				t.Errorf("sent %q", got)
			}
			n.die()
			time.Sleep(sessionTimeout + 10*time.Second)
			if got := strings.Join(c.take(), "\n"); !strings.Contains(got, fmt.Sprintf("host 10.0.0.%d is gone", n.n)) {
				t.Errorf("sent %q", got)
			}
		}
	})
}

// TestDispatcher_keeperWithoutSession: a host that was halted until its session was over, and is about to notice
// that, sends nothing any more: another host does.
//
// It kills the mutant "keeper of the alerts whose session is over".
func TestDispatcher_keeperWithoutSession(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, "")
		c.file.Routes[0].Repeat = 10 * time.Minute
		c.fails.Store(true)
		first := c.start()
		first.deaf.Store(true)
		second := c.start(job(c, "j", 1))
		until(3, 30)
		if got := c.take(); len(got) == 0 || !strings.Contains(got[0], " 1 ") || !first.service.Status().Keeper {
			t.Fatalf("sent %q; the first host does not keep the alerts", got)
		}
		first.mu.Lock()
		session := first.session
		first.mu.Unlock()
		if err := session.FaultyCenter.Close(); err != nil {
			t.Fatal(err)
		}
		until(25, 0)
		got := c.take()
		repeats := 0
		for _, line := range got {
			if strings.Contains(line, "still ") {
				repeats++
			}
			if strings.Contains(line, " 1 ") {
				t.Errorf("the first host sent %q", line)
			}
		}
		if repeats == 0 || !second.service.Status().Keeper || first.service.Status().Keeper {
			t.Errorf("the second host is the keeper: %v; sent %q", second.service.Status().Keeper, got)
		}
	})
}

// TestDispatcher_briefWithoutRegistry: what began and was over while the registry did not answer
// is sent with its end, once.
func TestDispatcher_briefWithoutRegistry(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, "")
		n := c.start(job(c, "j", 1))
		until(0, 30)
		n.session.Doubt(registry.TrustSuspect)
		n.service.Add(event.Event{Kind: event.ItemHeld, Host: "x", Job: "j", Item: new(int), Time: time.Now(), Reason: "a test"})
		time.Sleep(5 * time.Second)
		n.service.Add(event.Event{Kind: event.ItemReleased, Host: "x", Job: "j", Item: new(int), Time: time.Now()})
		time.Sleep(5 * time.Second)
		n.session.Doubt(registry.TrustLive)
		until(3, 0)
		if all := strings.Join(c.take(), "\n"); strings.Count(all, "over: item 0 of j is held back: a test") != 1 || strings.Count(all, "a test") != 1 {
			t.Errorf("sent\n%s", all)
		}
	})
}

// TestDispatcher_clocks: what a host with a clock that is ahead has found is sent as soon as
// anything else, and so is its end.
func TestDispatcher_clocks(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, "")
		n := c.start(job(c, "j", 1))
		until(0, 20)
		ahead := func(kind event.Kind) {
			n.service.Add(event.Event{Kind: kind, Host: "x", Job: "other", Item: new(int), Time: time.Now().Add(time.Hour), Reason: "a test"})
		}
		n.has("other")
		ahead(event.ItemHeld)
		until(0, 25)
		c.expect("00:22 1 item 0 of other is held back: a test")
		ahead(event.ItemReleased)
		until(0, 30)
		c.expect("00:27 1 over: item 0 of other is held back: a test")
	})
}

// TestDispatcher_refusedMessage: a message that a receiver never takes keeps no other from it.
func TestDispatcher_refusedMessage(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, "")
		n := c.start(job(c, "j", 1))
		until(0, 20)
		c.mu.Lock()
		c.bad = "too large"
		c.mu.Unlock()
		for _, name := range []string{"a", "b", "c"} {
			n.has(name)
			n.service.Add(event.Event{Kind: event.ItemHeld, Host: "x", Job: name, Item: new(int), Time: time.Now(), Reason: map[bool]string{true: "too large", false: "well"}[name == "a"]})
		}
		until(0, 50)
		if got := strings.Join(c.take(), "\n"); !strings.Contains(got, "item 0 of b ") || !strings.Contains(got, "item 0 of c ") {
			t.Errorf("sent\n%s", got)
		}
		c.mu.Lock()
		c.bad = ""
		c.mu.Unlock()
		until(2, 50)
		if got := strings.Join(c.take(), "\n"); !strings.Contains(got, "item 0 of a ") {
			t.Errorf("sent\n%s", got)
		}
	})
}

// TestDispatcher_silenceOfSessions: a silence holds for what each host sends itself, also when it
// has no session.
func TestDispatcher_silenceOfSessions(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, "")
		first := c.start(job(c, "j", 1))
		second := c.start(job(c, "j", 1))
		b := store.Of(first.center(), namespace)
		until(0, 20)
		s, err := b.Silence(t.Context(), alert.Silence{Jobs: "*", From: time.Now(), Until: time.Now().Add(time.Hour), By: "alice"})
		if err != nil {
			t.Fatal(err)
		}
		until(0, 30)
		second.session.Doubt(registry.TrustSuspect)
		until(0, 40)
		second.session.Doubt(registry.TrustLost)
		until(2, 0)
		c.expect()
		if err := b.Unsilence(t.Context(), s.ID); err != nil {
			t.Fatal(err)
		}
		until(2, 10)
		c.take()
		second.session.Doubt(registry.TrustSuspect)
		until(2, 20)
		c.expect("02:12 2 the session of host 10.0.0.2")
	})
}

// TestDispatcher_leftoversAtOnce: when a job is removed, its alerts are over at once, not with the next round.
func TestDispatcher_leftoversAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, "")
		n := c.start(job(c, "j", 2))
		until(0, 20)
		n.has("gone")
		n.service.Add(event.Event{Kind: event.ItemHeld, Host: "x", Job: "gone", Item: new(int), Time: time.Now(), Reason: "a test"})
		until(0, 40)
		c.expect("00:22 1 item 0 of gone is held back: a test")
		n.service.Add(event.Event{Kind: event.JobRemoved, Host: "x", Job: "another", Time: time.Now()})
		until(0, 50)
		c.expect("00:45 1 over: item 0 of gone is held back: a test")
	})
}

// TestDispatcher_endsBeforeItIsWritten: an alert is over while its begin is on the way to the board, and the board changes
// in between. Its end is sent.
func TestDispatcher_endsBeforeItIsWritten(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, "")
		first, second := c.start(job(c, "j", 1)), c.start(job(c, "j", 1))
		until(0, 20)
		tell := func(n *node, job string, kind event.Kind) {
			n.has(job)
			n.service.Add(event.Event{Kind: kind, Host: "x", Job: job, Item: new(int), Time: time.Now(), Reason: "a test"})
			time.Sleep(100 * time.Millisecond)
		}
		second.slow.Store(true)
		tell(second, "a", event.ItemHeld)
		tell(first, "b", event.ItemHeld)
		tell(second, "a", event.ItemReleased)
		until(2, 0)
		content, err := store.Of(first.center(), namespace).Read(t.Context())
		if got := strings.Join(c.take(), "\n"); err != nil || len(content.Alerts) != 1 || content.Alerts[0].Job != "b" {
			t.Errorf("%+v, %v; sent\n%s", content.Alerts, err, got)
		}
	})
}

// TestDispatcher_sameSession: a session that was in doubt and lives on is no new one: nothing is asked of the registry.
func TestDispatcher_sameSession(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, "")
		for range 2 {
			c.start(job(c, "j", 1))
		}
		until(1, 30)
		before := c.ops.Load()
		for _, n := range c.nodes {
			n.session.Doubt(registry.TrustSuspect)
			time.Sleep(time.Second)
			n.session.Doubt(registry.TrustLive)
		}
		until(2, 30)
		if asked := c.ops.Load() - before; asked != 0 {
			t.Errorf("%d requests", asked)
		}
	})
}

// TestDispatcher_alone: a host without a session asks its history every five seconds, whatever wakes it, and says
// that it does not notice changes of its file.
func TestDispatcher_alone(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f, err := alert.Parse("a.yaml", []byte("receivers: {ops: {webhook: {url: \"https://ops.example\"}}}\nroutes: [{name: all, to: ops}]\n"))
		if err != nil {
			t.Fatal(err)
		}
		asked := 0
		s := keeper.New(keeper.Options{Rules: blind{fixed{f, nil}}, Namespace: namespace, Server: "10.0.0.1", Session: func() registry.Center { return nil },
			History: func() (string, time.Time) { asked++; return "", time.Time{} }, Logger: zap.NewNop()})
		ctx, end := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			s.Run(t.Context(), ctx)
		}()
		for range 60 {
			s.Add(event.Event{Kind: event.FireStarted, Host: "x", Job: "j", Time: time.Now()})
			time.Sleep(100 * time.Millisecond)
		}
		synctest.Wait()
		if p := s.Problems(); !slices.Equal(p, []string{"alerts: changes of the file of alerts are not noticed: too many files are watched"}) {
			t.Errorf("problems are %q", p)
		}
		end()
		<-done
		if asked != 1 {
			t.Errorf("in six seconds it asked its history %d times", asked)
		}
	})
}

// blind are rules whose changes are not noticed.
type blind struct{ fixed }

func (blind) Watch(context.Context) error { return errors.New("too many files are watched") }

// TestDispatcher_partly: a message that only some of a target's recipients got is not sent again,
// and the status says who did not, until all get one.
func TestDispatcher_partly(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, "")
		n := c.start(job(c, "j", 1))
		until(0, 20)
		c.partly.Store(true)
		hold := func(name string) {
			n.has(name)
			n.service.Add(event.Event{Kind: event.ItemHeld, Host: "x", Job: name, Item: new(int), Time: time.Now(), Reason: "a test"})
		}
		hold("a")
		until(2, 0)
		c.expect("00:22 1 item 0 of a is held back: a test")
		if p := n.service.Problems(); len(p) != 1 || !strings.Contains(p[0], "some of all/ops do not get messages since 2000-01-01T00:00:22Z: not sent to all: nobody@example.com") {
			t.Errorf("%q", p)
		}
		c.partly.Store(false)
		hold("b")
		until(2, 10)
		if p := n.service.Problems(); len(p) != 0 || n.service.Status().Failed != 0 {
			t.Errorf("%q, %+v", p, n.service.Status())
		}
	})
}

// TestDispatcher_idle: while the registry is left alone nothing turns in circles, whatever is to
// be asked of it.
func TestDispatcher_idle(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, "")
		n := c.start(job(c, "j", 1))
		until(0, 20)
		n.session.Doubt(registry.TrustSuspect)
		n.service.Add(event.Event{Kind: event.ItemHeld, Host: "x", Job: "j", Item: new(int), Time: time.Now(), Reason: "a test"})
		n.service.Add(event.Event{Kind: event.JobConfigured, Host: "x", Job: "j", Time: time.Now()}) // has it look at all jobs
		other := c.start(job(c, "j", 1))                                                             // which does not keep the alerts
		other.service.Add(event.Event{Kind: event.JobConfigured, Host: "x", Job: "j", Time: time.Now()})
		until(0, 25)
		before := c.turns.Load()
		until(0, 45)
		if turns := c.turns.Load() - before; turns > 500 {
			t.Errorf("%d turns in 20 seconds", turns)
		}
		n.session.Doubt(registry.TrustLive)
	})
}
