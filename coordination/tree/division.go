package tree

import (
	"encoding/json"
	"time"

	"github.com/wasmjob/wasmjob/coordination/registry"
)

// Counts is how many items there are.
type Counts struct {
	Total int `json:"total"`
	// Former is the number before its last change, and Since the time of that change, Unix milliseconds: fires
	// of instants up to Since have Former items. Items that were added do not begin for such an instant.
	Former int   `json:"former,omitempty"`
	Since  int64 `json:"since,omitempty"`
}

// Division records the input of the last resharding: node assignment.
type Division struct {
	// Members were given to the strategy, in its order. Instances are all instances of that time; Excluded were
	// left out because their server is disabled, Draining because they are stopping.
	Members   []string `json:"members"`
	Instances []string `json:"instances"`
	Excluded  []string `json:"excluded,omitempty"`
	Draining  []string `json:"draining,omitempty"`
	Counts
	Strategy string `json:"strategy"`
	// Pending are items that stay where they run and move when they are completed, or, beyond Total, are
	// removed then.
	Pending Items `json:"pending,omitempty"`
	// Static is set when the division was kept because of staticSharding.
	Static bool `json:"static,omitempty"`
	// Foreign are those of Pending that run on Java hosts, which do not report completions: the leader watches
	// for them.
	Foreign Items `json:"foreign,omitempty"`
	// Foreigners are those of Instances that are Java hosts.
	Foreigners []string `json:"foreigners,omitempty"`
	// Deferred are items that stay with our hosts because a Java host may still be waiting to begin an instant
	// that ours have begun: the next division moves them. Fresh is the oldest such instant, and At the time of
	// the division, both in Unix milliseconds; they are set while Java hosts are in the job.
	Deferred Items `json:"deferred,omitempty"`
	Fresh    int64 `json:"fresh,omitempty"`
	At       int64 `json:"at,omitempty"`
	// JavaSeen is until when a Java host was known to be in the job, Unix milliseconds; it is updated when one
	// has left.
	JavaSeen int64 `json:"javaSeen,omitempty"`
	// Java is set when a Java leader made the division. Then Instances is what it seems to have divided over,
	// and Doubts are instances that own items and are gone, or own none and are in the job.
	Java   bool     `json:"java,omitempty"`
	Doubts []string `json:"doubts,omitempty"`
	// Refused is the transaction of the configuration that the leader refuses: Total and Strategy are then
	// those of the previous division.
	Refused int64 `json:"refused,omitempty"`
	// Followed is set when other jobs come after this one: hosts note how fires end, in [Ends].
	Followed bool `json:"followed,omitempty"`
	// Backfill is set when past instants are to be run again: one host watches the node [Backfill].
	Backfill bool `json:"backfill,omitempty"`
	// Queued is set if triggers were ever queued: the leader checks whether the next one may begin.
	Queued bool `json:"queued,omitempty"`
	// Owing are items that moved away from an instance which had not consumed
	// the trigger of round Round. OwingSince is when, Unix milliseconds.
	Owing      Items `json:"owing,omitempty"`
	Round      int64 `json:"round,omitempty"`
	OwingSince int64 `json:"owingSince,omitempty"`
	// OwingArgs is used instead of Owing if that trigger has arguments, Args: hosts of earlier versions, which
	// would run a plain round, see none.
	OwingArgs Items       `json:"owingArgs,omitempty"`
	Args      TriggerArgs `json:"args,omitzero"`
}

// Follow copies what stays from the previous division to this new one. If the number of items differs, it notes
// the change with the newest instant in any record; a record of more than a minute ahead is of a wrong clock.
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

// TotalOf returns how many items a fire has; highest is the highest of its items that begin. The result does
// not change when the total does.
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
