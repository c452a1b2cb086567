// Command crash is a SIMPLE job that does not end well, in the way that the
// item's parameter says, or else the job's:
//
//	panic      a panic of its own (if nothing is said)
//	nil        a nil pointer
//	goroutine  a panic where no handler can catch it
//	deadlock   everything waits for everything
//	memory     allocates without end
//	exit       os.Exit(3)
//	fail       returns an error
//	retry      returns an error that may go away
//	ok         is the exception
//
// The host is to report each of them, and nothing else is to notice.
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"

	"github.com/wasmjob/wasmjob/sdk"
	"github.com/wasmjob/wasmjob/sdk/simple"
)

func init() { simple.Register(run) }

func main() {}

func run(_ context.Context, sc sdk.ShardingContext) error {
	how := sc.JobParameter
	if sc.HasShardingParameter {
		how = sc.ShardingParameter
	}
	slog.Info("about to crash", "how", how, "attempt", sc.Attempt)
	switch how {
	case "", "panic":
		panic(fmt.Sprintf("item %d crashes, as it should", sc.ShardingItem))
	case "nil":
		var missing *sdk.ShardingContext
		return errors.New(missing.JobName)
	case "goroutine":
		go func() { panic("a goroutine crashes, as it should") }()
		<-make(chan struct{})
	case "deadlock":
		<-make(chan struct{})
	case "memory":
		var hoard [][]byte
		for {
			hoard = append(hoard, make([]byte, 1<<20))
			hoard[len(hoard)-1][0] = 1
		}
	case "exit":
		os.Exit(3)
	case "fail":
		return errors.New("this item fails, as it should")
	case "retry":
		return sdk.Retry(errors.New("this item asks for another try, as it should"))
	case "ok":
		return nil
	}
	return fmt.Errorf("%q is no way to crash", how)
}
