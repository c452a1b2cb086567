package registrytest

import (
	"context"
	"fmt"
	"sync"

	"github.com/wasmjob/wasmjob/coordination/registry"
)

// Fault is what happens to one call.
type Fault uint8

// The faults. Those that make no sense for Read and Watch, which change nothing, fail the call with
// registry.ErrUnavailable.
const (
	// NoFault lets the call through.
	NoFault Fault = iota
	// Refused fails with registry.ErrUnavailable; nothing is applied.
	Refused
	// InDoubt fails with registry.ErrSuspect; nothing is applied.
	InDoubt
	// LostRequest fails with registry.ErrUnknown; nothing is applied.
	LostRequest
	// LostAnswer fails with registry.ErrUnknown; the commit is applied, if
	// it can be.
	LostAnswer
	// ExpireBefore ends the session; nothing is applied.
	ExpireBefore
	// ExpireAfter applies the commit, if it can be, and ends the session
	// before the answer comes: registry.ErrUnknown.
	ExpireAfter
)

// FaultyCenter is a session that fails on demand.
type FaultyCenter struct {
	rc   registry.Center
	plan func(call int, op string) Fault

	mu      sync.Mutex
	calls   int
	expired bool
	doubt   registry.Trust
	moved   chan struct{} // closed when doubt changes
	changed chan struct{} // closed when doubt or the session's trust changes; nil: never asked for

	merges sync.WaitGroup
	closed bool // nothing is merged any more
}

var _ registry.Center = (*FaultyCenter)(nil)

// Faulty decorates a session. plan is called before each call: call counts from 1, op is "commit", "read" or
// "watch". It may be called from several goroutines at once; nil means no faults.
func Faulty(rc registry.Center, plan func(call int, op string) Fault) *FaultyCenter {
	if plan == nil {
		plan = func(int, string) Fault { return NoFault }
	}
	return &FaultyCenter{rc: rc, plan: plan, moved: make(chan struct{})}
}

// Expire ends the session as a registry would: Lost is closed, the ephemeral nodes are deleted, every method
// returns registry.ErrSessionLost.
func (f *FaultyCenter) Expire() {
	f.mu.Lock()
	f.expired = true
	f.mu.Unlock()
	_ = f.rc.Close() // closes Lost first
}

// Suspect makes the session suspect, or trusted again.
func (f *FaultyCenter) Suspect(doubt bool) {
	if doubt {
		f.Doubt(registry.TrustSuspect)
	} else {
		f.Doubt(registry.TrustLive)
	}
}

// Doubt sets how far the session is trusted. Until it is TrustLive again,
// Trusted is false and Commit returns registry.ErrSuspect. TrustLost is
// Expire.
func (f *FaultyCenter) Doubt(level registry.Trust) {
	if level >= registry.TrustLost {
		f.Expire()
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.doubt == level {
		return
	}
	f.doubt = level
	close(f.moved)
	f.moved = make(chan struct{})
	f.changed = nil
}

// Unwrap returns the decorated session.
func (f *FaultyCenter) Unwrap() registry.Center { return f.rc }

// begin counts the call and returns its fault.
func (f *FaultyCenter) begin(op string) (Fault, error) {
	f.mu.Lock()
	f.calls++
	call, expired, suspect := f.calls, f.expired, f.doubt != registry.TrustLive
	f.mu.Unlock()
	if expired {
		return NoFault, registry.ErrSessionLost
	}
	fault := f.plan(call, op)
	switch {
	case fault == ExpireBefore, fault == ExpireAfter && op != "commit":
		f.Expire()
		return fault, registry.ErrSessionLost
	case suspect && op == "commit", fault == InDoubt:
		return fault, fmt.Errorf("call %d: %w", call, registry.ErrSuspect)
	case fault == Refused, fault != NoFault && op != "commit":
		return fault, fmt.Errorf("call %d: %w", call, registry.ErrUnavailable)
	case fault == LostRequest:
		return fault, fmt.Errorf("call %d: %w", call, registry.ErrUnknown)
	}
	return fault, nil
}

// Commit implements registry.Center.
func (f *FaultyCenter) Commit(ctx context.Context, ops ...registry.Op) ([]registry.Result, error) {
	fault, err := f.begin("commit")
	if err != nil {
		return nil, err
	}
	results, err := f.rc.Commit(ctx, ops...)
	switch fault {
	case LostAnswer:
		return nil, registry.ErrUnknown
	case ExpireAfter:
		f.Expire()
		return nil, registry.ErrUnknown
	}
	return results, f.translate(err)
}

// Read implements registry.Center.
func (f *FaultyCenter) Read(ctx context.Context, queries ...registry.Query) ([]registry.Node, error) {
	if _, err := f.begin("read"); err != nil {
		return nil, err
	}
	nodes, err := f.rc.Read(ctx, queries...)
	return nodes, f.translate(err)
}

// Watch implements registry.Center.
func (f *FaultyCenter) Watch(ctx context.Context, queries ...registry.Query) (<-chan registry.Snapshot, error) {
	if _, err := f.begin("watch"); err != nil {
		return nil, err
	}
	ch, err := f.rc.Watch(ctx, queries...)
	return ch, f.translate(err)
}

// translate hides that Expire closes the decorated session.
func (f *FaultyCenter) translate(err error) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err != nil && f.expired {
		return registry.ErrSessionLost
	}
	return err
}

// Trust implements registry.Center.
func (f *FaultyCenter) Trust() (registry.Trust, <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	level, inner := f.rc.Trust()
	if level == registry.TrustLost || f.closed {
		return registry.TrustLost, nil
	}
	if f.changed == nil {
		changed, moved := make(chan struct{}), f.moved
		f.changed = changed
		f.merges.Go(func() {
			select {
			case <-inner:
			case <-moved:
			}
			f.mu.Lock()
			defer f.mu.Unlock()
			if f.changed == changed {
				f.changed = nil
			}
			close(changed)
		})
	}
	return max(level, f.doubt), f.changed
}

// Trusted implements registry.Center.
func (f *FaultyCenter) Trusted() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.doubt == registry.TrustLive && !f.expired && f.rc.Trusted()
}

// Lost implements registry.Center.
func (f *FaultyCenter) Lost() <-chan struct{} { return f.rc.Lost() }

// Close implements registry.Center.
func (f *FaultyCenter) Close() error {
	err := f.rc.Close()
	f.mu.Lock()
	f.closed = true
	f.mu.Unlock()
	f.merges.Wait()
	f.mu.Lock()
	f.expired = false // from now on the methods say ErrClosed
	f.mu.Unlock()
	return err
}
