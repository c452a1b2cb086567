// Command listeners is a job with all listeners.
package main

import (
	"context"
	"log/slog"

	"github.com/wasmjob/wasmjob/sdk"
	"github.com/wasmjob/wasmjob/sdk/listener/after"
	"github.com/wasmjob/wasmjob/sdk/listener/afteronce"
	"github.com/wasmjob/wasmjob/sdk/listener/before"
	"github.com/wasmjob/wasmjob/sdk/listener/beforeonce"
	"github.com/wasmjob/wasmjob/sdk/simple"
)

func init() {
	simple.Register(say("item"))
	before.Register(say("before"))
	after.Register(say("after"))
	beforeonce.Register(say("before once"))
	afteronce.Register(say("after once"))
}

func main() {}

func say(what string) sdk.Handler {
	return func(_ context.Context, sc sdk.ShardingContext) error {
		slog.Info(what, "item", sc.ShardingItem)
		return nil
	}
}
