package service

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/wasmjob/wasmjob/host/auth"
	"github.com/wasmjob/wasmjob/host/control/admin"
	"github.com/wasmjob/wasmjob/host/event/operation"
	"github.com/wasmjob/wasmjob/host/history"
)

// batchTime bounds an operation over all jobs, whether its caller still waits or not.
const batchTime = 5 * time.Minute

// UnfinishedError says how far an operation over all jobs is whose caller waits no longer. The host goes on with it.
type UnfinishedError struct {
	// What is the operation, as records call it.
	What string
	// Ended jobs of Of are done, or have failed: Failed says which, and is nil for none.
	Ended, Of int
	Failed    error
}

func (e *UnfinishedError) Error() string {
	text := fmt.Sprintf("%s: %d of %d jobs are done so far, and this host goes on with the others; the same request again waits for them", e.What, e.Ended, e.Of)
	if e.Failed != nil {
		text += "; of those that are done some failed: " + e.Failed.Error()
	}
	return text
}

func (e *UnfinishedError) Unwrap() error { return e.Failed }

// batches are the operations over all jobs that a host carries out: one at a time, since the newest word counts.
type batches struct {
	work sync.WaitGroup // of the one that goes on

	mu     sync.Mutex
	closed bool
	now    *batch
}

// batch is one of them.
type batch struct {
	*admin.Batch
	key  string
	stop context.CancelCauseFunc
	done chan struct{} // closed when it has ended
	err  error         // what came of it; read it after done
}

var (
	errReplaced = errors.New("a later request for all jobs has replaced this one")
	errClosing  = errors.New("the host ends")
)

// Close ends operations that no caller waits for any more, and waits for their goroutines. None begins later.
func (s *Service) Close() error {
	s.batches.mu.Lock()
	s.batches.closed = true
	if b := s.batches.now; b != nil {
		b.stop(errClosing)
	}
	s.batches.mu.Unlock()
	s.batches.work.Wait()
	return nil
}

// saidOf notes that something was said of one job: an operation over all jobs that was asked for before leaves it out.
func (s *Service) saidOf(job string) {
	s.batches.mu.Lock()
	defer s.batches.mu.Unlock()
	if b := s.batches.now; b != nil {
		b.LeaveOut(job)
	}
}

// each does something to all jobs, and records what each does of each. It is for who may operate all: c is the record if
// that is refused. If ctx is done before, it returns an *UnfinishedError and goes on. The same request by the same principal
// joins the one that goes on; another one ends it first.
func (s *Service) each(ctx context.Context, c *history.Change, do func(ctx context.Context, job string) error) error {
	if err := s.begin(ctx, c, auth.Require(ctx, operation.Operate, "")); err != nil {
		return err
	}
	key := fmt.Sprintf("%q", []string{c.What, c.Who, c.After, c.Why})
	for {
		b, err := s.batch(ctx, key, do)
		if err != nil {
			return err
		}
		select {
		case <-b.done:
			if b.key == key {
				return b.err
			}
		case <-ctx.Done():
			if b.key != key {
				return &BusyError{c.What + " has not begun: an earlier request for all jobs is about to end; try again in a moment"}
			}
			ended, of, failed := b.State()
			return &UnfinishedError{What: c.What, Ended: ended, Of: of, Failed: failed}
		}
	}
}

// batch is the operation with the key, which begins if none goes on, or the one that has to end before.
func (s *Service) batch(ctx context.Context, key string, do func(ctx context.Context, job string) error) (*batch, error) {
	names, err := s.o.Registry.Names(ctx)
	if err != nil {
		return nil, err
	}
	all := &s.batches
	all.mu.Lock()
	defer all.mu.Unlock()
	switch {
	case all.now != nil && all.now.key == key:
		return all.now, nil
	case all.now != nil:
		all.now.stop(errReplaced)
		return all.now, nil
	case all.closed:
		return nil, &BusyError{errClosing.Error()}
	}
	b := &batch{Batch: admin.NewBatch(names, do), key: key, done: make(chan struct{})}
	going, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	b.stop, all.now = stop, b
	all.work.Go(func() { // Close waits for it
		defer stop(nil)
		going, cancel := context.WithTimeoutCause(going, batchTime, fmt.Errorf("it has taken %s", batchTime))
		defer cancel()
		b.err = b.Run(going)
		all.mu.Lock()
		all.now = nil
		all.mu.Unlock()
		close(b.done)
	})
	return b, nil
}
