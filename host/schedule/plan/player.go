package plan

import (
	"cmp"
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/coordination/tree"
	"github.com/wasmjob/wasmjob/host/schedule/due"
	"github.com/wasmjob/wasmjob/internal/slots"
)

// player simulates jobs that affect each other.
type player struct {
	o      Options
	now    time.Duration // since Options.From
	queue  events
	jobs   []*playing
	limits map[string]*limit
	// granted are runs that have a slot and have not started. ended are items whose runs have just ended: as in
	// the engine, items of a job that end together begin their next fires together, by number.
	granted, ended []place
	minutes        minutes
	starts         *atomic.Int64
}

// place is an item of a job.
type place struct {
	job  *playing
	item int
}

// playing is a job that is being played.
type playing struct {
	*Job
	out      *Outcome
	skipped  map[Reason]int
	calendar due.Calendar
	spread   bool // the schedule puts starts off
	items    []item
	// weight is how many identical items each of items stands for.
	weight int
	// paused is set when a policy has paused the job; pausing when one is about to: items that begin at the
	// same moment still begin.
	paused, pausing bool
	// accounts are by host; nil if slots and places are enough.
	accounts []*slots.Account
	chain    *chain // nil if no job comes after this one, and this one after none
	order    int32
}

// item is an item that is being played.
type item struct {
	due.Owed
	runs, failures int // begins, and failures in a row
	busy           bool
	instant        int64 // of its run, in Unix milliseconds
	asked          time.Duration
	begun          time.Duration
	ending         uint32 // counts runs, to ignore the end of an earlier one
	hold           *slots.Hold
	leave          func()
	started        bool
	run            Run
	permit         *limit
	waits          bool // for a limit
	waitsSince     time.Duration
	turn           int // order of waiting
}

// limit is a limit of the namespace. Jobs queue for their items, as hosts do: the next item of a job is chosen
// when it is the job's turn.
type limit struct {
	key         string
	used, turns int
	line        []*playing
	engaged     map[*playing]int // items that run under it or wait for it
}

// free reports whether one more item may run: the smallest maximum of the jobs that run or wait applies.
func (l *limit) free() bool {
	for j := range l.engaged {
		if l.used >= j.Most {
			return false
		}
	}
	return true
}

// engage adds by to the count of a job's items that run under the limit or wait for it.
func (l *limit) engage(j *playing, by int) {
	if l.engaged[j] += by; l.engaged[j] == 0 {
		delete(l.engaged, j)
	}
}

func newPlayer(o Options, jobs []Job, part []int, outcomes []Outcome, m minutes, starts *atomic.Int64) *player {
	p := &player{o: o, limits: make(map[string]*limit), minutes: m, starts: starts}
	named := make(map[string]*playing)
	hosts := make([]*slots.Slots, max(o.Hosts, 1))
	for n := range hosts {
		if o.Slots > 0 {
			hosts[n] = slots.New(o.Slots)
		}
	}
	for order, n := range part {
		j := &playing{Job: &jobs[n], out: &outcomes[n], skipped: make(map[Reason]int), weight: 1, order: int32(order)}
		named[j.Name] = j
		p.jobs = append(p.jobs, j)
		for _, key := range j.Limits {
			if p.limits[key] == nil {
				p.limits[key] = &limit{key: key, engaged: make(map[*playing]int)}
			}
		}
		p.account(j, hosts)
		j.weight = j.Job.weight(o)
		j.items = make([]item, j.Items/max(j.weight, 1))
	}
	for _, j := range p.jobs {
		p.follows(j, named)
	}
	for _, j := range p.jobs {
		if j.Schedule == nil || len(j.items) == 0 || j.chain.follows() {
			continue
		}
		j.calendar.Schedule = j.Schedule
		if s, is := j.Schedule.(due.Spread); is && s.Jitter() > 0 {
			j.spread = true
		}
		j.calendar.Next = j.calendar.After(o.From.Add(-time.Millisecond)) // an earlier one may still be delayed, and is not in the range
		p.arm(j)
		p.exclude(j)
	}
	return p
}

// account opens the accounts of a job if its items may have to wait for slots or for each other.
func (p *player) account(j *playing, hosts []*slots.Slots) {
	for host, crowded := range j.crowded(p.o) {
		if !crowded {
			continue
		}
		if j.accounts == nil {
			j.accounts = make([]*slots.Account, len(hosts))
		}
		on := hosts[host]
		if on == nil {
			on = slots.New(j.Items)
		}
		j.accounts[host] = on.Account(j.Group, max(p.o.Slots, j.Items))
		j.accounts[host].Prioritize(cmp.Or(j.Priority, slots.DefaultPriority))
	}
}

// exclude counts the instants that calendars exclude.
func (p *player) exclude(j *playing) {
	s, is := j.Schedule.(due.Excluding)
	if !is {
		return
	}
	for at := s.NextExcluded(p.o.From.Add(-time.Millisecond)); !at.IsZero() && at.Before(p.o.To); at = s.NextExcluded(at) {
		j.skipped[Excluded] += j.Items
	}
}

// at converts a simulated time.
func (p *player) at(d time.Duration) time.Time { return p.o.From.Add(d) }

// arm schedules the next instant of a job.
func (p *player) arm(j *playing) {
	if comes := j.calendar.DueAt(); !comes.IsZero() && comes.Before(p.o.To) {
		p.queue.push(occurrence{at: comes.Sub(p.o.From), kind: comesDue, job: j.order})
	}
}

// play simulates to the end: until every run that began in the range has ended.
func (p *player) play(ctx context.Context) error {
	for n := 0; len(p.queue) > 0; n++ {
		if n%4096 == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		e := p.queue.pop()
		if e.kind != ends || e.at != p.now {
			p.settleDown()
		}
		p.now = e.at
		j := p.jobs[e.job]
		switch e.kind {
		case ends:
			if it := &j.items[e.item]; it.busy && it.ending == e.ending {
				p.end(j, int(e.item), it.run.Failed, false)
				p.idle(j, int(e.item))
			}
		case follows:
			p.follow(j)
		case comesDue:
			p.take(j)
		}
		if p.starts.Load() > p.o.MostStarts {
			return p.o.tooMany(j.Name, p.at(p.now))
		}
		p.start()
		p.review(j)
		if len(p.queue) == 0 {
			p.settleDown()
		}
	}
	for _, j := range p.jobs {
		for n := range j.items {
			for _, f := range j.items[n].Waiting() { // it was paused before these could begin
				p.skip(j, n, f.Instant, Paused)
			}
		}
		j.out.Skipped = j.skipped
		for _, a := range j.accounts {
			if a != nil {
				a.Close()
			}
		}
	}
	return nil
}

// take takes the instants of a job that are due.
func (p *player) take(j *playing) {
	at := j.calendar.Next
	if !j.spread {
		j.calendar.Arm(at)
		p.arm(j)
		p.arrive(j, at)
		return
	}
	first := at
	at, _ = j.calendar.Take(p.at(p.now), first.Add(-time.Millisecond), true)
	p.arm(j)
	for ; first.Before(at); first = j.Schedule.Next(first) {
		p.merge(j, first)
	}
	p.arrive(j, at)
}

// merge handles an instant that comes due together with a newer one.
func (p *player) merge(j *playing, at time.Time) {
	if j.Policies.Queues() {
		p.arrive(j, at)
		return
	}
	p.comes(j, at)
	for n := range j.items {
		p.lose(j, n, at.UnixMilli(), Superseded)
	}
}

func (p *player) comes(j *playing, at time.Time) {
	j.out.Fires++
	p.starts.Add(int64(len(j.items)))
	if j.Record {
		j.out.Instants = append(j.out.Instants, at)
	}
}

// arrive begins the items of a job for an instant, or not.
func (p *player) arrive(j *playing, at time.Time) {
	p.comes(j, at)
	id := tree.Fire{Instant: at.UnixMilli(), Source: string(abi.SourceSchedule)}
	stops, _ := j.Policies.Stops()
	paused := j.paused
	var stopped []int
	for n := range j.items {
		if paused {
			p.skip(j, n, id.Instant, Paused)
			continue
		}
		it := &j.items[n]
		busy := it.busy
		fate, gone := j.Policies.Arrive(&it.Owed, id, busy)
		for _, was := range gone {
			p.lose(j, n, was.Instant, Superseded)
		}
		if busy {
			j.out.Overlaps += j.weight
			if j.out.FirstOverlap.IsZero() {
				j.out.FirstOverlap = at
			}
		}
		switch fate {
		case due.Begins:
			p.begin(j, n, id)
		case due.Dropped:
			p.lose(j, n, id.Instant, Overlap)
		case due.Crowded:
			p.lose(j, n, id.Instant, QueueFull)
		}
		if busy && stops {
			stopped = append(stopped, n)
		}
	}
	j.paused = j.paused || j.pausing
	p.stop(j, stopped)
}

// stop stops runs in favour of the next ones, which begin when all have ended.
func (p *player) stop(j *playing, items []int) {
	for _, n := range items { // a waiting item must not get a slot that another one gives back
		if it := &j.items[n]; it.leave != nil {
			it.leave()
		}
	}
	for _, n := range items {
		p.end(j, n, false, true)
		p.idle(j, n)
	}
}

// begin begins an idle item for a new instant.
func (p *player) begin(j *playing, n int, id tree.Fire) {
	it := &j.items[n]
	if j.Policies.Done(id, it.runs) {
		j.pausing = true
		p.lose(j, n, id.Instant, Paused)
		return
	}
	if j.Policies.Late(id, p.behind(j, id.Instant)) {
		p.lose(j, n, id.Instant, Late)
		return
	}
	if j.Limits != nil && it.permit == nil {
		l := p.limits[j.Limits[n]]
		if !it.waits {
			l.engage(j, 1)
		}
		if l.free() && len(l.line) == 0 {
			l.used++
			it.permit = l
		} else {
			if !it.waits {
				l.turns++
				it.waits, it.waitsSince, it.turn = true, p.now, l.turns
				l.line = append(l.line, j)
			}
			j.Policies.Owe(&it.Owed, id)
			return
		}
	}
	it.runs++
	it.busy, it.started, it.instant, it.asked = true, false, id.Instant, p.now
	if j.Note != nil {
		j.Note(Note{What: Begin, Item: n, Instant: id.Time(), At: p.at(p.now)})
	}
	if j.accounts == nil || j.accounts[j.host(n)] == nil {
		p.granted = append(p.granted, place{j, n})
		return
	}
	it.hold = &slots.Hold{Account: j.accounts[j.host(n)]}
	it.leave = it.hold.Ask(j.MaxConcurrency, id.Instant, func() { p.granted = append(p.granted, place{j, n}) })
}

// behind is how much later than it is due an instant starts now.
func (p *player) behind(j *playing, instant int64) time.Duration {
	at := time.UnixMilli(instant)
	delay := j.calendar.Delay(at)
	if j.chain.follows() {
		delay = j.chain.delays[instant]
	}
	return p.at(p.now).Sub(at) - delay
}

// start starts the runs that have been given a slot.
func (p *player) start() {
	for len(p.granted) > 0 {
		list := p.granted
		p.granted = nil
		for _, g := range list {
			p.startRun(g.job, g.item)
		}
	}
}

func (p *player) startRun(j *playing, n int) {
	it := &j.items[n]
	if !it.busy || it.started {
		return // it was stopped meanwhile
	}
	at := time.UnixMilli(it.instant)
	if j.Policies.Late(tree.Fire{Instant: it.instant}, p.behind(j, it.instant)) {
		p.skip(j, n, it.instant, Late)
		p.settle(j, n, it.instant, false)
		p.idle(j, n)
		return
	}
	if waited := p.now - it.asked; waited > 0 {
		j.out.SlotWaits += j.weight
		j.out.LongestSlotWait = max(j.out.LongestSlotWait, waited)
	}
	it.started, it.begun = true, p.now
	it.run = j.Takes(n, at)
	it.ending++
	takes := max(it.run.Lag, 0) + max(it.run.Takes, 0)
	j.out.Runs += j.weight
	if j.Note != nil {
		j.Note(Note{What: Start, Item: n, Instant: at, At: p.at(p.now + max(it.run.Lag, 0))})
	}
	j.out.LatestStart = max(j.out.LatestStart, p.behind(j, it.instant)+max(it.run.Lag, 0))
	p.queue.push(occurrence{at: p.now + takes, kind: ends, job: j.order, item: int32(n), ending: it.ending})
}

// end ends a run, or one that waits for a slot. cancelled says that it was stopped for the next one.
func (p *player) end(j *playing, n int, failed, cancelled bool) {
	it := &j.items[n]
	if it.started {
		took := p.now - it.begun
		j.out.LongestRun = max(j.out.LongestRun, took)
		j.out.RunsTook += took * time.Duration(j.weight)
		p.minutes.run(it.begun+max(min(it.run.Lag, took), 0), p.now, j.weight)
	} else { // it did not get as far as its guest
		p.lose(j, n, it.instant, Superseded)
		return
	}
	switch {
	case cancelled:
	case failed:
		j.out.Failed += j.weight
		it.failures++
		if j.PauseAfterFailures > 0 && it.failures >= j.PauseAfterFailures {
			j.paused = true
		}
	default:
		it.failures = 0
	}
	if j.Note != nil {
		j.Note(Note{What: End, Item: n, Instant: time.UnixMilli(it.instant), At: p.at(p.now), Failed: failed, Stopped: cancelled})
	}
	p.settle(j, n, it.instant, !failed && !cancelled)
}

// settleDown begins the next fires of items whose runs have ended, until none can begin now.
func (p *player) settleDown() {
	for len(p.ended) > 0 {
		list := p.ended
		p.ended = nil
		slices.SortFunc(list, func(a, b place) int {
			return cmp.Or(cmp.Compare(a.job.order, b.job.order), cmp.Compare(a.item, b.item))
		})
		for _, e := range list {
			p.next(e.job, e.item)
		}
		for _, e := range list {
			e.job.paused = e.job.paused || e.job.pausing
		}
		p.start()
		for _, e := range list {
			p.review(e.job)
		}
	}
}

// idle returns the slot and permit of an item's run.
func (p *player) idle(j *playing, n int) {
	it := &j.items[n]
	it.busy, it.started = false, false
	it.ending++
	if it.hold != nil {
		it.leave()
		it.hold.End()
		it.hold, it.leave = nil, nil
	}
	p.release(j, it)
	if it.Next() != nil {
		p.ended = append(p.ended, place{j, n})
	}
}

// next begins the next fire of an idle item.
func (p *player) next(j *playing, n int) {
	it := &j.items[n]
	for id := it.Next(); id != nil && !it.busy && !it.waits && !j.paused; id = it.Next() {
		fire := *id
		it.Answered(fire)
		p.begin(j, n, fire)
	}
}

// release gives an item's permit to the next in line.
func (p *player) release(j *playing, it *item) {
	l := it.permit
	if l == nil {
		return
	}
	it.permit = nil
	l.used--
	l.engage(j, -1)
	for len(l.line) > 0 && l.free() {
		next := l.line[0]
		l.line = l.line[1:]
		for n := l.first(next); n >= 0; n = l.first(next) {
			if p.permit(next, n, l) {
				break
			}
		}
	}
}

// first returns the item of a job that has waited longest for the limit; -1 if none waits.
func (l *limit) first(j *playing) int {
	first := -1
	for n := range j.items {
		if it := &j.items[n]; it.waits && j.Limits[n] == l.key && (first < 0 || it.turn < j.items[first].turn) {
			first = n
		}
	}
	return first
}

// permit gives an item a permit. It returns false if the item has nothing to run any more.
func (p *player) permit(j *playing, n int, l *limit) bool {
	it := &j.items[n]
	l.used++
	it.permit, it.waits = l, false
	p.next(j, n)
	if !it.busy {
		it.permit = nil
		l.used--
		l.engage(j, -1)
		return false
	}
	j.out.PermitWaits++
	j.out.LongestPermit = max(j.out.LongestPermit, p.now-it.waitsSince)
	return true
}

// lose counts an instant of an item that does not run.
func (p *player) lose(j *playing, n int, instant int64, why Reason) {
	p.skip(j, n, instant, why)
	if why != Paused { // a paused job triggers nothing
		p.drop(j, n, instant)
	}
}

func (p *player) skip(j *playing, n int, instant int64, why Reason) {
	j.skipped[why] += j.weight
	if j.Note != nil {
		j.Note(Note{What: Skip, Item: n, Instant: time.UnixMilli(instant), At: p.at(p.now), Reason: why})
	}
	if at := time.UnixMilli(instant); j.out.FirstSkip.IsZero() || at.Before(j.out.FirstSkip) {
		j.out.FirstSkip = at
	}
}

// kind orders simultaneous events, lowest first: a run that ends at the instant of the next one has ended
// before it.
type kind uint8

const (
	ends kind = iota
	follows
	comesDue
)

// occurrence is something that happens at a time.
type occurrence struct {
	at        time.Duration
	job, item int32
	ending    uint32
	kind      kind
}

func (a *occurrence) before(b *occurrence) bool {
	if a.at != b.at {
		return a.at < b.at
	}
	if a.kind != b.kind {
		return a.kind < b.kind
	}
	if a.job != b.job {
		return a.job < b.job
	}
	return a.item < b.item
}

// events is a heap of occurrences, the next one first. It does not use container/heap, which allocates for
// each.
type events []occurrence

func (q *events) push(e occurrence) {
	list := append(*q, e)
	at := len(list) - 1
	for at > 0 {
		parent := (at - 1) / 2
		if !list[at].before(&list[parent]) {
			break
		}
		list[at], list[parent] = list[parent], list[at]
		at = parent
	}
	*q = list
}

func (q *events) pop() occurrence {
	list := *q
	first, last := list[0], len(list)-1
	list[0] = list[last]
	list = list[:last]
	for at := 0; ; {
		child := 2*at + 1
		if child >= last {
			break
		}
		if child+1 < last && list[child+1].before(&list[child]) {
			child++
		}
		if !list[child].before(&list[at]) {
			break
		}
		list[at], list[child] = list[child], list[at]
		at = child
	}
	*q = list
	return first
}
