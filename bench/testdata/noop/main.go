// Command noop is a job that does nothing, in Go and with the SDK, as a user
// would write it.
package main

import (
	"context"

	"github.com/wasmjob/wasmjob/sdk"
	"github.com/wasmjob/wasmjob/sdk/simple"
)

func init() { simple.Register(noop) }

func main() {}

func noop(context.Context, sdk.ShardingContext) error { return nil }
