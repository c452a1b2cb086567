package plugin

import (
	"context"
	"errors"
	"math"
	"runtime"
	"slices"
	"time"

	"github.com/tetratelabs/wazero"
)

// Compiled code is a cache: code that no guest uses may be evicted from memory, because the cache directory has
// it. The code that is needed last is evicted first, and is loaded again before the next fire of its job.

const (
	// Soon is how long before its next fire a module is loaded again. A module that is due sooner is only
	// evicted for a guest that waits for memory.
	Soon = 30 * time.Second
	// freedCode is how much code may be evicted, in bytes, before the garbage collector is run: wazero returns
	// code to the system in a finalizer.
	freedCode = 64 << 20
)

// engine is a wazero runtime with one compiled module. wazero v1.12.0 must instantiate a compiled module only
// in the runtime that compiled it, even if runtimes share a cache (fixed after that version); with one runtime
// per module that is always the case.
type engine struct {
	code *code
	due  time.Time // when it is needed; zero means unknown

	ready chan struct{} // closed when the fields below are set
	err   error
	rt    wazero.Runtime
	// compiled must be closed exactly once: wazero counts uses by digest, and a second Close takes the code
	// from under another handle. owed is for a use that wazero counted without returning a handle.
	compiled wazero.CompiledModule
	owed     bool
	loaded   int64 // bytes reserved in the budget
	heap     int64 // of them, those of the process' heap

	// Guarded by Runtime.mu.
	uses int
	used time.Time // when the last use ended
}

// acquire returns the code's engine, and makes it if necessary. The caller has a use of the code, and ends that
// of the engine with release. due is when the engine is needed.
func (r *Runtime) acquire(ctx context.Context, c *code, due time.Time) (*engine, error) {
	for {
		r.mu.Lock()
		e := c.engine
		mine := e == nil
		if mine {
			e = &engine{code: c, due: due, ready: make(chan struct{})}
			c.engine = e
		}
		if e.uses++; e.uses == 1 && !mine {
			r.rest(-e.loaded)
		}
		r.mu.Unlock()

		if mine {
			e.err = r.build(ctx, e)
			r.mu.Lock()
			if e.err != nil {
				c.engine = nil
			}
			r.sayCode()
			r.mu.Unlock()
			close(e.ready)
		} else {
			select {
			case <-e.ready:
			case <-ctx.Done():
				r.release(e)
				return nil, ctx.Err()
			}
		}
		if e.err == nil {
			return e, nil
		}
		err := e.err
		r.release(e)
		if !mine && ctx.Err() == nil && (errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)) {
			continue // the caller that built it gave up, this one goes on
		}
		return nil, err
	}
}

// release ends a use of an engine. Call it only when no instance relies on the use.
func (r *Runtime) release(e *engine) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e.uses--; e.uses == 0 && e.err == nil {
		e.used = time.Now()
		r.rest(e.loaded)
	}
}

// prove compiles the module, and tries an instance with a memory limit in pages, if that limit was not tried
// yet; with 0 pages it tries none.
func (r *Runtime) prove(ctx context.Context, c *code, pages uint32, due time.Time) error {
	e, err := r.acquire(ctx, c, due)
	if err != nil {
		return err
	}
	defer r.release(e)
	if pages == 0 {
		return nil
	}
	c.trying.Lock()
	defer c.trying.Unlock()
	if c.proved(r, pages) {
		return nil
	}
	if !c.passed {
		if err := r.try(ctx, e, pages); err != nil {
			return err
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	c.tried[pages] = true
	return nil
}

// proved reports whether an instance was tried with the memory limit.
func (c *code) proved(r *Runtime, pages uint32) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return c.tried[pages]
}

// rest notes that an engine of so many bytes became idle, or, with negative bytes, is used again.
func (r *Runtime) rest(bytes int64) {
	if r.evicts() && r.budget.rest(bytes, r.limit) {
		r.nudge()
	}
}

// drop closes unreachable engines that are not in use.
func (r *Runtime) drop(list ...*engine) {
	for _, e := range list {
		if r.evicts() {
			r.budget.rest(-e.loaded, math.MaxInt64)
		}
		r.discard(e)
	}
}

// sayCode reports how much heap compiled modules take. mu is held.
func (r *Runtime) sayCode() {
	if r.codeChanged != nil {
		r.codeChanged(r.heap.Load())
	}
}

func (e *engine) close() {
	ctx := context.Background()
	if e.compiled != nil {
		_ = e.compiled.Close(ctx)
		if e.owed {
			_ = e.compiled.Close(ctx)
		}
	}
	// With a shared cache this does not free the code, hence the above.
	if e.rt != nil {
		_ = e.rt.Close(ctx)
	}
	e.rt, e.compiled = nil, nil
}

// Held is the state of one module's compiled code, from which evictions are decided.
type Held[T any] struct {
	Code  T
	Bytes int64
	In    bool      // it is in memory, or being loaded
	Busy  bool      // a guest uses it, or it is being made
	Used  time.Time // when it was needed last; zero: never
	Next  time.Time // when it is needed next; zero means unknown
}

// until is how long it is not needed. If the next run is unknown, that is estimated by the time since its last
// use.
func (h Held[T]) until(now time.Time) time.Duration {
	if h.Next.IsZero() || h.Next.Before(now.Add(-Soon)) {
		return now.Sub(h.Used)
	}
	return max(h.Next.Sub(now), 0)
}

// soon reports whether it is known to be needed within Soon.
func (h Held[T]) soon(now time.Time) bool {
	return !h.Next.IsZero() && !h.Next.Before(now.Add(-Soon)) && h.Next.Sub(now) <= Soon
}

// Settle decides what is evicted so that at most limit bytes are in memory, and which module is loaded ahead of
// its fire; nil is none. A waiting guest needs wanted bytes more. wake is when to decide again; zero means at
// the next change.
func Settle[T any](all []Held[T], limit, wanted int64, now time.Time) (out []Held[T], back *Held[T], wake time.Time) {
	in := int64(0)
	var idle []Held[T] // in memory and idle, the one that is needed last first
	for i, h := range all {
		switch {
		case h.In:
			if in += h.Bytes; !h.Busy {
				idle = append(idle, h)
			}
		case h.soon(now):
			if back == nil || h.Next.Before(back.Next) {
				back = &all[i]
			}
		case h.Next.After(now):
			wake = earliest(wake, h.Next.Add(-Soon))
		}
	}
	slices.SortStableFunc(idle, func(a, b Held[T]) int { return int(min(max(b.until(now)-a.until(now), -1), 1)) })
	leave := func(limit int64, even bool) {
		for len(idle) > 0 && in > limit && (even || !idle[0].soon(now)) {
			in -= idle[0].Bytes
			out, idle = append(out, idle[0]), idle[1:]
		}
	}
	leave(limit, false)
	if wanted > 0 {
		leave(max(in-wanted, 0), true)
		return out, nil, wake
	}
	if back != nil {
		if leave(limit-back.Bytes, false); in+back.Bytes > limit {
			back = nil // when something ends, or at its fire
		}
	}
	return out, back, wake
}

func earliest(a, b time.Time) time.Time {
	if before(b, a) {
		return b
	}
	return a
}

// evicts reports whether compiled code may leave memory.
func (r *Runtime) evicts() bool { return r.limit > 0 }

// nudge makes keep decide again.
func (r *Runtime) nudge() {
	select {
	case r.changed <- struct{}{}:
	default:
	}
}

// keep is the goroutine that evicts compiled code and loads it again. Close ends it and waits for it.
func (r *Runtime) keep(ctx context.Context) {
	defer close(r.kept)
	timer := time.NewTimer(math.MaxInt64)
	defer timer.Stop()
	freed := int64(0)
	for ctx.Err() == nil {
		out, back, wake := r.settle()
		for _, e := range out {
			freed += e.loaded
		}
		r.drop(out...)
		r.mu.Lock()
		r.sayCode()
		r.mu.Unlock()
		if freed >= freedCode {
			freed = 0
			runtime.GC()
		}
		if back != nil {
			r.comeBack(ctx, back)
			continue
		}
		timer.Stop()
		if !wake.IsZero() {
			timer.Reset(time.Until(wake))
		}
		select {
		case <-ctx.Done():
		case <-r.changed:
		case <-timer.C:
		}
	}
}

// settle gathers the states, and makes evicted engines unreachable.
func (r *Runtime) settle() (out []*engine, back *Held[*code], wake time.Time) {
	now := time.Now()
	wanted := r.budget.surplus()
	r.mu.Lock()
	defer r.mu.Unlock()
	next := make(map[*code]time.Time)
	for x := range r.executors {
		next[x.code] = earliest(next[x.code], x.next)
	}
	var all []Held[*code]
	for _, c := range r.codes {
		if e := c.engine; e != nil {
			all = append(all, Held[*code]{Code: c, Bytes: c.bytes(), In: true, Busy: e.uses > 0, Used: e.used, Next: next[c]})
		} else if !c.retryAt.After(now) {
			all = append(all, Held[*code]{Code: c, Bytes: c.bytes(), Next: next[c]})
		}
	}
	leaving, back, wake := Settle(all, r.limit, wanted, now)
	for _, h := range leaving {
		out = append(out, h.Code.engine)
		h.Code.engine = nil
	}
	if back != nil {
		back.Code.uses++
	}
	return out, back, wake
}

// comeBack loads compiled code from the cache before its job's fire. The fire itself reports errors.
func (r *Runtime) comeBack(ctx context.Context, h *Held[*code]) {
	defer r.releaseCode(h.Code)
	e, err := r.acquire(ctx, h.Code, h.Next)
	if err != nil {
		r.log.Warn("compiled code could not be loaded ahead of the job's fire", "digest", h.Code.info.Digest, "error", err)
		r.mu.Lock()
		h.Code.retryAt = time.Now().Add(Soon)
		r.mu.Unlock()
		return
	}
	r.release(e)
}
