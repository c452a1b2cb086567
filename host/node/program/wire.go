package program

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/wasmjob/wasmjob/coordination/fence"
	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/tree"
	"github.com/wasmjob/wasmjob/docs"
	"github.com/wasmjob/wasmjob/host/alert/keeper"
	"github.com/wasmjob/wasmjob/host/alert/store"
	"github.com/wasmjob/wasmjob/host/auth/guard"
	"github.com/wasmjob/wasmjob/host/auth/signedout"
	"github.com/wasmjob/wasmjob/host/cli/command"
	"github.com/wasmjob/wasmjob/host/cli/terminal"
	"github.com/wasmjob/wasmjob/host/cli/view"
	"github.com/wasmjob/wasmjob/host/control/admin"
	"github.com/wasmjob/wasmjob/host/control/api"
	"github.com/wasmjob/wasmjob/host/control/client"
	"github.com/wasmjob/wasmjob/host/control/cluster"
	"github.com/wasmjob/wasmjob/host/control/cluster/orphans"
	"github.com/wasmjob/wasmjob/host/control/cluster/peers"
	"github.com/wasmjob/wasmjob/host/control/pages"
	"github.com/wasmjob/wasmjob/host/control/report"
	"github.com/wasmjob/wasmjob/host/control/server"
	"github.com/wasmjob/wasmjob/host/control/service"
	"github.com/wasmjob/wasmjob/host/engine"
	"github.com/wasmjob/wasmjob/host/engine/admission/imminent"
	"github.com/wasmjob/wasmjob/host/engine/catalog"
	"github.com/wasmjob/wasmjob/host/event"
	"github.com/wasmjob/wasmjob/host/history"
	"github.com/wasmjob/wasmjob/host/history/changes"
	"github.com/wasmjob/wasmjob/host/history/jsonl"
	"github.com/wasmjob/wasmjob/host/node/address"
	"github.com/wasmjob/wasmjob/host/node/deadman"
	"github.com/wasmjob/wasmjob/host/node/dump"
	"github.com/wasmjob/wasmjob/host/node/life"
	"github.com/wasmjob/wasmjob/host/node/session"
	"github.com/wasmjob/wasmjob/host/observe/metrics"
	"github.com/wasmjob/wasmjob/host/observe/trace"
	"github.com/wasmjob/wasmjob/host/sandbox/plugin"
	"github.com/wasmjob/wasmjob/host/sandbox/process"
	"github.com/wasmjob/wasmjob/internal/text/words"
)

// system is a host with everything around it. wire builds it in the order in
// which the parts need one another; run joins whatever it starts; close takes
// it down in the opposite order.
//
//	output ─► log ─► runtime ─► catalog ─┐
//	                 registry ───────────┴─► host ─► events ─► metrics, history, alerts, view
//	                                           └────► admin address
type system struct {
	program *program
	loaded  *loaded
	log     *zap.Logger
	// guestLog takes the lines of guests.
	guestLog *zap.Logger
	output   *terminal.Output
	console  *terminal.Console // of the terminal; nil if stdout is none
	view     *view.View
	host     *engine.Host
	imminent *imminent.Fires // pages, looks at files and the history's database wait for them
	catalog  *catalog.Catalog
	admin    *server.Server // nil if it is off
	gate     *guard.Gate    // before it; nil as well
	// The whole cluster: its other hosts, what they say, and what is done to it.
	peers  *peers.Peers
	unheld *orphans.Jobs
	board  *store.Copy
	// recorder takes records of changes from the registry.
	recorder *changes.Recorder
	// signedOut are the sessions of browsers that have ended at any host.
	signedOut *signedout.List
	reporter  *report.Reporter
	local     *cluster.Local
	tail      *cluster.Tail
	cluster   *cluster.Cluster
	service   *service.Service
	started   time.Time
	shows     bool         // there is a console
	tokenFile string       // with the token of the admin address; empty if it is in none
	dump      *dump.Server // nil if it is off
	// numbers is what is known of the registry's transaction numbers.
	numbers *fence.Known
	// registry gives the host its sessions; serverIP names the server there.
	registry  *session.Sessions
	serverIP  string
	life      *life.Life
	closers   []func() error
	metrics   *metrics.Metrics
	traces    *trace.Tracer // nil if it is off
	history   history.Store
	whole     *jsonl.Whole       // nil: there is no file of guests' logs
	alerts    *keeper.Dispatcher // nil: there is no file of alerts
	alertFile *service.AlertFile // likewise
	runtime   *plugin.Runtime
	workers   *process.Workers // nil: this program cannot be started once more
	// left says that the catalog was not waited for; see run.
	left bool
}

// runtimeGrace is how long the last guests have to end when all else has.
const runtimeGrace = 10 * time.Second

// onClose adds to what close does, first.
func (s *system) onClose(what string, do func() error) {
	s.closers = append(s.closers, func() error {
		if err := do(); err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		return nil
	})
}

func (s *system) close() error {
	var problems []error
	for i := len(s.closers) - 1; i >= 0; i-- {
		problems = append(problems, s.closers[i]())
	}
	s.closers = nil
	return errors.Join(problems...)
}

// wire builds the system. Nothing runs yet but the goroutines that carry lines
// and events, which close joins.
func wire(ctx context.Context, p *program, l *loaded) (*system, error) {
	s := &system{program: p, loaded: l, started: time.Now(), tail: cluster.NewTail()}
	for _, part := range []func(context.Context) error{
		s.wireOwners, s.wireOutput, s.wireTraces, s.wireEvents, s.wireRuntime, s.wireCatalog, s.wireRegistry, s.wireAddress, s.wireAlerts, s.wireHost, s.wireCluster, s.wireAdmin, s.wireDump,
	} {
		if err := part(ctx); err != nil {
			return nil, errors.Join(err, s.close())
		}
	}
	return s, nil
}

// wireOutput makes what people see.
func (s *system) wireOutput(context.Context) error {
	p, l := s.program, s.loaded
	out := terminal.NewOutput()
	s.output = out
	s.onClose("output", func() error { out.Close(); return nil })
	logOut := out.To(p.Err)
	logTo := terminal.New(logOut, terminal.Style{Columns: p.ErrTTY, Colour: p.Colour(p.ErrTTY), Seal: p.Seal})
	if p.OutTTY && l.LogFormat != logJSON {
		s.console = terminal.New(out.To(p.Out), terminal.Style{Columns: true, Colour: p.Colour(p.OutTTY), Seal: p.Seal})
		if p.ErrTTY {
			logTo = s.console // one terminal, one set of columns
		}
	}
	s.log = terminal.Bounded(terminal.NewLogger(l.LogFormat == logJSON, l.LogLevel, logTo, logOut))
	s.guestLog = terminal.NewLogger(l.LogFormat == logJSON, l.GuestLogLevel, logTo, logOut)
	show := view.ShowLog(s.log)
	if s.console != nil {
		show = view.ShowRow(s.console, l.LogLevel)
	}
	s.view = view.New(show, s.console != nil)
	s.onClose("view", func() error { s.view.Close(); return nil })
	return nil
}

// wireEvents makes where events go. The host is asked for its status only after
// it was made.
func (s *system) wireEvents(ctx context.Context) error {
	s.metrics = metrics.New(metrics.Options{Version: versionText(), Status: func() engine.Status { return s.host.Status() }, Jobs: s.loaded.MetricsJobs, Labels: s.loaded.MetricsLabels, GuestSeries: s.loaded.GuestSeries, TraceID: s.traceID()})
	if err := s.traceMetrics(); err != nil {
		return err
	}
	s.imminent = imminent.New(time.Now)
	return s.wireHistory(ctx)
}

// wireRuntime makes what runs modules.
func (s *system) wireRuntime(ctx context.Context) error {
	p, l := s.program, s.loaded
	memory, err := sizeOrPart(l.MemoryBudget, machineMemory)
	if err != nil {
		return command.Usage(fmt.Errorf("memoryBudget: %w", err))
	}
	modules, err := sizeOrPart(l.ModuleMemory, machineMemory)
	if err != nil {
		return command.Usage(fmt.Errorf("moduleMemory: %w", err))
	}
	pace := paceCollector(p)
	end := pace.run()
	s.onClose("pace of the collector", func() error { end(); return nil })
	s.runtime, err = newRuntime(ctx, plugin.Options{CacheDir: l.Cache, CacheSize: l.CacheSize, Compiler: compiler(p), MemoryBudget: memory, ModuleMemory: modules, CodeChanged: pace.changed(), Logger: terminal.Slog(s.log)})
	if err != nil {
		return err
	}
	s.onClose("runtime", func() error {
		if s.left {
			return nil // it is in use, up to the end of the process
		}
		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), runtimeGrace)
		defer cancel()
		return s.runtime.Close(grace)
	})
	if err := memoryMetrics(s.metrics, s.runtime.Memory); err != nil {
		return err
	}
	if s.workers = newWorkers(p, s.runtime, l.MaxConcurrency, terminal.Slog(s.log)); s.workers == nil {
		return errors.New("worker processes: the file of this program cannot be found, so it cannot be started once more")
	}
	s.onClose("worker processes", func() error { s.workers.Close(); return nil })
	return workerMetrics(s.metrics, s.workers.Stats)
}

// wireCatalog makes what reads the plugins directory. The view shows what jobs
// come, change and go; of the catalog's own lines that leaves what is wrong.
func (s *system) wireCatalog(context.Context) (err error) {
	l := s.loaded
	log := s.log
	if !log.Core().Enabled(zap.DebugLevel) {
		log = terminal.AtLeast(log, zap.WarnLevel)
	}
	s.catalog, err = catalog.New(catalog.Options{
		Wait: s.imminent.Wait,
		Dir:  l.Plugins, Runtime: s.runtime, Mounts: l.Mounts, Grants: l.GrantSet, GrantsFile: l.Grants, Ceilings: l.Ceilings,
		Workers: s.workers, Placement: l.placement(), Logger: log, Notices: s.log, Cache: l.Cache, Rescan: l.Rescan,
	})
	return err
}

// wireRegistry makes the sessions, and the proof of life that they need.
func (s *system) wireRegistry(context.Context) (err error) {
	p, l := s.program, s.loaded
	if s.registry, err = session.Open(l.backend(), l.Namespace, l.Wait, s.log, s.metrics.Operation); err != nil {
		return err
	}
	s.onClose("registry", func() error { return s.registry.Close() })
	shared := s.registry.Backend.Shared()
	// Of registry and cache, whose directories are there now.
	record := l.Cache
	if !shared && l.Data != "" {
		record = l.Data
	}
	s.numbers = new(fence.Known)
	o := life.Options{Timer: deadMan(p, l), IfAny: l.DeadMan == auto, Dir: record, Getenv: p.Getenv, Log: s.log, Namespace: l.Namespace}
	switch {
	case shared:
		o.Registry, o.Greatest = s.registry.Backend.String(), s.numbers.Greatest
	case l.Data != "":
		o.Registry, o.Greatest = "embedded", s.numbers.Greatest // its directory may be moved with the file in it
	}
	s.life = life.New(o)
	s.onClose("proof of life", s.life.Close)
	if greatest, file := s.life.Kept(); greatest > 0 {
		s.numbers.Hear(greatest, "an earlier process of this host had it, says "+file)
	}
	s.registry.Fence = s.life.Fence
	if err := s.life.Metrics(s.metrics); err != nil || !shared {
		return err
	}
	return s.metrics.Sessions(s.sessionMetrics)
}

// sessionMetrics is what the metrics show of the registry's session.
func (s *system) sessionMetrics() *metrics.Session {
	about := s.registry.About()
	if about == nil {
		return nil
	}
	return &metrics.Session{Connected: about.Server != "", Trust: about.Trust, Answered: about.Answered, Reconnects: about.Reconnects}
}

// wireAddress chooses the address that names this server.
func (s *system) wireAddress(ctx context.Context) error {
	l := s.loaded
	ip, doubt, err := address.Choose(ctx, address.Wanted{Address: l.ServerIP, Iface: l.ServerInterface, Servers: l.backend().Servers()})
	if err != nil {
		return command.Usage(err)
	}
	if doubt != "" {
		s.log.Warn("this server's address is chosen by its interfaces; choose it with --server-ip if that is wrong",
			zap.String("serverIp", ip), zap.String("because", doubt))
	}
	s.serverIP = ip
	return nil
}

// observe gives an event to all that take events; none of them blocks.
func (s *system) observe(e event.Event) {
	s.metrics.Observe(e)
	if s.traces != nil {
		s.traces.Observe(e)
	}
	s.history.AddEvent(e)
	if s.whole != nil {
		s.whole.Ended(&e)
	}
	if c, ok := history.ChangeOf(e); ok {
		s.history.AddChange(c)
	}
	if s.alerts != nil {
		s.alerts.Add(e)
	}
	if strings.HasPrefix(string(e.Kind), "job.") {
		s.local.Invalidate()
	}
	if e.Kind == event.HostGone {
		s.local.NoteGone(e)
	}
	if e.Kind == event.Session && e.Reason == event.SessionLive {
		s.life.Begun(e.Host)
		if c := s.registry.Session(); c != nil { // else it has ended already
			s.peers.Begun(c, e.Host)
		}
	}
	s.view.Add(e)
}

// fencesWait is how long a host waits at its start for what its history knows of fences.
const fencesWait = 5 * time.Second

// readFences looks for the greatest fence among the newest runs that a history has which
// outlives its hosts.
func (s *system) readFences(ctx context.Context) {
	if s.loaded.History == "" {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, fencesWait)
	defer cancel()
	runs, err := s.history.Runs(ctx, history.Filter{Limit: history.MaxLimit})
	if err != nil {
		s.log.Warn("the history does not say which fences were given out before", zap.Error(err))
		return
	}
	for _, r := range runs.Records {
		s.numbers.Hear(r.Fence, "the fence of run "+r.ID+" in the history")
	}
}

// wireHost makes the host.
func (s *system) wireHost(ctx context.Context) (err error) {
	l := s.loaded
	s.readFences(ctx)
	s.peers = peers.New(l.Namespace, s.published, s.log)
	s.signedOut = signedout.New(l.Namespace, time.Now, s.log)
	s.unheld = orphans.New(l.Namespace, s.log)
	s.board = store.NewCopy(l.Namespace)
	s.recorder = changes.New(l.Namespace, s.addChange, s.log)
	s.host, err = engine.New(engine.Config{
		Dial: func(ctx context.Context) (registry.Center, error) {
			c, err := s.registry.Begin(ctx)
			if err == nil {
				s.signedOut.Begun(c)
				s.unheld.Begun(c)
				s.board.Begun(c)
				s.recorder.Begun(c)
			}
			return c, err
		},
		Numbers:        s.numbers,
		OnlyHost:       !s.registry.Backend.Shared(),
		KeepUnused:     keepUnused(s.registry.Backend.Shared()),
		Namespace:      l.Namespace,
		ServerIP:       s.serverIP,
		MaxConcurrency: l.MaxConcurrency,
		Ceilings:       l.Ceilings,
		DrainTimeout:   cmp.Or(l.DrainTimeout, -1), // as host.Config has it
		ClockBound:     l.ClockBound,
		KeepServers:    cmp.Or(l.KeepServers, -1),
		OnStuck:        s.stuck,
		StopGrace:      s.registry.StopGrace,
		OnStopped:      s.registry.Stopped,
		OnEvent:        s.observe,
		BeforeClose: func(kill context.Context) {
			if s.alerts != nil {
				s.alerts.Leave(kill)
			}
		},
		OnLog: func(g event.GuestLog) {
			terminal.GuestLog(s.guestLog, g)
			s.addLine(g)
		},
		WholeLog: s.wholeLog(),
		OnMetric: s.metrics.Guest,
		OnCall:   s.called(), Traceparent: s.traceparent(),
		OnNext:         s.imminent.Expect,
		HandlerProblem: s.handlerProblem,
		LastEnd:        s.life.LastEnd(),
		LastHost:       s.life.LastHost(),
		HostInfo:       "wasmjob " + versionText() + " " + platform(),
		Logger:         s.log,
	})
	return err
}

// keepUnused is how many bytes jobs without a definition may take in the registry; 0 is no bound.
func keepUnused(shared bool) int64 {
	if shared { // it is not in this host's memory
		return 0
	}
	return 256 << 20
}

// addChange takes the record of a change that no host was asked for.
func (s *system) addChange(c history.Change) {
	s.log.Info("a change in the registry was recorded", zap.String("operation", c.What), zap.String("job", c.Job), zap.String("by", c.Who), zap.String("reason", c.Why))
	s.local.Note(c)
	s.history.AddChange(c)
}

// wireDump makes what answers ElasticJob's dump request.
func (s *system) wireDump(context.Context) (err error) {
	l := s.loaded
	if l.DumpAddress == "" {
		return nil
	}
	s.dump, err = dump.Listen(dump.Options{Address: l.DumpAddress, Namespace: l.Namespace, Read: s.read, Logger: s.log})
	if err != nil {
		return err
	}
	s.onClose("dump port", s.dump.Close)
	return nil
}

// memoryMetrics shows what guests and compiled code take of the memory budget.
func memoryMetrics(m *metrics.Metrics, memory func() plugin.Memory) error {
	return errors.Join(
		m.GaugeFunc("memory_budget_bytes", "What guests and compiled modules may take together; 0 is no limit.",
			func() float64 { return float64(memory().Budget) }),
		m.GaugeFunc("memory_guests_bytes", "What guests have of the memory budget: memories, tables and stacks.",
			func() float64 { return float64(memory().Guests) }),
		m.GaugeFunc("memory_code_bytes", "What the compiled modules in memory take of the memory budget, about.",
			func() float64 { return float64(memory().Code) }),
		m.CounterFunc("module_waits_total", "Times that a fire waited for a module that had left memory.",
			func() float64 { return float64(memory().Late) }),
		m.GaugeFunc("memory_workers_waiting", "Workers that wait until there is memory for their guest.",
			func() float64 { return float64(memory().Waiting) }),
		m.CounterFunc("memory_refused_total", "Times that a guest got no more memory because the budget, or its job's share, was used up.",
			func() float64 { return float64(memory().Refused) }),
	)
}

// workerMetrics shows the processes in which guests run.
func workerMetrics(m *metrics.Metrics, stats func() process.Stats) error {
	return errors.Join(
		m.GaugeFunc("worker_processes", "Worker processes, which run guests outside of the host's process.",
			func() float64 { return float64(stats().Running) }),
		m.CounterFunc("worker_processes_started_total", "Worker processes that were started, also to try a module.",
			func() float64 { return float64(stats().Started) }),
		m.CounterFunc("worker_processes_killed_total", "Worker processes that were killed because of what their guests did.",
			func() float64 { return float64(stats().Killed) }),
		m.CountersFunc("worker_processes_ended_total", "Worker processes that ended by themselves, by cause: killed by the kernel or another program, refused memory by the kernel, or crashed.",
			metrics.NewLabel("cause", process.Causes()),
			func(cause string) float64 { return float64(stats().Ended[process.Cause(cause)]) }),
	)
}

// stuck ends the process: a guest runs on that nothing can stop, and the
// registry is about to give its items to other hosts.
func (s *system) stuck(jobs []string) {
	s.log.Error("a guest of a lost session cannot be stopped: the process ends before another host may run its items", zap.Strings("jobs", jobs))
	said := make(chan struct{})
	go func() { // not joined: nothing is, from here on
		defer close(said)
		_ = s.life.Ends(deadman.Stuck)
		s.output.Close()
	}()
	select {
	case <-said:
	case <-time.After(session.StuckGrace):
	}
	os.Exit(exitStuck)
}

// wireCluster makes what shows the whole cluster, and lets other hosts ask this one.
func (s *system) wireCluster(context.Context) error {
	l := s.loaded
	s.reporter = &report.Reporter{Host: s.host, About: s.about(), Pending: s.pending, Session: s.registry.About, Waiting: s.registry.WaitsFor,
		History: s.historyState, Warnings: s.warnings}
	if s.alerts != nil {
		s.reporter.Alerts = s.alerts.Problems
	}
	s.local = cluster.NewLocal(func() report.Report { return s.reporter.Report(false) })
	transport := s.peers.NewTransport()
	s.onClose("peers", func() error { transport.CloseIdleConnections(); return nil })
	others := func() (list []cluster.Peer) {
		for _, p := range s.peers.List() {
			list = append(list, cluster.Peer(p))
		}
		return list
	}
	get := func(ctx context.Context, p cluster.Peer, path string, into any) error {
		return s.peers.Get(ctx, transport, peers.Peer(p), path, into)
	}
	stream := func(ctx context.Context, p cluster.Peer, path string, line func([]byte)) error {
		return s.peers.Stream(ctx, transport, peers.Peer(p), path, line)
	}
	self := func() cluster.Peer { return cluster.Peer(s.peers.Self()) }
	s.peers.Changed = func() {
		for _, e := range s.local.NotePeers(append(others(), self())) {
			e.Host = s.host.Status().Instance
			s.history.AddEvent(e)
		}
	}
	s.cluster = cluster.New(cluster.Options{
		Local: s.local, Self: self, Peers: others, Registry: s.unheld, Changes: s.history.Changes, Events: s.history.Events,
		Fetch: func(ctx context.Context, p cluster.Peer, epoch string, since uint64) (d cluster.Delta, err error) {
			err = get(ctx, p, cluster.DeltaPath(epoch, since), &d)
			return d, err
		},
	})
	s.service = service.New(service.Options{
		Namespace: l.Namespace, Cluster: s.cluster, Histories: &cluster.Histories{Store: s.history, Self: self, Peers: others, Get: get, Stream: stream, Tail: s.tail, Silences: s.cluster}, Store: s.history,
		Registry: admin.NewRegistry(l.Namespace, s.registry.Session).OnHost(l.Ceilings, s.catalog.Refuses), Session: s.registry.Session, Host: s.host, About: s.about, Pending: s.pending, Logger: s.log,
		Board: s.board, AlertFile: s.alertFile,
		StartOn: func(ctx context.Context, p cluster.Peer, job string) error {
			return s.peers.Post(ctx, transport, peers.Peer(p), cluster.StartPath(job))
		},
	})
	s.onClose("operations over all jobs", s.service.Close)
	return nil
}

// about is what the process says of itself.
func (s *system) about() report.About {
	l := s.loaded
	return report.About{Version: versionText(), TimeZone: zoneText(s.program.Environ, time.Now()), PID: os.Getpid(), Plugins: absolute(l.Plugins), Registry: s.registry.Backend.String(), History: s.historyText(),
		Grants: absolute(l.Grants), Alerts: absolute(l.Alerts), Users: absolute(l.Access.Users), GuestLog: absolute(l.GuestLog)}
}

// absolute is a file's name that is good in any directory, if that can be known; empty for none.
func absolute(file string) string {
	if abs, err := filepath.Abs(file); file != "" && err == nil {
		return abs
	}
	return file
}

// published is what the other hosts know of this one.
func (s *system) published() tree.ClusterDetail {
	d := tree.ClusterDetail{ServerIP: s.serverIP, Version: versionText(), Started: s.started}
	if s.admin != nil {
		d.API = s.admin.Address().URL(s.serverIP)
		if shown := s.gate.Certificate(); shown != nil {
			d.API, d.Certificate = strings.Replace(d.API, "http:", "https:", 1), peers.CertificateSum(shown)
		}
	}
	return d
}

// wireAdmin makes the admin address.
func (s *system) wireAdmin(context.Context) error {
	l := s.loaded
	if l.Admin == nil {
		return nil
	}
	token, err := l.token()
	if err != nil {
		return err
	}
	answers := api.New(api.Options{Service: s.service, Cluster: s.cluster, Local: s.local, Tail: s.tail, Store: s.history, Verify: s.peers.Verify,
		Report: s.reporter.Report})
	gated, console, err := s.wireAccess(token)
	if err != nil {
		return err
	}
	documents, err := pages.New(docs.Files())
	if err != nil {
		return err
	}
	s.admin, err = server.Listen(server.Options{
		Access: gated, Address: *l.Admin, Token: token, Ready: s.reporter.Ready, Metrics: s.metrics.Handler(s.log), API: answers, Peers: answers.Peers(), Pages: console, Documents: documents, Wait: s.imminent.Wait, Logger: s.log,
	})
	if err != nil {
		return fmt.Errorf("%w (--admin ADDRESS or --admin off)", err)
	}
	s.onClose("admin address", s.admin.Close)
	if !l.Admin.Local() && s.gate.TLS() == nil {
		s.log.Warn("the admin address can be reached from other machines, without TLS", zap.Stringer("address", s.admin.Address()), zap.Bool("behindProxy", len(l.Access.Proxies) > 0))
	}
	cluster := ""
	if s.registry.Backend.Shared() {
		cluster = "namespace " + l.Namespace + " on " + s.registry.Backend.String()
	}
	note := client.Note{Address: s.admin.Address().String(), Token: token, PID: os.Getpid(), Plugins: s.about().Plugins, Started: s.started, Certificate: absolute(l.Access.TLS.Cert), Cluster: cluster}
	file, remove, err := note.Leave(client.NoteDirs(s.program.Getenv))
	if err != nil {
		s.log.Warn("clients will not find this host by themselves: they need --admin and --token-file", zap.Error(err))
	} else {
		s.onClose("note for clients", remove)
	}
	s.tokenFile = cmp.Or(absolute(l.AdminTokenFile), file)
	return nil
}

// read reads from the session that the host has.
func (s *system) read(ctx context.Context, queries ...registry.Query) ([]registry.Node, error) {
	c := s.registry.Session()
	if c == nil {
		return nil, engine.ErrNotLive
	}
	return c.Read(ctx, queries...)
}

// pending is the catalog's progress, for the admin address.
func (s *system) pending() report.Pending {
	progress := s.catalog.Progress()
	p := report.Pending{Starting: !progress.Settled}
	for _, c := range progress.Compiling {
		p.Compiling = append(p.Compiling, report.Compiling{Module: c.Module, Jobs: append([]string{}, c.Jobs...), Since: c.Since})
	}
	return p
}

// warnings are about the settings, for the admin address.
func (s *system) warnings() []string {
	var list []string
	for _, job := range s.catalog.Progress().UnusedMounts {
		list = append(list, fmt.Sprintf("a directory is mounted for job %q, and there is no such job", job))
	}
	if s.gate != nil {
		if p := s.gate.Users.Problem(); p != "" {
			list = append(list, "the users file is not taken, and the one before stays in force: "+words.OneLine(p))
		}
	}
	return words.Strings(list, 0)
}

// compileGrace is how long a module that is being compiled may still take when
// all else has ended.
const compileGrace = 500 * time.Millisecond

// run runs all parts until stop is done and the host has drained, or kill is
// done, or one of them fails, which ends the others. The admin address answers
// until the host has ended, and the catalog, whose modules the host uses,
// outlives it too.
//
// Where a module is compiled in this process, that cannot be interrupted. If it
// is all that is left, it is left to the end of the process: nothing uses what
// comes of it, and files of the cache take their names when they are whole.
func (s *system) run(stop, kill context.Context) error {
	stop, drain := context.WithCancel(stop)
	defer drain()
	around, end := context.WithCancel(context.WithoutCancel(stop))
	defer end()
	part := func(ended chan<- error, what string, run func() error) {
		go func() {
			err := run()
			if err != nil {
				err = fmt.Errorf("%s: %w", what, err)
			}
			ended <- err
		}()
	}
	files := make(chan error, 1) // has room: the catalog may be left
	part(files, "plugins directory", func() error { return s.catalog.Run(around, s.host.Apply) })
	others, ended := 1, make(chan error)
	if s.admin != nil {
		others++
		part(ended, "admin", func() error { return s.admin.Run(around) })
		others += 2
		part(ended, "access", func() error { return s.gate.Run(around) })
		part(ended, "sign-outs", func() error { return s.signedOut.Run(around) })
	}
	others += 5
	part(ended, "peers", func() error { return s.peers.Run(around) })
	part(ended, "jobs without a host", func() error { return s.unheld.Run(around) })
	part(ended, "audit", func() error { return s.recorder.Run(around) })
	part(ended, "shown alerts", func() error { return s.board.Run(around) })
	part(ended, "cluster", func() error { return s.cluster.Run(around) })
	if s.alerts != nil {
		others++
		part(ended, "alerts", func() error { s.alerts.Run(stop, around); return nil })
	}
	if s.dump != nil {
		others++
		part(ended, "dump port", func() error { return s.dump.Run(around) })
	}
	others++
	part(ended, "registry", func() error {
		select {
		case err := <-s.registry.Fatal:
			return err
		case <-around.Done():
			return nil
		}
	})
	part(ended, "host", func() error {
		defer end() // the others run for the host's sake
		return s.host.Run(stop, kill)
	})
	var problems []error
	note := func(err error) {
		if err != nil {
			problems = append(problems, err)
			drain() // one that failed ends the host, and so the others
		}
	}
	for others > 0 {
		select {
		case err := <-ended:
			others--
			note(err)
		case err := <-files:
			files <- nil // for below
			note(err)
			for ; others > 0; others-- {
				note(<-ended)
			}
		}
	}
	grace := time.NewTimer(compileGrace)
	defer grace.Stop()
	select {
	case err := <-files:
		note(err)
		return errors.Join(problems...)
	case <-grace.C:
	case <-kill.Done():
	}
	if s.left = s.compiling(); !s.left {
		note(<-files)
	}
	return errors.Join(problems...)
}

// compiling reports whether a module is being compiled.
func (s *system) compiling() bool {
	return slices.ContainsFunc(s.catalog.Progress().Compiling, func(c catalog.Compiling) bool { return !c.Since.IsZero() })
}
