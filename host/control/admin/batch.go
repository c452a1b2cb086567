package admin

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/tree"
	"github.com/wasmjob/wasmjob/host/engine"
	"github.com/wasmjob/wasmjob/internal/text/words"
)

// atOnce is how many jobs an operation over many of them works on at once: most of the time it waits for the registry.
const atOnce = 16

// Batch is one operation over many jobs. It is safe for concurrent use; Run is called once.
type Batch struct {
	jobs []string
	do   func(ctx context.Context, job string) error

	mu     sync.Mutex
	next   int     // those before it were begun, or left out
	ended  int     // those of them that have ended
	errs   []error // of those that failed, as jobs has them
	leaves map[string]bool
	cause  error // why the others were not begun
}

// NewBatch returns an operation that does something to each of the jobs. What is done with engine.ErrNoJob as its
// error counts as done: the job was removed since.
func NewBatch(jobs []string, do func(ctx context.Context, job string) error) *Batch {
	return &Batch{jobs: jobs, do: do, errs: make([]error, len(jobs)), leaves: make(map[string]bool)}
}

// LeaveOut has the batch pass over a job that it has not begun: something else was said of it since.
func (b *Batch) LeaveOut(job string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.leaves[job] = true
}

// Run does it to all jobs, to some at once, and to none more once ctx is done. It returns when none is under way. The error
// is that of the batch as it is then; see [Batch.State].
func (b *Batch) Run(ctx context.Context) error {
	var workers sync.WaitGroup
	for range min(atOnce, len(b.jobs)) {
		workers.Go(func() {
			for {
				i, ok := b.begin(ctx)
				if !ok {
					return
				}
				err := b.do(ctx, b.jobs[i])
				if errors.Is(err, engine.ErrNoJob) {
					err = nil
				}
				b.mu.Lock()
				b.errs[i] = err
				b.ended++
				b.mu.Unlock()
			}
		})
	}
	workers.Wait()
	_, _, err := b.State()
	return err
}

// begin is the next job that is to be begun; ok is false if there is none.
func (b *Batch) begin(ctx context.Context) (i int, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for ; b.next < len(b.jobs); b.next++ {
		if b.cause = context.Cause(ctx); b.cause != nil {
			return 0, false
		}
		if !b.leaves[b.jobs[b.next]] {
			b.next++
			return b.next - 1, true
		}
		b.ended++
	}
	return 0, false
}

// State says for how many of the jobs it is done by now, or has failed, and how many there are. err has the failures, in the
// order of the jobs, and if ctx of Run was done before all were begun, how many were not.
func (b *Batch) State() (ended, of int, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var problems words.Problems
	for _, err := range b.errs {
		problems.Add(err)
	}
	if left := len(b.jobs) - b.next; left > 0 && b.cause != nil {
		problems.Add(fmt.Errorf("nothing was done to %d of %d jobs: %w", left, len(b.jobs), b.cause))
	}
	return b.ended, len(b.jobs), problems.Err()
}

// Names are what may be the names of the namespace's jobs: what an operation on one of them says has no such job may be no job.
func (r *Registry) Names(ctx context.Context) ([]string, error) {
	c := r.center()
	if c == nil {
		return nil, engine.ErrNotLive
	}
	nodes, err := c.Read(ctx, registry.Children(tree.JobsPath(r.namespace)))
	if err != nil {
		return nil, fmt.Errorf("the jobs of namespace %s: %w", r.namespace, err)
	}
	return nodes[0].Names, nil
}

// each does something to one job, or to all if the name is empty.
func (r *Registry) each(ctx context.Context, job string, do func(ctx context.Context, job string) error) error {
	if job != "" {
		return do(ctx, job)
	}
	names, err := r.Names(ctx)
	if err != nil {
		return err
	}
	return NewBatch(names, do).Run(ctx)
}
