// Package servicetest runs whole hosts for tests: on an embedded registry, with their peers, histories and
// service. Modules are Go functions.
package servicetest

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/registry/embedded"
	"github.com/wasmjob/wasmjob/coordination/tree"
	"github.com/wasmjob/wasmjob/host/alert/store"
	"github.com/wasmjob/wasmjob/host/control/admin"
	"github.com/wasmjob/wasmjob/host/control/cluster"
	"github.com/wasmjob/wasmjob/host/control/cluster/orphans"
	"github.com/wasmjob/wasmjob/host/control/cluster/peers"
	"github.com/wasmjob/wasmjob/host/control/report"
	"github.com/wasmjob/wasmjob/host/control/service"
	"github.com/wasmjob/wasmjob/host/engine"
	"github.com/wasmjob/wasmjob/host/event"
	"github.com/wasmjob/wasmjob/host/history"
	"github.com/wasmjob/wasmjob/host/history/changes"
	"github.com/wasmjob/wasmjob/host/history/database"
)

// Namespace is that of all hosts.
const Namespace = "ns"

// Options say how a host is started. The zero value is one on a registry of its own.
type Options struct {
	// Server is the registry that hosts share; nil is one of its own.
	Server *embedded.Server
	// IP is the server's address, 127.0.0.1 if it is empty.
	IP string
	// Jobs are those of the host, Refused the files that it refused.
	Jobs    []engine.Job
	Refused []engine.Refusal
	// Listen, if not nil, begins to serve the API of the host, and returns its URL.
	Listen func(h *House) string
	// Wrap, if not nil, stands between the host's sessions and the registry.
	Wrap func(registry.Center) registry.Center
	// AlertFile, if not nil, is the host's file of alerts, and how it sends messages.
	AlertFile *service.AlertFile
	// AlertProblems are what the host says is wrong with how it looks for alerts.
	AlertProblems []string
	Logger        *zap.Logger
}

// House is a host with its service and peers.
type House struct {
	Server    *embedded.Server
	Host      *engine.Host
	Registry  *admin.Registry
	Reporter  *report.Reporter
	Store     *database.Store
	Peers     *peers.Peers
	Local     *cluster.Local
	Tail      *cluster.Tail
	Cluster   *cluster.Cluster
	Histories *cluster.Histories
	Service   *service.Service
	Log       *zap.Logger
	// Pending is what the host says that it waits for.
	Pending atomic.Pointer[report.Pending]

	unheld   *orphans.Jobs
	board    *store.Copy
	recorder *changes.Recorder
	t        testing.TB
	stop     context.CancelFunc
	parts    sync.WaitGroup
	closed   sync.Once
	mu       sync.Mutex
	center   registry.Center // of the present session
	more     chan struct{}   // closed with each event
	url      string
	started  time.Time
}

// NewServer starts a registry that ends with the test.
func NewServer(t testing.TB) *embedded.Server {
	t.Helper()
	s, err := embedded.Open(embedded.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// Start starts a host, which ends with the test. Its jobs have joined when it returns.
func Start(t testing.TB, o Options) *House {
	t.Helper()
	if o.Server == nil {
		o.Server = NewServer(t)
	}
	if o.IP == "" {
		o.IP = "127.0.0.1"
	}
	if o.Logger == nil {
		o.Logger = zap.NewNop()
	}
	h := &House{Server: o.Server, Log: o.Logger, t: t, more: make(chan struct{}), started: time.Now(), Tail: cluster.NewTail()}
	h.Pending.Store(&report.Pending{})
	h.wire(o)
	if o.Listen != nil {
		h.url = o.Listen(h)
	}
	h.run()
	h.Host.Apply(o.Jobs, o.Refused)
	h.Until("all jobs have joined, and their items are divided", h.settled)
	return h
}

// settled reports whether no job of the host waits for the registry.
func (h *House) settled() bool {
	if ready, _ := h.Host.Ready(); !ready {
		return false
	}
	for _, j := range h.Host.Status().Jobs {
		if j.State == engine.JobJoining || j.State == engine.JobSharding {
			return false
		}
	}
	return true
}

func (h *House) wire(o Options) {
	var err error
	if h.Store, err = database.Open(h.t.Context(), database.Options{Config: database.InMemory(), Logger: o.Logger}); err != nil {
		h.t.Fatal(err)
	}
	h.Peers = peers.New(Namespace, func() tree.ClusterDetail {
		return tree.ClusterDetail{ServerIP: o.IP, API: h.url, Version: "test", Started: h.started}
	}, o.Logger)
	h.unheld = orphans.New(Namespace, o.Logger)
	h.board = store.NewCopy(Namespace)
	h.recorder = changes.New(Namespace, func(c history.Change) { h.Local.Note(c); h.Store.AddChange(c) }, o.Logger)
	h.Host, err = engine.New(engine.Config{
		Namespace: Namespace, ServerIP: o.IP, Logger: o.Logger, OnEvent: h.hear,
		OnLog: func(g event.GuestLog) {
			line := history.Line{Time: g.Time, Job: g.Job, RunID: g.RunID, Item: g.Item, Host: g.Host, Level: g.Level, Message: g.Message, Attrs: g.Attrs}
			h.Store.AddLine(line)
			h.Tail.Add(line)
		},
		Dial: func(ctx context.Context) (registry.Center, error) {
			var c registry.Center
			c, err := o.Server.Connect(ctx)
			if err != nil {
				return nil, err
			}
			if o.Wrap != nil {
				c = o.Wrap(c)
			}
			h.mu.Lock()
			h.center = c
			h.mu.Unlock()
			h.unheld.Begun(c)
			h.board.Begun(c)
			h.recorder.Begun(c)
			return c, nil
		},
	})
	if err != nil {
		h.t.Fatal(err)
	}
	pending := func() report.Pending { return *h.Pending.Load() }
	h.Registry = admin.NewRegistry(Namespace, h.Center)
	h.Reporter = &report.Reporter{Host: h.Host, About: report.About{Version: "test"}, Pending: pending, Alerts: func() []string { return o.AlertProblems }}
	h.Local = cluster.NewLocal(func() report.Report { return h.Reporter.Report(false) })
	transport := h.Peers.NewTransport()
	h.t.Cleanup(transport.CloseIdleConnections)
	others := func() (list []cluster.Peer) {
		for _, p := range h.Peers.List() {
			list = append(list, cluster.Peer(p))
		}
		return list
	}
	get := func(ctx context.Context, p cluster.Peer, path string, into any) error {
		return h.Peers.Get(ctx, transport, peers.Peer(p), path, into)
	}
	stream := func(ctx context.Context, p cluster.Peer, path string, line func([]byte)) error {
		return h.Peers.Stream(ctx, transport, peers.Peer(p), path, line)
	}
	self := func() cluster.Peer { return cluster.Peer(h.Peers.Self()) }
	h.Peers.Changed = func() {
		for _, e := range h.Local.NotePeers(append(others(), self())) {
			h.Store.AddEvent(e)
		}
	}
	h.Cluster = cluster.New(cluster.Options{
		Local: h.Local, Peers: others, Self: self, Registry: h.unheld, Changes: h.Store.Changes, Events: h.Store.Events,
		Fetch: func(ctx context.Context, p cluster.Peer, epoch string, since uint64) (d cluster.Delta, err error) {
			err = get(ctx, p, cluster.DeltaPath(epoch, since), &d)
			return d, err
		},
	})
	h.Histories = &cluster.Histories{Store: h.Store, Self: self, Peers: others, Get: get, Stream: stream, Tail: h.Tail, Silences: h.Cluster}
	h.Service = service.New(service.Options{
		Namespace: Namespace, Cluster: h.Cluster, Histories: h.Histories, Store: h.Store, Registry: h.Registry, Session: h.Center, Host: h.Host, Pending: pending, Logger: o.Logger,
		Board: h.board, AlertFile: o.AlertFile,
		StartOn: func(ctx context.Context, p cluster.Peer, job string) error {
			return h.Peers.Post(ctx, transport, peers.Peer(p), cluster.StartPath(job))
		},
	})
	h.t.Cleanup(func() { _ = h.Service.Close() }) // it has no error
}

// run starts the parts, which Stop ends and joins.
func (h *House) run() {
	ctx, stop := context.WithCancel(context.Background())
	h.stop = stop
	part := func(run func() error) {
		h.parts.Go(func() {
			if err := run(); err != nil && !errors.Is(err, context.Canceled) {
				h.t.Error(err)
			}
		})
	}
	part(func() error { return h.Peers.Run(ctx) })
	part(func() error { return h.unheld.Run(ctx) })
	part(func() error { return h.board.Run(ctx) })
	part(func() error { return h.recorder.Run(ctx) })
	part(func() error { return h.Cluster.Run(ctx) })
	part(func() error { return h.Host.Run(ctx, ctx) })
	h.t.Cleanup(h.Stop)
}

// Stop ends the host; further calls do nothing.
func (h *House) Stop() {
	h.closed.Do(func() {
		h.stop()
		h.parts.Wait()
		if err := h.Store.Close(); err != nil {
			h.t.Error(err)
		}
	})
}

// Center is the host's session, nil before the first.
func (h *House) Center() registry.Center {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.center
}

// hear takes an event of the host.
func (h *House) hear(e event.Event) {
	h.Store.AddEvent(e)
	if c, ok := history.ChangeOf(e); ok {
		h.Store.AddChange(c)
	}
	if e.Kind == event.HostGone {
		h.Local.NoteGone(e)
	}
	if e.Kind == event.Session && e.Reason == event.SessionLive {
		h.Peers.Begun(h.Center(), e.Host)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	close(h.more)
	h.more = make(chan struct{})
}

// patience is how long Until waits: only a test that fails waits so long.
const patience = 30 * time.Second

// Until waits for something that comes with an event of the host, or soon after.
func (h *House) Until(what string, is func() bool) {
	h.t.Helper()
	limit := time.NewTimer(patience)
	defer limit.Stop()
	for {
		h.mu.Lock()
		more := h.more
		h.mu.Unlock()
		if is() {
			return
		}
		soon := time.NewTimer(20 * time.Millisecond) // what is written or answered after the event
		select {
		case <-more:
		case <-soon.C:
		case <-limit.C:
			h.t.Fatalf("%s: not within %s", what, patience)
		}
		soon.Stop()
	}
}

// Put writes nodes into the registry, behind the host's back: paths and data in turns.
func (h *House) Put(pairs ...string) {
	h.t.Helper()
	c, err := h.Server.Connect(h.t.Context())
	if err != nil {
		h.t.Fatal(err)
	}
	defer func() { _ = c.Close() }() // its session has nothing
	for i := 0; i < len(pairs); i += 2 {
		if _, err := c.Commit(h.t.Context(), registry.Ensure(pairs[i]), registry.Set(pairs[i], []byte(pairs[i+1]), registry.AnyVersion)); err != nil {
			h.t.Fatal(err)
		}
	}
}

// Look reads a node.
func (h *House) Look(path string) (data string, there bool) {
	h.t.Helper()
	c, err := h.Server.Connect(h.t.Context())
	if err != nil {
		h.t.Fatal(err)
	}
	defer func() { _ = c.Close() }() // its session has nothing
	n, err := c.Read(h.t.Context(), registry.Data(path))
	if err != nil {
		h.t.Fatal(err)
	}
	return string(n[0].Data), n[0].Exists
}
