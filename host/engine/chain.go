package engine

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/coordination"
	"github.com/wasmjob/wasmjob/coordination/admin/operate"
	"github.com/wasmjob/wasmjob/coordination/jobconfig"
	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/tree"
	"github.com/wasmjob/wasmjob/host/event"
	"github.com/wasmjob/wasmjob/host/schedule/due"
	"github.com/wasmjob/wasmjob/internal/text/reason"
	"github.com/wasmjob/wasmjob/internal/text/words"
)

// Chains: jobs that run after other jobs. coordination/chain.go has the protocol.
//
// A job that runs after others has no clock. Its schedule is a list of instants: those of fires of the jobs before it
// that ended with the required outcome. Each host of the job reads this list from the nodes ends of those jobs. The job's
// policies decide about an instant that cannot begin when it comes, as with every schedule. A job that others run after
// records the ends of its items as they complete; settleEnds records the ends of items that do not run.

const (
	// settleGrace is how long it may be undecided whether an item runs in a fire that other items have ended.
	settleGrace = 5 * time.Second
	// chainPause is when to check a chain again that is refused, or that could not be followed.
	chainPause = 30 * time.Second
)

// chain is what the loop knows of the jobs before and after this one. It uses the registry; followChain tells it what is
// due and which items run, and acts on what it returns.
type chain struct {
	job   *access
	turn  chainTurn
	after []jobconfig.After // the jobs before, as the configuration in force has them
	err   error             // why they are not followed
	// checkedFor are the transactions of the configurations with which the chain was checked.
	checkedFor string
	watched    []registry.Query
	feed       feed
	seen       registry.Snapshot // nil until the first
	news       bool
	led        bool        // this host led the job when it last looked
	listed     bool        // the calendar has the list
	waits      bool        // for its turn to enter itself with those before
	found      []due.Unmet // fires of those before after which the job does not run
	unmet      map[string]bool
	chained    tree.Chained
	chainedAt  int64     // the transaction that wrote it
	at         time.Time // when to look again
	// elsewhereAt is when to read the outcomes of runs on other hosts; zero without such runs.
	elsewhereAt time.Time
	straysAt    time.Time // when to look for followers that are none
}

// chainTurn orders the jobs of a host, which enter themselves with the jobs before them one at a time. enter reports
// whether this job's turn has come.
type chainTurn struct {
	enter func() bool
	leave func()
}

// reset forgets all except what the chain was given when it was made.
func (c *chain) reset() {
	c.unwatch()
	*c = chain{job: c.job, turn: c.turn}
}

// wakes returns when the chain has its next work.
func (c *chain) wakes(now moment) time.Time { return now.ahead(c.at, c.straysAt, c.elsewhereAt) }

// chains is what the jobs of this host run after, by their configurations in force. A chain reads the registry only for
// other jobs.
type chains struct {
	mu    sync.Mutex
	after map[string][]string
}

func (c *chains) set(job string, after []jobconfig.After) {
	names := make([]string, len(after))
	for k, a := range after {
		names[k] = a.Job
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.after[job] = names
}

func (c *chains) forget(job string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.after, job)
}

// of returns the jobs that a job runs after; ok is false if no loop of this host has the job's configuration.
func (c *chains) of(job string) (after []string, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	after, ok = c.after[job]
	return after, ok
}

// set takes the jobs before this one from the configuration, and reports whether they have changed. This job leaves those
// that are no longer among them.
func (c *chain) set(after []jobconfig.After) (changed bool) {
	j := c.job
	j.term.chains.set(j.name, after)
	if slices.Equal(c.after, after) {
		return false
	}
	for _, a := range c.after {
		if !slices.ContainsFunc(after, func(b jobconfig.After) bool { return a.Job == b.Job }) {
			if err := coordination.Unfollow(j.work, j.member.Registry, j.layoutOf(a.Job), j.name); err != nil {
				j.log.Warn("this job could not leave the chain of a job before it; that job's leader will notice", zap.String("before", a.Job), zap.Error(err))
			}
		}
	}
	c.after, c.err, c.checkedFor, c.listed, c.found, c.unmet, c.news = after, nil, "", false, nil, make(map[string]bool), true
	return true
}

// watch watches the jobs before this one, and, if others run after this job, the ends of its fires.
func (c *chain) watch(now moment) {
	j := c.job
	var want []registry.Query
	for _, a := range c.after {
		l := j.layoutOf(a.Job)
		want = append(want, registry.Data(l.Config()), registry.Data(l.Ends()))
	}
	if len(c.after) > 0 {
		want = append(want, registry.Data(j.member.Layout.Chained()))
	}
	if j.member.Followed() {
		want = append(want, registry.Data(j.member.Layout.Ends()))
	}
	if slices.Equal(want, c.watched) {
		return
	}
	c.unwatch()
	if len(want) == 0 {
		return
	}
	if err := c.feed.open(j.work, j.member.Registry, want...); err != nil {
		j.failed(now, "watching the jobs before and after", err)
		return
	}
	c.watched = want
}

// unwatch ends that watch.
func (c *chain) unwatch() {
	c.feed.close()
	c.watched, c.seen = nil, nil
}

// observe takes a snapshot of that watch.
func (c *chain) observe(s registry.Snapshot) {
	j := c.job
	c.seen, c.news = s.Raise(j.term.registry.Base()), true
	if n, watched := c.seen[registry.Data(j.member.Layout.Ends())]; watched {
		j.member.SeeEnds(n)
	}
	c.seeChained(c.seen.Data(j.member.Layout.Chained()))
}

// seeChained takes the node chained, unless a newer version is known.
func (c *chain) seeChained(n registry.Node) {
	if n.Exists && n.Mzxid >= c.chainedAt {
		c.chained, c.chainedAt = tree.ParseChained(n.Data, n.Mzxid), n.Mzxid
	}
}

// rootOf returns the trigger that started the chain of fires which led to this job's fire; 0 if no trigger did. It reads
// a round from the registry that is newer than those this host knows.
func (c *chain) rootOf(now moment, id tree.Fire) int64 {
	j := c.job
	if id.Trigger == 0 || len(c.after) == 0 {
		return 0
	}
	if id.Trigger > c.chainedAt && j.member.Followed() {
		nodes, err := j.member.Registry.Read(j.work, registry.Data(j.member.Layout.Chained()))
		if err != nil {
			j.failed(now, "reading the trigger that caused this one", err)
			return 0
		}
		c.seeChained(nodes[0])
	}
	return c.chained.RootOf(id.Trigger)
}

// enter checks the chain, and enters this job as a follower of the jobs before it.
func (c *chain) enter(now moment, again bool) {
	j := c.job
	var key []string
	for _, a := range c.after {
		key = append(key, fmt.Sprint(c.seen.Data(j.layoutOf(a.Job).Config()).Mzxid))
	}
	if len(c.after) == 0 || (c.checkedFor == strings.Join(key, " ") && (c.err == nil || !again)) {
		c.follow(now)
		return
	}
	var missing []string // by the newest snapshot: some may have come since
	for _, a := range c.after {
		if !c.seen.Data(j.layoutOf(a.Job).Config()).Exists {
			missing = append(missing, a.Job)
		}
	}
	if slices.ContainsFunc(missing, j.term.joining) {
		c.at = now.Add(chainPause) // the next snapshot shows it, unless it cannot join
		return
	}
	known := func(job string) ([]string, bool) {
		after, ok := j.term.chains.of(job)
		return after, ok && !slices.Contains(missing, job)
	}
	err := coordination.CheckChain(j.work, j.member.Registry, j.member.Layout, c.after, known)
	var refused *coordination.ChainError
	if err != nil && !errors.As(err, &refused) {
		j.failed(now, "reading the jobs before", err)
		c.news = true
		return
	}
	c.checkedFor = strings.Join(key, " ")
	if refused != nil && (c.err == nil || c.err.Error() != refused.Error()) {
		j.log.Error("the jobs before cannot be followed", zap.Error(refused))
		j.Emit(event.Event{Kind: event.JobError}.Why(reason.Of(refused)))
	}
	if c.err = nil; refused != nil {
		c.err, c.at = refused, now.Add(chainPause)
	}
	c.follow(now)
}

// follow enters this job as a follower of those jobs before it that do not know it yet, when it is this job's turn. If
// several jobs with the same jobs before them tried at once, all but one would meet a conflict.
func (c *chain) follow(now moment) {
	j := c.job
	var causes []tree.Layout
	for _, a := range c.after {
		if l := j.layoutOf(a.Job); c.err == nil && !slices.Contains(tree.ParseEnds(c.seen.Data(l.Ends()).Data).Followers, j.name) {
			causes = append(causes, l)
		}
	}
	wants := len(causes) > 0
	if c.waits = wants && !c.turn.enter(); c.waits {
		return // it is nudged
	}
	defer c.turn.leave()
	if !wants {
		return
	}
	err := coordination.Follow(j.work, j.member.Registry, j.name, causes...)
	var refused *coordination.ChainError
	if errors.As(err, &refused) {
		c.checkedFor = "" // it was removed just now: the next snapshot says so
	} else if err != nil {
		j.failed(now, "following "+words.Some(layoutNames(causes), ", "), err)
		c.news = true
	}
}

func layoutNames(list []tree.Layout) []string {
	names := make([]string, len(list))
	for k, l := range list {
		names[k] = l.Job
	}
	return names
}

// instants returns the fires of the jobs before that ended with the required outcome. first is true for the first call
// since the jobs before changed.
func (c *chain) instants(now moment) (f due.Following, first bool) {
	var before []due.Before
	for _, a := range c.after {
		before = append(before, due.Before{After: a, Ends: tree.ParseEnds(c.seen.Data(c.job.layoutOf(a.Job).Ends()).Data)})
	}
	f = due.Follow(now.wall, before)
	for n, s := range f.Starts {
		if s.Due.After(now.wall) { // the clock of who wrote it is ahead of this one
			f.Starts[n].Due = now.wall
		}
	}
	first = !c.listed
	c.listed = true
	if !f.At.IsZero() {
		c.at = soonest(c.at, now.Add(f.At.Sub(now.wall)))
	}
	return f, first
}

// skipped is a fire of which no item begins, and the reason.
type skipped struct {
	id    tree.Fire
	cause event.SkipCause
	why   reason.Reason
}

// unmetOf are fires of the jobs before after which this one does not run and that this host has not found before, if it has items. Of the
// first ones that it finds, and of items that it is given later, dues.reportUnmet says it.
func (c *chain) unmetOf(unmet []due.Unmet, first bool, items *items) (report []skipped) {
	c.found = unmet
	_, held := items.begunUntil()
	for _, u := range unmet {
		id := u.Fire
		id.Source = string(abi.SourceSchedule)
		if id.Trigger != 0 {
			id.Source = string(abi.SourceTrigger)
		}
		key := id.ID()
		if c.unmet[key] {
			continue
		}
		c.unmet[key] = true
		if held && !first {
			report = append(report, skipped{id, causeOf(u), u.Reason})
		}
	}
	return report
}

// causeOf returns the cause of an event for a fire after which the job does not run.
func causeOf(u due.Unmet) event.SkipCause {
	if u.Late {
		return event.SkipLate
	}
	return event.SkipUnmet
}

// trigger triggers this job after triggers of the jobs before it, if this host is the leader. It returns the triggers
// that this job does not run for.
func (c *chain) trigger(now moment, rounds []due.Caused) (report []skipped) {
	j := c.job
	for _, r := range rounds {
		if c.chained.Has(r.Root) || !j.member.View.Leading() {
			continue
		}
		if _, own := j.member.Ends().Find(tree.Fire{Trigger: r.Root}); own { // the chain began with a trigger of this job
			continue
		}
		var by []string
		for _, a := range c.after {
			by = append(by, a.Job)
		}
		why, err := operate.TriggerAfter(j.work, j.member.Registry, j.member.Layout, tree.ChainedRound{Root: r.Root, By: strings.Join(by, " ")})
		switch {
		case errors.Is(err, operate.ErrTriggerWaits):
			c.at = soonest(c.at, now.Add(time.Second))
		case errors.Is(err, tree.ErrRemoved):
		case err != nil:
			j.failed(now, "triggering the job after others", err)
			c.news = true
			return report
		case why != "":
			report = append(report, skipped{tree.Fire{Instant: r.At.UnixMilli(), Trigger: r.Root, Source: string(abi.SourceTrigger)}, event.SkipDisabled, reason.Free(why)})
		}
	}
	return report
}

// settle notes the ends of items of this host that do not run in a fire that others have ended. passed reports whether this host
// has had a fire.
func (c *chain) settle(now moment, items *items, passed func(tree.Fire) bool) {
	j := c.job
	if !j.member.Followed() {
		return
	}
	open := j.member.Ends().Open()
	records, err := c.readElsewhere(now, open, items)
	if err != nil {
		j.failed(now, "reading the outcomes of runs on other hosts", err)
		return
	}
	var begun, settled []tree.Settled
	for _, e := range open {
		id := e.Fire()
		known := e.Known()
		s := tree.Settled{Fire: id, Root: e.Root, Total: j.counts().TotalOf(id, 0)}
		for _, it := range items.sorted(func(it *item) bool {
			return it.owned && !known.Contains(it.number) && !j.beyond(it) && it.number < s.Total
		}) {
			one := tree.Ranges{{From: it.number, To: it.number}}
			record := it.state.Record
			if state, read := records[it.number]; read {
				record = state.Record
			}
			switch c.fateIn(now, it, e, record, passed) {
			case fateOpen:
				continue
			case fateFailed:
				s.Failed = s.Failed.With(one)
			case fateIdle:
				s.Idle = s.Idle.With(one)
			case fateOK:
				s.OK = s.OK.With(one)
			}
			if it.run != nil {
				s.Running = s.Running.With(one)
				begun = append(begun, c.unnoted(now, it, id)...)
			}
		}
		if len(s.OK)+len(s.Failed)+len(s.Idle) > 0 {
			settled = append(settled, s)
		}
	}
	if len(settled) == 0 {
		return
	}
	if _, err := j.member.SettleItems(j.work, now.wall, slices.Concat(begun, settled)...); err != nil {
		j.failed(now, "recording the end of a fire", err)
	}
}

// unnoted returns the fire that an item of this host runs for, if that fire is not recorded yet because none of its items
// has ended. A later fire that skips this item may end first, and after that no earlier fire is recorded.
func (c *chain) unnoted(now moment, it *item, later tree.Fire) []tree.Settled {
	id := it.run.Fire().ID
	if _, noted := c.job.member.Ends().Find(id); noted || (id.Trigger == 0) != (later.Trigger == 0) {
		return nil
	}
	return []tree.Settled{{Fire: id, Root: c.rootOf(now, id), Total: c.job.counts().TotalOf(id, 0)}}
}

// readElsewhere reads the records of items of this host that another one runs, or has run when it was gone: the
// commit that closes such a run need not be a completion.
func (c *chain) readElsewhere(now moment, open []tree.End, items *items) (map[int]coordination.ItemState, error) {
	j := c.job
	var numbers tree.Items
	for _, e := range open {
		known := e.Known()
		for _, it := range items.sorted(func(it *item) bool {
			return it.owned && it.run == nil && it.state.Record.Open() && !known.Contains(it.number)
		}) {
			if !numbers.Contains(it.number) {
				numbers = append(numbers, it.number)
				slices.Sort(numbers)
			}
		}
	}
	if len(numbers) == 0 {
		c.elsewhereAt = time.Time{}
		return nil, nil
	}
	if c.elsewhereAt.IsZero() || now.Before(c.elsewhereAt) {
		if c.elsewhereAt.IsZero() {
			c.elsewhereAt = now.Add(settleGrace)
		}
		return nil, nil
	}
	c.elsewhereAt = now.Add(settleGrace)
	return coordination.ReadItems(j.work, j.member.Registry, j.member.Layout, numbers)
}

// fate says whether an item still runs in a fire for which it has not recorded its end.
type fate uint8

const (
	fateOpen   fate = iota // it may run, or runs
	fateFailed             // it does not
	fateIdle               // nor then, because it is disabled
	fateOK
)

// fateIn decides the fate of an item. It waits while this host may simply not have heard of the fire yet.
func (c *chain) fateIn(now moment, it *item, e tree.End, r tree.Record, passed func(tree.Fire) bool) fate {
	j := c.job
	id := e.Fire()
	if it.run != nil {
		runs := it.run.Fire().ID
		newer := (id.Trigger != 0 && runs.Trigger > id.Trigger) || (id.Trigger == 0 && runs.Trigger == 0 && runs.Instant > id.Instant)
		switch {
		case newer:
			return fateFailed
		case runs.Same(id) || it.Next() != nil:
			return fateOpen
		}
	} else if it.Next() != nil || r.Open() {
		return fateOpen
	}
	if r.Accepts(id) != nil && it.run == nil {
		if r.IsOf(id) && tree.IsOK(r.Outcome) {
			return fateOK
		}
		return fateFailed
	}
	since := e.First + settleGrace.Milliseconds()
	if !passed(id) && now.wall.UnixMilli() < since {
		c.at = soonest(c.at, now.Add(time.Duration(since-now.wall.UnixMilli())*time.Millisecond))
		return fateOpen
	}
	if it.state.Disabled || !j.member.View.Enabled {
		return fateIdle
	}
	return fateFailed
}

// straysInterval is how often the leader looks for followers that no longer run after this job.
const straysInterval = 10 * time.Minute

// dropStrays removes followers that no longer run after this job, or were removed, if this host is the leader.
func (c *chain) dropStrays(now moment) {
	j := c.job
	followers := j.member.Ends().Followers
	if !j.member.Followed() || !j.member.View.Leading() || now.Before(c.straysAt) || len(followers) == 0 {
		return
	}
	c.straysAt = now.Add(straysInterval)
	strays, err := coordination.Strays(j.work, j.member.Registry, j.member.Layout, followers)
	if err == nil && len(strays) > 0 {
		err = coordination.Unfollow(j.work, j.member.Registry, j.member.Layout, strays...)
	}
	if err != nil {
		j.setback(now, "looking for jobs that no longer come after this one", err)
	}
}

// followChain does this host's work for the jobs before and after this one.
func (j *job) followChain(now moment) {
	c := &j.chain
	c.watch(now)
	again := !c.at.IsZero() && !now.Before(c.at)
	if leads := j.member.View.Leading(); leads != c.led {
		c.led, c.news = leads, true
	}
	if c.seen == nil || j.rests(now) {
		return
	}
	if again {
		c.at = time.Time{}
	}
	if c.news || again {
		c.news = false
		c.enter(now, again)
		j.listInstants(now)
	} else if c.waits {
		c.follow(now)
	}
	if j.knowsShare() {
		c.settle(now, j.items, j.passed)
	}
	c.dropStrays(now)
}

// listInstants makes the fires of the jobs before into this job's schedule, and triggers this job after their triggers.
func (j *job) listInstants(now moment) {
	if len(j.chain.after) == 0 {
		return
	}
	f, first := j.chain.instants(now)
	if list := due.NewListed(f.Starts); !j.calendar.Extend(list) {
		j.calendar.Arm(now.wall)
		var owned []int
		for _, it := range j.items.sorted(func(it *item) bool { return it.owned }) {
			owned = append(owned, it.number)
		}
		j.dues.makeUp(now, owned)
	}
	if first {
		j.dues.reportUnmet(j.items.sorted(func(it *item) bool { return it.owned }), f.Unmet)
	}
	for _, s := range j.chain.unmetOf(f.Unmet, first, j.items) {
		j.skipFire(s.id, s.cause, s.why)
	}
	for _, s := range j.chain.trigger(now, f.Rounds) {
		j.skipFire(s.id, s.cause, s.why)
	}
}

// passed reports whether this host has already handled a fire: an item that neither runs in it nor owes it will not run
// in it.
func (j *job) passed(id tree.Fire) bool {
	if id.Trigger != 0 {
		return j.trigger.consumed >= id.Trigger && j.member.View.Trigger == 0
	}
	at := id.Time()
	return j.calendar.After(at.Add(-time.Millisecond)).Equal(at) && j.calendar.Parked.IsZero() && (j.calendar.Next.IsZero() || j.calendar.Next.After(at))
}
