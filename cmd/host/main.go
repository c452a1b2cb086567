// Command host is the program wasmjob under its original name. make build and the image build it as wasmjob;
// cmd/wasmjob is the same program, for go install.
package main

import "github.com/wasmjob/wasmjob/host/node/program"

func main() { program.Main() }
