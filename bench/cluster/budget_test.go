package cluster_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/engine"
	"github.com/wasmjob/wasmjob/host/event"
	"github.com/wasmjob/wasmjob/test/zkserver"
)

const (
	// sessionTimeout of the hosts: long, for a machine with little to spare.
	sessionTimeout = 12 * time.Second
	// rest is for how long nobody asks for anything once all have settled:
	// longer than a host waits for a snapshot that does not come.
	rest = 1500 * time.Millisecond
	// chunk is the size at which a division is cut into several commits.
	chunk = 512 << 10
)

// ledger holds what was counted against what may be.
type ledger struct {
	rows []row
	over bool
}

// row is one line. What is more than the budget and not more than allowed is
// known, with the reason; see RATIONALE.md.
type row struct {
	what                     string
	counted, budget, allowed int
	note                     string
	calls                    []call
}

// book enters what was counted, with the calls behind it if there are any.
func (l *ledger) book(what string, counted, budget int, calls []call, note string) {
	l.allow(what, counted, budget, budget, calls, note)
}

func (l *ledger) allow(what string, counted, budget, allowed int, calls []call, why string) {
	l.rows = append(l.rows, row{what, counted, budget, allowed, why, calls})
	l.over = l.over || counted > allowed
}

// close prints the table, and fails the test if anything is over.
func (l *ledger) close(t *testing.T) {
	t.Helper()
	const most = 30 // calls of a row
	var b strings.Builder
	fmt.Fprintf(&b, "\n%-58s %8s %8s %8s\n", "per host and job", "budget", "allowed", "counted")
	for _, r := range l.rows {
		fmt.Fprintf(&b, "%-58s %8d %8d %8d", r.what, r.budget, r.allowed, r.counted)
		if r.counted > r.allowed {
			b.WriteString("  OVER")
		}
		if r.note != "" {
			fmt.Fprintf(&b, "  (%s)", r.note)
		}
		b.WriteByte('\n')
		if r.counted <= r.allowed {
			continue
		}
		for _, c := range r.calls[:min(len(r.calls), most)] {
			fmt.Fprintf(&b, "        %s\n", c)
		}
		if more := len(r.calls) - most; more > 0 {
			fmt.Fprintf(&b, "        and %d more\n", more)
		}
	}
	if l.over {
		t.Error(b.String())
	} else {
		t.Log(b.String())
	}
}

// brief drops lines that say the same as an earlier one: the hosts of a cluster
// and its fires mostly do.
func (l *ledger) brief() {
	type key struct {
		what                     string
		counted, budget, allowed int
	}
	seen := make(map[key]bool)
	var rows []row
	for _, r := range l.rows {
		k := key{r.what, r.counted, r.budget, r.allowed}
		if !seen[k] {
			rows = append(rows, r)
		}
		seen[k] = true
	}
	l.rows = rows
}

// TestBudget holds hosts to what they may ask of a registry. With -v it prints
// what was counted.
func TestBudget(t *testing.T) {
	t.Parallel()
	e := zkserver.ForTest(t, zkserver.Options{TickTime: 500 * time.Millisecond, NoSync: true})
	// The server tells how many watches it holds in all, so this goes first.
	t.Run("idle", func(t *testing.T) { idle(t, e) })
	for _, hosts := range []int{1, 3} {
		t.Run(fmt.Sprintf("fires, %d hosts", hosts), func(t *testing.T) {
			t.Parallel()
			fires(t, e, hosts)
		})
	}
	t.Run("items outlive the window", func(t *testing.T) {
		t.Parallel()
		outliving(t, e)
	})
	t.Run("resharding", func(t *testing.T) {
		t.Parallel()
		resharding(t, e)
	})
	for _, takers := range []int{1, 2} {
		t.Run(fmt.Sprintf("failover, %d takers", takers), func(t *testing.T) {
			t.Parallel()
			failover(t, e, takers)
		})
	}
}

// idle looks at hosts that have nothing to do.
func idle(t *testing.T, e *zkserver.Ensemble) {
	const hosts, jobs, items = 3, 4, 6
	proxy, err := zkserver.NewProxy(e.Addr(0))
	if err != nil {
		t.Fatal(err)
	}
	defer proxy.Close()
	c := newCluster(t, proxy.Addr(), "idle", sessionTimeout)
	defer c.end() // before the proxy
	var all []engine.Job
	for i := range jobs {
		all = append(all, job(fmt.Sprintf("job%d", i), "", items, true, noop))
	}
	for range hosts {
		c.start(nil, all...)
	}
	for _, j := range all {
		c.divided(j.Definition.JobName, items, c.hosts...)
	}
	c.quiet(rest)
	var l ledger
	defer func() { l.close(t) }()
	held := func(what string) {
		n := watches(t, e) - hosts // each process watches the base of the fences, whatever jobs it has
		l.allow(what, (n+hosts*jobs-1)/(hosts*jobs), 10, 10, nil, fmt.Sprintf("%d of %d hosts and %d jobs", n, hosts, jobs))
		if n == 0 {
			t.Error("the server holds no watches at all")
		}
	}
	held("standing watches")

	from, begun := c.marks(), time.Now()
	time.Sleep(sessionTimeout / 3)
	for _, n := range c.hosts {
		n.host.Status() // as whoever scrapes its metrics
	}
	to, took := c.marks(), time.Since(begun)
	for _, n := range c.hosts {
		sent := requests(from[n], to[n])
		syncs, pings := sent["sync"], sent["ping"]
		delete(sent, "sync")
		delete(sent, "ping")
		l.book("idle: requests", len(sent), 0, n.meter.between(from[n], to[n], ""), words(sent))
		l.book("idle: syncs of the process, one every T/12", syncs, int(took/(sessionTimeout/12))+1, nil, took.Round(time.Millisecond).String())
		l.book("idle: pings of the client, one every T/3", pings, int(took/(sessionTimeout/3))+1, nil, "")
		if syncs == 0 {
			t.Errorf("host %s: no sync in %s", n.name, took)
		}
	}

	from = c.marks()
	proxy.Drop()
	c.await("all are connected again", func() bool {
		for _, n := range c.hosts {
			if n.meter.requests("connect") == from[n].wire["connect"] {
				return false
			}
		}
		return true
	})
	c.quiet(rest)
	to = c.marks()
	for _, n := range c.hosts {
		sent := requests(from[n], to[n])
		l.book("reconnect: reads, each watched node once", (sent["getData"]-1+sent["getChildren"]+jobs-1)/jobs, 10, nil, words(sent)) // but for that of the process
		l.book("reconnect: looks, to watch what is absent", (sent["exists"]+jobs-1)/jobs, 1, nil, "")
		calls := n.meter.between(from[n], to[n], "")
		l.book("reconnect: calls of the host", len(calls), 0, calls, "")
		l.book("reconnect: commits", sent["multi"], 0, nil, "")
		if reads(sent) == 0 {
			t.Errorf("host %s: nothing was read again", n.name)
		}
	}
	held("standing watches after the reconnect")
	l.brief()
}

// fires looks at undisturbed fires of all sizes.
func fires(t *testing.T, e *zkserver.Ensemble, hosts int) {
	const (
		most   = 20 // fires of a job are looked at
		budget = 2  // commits: one that begins, one that completes
		// window is how near to each other the ends of a fire's items are: a
		// machine that is busy with other things may spread them, and then
		// they outlive the first commit. A little less than the host's.
		window = 40 * time.Millisecond
	)
	type at struct {
		n   *node
		job string
	}
	type fire struct {
		calls       []call
		wire        map[string]int // of the whole host
		first, last time.Time      // an item ended
		ended       int
		skipped     bool
	}
	undisturbed := func(f fire) bool { return !f.skipped && f.last.Sub(f.first) < window }
	// The end of a guest may also be late to be told, which no event shows: a
	// fire within the budget says more than the fires before it.
	within := func(f fire) bool { return undisturbed(f) && len(pick(f.calls, "", commitCall)) <= budget }
	var counting bool
	slow := make(map[*node]bool) // a fire ran for so long that its host watches for kills
	ended := make(map[at]int)    // fires
	since := make(map[at]mark)   // the end of the fire before
	counted := make(map[at]bool) // and it was counted from
	now := make(map[at]*fire)
	past := make(map[at][]fire)
	c := newCluster(t, e.Connect(), fmt.Sprintf("fires%d", hosts), sessionTimeout)
	var all []engine.Job
	for _, items := range []int{1, 10, 100, 1000} {
		for _, failover := range []bool{false, true} {
			all = append(all, job(fmt.Sprintf("items=%d,failover=%t", items, failover), "0/3 * * * * ?", items, failover, together()))
		}
	}
	for range hosts {
		c.start(func(n *node, ev event.Event) {
			k := at{n, ev.Job}
			if now[k] == nil {
				now[k] = &fire{}
			}
			f := now[k]
			switch ev.Kind {
			case event.ItemEnded:
				if f.ended++; f.ended == 1 {
					f.first = ev.Time
				}
				f.last = ev.Time
			case event.ItemSkipped, event.FireSkipped:
				f.skipped = true
			case event.FireEnded: // after its last commit, before anything of the next
				slow[n] = slow[n] || ev.Time.Sub(ev.Instant) > time.Second
				m := n.meter.mark()
				ended[k]++
				if counting && counted[k] {
					f.calls, f.wire = n.meter.between(since[k], m, ev.Job), requests(since[k], m)
					past[k] = append(past[k], *f)
				}
				since[k], counted[k] = m, counting
				delete(now, k)
			}
		}, all...)
	}
	for _, j := range all {
		if total := j.Definition.ShardingTotalCount; total >= hosts {
			c.divided(j.Definition.JobName, total, c.hosts...)
		}
	}
	// The first fire after a division has more to prove. Hosts that a slow machine
	// keeps at work never rest between two fires: so this counts them.
	c.await("every job has fired twice", func() bool {
		for _, j := range all {
			settled := 0
			for _, n := range c.hosts {
				if ended[at{n, j.Definition.JobName}] >= 2 {
					settled++
				}
			}
			if settled < min(hosts, j.Definition.ShardingTotalCount) {
				return false
			}
		}
		return true
	})
	c.mu.Lock()
	counting = true // from the end of the next fire on
	c.mu.Unlock()
	// good is how many hosts have had a fire within the budget; enough, whether
	// there were fires enough to tell.
	good := func(name string) (hosts int, enough bool) {
		for _, n := range c.hosts {
			list := past[at{n, name}]
			seen := false
			for _, f := range list {
				seen = seen || within(f)
			}
			if seen {
				hosts++
			}
			enough = enough || len(list) >= most
		}
		return hosts, enough
	}
	c.await("every job has had a fire within the budget on every host, or fires enough", func() bool {
		for _, j := range all {
			if n, enough := good(j.Definition.JobName); n < min(hosts, j.Definition.ShardingTotalCount) && !enough {
				return false
			}
		}
		return true
	})
	var l ledger
	defer func() { l.close(t) }()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, j := range all {
		name := j.Definition.JobName
		for _, n := range c.hosts {
			least, items, seen := 0, 0, false
			for _, f := range past[at{n, name}] {
				watches := 0
				if slow[n] {
					watches = 1
				}
				l.book(name+": reads", len(pick(f.calls, "", readCall)), 0, f.calls, "")
				l.allow(name+": watches for kills", len(pick(f.calls, "", watchCall)), 0, watches, f.calls, "")
				l.allow(name+": requests of the host that read", reads(f.wire), 0, 2*watches*len(all), f.calls, words(f.wire))
				l.book(name+": refused commits", len(pick(f.calls, "", conflictCall)), 0, f.calls, "")
				commits := pick(f.calls, "", commitCall)
				spread := f.last.Sub(f.first)
				// One more for each window, and for a host that was kept from looking.
				slow := 1 + int(spread/(50*time.Millisecond))
				l.book(name+": commits beyond two and those of a slow machine", max(0, len(commits)-budget-slow), 0, f.calls, "")
				if undisturbed(f) && (!seen || len(commits) < least) {
					least, items, seen = len(commits), f.ended, true
				}
			}
			if seen {
				l.book(name+": commits", least, budget, past[at{n, name}][0].calls, fmt.Sprintf("%d items here", items))
			}
		}
	}
	l.brief()
}

// outliving looks at items that end one after the other.
func outliving(t *testing.T, e *zkserver.Ensemble) {
	const name, items, apart = "slow", 50, 20 * time.Millisecond
	c := newCluster(t, e.Connect(), "outliving", sessionTimeout)
	var first, last time.Time
	ended := false
	n := c.start(func(_ *node, ev event.Event) {
		switch ev.Kind {
		case event.ItemEnded:
			if first.IsZero() {
				first = ev.Time
			}
			last = ev.Time
		case event.FireEnded:
			ended = true
		}
	}, job(name, "", items, true, func(ctx context.Context, inv *abi.Invocation) abi.Result {
		timer := time.NewTimer(time.Duration(inv.Context.ShardingItem) * apart)
		defer timer.Stop()
		select {
		case <-timer.C:
			return ok
		case <-ctx.Done():
			return abi.Result{Outcome: abi.OutcomeCancelled}
		}
	}))
	c.divided(name, items, n)
	c.quiet(rest)
	from := n.meter.mark()
	if err := n.trigger(t.Context(), name); err != nil {
		t.Fatal(err)
	}
	c.await("the fire has ended", func() bool { return ended })
	calls := n.meter.between(from, n.meter.mark(), name)
	var l ledger
	defer func() { l.close(t) }()
	spread := last.Sub(first)
	l.book("items outlive the window: commits", len(pick(calls, "fire", commitCall)), 3+int(spread/(100*time.Millisecond)), calls,
		fmt.Sprintf("%d items end within %s", items, spread.Round(time.Millisecond)))
	l.book("items outlive the window: reads and refused commits", len(pick(calls, "fire", readCall, conflictCall)), 0, calls, "")
	l.book("a trigger: reads", len(pick(calls, "other", readCall)), 5, calls, "three by who triggers, of the instances, of their servers and of an item that may run, and of the queue beside them; and by the host, of which round it is")
	l.book("a trigger: commits of who triggers", len(pick(calls, "other", commitCall)), 1, calls, "")
}

// resharding looks at what a host more costs, and more items.
func resharding(t *testing.T, e *zkserver.Ensemble) {
	const name, few, many = "spread", 300, 4000
	c := newCluster(t, e.Connect(), "resharding", sessionTimeout)
	start := func(total int) *node { return c.start(nil, job(name, "", total, true, noop)) }
	first, second := start(few), start(few)
	c.divided(name, few, first, second)
	c.quiet(rest)
	var l ledger
	defer func() { l.close(t) }()
	settle := func(what string, begun time.Time, from map[*node]mark, before map[*node]int, total int) {
		c.divided(name, total, c.hosts...)
		c.quiet(rest)
		took := time.Since(begun)
		divisions := 0
		for _, n := range c.hosts {
			divisions += n.divided[name] - before[n]
		}
		l.allow(what+": divisions", divisions, 1, 2+int(took/time.Second), nil,
			"a leader may divide once more by a snapshot that it had not taken yet, and for each second that the next one takes")
		for _, n := range c.hosts {
			f, to := from[n], n.meter.mark()
			if f.wire == nil {
				continue // it has just come
			}
			calls, sent := n.meter.between(f, to, name), requests(f, to)
			what := what + ", host " + n.name
			own := pick(calls, "share", readCall)
			asked := 0
			for _, made := range pick(calls, "", readCall) {
				asked += made.n
			}
			if divided := n.divided[name] - before[n]; divided > 0 {
				commits, size := pick(calls, "divide", commitCall), 0
				for _, made := range commits {
					size += made.size
					if made.size > chunk+chunk/4 {
						t.Errorf("%s: a commit of %d ops has %d bytes", what, made.n, made.size)
					}
				}
				// Up to half a megabyte is one; beyond, one raises the flag,
				// each of the three parts begins a commit, and one ends it all.
				may := 1
				if size > chunk {
					may = 5 + size/chunk
				}
				l.book(what+", leader: commits of a division", (len(commits)+divided-1)/divided, may, commits, fmt.Sprintf("%d bytes", size))
				l.allow(what+", leader: refused commits", len(pick(calls, "divide", conflictCall)), 0, divided, calls, "somebody came or left meanwhile")
				l.allow(what+", leader: reads of a division", (len(pick(calls, "divide", readCall))-2*len(pick(calls, "divide", conflictCall))+divided-1)/divided, 1, 2, calls, "the lists, and then what is in them")
			}
			l.allow(what+": reads of the own share", (len(own)+divisions-1)/divisions, 1, 2, own, "the share, and then the states of its new items")
			l.allow(what+": commits that ask for a division", len(pick(calls, "flag", commitCall, conflictCall)), 0, divisions, calls, "whoever sees the difference first")
			ensures := 0
			for _, made := range pick(calls, "", commitCall) {
				if strings.Contains(made.what, "ensure") {
					ensures++
				}
			}
			l.allow(what+": multis beyond the commits", sent["multi"]-len(pick(calls, "", commitCall, conflictCall)), 0, ensures, calls,
				"what is ensured and is not there costs a try")
			l.allow(what+": reads of watched nodes", sent["getData"]+sent["getChildren"]-asked, 10, 10*divisions, calls, words(sent))
		}
	}
	begun, from, before := time.Now(), c.marks(), c.divisions(name)
	start(few)
	settle("one host more", begun, from, before, few)

	begun, from, before = time.Now(), c.marks(), c.divisions(name)
	second.host.Apply([]engine.Job{job(name, "", many, true, noop)}, nil)
	settle(fmt.Sprintf("from %d to %d items", few, many), begun, from, before, many)
}

// failover looks at what a host that dies with 100 running items costs those
// that take them. A taker that is so late that another waits for it in vain, and
// looks at its share as well, is the machine's doing: once more then.
func failover(t *testing.T, e *zkserver.Ensemble, takers int) {
	const tries = 3
	for try := range tries {
		l := failedOver(t, e, takers, try)
		if !l.over || try == tries-1 {
			l.close(t)
			return
		}
		t.Log("over the budget, or a host was too late to take its share")
	}
}

func failedOver(t *testing.T, e *zkserver.Ensemble, takers, try int) *ledger {
	const name, each = "owed", 100
	c := newCluster(t, e.Connect(), fmt.Sprintf("failover%d-%d", takers, try), sessionTimeout)
	total := each * (takers + 1)
	for range takers {
		c.start(nil, job(name, "", total, true, together()))
	}
	runs := 0
	dead := c.start(func(_ *node, ev event.Event) {
		if ev.Kind == event.ItemStarted {
			runs++
		}
	}, job(name, "", total, true, func(ctx context.Context, _ *abi.Invocation) abi.Result {
		<-ctx.Done()
		return abi.Result{Outcome: abi.OutcomeCancelled}
	}))
	c.divided(name, total, c.hosts...)
	c.quiet(rest)
	completed := func() (n int) {
		for _, h := range c.hosts {
			n += h.completed[name]
		}
		return n
	}
	if err := dead.trigger(t.Context(), name); err != nil {
		t.Fatal(err)
	}
	c.await("the others' items have run, and those of one host run", func() bool { return runs == each && completed() == each*takers })
	c.quiet(rest)
	from := c.marks()
	c.hosts = c.hosts[:takers]
	dead.crash()
	c.await("all have run", func() bool { return completed() == total })
	c.divided(name, total, c.hosts...)
	c.quiet(rest)
	defer c.end()
	var l ledger
	sum := 0
	for i, n := range c.hosts {
		calls := n.meter.between(from[n], n.meter.mark(), name)
		what := fmt.Sprintf("taker %d of %d", i+1, takers)
		nodes := 0
		for _, made := range pick(calls, "recover", readCall) {
			nodes += made.n
		}
		tries := takers // all write to the one list of runs: one of them gets through, the others look again
		bury := 1       // whoever takes the last one
		later := 1      // and a last look, a second after
		l.allow(what+": reads", len(pick(calls, "recover", readCall)), 1, 2*tries+bury+later, calls, "the list of runs, and then its items; once more for each other taker")
		l.allow(what+": nodes read", nodes, 1, tries*(7+9*(each/takers+1))+3*bury+7*later, calls, "nine of each item of its share")
		l.allow(what+": commits", len(pick(calls, "recover", commitCall)), 1, 1+bury, calls, "and one to forget the dead host")
		l.allow(what+": refused commits", len(pick(calls, "recover", conflictCall)), 0, tries-1+bury, calls, "by another taker, or by the flag that stands already")
		l.allow(what+": refused completions", len(pick(calls, "fire", conflictCall)), 0, tries, calls, "the others are woken by the list of members, which the burial has changed")
		sum += len(pick(calls, "recover", commitCall))
		idle := 0
		if n.completed[name] == each {
			idle = 1
		}
		l.book(what+": hosts that have taken nothing", idle, 0, calls, "")
	}
	l.book("all takers: commits", sum, takers+1, nil, "")
	return &l
}
