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
	kept := l.list[:0]
	for i := range l.list {
		e := &l.list[i]
		if l.bytes <= most || (keep != nil && keep(&e.record)) {
			kept = append(kept, *e)
			continue
		}
		l.bytes -= e.size
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

// bounds are the part of the list that the filter's times and cursor leave.
func (l *timeline[T]) bounds(f *history.Filter, list byte) (from, to int, err error) {
	to = len(l.list)
	if !f.From.IsZero() {
		from = l.search(history.PositionOf(f.From, ""))
	}
	if !f.To.IsZero() {
		to = l.search(history.PositionOf(f.To, ""))
	}
	p, some, err := history.ParseCursor(list, f.After)
	if err != nil || !some {
		return from, to, err
	}
	at := l.search(p)
	if f.Oldest {
		if at < len(l.list) && l.list[at].at == p {
			at++
		}
		return max(from, at), to, nil
	}
	return from, min(to, at), nil
}

// find collects a page of what matches, in the filter's order.
func find[T, R any](l *timeline[T], f *history.Filter, list byte, match func(*T) (R, bool)) (history.Page[R], error) {
	page := history.Page[R]{Records: []R{}}
	from, to, err := l.bounds(f, list)
	if err != nil {
		return page, err
	}
	var last history.Position
	for n := range max(to-from, 0) {
		i := from + n
		if !f.Oldest {
			i = to - 1 - n
		}
		record, ok := match(&l.list[i].record)
		if !ok {
			continue
		}
		if len(page.Records) == f.Limit {
			page.Next = last.Cursor(list)
			break
		}
		page.Records = append(page.Records, record)
		last = l.list[i].at
	}
	return page, nil
}
