// Package arrivals spreads what many want to begin at once, such as a host's jobs when it
// starts, or when the leader of many of them dies: only some of them go at a time, and of those that wait the one that is due first
// is the next. Those that come again and again while others wait go after them: jobs that the registry refuses, or whose hosts
// do not come to rest, keep no other one out. A few times are none of that: a job has to go several times until it is ready, and it
// is better that some are ready soon than that all are late.
//
// Urgent ones, for which something else waits, go before the others and have places of their own. While one of them is there only a few
// of the others go at once, so that the registry has little to do before it; these few places no urgent one takes, so that the others
// come to their turn however many urgent ones there are.
package arrivals

import (
	"cmp"
	"slices"
	"sync"
	"time"
)

// Arrivals are those that go and those that wait. It is safe for concurrent use.
type Arrivals[J comparable] struct {
	most, few int
	name      func(J) string
	nudge     func(J)

	mu      sync.Mutex
	going   map[J]bool // whether it came as an urgent one
	urgent  int        // how many of them are
	waiting map[J]wait
	lines   [2][]J // those that wait, urgent ones and others; the next one last
	// went counts the turns of each since the last time that none waited.
	went map[J]int
}

// patience is how many turns one takes while others wait; then those go before it.
const patience = 8

// Claim says when one is to go.
type Claim struct {
	// Urgent is set if something waits for it, or will when what goes on has ended. Ahead is then after how many others that is: 0 is at once.
	Urgent bool
	Ahead  int
	// Due is by when it is to go; zero is first.
	Due time.Time
}

// wait is what decides when one goes that waits: its claim, how many times its patience is over, and its name.
type wait struct {
	Claim
	over int
	name string
}

// New returns arrivals of which none goes, and most do at once; while there are urgent ones, few of the others and as many urgent
// ones as most leaves. Names decide between those that are due at once; nudge is called for one that waited and may go. It must not
// call back.
func New[J comparable](most, few int, name func(J) string, nudge func(J)) *Arrivals[J] {
	return &Arrivals[J]{most: most, few: few, name: name, nudge: nudge, going: make(map[J]bool), waiting: make(map[J]wait), went: make(map[J]int)}
}

// Enter reports whether j may go now. If not it is nudged when it may. It has to leave in
// either case, when it is done or does not want to go any more. One that goes already goes on with the claim with which it came.
func (a *Arrivals[J]) Enter(j J, claim Claim) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, goes := a.going[j]; goes {
		return true
	}
	a.forget(j)
	a.put(j, wait{claim, a.went[j] / patience, a.name(j)})
	for _, next := range a.admit() {
		if next != j {
			a.nudge(next)
		}
	}
	_, goes := a.going[j]
	return goes
}

// Hasten gives one that waits a better claim. It does nothing for another one.
func (a *Arrivals[J]) Hasten(j J, claim Claim) {
	a.mu.Lock()
	defer a.mu.Unlock()
	w, waits := a.waiting[j]
	if next := (wait{claim, w.over, w.name}); waits && next.before(w) {
		a.forget(j)
		a.put(j, next)
		a.nudgeAll(a.admit())
	}
}

// Waits reports whether any wait.
func (a *Arrivals[J]) Waits() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.waiting) > 0
}

// Leave gives j's place to the next.
func (a *Arrivals[J]) Leave(j J) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.going[j] {
		a.urgent--
	}
	delete(a.going, j)
	a.forget(j)
	a.nudgeAll(a.admit())
	if len(a.waiting) == 0 {
		clear(a.went)
	}
}

func (a *Arrivals[J]) nudgeAll(list []J) {
	for _, j := range list {
		a.nudge(j)
	}
}

// admit lets those go that may.
func (a *Arrivals[J]) admit() (admitted []J) {
	for {
		line := &a.lines[0]
		if len(*line) == 0 || a.urgent >= max(a.most-a.few, 1) {
			if line = &a.lines[1]; len(*line) == 0 || len(a.going)-a.urgent >= a.mostOthers() {
				return admitted
			}
		}
		next := (*line)[len(*line)-1]
		urgent := a.waiting[next].Urgent
		a.forget(next)
		a.going[next] = urgent
		if urgent {
			a.urgent++
		}
		a.went[next]++
		admitted = append(admitted, next)
	}
}

// mostOthers is how many go at once that are not urgent.
func (a *Arrivals[J]) mostOthers() int {
	if a.urgent > 0 || len(a.lines[0]) > 0 {
		return a.few
	}
	return a.most
}

// put has j wait.
func (a *Arrivals[J]) put(j J, w wait) {
	a.waiting[j] = w
	line := a.line(w)
	*line = slices.Insert(*line, a.place(*line, j), j)
}

// forget takes j out of those that wait, if it does.
func (a *Arrivals[J]) forget(j J) {
	if w, waits := a.waiting[j]; waits {
		line := a.line(w)
		at := a.place(*line, j)
		*line = slices.Delete(*line, at, at+1)
		delete(a.waiting, j)
	}
}

func (a *Arrivals[J]) line(w wait) *[]J {
	if w.Urgent {
		return &a.lines[0]
	}
	return &a.lines[1]
}

// place is where one that waits belongs in its line.
func (a *Arrivals[J]) place(line []J, j J) int {
	at, _ := slices.BinarySearchFunc(line, j, func(other, j J) int {
		return -a.waiting[other].compare(a.waiting[j])
	})
	return at
}

// compare is negative if w goes before o; of two of one line.
func (w wait) compare(o wait) int {
	return cmp.Or(cmp.Compare(w.over, o.over), cmp.Compare(w.Ahead, o.Ahead), w.Due.Compare(o.Due), cmp.Compare(w.name, o.name))
}

// before reports whether w is the better one.
func (w wait) before(o wait) bool {
	if w.Urgent != o.Urgent {
		return w.Urgent
	}
	return w.compare(o) < 0
}
