package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"
	"go.uber.org/zap"

	"github.com/wasmjob/wasmjob/coordination/registry"
)

// The stages of a session's life. It only ever goes forward.
const (
	live int32 = iota
	lost
	closed
)

// life is the session's stage and trust. It starts the session's goroutines, which end when the stage leaves
// live.
type life struct {
	o     *Options
	trust trust
	ended func() // called once, when the stage leaves live, with mu held

	mu    sync.Mutex
	stage atomic.Int32   // written under mu
	lost  chan struct{}  // closed when stage leaves live
	work  sync.WaitGroup // goroutines of this package; none is added once stage left live
	ctx   context.Context
	end   context.CancelFunc // of ctx
}

func newLife(o *Options) *life {
	l := &life{o: o, lost: make(chan struct{})}
	l.ctx, l.end = context.WithCancel(context.Background())
	l.trust.init()
	return l
}

// over returns the error of a session that ended.
func (l *life) over() error {
	switch l.stage.Load() {
	case lost:
		return registry.ErrSessionLost
	case closed:
		return registry.ErrClosed
	}
	return nil
}

// ready is the first check of every method.
func (l *life) ready(ctx context.Context, deed string) error {
	if l.reckon() == registry.TrustLost {
		return l.over()
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("registry: %s: %w", deed, err)
	}
	return nil
}

// spawn runs f in a goroutine that Close waits for; false if it is too late.
func (l *life) spawn(f func()) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stage.Load() != live {
		return false
	}
	l.work.Go(f)
	return true
}

// reckon computes the present level, and reports it if it has changed.
func (l *life) reckon() registry.Trust {
	if l.stage.Load() != live {
		<-l.lost // it is being closed at this moment
		return registry.TrustLost
	}
	level := l.trust.level(l.o.clock())
	if level == registry.Trust(l.trust.published.Load()) {
		return level
	}
	return l.publish()
}

func (l *life) publish() registry.Trust {
	t := &l.trust
	t.mu.Lock()
	level := t.level(l.o.clock())
	if level == registry.TrustLost {
		t.mu.Unlock()
		l.o.Logger.Debug("the ZooKeeper session is given up: no answer for too long", zap.Duration("timeout", t.granted()))
		l.lose()
		<-l.lost
		return level
	}
	defer t.mu.Unlock()
	was := registry.Trust(t.published.Load())
	if level != was && !t.ended {
		t.published.Store(uint32(level))
		close(t.changed)
		t.changed = make(chan struct{})
		l.o.Logger.Debug("trust in the ZooKeeper session", zap.Stringer("is", level), zap.Stringer("was", was))
	}
	return level
}

// level returns how far the session can be trusted now, and a channel that is
// closed when that changes.
func (l *life) level() (registry.Trust, <-chan struct{}) {
	if l.reckon() == registry.TrustLost {
		return registry.TrustLost, nil
	}
	l.trust.mu.Lock()
	defer l.trust.mu.Unlock()
	if l.trust.ended {
		return registry.TrustLost, nil
	}
	return registry.Trust(l.trust.published.Load()), l.trust.changed
}

// trusted reports whether commits may be sent.
func (l *life) trusted() bool { return l.reckon() == registry.TrustLive }

// doubted returns the error of a commit while the session is not trusted.
func (l *life) doubted() error {
	if err := l.over(); err != nil {
		return err
	}
	return registry.ErrSuspect
}

// renewed publishes the newest proof of life.
func (l *life) renewed() {
	if l.o.Renewed != nil {
		l.o.Renewed(time.Duration(l.trust.answered.Load()), l.trust.granted())
	}
}

// expired records that the session is over.
func (l *life) expired(err error) error {
	if errors.Is(err, zk.ErrSessionExpired) {
		l.lose()
	}
	if over := l.over(); over != nil && err != nil {
		return over
	}
	return err
}

// lose ends the session on our side: nothing is trusted or written any more. ZooKeeper keeps it, and the
// ephemeral nodes, until Close or its timeout.
func (l *life) lose() { l.leave(lost) }

func (l *life) leave(stage int32) {
	l.mu.Lock()
	defer l.mu.Unlock()
	was := l.stage.Load()
	if was >= stage {
		return
	}
	l.stage.Store(stage)
	if was != live {
		return
	}
	close(l.lost)
	l.trust.over()
	l.end()
	l.ended()
}

// answer is the result of a call of the client.
type answer[T any] struct {
	value T
	err   error
}

// call runs a call of the client, which takes no context, and waits for it, for ctx, or for the session's end.
// A call that is left behind ends with the connection.
func call[T any](ctx context.Context, l *life, f func() (T, error)) (T, error) {
	var none T
	done := make(chan answer[T], 1)
	if !l.spawn(func() {
		v, err := f()
		done <- answer[T]{v, err}
	}) {
		return none, l.over()
	}
	select {
	case a := <-done:
		return a.value, l.expired(a.err)
	case <-ctx.Done():
		return none, ctx.Err()
	case <-l.lost:
		return none, l.over()
	}
}

// parallel answers the questions in parallel and returns the answers in order. f may run on after ctx and must
// not touch the caller's data.
func parallel[Q, A any](ctx context.Context, l *life, questions []Q, f func(context.Context, Q) (A, error)) ([]A, error) {
	answers := make([]A, len(questions))
	if len(questions) == 0 {
		return answers, nil
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var next atomic.Int64
	var workers sync.WaitGroup
	done := make(chan struct{})
	for range min(pipeline, len(questions)) {
		workers.Add(1)
		if !l.spawn(func() {
			defer workers.Done()
			for ctx.Err() == nil {
				i := int(next.Add(1)) - 1
				if i >= len(questions) {
					return
				}
				a, err := f(ctx, questions[i])
				if err != nil {
					cancel(err)
					return
				}
				answers[i] = a
			}
		}) {
			workers.Done()
			return nil, l.over()
		}
	}
	if !l.spawn(func() { workers.Wait(); close(done) }) {
		return nil, l.over()
	}
	select {
	case <-done:
	case <-ctx.Done():
	case <-l.lost:
		return nil, l.over()
	}
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	return answers, nil
}

// pipeline is how many reads are in flight at once.
const pipeline = 128
