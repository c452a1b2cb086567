package lines

import (
	"slices"
	"sort"
	"strconv"
	"time"

	"github.com/wasmjob/wasmjob/host/history"
)

// timeline has records in the order of their times. It is not safe for concurrent use.
type timeline[T any] struct {
	list  []entry[T] // oldest first
	bytes int
	// floor is the newest position of which it may not have all; the zero Position is none.
	floor history.Position
}

type entry[T any] struct {
	at     history.Position
	record T
	size   int // about what it takes in memory, in bytes
}

// add puts a record behind those of its time. Most are the newest.
func (l *timeline[T]) add(t time.Time, record T, size int) {
	at := history.PositionOf(t, "")
	i := len(l.list)
	for i > 0 && l.list[i-1].at.Time > at.Time {
		i--
	}
	if i > 0 && l.list[i-1].at.Time == at.Time {
		at.ID = following(l.list[i-1].at.ID)
	}
	l.insert(i, entry[T]{at, record, size})
}

// following is the id after that of a record of the same time.
func following(id string) string {
	n, _ := strconv.Atoi(id) // the first has none
	s := strconv.Itoa(n + 1)
	return "0000000000"[min(len(s), 10):] + s
}

// put puts a record where its id has it.
func (l *timeline[T]) put(e entry[T]) {
	i := len(l.list)
	for i > 0 && e.at.Before(l.list[i-1].at) {
		i--
	}
	l.insert(i, e)
}

// move moves the record of a position, if there is one, to another.
func (l *timeline[T]) move(from, to history.Position) {
	i := l.search(from)
	if from == to || i == len(l.list) || l.list[i].at != from {
		return
	}
	e := l.list[i]
	l.list = slices.Delete(l.list, i, i+1)
	l.bytes -= e.size
	e.at = to
	l.put(e)
}

func (l *timeline[T]) insert(i int, e entry[T]) {
	l.list = slices.Insert(l.list, i, e)
	l.bytes += e.size
}

// trim takes out the oldest records, but for those that are to be kept, until the others
// take so many bytes. It goes by whole parts of the list, so that it is seldom called.
func (l *timeline[T]) trim(most int, keep func(*T) bool, gone func(*entry[T])) {
	if l.bytes <= most+most/8 {
		return
	}
	l.drop(func(record *T) bool { return l.bytes > most && (keep == nil || !keep(record)) }, gone)
}

// drop takes out records, the oldest first.
func (l *timeline[T]) drop(out func(*T) bool, gone func(*entry[T])) {
	kept := l.list[:0]
	for i := range l.list {
		e := &l.list[i]
		if !out(&e.record) {
			kept = append(kept, *e)
			continue
		}
		l.bytes -= e.size
		if l.floor.Before(e.at) {
			l.floor = e.at
		}
		if gone != nil {
			gone(e)
		}
	}
	clear(l.list[len(kept):])
	l.list = kept
}

// search is the index of the first record that is not before the position.
func (l *timeline[T]) search(p history.Position) int {
	return sort.Search(len(l.list), func(i int) bool { return !l.list[i].at.Before(p) })
}

// window are the positions that a filter leaves: from low, inclusively, to high,
// exclusively. A zero low, or a high without hasHigh, is no bound.
type window struct {
	low, high history.Position
	hasHigh   bool
}

// windowOf is that of a filter's times and cursor.
func windowOf(f *history.Filter, list byte) (w window, err error) {
	if !f.From.IsZero() {
		w.low = history.PositionOf(f.From, "")
	}
	if !f.To.IsZero() {
		w.below(history.PositionOf(f.To, ""))
	}
	p, some, err := history.ParseCursor(list, f.After)
	if err != nil || !some {
		return w, err
	}
	if f.Oldest {
		w.above(p)
	} else {
		w.below(p)
	}
	return w, nil
}

// below bounds the window by what is before p.
func (w *window) below(p history.Position) {
	if !w.hasHigh || p.Before(w.high) {
		w.high, w.hasHigh = p, true
	}
}

// above bounds the window by what is after p.
func (w *window) above(p history.Position) {
	p.ID += "\x00" // the next one that there may be
	if w.low.Before(p) {
		w.low = p
	}
}

// bounds are the part of the list that is in a window.
func (l *timeline[T]) bounds(w window) (from, to int) {
	to = len(l.list)
	if w.low != (history.Position{}) {
		from = l.search(w.low)
	}
	if w.hasHigh {
		to = l.search(w.high)
	}
	return from, to
}

// page collects what a filter finds, over several parts of a history.
type page[R any] struct {
	history.Page[R]
	list  byte
	limit int
	last  history.Position
}

func newPage[R any](f *history.Filter, list byte) *page[R] {
	return &page[R]{Page: history.Page[R]{Records: []R{}}, list: list, limit: f.Limit}
}

// add adds a record. It returns false if the page is full: then there is a next one.
func (p *page[R]) add(r R, at history.Position) bool {
	if len(p.Records) == p.limit {
		p.Next = p.last.Cursor(p.list)
		return false
	}
	p.Records = append(p.Records, r)
	p.last = at
	return true
}

// collect adds what matches in a window, in the page's order. It returns false if the page is full.
func collect[T, R any](l *timeline[T], p *page[R], w window, oldest bool, match func(*T) (R, bool)) bool {
	from, to := l.bounds(w)
	for n := range max(to-from, 0) {
		i := from + n
		if !oldest {
			i = to - 1 - n
		}
		if record, ok := match(&l.list[i].record); ok && !p.add(record, l.list[i].at) {
			return false
		}
	}
	return true
}
