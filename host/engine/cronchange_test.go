package engine_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/host/event"
)

// TestCronChangedAtAnInstant: whenever the cron is changed, and however late a host hears of that, each
// instant of which an item runs is one of all items: they run, or have a reason. The change is in force soon.
//
// It kills the mutant "schedule changed when a host hears of it".
func TestCronChangedAtAnInstant(t *testing.T) {
	const ms = time.Millisecond
	for _, tt := range []struct {
		hosts    int
		from, to string
		news     map[int]time.Duration
	}{
		{2, "*/10 * * * * ?", "5/10 * * * * ?", map[int]time.Duration{2: 300 * ms}},
		{2, "*/10 * * * * ?", "5/10 * * * * ?", map[int]time.Duration{1: 300 * ms}},
		{3, "*/10 * * * * ?", "*/3 * * * * ?", map[int]time.Duration{2: 300 * ms, 3: 40 * ms}},
		{3, "*/1 * * * * ?", "*/10 * * * * ?", map[int]time.Duration{1: 20 * ms, 2: 300 * ms}},
		{2, "*/10 * * * * ?", "", map[int]time.Duration{2: 300 * ms}},
		{2, "*/10 * * * * ?", "*/2 * * * * ?", map[int]time.Duration{2: 4 * time.Second}},
		// One hears of it when its own instants have come that are none any more.
		{2, "*/1 * * * * ?", "*/10 * * * * ?", map[int]time.Duration{2: 5 * time.Second}},
		{2, "*/2 * * * * ?", "1/2 * * * * ?", map[int]time.Duration{1: 7 * time.Second}},
		{3, "*/2 * * * * ?", "*/3 * * * * ?", map[int]time.Duration{1: 20 * ms, 2: 4 * time.Second, 3: 9 * time.Second}},
		{2, "*/2 * * * * ?", "", map[int]time.Duration{2: 6 * time.Second}},
	} {
		for _, at := range []int{0, 5} {
			for off := -420 * ms; off <= 120*ms; off += 30 * ms {
				t.Run(fmt.Sprint(tt.hosts, tt.from, " to ", tt.to, tt.news, ", ", at, off), func(t *testing.T) {
					t.Parallel()
					synctest.Test(t, func(t *testing.T) {
						const items = 6
						c := newCluster(t)
						c.wrap = func(n int, l *lease) registry.Center { return &slow{l, ms, tt.news[n]} }
						d := definition("j", tt.from, items)
						for n := 1; n <= tt.hosts; n++ {
							c.start(n, job(d, sleeper(time.Millisecond)))
							time.Sleep(10 * time.Second)
						}
						edited := time.Date(2000, 1, 1, 0, 1, at, 0, time.UTC).Add(off)
						time.Sleep(time.Until(edited))
						d.Cron = tt.to
						c.edit(d)
						time.Sleep(29 * time.Second)
						known := make(map[time.Time]map[int]bool)
						for _, e := range c.list(event.ItemStarted) {
							if known[e.Instant] == nil {
								known[e.Instant] = make(map[int]bool)
							}
							known[e.Instant][*e.Item] = true
						}
						newest := time.Time{}
						for instant, ran := range known {
							if instant.After(newest) {
								newest = instant
							}
							for _, e := range c.list(event.ItemSkipped, event.FireSkipped) {
								if e.Instant.Equal(instant) || (!e.Through.IsZero() && !e.Instant.After(instant) && !e.Through.Before(instant)) {
									for _, n := range e.Items {
										ran[n] = true
									}
									if e.Item != nil {
										ran[*e.Item] = true
									}
								}
							}
							if len(ran) != items && instant.After(edited.Add(-20*time.Second)) {
								t.Errorf("edited at %s: of %d items at %s %v ran or have a reason", edited.Format("05.000"), items, instant.UTC().Format("04:05"), ran)
							}
						}
						if over := newest.After(edited.Add(5 * time.Second)); over != (tt.to != "") {
							t.Errorf("the newest instant is %s", newest)
						}
						if t.Failed() {
							t.Log(c.all())
						}
					})
				})
			}
		}
	}
}
