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

// Jobs that come after other jobs. coordination/chain.go has the protocol.
//
// A job that comes after others has no clock: its schedule is a list of the instants of their fires that have ended as is
// demanded, which every host of it finds in their nodes ends. What becomes of such an instant that cannot begin when it
// comes is up to the job's policies, as with every schedule. A job that others come after notes the ends of
// its items as they complete; settleEnds notes those of items that do not run.

const (
	// settleGrace is how long an item may leave open whether it runs in a fire that others have ended.
	settleGrace = 5 * time.Second
	// chainPause is when to look again at a chain that is refused, or that could not be followed.
	chainPause = 30 * time.Second
)

// chain is what the loop knows of the jobs before and after this one. It reaches the registry; what is due, and which items run,
// followChain gives it and takes from it.
type chain struct {
	job   *access
	turn  chainTurn
	after []jobconfig.After // the jobs before, as the configuration in force has them
	err   error             // why they are not followed
	// checkedFor are the transactions of the configurations by which the chain was checked.
	checkedFor string
	watched    []registry.Query
	feed       feed
	seen       registry.Snapshot // nil until the first
	news       bool
	led        bool        // this host led the job when it last looked
	listed     bool        // the calendar has the list
	goes       bool        // a fire of this job goes on or waits, for which another one waits
	awaited    bool        // a trigger of the jobs before waits for this job's leader
	open       bool        // the last fire of the jobs before has ended, and this job's for it has not
	waits      bool        // for its turn to enter itself with those before
	found      []due.Unmet // fires of those before after which the job does not run
	unmet      map[string]bool
	chained    tree.Chained
	chainedAt  int64     // the transaction that wrote it
	at         time.Time // when to look again
	// elsewhereAt is when to read what became of runs on other hosts; zero if there are none.
	elsewhereAt time.Time
	straysAt    time.Time // when to look for followers that are none
}

// chainTurn is the turn of one job of the host to enter itself with those before it. enter reports whether it has come.
type chainTurn struct {
	enter func() bool
	leave func()
}

// reset forgets all but what the chain was given.
func (c *chain) reset() {
	c.unwatch()
	c.job.term.chains.note(c.job.name, false)
	*c = chain{job: c.job, turn: c.turn}
}

// wakes is when the chain has something to do again.
func (c *chain) wakes(now moment) time.Time { return now.ahead(c.at, c.straysAt, c.elsewhereAt) }

// chains is what the jobs of a host come after, by the configurations in force, and of which of them a fire goes on: of these no job
// reads what comes before it from the registry.
type chains struct {
	mu               sync.Mutex
	after, followers map[string][]string
	goes             map[string]bool
}

func newChains() *chains {
	return &chains{after: make(map[string][]string), followers: make(map[string][]string), goes: make(map[string]bool)}
}

func (c *chains) set(job string, after []jobconfig.After) {
	names := make([]string, len(after))
	for k, a := range after {
		names[k] = a.Job
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.unlink(job)
	c.after[job] = names
	for _, before := range names {
		c.followers[before] = append(c.followers[before], job)
	}
}

func (c *chains) forget(job string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.unlink(job)
	delete(c.after, job)
	delete(c.goes, job)
}

// unlink takes a job off those that come after others.
func (c *chains) unlink(job string) {
	for _, before := range c.after[job] {
		rest := slices.DeleteFunc(c.followers[before], func(f string) bool { return f == job })
		if c.followers[before] = rest; len(rest) == 0 {
			delete(c.followers, before)
		}
	}
}

const (
	// lookAhead is how many links behind a job of which a fire goes on others are made ready for theirs.
	lookAhead = 32
	// mostWalked bounds the jobs that are looked at for that.
	mostWalked = 1000
)

// note says whether a fire of a job goes on.
func (c *chains) note(job string, goes bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if goes {
		c.goes[job] = true
	} else {
		delete(c.goes, job)
	}
}

// behind are the jobs that come after a job, and how many links after it each is.
func (c *chains) behind(job string) map[string]int {
	links := make(map[string]int)
	c.mu.Lock()
	defer c.mu.Unlock()
	walk(job, c.followers, func(job string, n int) bool {
		links[job] = n
		return false
	})
	return links
}

// ahead is how many links before a job the nearest one is of which a fire goes on; 0 is the job itself. soon is false if none is near.
func (c *chains) ahead(job string) (links int, soon bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	walk(job, c.after, func(job string, n int) bool {
		links, soon = n, c.goes[job]
		return soon
	})
	return links, soon
}

// walk visits a job and those that it leads to, the nearest first, until visit returns true.
func walk(job string, next map[string][]string, visit func(job string, links int) bool) {
	seen, ring := map[string]bool{job: true}, []string{job}
	for links := 0; links <= lookAhead && len(ring) > 0; links++ {
		var further []string
		for _, at := range ring {
			if visit(at, links) {
				return
			}
			for _, to := range next[at] {
				if !seen[to] && len(seen) < mostWalked {
					seen[to] = true
					further = append(further, to)
				}
			}
		}
		ring = further
	}
}

// of returns what a job comes after; ok is false if no loop of the host has the job's configuration.
func (c *chains) of(job string) (after []string, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	after, ok = c.after[job]
	return after, ok
}

// set takes the jobs before from the configuration, and reports whether they are others than before. Those that are none
// any more are left.
func (c *chain) set(after []jobconfig.After) (changed bool) {
	j := c.job
	j.term.chains.set(j.name, after)
	if slices.Equal(c.after, after) {
		return false
	}
	for _, a := range c.after {
		if !slices.ContainsFunc(after, func(b jobconfig.After) bool { return a.Job == b.Job }) {
			if err := coordination.Unfollow(j.work, j.member.Registry, j.layoutOf(a.Job), j.name); err != nil {
				j.log.Warn("a job before is not left; its leader finds out", zap.String("before", a.Job), zap.Error(err))
			}
		}
	}
	c.after, c.err, c.checkedFor, c.listed, c.found, c.unmet, c.news = after, nil, "", false, nil, make(map[string]bool), true
	return true
}

// watch watches the jobs before, and how fires of this one end if others come after it.
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

// seeChained takes the node chained, unless a newer one is known.
func (c *chain) seeChained(n registry.Node) {
	if n.Exists && n.Mzxid >= c.chainedAt {
		c.chained, c.chainedAt = tree.ParseChained(n.Data, n.Mzxid), n.Mzxid
	}
}

// rootOf is the trigger with which the chain of jobs began that has come to a fire of this one; 0 if none has.
// A round that is newer than what this host knows it looks up.
func (c *chain) rootOf(now moment, id tree.Fire) int64 {
	j := c.job
	if id.Trigger == 0 || len(c.after) == 0 {
		return 0
	}
	if id.Trigger > c.chainedAt && j.member.Followed() {
		nodes, err := j.member.Registry.Read(j.work, registry.Data(j.member.Layout.Chained()))
		if err != nil {
			j.failed(now, "reading which trigger has caused this one", err)
			return 0
		}
		c.seeChained(nodes[0])
	}
	return c.chained.RootOf(id.Trigger)
}

// enter checks the chain and enters this job with those before it.
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
		j.log.Error("the jobs before are not followed", zap.Error(refused))
		j.Emit(event.Event{Kind: event.JobError}.Why(reason.Of(refused)))
	}
	if c.err = nil; refused != nil {
		c.err, c.at = refused, now.Add(chainPause)
	}
	c.follow(now)
}

// follow enters this job with those before it that do not have it, when it is the job's turn: of jobs with the same ones before
// them all but one would have to try again.
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

// instants are those of the fires of the jobs before, as far as they have ended as is demanded. first says that they were
// not asked for since the jobs before are these.
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

// skipped is a fire of which no item begins, and why.
type skipped struct {
	id    tree.Fire
	cause event.SkipCause
	why   reason.Reason
}

// unmetOf are fires of the jobs before after which this one does not run and that this host has not found before, if it has items. Of the
// first ones that it finds, and of items that it is given later, dues.reportUnmet says it.
func (c *chain) unmetOf(unmet []due.Unmet, first bool, items items) (report []skipped) {
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

// causeOf is why a job does not run after others.
func causeOf(u due.Unmet) event.SkipCause {
	if u.Late {
		return event.SkipLate
	}
	return event.SkipUnmet
}

// trigger triggers the job for triggers of those before: the leader does. It returns those that the job does not run for.
func (c *chain) trigger(now moment, rounds []due.Caused) (report []skipped) {
	j := c.job
	defer j.hurry()()
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
func (c *chain) settle(now moment, items items, passed func(tree.Fire) bool) {
	j := c.job
	if !j.member.Followed() {
		return
	}
	open := j.member.Ends().Open()
	records, err := c.readElsewhere(now, open, items)
	if err != nil {
		j.failed(now, "reading how runs on other hosts have ended", err)
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
		j.failed(now, "noting how a fire has ended", err)
	}
}

// unnoted is the fire that an item of this host runs for, if that is not noted because none of its items has ended: a later one,
// which leaves the item out, may end before it, and none is noted that is before one that has.
func (c *chain) unnoted(now moment, it *item, later tree.Fire) []tree.Settled {
	id := it.run.Fire().ID
	if _, noted := c.job.member.Ends().Find(id); noted || (id.Trigger == 0) != (later.Trigger == 0) {
		return nil
	}
	return []tree.Settled{{Fire: id, Root: c.rootOf(now, id), Total: c.job.counts().TotalOf(id, 0)}}
}

// readElsewhere reads the records of items of this host that another one runs, or has run when it was gone: the
// commit that closes such a run need not be a completion.
func (c *chain) readElsewhere(now moment, open []tree.End, items items) (map[int]coordination.ItemState, error) {
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

// fate is what becomes of an item in a fire whose end it has not noted.
type fate uint8

const (
	fateOpen   fate = iota // it may run, or runs
	fateFailed             // it does not
	fateIdle               // nor then, because it is disabled
	fateOK
)

// fateIn decides that. While it may be that this host has only not heard of the fire, it waits.
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

// straysInterval is how often the leader looks for followers that are none any more.
const straysInterval = 10 * time.Minute

// dropStrays takes jobs off the followers that do not come after this one any more, or were removed: the leader does.
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
		j.setback(now, "looking for jobs that do not come after this one any more", err)
	}
}

// followChain does what the jobs before and after demand.
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

// listInstants makes the schedule of the fires of the jobs before, and triggers the job if theirs were triggered.
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
	j.chain.awaited = slices.ContainsFunc(f.Rounds, func(r due.Caused) bool { return !j.chain.chained.Has(r.Root) })
	j.chain.open = j.chain.isOpen(f)
}

// isOpen reports whether this job's fire for the last one of the jobs before has not ended, as far as that is noted.
func (c *chain) isOpen(f due.Following) bool {
	ends := c.job.member.Ends()
	open := func(at time.Time, this func(tree.End) bool) bool {
		return at.UnixMilli() > ends.Since && !slices.ContainsFunc(ends.Fires, func(e tree.End) bool { return this(e) && e.Ended != 0 })
	}
	if n := len(f.Rounds); n > 0 && open(f.Rounds[n-1].At, func(e tree.End) bool { return e.Chain() == f.Rounds[n-1].Root }) {
		return true
	}
	n := len(f.Starts)
	return n > 0 && open(f.Starts[n-1].At, func(e tree.End) bool { return e.Trigger == 0 && e.Instant == f.Starts[n-1].At.UnixMilli() })
}

// noteGoing says to the jobs that come after this one whether a fire of it goes on or waits. Those that are to elect or divide then do so
// before others, so that they have when it has ended.
func (j *job) noteGoing() bool {
	c, v := &j.chain, &j.member.View
	goes := v.Trigger != 0 || c.awaited || !j.calendar.Parked.IsZero()
	if j.member.Followed() {
		// Of the first job of a chain no host knows whether one that died was to run it.
		first := len(c.after) == 0 && len(v.Crashed()) > 0
		goes = goes || first || c.open || j.live > 0 || len(j.member.Ends().Open()) > 0
	}
	if goes = goes && v.Enabled; goes == c.goes {
		return goes
	}
	c.goes = goes
	j.term.chains.note(j.name, goes)
	if goes && j.term.steps.Waits() {
		j.term.hasten(j.term.chains.behind(j.name))
	}
	return goes
}

// passed reports whether this host has had a fire, so that an item that does not run in it, and does not owe it, will not.
func (j *job) passed(id tree.Fire) bool {
	if id.Trigger != 0 {
		return j.trigger.consumed >= id.Trigger && j.member.View.Trigger == 0
	}
	at := id.Time()
	return j.calendar.After(at.Add(-time.Millisecond)).Equal(at) && j.calendar.Parked.IsZero() && (j.calendar.Next.IsZero() || j.calendar.Next.After(at))
}
