// Command item does one thing outside, or nothing: what the item's parameter says.
package main

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/wasmjob/wasmjob/sdk"
	"github.com/wasmjob/wasmjob/sdk/http"
	"github.com/wasmjob/wasmjob/sdk/kv"
	"github.com/wasmjob/wasmjob/sdk/simple"
)

func init() { simple.Register(run) }

func main() {}

func run(ctx context.Context, sc sdk.ShardingContext) error {
	switch sc.ShardingParameter {
	case "nothing":
		return nil
	case "state":
		_, err := kv.Increment("runs", 1)
		return err
	case "file":
		return os.WriteFile("/out/file", []byte(sc.RunID), 0o600)
	case "request":
		resp, err := http.Get(ctx, sc.JobParameter)
		if err != nil {
			return err
		}
		_, err = io.Copy(io.Discard, resp.Body)
		return err
	}
	return fmt.Errorf("it cannot do %q", sc.ShardingParameter)
}
