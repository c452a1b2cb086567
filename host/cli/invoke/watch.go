package invoke

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"
)

// debounce is how long a watched module must not change before it runs again.
const debounce = 200 * time.Millisecond

// Watch runs the plan now and whenever the module's file has changed, until Stop is closed or ctx is done. It returns the
// result of the last run.
func (r *Run) Watch(ctx context.Context) error {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("--watch: %w", err)
	}
	defer func() { _ = watcher.Close() }() // it was only read from
	// Watch the directory, because editors and compilers replace the file.
	if err := watcher.Add(filepath.Dir(r.File)); err != nil {
		return fmt.Errorf("--watch: %w", err)
	}
	for {
		last := fingerprint(r.File)
		err := r.Once(ctx)
		if err != nil && !errors.Is(err, ErrFailed) {
			r.Log.Error(err.Error())
		}
		if r.stopping() || ctx.Err() != nil {
			return err
		}
		r.Log.Info("waiting for " + r.File + " to change; Ctrl-C ends")
		if !awaitChange(ctx, r.Stop, watcher, r.File, last) {
			if err != nil {
				return ErrFailed
			}
			return nil
		}
	}
}

// awaitChange waits until the file has another content than last, and has not changed for debounce. It returns false if
// it should end.
func awaitChange(ctx context.Context, stop <-chan struct{}, w *fsnotify.Watcher, file string, last [sha256.Size]byte) bool {
	quiet := time.NewTimer(0) // it may have changed since it was read
	defer quiet.Stop()
	for {
		select {
		case <-ctx.Done():
			return false
		case <-stop:
			return false
		case e, ok := <-w.Events:
			if !ok {
				return false
			}
			if filepath.Base(e.Name) == filepath.Base(file) {
				quiet.Reset(debounce)
			}
		case <-w.Errors: // events were lost: look
			quiet.Reset(debounce)
		case <-quiet.C:
			if now := fingerprint(file); now != last && now != ([sha256.Size]byte{}) {
				return true
			}
		}
	}
}

// fingerprint is the digest of the file, zero if it cannot be read.
func fingerprint(file string) [sha256.Size]byte {
	data, err := ReadModule(file) // a pipe in its place would hold us up
	if err != nil {
		return [sha256.Size]byte{}
	}
	return sha256.Sum256(data)
}
