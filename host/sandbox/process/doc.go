// Package process runs guests in worker processes. A crash of a worker process does not end the host, and the
// host can kill it whatever its guests do.
//
//	host                                          worker process
//	Workers ──Module──► Module ──Executor──►
//	abi.Executor ──NewWorker──► abi.Worker        Serve: sandbox, plugin.Runtime
//	             ── open: a module, a job's settings ──►  plugin.Executor
//	             ◄── opened, or what is wrong ──
//	Execute      ── run ────────────────────────► the guest of that worker
//	             ◄── call: commit, a capability …
//	abi.Host     ── answer ─────────────────────►
//	             ◄── tell: log, progress … ──────
//	             ◄── result ────────────────────
//
// # Groups
//
// A [group] is the jobs that share a process: all with the same share that read the same directories by
// themselves, or one job. It has at most one process at a time. The process is started ahead of a known fire,
// or when a worker needs it, and ends when it has been idle for a while, when its memory is needed, or with the
// last executor of the group. Modules come into its memory and leave it by the rule of host/sandbox/plugin
// ([plugin.Settle]).
//
// # Who decides
//
// All effects go through the host: the process asks for each, and abi.Host is called in the host only. The
// process may be hostile once a guest has escaped from its sandbox, so the host trusts nothing that it sends.
// An invalid frame, or one that is too long or out of order, ends the process. The host checks every request
// again: sizes, names, the rate of log lines, the state of the item.
//
// # Messages
//
// A frame is its length (4 bytes, little endian), its kind (1 byte), and a body in CBOR, but for the module. A
// request that needs an answer is a call, and the guest waits; one that needs none is a tell. The host queues a
// bounded number of an invocation's messages, and the process blocks on its pipe while the queue is full.
//
// A worker takes up to [Depth] items at once, which its guest runs one after the other. If one takes long,
// those behind it are returned as not begun.
//
// # The end of a process
//
// If an invocation has no result [Grace] after its context has ended, the process is killed. That invocation
// ends with TIMEOUT or CANCELLED, those beside it with WORKER. If a process ends by itself, all end with
// WORKER. Their jobs, or the job that the process was killed for, run in processes of their own for a while. On
// Linux the kernel kills the processes when the host ends, for whatever reason.
//
// # The sandbox
//
// Before the first guest the process bounds its files, gives up new privileges, and, on Linux, restricts itself
// by Landlock (nothing but the compiled code and the group's directories can be read) and by a seccomp filter
// (see filter_linux.go): no other process, no network, no file to write. The host bounds its data and its open
// files from outside, by what it has admitted.
package process
