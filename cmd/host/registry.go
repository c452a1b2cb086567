package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/spf13/pflag"
	"go.uber.org/zap"

	"github.com/wasmjob/wasmjob/coordination"
	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/host/admin"
	"github.com/wasmjob/wasmjob/host/console"
	"github.com/wasmjob/wasmjob/host/deadman"
	"github.com/wasmjob/wasmjob/host/migrate"
	"github.com/wasmjob/wasmjob/words"
)

const (
	// waitMessage lies between two messages of a host about what it waits for.
	waitMessage = 5 * time.Second
	// waitNotice is when a command says the first time what it waits for.
	waitNotice = time.Second
	// commandWait is how long a command waits for the registry.
	commandWait = 15 * time.Second
)

// sessions is where the host's sessions come from, and knows the newest one.
type sessions struct {
	loaded  *loaded
	backend backend
	*dialer
	// waitsLong is called every now and then while there is no session.
	interval  time.Duration
	waitsLong func(why string, since, limit time.Duration)
	// fence is the timer for a new session, and who renews it; nil: none. Both
	// that it returns may be nil.
	fence func() (*deadman.Fence, func(sent, timeout time.Duration))
	// fatal takes the one error for which the host cannot go on. It has room.
	fatal chan error

	// Of the goroutine that dials: first says that there was no session yet,
	// began is when the first was asked for.
	first bool
	began time.Time

	mu      sync.Mutex
	current session
	waiting string // what for, in words; empty while there is a session
}

// openRegistry makes the registry that the configuration names. Nothing is
// connected yet. operation counts requests, by kind.
func openRegistry(l *loaded, log *zap.Logger, operation func(kind string, n int)) (*sessions, error) {
	r := &sessions{
		loaded: l, backend: l.backend(), first: true, fatal: make(chan error, 1), interval: waitMessage,
		waitsLong: func(why string, since, limit time.Duration) {
			atMost := "for ever; see --wait"
			if limit > 0 {
				atMost = words.Duration(limit)
			}
			log.Warn(why, zap.Duration("since", since), zap.String("atMost", atMost))
		},
	}
	var err error
	r.dialer, err = r.backend.open(opening{log: log, operation: operation, waits: r.waits})
	if err != nil {
		return nil, err
	}
	return r, nil
}

// begin is what the host calls to begin a term: it waits until there is a
// session or ctx is done. For the first one the patience of --wait holds, and
// the namespace is looked at: if the host cannot work there, it ends.
func (r *sessions) begin(ctx context.Context) (registry.Center, error) {
	limit := time.Duration(0)
	if r.first && r.loaded.Wait > 0 {
		if r.began.IsZero() {
			r.began = time.Now()
		}
		// At least a moment, so that the error is the registry's own.
		limit = max(time.Millisecond, r.loaded.Wait-time.Since(r.began))
	}
	c, err := r.await(ctx, limit)
	final := err != nil && limit > 0
	if err == nil && r.first && r.backend.shared() {
		if err = checkNamespace(ctx, c, r.loaded.Namespace); err != nil {
			var layout *migrate.LayoutError
			final = errors.As(err, &layout) || r.backend.denied(err)
			err = errors.Join(err, c.Close())
		}
	}
	switch {
	case err == nil:
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case final:
		r.fatal <- err
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

// await waits for a session until there is one, ctx is done or the limit, if it
// is not 0, is over. It says every few seconds what it waits for.
func (r *sessions) await(ctx context.Context, limit time.Duration) (session, error) {
	if !r.backend.shared() {
		return r.dial(ctx, nil)
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
func (r *sessions) connect(ctx context.Context) (session, error) {
	if r.fence == nil {
		return r.dial(ctx, nil)
	}
	fence, renewed := r.fence()
	s, err := r.dial(ctx, renewed)
	if err != nil || fence == nil {
		return s, err
	}
	fence.Arm()
	return &fenced{s, fence}, nil
}

// leastStopGrace is how long guests have to end that were cancelled so late that
// no time is left: the process, or the machine, was stopped meanwhile. What
// they do has no effect any more. Of a short session it is less.
const leastStopGrace = time.Second

// stopGrace is how long guests have to end when the session is lost: up to nine
// tenths of its timeout, counted from when the servers are known to have heard
// from it. It is over a little before the kernel's timer ends the process, so that
// there is time to say why.
func (r *sessions) stopGrace() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	var about *admin.Session
	if r.current != nil {
		about = r.current.about()
	}
	if about == nil {
		return 2 * leastStopGrace // such a session is not lost before the process ends
	}
	limit := deadman.Limit(about.Timeout) - min(stuckGrace, about.Timeout/40)
	return max(min(leastStopGrace, about.Timeout*3/20), limit-time.Since(about.Answered))
}

// announce says, every now and then, what is waited for, until the func that
// it returns is called.
func (r *sessions) announce(limit time.Duration) (stop func()) {
	began, end, ended := time.Now(), make(chan struct{}), make(chan struct{})
	go func() { // joined by stop
		defer close(ended)
		ticks := time.NewTicker(r.interval)
		defer ticks.Stop()
		for {
			select {
			case <-ticks.C:
				r.waitsLong(r.waitsFor(), time.Since(began).Round(time.Second), limit)
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
func (r *sessions) waits(why error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.waiting = why.Error()
}

// waitsFor says what keeps the host from having a session; empty if it has one.
func (r *sessions) waitsFor() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.waiting
}

// live is the newest session; nil while there is none that lives.
func (r *sessions) live() session {
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

// session is live, as other rooms want it.
func (r *sessions) session() registry.Center {
	if s := r.live(); s != nil {
		return s
	}
	return nil // not a nil interface in another one
}

// about is what is known of the session; nil if there is none, or nothing to know.
func (r *sessions) about() *admin.Session {
	s := r.live()
	if s == nil {
		return nil
	}
	return s.about()
}

// checkNamespace sees that a host can work in the namespace: that it may read
// and write there, and that no older ElasticJob does.
func checkNamespace(ctx context.Context, c registry.Center, namespace string) error {
	if err := migrate.Check(ctx, c, namespace); err != nil {
		return err
	}
	for _, root := range []string{coordination.JobsPath(namespace), coordination.JobsPath(namespace) + ".wasmjob"} {
		// What no name of a job can be, made and deleted in one commit.
		probe := root + "/" + "@-@" + coordination.NewJobInstance("probe", fmt.Sprint(time.Now().UnixNano())).ID
		_, err := c.Commit(ctx, registry.Ensure(root), registry.Create(probe, nil), registry.Delete(probe, registry.AnyVersion))
		if err != nil {
			return fmt.Errorf("this host may not write below %s: %w", root, err)
		}
	}
	return nil
}

// opened is a namespace in the registry itself, for a command.
type opened struct {
	loaded *loaded
	center registry.Center
	jobs   *admin.Registry
}

// openNamespace connects to the shared registry that flags, environment and file
// name.
func (p *program) openNamespace(ctx context.Context, flags *pflag.FlagSet) (*opened, error) {
	l, err := loadRegistry(p.environ, flags)
	if err != nil {
		return nil, err
	}
	for _, w := range l.warnings {
		if !strings.HasPrefix(w, "the variable ") { // which only a host minds
			fmt.Fprintln(p.err, "wasmjob: warning:", w)
		}
	}
	if l.Wait == 0 {
		l.Wait = commandWait
	}
	r, err := openRegistry(l, zap.NewNop(), nil)
	if err != nil {
		return nil, err
	}
	said := ""
	r.interval, r.waitsLong = waitNotice, func(why string, _, limit time.Duration) {
		if why != said {
			fmt.Fprintf(p.err, "wasmjob: %s; gives up after %s\n", words.Printable(why), words.Duration(limit))
			said = why
		}
	}
	c, err := r.await(ctx, l.Wait)
	if err != nil {
		return nil, err
	}
	return &opened{l, c, admin.NewRegistry(l.Namespace, func() registry.Center { return c })}, nil
}

func (o *opened) close() error { return o.center.Close() }

// heading says which registry is shown.
func (o *opened) heading(s console.Style) string {
	return s.Fact("registry", o.loaded.backend().String()+", namespace "+o.loaded.Namespace)
}
