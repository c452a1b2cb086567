//go:build unix

package ownership

import (
	"io/fs"
	"syscall"
)

// owner is the user whose file it is, if that is known.
func owner(info fs.FileInfo) (User, bool) {
	st, known := info.Sys().(*syscall.Stat_t)
	if !known {
		return 0, false
	}
	return User(st.Uid), true
}
