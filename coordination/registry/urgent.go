package registry

import "context"

// urgentKey is the key under which a context says that what is asked with it is urgent.
type urgentKey struct{}

// Urgent returns a context whose reads are served before those that wait in the same session without it, one of
// two: what an operator asks does not wait behind what thousands of jobs ask, and holds none of them up for good.
// A registry whose reads do not wait takes no notice of it. Commits wait for the wire alone.
func Urgent(ctx context.Context) context.Context { return context.WithValue(ctx, urgentKey{}, true) }

// IsUrgent reports whether what is asked with the context is urgent.
func IsUrgent(ctx context.Context) bool { return ctx.Value(urgentKey{}) != nil }

// ForOperators returns the session for what operators ask: its reads are urgent. It is nil if c is.
func ForOperators(c Center) Center {
	if c == nil {
		return nil
	}
	return operators{c}
}

type operators struct{ Center }

func (o operators) Read(ctx context.Context, queries ...Query) ([]Node, error) {
	return o.Center.Read(Urgent(ctx), queries...)
}

func (o operators) Commit(ctx context.Context, ops ...Op) ([]Result, error) {
	return o.Center.Commit(Urgent(ctx), ops...) // it may have to read first
}
