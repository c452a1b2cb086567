// Command wasmjob runs a host of sharded cron jobs whose jobs are WebAssembly modules, and has the commands for
// operators. Its code is in host/node/program; this folder exists so that go install names the program wasmjob.
package main

import "github.com/wasmjob/wasmjob/host/node/program"

func main() { program.Main() }
