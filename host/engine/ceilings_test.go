package engine_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/coordination/jobconfig"
	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/host/config/ceiling"
	"github.com/wasmjob/wasmjob/host/engine"
	"github.com/wasmjob/wasmjob/host/event"
)

// ceilings are those of the texts.
func ceilings(t *testing.T, texts ...string) ceiling.List {
	t.Helper()
	var l ceiling.List
	for _, text := range texts {
		e, err := ceiling.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		l = append(l, e)
	}
	return l
}

// edit writes a job's configuration into the registry, as a console does.
func (c *cluster) edit(d jobconfig.Configuration) {
	c.t.Helper()
	r, err := c.server.Connect(context.Background())
	if err != nil {
		c.t.Fatal(err)
	}
	defer r.Close()
	if _, err := r.Commit(context.Background(), registry.Set("/test/"+d.JobName+"/config", d.YAML(), registry.AnyVersion)); err != nil {
		c.t.Fatal(err)
	}
}

// totals records with which total count each item of each instant ran.
type totals struct {
	mu   sync.Mutex
	seen map[string][]int // instant → total of each item that ran
}

func (s *totals) guest() *guest {
	return &guest{digest: "totals", run: func(_ context.Context, inv *abi.Invocation) abi.Result {
		s.mu.Lock()
		defer s.mu.Unlock()
		at := inv.Context.FireTime.UTC().Format(time.TimeOnly)
		if s.seen == nil {
			s.seen = make(map[string][]int)
		}
		s.seen[at] = append(s.seen[at], inv.Context.ShardingTotalCount)
		return ok
	}}
}

// last are the totals of the newest instant.
func (s *totals) last() []int {
	s.mu.Lock()
	defer s.mu.Unlock()
	newest := ""
	for at := range s.seen {
		newest = max(newest, at)
	}
	return s.seen[newest]
}

func status(n *node, job string) *engine.JobStatus {
	for _, s := range n.host.Status().Jobs {
		if s.Name == job {
			return s
		}
	}
	return &engine.JobStatus{}
}

// A configuration of the registry that is beyond a ceiling is not taken: what
// ran before goes on, and the status says why.
func TestConfigurationBeyondACeiling(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.config = func(cfg *engine.Config) { cfg.Ceilings = ceilings(t, "*:shardingTotalCount=10,timeout=1h") }
		var s totals
		d := definition("big", "*/10 * * * * ?", 4)
		d.Props[jobconfig.PropTimeout] = "1m"
		one := c.start(1, job(d, s.guest()))
		c.start(2, job(d, s.guest()))
		time.Sleep(25 * time.Second)
		d.ShardingTotalCount = 1_000_000
		c.edit(d)
		time.Sleep(30 * time.Second)
		const want = `shardingTotalCount: found 1000000, the host's ceiling shardingTotalCount for jobs "*" is 10`
		if got := status(one, "big"); got.State != engine.JobError || !strings.Contains(got.Reason, want) || len(got.Items) > 4 {
			t.Errorf("state %s (%s), %d items", got.State, got.Reason, len(got.Items))
		}
		if events := c.list(event.JobError); len(events) != 2 || events[0].Reason != want {
			t.Errorf("events, expected one of each host:\n%s", lines(events))
		}
		if got := s.last(); !slices.Equal(got, []int{4, 4, 4, 4}) {
			t.Errorf("the newest fire had the totals %v, expected 4 items of 4\n%s", got, c.all())
		}

		d.ShardingTotalCount = 5
		c.edit(d)
		time.Sleep(30 * time.Second)
		if got := s.last(); !slices.Equal(got, []int{5, 5, 5, 5, 5}) {
			t.Errorf("within the ceiling again: totals %v\n%s", got, c.all())
		}
		if got := status(one, "big"); got.State == engine.JobError {
			t.Errorf("state %s (%s)", got.State, got.Reason)
		}
	})
}

// A host that comes to a job whose configuration is beyond its ceilings stays
// out, says why, and joins when the configuration is changed.
func TestJoinBeyondACeiling(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		var s totals
		d := definition("long", "*/10 * * * * ?", 4)
		d.Props[jobconfig.PropTimeout] = "2h"
		c.start(1, job(d, s.guest()))
		time.Sleep(15 * time.Second)
		c.config = func(cfg *engine.Config) { cfg.Ceilings = ceilings(t, "long:timeout=1h") }
		mine := definition("long", "*/10 * * * * ?", 4)
		mine.Props = map[string]string{jobconfig.PropTimeout: "2h"} // as the registry's: nothing is changed in the file
		two := c.start(2, job(mine, s.guest()))
		time.Sleep(3*time.Minute + 8*time.Second) // between two fires
		const want = `timeout: found 2h, the host's ceiling timeout for jobs "long" is 1h`
		if got := status(two, "long"); got.State != engine.JobError || !strings.Contains(got.Reason, want) {
			t.Errorf("state %s (%s)", got.State, got.Reason)
		}
		if ready, _ := two.host.Ready(); !ready {
			t.Error("the host is not ready: it says why the job does not run")
		}
		if events := c.list(event.JobError); len(events) != 1 {
			t.Errorf("events, expected one:\n%s", lines(events))
		}
		if got := s.last(); len(got) != 4 {
			t.Errorf("the other host ran %d of 4 items\n%s", len(got), c.all())
		}
		d.Props[jobconfig.PropTimeout] = "30m"
		c.edit(d)
		time.Sleep(90 * time.Second)
		if got := status(two, "long"); got.State == engine.JobError || len(got.Items) != 2 {
			t.Errorf("after the change: state %s (%s), %d items, expected 2\n%s", got.State, got.Reason, len(got.Items), c.all())
		}
	})
}

// early edits a configuration after a host has joined the job, and before it has
// seen one.
type early struct {
	*lease
	once *sync.Once
	edit func()
}

func (e *early) Watch(ctx context.Context, q ...registry.Query) (<-chan registry.Snapshot, error) {
	e.once.Do(e.edit)
	return e.lease.Watch(ctx, q...)
}

// A host that has never seen a configuration within its ceilings leaves the job
// to the others.
func TestBeyondACeilingFromTheFirstLook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		var s totals
		d := definition("long", "*/10 * * * * ?", 4)
		d.Props[jobconfig.PropTimeout] = "1m"
		var once sync.Once
		c.wrap = func(n int, l *lease) registry.Center {
			if n == 1 {
				return l
			}
			return &early{l, &once, func() {
				changed := d
				changed.Props = map[string]string{jobconfig.PropTimeout: "2h"}
				c.edit(changed)
			}}
		}
		c.start(1, job(d, s.guest()))
		time.Sleep(15 * time.Second)
		c.config = func(cfg *engine.Config) { cfg.Ceilings = ceilings(t, "long:timeout=1h") }
		two := c.start(2, job(d, s.guest()))
		time.Sleep(30 * time.Second)
		if got := status(two, "long"); got.State != engine.JobError || !strings.Contains(got.Reason, "timeout: found 2h") || len(got.Items) > 0 {
			t.Errorf("state %s (%s), %d items", got.State, got.Reason, len(got.Items))
		}
		if got := s.last(); len(got) != 4 {
			t.Errorf("%d of 4 items ran\n%s", len(got), c.all())
		}
	})
}

// A definition that is beyond the ceilings does not make the job, whoever let it
// pass.
func TestDefinitionBeyondACeilingMakesNoJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.config = func(cfg *engine.Config) { cfg.Ceilings = ceilings(t, "*:shardingTotalCount=3") }
		n := c.start(1, job(definition("big", "*/10 * * * * ?", 4), sleeper(time.Second)))
		time.Sleep(15 * time.Second)
		if got := status(n, "big"); got.State != engine.JobError || !strings.Contains(got.Reason, "the job's definition is refused: shardingTotalCount: found 4") {
			t.Errorf("state %s (%s)", got.State, got.Reason)
		}
		if events := c.list(event.JobAdded, event.FireStarted); len(events) > 0 {
			t.Errorf("events\n%s", lines(events))
		}
	})
}

// Hosts whose ceilings differ never run one fire by two numbers of items, and
// come to rest.
func TestHostsWithDifferentCeilings(t *testing.T) {
	for _, strict := range []int{1, 2} {
		t.Run(fmt.Sprintf("host %d is strict", strict), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t)
				var s totals
				d := definition("big", "*/10 * * * * ?", 4)
				nodes := map[int]*node{}
				for n := 1; n <= 2; n++ {
					c.config = func(cfg *engine.Config) {
						if n == strict {
							cfg.Ceilings = ceilings(t, "*:shardingTotalCount=10")
						}
					}
					nodes[n] = c.start(n, job(d, s.guest()))
					time.Sleep(15 * time.Second) // the first leads
				}
				d.ShardingTotalCount = 20
				c.edit(d)
				time.Sleep(45 * time.Second)
				if got := status(nodes[strict], "big"); got.State != engine.JobError || !strings.Contains(got.Reason, "found 20") {
					t.Errorf("the strict host: state %s (%s)", got.State, got.Reason)
				}
				got := s.last()
				if distinct := slices.Compact(slices.Clone(got)); len(distinct) != 1 {
					t.Errorf("one fire ran by the totals %v\n%s", got, c.all())
				}
				if strict == 2 && len(got) != 20 { // the one that leads takes it
					t.Errorf("%d of 20 items ran\n%s", len(got), c.all())
				}
				divisions := len(c.list(event.Sharded))
				time.Sleep(5 * time.Minute)
				if n := len(c.list(event.Sharded)); n != divisions {
					t.Errorf("%d divisions, %d after five minutes\n%s", divisions, n, c.all())
				}
				other := nodes[3-strict]
				const refuses = "refuses the configuration: it shards 4 items, and the configuration has 20"
				if got := status(other, "big"); strict == 1 && (got.State != engine.JobError || !strings.Contains(got.Reason, refuses)) {
					t.Errorf("the other host: state %s (%s)", got.State, got.Reason)
				}
				if err := other.operator().Trigger(context.Background(), "big"); err != nil {
					t.Fatal(err)
				}
				time.Sleep(500 * time.Millisecond)
				s.mu.Lock()
				for at, seen := range s.seen {
					if slices.Contains(seen, 4) && slices.Contains(seen, 20) || strict == 1 && slices.Contains(seen, 20) {
						t.Errorf("the fire at %s ran by the totals %v", at, seen)
					}
				}
				s.mu.Unlock()
				if skips := c.list(event.FireSkipped); strict == 1 && (len(skips) == 0 || !strings.Contains(skips[0].Reason, refuses)) {
					t.Errorf("skipped:\n%s", lines(skips))
				}
			})
		})
	}
}

// A host that has more than one slot always has one for another job.
func TestOneJobDoesNotHaveAllSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.config = func(cfg *engine.Config) { cfg.MaxConcurrency, cfg.Ceilings = 4, ceilings(t, "*:maxShare=75%") }
		hog := definition("hog", "0 * * * * ?", 20)
		hog.Props[jobconfig.PropMaxConcurrency] = "20"
		var mu sync.Mutex
		running, most := 0, 0
		g := &guest{digest: "hog", run: func(context.Context, *abi.Invocation) abi.Result {
			mu.Lock()
			running++
			most = max(most, running)
			mu.Unlock()
			time.Sleep(100 * time.Second)
			mu.Lock()
			running--
			mu.Unlock()
			return ok
		}}
		c.start(1, job(hog, g), job(definition("small", "*/10 * * * * ?", 1), sleeper(time.Second)))
		time.Sleep(5 * time.Minute)
		mu.Lock()
		defer mu.Unlock()
		if most != 3 {
			t.Errorf("%d items of one job at once, expected 3 of 4", most)
		}
		done := 0
		for _, e := range c.list(event.ItemCompleted) {
			if e.Job == "small" {
				done++
			}
		}
		if done < 29 {
			t.Errorf("the other job ran %d times in 5 minutes, expected 30\n%s", done, c.all())
		}
	})
}

// Nor do its listeners take them.
func TestListenersDoNotHaveAllSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.config = func(cfg *engine.Config) { cfg.MaxConcurrency, cfg.Ceilings = 4, ceilings(t, "*:maxShare=75%") }
		g := sleeper(time.Millisecond)
		g.listeners = map[string]func(*abi.Invocation) abi.Result{abi.ExportAfter: func(*abi.Invocation) abi.Result {
			time.Sleep(50 * time.Second)
			return ok
		}}
		c.start(1, job(definition("hog", "* * * * * ?", 1), g), job(definition("small", "*/10 * * * * ?", 1), sleeper(time.Second)))
		time.Sleep(3 * time.Minute)
		done := 0
		for _, e := range c.list(event.ItemCompleted) {
			if e.Job == "small" {
				done++
			}
		}
		if done < 17 {
			t.Errorf("the other job ran %d times in 3 minutes, expected 18", done)
		}
	})
}

// A job that states no maxConcurrency has that of the ceiling.
func TestConcurrencyIsCapped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.config = func(cfg *engine.Config) { cfg.MaxConcurrency, cfg.Ceilings = 16, ceilings(t, "*:maxConcurrency=2") }
		var mu sync.Mutex
		running, most := 0, 0
		g := &guest{digest: "many", run: func(context.Context, *abi.Invocation) abi.Result {
			mu.Lock()
			running++
			most = max(most, running)
			mu.Unlock()
			time.Sleep(time.Second)
			mu.Lock()
			running--
			mu.Unlock()
			return ok
		}}
		c.start(1, job(definition("many", "0 * * * * ?", 10), g))
		time.Sleep(90 * time.Second)
		mu.Lock()
		defer mu.Unlock()
		if most != 2 {
			t.Errorf("%d items at once, expected 2", most)
		}
	})
}

// A flood of lines of one job is cut to its quota, counted, and reported; the
// lines of another job are all there.
func TestLogQuota(t *testing.T) {
	for _, limit := range []string{"logLines=100", "logBytes=40KiB"} {
		t.Run(limit, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t)
				var mu sync.Mutex
				lines, bytes := map[string]int{}, 0
				c.config = func(cfg *engine.Config) {
					cfg.Ceilings = ceilings(t, "*:"+limit)
					cfg.OnLog = func(l event.GuestLog) {
						mu.Lock()
						defer mu.Unlock()
						lines[l.Job]++
						bytes += len(l.Message)
					}
				}
				const floods, perFire = 4, 20_000
				flood := &guest{digest: "flood", run: func(_ context.Context, inv *abi.Invocation) abi.Result {
					for range perFire {
						inv.Host.Log(abi.LevelInfo, strings.Repeat("x", 200), nil)
					}
					return ok
				}}
				quiet := &guest{digest: "quiet", run: func(_ context.Context, inv *abi.Invocation) abi.Result {
					inv.Host.Log(abi.LevelInfo, "here", nil)
					return ok
				}}
				c.start(1, job(definition("flood", "*/10 * * * * ?", 1), flood), job(definition("quiet", "* * * * * ?", 1), quiet))
				time.Sleep(floods*10*time.Second + 6*time.Second)
				mu.Lock()
				defer mu.Unlock()
				if lines["quiet"] < 44 {
					t.Errorf("%d lines of the quiet job, expected one a second", lines["quiet"])
				}
				// 10 seconds' worth at each of the fires.
				if n := lines["flood"]; n < floods*900 || n > floods*1100 {
					t.Errorf("%d lines of the flood, expected about %d", n, floods*1000)
				}
				dropped := int64(0)
				events := c.list(event.OverQuota)
				for _, e := range events {
					if e.Job != "flood" || string(e.Ceiling) != strings.Split(limit, "=")[0] {
						t.Errorf("%+v", e)
					}
					dropped += e.Count
				}
				if len(events) != floods || int(dropped)+lines["flood"] != floods*perFire {
					t.Errorf("%d events report %d dropped lines, %d were let through of %d", len(events), dropped, lines["flood"], floods*perFire)
				}
			})
		})
	}
}

// Reports of items that fail count as lines: one job's errors do not fill the
// log either, and what an event says of them is short.
func TestErrorsAreWithinTheQuota(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.config = func(cfg *engine.Config) { cfg.Ceilings = ceilings(t, "*:logLines=1") }
		g := &guest{digest: "fails", run: func(context.Context, *abi.Invocation) abi.Result {
			return abi.Result{Outcome: abi.OutcomeFail, Message: strings.Repeat("\x1b[31m☠", 1000)}
		}}
		n := c.start(1, job(definition("fails", "*/10 * * * * ?", 30), g))
		time.Sleep(36 * time.Second)
		dropped := int64(0)
		for _, e := range c.list(event.OverQuota) {
			dropped += e.Count
		}
		if dropped != 3*30-3*10 {
			t.Errorf("%d reports were dropped, expected 60 of 90", dropped)
		}
		for _, e := range c.list(event.ItemEnded) {
			if len(e.Reason) > event.MaxReason || strings.Contains(e.Reason, "\x1b") || !strings.HasSuffix(e.Reason, " more bytes)") {
				t.Fatalf("reason of %d bytes: %q", len(e.Reason), e.Reason)
			}
		}
		if got := status(n, "fails").Items[0].LastMessage; len(got) > event.MaxReason || got == "" {
			t.Errorf("the status has a message of %d bytes", len(got))
		}
	})
}

// What a guest logs is harmless in every sink.
func TestLinesAreHarmless(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		got := make(chan event.GuestLog, 10)
		c.config = func(cfg *engine.Config) { cfg.OnLog = func(l event.GuestLog) { got <- l } }
		g := &guest{digest: "ansi", run: func(_ context.Context, inv *abi.Invocation) abi.Result {
			inv.Host.Log(abi.LevelInfo, "a\x1b[2Jb\r\nc\td\x00\u009b1m\xff\x7f", []string{"k\x1b", "v\ae"})
			return ok
		}}
		c.start(1, job(definition("ansi", "0 * * * * ?", 1), g))
		l := <-got
		const r = "\uFFFD"
		if l.Message != "a"+r+"[2Jb\nc\td"+r+r+"1m"+r+r || !slices.Equal(l.Attrs, []string{"k" + r, "v" + r + "e"}) {
			t.Errorf("got %q %q", l.Message, l.Attrs)
		}
	})
}

// A loop that commits its offset without end is slowed down; its commits
// succeed, and another job's are not held up.
func TestOffsetCommitsWaitForTheQuota(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.config = func(cfg *engine.Config) { cfg.Ceilings = ceilings(t, "*:offsetCommits=10") }
		var mu sync.Mutex
		commits := map[string]int{}
		var slowest time.Duration
		loop := &guest{digest: "loop", run: func(ctx context.Context, inv *abi.Invocation) abi.Result {
			for end := time.Now().Add(15 * time.Second); time.Now().Before(end); {
				if code := inv.Host.CommitOffset(ctx, []byte(time.Now().String())); code != abi.OK {
					t.Errorf("a commit ended with %v", code)
				}
				mu.Lock()
				commits["loop"]++
				mu.Unlock()
			}
			return ok
		}}
		once := &guest{digest: "once", run: func(ctx context.Context, inv *abi.Invocation) abi.Result {
			begin := time.Now()
			inv.Host.CommitOffset(ctx, []byte("x"))
			mu.Lock()
			defer mu.Unlock()
			commits["once"]++
			slowest = max(slowest, time.Since(begin))
			return ok
		}}
		c.start(1, job(definition("loop", "0 * * * * ?", 1), loop), job(definition("once", "* * * * * ?", 1), once))
		time.Sleep(80 * time.Second)
		mu.Lock()
		defer mu.Unlock()
		if n := commits["loop"]; n < 240 || n > 260 { // 100 at once and 10 a second
			t.Errorf("%d commits in 15 s, expected about 250", n)
		}
		if commits["once"] < 75 || slowest > time.Second {
			t.Errorf("the other job committed %d times, the slowest took %s", commits["once"], slowest)
		}
		waited := int64(0)
		for _, e := range c.list(event.OverQuota) {
			if e.Job != "loop" || e.Ceiling != ceiling.OffsetCommits {
				t.Errorf("%+v", e)
			}
			waited += e.Count
		}
		if waited < 140 || waited > 160 {
			t.Errorf("%d commits are reported to have waited, expected about 150", waited)
		}
	})
}

// A guest that waits for its turn to commit is stopped with its item.
func TestAWaitForTheQuotaEndsWithTheItem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.config = func(cfg *engine.Config) { cfg.Ceilings = ceilings(t, "*:offsetCommits=1") }
		d := definition("loop", "0 * * * * ?", 100)
		d.Props[jobconfig.PropTimeout] = "3s"
		d.Props[jobconfig.PropMaxConcurrency] = "100"
		g := &guest{digest: "loop", run: func(ctx context.Context, inv *abi.Invocation) abi.Result {
			for ctx.Err() == nil {
				if code := inv.Host.CommitOffset(ctx, []byte("x")); code != abi.OK {
					break
				}
			}
			<-ctx.Done()
			return abi.Result{Outcome: abi.OutcomeTimeout}
		}}
		c.start(1, job(d, g))
		time.Sleep(75 * time.Second)
		for _, e := range c.list(event.ItemEnded) {
			if e.Duration > 4*time.Second {
				t.Fatalf("an item ended after %s; its limit is 3 s", e.Duration)
			}
		}
	})
}

// TestDivisionBeyondACeiling_owed: a job is divided into more items than this host takes. What its items owe is said before it leaves.
func TestDivisionBeyondACeiling_owed(t *testing.T) {
	t.Parallel()
	for _, asks := range []bool{false, true} {
		t.Run(fmt.Sprint("asks ", asks), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t)
				d := definition("j", "0 * * * * ?", 2)
				if asks {
					d.Cron = ""
				}
				d.Props["wasm.overlap"] = "queue_one"
				g := sleeper(100 * time.Second)
				n := c.start(1, job(d, g))
				time.Sleep(time.Second) // it leads the job
				c.config = func(cfg *engine.Config) { cfg.Ceilings = ceilings(t, "*:shardingTotalCount=2") }
				c.start(2, job(d, g))
				until(minute(1).Add(10 * time.Second))
				if asks {
					n.triggers(t, "j", args(t, "", "a"))
					until(minute(1).Add(20 * time.Second))
					n.triggers(t, "j", args(t, "", "b"))
				}
				until(minute(2).Add(10 * time.Second)) // each item owes what has come
				d.ShardingTotalCount = 4
				c.edit(d)
				until(minute(3).Add(30 * time.Second))
				left, owed := false, 0
				for _, e := range c.list(event.JobRemoved, event.ItemSkipped) {
					if e.Kind == event.JobRemoved {
						left = true
					} else if strings.Contains(e.Reason, "the next owner") {
						owed++
					}
				}
				if !left || owed != 1 {
					t.Errorf("the host left: %v; said of %d items what becomes of what they owe, want 1\n%s", left, owed, c.all())
				}
				if !asks {
					missing(c, minute(1), minute(3), time.Minute, 2)
				}
			})
		})
	}
}
