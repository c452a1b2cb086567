package verify

import (
	"bufio"
	"container/heap"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/wasmjob/wasmjob/host/event"
	"github.com/wasmjob/wasmjob/host/history/jsonl"
)

// longestLine bounds what is kept of one line: an event of a fire of very many
// items is long, a damaged file may be one line.
const longestLine = 64 << 20

// Files checks the history files of all hosts. Each path is one host's file; its
// segments are read with it, and may also be named. It fails if a file cannot
// be read or holds no event at all. Lines that are no events, and last lines
// without their newline, are passed over and counted.
func Files(ctx context.Context, o Options, paths ...string) (*Report, error) {
	return Histories(ctx, o, nil, paths...)
}

// Histories is Files with histories in databases as well. A database is read twice: what each process wrote last is found first.
func Histories(ctx context.Context, o Options, databases []Database, paths ...string) (*Report, error) {
	var streams merge
	defer func() {
		for _, s := range streams {
			s.close()
		}
	}()
	c := New(o)
	seen := make(map[string]bool)
	for _, path := range paths {
		if err := jsonl.CheckFile(path); err != nil {
			return nil, fmt.Errorf("%w; sqlite:PATH names a database", err)
		}
		path = filepath.Clean(path)
		if base := jsonl.Base(path); base != path {
			if _, err := os.Stat(base); err == nil {
				path = base
			}
		}
		if seen[jsonl.Base(path)] {
			continue
		}
		seen[jsonl.Base(path)] = true
		c.report.Files = append(c.report.Files, path)
		s := &stream{name: path, report: &c.report}
		ok, err := s.begin()
		if err != nil {
			s.close()
			return nil, err
		}
		if !ok {
			return nil, fmt.Errorf("%s: no event in it; expected a file that a host wrote with --history", path)
		}
		streams = append(streams, s)
	}
	for _, from := range databases {
		if seen[from.Name()] {
			continue
		}
		seen[from.Name()] = true
		c.report.Files = append(c.report.Files, from.Name())
		s := &stream{name: from.Name(), report: &c.report}
		var err error
		if s.pages, err = newPages(ctx, from); err != nil {
			return nil, err
		}
		ok, err := s.next()
		if err != nil {
			return nil, err
		}
		if !ok {
			return nil, fmt.Errorf("%s: no event in it; expected a history that hosts wrote with --history", from.Name())
		}
		streams = append(streams, s)
	}
	heap.Init(&streams)
	for n := 0; len(streams) > 0; n++ {
		if n%4096 == 0 && ctx.Err() != nil {
			return nil, ctx.Err()
		}
		s := streams[0]
		source := s.source()
		c.add(s.event, s.at, source)
		if s.last(source) {
			c.End(source)
		}
		ok, err := s.next()
		switch {
		case err != nil:
			return nil, err
		case ok:
			heap.Fix(&streams, 0)
		default:
			s.close()
			heap.Pop(&streams)
			if s.pages == nil {
				c.End(s.name)
			}
		}
	}
	slices.Sort(c.report.Files)
	return c.Finish(), nil
}

// merge is a heap of streams by the time of their next event.
type merge []*stream

func (m merge) Len() int           { return len(m) }
func (m merge) Less(i, k int) bool { return m[i].when.Before(m[k].when) }
func (m merge) Swap(i, k int)      { m[i], m[k] = m[k], m[i] }
func (m *merge) Push(x any) {
	if s, ok := x.(*stream); ok {
		*m = append(*m, s)
	}
}
func (m *merge) Pop() any {
	last := len(*m) - 1
	s := (*m)[last]
	*m = (*m)[:last]
	return s
}

// stream reads a history, its segments first.
type stream struct {
	name   string
	report *Report

	rest  []string // files that are still to be read
	file  io.ReadCloser
	lines *bufio.Reader
	place Place
	pages *pages // of a database; nil: it is a file

	event event.Event
	at    Place
	when  time.Time // of the event, and never before the one before it
}

// begin finds the files and reads the first event.
func (s *stream) begin() (bool, error) {
	older, err := jsonl.Segments(s.name)
	if err != nil {
		return false, err
	}
	s.rest = append(older, s.name)
	return s.next()
}

// source names who wrote the event: a file has one process after the other, a database has several at once.
func (s *stream) source() string {
	if s.pages == nil {
		return s.name
	}
	return s.name + " " + event.ProcessOf(s.event.Host)
}

// last reports whether the event is the last one that its process wrote to a database. It is called once for each event.
func (s *stream) last(source string) bool {
	if s.pages == nil {
		return false
	}
	process := strings.TrimPrefix(source, s.name+" ")
	s.pages.left[process]--
	return s.pages.left[process] == 0
}

// nextOfDatabase is next for a database. Its events are numbered in their order.
func (s *stream) nextOfDatabase() (ok bool, err error) {
	if s.event, ok, err = s.pages.next(); !ok {
		return false, err
	}
	s.at = Place{File: s.name, Line: s.pages.read}
	if s.event.Time.After(s.when) {
		s.when = s.event.Time
	}
	return true, nil
}

// next reads the next event. It reports false at the end.
func (s *stream) next() (bool, error) {
	if s.pages != nil {
		return s.nextOfDatabase()
	}
	for {
		if s.file == nil {
			if ok, err := s.open(); !ok {
				return false, err
			}
		}
		line, whole, err := readLine(s.lines)
		if err != nil && !errors.Is(err, io.EOF) {
			return false, fmt.Errorf("reading %s: %w", s.place.File, err)
		}
		if err != nil { // what is there of a last line is what a crash left, or is being written
			s.close()
			continue
		}
		s.place.Line++
		s.event = event.Event{}
		if !whole || s.event.UnmarshalJSON(line) != nil || s.event.Kind == "" {
			s.report.BadLines++
			continue
		}
		if s.at = s.place; s.event.Time.After(s.when) {
			s.when = s.event.Time
		}
		return true, nil
	}
}

// open opens the next file of the stream. It reports false if there is none.
func (s *stream) open() (bool, error) {
	for len(s.rest) > 0 {
		name := s.rest[0]
		s.rest = s.rest[1:]
		f, err := jsonl.OpenFile(name)
		if errors.Is(err, os.ErrNotExist) && (len(s.rest) > 0 || s.lines != nil) {
			continue
		}
		if err != nil {
			return false, err
		}
		s.file, s.place = f, Place{File: name}
		if s.lines == nil {
			s.lines = bufio.NewReaderSize(f, 256<<10)
		} else {
			s.lines.Reset(f)
		}
		return true, nil
	}
	return false, nil
}

func (s *stream) close() {
	if s.file != nil {
		_ = s.file.Close() // it was only read
		s.file = nil
	}
}

// readLine reads a line with its newline. whole is false if it was too long to
// be kept. The bytes are valid until the next call.
func readLine(r *bufio.Reader) (line []byte, whole bool, err error) {
	line, err = r.ReadSlice('\n')
	if !errors.Is(err, bufio.ErrBufferFull) {
		return line, true, err
	}
	long := slices.Clone(line)
	for errors.Is(err, bufio.ErrBufferFull) {
		line, err = r.ReadSlice('\n')
		if len(long) <= longestLine {
			long = append(long, line...)
		}
	}
	return long, len(long) <= longestLine, err
}
