package host

import (
	"slices"
	"sync"
)

// places bounds how many items of one job run at once on this host: a worker
// has one from the first attempt of its item to the last. Fires of one job
// overlap when an item takes longer than the schedule; the bound is the job's.
type places struct {
	mu      sync.Mutex
	taken   int
	waiting []*place // in the order in which they came
}

type place struct {
	limit int
	mine  chan struct{} // closed when the place is its
}

// take waits until fewer than limit places are taken, and takes one. 0 is no
// limit. It reports false if stop or done was closed first.
func (p *places) take(limit int, stop, done <-chan struct{}) bool {
	p.mu.Lock()
	if limit <= 0 || len(p.waiting) == 0 && p.taken < limit {
		p.taken++
		p.mu.Unlock()
		return true
	}
	w := &place{limit: limit, mine: make(chan struct{})}
	p.waiting = append(p.waiting, w)
	p.mu.Unlock()
	select {
	case <-w.mine:
		return true
	case <-stop:
	case <-done:
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if i := slices.Index(p.waiting, w); i >= 0 {
		p.waiting = slices.Delete(p.waiting, i, i+1)
	} else {
		p.taken-- // it came at the same time
	}
	p.next()
	return false
}

// free gives a place back.
func (p *places) free() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.taken--
	p.next()
}

// next gives free places to those who wait. p.mu is held.
func (p *places) next() {
	for len(p.waiting) > 0 && p.taken < p.waiting[0].limit {
		p.taken++
		close(p.waiting[0].mine)
		p.waiting = p.waiting[1:]
	}
}
