//go:build darwin || linux

package plugin

import (
	"os"
	"strconv"
	"strings"
	"syscall"
)

// usualAddresses are those of a process of ours that does nothing yet, in bytes.
const usualAddresses = 1536 << 20

// addressLimit is how many bytes of addresses this process may have, and how many it has; ok is false if there is no such limit.
func addressLimit() (limit, taken uint64, ok bool) {
	var l syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_AS, &l) != nil || uint64(l.Cur) >= 1<<47 { // more than a process can have
		return 0, 0, false
	}
	taken = usualAddresses
	if text, err := os.ReadFile("/proc/self/statm"); err == nil {
		pages, _, _ := strings.Cut(string(text), " ")
		if n, err := strconv.ParseUint(pages, 10, 64); err == nil {
			taken = n * uint64(os.Getpagesize())
		}
	}
	return uint64(l.Cur), taken, true
}

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
