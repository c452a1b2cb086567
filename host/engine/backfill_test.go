package engine_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/coordination/admin/operate"
	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/tree"
	"github.com/wasmjob/wasmjob/host/engine"
	"github.com/wasmjob/wasmjob/host/event"
	"github.com/wasmjob/wasmjob/internal/text/reason"
)

// pastRuns are the runs of backfills: "DAY ITEM SOURCE", in order of their begins.
type pastRuns struct {
	mu   sync.Mutex
	runs []string
}

// guest takes so long for each item.
func (p *pastRuns) guest(takes time.Duration) *guest {
	return &guest{digest: "past", run: func(ctx context.Context, inv *abi.Invocation) abi.Result {
		if at := inv.Context.FireTime.UTC(); at.Before(time.Now().Add(-12 * time.Hour)) {
			p.mu.Lock()
			p.runs = append(p.runs, fmt.Sprintf("%s %d %s", at.Format("01-02"), inv.Context.ShardingItem, inv.Context.Source))
			p.mu.Unlock()
		}
		select {
		case <-time.After(takes):
			return ok
		case <-ctx.Done():
			return abi.Result{Outcome: abi.OutcomeCancelled, Message: context.Cause(ctx).Error()}
		}
	}}
}

func (p *pastRuns) list() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.runs)
}

// past is a backfill of midnights: so many days before today.
func past(days int) tree.Backfill {
	today := time.Now().UTC().Truncate(24 * time.Hour)
	b := tree.Backfill{Every: 1000, By: "ann", Since: time.Now().UnixMilli()}
	for n := days; n > 0; n-- {
		b.Instants = append(b.Instants, today.AddDate(0, 0, -n).UnixMilli())
	}
	b.From, b.To = b.Instants[0], b.Instants[days-1]
	return b
}

// days are the days of a backfill as pastRuns writes them.
func days(b tree.Backfill) (list []string) {
	for _, at := range b.Instants {
		list = append(list, time.UnixMilli(at).UTC().Format("01-02"))
	}
	return list
}

func (c *cluster) backfills(t *testing.T, job string, b tree.Backfill) {
	t.Helper()
	if err := c.startsBackfill(job, b); err != nil {
		t.Fatal(err)
	}
}

func (c *cluster) startsBackfill(job string, b tree.Backfill) error {
	return c.operate(func(ctx context.Context, r registry.Center) error {
		return operate.StartBackfill(ctx, r, tree.NewLayout("test", job), b)
	})
}

func (c *cluster) cancels(t *testing.T, job string) (ended tree.Backfill) {
	t.Helper()
	if err := c.operate(func(ctx context.Context, r registry.Center) (err error) {
		ended, err = operate.CancelBackfill(ctx, r, tree.NewLayout("test", job), "bob", time.Now())
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return ended
}

// backfill is what stands in the registry.
func (c *cluster) backfill(t *testing.T, job string) (all operate.Backfills) {
	t.Helper()
	if err := c.operate(func(ctx context.Context, r registry.Center) (err error) {
		all, err = operate.ReadBackfills(ctx, r, tree.NewLayout("test", job))
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return all
}

// inOrder checks that each item ran each instant once, oldest first, whatever made it run.
func (p *pastRuns) inOrder(t *testing.T, b tree.Backfill, items ...int) {
	t.Helper()
	for _, item := range items {
		var got []string
		for _, run := range p.list() {
			if f := strings.Fields(run); f[1] == fmt.Sprint(item) {
				got = append(got, f[0])
			}
		}
		if want := days(b); !slices.Equal(got, want) {
			t.Errorf("item %d ran for %q, want %q", item, got, want)
		}
	}
	if got, want := len(p.list()), len(items)*len(b.Instants); got != want {
		t.Errorf("%d runs of past instants, want %d: %q", got, want, p.list())
	}
}

// TestBackfill: past instants run, oldest first, each item once for each, on all hosts; the runs have
// their nominal instant and say that they are of a backfill. The job's next instant runs as ever.
func TestBackfill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, p := newCluster(t), &pastRuns{}
		d := definition("j", "0 0 0 * * ?", 4)
		n := c.start(1, job(d, p.guest(100*time.Millisecond)))
		other := c.start(2, job(d, p.guest(100*time.Millisecond)))
		time.Sleep(time.Hour)
		b := past(5)
		c.backfills(t, "j", b)
		time.Sleep(2500 * time.Millisecond)
		shown := 0
		for _, m := range []*node{n, other} {
			if s := backfilling(m, "j"); s != nil {
				shown++
				if s.Total != 5 || s.Done != 3 || s.By != "ann" || !s.Newest.Equal(time.UnixMilli(b.Instants[2])) || s.Waits != "" {
					t.Errorf("status %+v", s)
				}
			}
		}
		if shown != 1 {
			t.Errorf("%d hosts show the backfill, want the leader alone", shown)
		}
		time.Sleep(time.Minute)
		p.inOrder(t, b, 0, 1, 2, 3)
		for _, e := range c.list(event.FireStarted, event.ItemStarted) {
			if old := e.Instant.Before(time.Now().Add(-12 * time.Hour)); !old {
				continue
			}
			if e.Source != abi.SourceBackfill || e.Trigger == 0 || e.Args == nil || !e.Args.Backfill || !e.Args.At {
				t.Errorf("an event of a run of a backfill: %+v with %+v", e, e.Args)
			}
		}
		all := c.backfill(t, "j")
		if all.Now != nil || all.Last == nil || all.Last.Done != 5 || all.Last.Total != 5 || all.Last.Cancelled != "" || all.Last.Ended == 0 {
			t.Errorf("afterwards %+v, last %+v", all.Now, all.Last)
		}
		if s := backfilling(n, "j"); s != nil {
			t.Errorf("status afterwards: %+v", s)
		}
		before := len(c.list(event.FireStarted))
		time.Sleep(24 * time.Hour)
		if fires := c.list(event.FireStarted)[before:]; len(fires) != 2 || fires[0].Source != abi.SourceSchedule {
			t.Errorf("the next midnight: %s", lines(fires))
		}
	})
}

// TestBackfill_items: only the items that were asked for run.
func TestBackfill_items(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, p := newCluster(t), &pastRuns{}
		c.start(1, job(definition("j", "0 0 0 * * ?", 4), p.guest(0)))
		c.start(2, job(definition("j", "0 0 0 * * ?", 4), p.guest(0)))
		time.Sleep(time.Hour)
		b := past(3)
		b.Items = args(t, "1-2", "").Items
		c.backfills(t, "j", b)
		time.Sleep(time.Minute)
		p.inOrder(t, b, 1, 2)
	})
}

// TestBackfill_rate: instants begin at most so often.
func TestBackfill_rate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, p := newCluster(t), &pastRuns{}
		c.start(1, job(definition("j", "0 0 0 * * ?", 1), p.guest(0)))
		time.Sleep(time.Hour)
		b := past(4)
		b.Every = time.Minute.Milliseconds()
		c.backfills(t, "j", b)
		for n := 1; n <= 4; n++ {
			time.Sleep(30 * time.Second)
			if got := len(p.list()); got != n {
				t.Errorf("%d runs after %d minutes and a half, want %d", got, n-1, n)
			}
			time.Sleep(30 * time.Second)
		}
	})
}

// TestBackfill_longRuns: an instant begins when each of its items has ended the one before, and the schedule goes on
// beside that: an item that owes both runs them in turn.
func TestBackfill_longRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, p := newCluster(t), &pastRuns{}
		c.start(1, job(definition("j", "0 * * * * ?", 2), p.guest(97*time.Second)))
		time.Sleep(time.Hour)
		b := past(3)
		c.backfills(t, "j", b)
		time.Sleep(20 * time.Minute)
		p.inOrder(t, b, 0, 1)
		var order []string
		for _, e := range c.list(event.ItemStarted) {
			if *e.Item == 0 {
				order = append(order, map[bool]string{true: "past", false: "now"}[e.Source == abi.SourceBackfill])
			}
		}
		text := strings.Join(order, " ")
		if !strings.Contains(text, "now past now past now past now") {
			t.Errorf("item 0 ran for %s", text)
		}
	})
}

// TestBackfill_skipsBusy: with overlap skip an item that runs for the schedule when its turn comes leaves the instant
// out, with the reason.
func TestBackfill_skipsBusy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, p := newCluster(t), &pastRuns{}
		c.start(1, job(definition("j", "0 0 * * * ?", 2), p.guest(10*time.Minute)))
		time.Sleep(time.Hour + time.Minute) // both items run
		b := past(3)
		b.SkipBusy = true
		c.backfills(t, "j", b)
		time.Sleep(5 * time.Minute)
		if got := p.list(); len(got) != 0 {
			t.Errorf("ran %q beside the schedule", got)
		}
		skipped := c.list(event.ItemSkipped)
		if len(skipped) != 6 {
			t.Fatalf("skipped %s", lines(skipped))
		}
		for _, e := range skipped {
			if e.Cause != event.SkipOverlap || e.Args == nil || !e.Args.Backfill || e.Owed {
				t.Errorf("skipped %+v", e)
			}
		}
		time.Sleep(20 * time.Minute)
		c.backfills(t, "j", b) // the items are idle: those wait that run for the instant before
		time.Sleep(40 * time.Minute)
		p.inOrder(t, b, 0, 1)
	})
}

// TestBackfill_hostsDie: whichever host dies in the middle, the leader or another, each item runs each instant.
// A run that is taken over says that it is of a backfill.
func TestBackfill_hostsDie(t *testing.T) {
	for _, victim := range []int{1, 2, 3} {
		t.Run(fmt.Sprint("host ", victim), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, p := newCluster(t), &pastRuns{}
				d := definition("j", "0 0 0 * * ?", 6)
				d.Failover = true
				var nodes []*node
				for n := 1; n <= 3; n++ {
					nodes = append(nodes, c.start(n, job(d, p.guest(2*time.Second))))
				}
				time.Sleep(time.Hour)
				b := past(6)
				c.backfills(t, "j", b)
				time.Sleep(5 * time.Second)
				nodes[victim-1].kill()
				<-nodes[victim-1].done
				time.Sleep(10 * time.Minute)
				ran := make(map[string]int)
				for _, run := range p.list() {
					f := strings.Fields(run)
					ran[f[0]+" "+f[1]]++
				}
				again := 0
				for _, e := range c.list(event.FireStarted) {
					if e.Source == abi.SourceFailover {
						again += len(e.Items)
						if e.Args == nil || !e.Args.Backfill || !e.Args.At {
							t.Errorf("a takeover: %+v", e)
						}
					}
				}
				if again == 0 || len(p.list()) != 36+again {
					t.Errorf("%d runs, %d of them taken over, want 36 and those", len(p.list()), again)
				}
				if len(ran) != 36 {
					t.Errorf("%d of 36 items of instants ran: %v", len(ran), ran)
				}
				c.reported(t, b, 6, 6, reason.BackfillWhole)
				if all := c.backfill(t, "j"); all.Now != nil || all.Last == nil || all.Last.Done != 6 {
					t.Errorf("afterwards %+v, last %+v", all.Now, all.Last)
				}
			})
		})
	}
}

// TestBackfill_restart: with all hosts gone it stands still, and goes on behind the last instant that was given out.
func TestBackfill_restart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, p := newCluster(t), &pastRuns{}
		d := definition("j", "0 0 0 * * ?", 2)
		n := c.start(1, job(d, p.guest(0)))
		time.Sleep(time.Hour)
		b := past(6)
		b.Every = 10_000
		c.backfills(t, "j", b)
		time.Sleep(25 * time.Second)
		n.stop()
		<-n.done
		if got := len(p.list()); got != 6 {
			t.Errorf("%d runs before the restart, want those of 3 instants", got)
		}
		time.Sleep(time.Minute)
		c.start(2, job(d, p.guest(0)))
		time.Sleep(2 * time.Minute)
		p.inOrder(t, b, 0, 1)
	})
}

// TestBackfill_cancelled: no further instant is given out; what was runs to its end.
func TestBackfill_cancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, p := newCluster(t), &pastRuns{}
		c.start(1, job(definition("j", "0 0 0 * * ?", 1), p.guest(10*time.Second)))
		time.Sleep(time.Hour)
		b := past(20)
		c.backfills(t, "j", b)
		if err := c.startsBackfill("j", past(19)); !errors.Is(err, operate.ErrBackfillRuns) || !strings.Contains(err.Error(), "job backfill j --cancel") {
			t.Errorf("a second one: %v", err)
		}
		time.Sleep(15 * time.Second) // the second runs, the third waits
		if ended := c.cancels(t, "j"); ended.Done != 3 || ended.Cancelled != "bob" {
			t.Errorf("cancelled %+v", ended)
		}
		time.Sleep(time.Hour)
		if got, want := len(p.list()), 3; got != want {
			t.Errorf("%d runs, want %d", got, want)
		}
		c.reported(t, b, 1, 3, reason.BackfillCancelled)
		if all := c.backfill(t, "j"); all.Now != nil || all.Last == nil || all.Last.Cancelled != "bob" || all.Last.Done != 3 || all.Last.Total != 20 {
			t.Errorf("afterwards %+v, last %+v", all.Now, all.Last)
		}
		err := c.operate(func(ctx context.Context, r registry.Center) error {
			_, err := operate.CancelBackfill(ctx, r, tree.NewLayout("test", "j"), "bob", time.Now())
			return err
		})
		if !errors.Is(err, operate.ErrNoBackfill) {
			t.Errorf("cancelled twice: %v", err)
		}
		b = past(2)
		c.backfills(t, "j", b) // another one may begin
		time.Sleep(time.Minute)
		if got := len(p.list()); got != 5 {
			t.Errorf("%d runs with those of the second backfill, want 5", got)
		}
	})
}

// reported checks that hosts have reported each instant that was given out, as a round with runs, and why no more were.
func (c *cluster) reported(t *testing.T, b tree.Backfill, items, done int, why reason.Code) {
	t.Helper()
	given := make(map[int]event.Event)
	for _, e := range c.list(event.BackfillGiven) {
		n := e.Backfill.Done
		if was, again := given[n]; again && was.Trigger != e.Trigger {
			t.Errorf("instant %d was given out as %d and as %d", n, was.Trigger, e.Trigger)
		}
		given[n] = e
		begun := slices.ContainsFunc(c.list(event.FireStarted), func(f event.Event) bool { return f.Trigger == e.Trigger && f.Instant.Equal(e.Instant) })
		if !begun || e.Instant.UnixMilli() != b.Instants[n-1] || e.Total != items || e.Backfill.Total != len(b.Instants) || e.Args == nil || !e.Args.Backfill {
			t.Errorf("given out: %+v, begun %v", e, begun)
		}
	}
	ended := c.list(event.BackfillEnded)
	if len(given) != done || len(ended) != 1 || ended[0].Backfill.Done != done || !ended[0].Because.Has(why) {
		t.Errorf("%d instants are reported, want %d; the end: %+v", len(given), done, ended)
	}
}

// TestBackfill_endHeardLate: the janitor reports the end of a backfill also if the items are divided anew, as without one, before it
// hears of the end.
func TestBackfill_endHeardLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, p := newCluster(t), &pastRuns{}
		c.wrap = func(_ int, l *lease) registry.Center { return &lateBackfill{l} }
		d := definition("j", "0 0 0 * * ?", 2)
		c.start(1, job(d, p.guest(2*time.Second)))
		time.Sleep(time.Hour)
		b := past(2)
		c.backfills(t, "j", b)
		for c.backfill(t, "j").Now != nil {
			time.Sleep(100 * time.Millisecond)
		}
		c.start(2, job(d, p.guest(2*time.Second)))
		time.Sleep(time.Minute)
		c.reported(t, b, 2, 2, reason.BackfillWhole)
	})
}

// lateBackfill is a session on which news of backfills come five seconds after all others.
type lateBackfill struct{ *lease }

func (l *lateBackfill) Watch(ctx context.Context, queries ...registry.Query) (<-chan registry.Snapshot, error) {
	if slices.Contains(queries, registry.Data(tree.NewLayout("test", "j").Backfill())) {
		return (&slow{lease: l.lease, news: 5 * time.Second}).Watch(ctx, queries...)
	}
	return l.lease.Watch(ctx, queries...)
}

// TestBackfill_leftByRemoval: the instants of a backfill that are left when the job is removed have a reason, with or without its records.
func TestBackfill_leftByRemoval(t *testing.T) {
	for _, purge := range []bool{false, true} {
		t.Run(fmt.Sprint("purge ", purge), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, p := newCluster(t), &pastRuns{}
				d := definition("j", "0 0 0 * * ?", 2)
				c.start(1, job(d, p.guest(0)))
				c.start(2, job(d, p.guest(0)))
				time.Sleep(time.Hour)
				b := past(20)
				c.backfills(t, "j", b)
				time.Sleep(2500 * time.Millisecond)
				if err := c.operate(func(ctx context.Context, r registry.Center) error {
					return operate.Remove(ctx, r, tree.NewLayout("test", "j"), tree.Word{By: "bob"}, purge)
				}); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Minute)
				c.reported(t, b, 2, 3, reason.BackfillRemoved)
				if e := c.list(event.BackfillEnded); len(e) == 1 && e[0].Reason != "the job is removed: 17 of its 20 instants do not run" {
					t.Errorf("the reason: %s", e[0].Reason)
				}
			})
		})
	}
}

// TestBackfill_paused: while the job is disabled no instant is given out, and none is lost.
func TestBackfill_paused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, p := newCluster(t), &pastRuns{}
		n := c.start(1, job(definition("j", "0 0 0 * * ?", 2), p.guest(0)))
		time.Sleep(time.Hour)
		b := past(8)
		b.Every = 10_000
		c.backfills(t, "j", b)
		time.Sleep(25 * time.Second)
		if err := n.operator().Disable(t.Context(), "j"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Minute)
		if got := len(p.list()); got != 6 {
			t.Errorf("%d runs while it was disabled, want the 6 before", got)
		}
		if s := backfilling(n, "j"); s == nil || s.Done != 3 || !strings.Contains(s.Waits, "paused on all servers") {
			t.Errorf("status %+v", s)
		}
		if err := n.operator().Enable(t.Context(), "j"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if got := len(p.list()); got != 8 {
			t.Errorf("%d runs a second after it was enabled, want the next instant's too", got)
		}
		time.Sleep(2 * time.Minute)
		p.inOrder(t, b, 0, 1)
	})
}

// TestBackfill_removed: a backfill goes with its job, and does not come back with it.
func TestBackfill_removed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, p := newCluster(t), &pastRuns{}
		n := c.start(1, job(definition("j", "0 0 0 * * ?", 1), p.guest(0)))
		time.Sleep(time.Hour)
		b := past(8)
		b.Every = 10_000
		c.backfills(t, "j", b)
		time.Sleep(15 * time.Second)
		if err := n.operator().Remove(t.Context(), "j", false); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		if err := n.host.Start(t.Context(), "j", tree.Word{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Minute)
		if got := len(p.list()); got != 2 {
			t.Errorf("%d runs, want the 2 before the removal", got)
		}
	})
}

// TestTriggerAt: a trigger that gives an instant runs once for it; it is no backfill.
func TestTriggerAt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, p := newCluster(t), &pastRuns{}
		n := c.start(1, job(definition("j", "0 0 0 * * ?", 2), p.guest(0)))
		time.Sleep(time.Hour)
		b := past(1)
		a, err := args(t, "1", "").WithInstant(b.Instants[0])
		if err != nil {
			t.Fatal(err)
		}
		n.triggers(t, "j", a)
		time.Sleep(time.Minute)
		if got, want := p.list(), []string{days(b)[0] + " 1 trigger"}; !slices.Equal(got, want) {
			t.Errorf("ran %q, want %q", got, want)
		}
		fires := c.list(event.FireStarted)
		if last := fires[len(fires)-1]; last.Args == nil || !last.Args.At || last.Args.Backfill || !last.Instant.Equal(time.UnixMilli(b.Instants[0])) {
			t.Errorf("its event: %+v", last)
		}
	})
}

// backfilling is the job's backfill as a host shows it.
func backfilling(n *node, job string) *engine.BackfillStatus {
	for _, j := range n.host.Status().Jobs {
		if j.Name == job {
			return j.Backfill
		}
	}
	return nil
}

// TestBackfill_arguments: the runs have the defaults of the arguments that the job declares. Without a default for each the backfill is
// refused, with the argument's name.
func TestBackfill_arguments(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, g := newCluster(t), &given{}
		c.start(1, job(declaring("", `[{"name":"limit","type":"integer","default":"100"}]`), g.guest(atOnce)))
		time.Sleep(5 * time.Second)
		c.backfills(t, "j", past(2))
		time.Sleep(time.Minute)
		if got, want := g.of(abi.SourceBackfill), []string{`0 backfill {"limit":100}`, `0 backfill {"limit":100}`}; !slices.Equal(got, want) {
			t.Errorf("runs %q, want %q", got, want)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		c, g := newCluster(t), &given{}
		c.start(1, job(declaring("", `[{"name":"day","type":"date"}]`), g.guest(atOnce)))
		time.Sleep(5 * time.Second)
		if err := c.startsBackfill("j", past(2)); err == nil || !strings.Contains(err.Error(), "arguments.day: is missing") {
			t.Errorf("without a default: %v", err)
		}
	})
}

// TestBackfill_queue: triggers that are queued meanwhile run before the instants that are left.
func TestBackfill_queue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, g := newCluster(t), &given{}
		n := c.start(1, job(definition("j", "", 1), g.guest(func(*abi.Invocation) time.Duration { return 10 * time.Second })))
		time.Sleep(5 * time.Second)
		c.backfills(t, "j", past(4))
		time.Sleep(5 * time.Second) // the first runs, and the round of the second waits
		n.triggers(t, "j", args(t, "", "A"))
		n.triggers(t, "j", args(t, "", "B"))
		time.Sleep(2 * time.Minute)
		g.mu.Lock()
		defer g.mu.Unlock()
		var got []string
		for _, run := range g.runs {
			got = append(got, strings.Join(strings.Fields(run)[1:], " "))
		}
		want := []string{"backfill", "backfill", "trigger A", "trigger B", "backfill", "backfill"}
		if !slices.Equal(got, want) {
			t.Errorf("runs %q, want %q", got, want)
		}
	})
}

// TestBackfill_behindQueue: no instant is given out while a trigger is queued, also in the moment before that one's round is made.
func TestBackfill_behindQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, p := newCluster(t), &pastRuns{}
		c.start(1, job(definition("j", "", 1), p.guest(0)))
		time.Sleep(5 * time.Second)
		b := past(2)
		b.Every = time.Hour.Milliseconds()
		c.backfills(t, "j", b)
		time.Sleep(5 * time.Second)
		l := tree.NewLayout("test", "j")
		c.commit(registry.Ensure(l.Queue()), registry.Set(l.Queue(), tree.Queue{}.With(args(t, "", "A")).Data(), registry.AnyVersion))
		known := c.backfill(t, "j").Now
		err := c.operate(func(ctx context.Context, r registry.Center) error {
			return operate.GiveInstant(ctx, r, l, *known, time.Now())
		})
		if known.Done != 1 || !errors.Is(err, operate.ErrTriggerWaits) {
			t.Errorf("%d given out, then %v", known.Done, err)
		}
	})
}

// TestBackfill_leaves: instants that are given out while a host leaves, and before, run for the items which it keeps until their runs have
// ended, on the hosts that get these.
func TestBackfill_leaves(t *testing.T) {
	leaves := map[string]func(*testing.T, *cluster, *node){
		"the host stops": func(_ *testing.T, _ *cluster, n *node) { n.stop() },
		"an operator stops the instance": func(t *testing.T, c *cluster, n *node) {
			l := tree.NewLayout("test", "j")
			if err := c.operate(func(ctx context.Context, r registry.Center) error {
				return stopInstance(ctx, r, l, n.host.Status().Instance)
			}); err != nil {
				t.Fatal(err)
			}
		},
	}
	for name, leave := range leaves {
		for _, first := range []bool{true, false} {
			t.Run(fmt.Sprint(name, ", first ", first), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					c, p := newCluster(t), &pastRuns{}
					d := definition("j", "0 0 * * * ?", 4)
					var nodes []*node
					for n := 1; n <= 3; n++ {
						nodes = append(nodes, c.start(n, job(d, p.guest(map[int]time.Duration{1: time.Second, 2: 25 * time.Second, 3: 2 * time.Second}[n]))))
					}
					time.Sleep(time.Hour + 3*time.Second) // the item of the second host runs
					b := past(3)
					if first {
						leave(t, c, nodes[1])
						time.Sleep(time.Second)
						c.backfills(t, "j", b)
					} else {
						c.backfills(t, "j", b)
						time.Sleep(time.Second)
						leave(t, c, nodes[1])
					}
					time.Sleep(30 * time.Minute)
					p.inOrder(t, b, 0, 1, 2, 3)
					if t.Failed() {
						t.Log(c.all())
					}
				})
			})
		}
	}
}
