package engine

import (
	"cmp"
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"
	"golang.org/x/time/rate"

	"github.com/wasmjob/wasmjob/coordination/admin/operate"
	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/tree"
)

// stays is how long a job has lived that is not forgotten.
const stays = time.Duration(math.MaxInt64)

// leftovers are the jobs in a registry of this process that have no definition. Their nodes
// take limit bytes at most: beyond that the jobs that had a definition for the shortest time
// are forgotten, so that names which come and go push out each other, and no job that was in
// use for longer. A job that this process has not made itself stays. It is safe for
// concurrent use.
type leftovers struct {
	limit int64         // 0: there is none, and nothing is kept account of
	wake  chan struct{} // something is in the queue

	mu       sync.Mutex
	made     map[string]time.Time     // the jobs that this process has made, and when
	queue    []string                 // jobs whose nodes are to be measured, of which some may be back
	lived    map[string]time.Duration // how long the jobs without a definition had one
	bytes    map[string]int64         // what their nodes take, once that is measured
	total    int64                    // of bytes
	shortest []leftover               // those of bytes that may be forgotten, the shortest life first
	clearing string                   // the job that is being forgotten; empty: none
}

type leftover struct {
	name  string
	lived time.Duration
}

func (l leftover) compare(o leftover) int {
	return cmp.Or(cmp.Compare(l.lived, o.lived), strings.Compare(l.name, o.name))
}

func newLeftovers(limit int64) *leftovers {
	return &leftovers{limit: limit, wake: make(chan struct{}, 1), made: make(map[string]time.Time), lived: make(map[string]time.Duration), bytes: make(map[string]int64)}
}

// create notes that this process has made the job.
func (l *leftovers) create(name string) {
	if l.limit > 0 {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.made[name] = time.Now()
	}
}

// gone notes that the job has no definition any more.
func (l *leftovers) gone(name string) {
	if l.limit == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, known := l.lived[name]; known || name == l.clearing {
		return
	}
	l.lived[name] = stays
	if made, ok := l.made[name]; ok {
		l.lived[name] = time.Since(made)
	}
	l.queue = append(l.queue, name)
	notify(l.wake)
}

// back notes that the job has a definition. It reports false if the job is being forgotten:
// it may come back when that is done.
func (l *leftovers) back(name string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if name == l.clearing {
		return false
	}
	l.drop(name)
	return true
}

// drop takes a job out of the account. mu is held.
func (l *leftovers) drop(name string) {
	if i, found := slices.BinarySearchFunc(l.shortest, leftover{name, l.lived[name]}, leftover.compare); found {
		l.shortest = slices.Delete(l.shortest, i, i+1)
	}
	l.total -= l.bytes[name]
	delete(l.bytes, name)
	delete(l.lived, name)
}

// unmeasured is a job whose nodes are to be measured; false if there is none.
func (l *leftovers) unmeasured() (name string, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.queue) > 0 {
		name, l.queue = l.queue[0], l.queue[1:]
		_, left := l.lived[name]
		if _, measured := l.bytes[name]; left && !measured {
			return name, true
		}
	}
	l.queue = nil
	return "", false
}

// measured notes what the nodes of a job take that unmeasured has returned.
func (l *leftovers) measured(name string, bytes int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	lived, left := l.lived[name]
	if _, again := l.bytes[name]; !left || again {
		return
	}
	l.bytes[name] = bytes
	l.total += bytes
	if lived < stays {
		at, _ := slices.BinarySearchFunc(l.shortest, leftover{name, lived}, leftover.compare)
		l.shortest = slices.Insert(l.shortest, at, leftover{name, lived})
	}
}

// beyond is a job that is to be forgotten, which the caller ends with cleared; false if
// there is none.
func (l *leftovers) beyond() (name string, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.total <= l.limit || len(l.shortest) == 0 {
		return "", false
	}
	l.clearing = l.shortest[0].name
	return l.clearing, true
}

// cleared notes that the job was forgotten, or that it stays.
func (l *leftovers) cleared(name string, forgotten bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.clearing = ""
	if forgotten {
		l.drop(name)
		delete(l.made, name)
		return
	}
	bytes := l.bytes[name]
	l.drop(name)
	l.lived[name], l.bytes[name] = stays, bytes
	l.total += bytes
}

// clear keeps the jobs without a definition within their limit until ctx is done.
func (t *term) clear(ctx context.Context) {
	left := t.host.left
	jobs := registry.Children(tree.JobsPath(t.host.cfg.Namespace))
	if n, err := t.registry.Read(ctx, jobs); err == nil {
		for _, name := range n[0].Names {
			if _, wanted := t.host.wanted()[name]; !wanted {
				left.gone(name)
			}
		}
	}
	forgotten, say := 0, rate.Sometimes{Interval: time.Minute}
	for {
		select {
		case <-left.wake:
		case <-ctx.Done():
			return
		}
		for name, ok := left.unmeasured(); ok && ctx.Err() == nil; name, ok = left.unmeasured() {
			bytes, err := operate.Size(ctx, t.registry, tree.NewLayout(t.host.cfg.Namespace, name))
			if err == nil {
				left.measured(name, bytes)
			}
			for over, ok := left.beyond(); ok; over, ok = left.beyond() {
				if t.clearJob(ctx, over) {
					forgotten++
				}
			}
		}
		if forgotten > 0 {
			say.Do(func() {
				t.host.log.Warn("the registry in this process keeps no more of jobs without a definition; those that had one for the shortest time were forgotten",
					zap.Int("jobs", forgotten), zap.Int64("keepsBytes", left.limit))
				forgotten = 0
			})
		}
	}
}

// clearJob forgets a job. It reports false if the job stays.
func (t *term) clearJob(ctx context.Context, name string) bool {
	err := operate.ForgetUnused(ctx, t.registry, tree.NewLayout(t.host.cfg.Namespace, name))
	gone := err == nil || errors.Is(err, tree.ErrRemoved)
	if err != nil && !errors.Is(err, operate.ErrStays) {
		t.host.log.Debug("a job without a definition could not be forgotten", zap.String("job", name), zap.Error(err))
	}
	if gone {
		t.host.dropFormer(name)
		t.mu.Lock()
		delete(t.joins, name)
		delete(t.owed, name)
		t.mu.Unlock()
	}
	t.host.left.cleared(name, gone)
	select {
	case t.cleared <- name: // it may be wanted again
	case <-ctx.Done():
	}
	return gone
}
