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

// TestNeededFirst: one of three hosts dies, which leads all of very many jobs. A chain of some of them is set off then: its jobs are
// divided before those that nothing waits for.
func TestNeededFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const jobs, links = 300, 10
		c := newCluster(t)
		busy := &busyRegistry{takes: time.Millisecond}
		c.wrap = func(_ int, l *lease) registry.Center { return busySession{l, busy} }
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
		link := func(n int) string { return fmt.Sprintf("job%03d", n*jobs/links) }
		var all []engine.Job
		for i := range jobs {
			d := definition(fmt.Sprintf("job%03d", i), "", 3)
			if n := i * links / jobs; i > 0 && d.JobName == link(n) {
				d = after(d.JobName, 3, fmt.Sprintf(`[{"job":%q,"on":"always"}]`, link(n-1)))
			}
			all = append(all, job(d, sleeper(time.Millisecond)))
		}
		var survivor *node
		for n := range 3 {
			survivor = c.start(1+n, all...)
			time.Sleep(20 * time.Second)
		}
		busy.pace(5 * time.Millisecond)
		mu.Lock()
		dead = true
		mu.Unlock()
		c.expire(c.hosts["10.0.0.1"])
		died := time.Now()
		if err := survivor.operator().Trigger(t.Context(), "job000"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Minute)
		var last time.Time
		for _, e := range c.list(event.ItemStarted) {
			if e.Job == link(links-1) {
				last = e.Time
			}
		}
		elected := 0
		for _, e := range c.list(event.Sharded) {
			if e.Time.After(died) && e.Time.Before(last) {
				elected++
			}
		}
		t.Logf("the last of %d links began %v after the death; %d of %d jobs were divided before", links, last.Sub(died), elected, jobs)
		if last.IsZero() || elected > jobs/2 {
			t.Errorf("%d jobs were divided before the chain had run, want %d at most: only %d are needed", elected, jobs/2, links)
		}
	})
}
