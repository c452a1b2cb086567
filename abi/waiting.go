package abi

import "context"

type waitingKey struct{}

// WithWaiting returns a context for [Executor.NewWorker]. If there is no memory at the moment, NewWorker calls
// begin before it waits, and the returned end after the wait, whatever its result. In between the caller can
// give up resources that others need to free memory. NewWorker calls both on the caller's goroutine, once for
// each wait.
func WithWaiting(ctx context.Context, begin func() (end func())) context.Context {
	return context.WithValue(ctx, waitingKey{}, begin)
}

// Waiting returns the function that [WithWaiting] put into the context; nil if there is none.
func Waiting(ctx context.Context) (begin func() (end func())) {
	begin, _ = ctx.Value(waitingKey{}).(func() func())
	return begin
}
