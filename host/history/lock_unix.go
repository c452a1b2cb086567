//go:build unix && !aix && !solaris

package history

import (
	"errors"
	"os"
	"syscall"
)

// lock takes the file for this writer, until it is closed or the process ends. A
// file system without locks is no reason to refuse.
func lock(f *os.File) error {
	if errors.Is(syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB), syscall.EWOULDBLOCK) {
		return errLocked
	}
	return nil
}
