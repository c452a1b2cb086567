package jsonl

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/wasmjob/wasmjob/host/history"
)

// Log is a history in a capped file of JSON lines, as it is written. It belongs to one
// goroutine, except for Path, Trouble and Size.
type Log struct {
	writer *writer
	log    *zap.Logger
}

// Piece is a part of a batch that stands in one file.
type Piece struct {
	// File is the [File.ID] of the file.
	File    string
	Entries []history.Entry
	// Ends are the offsets in the file behind each entry, in bytes of its uncompressed text.
	Ends []int64
}

// OpenLog opens the file for appending, or makes it, mode 0600. Its directory must exist. A file
// that another host writes is refused. A line that a crash cut short is taken off its end.
// maxBytes bounds the file and its older ones together; 0 is DefaultMaxBytes, less
// than MinMaxBytes is an error. log may be nil.
func OpenLog(path string, maxBytes int64, log *zap.Logger) (*Log, error) {
	if maxBytes == 0 {
		maxBytes = DefaultMaxBytes
	}
	if maxBytes < MinMaxBytes {
		return nil, fmt.Errorf("the cap is %d bytes, want at least %d", maxBytes, MinMaxBytes)
	}
	if log == nil {
		log = zap.NewNop()
	}
	path, err := filepath.Abs(path) // the working directory may change
	if err != nil {
		return nil, err
	}
	w, err := openWriter("the history file", path, maxBytes, log)
	if err != nil {
		return nil, err
	}
	return &Log{w, log}, nil
}

// Path is the absolute name of the file.
func (l *Log) Path() string { return l.writer.path }

// Trouble is why the last records could not be written, nil if they could. It ends with the next
// record that is written. It is safe for concurrent use.
func (l *Log) Trouble() *Trouble { return l.writer.problem.Load() }

// Close closes the file.
func (l *Log) Close() error { return l.writer.close() }

// Append writes a batch. It returns what was written, in order, and how many records were lost.
func (l *Log) Append(batch []history.Entry) (pieces []Piece, lost int64) {
	// With lines under half of a part, no write is longer than a part.
	limit := min(batchBytes, l.writer.part/2)
	var text bytes.Buffer
	var first, last time.Time
	begin := 0
	fits := make([]history.Entry, 0, len(batch))
	write := func() {
		count := int64(len(fits) - begin)
		if n := l.writer.write(text.Bytes(), count, first, last); n > 0 {
			lost += n
		} else if count > 0 {
			pieces = append(pieces, l.piece(fits[begin:]))
		}
		text.Reset()
		begin = len(fits)
	}
	for _, e := range batch {
		if !l.writer.fits(e.JSON) { // a fire of very many items
			lost++
			l.log.Warn("record does not fit the history file", zap.String("job", e.Job()), zap.Int("bytes", len(e.JSON)))
			continue
		}
		if int64(text.Len()) >= limit {
			write()
		}
		if last = e.Time(); begin == len(fits) {
			first = last
		}
		text.Write(e.JSON)
		text.WriteByte('\n')
		fits = append(fits, e)
	}
	write()
	return pieces, lost
}

// piece is what was written last.
func (l *Log) piece(entries []history.Entry) Piece {
	p := Piece{File: l.writer.id, Entries: entries, Ends: make([]int64, len(entries))}
	end := l.writer.size
	for i := len(entries) - 1; i >= 0; i-- {
		p.Ends[i] = end
		end -= int64(len(entries[i].JSON)) + 1
	}
	return p
}

// File is one file of a history.
type File struct {
	Name string
	// ID names the file by its first line: it stays when the file is renamed or compressed.
	ID string
	// Size is about what its uncompressed text takes, in bytes.
	Size int64
}

// ratio is about how much smaller a file becomes when it is compressed.
const ratio = 10

// Files are the files of the history at path that have a line, oldest first. There may be none. Those that cannot be read
// are left out; unread says why.
func Files(path string) (list []File, unread, err error) {
	names, err := Segments(path)
	if err != nil {
		return nil, nil, err
	}
	for _, name := range append(names, path) {
		id, err := identify(name)
		if errors.Is(err, os.ErrNotExist) {
			continue // removed meanwhile, or not written yet
		}
		if err != nil {
			unread = errors.Join(unread, fmt.Errorf("%s: %w", name, err))
		}
		if id == "" {
			continue
		}
		size := int64(0)
		if info, err := os.Stat(name); err == nil {
			size = info.Size()
		}
		if strings.HasSuffix(name, compressed) {
			size *= ratio
		}
		list = append(list, File{name, id, size})
	}
	return list, unread, nil
}

// identify is the ID of a file, empty if it has no whole line.
func identify(name string) (id string, err error) {
	f, err := OpenFile(name)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	line, err := bufio.NewReader(f).ReadBytes('\n')
	if errors.Is(err, io.EOF) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	return idOf(line), nil
}

// idOf is the ID of a file that begins with a line.
func idOf(line []byte) string {
	sum := sha256.Sum256(bytes.TrimSuffix(line, []byte("\n")))
	return "log-" + hex.EncodeToString(sum[:16])
}

// Reader reads the records of one file of a history.
type Reader struct {
	lines *bufio.Reader
	file  io.Closer
	at    int64
}

// OpenReader opens one of [Files] behind so many bytes of its uncompressed text, which end with a
// line. A file that was compressed since it was listed is found.
func OpenReader(name string, at int64) (*Reader, error) {
	f, err := OpenFile(name)
	if err != nil {
		return nil, err
	}
	r := NewReader(f, f, 0)
	for r.at < at {
		n, err := r.lines.Discard(int(min(at-r.at, 1<<20)))
		if r.at += int64(n); errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, errors.Join(fmt.Errorf("reading %s: %w", name, err), f.Close())
		}
	}
	return r, nil
}

// NewReader reads records from lines, the first of which stands behind so many bytes. Close
// closes file.
func NewReader(lines io.Reader, file io.Closer, at int64) *Reader {
	return &Reader{bufio.NewReaderSize(lines, 256<<10), file, at}
}

// At is the offset behind what was read, in bytes of the uncompressed text.
func (r *Reader) At() int64 { return r.at }

// Next returns up to so many records, and the offset behind each. What is no record is passed over, and
// counts for the record before it. It returns fewer at the end, where a line without a newline
// is not read.
func (r *Reader) Next(most int) (entries []history.Entry, ends []int64, err error) {
	for len(entries) < most {
		line, err := r.lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, nil, err
		}
		r.at += int64(len(line))
		var record history.Record
		if record.UnmarshalJSON(line) != nil {
			if n := len(ends); n > 0 {
				ends[n-1] = r.at
			}
			continue
		}
		entries = append(entries, history.Entry{Record: record, JSON: line[:len(line)-1]})
		ends = append(ends, r.at)
	}
	return entries, ends, nil
}

// Close closes the file.
func (r *Reader) Close() error { return r.file.Close() }
