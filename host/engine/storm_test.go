package engine_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/host/event"
)

// tally counts what all hosts ask of a registry that is some milliseconds away.
type tally struct {
	mu                     sync.Mutex
	commits, refused, read int
	of                     map[string]int // commits by what they write
	java                   []string       // instances that were no members when they appeared
}

func (t *tally) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var b strings.Builder
	fmt.Fprintf(&b, "%d commits, %d of them refused; %d nodes read", t.commits, t.refused, t.read)
	for _, what := range slices.SortedFunc(maps.Keys(t.of), func(a, b string) int { return t.of[b] - t.of[a] }) {
		fmt.Fprintf(&b, "\n%6d %s", t.of[what], what)
	}
	return b.String()
}

// distant is a session whose requests take their time, and are counted.
type distant struct {
	registry.Center
	*tally
}

func (s distant) Commit(ctx context.Context, ops ...registry.Op) ([]registry.Result, error) {
	time.Sleep(2 * time.Millisecond)
	r, err := s.Center.Commit(ctx, ops...)
	var what []string
	for _, op := range ops {
		kind, name := op.Kind.String(), op.Path[strings.LastIndex(op.Path, "/")+1:]
		if strings.HasPrefix(name, "10.") && !strings.Contains(name, "@") {
			name = "server"
		} else if strings.Contains(name, "@") {
			parts := strings.Split(op.Path, "/")
			name = parts[len(parts)-2] + "/id"
		}
		if op.Kind != registry.OpEnsure && op.Kind != registry.OpCheck && len(what) < 6 {
			what = append(what, kind+" "+name)
		}
	}
	s.mu.Lock()
	s.commits++
	text := strings.Join(what, ", ")
	var conflict *registry.OpError
	if errors.As(err, &conflict) {
		s.refused++
		text = "refused for " + conflict.Op.Path[strings.LastIndex(conflict.Op.Path, "/")+1:] + ": " + text
	}
	s.of[text]++
	s.mu.Unlock()
	if name, appeared := strings.CutPrefix(ops[len(ops)-1].Path, "/test/storm/instances/"); appeared && err == nil {
		members, err := s.Center.Read(ctx, registry.Data("/test.wasmjob/storm/members"))
		if err == nil && !slices.Contains(strings.Fields(string(members[0].Data)), name) {
			s.mu.Lock()
			s.java = append(s.java, name)
			s.mu.Unlock()
		}
	}
	time.Sleep(2 * time.Millisecond)
	return r, err
}

func (s distant) Read(ctx context.Context, q ...registry.Query) ([]registry.Node, error) {
	s.mu.Lock()
	s.read += len(q)
	s.mu.Unlock()
	time.Sleep(time.Millisecond)
	n, err := s.Center.Read(ctx, q...)
	time.Sleep(time.Millisecond)
	return n, err
}

// TestJoinStorm: what hosts ask of the registry when all join a job at once grows
// as they do, also after an outage, when those are listed that they were before.
func TestJoinStorm(t *testing.T) {
	const hosts, items = stormHosts, 4 * stormHosts
	for name, outage := range map[string]bool{"first": false, "after an outage": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t)
				all := &tally{of: make(map[string]int)}
				c.wrap = func(_ int, l *lease) registry.Center { return distant{l, all} }
				d := definition("storm", "0 0 * * * ?", items)
				d.Failover = true
				begun := time.Now()
				for n := range hosts {
					c.start(n+1, job(d, sleeper(time.Second)))
				}
				divided := func() {
					for {
						time.Sleep(100 * time.Millisecond)
						newest := make(map[string]int) // by address
						for _, e := range c.list(event.Assigned) {
							newest[strings.Split(e.Host, "@")[0]] = len(e.Items)
						}
						total := 0
						for _, n := range newest {
							total += n
						}
						if len(newest) == hosts && total == items && !slices.Contains(slices.Collect(maps.Values(newest)), 0) {
							return
						}
						if time.Since(begun) > 10*time.Minute {
							t.Fatalf("not divided: %v\n%s", newest, all)
						}
					}
				}
				divided()
				if outage {
					time.Sleep(5 * time.Minute)
					c.mu.Lock()
					c.events = nil
					c.mu.Unlock()
					all.mu.Lock()
					all.commits, all.refused, all.read, all.of = 0, 0, 0, make(map[string]int)
					all.mu.Unlock()
					begun = time.Now()
					for _, n := range c.hosts {
						c.expire(n)
					}
					divided()
				}
				took := time.Since(begun)
				time.Sleep(time.Minute) // what comes after
				t.Logf("%d hosts: %s until all have their shares; %s", hosts, took, all)
				if len(all.java) > 0 {
					t.Errorf("%v look like Java hosts: they were in the list of instances before they were members", all.java)
				}
				// Each session begins with one that asks for the registry's number.
				if most := (3 + 1) * hosts; all.commits > most {
					t.Errorf("%d hosts made %d commits, want at most %d", hosts, all.commits, most)
				}
			})
		})
	}
}
