//go:build !linux

package dial

import "syscall"

// bound does nothing: the system's own limit applies.
func bound(syscall.RawConn) error { return nil }
