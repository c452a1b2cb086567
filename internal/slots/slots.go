// Package slots shares a host's slots fairly among its jobs. One item runs in each slot.
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

// moment is how long a worker that runs many short items keeps a slot while others wait for one.
const moment = 5 * time.Millisecond

// Slots are a host's slots for running items, shared fairly by group and by job. A free slot goes to the group
// with the fewest slots, in a tie to the one that was served longest ago, within the group to a job by the same
// rule, and within the job to the oldest instant.
//
// A job's slots are weighted by its priority, so that a job of priority 1 gets up to eight slots before one of
// priority 4 gets its first; while priorities differ, each eighth slot goes to the job that was served longest
// ago, so that none starves. While the host has jobs of several groups, a group has at most its share of the
// slots, so that items that never end leave some to the others.
//
// All methods of Slots, Account and Hold are safe for concurrent use, except those of one hold.
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

// weight is how much a slot of a job with this priority counts: 1, 2, 4 or 8.
func weight(priority int) int { return 1 << (priority - HighestPriority) }

// inTurn is how many slots are given by priority for each that is given by turn.
const inTurn = 8

// group has the accounts that share a part of the slots. It exists while it has any.
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

// Account is one job's part of the slots. It also bounds how many items of the job run at once on this host,
// over all its fires, which overlap when an item takes longer than the schedule. An item has a place from its
// first attempt to its last, and a slot while its guest runs.
type Account struct {
	part
	slots    *Slots
	group    *group
	priority int
	places   int       // taken
	waiting  []*waiter // the oldest instant first, then in the order in which they came
}

// part is the share that a job or a group has of the slots.
type part struct {
	held   int    // slots
	served uint64 // slots.served when it last got a slot
	at     int    // in its queue, -1 if it is not there
	weight int    // weight of a slot, by the priority
}

// Account returns the account of another job in a group. share is how many slots the group may have while there
// are other groups; the largest share of its jobs counts. The caller closes the account when the job has no
// slot left.
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

// Close ends an account that has no slot and no place.
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

// settle updates each group's place in the queue, because limits of groups apply only while there are at least
// two groups, and gives out free slots. mu is held.
func (s *Slots) settle() {
	if len(s.groups) <= 2 { // with more, limits apply before and after
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

// waiter waits for a slot, and for a place if it has none.
type waiter struct {
	limit   int // of places, 0 is none
	placed  bool
	instant int64  // Unix milliseconds
	granted func() // called when it gets what it waits for; the lock is held
}

// Hold is the place and slot of one worker. The zero Hold of an account has neither. Only one goroutine at a
// time may call its methods.
type Hold struct {
	Account     *Account // not changed
	slot, place bool
	since       time.Time // when it was given the slot
	Placed      time.Time // when it was given the place
}

// Take gives back the worker's place and slot, and waits for new ones for an item of the instant, while fewer
// than limit places are taken; 0 is no limit. It returns false, without either, if stop or done was closed
// first.
func (h *Hold) Take(limit int, instant int64, stop, done <-chan struct{}) bool {
	return h.wait(&waiter{limit: limit, instant: instant}, stop, done)
}

// Again waits for a slot for the item that has a place. It returns false, with the place only, if stop or done
// was closed first.
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

// End gives back place and slot.
func (h *Hold) End() {
	s := h.Account.slots
	s.mu.Lock()
	defer s.mu.Unlock()
	h.drop(true)
	s.give()
}

// Kept reports whether the worker may keep its slot for its next item: no item waits for the slot, or it was
// held only for a moment.
func (h *Hold) Kept() bool { return h.slot && !h.wanted(moment) }

// Wanted reports whether another item waits for the slot, and it was held for a while.
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

// Crowded reports whether an item waits because the job has used all its places.
func (h *Hold) Crowded() bool {
	s := h.Account.slots
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(h.Account.waiting, func(w *waiter) bool { return !w.placed && w.limit > 0 && h.Account.places >= w.limit })
}

// Ask is Take without waiting: granted is called when the worker has its place and slot, at once or when
// another hold gives its own back. granted must return at once, and must not use the slots. A plan with
// simulated time uses it. leave stops the request; after granted it does nothing.
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

// line queues a waiter, and gives back the worker's place and slot. slots.mu is held.
func (h *Hold) line(w *waiter) {
	a := h.Account
	// Queue before giving back: its own items may be next.
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

// drop gives back the slot, and with place also the place. slots.mu is held.
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

// settle updates the places of the account and its group in their queues. slots.mu is held.
func (a *Account) settle() {
	a.group.queue.settle(a, a.next() >= 0)
	if len(a.group.queue) > 0 { // a group waits as its first job does
		a.group.weight = a.group.queue[0].weight
	}
	a.slots.queue.settle(a.group, a.group.waits(a.slots))
}

// give gives free slots to waiters. mu is held.
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

// first returns the account that gets the next slot. mu is held.
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

// slotHeap has the next to be served at its top.
type slotHeap[T interface{ of() *part }] []T

func (p *part) of() *part { return p }

// settle moves e to its place, or removes it if it does not wait.
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
