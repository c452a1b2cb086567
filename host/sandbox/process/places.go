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
	// itemsPerProcessor is how many items run at once on a host that says nothing of it.
	itemsPerProcessor = 8
	// baseTasks is how many tasks (threads) a process has, about, besides one for each processor.
	baseTasks = 20
	// startsPerProcessor is how many processes of jobs of their own start in a second for each
	// processor, once as many have started as there may be.
	startsPerProcessor = 4
)

// places are those for processes of one job: how many there are at once is bounded, and
// groups share them as they share the slots of a host.
type places struct {
	*slots.Slots
	share int           // of them, for one group while there are others
	pace  *rate.Limiter // of starts
}

// newPlaces makes the places of a host that runs so many items at once, 0 if it says nothing
// of it, and may have so many tasks, 0 if that is not bounded: twice as many as items, so
// that processes are there for the next fires, but three quarters of the tasks at most.
func newPlaces(items, tasks int) places {
	n := 2 * cmp.Or(items, itemsPerProcessor*runtime.GOMAXPROCS(0))
	if tasks > 0 {
		n = max(min(n, tasks*3/4/tasksOfProcess()), 1)
	}
	return places{slots.New(n), max(n*3/4, 1), rate.NewLimiter(rate.Limit(startsPerProcessor*runtime.GOMAXPROCS(0)), n)}
}

// tasksOfProcess is how many tasks a process has, about.
func tasksOfProcess() int { return baseTasks + runtime.GOMAXPROCS(0) }

// account is that of an executor whose job is in the group.
func (p places) account(group string) *slots.Account { return p.Account(group, p.share) }

// place waits for the place of a process of the executor's own, and ends idle ones for it.
// With a context that is over it takes one that is free.
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
