// Command outside does outside of its sandbox what its job parameter says, so that a
// test can compare it with the same code run natively.
package main

import (
	"github.com/wasmjob/wasmjob/sdk/simple"
	"github.com/wasmjob/wasmjob/sdk/testdata/guests/outside/handler"
)

func init() { simple.Register(handler.Outside) }

func main() {}
