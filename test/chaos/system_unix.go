//go:build unix

package chaos

import (
	"os"
	"syscall"
)

const terminateSignal = syscall.SIGTERM

func pauseProcess(p *os.Process) error  { return p.Signal(syscall.SIGSTOP) }
func resumeProcess(p *os.Process) error { return p.Signal(syscall.SIGCONT) }
