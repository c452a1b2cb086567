package history

import (
	"time"

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
	runs map[string]*tail
	held int // bytes, of all runs
}

// tail is what there is of one run.
type tail struct {
	// free is how many bytes may pass; at is when that was filled.
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

// release writes what is held back of a run.
func (t *tails) release(one *tail, write func(*Line)) {
	for i, l := range one.held {
		if i == 0 {
			l.Gap = one.gap
		}
		write(l)
	}
	t.held -= one.size
	one.held, one.size, one.gap = nil, 0, 0
}

// ended writes the end of the log of a run that the event ends; it may end none.
func (t *tails) ended(e *event.Event, write func(*Line)) {
	id := ""
	switch e.Kind {
	case event.ItemEnded:
		id = e.RunID
	case event.Listener:
		f := Fire{Job: e.Job, Instant: e.Instant, Trigger: e.Trigger}
		id = f.runID(listenerItem)
	}
	if one := t.runs[id]; one != nil {
		t.release(one, write)
		delete(t.runs, id)
	}
}

// listenerItem is the item of what a listener logs.
const listenerItem = -1

// due writes what was held back for long enough, and forgets runs that do not log.
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

// end writes all that is held back.
func (t *tails) end(write func(*Line)) {
	for id, one := range t.runs {
		t.release(one, write)
		delete(t.runs, id)
	}
}
