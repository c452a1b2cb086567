package mariadbserver

import (
	"os/exec"
	"runtime"
	"syscall"
)

// lockedToParent has the child killed when the thread that starts it ends, and keeps
// that thread until the returned function is called.
func lockedToParent(cmd *exec.Cmd) (release func()) {
	runtime.LockOSThread()
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	return runtime.UnlockOSThread
}
