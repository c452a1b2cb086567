package peer

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/wasmjob/wasmjob/host/event"
)

// WasmjobOptions say how a host of ours is started.
type WasmjobOptions struct {
	// Name is what the log calls the host.
	Name string
	// Program is the built program, Dir a directory of this host's own, which
	// exists: history, home and temporary files go there.
	Program, Dir string
	// Args are those of "wasmjob run". Where the history goes, and that
	// nobody looks at the log, is added.
	Args []string
	// Env comes on top of PATH, HOME and TMPDIR.
	Env []string
	// Log hears of all runs. May be nil.
	Log *Log
	// NoHistory has the host keep none, as ElasticJob does: it is not to be
	// measured. Then nothing is heard of events and runs.
	NoHistory bool
	// Line hears each line of stderr, the host's log, as it is read, one at a
	// time. May be nil.
	Line func(line string)
}

// Wasmjob is a running host of ours. It is safe for concurrent use.
type Wasmjob struct {
	process
	options WasmjobOptions

	events sync.Mutex
	seen   []event.Event
	news   chan struct{} // closed, and made anew, when there is more
}

// StartWasmjob starts a host. It does not wait for anything that it does.
func StartWasmjob(o WasmjobOptions) (*Wasmjob, error) {
	history := filepath.Join(o.Dir, "history.jsonl")
	w := &Wasmjob{options: o, news: make(chan struct{})}
	args := []string{"run", "--log-format", "json"}
	if !o.NoHistory {
		args = append(args, "--history", history, "--history-size", "1GiB")
	}
	args = append(args, o.Args...)
	w.process = process{name: o.Name, log: o.Log, cmd: exec.Command(o.Program, args...), hears: o.Line}
	w.cmd.Dir, w.cmd.Env = o.Dir, w.env()
	if o.NoHistory {
		return w, w.start(nil, nil)
	}
	tail, err := newTail(history)
	if err != nil {
		return nil, err
	}
	stop, tailed := make(chan struct{}), make(chan struct{})
	err = w.start(nil, func() {
		close(stop)
		<-tailed
	})
	if err != nil {
		return nil, errors.Join(err, tail.close())
	}
	go func() { // joined by tailed
		defer close(tailed)
		tail.run(stop, w.event)
		_ = tail.close() // nothing was written through it
	}()
	return w, nil
}

func (w *Wasmjob) env() []string {
	return append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + w.options.Dir, "TMPDIR=" + w.options.Dir}, w.options.Env...)
}

// Run runs another command of the program as the user of this host: it finds
// the host that runs here.
func (w *Wasmjob) Run(ctx context.Context, args ...string) (string, error) {
	c := exec.CommandContext(ctx, w.options.Program, args...)
	c.Dir, c.Env = w.options.Dir, w.env()
	var out, errs bytes.Buffer
	c.Stdout, c.Stderr = &out, &errs
	if err := c.Run(); err != nil {
		return out.String(), fmt.Errorf("wasmjob %q: %w\n%s%s", args, err, &out, &errs)
	}
	return out.String(), nil
}

func (w *Wasmjob) event(e event.Event) {
	if w.log != nil && e.Item != nil {
		switch e.Kind {
		case event.ItemStarted:
			w.log.begin(Run{Host: w.name, Job: e.Job, Item: *e.Item, Begin: e.Time, Source: string(e.Source)})
		case event.ItemEnded:
			w.log.end(w.name, e.Job, *e.Item, e.Time, false)
		}
	}
	w.events.Lock()
	defer w.events.Unlock()
	w.seen = append(w.seen, e)
	close(w.news)
	w.news = make(chan struct{})
}

// Events are the events so far that ok accepts.
func (w *Wasmjob) Events(ok func(event.Event) bool) (list []event.Event) {
	w.events.Lock()
	defer w.events.Unlock()
	for _, e := range w.seen {
		if ok(e) {
			list = append(list, e)
		}
	}
	return list
}

// Mark is the number of events so far: a place to look from.
func (w *Wasmjob) Mark() int {
	w.events.Lock()
	defer w.events.Unlock()
	return len(w.seen)
}

// Await waits for an event, from the mark on, that ok accepts.
func (w *Wasmjob) Await(ctx context.Context, what string, mark int, ok func(event.Event) bool) (event.Event, error) {
	for last := false; ; {
		w.events.Lock()
		i := slices.IndexFunc(w.seen[mark:], ok)
		var found event.Event
		if i >= 0 {
			found = w.seen[mark+i]
		}
		mark = len(w.seen)
		news := w.news
		w.events.Unlock()
		if i >= 0 {
			return found, nil
		}
		if last {
			return found, fmt.Errorf("%s has ended without %s\n%s", w.name, what, w.Stderr())
		}
		select {
		case <-news:
		case <-w.ended:
			last = true
		case <-ctx.Done():
			return found, fmt.Errorf("%s: waited in vain for %s (%w)\n%s", w.name, what, ctx.Err(), w.Stderr())
		}
	}
}

// tail reads a file as it grows.
type tail struct {
	file    string
	offset  int64
	watcher *fsnotify.Watcher
}

func newTail(file string) (*tail, error) {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, err
	}
	if err := w.Add(filepath.Dir(file)); err != nil {
		return nil, errors.Join(err, w.Close())
	}
	info, err := os.Stat(file)
	switch {
	case err == nil:
		return &tail{file, info.Size(), w}, nil
	case errors.Is(err, os.ErrNotExist):
		return &tail{file, 0, w}, nil
	}
	return nil, errors.Join(err, w.Close())
}

func (t *tail) close() error { return t.watcher.Close() }

// run reads on each change, and a last time when stop is closed.
func (t *tail) run(stop <-chan struct{}, each func(event.Event)) {
	for {
		select {
		case <-t.watcher.Events:
		case <-t.watcher.Errors:
		case <-stop:
			t.read(each)
			return
		}
		t.read(each)
	}
}

func (t *tail) read(each func(event.Event)) {
	f, err := os.Open(t.file)
	if err != nil {
		return // not yet there
	}
	defer f.Close()
	if _, err := f.Seek(t.offset, io.SeekStart); err != nil {
		return
	}
	for lines := bufio.NewReaderSize(f, 1<<20); ; {
		text, err := lines.ReadBytes('\n')
		if err != nil {
			return // the rest of the line comes later
		}
		t.offset += int64(len(text))
		var e event.Event
		if json.Unmarshal(text, &e) != nil {
			e = event.Event{Time: time.Now(), Kind: "not an event", Reason: string(text)}
		}
		each(e)
	}
}
