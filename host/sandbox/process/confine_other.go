//go:build !linux

package process

import "os/exec"

func bind(*exec.Cmd) {}

// restrict does nothing on this system: the process can only be killed.
func restrict(*start) (ready, error) { return ready{Lacks: []string{lacksSandbox}}, nil }
