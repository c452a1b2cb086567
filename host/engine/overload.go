package engine

import (
	"time"
)

// overloadLag is how long after its instant an item may start, at most, before
// its job counts as behind.
const overloadLag = 2 * time.Second

// overload has a job that is behind do its work in fewer commits. An item that
// starts so late that it still runs at its next instant owes another run. If each
// is completed by itself, each owed run begins by itself, too: a run costs several
// times what it costs on time, and a host that has fallen behind once stays behind.
// So the ends of runs are collected for longer, and what they owe begins together.
// The zero overload is in time.
type overload struct {
	behind bool
	limit  time.Duration // how late an item may start
}

// started notes how late the latest item of a fire started, when the fire has
// ended. period is the time between two instants. It reports whether the job fell
// behind, or is in time again.
func (o *overload) started(lag, period time.Duration) (changed bool) {
	before := o.behind
	o.limit = overloadLag
	if period > 0 {
		o.limit = min(o.limit, period)
	}
	switch {
	case lag >= o.limit:
		o.behind = true
	case lag < o.limit/2:
		o.behind = false
	}
	return o.behind != before
}

// window is how long ends of runs wait for others.
func (o *overload) window(normal time.Duration) time.Duration {
	if !o.behind {
		return normal
	}
	return max(o.limit/2, normal)
}

// savesMarks reports whether no misfire marks are made: this host remembers what
// its items owe. Java hosts look at the marks.
func (o *overload) savesMarks(java bool) bool { return o.behind && !java }
