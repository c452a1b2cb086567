//go:build unix

package dial

import "syscall"

// writeNow writes what the socket accepts without blocking.
func writeNow(fd uintptr, b []byte) (int, error) { return syscall.Write(int(fd), b) }
