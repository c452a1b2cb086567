package login

import (
	"context"
	"time"
)

// busy is when to come back to a lane that is full.
const busy = 2 * time.Second

// lane lets one through at a time, and a bounded number wait.
type lane struct {
	free    chan struct{} // has a value while the lane is free
	waiting chan struct{} // has a value for each that waits
}

func newLane() *lane {
	l := &lane{free: make(chan struct{}, 1), waiting: make(chan struct{}, maxQueue)}
	l.free <- struct{}{}
	return l
}

// enter waits for the lane; leave gives it back.
func (l *lane) enter(ctx context.Context) (leave func(), err error) {
	select {
	case l.waiting <- struct{}{}:
	default:
		return nil, later(busy, "too many sign in at the same time")
	}
	defer func() { <-l.waiting }()
	select {
	case <-l.free:
		return func() { l.free <- struct{}{} }, nil
	case <-ctx.Done():
		return nil, later(busy, "the request has ended")
	}
}
