package inflight

import (
	"container/heap"
	"slices"
)

// line orders waiters. The next waiter is from the group that was served longest ago, so that a group with thousands of
// waiters does not block the others. Of that group, and of groups that were not served since they began to wait, it is
// the waiter with the lowest rank, and of several the one that came first. A waiter with hurry goes before the others of
// its group three times of four. A group is forgotten when it has no waiters.
type line struct {
	groups map[string]*group
	heap   places[*group]
	served uint64
	came   uint64
}

type group struct {
	place  // by when it was served, then by its first waiter
	name   string
	served uint64
	// waiting are the waiters with hurry, and the others. hurried is how many of the first went since one of the others
	// did or could have.
	waiting [2]places[*waiter]
	hurried int
}

// mostHurried is how many waiters with hurry go before one of their group without it.
const mostHurried = 3

// class returns the index in waiting.
func class(hurry bool) int {
	if hurry {
		return 0
	}
	return 1
}

// first returns the next waiter of the group.
func (g *group) first() *waiter {
	if len(g.waiting[0]) > 0 && (g.hurried < mostHurried || len(g.waiting[1]) == 0) {
		return g.waiting[0][0]
	}
	return g.waiting[1][0]
}

// waiter waits until turn is closed.
type waiter struct {
	place // by rank, then by when it came
	group *group
	class int
	turn  chan struct{}
}

// push adds a waiter of a group.
func (l *line) push(name string, hurry bool, rank uint64) *waiter {
	if l.groups == nil {
		l.groups = make(map[string]*group)
	}
	l.came++
	w := &waiter{place: place{key: [3]uint64{rank, l.came}}, class: class(hurry), turn: make(chan struct{})}
	g, known := l.groups[name]
	if !known {
		g = &group{name: name}
		l.groups[name] = g
	}
	w.group = g
	heap.Push(&g.waiting[w.class], w)
	if known {
		l.settle(g)
	} else {
		g.order()
		heap.Push(&l.heap, g)
	}
	return w
}

// pop removes the next waiter and lets it go; nil if none waits.
func (l *line) pop() *waiter {
	if len(l.heap) == 0 {
		return nil
	}
	g := l.heap[0]
	w := g.first()
	if g.hurried++; w.class != class(true) || len(g.waiting[class(false)]) == 0 {
		g.hurried = 0
	}
	l.served++
	g.served = l.served
	l.remove(w)
	close(w.turn)
	return w
}

// remove removes a waiter; it returns false if the waiter's turn has already come.
func (l *line) remove(w *waiter) bool {
	if w.at < 0 {
		return false
	}
	g := w.group
	heap.Remove(&g.waiting[w.class], w.at)
	if len(g.waiting[0])+len(g.waiting[1]) == 0 {
		heap.Remove(&l.heap, g.at)
		delete(l.groups, g.name)
	} else {
		l.settle(g)
	}
	return true
}

// settle moves a group to its present place.
func (l *line) settle(g *group) {
	g.order()
	heap.Fix(&l.heap, g.at)
}

func (g *group) order() {
	first := g.first().key
	g.key = [3]uint64{g.served, first[0], first[1]}
}

// place is the position of an element in a heap, and its sort key.
type place struct {
	key [3]uint64
	at  int // -1 when it was taken out
}

func (p *place) of() *place { return p }

// places is a heap whose elements know where they are.
type places[T interface{ of() *place }] []T

func (h places[T]) Len() int           { return len(h) }
func (h places[T]) Less(i, j int) bool { return slices.Compare(h[i].of().key[:], h[j].of().key[:]) < 0 }

func (h places[T]) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].of().at, h[j].of().at = i, j
}

// Push and Pop are called by container/heap only.
func (h *places[T]) Push(x any) {
	e := x.(T)
	e.of().at = len(*h)
	*h = append(*h, e)
}

func (h *places[T]) Pop() any {
	n := len(*h) - 1
	e := (*h)[n]
	var none T
	(*h)[n], *h = none, (*h)[:n]
	e.of().at = -1
	return e
}
