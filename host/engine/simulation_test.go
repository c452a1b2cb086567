package engine_test

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/coordination/admin/operate"
	"github.com/wasmjob/wasmjob/coordination/jobconfig"
	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/registry/registrytest"
	"github.com/wasmjob/wasmjob/coordination/tree"
	"github.com/wasmjob/wasmjob/host/config/timetable"
	"github.com/wasmjob/wasmjob/host/engine"
	"github.com/wasmjob/wasmjob/host/event"
	"github.com/wasmjob/wasmjob/internal/text/reason"
)

var (
	simSeeds = flag.Int("sim.seeds", simDefault, "how many seeds the simulation runs")
	simSeed  = flag.Int64("sim.seed", 0, "run only this seed, and print what happened")
	simMore  = flag.Bool("sim.more", false, "draw backfills, chains, and triggers with arguments, as well: of a few hundred seeds one finds something that is not mended yet")
)

// TestSimulation lets hosts come, go, crash and lose their sessions at random
// over simulated hours, with triggers and configuration changes in between,
// and checks that no item is on two live hosts at once, none is completed
// twice for a fire, and none is forgotten.
func TestSimulation(t *testing.T) {
	if *simSeed != 0 {
		simulate(t, uint64(*simSeed), true)
		return
	}
	seeds := *simSeeds
	if testing.Short() {
		seeds = min(seeds, 50)
	}
	const groups = 8
	for g := range groups {
		t.Run(fmt.Sprintf("group%d", g), func(t *testing.T) {
			t.Parallel()
			for seed := g + 1; seed <= seeds && !t.Failed(); seed += groups {
				simulate(t, uint64(seed), false)
			}
		})
	}
}

// world is what a simulation knows that no host does.
type world struct {
	t    *testing.T
	seed uint64
	c    *cluster

	mu      sync.Mutex
	running map[string][]context.Context // job and item → the runs that are under way
	faults  []string
	rng     *rand.Rand // under mu
	more    *rand.Rand // under mu; for what is drawn besides: limits, calendars, chains, queues of triggers, backfills
	sick    int        // of a hundred calls so many go wrong

	most      int    // as many may; 0: any
	backfills bool   // there are some
	later     bool   // guests ask to run again later
	asks      bool   // triggers have arguments
	extras    string // what is drawn besides, for people
	asked     []asking
}

// asking is a trigger with arguments: its parameter, which no other one has, and the items that are to run for it.
type asking struct {
	param string
	items tree.Items
}

// trigger triggers the job, as a rule with arguments if the seed has such.
func (w *world) trigger(ctx context.Context, n *node, total int) {
	if !w.asks || w.draw(4) == 0 {
		_ = n.operator().Trigger(ctx, simJob) // refused while the session is new
		return
	}
	a := asking{param: fmt.Sprint("p", len(w.asked))}
	items := ""
	for i := range total {
		if len(a.items) == 0 || w.draw(2) == 0 {
			a.items = append(a.items, i)
		}
	}
	if len(a.items) < total {
		items = a.items.String()
	}
	args, err := tree.NewTriggerArgs(items, &a.param)
	if err != nil {
		w.t.Fatal(err)
	}
	if _, err := n.operator().TriggerWith(ctx, simJob, args); err == nil {
		w.asked = append(w.asked, a)
	}
}

// fewer takes items that the job has no more out of what was asked for.
func (w *world) fewer(total int) {
	for k := range w.asked {
		w.asked[k].items = slices.DeleteFunc(w.asked[k].items, func(i int) bool { return i >= total })
	}
}

// unreliable is a session of which calls go wrong while the registry is unwell.
func (w *world) unreliable(_ int, l *lease) registry.Center {
	kinds := []registrytest.Fault{registrytest.Refused, registrytest.Refused, registrytest.InDoubt, registrytest.LostRequest,
		registrytest.LostAnswer, registrytest.LostAnswer, registrytest.ExpireBefore, registrytest.ExpireAfter}
	return planned(l, func(string) registrytest.Fault {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.sick == 0 || w.rng.IntN(100) >= w.sick {
			return registrytest.NoFault
		}
		return kinds[w.rng.IntN(len(kinds))]
	})
}

func (w *world) fault(format string, args ...any) {
	w.faults = append(w.faults, fmt.Sprintf(format, args...))
}

func (w *world) between(low, high time.Duration) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return low + time.Duration(w.rng.Int64N(int64(high-low)+1))
}

func (w *world) pick(n int) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.rng.IntN(n)
}

// run is the guest: it takes a while, sometimes fails, sometimes overruns.
func (w *world) run(ctx context.Context, inv *abi.Invocation) abi.Result {
	name, _, _ := strings.Cut(inv.Context.RunID, "/")
	item := fmt.Sprint(name, "/", inv.Context.ShardingItem)
	w.mu.Lock()
	live := 0
	for of, runs := range w.running {
		for _, other := range runs {
			if other.Err() == nil {
				if strings.HasPrefix(of, simJob+"/") {
					live++
				}
				if of == item {
					w.fault("item %s began for %s (%s) while another live run of it was under way", item, inv.Context.RunID, inv.Context.Source)
				}
			}
		}
	}
	if name == simJob && w.most > 0 && live >= w.most {
		w.fault("%s began while %d runs were under way, at most %d may be", inv.Context.RunID, live, w.most)
	}
	w.running[item] = append(w.running[item], ctx)
	w.mu.Unlock()
	defer func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.running[item] = slices.DeleteFunc(w.running[item], func(c context.Context) bool { return c == ctx })
	}()
	limit := 40 * time.Second
	if w.pick(10) == 0 {
		limit = 3 * time.Minute
	}
	select {
	case <-time.After(w.between(0, limit)):
	case <-ctx.Done():
		return abi.Result{Outcome: abi.OutcomeCancelled, Message: context.Cause(ctx).Error()}
	}
	if w.later && w.draw(12) == 0 {
		return abi.Result{Outcome: abi.OutcomeRetryAt, Status: abi.StatusRetry, Message: "429", RetryAt: time.Now().Add(w.between(time.Second, 90*time.Second)), PauseKey: w.draw(3) == 0}
	}
	switch w.pick(20) {
	case 0:
		return abi.Result{Outcome: abi.OutcomeFail, Message: "as it goes"}
	case 1:
		return abi.Result{Outcome: abi.OutcomeRetry, Message: "try again"}
	}
	return ok
}

// policies draws those of the job: half of all jobs have none.
func (w *world) policies(d *jobconfig.Configuration) {
	d.Props = nil
	if w.pick(2) == 0 {
		return
	}
	d.Props = map[string]string{"wasm.queueMax": "3", "wasm.catchUpMax": "3"}
	if overlaps := []string{"", "queue_one", "queue_all", "queue_all", "cancel", "terminate"}; d.Misfire {
		d.Props["wasm.overlap"] = overlaps[w.pick(len(overlaps))]
	}
	catchUps := []string{"", "none", "latest", "all", "all"}
	d.Props["wasm.catchUp"] = catchUps[w.pick(len(catchUps))]
	if w.pick(4) == 0 {
		d.Props["wasm.startWithin"] = w.between(10*time.Second, 3*time.Minute).Truncate(time.Second).String()
	}
	if w.pick(4) == 0 {
		d.Props["wasm.jitter"] = w.between(time.Second, 40*time.Second).Truncate(time.Second).String()
	}
	if w.pick(6) == 0 { // it pauses itself; operators enable it again
		d.Props["wasm.maxRuns"] = strconv.Itoa(3 + w.pick(40))
	}
}

// besides draws what no part of the seed has that draws the rest: a limit and a rate, a calendar without one of two days, and a job
// that comes after the first; next has no name if there is none.
func (w *world) besides() (props map[string]string, next jobconfig.Configuration) {
	props = make(map[string]string)
	var said []string
	if w.draw(5) == 0 {
		w.most = 1 + w.draw(4)
		props["wasm.concurrency.key"], props["wasm.concurrency.max"] = "k", strconv.Itoa(w.most)
		said = append(said, fmt.Sprint("at most ", w.most))
	}
	if w.draw(6) == 0 {
		props["wasm.rate.key"], props["wasm.rate.per"], props["wasm.rate.max"] = "r", "1m", strconv.Itoa(3+w.draw(12))
		said = append(said, "a rate of "+props["wasm.rate.max"])
	}
	if w.draw(8) == 0 {
		props["wasm.pauseAfterFailures"] = strconv.Itoa(1 + w.draw(3))
		said = append(said, "paused after "+props["wasm.pauseAfterFailures"]+" failures")
	}
	if w.draw(6) == 0 {
		day := fmt.Sprintf("2000-01-0%d", 1+w.draw(2))
		days, err := timetable.DaysText(map[string]string{"off": fmt.Sprintf(`{"days":[%q]}`, day)})
		if err != nil {
			w.t.Fatal(err)
		}
		props["wasm.calendars.exclude"], props[jobconfig.PropCalendarDays] = `["off"]`, days
		said = append(said, "not on "+day)
	}
	if w.draw(4) == 0 && *simMore {
		next = definition("next", "", 1+w.draw(3))
		after := map[string]string{"job": simJob, "on": []string{jobconfig.OnSuccess, jobconfig.OnFailure, jobconfig.OnAlways}[w.draw(3)]}
		if w.draw(3) == 0 {
			after["within"] = fmt.Sprint(time.Duration(1+w.draw(5)) * time.Minute)
		}
		list, err := json.Marshal([]map[string]string{after})
		if err != nil {
			w.t.Fatal(err)
		}
		next.Failover, next.Misfire = w.draw(2) == 0, w.draw(2) == 0
		next.Props = map[string]string{"wasm.after": string(list), "wasm.queueMax": "3"}
		if next.Misfire {
			next.Props["wasm.overlap"] = []string{"queue_one", "queue_all"}[w.draw(2)]
		}
		next.Props["wasm.catchUp"] = []string{"none", "latest", "all"}[w.draw(3)]
		said = append(said, fmt.Sprintf("next with %d items after %s, failover %v, misfire %v, %v", next.ShardingTotalCount, list, next.Failover, next.Misfire, next.Props))
	}
	if w.backfills = w.draw(2) == 0 && *simMore; w.backfills {
		said = append(said, "backfills")
	}
	if w.asks = w.draw(2) == 0 && *simMore; w.asks {
		said = append(said, "triggers with arguments")
	}
	if w.later = w.draw(4) == 0; w.later {
		said = append(said, "guests that run again later")
	}
	w.extras = strings.Join(said, "; ")
	return props, next
}

// draw is below n.
func (w *world) draw(n int) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.more.IntN(n)
}

// disturb does to the job what is drawn besides: a backfill of the last minutes is begun, or the one that runs is cancelled.
func (w *world) disturb() {
	switch k := w.draw(24); {
	case !w.backfills:
	case k == 0:
		now := time.Now().Truncate(time.Minute)
		b := tree.Backfill{Every: 1000, By: "sim", Since: time.Now().UnixMilli()}
		for n := 1 + w.draw(6); n > 0; n-- {
			b.Instants = append(b.Instants, now.Add(-time.Duration(n)*time.Minute).UnixMilli())
		}
		b.From, b.To = b.Instants[0], b.Instants[len(b.Instants)-1]
		_ = w.operate(func(ctx context.Context, r registry.Center) error {
			return operate.StartBackfill(ctx, r, simLayout(), b)
		})
	case k == 1:
		_ = w.operate(func(ctx context.Context, r registry.Center) error {
			_, err := operate.CancelBackfill(ctx, r, simLayout(), "sim", time.Now())
			return err
		})
	}
}

const simJob = "sim"

func simLayout() tree.Layout { return tree.NewLayout("test", simJob) }

// operate carries out a move for an operator.
func (w *world) operate(step func(context.Context, registry.Center) error) error {
	rc, err := w.c.server.Connect(context.Background())
	if err != nil {
		w.t.Fatal(err)
	}
	defer rc.Close()
	return step(context.Background(), rc)
}

// instances are those of the job.
func (w *world) instances() []string {
	rc, err := w.c.server.Connect(context.Background())
	if err != nil {
		w.t.Fatal(err)
	}
	defer rc.Close()
	nodes, err := rc.Read(context.Background(), registry.Children(simLayout().Root()+"/instances"))
	if err != nil {
		w.t.Fatal(err)
	}
	return nodes[0].Names
}

func simulate(t *testing.T, seed uint64, tell bool) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, seed: seed, running: make(map[string][]context.Context), rng: rand.New(rand.NewPCG(seed, 1)), more: rand.New(rand.NewPCG(seed, 2))}
		w.c = newCluster(t)
		closed := newLedger()
		w.c.wrote = closed.write
		d := definition(simJob, "0 * * * * ?", 1+w.pick(7))
		d.Failover = w.pick(3) > 0
		d.Misfire = w.pick(4) > 0
		d.MonitorExecution = w.pick(5) > 0
		props, second := w.besides()
		policies := func() {
			w.policies(&d)
			if len(props) > 0 && d.Props == nil {
				d.Props = make(map[string]string)
			}
			maps.Copy(d.Props, props)
		}
		policies()
		if props["wasm.calendars.exclude"] != "" { // the day ends in the middle
			time.Sleep(23 * time.Hour)
		}
		g := &guest{digest: "sim", run: w.run}
		jobs := func() []engine.Job {
			list := []engine.Job{job(d, g)}
			if second.JobName != "" {
				list = append(list, job(second, g))
			}
			return list
		}
		w.c.wrap = w.unreliable
		alive := make(map[int]*node)
		next := 1
		apply := func(jobs ...engine.Job) {
			for _, n := range alive {
				n.host.Apply(jobs, nil)
			}
		}
		start := func() {
			alive[next] = w.c.start(next, jobs()...)
			next++
		}
		start()
		// Two hours of trouble.
		for end := time.Now().Add(2 * time.Hour); time.Now().Before(end); {
			time.Sleep(w.between(time.Second, 4*time.Minute))
			var ids []int
			for id := range next {
				if alive[id] != nil {
					ids = append(ids, id)
				}
			}
			if len(ids) == 0 {
				start()
				continue
			}
			id := ids[w.pick(len(ids))]
			n := alive[id]
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			switch action := w.pick(16); {
			case action < 3 && len(ids) < 5:
				start()
			case action == 3: // crash
				n.kill()
				<-n.done
				delete(alive, id)
			case action == 4: // deploy
				n.stop()
				<-n.done
				delete(alive, id)
			case action == 5: // the registry ends the session
				w.c.expire(n)
			case action == 6:
				for range 1 + w.draw(3) { // those that come while one waits are queued
					w.trigger(ctx, n, d.ShardingTotalCount)
				}
			case action == 7:
				d.ShardingTotalCount = 1 + w.pick(7)
				w.fewer(d.ShardingTotalCount)
				apply(jobs()...)
			case action == 8 && w.pick(2) == 0:
				d := w.between(time.Second, 3*time.Minute)
				if w.pick(2) == 0 { // it ends by itself
					_ = n.operator().Until(time.Now().Add(d)).Disable(ctx, simJob)
					break
				}
				_ = n.operator().Disable(ctx, simJob)
				time.Sleep(d)
				_ = n.operator().Enable(ctx, simJob)
			case action == 10: // an item is disabled for a while
				item := w.pick(d.ShardingTotalCount)
				d := w.between(time.Second, 3*time.Minute)
				if w.pick(2) == 0 {
					_ = n.operator().Until(time.Now().Add(d)).DisableItem(ctx, simJob, item)
					break
				}
				_ = n.operator().DisableItem(ctx, simJob, item) // it may not exist yet
				time.Sleep(d)
				_ = n.operator().EnableItem(ctx, simJob, item)
			case action == 11: // the definition goes from one host, and comes back
				n.host.Apply(nil, nil)
				time.Sleep(w.between(0, time.Minute))
				n.host.Apply(jobs(), nil)
			case action == 12: // another policy
				d.Failover, d.Misfire, d.MonitorExecution = w.pick(3) > 0, w.pick(4) > 0, w.pick(5) > 0
				policies()
				apply(jobs()...)
			case action == 13: // the registry is unwell for a while
				w.mu.Lock()
				w.sick = 1 + w.rng.IntN(40)
				w.mu.Unlock()
				time.Sleep(w.between(time.Second, 2*time.Minute))
				w.mu.Lock()
				w.sick = 0
				w.mu.Unlock()
			case action == 14: // an operator kills what runs
				item := w.pick(d.ShardingTotalCount+1) - 1
				_ = w.operate(func(ctx context.Context, r registry.Center) error {
					_, err := operate.AskKill(ctx, r, operate.Killing{Layout: simLayout(), Item: item, By: "sim", Grace: w.between(0, 10*time.Second), Now: time.Now()})
					return err
				})
			case action == 15 && w.pick(3) == 0: // or stops an instance, and lets its host come back
				for _, id := range w.instances() {
					_ = w.operate(func(ctx context.Context, r registry.Center) error {
						return stopInstance(ctx, r, simLayout(), id)
					})
					break
				}
				time.Sleep(w.between(time.Second, time.Minute))
				_ = w.operate(func(ctx context.Context, r registry.Center) error {
					return operate.Restore(ctx, r, simLayout(), tree.Word{By: "sim"})
				})
			case action == 9: // whole fleet
				if w.pick(4) == 0 {
					for id, n := range alive {
						n.kill()
						<-n.done
						delete(alive, id)
					}
					time.Sleep(w.between(0, 10*time.Minute))
					start()
					start()
				}
			}
			cancel()
			w.disturb()
		}
		// Quiet: after a while every fire is whole again.
		if len(alive) == 0 {
			start()
		}
		// Nothing stays disabled because a session was just being replaced, nor because the job has paused itself, while a run of a host
		// that died is still to be taken over.
		enable := func() {
			for _, n := range alive {
				for n.operator().Enable(t.Context(), simJob) != nil {
					time.Sleep(time.Second)
				}
				for item := range d.ShardingTotalCount {
					for err := n.operator().EnableItem(t.Context(), simJob, item); err != nil && !strings.Contains(err.Error(), "has no item"); err = n.operator().EnableItem(t.Context(), simJob, item) {
						time.Sleep(time.Second)
					}
				}
			}
		}
		enable()
		time.Sleep(10 * time.Minute)
		enable()
		for w.operate(func(ctx context.Context, r registry.Center) error {
			_, err := operate.Release(ctx, r, simLayout(), -1, time.Now())
			return err
		}) != nil {
			time.Sleep(time.Second)
		}
		quiet := time.Now().Truncate(time.Minute).Add(time.Minute)
		time.Sleep(11 * time.Minute)
		if !strings.Contains(props[jobconfig.PropCalendarDays], quiet.Format("2006-01-02")) { // else the reasons come every ten minutes
			w.check(quiet, quiet.Add(5*time.Minute), d.ShardingTotalCount)
		}
		for _, n := range alive {
			n.stop()
			<-n.done
		}
		w.faults = append(w.faults, w.c.broken(15*time.Minute, closed)...)
		if tell {
			t.Log("\n" + w.c.all())
		}
		if len(w.faults) > 0 {
			t.Errorf("seed %d (repeat with -run TestSimulation -sim.seed %d): failover %v, misfire %v, monitorExecution %v, %v; %s", seed, seed, d.Failover, d.Misfire, d.MonitorExecution, d.Props, w.extras)
			for _, f := range w.faults {
				t.Error(f)
			}
			if !tell {
				t.Log("\n" + w.c.all())
			}
			t.Log("\n" + closed.journal())
		}
		if uses := g.inUse(); uses != 0 {
			t.Errorf("seed %d: %d uses of the module are left", seed, uses)
		}
	})
}

// check asserts on the events of all hosts.
func (w *world) check(from, to time.Time, total int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	ended := make(map[string]int)
	seen := make(map[string]bool)
	for _, e := range w.c.list(event.ItemCompleted, event.ItemSkipped, event.ItemHeld, event.FireSkipped) {
		if e.Job != simJob {
			continue
		}
		if e.Kind == event.ItemCompleted {
			ended[e.RunID]++
		}
		items := e.Items
		if e.Item != nil {
			items = []int{*e.Item}
		}
		for _, item := range items {
			for at := e.Instant; e.Trigger == 0 && (at.Equal(e.Instant) || !at.After(e.Through)); at = at.Add(time.Minute) {
				seen[tree.RunID(simJob, tree.Fire{Instant: at.UnixMilli()}, item)] = true
			}
		}
	}
	w.answered()
	for run, n := range ended {
		if n > 1 {
			w.fault("%s was completed %d times", run, n)
		}
	}
	for at := from; at.Before(to); at = at.Add(time.Minute) {
		for item := range total {
			id := tree.RunID(simJob, tree.Fire{Instant: at.UnixMilli()}, item)
			if !seen[id] {
				w.fault("%s has neither run nor a reason why not", id)
			}
		}
	}
}

// answered asserts that each item that a trigger with arguments asked for has run for it, or has a reason. That another
// host, or a later run, is for it is none.
func (w *world) answered() {
	seen := make(map[string]bool)
	whole := make(map[string]bool) // dropped from the queue
	params := make(map[int64]string)
	for _, e := range w.c.list(event.FireStarted, event.ItemCompleted, event.ItemSkipped, event.ItemHeld, event.FireSkipped) {
		if e.Job == simJob && e.Args != nil && e.Args.Param != nil {
			params[e.Trigger] = *e.Args.Param
		}
		param := params[e.Trigger]
		if e.Job != simJob || e.Trigger == 0 || param == "" || e.Kind == event.FireStarted || e.Cause.Promises() || e.Cause == event.SkipElsewhere {
			continue
		}
		whole[param] = whole[param] || e.Because.Has(reason.TriggerQueued)
		items := e.Items
		if e.Item != nil {
			items = []int{*e.Item}
		}
		for _, i := range items {
			seen[fmt.Sprint(param, "/", i)] = true
		}
	}
	for _, a := range w.asked {
		for _, i := range a.items {
			if !whole[a.param] && !seen[fmt.Sprint(a.param, "/", i)] {
				w.fault("item %d of a trigger with parameter %s has neither run nor a reason why not", i, a.param)
			}
		}
	}
}
