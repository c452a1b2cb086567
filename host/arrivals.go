package host

import (
	"cmp"
	"slices"
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
	line    []*job             // that wait, the one that goes next is last
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
	if !a.going[j] {
		a.forget(j)
		a.waiting[j] = due
		a.line = slices.Insert(a.line, a.place(j), j)
	}
	return a.going[j]
}

// leave gives the job's place to the next.
func (a *arrivals) leave(j *job) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.going, j)
	a.forget(j)
	for len(a.going) < mostArrivals && len(a.line) > 0 {
		next := a.line[len(a.line)-1]
		a.forget(next)
		a.going[next] = true
		next.nudge()
	}
}

// forget takes a job out of those that wait, if it does.
func (a *arrivals) forget(j *job) {
	if _, waits := a.waiting[j]; waits {
		at := a.place(j)
		a.line = slices.Delete(a.line, at, at+1)
		delete(a.waiting, j)
	}
}

// place is where a job that waits belongs in the line.
func (a *arrivals) place(j *job) int {
	at, _ := slices.BinarySearchFunc(a.line, j, func(other, j *job) int {
		return -cmp.Or(a.waiting[other].Compare(a.waiting[j]), cmp.Compare(other.name, j.name))
	})
	return at
}
