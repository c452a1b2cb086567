package engine_test

import (
	"context"
	"encoding/json"
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

// everyMinute demands that each item of a job runs once for each full minute from
// one time to another, at most early before it and late after it by true time.
func (c *cluster) everyMinute(items int, from, to time.Time, early, late time.Duration) {
	c.t.Helper()
	runs := make(map[string]int)
	for _, e := range c.list(event.ItemStarted) {
		runs[fmt.Sprint(e.Instant.Unix(), "/", *e.Item)]++
	}
	for at := from.Truncate(time.Minute).Add(time.Minute); at.Before(to); at = at.Add(time.Minute) {
		for i := range items {
			if n := runs[fmt.Sprint(at.Unix(), "/", i)]; n != 1 {
				c.t.Errorf("item %d ran %d times for %s, want once", i, n, at.UTC().Format("02 15:04"))
			}
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, e := range c.events {
		if e.Kind != event.ItemStarted || e.Instant.Before(from) {
			continue
		}
		if by := c.at[i].Sub(e.Instant); by < -early || by > late {
			c.t.Errorf("%s began %s after its instant, want from %s before to %s after it", e.RunID, by, early, late)
		}
	}
}

// One host's clock is hours and days ahead, before it makes the items of a job as
// its leader, while it joins, and after that. No host misses an instant, also that
// one, nothing begins earlier than the bound, and the host says what is wrong.
//
// It kills the mutant "host that runs ahead of the registry's clock".
func TestAClockThatIsAheadSilencesNoItem(t *testing.T) {
	for _, ahead := range []time.Duration{6 * time.Second, 40 * time.Minute, 24 * time.Hour, 60 * 24 * time.Hour} {
		for _, when := range []string{"before all others", "before it joins", "later"} {
			t.Run(fmt.Sprint(ahead, " ", when), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					c := newCluster(t)
					d := definition("often", "0 * * * * ?", 6)
					wrong := &wallClock{}
					start := func(n int) {
						c.config = nil
						if n == 1 {
							c.onWallClock(wrong)
						}
						c.start(n, job(d, sleeper(time.Second)))
						time.Sleep(2 * time.Second)
					}
					switch when {
					case "before all others":
						wrong.set(ahead)
						start(1)
						start(2)
						start(3)
					case "before it joins":
						start(2)
						start(3)
						time.Sleep(3 * time.Minute)
						wrong.set(ahead)
						start(1)
					default:
						start(1)
						start(2)
						start(3)
						time.Sleep(3 * time.Minute)
						wrong.set(ahead)
					}
					from := time.Now()
					time.Sleep(10*time.Minute + 7*time.Second)
					wrong.set(0) // repaired
					time.Sleep(10 * time.Minute)
					c.everyMinute(6, from, time.Now(), 5*time.Second+100*time.Millisecond, 2*time.Second)
					told := c.list(event.Clock)
					if len(told) != 2 || !strings.HasPrefix(told[0].Host, "10.0.0.1@") || (told[0].Drift-ahead).Abs() > 2*time.Millisecond || told[1].Drift.Abs() > 2*time.Millisecond {
						t.Errorf("what is told of the clock, want that it is %s ahead, and that it is right again:\n%s", ahead, lines(told))
					}
				})
			})
		}
	}
}

// A clock that is behind harms its own host alone: what the others have begun does
// not begin there until the clock has come to it. The host says so, and once that
// it is behind by more than the catch-up window.
func TestAClockThatIsBehindIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, w := newCluster(t), &wallClock{}
		d := definition("often", "0 * * * * ?", 2)
		c.start(1, job(d, sleeper(time.Second)))
		time.Sleep(3*time.Minute + 5*time.Second)
		w.set(-time.Hour)
		c.onWallClock(w)
		n2 := c.start(2, job(d, sleeper(time.Second)))
		from := time.Now()
		time.Sleep(10 * time.Minute)
		for _, e := range c.list(event.ItemStarted) {
			if e.Time.After(from) && strings.HasPrefix(e.Host, "10.0.0.2@") {
				t.Errorf("began on the host whose clock is behind: %s", lines([]event.Event{e}))
			}
		}
		s := n2.host.Status()
		if s.Clock == nil || !s.Clock.Off || (s.Clock.Drift+time.Hour).Abs() > s.Clock.Uncertainty+time.Millisecond || s.Clock.Bound != 5*time.Second {
			t.Errorf("status: clock %+v, want an hour behind", s.Clock)
		}
		if told := c.list(event.Clock); len(told) != 1 || (told[0].Drift+time.Hour).Abs() > 2*time.Millisecond {
			t.Errorf("what is told of the clock:\n%s", lines(told))
		}
		said := c.list(event.JobError)
		if len(said) != 1 || !strings.Contains(said[0].Reason, "behind the registry's, more than the catch-up window of 5m0s") {
			t.Errorf("what is told of the catch-up window:\n%s", lines(said))
		}
		configured := func() event.Event {
			all := c.list(event.JobConfigured)
			return all[len(all)-1]
		}
		if e := configured(); !strings.HasPrefix(e.Host, "10.0.0.2@") || e.Reason != said[0].Reason {
			t.Errorf("the host goes by the job without an objection: %s", lines([]event.Event{e}))
		}
		w.set(0)
		time.Sleep(5 * time.Minute)
		if e := configured(); !strings.HasPrefix(e.Host, "10.0.0.2@") || e.Reason != "" {
			t.Errorf("the clock is right, and the host has an objection: %s", lines([]event.Event{e}))
		}
		if told := c.list(event.Clock); len(told) != 2 {
			t.Errorf("the clock is right again, and is told of so:\n%s", lines(told))
		}
		from = time.Now()
		time.Sleep(5 * time.Minute)
		c.everyMinute(2, from, time.Now(), 0, time.Second)
	})
}

// A record that is ahead of all clocks is repaired by the next begin of its owner,
// with an event, if the owner's clock agrees with the registry's.
//
// It kills the mutant "record that is ahead of all clocks not repaired".
func TestARecordThatIsAheadIsRepaired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		d := definition("often", "0 * * * * ?", 2)
		c.start(1, job(d, sleeper(time.Second)))
		time.Sleep(3*time.Minute + 10*time.Second)
		ahead := time.Now().Add(30 * 24 * time.Hour).Truncate(time.Second)
		c.record("often", 1, func(r *tree.Record) { r.Instant = ahead.UnixMilli() })
		time.Sleep(4 * time.Minute)
		told := c.list(event.ItemRepaired)
		if len(told) != 1 || *told[0].Item != 1 || told[0].Drift < 29*24*time.Hour || !strings.Contains(told[0].Reason, ahead.UTC().Format(time.RFC3339)) {
			t.Fatalf("what is told of the repair:\n%s\n%s", lines(told), c.all())
		}
		// The begin that finds the edited record is refused; the one after it is not.
		var runs int
		for _, e := range c.list(event.ItemStarted) {
			if *e.Item == 1 && !e.Instant.Before(told[0].Instant) {
				runs++
			}
		}
		if runs < 3 {
			t.Errorf("the item began %d times in four minutes:\n%s", runs, c.all())
		}
	})
}

// The registry's clock is set back, by a server that leads it now and is wrong, and
// forwards again. What was begun does not run again: a host repairs no record whose
// own clock does not agree that it is wrong.
//
// It kills the mutant "record repaired though the clocks differ".
func TestNothingRunsTwiceWhenTheRegistrysClockIsSetBack(t *testing.T) {
	for _, by := range []time.Duration{-time.Hour, -48 * time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			var offset atomic.Int64
			c := newCluster(t)
			c.wrap = func(_ int, l *lease) registry.Center { return &skewed{l, &offset} }
			d := definition("often", "0 * * * * ?", 4)
			c.start(1, job(d, sleeper(time.Second)))
			c.start(2, job(d, sleeper(time.Second)))
			time.Sleep(2*time.Hour + 10*time.Second)
			offset.Store(int64(by))
			time.Sleep(30 * time.Minute)
			offset.Store(0)
			time.Sleep(10 * time.Minute)
			runs := make(map[string]int)
			for _, e := range c.list(event.ItemStarted) {
				if runs[e.RunID]++; runs[e.RunID] > 1 {
					t.Errorf("%s ran %d times", e.RunID, runs[e.RunID])
				}
			}
			if told := c.list(event.ItemRepaired); len(told) != 0 {
				t.Errorf("repaired:\n%s", lines(told))
			}
			began := c.list(event.ItemStarted)
			last := began[len(began)-1].Time
			if ago := time.Since(last); ago > 2*time.Minute {
				t.Errorf("the clocks are right again for ten minutes, and nothing has begun for %s\n%s", ago, c.all())
			}
		})
	}
}

// record edits the record of an item, as a hand does.
func (c *cluster) record(name string, item int, edit func(*tree.Record)) {
	c.t.Helper()
	rc, err := c.server.Connect(c.t.Context())
	if err != nil {
		c.t.Fatal(err)
	}
	defer func() { _ = rc.Close() }()
	path := tree.NewLayout("test", name).Sibling() + "/sharding/" + fmt.Sprint(item)
	n, err := rc.Read(c.t.Context(), registry.Data(path))
	if err != nil {
		c.t.Fatal(err)
	}
	var r tree.Record
	if err := json.Unmarshal(n[0].Data, &r); err != nil {
		c.t.Fatal(err)
	}
	edit(&r)
	data, err := json.Marshal(r)
	if err != nil {
		c.t.Fatal(err)
	}
	if _, err := rc.Commit(c.t.Context(), registry.Set(path, data, registry.AnyVersion)); err != nil {
		c.t.Fatal(err)
	}
}

// slowSession is a session whose requests take some time to arrive, and as long to be
// answered.
type slowSession struct {
	*lease
	each time.Duration
}

func (s slowSession) Commit(ctx context.Context, ops ...registry.Op) ([]registry.Result, error) {
	time.Sleep(s.each)
	results, err := s.lease.Commit(ctx, ops...)
	time.Sleep(s.each)
	return results, err
}

// Answers that take their time tell less about the registry's clock, and no host
// takes its own clock for wrong because of them.
func TestSlowAnswersDoNotMakeAClockWrong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.wrap = func(_ int, l *lease) registry.Center { return slowSession{l, 1500 * time.Millisecond} }
		d := definition("often", "0 * * * * ?", 4)
		c.start(1, job(d, sleeper(time.Second)))
		c.start(2, job(d, sleeper(time.Second)))
		time.Sleep(time.Hour)
		if told := c.list(event.Clock); len(told) != 0 {
			t.Errorf("what is told of the clocks:\n%s", lines(told))
		}
		began := slices.DeleteFunc(c.list(event.ItemStarted), func(e event.Event) bool { return *e.Item != 0 })
		if len(began) < 55 {
			t.Errorf("an item began %d times in an hour", len(began))
		}
	})
}

// An instant that was due, and is later than the registry's clock after that was
// set back, waits: nothing begins later than that clock and the bound.
//
// It kills the mutant "clock that is off not asked for again".
func TestADueInstantWaitsForTheRegistrysClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var offset atomic.Int64
		c := newCluster(t)
		c.wrap = func(_ int, l *lease) registry.Center { return &skewed{l, &offset} }
		// Items take 90 s: each second instant is due when they end.
		c.start(1, job(definition("often", "0 * * * * ?", 2), sleeper(90*time.Second)))
		time.Sleep(10*time.Minute + 10*time.Second)
		offset.Store(int64(-20 * time.Minute))
		set := time.Now()
		time.Sleep(10 * time.Minute)
		offset.Store(0)
		right := time.Now()
		time.Sleep(10 * time.Minute)
		c.mu.Lock()
		defer c.mu.Unlock()
		n := 0
		for i, e := range c.events {
			if e.Kind != event.ItemStarted || c.at[i].Before(set.Add(2*time.Minute)) {
				continue
			}
			n++
			if c.at[i].Before(right) {
				t.Errorf("began %s at %s, when the registry's clock was 20 minutes behind", e.RunID, c.at[i].UTC().Format(time.TimeOnly))
			}
		}
		if n < 8 {
			t.Errorf("%d runs in the ten minutes after the registry's clock was right again", n)
		}
	})
}

// A leader whose clock is behind makes items that owe nothing of before they were.
//
// It kills the mutant "items dated by the leader's clock".
func TestALeaderThatIsBehindMakesNoItemOweWhatWasBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, w := newCluster(t), &wallClock{}
		w.set(-4 * time.Minute)
		c.onWallClock(w)
		time.Sleep(time.Hour + 10*time.Second)
		from := time.Now()
		d := definition("often", "0 * * * * ?", 2)
		n1 := c.start(1, job(d, sleeper(time.Second)))
		time.Sleep(time.Second)
		c.config = nil
		c.start(2, job(d, sleeper(time.Second)))
		time.Sleep(time.Second)
		n1.stop()
		<-n1.done
		time.Sleep(3 * time.Minute)
		c.everyMinute(2, from, time.Now(), 0, time.Second)
		for _, e := range c.list(event.ItemStarted) {
			if e.Instant.Before(from) {
				t.Errorf("ran for an instant before the items were made: %s", lines([]event.Event{e}))
			}
		}
	})
}

// Items that came to be while the registry's clock was ahead run when it is right
// again: their dates are repaired. Nothing runs early meanwhile, on hosts whose
// clocks are right.
func TestItemsThatAWrongRegistryDatedAreRepaired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var offset atomic.Int64
		offset.Store(int64(24 * time.Hour))
		c := newCluster(t)
		c.wrap = func(_ int, l *lease) registry.Center { return &skewed{l, &offset} }
		d := definition("often", "0 * * * * ?", 4)
		c.start(1, job(d, sleeper(time.Second)))
		c.start(2, job(d, sleeper(time.Second)))
		time.Sleep(10*time.Minute + 10*time.Second)
		if began := c.list(event.ItemStarted); len(began) != 0 {
			t.Errorf("dated a day ahead, and begun:\n%s", lines(began))
		}
		offset.Store(0)
		time.Sleep(50 * time.Second)
		from := time.Now()
		time.Sleep(5 * time.Minute)
		c.everyMinute(4, from, time.Now(), 0, time.Second)
		if told := c.list(event.ItemRepaired); len(told) != 4 {
			t.Errorf("what is told of the four items that were repaired:\n%s", lines(told))
		}
	})
}
