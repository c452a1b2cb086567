package lines

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/event"
	"github.com/wasmjob/wasmjob/host/history"
)

// Records that are too old for the index are read from the file and its segments, one
// segment at a time. A run that began in one segment may have ended in a later one, which
// is looked up. Records are not quite in the order of their times: those at the begin of a file that
// may belong before some of the file before are taken for that one's, and so the files' times do not overlap.

// lookTime is how long a query goes on reading while its page is not full; then it
// answers with what it has.
const lookTime = 250 * time.Millisecond

// older has files read by one query at a time: a segment takes much memory. It keeps the
// last one for a while, for the next page.
type older struct {
	one  chan struct{} // has room for one
	look time.Duration // how long a query goes on reading

	mu    sync.Mutex // guards what is below
	key   string
	index *index
	timer *time.Timer // forgets index
}

// keptFor is how long the segment of a page is kept.
const keptFor = 20 * time.Second

// last is the index that was kept under a key; nil if it was not.
func (o *older) last(key string) *index {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.key != key {
		return nil
	}
	return o.index
}

// keep keeps an index.
func (o *older) keep(key string, x *index) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.key, o.index = key, x
	if o.timer == nil {
		o.timer = time.AfterFunc(keptFor, o.forget)
		return
	}
	o.timer.Reset(keptFor)
}

func (o *older) forget() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.key, o.index = "", nil
	if o.timer != nil {
		o.timer.Stop()
	}
}

// source is a list as it is asked.
type source[T, R any] struct {
	list  byte
	of    func(*index) *timeline[T]
	match func(*history.Filter, *T) (R, bool)
}

// query asks the index, and the files for what is older.
func query[T, R any](ctx context.Context, s *Store, f history.Filter, src source[T, R]) (history.Page[R], error) {
	if err := f.Check(); err != nil {
		return history.Page[R]{}, err
	}
	w, err := windowOf(&f, src.list)
	if err != nil {
		return history.Page[R]{}, err
	}
	select {
	case <-s.seeded:
	case <-ctx.Done():
		return history.Page[R]{}, ctx.Err()
	}
	p := newPage[R](&f, src.list)
	match := func(record *T) (R, bool) { return src.match(&f, record) }
	recent := func(w window) bool {
		s.index.mu.RLock()
		defer s.index.mu.RUnlock()
		return collect(src.of(s.index), p, w, f.Oldest, match)
	}
	floor, some := s.floor(&f, src.list)
	if !some {
		recent(w)
		return p.Page, nil
	}
	floor.ID = lastID // of what has one time all or nothing is asked of the files, which number it
	above, below := w, w
	above.above(floor)
	below.below(floor)
	if !f.Oldest && !recent(above) {
		return p.Page, nil
	}
	more, err := files(ctx, s, &f, src, p, below, match)
	if err == nil && more && f.Oldest {
		recent(above)
	}
	return p.Page, err
}

// floor is the newest position of which the index may not have all; some is false if it has
// all that there is.
func (s *Store) floor(f *history.Filter, list byte) (floor history.Position, some bool) {
	x := s.index
	x.mu.RLock()
	defer x.mu.RUnlock()
	switch list {
	case history.ListFires:
		floor = x.fires.floor
	case history.ListRuns:
		floor = x.runs.floor
	case history.ListEvents:
		floor = x.events.floor
	case history.ListLines:
		floor = x.lines.floor
	case history.ListChanges:
		floor = x.changes.floor
	}
	if s.path == "" || floor == (history.Position{}) {
		return floor, false
	}
	if f.Running && (list == history.ListFires || list == history.ListRuns) { // the index keeps what runs
		return floor, false
	}
	if job, ok := f.OnlyJob(); ok && (list == history.ListFires || list == history.ListRuns) {
		// Of a job nothing is newer than its newest fire, which is kept.
		if newest := x.newest[job]; newest != nil && newest.at.Before(floor) {
			floor = history.Position{Time: newest.at.Time - 1}
		}
	}
	return floor, true
}

// lastID is behind the ids of all records of one time.
const lastID = "\xff"

// segmentFile is a file of a history, with the time of its first record.
type segmentFile struct {
	name  string
	first history.Position
}

// border is a position of no record: what is taken for records of the file comes after it, what is
// taken for records of the one before comes before it.
func (f *segmentFile) border() history.Position {
	return history.Position{Time: f.first.Time + int64(disorder) - 1, ID: lastID}
}

// files are all files that have records, oldest first.
func (s *Store) files() ([]segmentFile, error) {
	names, err := Segments(s.path)
	if err != nil {
		return nil, err
	}
	var list []segmentFile
	for _, name := range append(names, s.path) {
		at, some, err := firstTime(name)
		if err != nil {
			return nil, err
		}
		if some {
			list = append(list, segmentFile{name, history.PositionOf(at, "")})
		}
	}
	return list, nil
}

// firstTime is the time of the first record of a file; some is false if it has none.
func firstTime(name string) (at time.Time, some bool, err error) {
	f, err := OpenFile(name)
	if errors.Is(err, os.ErrNotExist) {
		return at, false, nil
	}
	if err != nil {
		return at, false, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	lines := bufio.NewReader(f)
	for {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return at, false, nil
		}
		if err != nil {
			return at, false, err
		}
		var r history.Record
		if json.Unmarshal(line, &r) == nil {
			return r.Time(), true, nil
		}
	}
}

// files collects from the files what is in the window. more is false if the page is full,
// or time is up.
func files[T, R any](ctx context.Context, s *Store, f *history.Filter, src source[T, R], p *page[R], w window, match func(*T) (R, bool)) (more bool, err error) {
	select {
	case s.older.one <- struct{}{}:
		defer func() { <-s.older.one }()
	case <-ctx.Done():
		return false, ctx.Err()
	}
	list, err := s.files()
	if err != nil {
		return false, err
	}
	order := make([]int, len(list))
	for i := range order {
		order[i] = i
	}
	if !f.Oldest {
		slices.Reverse(order)
	}
	end := time.Now().Add(s.older.look)
	for _, i := range order {
		last := i+1 == len(list)
		newer := w.hasHigh && i > 0 && !list[i].border().Before(w.high)
		older := !last && !w.low.Before(list[i+1].border())
		if newer || older {
			continue
		}
		if ctx.Err() != nil {
			return false, ctx.Err()
		}
		x, err := s.read(ctx, list, i, f, src.list, end)
		if err != nil {
			return false, err
		}
		if !collect(src.of(x), p, w, f.Oldest, match) {
			return false, nil
		}
		if time.Now().After(end) && pause(p, f, list, i, w) {
			return false, nil
		}
	}
	return true, nil
}

// pause ends a page after a file: the next one goes on behind it. It returns false if there is
// nothing behind it, or if the next page would be this one again.
func pause[R any](p *page[R], f *history.Filter, list []segmentFile, i int, w window) bool {
	next, rest := list[i].border(), w
	switch {
	case f.Oldest && i+1 < len(list):
		next = list[i+1].border()
		rest.above(next)
	case !f.Oldest && i > 0:
		rest.below(next)
	}
	if rest == w || (rest.hasHigh && !rest.low.Before(rest.high)) {
		return false
	}
	p.Next = next.Cursor(p.list)
	return true
}

// read makes an index of what began in a file, within its borders. What has not ended there is looked up in
// later ones, until the end of the query's time.
func (s *Store) read(ctx context.Context, list []segmentFile, i int, f *history.Filter, kind byte, end time.Time) (*index, error) {
	// The file itself, and what runs in the one before it, changes.
	settled := i+2 < len(list)
	job, _ := f.OnlyJob()
	key := fmt.Sprint(list[i].first.Time, " ", string(kind), " ", job)
	if x := s.older.last(key); settled && x != nil {
		return x, nil
	}
	x, err := s.readAll(ctx, list, i, f, kind, end)
	if err == nil && settled {
		s.older.keep(key, x)
	}
	return x, err
}

func (s *Store) readAll(ctx context.Context, list []segmentFile, i int, f *history.Filter, kind byte, end time.Time) (*index, error) {
	own := behindHead
	if i == 0 {
		own = wholeFile
	}
	found, err := entries(list[i].name, own, wanted(f, kind))
	if err != nil {
		return nil, err
	}
	if i+1 < len(list) {
		head, err := entries(list[i+1].name, headOfFile, wanted(f, kind))
		if err != nil {
			return nil, err
		}
		found = append(found, head...)
	}
	x := newIndex(1 << 60)
	x.partial = i > 0
	x.add(found)
	if kind != history.ListRuns && kind != history.ListFires {
		return x, nil
	}
	x.closed = true
	last := lastTime(found)
	soon := last.Add(-completion)
	for n, later := range list[i+1:] {
		if later.first.Time > last.Add(completion).UnixNano() {
			soon = time.Unix(1<<40, 0) // what has not been completed by now will not be
		}
		wanted := x.open(kind, soon)
		late := n > 0 && time.Now().After(end)
		if wanted == nil || late || ctx.Err() != nil {
			break
		}
		found, err := entries(later.name, wholeFile, wanted)
		if err != nil {
			return nil, err
		}
		x.add(found)
	}
	return x, nil
}

// completion is how long after its end a run's completion may be reported.
const completion = time.Minute

func lastTime(list []history.Entry) time.Time {
	if len(list) == 0 {
		return time.Time{}
	}
	return list[len(list)-1].Time()
}

// open selects the lines about what has not ended or may have another attempt, and about runs that
// ended well after a time and were not completed; nil if there is nothing of that.
func (x *index) open(kind byte, soon time.Time) func(line []byte) bool {
	if kind == history.ListFires {
		if !slices.ContainsFunc(x.fires.list, func(e entry[*fire]) bool { return e.record.unfinished() }) {
			return nil
		}
		return func(line []byte) bool { return ofList(kind, event.Kind(kindOf(line))) }
	}
	var runs [][]byte
	for id, r := range x.byID {
		if !r.Ended.IsZero() && (r.Completed || (r.Outcome == abi.OutcomeOK && r.Ended.Before(soon))) {
			continue
		}
		if name, err := json.Marshal(id); err == nil {
			runs = append(runs, name)
		}
	}
	if len(runs) == 0 {
		return nil
	}
	const few = 10
	return func(line []byte) bool {
		of := kindOf(line)
		return ofList(kind, event.Kind(of)) && (len(runs) > few || aboutGone(of) || slices.ContainsFunc(runs, func(id []byte) bool { return bytes.Contains(line, id) }))
	}
}

const kindKey = `"kind":"`

// kindOf is the kind of a line's record; empty if it is not where it should be.
func kindOf(line []byte) string {
	head := line[:min(len(line), 120)]
	i := bytes.Index(head, []byte(kindKey))
	if i < 0 {
		return ""
	}
	kind, _, found := strings.Cut(string(head[i+len(kindKey):]), `"`)
	if !found {
		return ""
	}
	return kind
}

// wanted selects the lines that a list is made of, and that the filter's job may be in.
func wanted(f *history.Filter, list byte) func([]byte) bool {
	var job []byte
	if only, ok := f.OnlyJob(); ok {
		if name, err := json.Marshal(only); err == nil {
			job = append([]byte(`"job":`), name...)
		}
	}
	return func(line []byte) bool {
		kind := kindOf(line)
		return (kind == "" || ofList(list, event.Kind(kind))) && (job == nil || bytes.Contains(line, job) || aboutGone(kind))
	}
}

// aboutGone is history.AboutGone, by a line's kind.
func aboutGone(kind string) bool { return history.AboutGone(event.Event{Kind: event.Kind(kind)}) }

// ofList reports whether records of a kind make a list.
func ofList(list byte, kind event.Kind) bool {
	switch list {
	case history.ListLines:
		return kind == history.KindLine
	case history.ListChanges:
		return kind == history.KindChange
	case history.ListEvents:
		return kind != history.KindLine && kind != history.KindChange
	case history.ListFires:
		return strings.HasPrefix(string(kind), "item.") || strings.HasPrefix(string(kind), "fire.") || aboutGone(string(kind))
	}
	return strings.HasPrefix(string(kind), "item.") || aboutGone(string(kind))
}
