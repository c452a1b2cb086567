package cluster

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wasmjob/wasmjob/host/engine"
)

// TestFollowers: whatever hosts do, what a cluster shows is what they say, and who follows
// the changes has the same, whenever they look.
func TestFollowers(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { follow(t, rand.New(rand.NewPCG(seed, 1))) })
		})
	}
}

// follower has what changes told it.
type follower struct {
	mark Mark
	jobs map[string]Job
}

func (f *follower) look(c *Cluster) {
	changed := c.Changes(f.mark)
	if changed.Whole {
		f.jobs = make(map[string]Job)
	}
	for _, j := range changed.Jobs {
		if j.Health == "" {
			delete(f.jobs, j.Name)
		} else {
			f.jobs[j.Name] = j
		}
	}
	f.mark = changed.Mark
}

func follow(t *testing.T, dice *rand.Rand) {
	ships := []*ship{newShip("1"), newShip("2"), newShip("3")}
	f, c := sail(t, ships...)
	all := append(slices.Clone(ships), f.self)
	followers := []*follower{{}, {}, {}}
	for range 300 {
		s := all[dice.IntN(len(all))]
		name := fmt.Sprint("job", dice.IntN(12))
		switch dice.IntN(10) {
		case 0:
			s.drop(name)
		case 1:
			if s != f.self { // its Local is the cluster's
				s.start()
			}
		case 2:
			s.answers(0, errors.New("down"))
		case 3:
			s.answers(0, nil)
		case 4:
			f.lists(ships[:dice.IntN(len(ships)+1)]...)
		case 5:
			time.Sleep(time.Duration(dice.IntN(2000)) * time.Millisecond)
		default:
			s.set(job(name, []engine.JobState{engine.JobReady, engine.JobRunning, engine.JobDisabled, engine.JobError}[dice.IntN(4)],
				engine.ItemStatus{Item: dice.IntN(3), Running: dice.IntN(2) == 0}))
		}
		if dice.IntN(3) == 0 {
			if err := c.Refresh(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		followers[dice.IntN(len(followers))].look(c)
		c.Jobs() // what is listed is kept up to date from here
	}
	stale()
	refresh(t, c, 0)
	want, listed := make(map[string]Job), make(map[string]Job)
	for _, j := range c.Jobs() {
		listed[j.Name] = *j
		var parts []part
		for _, s := range append(slices.Clone(f.list), f.self) {
			if last, ok := c.hosts[s.id].jobs[j.Name]; ok {
				parts = append(parts, part{s.id, c.hosts[s.id].silent != "", last})
			}
			s.mu.Lock()
			if said, ok := s.jobs[j.Name]; c.hosts[s.id].silent == "" && !(reflect.DeepEqual(said, c.hosts[s.id].jobs[j.Name]) || !ok && len(c.hosts[s.id].jobs[j.Name].Items) == 0) {
				t.Errorf("host %s says %+v, it is known as %+v", s.id, said, c.hosts[s.id].jobs[j.Name])
			}
			s.mu.Unlock()
		}
		slices.SortFunc(parts, func(a, b part) int {
			if a.host < b.host {
				return -1
			}
			return 1
		})
		want[j.Name] = *merge(parts, time.Now())
	}
	if !reflect.DeepEqual(listed, want) {
		t.Errorf("listed are\n%+v, want\n%+v", listed, want)
	}
	for n, x := range followers {
		x.look(c)
		if !reflect.DeepEqual(x.jobs, want) {
			t.Errorf("follower %d has\n%+v, want\n%+v", n, x.jobs, want)
		}
	}
	for id, k := range c.hosts {
		runs, waits := 0, 0
		for _, j := range k.jobs {
			running, queued := begun(j)
			runs, waits = runs+running, waits+queued
		}
		if runs != k.running || waits != k.queued {
			t.Errorf("host %s: %d items run and %d are queued, counted %d and %d", id, runs, waits, k.running, k.queued)
		}
	}
}
