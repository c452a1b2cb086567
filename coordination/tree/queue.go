package tree

import (
	"encoding/json"
	"slices"
)

// Queue are the triggers of a job that wait behind the one of node trigger, the oldest first. Each becomes a round of its
// own, with its own arguments.
type Queue struct {
	Triggers []QueuedTrigger `json:"triggers,omitempty"`
}

// QueuedTrigger is one of them.
type QueuedTrigger struct {
	// Number is the transaction that queued it. The newest trigger is stored without it.
	Number int64       `json:"number,omitempty"`
	Args   TriggerArgs `json:"args,omitzero"`
}

// maxQueue bounds the node, in bytes: 60 triggers with the longest parameter.
const maxQueue = 256 << 10

// ParseQueue reads node sharding/queue, last written by the transaction zxid; an unreadable node is the zero
// Queue.
func ParseQueue(data []byte, zxid int64) Queue {
	var q Queue
	if json.Unmarshal(data, &q) != nil {
		return Queue{}
	}
	if n := len(q.Triggers) - 1; n >= 0 && q.Triggers[n].Number == 0 {
		q.Triggers[n].Number = zxid
	}
	return q
}

// Data is what the node holds, JSON; nil of an empty queue.
func (q Queue) Data() []byte {
	if len(q.Triggers) == 0 {
		return nil
	}
	b, err := json.Marshal(q)
	if err != nil { // texts and numbers always marshal
		return nil
	}
	return b
}

// With is the queue with one more trigger, whose number is that of the transaction that writes it.
func (q Queue) With(args TriggerArgs) Queue {
	return Queue{append(slices.Clone(q.Triggers), QueuedTrigger{Args: args})}
}

// Full reports whether a queue of at most most triggers has no room for one more with these arguments.
func (q Queue) Full(most int, args TriggerArgs) bool {
	return len(q.Triggers) >= most || len(q.With(args).Data()) > maxQueue
}

// Rest is the queue without its first n triggers.
func (q Queue) Rest(n int) Queue { return Queue{q.Triggers[min(n, len(q.Triggers)):]} }

// Round returns the arguments of the trigger's round.
func (t QueuedTrigger) Round() TriggerArgs {
	t.Args.Queued = t.Number
	return t.Args
}
