package zookeeper

import (
	"container/list"
	"context"
	"sync"

	"github.com/wasmjob/wasmjob/coordination/registry"
)

// mostReads is how many reads of a session are on their way at once. More would only wait in the connection and
// in the server, where none can go before another. Over a round trip of 1 ms they are 256,000 a second; a server
// answers fewer.
const mostReads = 256

// places are those of a session's reads: mostReads have one, the others wait. Of those that wait, urgent ones and
// others go in turn, each in the order in which they came. It is safe for concurrent use.
type places struct {
	mu      sync.Mutex
	free    int
	waiting [2]list.List // of chan struct{}; those of urgent reads, and of others
	turn    int          // which of the two goes next
}

func newPlaces(n int) *places { return &places{free: n} }

// enter waits for a place, which leave gives back. It gives up when ctx is done, or the session is over.
func (p *places) enter(ctx context.Context, l *life) error {
	p.mu.Lock()
	if p.free > 0 { // then none waits
		p.free--
		p.mu.Unlock()
		return nil
	}
	line := &p.waiting[1]
	if registry.IsUrgent(ctx) {
		line = &p.waiting[0]
	}
	given := make(chan struct{})
	at := line.PushBack(given)
	p.mu.Unlock()
	err := error(nil)
	select {
	case <-given:
		return nil
	case <-ctx.Done():
		err = ctx.Err()
	case <-l.lost:
		err = l.over()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-given: // just now
		p.pass()
	default:
		line.Remove(at)
	}
	return err
}

// leave gives a place back.
func (p *places) leave() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pass()
}

// pass gives a place to the next. p.mu is held.
func (p *places) pass() {
	for range p.waiting {
		line := &p.waiting[p.turn]
		p.turn = 1 - p.turn
		if first := line.Front(); first != nil {
			close(line.Remove(first).(chan struct{}))
			return
		}
	}
	p.free++
}
