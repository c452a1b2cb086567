package database

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/wasmjob/wasmjob/host/config/filelock"
	"github.com/wasmjob/wasmjob/host/history"
	"github.com/wasmjob/wasmjob/host/history/jsonl"
)

// spoolFileBytes is what one file of the spool grows to.
const spoolFileBytes = 16 << 20

// errSpoolFull is why records are dropped.
var errSpoolFull = errors.New("the spool is full")

// spool keeps records on the disk, oldest first, until the database takes them. Its
// files are this process's, by a lock; those of processes that are gone are adopted. It
// is not safe for concurrent use.
type spool struct {
	dir, prefix string
	most        int64        // bytes of all files
	files       []*spoolFile // oldest first
	bytes       int64        // of all files, what is loaded too
	records     int64        // that are not loaded
}

type spoolFile struct {
	name    string // its base name, which the database notes how far it is loaded by
	file    *os.File
	from    int64 // position of its first byte among all that its process took
	size    int64
	loaded  int64 // bytes
	records int64 // that are not loaded
	// known: the database was asked how far it is loaded.
	known bool
}

// openSpool finds what earlier processes have left for the database that where names.
// The directory must exist.
func openSpool(dir, where string, most int64) (*spool, error) {
	sum := sha256.Sum256([]byte(where))
	s := &spool{dir: dir, most: most}
	family := "history-" + hex.EncodeToString(sum[:6]) + "-"
	s.prefix = family + strconv.FormatInt(time.Now().UnixNano(), 36) + "." + rand.Text()[:8] + "-"
	names, err := filepath.Glob(filepath.Join(escapeGlob(dir), family+"*.jsonl"))
	if err != nil {
		return nil, err
	}
	slices.Sort(names) // by process, and by position
	var problems []error
	for _, name := range names {
		f, err := adopt(name)
		if err != nil {
			problems = append(problems, err)
		}
		if f != nil {
			s.files = append(s.files, f)
			s.bytes += f.size
			s.records += f.records
		}
	}
	return s, errors.Join(problems...)
}

// escapeGlob has a pattern match a directory's name as it is.
func escapeGlob(dir string) string {
	var b []byte
	for i := range len(dir) {
		if c := dir[i]; c == '*' || c == '?' || c == '[' || (c == '\\' && filepath.Separator != '\\') {
			b = append(b, '\\')
		}
		b = append(b, dir[i])
	}
	return string(b)
}

// adopt opens a file that an earlier process has left; nil if another process has it,
// or if it is empty and was removed.
func adopt(name string) (*spoolFile, error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_APPEND, 0)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if free, err := filelock.Take(f); !free && err == nil { // a file system without locks is no reason to leave it
		return nil, f.Close()
	}
	s := &spoolFile{name: filepath.Base(name), file: f, from: positionOf(name)}
	r := bufio.NewReaderSize(f, 1<<20)
	for {
		line, err := readLine(r)
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, errors.Join(err, f.Close())
		}
		if err != nil {
			break
		}
		s.size += int64(len(line))
		s.records++
	}
	if s.size == 0 {
		return nil, errors.Join(os.Remove(name), f.Close())
	}
	return s, f.Truncate(s.size) // what a crash has left of a line
}

// readLine reads a line with its newline.
func readLine(r *bufio.Reader) ([]byte, error) { return r.ReadBytes('\n') }

// process is that of the spool that made the file.
func (f *spoolFile) process() string { return f.name[:strings.LastIndexByte(f.name, '-')] }

// positionOf is the position that a file's name says. In files of older versions it
// is a number that counts files: no process has come as far as that.
func positionOf(name string) int64 {
	text := strings.TrimSuffix(name[strings.LastIndexByte(name, '-')+1:], ".jsonl")
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// add appends records, or nothing. at is their position.
func (s *spool) add(at int64, entries []history.Entry) error {
	text := encode(entries)
	if err := s.room(text); err != nil {
		return err
	}
	var last *spoolFile
	if n := len(s.files); n > 0 {
		last = s.files[n-1]
	}
	if last == nil || last.size >= spoolFileBytes || !s.own(last) {
		var err error
		if last, err = s.create(at); err != nil {
			return err
		}
		s.files = append(s.files, last)
	}
	return s.write(last, text, int64(len(entries)))
}

func (s *spool) room(text []byte) error {
	if s.bytes+int64(len(text)) > s.most {
		return fmt.Errorf("%w: it has %d bytes in %s", errSpoolFull, s.bytes, s.dir)
	}
	return nil
}

func (s *spool) write(f *spoolFile, text []byte, records int64) error {
	n, err := f.file.Write(text)
	if err != nil {
		if n > 0 {
			err = errors.Join(err, f.file.Truncate(f.size))
		}
		return err
	}
	f.size += int64(n)
	f.records += records
	s.bytes += int64(n)
	s.records += records
	return nil
}

// own reports whether a file was made by this process: others are not appended to, or
// the order of files is not that of records.
func (s *spool) own(f *spoolFile) bool {
	return len(f.name) > len(s.prefix) && f.name[:len(s.prefix)] == s.prefix
}

func (s *spool) create(at int64) (*spoolFile, error) {
	name := fmt.Sprintf("%s%019d.jsonl", s.prefix, at)
	f, err := os.OpenFile(filepath.Join(s.dir, name), os.O_CREATE|os.O_EXCL|os.O_RDWR|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	_, _ = filelock.Take(f) // there may be no locks
	return &spoolFile{name: name, file: f, from: at, known: true}, nil
}

// addFirst writes records that are older than all that is spooled, and that the database
// may have: it is to be asked. at is their position. On an error nothing is written.
func (s *spool) addFirst(at int64, entries []history.Entry) (*spoolFile, error) {
	f, err := s.create(at)
	if err != nil {
		return nil, err
	}
	f.known = false
	if err := s.write(f, encode(entries), int64(len(entries))); err != nil {
		return nil, errors.Join(err, os.Remove(filepath.Join(s.dir, f.name)), f.file.Close())
	}
	s.files = slices.Insert(s.files, 0, f)
	return f, nil
}

func encode(entries []history.Entry) []byte {
	var text bytes.Buffer
	for _, e := range entries {
		text.Write(e.JSON)
		text.WriteByte('\n')
	}
	return text.Bytes()
}

// read is the next records of the oldest file, up to so many, and the offsets behind each.
// What is no record is passed over. It changes nothing.
func (s *spool) read(most int) (f *spoolFile, entries []history.Entry, ends []int64, err error) {
	if len(s.files) == 0 {
		return nil, nil, nil, nil
	}
	f = s.files[0]
	r := jsonl.NewReader(io.NewSectionReader(f.file, f.loaded, f.size-f.loaded), nil, f.loaded)
	if entries, ends, err = r.Next(most); err != nil {
		return f, nil, nil, fmt.Errorf("reading %s: %w", f.name, err)
	}
	if len(entries) == 0 { // nothing but what is no record
		ends = []int64{r.At()}
	}
	return f, entries, ends, nil
}

// done notes that a file was loaded up to the offset, and removes it at its end.
func (s *spool) done(f *spoolFile, end int64, records int64) error {
	f.loaded, f.known = end, true
	f.records -= records
	s.records -= records
	if end < f.size {
		return nil
	}
	s.records -= f.records
	s.bytes -= f.size
	s.files = slices.DeleteFunc(s.files, func(x *spoolFile) bool { return x == f })
	return errors.Join(os.Remove(filepath.Join(s.dir, f.name)), f.file.Close())
}

// skip notes how far the database says that a file is loaded.
func (s *spool) skip(f *spoolFile, position int64) error {
	position = min(max(position, f.loaded), f.size)
	r := bufio.NewReaderSize(io.NewSectionReader(f.file, f.loaded, position-f.loaded), 256<<10)
	loaded := int64(0)
	for {
		_, err := readLine(r)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("reading %s: %w", f.name, err)
		}
		loaded++
	}
	f.known = true
	if position == 0 {
		return nil
	}
	return s.done(f, position, loaded)
}

// process is by what the database notes how far this process has come with what it did not
// spool.
func (s *spool) process() string { return strings.TrimSuffix(s.prefix, "-") }

func (s *spool) empty() bool { return len(s.files) == 0 }

// close lets the files go; they stay.
func (s *spool) close() error {
	var problems []error
	for _, f := range s.files {
		problems = append(problems, f.file.Close())
	}
	s.files = nil
	return errors.Join(problems...)
}
