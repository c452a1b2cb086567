package run

import (
	"context"
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/internal/slots"
)

// short is an executor that has no memory at first.
type short struct {
	inTurn
	waits chan struct{} // receives when a worker begins to wait
	given chan struct{} // closed when there is memory
}

func (x *short) NewWorker(ctx context.Context) (abi.Worker, error) {
	if begin := abi.Waiting(ctx); begin != nil {
		defer begin()()
	}
	x.waits <- struct{}{}
	select {
	case <-x.given:
		return x.inTurn.NewWorker(ctx)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// TestWaitsWithoutSlot: who waits for memory has no slot and no place, which who has the memory
// may need to go on, and runs in one afterwards.
func TestWaitsWithoutSlot(t *testing.T) {
	t.Parallel()
	s := slots.New(1)
	now := make(chan struct{})
	close(now)
	x := &short{waits: make(chan struct{}, 1), given: make(chan struct{})}
	f, o, a := fireInTurn(s, 1, &x.inTurn, time.Millisecond)
	f.Exec = x
	taken := func(of *slots.Account) bool {
		h := &slots.Hold{Account: of}
		defer h.End()
		return h.Take(1, 0, now, nil)
	}
	ran := false
	x.run = func(int, int) abi.Result {
		ran = true
		if taken(s.Account("b", 100)) {
			t.Error("the item runs without a slot")
		}
		return abi.Result{Outcome: abi.OutcomeOK}
	}
	f.opened = time.Now()
	f.spawn(t.Context(), 1)
	<-x.waits
	if !taken(a) || !taken(s.Account("b", 100)) {
		t.Error("who waits for memory has a slot or a place")
	}
	close(x.given)
	if e := <-o.ended; !ran || e.Unstarted {
		t.Errorf("%+v", e)
	}
	f.workers.Wait()
	if !taken(a) {
		t.Error("the slot was not given back")
	}
}

// TestWaitsWithoutSlot_ended: an item that ends while its worker waits for the slot again is
// handed back.
func TestWaitsWithoutSlot_ended(t *testing.T) {
	t.Parallel()
	s := slots.New(1)
	x := &short{waits: make(chan struct{}, 1), given: make(chan struct{})}
	x.run = func(int, int) abi.Result {
		t.Error("the item runs without a slot")
		return abi.Result{}
	}
	f, o, _ := fireInTurn(s, 1, &x.inTurn, time.Millisecond)
	f.Exec = x
	ctx, cancel := context.WithCancel(t.Context())
	f.opened = time.Now()
	f.spawn(ctx, 1)
	<-x.waits
	other := &slots.Hold{Account: s.Account("b", 100)}
	if !other.Take(1, 0, nil, nil) {
		t.Fatal("no slot")
	}
	close(x.given)
	cancel()
	if e := <-o.ended; !e.Unstarted {
		t.Errorf("%+v", e)
	}
	f.workers.Wait()
	other.End()
}
