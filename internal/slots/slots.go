// Package slots shares the slots of a host, in each of which one item runs, fairly
// among its jobs.
package slots

import (
	"cmp"
	"container/heap"
	"slices"
	"sync"
	"time"
)

// quantum is how long a streaming item keeps its slot while others wait for one.
const quantum = 100 * time.Millisecond

// moment is how long items that come and go keep a slot while others wait for one.
const moment = 5 * time.Millisecond

// Slots are the host's, for items that run, shared fairly by group and by job: a
// free slot goes to the group that has the fewest, of several to the one that was
// given a slot longest ago, within the group to the job by the same rule, and within
// the job to the oldest instant. Jobs have priorities: the fewest counts by the priority's weight, so that a job of priority 1 is
// given up to eight slots before one of priority 4 is given its first; and while priorities differ, each eighth slot goes to
// the job that was given one longest ago, so that none starves. A group has at most its share of the slots while the
// host has jobs of another group, so that items that never end leave some to the
// others. All methods of
// Slots, Account and Hold are safe for concurrent use, but for those of one hold.
type Slots struct {
	mu     sync.Mutex
	free   int
	served uint64           // slots given so far
	queue  slotHeap[*group] // groups with an account in their queue
	groups map[string]*group
	// jobs counts the accounts by their priority.
	jobs [LowestPriority + 1]int
}

// The priorities of jobs: the lowest number goes first.
const (
	HighestPriority = 1
	DefaultPriority = 3
	LowestPriority  = 4
)

// weight is how much a slot counts that a job of a priority has: 1, 2, 4, 8.
func weight(priority int) int { return 1 << (priority - HighestPriority) }

// inTurn is how many slots are given by priority for each that is given by turns.
const inTurn = 8

// group has the accounts that share a part of the slots. It is kept while it has any.
type group struct {
	part
	name     string
	accounts int
	limit    int                // the most slots while there are other groups: the largest share of a job in it
	queue    slotHeap[*Account] // accounts with a waiter that only lacks a slot
}

// New returns n slots.
func New(n int) *Slots { return &Slots{free: n, groups: make(map[string]*group)} }

// Free is how many slots are free.
func (s *Slots) Free() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.free
}

// Account is one job's part in the slots. It also bounds how many items of the
// job run at once on this host: an item has a place from its first attempt to its
// last, and a slot while its guest runs. Fires of one job overlap when an item
// takes longer than the schedule; the bound is the job's.
type Account struct {
	part
	slots    *Slots
	group    *group
	priority int
	places   int       // taken
	waiting  []*waiter // the oldest instant first, then in the order in which they came
}

// part is what a job, or a group, has of the slots.
type part struct {
	held   int    // slots
	served uint64 // slots.served when it was given one last
	at     int    // in its queue, -1 if it is not there
	weight int    // of a slot, by the priority
}

// Account returns the account of one more job of a group, which may have share slots
// while there are other groups, or more if another of its jobs may. The caller closes
// the account when the job has no slot any more.
func (s *Slots) Account(name string, share int) *Account {
	s.mu.Lock()
	defer s.mu.Unlock()
	g := s.groups[name]
	if g == nil {
		g = &group{part: part{at: -1, weight: weight(DefaultPriority)}, name: name}
		s.groups[name] = g
	}
	g.accounts++
	g.limit = max(g.limit, share)
	s.queue.settle(g, g.waits(s))
	s.settle()
	s.jobs[DefaultPriority]++
	return &Account{part: part{at: -1, weight: weight(DefaultPriority)}, slots: s, group: g, priority: DefaultPriority}
}

// Prioritize sets the job's priority, from [HighestPriority] to [LowestPriority].
func (a *Account) Prioritize(priority int) {
	s := a.slots
	s.mu.Lock()
	defer s.mu.Unlock()
	s.jobs[a.priority]--
	s.jobs[priority]++
	a.priority, a.weight = priority, weight(priority)
	a.settle()
}

// Close ends an account that has nothing.
func (a *Account) Close() {
	s := a.slots
	s.mu.Lock()
	defer s.mu.Unlock()
	s.jobs[a.priority]--
	if a.group.accounts--; a.group.accounts == 0 {
		delete(s.groups, a.group.name)
		s.settle()
	}
}

// settle puts each group into the queue or out of it, since the limits of groups begin
// to hold with the second group and end with the last but one, and hands out what is
// free. mu is held.
func (s *Slots) settle() {
	if len(s.groups) <= 2 { // with more they hold before and after
		for _, g := range s.groups {
			s.queue.settle(g, g.waits(s))
		}
	}
	s.give()
}

// waits reports whether the group lacks only a free slot. Slots.mu is held.
func (g *group) waits(s *Slots) bool {
	return len(g.queue) > 0 && (len(s.groups) < 2 || g.held < g.limit)
}

// waiter waits for a slot, and for a place unless it has one.
type waiter struct {
	limit   int // of places, 0 is none
	placed  bool
	instant int64  // Unix milliseconds
	granted func() // called when it has what it waits for; the lock is held
}

// Hold is what one worker has. The zero Hold of an account has nothing. Its
// methods are called by one goroutine at a time.
type Hold struct {
	Account     *Account // not changed
	slot, place bool
	since       time.Time // when it was given the slot
	Placed      time.Time // when it was given the place
}

// Take gives back what the worker has, and waits for a place and a slot for an
// item of the instant, while fewer than limit places are taken; 0 is no limit. It
// reports false, and has nothing, if stop or done was closed first.
func (h *Hold) Take(limit int, instant int64, stop, done <-chan struct{}) bool {
	return h.wait(&waiter{limit: limit, instant: instant}, stop, done)
}

// Again waits for a slot for the item that has its place. It reports false, and
// has the place only, if stop or done was closed first.
func (h *Hold) Again(instant int64, stop, done <-chan struct{}) bool {
	return h.wait(&waiter{placed: true, instant: instant}, stop, done)
}

// Has reports whether the worker has a slot.
func (h *Hold) Has() bool { return h.slot }

// Rest gives the slot back and keeps the place.
func (h *Hold) Rest() {
	s := h.Account.slots
	s.mu.Lock()
	defer s.mu.Unlock()
	h.drop(false)
	s.give()
}

// End gives back all.
func (h *Hold) End() {
	s := h.Account.slots
	s.mu.Lock()
	defer s.mu.Unlock()
	h.drop(true)
	s.give()
}

// Kept reports whether the worker has a slot, and may keep it for its next item: nobody
// waits for it, or it was held for a moment only.
func (h *Hold) Kept() bool { return h.slot && !h.wanted(moment) }

// Wanted reports whether somebody waits for the slot, and it was held for a
// while.
func (h *Hold) Wanted() bool { return h.wanted(quantum) }

func (h *Hold) wanted(after time.Duration) bool {
	if !h.slot || time.Since(h.since) < after {
		return false
	}
	s := h.Account.slots
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.queue) > 0 || len(h.Account.group.queue) > 0 // its own group may be at its limit
}

// Crowded reports whether an item of the job waits because the job has all of its
// places.
func (h *Hold) Crowded() bool {
	s := h.Account.slots
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(h.Account.waiting, func(w *waiter) bool { return !w.placed && w.limit > 0 && h.Account.places >= w.limit })
}

// Ask is Take for a caller that does not wait: granted is called when the worker has its place and its slot, at once or while
// another hold gives its own back. It must return at once, and must not use the slots. A plan asks so, whose time is not the
// clock's. leave gives up waiting; once granted was called it does nothing.
func (h *Hold) Ask(limit int, instant int64, granted func()) (leave func()) {
	a, s := h.Account, h.Account.slots
	w := &waiter{limit: limit, instant: instant, granted: func() {
		h.slot, h.place = true, true
		granted()
	}}
	s.mu.Lock()
	defer s.mu.Unlock()
	h.line(w)
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if i := slices.Index(a.waiting, w); i >= 0 {
			a.waiting = slices.Delete(a.waiting, i, i+1)
			a.settle()
			s.give()
		}
	}
}

// line puts a waiter in line, and gives back what the worker has. slots.mu is held.
func (h *Hold) line(w *waiter) {
	a := h.Account
	// In line before it gives back: its own items may be next.
	at, _ := slices.BinarySearchFunc(a.waiting, w.instant+1, func(w *waiter, instant int64) int { return cmp.Compare(w.instant, instant) })
	a.waiting = slices.Insert(a.waiting, at, w)
	h.drop(!w.placed)
	a.slots.give()
}

func (h *Hold) wait(w *waiter, stop, done <-chan struct{}) bool {
	a, s := h.Account, h.Account.slots
	has := make(chan struct{})
	w.granted = func() { close(has) }
	s.mu.Lock()
	h.line(w)
	s.mu.Unlock()
	granted := true
	select {
	case <-has:
	default:
		select {
		case <-has:
		case <-stop:
			granted = false
		case <-done:
			granted = false
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.Index(a.waiting, w); i >= 0 {
		a.waiting = slices.Delete(a.waiting, i, i+1)
		a.settle()
		s.give()
		return false
	}
	h.slot, h.place, h.since = true, true, time.Now()
	if !w.placed {
		h.Placed = h.since
	}
	if !granted { // it came at the same time
		h.drop(!w.placed)
		s.give()
	}
	return granted
}

// drop gives back the slot, and the place if it is to. slots.mu is held.
func (h *Hold) drop(place bool) {
	a := h.Account
	if h.slot {
		h.slot = false
		a.held--
		a.group.held--
		a.slots.free++
	}
	if place && h.place {
		h.place = false
		a.places--
	}
	a.settle()
}

// next is the index of the first waiter that only lacks a slot, -1 if there is
// none.
func (a *Account) next() int {
	return slices.IndexFunc(a.waiting, func(w *waiter) bool { return w.placed || w.limit <= 0 || a.places < w.limit })
}

// settle puts the account, and its group, where they belong in their queues. slots.mu is held.
func (a *Account) settle() {
	a.group.queue.settle(a, a.next() >= 0)
	if len(a.group.queue) > 0 { // a group waits as its first job does
		a.group.weight = a.group.queue[0].weight
	}
	a.slots.queue.settle(a.group, a.group.waits(a.slots))
}

// give hands free slots to those who wait. mu is held.
func (s *Slots) give() {
	for s.free > 0 && len(s.queue) > 0 {
		a := s.first()
		i := a.next()
		w := a.waiting[i]
		a.waiting = slices.Delete(a.waiting, i, i+1)
		if !w.placed {
			a.places++
		}
		s.free--
		s.served++
		a.held, a.served = a.held+1, s.served
		a.group.held, a.group.served = a.group.held+1, s.served
		a.settle()
		w.granted()
	}
}

// first is the account that is given the next slot. mu is held.
func (s *Slots) first() *Account {
	kinds := 0
	for _, n := range s.jobs {
		if n > 0 {
			kinds++
		}
	}
	if kinds < 2 || s.served%inTurn != inTurn-1 {
		return s.queue[0].queue[0]
	}
	g := slices.MinFunc(s.queue, func(a, b *group) int { return cmp.Compare(a.served, b.served) })
	return slices.MinFunc(g.queue, func(a, b *Account) int { return cmp.Compare(a.served, b.served) })
}

// slotHeap has at its top what is given the next slot.
type slotHeap[T interface{ of() *part }] []T

func (p *part) of() *part { return p }

// settle puts e where it belongs, or takes it out if it does not wait.
func (q *slotHeap[T]) settle(e T, waits bool) {
	switch at := e.of().at; {
	case waits && at < 0:
		heap.Push(q, e)
	case waits:
		heap.Fix(q, at)
	case at >= 0:
		heap.Remove(q, at)
	}
}

func (q slotHeap[T]) Len() int { return len(q) }

func (q slotHeap[T]) Less(i, j int) bool {
	a, b := q[i].of(), q[j].of()
	if m, n := (a.held+1)*a.weight, (b.held+1)*b.weight; m != n {
		return m < n
	}
	return a.served < b.served
}

func (q slotHeap[T]) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].of().at, q[j].of().at = i, j
}

// Push and Pop are called by container/heap only.
func (q *slotHeap[T]) Push(x any) {
	e := x.(T)
	e.of().at = len(*q)
	*q = append(*q, e)
}

func (q *slotHeap[T]) Pop() any {
	n := len(*q) - 1
	e := (*q)[n]
	var none T
	(*q)[n], *q = none, (*q)[:n]
	e.of().at = -1
	return e
}
