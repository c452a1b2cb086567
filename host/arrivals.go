package host

import (
	"cmp"
	"container/heap"
	"sync"
	"time"
)

// mostArrivals is how many jobs of a host join at once. More would only wait for
// each other at the registry, in any order.
const mostArrivals = 64

// arrivals spreads the joins of a term: of the jobs that wait, the one that is due
// first goes first. It is safe for concurrent use.
type arrivals struct {
	mu      sync.Mutex
	going   map[*job]bool
	waiting map[*job]time.Time // by when they are due; zero is first
	// line orders those that wait. What is in it and not in waiting, with that time, is
	// out of date.
	line line
}

// arrival is a job and when it is due.
type arrival struct {
	job *job
	due time.Time
}

// line is a heap: the one that is due first is first.
type line []arrival

func (l line) Len() int { return len(l) }

func (l line) Less(i, k int) bool {
	return cmp.Or(l[i].due.Compare(l[k].due), cmp.Compare(l[i].job.name, l[k].job.name)) < 0
}

func (l line) Swap(i, k int) { l[i], l[k] = l[k], l[i] }

func (l *line) Push(a any) { *l = append(*l, a.(arrival)) }

func (l *line) Pop() any {
	last := len(*l) - 1
	a := (*l)[last]
	*l = (*l)[:last]
	return a
}

func newArrivals() *arrivals {
	return &arrivals{going: make(map[*job]bool), waiting: make(map[*job]time.Time)}
}

// enter reports whether the job may join now. If not it is nudged when it may; it has
// to call leave in either case, when it has tried or does not want to any more.
func (a *arrivals) enter(j *job, due time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.going[j] && len(a.going) < mostArrivals { // then no job waits
		a.going[j] = true
	}
	if before, waits := a.waiting[j]; !a.going[j] && !(waits && before.Equal(due)) {
		a.waiting[j] = due
		heap.Push(&a.line, arrival{j, due})
	}
	return a.going[j]
}

// leave gives the job's place to the next.
func (a *arrivals) leave(j *job) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.going, j)
	delete(a.waiting, j)
	for len(a.going) < mostArrivals && len(a.waiting) > 0 {
		first := heap.Pop(&a.line).(arrival)
		if due, waits := a.waiting[first.job]; !waits || !due.Equal(first.due) {
			continue
		}
		delete(a.waiting, first.job)
		a.going[first.job] = true
		first.job.nudge()
	}
	if len(a.waiting) == 0 {
		a.line = nil
	}
}
