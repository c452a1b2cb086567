package tree

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/wasmjob/wasmjob/coordination/jobconfig"
)

// MaxBackfill is how many instants a backfill has at most.
const MaxBackfill = 1000

// The bounds of [Backfill.Every].
const (
	MinBackfillEvery = time.Second
	MaxBackfillEvery = 24 * time.Hour
)

// Backfill is a request to run past instants of a job: node sharding/backfill of our tree. One host of the job
// makes a trigger round for each instant, oldest first. The node is deleted with the last one, or when the
// backfill is cancelled; the result, without the instants, is kept in the node backfill.
type Backfill struct {
	// From and To are the requested range, Unix milliseconds, inclusive.
	From int64 `json:"from"`
	To   int64 `json:"to"`
	// Instants are the instants that run, Unix milliseconds, ascending, and Total is their number. The first
	// Done have been given out: each of their items has begun, waits for its turn, or has a reason why not.
	Instants []int64 `json:"instants,omitempty"`
	Total    int     `json:"total"`
	Done     int     `json:"done,omitempty"`
	// Items are those that run; nil is all of them.
	Items Ranges `json:"items,omitempty"`
	// Every is the least time between two instants, in milliseconds.
	Every int64 `json:"every"`
	// SkipBusy skips the instant of an item that runs for something else when its turn comes.
	SkipBusy bool `json:"skipBusy,omitempty"`
	// By is the requester, Why the given reason, Since the time of the request in Unix milliseconds.
	By    string `json:"by,omitempty"`
	Why   string `json:"why,omitempty"`
	Since int64  `json:"since"`
	// Ended is when it ended, Unix milliseconds; 0: it continues. Cancelled is the operator who cancelled it,
	// empty if it ended with its last instant.
	Ended     int64  `json:"ended,omitempty"`
	Cancelled string `json:"cancelled,omitempty"`
}

// Validate checks a new backfill.
func (b Backfill) Validate() error {
	every := time.Duration(b.Every) * time.Millisecond
	switch n := len(b.Instants); {
	case n == 0:
		return &ArgError{"from", "the job has no instant in the range"}
	case n > MaxBackfill:
		return &ArgError{"to", fmt.Sprintf("found more than %d instants in the range, which is the most of a backfill; run a shorter range first", MaxBackfill)}
	case b.Instants[0] <= 0 || b.Instants[n-1] > MaxInstant || !slices.IsSorted(b.Instants):
		return &ArgError{"from", "found a time that is not from 1970 to 9999"}
	case every < MinBackfillEvery || every > MaxBackfillEvery:
		return &ArgError{"every", fmt.Sprintf("found %s, expected %s to %s", every, MinBackfillEvery, MaxBackfillEvery)}
	}
	return nil
}

// ParseBackfill reads either of the nodes; ok is false if there is none, or it cannot be read.
func ParseBackfill(data []byte) (b Backfill, ok bool) {
	if json.Unmarshal(data, &b) != nil || b.Since == 0 {
		return Backfill{}, false
	}
	if b.Ended == 0 {
		b.Total = len(b.Instants)
	}
	b.Done = min(max(b.Done, 0), b.Total)
	return b, b.Ended != 0 || b.Validate() == nil
}

// Data is what the node holds, JSON.
func (b Backfill) Data() []byte {
	data, _ := json.Marshal(b) // texts and numbers always have a JSON form
	return data
}

// Same reports whether both are the same backfill, regardless of progress.
func (b Backfill) Same(o Backfill) bool {
	return b.Since == o.Since && b.From == o.From && b.To == o.To && b.Total == o.Total
}

// Args are the arguments of the round of the next instant.
func (b Backfill) Args() TriggerArgs {
	return TriggerArgs{Items: b.Items, At: b.Instants[b.Done], Backfill: true, SkipBusy: b.SkipBusy}
}

// Overlap is what happens to an item that runs for something else when its turn comes.
func (b Backfill) Overlap() jobconfig.Overlap {
	if b.SkipBusy {
		return jobconfig.OverlapSkip
	}
	return jobconfig.OverlapQueueAll
}

// Record returns the text that describes it in the audit.
func (b Backfill) Record() string {
	text := fmt.Sprintf("%d instants from %s to %s", len(b.Instants), time.UnixMilli(b.From).UTC().Format(time.RFC3339), time.UnixMilli(b.To).UTC().Format(time.RFC3339))
	if b.Items != nil {
		text += ", " + TriggerArgs{Items: b.Items}.String()
	}
	return text + ", overlap " + string(b.Overlap())
}

// GivenOut reports whether no instant is left to give out.
func (b Backfill) GivenOut() bool { return b.Done >= len(b.Instants) }

// Next returns the backfill after one more instant was given out.
func (b Backfill) Next() Backfill {
	b.Done++
	return b
}

// End returns what is kept of a backfill that ends; now is Unix milliseconds, cancelled is the operator who
// cancelled it, empty if it ended by itself.
func (b Backfill) End(now int64, cancelled string) Backfill {
	b.Instants, b.Ended, b.Cancelled = nil, now, cancelled
	return b
}
