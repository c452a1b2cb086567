package tree

import "encoding/json"

// Division is what the last resharding was made from: node assignment.
type Division struct {
	// Members were given to the strategy, in its order. Instances are all that
	// were there; Excluded were left out because their server is disabled,
	// Draining because they are stopping.
	Members   []string `json:"members"`
	Instances []string `json:"instances"`
	Excluded  []string `json:"excluded,omitempty"`
	Draining  []string `json:"draining,omitempty"`
	Total     int      `json:"total"`
	Strategy  string   `json:"strategy"`
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
