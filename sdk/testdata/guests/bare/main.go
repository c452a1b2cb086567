// Command bare is the smallest job.
package main

import (
	"context"

	"github.com/wasmjob/wasmjob/sdk"
	"github.com/wasmjob/wasmjob/sdk/simple"
)

func init() {
	simple.Register(func(context.Context, sdk.ShardingContext) error { return nil })
}

func main() {}
