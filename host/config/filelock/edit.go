package filelock

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// ErrBusy is what Edit answers the second of two edits at a time.
var ErrBusy = errors.New("another command edits it, or a file beside it, at the moment; try again")

// Edit replaces a file by what text makes of it, with the mode 0600. The file and its
// directory are made if they do not exist; of a symbolic link the file that it leads to is
// replaced, and text gets the path of that one. Where text fails nothing is changed, and
// Edit returns its error as it is.
//
// Two edits of one directory at a time do not lose each other's changes: the second one
// fails at once. On a file system without locks they can.
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

// Replace writes a file beside its place and renames it, so that who reads it meanwhile
// gets all of the old text or all of the new one. The text is on the disk before.
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
