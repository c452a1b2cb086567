package engine_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/tree"
	"github.com/wasmjob/wasmjob/host/event"
)

// accounted fails the test for each instant from one time up to another, exclusive, for which an item neither ran nor is there
// a reason that names it, and for each for which it ran more than once. A reason of a whole fire counts for the items that it
// lists.
func accounted(c *cluster, name string, from, to time.Time, step time.Duration, items []int) {
	c.t.Helper()
	ran, excused := make(map[string]int), make(map[string]bool)
	run := func(at time.Time, item int) string {
		return tree.RunID(name, tree.Fire{Instant: at.UnixMilli()}, item)
	}
	for _, e := range c.list(event.ItemCompleted, event.ItemSkipped, event.FireSkipped) {
		if e.Job != name {
			continue
		}
		about := e.Items
		if e.Item != nil {
			about = []int{*e.Item}
		}
		for _, item := range about {
			if e.Kind == event.ItemCompleted {
				ran[run(e.Instant, item)]++
				continue
			}
			for at := e.Instant; e.Trigger == 0 && (at.Equal(e.Instant) || !at.After(e.Through)); at = at.Add(step) {
				excused[run(at, item)] = true
			}
		}
	}
	var wrong []string
	for at := from; at.Before(to); at = at.Add(step) {
		for _, item := range items {
			id := run(at, item)
			if ran[id] == 0 && !excused[id] {
				wrong = append(wrong, fmt.Sprintf("%s item %d: neither a run nor a reason", at.UTC().Format("04:05"), item))
			}
			if ran[id] > 1 {
				wrong = append(wrong, fmt.Sprintf("%s item %d: %d runs", at.UTC().Format("04:05"), item, ran[id]))
			}
		}
	}
	if len(wrong) > 0 {
		c.t.Errorf("%s\n%s", strings.Join(wrong, "\n"), c.all())
	}
}

// failingReads is a session whose next reads of the time at which items were enabled fail, so many as left says.
type failingReads struct {
	*slow
	left *atomic.Int32
}

func (f *failingReads) Read(ctx context.Context, queries ...registry.Query) ([]registry.Node, error) {
	if queries[0].Path == tree.NewLayout("test", "mixed").Enabled() && f.left.Load() > 0 {
		f.left.Add(-1)
		return nil, registry.ErrUnavailable
	}
	return f.slow.Read(ctx, queries...)
}

// TestMissedBeforeParked: a host dies beside a Java host, and instants come due before the leader knows of it. The newest of
// those that come while the items are sharded begins when that is done. The items that the leader is given with it have missed
// earlier ones: each of them has its reason.
func TestMissedBeforeParked(t *testing.T) {
	for name, tc := range map[string]struct {
		misfire bool
		fails   int // so many reads by which it is found what an item missed
	}{
		"misfire is on": {misfire: true}, "misfire is off": {},
		"misfire is on, and the registry fails": {misfire: true, fails: 3}, "misfire is off, and the registry fails": {fails: 3},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t)
				var fails atomic.Int32
				c.wrap = func(_ int, l *lease) registry.Center {
					return &failingReads{&slow{lease: l, call: 20 * time.Millisecond, news: 2500 * time.Millisecond}, &fails}
				}
				d := definition("mixed", "* * * * * ?", 6)
				d.Misfire = tc.misfire
				c.start(1, job(d, sleeper(0)))
				dies := c.start(2, job(d, sleeper(0)))
				time.Sleep(10 * time.Second)
				java := c.playJava(t.Context(), "10.0.0.9")
				time.Sleep(30 * time.Second)
				owned := func(server string) (items []int) {
					for item := range 6 {
						if strings.HasPrefix(string(java.node(fmt.Sprintf("sharding/%d/instance", item)).Data), server+"@") {
							items = append(items, item)
						}
					}
					return items
				}
				had := owned("10.0.0.2")
				fails.Store(int32(tc.fails))
				from := time.Now().Truncate(time.Second).Add(time.Second)
				dies.kill()
				<-dies.done
				time.Sleep(20 * time.Second)
				had = slices.DeleteFunc(had, func(i int) bool { return !slices.Contains(owned("10.0.0.1"), i) })
				if len(had) == 0 {
					t.Fatal("the leader was given no item of the host that died")
				}
				if left := fails.Load(); left > 0 {
					t.Fatalf("of %d reads %d were not made", tc.fails, left)
				}
				accounted(c, "mixed", from, from.Add(15*time.Second), time.Second, had)
			})
		})
	}
}

// TestMissedBeforeBusiness: the leader is given the items of a host that died, and cannot read at once what they missed. When it
// can, it still has to see what that host was running. What is due begins before that, and not before what was missed is found.
func TestMissedBeforeBusiness(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		var fails atomic.Int32
		c.wrap = func(_ int, l *lease) registry.Center {
			return &failingReads{&slow{lease: l, call: 20 * time.Millisecond, news: 1200 * time.Millisecond}, &fails}
		}
		d := definition("mixed", "* * * * * ?", 6)
		d.Misfire = false
		c.start(1, job(d, sleeper(0)))
		dies := c.start(2, job(d, sleeper(0)))
		time.Sleep(20 * time.Second)
		from := time.Now().Truncate(time.Second).Add(time.Second)
		fails.Store(2)
		dies.kill()
		<-dies.done
		time.Sleep(15 * time.Second)
		if left := fails.Load(); left > 0 {
			t.Fatalf("%d reads were not made", left)
		}
		accounted(c, "mixed", from, from.Add(10*time.Second), time.Second, []int{0, 1, 2, 3, 4, 5})
	})
}
