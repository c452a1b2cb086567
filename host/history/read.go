package history

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"

	"github.com/wasmjob/wasmjob/host/event"
)

// ErrLine is wrapped by the errors of lines that are not events. Reading may
// go on after them.
var ErrLine = errors.New("not an event")

// Read yields the events of the history file at path, those of its segments first.
// A line that is not an event yields an error that wraps [ErrLine] and names
// file and line; the caller may go on. Any other error is the last element. A
// last line without its newline is what a writer is busy with, or what a crash
// left: it is passed over. A missing file is an error unless there are segments.
func Read(path string) iter.Seq2[event.Event, error] {
	return func(yield func(event.Event, error) bool) {
		names, err := Segments(path)
		if err != nil {
			yield(event.Event{}, fmt.Errorf("history: %w", err))
			return
		}
		found := false
		for _, name := range append(names, path) {
			f, err := OpenFile(name)
			if errors.Is(err, os.ErrNotExist) && (name != path || found) {
				continue
			}
			if err != nil {
				yield(event.Event{}, fmt.Errorf("history: %w", err))
				return
			}
			found = true
			more := readAll(f, name, yield)
			if err := f.Close(); err != nil && more {
				yield(event.Event{}, fmt.Errorf("history: %w", err))
				return
			}
			if !more {
				return
			}
		}
	}
}

// readAll reports whether the caller wants more, and there may be.
func readAll(r io.Reader, name string, yield func(event.Event, error) bool) bool {
	lines := bufio.NewReaderSize(r, 64<<10)
	for number := 1; ; number++ {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return true
		}
		if err != nil {
			yield(event.Event{}, fmt.Errorf("history: %w", err))
			return false
		}
		var e event.Event
		if err := json.Unmarshal(line, &e); err != nil {
			if !yield(event.Event{}, fmt.Errorf("%s:%d: %w: %w", name, number, ErrLine, err)) {
				return false
			}
			continue
		}
		if !yield(e, nil) {
			return false
		}
	}
}
