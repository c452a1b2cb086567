package host_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/coordination"
	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/host"
)

// The tests of this file are named after what people complain about in
// ElasticJob; the table in docs/elasticjob.md says which is which.

// skewed is a session with a registry whose clock differs.
type skewed struct {
	*lease
	by *atomic.Int64
}

func (s *skewed) Read(ctx context.Context, queries ...registry.Query) ([]registry.Node, error) {
	nodes, err := s.lease.Read(ctx, queries...)
	for i := range nodes {
		if nodes[i].Exists {
			nodes[i].Mtime = nodes[i].Mtime.Add(time.Duration(s.by.Load()))
		}
	}
	return nodes, err
}

func (s *skewed) Commit(ctx context.Context, ops ...registry.Op) ([]registry.Result, error) {
	results, err := s.lease.Commit(ctx, ops...)
	for i := range results {
		if !results[i].Time.IsZero() {
			results[i].Time = results[i].Time.Add(time.Duration(s.by.Load()))
		}
	}
	return results, err
}

// TestAClockThatIsOffKeepsTheJobFromRunning: no fire of one item or of many runs
// while the host's clock and the registry's differ by more than the job allows,
// and each says why; within the limit all run.
func TestAClockThatIsOffKeepsTheJobFromRunning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var by atomic.Int64
		c := newCluster(t)
		c.wrap = func(_ int, l *lease) registry.Center { return &skewed{l, &by} }
		var jobs []host.Job
		for _, items := range []int{1, 7} {
			for _, handler := range []string{"", "THROW"} {
				d := definition(fmt.Sprintf("job%d%s", items, handler), "0/10 * * * * ?", items)
				d.MaxTimeDiffSeconds, d.JobErrorHandlerType = 3, handler
				jobs = append(jobs, job(d, sleeper(10*time.Millisecond)))
			}
		}
		c.start(1, jobs...)
		time.Sleep(5 * time.Second) // each step is from one middle of two fires to the next
		for _, step := range []struct {
			by   time.Duration
			runs bool
		}{{0, true}, {4 * time.Second, false}, {-4 * time.Second, false}, {2 * time.Second, true}, {time.Hour, false}, {-2 * time.Second, true}} {
			by.Store(int64(step.by))
			before := len(c.list(host.EventItemStarted, host.EventFireSkipped, host.EventItemSkipped))
			time.Sleep(10 * time.Second)
			synctest.Wait()
			ran, skipped := make(map[string]int), make(map[string]bool)
			for _, e := range c.list(host.EventItemStarted, host.EventFireSkipped, host.EventItemSkipped)[before:] {
				switch {
				case e.Kind == host.EventItemStarted:
					ran[e.Job]++
				case strings.Contains(e.Reason, "from the registry's; maxTimeDiffSeconds is 3"):
					skipped[e.Job] = true
				default:
					t.Errorf("clocks are %s apart: %s", step.by, lines([]host.Event{e}))
				}
			}
			for _, j := range jobs {
				d := j.Definition
				if want := map[bool]int{true: d.ShardingTotalCount}[step.runs]; ran[d.JobName] != want || skipped[d.JobName] == step.runs {
					t.Errorf("clocks are %s apart: %d of %d items of %s ran, and it was told to be skipped: %v",
						step.by, ran[d.JobName], d.ShardingTotalCount, d.JobName, skipped[d.JobName])
				}
			}
		}
	})
}

// TestReconcilingGoesOnAfterAnError: what the sweep finds is found an interval
// later if the registry refused this time.
func TestReconcilingGoesOnAfterAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var broken atomic.Bool
		c := newCluster(t)
		c.wrap = func(_ int, l *lease) registry.Center { return &refusing{l, &broken} }
		d := definition("swept", "", 2)
		d.ReconcileIntervalMinutes = 1
		c.start(1, job(d, sleeper(time.Second)))
		time.Sleep(10 * time.Second)
		l := coordination.NewLayout("test", "swept")
		stale := l.Root() + "/trigger/10.9.9.9@-@gone"
		c.commit(registry.Create(stale, nil))
		there := func() bool { return c.nodes(registry.Data(stale))[0].Exists }
		broken.Store(true)
		time.Sleep(3 * time.Minute)
		if !there() {
			t.Fatal("the mark is gone although the registry refuses")
		}
		broken.Store(false)
		time.Sleep(2 * time.Minute)
		if there() {
			t.Errorf("the mark is still there\n%s", c.all())
		}
	})
}

// refusing is a session that answers nothing while it is told so.
type refusing struct {
	*lease
	broken *atomic.Bool
}

func (r *refusing) Commit(ctx context.Context, ops ...registry.Op) ([]registry.Result, error) {
	if r.broken.Load() {
		return nil, registry.ErrUnavailable
	}
	return r.lease.Commit(ctx, ops...)
}

func (r *refusing) Read(ctx context.Context, queries ...registry.Query) ([]registry.Node, error) {
	if r.broken.Load() {
		return nil, registry.ErrUnavailable
	}
	return r.lease.Read(ctx, queries...)
}

// TestAChangedTimeZoneOrKindOfScheduleTakesEffect: in the registry, as from a
// console: the zone alone; from cron to none; and back.
func TestAChangedTimeZoneOrKindOfScheduleTakesEffect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		d := definition("zoned", "0 0 12 * * ?", 1)
		n := c.start(1, job(d, sleeper(time.Second)))
		time.Sleep(time.Second)
		l := coordination.NewLayout("test", "zoned")
		set := func(cron, zone string) {
			t.Helper()
			d.Cron, d.TimeZone = cron, zone
			c.commit(registry.Set(l.Root()+"/config", d.YAML(), registry.AnyVersion))
			time.Sleep(time.Second)
		}
		day := func(want ...string) {
			t.Helper()
			before := len(c.list(host.EventItemStarted))
			time.Sleep(24 * time.Hour)
			var got []string
			for _, e := range c.list(host.EventItemStarted)[before:] {
				got = append(got, fmt.Sprintf("%s %s", e.Time.UTC().Format("15:04"), e.Source))
			}
			if !slices.Equal(got, want) {
				t.Errorf("with cron %q in %s a day has %v, want %v", d.Cron, d.TimeZone, got, want)
			}
		}
		day("12:00 schedule")
		set(d.Cron, "GMT+05:00")
		day("07:00 schedule")
		set("", "GMT+05:00")
		day()
		if err := n.host.Trigger(context.Background(), "zoned"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if e := c.list(host.EventItemCompleted); e[len(e)-1].Source != abi.SourceTrigger || e[len(e)-1].Outcome != abi.OutcomeOK {
			t.Errorf("a trigger of a job without cron: %s", lines(e))
		}
		set("0 0 12 * * ?", "GMT")
		day("12:00 schedule")
	})
}
