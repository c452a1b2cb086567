package host

import (
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
		a.waiting[j] = due
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
		var first *job
		for other, due := range a.waiting {
			if first == nil || due.Before(a.waiting[first]) || (due.Equal(a.waiting[first]) && other.name < first.name) {
				first = other
			}
		}
		delete(a.waiting, first)
		a.going[first] = true
		first.nudge()
	}
}
