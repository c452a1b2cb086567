//go:build !linux

package process

import "os/exec"

func bind(*exec.Cmd) {}

// restrict does nothing here: the process can be killed, and that is all.
func restrict(*start) (ready, error) { return ready{Lacks: []string{lacksSandbox}}, nil }
