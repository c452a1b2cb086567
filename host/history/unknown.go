package history

import (
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/event"
)

// Messages of runs with unknown outcome.
const (
	hostEnded   = "its host ended while it ran, and another process has begun since: this history does not know what became of it"
	sessionGone = "its host's session with the registry ended while it ran: this history does not know what became of it"
)

// AboutGone reports whether an event says that other hosts, or earlier processes of its own, are
// over: then Abandon is to be called for what has not ended.
func AboutGone(e event.Event) bool {
	return e.Kind == event.HostStarted || e.Kind == event.HostGone
}

// gone says by an event for which AboutGone holds why a host is over. It is empty if the event does
// not say that: where hosts share a store, another process that begins at an address may run
// beside the one before it.
func gone(host string, e event.Event, shared bool) string {
	over := e.Other != "" && event.TermOf(host) == event.TermOf(e.Other)
	switch {
	case e.Kind == event.HostStarted && (!shared || over || event.ProcessOf(host) == e.Host):
		return hostEnded
	case e.Kind == event.HostGone && over:
		return sessionGone
	}
	return ""
}

// Abandon ends a run that has not ended, and whose host is over by an event for which AboutGone
// holds. What is reported of it later counts all the same. It returns false if it changes
// nothing. shared: several hosts report to the store.
func (r *Run) Abandon(e event.Event, shared bool) bool {
	why := gone(r.Host, e, shared)
	if !r.Ended.IsZero() || why == "" {
		return false
	}
	r.Ended, r.Outcome, r.Message = later(e.Time, r.Begun), Unknown, why
	return true
}

// known reports whether the run's end is known.
func (r *Run) known() bool { return !r.Ended.IsZero() && r.Outcome != Unknown }

// Abandon does with a part what [Run.Abandon] does with a run.
func (p *Part) Abandon(e event.Event, shared bool) bool {
	why := gone(p.Host, e, shared)
	if !p.Ended.IsZero() || why == "" {
		return false
	}
	p.Ended, p.Outcome, p.Message = later(e.Time, p.Begun), Unknown, why
	return true
}

// later returns the later of two times: the clocks of hosts differ.
func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// JoinRuns puts together what two stores have of one run: the host with the greater fence had it
// last. What a host without a fence has said of the end of another's counts if that is not
// known otherwise.
func JoinRuns(a, b Run) Run {
	if b.Fence < a.Fence {
		a, b = b, a
	}
	if a.Fence == 0 && a.known() && !b.known() {
		b.Ended, b.Outcome, b.Message = a.Ended, a.Outcome, a.Message
	}
	if first := a.At(); first.Before(b.At()) {
		b.First, b.Lag = first, a.Lag
	}
	return b
}

// Same reports whether two records are of one run: numbers of trigger rounds can repeat.
func (r *Run) Same(o *Run) bool {
	return r.ID == o.ID && r.Instant.Sub(o.Instant).Abs() <= apart
}

// Outcomes returns all outcomes of records.
func Outcomes() []abi.Outcome { return append(abi.Outcomes(), Lost, Held, Unknown) }
