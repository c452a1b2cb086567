package lines

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/wasmjob/wasmjob/host/event"
	"github.com/wasmjob/wasmjob/host/history"
)

// index has recent records in memory. Of what does not fit the oldest go, but for the
// newest fire of each job. It is safe for concurrent use.
type index struct {
	bytes int // what each of the four may take

	mu      sync.RWMutex
	events  timeline[event.Event]
	lines   timeline[history.Line]
	changes timeline[history.Change]
	fires   timeline[*fire]
	byKey   map[history.FireKey]*fire
	runs    timeline[*history.Run]
	byID    map[string]*history.Run
	newest  map[string]*fire // by job
	// partial is set while records are added before which there are others: what began
	// before is left out.
	partial bool
	torn    bool // some fire is
	// closed is set when nothing is listed any more that begins, but what becomes of it is.
	closed bool
}

// fire is what is known of one.
type fire struct {
	torn  bool // a run is missing
	at    history.Position
	parts []history.Part       // by host
	runs  map[int]*history.Run // by item
}

func (x *fire) job() string {
	for _, r := range x.runs {
		return r.Job
	}
	for i := range x.parts {
		return x.parts[i].Job
	}
	return ""
}

// unfinished reports whether the end of a part is missing.
func (x *fire) unfinished() bool {
	return slices.ContainsFunc(x.parts, func(p history.Part) bool { return p.Ended.IsZero() })
}

// has reports whether it is known that an item began, or is to begin: of its run more may be missing.
func (x *fire) has(item int) bool {
	return slices.ContainsFunc(x.parts, func(p history.Part) bool { return slices.Contains(p.Items, item) })
}

// open reports whether an item runs, or is to run yet.
func (x *fire) open() bool {
	for _, r := range x.runs {
		if r.Ended.IsZero() {
			return true
		}
	}
	return x.unfinished()
}

// sum is the fire as it is shown.
func (x *fire) sum() history.Fire {
	runs := make([]history.Run, 0, len(x.runs))
	for _, r := range x.runs {
		runs = append(runs, *r)
	}
	return history.Sum(x.parts, runs)
}

// sizeOfRun and sizeOfFire are about what one takes, in bytes.
const sizeOfRun, sizeOfFire = 700, 600

func newIndex(bytes int) *index {
	return &index{bytes: bytes / 4, byKey: make(map[history.FireKey]*fire), byID: make(map[string]*history.Run), newest: make(map[string]*fire)}
}

// add takes the records of a batch.
func (x *index) add(batch []history.Entry) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for i := range batch {
		x.one(batch[i].Record, len(batch[i].JSON))
	}
	x.events.trim(x.bytes, nil, nil)
	x.lines.trim(x.bytes, nil, nil)
	x.changes.trim(x.bytes, nil, nil)
	known := map[*fire]bool{nil: false} // else it is found out again for each run
	kept := func(f *fire) bool {
		is, found := known[f]
		if !found {
			is = x.newest[f.job()] == f || f.open()
			known[f] = is
		}
		return is
	}
	x.runs.trim(x.bytes, func(r **history.Run) bool { return (*r).Ended.IsZero() || kept(x.byKey[(*r).Key()]) },
		func(e *entry[*history.Run]) { x.forgetRun(e.record) })
	forget := func(e *entry[*fire]) { x.forget(e.record) }
	if x.torn {
		x.fires.drop(func(f **fire) bool { return (*f).torn }, forget)
		x.torn = false
	}
	x.fires.trim(x.bytes, func(f **fire) bool { return kept(*f) }, forget)
}

// seed reads the newest files of a history, as much as the index can hold about. What
// cannot be read is left out.
func (x *index) seed(path string) error {
	older, err := Segments(path)
	if err != nil {
		return err
	}
	var problems []error
	var parts [][]history.Entry // newest first
	left := 2 * x.bytes
	for _, name := range slices.Backward(append(older, path)) {
		if left <= 0 {
			break
		}
		part, err := entries(name, wholeFile, nil)
		if err != nil {
			problems = append(problems, err)
		}
		for _, e := range part {
			left -= len(e.JSON)
		}
		parts = append(parts, part)
	}
	if x.partial = len(parts) <= len(older); x.partial {
		x.setFloor(parts[len(parts)-1])
	}
	for _, part := range slices.Backward(parts) {
		x.add(part)
	}
	x.partial = false
	return errors.Join(problems...)
}

// disorder is by how much records of a file may be in another order than their times.
const disorder = time.Second

// setFloor notes that there are records before those of a file.
func (x *index) setFloor(first []history.Entry) {
	var floor history.Position
	if len(first) > 0 {
		floor = history.PositionOf(first[0].Time().Add(disorder), "")
	}
	x.events.floor, x.lines.floor, x.changes.floor, x.fires.floor, x.runs.floor = floor, floor, floor, floor, floor
}

// part is one of a file.
type part int

// headOfFile are the records at its begin that may belong before some of the file before.
const (
	wholeFile part = iota
	headOfFile
	behindHead
)

// entries reads those records of a file's part whose lines are wanted; nil is all. What is no
// record is passed over; a missing file has none.
func entries(name string, of part, wanted func(line []byte) bool) (list []history.Entry, err error) {
	f, err := OpenFile(name)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	lines := bufio.NewReaderSize(f, 256<<10)
	var long []byte
	var border time.Time
	for begins := of != wholeFile; begins || of != headOfFile; {
		line, err := lines.ReadSlice('\n')
		if errors.Is(err, bufio.ErrBufferFull) {
			long = append(long, line...)
			continue
		}
		if errors.Is(err, io.EOF) {
			return list, nil
		}
		if err != nil {
			return list, fmt.Errorf("reading %s: %w", name, err)
		}
		if len(long) > 0 {
			long = append(long, line...)
			line, long = long, nil
		}
		want := wanted == nil || wanted(line)
		if !want && !begins {
			continue
		}
		line = bytes.Clone(line[:len(line)-1])
		var r history.Record
		if r.UnmarshalJSON(line) != nil {
			continue
		}
		if border.IsZero() {
			border = r.Time().Add(disorder)
		}
		begins = begins && r.Time().Before(border.Add(disorder)) // then all before the border have come
		inHead := begins && r.Time().Before(border)
		if want && (of == wholeFile || inHead == (of == headOfFile)) {
			list = append(list, history.Entry{Record: r, JSON: line})
		}
	}
	return list, nil
}

// overhead is what a record takes in memory besides its texts, in bytes.
const overhead = 500

func (x *index) one(r history.Record, size int) {
	switch {
	case r.Line != nil:
		x.lines.add(r.Line.Time, *r.Line, size+overhead)
	case r.Change != nil:
		x.changes.add(r.Change.Time, *r.Change, size+overhead)
	case r.Event != nil:
		x.events.add(r.Event.Time, *r.Event, size+overhead)
		x.fold(r.Event)
	}
}

// fold changes fires and runs by an event.
func (x *index) fold(e *event.Event) {
	if history.AboutPart(*e) {
		x.foldPart(e)
	}
	if history.AboutRun(*e) {
		x.foldRun(e)
	}
	if history.AboutGone(*e) {
		x.abandon(e)
	}
}

// abandon ends what has not ended of hosts that are over by an event. The file has one host.
func (x *index) abandon(e *event.Event) {
	for _, r := range x.byID {
		r.Abandon(*e, false)
	}
	for _, f := range x.byKey {
		for i := range f.parts {
			f.parts[i].Abandon(*e, false)
		}
	}
}

// begins reports whether there was something before what the index has: what is not
// known to have begun did so there.
func (x *index) begins(floor history.Position) bool {
	return x.partial || floor != (history.Position{})
}

func (x *index) foldPart(e *event.Event) {
	continued := x.closed || (x.begins(x.fires.floor) && e.Kind != event.FireStarted)
	if continued && x.byKey[history.KeyOf(*e)] == nil {
		return
	}
	f := x.fireOf(e)
	i := slices.IndexFunc(f.parts, func(p history.Part) bool { return p.Host == e.Host })
	if i < 0 {
		i = len(f.parts)
		f.parts = append(f.parts, history.Part{})
	}
	f.parts[i].Apply(*e)
}

func (x *index) foldRun(e *event.Event) {
	if r := x.byID[e.RunID]; r != nil && !r.Reused(*e) {
		at := history.PositionOf(r.At(), r.ID)
		r.Apply(*e)
		x.runs.move(at, history.PositionOf(r.At(), r.ID))
		return
	}
	f := x.byKey[history.KeyOf(*e)]
	if x.closed {
		if f != nil {
			r := new(history.Run)
			r.Apply(*e)
			x.byID[e.RunID], f.runs[*e.Item] = r, r
		}
		return
	}
	// What completes without an attempt was killed before it began.
	continued := e.Kind == event.ItemEnded || (e.Kind == event.ItemCompleted && e.Attempt > 0) || (e.Kind == event.ItemStarted && e.Attempt > 1)
	if continued && x.begins(x.runs.floor) && (f == nil || f.reused(e) || !f.has(*e.Item)) {
		return
	}
	r := new(history.Run)
	r.Apply(*e)
	x.byID[e.RunID] = r
	x.runs.put(entry[*history.Run]{history.PositionOf(r.At(), r.ID), r, sizeOfRun})
	if x.partial && f == nil {
		return // its fire began before
	}
	x.fireOf(e).runs[*e.Item] = r
}

// fireOf is the fire of an event, a new one if need be.
func (x *index) fireOf(e *event.Event) *fire {
	key := history.KeyOf(*e)
	f := x.byKey[key]
	if f != nil && !(e.Trigger != 0 && f.reused(e)) {
		return f
	}
	f = &fire{at: history.PositionOf(e.Time, key.Job+"\x00"+strconv.FormatInt(key.Instant, 10)+"\x00"+strconv.FormatInt(key.Trigger, 10)), runs: make(map[int]*history.Run)}
	x.byKey[key] = f
	x.fires.put(entry[*fire]{f.at, f, sizeOfFire})
	if last := x.newest[e.Job]; last == nil || last.at.Before(f.at) {
		x.newest[e.Job] = f
	}
	return f
}

// reused reports whether the event is about another fire whose round has the same number.
func (x *fire) reused(e *event.Event) bool {
	for _, r := range x.runs {
		return r.Reused(*e)
	}
	for _, p := range x.parts {
		r := history.Run{Instant: p.Instant}
		return r.Reused(*e)
	}
	return false
}

func (x *index) forget(f *fire) {
	for key, r := range f.runs {
		if x.byKey[r.Key()] == f {
			delete(x.byKey, r.Key())
		}
		delete(f.runs, key)
	}
	for i := range f.parts {
		if key := f.parts[i].Key(); x.byKey[key] == f {
			delete(x.byKey, key)
		}
	}
}

func (x *index) forgetRun(r *history.Run) {
	if x.byID[r.ID] == r {
		delete(x.byID, r.ID)
	}
	if f := x.byKey[r.Key()]; f != nil && f.runs[r.Item] == r {
		delete(f.runs, r.Item)
		f.torn, x.torn = true, true
	}
}
