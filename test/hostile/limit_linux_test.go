package hostile

import "syscall"

// limitMemory bounds the addresses of this process and of those that it starts.
// The race detector needs terabytes of them.
func limitMemory() error {
	if slower > 1 {
		return nil
	}
	return syscall.Setrlimit(syscall.RLIMIT_AS, &syscall.Rlimit{Cur: addressSpace, Max: addressSpace})
}
