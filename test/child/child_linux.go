package child

import (
	"os/exec"
	"runtime"
	"syscall"
)

// lockedToParent has the child killed when the thread that starts it ends, and keeps
// that thread until the returned function is called. The terminal's signals do not reach
// the child.
func lockedToParent(cmd *exec.Cmd) (release func()) {
	runtime.LockOSThread()
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig, cmd.SysProcAttr.Setpgid = syscall.SIGKILL, true
	return runtime.UnlockOSThread
}
