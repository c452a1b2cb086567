package program

import (
	"fmt"
	"slices"
)

// hostRuns says whether a host runs on an operating system; nil if it does.
func hostRuns(goos string) error {
	if slices.Contains([]string{"linux", "darwin"}, goos) {
		return nil
	}
	return fmt.Errorf("no host runs on %s: run one on Linux, or on macOS to develop jobs; the commands that ask and operate hosts work here, with --admin", goos)
}

// unprotected says what does not protect a host on an operating system that does on
// Linux. It is empty for Linux.
func unprotected(goos string) []string {
	if goos == "linux" {
		return nil
	}
	return []string{
		"this host runs on " + goos + ", which is for a developer's machine: in production use Linux",
		"on " + goos + " jobs are held by the WebAssembly sandbox and by their limits of time and memory, and worker processes can be killed; " +
			"the kernel does not confine worker processes: there is no seccomp, no Landlock, and no limit of their memory",
		"on " + goos + " nothing ends a host that is frozen, and the program must not be replaced while it runs: worker processes are started from its file",
	}
}
