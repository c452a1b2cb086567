package run

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/coordination"
	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/host/event"
	"github.com/wasmjob/wasmjob/internal/slots"
)

type quietOwner struct {
	Owner
	ended  chan Ended
	events atomic.Int64
}

func (o *quietOwner) Clock() time.Time                         { return time.Now() }
func (o *quietOwner) Trust() (registry.Trust, <-chan struct{}) { return registry.TrustLive, nil }
func (o *quietOwner) Emit(event.Event)                         { o.events.Add(1) }
func (o *quietOwner) Ended(e Ended)                            { o.ended <- e }

type inTurn struct {
	abi.Executor
	run func(item, attempt int) abi.Result
}

func (x *inTurn) Digest() string { return "d" }
func (x *inTurn) NewWorker(context.Context) (abi.Worker, error) {
	return &inTurnWorker{x: x, turn: make(chan struct{}, 1)}, nil
}

type inTurnWorker struct {
	x    *inTurn
	turn chan struct{} // who waits for it lets virtual time pass
}

func (w *inTurnWorker) Depth() int   { return 8 }
func (w *inTurnWorker) Close() error { return nil }
func (w *inTurnWorker) Listen(context.Context, string, *abi.Invocation) abi.Result {
	return abi.Result{}
}
func (w *inTurnWorker) Execute(_ context.Context, inv *abi.Invocation) abi.Result {
	w.turn <- struct{}{}
	defer func() { <-w.turn }()
	return w.x.run(inv.Context.ShardingItem, inv.Context.Attempt)
}

func fireInTurn(s *slots.Slots, items int, x *inTurn, backoff time.Duration) (*Fire, *quietOwner, *slots.Account) {
	o := &quietOwner{ended: make(chan Ended, 1000)}
	a := s.Account("", 100)
	j := &Job{Owner: o, Name: "j", Log: zap.NewNop(), Account: a}
	b := Begun{Exec: x, At: time.Now(), Workers: 1, Places: 1}
	b.Guest.Retry.Attempts, b.Guest.Retry.Backoff, b.Guest.Retry.MaxBackoff, b.Guest.Retry.On = 3, backoff, backoff, []string{string(abi.OutcomeFail)}
	states := map[int]coordination.ItemState{}
	for i := range items {
		states[i] = coordination.ItemState{}
	}
	return New(j, b, states, nil), o, a
}

func collect(t *testing.T, o *quietOwner, n int) {
	t.Helper()
	for i := range n {
		select {
		case <-o.ended:
		case <-t.Context().Done():
			t.Fatalf("%d of %d items ended", i, n)
		}
	}
}

// failsOnce fails the last of eight items the first time. Its items take virtual time.
func failsOnce() *inTurn {
	return &inTurn{run: func(item, attempt int) abi.Result {
		if item > 0 {
			time.Sleep(2 * time.Millisecond)
		}
		if item%8 == 7 && attempt == 1 {
			return abi.Result{Outcome: abi.OutcomeFail}
		}
		return abi.Result{Outcome: abi.OutcomeOK}
	}}
}

// TestHelpedItemFails: an item that a helper has given to a guest is tried again, though the
// worker has the only slot.
func TestHelpedItemFails(t *testing.T) {
	for range 20 {
		synctest.Test(t, func(t *testing.T) {
			f, o, _ := fireInTurn(slots.New(1), 9, failsOnce(), time.Millisecond)
			f.opened = time.Now()
			f.spawn(t.Context(), 1)
			collect(t, o, 9)
			f.workers.Wait()
		})
	}
}

// TestHelpersLeavePlaces: items of helpers that are tried again leave the job the places that
// it has.
func TestHelpersLeavePlaces(t *testing.T) {
	synctest.Test(t, leavePlaces)
}

func leavePlaces(t *testing.T) {
	s := slots.New(8)
	f, o, a := fireInTurn(s, 200, failsOnce(), time.Millisecond)
	f.opened = time.Now()
	f.spawn(t.Context(), 1)
	collect(t, o, 200)
	f.workers.Wait()
	now := make(chan struct{})
	close(now)
	n := 0
	for range 8 {
		h := &slots.Hold{Account: a}
		if h.Take(1, 0, now, nil) {
			n++
		}
	}
	if n != 1 {
		t.Errorf("a job with 1 place has %d", n)
	}
}

// TestGivenBackForEver: an item that guests never begin ends.
func TestGivenBackForEver(t *testing.T) {
	t.Parallel()
	x := &inTurn{run: func(int, int) abi.Result { return abi.Result{Outcome: abi.OutcomeCancelled, NotBegun: true} }}
	f, o, _ := fireInTurn(slots.New(1), 1, x, time.Millisecond)
	f.opened = time.Now()
	f.spawn(t.Context(), 1)
	if e := <-o.ended; e.Result.Outcome != abi.OutcomeError {
		t.Errorf("%+v", e.Result)
	}
	f.workers.Wait()
}
