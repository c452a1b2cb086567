//go:build unix

package dir

import (
	"io/fs"
	"syscall"
)

// onlyDirectory makes an open of anything else fail.
const onlyDirectory = syscall.O_DIRECTORY

// links is how many names the file has.
func links(info fs.FileInfo) uint64 {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return uint64(st.Nlink)
	}
	return 1
}

func identityOf(info fs.FileInfo) identity {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return identity{uint64(st.Dev), uint64(st.Ino)}
	}
	return identity{}
}
