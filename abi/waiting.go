package abi

import "context"

type waitingKey struct{}

// WithWaiting returns a context for [Executor.NewWorker]. If there is no memory at the moment,
// NewWorker calls begin before it waits, and the function that begin returns when the wait is
// over, whatever came of it. So the caller can leave to others meanwhile what they need to give
// memory back. NewWorker calls them on the caller's goroutine, once for each wait.
func WithWaiting(ctx context.Context, begin func() (end func())) context.Context {
	return context.WithValue(ctx, waitingKey{}, begin)
}

// Waiting is what [WithWaiting] has given the context; nil if it was not called.
func Waiting(ctx context.Context) (begin func() (end func())) {
	begin, _ = ctx.Value(waitingKey{}).(func() func())
	return begin
}
