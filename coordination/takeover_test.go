package coordination_test

import (
	"context"
	"flag"
	"fmt"
	"testing"
	"time"

	co "github.com/wasmjob/wasmjob/coordination"
	"github.com/wasmjob/wasmjob/coordination/jobconfig"
	"github.com/wasmjob/wasmjob/coordination/registry"
)

var takeoverItems = flag.Int("takeover.items", 12_000, "how many items the dead host of TestLargeTakeover had begun")

// weigher keeps the longest list of runs and the most ops that were written by one commit, and counts commits.
type weigher struct {
	registry.Center
	lists           map[string]bool
	longest, most   int
	commits, failed int
}

func (w *weigher) Commit(ctx context.Context, ops ...registry.Op) ([]registry.Result, error) {
	for _, op := range ops {
		if op.Kind == registry.OpSet && w.lists[op.Path] {
			w.longest = max(w.longest, len(op.Data))
		}
	}
	w.most = max(w.most, len(ops))
	results, err := w.Center.Commit(ctx, ops...)
	if w.commits++; err != nil {
		w.failed++
	}
	return results, err
}

// crashedWith is a group of takers, and a dead host that had begun all of n items.
func crashedWith(t *testing.T, takers, n int, set func(*jobconfig.Configuration)) (c *chronicle, dead *simHost, alive []*simHost) {
	t.Helper()
	c, h := group(t, 1, func(cfg *jobconfig.Configuration) {
		if cfg.ShardingTotalCount = n; set != nil {
			set(cfg)
		}
	})
	c.pass(10 * time.Second)
	for k := range takers {
		o := c.addHost(string(rune('B'+k)), fmt.Sprintf("10.0.0.%d", 2+k))
		must(t, second(o.join(c.file)))
		alive = append(alive, o)
	}
	if got := len(h[0].running()); got != n {
		t.Fatalf("it runs %d items, want %d", got, n)
	}
	h[0].crash()
	for _, o := range alive {
		must(t, o.look())
	}
	return c, h[0], alive
}

// TestLargeTakeover: two hosts take over from one that had begun very many items, call by call in
// turn. Each takes a block of them; a call does a bounded part of it, and the lists stay short, so that the work grows
// as the items do.
func TestLargeTakeover(t *testing.T) {
	t.Parallel()
	n := *takeoverItems
	_, dead, alive := crashedWith(t, 2, n, failoverOn)
	w := make([]*weigher, len(alive))
	next, claimed := []int{-1, -1}, make([][]co.Claim, len(alive))
	began, slowest := time.Now(), time.Duration(0)
	for calls := 0; next[0] != 0 || next[1] != 0; calls++ {
		if calls > n/500 {
			t.Fatalf("after %d calls %d and %d are claimed", calls, len(claimed[0]), len(claimed[1]))
		}
		for k, o := range alive {
			if w[k] == nil {
				w[k] = &weigher{Center: o.rc, lists: map[string]bool{o.layout.RunsOf(dead.Self.ID): true, o.layout.RunsOf(o.Self.ID): true}}
			}
			if next[k] == 0 {
				continue
			}
			before, at := w[k].commits, time.Now()
			var out co.Recovered
			must(t, perform(o.ctx, w[k], moves.Recover(&o.Member, co.Recovery{Dead: dead.Self.ID, Limit: n, From: max(next[k], 0), Now: o.now}, &out)))
			slowest = max(slowest, time.Since(at))
			next[k], claimed[k] = out.Next, append(claimed[k], out.Claimed...)
			if commits := w[k].commits - before; commits > 12 || len(out.Claimed) > 8*500 {
				t.Errorf("one call took over %d items in %d commits", len(out.Claimed), commits)
			}
		}
	}
	t.Logf("%d items in %s; a call took up to %s, %d and %d commits of up to %d ops", n, time.Since(began).Round(time.Millisecond), slowest.Round(time.Millisecond), w[0].commits, w[1].commits, w[0].most)
	seen := make(map[int]bool, n)
	for k, claims := range claimed {
		from, to := claims[0].Item, claims[len(claims)-1].Item
		if len(claims) != to-from+1 || len(claims) < n/2-1 {
			t.Errorf("host %d has %d items from %d to %d, want a block of half of them", k, len(claims), from, to)
		}
		for _, claim := range claims {
			seen[claim.Item] = true
		}
		if w[k].longest > 1024 {
			t.Errorf("host %d wrote a list of %d bytes", k, w[k].longest)
		}
	}
	if len(seen) != n {
		t.Errorf("%d of %d items are taken over", len(seen), n)
	}
	if alive[0].node(alive[0].layout.RunsOf(dead.Self.ID)).Exists {
		must(t, alive[1].look())
		out, err := alive[1].recover(dead.Self.ID, true, 0)
		must(t, err)
		if !out.Settled {
			t.Errorf("left is %s", out.Left)
		}
	}
}

// TestLargeLoss: failover is off, and one host writes down what a dead one has lost, call by call.
func TestLargeLoss(t *testing.T) {
	t.Parallel()
	n := *takeoverItems
	_, dead, alive := crashedWith(t, 1, n, nil)
	b := alive[0]
	for !b.View.IsJanitor() {
		must(t, second(b.step()))
		must(t, b.look())
	}
	lost := make(map[int]bool, n)
	calls, queries, next, began := 0, 0, -1, time.Now()
	for ; next != 0; calls++ {
		var out co.Recovered
		c := b.counted(moves.Recover(&b.Member, co.Recovery{Dead: dead.Self.ID, From: max(next, 0), Now: b.now}, &out))
		for _, l := range out.Lost {
			if lost[l.Item] {
				t.Fatalf("item %d is lost twice", l.Item)
			}
			lost[l.Item] = true
		}
		queries += c.queries
		if next = out.Next; len(out.Lost) > 8*500 || c.queries > 9*500*9 {
			t.Fatalf("one call wrote down %d items and read %d nodes", len(out.Lost), c.queries)
		}
	}
	t.Logf("%d items in %s and %d calls", n, time.Since(began).Round(time.Millisecond), calls)
	if queries > 2*n+20*calls {
		t.Errorf("%d nodes were read for %d items: their records and running marks are enough", queries, n)
	}
	if len(lost) != n || calls > n/4000+1 || b.node(b.layout.RunsOf(dead.Self.ID)).Exists {
		t.Errorf("%d of %d are lost, in %d calls", len(lost), n, calls)
	}
}

// TestTakersMeet: two hosts take their blocks at the same moment. What one has read is not read again because
// the other one has written the dead host's list.
func TestTakersMeet(t *testing.T) {
	t.Parallel()
	const n = 1000
	_, dead, alive := crashedWith(t, 2, n, failoverOn)
	a, b := alive[0], alive[1]
	var theirs co.Recovered
	a.beforeCommit(func() {
		var err error
		theirs, err = b.recover(dead.Self.ID, false, n)
		must(t, err)
	})
	var mine co.Recovered
	c := a.counted(moves.Recover(&a.Member, co.Recovery{Dead: dead.Self.ID, Limit: n, Now: a.now}, &mine))
	if len(mine.Claimed) != n/2 || len(theirs.Claimed) != n/2 {
		t.Fatalf("claimed are %d and %d", len(mine.Claimed), len(theirs.Claimed))
	}
	if c.queries > 9*n/2+50 {
		t.Errorf("%d nodes were read for %d items", c.queries, n/2)
	}
	// An item that somebody changes meanwhile is read again.
	_, dead, alive = crashedWith(t, 1, n, failoverOn)
	a = alive[0]
	a.beforeCommit(func() { must(t, a.operate(moves.SetItem(a.layout, 7, false))) })
	out, err := a.recover(dead.Self.ID, false, n)
	must(t, err)
	if len(out.Claimed) != n-1 || out.Left.String() != "7" {
		t.Errorf("claimed are %d, left is %s", len(out.Claimed), out.Left)
	}
}

// TestManyAreLeftToTheirTaker: what is left of a large block is another host's as long as that takes
// something, whatever a host that has taken its own thinks.
func TestManyAreLeftToTheirTaker(t *testing.T) {
	t.Parallel()
	for _, n := range []int{6, 3000} {
		_, dead, alive := crashedWith(t, 2, n, failoverOn)
		a, b := alive[0], alive[1]
		take := func(h *simHost, all bool, seen int32, limit int) (out co.Recovered) {
			t.Helper()
			must(t, h.perform(moves.Recover(&h.Member, co.Recovery{Dead: dead.Self.ID, All: all, Seen: seen, Limit: limit, Now: h.now}, &out)))
			return out
		}
		first := take(a, false, 0, n)
		if len(first.Claimed) != n/2 || first.Version == 0 {
			t.Fatalf("%d items: A claims %d, the list has version %d", n, len(first.Claimed), first.Version)
		}
		if moves := take(b, false, 0, n/6); len(moves.Claimed) != n/6 { // it is at it
			t.Fatalf("%d items: B claims %d", n, len(moves.Claimed))
		}
		second := take(a, true, first.Version, n)
		if few := n == 6; few != (len(second.Claimed) > 0) {
			t.Errorf("%d items: A takes %d of B's block while B takes them", n, len(second.Claimed))
		}
		if third := take(a, true, second.Version, n); n > 6 && len(third.Claimed) != n/2-n/6 {
			t.Errorf("%d items: B has stopped, and A takes %d of its block", n, len(third.Claimed))
		}
	}
}

// TestNothingIsReadThatCannotBeTaken: a host without a free worker does not read all that a dead one left.
func TestNothingIsReadThatCannotBeTaken(t *testing.T) {
	t.Parallel()
	const n = 3000
	_, dead, alive := crashedWith(t, 1, n, failoverOn)
	for limit, want := range map[int]int{0: 0, 700: 700} {
		var out co.Recovered
		c := alive[0].counted(moves.Recover(&alive[0].Member, co.Recovery{Dead: dead.Self.ID, Limit: limit, Now: alive[0].now}, &out))
		if len(out.Claimed) != want || out.Next != 0 || c.queries > 9*(want+500)+50 {
			t.Errorf("limit %d: claimed are %d, %d nodes were read, next is %d", limit, len(out.Claimed), c.queries, out.Next)
		}
	}
}
