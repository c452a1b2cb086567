//go:build linux || darwin || freebsd

package jsonl

import "golang.org/x/sys/unix"

// diskSize is the size in bytes of the file system that the directory is on; 0 if
// that is not known.
func diskSize(dir string) int64 {
	var stat unix.Statfs_t
	if unix.Statfs(dir, &stat) != nil {
		return 0
	}
	return int64(stat.Blocks) * int64(stat.Bsize)
}
