package database

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"

	"go.uber.org/zap"

	"github.com/wasmjob/wasmjob/host/history"
	"github.com/wasmjob/wasmjob/host/history/jsonl"
)

// follower is the queue of a database that follows a log on this disk. Records are written to the log first; a
// record that the log cannot take is lost. For each file of the log the database notes how much was loaded, so
// that a process continues where the previous one ended, even after a crash.
//
// The newest records are also in memory. When there are too many, or when the process begins, the loader reads
// the files of the log up to the end.
type follower struct {
	// most bounds the bytes loaded from a log that the database does not know.
	most  int64
	woken chan struct{} // has room for one: there is something to do
	hurry chan struct{} // has room for one: a caller waits

	mu      sync.Mutex
	log     *jsonl.Log // its Append and Close
	trouble trouble
	pieces  []jsonl.Piece // of the newest records, oldest first; if caught, all that are not loaded
	pending int           // records of pieces
	caught  bool
	behind  int64 // records that are in files only
	// added and written count records: those added, and those of them that are loaded.
	added, written int64
	early          bool          // the loader has not come to the end of the log yet
	left           int64         // about how many bytes are in the files after the open one
	moved          chan struct{} // closed when something was loaded; nil: no query waits
	closed         bool
	// file is the ID of the file loaded last, at the position up to which. over: it is loaded whole.
	file string
	at   int64
	over bool

	seen atomic.Pointer[history.State] // the result of state: its callers do not wait for the disk

	// Of the loader's goroutine.
	reader *jsonl.Reader // of file, from at on; nil: none is open
	asked  bool          // file and at were found
	warned bool          // of files that cannot be read
	total  int           // records that were read from files since the process began
}

func newFollower(log *jsonl.Log, most int64, hurry chan struct{}, logger *zap.Logger) *follower {
	f := &follower{most: most, woken: make(chan struct{}, 1), hurry: hurry, log: log, trouble: trouble{log: logger}, early: true}
	f.publish()
	press(f.woken)
	return f
}

// press puts a value into a channel that has room for one.
func press(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

func (f *follower) add(batch []history.Entry) (lost int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	defer f.publish()
	pieces, lost := f.log.Append(batch)
	for _, p := range pieces {
		n := len(p.Entries)
		f.added += int64(n)
		if f.caught && f.pending+n > mostPending {
			f.behind, f.pieces, f.pending, f.caught = int64(f.pending), nil, 0, false
		}
		if !f.caught {
			f.behind += int64(n)
			continue
		}
		f.pending += n
		if last := len(f.pieces) - 1; last >= 0 && f.pieces[last].File == p.File {
			f.pieces[last].Entries = append(f.pieces[last].Entries, p.Entries...)
			f.pieces[last].Ends = append(f.pieces[last].Ends, p.Ends...)
			continue
		}
		f.pieces = append(f.pieces, p)
	}
	if f.pending >= mostPending/2 {
		press(f.hurry)
	}
	press(f.woken)
	return lost
}

func (f *follower) news() <-chan struct{} { return f.woken }

// next returns the oldest records that are not loaded, from memory if they are there. After end it leaves files
// to the next process. It returns doubtful records again: the database knows them by their file, wherever they
// are read from.
func (f *follower) next(ctx context.Context, position positionFunc, _ bool) (c chunk, ok bool, err error) {
	for {
		if c, ok, caught := f.recent(); caught || f.ended() {
			return c, ok, nil
		}
		if f.reader == nil {
			if err := f.open(ctx, position); err != nil {
				return c, false, err
			}
			continue
		}
		entries, ends, err := f.reader.Next(mostChunk)
		if len(entries) > 0 && err == nil {
			f.total += len(entries)
			return chunk{entries: entries, writer: f.file, ends: ends, old: true}, true, nil
		}
		f.pass(err)
	}
}

// recent returns the records in memory; caught is false if files must be read first.
func (f *follower) recent() (c chunk, ok, caught bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.caught || len(f.pieces) == 0 {
		return c, false, f.caught
	}
	p := f.pieces[0]
	n := min(len(p.Entries), mostChunk)
	return chunk{entries: p.Entries[:n:n], writer: p.File, ends: p.Ends[:n:n]}, true, true
}

// pass leaves the open file: it is read to its end, or cannot be read.
func (f *follower) pass(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.at, f.over = f.reader.At(), true
	if err = errors.Join(err, f.release()); err != nil {
		f.trouble.log.Warn("a file of the history cannot be read: queries do not find what is left of it", zap.Error(err))
	}
}

// release closes the file that is open.
func (f *follower) release() (err error) {
	if f.reader != nil {
		err = f.reader.Close()
		f.reader = nil
	}
	return err
}

// open opens the next file to read, if there is one.
func (f *follower) open(ctx context.Context, position positionFunc) error {
	list, unread, err := jsonl.Files(f.log.Path())
	if err != nil {
		return fmt.Errorf("the history's files: %w", err)
	}
	if unread != nil && !f.warned {
		f.warned = true
		f.trouble.log.Warn("files of the history cannot be read: queries do not find what is in them", zap.Error(unread))
	}
	if f.index(list) < 0 {
		f.asked = false
	}
	if !f.asked && len(list) > 0 {
		if err := f.begin(ctx, list, position); err != nil {
			return err
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	i := f.index(list)
	if f.over && i+1 < len(list) {
		i++
		f.file, f.at, f.over = list[i].ID, 0, false
	}
	if f.over || len(list) == 0 {
		return f.meet()
	}
	f.left = 0
	for _, later := range list[i+1:] {
		f.left += later.Size
	}
	f.reader, err = jsonl.OpenReader(list[i].Name, f.at)
	if errors.Is(err, os.ErrNotExist) { // it was removed to make room
		f.over, err = true, nil
	}
	return err
}

// index returns the file's index in a list, -1 if it is missing.
func (f *follower) index(list []jsonl.File) int {
	return slices.IndexFunc(list, func(x jsonl.File) bool { return x.ID == f.file })
}

// begin finds the position to continue at: in the newest file that the database knows, else where the newest
// most bytes of the log begin.
func (f *follower) begin(ctx context.Context, list []jsonl.File, position positionFunc) error {
	i, bytes := len(list)-1, int64(0)
	for ; i >= 0; i-- {
		at, err := position(ctx, list[i].ID)
		if err != nil {
			return err
		}
		if at > 0 {
			f.set(list[i].ID, at)
			return nil
		}
		if bytes += list[i].Size; bytes > f.most && i+1 < len(list) {
			break
		}
	}
	f.set(list[i+1].ID, 0)
	if n := len(list) - 1 - i; n > 1 {
		f.trouble.log.Info("the history's database reads its files; until then queries find a part", zap.Int("files", n))
	}
	return nil
}

func (f *follower) set(file string, at int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.file, f.at, f.over, f.asked = file, at, false, true
}

// meet notes whether the loader is at the end of the log. The caller holds f.mu, so that nothing is written
// meanwhile.
func (f *follower) meet() error {
	list, _, err := jsonl.Files(f.log.Path())
	if err != nil {
		return fmt.Errorf("the history's files: %w", err)
	}
	i := f.index(list)
	if i+1 < len(list) { // a newer one came, or the file is gone
		return nil
	}
	if len(list) > 0 {
		r, err := jsonl.OpenReader(list[i].Name, f.at)
		if err != nil {
			return err
		}
		entries, _, err := r.Next(1)
		if err = errors.Join(err, r.Close()); err != nil {
			return err
		}
		if len(entries) > 0 {
			f.over = false
			return nil
		}
	}
	if f.early && f.total > mostPending {
		f.trouble.log.Info("the history's database has read its files", zap.Int("records", f.total))
	}
	f.caught, f.early, f.behind, f.left, f.written = true, false, 0, 0, f.added
	f.publish()
	return nil
}

func (f *follower) done(c chunk) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	defer f.publish()
	n := len(c.entries)
	f.file, f.at, f.over = c.writer, c.ends[n-1], false
	if !f.caught { // it was read from a file, or is passed over there
		return nil
	}
	f.written += int64(n)
	f.pending -= n
	p := &f.pieces[0]
	clear(p.Entries[:n])
	if p.Entries, p.Ends = p.Entries[n:], p.Ends[n:]; len(p.Entries) == 0 {
		f.pieces = slices.Delete(f.pieces, 0, 1)
	}
	return nil
}

// fail makes the loader read the file again from the last loaded position.
func (f *follower) fail(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	defer f.publish()
	f.trouble.fail(errors.Join(err, f.release()))
}

func (f *follower) good() {
	f.mu.Lock()
	defer f.mu.Unlock()
	defer f.publish()
	f.trouble.good()
}

func (f *follower) late() {} // the records are on the disk

func (f *follower) end() {
	f.mu.Lock()
	f.closed = true
	f.mu.Unlock()
	press(f.woken)
}

func (f *follower) ended() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.closed
}

// publish stores the present state for state. The caller holds f.mu.
func (f *follower) publish() {
	state := history.State{Queued: int64(f.pending), Spooled: f.behind}
	f.trouble.show(&state)
	f.seen.Store(&state)
	if f.moved != nil {
		close(f.moved)
		f.moved = nil
	}
}

// quick is how many bytes of a log are read while a query waits.
const quick = 4 << 20

// settle waits neither for a long log nor for a database that refuses it.
func (f *follower) settle(ctx context.Context) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for target := f.added; (f.early || f.written < target) && f.left < quick && f.trouble.problem == nil && !f.closed; {
		if f.moved == nil {
			f.moved = make(chan struct{})
		}
		moved := f.moved
		press(f.hurry)
		f.mu.Unlock()
		select {
		case <-moved:
		case <-ctx.Done():
			f.mu.Lock()
			return
		}
		f.mu.Lock()
	}
}

// state reports the log's errors before the database's: a record that the log cannot take is lost.
func (f *follower) state(s *history.State) {
	seen := f.seen.Load()
	s.Queued += seen.Queued
	s.Spooled, s.Problem, s.Since = seen.Spooled, seen.Problem, seen.Since
	if t := f.log.Trouble(); t != nil {
		s.Problem, s.Since = t.Err.Error(), t.Since
	}
}

// close leaves the rest to the next process.
func (f *follower) close() (lost int64, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return 0, errors.Join(f.release(), f.log.Close())
}
