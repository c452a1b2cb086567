//go:build !linux

package chaos

import (
	"errors"
	"os/exec"
)

func alone(*exec.Cmd) {}

func mountSmallDisk(string, int64) error {
	return errors.New("a small file system is only mounted on Linux")
}

func unmount(string) error { return nil }
