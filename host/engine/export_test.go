package engine

import "github.com/wasmjob/wasmjob/coordination/registry"

// SetToken has the ids of a host's instances end in what token returns, which is
// called once per term and must never return the same for one server.
func SetToken(c *Config, token func() string) { c.token = token }

// Session is the host's session with the registry; nil while it has none.
func Session(h *Host) registry.Center {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.term == nil {
		return nil
	}
	return h.term.registry
}
