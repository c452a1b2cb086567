// Package plugin runs jobs that are WebAssembly modules, with wazero. It is
// the host's side of package abi: it refuses a module that does not fit, as package
// wasm reads it, with one message that lists every problem, compiles it
// once, and runs sharding items in instances that can harm nothing but their
// own item.
//
//	Runtime ──Load──► Module ──Executor──► abi.Executor ──NewWorker──► abi.Worker
//	one per           one per file         one per job and             one per fire
//	process           seen                 version of its settings     and goroutine
//
// Below them, by the digest of the file, lies the compiled code in a wazero runtime
// of its own. Modules and executors are uses of the code, workers of the wazero
// runtime. One that is not in use stays as long as there is room ([Options].ModuleMemory):
// one goroutine of the Runtime's (keep, engines.go), which Close joins, closes those
// that are needed last, and loads them again ahead of the next fire. When the last
// use of the code ends, all of it is closed by the goroutine that ended the use.
// (wazero unmaps native code in a finalizer, so that a process shrinks a garbage
// collection later.)
//
// # Compiling
//
// What the cache does not have is compiled by another process, if the program
// offers itself for that ([Options].Compiler): its compiler may panic, or take all
// of its memory, and is killed if it takes too long.
//
//	host                                      process that compiles
//	read, meter, look into the cache
//	its bytes ──────── standard input ──────► ServeCompile: limits, priority
//	                                          compile, on all processors
//	move into the cache ◄── a directory ────  write
//	look into the cache
//
// The host looks into the cache by having wazero compile with a context that has
// ended, which is asked before the first function; so both sides name a module
// as wazero does, and nothing here knows how.
//
// # An instance
//
//	new ── _initialize ──► idle ◄──── call ────► idle … ──► dead
//	                        └─ trap, exit, timeout, cancellation,
//	                           a status outside the protocol ──► dead
//
// A worker keeps its instance from item to item, unless the job asks for one
// per item; a dead instance is closed and never entered again: wazero lets a
// guest that has trapped be called once more, and its answer would be wrong.
// A SCRIPT is a new instance each time, for its entry point runs only once.
//
// # Scripts
//
// A SCRIPT is a WASI command. Its arguments are its name, those of the job's
// settings, and the sharding context as one line of JSON, as ElasticJob gives
// it to scripts; the same line is on its standard input. The environment has
// the granted variables and JOB_NAME, JOB_TASK_ID, JOB_SHARDING_TOTAL_COUNT,
// JOB_SHARDING_ITEM, JOB_SHARDING_PARAMETER (unless the item has none),
// JOB_PARAMETER, JOB_FIRE_TIME_MS, JOB_DEADLINE_MS (0 = none), JOB_ATTEMPT,
// and JOB_OFFSET if one is committed and is text. Returning, or exit code 0, is
// OK; 75 is RETRY; any other code is EXIT. What any guest writes to stdout is
// logged as INFO, stderr as ERROR, line by line.
//
// # Time
//
// The context given to Execute is the hard end. It is checked whenever a guest has
// executed so many instructions (see [wasm.Quantum]), before it copies or fills
// much memory, and at every import; this is also what lets Go's scheduler and
// collector in. To that end the code is rewritten before it is compiled: it pays
// for all that it does from a counter (see host/sandbox/wasm). A module that cannot be
// rewritten is refused.
//
// # Memory
//
// A guest's memory is the system's, not the garbage collector's: all addresses
// up to the limit are reserved when the instance is made, and become memory when
// the guest touches them. On Linux what was touched is cleared and kept for the
// next instance, up to 32 MiB for all. Memories, tables, native stacks and
// compiled code are counted in one budget (see budget.go); a native stack has a
// limit of its own, abi.MaxStack.
package plugin
