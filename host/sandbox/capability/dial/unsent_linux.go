package dial

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// unsent bounds, in bytes, how much unsent data the kernel accepts for a connection, up to a segment more. That
// data is sent even if the host is halted and loses its items meanwhile. A larger value makes uploads no
// faster.
const unsent = 64 << 10

// bound sets unsent. A kernel without the setting uses its own limit.
func bound(c syscall.RawConn) error {
	return c.Control(func(fd uintptr) {
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, unsent)
	})
}
