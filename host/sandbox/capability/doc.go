// Package capability carries out a running guest's calls to the outside world, through the capabilities'
// imports (abi.CapabilityImports), for guests of this process and of worker processes alike.
//
//	guest ── open, dial ──► Run.Call ──► a Function of http, net, kv, env
//	      ── read, write ─►          ──► the Stream of a handle
//	      ── wait ────────►          ──► until a Stream calls notify
//
// A [Run] belongs to one invocation, and is used by its goroutine. It denies everything that its grant does not
// name, and counts its use. A [Stream] stands behind a handle: its methods do not block; slow work is done by
// the stream's own goroutines, and its Close waits for them.
package capability
