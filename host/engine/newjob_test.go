package engine_test

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/host/engine"
	"github.com/wasmjob/wasmjob/host/event"
)

// TestInstantBeforeTheFirstDivision: jobs that join together wait for their turn to be sharded, and instants of theirs come due
// meanwhile. The newest of them runs then, also if misfire is off, and each of the others has a reason.
func TestInstantBeforeTheFirstDivision(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.wrap = func(_ int, l *lease) registry.Center {
			return &slow{lease: l, call: 300 * time.Millisecond, news: 100 * time.Millisecond}
		}
		var jobs []engine.Job
		for k := range 100 { // more than may be divided at once
			d := definition(fmt.Sprint("new", k), "* * * * * ?", 3)
			d.Misfire = k%2 == 0
			jobs = append(jobs, job(d, sleeper(0)))
		}
		c.start(1, jobs...)
		time.Sleep(40 * time.Second)
		waited := 0
		for k := 0; k < len(jobs); k += 9 {
			name := jobs[k].Definition.JobName
			var added, sharded time.Time
			for _, e := range c.list(event.JobAdded, event.Sharded) {
				switch {
				case e.Job != name:
				case e.Kind == event.JobAdded:
					added = e.Time
				case sharded.IsZero():
					sharded = e.Time
				}
			}
			if sharded.Sub(added) < 3*time.Second {
				continue // it has hardly waited
			}
			waited++
			if !slices.ContainsFunc(c.list(event.ItemCompleted), func(e event.Event) bool { return e.Job == name && e.Instant.Before(sharded) }) {
				t.Errorf("%s, which was sharded at %s, has not run for an instant before that", name, sharded.UTC().Format("04:05"))
			}
			from := added.Truncate(time.Second).Add(time.Second)
			if t.Failed() {
				break
			}
			accounted(c, name, from, from.Add(20*time.Second), time.Second, []int{0, 1, 2})
		}
		if waited == 0 {
			t.Error("no job waited for its turn")
		}
	})
}
