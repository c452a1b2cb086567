//go:build unix

package embedded

import (
	"errors"
	"os"
	"syscall"
)

// takeLock takes the lock of an open file, as bbolt does. free is false if another open file has it.
func takeLock(file *os.File) (free bool, err error) {
	err = syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return false, nil
	}
	return err == nil, err
}

// drop closes a file that bbolt will no longer close. It releases the lock first: bbolt's memory map stays and
// would hold it.
func drop(file *os.File) {
	_ = syscall.Flock(int(file.Fd()), syscall.LOCK_UN)
	_ = file.Close()
}
