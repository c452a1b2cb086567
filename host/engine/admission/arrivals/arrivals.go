// Package arrivals spreads what many want to begin at once, such as a host's jobs when it
// starts, or when the leader of many of them dies: only some of them go at a time, and of those that wait the one that is due first
// is the next. Those that went before, and come again, go after those that did not: jobs that the registry refuses, or whose hosts
// do not come to rest, keep no other one out.
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
	// went is when each went last, as the count of those that went until then.
	went  map[J]uint64
	count uint64
}

// wait is what decides when one goes that waits: when it went last, 0 for never, and by when it is due; zero is first.
type wait struct {
	went uint64
	due  time.Time
}

// New returns arrivals of which none goes, and most do at once. Names decide between those that are due at
// once; nudge is called for one that waited and may go. It must not call back.
func New[J comparable](most int, name func(J) string, nudge func(J)) *Arrivals[J] {
	return &Arrivals[J]{most: most, name: name, nudge: nudge, going: make(map[J]bool), waiting: make(map[J]wait), went: make(map[J]uint64)}
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
		a.waiting[j] = wait{a.went[j], due}
		a.line = slices.Insert(a.line, a.place(j), j)
	}
	return a.going[j]
}

// admit lets one go.
func (a *Arrivals[J]) admit(j J) {
	a.count++
	a.going[j], a.went[j] = true, a.count
}

// Leave gives j's place to the next.
func (a *Arrivals[J]) Leave(j J) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.leave(j)
}

// End is Leave for one that never comes again.
func (a *Arrivals[J]) End(j J) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.leave(j)
	delete(a.went, j)
}

func (a *Arrivals[J]) leave(j J) {
	delete(a.going, j)
	a.forget(j)
	for len(a.going) < a.most && len(a.line) > 0 {
		next := a.line[len(a.line)-1]
		a.forget(next)
		a.admit(next)
		a.nudge(next)
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
		return -cmp.Or(cmp.Compare(o.went, w.went), o.due.Compare(w.due), cmp.Compare(a.name(other), a.name(j)))
	})
	return at
}
