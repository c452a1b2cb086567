package event

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Wait is something that a host waits for and that others have to do: hosts,
// servers of the registry, or guests that run.
type Wait string

// The waits. Each has a deadline, and when that is reached an event with a
// *[WaitError]'s text; docs/waits.md says what becomes of it then.
const (
	WaitSession    Wait = "session"        // a session with the registry
	WaitRegistry   Wait = "registry"       // an answer of the registry, or that it takes what it refuses
	WaitSharding   Wait = "sharding"       // the items to be sharded
	WaitJavaLeader Wait = "java_leader"    // a Java leader to shard them: all hosts wait
	WaitElection   Wait = "election_latch" // who stands before this host in ElasticJob's latch
	WaitFailover   Wait = "failover_latch" // the same, before items are taken over
	WaitTakeover   Wait = "takeover"       // a host to take what a crashed host had begun
	WaitMark       Wait = "mark"           // the host that has marked an item as running, which is due here
	WaitMove       Wait = "move"           // items to end where they run, because they move then
	WaitTrigger    Wait = "trigger"        // the job to be idle, for a trigger
	WaitSlot       Wait = "slot"           // a slot of the host, or of those that the job may have
	WaitPermit     Wait = "permit"         // items that run under the same limit, for those that are due under it
	WaitRate       Wait = "rate"           // the time at which an item may begin under a rate
	WaitRetryAt    Wait = "retry_at"       // the time before which a guest asked not to be run again
	WaitListener   Wait = "listener"       // the other hosts, around a listener that runs once over all
	WaitDrain      Wait = "drain"          // what runs to end, because this host leaves
)

// Waits are all kinds of Wait.
func Waits() []Wait {
	return []Wait{WaitSession, WaitRegistry, WaitSharding, WaitJavaLeader, WaitElection, WaitFailover, WaitTakeover, WaitMark, WaitMove,
		WaitTrigger, WaitSlot, WaitPermit, WaitRate, WaitRetryAt, WaitListener, WaitDrain}
}

// ErrWaited is every [WaitError].
var ErrWaited = errors.New("waited too long")

// WaitError says that a wait has reached its deadline.
type WaitError struct {
	What Wait
	// For says in words what was waited for, Then what the host does now, or
	// what can be done about it; Then may be empty.
	For, Then string
	// Other is a Java host that has items and runs none of them, if that was waited for.
	Other string
	// After is how long it was waited.
	After time.Duration
	// Err is what the wait ended with; nil if it goes on.
	Err error
}

func (e *WaitError) Error() string {
	text := fmt.Sprintf("waited %s for %s", e.After.Round(time.Millisecond), e.For)
	if e.Then != "" {
		text += "; " + e.Then
	}
	if e.Err != nil && e.Err != context.DeadlineExceeded { // which says no more
		text += ": " + e.Err.Error()
	}
	return text
}

// Is makes it an ErrWaited.
func (e *WaitError) Is(target error) bool { return target == ErrWaited }

// Unwrap returns Err.
func (e *WaitError) Unwrap() error { return e.Err }
