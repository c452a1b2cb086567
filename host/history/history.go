// Package history keeps a host's events in a file: one JSON object per line,
// in the order in which the host saw them.
//
// The history is capped. When the file has grown to its part of the cap it is
// compressed to NAME.1.gz, the next to NAME.2.gz, and so on; the oldest of them go,
// so that all files together stay within the cap.
//
// The history never harms the host. Adding an event does not block: a queue of
// fixed length lies between the host and the file, and what does not fit is
// dropped and counted. A job may take its quota and no more, so that one job's
// events do not drive out the others'. Nothing is flushed to the disk event by event, so a
// crash of the machine (not of the host) may lose the last ones. When the file
// cannot be written, events are dropped and counted, and that is said once. A
// file that is moved away or removed is recreated with the next event.
package history

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/wasmjob/wasmjob/host/ceiling"
	"github.com/wasmjob/wasmjob/host/event"
	"github.com/wasmjob/wasmjob/host/filelock"
)

const (
	// DefaultMaxBytes is the cap of all files together if none is given, and the
	// least that SizeFor says; mostBytes is the most.
	DefaultMaxBytes = 64 << 20
	mostBytes       = 4 << 30
	// MinMaxBytes is the smallest cap.
	MinMaxBytes = 64 << 10
	// DefaultQueue is the length of the queue if none is given.
	DefaultQueue = 8192

	// batchBytes ends the gathering of one write.
	batchBytes = 64 << 10
	// mostPart is the most that the file itself grows to: compressing it keeps
	// the writer busy for a part of a second.
	mostPart = 16 << 20
)

// errLocked: one file has one writer, or lines are mixed and rotation loses them.
var errLocked = errors.New("another host writes this file; give each host a file of its own (--history)")

// SizeFor is the cap for a history with that path: a fiftieth of the file system
// that it is on, 64 MiB at least and 4 GiB at most.
func SizeFor(path string) int64 {
	if path == "" {
		return DefaultMaxBytes
	}
	return min(max(diskSize(filepath.Dir(path))/50, DefaultMaxBytes), mostBytes)
}

// Options say where and how much. Only Path is required.
type Options struct {
	// Path of the file. Its directory must exist.
	Path string
	// MaxBytes bounds the file and its older ones together; 0 is
	// DefaultMaxBytes, less than MinMaxBytes is an error.
	MaxBytes int64
	// Queue is how many events may wait for the disk; 0 is DefaultQueue.
	Queue int
	// Ceilings have ceiling.HistoryBytes of each job: what its events take
	// beyond that is dropped, and said so by an event. A quarter of a day's may
	// be taken at once. The empty list is no limit.
	Ceilings ceiling.List
	// OnOverQuota is called for every event that is dropped for its job's
	// quota, from one goroutine. It must not block. nil is none.
	OnOverQuota func(job string)
	// Logger hears when the file cannot be written, and when it can be again.
	Logger *zap.Logger
}

// Writer appends events to the file. It is safe for concurrent use.
type Writer struct {
	path    string
	part    int64 // the most that the file grows to
	cap     int64
	log     *zap.Logger
	dropped atomic.Int64
	trouble atomic.Pointer[Trouble]
	done    chan struct{} // closed when run has returned

	mu     sync.Mutex // guards closed and the sending side of queue
	closed bool
	queue  chan event.Event

	ceilings    ceiling.List
	onOverQuota func(job string)

	// Owned by run.
	quotas map[string]*quota // by job
	file   *os.File
	info   os.FileInfo // of file when it was opened
	size   int64
	lost   int64 // since there is trouble
}

// Trouble is why events do not reach the file.
type Trouble struct {
	Err error
	// Since is when the first of them was lost.
	Since time.Time
}

// Open opens the file for appending, or makes it, mode 0640. One that another
// host writes is refused. A line that a
// crash cut short is taken off its end. It starts one goroutine, which Close
// joins.
func Open(o Options) (*Writer, error) {
	if o.Path == "" {
		return nil, errors.New("history: no file name given")
	}
	if o.MaxBytes == 0 {
		o.MaxBytes = DefaultMaxBytes
	}
	if o.MaxBytes < MinMaxBytes {
		return nil, fmt.Errorf("history: the cap is %d bytes, want at least %d", o.MaxBytes, MinMaxBytes)
	}
	if o.Queue <= 0 {
		o.Queue = DefaultQueue
	}
	if o.Logger == nil {
		o.Logger = zap.NewNop()
	}
	path, err := filepath.Abs(o.Path) // the working directory may change
	if err != nil {
		return nil, fmt.Errorf("history: %w", err)
	}
	w := &Writer{
		path:  path,
		part:  min(o.MaxBytes/4, mostPart),
		cap:   o.MaxBytes,
		log:   o.Logger,
		done:  make(chan struct{}),
		queue: make(chan event.Event, o.Queue),

		ceilings: o.Ceilings, onOverQuota: o.OnOverQuota, quotas: make(map[string]*quota),
	}
	if err := w.open(); err != nil {
		return nil, fmt.Errorf("history: %w", err)
	}
	go w.run()
	return w, nil
}

// Add notes an event. It never blocks: if the queue is full, or the writer is
// closed, the event is dropped and counted.
func (w *Writer) Add(e event.Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		w.dropped.Add(1)
		return
	}
	select {
	case w.queue <- e:
	default:
		w.dropped.Add(1)
	}
}

// Dropped is how many events are not in the file: the queue was full, or the
// file could not be written.
func (w *Writer) Dropped() int64 { return w.dropped.Load() }

// Trouble is why the last events could not be written, nil if they could. It
// ends with the next event that is written.
func (w *Writer) Trouble() *Trouble { return w.trouble.Load() }

// Path is the absolute name of the file.
func (w *Writer) Path() string { return w.path }

// Close writes what is queued, waits for the goroutine and closes the file.
// Further calls return nil.
func (w *Writer) Close() error {
	w.mu.Lock()
	if w.closed {
		w.mu.Unlock()
		<-w.done
		return nil
	}
	w.closed = true
	close(w.queue)
	w.mu.Unlock()
	<-w.done
	if w.file == nil {
		return nil
	}
	if err := w.file.Close(); err != nil {
		return fmt.Errorf("history: %w", err)
	}
	return nil
}

func (w *Writer) run() {
	defer close(w.done)
	// With lines under half of a part, no write is longer than a part.
	limit := min(batchBytes, w.part/2)
	var batch bytes.Buffer
	for e := range w.queue {
		batch.Reset()
		count := w.encode(&batch, e)
	gather:
		for int64(batch.Len()) < limit {
			select {
			case e, ok := <-w.queue:
				if !ok {
					break gather // the range ends after this write
				}
				count += w.encode(&batch, e)
			default:
				break gather
			}
		}
		w.write(batch.Bytes(), count)
	}
	batch.Reset()
	count := int64(0)
	for _, job := range slices.Sorted(maps.Keys(w.quotas)) {
		if q := w.quotas[job]; q.beyond {
			count += appendLine(&batch, q.end(job, "", time.Now()))
		}
	}
	w.write(batch.Bytes(), count)
}

// appendLine appends an event that is small. It returns the number of lines.
func appendLine(b *bytes.Buffer, e event.Event) int64 {
	line, err := json.Marshal(e)
	if err != nil { // texts and numbers always marshal
		return 0
	}
	b.Write(line)
	b.WriteByte('\n')
	return 1
}

// encode appends the event's line and returns the number of lines appended.
func (w *Writer) encode(b *bytes.Buffer, e event.Event) int64 {
	line, err := json.Marshal(e)
	if err == nil && int64(len(line)) >= w.part/2 { // a fire of very many items
		err = fmt.Errorf("it has %d bytes, want fewer than %d", len(line), w.part/2)
	}
	if err != nil {
		w.dropped.Add(1)
		w.log.Warn("event does not fit the history file", zap.String("kind", string(e.Kind)), zap.Error(err))
		return 0
	}
	count := int64(0)
	if w.admit(e, len(line)+1, func(e event.Event) { count += appendLine(b, e) }) {
		b.Write(line)
		b.WriteByte('\n')
		count++
	}
	return count
}

// write appends whole lines, or nothing.
func (w *Writer) write(lines []byte, count int64) {
	if count == 0 {
		return
	}
	err := w.append(lines)
	trouble := w.trouble.Load()
	switch {
	case err != nil:
		w.dropped.Add(count)
		w.lost += count
		now := Trouble{Err: err, Since: time.Now()}
		if trouble != nil {
			now.Since = trouble.Since
		}
		w.trouble.Store(&now)
		if trouble == nil {
			w.log.Warn("the history file cannot be written; events go on without it", zap.String("file", w.path), zap.Error(err))
		}
	case trouble != nil:
		w.log.Info("the history file is written again", zap.String("file", w.path), zap.Int64("eventsLost", w.lost))
		w.trouble.Store(nil)
		w.lost = 0
	}
}

func (w *Writer) append(lines []byte) error {
	if w.moved() { // no reader finds what is written there
		err := w.file.Close()
		w.file = nil
		if err != nil {
			return err
		}
	}
	if w.size > 0 && w.size+int64(len(lines)) > w.part {
		if err := w.rotate(); err != nil {
			return err
		}
	}
	if w.file == nil {
		if err := w.open(); err != nil {
			return err
		}
	}
	n, err := w.file.Write(lines)
	if err == nil {
		w.size += int64(n)
		return nil
	}
	// Take a partial line back, so that the next good one stands alone. If
	// that fails too, forget the file: opening it again repairs its end.
	if n > 0 {
		if terr := w.file.Truncate(w.size); terr != nil {
			err = errors.Join(err, terr, w.file.Close())
			w.file = nil
		}
	}
	return err
}

// moved reports whether the path is not that of the open file any more. Where
// that is unknown, it is taken to be.
func (w *Writer) moved() bool {
	if w.file == nil || w.info == nil {
		return false
	}
	info, err := os.Stat(w.path)
	return errors.Is(err, os.ErrNotExist) || (err == nil && !os.SameFile(info, w.info))
}

func (w *Writer) open() error {
	f, size, err := openEnd(w.path)
	if err != nil {
		return err
	}
	info, err := f.Stat()
	if err != nil {
		return errors.Join(err, f.Close())
	}
	w.file, w.info, w.size = f, info, size
	return nil
}

func (w *Writer) rotate() error {
	if w.file != nil {
		err := w.file.Close()
		w.file = nil
		if err != nil {
			return err
		}
	}
	list, err := segments(w.path)
	if err != nil {
		return err
	}
	next := 1
	if n := len(list); n > 0 {
		next = list[n-1].number + 1
	}
	if err := os.Rename(w.path, w.path+"."+strconv.Itoa(next)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	w.size = 0
	// The new file takes a part, and so does what is compressed.
	return shrink(w.path, w.cap-2*w.part)
}

// openEnd opens the file for appending after its last complete line.
func openEnd(path string) (*os.File, int64, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o640)
	if err != nil {
		return nil, 0, err
	}
	// A file system without locks is no reason to refuse.
	if free, err := filelock.Take(f); !free && err == nil {
		return nil, 0, errors.Join(fmt.Errorf("%s: %w", path, errLocked), f.Close())
	}
	end, err := lastLineEnd(f)
	if err == nil {
		err = f.Truncate(end)
	}
	if err != nil {
		return nil, 0, errors.Join(err, f.Close())
	}
	return f, end, nil
}

// lastLineEnd is the offset behind the last newline of the file, 0 if none.
func lastLineEnd(f *os.File) (int64, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	if !info.Mode().IsRegular() {
		return 0, fmt.Errorf("%s is not a regular file", f.Name())
	}
	buf := make([]byte, 4096)
	for end := info.Size(); end > 0; {
		start := max(0, end-int64(len(buf)))
		n, err := f.ReadAt(buf[:end-start], start)
		if err != nil && !errors.Is(err, io.EOF) {
			return 0, err
		}
		if i := bytes.LastIndexByte(buf[:n], '\n'); i >= 0 {
			return start + int64(i) + 1, nil
		}
		end = start
	}
	return 0, nil
}
