package fence

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/step"
	"github.com/wasmjob/wasmjob/coordination/tree"
)

// Known is the greatest number of a namespace that a host knows to have been given out. It is safe for
// concurrent use; the zero value knows none.
type Known struct {
	seen atomic.Int64 // this process got it from the registry itself

	mu          sync.Mutex
	heard       int64 // reported by another source, such as the history
	from        string
	proven      int64 // named by a record that was copied into this registry
	provenWhere string
}

// see notes a number that the registry has answered with.
func (k *Known) see(n int64) {
	for {
		before := k.seen.Load()
		if n <= before || k.seen.CompareAndSwap(before, n) {
			return
		}
	}
}

// Hear notes a number that an earlier process or another host had. from says where it is recorded.
func (k *Known) Hear(n int64, from string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if n > k.heard {
		k.heard, k.from = n, from
	}
}

// Greatest returns the greatest known number, 0 if there is none.
func (k *Known) Greatest() int64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	return max(k.seen.Load(), k.heard)
}

// verdict is what a host does after it has compared the known number with the registry's.
type verdict struct {
	raise  bool         // this host must raise the base
	behind *BehindError // why; nil if all is well
}

// judge compares what is known with what the registry gives out. alone says that no other host can be in that
// registry. A number that a record proves is used only once.
func (k *Known) judge(n numbers, alone bool) verdict {
	k.mu.Lock()
	defer k.mu.Unlock()
	proven := k.proven
	k.proven = 0
	if seen := k.seen.Load(); seen >= n.next {
		return verdict{true, &BehindError{Next: n.next, Known: max(seen, k.heard), From: "this host had it from this registry"}}
	}
	if k.heard >= n.next {
		return verdict{alone, &BehindError{Next: n.next, Known: k.heard, From: k.from}}
	}
	if proven != 0 && proven >= n.raised.Base {
		return verdict{alone, copiedError(n.next, proven, k.provenWhere)}
	}
	return verdict{}
}

// BehindError says that the registry gives out numbers that were given out before. Nothing begins while it
// holds.
type BehindError struct {
	// Next is the registry's next number; Known was given out before.
	Next, Known int64
	// From says how that is known.
	From string
	// Copied says that the nodes were copied from another registry.
	Copied bool
}

func copiedError(next, names int64, record string) *BehindError {
	return &BehindError{Next: next, Known: names, From: record + " names it, which an earlier transaction wrote", Copied: true}
}

func (e *BehindError) Error() string {
	what, command := "this registry has gone back", fmt.Sprintf("wasmjob registry adopt --above %d", e.Known)
	if e.Copied {
		what, command = "this registry was copied from another one", "wasmjob registry adopt"
	}
	return fmt.Sprintf("%s: it gives out transaction number %d, and %d was given out before (%s); fences and trigger rounds would repeat, so nothing begins; run '%s' (docs/registry-restore.md)",
		what, e.Next, e.Known, e.From, command)
}

// Session is a session as a host uses it: the namespace's base is added to the transaction numbers of reads and
// commits, but not of snapshots; see Base. It is safe for concurrent use.
type Session struct {
	registry.Center
	known  *Known
	path   string // the node with the base
	guard  int32  // its version
	base   int64
	behind *BehindError
	once   sync.Once
	over   chan struct{}
}

// Entering are the arguments of [Enter].
type Entering struct {
	Namespace string
	// Known is what the host knows. The session keeps it up to date.
	Known *Known
	// Alone says that no other host can be in this registry. Then this host raises the base, wherever its known
	// number comes from.
	Alone bool
	// Host names this host.
	Host string
}

// Enter begins a session: it asks for the registry's next number, in one commit and one read. If that number
// was given out before, and this host may, it raises the base and calls report. If it may not, every commit of
// the session fails with a [BehindError].
func Enter(ctx context.Context, c registry.Center, e Entering) (s *Session, report string, err error) {
	err = step.Perform(ctx, c, "compare the registry's numbers", func(ctx context.Context, x *step.Exchange) error {
		for {
			n, err := ask(ctx, x, e.Namespace)
			if step.IsUnknown(err) {
				continue
			}
			if err != nil {
				return err
			}
			v := e.Known.judge(n, e.Alone)
			if !v.raise {
				s = &Session{Center: c, known: e.Known, path: n.node.Path, guard: n.node.Version, base: n.raised.Base, behind: v.behind, over: make(chan struct{})}
				if v.behind == nil {
					e.Known.see(n.next)
				}
				return nil
			}
			to := raised{By: e.Host, At: time.Now().UnixMilli(), Why: fmt.Sprintf("the registry gave out %d, and %d was given out before (%s)", v.behind.Next, v.behind.Known, v.behind.From)}
			if to.Base, err = baseAbove(max(v.behind.Known, n.next)); err != nil {
				return err
			}
			switch err := n.raise(ctx, x, to); {
			case err == nil:
				report = fmt.Sprintf("the registry has gone back: it gave out transaction number %d, and %d was given out before (%s); from now on all numbers of the namespace are above %d",
					v.behind.Next, v.behind.Known, v.behind.From, to.Base)
			case !step.Contested(err):
				return err
			}
		}
	})
	return s, report, err
}

// Base is the number to add to the transaction numbers of the session's snapshots.
func (s *Session) Base() int64 { return s.base }

// Behind returns why nothing may begin; nil if all is well.
func (s *Session) Behind() error {
	if s.behind == nil {
		return nil
	}
	return s.behind
}

// Over is closed when the session's base is, or may be, no longer the namespace's. The host must begin another
// session: until then every commit fails.
func (s *Session) Over() <-chan struct{} { return s.over }

// Watched is the node that shows a change of the base; pass its snapshots to Observe.
func (s *Session) Watched() registry.Query { return registry.Data(s.path) }

// Observe takes a snapshot of Watched.
func (s *Session) Observe(n registry.Snapshot) {
	if node := n.Data(s.path); node.Exists && node.Version != s.guard {
		s.end()
	}
}

func (s *Session) end() { s.once.Do(func() { close(s.over) }) }

func (s *Session) ended() bool {
	select {
	case <-s.over:
		return true
	default:
		return false
	}
}

// Trust implements [registry.Center].
func (s *Session) Trust() (registry.Trust, <-chan struct{}) {
	if s.ended() {
		return registry.TrustLost, nil
	}
	return s.Center.Trust()
}

// Trusted implements [registry.Center].
func (s *Session) Trusted() bool { return !s.ended() && s.Center.Trusted() }

// CheckRecord refuses a record that was copied from another registry, and ends the session: a genuine record
// names only transactions older than its own.
func (s *Session) CheckRecord(n registry.Node) error {
	names := newestNamed(tree.ParseRecord(n.Data))
	if !n.Exists || names <= n.Mzxid {
		return nil
	}
	if s.behind == nil {
		s.known.mu.Lock()
		s.known.proven, s.known.provenWhere = names, n.Path
		s.known.mu.Unlock()
		s.end()
	}
	return copiedError(n.Mzxid, names, n.Path)
}

// Commit implements [registry.Center]. It checks that the base is still the namespace's.
func (s *Session) Commit(ctx context.Context, ops ...registry.Op) ([]registry.Result, error) {
	for {
		if s.behind != nil {
			return nil, s.behind
		}
		if s.ended() {
			return nil, registry.ErrSessionLost
		}
		results, err := s.Center.Commit(ctx, append(ops[:len(ops):len(ops)], registry.Check(s.path, s.guard))...)
		conflict := step.ConflictOf(err)
		if conflict == nil || conflict.Index != len(ops) {
			return s.raise(results, len(ops)), err
		}
		if conflict.Reason != registry.ReasonAbsent || s.base != 0 || s.guard != 0 {
			s.end()
			continue
		}
		// An external edit deleted the empty node.
		if _, err := s.Center.Commit(ctx, registry.Ensure(s.path)); err != nil {
			return nil, err
		}
	}
}

// raise adds the base to the first n results, and notes their numbers.
func (s *Session) raise(results []registry.Result, n int) []registry.Result {
	if results == nil {
		return nil
	}
	for i := range results[:n] {
		results[i] = results[i].Raise(s.base)
		s.known.see(results[i].Zxid)
	}
	return results[:n]
}

// Read implements [registry.Center].
func (s *Session) Read(ctx context.Context, queries ...registry.Query) ([]registry.Node, error) {
	nodes, err := s.Center.Read(ctx, queries...)
	for i := range nodes {
		nodes[i] = nodes[i].Raise(s.base)
		s.known.see(nodes[i].Mzxid)
	}
	return nodes, err
}
