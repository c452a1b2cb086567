package border

import "github.com/wasmjob/wasmjob/abi"

// trap is the instruction "unreachable"; see trap_wasip1.s.
func trap()

// Enter changes nothing: the host of a guest is who runs it. It is here so that
// what uses it compiles for guests, too.
func Enter(Host, abi.Phase, func()) (leave func()) { return func() {} }

// Trap ends the guest with a trap, which the host cannot mistake for anything
// else and after which it drops the instance. message is for native builds:
// in a guest SetError must have been called before.
func Trap(message string) { trap() }
