package engine

import (
	"maps"
	"slices"
	"time"

	"github.com/wasmjob/wasmjob/coordination/tree"
	"github.com/wasmjob/wasmjob/host/engine/run"
)

// ends are the ends of runs whose completion is not written yet. They are written in groups.
type ends struct {
	of        map[int]run.Ended // by item
	since     time.Time         // when the first of them came, or the last commit left some
	writtenAt time.Time         // when such a group was written last
	overload  overload
}

// hear takes the news that a run is over.
func (e *ends) hear(end run.Ended) {
	if len(e.of) == 0 {
		e.since = time.Now()
	}
	e.of[end.Run.Item] = end
}

// windowEnd is when the items that have ended are completed, whether or not
// others still run.
func (e *ends) windowEnd() time.Time {
	return latest(e.since.Add(e.overload.window(completionWindow)), e.writtenAt.Add(completionInterval))
}

// wakes is that, if there is something to complete.
func (e *ends) wakes(moment) time.Time {
	if len(e.of) == 0 {
		return time.Time{}
	}
	return e.windowEnd()
}

// items are those of the runs that have ended and are not completed, ascending.
func (e *ends) items() tree.Items { return slices.Sorted(maps.Keys(e.of)) }

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
