package session

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/tree"
	"github.com/wasmjob/wasmjob/host/config/migrate"
	"github.com/wasmjob/wasmjob/host/control/report"
	"github.com/wasmjob/wasmjob/host/node/deadman"
	"github.com/wasmjob/wasmjob/internal/text/words"
)

// waitMessage lies between two messages of a host about what it waits for.
const waitMessage = 5 * time.Second

// Sessions is where the host's sessions come from, and knows the newest one.
type Sessions struct {
	Backend   Backend
	namespace string
	wait      time.Duration // for the first session; 0 is for ever
	*Dialer
	// WaitsLong is called every now and then while there is no session.
	Interval  time.Duration
	WaitsLong func(why string, since, limit time.Duration)
	// Fence is the timer for a new session, and who renews it; nil: none. Both
	// that it returns may be nil.
	Fence func() (*deadman.Fence, func(sent, timeout time.Duration))
	// Fatal takes the one error for which the host cannot go on. It has room.
	Fatal chan error

	// Of the goroutine that dials: first says that there was no session yet,
	// began is when the first was asked for.
	first bool
	began time.Time

	mu      sync.Mutex
	current Session
	waiting string // what for, in words; empty while there is a session
}

// Open prepares the sessions of a backend in a namespace. Nothing is
// connected yet. operation counts requests, by kind.
func Open(b Backend, namespace string, wait time.Duration, log *zap.Logger, operation func(kind string, n int)) (*Sessions, error) {
	r := &Sessions{
		Backend: b, namespace: namespace, wait: wait, first: true, Fatal: make(chan error, 1), Interval: waitMessage,
		WaitsLong: func(why string, since, limit time.Duration) {
			atMost := "for ever; see --wait"
			if limit > 0 {
				atMost = words.Duration(limit)
			}
			log.Warn(why, zap.Duration("since", since), zap.String("atMost", atMost))
		},
	}
	var err error
	r.Dialer, err = r.Backend.Open(Opening{Log: log, Operation: operation, Waits: r.waits})
	if err != nil {
		return nil, err
	}
	return r, nil
}

// Begin is what the host calls to begin a term: it waits until there is a
// Session or ctx is done. For the first one the patience of --wait holds, and
// the namespace is looked at: if the host cannot work there, it ends.
func (r *Sessions) Begin(ctx context.Context) (registry.Center, error) {
	limit := time.Duration(0)
	if r.first && r.wait > 0 {
		if r.began.IsZero() {
			r.began = time.Now()
		}
		// At least a moment, so that the error is the registry's own.
		limit = max(time.Millisecond, r.wait-time.Since(r.began))
	}
	c, err := r.Await(ctx, limit)
	final := err != nil && limit > 0
	if err == nil && r.first && r.Backend.Shared() {
		if err = checkNamespace(ctx, c, r.namespace); err != nil {
			var layout *migrate.LayoutError
			final = errors.As(err, &layout) || r.Backend.Denied(err)
			err = errors.Join(err, c.Close())
		}
	}
	switch {
	case err == nil:
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case final:
		r.Fatal <- err
		<-ctx.Done() // the error ends the host
		return nil, ctx.Err()
	default:
		return nil, err
	}
	r.first = false
	r.mu.Lock()
	r.current, r.waiting = c, ""
	r.mu.Unlock()
	return c, nil
}

// Await waits for a session until there is one, ctx is done or the limit, if it
// is not 0, is over. It says every few seconds what it waits for.
func (r *Sessions) Await(ctx context.Context, limit time.Duration) (Session, error) {
	if !r.Backend.Shared() {
		return r.Dial(ctx, nil)
	}
	trying := ctx
	if limit > 0 {
		var cancel context.CancelFunc
		trying, cancel = context.WithTimeout(ctx, limit)
		defer cancel()
	}
	stop := r.announce(limit)
	c, err := r.connect(trying)
	stop()
	if err != nil && trying.Err() != nil && ctx.Err() == nil {
		err = fmt.Errorf("gave up waiting: %w", err)
	}
	return c, err
}

// connect opens a session, with the timer if there is to be one.
func (r *Sessions) connect(ctx context.Context) (Session, error) {
	if r.Fence == nil {
		return r.Dial(ctx, nil)
	}
	fence, renewed := r.Fence()
	s, err := r.Dial(ctx, renewed)
	if err != nil || fence == nil {
		return s, err
	}
	fence.Arm()
	return &fenced{s, fence}, nil
}

// StuckGrace is how long a process that has to end waits until it has said why.
const StuckGrace = 200 * time.Millisecond

// leastStopGrace is how long guests have to end that were cancelled so late that
// no time is left: the process, or the machine, was stopped meanwhile. What
// they do has no effect any more. Of a short session it is less.
const leastStopGrace = time.Second

// StopGrace is how long guests have to end when the session is lost: up to nine
// tenths of its timeout, counted from when the servers are known to have heard
// from it. It is over a little before the kernel's timer ends the process, so that
// there is time to say why.
func (r *Sessions) StopGrace() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	var about *report.Session
	if r.current != nil {
		about = r.current.About()
	}
	if about == nil {
		return 2 * leastStopGrace // such a session is not lost before the process ends
	}
	limit := deadman.Limit(about.Timeout) - min(StuckGrace, about.Timeout/40)
	return max(min(leastStopGrace, about.Timeout*3/20), limit-time.Since(about.Answered))
}

// Stopped switches the timer of the newest session off: the session is lost, and no guest of it runs any more. However
// long the host takes to begin another one, it does nothing that another host does meanwhile.
func (r *Sessions) Stopped() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if f, ok := r.current.(*fenced); ok {
		f.fence.Lift()
	}
}

// announce says, every now and then, what is waited for, until the func that
// it returns is called.
func (r *Sessions) announce(limit time.Duration) (stop func()) {
	began, end, ended := time.Now(), make(chan struct{}), make(chan struct{})
	go func() { // joined by stop
		defer close(ended)
		ticks := time.NewTicker(r.Interval)
		defer ticks.Stop()
		for {
			select {
			case <-ticks.C:
				r.WaitsLong(r.WaitsFor(), time.Since(began).Round(time.Second), limit)
			case <-end:
				return
			}
		}
	}()
	return func() {
		close(end)
		<-ended
	}
}

// waits notes why there is no session yet.
func (r *Sessions) waits(why error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.waiting = why.Error()
}

// WaitsFor says what keeps the host from having a session; empty if it has one.
func (r *Sessions) WaitsFor() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.waiting
}

// live is the newest session; nil while there is none that lives.
func (r *Sessions) live() Session {
	r.mu.Lock()
	c := r.current
	r.mu.Unlock()
	if c == nil {
		return nil
	}
	select {
	case <-c.Lost():
		return nil
	default:
		return c
	}
}

// Session is live, as other rooms want it.
func (r *Sessions) Session() registry.Center {
	if s := r.live(); s != nil {
		return s
	}
	return nil // not a nil interface in another one
}

// About is what is known of the session; nil if there is none, or nothing to know.
func (r *Sessions) About() *report.Session {
	s := r.live()
	if s == nil {
		return nil
	}
	return s.About()
}

// checkNamespace sees that a host can work in the namespace: that it may read
// and write there, and that no older ElasticJob does.
func checkNamespace(ctx context.Context, c registry.Center, namespace string) error {
	if err := migrate.Check(ctx, c, namespace); err != nil {
		return err
	}
	for _, root := range []string{tree.JobsPath(namespace), tree.JobsPath(namespace) + ".wasmjob"} {
		// What no name of a job can be, made and deleted in one commit.
		probe := root + "/" + "@-@" + tree.NewJobInstance("probe", fmt.Sprint(time.Now().UnixNano())).ID
		_, err := c.Commit(ctx, registry.Ensure(root), registry.Create(probe, nil), registry.Delete(probe, registry.AnyVersion))
		if err != nil {
			return fmt.Errorf("this host may not write below %s: %w", root, err)
		}
	}
	return nil
}

// fenced is a session with the timer that ends the process before the session
// ends. The host closes a session when all that ran under it has ended, and calls
// Stopped before if only jobs' loops are left.
type fenced struct {
	Session
	fence *deadman.Fence
}

// Close implements registry.Center.
func (f *fenced) Close() error {
	f.fence.Lift()
	return f.Session.Close()
}
