package tree

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// TestEndsOfRandomRuns: items end their fires in any order over hosts, each item in the order of the instants, and leave
// some out. A fire ends with the item that is the last to come to it or past it, once, and is a success if all items ran
// and were OK.
func TestEndsOfRandomRuns(t *testing.T) {
	t.Parallel()
	for seed := range uint64(500) {
		r := rand.New(rand.NewPCG(seed, 1))
		const instants = 8
		total := 1 + r.IntN(4)
		ends := Ends{Since: 100}
		next := make([]int, total)
		outcome := make([][]byte, instants) // of each item: 'o', 'f', or 0 while it has not come to it, '-' if it left it out
		for n := range outcome {
			outcome[n] = make([]byte, total)
		}
		over := make([]bool, instants)
		for now := int64(1000); ; now++ {
			var ready []int
			for i := range next {
				if next[i] < instants {
					ready = append(ready, i)
				}
			}
			if len(ready) == 0 {
				break
			}
			i := ready[r.IntN(len(ready))]
			n := next[i]
			next[i]++
			if r.IntN(4) == 0 && n < instants-1 {
				outcome[n][i] = '-' // coalesced into a later one
				continue
			}
			s := Settled{Fire: Fire{Instant: int64(101 + n)}, Total: total}
			if outcome[n][i] = 'o'; r.IntN(5) == 0 {
				outcome[n][i] = 'f'
				s.Failed = Ranges{{i, i}}
			} else {
				s.OK = Ranges{{i, i}}
			}
			var changed bool
			if ends, changed = ParseEnds(ends.Data()).Settle(now, s); !changed {
				t.Fatalf("seed %d: item %d at %d changes nothing", seed, i, n)
			}
			if again, changed := ends.Settle(now, s); changed {
				t.Fatalf("seed %d: the same twice: %s", seed, again.Data())
			}
			for n := range over {
				ran, all, good := false, true, true
				for i := range total {
					passed := next[i] > n && (outcome[n][i] != '-' || slices.ContainsFunc(outcome[n+1:next[i]], func(later []byte) bool { return later[i] != '-' }))
					ran, all, good = ran || outcome[n][i] == 'o' || outcome[n][i] == 'f', all && passed, good && outcome[n][i] == 'o'
				}
				e, found := ends.Find(Fire{Instant: int64(101 + n)})
				if found != ran || (found && (e.Ended != 0) != all) || (all && ran && e.Success != good) {
					t.Fatalf("seed %d: fire %d ran %v, over %v, good %v: %s", seed, n, ran, all, good, ends.Data())
				}
				if all && ran && !over[n] && e.Ended != now {
					t.Fatalf("seed %d: fire %d ended at %d, found %d", seed, n, now, e.Ended)
				}
				over[n] = all && ran
			}
		}
	}
}

// TestEnds: what is noted, and for whom.
func TestEnds(t *testing.T) {
	t.Parallel()
	item := func(f Fire) Settled { return Settled{Fire: f, Total: 1, OK: Ranges{{0, 0}}} }
	if _, changed := (Ends{}).Settle(1, item(Fire{Instant: 5})); changed {
		t.Error("noted before the leader has told the hosts")
	}
	e := Ends{Since: 10, SinceRound: 50}
	for _, f := range []Fire{{Instant: 10}, {Instant: 1000, Trigger: 50}} {
		if _, changed := e.Settle(1, item(f)); changed {
			t.Errorf("%+v is noted", f)
		}
	}
	for n := range int64(130) {
		e, _ = e.Settle(1, item(Fire{Instant: 11 + n}))
	}
	if len(e.Fires) != mostEnds || e.Fires[0].Instant != 41 {
		t.Errorf("%d are kept, from %d on", len(e.Fires), e.Fires[0].Instant)
	}
	for n := range int64(60) {
		e, _ = e.Settle(2, Settled{Fire: Fire{Instant: 1000, Trigger: 51 + n}, Total: 2, OK: Ranges{{int(n % 2), int(n % 2)}}})
	}
	if len(e.Open()) > mostOpen {
		t.Errorf("%d are open", len(e.Open()))
	}
	// A trigger of some items ends with these; one whose items are all idle is no success.
	some, _ := Ends{Since: 1}.Settle(3, Settled{Fire: Fire{Trigger: 7, Only: "2"}, Total: 4, OK: Ranges{{2, 2}}}, Settled{Fire: Fire{Trigger: 8}, Root: 5, Total: 1, Idle: Ranges{{0, 0}}})
	if a, b := some.Fires[0], some.Fires[1]; a.Ended != 3 || !a.Success || b.Ended != 3 || b.Success || b.Chain() != 5 || a.Chain() != 7 {
		t.Errorf("found %+v", some.Fires)
	}
	// An item that is left out of a fire because it runs for an earlier one ends that when its run ends; and items that came
	// after a fire are none of it.
	first, second := Fire{Instant: 11}, Fire{Instant: 12}
	long, _ := Ends{Since: 1}.Settle(4, Settled{Fire: first, Total: 1}, Settled{Fire: second, Total: 2, OK: Ranges{{1, 1}}, Failed: Ranges{{0, 0}}, Running: Ranges{{0, 0}}})
	if a, b := long.Fires[0], long.Fires[1]; a.Ended != 0 || b.Ended != 4 || b.Success {
		t.Errorf("one runs for the first: %+v", long.Fires)
	}
	long, _ = long.Settle(5, Settled{Fire: first, Total: 1, OK: Ranges{{0, 0}}, Failed: Ranges{{1, 1}}})
	if a := long.Fires[0]; a.Ended != 5 || !a.Success {
		t.Errorf("its run has ended: %+v", a)
	}
	followed, changed := Ends{}.WithFollower("b")
	if followed, _ = followed.WithFollower("a"); !changed || !slices.Equal(followed.Followers, []string{"a", "b"}) {
		t.Errorf("followers %v", followed.Followers)
	}
	if _, changed := followed.WithFollower("b"); changed || !slices.Equal(followed.WithoutFollower("a").Followers, []string{"b"}) {
		t.Error("a follower is entered twice, or stays")
	}
}

// TestChained: the newest round has the number of the transaction that wrote the node.
func TestChained(t *testing.T) {
	t.Parallel()
	c := ParseChained(Chained{}.With(ChainedRound{Root: 5}).Data(), 70)
	c = ParseChained(c.With(ChainedRound{Root: 6, Skipped: "no"}).With(ChainedRound{Root: 9}).Data(), 80)
	if c.RootOf(70) != 5 || c.RootOf(80) != 9 || c.RootOf(0) != 0 || c.RootOf(60) != 0 || !c.Has(6) || c.Has(7) {
		t.Errorf("found %+v", c)
	}
	for n := range int64(300) {
		c = c.With(ChainedRound{Root: 100 + n, Round: 200 + n})
	}
	if len(c.Rounds) != mostChained || c.Has(5) || !c.Has(399) {
		t.Errorf("%d are kept", len(c.Rounds))
	}
}
