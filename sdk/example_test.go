package sdk_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/sdk"
	"github.com/wasmjob/wasmjob/sdk/sdktest"
)

// A job's handler, and how a test runs it.
func Example() {
	settle := func(ctx context.Context, sc sdk.ShardingContext) error {
		slog.Info("settled", "city", sc.ShardingParameter, "item", sc.ShardingItem, "of", sc.ShardingTotalCount)
		return sdk.Counter("settled", 1)
	}
	// In a job: func init() { simple.Register(settle) }
	host := &sdktest.Host{Context: sdktest.Context{ShardingItem: 1, ShardingTotalCount: 3, ShardingParameter: "Shanghai"}}
	result := host.Run(settle)
	fmt.Println(result.Outcome)
	for _, line := range host.Logs() {
		fmt.Println(line)
	}
	// Output:
	// OK
	// INFO settled city=Shanghai item=1 of=3
}

// An error that may go away by itself is marked, so that the job's retry
// policy runs the item again.
func ExampleRetry() {
	errBusy := errors.New("ledger is busy")
	post := func(context.Context, sdk.ShardingContext) error {
		return fmt.Errorf("post order 17: %w", sdk.Retry(errBusy))
	}
	result := new(sdktest.Host).Run(post)
	fmt.Println(result.Outcome, result.Message)
	// Output:
	// RETRY post order 17: ledger is busy
}

// A long job keeps what it did so far, and stops when the host asks for it.
// The next run goes on from there.
func ExampleCommitOffset() {
	count := func(ctx context.Context, _ sdk.ShardingContext) error {
		b, _ := sdk.Offset()
		done, _ := strconv.Atoi(string(b)) // no offset: from 0
		for ; done < 10; done++ {
			if ctx.Err() != nil {
				if err := sdk.CommitOffset(); err != nil {
					return err
				}
				return fmt.Errorf("stopped after %d: %w", done, ctx.Err())
			}
			if err := sdk.SetOffset([]byte(strconv.Itoa(done + 1))); err != nil {
				return err
			}
		}
		return nil
	}
	host := &sdktest.Host{OnCancelled: func(question int) abi.Cancel {
		if question > 4 {
			return abi.CancelStop
		}
		return abi.CancelNone
	}}
	for range 3 {
		result := host.Run(count)
		fmt.Println(result.Outcome, result.Message, string(host.Offset))
	}
	// Output:
	// CANCELLED stopped after 4: context canceled 4
	// CANCELLED stopped after 8: context canceled 8
	// OK  10
}
