package plugin

import (
	"context"
	"slices"
	"sync"
	"time"
)

// lane bounds how many modules are compiled at once. Of the waiting ones, the one whose job fires first goes
// first. It is safe for concurrent use.
type lane struct {
	mu      sync.Mutex
	free    int
	waiting []*turn // by due
}

type turn struct {
	due   time.Time
	given chan struct{}
}

func newLane(places int) *lane { return &lane{free: places} }

// enter waits for a place, which leave gives back. due is when the module is needed; the zero time comes last.
// The error is that of ctx.
func (l *lane) enter(ctx context.Context, due time.Time) error {
	l.mu.Lock()
	if l.free > 0 {
		l.free--
		l.mu.Unlock()
		return nil
	}
	t := &turn{due, make(chan struct{})}
	at, _ := slices.BinarySearchFunc(l.waiting, t, func(other, t *turn) int {
		if before(t.due, other.due) {
			return 1
		}
		return -1 // who came first goes first
	})
	l.waiting = slices.Insert(l.waiting, at, t)
	l.mu.Unlock()

	select {
	case <-t.given:
		return nil
	case <-ctx.Done():
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if i := slices.Index(l.waiting, t); i >= 0 {
		l.waiting = slices.Delete(l.waiting, i, i+1)
	} else {
		l.pass() // it was given at the same time
	}
	return ctx.Err()
}

func (l *lane) leave() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pass()
}

// pass gives a place to the next. mu is held.
func (l *lane) pass() {
	if len(l.waiting) == 0 {
		l.free++
		return
	}
	close(l.waiting[0].given)
	l.waiting = slices.Delete(l.waiting, 0, 1)
}

// before orders times; zero means never.
func before(a, b time.Time) bool { return !a.IsZero() && (b.IsZero() || a.Before(b)) }
