package engine_test

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wasmjob/wasmjob/coordination/jobconfig"
	"github.com/wasmjob/wasmjob/host/event"
)

// TestDroppedStaysDropped: an instant that came while the item ran, and was dropped for that, does not run later, whatever the
// clock of the host that has the item then: of another one, or of the same when it was set back.
func TestDroppedStaysDropped(t *testing.T) {
	for _, behind := range []time.Duration{0, 100 * time.Second} {
		for k := range 4 {
			overlap, same := []string{"skip", "queue_all"}[k/2], k%2 == 1
			t.Run(fmt.Sprint(overlap, behind, same), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					c, w := newCluster(t), &wallClock{}
					c.onWallClock(w)
					d := policy("overlap", overlap, "queueMax", "1")
					d.Misfire = overlap != "skip"
					long, dropped := 70*time.Second, "02:00"
					if overlap == "queue_all" {
						long, dropped = 130*time.Second, "03:00"
					}
					n := c.start(1, job(d, first(long, time.Second))) // from 01:00 on
					until(minute(1).Add(long + 15*time.Second))
					if same {
						w.set(-behind)
					} else {
						n.stop()
						<-n.done
						other := &wallClock{}
						other.set(-behind)
						c.onWallClock(other)
						c.start(2, job(d, first(time.Second, time.Second)))
					}
					until(minute(8))
					runs := make(map[string]int)
					for _, e := range c.list(event.ItemStarted) {
						runs[e.Instant.UTC().Format("04:05")]++
					}
					for _, at := range []string{"01:00", "02:00", "03:00", "04:00", "05:00"} {
						if want := min(1, len(strings.ReplaceAll(at, dropped, ""))); runs[at] != want {
							t.Errorf("%d runs for %s, expected %d\n%s", runs[at], at, want, c.all())
						}
					}
				})
			})
		}
	}
}

// TestDroppedStaysDropped_clocksApart: of two hosts whose clocks are apart by less than is reported, one drops an instant because it
// is too late or too old, and the other one, which has the item next, does not run it: both go by the registry's clock.
func TestDroppedStaysDropped_clocksApart(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		ahead [2]time.Duration
	}{
		{"the first host is ahead", [2]time.Duration{4 * time.Second, -4 * time.Second}},
		{"the first host is behind", [2]time.Duration{-4 * time.Second, 4 * time.Second}},
	} {
		for cause, d := range map[event.SkipCause]jobconfig.Configuration{
			event.SkipLate:   policy("startWithin", "30s", "overlap", "queue_one"),
			event.SkipTooOld: policy("catchUpWindow", "30s"),
		} {
			for _, after := range []time.Duration{27 * time.Second, 33 * time.Second} {
				t.Run(fmt.Sprint(tt.name, cause, after), func(t *testing.T) {
					t.Parallel()
					synctest.Test(t, func(t *testing.T) {
						c := newCluster(t)
						d := d
						d.Cron = "0 0/30 * * * ?"
						host := func(n int, g *guest) *node {
							w := &wallClock{}
							w.set(tt.ahead[n-1])
							c.onWallClock(w)
							return c.start(n, job(d, g))
						}
						came := minute(60)
						var n *node
						if cause == event.SkipLate {
							n = host(1, first(30*time.Minute+after+tt.ahead[0], time.Second))
							until(came.Add(after + 2500*time.Millisecond)) // its last run is over
						} else {
							other := c.start(3, job(d, sleeper(time.Second)))
							until(minute(45))
							other.stop()
							<-other.done
							until(came.Add(after))
							n = host(1, sleeper(time.Second))
							time.Sleep(2 * time.Second)
						}
						n.stop()
						<-n.done
						host(2, sleeper(time.Second))
						time.Sleep(10 * time.Second)
						var fates []string
						for _, e := range c.list(event.ItemStarted, event.ItemSkipped) {
							if e.Instant.Equal(came) && !e.Owed {
								fates = append(fates, cmp.Or(string(e.Cause), "run"))
							}
						}
						want := string(cause)
						if after < 30*time.Second {
							want = "run"
						}
						if slices.Sort(fates); !slices.Equal(slices.Compact(fates), []string{want}) {
							t.Errorf("what became of the instant: %v, expected %s\n%s", fates, want, c.all())
						}
					})
				})
			}
		}
	}
}

// TestDisabled_clocksApart: by the registry's clock a job, or an item, is enabled just before an instant, which has come by the clock
// of its host while it was disabled. The instant has one run, on that host or on the next one, and no reason besides.
func TestDisabled_clocksApart(t *testing.T) {
	t.Parallel()
	for _, what := range []string{"item", "job"} {
		for _, next := range []string{"the same host", "the next host", "a host that was given the item meanwhile"} {
			for _, early := range []bool{true, false} {
				t.Run(fmt.Sprint(what, " ", next, " ", early), func(t *testing.T) {
					t.Parallel()
					synctest.Test(t, func(t *testing.T) {
						c := newCluster(t)
						d := policy()
						host := func(n int, ahead time.Duration) *node {
							w := &wallClock{}
							w.set(ahead)
							c.onWallClock(w)
							return c.start(n, job(d, sleeper(time.Second)))
						}
						enable := func(n *node) {
							if what == "item" {
								noError(t, n.operator().EnableItem(t.Context(), "j", 0))
							} else {
								noError(t, n.operator().Enable(t.Context(), "j"))
							}
						}
						came := minute(3)
						n := host(1, 4*time.Second)
						until(minute(2).Add(10 * time.Second))
						if what == "item" {
							noError(t, n.operator().DisableItem(t.Context(), "j", 0))
						} else {
							noError(t, n.operator().Disable(t.Context(), "j"))
						}
						if next == "a host that was given the item meanwhile" {
							until(came.Add(-3500 * time.Millisecond))
							n.stop()
							<-n.done
							n = host(2, 4*time.Second)
						}
						before, fates := came.Add(-2*time.Second), []string{"run"}
						if !early {
							before, fates = came.Add(2*time.Second), []string{"disabled"}
						}
						until(before)
						enable(n)
						time.Sleep(100 * time.Millisecond)
						if next == "the next host" {
							n.stop()
							<-n.done
							host(2, 0)
						}
						until(came.Add(30 * time.Second))
						var got []string
						for _, e := range c.list(event.ItemStarted, event.ItemSkipped, event.FireSkipped) {
							if through := e.Through; !came.Before(e.Instant) && (came.Equal(e.Instant) || !came.After(through)) && !e.Owed && e.Cause != event.SkipElsewhere {
								got = append(got, cmp.Or(string(e.Cause), "run"))
							}
						}
						if slices.Sort(got); !slices.Equal(slices.Compact(got), fates) {
							t.Errorf("what became of the instant: %v, expected %v\n%s", got, fates, c.all())
						}
					})
				})
			}
		}
	}
}
