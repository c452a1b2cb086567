package engine_test

import (
	"cmp"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/coordination/jobconfig"
	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/tree"
	"github.com/wasmjob/wasmjob/host/engine"
	"github.com/wasmjob/wasmjob/host/event"
	"github.com/wasmjob/wasmjob/host/history/verify"
)

var (
	crowdSeeds = flag.Int("crowd.seeds", max(simDefault/20, 1), "how many seeds TestCrowd runs")
	crowdSeed  = flag.Int64("crowd.seed", 0, "run only this seed, and print what happened")
	crowdLarge = flag.Int("crowd.large", 1, "how often thousands of items run; beyond 1 a fleet of 50 hosts for each comes at once, too")
)

// ledger reads in the commits of all hosts which runs were closed. It takes them in the order of their transactions: hosts that commit at
// once may tell of it in another one. mu guards it.
type ledger struct {
	mu      sync.Mutex
	heard   []entry
	hasRead int               // how many of heard
	newest  int64             // of heard
	runs    map[string]string // the open run of each record, by path
	last    map[string]tree.Record
	lists   map[string]tree.Runs
	closed  map[string]bool // by run id
}

// entry is a commit that took effect, with its transaction.
type entry struct {
	zxid int64
	at   time.Time
	ops  []registry.Op
}

func newLedger() *ledger {
	return &ledger{runs: make(map[string]string), last: make(map[string]tree.Record), lists: make(map[string]tree.Runs), closed: make(map[string]bool)}
}

func (l *ledger) isClosed(run string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.hasRead == 0 {
		slices.SortStableFunc(l.heard, func(a, b entry) int { return cmp.Compare(a.zxid, b.zxid) })
	}
	for _, e := range l.heard[l.hasRead:] {
		l.read(e)
	}
	l.hasRead = len(l.heard)
	return l.closed[run]
}

// journal is what the records and the lists of runs were, for people.
func (l *ledger) journal() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var b strings.Builder
	for _, e := range l.heard {
		for _, op := range e.ops {
			fmt.Fprintf(&b, "%s transaction %d: %s %s\n", e.at.UTC().Format("15:04:05.000"), e.zxid, op.Path, op.Data)
		}
	}
	return b.String()
}

// write hears of a commit that took effect.
func (l *ledger) write(ops []registry.Op, results []registry.Result) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := entry{at: time.Now()}
	for _, op := range ops {
		if op.Kind != registry.OpSet && op.Kind != registry.OpDelete {
			continue
		}
		if parts := strings.Split(op.Path, "/"); len(parts) == 5 && strings.HasSuffix(parts[1], ".wasmjob") && (parts[3] == "sharding" || parts[3] == "runs") {
			e.ops = append(e.ops, op)
		}
	}
	for _, r := range results {
		e.zxid = max(e.zxid, r.Zxid)
	}
	if e.zxid == 0 { // it sets no node
		e.zxid = l.newest
	}
	l.newest = max(l.newest, e.zxid)
	if len(e.ops) > 0 {
		l.heard = append(l.heard, e)
	}
}

// read reads a commit.
func (l *ledger) read(e entry) {
	ops := e.ops
	for _, op := range ops {
		parts := strings.Split(op.Path, "/") // "", namespace, job, kind, name
		if op.Kind != registry.OpSet || parts[3] != "sharding" {
			continue
		}
		var now tree.Record
		if json.Unmarshal(op.Data, &now) != nil {
			continue
		}
		before, item := l.last[op.Path], 0
		if _, err := fmt.Sscan(parts[4], &item); err != nil {
			continue
		}
		if run := l.runs[op.Path]; !now.Open() && run != "" {
			if now.Outcome != tree.OutcomeCancelled || now.Instant == before.Instant && now.Trigger == before.Trigger {
				l.closed[run] = true
			}
			l.runs[op.Path] = ""
		}
		if now.Open() {
			switch {
			case now.Trigger > before.Trigger:
				l.runs[op.Path] = tree.RunID(parts[2], tree.Fire{Trigger: now.Trigger}, item)
			case now.Instant > before.Instant || l.runs[op.Path] == "":
				l.runs[op.Path] = tree.RunID(parts[2], tree.Fire{Instant: now.Instant}, item)
			}
		}
		l.last[op.Path] = now
	}
	for _, op := range ops { // what goes from a list though its record tells of a newer run was given up
		parts := strings.Split(op.Path, "/")
		if parts[3] != "runs" {
			continue
		}
		var now tree.Runs
		if len(op.Data) > 0 && json.Unmarshal(op.Data, &now) != nil {
			continue
		}
		for _, run := range l.lists[op.Path].Runs {
			for i := range run.Items.All() {
				name := tree.RunID(parts[2], run.Fire, i)
				if record := fmt.Sprintf("/%s/%s/sharding/%d", parts[1], parts[2], i); !now.Items().Contains(i) && l.runs[record] != name {
					l.closed[name] = true
				}
			}
		}
		l.lists[op.Path] = now
	}
}

// broken holds the events of all hosts, by the time at which they happened,
// against the promises, and returns what was broken.
func (c *cluster) broken(settle time.Duration, l *ledger) []string {
	k := verify.New(verify.Options{Skew: -1, Settle: settle, MaxFindings: 5, Completed: l.isClosed})
	c.mu.Lock()
	defer c.mu.Unlock()
	last := make(map[int]int)
	for i, from := range c.from {
		last[from] = i
	}
	for i, e := range c.events {
		e.Time = c.at[i]
		at := verify.Place{File: fmt.Sprint("host ", c.from[i]), Line: i + 1}
		k.Add(e, at)
		if last[c.from[i]] == i {
			k.End(at.File)
		}
	}
	var broken []string
	for _, f := range k.Finish().Findings {
		if f.Class != verify.Violated {
			continue
		}
		var b strings.Builder
		fmt.Fprintf(&b, "invariant %d: %s, item %d: %s", f.Invariant, f.Job, f.Item, f.Text)
		for _, l := range f.Lines {
			fmt.Fprintf(&b, "\n    %s %s %s", l.Place, l.Time.UTC().Format("15:04:05.000"), l.Text)
		}
		broken = append(broken, b.String())
	}
	return broken
}

// crowd is several jobs on hosts with few slots.
type crowd struct {
	t       *testing.T
	c       *cluster
	rng     *rand.Rand
	ledger  *ledger
	alive   map[int]*node
	clocks  map[int]*wallClock
	next    int
	slots   int
	jobs    []engine.Job
	delay   func() time.Duration // of each call to the registry; mu guards its chance
	delayMu sync.Mutex
}

func newCrowd(t *testing.T, seed uint64) *crowd {
	w := &crowd{t: t, c: newCluster(t), rng: rand.New(rand.NewPCG(seed, 11)), ledger: newLedger(), alive: make(map[int]*node), clocks: make(map[int]*wallClock), next: 1, slots: 4}
	w.c.wrote = w.ledger.write
	w.c.wrap = func(_ int, l *lease) registry.Center { return tardy{l, w} }
	return w
}

// tardy answers, and takes its time.
type tardy struct {
	*lease
	w *crowd
}

func (s tardy) wait() {
	s.w.delayMu.Lock()
	delay := s.w.delay
	s.w.delayMu.Unlock()
	if delay != nil {
		time.Sleep(delay())
	}
}

func (s tardy) Commit(ctx context.Context, ops ...registry.Op) ([]registry.Result, error) {
	s.wait()
	return s.lease.Commit(ctx, ops...)
}

func (s tardy) Read(ctx context.Context, queries ...registry.Query) ([]registry.Node, error) {
	s.wait()
	return s.lease.Read(ctx, queries...)
}

// slow makes every call take so long; 0 ends that.
func (w *crowd) slow(d time.Duration) {
	w.delayMu.Lock()
	defer w.delayMu.Unlock()
	if w.delay = nil; d > 0 {
		w.delay = func() time.Duration { return d }
	}
}

func (w *crowd) between(low, high time.Duration) time.Duration {
	// Never at a full millisecond, where hosts act.
	return (low + time.Duration(w.rng.Int64N(int64(high-low)+1))).Truncate(time.Millisecond) + 333*time.Microsecond
}

// start runs a host by a clock that is so much ahead.
func (w *crowd) start(ahead time.Duration) {
	clock := &wallClock{}
	clock.set(ahead)
	w.c.config = func(cfg *engine.Config) { cfg.Now, cfg.MaxConcurrency = clock.now, w.slots }
	w.alive[w.next], w.clocks[w.next] = w.c.start(w.next, w.jobs...), clock
	w.next++
}

// ids are the hosts that live, in the order in which they came.
func (w *crowd) ids() []int {
	var ids []int
	for id := range w.next {
		if w.alive[id] != nil {
			ids = append(ids, id)
		}
	}
	return ids
}

func (w *crowd) end(id int, how context.CancelFunc) {
	how()
	<-w.alive[id].done
	delete(w.alive, id)
}

// judge demands that no promise was broken, and that every item ran since.
func (w *crowd) judge(settle time.Duration, since time.Time) {
	w.t.Helper()
	for _, broken := range w.c.broken(settle, w.ledger) {
		w.t.Error(broken)
	}
	w.c.mu.Lock()
	defer w.c.mu.Unlock()
	began := make(map[string]bool)
	for i, e := range w.c.events {
		if e.Time = w.c.at[i]; e.Time.After(since) && (e.Kind == event.ItemStarted || e.Kind == event.ItemEnded) { // streaming items may never end before
			began[fmt.Sprint(e.Job, *e.Item)] = true
		}
	}
	for _, j := range w.jobs {
		for i := range j.Definition.ShardingTotalCount {
			if !began[fmt.Sprint(j.Definition.JobName, i)] {
				w.t.Errorf("%s, item %d has not run since %s, when all was quiet", j.Definition.JobName, i, since.UTC().Format(time.TimeOnly))
			}
		}
	}
}

// timeline is all that was told, each with the time at which it happened, its
// host and its job.
func (w *crowd) timeline() string {
	w.c.mu.Lock()
	defer w.c.mu.Unlock()
	var b strings.Builder
	for i, e := range w.c.events {
		fmt.Fprintf(&b, "%s host %d %s %s", w.c.at[i].UTC().Format("15:04:05.000"), w.c.from[i], e.Job, lines([]event.Event{e}))
	}
	return b.String()
}

// stop ends all hosts.
func (w *crowd) stop() {
	for _, id := range w.ids() {
		w.end(id, w.alive[id].stop)
	}
}

// TestCrowd lets several jobs, a streaming one among them, compete for few slots
// on hosts that come and go. Hosts are told to stop while items wait for slots,
// definitions change on one host after the other, the registry takes a fifth of a
// session's time to answer, and clocks are wrong by hours and days before, while
// and after a host joins. Every reason that was given is held against what
// followed, and when all is quiet every item begins.
func TestCrowd(t *testing.T) {
	if *crowdSeed != 0 {
		inCrowd(t, uint64(*crowdSeed), true)
		return
	}
	t.Parallel()
	seeds := *crowdSeeds
	if testing.Short() {
		seeds = min(seeds, 8)
	}
	const groups = 4
	for g := range groups {
		t.Run(fmt.Sprint("group", g), func(t *testing.T) {
			t.Parallel()
			for seed := g + 1; seed <= seeds && !t.Failed(); seed += groups {
				inCrowd(t, uint64(seed), false)
			}
		})
	}
}

func inCrowd(t *testing.T, seed uint64, tell bool) {
	synctest.Test(t, func(t *testing.T) {
		w := newCrowd(t, seed)
		w.slots = 2 + w.rng.IntN(4)
		// Chance is asked for by one goroutine at a time; guests draw from a mix.
		for n := range 3 + w.rng.IntN(3) {
			d := definition(fmt.Sprint("job", n), []string{"0/10 * * * * ?", "0/20 * * * * ?", "5/30 * * * * ?", "0 * * * * ?"}[w.rng.IntN(4)], 1+w.rng.IntN(6))
			d.Failover, d.Misfire = w.rng.IntN(3) > 0, w.rng.IntN(3) > 0
			d.Props[jobconfig.PropMaxHostDeaths] = "0" // its hosts do not die of what they run
			if n == 0 && w.rng.IntN(2) == 0 {
				d.Props["streaming.process"] = "true"
				w.jobs = append(w.jobs, job(d, streamer(2*time.Second)))
				continue
			}
			most := uint64(1000 + w.rng.IntN(20_000))
			w.jobs = append(w.jobs, job(d, &guest{digest: d.JobName, run: func(ctx context.Context, inv *abi.Invocation) abi.Result {
				takes := mix(seed, uint64(n), uint64(inv.Context.ShardingItem), uint64(time.Now().UnixMilli())) % most
				select {
				case <-time.After(time.Duration(takes) * time.Millisecond):
					return ok
				case <-ctx.Done():
					return abi.Result{Outcome: abi.OutcomeCancelled, Message: context.Cause(ctx).Error()}
				}
			}}))
		}
		far := func() time.Duration {
			d := w.between(time.Hour, 72*time.Hour)
			if w.rng.IntN(2) == 0 {
				return -d
			}
			return d
		}
		w.start(0)
		w.start(0)
		for end := time.Now().Add(40 * time.Minute); time.Now().Before(end); {
			time.Sleep(w.between(time.Second, 2*time.Minute))
			ids := w.ids()
			if len(ids) == 0 {
				w.start(0)
				continue
			}
			id := ids[w.rng.IntN(len(ids))]
			switch w.rng.IntN(10) {
			case 0, 1:
				if len(ids) < 4 {
					w.start(0)
				}
			case 2:
				w.end(id, w.alive[id].kill)
			case 3: // while items wait for slots
				w.end(id, w.alive[id].stop)
			case 4:
				w.c.expire(w.alive[id])
			case 5: // from host to host, as files are copied
				k := w.rng.IntN(len(w.jobs))
				d := w.jobs[k].Definition
				d.ShardingTotalCount, d.Misfire, d.JobParameter = 1+w.rng.IntN(6), w.rng.IntN(3) > 0, fmt.Sprint(time.Now().Unix())
				w.jobs[k].Definition = d
				for _, other := range ids {
					w.alive[other].host.Apply(w.jobs, nil)
					time.Sleep(w.between(0, 15*time.Second))
				}
			case 6:
				_ = w.alive[id].operator().Trigger(t.Context(), w.jobs[w.rng.IntN(len(w.jobs))].Definition.JobName) // refused while the session is new
			case 7: // a fifth of a session of 30 s
				w.slow(6 * time.Second)
				time.Sleep(w.between(time.Second, 2*time.Minute))
				w.slow(0)
			case 8: // its clock is set right soon
				w.clocks[id].set(far())
				time.Sleep(w.between(time.Second, 5*time.Minute))
				w.clocks[id].set(0)
			case 9: // wrong when it comes
				if len(ids) < 4 {
					w.start(far())
					time.Sleep(w.between(time.Second, 5*time.Minute))
					w.clocks[w.next-1].set(0)
				}
			}
		}
		if len(w.alive) == 0 {
			w.start(0)
		}
		for _, id := range w.ids() {
			w.alive[id].host.Apply(w.jobs, nil)
		}
		const settle = 10 * time.Minute
		time.Sleep(settle)
		quiet := time.Now()
		time.Sleep(settle + 5*time.Minute)
		w.stop()
		w.judge(settle, quiet)
		if t.Failed() || tell {
			var names []string
			for _, j := range w.jobs {
				names = append(names, fmt.Sprintf("%s %q × %d", j.Definition.JobName, j.Definition.Cron, j.Definition.ShardingTotalCount))
			}
			t.Logf("seed %d (repeat with: go test ./host/engine -run TestCrowd -crowd.seed %d): %d slots, %s", seed, seed, w.slots, strings.Join(names, ", "))
		}
		if tell {
			t.Log("\n" + w.timeline())
		}
	})
}

// TestCrowd_items: one job has thousands of items on hosts of which one dies and
// one is told to stop while most of its items wait for a slot.
func TestCrowd_items(t *testing.T) {
	t.Parallel()
	for seed := range uint64(*crowdLarge) {
		synctest.Test(t, func(t *testing.T) {
			w := newCrowd(t, seed)
			w.slots = 300
			d := definition("large", "0 * * * * ?", (1500+w.rng.IntN(1500))/callStep)
			d.Failover, d.Misfire = seed == 0, true
			d.Props[jobconfig.PropMaxHostDeaths] = "0"
			d.Props["wasm.maxConcurrency"] = "300"
			w.jobs = []engine.Job{job(d, sleeper(3*time.Second))}
			for range 4 {
				w.start(0)
			}
			time.Sleep(time.Until(time.Now().Truncate(time.Minute).Add(3*time.Minute + 4*time.Second)))
			w.end(2, w.alive[2].kill)
			time.Sleep(time.Minute)
			w.end(3, w.alive[3].stop)
			time.Sleep(2 * time.Minute)
			quiet := time.Now()
			time.Sleep(8 * time.Minute)
			w.stop()
			w.judge(5*time.Minute, quiet)
		})
	}
}

// TestCrowd_fleet: a whole fleet joins several jobs at once, as after an outage.
// All items run, and no host is left out.
func TestCrowd_fleet(t *testing.T) {
	t.Parallel()
	for _, hosts := range []int{50 / callStep, 50 * (*crowdLarge - 1)} {
		if hosts == 0 {
			continue
		}
		synctest.Test(t, func(t *testing.T) {
			w := newCrowd(t, uint64(hosts))
			for n := range 3 {
				d := definition(fmt.Sprint("job", n), "0 * * * * ?", 2*hosts)
				d.Failover = true
				w.jobs = append(w.jobs, job(d, sleeper(time.Second)))
			}
			for range hosts {
				w.start(0)
			}
			time.Sleep(5 * time.Minute)
			quiet := time.Now()
			time.Sleep(6 * time.Minute)
			busy := make(map[string]bool)
			for _, e := range w.c.list(event.ItemStarted) {
				if e.Time.After(quiet) {
					busy[e.Host] = true
				}
			}
			if len(busy) != hosts {
				t.Errorf("%d of %d hosts run items five minutes after they came", len(busy), hosts)
			}
			w.stop()
			w.judge(5*time.Minute, quiet)
		})
	}
}

// TestCrowd_overload: for a minute items take twice the time that the slots
// have, and then half of it. Ten seconds later all begin in time again, and each
// instant is accounted for.
func TestCrowd_overload(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newCrowd(t, 1)
		takes := 500 * time.Millisecond // a job has 4 items each second, and 4 slots with the other
		var over time.Time
		g := &guest{digest: "load", run: func(context.Context, *abi.Invocation) abi.Result {
			d := takes / 4
			if time.Now().Before(over) {
				d = takes * 2
			}
			time.Sleep(d)
			return ok
		}}
		over = time.Now().Add(90 * time.Second)
		for n := range 2 {
			d := definition(fmt.Sprint("job", n), "* * * * * ?", 4)
			d.Props["wasm.maxConcurrency"] = "4"
			w.jobs = append(w.jobs, job(d, g))
		}
		w.start(0)
		time.Sleep(time.Until(over.Add(10 * time.Second)))
		normal := time.Now()
		time.Sleep(8 * time.Minute)
		for _, e := range w.c.list(event.ItemStarted) {
			if lag := e.Time.Sub(e.Instant); e.Time.After(normal) && lag > time.Second {
				t.Errorf("%s began %s after its instant, %s after the load was halved", e.RunID, lag, e.Time.Sub(over))
				break
			}
		}
		w.stop()
		w.judge(2*time.Minute, normal)
	})
}

// TestLedger_order: two hosts commit one after the other, and the call of the second returns first. The ledger reads the commits in the order of their transactions.
func TestLedger_order(t *testing.T) {
	t.Parallel()
	commit := func(l *ledger, zxid int64, r tree.Record) {
		l.write([]registry.Op{registry.Set("/test.wasmjob/j/sharding/0", r.Data(), 0)}, []registry.Result{{Zxid: zxid}})
	}
	first := tree.Fire{Instant: 60_000, Source: "schedule"}
	begun := tree.Record{}.Begin("one", first, 60_000)
	ended := begun.End("OK", "", 61_000)
	again := ended.Begin("two", tree.Fire{Instant: 120_000, Source: "schedule"}, 120_000)
	l := newLedger()
	commit(l, 10, begun)
	commit(l, 12, again)
	commit(l, 11, ended)
	if !l.isClosed("j/1970-01-01T00:01:00.000Z/0") || l.isClosed("j/1970-01-01T00:02:00.000Z/0") {
		t.Errorf("closed are %v, want the run of the first instant alone", l.closed)
	}
}
