package jsonl

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"slices"
	"strings"

	"github.com/wasmjob/wasmjob/host/event"
	"github.com/wasmjob/wasmjob/host/history"
)

// ErrLine is wrapped by the errors of lines that are not records. Reading may
// go on after them.
var ErrLine = errors.New("not a record of a history")

// Read yields the events of the history file at path, those of its segments first.
// Records that are not events are passed over. The rest is as for [Records].
func Read(path string) iter.Seq2[event.Event, error] {
	return func(yield func(event.Event, error) bool) {
		for r, err := range Records(path) {
			switch {
			case err != nil:
				if !yield(event.Event{}, err) {
					return
				}
			case r.Event != nil && !yield(*r.Event, nil):
				return
			}
		}
	}
}

// Records yields the records of the history file at path, those of its segments first.
// A line that is not a record yields an error that wraps [ErrLine] and names
// file and line; the caller may go on. Any other error is the last element. A
// last line without its newline is what a writer is busy with, or what a crash
// left: it is passed over. A missing file is an error unless there are segments.
func Records(path string) iter.Seq2[history.Record, error] {
	return func(yield func(history.Record, error) bool) {
		names, err := Segments(path)
		if err != nil {
			yield(history.Record{}, fmt.Errorf("history: %w", err))
			return
		}
		found := false
		for _, name := range append(names, path) {
			f, err := OpenFile(name)
			if errors.Is(err, os.ErrNotExist) && (name != path || found) {
				continue
			}
			if err != nil {
				yield(history.Record{}, fmt.Errorf("history: %w", err))
				return
			}
			found = true
			more := readAll(f, name, yield)
			if err := f.Close(); err != nil && more {
				yield(history.Record{}, fmt.Errorf("history: %w", err))
				return
			}
			if !more {
				return
			}
		}
	}
}

// readAll reports whether the caller wants more, and there may be.
func readAll(r io.Reader, name string, yield func(history.Record, error) bool) bool {
	lines := bufio.NewReaderSize(r, 64<<10)
	for number := 1; ; number++ {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return true
		}
		if err != nil {
			yield(history.Record{}, fmt.Errorf("history: %w", err))
			return false
		}
		var record history.Record
		if err := json.Unmarshal(line, &record); err != nil {
			if !yield(history.Record{}, fmt.Errorf("%s:%d: %w: %w", name, number, ErrLine, err)) {
				return false
			}
			continue
		}
		if !yield(record, nil) {
			return false
		}
	}
}

// ErrDatabase is the error about a name that means a history in a database.
var ErrDatabase = errors.New("a history in a database, expected a file of JSON lines, as a host writes it with --history FILE.jsonl")

// sqliteBegins is how each file of SQLite begins.
const sqliteBegins = "SQLite format 3\x00"

// CheckFile returns an error for what is no regular file, a pipe or a device for example, and one that wraps ErrDatabase if a
// name is the URL of a database, or that of SQLite's file. It shows nothing of a URL but its scheme: there may be a password in it.
func CheckFile(name string) error {
	scheme, _, isURL := strings.Cut(name, ":")
	if isURL && slices.Contains([]string{"postgres", "postgresql", "mysql", "sqlite"}, scheme) {
		return fmt.Errorf("%s:…: found %w", scheme, ErrDatabase)
	}
	info, err := os.Stat(name)
	switch {
	case err != nil:
		return nil // who reads it says so
	case !info.Mode().IsRegular():
		return fmt.Errorf("%s is no regular file, expected a history: a file of JSON lines, as a host writes it with --history FILE.jsonl", name)
	}
	f, err := os.Open(name)
	if err != nil {
		return nil // who reads it says so
	}
	defer f.Close()
	begin := make([]byte, len(sqliteBegins))
	if n, _ := io.ReadFull(f, begin); string(begin[:n]) == sqliteBegins {
		return fmt.Errorf("%s: found %w", name, ErrDatabase)
	}
	return nil
}
