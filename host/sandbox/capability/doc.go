// Package capability is what a running guest has to do with the world outside: it
// carries out the calls of the capabilities' imports (abi.CapabilityImports), for
// guests of this process and of worker processes alike.
//
//	guest ── open, dial ──► Run.Call ──► a Function of http, net, kv, env
//	      ── read, write ─►          ──► the Stream of a handle
//	      ── wait ────────►          ──► until a Stream calls notify
//
// A [Run] belongs to one invocation, and is used by its goroutine. It denies what its
// grant does not name, and counts. A [Stream] is what a handle stands for: nothing of
// it blocks; what takes time is done by goroutines of the stream's own, for which
// its Close waits.
package capability
