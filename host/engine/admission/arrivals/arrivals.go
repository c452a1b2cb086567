// Package arrivals spreads what many want to begin at once, such as a host's jobs when it
// starts, or when the leader of many of them dies: only some of them go at a time, and of those that wait the one that is due first
// is the next. Those that come again and again while others wait go after them: jobs that the registry refuses, or whose hosts
// do not come to rest, keep no other one out. A few times are none of that: a job has to go several times until it is ready, and it
// is better that some are ready soon than that all are late.
package arrivals

import (
	"cmp"
	"slices"
	"sync"
	"time"
)

// Arrivals are those that go and those that wait. It is safe for concurrent use.
type Arrivals[J comparable] struct {
	most  int
	name  func(J) string
	nudge func(J)

	mu      sync.Mutex
	going   map[J]bool
	waiting map[J]wait
	line    []J // those that wait, the next one last
	// went counts the turns of each since the last time that none waited.
	went map[J]int
}

// patience is how many turns one takes while others wait; then those go before it.
const patience = 8

// wait is what decides when one goes that waits: how many times its patience is over, and by when it is due; zero is first.
type wait struct {
	over int
	due  time.Time
}

// New returns arrivals of which none goes, and most do at once. Names decide between those that are due at
// once; nudge is called for one that waited and may go. It must not call back.
func New[J comparable](most int, name func(J) string, nudge func(J)) *Arrivals[J] {
	return &Arrivals[J]{most: most, name: name, nudge: nudge, going: make(map[J]bool), waiting: make(map[J]wait), went: make(map[J]int)}
}

// Enter reports whether j may go now. If not it is nudged when it may. It has to leave in
// either case, when it is done or does not want to go any more.
func (a *Arrivals[J]) Enter(j J, due time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.going[j] && len(a.going) < a.most { // then none waits
		a.admit(j)
	}
	if !a.going[j] {
		a.forget(j)
		a.waiting[j] = wait{a.went[j] / patience, due}
		a.line = slices.Insert(a.line, a.place(j), j)
	}
	return a.going[j]
}

// admit lets one go.
func (a *Arrivals[J]) admit(j J) {
	a.going[j] = true
	a.went[j]++
}

// Leave gives j's place to the next.
func (a *Arrivals[J]) Leave(j J) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.going, j)
	a.forget(j)
	for len(a.going) < a.most && len(a.line) > 0 {
		next := a.line[len(a.line)-1]
		a.forget(next)
		a.admit(next)
		a.nudge(next)
	}
	if len(a.line) == 0 {
		clear(a.went)
	}
}

// forget takes j out of those that wait, if it does.
func (a *Arrivals[J]) forget(j J) {
	if _, waits := a.waiting[j]; waits {
		at := a.place(j)
		a.line = slices.Delete(a.line, at, at+1)
		delete(a.waiting, j)
	}
}

// place is where one that waits belongs in the line.
func (a *Arrivals[J]) place(j J) int {
	at, _ := slices.BinarySearchFunc(a.line, j, func(other, j J) int {
		o, w := a.waiting[other], a.waiting[j]
		return -cmp.Or(cmp.Compare(o.over, w.over), o.due.Compare(w.due), cmp.Compare(a.name(other), a.name(j)))
	})
	return at
}
