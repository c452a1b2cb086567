// Package process runs the guests of a job in a process of its own, which the
// host can kill whatever its guests do (isolation: process).
//
//	host                                          worker process
//	Workers ──Module──► Module ──Executor──►
//	abi.Executor ──NewWorker──► abi.Worker        Serve: limits, sandbox
//	             ── the module, its settings ──►  plugin.Runtime, Executor
//	             ◄── ready, or what is wrong ───
//	Execute      ── run ────────────────────────► a goroutine per invocation
//	             ◄── call: log, metric, commit …
//	abi.Host     ── answer ─────────────────────►
//	             ◄── result ────────────────────
//
// There is one process for each executor, that is for each job of a host. It is
// started when the first invocation needs it, runs as many at once as the host
// asks for, and ends when the executor is released or has been idle for a while.
//
// # Who decides
//
// All effects go through the host: the process asks for each, and abi.Host is
// called in the host only. The process may be hostile once a guest has escaped
// from its sandbox, so the host believes nothing that comes from it. A frame that
// is not understood, too long or out of order ends the process. What it may ask
// for is checked again: sizes, names, the rate of log lines, the state of the item.
//
// # Messages
//
// A frame is its length (4 bytes, little endian), its kind (1 byte), and a body in
// JSON, but for the module. Every message of an invocation is a call with one
// answer, so there is never more than one on its way, and no queue can grow.
//
// # The end of a process
//
// If an invocation has no result [Grace] after its context has ended, the process
// is killed: that invocation ends with TIMEOUT or CANCELLED, those beside it with
// ERROR, and the next one gets a new process. On Linux the kernel kills the process
// when the host ends, however that comes about.
//
// # The sandbox
//
// Before it reads the module the process bounds its data and open files, gives up
// new privileges, and, on Linux, restricts itself by Landlock (nothing but the
// compiled code and the job's mounts can be read) and by a seccomp filter (see
// filter_linux.go): no other process, no network, no file to write.
package process
