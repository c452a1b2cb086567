// Command wasmjob runs a host of sharded cron jobs whose jobs are WebAssembly
// modules, and has the tools around it. Its code is in host/node/program; this folder
// gives the program that go install makes its name.
package main

import "github.com/wasmjob/wasmjob/host/node/program"

func main() { program.Main() }
