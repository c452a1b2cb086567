// Command noop is a job that does nothing, in Go and with the SDK, as a user
// would write it.
package main

import (
	"context"
	"errors"

	"github.com/wasmjob/wasmjob/sdk"
	"github.com/wasmjob/wasmjob/sdk/simple"
)

func init() { simple.Register(noop) }

func main() {}

// edition is overwritten in the finished module, so that there can be any
// number of them that are different to the compiler.
var edition = "edition 0000000000000000"

func noop(_ context.Context, sc sdk.ShardingContext) error {
	if sc.JobParameter == "edition" {
		return errors.New(edition)
	}
	return nil
}
