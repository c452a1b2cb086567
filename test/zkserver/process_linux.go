package zkserver

import (
	"os/exec"
	"runtime"
	"syscall"
)

// lockedToParent has the child killed when the thread that starts it ends,
// and keeps that thread until the returned function is called.
func lockedToParent(cmd *exec.Cmd) (release func()) {
	runtime.LockOSThread()
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	return runtime.UnlockOSThread
}
