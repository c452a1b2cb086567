package host

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/abi"
)

// TestKilledExecution kills a run at each point of its way from the begin to the
// guest.
func TestKilledExecution(t *testing.T) {
	t.Parallel()
	kill := func(e *execution) (unclaimed bool) {
		first, unclaimed := e.abort("killed", time.Now().Add(time.Hour))
		if again, _ := e.abort("again", time.Now().Add(2*time.Hour)); !first || again {
			t.Errorf("first %v, again %v", first, again)
		}
		return unclaimed
	}

	e := &execution{} // no worker has taken it
	if !kill(e) || e.claimed.CompareAndSwap(false, true) {
		t.Error("a worker could take it")
	}

	e = &execution{} // a worker has taken it, and is about to wait for a slot
	e.claimed.Store(true)
	if kill(e) {
		t.Error("it has been taken")
	}
	own, end := e.life(t.Context())
	if !errors.Is(context.Cause(own), errOperator) || e.enter() {
		t.Error("it goes on")
	}
	end()
	if ended, killed := e.killedBefore(); !killed || ended.result.Outcome != abi.OutcomeCancelled || ended.reason != "killed; it had not started" {
		t.Errorf("%+v, %v", ended, killed)
	}

	e = &execution{} // it waits for a slot, or has just got one
	e.claimed.Store(true)
	own, end = e.life(t.Context())
	kill(e)
	if own.Err() == nil || e.enter() {
		t.Error("it goes on")
	}
	end()

	e = &execution{} // the guest runs
	e.claimed.Store(true)
	own, end = e.life(t.Context())
	if !e.enter() {
		t.Fatal("it does not begin")
	}
	kill(e)
	if own.Err() != nil || abi.Cancel(e.reason.Load()) != abi.CancelAbort {
		t.Error("it has no grace, or was not asked")
	}
	if at := e.press(time.Now()); at.IsZero() || own.Err() != nil {
		t.Error("it has no grace")
	}
	if e.abort("sooner", time.Now()); !e.press(time.Now()).IsZero() || own.Err() == nil {
		t.Error("it was not stopped by force")
	}
	e.leave()
	if ended, killed := e.killed(abi.Result{Outcome: abi.OutcomeTrap}); !killed || ended.result.Outcome != abi.OutcomeCancelled || ended.reason != "killed; its guest was stopped by force" {
		t.Errorf("%+v, %v", ended, killed)
	}
	end()
}

// TestKilledByItsTimeout: a killed guest whose time-out stops it did not end by
// itself.
func TestKilledByItsTimeout(t *testing.T) {
	t.Parallel()
	e := &execution{}
	e.stopping.reason = "killed"
	if ended, killed := e.killed(abi.Result{Outcome: abi.OutcomeTimeout}); !killed || ended.result.Outcome != abi.OutcomeCancelled || ended.reason != "killed; its time was up" {
		t.Errorf("%+v, %v", ended, killed)
	}
}

// TestKilledWithASlot: a worker got its slot when the item had been killed. The
// guest does not begin, and the slot is free again.
func TestKilledWithASlot(t *testing.T) {
	t.Parallel()
	slots := newSlots(1)
	f := &fire{job: &job{host: &Host{slots: slots}}}
	e := &execution{fire: f, slot: &hold{account: slots.account()}}
	if !e.slot.take(1, 0, nil, t.Context().Done()) {
		t.Fatal("no slot")
	}
	e.claimed.Store(true)
	own, end := e.life(t.Context())
	defer end()
	e.abort("killed", time.Now())
	defer func() {
		if recover() != nil {
			t.Error("the guest was begun")
		}
	}()
	if ended := f.attempts(t.Context(), own, nil, e); ended.reason != "killed; it had not started" {
		t.Errorf("%+v", ended)
	}
	if e.slot.end(); slots.free != 1 {
		t.Error("the slot is not free")
	}
}
