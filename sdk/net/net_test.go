package net_test

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/sdk"
	sdknet "github.com/wasmjob/wasmjob/sdk/net"
	"github.com/wasmjob/wasmjob/sdk/sdktest"
)

// silent has servers that accept connections and say nothing.
func silent(target string) *sdktest.Host {
	h := &sdktest.Host{}
	h.AllowNet(target, func() (net.Conn, error) {
		here, there := net.Pipe()
		go func() {
			io.Copy(io.Discard, there)
			there.Close()
		}()
		return here, nil
	})
	return h
}

// TestEndsWithRun: a connection that is kept is closed in the next run, also for a
// goroutine that still reads from it, and is not mistaken for the next run's.
func TestEndsWithRun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := silent("tcp://db:5432")
		var kept net.Conn
		ended := make(chan error, 1)
		run := func(handler func() error) {
			t.Helper()
			if r := h.Run(func(context.Context, sdk.ShardingContext) error { return handler() }); r.Outcome != abi.OutcomeOK {
				t.Errorf("%s %s", r.Outcome, r.Message)
			}
			time.Sleep(time.Second)
		}
		run(func() (err error) {
			if kept, err = sdknet.Dial("tcp", "db:5432"); err != nil {
				return err
			}
			go func() {
				_, err := kept.Read(make([]byte, 1))
				ended <- err
			}()
			time.Sleep(time.Second)
			return nil
		})
		if err := <-ended; err == nil || errors.Is(err, io.EOF) {
			t.Errorf("the read of the run before: %v", err)
		}
		run(func() error {
			c, err := sdknet.Dial("tcp", "db:5432")
			if err != nil {
				return err
			}
			defer c.Close()
			if _, err := kept.Write([]byte("x")); !errors.Is(err, net.ErrClosed) {
				t.Errorf("the connection of the run before: %v", err)
			}
			_, err = c.Write([]byte("x"))
			return err
		})
	})
}

// TestCancel: the handler's context is done as soon as the host says so, if it waits.
func TestCancel(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := silent("tls://db:5432")
		var took time.Duration
		r := h.Run(func(ctx context.Context, _ sdk.ShardingContext) error {
			c, err := sdknet.DialTLSContext(ctx, "tcp", "db:5432")
			if err != nil {
				return err
			}
			stop := context.AfterFunc(ctx, func() { c.SetDeadline(time.Unix(1, 0)) })
			defer stop()
			time.AfterFunc(time.Second, func() { h.Cancel(abi.CancelStop) })
			began := time.Now()
			_, err = c.Read(make([]byte, 1))
			took = time.Since(began)
			return errors.Join(err, ctx.Err())
		})
		if r.Outcome != abi.OutcomeCancelled || took > 1010*time.Millisecond {
			t.Errorf("%s %s after %s", r.Outcome, r.Message, took)
		}
	})
}

// TestRefused: nothing is granted that the test does not grant.
func TestRefused(t *testing.T) {
	t.Parallel()
	r := new(sdktest.Host).Run(func(context.Context, sdk.ShardingContext) error {
		_, err := sdknet.Dial("tcp", "db:5432")
		return err
	})
	if want := `job_v1_net is not granted to job "test"`; !strings.Contains(r.Message, want) {
		t.Errorf("%s", r.Message)
	}
}

// TestCloseSends: what was written before Close is sent, as by a socket; a server that takes
// nothing is not waited for.
func TestCloseSends(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := &sdktest.Host{}
		came := make(chan string, 1)
		h.AllowNet("tcp://log:514", func() (net.Conn, error) {
			here, there := net.Pipe()
			go func() {
				all, _ := io.ReadAll(there)
				came <- string(all)
			}()
			return here, nil
		})
		h.AllowNet("tcp://deaf:514", func() (net.Conn, error) {
			here, there := net.Pipe()
			context.AfterFunc(t.Context(), func() { there.Close() })
			return here, nil
		})
		r := h.Run(func(context.Context, sdk.ShardingContext) error {
			for _, server := range []string{"log:514", "deaf:514"} {
				c, err := sdknet.Dial("tcp", server)
				if err != nil {
					return err
				}
				if _, err := io.WriteString(c, "farewell"); err != nil {
					return err
				}
				if err := c.Close(); err != nil {
					return err
				}
			}
			return nil
		})
		if r.Outcome != abi.OutcomeOK {
			t.Errorf("%s %s", r.Outcome, r.Message)
		}
		if got := <-came; got != "farewell" {
			t.Errorf("the server got %q", got)
		}
	})
}
