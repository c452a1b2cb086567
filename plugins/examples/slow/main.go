// Command slow is a SIMPLE job that takes its time: as long as the job
// parameter says (a Go duration, 30s if there is none), in steps.
//
// It shows its progress after every step and stops between two steps, and
// while it waits, when the host asks it to.
package main

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/wasmjob/wasmjob/sdk"
	"github.com/wasmjob/wasmjob/sdk/simple"
)

func init() { simple.Register(run) }

func main() {}

const steps = 20

func run(ctx context.Context, sc sdk.ShardingContext) error {
	total := 30 * time.Second
	if sc.JobParameter != "" {
		var err error
		if total, err = time.ParseDuration(sc.JobParameter); err != nil || total < 0 {
			return fmt.Errorf("jobParameter %q is not a duration such as 30s", sc.JobParameter)
		}
	}
	begin := time.Now()
	slog.Info("begin", "takes", total, "attempt", sc.Attempt)
	for step := range steps {
		sdk.Progress(int64(step), steps)
		next := begin.Add(total * time.Duration(step+1) / steps)
		select {
		case <-ctx.Done():
			slog.Warn("stopped", "step", step, "of", steps, "why", context.Cause(ctx))
			return fmt.Errorf("stopped at step %d of %d: %w", step, steps, context.Cause(ctx))
		case <-time.After(time.Until(next)):
		}
	}
	sdk.Progress(steps, steps)
	slog.Info("end", "took", time.Since(begin).Round(time.Millisecond))
	return nil
}
