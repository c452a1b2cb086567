package history

import (
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/event"
)

const (
	// TailBytes is how much of the end of each run's log a store keeps, at least: what a run that
	// logs more than it may has at its end, 64 KiB, and what its host says before and after that.
	TailBytes = 65 << 10

	// tailPause is how often a run that logs on and on writes its newest lines.
	tailPause = time.Minute
	// mostTails bounds the lines that are held back, of all runs together.
	mostTails = 32 << 20
)

// tails keep the last lines of each run: the first of a run pass at once; of one that
// logs more than its budget the newest are held back until the budget is filled again
// or the run ends, so that a store has the end of its log and not all of it. They
// belong to the feed's goroutine.
type tails struct {
	// whole names the file with all lines; empty: unknown.
	whole string
	runs  map[string]*tail
	held  int // bytes, of all runs
}

// tail has the held-back lines of one run.
type tail struct {
	// free is how many bytes may pass; at is when it was last filled.
	free int
	at   time.Time
	held []*Line // oldest first
	size int     // of held
	gap  int64   // lines that were dropped before held
}

// lineSize is the size of a line's texts, and a little for the rest.
func lineSize(l *Line) int {
	const rest = 16
	n := len(l.Message) + rest
	for _, a := range l.Attrs {
		n += len(a)
	}
	return n
}

// add takes a line; write is called with those that are to be written now.
func (t *tails) add(l *Line, now time.Time, write func(*Line)) {
	one := t.runs[l.RunID]
	if one == nil {
		one = &tail{free: TailBytes, at: now}
		t.runs[l.RunID] = one
	}
	if now.Sub(one.at) >= tailPause {
		t.release(one, write)
		one.free, one.at = TailBytes, now
	}
	size := lineSize(l)
	if size <= one.free && len(one.held) == 0 {
		one.free -= size
		write(l)
		return
	}
	one.held = append(one.held, l)
	one.size += size
	t.held += size
	for len(one.held) > 1 && (one.size > TailBytes || t.held > mostTails) {
		size := lineSize(one.held[0])
		one.held[0] = nil
		one.held = one.held[1:]
		one.size -= size
		t.held -= size
		one.gap++
	}
}

// release writes the held-back lines of a run, after a line about those missing before them.
func (t *tails) release(one *tail, write func(*Line)) {
	if one.gap > 0 {
		write(gapLine(one.held[0], one.gap, t.whole))
	}
	for _, l := range one.held {
		write(l)
	}
	t.held -= one.size
	one.held, one.size, one.gap = nil, 0, 0
}

// gapLine says that so many lines of a run are not kept before the next one, and where all are.
func gapLine(next *Line, gap int64, whole string) *Line {
	l := &Line{Time: next.Time, Job: next.Job, RunID: next.RunID, Item: next.Item, Host: next.Host, Level: abi.LevelWarn, Gap: gap,
		Message: "lines are missing here: the history keeps the beginning and the end of a long log"}
	if whole != "" {
		l.Attrs = []string{abi.AttrWholeLog, whole}
	}
	return l
}

// ended writes the end of the log of a run that the event ends; it may end none.
func (t *tails) ended(e *event.Event, write func(*Line)) {
	id := RunEnded(e)
	if one := t.runs[id]; one != nil {
		t.release(one, write)
		delete(t.runs, id)
	}
}

// RunEnded returns the id of the run of which the event ends an attempt; empty if it ends none.
func RunEnded(e *event.Event) string {
	switch e.Kind {
	case event.ItemEnded:
		return e.RunID
	case event.Listener:
		f := Fire{Job: e.Job, Instant: e.Instant, Trigger: e.Trigger}
		return f.runID(listenerItem)
	}
	return ""
}

// listenerItem is the item of a listener's lines.
const listenerItem = -1

// due writes lines held back long enough, and forgets silent runs.
func (t *tails) due(now time.Time, write func(*Line)) {
	for id, one := range t.runs {
		if now.Sub(one.at) < tailPause {
			continue
		}
		if len(one.held) == 0 {
			delete(t.runs, id) // should it log again, it has a whole budget as before
			continue
		}
		t.release(one, write)
		one.free, one.at = TailBytes, now
	}
}

// end writes all held-back lines.
func (t *tails) end(write func(*Line)) {
	for id, one := range t.runs {
		t.release(one, write)
		delete(t.runs, id)
	}
}
