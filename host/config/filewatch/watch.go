package filewatch

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"
)

const (
	// debounce is how long the files must be unchanged before look is called, and maxWait how long that may
	// delay a call.
	debounce = 200 * time.Millisecond
	maxWait  = 10
	// maxLinks bounds the symbolic links on the way to a file.
	maxLinks = 40
)

// Files calls look in the caller's goroutine: once at the beginning, and after each change at a name that leads
// to one of the files. It calls names before and after each look, since the files may name other files. A name
// may be a directory, in which every entry counts, or something that does not exist yet.
//
// It returns nil when ctx ends, or an error if changes cannot be detected.
func Files(ctx context.Context, names func() []string, look func()) error {
	w := &watcher{names: names}
	defer func() {
		if w.events != nil {
			_ = w.events.Close() // it was only read from
		}
	}()
	quiet := time.NewTimer(0) // the first look
	defer quiet.Stop()
	var waits time.Time // time of the first event since the last look
	wake := func() {
		now := time.Now()
		if waits.IsZero() {
			waits = now
		}
		quiet.Reset(min(debounce, time.Until(waits.Add(maxWait*debounce))))
	}
	if err := w.begin(); err != nil {
		return err
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case e, ok := <-w.events.Events:
			if !ok {
				return errEnded
			}
			if w.concerns(e.Name) {
				wake()
			}
		case _, ok := <-w.events.Errors: // events were lost
			if !ok {
				return errEnded
			}
			wake()
		case <-quiet.C:
			waits = time.Time{}
			// The new watches begin before the look, so that no change is missed.
			if err := w.begin(); err != nil {
				return err
			}
			look()
			if w.moved() {
				wake()
			}
		}
	}
}

var errEnded = errors.New("the files are not watched any more")

// watcher is one call of Files. All of it belongs to that goroutine.
type watcher struct {
	names func() []string
	// events are those of the directories in ways; a nil map there stands for all names.
	events *fsnotify.Watcher
	ways   map[string]map[string]bool
}

// begin watches every directory in which a change of a name may change a file, and drops the earlier watches: a
// directory may have been replaced.
func (w *watcher) begin() error {
	events, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("the files cannot be watched: %w", err)
	}
	ways := w.all()
	watched := 0
	for dir := range ways {
		err := events.Add(dir)
		if err == nil {
			watched++
		}
		// A user who may not list a directory may still use its files.
		if err != nil && !errors.Is(err, fs.ErrPermission) && !errors.Is(err, fs.ErrNotExist) {
			_ = events.Close()
			return fmt.Errorf("the files cannot be watched: %s: %w", dir, err)
		}
	}
	if watched == 0 {
		_ = events.Close()
		return errors.New("the files cannot be watched: none of their directories can be read")
	}
	if w.events != nil {
		_ = w.events.Close()
	}
	w.events, w.ways = events, ways
	return nil
}

// moved reports whether there are other names to watch than before.
func (w *watcher) moved() bool {
	ways := w.all()
	for dir, names := range ways {
		before, known := w.ways[dir]
		if !known || (names == nil) != (before == nil) {
			return true
		}
		for name := range names {
			if !before[name] {
				return true
			}
		}
	}
	return false
}

// all are the names on the ways to all files, by directory.
func (w *watcher) all() map[string]map[string]bool {
	ways := map[string]map[string]bool{}
	for _, name := range w.names() {
		follow(name, ways)
		dir, err := filepath.EvalSymlinks(name)
		if err != nil {
			continue
		}
		if info, err := os.Stat(dir); err == nil && info.IsDir() {
			if dir, err = filepath.Abs(dir); err == nil {
				ways[dir] = nil
			}
		}
	}
	return ways
}

// follow notes each name on the path to a file, with its directory. It ends at a missing one.
func follow(name string, ways map[string]map[string]bool) {
	name, err := filepath.Abs(name)
	if err != nil {
		return
	}
	dir, rest := string(filepath.Separator), strings.Split(name, string(filepath.Separator))
	for links := 0; len(rest) > 0; {
		part := rest[0]
		rest = rest[1:]
		if part == "" || part == "." {
			continue
		}
		if part == ".." {
			dir = filepath.Dir(dir)
			continue
		}
		if here, known := ways[dir]; !known {
			ways[dir] = map[string]bool{part: true}
		} else if here != nil {
			here[part] = true
		}
		at := filepath.Join(dir, part)
		info, err := os.Lstat(at)
		if err != nil {
			return
		}
		if info.Mode()&fs.ModeSymlink == 0 {
			dir = at
			continue
		}
		target, err := os.Readlink(at)
		if links++; err != nil || links > maxLinks {
			return
		}
		if filepath.IsAbs(target) {
			dir = string(filepath.Separator)
		}
		rest = append(strings.Split(target, string(filepath.Separator)), rest...)
	}
}

// concerns reports whether an event is about a name that matters.
func (w *watcher) concerns(name string) bool {
	here, known := w.ways[filepath.Dir(name)]
	_, isDir := w.ways[name] // of a directory itself: it was removed
	return isDir || (known && (here == nil || here[filepath.Base(name)]))
}
