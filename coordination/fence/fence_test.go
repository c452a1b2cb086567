package fence_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/wasmjob/wasmjob/coordination/fence"
	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/registry/embedded"
)

const root = "/ns.wasmjob"

// connect is a session with a registry of its own that has had so many transactions.
func connect(t *testing.T, transactions int) registry.Center {
	t.Helper()
	server, err := embedded.Open(embedded.Options{})
	if err != nil {
		t.Fatal(err)
	}
	c, err := server.Connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	for range transactions {
		commit(t, c, registry.Ensure("/x"), registry.Set("/x", nil, registry.AnyVersion))
	}
	return c
}

func commit(t *testing.T, c registry.Center, ops ...registry.Op) []registry.Result {
	t.Helper()
	r, err := c.Commit(t.Context(), ops...)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func data(t *testing.T, c registry.Center, path string) registry.Node {
	t.Helper()
	n, err := c.Read(t.Context(), registry.Data(path))
	if err != nil {
		t.Fatal(err)
	}
	return n[0]
}

func enter(t *testing.T, c registry.Center, k *fence.Known, alone bool) (*fence.Session, string) {
	t.Helper()
	s, report, err := fence.Enter(t.Context(), c, fence.Entering{Namespace: "ns", Known: k, Alone: alone, Host: "10.0.0.1"})
	if err != nil {
		t.Fatal(err)
	}
	return s, report
}

// write sets a node through a session and returns the number of the transaction.
func write(t *testing.T, c registry.Center) int64 {
	t.Helper()
	return commit(t, c, registry.Ensure("/y"), registry.Set("/y", nil, registry.AnyVersion))[1].Zxid
}

// TestEnter: who knows of a number that the registry has not come to yet begins nothing,
// or raises the base once, above all that is known.
func TestEnter(t *testing.T) {
	t.Parallel()
	lived := func(t *testing.T, k *fence.Known) {
		s, _ := enter(t, connect(t, 500), k, false)
		write(t, s)
	}
	told := func(n int64) func(*testing.T, *fence.Known) {
		return func(_ *testing.T, k *fence.Known) { k.Hear(n, "the history") }
	}
	for name, test := range map[string]struct {
		knows           func(t *testing.T, k *fence.Known)
		alone           bool
		behind, raised  bool
		knownBefore     int64
		wantInTheReport string
	}{
		"nothing":                         {knows: func(*testing.T, *fence.Known) {}},
		"less":                            {knows: told(5)},
		"had it from the registry":        {knows: lived, raised: true, knownBefore: 500, wantInTheReport: "this host had it from this registry"},
		"was told":                        {knows: told(500), behind: true, knownBefore: 500},
		"was told, and no other is there": {knows: told(500), alone: true, raised: true, knownBefore: 500, wantInTheReport: "the history"},
		"was told of more than it had":    {knows: func(t *testing.T, k *fence.Known) { lived(t, k); told(7<<32)(t, k) }, raised: true, knownBefore: 7 << 32, wantInTheReport: "had it"},
	} {
		t.Run(name, func(t *testing.T) {
			k := new(fence.Known)
			test.knows(t, k)
			c := connect(t, 30)
			s, report := enter(t, c, k, test.alone)
			if (s.Behind() != nil) != test.behind || (s.Base() != 0) != test.raised || !strings.Contains(report, test.wantInTheReport) || (report != "") != test.raised {
				t.Fatalf("behind: %v, base %d, %q", s.Behind(), s.Base(), report)
			}
			if test.behind {
				behind := (*fence.BehindError)(nil)
				if _, err := s.Commit(t.Context(), registry.Ensure("/y")); !errors.As(err, &behind) || data(t, c, "/y").Exists {
					t.Errorf("a commit: %v", err)
				}
				if text := behind.Error(); !strings.Contains(text, "the history") || !strings.Contains(text, "wasmjob registry adopt --above 500") {
					t.Errorf("it says %q", text)
				}
				return
			}
			first := write(t, s)
			if first <= test.knownBefore || data(t, s, "/y").Mzxid != first {
				t.Errorf("number %d, and %d was known; a read shows %d", first, test.knownBefore, data(t, s, "/y").Mzxid)
			}
			version := data(t, c, root).Version
			again, report := enter(t, c, k, test.alone)
			if n := write(t, again); n <= first || report != "" || data(t, c, root).Version != version {
				t.Errorf("the next session has number %d after %d, and reports %q", n, first, report)
			}
		})
	}
}

// TestBaseChangesMeanwhile: no session that has another base than the namespace commits anything.
//
// It kills the mutant "another base than the namespace's".
func TestBaseChangesMeanwhile(t *testing.T) {
	t.Parallel()
	over := func(s *fence.Session) bool {
		select {
		case <-s.Over():
			return true
		default:
			return false
		}
	}
	c := connect(t, 30)
	stale, _ := enter(t, c, new(fence.Known), false)
	write(t, stale)
	watching, _ := enter(t, c, new(fence.Known), false)

	// The node says nothing: one that was deleted is made again.
	commit(t, c, registry.Delete(root, registry.AnyVersion))
	write(t, stale)
	watching.Observe(registry.Snapshot{watching.Watched(): data(t, c, root)})
	if over(stale) || over(watching) {
		t.Fatal("a session is over because somebody deleted an empty node")
	}

	k := new(fence.Known)
	k.Hear(500, "a file")
	raised, _ := enter(t, c, k, true)
	high := write(t, raised)
	before := data(t, c, "/y")
	if _, err := stale.Commit(t.Context(), registry.Set("/y", nil, registry.AnyVersion)); !errors.Is(err, registry.ErrSessionLost) {
		t.Errorf("a commit with the old base: %v", err)
	}
	if data(t, c, "/y").Version != before.Version || !over(stale) || stale.Trusted() {
		t.Error("a session with the old base goes on")
	}
	if trust, _ := stale.Trust(); trust != registry.TrustLost {
		t.Errorf("its trust is %s", trust)
	}
	watching.Observe(registry.Snapshot{watching.Watched(): data(t, c, root)})
	if !over(watching) {
		t.Error("a session that sees the new base goes on")
	}
	raised.Observe(registry.Snapshot{raised.Watched(): data(t, c, root)})
	if over(raised) {
		t.Error("the session that raised the base is over")
	}

	// A base that was deleted is not one of 0.
	commit(t, c, registry.Delete(root, registry.AnyVersion))
	if _, err := raised.Commit(t.Context(), registry.Set("/y", nil, registry.AnyVersion)); !errors.Is(err, registry.ErrSessionLost) {
		t.Errorf("a commit after the base was deleted: %v", err)
	}
	next, _ := enter(t, c, k, false)
	if n := write(t, next); n <= high {
		t.Errorf("number %d after %d", n, high)
	}
}

// unsure loses the answers to its first commits.
type unsure struct {
	registry.Center
	answers int
}

func (u *unsure) Commit(ctx context.Context, ops ...registry.Op) ([]registry.Result, error) {
	r, err := u.Center.Commit(ctx, ops...)
	if u.answers++; u.answers <= 3 && err == nil {
		return nil, registry.ErrUnknown
	}
	return r, err
}

// TestRaisedOnce: a host whose commits have no answers raises the base once.
func TestRaisedOnce(t *testing.T) {
	t.Parallel()
	c := connect(t, 30)
	k := new(fence.Known)
	k.Hear(500, "a file")
	s, _ := enter(t, &unsure{Center: c}, k, true)
	if n := data(t, c, root); n.Version > 2 || s.Behind() != nil || write(t, s) <= 500 {
		t.Errorf("the base was set %d times: %s", n.Version, n.Data)
	}
}

// before lets something happen before a commit that sets the namespace's node.
type before struct {
	registry.Center
	what func()
}

func (b *before) Commit(ctx context.Context, ops ...registry.Op) ([]registry.Result, error) {
	if what := b.what; what != nil && ops[0].Path == root && ops[0].Kind == registry.OpSet {
		b.what = nil
		what()
	}
	return b.Center.Commit(ctx, ops...)
}

// TestRaisedByAnother: a host that finds that another one has raised the base just before goes on with that
// one, and does not say that it has raised it; and nobody lowers a base.
func TestRaisedByAnother(t *testing.T) {
	t.Parallel()
	knows := func() *fence.Known {
		k := new(fence.Known)
		k.Hear(500, "a file")
		return k
	}
	c := connect(t, 30)
	first := ""
	s, report := enter(t, &before{c, func() { _, first = enter(t, c, knows(), true) }}, knows(), true)
	if version := data(t, c, root).Version; first == "" || report != "" || version != 1 || s.Behind() != nil {
		t.Errorf("the other one says %q, this one %q; the base was set %d times", first, report, version)
	}

	c = connect(t, 30)
	commit(t, c, registry.Ensure(root+"/j/sharding/0"), registry.Set(root+"/j/sharding/0", []byte(`{"instant":1,"after":4000}`), 0))
	var higher fence.Adoption
	again := &before{c, func() {
		var err error
		if higher, err = fence.Adopt(t.Context(), c, "ns", 1<<50, "bob"); err != nil {
			t.Error(err)
		}
	}}
	if out, err := fence.Adopt(t.Context(), again, "ns", 0, "ann"); err == nil || !strings.Contains(err.Error(), "adopted already") {
		t.Errorf("adopted a second time: %+v, %v", out, err)
	}
	if text := string(data(t, c, root).Data); !strings.Contains(text, fmt.Sprint(higher.Base)) {
		t.Errorf("the base is %s after %d", text, higher.Base)
	}
}

// TestCheckRecord: a record that names what was after the transaction that wrote it is of
// another registry. The next session begins nothing, until the base is raised.
func TestCheckRecord(t *testing.T) {
	t.Parallel()
	c := connect(t, 30)
	record := "/ns.wasmjob/j/sharding/0"
	commit(t, c, registry.Ensure(record), registry.Set(record, []byte(`{"instant":1,"after":7}`), 0))
	k := new(fence.Known)
	s, _ := enter(t, c, k, false)
	if err := s.CheckRecord(data(t, s, record)); err != nil {
		t.Errorf("its own record: %v", err)
	}
	commit(t, c, registry.Set(record, []byte(`{"instant":1,"trigger":4000}`), registry.AnyVersion))
	err := s.CheckRecord(data(t, s, record))
	if err == nil || !strings.Contains(err.Error(), "copied from another one") || !strings.Contains(err.Error(), record) {
		t.Errorf("a copied record: %v", err)
	}
	if _, err := s.Commit(t.Context(), registry.Ensure("/z")); !errors.Is(err, registry.ErrSessionLost) {
		t.Errorf("a commit after that: %v", err)
	}
	for range 2 { // the proof is found in each session
		s, _ = enter(t, c, k, false)
		if s.Behind() == nil {
			if err := s.CheckRecord(data(t, s, record)); err == nil {
				t.Error("the record is taken in the next session")
			}
		} else if !strings.Contains(s.Behind().Error(), "'wasmjob registry adopt'") {
			t.Errorf("the next session says %v", s.Behind())
		}
	}
	if _, err := fence.Adopt(t.Context(), c, "ns", 0, "ann"); err != nil {
		t.Fatal(err)
	}
	s, _ = enter(t, c, k, false)
	if err := errors.Join(s.Behind(), s.CheckRecord(data(t, s, record))); err != nil || write(t, s) <= 4000 {
		t.Errorf("after it was adopted: %v", err)
	}
}

// TestAdopt: without a number the records say above which one to go on, and what is no
// copy is left alone; with one, a registry that is above it is left alone.
func TestAdopt(t *testing.T) {
	t.Parallel()
	c := connect(t, 30)
	adopt := func(above int64) (fence.Adoption, error) { return fence.Adopt(t.Context(), c, "ns", above, "ann") }
	refuses := func(above int64, want string) {
		t.Helper()
		before := data(t, c, root)
		if _, err := adopt(above); err == nil || !strings.Contains(err.Error(), want) || data(t, c, root).Version != before.Version {
			t.Errorf("adopt: %v; expected %q", err, want)
		}
	}
	refuses(0, "it is no copy")
	const last = int64(7)<<32 + 5
	ops := []registry.Op{registry.Ensure(root + "/j/sharding"), registry.Ensure(root + "/@-@hosts")}
	for i := range 2500 {
		ops = append(ops, registry.Create(fmt.Sprintf("%s/j/sharding/%d", root, i), []byte(`{"instant":1}`)))
	}
	commit(t, c, ops...)
	refuses(0, "it is no copy")
	commit(t, c, registry.Set(root+"/j/sharding/2100", fmt.Appendf(nil, `{"instant":1,"after":%d}`, last), 0),
		registry.Set(root+"/j/sharding/0", fmt.Appendf(nil, `{"instant":1,"trigger":%d}`, last-1), 0))
	out, err := adopt(0)
	if err != nil || out.Highest != last || out.Jobs != 1 || out.Items != 2500 || out.Base <= last || out.Base%(1<<32) != 0 {
		t.Errorf("adopted %+v, %v", out, err)
	}
	if text := string(data(t, c, root).Data); !strings.Contains(text, `"raisedBy":"ann"`) || !strings.Contains(text, fmt.Sprint(last)) {
		t.Errorf("the node says %s", text)
	}
	refuses(0, "adopted already")
	refuses(out.Base, "is above")
	refuses(math.MaxInt64, "expected")
	more, err := adopt(out.Base + 1<<33)
	if err != nil || more.Base <= out.Base+1<<33 {
		t.Errorf("adopted above %d: %+v, %v", out.Base+1<<33, more, err)
	}
	s, _ := enter(t, c, new(fence.Known), false)
	if n := write(t, s); n <= more.Base {
		t.Errorf("number %d; expected one above %d", n, more.Base)
	}
}
