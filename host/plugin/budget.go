package plugin

import (
	"context"
	"fmt"
	"slices"
	"sync"
)

// The parts of the memory budget.
const (
	// jobShareOf4 quarters of the budget are what the guests of one job may have
	// together, so that no job takes the memory of all others.
	jobShareOf4 = 3
	// guestBase is what an instance costs besides memory, tables and stack: what
	// the engine keeps of it.
	guestBase = 64 << 10
	// codeFactor times the size of a metered module is what its compiled
	// form takes, its data and what the engine knows of it included.
	codeFactor = 5
)

// Memory says what a runtime's guests and modules take of its budget, in bytes.
type Memory struct {
	Budget int64 `json:"budget"` // 0: there is no limit
	Guests int64 `json:"guests"` // memories, tables and stacks
	Code   int64 `json:"code"`   // compiled modules
	// Waiting counts the workers that wait for memory.
	Waiting int `json:"waiting"`
	// Refused counts the times that a guest got no more memory because the
	// budget, or its job's share of it, was used up.
	Refused int64 `json:"refused"`
}

// budget bounds what all guests and modules of a runtime take together. A worker
// is admitted when what it is expected to need is free; beyond that it is given
// what there is at the moment. It is safe for concurrent use.
type budget struct {
	mu      sync.Mutex
	total   int64 // 0 is no limit
	guests  int64
	code    int64
	jobs    map[string]int64 // of guests
	waiting []*admission
	refused int64
	// short is called, without mu, when somebody begins to wait; nil: nothing is.
	short func()
}

// admission is a worker that waits.
type admission struct {
	job   string
	bytes int64
	given chan struct{} // closed when the bytes are its
}

func newBudget(total int64) *budget { return &budget{total: total, jobs: map[string]int64{}} }

// share is what the guests of one job may have.
func (b *budget) share() int64 { return b.total / 4 * jobShareOf4 }

// fits reports whether a job may have so many bytes more. mu is held.
func (b *budget) fits(job string, bytes int64) bool {
	return b.total == 0 || (b.guests+b.code+bytes <= b.total && b.jobs[job]+bytes <= b.share())
}

// add takes bytes for a job, or gives them back. mu is held.
func (b *budget) add(job string, bytes int64) {
	b.guests += bytes
	if b.jobs[job] += bytes; b.jobs[job] == 0 {
		delete(b.jobs, job)
	}
}

// possible says what is wrong with a guest that begins with so many bytes.
func (b *budget) possible(bytes int64) error {
	if b.total > 0 && bytes > b.share() {
		return fmt.Errorf("it needs %d bytes of memory to begin with; of the host's memory budget of %d bytes a job may have %d", bytes, b.total, b.share())
	}
	return nil
}

// admit waits until the bytes are free, and takes them. Who needs less does not
// wait behind who needs more. The error is that of ctx, or says that there are
// never so many.
func (b *budget) admit(ctx context.Context, job string, bytes int64) error {
	if err := b.possible(bytes); err != nil {
		return err
	}
	b.mu.Lock()
	if b.fits(job, bytes) {
		b.add(job, bytes)
		b.mu.Unlock()
		return nil
	}
	w := &admission{job, bytes, make(chan struct{})}
	b.waiting = append(b.waiting, w)
	short := b.short
	b.mu.Unlock()
	if short != nil {
		short()
	}

	select {
	case <-w.given:
		return nil
	case <-ctx.Done():
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if i := slices.Index(b.waiting, w); i >= 0 {
		b.waiting = slices.Delete(b.waiting, i, i+1)
		return ctx.Err()
	}
	b.add(job, -bytes) // they came at the same time
	b.next()
	return ctx.Err()
}

// grow takes more for a guest that runs, if it is there.
func (b *budget) grow(job string, bytes int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.fits(job, bytes) {
		b.refused++
		return false
	}
	b.add(job, bytes)
	return true
}

// free gives back what admit and grow have taken.
func (b *budget) free(job string, bytes int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.add(job, -bytes)
	b.next()
}

// load takes memory for compiled code. A quarter of the budget stays for guests.
func (b *budget) load(bytes int64) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.total > 0 && b.code+bytes > b.share() {
		return fmt.Errorf("it needs about %d MiB for its compiled code; %d MiB of the host's memory budget of %d MiB are for code, and %d MiB are in use",
			bytes>>20, b.share()>>20, b.total>>20, b.code>>20)
	}
	b.code += bytes
	return nil
}

func (b *budget) unload(bytes int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.code -= bytes
	b.next()
}

// next admits those who wait and fit now. mu is held.
func (b *budget) next() {
	b.waiting = slices.DeleteFunc(b.waiting, func(w *admission) bool {
		if !b.fits(w.job, w.bytes) {
			return false
		}
		b.add(w.job, w.bytes)
		close(w.given)
		return true
	})
}

func (b *budget) memory() Memory {
	b.mu.Lock()
	defer b.mu.Unlock()
	return Memory{Budget: b.total, Guests: b.guests, Code: b.code, Waiting: len(b.waiting), Refused: b.refused}
}

// account is a worker's part of the budget: what it was admitted with, and what
// its instances took beyond. One goroutine at a time uses it.
type account struct {
	budget *budget
	job    string
	has    int64
	linear int64 // of the instance at hand
	stack  int64
	fixed  int64 // tables, and what each instance costs
	most   int64 // that an instance has needed
	denied bool  // an instance was refused memory
	// host is asked instead of the budget if it accounts for memory itself.
	host MemoryHost
}

// covers takes what linear memory and stack need together, if it is there.
func (a *account) covers(linear, stack int64) bool {
	need := a.fixed + linear + stack
	if need > a.has {
		if !a.grow(need) {
			a.denied = true
			return false
		}
		a.has = need
	}
	a.linear, a.stack, a.most = linear, stack, max(a.most, need)
	return true
}

// grow takes memory until there are so many bytes.
func (a *account) grow(need int64) bool {
	if a.host != nil && !a.host.CoverMemory(need) {
		return false
	}
	return a.budget.grow(a.job, need-a.has)
}

// reset is called when an instance begins: it has nothing yet.
func (a *account) reset() { a.linear, a.stack, a.denied = 0, 0, false }

func (a *account) close() {
	a.budget.free(a.job, a.has)
	a.has = 0
}
