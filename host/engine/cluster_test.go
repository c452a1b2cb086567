package engine_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/coordination/jobconfig"
	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/registry/embedded"
	"github.com/wasmjob/wasmjob/host/engine"
	"github.com/wasmjob/wasmjob/host/event"
)

// guest is a module in plain Go: a func in place of a WebAssembly guest.
type guest struct {
	digest    string
	run       func(ctx context.Context, inv *abi.Invocation) abi.Result
	listeners map[string]func(inv *abi.Invocation) abi.Result
	// attend, if not nil, is called for a listener in place of that, with what ends it.
	attend func(ctx context.Context, inv *abi.Invocation) abi.Result

	mu     sync.Mutex
	uses   int
	closed bool
	bad    error
}

func (g *guest) Digest() string { return g.digest }

// Granted implements Module: nothing is.
func (*guest) Granted() string { return "" }

func (g *guest) Executor(jobconfig.Configuration) (abi.Executor, error) {
	if g.bad != nil {
		return nil, g.bad
	}
	g.Retain()
	return g, nil
}

func (g *guest) HasListener(export string) bool                { return g.listeners[export] != nil }
func (g *guest) NewWorker(context.Context) (abi.Worker, error) { return g, nil }
func (g *guest) Close() error                                  { return nil }

func (g *guest) Retain() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.uses++
	return true
}

func (g *guest) Expect(time.Time) {}

func (g *guest) Release() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.uses--
	g.closed = g.uses == 0
}

func (g *guest) inUse() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.uses
}

func (g *guest) Execute(ctx context.Context, inv *abi.Invocation) abi.Result { return g.run(ctx, inv) }

func (g *guest) Listen(ctx context.Context, export string, inv *abi.Invocation) abi.Result {
	if g.attend != nil {
		return g.attend(ctx, inv)
	}
	return g.listeners[export](inv)
}

var ok = abi.Result{Outcome: abi.OutcomeOK}

// sleeper takes d per item, and ends early when it is stopped by force.
func sleeper(d time.Duration) *guest {
	return &guest{digest: "sleeper-" + d.String(), run: func(ctx context.Context, _ *abi.Invocation) abi.Result {
		if d <= 0 && ctx.Err() == nil {
			// A timer that has expired is run by its reader, for the whole bubble: two at
			// once end the race detector of Go 1.26 with a segmentation violation.
			return ok
		}
		select {
		case <-time.After(d):
			return ok
		case <-ctx.Done():
			return abi.Result{Outcome: abi.OutcomeCancelled, Message: context.Cause(ctx).Error()}
		}
	}}
}

// cluster is a registry and hosts, all in one bubble.
type cluster struct {
	t      testing.TB
	server *embedded.Server
	swap   sync.Mutex // of server, while hosts are there
	log    *zap.Logger
	hosts  map[string]*node
	// wrap, if not nil, stands between a host's sessions and the host.
	wrap func(n int, s *lease) registry.Center
	// config, if not nil, changes what hosts are started with.
	config func(*engine.Config)
	// lostAnswers says that a session may end with a completion that took
	// effect: its host can tell that the item ended, but not that.
	lostAnswers bool

	pace pace

	// wrote, if not nil, hears of every commit that took effect.
	wrote func(ops []registry.Op, results []registry.Result)

	mu     sync.Mutex
	events []event.Event
	from   []int       // which host each is of
	at     []time.Time // when each of them happened, by a clock that is right
}

// pace notices hosts that go on changing the registry, each because of the
// other, while no time passes: in a bubble that would never end.
type pace struct {
	mu    sync.Mutex
	at    time.Time
	calls int
	last  []string
}

// mostAtOnce is the number of calls that hosts have a use for at one instant.
const mostAtOnce = 20_000

// note counts a call. It ends the test's process when there is no end to them:
// hosts that do not rest cannot be stopped either.
func (p *pace) note(host, format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if now := time.Now(); !now.Equal(p.at) {
		p.at, p.calls, p.last = now, 0, nil
	}
	p.calls++
	if p.calls > mostAtOnce-60 {
		p.last = append(p.last, host+" "+fmt.Sprintf(format, args...))
	}
	if p.calls > mostAtOnce {
		panic(fmt.Sprintf("the hosts do not come to rest at %s; the last calls were:\n%s", p.at.UTC(), strings.Join(p.last, "\n")))
	}
}

// node is one host of a cluster.
type node struct {
	host *engine.Host
	stop context.CancelFunc
	kill context.CancelFunc
	done chan error

	mu       sync.Mutex
	sessions []*lease
}

func newCluster(t testing.TB) *cluster {
	server, err := embedded.Open(embedded.Options{})
	if err != nil {
		t.Fatal(err)
	}
	log := zap.NewNop()
	if testing.Verbose() {
		log = zaptest.NewLogger(t)
	}
	c := &cluster{t: t, server: server, hosts: make(map[string]*node), log: log}
	t.Cleanup(func() {
		for _, n := range c.hosts {
			n.kill()
			<-n.done
		}
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// start runs a host at the address 10.0.0.{n} with the jobs.
func (c *cluster) start(n int, jobs ...engine.Job) *node {
	c.t.Helper()
	name := fmt.Sprintf("10.0.0.%d", n)
	nd := &node{done: make(chan error, 1)}
	cfg := engine.Config{
		Dial: func(ctx context.Context) (registry.Center, error) {
			c.swap.Lock()
			server := c.server
			c.swap.Unlock()
			r, err := server.Connect(ctx)
			if err != nil {
				return nil, err
			}
			s := &lease{Center: r, lost: make(chan struct{}), pace: &c.pace, host: name, wrote: c.wrote}
			nd.mu.Lock()
			defer nd.mu.Unlock()
			nd.sessions = append(nd.sessions, s)
			if c.wrap != nil {
				return c.wrap(n, s), nil
			}
			return s, nil
		},
		Namespace: "test", ServerIP: name, Logger: c.log.With(zap.String("host", name)),
		OnEvent: func(e event.Event) {
			checkCause(c.t, e)
			c.mu.Lock()
			defer c.mu.Unlock()
			c.events, c.from, c.at = append(c.events, e), append(c.from, n), append(c.at, time.Now())
		},
	}
	if c.config != nil {
		c.config(&cfg)
	}
	h, err := engine.New(cfg)
	if err != nil {
		c.t.Fatal(err)
	}
	nd.host = h
	ctx, stop := context.WithCancel(context.Background())
	kill, killNow := context.WithCancel(context.Background())
	nd.stop, nd.kill = stop, killNow
	h.Apply(jobs, nil)
	go func() { nd.done <- h.Run(ctx, kill); close(nd.done) }()
	c.hosts[name] = nd
	return nd
}

// lease is a session that a test can put an end to in the way in which a
// registry adapter does: the host is told first, and the registry lets go of
// the session's nodes when the host has closed it or its time is up.
type lease struct {
	registry.Center
	pace  *pace
	host  string
	wrote func(ops []registry.Op, results []registry.Result)
	once  sync.Once
	lost  chan struct{}
	// loseAfter makes the next commit the last: it is applied, and the session
	// ends before its answer comes.
	loseAfter atomic.Bool
}

func (l *lease) Lost() <-chan struct{} { return l.lost }

func (l *lease) Trusted() bool {
	level, _ := l.Trust()
	return level == registry.TrustLive
}

func (l *lease) Trust() (registry.Trust, <-chan struct{}) {
	select {
	case <-l.lost:
		return registry.TrustLost, nil
	default:
		return l.Center.Trust()
	}
}

func (l *lease) Commit(ctx context.Context, ops ...registry.Op) ([]registry.Result, error) {
	if !l.Trusted() {
		return nil, registry.ErrSessionLost
	}
	results, err := l.Center.Commit(ctx, ops...)
	if err == nil && l.wrote != nil {
		l.wrote(ops, results)
	}
	l.pace.note(l.host, "commit %v: %v", ops, err)
	if l.loseAfter.Load() {
		l.lose()
		return nil, registry.ErrUnknown
	}
	return results, err
}

func (l *lease) Read(ctx context.Context, queries ...registry.Query) ([]registry.Node, error) {
	if !l.Trusted() {
		return nil, registry.ErrSessionLost
	}
	l.pace.note(l.host, "read %v", queries)
	return l.Center.Read(ctx, queries...)
}

func (l *lease) lose() { l.once.Do(func() { close(l.lost) }) }

// expire ends the host's session.
func (c *cluster) expire(n *node) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.sessions[len(n.sessions)-1].lose()
}

// list returns the events of the kind, as "instant item host: reason".
func (c *cluster) list(kinds ...event.Kind) []event.Event {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []event.Event
	for _, e := range c.events {
		if slices.Contains(kinds, e.Kind) {
			out = append(out, e)
		}
	}
	return out
}

// lines are events for people, one a line.
func lines(events []event.Event) string {
	var b strings.Builder
	for _, e := range events {
		fmt.Fprintf(&b, "%s %s", e.Time.UTC().Format("15:04:05.000"), e.Kind)
		if !e.Instant.IsZero() {
			fmt.Fprintf(&b, " for %s", e.Instant.UTC().Format("15:04:05"))
		}
		if e.Source != "" {
			fmt.Fprintf(&b, " %s", e.Source)
		}
		if e.Item != nil {
			fmt.Fprintf(&b, " item %d", *e.Item)
		}
		if e.Items != nil {
			fmt.Fprintf(&b, " items %v", e.Items)
		}
		if e.Outcome != "" {
			fmt.Fprintf(&b, " %s", e.Outcome)
		}
		if e.Reason != "" {
			fmt.Fprintf(&b, " (%s)", e.Reason)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// all prints everything, for failures.
func (c *cluster) all() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return lines(c.events)
}

// definition is a job with defaults of the definition file.
func definition(name, cron string, total int) jobconfig.Configuration {
	return jobconfig.Configuration{
		JobName: name, Cron: cron, TimeZone: "GMT", ShardingTotalCount: total, MonitorExecution: true, Misfire: true,
		MaxTimeDiffSeconds: -1, ReconcileIntervalMinutes: 10, Props: map[string]string{},
	}
}

func job(d jobconfig.Configuration, g *guest) engine.Job {
	return engine.Job{Definition: d, Module: g, File: d.JobName + ".yaml", ModuleFile: d.JobName + ".wasm"}
}
