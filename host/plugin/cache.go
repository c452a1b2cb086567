package plugin

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"time"
)

// cacheAge is how long compiled code is kept on disk after it was written.
// wazero never removes any, and a file that is still wanted is written again.
const cacheAge = 30 * 24 * time.Hour

// privateDir makes a directory that no other user may write or read, or checks
// that it is one.
func privateDir(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	info, err := os.Stat(dir)
	if err != nil {
		return err
	}
	if mode := info.Mode().Perm(); runtime.GOOS != "windows" && mode&0o077 != 0 {
		return fmt.Errorf("%s has mode %#o, expected 0700, since what lies in it is executed: chmod 700 %[1]s", dir, mode)
	}
	return nil
}

// cacheFile matches what wazero names compiled code.
const cacheFile = `^[0-9a-f]{64}`

// prune removes what was written before the given instant. It touches nothing
// that wazero would not have named: a directory for each of its versions, in
// it files named by a hash, and those that a process has left half written; and
// it removes what a host has left that was ended while it had a module compiled.
func prune(dir string, before time.Time) error {
	files, err := filepath.Glob(filepath.Join(dir, "wazero-*", "*"))
	if err != nil {
		return err
	}
	ours := regexp.MustCompile(cacheFile + `(\.[0-9]+\.tmp)?$`)
	var errs []error
	for _, name := range files {
		info, err := os.Lstat(name)
		if err != nil || !info.Mode().IsRegular() || !ours.MatchString(info.Name()) || !info.ModTime().Before(before) {
			continue
		}
		if err := os.Remove(name); err != nil && !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	staged, err := filepath.Glob(filepath.Join(dir, stagingPattern))
	if err != nil {
		return err
	}
	for _, name := range staged {
		if info, err := os.Lstat(name); err == nil && info.IsDir() && time.Since(info.ModTime()) > stagingAge {
			errs = append(errs, os.RemoveAll(name))
		}
	}
	return errors.Join(errs...)
}
