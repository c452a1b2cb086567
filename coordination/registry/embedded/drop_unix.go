//go:build unix

package embedded

import (
	"os"
	"syscall"
)

// drop closes a file that bbolt will not close any more. The lock is let go
// first: bbolt's memory map, which stays, would hold it.
func drop(file *os.File) {
	_ = syscall.Flock(int(file.Fd()), syscall.LOCK_UN)
	_ = file.Close()
}
