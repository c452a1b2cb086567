//go:build darwin || linux

package plugin

import "syscall"

// reserve reserves addresses without memory; nil if it fails.
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

// use makes reserved addresses usable; they read as zero. It returns false if the system cannot promise the
// memory.
func use(b []byte) bool { return syscall.Mprotect(b, syscall.PROT_READ|syscall.PROT_WRITE) == nil }

// unreserve releases the addresses and their memory. It fails only for addresses that were not reserved.
func unreserve(b []byte) { _ = syscall.Munmap(b) }
