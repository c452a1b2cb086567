package host

import (
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/coordination"
)

// dividedSoon is how long a host whose server was disabled waits for the
// division that takes its items away.
const dividedSoon = 5 * time.Second

// waiting is the trigger that waits for this host.
type waiting struct {
	seen     int64 // the transaction that made the node
	round    int64 // what that was found to belong to; 0: not read yet
	consumed int64 // the newest round that this host has consumed
	// waits is a node that is not consumed until then: the server is disabled,
	// and the items are still to be divided without it.
	waits int64
	until time.Time
}

// triggered returns the fire of the trigger that waits, if there is one.
func (j *job) triggered(now moment) (id coordination.Fire, ok bool) {
	t := &j.trigger
	if j.view.Trigger == 0 || now.Before(j.retryAt) {
		return id, false
	}
	if t.seen != j.view.Trigger || t.round == 0 {
		t.seen, t.round = j.view.Trigger, 0
		if err := j.perform(coordination.TriggerRound(j.view, t.consumed, &t.round)); err != nil {
			j.failed(now, "reading the trigger", err)
			return id, false
		}
	}
	if t.round == 0 {
		j.view.Trigger = 0 // gone, as the next snapshot says
		return id, false
	}
	return coordination.Fire{Instant: now.wall.UnixMilli(), Trigger: t.round, Source: string(abi.SourceTrigger)}, true
}

// consume begins the items of the trigger that waits, and takes that away.
func (j *job) consume(now moment, id coordination.Fire, items []*item) bool {
	if !j.begin(now, id, items, nil, true) {
		return false
	}
	j.trigger.consumed = max(j.trigger.consumed, id.Trigger)
	j.view.Trigger = 0 // the next snapshot says so too
	return true
}

// dropTrigger reports a trigger that waits and that this host will not serve.
func (j *job) dropTrigger(cause SkipCause, why string) {
	if j.view.Trigger == 0 {
		return
	}
	round := j.view.Trigger
	if j.trigger.seen == round && j.trigger.round != 0 {
		round = j.trigger.round
	}
	j.skipFire(coordination.Fire{Instant: j.host.clock().UnixMilli(), Trigger: round, Source: string(abi.SourceTrigger)}, cause, why)
	j.view.Trigger = 0
}
