// Package lines keeps a host's history in a file: one JSON object per line, in the
// order in which the host reported them. Without a file it keeps what fits into memory.
//
// The history is capped. When the file has grown to its part of the cap it is
// compressed to NAME.1.gz, the next to NAME.2.gz, and so on; the oldest of them go,
// so that all files together stay within the cap.
//
// The history never harms the host: see [history.Feed]. Nothing is flushed to the disk record by
// record, so a crash of the machine (not of the host) may lose the last ones. When the file
// cannot be written, records are dropped and counted, and that is said once. A
// file that is moved away or removed is recreated with the next record.
package lines

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"time"

	"go.uber.org/zap"

	"github.com/wasmjob/wasmjob/host/ceiling"
	"github.com/wasmjob/wasmjob/host/event"
	"github.com/wasmjob/wasmjob/host/history"
)

// Options say where and how much; all of them may be left out.
type Options struct {
	// Path of the file. Its directory must exist. Empty: in memory only.
	Path string
	// MaxBytes bounds the file and its older ones together; 0 is
	// DefaultMaxBytes, less than MinMaxBytes is an error.
	MaxBytes int64
	// Queue, Ceilings, OnOverQuota, WholeLog and Logger are those of [history.FeedOptions]; the
	// logger hears as well when the file cannot be written, and when it can be again.
	Queue       int
	Ceilings    ceiling.List
	OnOverQuota func(job string)
	WholeLog    string
	Logger      *zap.Logger

	index int           // bytes, for tests; 0 is indexBytes
	look  time.Duration // for tests; 0 is lookTime
}

// syncTimeout is how long who asks for changes waits for those that are not written yet.
const syncTimeout = time.Second

// indexBytes is about what recent records may take in memory.
const indexBytes = 32 << 20

// Store is a [history.Store]. It is safe for concurrent use.
type Store struct {
	*history.Feed
	path   string
	writer *writer // nil: in memory only
	log    *zap.Logger
	index  *index
	seeded chan struct{} // closed when the index has what the file has
	older  older
}

var _ history.Store = (*Store)(nil)

// Open opens the file for appending, or makes it, mode 0600. One that another
// host writes is refused. A line that a
// crash cut short is taken off its end. It starts goroutines, which Close
// joins. Until the end of the file is read, queries wait.
func Open(o Options) (*Store, error) {
	if o.MaxBytes == 0 {
		o.MaxBytes = DefaultMaxBytes
	}
	if o.MaxBytes < MinMaxBytes {
		return nil, fmt.Errorf("history: the cap is %d bytes, want at least %d", o.MaxBytes, MinMaxBytes)
	}
	if o.Logger == nil {
		o.Logger = zap.NewNop()
	}
	s := &Store{log: o.Logger, index: newIndex(cmp.Or(o.index, indexBytes)), seeded: make(chan struct{}), older: older{one: make(chan struct{}, 1), look: cmp.Or(o.look, lookTime)}}
	if o.Path != "" {
		path, err := filepath.Abs(o.Path) // the working directory may change
		if err != nil {
			return nil, fmt.Errorf("history: %w", err)
		}
		s.path = path
		if s.writer, err = openWriter("the history file", path, o.MaxBytes, o.Logger); err != nil {
			return nil, fmt.Errorf("history: %w", err)
		}
	}
	feed := history.FeedOptions{Queue: o.Queue, Ceilings: o.Ceilings, OnOverQuota: o.OnOverQuota, WholeLog: o.WholeLog, Logger: o.Logger}
	go s.seed()
	s.Feed = history.NewFeed(feed, s.write)
	return s, nil
}

// Trouble is why the last records could not be written, nil if they could. It
// ends with the next record that is written.
func (s *Store) Trouble() *Trouble {
	if s.writer == nil {
		return nil
	}
	return s.writer.problem.Load()
}

// State implements [history.Store].
func (s *Store) State() history.State {
	state := history.State{Where: s.path, Queued: s.Queued(), Dropped: s.Dropped()}
	if s.path == "" {
		state.Where = "memory"
	}
	if t := s.Trouble(); t != nil {
		state.Problem, state.Since = t.Err.Error(), t.Since
	}
	return state
}

// Close writes what is queued, waits for the goroutine and closes the file.
// Further calls return nil.
func (s *Store) Close() error {
	s.Feed.Close()
	<-s.seeded
	s.older.forget()
	if s.writer == nil {
		return nil
	}
	if err := s.writer.close(); err != nil {
		return fmt.Errorf("history: %w", err)
	}
	return nil
}

// write is called by the feed. What leaves the index has to be in the file by then.
func (s *Store) write(batch []history.Entry) {
	<-s.seeded // or the file's end is read twice
	if s.writer != nil {
		s.writeFile(batch)
	}
	s.index.add(batch)
}

func (s *Store) writeFile(batch []history.Entry) {
	// With lines under half of a part, no write is longer than a part.
	limit := min(batchBytes, s.writer.part/2)
	var text bytes.Buffer
	var first, last time.Time
	count := int64(0)
	for _, e := range batch {
		if !s.writer.fits(e.JSON) { // a fire of very many items
			s.Drop(1)
			s.log.Warn("record does not fit the history file", zap.String("job", e.Job()), zap.Int("bytes", len(e.JSON)))
			continue
		}
		if int64(text.Len()) >= limit {
			s.Drop(s.writer.write(text.Bytes(), count, first, last))
			text.Reset()
			count = 0
		}
		if last = e.Time(); count == 0 {
			first = last
		}
		text.Write(e.JSON)
		text.WriteByte('\n')
		count++
	}
	s.Drop(s.writer.write(text.Bytes(), count, first, last))
}

// Fires implements [history.Store].
func (s *Store) Fires(ctx context.Context, f history.Filter) (history.Page[history.Fire], error) {
	return query(ctx, s, f, source[*fire, history.Fire]{list: history.ListFires, of: func(x *index) *timeline[*fire] { return &x.fires },
		match: func(f *history.Filter, x **fire) (history.Fire, bool) {
			sum := (*x).sum()
			return sum, f.MatchFire(&sum)
		}})
}

// FireOf is the newest fire of that key; ok is false if none is known. It asks nothing of
// the file.
func (s *Store) FireOf(ctx context.Context, key history.FireKey) (fire history.Fire, ok bool) {
	select {
	case <-s.seeded:
	case <-ctx.Done():
		return history.Fire{}, false
	}
	s.index.mu.RLock()
	defer s.index.mu.RUnlock()
	if f := s.index.byKey[key]; f != nil {
		return f.sum(), true
	}
	return history.Fire{}, false
}

// RunOf is the newest run of that id; ok is false if none is known. It asks nothing of
// the file.
func (s *Store) RunOf(ctx context.Context, id string) (run history.Run, ok bool) {
	select {
	case <-s.seeded:
	case <-ctx.Done():
		return history.Run{}, false
	}
	s.index.mu.RLock()
	defer s.index.mu.RUnlock()
	if r := s.index.byID[id]; r != nil {
		return *r, true
	}
	return history.Run{}, false
}

// Runs implements [history.Store].
func (s *Store) Runs(ctx context.Context, f history.Filter) (history.Page[history.Run], error) {
	return query(ctx, s, f, source[*history.Run, history.Run]{list: history.ListRuns, of: func(x *index) *timeline[*history.Run] { return &x.runs },
		match: func(f *history.Filter, r **history.Run) (history.Run, bool) { return **r, f.MatchRun(*r) }})
}

// Events implements [history.Store].
func (s *Store) Events(ctx context.Context, f history.Filter) (history.Page[event.Event], error) {
	return query(ctx, s, f, source[event.Event, event.Event]{list: history.ListEvents, of: func(x *index) *timeline[event.Event] { return &x.events },
		match: func(f *history.Filter, e *event.Event) (event.Event, bool) { return *e, f.MatchEvent(e) }})
}

// Lines implements [history.Store].
func (s *Store) Lines(ctx context.Context, f history.Filter) (history.Page[history.Line], error) {
	return query(ctx, s, f, source[history.Line, history.Line]{list: history.ListLines, of: func(x *index) *timeline[history.Line] { return &x.lines },
		match: func(f *history.Filter, l *history.Line) (history.Line, bool) { return *l, f.MatchLine(l) }})
}

// Changes implements [history.Store]. What was added before it was called is found, unless the
// disk is slow.
func (s *Store) Changes(ctx context.Context, f history.Filter) (history.Page[history.Change], error) {
	if f.After == "" {
		waiting, cancel := context.WithTimeout(ctx, syncTimeout)
		s.Sync(waiting)
		cancel()
	}
	return query(ctx, s, f, source[history.Change, history.Change]{list: history.ListChanges, of: func(x *index) *timeline[history.Change] { return &x.changes },
		match: func(f *history.Filter, c *history.Change) (history.Change, bool) { return *c, f.MatchChange(c) }})
}

// seed reads the end of the file into the index.
func (s *Store) seed() {
	defer close(s.seeded)
	if s.path == "" {
		return
	}
	if err := s.index.seed(s.path); err != nil {
		s.log.Warn("the history's older records cannot be read", zap.String("file", s.path), zap.Error(err))
	}
}
