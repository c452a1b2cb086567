// Command callers uses what it is granted in its listeners, keeps state over attempts, and holds
// connections.
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"

	"github.com/wasmjob/wasmjob/sdk"
	"github.com/wasmjob/wasmjob/sdk/env"
	"github.com/wasmjob/wasmjob/sdk/http"
	"github.com/wasmjob/wasmjob/sdk/kv"
	"github.com/wasmjob/wasmjob/sdk/listener/after"
	"github.com/wasmjob/wasmjob/sdk/listener/afteronce"
	"github.com/wasmjob/wasmjob/sdk/listener/before"
	"github.com/wasmjob/wasmjob/sdk/listener/beforeonce"
	"github.com/wasmjob/wasmjob/sdk/net"
	"github.com/wasmjob/wasmjob/sdk/simple"
)

func init() {
	simple.Register(item)
	before.Register(listener("before"))
	after.Register(listener("after"))
	beforeonce.Register(listener("before-once"))
	afteronce.Register(listener("after-once"))
}

func main() {}

// listener posts what it reads to the server that the job parameter names, and writes a file.
func listener(name string) sdk.Handler {
	return func(ctx context.Context, sc sdk.ShardingContext) error {
		server, isURL := strings.CutPrefix(sc.JobParameter, "http://")
		if !isURL {
			return nil
		}
		secret, err := env.Secret("OPEN")
		if err != nil {
			return err
		}
		resp, err := http.Do(ctx, http.Request{Method: "POST", URL: "http://" + server + name, Body: strings.NewReader(secret),
			Header: http.Header{"Authorization": {"{{secret:CLOSED}}"}}})
		if err != nil {
			return err
		}
		if err := resp.Body.Close(); err != nil {
			return err
		}
		zone, err := env.Get("ZONE")
		if err != nil {
			return err
		}
		if err := os.WriteFile("/out/"+name, []byte(zone), 0o666); err != nil {
			return err
		}
		if err := kv.Set("listener", nil); err == nil {
			return errors.New("a listener has set state")
		}
		return nil
	}
}

func item(_ context.Context, sc sdk.ShardingContext) error {
	if address, ok := strings.CutPrefix(sc.JobParameter, "tcp://"); ok {
		return hold(address)
	}
	return again(sc.Attempt)
}

// again commits some of its state in the first attempt, stages more, and fails.
func again(attempt int) error {
	if attempt == 1 {
		return errors.Join(kv.Set("committed", []byte("1")), sdk.SetOffset([]byte("one")), sdk.CommitOffset(),
			kv.Set("committed", []byte("2")), kv.Set("staged", []byte("1")), sdk.SetOffset([]byte("two")),
			sdk.Retry(errors.New("once more")))
	}
	committed, _, err := kv.Get("committed")
	if err != nil {
		return err
	}
	_, staged, err := kv.Get("staged")
	if err != nil {
		return err
	}
	offset, _ := sdk.Offset()
	slog.Info(fmt.Sprintf("attempt %d: committed %s, staged %v, offset %s", attempt, committed, staged, offset))
	_, err = kv.Increment("attempts", int64(attempt))
	return err
}

// hold does what the server says, line by line.
func hold(address string) error {
	conn, err := net.Dial("tcp", address)
	if err != nil {
		return err
	}
	for lines := bufio.NewScanner(conn); lines.Scan(); {
		answer := lines.Text()
		if answer == "dial" {
			_, err := net.Dial("tcp", address)
			answer = fmt.Sprint("dialled: ", err)
		}
		if _, err := fmt.Fprintln(conn, answer); err != nil {
			return err
		}
		if answer == "end" {
			return conn.Close() // the other one it leaves open
		}
	}
	return errors.New("the server has gone")
}
