//go:build !linux

package process

import "os/exec"

func bind(*exec.Cmd) {}

// restrict does nothing here: the process can be killed, and that is all.
func restrict(*start) ([]string, error) { return []string{lacksSandbox}, nil }
