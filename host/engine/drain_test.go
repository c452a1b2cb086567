package engine_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/host/engine"
	"github.com/wasmjob/wasmjob/host/event"
)

func TestKillEndsDialling(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, err := engine.New(engine.Config{Namespace: "n", ServerIP: "10.0.0.1", Dial: func(ctx context.Context) (registry.Center, error) {
			select {
			case <-time.After(time.Second):
				return nil, errors.New("nobody there")
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}})
		if err != nil {
			t.Fatal(err)
		}
		kill, killNow := context.WithCancel(t.Context())
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		done := make(chan error, 1)
		go func() { done <- h.Run(ctx, kill) }()
		time.Sleep(10 * time.Second)
		killNow()
		select {
		case <-done:
		case <-time.After(time.Minute):
			t.Error("Run goes on a minute after it was killed")
		}
	})
}

func TestDrain_queuedItemsDoNotBegin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		// More items than the host has slots: several jobs want them.
		var jobs []engine.Job
		for k := range 40 {
			d := definition(fmt.Sprintf("j%02d", k), "0 * * * * ?", 1)
			jobs = append(jobs, job(d, sleeper(10*time.Second)))
		}
		n := c.start(1, jobs...)
		time.Sleep(61 * time.Second)
		asked := time.Now()
		n.stop()
		<-n.done
		for _, e := range c.list(event.ItemStarted) {
			if !e.Time.Before(asked) {
				t.Fatalf("%s began while the host drains\n%s", e.RunID, c.all())
			}
		}
	})
}

func TestDrain_reportsATriggerThatItDrops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		n := c.start(1, job(definition("j", "", 1), sleeper(20*time.Second)))
		time.Sleep(time.Second)
		for range 2 {
			if err := n.operator().Trigger(t.Context(), "j"); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
		}
		n.stop()
		<-n.done
		skipped := c.list(event.FireSkipped)
		if len(skipped) != 1 || skipped[0].Trigger == 0 || skipped[0].Reason == "" {
			t.Errorf("skipped: %s, want the trigger that was kept\n%s", lines(skipped), c.all())
		}
	})
}

// TestDrain_endsInTime: a registry takes a second for each commit, and jobs are still to join or to be left when the drain timeout
// is over. The host ends all the same.
func TestDrain_endsInTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.config = func(cfg *engine.Config) { cfg.DrainTimeout = 5 * time.Second }
		turn := make(chan struct{}, 1)
		c.wrap = func(_ int, l *lease) registry.Center { return &queued{l, turn} }
		var jobs []engine.Job
		for n := range 200 {
			jobs = append(jobs, job(every(fmt.Sprintf("j%03d", n), 1), sleeper(time.Second)))
		}
		n := c.start(1, jobs...)
		time.Sleep(20 * time.Second)
		began := time.Now()
		n.stop()
		if err := <-n.done; err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took > 17*time.Second {
			t.Errorf("the host ended %s after it was asked to, expected 15 s", took)
		}
	})
}

// queued is a session whose commits take a second each, one after the other.
type queued struct {
	*lease
	turn chan struct{}
}

func (q *queued) Commit(ctx context.Context, ops ...registry.Op) ([]registry.Result, error) {
	select {
	case q.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, registry.ErrUnknown
	}
	defer func() { <-q.turn }()
	time.Sleep(time.Second)
	return q.lease.Commit(ctx, ops...)
}
