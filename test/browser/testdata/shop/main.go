// Command shop is the job of the shop that docs/pictures show: it takes its time in steps,
// says what it has done, and fails if it is told to.
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/wasmjob/wasmjob/sdk"
	"github.com/wasmjob/wasmjob/sdk/simple"
)

func init() { simple.Register(run) }

func main() {}

// run goes by the job's parameter: the number of steps, what a step takes, in which seconds
// of a minute item 3 fails (0: never, 1: always), what a step handles; and with what it fails.
func run(ctx context.Context, sc sdk.ShardingContext) error {
	var steps, seconds int
	var pause, what string
	parameter, failure, _ := strings.Cut(sc.JobParameter, "; ")
	if _, err := fmt.Sscan(parameter, &steps, &pause, &seconds, &what); err != nil {
		return fmt.Errorf("the parameter %q: %w", sc.JobParameter, err)
	}
	each, err := time.ParseDuration(pause)
	if err != nil {
		return err
	}
	for n := range steps {
		select {
		case <-time.After(each + each*time.Duration((sc.ShardingItem*7+n*3)%5)/4):
		case <-ctx.Done():
			return ctx.Err()
		}
		slog.Info(fmt.Sprintf("batch %d of %d", n+1, steps), what, 400+(sc.ShardingItem*37+n*91)%200)
		sdk.Progress(int64(n+1), int64(steps))
	}
	if seconds > 0 && sc.ShardingItem%4 == 3 && sc.FireTime.Second()%seconds == 0 {
		slog.Warn("giving up", "attempt", sc.Attempt)
		return errors.New(failure)
	}
	return nil
}
