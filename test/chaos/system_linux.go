package chaos

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
)

// alone keeps a terminal's Ctrl-C from the process: the attacker ends it.
func alone(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// mountSmallDisk puts a small file system in memory at dir.
func mountSmallDisk(dir string, size int64) error {
	if os.Geteuid() != 0 {
		return errors.New("a small file system can be mounted by root only")
	}
	if err := syscall.Mount("wasmjob-chaos", dir, "tmpfs", 0, fmt.Sprintf("size=%d", size)); err != nil {
		return fmt.Errorf("a small file system cannot be mounted here: %w", err)
	}
	return nil
}

func unmount(dir string) error {
	if err := syscall.Unmount(dir, 0); err != nil {
		return fmt.Errorf("unmount %s: %w", dir, err)
	}
	return nil
}
