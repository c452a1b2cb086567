// Command database makes queries with pgx: as many as the item's parameter says, of the server
// that the job's parameter names. It reports how long they took.
package main

import (
	"context"
	"strconv"

	"github.com/jackc/pgx/v5"

	"github.com/wasmjob/wasmjob/bench/outside/selects"
	"github.com/wasmjob/wasmjob/sdk"
	"github.com/wasmjob/wasmjob/sdk/net"
	"github.com/wasmjob/wasmjob/sdk/simple"
)

func init() { simple.Register(run) }

func main() {}

func run(ctx context.Context, sc sdk.ShardingContext) error {
	n, err := strconv.Atoi(sc.ShardingParameter)
	if err != nil {
		return err
	}
	config, err := pgx.ParseConfig(sc.JobParameter)
	if err != nil {
		return err
	}
	config.DialFunc, config.LookupFunc = net.DialContext, net.LookupHost
	took, err := selects.Run(ctx, config, n)
	if err != nil {
		return err
	}
	return sdk.Gauge("took", took.Nanoseconds())
}
