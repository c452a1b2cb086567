package capability

import (
	"sync/atomic"

	"github.com/wasmjob/wasmjob/host/config/grants"
)

// Budgets are the rest of a run's quotas.
type Budgets struct {
	Requests, InFlight, Connections Budget
	Sent, Received                  Budget // bytes, of all capabilities together
}

func (b *Budgets) set(q grants.Quotas) {
	b.Requests.limit = int64(q.Requests)
	b.InFlight.limit = int64(q.InFlight)
	b.Connections.limit = int64(q.Connections)
	b.Sent.limit = q.Sent
	b.Received.limit = q.Received
}

// Budget is a limited amount. It is safe for concurrent use.
type Budget struct {
	limit int64
	used  atomic.Int64
}

// Take uses n, or nothing if less is left.
func (b *Budget) Take(n int64) bool {
	if b.used.Add(n) <= b.limit {
		return true
	}
	b.used.Add(-n)
	return false
}

// Return gives back what was taken.
func (b *Budget) Return(n int64) { b.used.Add(-n) }

// Limit is how much may be used in all.
func (b *Budget) Limit() int64 { return b.limit }

// Used is how much is used.
func (b *Budget) Used() int64 { return b.used.Load() }
