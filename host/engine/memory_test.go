package engine_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/coordination/jobconfig"
	"github.com/wasmjob/wasmjob/host/engine"
	"github.com/wasmjob/wasmjob/host/event"
)

// crowded is a guest for which there is no memory until room is closed.
type crowded struct {
	*guest
	room chan struct{}
}

func (c *crowded) Executor(d jobconfig.Configuration) (abi.Executor, error) {
	_, err := c.guest.Executor(d)
	return c, err
}

func (c *crowded) NewWorker(ctx context.Context) (abi.Worker, error) {
	select {
	case <-c.room:
		return c.guest, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// An item that waits for memory begins when there is some, ends when it is
// killed, and goes to another host when its own is stopped.
func TestWaitForMemory(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		do   func(c *cluster, n *node, g *crowded)
		want abi.Outcome
		host string
	}{
		{"there is some", func(_ *cluster, _ *node, g *crowded) { close(g.room) }, abi.OutcomeOK, "10.0.0.1"},
		{"killed", func(c *cluster, _ *node, _ *crowded) { c.kill("j", -1, "", time.Second) }, abi.OutcomeCancelled, "10.0.0.1"},
		{"drained", func(c *cluster, n *node, _ *crowded) {
			c.start(2, job(definition("j", "0 0 * * * ?", 1), sleeper(time.Second)))
			n.stop()
		}, abi.OutcomeOK, "10.0.0.2"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t)
				g := &crowded{guest: sleeper(time.Second), room: make(chan struct{})}
				n := c.start(1, engine.Job{Definition: definition("j", "0 0 * * * ?", 1), Module: g, File: "j.yaml", ModuleFile: "j.wasm"})
				time.Sleep(time.Hour + 10*time.Second)
				if begun := c.list(event.ItemStarted); len(begun) != 0 {
					t.Fatalf("without memory: %v", begun)
				}
				tc.do(c, n, g)
				time.Sleep(time.Minute)
				done := c.list(event.ItemCompleted)
				if len(done) != 1 || done[0].Outcome != tc.want {
					t.Fatalf("%v, expected one %s\n%s", done, tc.want, c.all())
				}
				if !strings.HasPrefix(done[0].Host, tc.host+"@-@") {
					t.Errorf("it was completed by %s, expected %s", done[0].Host, tc.host)
				}
			})
		})
	}
}
