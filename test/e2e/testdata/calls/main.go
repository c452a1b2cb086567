// Command calls has each item send a request to the address in the job parameter, with its
// number. It says in which trace it runs, and asks for another attempt if the server is busy.
package main

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"

	"github.com/wasmjob/wasmjob/sdk"
	"github.com/wasmjob/wasmjob/sdk/http"
	"github.com/wasmjob/wasmjob/sdk/simple"
)

func init() { simple.Register(run) }

func main() {}

func run(ctx context.Context, sc sdk.ShardingContext) error {
	slog.Info("calling", "traceparent", sc.Traceparent())
	r, err := http.Get(ctx, sc.JobParameter+strconv.Itoa(sc.ShardingItem))
	if err != nil {
		return err
	}
	defer r.Body.Close()
	if r.Status == 503 {
		return sdk.Retry(fmt.Errorf("the server is busy"))
	}
	return nil
}
