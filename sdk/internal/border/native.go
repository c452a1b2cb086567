//go:build !wasip1

package border

import (
	"sync"
	"sync/atomic"

	"github.com/wasmjob/wasmjob/abi"
)

// A guest serves one invocation at a time and finds its host without being
// handed one. A native build keeps both: the host is the process's, and
// running serialises those who want to be it.
var (
	running sync.Mutex
	current atomic.Pointer[invocation]
)

type invocation struct {
	host  Host
	phase abi.Phase
}

// Enter makes h the host of the process until leave is called, for a guest in
// the phase. It waits for the one before to leave, and then for begin, before the guest
// can find h: goroutines of earlier runs may still call. It must not be called between
// Enter and leave on the same goroutine.
func Enter(h Host, phase abi.Phase, begin func()) (leave func()) {
	running.Lock()
	begin()
	current.Store(&invocation{h, phase})
	run.Store(nil)
	return func() {
		current.Store(nil)
		run.Store(nil)
		running.Unlock()
	}
}

// during is the host, nil if there is none or the guest is in another phase.
func during(phases abi.Phase) Host {
	if i := current.Load(); i != nil && i.phase&phases != 0 {
		return i.host
	}
	return nil
}

// number asks the host for a number, of which ErrState is the one out of its phases.
func number[T int32 | int64](phases abi.Phase, ask func(Host) T) T {
	if h := during(phases); h != nil {
		return ask(h)
	}
	return T(abi.ErrState)
}

func yes(phases abi.Phase, ask func(Host) bool) bool {
	h := during(phases)
	return h != nil && ask(h)
}

func do(phases abi.Phase, act func(Host)) {
	if h := during(phases); h != nil {
		act(h)
	}
}

// Trap ends the invocation: it panics with a [*Trapped].
func Trap(message string) { panic(&Trapped{Message: message}) }
