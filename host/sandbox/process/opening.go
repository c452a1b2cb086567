package process

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// opening is an executor in a process, or on its way there.
type opening struct {
	id   int64
	x    *executor
	done chan struct{} // closed when the process has answered
	r    opened
	gone bool // it is not needed any more; guarded by child.mu
}

// answered notes how an opening went.
func (c *child) answered(r *opened) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	o := c.openings[r.Executor]
	if o == nil {
		return fmt.Errorf("news of executor %d, for which it was not asked", r.Executor)
	}
	delete(c.openings, r.Executor)
	if o.gone && r.Problem == "" && r.Failure == "" && !r.NotStored {
		c.out.note(kindDrop, dropped{Executor: o.id}) // it does not wait
	}
	r.Problem, r.Failure = clip(r.Problem), clip(r.Failure)
	o.r = *r
	if (r.Problem != "" || r.Failure != "" || r.NotStored) && c.opened[o.x] == o {
		delete(c.opened, o.x)
	}
	close(o.done)
	return nil
}

// open opens the executor in the process, if it is not open. The error is a [*plugin.LoadError] if the module
// is to blame.
func (c *child) open(ctx context.Context, x *executor) error {
	if c.holds(x) {
		return nil
	}
	if err := x.m.store(ctx, false); err != nil { // the cache may have thrown it out
		return err
	}
	for stored := false; ; stored = true {
		c.mu.Lock()
		o := c.opened[x]
		mine := o == nil
		if mine {
			o = &opening{id: c.w.ids.Add(1), x: x, done: make(chan struct{})}
			c.opened[x], c.openings[o.id] = o, o
		}
		c.mu.Unlock()
		if mine {
			if err := c.ask(o, &open{Executor: o.id, Settings: x.settings}); err != nil {
				return err
			}
		}
		r, err := c.await(ctx, o)
		if err != nil {
			return err
		}
		switch {
		case r.Problem != "":
			return x.m.m.Refused(errors.New(r.Problem))
		case r.Failure != "":
			return fmt.Errorf("worker process: %s", r.Failure)
		case r.NotStored && stored:
			return errNotFound
		case r.NotStored:
			if err := x.m.store(ctx, true); err != nil {
				return err
			}
		default:
			return nil
		}
	}
}

// holds reports whether the executor is open in the process.
func (c *child) holds(x *executor) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	o := c.opened[x]
	if o == nil {
		return false
	}
	select {
	case <-o.done:
		return true
	default:
		return false
	}
}

// try makes a trial instance with so many pages of memory in the process. The error is a [*plugin.LoadError] if
// the module is to blame.
func (c *child) try(ctx context.Context, x *executor, pages uint32) (opened, error) {
	o := &opening{id: c.w.ids.Add(1), x: x, done: make(chan struct{})}
	c.mu.Lock()
	c.openings[o.id] = o
	c.mu.Unlock()
	if err := c.ask(o, &open{Executor: o.id, Trial: true, Pages: pages}); err != nil {
		return opened{}, err
	}
	return c.await(ctx, o)
}

// ask sends the module, its bytes only if the process does not have them.
func (c *child) ask(o *opening, q *open) (err error) {
	if q.Module, err = o.x.m.m.Pack(); err != nil {
		c.mu.Lock()
		delete(c.openings, o.id)
		if c.opened[o.x] == o {
			delete(c.opened, o.x)
		}
		c.mu.Unlock()
		o.r.Failure = err.Error()
		close(o.done)
		return err
	}
	q.Module.Tried = !q.Trial
	// The process keeps a module until it is told to drop it.
	c.order.Lock()
	q.Bytes = !c.has(o.x.Digest())
	c.out.queueOpen(q, q.Module.Wasm)
	c.order.Unlock()
	c.out.push() // if the write fails, the process ends
	return nil
}

// has reports whether the process has a module. order is held.
func (c *child) has(digest string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for x, o := range c.opened {
		if x.Digest() != digest {
			continue
		}
		select {
		case <-o.done:
			return true
		default:
		}
	}
	return false
}

// await waits for the answer. The process is killed if none comes in time.
func (c *child) await(ctx context.Context, o *opening) (opened, error) {
	limit := c.w.o.patience
	if c.compiles() {
		limit += compileTime
	}
	t := time.NewTimer(limit)
	defer t.Stop()
	select {
	case <-o.done:
		return o.r, nil
	case <-c.dead:
		select {
		case <-o.done:
			return o.r, nil
		default:
			return opened{}, &deadError{c.epitaph()}
		}
	case <-ctx.Done():
		return opened{}, ctx.Err()
	case <-t.C:
		c.kill(o.x, fmt.Sprintf("a module was not ready within %s", limit))
		return opened{}, &deadError{fmt.Sprintf("its worker process had not loaded it within %s, and was killed", limit)}
	}
}

// deadError says how a process ended before it did its work.
type deadError struct{ text string }

func (e *deadError) Error() string { return e.text }

// compiles reports whether the process compiles modules itself.
func (c *child) compiles() bool {
	dir, err := c.w.o.Runtime.StoreDir()
	return err == nil && dir == ""
}

// forget removes executors from the open ones, and returns the ids of those that the process has.
func (c *child) forget(list ...*executor) (gone []int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, x := range list {
		o := c.opened[x]
		if o == nil {
			continue
		}
		delete(c.opened, x)
		select {
		case <-o.done:
			gone = append(gone, o.id)
		default:
			o.gone = true // dropped once it is open
		}
	}
	return gone
}

// drop removes executors from the process, without waiting.
func (c *child) drop(list ...*executor) {
	c.order.Lock()
	defer c.order.Unlock()
	for _, id := range c.forget(list...) {
		c.out.note(kindDrop, dropped{Executor: id})
	}
}
