// Command spin is a SIMPLE job that never returns and never looks up: it does
// not ask the host anything, so that the host has to stop it by force.
package main

import (
	"context"

	"github.com/wasmjob/wasmjob/sdk"
	"github.com/wasmjob/wasmjob/sdk/simple"
)

func init() { simple.Register(run) }

func main() {}

func run(context.Context, sdk.ShardingContext) error {
	for turns := uint64(1); ; turns++ {
		if turns == 0 {
			return nil // in some centuries
		}
	}
}
