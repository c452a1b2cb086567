package tree

import (
	"encoding/json"
	"time"

	"github.com/wasmjob/wasmjob/coordination/registry"
)

// Counts is how many items there are.
type Counts struct {
	Total int `json:"total"`
	// Former is how many there were before that was changed last, and Since is when, Unix
	// milliseconds: fires of instants up to then have that many. Items that came then do not
	// begin for such an instant.
	Former int   `json:"former,omitempty"`
	Since  int64 `json:"since,omitempty"`
}

// Division is what the last resharding was made from: node assignment.
type Division struct {
	// Members were given to the strategy, in its order. Instances are all that
	// were there; Excluded were left out because their server is disabled,
	// Draining because they are stopping.
	Members   []string `json:"members"`
	Instances []string `json:"instances"`
	Excluded  []string `json:"excluded,omitempty"`
	Draining  []string `json:"draining,omitempty"`
	Counts
	Strategy string `json:"strategy"`
	// Pending are items that stay where they run for now and move when they
	// are completed, and items beyond Total that go then.
	Pending Items `json:"pending,omitempty"`
	// Static is set when the division was kept because of staticSharding.
	Static bool `json:"static,omitempty"`
	// Foreign are those of Pending that run on Java hosts, which do not say when
	// they have ended: the leader watches for it.
	Foreign Items `json:"foreign,omitempty"`
	// Foreigners are those of Instances that are Java hosts.
	Foreigners []string `json:"foreigners,omitempty"`
	// Deferred are items that stay with our hosts because a Java host may still
	// wait with an instant that ours have begun: the next division moves them.
	// Fresh is the oldest such instant, and At is when the division was made,
	// both in Unix milliseconds; they are set while Java hosts are in the job.
	Deferred Items `json:"deferred,omitempty"`
	Fresh    int64 `json:"fresh,omitempty"`
	At       int64 `json:"at,omitempty"`
	// JavaSeen is until when a Java host was known to be in the job, Unix
	// milliseconds; it is brought up to date when one has gone.
	JavaSeen int64 `json:"javaSeen,omitempty"`
	// Java is set when a Java leader made the division. Then Instances is what
	// seems to have been divided over, and Doubts are instances that own
	// something and are gone, or own nothing and are there.
	Java   bool     `json:"java,omitempty"`
	Doubts []string `json:"doubts,omitempty"`
	// Refused is the transaction of the configuration that the leader refuses:
	// Total and Strategy are then those of the division before.
	Refused int64 `json:"refused,omitempty"`
	// Followed is set when other jobs come after this one: hosts note how fires end, in [Ends].
	Followed bool `json:"followed,omitempty"`
	// Backfill is set when past instants are to be run again: one host watches the node [Backfill].
	Backfill bool `json:"backfill,omitempty"`
	// Queued is set when triggers were queued ever: the leader looks whether the next one may begin.
	Queued bool `json:"queued,omitempty"`
	// Owing are items that moved away from an instance which had not consumed
	// the trigger of round Round. OwingSince is when, Unix milliseconds.
	Owing      Items `json:"owing,omitempty"`
	Round      int64 `json:"round,omitempty"`
	OwingSince int64 `json:"owingSince,omitempty"`
	// OwingArgs stands in place of Owing if that trigger has arguments, Args: hosts of
	// earlier versions, which would run a plain round, see none.
	OwingArgs Items       `json:"owingArgs,omitempty"`
	Args      TriggerArgs `json:"args,omitzero"`
}

// Follow takes over from the division before this one, which is made now, what stays. If it has
// another number of items, that is noted with the newest instant that is recorded of any; a record
// of more than a minute ahead is of a wrong clock.
func (d *Division) Follow(before Division, now time.Time, records map[int]registry.Node) {
	at := now.UnixMilli()
	if d.JavaSeen = before.JavaSeen; before.Java || len(before.Foreigners) > 0 {
		d.JavaSeen = at
	}
	d.Former, d.Since = before.Former, before.Since
	if before.Total == 0 || before.Total == d.Total || before.Java {
		return
	}
	d.Former, d.Since = before.Total, at
	for _, n := range records {
		if instant := ParseRecord(n.Data).Instant; instant <= now.Add(time.Minute).UnixMilli() {
			d.Since = max(d.Since, instant)
		}
	}
}

// TotalOf is how many items a fire has; highest is the highest of those that begin. It is the same
// before and after a change.
func (c Counts) TotalOf(f Fire, highest int) int {
	if f.Trigger == 0 && f.Instant <= c.Since && highest < c.Former {
		return c.Former
	}
	return c.Total
}

// Owe sets the items that owe round Round, which has these arguments.
func (d *Division) Owe(items Items, args TriggerArgs) {
	if args.Plain() || len(items) == 0 {
		d.Owing = items
		return
	}
	d.OwingArgs, d.Args = items, args
}

// Owed are the items that owe round Round.
func (d Division) Owed() Items {
	if d.OwingArgs != nil {
		return d.OwingArgs
	}
	return d.Owing
}

// ParseDivision reads node assignment; what cannot be read is the zero Division.
func ParseDivision(data []byte) Division {
	var d Division
	if json.Unmarshal(data, &d) != nil {
		return Division{}
	}
	return d
}

// Data is what the node holds, JSON.
func (d Division) Data() []byte {
	b, err := json.Marshal(d)
	if err != nil { // strings and numbers always marshal
		return nil
	}
	return b
}
