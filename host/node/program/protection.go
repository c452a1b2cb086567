package program

import (
	"fmt"
	"slices"
)

// hostRuns returns nil if a host runs on an operating system, else an error.
func hostRuns(goos string) error {
	if slices.Contains([]string{"linux", "darwin"}, goos) {
		return nil
	}
	return fmt.Errorf("wasmjob runs no host on %s: run it on Linux, or on macOS to develop jobs; commands that ask and operate hosts work here with --admin", goos)
}

// unprotected lists the protections that a host lacks on an operating system compared with Linux.
func unprotected(goos string) []string {
	if goos == "linux" {
		return nil
	}
	return []string{
		"this host runs on " + goos + ", which is for a developer's machine: in production use Linux",
		"on " + goos + " jobs are confined by the WebAssembly sandbox and by their limits of time and memory, and the host can kill worker processes; " +
			"the kernel does not confine worker processes: there is no seccomp, no Landlock, and no limit of their memory",
		"on " + goos + " nothing ends a frozen host, and the program's file must not be replaced while it runs, because the host starts worker processes from it",
	}
}
