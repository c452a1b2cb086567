//go:build unix

package zkserver

import (
	"os"
	"syscall"
)

func terminate(p *os.Process) error { return p.Signal(syscall.SIGTERM) }
func kill(p *os.Process) error      { return p.Signal(syscall.SIGKILL) }
func pause(p *os.Process) error     { return p.Signal(syscall.SIGSTOP) }
func resume(p *os.Process) error    { return p.Signal(syscall.SIGCONT) }
