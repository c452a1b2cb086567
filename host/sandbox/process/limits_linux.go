package process

import (
	"errors"
	"fmt"
	"sync"

	"golang.org/x/sys/unix"
)

// limits are a process's kernel limits: a base, plus what the host has admitted to its guests. They follow the
// host's accounts, so that the kernel enforces them, not the process. It is safe for concurrent use.
type limits struct {
	mu    sync.Mutex
	pid   int // 0: none yet, or ended
	ended bool
	data  uint64
	heap  heap
	files uint64
	most  [2]uint64 // what the host itself may have, of data and files
}

// begin sets the limits of a process that has so many bytes of data to begin with.
func (l *limits) begin(pid int, data uint64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, resource := range []int{unix.RLIMIT_DATA, unix.RLIMIT_NOFILE} {
		var own unix.Rlimit
		if err := unix.Getrlimit(resource, &own); err != nil {
			return fmt.Errorf("limits of this process: %w", err)
		}
		l.most[i] = own.Max
	}
	if l.ended {
		return errors.New("the process has ended")
	}
	l.pid, l.data, l.files = pid, data+baseData, baseFiles
	return l.set()
}

// add changes the limits when a guest's allowance changes: total data, Go heap in addition, and files.
func (l *limits) add(data, heap, files int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.data += uint64(data)
	l.heap.add(heap)
	l.files += uint64(files)
	if l.pid != 0 {
		_ = l.set() // the process has ended
	}
}

func (l *limits) set() error {
	for i, r := range []struct {
		resource int
		value    uint64
	}{{unix.RLIMIT_DATA, l.data + uint64(l.heap.most)}, {unix.RLIMIT_NOFILE, l.files}} {
		limit := unix.Rlimit{Cur: min(r.value, l.most[i]), Max: l.most[i]}
		if err := unix.Prlimit(l.pid, r.resource, &limit, nil); err != nil {
			return fmt.Errorf("limits of the worker process: %w", err)
		}
	}
	return nil
}

// end stops setting limits: the process has ended, and its number may be reused.
func (l *limits) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pid, l.ended = 0, true
}
