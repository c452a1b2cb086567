package grants

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
	// debounce is how long the files have to be left alone before they are read
	// again, and maxWait how many times that a look is put off at most.
	debounce = 200 * time.Millisecond
	maxWait  = 10
	// maxLinks bounds the symbolic links on the way to a file.
	maxLinks = 40
)

// Update is news of watched grants.
type Update struct {
	// Set is what is in force now; never nil.
	Set *Set
	// Err is why the files as they are now are not taken, so that Set stays as it was;
	// nil if they are.
	Err error
}

// Watch reads the grants at path again whenever their files change: those of grants,
// and those that they name for keys and configuration. It follows symbolic links that are turned,
// as Kubernetes does it. first is the set that was read before. Each time that there is another
// set, or another reason why the files cannot be taken, changed is called, by the caller's
// goroutine. What is missing or broken leaves the set before in force.
//
// Watch returns when ctx ends, with nil, or with an error if changes cannot be noticed.
func Watch(ctx context.Context, path string, first *Set, changed func(Update)) error {
	w := &watch{path: path, set: first}
	defer func() {
		if w.events != nil {
			_ = w.events.Close() // it was only read from
		}
	}()
	if err := w.begin(); err != nil {
		return err
	}
	quiet := time.NewTimer(0)
	quiet.Stop()
	defer quiet.Stop()
	var waits time.Time // when the first event came that no look has followed yet
	wake := func() {
		now := time.Now()
		if waits.IsZero() {
			waits = now
		}
		quiet.Reset(min(debounce, time.Until(waits.Add(maxWait*debounce))))
	}
	look := func() {
		if w.look() {
			changed(Update{w.set, w.err})
			wake() // the files that it names may be others now
		}
	}
	look() // it may have changed since first was read
	for {
		select {
		case <-ctx.Done():
			return nil
		case e, ok := <-w.events.Events:
			if !ok {
				return errors.New("the grants are not watched any more")
			}
			if w.concerns(e.Name) {
				wake()
			}
		case _, ok := <-w.events.Errors: // events were lost
			if !ok {
				return errors.New("the grants are not watched any more")
			}
			wake()
		case <-quiet.C:
			waits = time.Time{}
			// The new watches are there before the look, so that nothing falls in between.
			if err := w.begin(); err != nil {
				return err
			}
			look()
		}
	}
}

// watch is one call of Watch. All of it belongs to that goroutine.
type watch struct {
	path string
	set  *Set
	err  error // why the newest files are not taken
	// events are those of the directories in names; a nil map there stands for
	// all names.
	events *fsnotify.Watcher
	names  map[string]map[string]bool
}

// begin watches every directory in which a change of a name may lead to other
// contents, in place of those that it watched before.
func (w *watch) begin() error {
	events, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("the grants cannot be watched: %w", err)
	}
	names := w.ways()
	watched := 0
	for dir := range names {
		err := events.Add(dir)
		if err == nil {
			watched++
		}
		// Who may not list a directory may use what is in it all the same.
		if err != nil && !errors.Is(err, fs.ErrPermission) && !errors.Is(err, fs.ErrNotExist) {
			_ = events.Close()
			return fmt.Errorf("the grants cannot be watched: %s: %w", dir, err)
		}
	}
	if watched == 0 {
		_ = events.Close()
		return errors.New("the grants cannot be watched: none of their directories can be read")
	}
	if w.events != nil {
		_ = w.events.Close()
	}
	w.events, w.names = events, names
	return nil
}

// ways are the names on the ways to all files, by directory.
func (w *watch) ways() map[string]map[string]bool {
	names := map[string]map[string]bool{}
	w.follow(w.path, names)
	if dir, err := filepath.EvalSymlinks(w.path); err == nil {
		list, _ := filesOf(w.path) // none if it is a file
		for _, name := range list {
			w.follow(name, names) // links in it may lead elsewhere
		}
		if info, failed := os.Stat(dir); failed == nil && info.IsDir() {
			if dir, err = filepath.Abs(dir); err == nil {
				names[dir] = nil
			}
		}
	}
	files := w.set.Files()
	if broken := (*Error)(nil); errors.As(w.err, &broken) {
		files = append(files, broken.files...) // a missing key may be what is wrong
	}
	for _, name := range files {
		w.follow(name, names)
	}
	return names
}

// follow notes each name on the way to a file, in the directory where it stands. It
// ends where something is missing.
func (w *watch) follow(name string, names map[string]map[string]bool) {
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
		if here, known := names[dir]; !known {
			names[dir] = map[string]bool{part: true}
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
func (w *watch) concerns(name string) bool {
	here, known := w.names[filepath.Dir(name)]
	_, isDir := w.names[name] // of a directory itself: it was removed
	return isDir || (known && (here == nil || here[filepath.Base(name)]))
}

// look reads the files, and reports whether that is news.
func (w *watch) look() bool {
	set, err := Read(w.path)
	if err != nil {
		if _, gone := os.Stat(w.path); errors.Is(gone, fs.ErrNotExist) {
			err = fmt.Errorf("%s was removed, and what it granted stays in force; a file with \"grants: []\" grants nothing", w.path)
		}
		news := w.err == nil || w.err.Error() != err.Error()
		w.err = err
		return news
	}
	news := w.err != nil || !set.Same(w.set)
	w.err = nil
	if !set.Same(w.set) {
		w.set = set
	}
	return news
}
