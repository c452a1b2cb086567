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
