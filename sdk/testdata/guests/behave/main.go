// Command behave does what its job parameter says, so that a test can compare
// what a compiled job tells its host with what the same code tells it
// natively.
package main

import (
	"github.com/wasmjob/wasmjob/sdk/simple"
	"github.com/wasmjob/wasmjob/sdk/testdata/guests/behave/handler"
)

func init() { simple.Register(handler.Behave) }

func main() {}
