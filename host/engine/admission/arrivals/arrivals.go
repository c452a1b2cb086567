// Package arrivals limits how many of many members begin something at the same time, such as a host's jobs when it
// starts, or when the leader of many of them dies. Of the waiting members the one that is due first comes next. A member
// that has had many turns while others wait comes after them, so that jobs that the registry refuses, or whose hosts keep
// changing, do not block others. A few turns do not count, because a job needs several until it is ready, and some ready
// jobs early are better than all late.
package arrivals

import (
	"cmp"
	"slices"
	"sync"
	"time"
)

// Arrivals are the members that have a turn, and those that wait for one. It is safe for concurrent use.
type Arrivals[J comparable] struct {
	most  int
	name  func(J) string
	nudge func(J)

	mu      sync.Mutex
	going   map[J]bool
	waiting map[J]wait
	line    []J // those that wait, the next one last
	// went counts the turns of each member since the last time that none waited.
	went map[J]int
}

// patience is how many turns a member takes while others wait before those come first.
const patience = 8

// wait orders a waiting member: by how many times it has used up its patience, then by when it is due; zero comes first.
type wait struct {
	over int
	due  time.Time
}

// New returns arrivals without members, of which at most most have a turn at the same time. name orders members that are
// due at the same time. nudge is called for a member that waited and may now go; it must not call back.
func New[J comparable](most int, name func(J) string, nudge func(J)) *Arrivals[J] {
	return &Arrivals[J]{most: most, name: name, nudge: nudge, going: make(map[J]bool), waiting: make(map[J]wait), went: make(map[J]int)}
}

// Enter reports whether j may go now. If not, nudge is called when it may. In both cases j must call Leave when it is
// done or no longer wants to go.
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

// admit gives a member a turn.
func (a *Arrivals[J]) admit(j J) {
	a.going[j] = true
	a.went[j]++
}

// Leave ends j's turn or wait, and gives its place to the next.
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

// forget removes j from the waiting members, if it is one.
func (a *Arrivals[J]) forget(j J) {
	if _, waits := a.waiting[j]; waits {
		at := a.place(j)
		a.line = slices.Delete(a.line, at, at+1)
		delete(a.waiting, j)
	}
}

// place returns the place of a waiting member in the line.
func (a *Arrivals[J]) place(j J) int {
	at, _ := slices.BinarySearchFunc(a.line, j, func(other, j J) int {
		o, w := a.waiting[other], a.waiting[j]
		return -cmp.Or(cmp.Compare(o.over, w.over), o.due.Compare(w.due), cmp.Compare(a.name(other), a.name(j)))
	})
	return at
}
