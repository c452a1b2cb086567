// Command flow settles the numbers below the job parameter.
package main

import (
	"github.com/wasmjob/wasmjob/sdk/dataflow"
	"github.com/wasmjob/wasmjob/sdk/testdata/guests/flow/handler"
)

func init() { dataflow.Register(handler.Fetch, handler.Process) }

func main() {}
