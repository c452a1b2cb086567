package event

import (
	"context"
	"time"

	"github.com/wasmjob/wasmjob/abi"
)

// GuestLog is one line of a guest.
type GuestLog struct {
	// Time is that of the host's clock, or a little later: no two lines of a fire on a host have the
	// same. Host is the instance id.
	Time               time.Time
	Host               string
	Job, TaskID, RunID string
	Item               int // -1 in a listener
	// Fence is the run's fence token; 0 in a listener.
	Fence   int64
	Level   int // see abi.LevelInfo
	Message string
	// Attrs alternates keys and values.
	Attrs []string
}

// WholeLog takes all lines of all guests, including those over the limits of a log.
type WholeLog struct {
	// Where names the file of the lines, for people.
	Where string
	// Add takes a line, from the guest's goroutine. It may block until ctx has ended, and for a
	// second at most.
	Add func(ctx context.Context, g GuestLog)
}

// Run names a run of an item.
type Run struct {
	Job string
	// Instant and Trigger say of which fire, as in Event.
	Instant time.Time
	Trigger int64
	Item    int // -1 in a listener
	RunID   string
}

// GuestCall is an ended request or connection of a guest. It precedes the event that ends its attempt or
// listener.
type GuestCall struct {
	Run
	Time time.Time // when it was over, by the host's clock
	abi.OutsideCall
}

// GuestMetric is one value that a guest reported.
type GuestMetric struct {
	Job   string
	Kind  int // abi.MetricCounter, …
	Name  string
	Value int64
}
