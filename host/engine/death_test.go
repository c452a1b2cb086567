package engine_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/tree"
	"github.com/wasmjob/wasmjob/host/engine"
	"github.com/wasmjob/wasmjob/host/event"
)

// order counts what hosts ask of a busy registry around an instant.
type order struct {
	mu     sync.Mutex
	due    int64           // Unix milliseconds; 0: not yet
	begun  map[string]bool // by host and job: it has begun its items for that instant
	before int             // other commits that were sent before the last of these, since the death
	since  int             // those since that
	twice  int             // elections that another host had won
}

func (o *order) note(host string, ops []registry.Op) (elects bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	begins := ""
	for _, op := range ops {
		var r tree.Record
		if before, _, found := strings.Cut(op.Path, "/sharding/"); found && strings.Contains(before, ".wasmjob/") && op.Kind == registry.OpSet && json.Unmarshal(op.Data, &r) == nil && r.Open() && r.Instant == o.due {
			begins = host + before
		}
		elects = elects || (strings.HasSuffix(op.Path, "/leader/election/instance") && op.Kind != registry.OpCheck)
	}
	switch {
	case o.due == 0:
	case begins != "" && !o.begun[begins]:
		o.begun[begins] = true
		o.before, o.since = o.before+o.since, 0
	case begins == "":
		o.since++
	}
	return elects
}

type orderedSession struct {
	busySession
	host  string
	order *order
}

func (s orderedSession) Commit(ctx context.Context, ops ...registry.Op) ([]registry.Result, error) {
	elects := s.order.note(s.host, ops)
	results, err := s.busySession.Commit(ctx, ops...)
	if err != nil && elects {
		s.order.mu.Lock()
		s.order.twice++
		s.order.mu.Unlock()
	}
	return results, err
}

// TestDeathOfALeaderOfManyJobs: one of three hosts dies, which leads all of very many jobs, just before their items are due.
// What is due on the others begins before those elect and divide, and they share that work.
func TestDeathOfALeaderOfManyJobs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const jobs, several = 300, 10 // several of them are due
		c := newCluster(t)
		busy, o := &busyRegistry{takes: time.Millisecond}, &order{begun: make(map[string]bool)}
		c.wrap = func(_ int, l *lease) registry.Center { return orderedSession{busySession{l, busy}, l.host, o} }
		var dead bool
		var mu sync.Mutex
		c.config = func(cfg *engine.Config) {
			dial := cfg.Dial
			cfg.Dial = func(ctx context.Context) (registry.Center, error) {
				mu.Lock()
				defer mu.Unlock()
				if dead && cfg.ServerIP == "10.0.0.1" {
					return nil, registry.ErrUnavailable
				}
				return dial(ctx)
			}
		}
		var all []engine.Job
		for i := range jobs {
			cron := "0 59 23 * * ?"
			if i%(jobs/several) == 0 {
				cron = "0 * * * * ?"
			}
			all = append(all, job(definition(fmt.Sprintf("job%03d", i), cron, 3), sleeper(time.Second)))
		}
		for n := range 3 {
			c.start(1+n, all...)
			time.Sleep(10 * time.Second)
		}
		time.Sleep(time.Until(time.Now().Truncate(time.Minute).Add(90 * time.Second)))
		due := time.Now().Truncate(time.Minute).Add(time.Minute)
		time.Sleep(time.Until(due.Add(-20 * time.Millisecond)))
		busy.pace(5 * time.Millisecond)
		mu.Lock()
		dead = true
		mu.Unlock()
		o.mu.Lock()
		o.due = due.UnixMilli()
		o.mu.Unlock()
		c.expire(c.hosts["10.0.0.1"])
		time.Sleep(50 * time.Second)
		o.mu.Lock()
		defer o.mu.Unlock()
		t.Logf("%d begins, %d other commits before the last of them, %d after, %d elections refused", len(o.begun), o.before, o.since, o.twice)
		if most := 2 * jobs; o.before > most {
			t.Errorf("%d other commits were sent before the last item began, want %d at most", o.before, most)
		}
		if len(o.begun) != 2*several {
			t.Errorf("%d times a host begins a job at %s, want %d", len(o.begun), due.UTC().Format(time.TimeOnly), 2*several)
		}
	})
}

// TestNeededFirst: one of three hosts dies, which leads all of very many jobs, and a chain of some of them is set off then. What waits is
// the first link, which the death has touched; those behind it elect and divide meanwhile, before jobs that nothing waits for.
func TestNeededFirst(t *testing.T) {
	for _, items := range []int{1, 3} {
		t.Run(fmt.Sprintf("items=%d", items), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := newDeath(t, 300, 10, items)
				d.happens(t)
				d.over(t, 2*time.Minute)
				slow := 0
				for n := range d.links {
					if h := d.hops[n]; n > 0 && h.first-d.hops[n-1].last > 300*time.Millisecond {
						slow++
					}
				}
				if last := d.hops[d.links-1].last; slow > 2 || last == 0 || last > 5*time.Second {
					t.Errorf("the chain ended %v after the death, and %d links began late; want 5 s and 2 at most", last, slow)
				}
			})
		})
	}
}

// TestOthersAreDivided: a host dies that leads very many jobs, and half of them are a chain in which a fire goes on all the time: the others
// are divided in bounded time all the same.
func TestOthersAreDivided(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDeath(t, deathJobs, deathJobs/2, 1)
		d.happens(t)
		d.over(t, 2*time.Minute)
		if d.divided != d.jobs-d.links || d.others > 90*time.Second {
			t.Errorf("%d of %d jobs that nothing waits for are divided after %v, want all within 90 s", d.divided, d.jobs-d.links, d.others)
		}
	})
}

// leaderDeath is the death of one of three hosts, which leads all of many jobs, some of which are a chain.
type leaderDeath struct {
	*cluster
	jobs, links, items int
	busy               *busyRegistry
	survivor           *node
	mu                 sync.Mutex
	dead               bool
	died               time.Time
	hops               []deathHop
	others             time.Duration // when the last of the jobs was divided that are no links
	divided            int           // how many of these were
}

// deathHop is when, after the death, a link of the chain was made ready and ran.
type deathHop struct{ elected, divided, first, last time.Duration }

func (d *leaderDeath) link(n int) string { return fmt.Sprintf("job%04d", n*d.jobs/d.links) }

func newDeath(t *testing.T, jobs, links, items int) *leaderDeath {
	d := &leaderDeath{cluster: newCluster(t), jobs: jobs, links: links, items: items, busy: &busyRegistry{takes: time.Millisecond}}
	d.wrap = func(_ int, l *lease) registry.Center { return busySession{l, d.busy} }
	d.config = func(cfg *engine.Config) {
		dial := cfg.Dial
		cfg.Dial = func(ctx context.Context) (registry.Center, error) {
			d.mu.Lock()
			defer d.mu.Unlock()
			if d.dead && cfg.ServerIP == "10.0.0.1" {
				return nil, registry.ErrUnavailable
			}
			return dial(ctx)
		}
	}
	before := make(map[string]string)
	for n := 1; n < links; n++ {
		before[d.link(n)] = d.link(n - 1)
	}
	var all []engine.Job
	for i := range jobs {
		def := definition(fmt.Sprintf("job%04d", i), "", items)
		if before[def.JobName] != "" {
			def = after(def.JobName, items, fmt.Sprintf(`[{"job":%q,"on":"always"}]`, before[def.JobName]))
		}
		def.Failover = true
		all = append(all, job(def, sleeper(time.Millisecond)))
	}
	for n := range 3 {
		d.survivor = d.start(1+n, all...)
		time.Sleep(max(20*time.Second, time.Duration(jobs)*50*time.Millisecond))
	}
	return d
}

// happens has the host die, and triggers the first job of the chain.
func (d *leaderDeath) happens(t *testing.T) {
	d.busy.pace(5 * time.Millisecond)
	d.mu.Lock()
	d.dead = true
	d.mu.Unlock()
	d.died = time.Now()
	d.expire(d.hosts["10.0.0.1"])
	if err := d.survivor.operator().Trigger(t.Context(), d.link(0)); err != nil {
		t.Fatal(err)
	}
}

// over notes what has happened some time later.
func (d *leaderDeath) over(t *testing.T, later time.Duration) {
	time.Sleep(later)
	link := make(map[string]int)
	for n := range d.links {
		link[d.link(n)] = n
	}
	d.hops = make([]deathHop, d.links)
	divided := make(map[string]bool)
	for _, e := range d.list(event.ItemStarted, event.ItemCompleted, event.Elected, event.Sharded) {
		at := e.Time.Sub(d.died)
		n, chained := link[e.Job]
		switch {
		case at < 0:
		case !chained && e.Kind == event.Sharded:
			d.others, divided[e.Job] = at, true
		case !chained:
		case e.Kind == event.Elected:
			d.hops[n].elected = at
		case e.Kind == event.Sharded:
			d.hops[n].divided = at
		case e.Kind == event.ItemStarted && d.hops[n].first == 0:
			d.hops[n].first = at
		case e.Kind == event.ItemCompleted:
			d.hops[n].last = at
		}
	}
	d.divided = len(divided)
	for n, h := range d.hops {
		if h.last != 0 {
			t.Logf("link %d: elected %v, divided %v, began %v, ended %v", n, h.elected, h.divided, h.first, h.last)
		}
	}
	t.Logf("the last of %d others was divided after %v", d.divided, d.others)
}
