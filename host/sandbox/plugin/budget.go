package plugin

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/wasmjob/wasmjob/abi"
)

// The parts of the memory budget.
const (
	// jobShareOf4 is how many quarters of the budget the guests of one job may use together, so that no job
	// takes all memory.
	jobShareOf4 = 3
	// guestBase is what an instance costs besides memory, tables and stack: the engine's own data.
	guestBase = 64 << 10
)

// guessed estimates the size of a compiled metered module of n bytes before it is measured: a Go module of 4.5
// MB has 13.7 MB of native code, and 4.2 MB of its own sections.
func guessed(n int) footprint { return footprint{Code: 3 * int64(n), Heap: int64(n)} }

// Memory says how much of a runtime's budget its guests and modules use, in bytes.
type Memory struct {
	Budget int64 `json:"budget"` // 0: there is no limit
	Guests int64 `json:"guests"` // memories, tables and stacks
	Code   int64 `json:"code"`   // compiled modules that are in memory
	Idle   int64 `json:"idle"`   // those of them that no guest uses
	// Waiting counts the workers that wait for memory.
	Waiting int `json:"waiting"`
	// Refused counts how often a guest got no more memory because the budget, or its job's share of it, was
	// used up.
	Refused int64 `json:"refused"`
	// Late counts how often a fire waited for a module that was not in memory.
	Late int64 `json:"late"`
}

// budget bounds what all guests and modules of a runtime use together. A worker is admitted when its expected
// need is free; more is granted as far as available. It is safe for concurrent use.
type budget struct {
	mu      sync.Mutex
	total   int64 // 0 is no limit
	guests  int64
	code    int64
	idle    int64            // part of code: evicted if the memory is needed
	jobs    map[string]int64 // of guests
	waiting []*admission
	refused int64
	late    int64
	// short is called, without mu, when a worker or a module begins to wait; nil is ignored.
	short func()
	// crowded is called with mu held when idle code must be evicted.
	crowded func()
}

// admission is a worker that waits.
type admission struct {
	job   string
	code  bool // it waits for a module instead
	bytes int64
	given chan struct{} // closed when the bytes are its
}

func newBudget(total int64) *budget { return &budget{total: total, jobs: map[string]int64{}} }

// share is how much the guests of one job may use.
func (b *budget) share() int64 { return b.total / 4 * jobShareOf4 }

// fits reports whether so many more bytes fit, not counting idle code. mu is held.
func (b *budget) fits(w *admission) bool {
	if b.total == 0 {
		return true
	}
	if b.guests+b.code-b.idle+w.bytes > b.total {
		return false
	}
	if w.code {
		return b.code-b.idle+w.bytes <= b.share()
	}
	return b.jobs[w.job]+w.bytes <= b.share()
}

// take takes what fits. mu is held.
func (b *budget) take(w *admission) {
	if w.code {
		b.code += w.bytes
	} else {
		b.add(w.job, w.bytes)
	}
	if b.excess() > 0 {
		b.crowded()
	}
}

// excess is how much idle code must be evicted. mu is held.
func (b *budget) excess() int64 {
	if b.total == 0 || b.idle == 0 {
		return 0
	}
	return max(b.guests+b.code-b.total, 0)
}

// add reserves bytes for a job, or returns them if negative. mu is held.
func (b *budget) add(job string, bytes int64) {
	b.guests += bytes
	if b.jobs[job] += bytes; b.jobs[job] == 0 {
		delete(b.jobs, job)
	}
}

// move transfers bytes from one job to another.
func (b *budget) move(from, to string, bytes int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.add(from, -bytes)
	b.add(to, bytes)
}

// possible returns an error if a guest's initial bytes never fit.
func (b *budget) possible(bytes int64) error {
	if b.total > 0 && bytes > b.share() {
		return fmt.Errorf("it needs %d bytes of memory to begin with; of the host's memory budget of %d bytes a job may have %d", bytes, b.total, b.share())
	}
	return nil
}

// admit waits until the bytes are free, and reserves them. A smaller request does not wait behind a larger one.
// The error is that of ctx, or says that the bytes never fit.
func (b *budget) admit(ctx context.Context, job string, bytes int64) error {
	if err := b.possible(bytes); err != nil {
		return err
	}
	return b.wait(ctx, &admission{job: job, bytes: bytes})
}

// load is admit for compiled code. It leaves a quarter of the budget to guests. If code cannot be evicted
// (leaves is false) it fails at once when there is no room.
func (b *budget) load(ctx context.Context, bytes int64, leaves bool) error {
	w := &admission{code: true, bytes: bytes}
	if !leaves {
		return b.loadNow(w)
	}
	if b.total > 0 && bytes > b.share() {
		return fmt.Errorf("it needs %s for its compiled code; of the host's memory budget of %s, %s are for code",
			mebibytes(bytes), mebibytes(b.total), mebibytes(b.share()))
	}
	return b.wait(ctx, w)
}

func (b *budget) loadNow(w *admission) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.total > 0 && b.code+w.bytes > b.share() {
		return fmt.Errorf("it needs %s for its compiled code; %s of the host's memory budget of %s are for code, and %s are in use",
			mebibytes(w.bytes), mebibytes(b.share()), mebibytes(b.total), mebibytes(b.code))
	}
	b.code += w.bytes
	return nil
}

func (b *budget) wait(ctx context.Context, w *admission) error {
	b.mu.Lock()
	if b.fits(w) {
		b.take(w)
		b.mu.Unlock()
		return nil
	}
	if err := ctx.Err(); err != nil { // a caller that does not wait evicts nothing
		b.mu.Unlock()
		return err
	}
	w.given = make(chan struct{})
	b.waiting = append(b.waiting, w)
	short := b.short
	b.mu.Unlock()
	if begin := abi.Waiting(ctx); begin != nil {
		defer begin()()
	}
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
	if w.code { // they came at the same time
		b.code -= w.bytes
	} else {
		b.add(w.job, -w.bytes)
	}
	b.next()
	return ctx.Err()
}

// grow reserves more for a running guest, if available. The error names the limit.
func (b *budget) grow(job string, bytes int64) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	w := &admission{job: job, bytes: bytes}
	if b.fits(w) {
		b.take(w)
		return nil
	}
	b.refused++
	if b.jobs[job]+bytes > b.share() {
		return fmt.Errorf("the guests of a job may have %s of the host's memoryBudget of %s", mebibytes(b.share()), mebibytes(b.total))
	}
	return fmt.Errorf("the host's memoryBudget of %s is used up", mebibytes(b.total))
}

func mebibytes(n int64) string { return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20)) }

// free gives back what admit and grow have taken.
func (b *budget) free(job string, bytes int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.add(job, -bytes)
	b.next()
}

// rest notes that code became idle, or with negative bytes that it is used again. It reports whether idle code
// must be evicted, counting also a limit of all code.
func (b *budget) rest(bytes, limit int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.idle += bytes
	b.next()
	return b.code > limit || b.excess() > 0
}

// isLate counts a fire that waits for a module that was not in memory.
func (b *budget) isLate() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.late++
}

// surplus is how many bytes of idle code must be evicted.
func (b *budget) surplus() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.excess()
}

func (b *budget) unload(bytes int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.code -= bytes
	b.next()
}

// next admits waiters that fit now. mu is held.
func (b *budget) next() {
	b.waiting = slices.DeleteFunc(b.waiting, func(w *admission) bool {
		if !b.fits(w) {
			return false
		}
		b.take(w)
		close(w.given)
		return true
	})
}

func (b *budget) memory() Memory {
	b.mu.Lock()
	defer b.mu.Unlock()
	return Memory{Budget: b.total, Guests: b.guests, Code: b.code, Idle: b.idle, Waiting: len(b.waiting), Refused: b.refused, Late: b.late}
}

// account is a worker's part of the budget: what it was admitted with, and what its instances took beyond. Only
// one goroutine at a time may use it.
type account struct {
	budget *budget
	job    string
	has    int64
	linear int64 // of the instance at hand
	stack  int64 // its native stacks, including what growing them takes
	fixed  int64 // tables, and the base cost of an instance
	held   int64 // other host memory for the instance: open files
	most   int64 // the most that an instance has needed
	denied error // why the instance was refused memory
	// host, if it accounts for memory itself, replaces the budget.
	host MemoryHost
}

// covers reserves what linear memory and stack need together, if available.
func (a *account) covers(linear, stack int64) bool {
	need := a.fixed + a.held + linear + stack
	if need > a.has {
		if err := a.grow(need, stack); err != nil {
			a.denied = err
			return false
		}
		a.has = need
	}
	a.linear, a.stack, a.most = linear, stack, max(a.most, need)
	return true
}

// holds reserves a total for other host memory of the guest, if available.
func (a *account) holds(bytes int64) bool {
	before := a.held
	a.held = bytes
	if bytes <= before || a.covers(a.linear, a.stack) {
		return true
	}
	a.held = before
	return false
}

// grow reserves up to a total of need bytes; stack is the part for native stacks.
func (a *account) grow(need, stack int64) error {
	if a.host != nil {
		if err := a.host.CoverMemory(need, stack); err != nil {
			return err
		}
	}
	return a.budget.grow(a.job, need-a.has)
}

// reset is called when an instance begins.
func (a *account) reset() { a.linear, a.stack, a.held, a.denied = 0, 0, 0, nil }

func (a *account) close() {
	a.budget.free(a.job, a.has)
	a.has = 0
}
