package inflight

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// order lets those go who wait for one turn, one after the other, and says in which order.
func order(t *testing.T, turns *Turns, waiting ...*Worker) string {
	t.Helper()
	first := turns.Worker("first")
	first.Take(nil)
	var mu sync.Mutex
	var went []string
	var wg sync.WaitGroup
	for i, w := range waiting {
		wg.Go(func() {
			w.Take(nil)
			mu.Lock()
			went = append(went, fmt.Sprint(w.Group, i))
			mu.Unlock()
			w.Give()
		})
		synctest.Wait() // they come in this order
	}
	first.Give()
	wg.Wait()
	if turns.free != 1 || len(turns.line.groups) != 0 || len(turns.line.heap) != 0 {
		t.Errorf("%d turns are free and %d groups wait, want 1 and none", turns.free, len(turns.line.groups))
	}
	return strings.Join(went, " ")
}

// TestTurnsByGroup has a group of few wait behind one of many: it gets every other turn.
func TestTurnsByGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns := NewTurns(1)
		var all []*Worker
		for _, group := range []string{"a", "a", "a", "a", "b", "b"} {
			all = append(all, turns.Worker(group))
		}
		if got := order(t, turns, all...); got != "a0 b4 a1 b5 a2 a3" {
			t.Errorf("order %s, want a0 b4 a1 b5 a2 a3", got)
		}
	})
}

// TestTurnsOfAGroup shows that within a group the one goes first whose last turn is longest ago.
func TestTurnsOfAGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns := NewTurns(1)
		often, now, never := turns.Worker("a"), turns.Worker("a"), turns.Worker("a")
		for _, w := range []*Worker{now, often, often} {
			w.Take(nil)
			w.Give()
		}
		if got := order(t, turns, often, now, never); got != "a2 a1 a0" {
			t.Errorf("order %s, want a2 a1 a0", got)
		}
	})
}

// TestTurnsOfNewGroups shows that of groups that begin to wait the one goes first whose worker's
// last turn is longest ago.
func TestTurnsOfNewGroups(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns := NewTurns(1)
		rarely, often, never := turns.Worker("r"), turns.Worker("o"), turns.Worker("n")
		for _, w := range []*Worker{rarely, often} {
			w.Take(nil)
			w.Give()
		}
		if got := order(t, turns, often, rarely, never); got != "n2 r1 o0" {
			t.Errorf("order %s, want n2 r1 o0", got)
		}
	})
}

// TestTurnsAreBounded counts those that work at once, and lets some stop waiting, and some rest.
func TestTurnsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 3
		turns := NewTurns(n)
		done, stop := context.WithCancel(t.Context())
		var mu sync.Mutex
		work, most := 0, 0
		count := func(d int) {
			mu.Lock()
			defer mu.Unlock()
			work += d
			most = max(most, work)
		}
		var wg sync.WaitGroup
		for i := range 40 {
			w := turns.Worker(fmt.Sprint(i % 4))
			wg.Go(func() {
				for range 20 {
					w.Take(done.Done())
					if !w.has {
						return
					}
					count(1)
					time.Sleep(time.Millisecond)
					count(-1)
					w.Rest(done.Done(), func() { time.Sleep(time.Millisecond) })
					w.Give()
					w.Give() // a second one does nothing
				}
			})
		}
		time.Sleep(50 * time.Millisecond)
		stop()
		wg.Wait()
		if most != n || turns.free != n || len(turns.line.groups) != 0 {
			t.Errorf("%d worked at once, %d are free, %d groups wait, want %d, %d and none", most, turns.free, len(turns.line.groups), n, n)
		}
	})
}

// TestCommitsByGroup has a commit of a job that seldom commits, and one of another group, wait
// behind a hundred of a busy job.
func TestCommitsByGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New()
		for range firstCommits {
			if err := c.Enter(t.Context(), &Worker{Group: "a"}, false, patience, func() {}); err != nil {
				t.Fatal(err)
			}
		}
		var mu sync.Mutex
		var went []string
		var wg sync.WaitGroup
		often, rarely, other := &Worker{Group: "a", sent: 1}, &Worker{Group: "a"}, &Worker{Group: "b"}
		names := map[*Worker]string{often: "often", rarely: "rare", other: "b"}
		for _, w := range append(slices.Repeat([]*Worker{often}, 100), rarely, other) {
			wg.Go(func() {
				if err := c.Enter(t.Context(), w, false, patience, func() {}); err != nil {
					t.Error(err)
				}
				mu.Lock()
				went = append(went, names[w])
				mu.Unlock()
			})
			synctest.Wait()
		}
		for range 2 {
			c.under-- // as Leave does, without the bound
			c.mu.Lock()
			c.admit()
			c.mu.Unlock()
			synctest.Wait()
		}
		if got := strings.Join(went, " "); got != "rare b" {
			t.Errorf("after two answers %q went, want the one that came rarely and b", got)
		}
		c.mu.Lock()
		c.limit = mostCommits
		c.admit()
		c.mu.Unlock()
		wg.Wait()
	})
}

// TestHurry has those in a hurry go before the others of their group, whenever they came, and yet lets one of these go after
// each three.
func TestHurry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns := NewTurns(1)
		var all []*Worker
		for i := range 10 {
			w := turns.Worker("a")
			w.Hurry = i >= 3
			all = append(all, w)
		}
		if got := order(t, turns, all...); got != "a3 a4 a5 a0 a6 a7 a8 a1 a9 a2" {
			t.Errorf("order %s, want three in a hurry, one of the others, and so on", got)
		}
	})
}

// TestHurryOfOtherGroups has one that is not in a hurry wait beside many of another group that are.
func TestHurryOfOtherGroups(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns := NewTurns(1)
		all := []*Worker{turns.Worker("b")}
		for range 3 {
			w := turns.Worker("a")
			w.Hurry = true
			all = append(all, w)
		}
		if got := order(t, turns, all...); got != "b0 a1 a2 a3" {
			t.Errorf("order %s: groups have the same part", got)
		}
	})
}

// TestCommitsInAHurry has the commit of a fire come behind a thousand that divide items: none of them goes before it.
func TestCommitsInAHurry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New()
		for range firstCommits {
			if err := c.Enter(t.Context(), &Worker{}, false, patience, func() {}); err != nil {
				t.Fatal(err)
			}
		}
		var mu sync.Mutex
		var went []bool
		var wg sync.WaitGroup
		for n := range 1001 {
			wg.Go(func() {
				hurry := n == 1000
				if err := c.Enter(t.Context(), &Worker{}, hurry, time.Hour, func() {}); err != nil {
					t.Error(err)
				}
				mu.Lock()
				went = append(went, hurry)
				mu.Unlock()
			})
			synctest.Wait()
		}
		c.Leave(time.Now(), time.Now(), true)
		synctest.Wait()
		mu.Lock()
		if !slices.Contains(went, true) {
			t.Errorf("after one answer %d commits went, expected that of the fire among them", len(went))
		}
		mu.Unlock()
		for range 1001 {
			c.Leave(time.Now(), time.Now(), true)
		}
		wg.Wait()
	})
}

// TestWorked has one worker do much in a turn for which another waits: that one goes after turnWork pieces, and the first one
// goes on after it. Without others a turn goes on.
func TestWorked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns := NewTurns(1)
		first, second := turns.Worker("a"), turns.Worker("b")
		first.Take(nil)
		for range 3 * turnWork {
			first.Worked(nil)
		}
		done, went := 0, make(chan int, 1)
		go func() {
			second.Take(nil)
			went <- done
			second.Give()
		}()
		synctest.Wait()
		for range 3 * turnWork {
			first.Worked(nil)
			done++ // only the one that has the turn
		}
		first.Give()
		if got := <-went; got != turnWork-1 {
			t.Errorf("the other went after %d pieces of work and one, want %d", got, turnWork)
		}
		first.Worked(nil) // without a turn it does nothing
		if turns.free != 1 || first.has {
			t.Errorf("%d turns are free, want 1", turns.free)
		}
	})
}
