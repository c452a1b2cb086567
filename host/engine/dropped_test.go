package engine_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

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
