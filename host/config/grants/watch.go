package grants

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/wasmjob/wasmjob/host/config/filewatch"
)

// Update is news of watched grants.
type Update struct {
	// Set is what is in force now; never nil.
	Set *Set
	// Err is why the changed files are invalid, so that Set stays as it was; nil if they are valid.
	Err error
}

// Watch reads the grants at path again whenever their files change: the files of grants, and those that they
// name for keys and configuration. It follows changed symbolic links, as in Kubernetes. first is the set that
// was read before. It calls changed, in the caller's goroutine, for each new set, or new reason why the files
// are invalid. While a file is missing or broken the previous set stays in force.
//
// Watch returns nil when ctx ends, or an error if changes cannot be detected.
func Watch(ctx context.Context, path string, first *Set, changed func(Update)) error {
	w := &watcher{path: path, set: first}
	return filewatch.Files(ctx, w.names, func() {
		if w.look() {
			changed(Update{w.set, w.err})
		}
	})
}

// watcher is one call of Watch. All of it belongs to that goroutine.
type watcher struct {
	path string
	set  *Set
	err  error // why the newest files are not taken
}

// names are those of all files that count.
func (w *watcher) names() []string {
	names := []string{w.path}
	list, _ := filesOf(w.path) // none if it is a file; links in it may lead elsewhere
	names = append(append(names, list...), w.set.Files()...)
	if broken := (*Error)(nil); errors.As(w.err, &broken) {
		names = append(names, broken.files...) // a missing key may be the problem
	}
	return names
}

// look reads the files, and reports whether the result is new.
func (w *watcher) look() bool {
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
