package plugin

import (
	"os"
	"syscall"
	"unsafe"
)

// wipe zeroes a memory whose first used bytes may be dirty, at the cost of the touched pages only. It returns
// how many bytes stay resident, and false if it did nothing: they exceed most, or the system does not report
// them.
func wipe(b []byte, used, most int) (resident int, ok bool) {
	if len(b) == 0 {
		return 0, true
	}
	page := os.Getpagesize()
	in := make([]byte, (len(b)+page-1)/page)
	if _, _, e := syscall.Syscall(syscall.SYS_MINCORE, uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)), uintptr(unsafe.Pointer(&in[0]))); e != 0 {
		return 0, false
	}
	for _, c := range in {
		resident += int(c&1) * page
	}
	if resident > most {
		return 0, false
	}
	for i := 0; i*page < used; {
		j := i + 1
		for j*page < used && (in[j]^in[i])&1 == 0 {
			j++
		}
		run := b[i*page : min(j*page, used)]
		// A page that is not in memory was never touched, or is in swap space: the system drops it either way.
		// Pages that are swapped out later come back to be cleared.
		if in[i]&1 != 0 {
			clear(run)
		} else if syscall.Madvise(run, syscall.MADV_DONTNEED) != nil {
			return 0, false
		}
		i = j
	}
	return resident, true
}
