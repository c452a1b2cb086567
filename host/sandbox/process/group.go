package process

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/wasmjob/wasmjob/host/sandbox/plugin"
	"github.com/wasmjob/wasmjob/internal/slots"
)

// group is the jobs that share a worker process. It has at most one process at a time, started on demand, and
// again after its end. It is safe for concurrent use.
type group struct {
	w        *Workers
	key      string
	label    string   // for people
	readable []string // directories that its guests read by themselves
	alone    bool     // it is of one job
	refs     int      // executors and workers that know it; guarded by Workers.mu

	mu sync.Mutex
	// users counts open workers. base pays for the process while there are users or a process.
	users    int
	base     *plugin.Account
	place    *slots.Hold   // of a group of one job, while it has base
	process  *child        // nil, or dead: there is none
	starting chan struct{} // closed when a start is over; nil: nobody starts it
	modules  map[string]*resident
	since    time.Time // when the last user left; of no meaning while there are any
}

// resident is a module in the memory of the group's process, or about to be loaded there.
type resident struct {
	account   *plugin.Account // pays for its code
	users     int             // workers, and those that load it
	used      time.Time       // when the last one left
	executors map[*executor]bool
}

// processes is the job name in the accounts of processes and modules.
const processes = "worker processes"

// enter begins a worker's use of the process; leave ends it. It waits for memory without holding any: guest
// bytes for the guest, its module and the process are admitted together. The account then has the guest's
// bytes.
func (g *group) enter(ctx context.Context, x *executor, guest int64) (*plugin.Account, error) {
	for {
		g.mu.Lock()
		need, base, code := guest, g.base == nil, g.modules[x.Digest()] == nil
		g.mu.Unlock()
		var place *slots.Hold
		if base && g.alone { // before waiting for memory, which others can use meanwhile
			var err error
			if place, err = g.w.place(ctx, x); err != nil {
				return nil, err
			}
		}
		beside := int64(0)
		if base {
			beside += baseMemory
		}
		if code {
			beside += x.needs.Code
		}
		if need += beside; g.w.o.Runtime.Possible(need) != nil {
			need = beside + min(guest, x.needs.Least) // it gets the rest if available
		}
		account, err := g.w.o.Runtime.Admit(ctx, x.settings.JobName, need)
		if err != nil {
			if place != nil {
				place.End()
			}
			return nil, err
		}
		if g.admitted(account, x, base, code, place) {
			return account, nil
		}
		account.Close() // the process, or the module, has left meanwhile
	}
}

// admitted counts a worker in, if there is memory for everything it needs: it was reserved before, or the
// account has it. It takes the place, or returns it.
func (g *group) admitted(account *plugin.Account, x *executor, base, code bool, place *slots.Hold) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	defer func() {
		if place != nil && place != g.place {
			place.End()
		}
	}()
	m := g.modules[x.Digest()]
	if (g.base == nil && !base) || (m == nil && !code) {
		return false
	}
	if base {
		part := account.Split(baseMemory, processes)
		if g.base == nil {
			g.base, g.place = part, place
		} else {
			part.Close()
		}
	}
	if code {
		part := account.Split(x.needs.Code, processes)
		if m == nil {
			m = &resident{account: part, executors: map[*executor]bool{}}
			g.modules[x.Digest()] = m
		} else {
			part.Close()
		}
	}
	m.users++
	m.executors[x] = true
	g.users++
	return true
}

// leave ends what enter began. An idle process is kept for a while, unless its memory is needed.
func (g *group) leave(x *executor) {
	g.mu.Lock()
	m := g.modules[x.Digest()]
	m.users--
	m.used = time.Now()
	if g.users--; g.users == 0 {
		g.since = m.used
		if !g.running() {
			g.drop()
		}
	}
	g.mu.Unlock()
	g.w.relieve()
	g.w.nudge()
}

// running reports whether there is a process. mu is held.
func (g *group) running() bool { return g.process != nil && g.process.alive() }

// drop releases the process's memory, and ends it. It must be unused. mu is held.
func (g *group) drop() *child {
	c := g.process
	if c != nil {
		c.end()
	}
	g.process = nil
	for digest := range g.modules {
		g.forget(digest)
	}
	if g.base != nil {
		g.base.Close()
		g.base = nil
		if g.place != nil {
			g.place.End()
			g.place = nil
		}
	}
	return c
}

// forget releases a module's memory. mu is held.
func (g *group) forget(digest string) {
	g.modules[digest].account.Close()
	delete(g.modules, digest)
}

// evict removes a module from the process, unless a guest needs it.
func (g *group) evict(digest string) bool {
	g.mu.Lock()
	m := g.modules[digest]
	if m == nil || m.users > 0 {
		g.mu.Unlock()
		return false
	}
	g.forget(digest)
	if c := g.process; c != nil {
		// Before a worker comes, which would find them there.
		c.drop(slices.Collect(maps.Keys(m.executors))...)
	}
	g.mu.Unlock()
	return true
}

// remove removes a released executor from the process.
func (g *group) remove(x *executor) {
	g.mu.Lock()
	m := g.modules[x.Digest()]
	last := false
	if m != nil && m.executors[x] {
		delete(m.executors, x)
		if last = len(m.executors) == 0; last {
			g.forget(x.Digest())
		}
	}
	if c := g.process; c != nil {
		c.drop(x)
	}
	g.mu.Unlock()
}

// current is the process, started if there is none.
func (g *group) current(ctx context.Context) (*child, error) {
	for {
		g.mu.Lock()
		if g.running() {
			defer g.mu.Unlock()
			return g.process, nil
		}
		starting := g.starting
		if starting == nil {
			mine := make(chan struct{})
			g.starting = mine
			g.mu.Unlock()
			c, err := g.w.launch(ctx, g)
			g.mu.Lock()
			g.starting = nil
			if err == nil {
				g.process = c
			}
			g.mu.Unlock()
			close(mine)
			return c, err
		}
		g.mu.Unlock()
		select {
		case <-starting:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// open returns a process that has loaded the executor's module. The caller has entered.
func (g *group) open(ctx context.Context, x *executor) (*child, error) {
	for again := false; ; again = true {
		c, err := g.current(ctx)
		if err != nil {
			return nil, err
		}
		err = c.open(ctx, x)
		if err == nil {
			return c, nil
		}
		if again || !errors.As(err, new(*deadError)) || ctx.Err() != nil || g.suspects(x) {
			return nil, err
		}
	}
}

// suspects reports whether the executor must run elsewhere from now on.
func (g *group) suspects(x *executor) bool {
	g.w.mu.Lock()
	defer g.w.mu.Unlock()
	return !g.alone && x.isSuspect(time.Now())
}

// launch starts a process and waits until it is ready.
func (w *Workers) launch(ctx context.Context, g *group) (*child, error) {
	dir, err := w.o.Runtime.StoreDir()
	if err != nil {
		return nil, err
	}
	q := start{Dir: dir, Compile: dir == "", Readable: g.readable}
	if g.alone {
		if err := w.places.pace.Wait(ctx); err != nil {
			return nil, fmt.Errorf("worker process: waiting for its turn to start: %w", err)
		}
	}
	whole := ctx
	ctx, cancel := context.WithTimeout(ctx, w.o.patience)
	defer cancel()
	c, err := w.start(ctx, g, &q)
	for err != nil && scarce(err) && w.endIdle(false) {
		c, err = w.start(ctx, g, &q)
	}
	if err != nil {
		return nil, err
	}
	r, err := c.ready(ctx)
	switch {
	case err != nil && ctx.Err() != nil && whole.Err() == nil:
		err = fmt.Errorf("a worker process was not ready within %s, and was killed", w.o.patience)
	case err != nil:
	case r.Failure != "":
		err = fmt.Errorf("worker process: %s", r.Failure)
	default:
		if w.o.sandbox != nil {
			w.o.sandbox(r.Problem)
		}
		if q.Compile {
			r.Data += compileData
		}
		err = c.limits.begin(c.pid, r.Data)
	}
	if err != nil {
		c.end()
		<-c.dead
		return nil, err
	}
	return c, nil
}

// pace is the least interval at which keep checks all jobs: each fire of each changes something.
const pace = time.Second

// keep evicts modules and loads them again before their jobs' fires, and ends idle processes.
func (w *Workers) keep(ctx context.Context) {
	timer := time.NewTimer(math.MaxInt64)
	defer timer.Stop()
	for ctx.Err() == nil {
		looked := time.Now()
		back, wake := w.settle(looked)
		if back != nil {
			w.load(ctx, back.Code.x)
			continue
		}
		timer.Stop()
		if !wake.IsZero() {
			timer.Reset(time.Until(wake))
		}
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
			continue
		case <-w.changed:
		}
		timer.Reset(time.Until(looked.Add(min(pace, w.o.idle))))
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
	}
}

// place is a module in a group.
type place struct {
	g      *group
	digest string
	x      *executor // the next executor that will need it
}

// settle evicts modules, and returns which one to load before its fire and when to check again.
func (w *Workers) settle(now time.Time) (back *plugin.Held[place], wake time.Time) {
	limit := w.o.Runtime.ModuleLimit()
	if limit == 0 {
		limit = math.MaxInt64
	}
	all := w.survey(now)
	out, back, wake := plugin.Settle(all, limit, 0, now)
	for _, h := range out {
		h.Code.g.evict(h.Code.digest)
	}
	next := map[*group]time.Time{}
	for _, h := range all {
		if !h.Next.Before(now.Add(-plugin.Soon)) && (next[h.Code.g].IsZero() || h.Next.Before(next[h.Code.g])) {
			next[h.Code.g] = h.Next
		}
	}
	for _, g := range w.list() {
		if end := g.retire(now, next[g], w.o.idle); !end.IsZero() && (wake.IsZero() || end.Before(wake)) {
			wake = end
		}
	}
	return back, wake
}

// survey lists the modules, and when they are needed.
func (w *Workers) survey(now time.Time) []plugin.Held[place] {
	found := map[place]*plugin.Held[place]{}
	w.mu.Lock()
	for x := range w.executors {
		key := place{g: x.home, digest: x.Digest()}
		h := found[key]
		if h == nil {
			h = &plugin.Held[place]{Code: place{x.home, x.Digest(), x}, Bytes: x.needs.Code}
			found[key] = h
		}
		// After a failure it is loaded only when its job fires.
		if x.retryAt.Before(now) && !x.isSuspect(now) && !x.next.IsZero() && (h.Next.IsZero() || x.next.Before(h.Next)) {
			h.Next, h.Code.x = x.next, x
		}
	}
	w.mu.Unlock()
	for _, g := range w.list() {
		g.mu.Lock()
		for digest, m := range g.modules {
			key := place{g: g, digest: digest}
			h := found[key]
			if h == nil {
				h = &plugin.Held[place]{Code: key, Bytes: m.account.Bytes()}
				found[key] = h
			}
			h.In, h.Busy, h.Used = g.running(), m.users > 0, m.used
		}
		g.mu.Unlock()
	}
	all := make([]plugin.Held[place], 0, len(found))
	for _, h := range found {
		all = append(all, *h)
	}
	slices.SortFunc(all, func(a, b plugin.Held[place]) int { return a.Next.Compare(b.Next) })
	return all
}

// retire ends the process if it has been idle for long and no job needs it soon. It returns when to check
// again; zero: at the next change.
func (g *group) retire(now, next time.Time, idle time.Duration) time.Time {
	g.mu.Lock()
	if g.users > 0 || g.starting != nil {
		g.mu.Unlock()
		return time.Time{}
	}
	var c *child
	end := g.since.Add(idle)
	switch {
	case !g.running():
		c = g.drop()
		end = time.Time{}
	case end.After(now):
	case !next.IsZero() && next.Sub(now) <= plugin.Soon:
		end = next.Add(plugin.Soon)
	default:
		c = g.drop()
		end = time.Time{}
	}
	g.mu.Unlock()
	if c != nil {
		<-c.dead
	}
	return end
}

// load loads an executor's module before its job's fire, if there is memory now. The fire itself reports
// errors.
func (w *Workers) load(ctx context.Context, x *executor) {
	err := errReleased
	if x.Retain() {
		err = x.load(ctx)
		x.Release()
	}
	if err != nil {
		w.mu.Lock()
		x.retryAt = time.Now().Add(plugin.Soon)
		w.mu.Unlock()
		w.log.Debug("a module could not be loaded ahead of its job's fire", "job", x.settings.JobName, "digest", x.Digest(), "error", err)
	}
}

func (x *executor) load(ctx context.Context) error {
	full, cancel := context.WithCancel(ctx)
	cancel() // do not wait for memory
	account, err := x.home.enter(full, x, 0)
	if err != nil {
		return err
	}
	defer account.Close()
	defer x.home.leave(x)
	_, err = x.home.open(ctx, x)
	return err
}
