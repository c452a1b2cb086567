package lines

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"sync"

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
}

// fire is what is known of one.
type fire struct {
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
	x.fires.trim(x.bytes, func(f **fire) bool { return x.newest[(*f).job()] == *f }, func(e *entry[*fire]) { x.forget(e.record) })
	x.runs.trim(x.bytes, func(r **history.Run) bool {
		f := x.byKey[(*r).Key()]
		return f != nil && x.newest[(*r).Job] == f
	}, func(e *entry[*history.Run]) { x.forgetRun(e.record) })
}

// seedBytes is how much of the end of a history an index is made from: as much as it
// can hold.
func (x *index) seedBytes() int64 { return 2 * int64(x.bytes) }

// seed reads the end of a history. What it cannot read is left out.
func (x *index) seed(path string) error {
	older, err := Segments(path)
	if err != nil {
		return err
	}
	var problems []error
	var parts [][]history.Entry // newest first
	left := x.seedBytes()
	for _, name := range slices.Backward(append(older, path)) {
		if left <= 0 {
			break
		}
		part, err := entries(name)
		if err != nil {
			problems = append(problems, err)
		}
		for i := len(part) - 1; i >= 0; i-- {
			if left -= int64(len(part[i].JSON)); left <= 0 {
				part = part[i:]
				break
			}
		}
		parts = append(parts, part)
	}
	for _, part := range slices.Backward(parts) {
		x.add(part)
	}
	return errors.Join(problems...)
}

// entries reads a file. What is no record is passed over; a missing file has none.
func entries(name string) (list []history.Entry, err error) {
	f, err := OpenFile(name)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	lines := bufio.NewReaderSize(f, 64<<10)
	for {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return list, nil
		}
		if err != nil {
			return list, fmt.Errorf("reading %s: %w", name, err)
		}
		var r history.Record
		if json.Unmarshal(line, &r) == nil {
			list = append(list, history.Entry{Record: r, JSON: line[:len(line)-1]})
		}
	}
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
		f := x.fireOf(e)
		i := slices.IndexFunc(f.parts, func(p history.Part) bool { return p.Host == e.Host })
		if i < 0 {
			i = len(f.parts)
			f.parts = append(f.parts, history.Part{})
		}
		f.parts[i].Apply(*e)
	}
	if !history.AboutRun(*e) {
		return
	}
	r := x.byID[e.RunID]
	if r == nil || r.Reused(*e) {
		f := x.fireOf(e)
		r = new(history.Run)
		r.Apply(*e)
		x.byID[e.RunID], f.runs[*e.Item] = r, r
		x.runs.put(entry[*history.Run]{history.PositionOf(r.Begun, r.ID), r, sizeOfRun})
		return
	}
	r.Apply(*e)
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
	}
}
