package tree

import (
	"strings"
	"time"

	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/internal/text/reason"
)

// Kill says that an operator wants a run to end. It is part of the run's [Record], so that a host that closes
// the run or takes it over finds it.
type Kill struct {
	// By says who asked, in words; it may be empty.
	By string `json:"by,omitempty"`
	// At is the time of the request by the requester's clock, Unix milliseconds.
	At int64 `json:"at"`
	// Grace is how long the guest may continue after it has been asked to end, milliseconds.
	Grace int64 `json:"graceMs"`
}

// maxKillBy bounds Kill.By, in bytes: it is in the record of each run that is killed.
const maxKillBy = 200

// NewKill is a kill that an operator asks for now.
func NewKill(by string, now time.Time, grace time.Duration) Kill {
	if len(by) > maxKillBy {
		by = strings.ToValidUTF8(by[:maxKillBy], "") + "…"
	}
	return Kill{By: by, At: now.UnixMilli(), Grace: grace.Milliseconds()}
}

// Asked reports whether there is a kill.
func (k Kill) Asked() bool { return k.At != 0 }

// Reason is why a run was killed, for its record and its events.
func (k Kill) Reason() reason.Reason {
	at := time.UnixMilli(k.At).UTC()
	if k.By == "" {
		return reason.New(reason.Killed, at)
	}
	return reason.New(reason.KilledBy, k.By, at)
}

// KillQuery is the node that is set with each kill of a job's runs. A host that sees it change reads the
// records of what it runs. It is only a hint: the records decide.
func KillQuery(l Layout) registry.Query { return registry.Data(l.Kills()) }
