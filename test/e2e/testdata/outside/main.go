// Command outside does all it can outside until it is stopped by force: it streams the body
// of a request, sends others, appends to a file, and cares for no error.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"runtime"
	"time"

	"github.com/wasmjob/wasmjob/sdk"
	"github.com/wasmjob/wasmjob/sdk/http"
	"github.com/wasmjob/wasmjob/sdk/simple"
)

func init() { simple.Register(run) }

func main() {}

// endless is a body without an end.
type endless struct{}

func (endless) Read(p []byte) (int, error) {
	runtime.Gosched()
	return min(len(p), 2000), nil
}

func run(_ context.Context, sc sdk.ShardingContext) error {
	url, ctx := sc.JobParameter, context.Background()
	go func() {
		for {
			r, err := http.Post(ctx, url+"stream", "text/plain", endless{})
			if err == nil {
				r.Body.Close()
			}
			time.Sleep(time.Millisecond)
		}
	}()
	go func() {
		for {
			r, err := http.Get(ctx, url+"get")
			if err == nil {
				_, _ = io.Copy(io.Discard, r.Body)
				r.Body.Close()
			}
			time.Sleep(time.Millisecond)
		}
	}()
	for {
		f, err := os.OpenFile(fmt.Sprintf("/out/%d", sc.Fence), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o666)
		if err == nil {
			fmt.Fprintln(f, "here I am")
			f.Close()
		}
		runtime.Gosched()
	}
}
