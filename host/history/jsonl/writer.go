package jsonl

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/wasmjob/wasmjob/host/config/filelock"
)

const (
	// DefaultMaxBytes is the cap of all files together if none is given, and the
	// least that SizeFor says; mostBytes is the most.
	DefaultMaxBytes = 64 << 20
	mostBytes       = 4 << 30
	// MinMaxBytes is the smallest cap.
	MinMaxBytes = 64 << 10
	// batchBytes ends the gathering of one write.
	batchBytes = 64 << 10
	// mostPart is the most that the file itself grows to: compressing it keeps
	// the writer busy for a part of a second.
	mostPart = 16 << 20
)

// errLocked: one file has one writer, or lines are mixed and rotation loses them.
var errLocked = errors.New("another host writes this file; give each host one of its own")

// SizeFor is the cap for a history with that path: a fiftieth of the file system
// that it is on, 64 MiB at least and 4 GiB at most.
func SizeFor(path string) int64 {
	if path == "" {
		return DefaultMaxBytes
	}
	return min(max(diskSize(filepath.Dir(path))/50, DefaultMaxBytes), mostBytes)
}

// writer appends lines to the file. It belongs to one goroutine, but for problem.
type writer struct {
	name    string // of the file, for people
	path    string
	part    int64 // the most that the file grows to
	cap     int64
	log     *zap.Logger
	problem atomic.Pointer[Trouble]

	file *os.File
	info os.FileInfo // of file when it was opened
	id   string      // the ID of file; empty while that has no line
	size int64
	last time.Time // of the newest record of the file
	lost int64     // since there is trouble
}

// Trouble is the reason why records do not reach the file.
type Trouble struct {
	Err error
	// Since is when the first record was lost.
	Since time.Time
}

// openWriter opens the file for appending, or makes it, mode 0600. One that another
// host writes is refused. A line that a crash cut short is taken off its end.
func openWriter(name, path string, maxBytes int64, log *zap.Logger) (*writer, error) {
	w := &writer{name: name, path: path, part: min(maxBytes/4, mostPart), cap: maxBytes, log: log}
	return w, w.open()
}

func (w *writer) close() error {
	if w.file == nil {
		return nil
	}
	return w.file.Close()
}

// fits reports whether a line is short enough to be written.
func (w *writer) fits(line []byte) bool { return int64(len(line)) < w.part/2 }

// write appends whole lines, of so many records with times from first to last, or nothing.
// It returns how many were lost.
func (w *writer) write(lines []byte, count int64, first, last time.Time) (lost int64) {
	if count == 0 {
		return 0
	}
	err := w.append(lines, first.Equal(w.last))
	w.last = last
	trouble := w.problem.Load()
	switch {
	case err != nil:
		w.lost += count
		now := Trouble{Err: err, Since: time.Now()}
		if trouble != nil {
			now.Since = trouble.Since
		}
		w.problem.Store(&now)
		if trouble == nil {
			w.log.Warn(w.name+" cannot be written; jobs go on without it", zap.String("file", w.path), zap.Error(err))
		}
		return count
	case trouble != nil:
		w.log.Info(w.name+" is written again", zap.String("file", w.path), zap.Int64("recordsLost", w.lost))
		w.problem.Store(nil)
		w.lost = 0
	}
	return 0
}

// append appends lines. Records of one time, as these and the last ones if with is set, stay in
// one file as long as that is possible: readers tell them apart by their order.
func (w *writer) append(lines []byte, with bool) error {
	if w.moved() { // no reader finds what is written there
		err := w.file.Close()
		w.file = nil
		if err != nil {
			return err
		}
	}
	most := w.part
	if with {
		most += w.part / 4
	}
	if w.size > 0 && w.size+int64(len(lines)) > most {
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
		if w.size == 0 {
			first, _, _ := bytes.Cut(lines, []byte("\n"))
			w.id = idOf(first)
		}
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

// moved reports whether the path now names another file than the open one. If that is unknown it returns true.
func (w *writer) moved() bool {
	if w.file == nil || w.info == nil {
		return false
	}
	info, err := os.Stat(w.path)
	return errors.Is(err, os.ErrNotExist) || (err == nil && !os.SameFile(info, w.info))
}

func (w *writer) open() error {
	f, size, err := openEnd(w.path)
	if err != nil {
		return err
	}
	info, err := f.Stat()
	if err != nil {
		return errors.Join(err, f.Close())
	}
	id := ""
	if size > 0 {
		if id, err = identify(w.path); err != nil {
			return errors.Join(err, f.Close())
		}
	}
	w.file, w.info, w.size, w.id = f, info, size, id
	return nil
}

func (w *writer) rotate() error {
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
	// The new file takes a part, or a little more, and so does what is compressed.
	return shrink(w.path, w.cap-2*(w.part+w.part/4))
}

// openEnd opens the file for appending after its last complete line.
func openEnd(path string) (*os.File, int64, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600)
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

// lastLineEnd returns the offset after the last newline of the file, 0 if none.
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
