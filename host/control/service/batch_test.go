package service_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"

	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/tree"
	"github.com/wasmjob/wasmjob/host/auth"
	"github.com/wasmjob/wasmjob/host/control/service"
	"github.com/wasmjob/wasmjob/host/control/service/servicetest"
	"github.com/wasmjob/wasmjob/host/engine"
)

// held keeps commits that write a value to a server of a job until it is let go.
type held struct {
	registry.Center
	*hold
}

type hold struct {
	path, value string
	came        chan struct{} // takes one value for each commit
	goOn        chan struct{}
	once        sync.Once
}

func (h *hold) end() { h.once.Do(func() { close(h.goOn) }) }

func (h held) Commit(ctx context.Context, ops ...registry.Op) ([]registry.Result, error) {
	if slices.ContainsFunc(ops, func(op registry.Op) bool { return op.Path == h.path && string(op.Data) == h.value }) {
		h.came <- struct{}{}
		select {
		case <-h.goOn:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return h.Center.Commit(ctx, ops...)
}

// pausing is a host of three jobs, of which b cannot be paused until hold ends.
func pausing(t *testing.T) (*servicetest.House, *hold) {
	t.Helper()
	h := &hold{path: tree.NewLayout(servicetest.Namespace, "b").Server("127.0.0.1"), value: tree.Disabled, came: make(chan struct{}, 100), goOn: make(chan struct{})}
	var jobs []engine.Job
	for _, name := range []string{"a", "b", "c"} {
		jobs = append(jobs, servicetest.Job(name, "0 0 0 1 1 ?", 1, servicetest.OK))
	}
	house := servicetest.Start(t, servicetest.Options{Jobs: jobs, Wrap: func(c registry.Center) registry.Center { return held{c, h} }})
	t.Cleanup(h.end)
	return house, h
}

// paused reports which of the jobs are paused in the registry.
func paused(h *servicetest.House) (list []string) {
	for _, job := range []string{"a", "b", "c"} {
		if data, _ := h.Look(tree.NewLayout(servicetest.Namespace, job).Server("127.0.0.1")); data == tree.Disabled {
			list = append(list, job)
		}
	}
	return list
}

func operator(ctx context.Context) context.Context {
	return auth.With(ctx, auth.HostToken(auth.ByHostToken))
}

// TestPauseAllGoesOn: who waits no longer for a pause of all jobs hears how far it is, the host goes on with it, and the same request
// waits for that one.
func TestPauseAllGoesOn(t *testing.T) {
	t.Parallel()
	house, hold := pausing(t)
	ctx, cancel := context.WithCancel(operator(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- house.Service.SetEnabled(ctx, "", service.Switch{Why: "the database moves"}) }()
	<-hold.came
	house.Until("the others are paused", func() bool { return slices.Equal(paused(house), []string{"a", "c"}) })
	cancel()
	var unfinished *service.UnfinishedError
	if err := <-ended; !errors.As(err, &unfinished) || unfinished.Of != 3 || unfinished.Ended > 2 || unfinished.Failed != nil {
		t.Fatalf("found %v, want how many of 3 jobs are done", err)
	}
	again := make(chan error, 1)
	go func() {
		again <- house.Service.SetEnabled(operator(t.Context()), "", service.Switch{Why: "the database moves"})
	}()
	hold.end()
	if err := <-again; err != nil {
		t.Error(err)
	}
	if got := paused(house); len(got) != 3 {
		t.Errorf("%v are paused, want all", got)
	}
	if n := len(hold.came); n != 0 {
		t.Errorf("the same request has begun to pause b %d more times", n)
	}
}

// TestLaterWordForAllCounts: a request for all jobs ends one that still goes on, and what is said of one job meanwhile holds.
func TestLaterWordForAllCounts(t *testing.T) {
	t.Parallel()
	house, hold := pausing(t)
	ctx := operator(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- house.Service.SetEnabled(ctx, "", service.Switch{}) }()
	<-hold.came
	house.Until("the others are paused", func() bool { return slices.Equal(paused(house), []string{"a", "c"}) })
	if err := house.Service.SetEnabled(ctx, "", service.Switch{Enable: true}); err != nil {
		t.Error(err)
	}
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("the earlier request ended with %v", err)
	}
	if got := paused(house); len(got) != 0 {
		t.Errorf("%v are paused after the later request", got)
	}
}

// TestCloseEndsBatches: a host that ends leaves no operation behind, and begins none.
func TestCloseEndsBatches(t *testing.T) {
	t.Parallel()
	house, hold := pausing(t)
	ctx, cancel := context.WithCancel(operator(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- house.Service.SetEnabled(ctx, "", service.Switch{}) }()
	<-hold.came
	cancel()
	<-ended
	if err := house.Service.Close(); err != nil {
		t.Error(err)
	}
	var busy *service.BusyError
	if err := house.Service.SetEnabled(operator(t.Context()), "", service.Switch{}); !errors.As(err, &busy) {
		t.Errorf("a host that ends pauses all jobs: %v", err)
	}
}
