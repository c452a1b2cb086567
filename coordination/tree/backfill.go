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

// Backfill is a wish to run past instants of a job again: node sharding/backfill of our tree. One host of the job
// makes a trigger round of one instant after the other, oldest first. The node goes with the last of them, or when the backfill is
// cancelled; what became of it then stands in the node backfill, without the instants.
type Backfill struct {
	// From and To are the range that was asked for, Unix milliseconds; both count.
	From int64 `json:"from"`
	To   int64 `json:"to"`
	// Instants are those that run, Unix milliseconds, ascending, and Total is how many they are. The first Done of
	// them have been given out: each of their items has begun, waits for its turn, or has the reason why not.
	Instants []int64 `json:"instants,omitempty"`
	Total    int     `json:"total"`
	Done     int     `json:"done,omitempty"`
	// Items are those that run; nil is all of them.
	Items Ranges `json:"items,omitempty"`
	// Every is the least time between two instants, in milliseconds.
	Every int64 `json:"every"`
	// SkipBusy is set if an item that runs for something else when its turn comes leaves the instant out.
	SkipBusy bool `json:"skipBusy,omitempty"`
	// By is who asked for it, Why the reason that was given, Since is when, Unix milliseconds.
	By    string `json:"by,omitempty"`
	Why   string `json:"why,omitempty"`
	Since int64  `json:"since"`
	// Ended is when it ended, Unix milliseconds; 0: it goes on. Cancelled is who has cancelled it, empty if it ended with its
	// last instant.
	Ended     int64  `json:"ended,omitempty"`
	Cancelled string `json:"cancelled,omitempty"`
}

// Validate says what is wrong with a backfill that is to begin.
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

// Same reports whether both are the same backfill, wherever they have come to.
func (b Backfill) Same(o Backfill) bool {
	return b.Since == o.Since && b.From == o.From && b.To == o.To && b.Total == o.Total
}

// Args are the arguments of the round of the next instant.
func (b Backfill) Args() TriggerArgs {
	return TriggerArgs{Items: b.Items, At: b.Instants[b.Done], Backfill: true, SkipBusy: b.SkipBusy}
}

// Overlap is what becomes of an item that runs for something else when its turn comes.
func (b Backfill) Overlap() jobconfig.Overlap {
	if b.SkipBusy {
		return jobconfig.OverlapSkip
	}
	return jobconfig.OverlapQueueAll
}

// Record is how the record of its begin describes it.
func (b Backfill) Record() string {
	text := fmt.Sprintf("%d instants from %s to %s", len(b.Instants), time.UnixMilli(b.From).UTC().Format(time.RFC3339), time.UnixMilli(b.To).UTC().Format(time.RFC3339))
	if b.Items != nil {
		text += ", " + TriggerArgs{Items: b.Items}.String()
	}
	return text + ", overlap " + string(b.Overlap())
}

// GivenOut reports whether no instant is left to give out.
func (b Backfill) GivenOut() bool { return b.Done >= len(b.Instants) }

// Next is the backfill when one more instant is given out.
func (b Backfill) Next() Backfill {
	b.Done++
	return b
}

// End is what is kept of a backfill that ends; now is Unix milliseconds, cancelled is who has cancelled it, empty if no one has.
func (b Backfill) End(now int64, cancelled string) Backfill {
	b.Instants, b.Ended, b.Cancelled = nil, now, cancelled
	return b
}
