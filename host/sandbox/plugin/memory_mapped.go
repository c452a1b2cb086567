//go:build darwin || linux

package plugin

import "syscall"

// reserve takes addresses without memory; nil if there are none to be had.
func reserve(size uint64) []byte {
	if size == 0 || uint64(int(size)) != size {
		return nil
	}
	b, err := syscall.Mmap(-1, 0, int(size), syscall.PROT_NONE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		return nil
	}
	return b
}

// use makes reserved addresses usable; what they hold is zero. It reports
// false if the system has no memory to promise.
func use(b []byte) bool { return syscall.Mprotect(b, syscall.PROT_READ|syscall.PROT_WRITE) == nil }

// unreserve gives the addresses back, and the memory behind them. It fails for
// what was not reserved only.
func unreserve(b []byte) { _ = syscall.Munmap(b) }
