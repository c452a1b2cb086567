// Package handler is the handler of the guest behave.
package handler

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"strings"
	"time"

	"github.com/wasmjob/wasmjob/sdk"
)

var errTest = errors.New("something broke")

// Behave does what the job parameter says.
func Behave(ctx context.Context, sc sdk.ShardingContext) error {
	switch sc.JobParameter {
	case "ok":
		return nil
	case "context":
		slog.Info("context", "context", fmt.Sprintf("%+v", sc), "task", sc.TaskID(), "config", sc.PluginConfig(),
			"trace", sc.Traceparent(), "host", sc.HostInfo())
		return nil
	case "log":
		slog.Debug("debug", "enabled", true)
		slog.With("a", 1).WithGroup("g").Warn("group", "b", "two\x00three", "d", time.Second)
		slog.Error(strings.Repeat("long ", 10000))
		return nil
	case "fail":
		return fmt.Errorf("item %d: %w", sc.ShardingItem, errTest)
	case "retry":
		return fmt.Errorf("item %d: %w", sc.ShardingItem, sdk.Retry(errTest))
	case "code":
		return sdk.Fail(77, errTest)
	case "offset":
		b, ok := sdk.Offset()
		slog.Info("offset", "length", len(b), "ok", ok)
		if err := sdk.SetOffset([]byte(strings.Repeat("o", 4000))); err != nil {
			return err
		}
		b, ok = sdk.Offset()
		slog.Info("offset", "length", len(b), "ok", ok)
		if err := sdk.CommitOffset(); err != nil {
			return err
		}
		return sdk.SetOffset(make([]byte, 5000))
	case "report":
		sdk.Progress(1<<40, -1)
		return errors.Join(sdk.Counter("orders", -1<<62), sdk.Gauge("open", 3), sdk.Histogram("Bad", 1))
	case "poll":
		for ctx.Err() == nil {
		}
		return fmt.Errorf("%w (%w)", ctx.Err(), context.Cause(ctx))
	case "wait":
		child, cancel := context.WithTimeout(ctx, time.Hour)
		defer cancel()
		<-child.Done()
		return child.Err()
	case "yield":
		done := ctx.Done()
		for {
			select {
			case <-done:
				return ctx.Err()
			default:
				runtime.Gosched()
			}
		}
	case "timeout":
		child, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
		defer cancel()
		select {
		case <-child.Done():
			return child.Err()
		case <-time.After(time.Minute):
			return errors.New("the timer of the child did not fire")
		}
	case "panic":
		panic("no such city")
	case "nil":
		var p *sdk.ShardingContext
		return errors.New(p.JobName)
	case "goroutine":
		go func() { panic("nobody can catch this") }()
		time.Sleep(time.Second)
		return nil
	case "exit":
		os.Exit(3)
	case "deadlock":
		select {}
	}
	return fmt.Errorf("no such behaviour: %q", sc.JobParameter)
}
