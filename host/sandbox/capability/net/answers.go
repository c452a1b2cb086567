package net

import (
	"sync"
	"time"
)

// answers measures how long a connection's other side takes to answer: from the newest write to the next read.
// It is safe for concurrent use.
type answers struct {
	mu      sync.Mutex
	asked   time.Time // when the guest last wrote, if nothing was received since; otherwise zero
	wanted  bool      // the guest has tried to read since
	slowest time.Duration
}

func (a *answers) wrote() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.asked = time.Now()
}

// awaited notes that the guest has tried to read and found nothing.
func (a *answers) awaited() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.wanted = true
}

// came notes that data was received.
func (a *answers) came() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.over()
}

// end returns how long the slowest answer took. A missing answer counts if the guest waits for it.
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
