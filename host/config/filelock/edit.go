package filelock

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// ErrBusy is the error of a second, concurrent Edit.
var ErrBusy = errors.New("another command edits it, or a file beside it, at the moment; try again")

// Edit replaces a file by the result of text, with the mode 0600. It creates the file and its directory if
// necessary; for a symbolic link it replaces the target, and text gets the target's path. If text fails nothing
// changes, and Edit returns its error unchanged.
//
// Two concurrent edits in one directory do not lose each other's changes: the second fails at once. On a file
// system without locks they can.
func Edit(path string, text func(path string) ([]byte, error)) error {
	if target, err := filepath.EvalSymlinks(path); err == nil {
		path = target
	}
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	lock, err := os.Open(dir) // the file itself is replaced by each edit
	if err != nil {
		return err
	}
	defer func() { _ = lock.Close() }() // it is only locked
	free, err := Take(lock)
	switch {
	case errors.Is(err, errors.ErrUnsupported):
	case err != nil:
		return fmt.Errorf("%s: %w", path, err)
	case !free:
		return fmt.Errorf("%s: %w", path, ErrBusy)
	}
	data, err := text(path)
	if err != nil {
		return err
	}
	return Replace(path, 0o600, data)
}

// Replace writes a file beside its place and renames it, so that a concurrent reader gets all of the old text
// or all of the new one. The text is on disk before that.
func Replace(path string, mode fs.FileMode, data []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".new-*")
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	err = errors.Join(err, f.Chmod(mode), f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}
