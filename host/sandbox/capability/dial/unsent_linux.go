package dial

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// unsent bounds what the kernel takes of a connection before it can send it, in bytes, up to a
// segment more. That goes out also when the host is halted and loses its items meanwhile. What is
// larger makes uploads no faster.
const unsent = 64 << 10

// bound sets it. A kernel that has no such setting takes what it takes.
func bound(c syscall.RawConn) error {
	return c.Control(func(fd uintptr) {
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, unsent)
	})
}
