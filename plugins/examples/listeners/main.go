// Command listeners is a SIMPLE job with all four listeners: before and after
// on each host, and the two that run once per fire over all hosts. Each logs
// a line, so that their order shows.
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
	beforeonce.Register(say("the fire begins, on all hosts"))
	before.Register(say("this host begins"))
	simple.Register(say("item"))
	after.Register(say("this host has ended"))
	afteronce.Register(say("the fire has ended, on all hosts"))
}

func main() {}

func say(what string) sdk.Handler {
	return func(_ context.Context, sc sdk.ShardingContext) error {
		slog.Info(what, "fire", sc.FireTime.UTC(), "items", sc.ShardingTotalCount)
		return nil
	}
}
