//go:build unix

package deadman

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// lock takes the file for this process, until it is closed or the process ends;
// free is false if another process has it.
func lock(f *os.File) (free bool, err error) {
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return false, nil
	}
	return err == nil, err
}
