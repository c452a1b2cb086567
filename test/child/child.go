// Package child starts servers for tests, and for programs that try things out. They go with the
// process that started them, however it ends, where the system can do that.
package child

import "os/exec"

// Start starts a command, and has a goroutine wait for its end, which calls ended with what Wait
// returns. Where the system can, the child is killed when the starting thread ends, so that thread
// is kept for as long as the child lives.
func Start(cmd *exec.Cmd, ended func(error)) error {
	started := make(chan error, 1)
	go func() { // joined by whoever waits for ended
		defer lockedToParent(cmd)()
		err := cmd.Start()
		started <- err
		if err == nil {
			ended(cmd.Wait())
		}
	}()
	return <-started
}
