package run

import (
	"context"
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/internal/slots"
	"github.com/wasmjob/wasmjob/internal/text/reason"
)

// TestKilledExecution kills a run at each point of its way from the begin to the
// guest.
func TestKilledExecution(t *testing.T) {
	t.Parallel()
	kill := func(e *Execution) (unclaimed bool) {
		first, unclaimed := e.Abort(reason.Free("killed"), time.Now().Add(time.Hour))
		if again, _ := e.Abort(reason.Free("again"), time.Now().Add(2*time.Hour)); !first || again {
			t.Errorf("first %v, again %v", first, again)
		}
		return unclaimed
	}

	e := &Execution{} // no worker has taken it
	if !kill(e) || e.claimed.CompareAndSwap(false, true) {
		t.Error("a worker could take it")
	}

	e = &Execution{} // a worker has taken it, and is about to wait for a slot
	e.claimed.Store(true)
	if kill(e) {
		t.Error("it has been taken")
	}
	own, end := e.life(t.Context())
	if !errors.Is(context.Cause(own), ErrOperator) || e.enter() {
		t.Error("it goes on")
	}
	end()
	if ended, killed := e.KilledBefore(); !killed || ended.Result.Outcome != abi.OutcomeCancelled || ended.Reason.String() != "killed; it had not started" {
		t.Errorf("%+v, %v", ended, killed)
	}

	e = &Execution{} // it waits for a slot, or has just got one
	e.claimed.Store(true)
	own, end = e.life(t.Context())
	kill(e)
	if own.Err() == nil || e.enter() {
		t.Error("it goes on")
	}
	end()

	e = &Execution{} // the guest runs
	e.claimed.Store(true)
	own, end = e.life(t.Context())
	if !e.enter() {
		t.Fatal("it does not begin")
	}
	kill(e)
	if own.Err() != nil || abi.Cancel(e.reason.Load()) != abi.CancelAbort {
		t.Error("it has no grace, or was not asked")
	}
	if at := e.Press(time.Now()); at.IsZero() || own.Err() != nil {
		t.Error("it has no grace")
	}
	if e.Abort(reason.Free("sooner"), time.Now()); !e.Press(time.Now()).IsZero() || own.Err() == nil {
		t.Error("it was not stopped by force")
	}
	e.leave()
	if ended, killed := e.killed(abi.Result{Outcome: abi.OutcomeTrap}); !killed || ended.Result.Outcome != abi.OutcomeCancelled || ended.Reason.String() != "killed; its guest was stopped by force" {
		t.Errorf("%+v, %v", ended, killed)
	}
	end()
}

// TestOutOfTime: who was out of time reads which limit that was.
func TestOutOfTime(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		result abi.Result
		cancel abi.Cancel
		limit  time.Duration
		want   abi.Result
	}{
		{abi.Result{Outcome: abi.OutcomeTimeout, Message: "the time was up"}, abi.CancelDeadline, 5 * time.Second, abi.Result{Outcome: abi.OutcomeTimeout, Message: "the time was up (timeout 5s)"}},
		{abi.Result{Outcome: abi.OutcomeTimeout}, abi.CancelNone, 0, abi.Result{Outcome: abi.OutcomeTimeout}},
		{abi.Result{Outcome: abi.OutcomeCancelled, Message: "I stop"}, abi.CancelDeadline, 5 * time.Second,
			abi.Result{Outcome: abi.OutcomeTimeout, Message: "it ended early because its time was nearly up (timeout 5s): I stop"}},
		{abi.Result{Outcome: abi.OutcomeCancelled, Message: "I stop"}, abi.CancelStop, 5 * time.Second, abi.Result{Outcome: abi.OutcomeCancelled, Message: "I stop"}},
		{abi.Result{Outcome: abi.OutcomeFail, Message: "no"}, abi.CancelNone, 5 * time.Second, abi.Result{Outcome: abi.OutcomeFail, Message: "no"}},
	} {
		if got := OutOfTime(c.result, c.cancel, c.limit); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%+v: %+v, expected %+v", c.result, got, c.want)
		}
	}
}

// TestKilledByItsTimeout: a killed guest whose time-out stops it did not end by
// itself.
func TestKilledByItsTimeout(t *testing.T) {
	t.Parallel()
	e := &Execution{}
	e.stopping.why = reason.Free("killed")
	if ended, killed := e.killed(abi.Result{Outcome: abi.OutcomeTimeout}); !killed || ended.Result.Outcome != abi.OutcomeCancelled || ended.Reason.String() != "killed; its time was up" {
		t.Errorf("%+v, %v", ended, killed)
	}
}

// TestKilledWithASlot: a worker got its slot when the item had been killed. The
// guest does not begin, and the slot is free again.
func TestKilledWithASlot(t *testing.T) {
	t.Parallel()
	account := slots.New(1).Account("", 100)
	f := &Fire{}
	e := &Execution{fire: f, slot: &slots.Hold{Account: account}}
	if !e.slot.Take(1, 0, nil, t.Context().Done()) {
		t.Fatal("no slot")
	}
	e.claimed.Store(true)
	own, end := e.life(t.Context())
	defer end()
	e.Abort(reason.Free("killed"), time.Now())
	defer func() {
		if recover() != nil {
			t.Error("the guest was begun")
		}
	}()
	if ended, _ := f.attempts(t.Context(), own, nil, e); ended.Reason.String() != "killed; it had not started" {
		t.Errorf("%+v", ended)
	}
	e.slot.End()
	over := make(chan struct{})
	close(over)
	if free := (&slots.Hold{Account: account}); !free.Take(1, 0, over, nil) {
		t.Error("the slot is not free")
	}
}
