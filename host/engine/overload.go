package engine

import (
	"maps"
	"slices"
	"time"

	"github.com/wasmjob/wasmjob/coordination/tree"
	"github.com/wasmjob/wasmjob/host/engine/run"
)

// ends are the ended runs whose completion is not written yet. The loop writes completions in groups.
type ends struct {
	of        map[int]run.Ended // by item
	since     time.Time         // when the first of them came, or the last commit left some
	writtenAt time.Time         // when such a group was written last
	overload  overload
}

// hear takes the end of a run.
func (e *ends) hear(end run.Ended) {
	if len(e.of) == 0 {
		e.since = time.Now()
	}
	e.of[end.Run.Item] = end
}

// windowEnd returns when the ended items are completed, whether or not others still run.
func (e *ends) windowEnd() time.Time {
	return latest(e.since.Add(e.overload.window(completionWindow)), e.writtenAt.Add(completionInterval))
}

// wakes returns windowEnd if there is something to complete; else zero.
func (e *ends) wakes(moment) time.Time {
	if len(e.of) == 0 {
		return time.Time{}
	}
	return e.windowEnd()
}

// items returns the items whose runs have ended and are not completed, ascending.
func (e *ends) items() tree.Items { return slices.Sorted(maps.Keys(e.of)) }

// overloadLag is how long after its instant an item may start before its job counts as behind.
const overloadLag = 2 * time.Second

// overload makes a job that is behind work with fewer commits. An item that starts so late that it still runs at its next
// instant owes another run. If each run were completed separately, each owed run would also begin separately. Such a run
// costs several times as much as one on time, so that a host that has fallen behind once would stay behind. Therefore the
// ends of runs are collected for longer, and the owed runs begin together. The zero overload is on time.
type overload struct {
	behind bool
	limit  time.Duration // how late an item may start
}

// started records how late the latest item of an ended fire started. period is the time between two instants. It reports
// whether the job fell behind, or is on time again.
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

// window returns how long ended runs wait for others.
func (o *overload) window(normal time.Duration) time.Duration {
	if !o.behind {
		return normal
	}
	return max(o.limit/2, normal)
}

// savesMarks reports whether misfire marks are omitted: this host remembers what its items owe. Java hosts need the
// marks.
func (o *overload) savesMarks(java bool) bool { return o.behind && !java }
