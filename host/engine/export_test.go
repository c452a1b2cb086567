package engine

import (
	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/internal/text/reason"
)

// SetToken has the ids of a host's instances end in what token returns, which is
// called once per term and must never return the same for one server.
func SetToken(c *Config, token func() string) { c.token = token }

// SetTurns has so many loops of jobs work at once.
func SetTurns(c *Config, turns int) { c.turns = turns }

// SetMostOwed bounds how many instants the items of one group may owe.
func SetMostOwed(c *Config, most int) { c.mostOwed = most }

// TakeTurn takes one of the turns, as a loop of another group does, until give is called.
func TakeTurn(h *Host) (give func()) {
	w := h.turns.Worker("the test")
	w.Take(nil)
	return w.Give
}

// Leave has a host leave a job, as if its definition were gone.
func Leave(h *Host, job string) {
	h.mu.Lock()
	t := h.term
	h.mu.Unlock()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.jobs[job].mail.depart(reason.Free("the test wants it"))
}

// Session is the host's session with the registry; nil while it has none.
func Session(h *Host) registry.Center {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.term == nil {
		return nil
	}
	return h.term.registry
}
