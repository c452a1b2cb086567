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
	// Granted is another text whenever the operator grants the job something else:
	// then another executor is made.
	Granted() string
	// Executor configures the module for the job. The caller owns one use
	// of the result and ends it with Release.
	Executor(c jobconfig.Configuration) (abi.Executor, error)
}

// Job is a job that this host should run: its definition and its module.
type Job struct {
	// Definition is the configuration as the definition file has it. What
	// is in force is what the registry says; see jobconfig.Merge.
	Definition jobconfig.Configuration
	// JobClass is written as the data of the job's root node if that is blank.
	JobClass string
	Module   Module
	// File and ModuleFile are names for people.
	File, ModuleFile string
	// Inherited are the files of defaults, by the settings of Definition whose values they gave.
	Inherited map[string]string
	// Group names the jobs with which this one shares a part of the host: each group has the
	// same part of its slots, of its commits, and of the turns of its loops, however many jobs
	// it has. It is that of the first definition as long as the job is not left.
	Group string
	// Apart says that the job's guests run in a process of their own, whatever its
	// configuration asks for.
	Apart bool

	groupItems int // how many items the definitions of the group have together; Apply counts them
}

// Config is what New needs. It is not changed after New.
type Config struct {
	// Dial opens a registry session; it is called once per term.
	Dial func(context.Context) (registry.Center, error)
	// Numbers is what is known of the registry's transaction numbers when the host begins;
	// the host adds to it what it learns. nil: nothing is known. OnlyHost says that no other
	// host can be in the registry.
	Numbers  *fence.Known
	OnlyHost bool
	// Namespace is the first segment (or segments) of every path.
	Namespace string
	// ServerIP names this server to operators: an IPv4 address.
	ServerIP string
	// MaxConcurrency bounds the items that run at once on this host.
	// 0 is 8 per processor.
	MaxConcurrency int
	// Ceilings are what no job may go beyond on this host, whatever its
	// configuration says; see host/config/ceiling. The empty list has none.
	Ceilings ceiling.List
	// DrainTimeout is how long running items may go on after Run was asked to
	// stop. 0 is 30 s; negative is not at all.
	DrainTimeout time.Duration
	// KeepServers is how long the node of an enabled server without an instance
	// of a job stays in the registry; 0 is 24 h, a negative duration for ever.
	KeepServers time.Duration
	// KeepUnused is how many bytes, about, jobs without a definition may take in the
	// registry: beyond that the host forgets of those that it has made the ones that had a
	// definition for the shortest time. It requires OnlyHost. 0 is no bound.
	KeepUnused int64
	// OnStuck is called, from a goroutine of its own, if guests still run
	// StopGrace after a lost session has cancelled them: code without a
	// loop or a call cannot be interrupted. Their jobs are named. The process
	// has to end then, before the registry gives their items to other hosts.
	// nil waits for ever.
	OnStuck func(jobs []string)
	// StopGrace says, when the session is lost, how long OnStuck is not
	// called. nil is 7 s, which fits a session timeout of 30 s: the session is
	// given up after two thirds of it, and the process ends at nine tenths.
	StopGrace func() time.Duration
	// OnStopped is called, from a goroutine of its own, when the session is lost and no guest of it runs any more,
	// unless OnStuck was called. The process need not end then, however long its jobs take to end. nil: the process
	// does not care.
	OnStopped func()
	// BeforeClose is called when all jobs have been left, before the host's session ends, if it
	// was not lost: others write in it. It returns when kill, that of Run, is done at the
	// latest. nil: there are none.
	BeforeClose func(kill context.Context)
	// LastHost is the last instance that the process before this one here was, and LastEnd says how
	// that ended, if it is worth to be reported: event.HostStarted has both.
	LastHost string
	LastEnd  reason.Reason
	// OnEvent is called with every event, from one goroutine at a time and
	// in order. It must not block. nil drops them.
	OnEvent func(event.Event)
	// OnLog is called with every line that a guest logs, from the guest's
	// goroutine, unless its item is lost to this host. nil drops them.
	OnLog func(event.GuestLog)
	// WholeLog takes all lines of guests, unless their items are lost to this host; nil: nothing does.
	WholeLog *event.WholeLog
	// OnMetric is called with every value that a guest reports, from the
	// guest's goroutine; it returns an abi code. nil accepts and drops.
	OnMetric func(event.GuestMetric) abi.Code
	// OnCall is called with every request and connection of a guest that has a trace which
	// is recorded, from any goroutine. nil drops them.
	OnCall func(event.GuestCall)
	// Traceparent is called before every attempt and listener, from its goroutine, and
	// returns its W3C trace context, empty for none. nil: there are none.
	Traceparent func(event.Run) string
	// OnNext is called with the instant of a job's next fire here, zero for none, whenever its
	// loop has done what was due. It must not block. nil drops them.
	OnNext func(job string, at time.Time)
	// HostInfo is the text of abi.CtxHostInfo.
	HostInfo string
	// HandlerProblem says why nothing is sent for a jobErrorHandlerType that is to send
	// something; empty if it is sent, or if the handler sends nothing. It is called by several
	// goroutines. nil says nothing.
	HandlerProblem func(handler string) string
	// Now is the wall clock: by it instants come due, and events and what is
	// written into the registry are dated. It may jump in both directions.
	// Whatever takes a while, such as a pause, a time-out or a drain, goes by
	// Go's own clock. nil is time.Now. It is called by several goroutines.
	Now func() time.Time
	// ClockBound is how far the wall clock may be ahead of the registry's: no
	// instant begins earlier than that by the registry's clock, and nothing is
	// dated later, whatever Now says. 0 is 5 s; negative is no bound.
	ClockBound time.Duration
	Logger     *zap.Logger

	// token ends the ids of a term's instances; nil is newToken. A simulation
	// sets it, so that ids follow from its seed.
	token func() string
	// turns is how many loops work at once; 0: loopsPerProcessor for each processor. Tests set it.
	turns int
	// mostOwed is how many instants the items of one group may owe; 0: defaultMostOwed. Tests set it.
	mostOwed int
}

// Errors of the operations.
var (
	ErrNoJob   = errors.New("no such job on this host")
	ErrNotLive = errors.New("the host has no live registry session")
	// ErrDraining: the host is stopping.
	ErrDraining = errors.New("this host is draining and begins nothing new; trigger the job at another host, or when one runs again")
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
	// brought are the digests of the definitions that this host has last joined its
	// jobs with, or applied.
	brought map[string]string
	refused []Refusal
	applied bool
	state   HostState
	term    *term // nil between terms
	// dialling is since when the host has no session; zero while it has one.
	dialling time.Time

	failures failures.Counts
	// registry is what is known of its clock; drifts, that the last event said
	// that this host's is too far from it, belongs to the goroutine in Run.
	registry registryClock
	drifts   bool
}

const (
	concurrencyPerProcessor = 8
	// loopsPerProcessor is how many loops of jobs work at once: what they wait for is not counted.
	loopsPerProcessor  = 4
	defaultDrain       = 30 * time.Second
	defaultStopGrace   = 7 * time.Second
	defaultKeepServers = 24 * time.Hour
	dialPause          = time.Second
)

// DefaultMaxConcurrency is how many items run at once on a host that says nothing
// about it.
func DefaultMaxConcurrency() int { return concurrencyPerProcessor * runtime.GOMAXPROCS(0) }

// New checks the configuration and returns a host that does nothing yet.
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

// Apply hands over the whole set of jobs that this host should run, and the
// files that were refused. The newest call wins. Jobs that are not in the set
// any more are left: running items finish, then the host leaves the job.
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

// former is the digest of the definition that this host last brought to the registry
// for a job; empty for none.
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

// dropFormer forgets what this host brought of a job that the registry has forgotten.
func (h *Host) dropFormer(job string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.brought, job)
}

// notify wakes a reader of a channel of size 1; wake-ups merge.
func notify(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Run lives one term of a registry session after the other until ctx is done,
// then drains: nothing new begins, running items get Config.DrainTimeout, the
// host leaves its jobs. When kill is done it stops guests at once and returns.
// Run joins every goroutine that it started. It may be called once.
func (h *Host) Run(ctx, kill context.Context) error {
	h.mu.Lock()
	if !h.started.IsZero() {
		h.mu.Unlock()
		return errors.New("host: Run was called before")
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
			h.log.Warn("registry: closing the session", zap.Error(err))
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

// dial opens a session in which the registry's numbers are known to grow, or nothing begins.
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

// part keeps what the loops of a term that has ended know of their jobs.
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

// emitter gives events their time and order.
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

// Ready reports whether the host has a live session, has been given its jobs,
// and every one of them has joined or says why it cannot; if not, it says what is
// missing, as far as it knows.
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

// wanted are the jobs that this host is to run, by name: for reading only.
func (h *Host) wanted() map[string]Job {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.desired
}

// statusWait is how long Status waits for a job's loop that is busy talking
// to the registry.
const statusWait = time.Second

// Status says what the host is doing, and asks nothing of the registry for it: which items are
// disabled is shown as the host last saw it, and what a job's other hosts say of themselves is
// left out. A job whose loop does not answer within a second is shown as it last was.
func (h *Host) Status() Status { return h.status(statusWait, false) }

// StatusWithin is Status that waits for so long at most.
func (h *Host) StatusWithin(wait time.Duration) Status { return h.status(wait, false) }

// FullStatus is Status with what is not watched and is read now: two reads a job, of a node for
// each item here that does not run and of one for each of its hosts. It is for people who ask.
func (h *Host) FullStatus() Status { return h.status(statusWait, true) }

// Look has a job read again what it does not watch, and report it. It does not wait for that.
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

// Start makes this host join a job again that an operator stopped here or removed
// from the registry, which brings it back on all hosts: said is who wants it. A job that was not is left alone.
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
