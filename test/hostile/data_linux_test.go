package hostile

import "syscall"

// limitData has the system refuse this process more memory than so many bytes.
func limitData(bytes uint64) error {
	return syscall.Setrlimit(syscall.RLIMIT_DATA, &syscall.Rlimit{Cur: bytes, Max: bytes})
}
