package process

import (
	"cmp"
	"context"
	"runtime"
	"time"

	"golang.org/x/time/rate"

	"github.com/wasmjob/wasmjob/internal/slots"
)

const (
	// itemsPerProcessor is the default number of items that run at once.
	itemsPerProcessor = 8
	// baseTasks is how many tasks (threads) a process has, about, besides one for each processor.
	baseTasks = 20
	// startsPerProcessor is how many dedicated processes may start per second and processor, after the first
	// places are used.
	startsPerProcessor = 4
)

// places bound how many dedicated processes run at once; groups share them as they share a host's slots.
type places struct {
	*slots.Slots
	share int           // for one group while there are others
	pace  *rate.Limiter // of starts
}

// newPlaces returns the places of a host that runs items at once (0: default) and may have tasks threads (0:
// unbounded): twice as many as items, so that processes are ready for the next fires, but at most three
// quarters of the tasks.
func newPlaces(items, tasks int) places {
	n := 2 * cmp.Or(items, itemsPerProcessor*runtime.GOMAXPROCS(0))
	if tasks > 0 {
		n = max(min(n, tasks*3/4/tasksOfProcess()), 1)
	}
	return places{slots.New(n), max(n*3/4, 1), rate.NewLimiter(rate.Limit(startsPerProcessor*runtime.GOMAXPROCS(0)), n)}
}

// tasksOfProcess is about how many tasks a process has.
func tasksOfProcess() int { return baseTasks + runtime.GOMAXPROCS(0) }

// account is that of an executor whose job is in the group.
func (p places) account(group string) *slots.Account { return p.Account(group, p.share) }

// place waits for the place of a dedicated process, and ends idle ones for it. If ctx is over it only takes a
// free one.
func (w *Workers) place(ctx context.Context, x *executor) (*slots.Hold, error) {
	h, over := &slots.Hold{Account: x.account}, make(chan struct{})
	close(over)
	take := func(done <-chan struct{}) bool { return h.Take(0, time.Now().UnixMilli(), nil, done) }
	if take(over) {
		return h, nil
	}
	w.wanted.Add(1)
	defer w.wanted.Add(-1)
	for ctx.Err() == nil && w.endIdle(true) {
		if take(over) {
			return h, nil
		}
	}
	if !take(ctx.Done()) {
		return nil, ctx.Err()
	}
	return h, nil
}
