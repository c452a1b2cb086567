package inflight

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// patience is how long who waits does so in silence.
const patience = 10 * time.Second

// clerk answers commits, so many at once, and each takes its time.
type clerk struct {
	hands chan struct{}
	takes time.Duration
}

// flood has many jobs commit again and again for a while, and returns how many
// commits were answered, and how many were with the clerk at once at most, in the
// second half of it.
func (k *clerk) flood(c *Commits, jobs int, d time.Duration) (answered, most int) {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	half := time.Now().Add(d / 2)
	var mu sync.Mutex
	var wg sync.WaitGroup
	under := 0
	for range jobs {
		wg.Go(func() {
			for c.Enter(ctx, &Worker{}, false, patience, func() {}) == nil {
				sent := time.Now()
				mu.Lock()
				under++
				if sent.After(half) {
					most = max(most, under)
				}
				mu.Unlock()
				k.hands <- struct{}{}
				time.Sleep(k.takes)
				<-k.hands
				mu.Lock()
				under--
				answered++
				mu.Unlock()
				c.Leave(sent, time.Now(), true)
			}
		})
	}
	wg.Wait()
	return answered, most
}

// However many jobs commit, a slow registry has few commits at once, without being
// idle; one that is fast, or only far away, is not held back.
func TestCommits(t *testing.T) {
	for _, tc := range []struct {
		name          string
		hands, jobs   int
		takes         time.Duration
		most, atLeast int // commits at once; answered a second
	}{
		{"one after the other, 20 ms each", 1, 500, 20 * time.Millisecond, 2 * leastCommits, 45},
		{"one after the other, 1 ms each", 1, 500, time.Millisecond, 110, 950},
		{"far away", 2000, 500, 200 * time.Millisecond, 500, 2300},
		{"few jobs", 2000, 10, 100 * time.Millisecond, 10, 95},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := New()
				k := &clerk{make(chan struct{}, tc.hands), tc.takes}
				const seconds = 60
				answered, most := k.flood(c, tc.jobs, seconds*time.Second)
				if most > tc.most {
					t.Errorf("%d commits at once, want at most %d", most, tc.most)
				}
				if answered < tc.atLeast*seconds {
					t.Errorf("%d commits a second, want at least %d", answered/seconds, tc.atLeast)
				}
			})
		})
	}
}

// A registry that stood still is given as much as before soon after.
func TestCommitsAfterAStall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New()
		fast := &clerk{make(chan struct{}, 2000), 10 * time.Millisecond}
		fast.flood(c, 500, 20*time.Second)
		slow := &clerk{make(chan struct{}, 2000), 5 * time.Second}
		slow.flood(c, 500, 10*time.Second)
		before := c.limit
		if answered, _ := fast.flood(c, 500, 10*time.Second); answered < 20_000 {
			t.Errorf("%d commits in ten seconds after the bound was %.0f, want 20,000", answered, before)
		}
	})
}

// Who stops waiting takes no turn, and who waits for long says so once.
func TestCommitsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New()
		for range firstCommits {
			if err := c.Enter(t.Context(), &Worker{}, false, patience, func() {}); err != nil {
				t.Fatal(err)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		var gaveUp, late atomic.Int32
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				if c.Enter(ctx, &Worker{}, false, patience, func() { late.Add(1) }) != nil {
					gaveUp.Add(1)
				}
			})
		}
		time.Sleep(3 * patience)
		if late.Load() != 3 {
			t.Errorf("%d reports of 3 that wait", late.Load())
		}
		cancel()
		wg.Wait()
		entered := false
		wg.Go(func() { entered = c.Enter(t.Context(), &Worker{}, false, patience, func() {}) == nil })
		synctest.Wait()
		c.Leave(time.Now(), time.Now(), true)
		wg.Wait()
		if gaveUp.Load() != 3 || !entered || c.under != firstCommits || len(c.waiting.groups) != 0 {
			t.Errorf("%d gave up, entered %v, %d under way, %d groups waiting", gaveUp.Load(), entered, c.under, len(c.waiting.groups))
		}
	})
}
