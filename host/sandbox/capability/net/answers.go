package net

import (
	"sync"
	"time"
)

// answers measures how long a connection's other side takes to answer: from the newest write to
// what comes next. It is safe for concurrent use.
type answers struct {
	mu      sync.Mutex
	asked   time.Time // when the guest wrote last, if nothing has come since; else zero
	wanted  bool      // the guest has found nothing to read since
	slowest time.Duration
}

func (a *answers) wrote() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.asked = time.Now()
}

// awaited notes that the guest has found nothing to read.
func (a *answers) awaited() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.wanted = true
}

// came notes that something has come.
func (a *answers) came() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.over()
}

// end returns how long the slowest answer took. One that has not come counts, if the guest waits
// for it.
func (a *answers) end() time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.wanted {
		a.over()
	}
	return a.slowest
}

// over ends the wait for an answer. The caller holds mu.
func (a *answers) over() {
	if !a.asked.IsZero() {
		a.slowest = max(a.slowest, time.Since(a.asked))
	}
	a.asked, a.wanted = time.Time{}, false
}
