//go:build unix

package main

import (
	"os/exec"
	"syscall"
)

// ownGroup has what is cancelled end with all the processes that it started.
func ownGroup(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
}
