// Package keeper evaluates alerts on a host: it passes the host's events to the judge, keeps the results in the
// registry, and, on one host of the cluster, the keeper, sends them. One goroutine decides; requests to the
// registry and deliveries run in others, which report back to it.
package keeper

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/host/alert"
	"github.com/wasmjob/wasmjob/host/event"
	"github.com/wasmjob/wasmjob/internal/text/words"
)

// Rules are the file in force; see [alert.Live].
type Rules interface {
	File() *alert.File
	Changed() <-chan struct{}
	Problem() string
	Watch(ctx context.Context) error
}

// Options are what a dispatcher needs.
type Options struct {
	Rules Rules
	// Namespace is that of the hosts, Server this one's address.
	Namespace, Server string
	// Session is the session that the host has; nil while it has none.
	Session func() registry.Center
	// History says why the history cannot be written, and since when; empty: it can.
	History func() (problem string, since time.Time)
	// Send delivers a message.
	Send   func(ctx context.Context, r alert.Receiver, m *alert.Message) error
	Logger *zap.Logger
}

const (
	// mostQueued is how many events may wait.
	mostQueued = 1 << 14
	// historyEvery is how often the history's state is polled, since it reports nothing by itself.
	historyEvery = 5 * time.Second
	// requestTimeout bounds what is asked of the registry at once.
	requestTimeout = 10 * time.Second
	// retryPause is the pause after the registry refused a request.
	retryPause = time.Second
	// orphansAfter is how long after a change of hosts the keeper looks for jobs without a host, and
	// orphansEvery how often it does so anyway.
	orphansAfter = 3 * time.Second
	orphansEvery = 10 * time.Minute
	// leaveWait is how long a stopping host waits until the others know it, before its session ends.
	leaveWait = 3 * time.Second
	// shortestPause and longestPause are between two attempts to send a message.
	shortestPause = time.Second
	longestPause  = time.Minute
)

// Dispatcher evaluates alerts on a host. Add, Leave and Status are safe for concurrent use.
type Dispatcher struct {
	o       Options
	queue   chan event.Event
	leaving chan chan struct{} // closed once the host has left; see Leave
	ended   chan struct{}      // Run has
	dropped atomic.Int64

	mu     sync.Mutex
	status Status
	own    []alert.Alert
	// blind says why changes of the file are not noticed, empty if they are.
	blind string
}

// Status is the state of a dispatcher.
type Status struct {
	// Keeper: this host sends the alerts of all.
	Keeper bool `json:"keeper"`
	// Firing is how many alerts go on, as far as this host knows.
	Firing int `json:"firing"`
	// Sent and Failed count attempts to send a message, Dropped events that were not
	// looked at.
	Sent    int64 `json:"sent"`
	Failed  int64 `json:"failed"`
	Dropped int64 `json:"dropped"`
	// Failing are the targets that do not take messages now.
	Failing []Failing `json:"failing,omitempty"`
	// Problem is another problem: of the file, or the registry.
	Problem string `json:"problem,omitempty"`
}

// Failing is a target that does not take messages, or, with Attempts 0, takes them only for some of its
// recipients.
type Failing struct {
	Target   alert.Target `json:"target"`
	Since    time.Time    `json:"since"`
	Attempts int          `json:"attempts"`
	Error    string       `json:"error"`
}

// New returns a dispatcher. Nothing happens until Run is called.
func New(o Options) *Dispatcher {
	return &Dispatcher{o: o, queue: make(chan event.Event, mostQueued), leaving: make(chan chan struct{}), ended: make(chan struct{})}
}

// Add takes an event of the host. It never blocks; what does not fit is counted.
func (s *Dispatcher) Add(e event.Event) {
	if !alert.Hears(e.Kind) {
		return
	}
	select {
	case s.queue <- e:
	default:
		s.dropped.Add(1)
	}
}

// Status returns the dispatcher's state.
func (s *Dispatcher) Status() Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.status
	st.Dropped = s.dropped.Load()
	if s.blind != "" {
		st.Problem = "changes of the file of alerts are not noticed: " + s.blind
	}
	if p := s.o.Rules.Problem(); p != "" {
		st.Problem = words.Reason("the file of alerts is not taken, and the one before stays in force: " + words.OneLine(p))
	}
	return st
}

// Own returns the current alerts about this host's session, which are not in the registry.
func (s *Dispatcher) Own() []alert.Alert {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.own
}

// Problems returns what an operator should know.
func (s *Dispatcher) Problems() []string {
	st := s.Status()
	var list []string
	if st.Problem != "" {
		list = append(list, "alerts: "+st.Problem)
	}
	for _, f := range st.Failing {
		if f.Attempts == 0 {
			list = append(list, fmt.Sprintf("alerts: some of %s do not get messages since %s: %s", f.Target, f.Since.UTC().Format(time.RFC3339), f.Error))
			continue
		}
		list = append(list, fmt.Sprintf("alerts: nothing can be sent to %s since %s (%s): %s", f.Target, f.Since.UTC().Format(time.RFC3339), words.Count(f.Attempts, "attempt"), f.Error))
	}
	if st.Dropped > 0 {
		list = append(list, fmt.Sprintf("alerts: %d events came too fast to be looked at", st.Dropped))
	}
	return list
}

// Leave waits until the registry shows that this host stops in good order. Call it before the host's session
// ends: otherwise the host counts as gone. It waits for at most 3 s, and no longer than ctx or Run.
func (s *Dispatcher) Leave(ctx context.Context) {
	late := time.NewTimer(leaveWait)
	defer late.Stop()
	left := make(chan struct{})
	select {
	case s.leaving <- left:
	case <-late.C:
	case <-ctx.Done():
	case <-s.ended:
	}
	select {
	case <-left:
	case <-late.C:
		s.o.Logger.Warn("alerts: the registry did not take in time that this host stops in good order; others may report it gone", zap.Duration("waited", leaveWait))
	case <-ctx.Done():
	case <-s.ended:
	}
}

// Run evaluates alerts until end is done, and waits for all goroutines that it started. When stop is done the
// host begins to stop in good order, and will not count as gone. It may be called once.
func (s *Dispatcher) Run(stop, end context.Context) {
	defer close(s.ended)
	l := newLoop(s, end)
	defer l.close()
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() {
		if err := s.o.Rules.Watch(end); err != nil {
			s.o.Logger.Error("changes of the file of alerts are not noticed", zap.Error(err))
			s.mu.Lock()
			s.blind = err.Error()
			s.mu.Unlock()
		}
	})
	l.run(stop)
}
