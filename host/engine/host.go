package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/coordination/fence"
	"github.com/wasmjob/wasmjob/coordination/jobconfig"
	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/tree"
	"github.com/wasmjob/wasmjob/host/config/ceiling"
	"github.com/wasmjob/wasmjob/host/engine/admission/inflight"
	"github.com/wasmjob/wasmjob/host/engine/failures"
	"github.com/wasmjob/wasmjob/host/engine/run"
	"github.com/wasmjob/wasmjob/host/event"
	"github.com/wasmjob/wasmjob/internal/slots"
	"github.com/wasmjob/wasmjob/internal/text/reason"
	"github.com/wasmjob/wasmjob/internal/text/words"
)

// Module is a loaded module that can be configured for a job. It is safe for
// concurrent use.
type Module interface {
	// Digest is the lower-case hex SHA-256 of the module's bytes.
	Digest() string
	// Granted is a text that changes whenever the operator's grants for the job change; the host then makes a new
	// executor.
	Granted() string
	// Executor configures the module for the job. The caller owns one use of the result, and ends it with Release.
	Executor(c jobconfig.Configuration) (abi.Executor, error)
}

// Job is a job that this host should run: its definition and its module.
type Job struct {
	// Definition is the configuration in the definition file. The configuration in force is that of the registry; see
	// jobconfig.Merge.
	Definition jobconfig.Configuration
	// JobClass is written as the data of the job's root node if that is blank.
	JobClass string
	Module   Module
	// File and ModuleFile are the names of the files, for people.
	File, ModuleFile string
	// Inherited has, by setting of Definition, the file of defaults that gave the setting's value.
	Inherited map[string]string
	// Group names the jobs that share a part of the host with this one. Each group gets the same share of the host's
	// slots, commits and loop turns, regardless of how many jobs it has. The group stays that of the first definition
	// until the job is left.
	Group string
	// Apart says that the job's guests run in a process of their own, whatever the job's configuration says.
	Apart bool

	groupItems int // how many items the definitions of the group have together; Apply counts them
}

// Config is what New needs. It must not be changed after New.
type Config struct {
	// Dial opens a registry session; it is called once per term.
	Dial func(context.Context) (registry.Center, error)
	// Numbers is what is known of the registry's transaction numbers when the host starts; the host adds what it learns.
	// nil: nothing is known. OnlyHost says that the registry can have no other host.
	Numbers  *fence.Known
	OnlyHost bool
	// Namespace is the first segment (or segments) of every path.
	Namespace string
	// ServerIP names this server to operators: an IPv4 address.
	ServerIP string
	// MaxConcurrency is how many items may run at the same time on this host; 0 means 8 per processor.
	MaxConcurrency int
	// Ceilings are the limits of jobs' settings and quotas on this host, regardless of their configurations; see
	// host/config/ceiling. The empty list has no limits.
	Ceilings ceiling.List
	// DrainTimeout is how long running items may continue after Run was asked to stop. 0 means 30 s; a negative value
	// stops them at once.
	DrainTimeout time.Duration
	// KeepServers is how long the node of an enabled server without an instance
	// of a job stays in the registry; 0 is 24 h, a negative duration for ever.
	KeepServers time.Duration
	// KeepUnused is approximately how many bytes the nodes of jobs without a definition may take in the registry. Beyond
	// that the host forgets jobs that it has created, first those that had a definition for the shortest time. It
	// requires OnlyHost. 0 sets no bound.
	KeepUnused int64
	// OnStuck is called, from its own goroutine, if guests still run StopGrace after a lost session has cancelled them:
	// code without a loop or a call cannot be interrupted. jobs are their jobs. The process must then end, before the
	// registry gives their items to other hosts. If OnStuck is nil, the host waits for ever.
	OnStuck func(jobs []string)
	// StopGrace returns, when the session is lost, how long to wait before OnStuck is called. nil means 7 s, which fits a
	// session timeout of 30 s: the host gives the session up after two thirds of the timeout, and the process ends at
	// nine tenths.
	StopGrace func() time.Duration
	// OnStopped is called, from its own goroutine, when the session is lost and none of its guests runs any more, unless
	// OnStuck was called. The process then need not end, however long its jobs take to end. It may be nil.
	OnStopped func()
	// BeforeClose is called when all jobs have been left, before the host's session ends, so that others can still write
	// in the session. It is not called for a lost session. It returns at the latest when kill, that of Run, is done. It
	// may be nil.
	BeforeClose func(kill context.Context)
	// LastHost is the last instance id of the previous process of this host. LastEnd says how that process ended, if that
	// is worth a report; event.HostStarted has both.
	LastHost string
	LastEnd  reason.Reason
	// OnEvent is called with every event, in order and by one goroutine at a time. It must not block. nil drops events.
	OnEvent func(event.Event)
	// OnLog is called with every line that a guest logs, from the guest's goroutine, unless this host has lost its item.
	// nil drops the lines.
	OnLog func(event.GuestLog)
	// WholeLog gets all lines of guests, except those whose items this host has lost. It may be nil.
	WholeLog *event.WholeLog
	// OnMetric is called with every value that a guest reports, from the guest's goroutine, and returns an abi code. nil
	// accepts and drops the values.
	OnMetric func(event.GuestMetric) abi.Code
	// OnCall is called with every request and connection of a guest whose trace is recorded, from any goroutine. nil
	// drops them.
	OnCall func(event.GuestCall)
	// Traceparent is called before every attempt and listener, from its goroutine. It returns the W3C trace context, or
	// an empty string. It may be nil.
	Traceparent func(event.Run) string
	// OnNext is called with the instant of a job's next fire on this host (zero: none) whenever the job's loop has done
	// what was due. It must not block. nil drops the calls.
	OnNext func(job string, at time.Time)
	// HostInfo is the text of abi.CtxHostInfo.
	HostInfo string
	// HandlerProblem returns why the messages of a jobErrorHandlerType are not sent; empty if they are, or if the handler
	// sends none. It must be safe for concurrent use. It may be nil.
	HandlerProblem func(handler string) string
	// Now is the wall clock: instants come due by it, and it dates events and registry records. It may jump in both
	// directions. Pauses, time-outs and drains use Go's own clock. nil means time.Now. It must be safe for concurrent
	// use.
	Now func() time.Time
	// ClockBound is how far the wall clock may be ahead of the registry's: no instant begins earlier than that by the
	// registry's clock, and nothing is dated later, whatever Now returns. 0 means 5 s; a negative value sets no bound.
	ClockBound time.Duration
	Logger     *zap.Logger

	// token returns the end of a term's instance ids; nil means newToken. A simulation sets it, so that ids follow from
	// its seed.
	token func() string
	// turns is how many loops may work at the same time; 0 means loopsPerProcessor for each processor. Tests set it.
	turns int
	// mostOwed is how many instants the items of one group may owe; 0 means defaultMostOwed. Tests set it.
	mostOwed int
}

// Errors of the operations.
var (
	ErrNoJob   = errors.New("no such job on this host")
	ErrNotLive = errors.New("the host has no live registry session")
	// ErrDraining: the host is draining and begins no items.
	ErrDraining = errors.New("this host is draining and begins no items; trigger the job on another host, or later")
	// ErrJobRemoved: the job is defined here, and was removed from the registry.
	ErrJobRemoved = errors.New("the job was removed from the registry")
)

// Host keeps one loop per job between the clock, the registry and the guests.
// All methods are safe for concurrent use.
type Host struct {
	cfg     Config
	log     *zap.Logger
	slots   *slots.Slots
	commits *inflight.Commits
	left    *leftovers
	turns   *inflight.Turns
	events  emitter
	wake    chan struct{} // Apply has news; size 1
	process string        // names the process, see event.Process

	mu      sync.Mutex
	started time.Time
	desired map[string]Job
	// parted is what was known of each job when the last session ended.
	parted map[string]*JobStatus
	// brought are the digests of the definitions with which this host last joined its jobs, or which it last applied to
	// them.
	brought map[string]string
	refused []Refusal
	applied bool
	state   HostState
	term    *term // nil between terms
	// dialling is when the host lost its session or started; zero while it has a session.
	dialling time.Time

	failures failures.Counts
	// registry is what is known of the registry's clock. drifts is set if the last event about the clock said that this
	// host's is too far from it; it belongs to the goroutine in Run.
	registry registryClock
	drifts   bool
}

const (
	concurrencyPerProcessor = 8
	// loopsPerProcessor is how many loops of jobs work at the same time per processor; loops that wait do not count.
	loopsPerProcessor  = 4
	defaultDrain       = 30 * time.Second
	defaultStopGrace   = 7 * time.Second
	defaultKeepServers = 24 * time.Hour
	dialPause          = time.Second
)

// DefaultMaxConcurrency returns how many items run at the same time on a host without a setting.
func DefaultMaxConcurrency() int { return concurrencyPerProcessor * runtime.GOMAXPROCS(0) }

// New checks the configuration and returns a host that is not running.
func New(cfg Config) (*Host, error) {
	var problems []error
	if cfg.Dial == nil {
		problems = append(problems, errors.New("no Dial function"))
	}
	if ns := strings.Trim(cfg.Namespace, "/"); ns == "" || strings.Contains(ns, "//") {
		problems = append(problems, fmt.Errorf("namespace %q: expected one or more path segments, such as wasmjob", cfg.Namespace))
	}
	if addr, err := netip.ParseAddr(cfg.ServerIP); err != nil || !addr.Is4() {
		problems = append(problems, fmt.Errorf("server IP %q: expected an IPv4 address, which is how ElasticJob knows servers", cfg.ServerIP))
	}
	if cfg.MaxConcurrency < 0 {
		problems = append(problems, fmt.Errorf("max concurrency %d: expected 0 (the default) or more", cfg.MaxConcurrency))
	}
	if err := errors.Join(problems...); err != nil {
		return nil, fmt.Errorf("host configuration: %w", err)
	}
	cfg.MaxConcurrency = cmp.Or(cfg.MaxConcurrency, DefaultMaxConcurrency())
	cfg.DrainTimeout = max(cmp.Or(cfg.DrainTimeout, defaultDrain), 0)
	cfg.ClockBound = cmp.Or(cfg.ClockBound, defaultClockBound)
	cfg.KeepServers = cmp.Or(cfg.KeepServers, defaultKeepServers)
	if cfg.StopGrace == nil {
		cfg.StopGrace = func() time.Duration { return defaultStopGrace }
	}
	cfg.Logger = cmp.Or(cfg.Logger, zap.NewNop())
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Numbers == nil {
		cfg.Numbers = new(fence.Known)
	}
	if cfg.HandlerProblem == nil {
		cfg.HandlerProblem = func(string) string { return "" }
	}
	if cfg.OnStuck == nil {
		cfg.OnStuck = func([]string) {}
	}
	if cfg.OnStopped == nil {
		cfg.OnStopped = func() {}
	}
	if cfg.OnNext == nil {
		cfg.OnNext = func(string, time.Time) {}
	}
	h := &Host{
		cfg:     cfg,
		log:     cfg.Logger,
		slots:   slots.New(cfg.MaxConcurrency),
		commits: inflight.New(),
		turns:   inflight.NewTurns(cmp.Or(cfg.turns, loopsPerProcessor*runtime.GOMAXPROCS(0))),
		wake:    make(chan struct{}, 1),
		process: event.Process(cfg.ServerIP, strconv.Itoa(os.Getpid())),
		state:   HostStarting,
		desired: make(map[string]Job),
		brought: make(map[string]string),
		left:    newLeftovers(cfg.KeepUnused),
	}
	h.events = emitter{sink: cfg.OnEvent, clock: h.clock}
	return h, nil
}

// Apply sets the jobs that this host should run, and the files that were refused. It replaces those of earlier calls. The
// host leaves jobs that are no longer in the set, after their running items have finished.
func (h *Host) Apply(jobs []Job, refused []Refusal) {
	h.mu.Lock()
	h.desired = make(map[string]Job, len(jobs))
	items := make(map[string]int)
	for _, j := range jobs {
		items[j.Group] += j.Definition.ShardingTotalCount
	}
	for _, j := range jobs {
		j.groupItems = items[j.Group]
		h.desired[j.Definition.JobName] = j
	}
	known := make(map[string]bool, len(h.refused))
	for _, r := range h.refused {
		known[r.File+"\x00"+strings.Join(r.Reasons, "\n")] = true
	}
	again := make(map[string]bool, len(refused)) // or accepted already
	for _, r := range refused {
		again[r.File] = true
	}
	var accepted []string
	for _, r := range h.refused {
		if !again[r.File] {
			accepted, again[r.File] = append(accepted, r.File), true
		}
	}
	h.refused, h.applied = slices.Clone(refused), true
	h.mu.Unlock()
	for _, file := range accepted {
		h.emit(event.Event{Kind: event.Accepted, Host: h.process, File: file})
	}
	for _, r := range refused {
		if reasons := strings.Join(r.Reasons, "\n"); !known[r.File+"\x00"+reasons] {
			h.emit(event.Event{Kind: event.Refused, Host: h.process, File: r.File, Reason: reasons, Jobs: r.Jobs})
		}
	}
	notify(h.wake)
}

// former returns the digest of the definition that this host last brought to the registry for a job; empty without one.
func (h *Host) former(job string) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.brought[job]
}

func (h *Host) setFormer(job, digest string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.brought[job] = digest
}

// dropFormer forgets the definition of a job that the registry has forgotten.
func (h *Host) dropFormer(job string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.brought, job)
}

// notify wakes the reader of a channel of size 1; several wake-ups are merged.
func notify(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Run runs one term after the other until ctx is done. Then it drains: no item begins, running items get
// Config.DrainTimeout, and the host leaves its jobs. When kill is done, Run stops guests at once and returns. Run joins
// every goroutine that it started. It may be called only once.
func (h *Host) Run(ctx, kill context.Context) error {
	h.mu.Lock()
	if !h.started.IsZero() {
		h.mu.Unlock()
		return errors.New("host: Run was called twice")
	}
	h.started = h.clock()
	h.mu.Unlock()
	h.emit(event.Event{Kind: event.HostStarted, Host: h.process, Other: h.cfg.LastHost}.Why(h.cfg.LastEnd))
	defer func() {
		h.setState(HostStopped, nil)
		h.emit(event.Event{Kind: event.HostStopped, Host: h.process})
	}()
	var owed map[string]bool
	dialling, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(kill, cancel)()
	end := func() {}
	defer func() { end() }()
	for waits := false; dialling.Err() == nil; {
		h.setState(HostStarting, nil)
		if !waits {
			end, waits = h.waitForSession(), true
		}
		r, err := h.dial(dialling)
		if err != nil {
			if dialling.Err() != nil {
				return nil
			}
			h.log.Error("registry: cannot connect; trying again", zap.Error(err))
			if !run.Pause(dialling, dialPause) {
				return nil
			}
			continue
		}
		end()
		end, waits = func() {}, false
		t := newTerm(h, r)
		t.owed = owed
		h.setState(HostLive, t)
		h.emit(event.Event{Kind: event.Session, Host: t.self.ID, Reason: event.SessionLive})
		lost := t.run(ctx, kill)
		if !lost && h.cfg.BeforeClose != nil {
			h.cfg.BeforeClose(kill)
		}
		if err := r.Close(); err != nil {
			h.log.Warn("registry: closing the session failed", zap.Error(err))
		}
		if !lost {
			return nil
		}
		owed = t.unsettled()
		h.part(t)
		h.emit(event.Event{Kind: event.Session, Host: t.self.ID, Reason: event.SessionLost})
		h.log.Error("registry: session lost; everything was stopped; starting a new one")
	}
	return nil
}

// dial opens a session. The session is usable only if the registry's transaction numbers are known to grow; otherwise
// dial returns an error.
func (h *Host) dial(ctx context.Context) (*fence.Session, error) {
	c, err := h.cfg.Dial(ctx)
	if err != nil {
		return nil, err
	}
	limited, cancel := context.WithTimeout(ctx, commitTimeout)
	defer cancel()
	s, report, err := fence.Enter(limited, c, fence.Entering{Namespace: h.cfg.Namespace, Known: h.cfg.Numbers, Alone: h.cfg.OnlyHost, Host: h.process})
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	if report != "" {
		h.log.Warn(report)
		h.emit(event.Event{Kind: event.RegistryBehind, Host: h.process, Reason: report})
	}
	if behind := s.Behind(); behind != nil {
		h.log.Error("registry: nothing begins", zap.Error(behind))
		h.emit(event.Event{Kind: event.RegistryBehind, Host: h.process, Reason: behind.Error()})
	}
	return s, nil
}

// part keeps what the loops of an ended term know of their jobs.
func (h *Host) part(t *term) {
	parted := make(map[string]*JobStatus)
	t.mu.Lock()
	for name, j := range t.jobs {
		parted[name], _ = j.mail.lastStatus()
	}
	t.mu.Unlock()
	h.mu.Lock()
	h.parted = parted
	h.mu.Unlock()
}

func (h *Host) setState(s HostState, t *term) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.state, h.term = s, t
}

func (h *Host) emit(e event.Event) { h.events.emit(e) }

// emitter gives events their time, and passes them on in order.
type emitter struct {
	mu    sync.Mutex
	sink  func(event.Event)
	clock func() time.Time
}

func (e *emitter) emit(ev event.Event) {
	if e.sink == nil {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	ev.Time = e.clock()
	ev.Reason = event.Harmless(ev.Reason)
	if ev.Kind != event.Refused { // its reasons were cut one by one
		ev.Reason = words.Reason(ev.Reason)
	}
	e.sink(ev)
}

// Ready reports whether the host has a live session, has been given its jobs, and each of them has joined or says why it
// cannot. If it is not ready, missing says why, as far as known.
func (h *Host) Ready() (ready bool, missing string) {
	h.mu.Lock()
	t, ok := h.term, h.applied && h.state == HostLive
	h.mu.Unlock()
	if !ok || t == nil {
		return false, ""
	}
	wanted := h.wanted()
	if joined := t.settled(wanted); joined < len(wanted) {
		return false, fmt.Sprintf("%d of %d jobs have joined", joined, len(wanted))
	}
	return true, ""
}

// wanted returns the jobs that this host should run, by name. The caller must not change the map.
func (h *Host) wanted() map[string]Job {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.desired
}

// statusWait is how long Status waits for the answer of a job's loop that is waiting for the registry.
const statusWait = time.Second

// Status returns the state of the host without a request to the registry: it shows which items are disabled as the host
// last saw it, and leaves out what other hosts of a job publish. A job whose loop does not answer within a second is
// shown in its last known state.
func (h *Host) Status() Status { return h.status(statusWait, false) }

// StatusWithin is Status that waits at most this long.
func (h *Host) StatusWithin(wait time.Duration) Status { return h.status(wait, false) }

// FullStatus is Status with the facts that are not watched. It makes two reads per job: of a node for each idle item of
// this host, and of a node for each host of the job. It is meant for requests of people.
func (h *Host) FullStatus() Status { return h.status(statusWait, true) }

// Look makes a job read again what it does not watch, and report changes. It does not wait for that.
func (h *Host) Look(job string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.term != nil {
		h.term.look(job)
	}
}

func (h *Host) status(wait time.Duration, full bool) Status {
	h.mu.Lock()
	s := Status{ServerIP: h.cfg.ServerIP, Namespace: h.cfg.Namespace, State: h.state, Started: h.started, Refused: append([]Refusal{}, h.refused...), Jobs: []*JobStatus{}}
	t, dialling := h.term, h.dialling
	if h.state == HostStarting {
		s.Jobs = h.offline()
	}
	h.mu.Unlock()
	s.RegistryFailures = h.failures.ByReason()
	s.Zone = h.clock().Local().Format("MST -07:00")
	s.Slots = SlotsStatus{Total: h.cfg.MaxConcurrency, Used: h.cfg.MaxConcurrency - h.slots.Free()}
	s.Clock = h.clockStatus()
	if !dialling.IsZero() {
		s.Waits = []WaitStatus{{What: event.WaitSession, Since: h.now().instant(dialling), Reason: "a session with the registry", Expired: time.Since(dialling) >= longestBusiness}}
	}
	slices.SortFunc(s.Refused, func(a, b Refusal) int { return strings.Compare(a.File, b.File) })
	if t != nil {
		s.Instance = t.self.ID
		if s.State == HostLive && !t.registry.Trusted() {
			s.State = HostSuspect
		}
		s.Jobs = t.status(wait, full)
	}
	return s
}

// Start makes this host join a job again that an operator stopped on this host or removed from the registry. A removed
// job comes back on all hosts. said is who wants it. Start does nothing for a job that is neither stopped nor removed.
func (h *Host) Start(ctx context.Context, job string, said tree.Word) error {
	h.mu.Lock()
	t, state := h.term, h.state
	_, known := h.desired[job]
	h.mu.Unlock()
	switch {
	case state == HostDraining:
		return fmt.Errorf("job %q: %w", job, ErrDraining)
	case !known:
		return fmt.Errorf("job %q: %w", job, ErrNoJob)
	case t == nil:
		return ErrNotLive
	}
	if err := t.start(ctx, job, said); err != nil {
		return fmt.Errorf("job %q: %w", job, err)
	}
	return nil
}
