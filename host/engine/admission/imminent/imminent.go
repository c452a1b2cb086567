// Package imminent knows when fires of this host are about to begin, so that work that is not urgent, such as a page or a
// scan of files, lets them begin first.
package imminent

import (
	"context"
	"sync"
	"time"
)

const (
	// lead is how long before an instant other work begins to wait for it.
	lead = 10 * time.Millisecond
	// longest is how long after an instant other work waits at most: the registry may delay fires, or there may be too
	// many.
	longest = 50 * time.Millisecond
)

// Fires has the next instant of each job. It is safe for concurrent use.
type Fires struct {
	clock func() time.Time

	mu   sync.Mutex
	next map[string]int64 // by job, Unix seconds: schedules have no finer instants
	jobs map[int64]int    // how many jobs have a second as their next
	// begun is closed when no job has the second as its next instant any more; nil: no work waits.
	begun chan struct{}
}

// New returns Fires that expect nothing. clock is the wall clock.
func New(clock func() time.Time) *Fires {
	return &Fires{clock: clock, next: make(map[string]int64), jobs: make(map[int64]int)}
}

// Expect sets a job's next instant; zero for none. A job whose fire has begun calls it with another instant.
func (f *Fires) Expect(job string, at time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	was, had := f.next[job]
	if had && was == at.Unix() {
		return
	}
	if had {
		f.gone(was)
	}
	if at.IsZero() {
		delete(f.next, job)
		return
	}
	f.next[job] = at.Unix()
	f.jobs[at.Unix()]++
}

// gone removes a job from a second. The caller holds mu.
func (f *Fires) gone(second int64) {
	if f.jobs[second]--; f.jobs[second] > 0 {
		return
	}
	delete(f.jobs, second)
	if f.begun != nil {
		close(f.begun)
		f.begun = nil
	}
}

// Wait returns when no fire is about to begin: none has an instant within the next 10 ms, and those of the last 50 ms
// have begun. It returns at once if ctx is done, and waits 60 ms at most.
func (f *Fires) Wait(ctx context.Context) {
	now := f.clock()
	second := now.Add(lead).Truncate(time.Second)
	timer := time.NewTimer(second.Add(longest).Sub(now))
	defer timer.Stop()
	for {
		begun := f.due(second)
		if begun == nil {
			return
		}
		select {
		case <-begun:
		case <-timer.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

// due returns a channel that is closed when the jobs of a second have begun; nil if none is due in it, or if the second
// is too long ago.
func (f *Fires) due(second time.Time) <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.jobs[second.Unix()] == 0 || f.clock().Sub(second) >= longest {
		return nil
	}
	if f.begun == nil {
		f.begun = make(chan struct{})
	}
	return f.begun
}
