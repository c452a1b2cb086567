package inflight

import (
	"cmp"
	"container/heap"
)

// line has those who wait. The next is one of the group that was served longest ago, so that a
// group in which thousands wait does not hold up the others; of that group, and of groups that were
// not served since they began to wait, it is the one with the lowest rank, and of several the one
// that came first. A group is forgotten when none of it waits.
type line struct {
	groups map[string]*group
	heap   heapOf[*group]
	served uint64
	came   uint64
}

type group struct {
	name    string
	served  uint64
	waiting heapOf[*waiter]
	at      int
}

// waiter waits until turn is closed.
type waiter struct {
	group      *group
	rank, came uint64
	turn       chan struct{}
	at         int // in group.waiting; -1 when its turn has come
}

// push puts one more of a group into the line.
func (l *line) push(name string, rank uint64) *waiter {
	if l.groups == nil {
		l.groups = make(map[string]*group)
	}
	l.came++
	w := &waiter{rank: rank, came: l.came, turn: make(chan struct{})}
	g, known := l.groups[name]
	if !known {
		g = &group{name: name}
		l.groups[name] = g
	}
	w.group = g
	heap.Push(&g.waiting, w)
	if known {
		heap.Fix(&l.heap, g.at) // it may have another first one
	} else {
		heap.Push(&l.heap, g)
	}
	return w
}

// pop takes the next one out and lets it go; nil if none waits.
func (l *line) pop() *waiter {
	if len(l.heap) == 0 {
		return nil
	}
	g := l.heap[0]
	w := g.waiting[0]
	l.served++
	g.served = l.served
	l.remove(w)
	close(w.turn)
	return w
}

// remove takes one out; false if its turn has come already.
func (l *line) remove(w *waiter) bool {
	if w.at < 0 {
		return false
	}
	g := w.group
	if len(g.waiting) == 1 {
		heap.Remove(&l.heap, g.at)
		delete(l.groups, g.name)
		w.at = -1
		return true
	}
	heap.Remove(&g.waiting, w.at)
	heap.Fix(&l.heap, g.at)
	return true
}

func (g *group) compare(other *group) int {
	return cmp.Or(cmp.Compare(g.served, other.served), g.waiting[0].compare(other.waiting[0]))
}
func (g *group) move(at int) { g.at = at }

func (w *waiter) compare(other *waiter) int {
	return cmp.Or(cmp.Compare(w.rank, other.rank), cmp.Compare(w.came, other.came))
}
func (w *waiter) move(at int) { w.at = at }

// heapOf is a heap whose elements know where they are.
type heapOf[T interface {
	compare(T) int
	move(at int)
}] []T

func (h heapOf[T]) Len() int           { return len(h) }
func (h heapOf[T]) Less(i, j int) bool { return h[i].compare(h[j]) < 0 }

func (h heapOf[T]) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].move(i)
	h[j].move(j)
}

// Push and Pop are called by container/heap only.
func (h *heapOf[T]) Push(x any) {
	e := x.(T)
	e.move(len(*h))
	*h = append(*h, e)
}

func (h *heapOf[T]) Pop() any {
	n := len(*h) - 1
	e := (*h)[n]
	var none T
	(*h)[n], *h = none, (*h)[:n]
	e.move(-1)
	return e
}
