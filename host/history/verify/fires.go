package verify

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/coordination/tree"
	"github.com/wasmjob/wasmjob/host/event"
)

// fireID is a scheduled instant in Unix milliseconds, or a trigger round.
type fireID struct{ instant, trigger int64 }

func idOf(instant time.Time, trigger int64) fireID {
	if trigger != 0 {
		return fireID{trigger: trigger}
	}
	return fireID{instant: instant.UnixMilli()}
}

func (id fireID) String() string {
	if id.trigger != 0 {
		return fmt.Sprintf("trigger round %d", id.trigger)
	}
	return time.UnixMilli(id.instant).UTC().Format("2006-01-02T15:04:05.000Z")
}

// fate is the result of an item in a fire. Of two the greater one counts.
type fate uint8

const (
	itemBegun fate = iota + 1
	itemExcused
	itemFinished
)

// fire is a fire that is not yet judged.
type fire struct {
	id      fireID
	instant time.Time
	due     time.Time // when it came up, or was to
	total   int       // items, as far as anybody said; 0: unknown
	fates   map[int]itemFate
	// expected is the line that said it would come; seen is one that is of it.
	expected, seen mark
	// off is set if the line that said it would come said that the job is disabled or paused.
	off       bool
	started   bool
	completed map[int]bool // items, of a job that others come after
	// late is set when it came up, or came up again, long after its instant:
	// others may have had it before.
	late          bool
	skippedByNone mark // skipped by a host that owned nothing
	// answered are the items of which a host has said for good why they do not run.
	answered  map[int]mark
	skippedBy map[*process]bool
	// waits is set while items may still wait for their turn in a round of a backfill; only are its items, nil for all.
	waits bool
	only  tree.Ranges
}

type itemFate struct {
	fate fate
	mark mark // the newest line
	over mark // the line that found the run open, and began the item for another fire
}

func (f *fire) note(item int, what fate, m mark) {
	if f == nil {
		return
	}
	if had := f.fates[item]; had.fate > what {
		return
	}
	f.fates[item] = itemFate{fate: what, mark: m}
}

// span excuses items for a stretch of time.
type span struct {
	items         []int
	from, through time.Time
	mark          mark
	forGood       bool // no other host runs them
}

func (c *Checker) span(j *job, items []int, from, through time.Time, m mark, forGood bool) {
	s := span{slices.Clone(items), from, through, m, forGood}
	j.spans = append(j.spans, s)
	for _, f := range j.order {
		s.excuse(f)
	}
	j.spans = slices.DeleteFunc(j.spans, func(s span) bool { return c.now.Sub(s.mark.time) > completionMemory })
}

func (s span) excuse(f *fire) {
	if f.id.trigger != 0 || f.instant.Before(s.from) || f.instant.After(s.through) {
		return
	}
	if len(s.items) == 0 && f.skippedByNone.kind == "" {
		f.skippedByNone = s.mark
	}
	for _, i := range s.items {
		f.note(i, itemExcused, s.mark)
	}
}

// forGood reports whether a skip of a scheduled instant says that no host runs the item for it.
func forGood(e *event.Event) bool {
	switch e.Cause {
	case event.SkipOverlap, event.SkipQueueFull, event.SkipTooOld, event.SkipLate, event.SkipUnmet:
		return !e.Owed && e.Trigger == 0 && e.Fence == 0
	}
	return false
}

// answered is the line that said for good why the item does not run for the fire; ok is false if there is none.
func (j *job) answered(f *fire, n int) (m mark, ok bool) {
	if m, ok = f.answered[n]; ok {
		return m, true
	}
	for _, s := range j.spans {
		if s.forGood && slices.Contains(s.items, n) && !f.instant.Before(s.from) && !f.instant.After(s.through) {
			return s.mark, true
		}
	}
	return m, false
}

// runsAnyway reports a run of an item of which a host had said for good why it does not run, unless the job has
// changed since, or a clock was ahead: an instant comes again when that is set back.
func (c *Checker) runsAnyway(j *job, f *fire, n int, m mark) {
	if f == nil || f.id.trigger != 0 {
		return
	}
	wrongClock := func(m mark) bool {
		in := c.instances[m.host]
		return in == nil || in.process.wrongClock
	}
	said, ok := j.answered(f, n)
	ahead := said.time.Before(f.instant) || wrongClock(said) || wrongClock(m)
	if ok && !ahead && !j.changed.After(said.time) {
		c.find(Finding{Invariant: Accounted, Class: Violated, Job: j.name, Item: n, RunID: f.runID(j, n),
			Text: "the item ran for " + f.id.String() + ", and a host had said why it would not", Lines: linesOf(said, m)})
	}
}

// fireOf is the fire that an event belongs to; nil if it was judged long ago.
func (c *Checker) fireOf(j *job, e *event.Event, m mark) *fire {
	if e.Instant.IsZero() && e.Trigger == 0 {
		return nil
	}
	f := c.up(j, idOf(e.Instant, e.Trigger), e.Instant)
	if f == nil {
		return nil
	}
	if f.seen.kind == "" {
		f.seen = m
		j.report.Fires++
	}
	return f
}

// up finds a fire, or makes one.
func (c *Checker) up(j *job, id fireID, instant time.Time) *fire {
	if f := j.fires[id]; f != nil {
		return f
	}
	f := &fire{id: id, instant: instant, due: instant, fates: make(map[int]itemFate)}
	if instant.Before(c.now.Add(-c.o.Settle)) {
		f.due, f.late = c.now, true
	}
	j.fires[id] = f
	j.order = append(j.order, f)
	for _, s := range j.spans {
		s.excuse(f)
	}
	if len(j.order) > mostFires {
		delete(j.fires, j.order[0].id)
		j.order = j.order[1:]
	}
	return f
}

// fewer takes note of how many items a job has: who has fewer now does not make
// up for more.
func (j *job) fewer(total int) {
	if total <= 0 || total > tree.MaxItems {
		return
	}
	for _, f := range j.order {
		f.total = min(f.total, total)
	}
	maps.DeleteFunc(j.promises, func(n int, _ *promise) bool { return n >= total })
}

// total is how many items a division was made for.
type total struct {
	at    time.Time
	items int
}

// shared takes note of a division.
func (c *Checker) shared(j *job, e *event.Event) {
	if e.Total <= 0 || e.Total > tree.MaxItems {
		return
	}
	j.fewer(e.Total)
	j.counted(total{e.Time, e.Total}, c.now)
}

// counted keeps the totals in the order of their times.
func (j *job) counted(t total, now time.Time) {
	i := len(j.totals)
	for i > 0 && j.totals[i-1].at.After(t.at) {
		i--
	}
	j.totals = slices.Insert(j.totals, i, t)
	for len(j.totals) > 1 && j.totals[1].at.Before(now.Add(-completionMemory)) {
		j.totals = j.totals[1:]
	}
}

// least is the smallest number of items that the job has had since the time, if
// that is less than n: a host that learns late of a smaller number, and of a greater one
// after it, names only that.
func (j *job) least(since time.Time, n int) int {
	for i, t := range j.totals {
		if last := i == len(j.totals)-1; last || j.totals[i+1].at.After(since) {
			n = min(n, t.items)
		}
	}
	return n
}

// fire takes an event of a whole fire on one host.
func (c *Checker) fire(j *job, p *process, e *event.Event, m mark) {
	c.quiet(j, e.Time)
	j.lastFire, j.quietFrom = m, e.Time
	f := c.fireOf(j, e, m)
	if f == nil {
		return
	}
	if e.Total > 0 && e.Total <= tree.MaxItems && e.Source == abi.SourceSchedule {
		c.countTotal(j, f, e)
	}
	j.accountFor(e, m)
	c.excuse(j, f, p, e, m)
	if !e.Next.IsZero() && e.Source == abi.SourceSchedule && e.Next.After(e.Instant) {
		if next := c.up(j, idOf(e.Next, 0), e.Next); next.expected.kind == "" {
			next.expected, next.off = m, isOff(e)
			next.due = e.Next
			if next.due.Before(e.Time) {
				next.due = e.Time
			}
		}
	}
}

// countTotal takes in how many items the fire has.
func (c *Checker) countTotal(j *job, f *fire, e *event.Event) {
	if !f.late && (f.total == 0 || e.Total < f.total) {
		f.total = j.least(f.due, e.Total)
		// Of an instant after the last division that was reported: of a newer
		// one no host lived to report.
		if n := len(j.totals); n > 0 && j.totals[n-1].items != e.Total && e.Instant.After(j.totals[n-1].at) {
			j.counted(total{e.Time, e.Total}, c.now)
		}
	}
	j.fewer(e.Total)
}

// accountFor notes until when the host has accounted for the job's instants.
func (j *job) accountFor(e *event.Event, m mark) {
	switch through := later(e.Instant, e.Through); {
	case e.Trigger != 0:
	case e.Kind == event.FireStarted:
		if off := later(j.skippedAt, j.disabledAt); e.Instant.After(off) && off.After(j.begunAt) {
			j.resumedAt = e.Time
		}
		j.begunAt = later(j.begunAt, e.Instant)
	case len(e.Items) == 0 && !e.Owed:
		j.skippedAt = later(j.skippedAt, through)
	default:
		if isOff(e) {
			j.disabledAt = later(j.disabledAt, through)
		}
		for _, i := range e.Items {
			if e.Owed {
				j.owe(i, e, m)
			} else {
				j.settled(i, 0, through)
			}
		}
	}
}

// isOff reports whether a host skips a fire because the job is disabled or paused there.
func isOff(e *event.Event) bool {
	return e.Kind == event.FireSkipped && (e.Cause == event.SkipDisabled || e.Cause == event.SkipPaused)
}

// excuse notes the items that have a reason not to run.
func (c *Checker) excuse(j *job, f *fire, p *process, e *event.Event, m mark) {
	switch {
	case e.Kind == event.FireStarted:
		f.started = true
	case !e.Owed && e.Through.IsZero() && !f.skippedBy[p]:
		if f.skippedBy == nil {
			f.skippedBy = make(map[*process]bool)
		}
		f.skippedBy[p] = true
	}
	if e.Cause == event.SkipExcluded { // a calendar of the job excludes the day, for all items: also of hosts that were not there
		c.span(j, nil, e.Instant, later(e.Instant, e.Through), m, false)
	}
	switch {
	case e.Kind == event.FireStarted:
	case !e.Through.IsZero():
		c.span(j, e.Items, e.Instant, e.Through, m, false)
	case len(e.Items) == 0:
		f.skippedByNone = m
	default:
		for _, i := range e.Items {
			f.note(i, itemExcused, m)
		}
	}
}

// judge looks at the fires of which enough time has passed.
func (c *Checker) judge(j *job, now time.Time, last bool) {
	if len(j.order) == 0 || j.activeSince.IsZero() || (!last && !j.trustedBut(nil)) {
		return // no host with a session has the job: none can go on with it
	}
	ready := now.Add(-c.o.Settle)
	from := later(j.activeSince, j.trustedFrom)
	if !last && (from.After(ready) || j.order[0].due.After(ready) || now.Sub(j.judgedAt) < c.o.Settle/20) {
		return
	}
	j.judgedAt = now
	var waiting []*fire
	for _, f := range j.order {
		if f.waits || !later(f.due, from).Before(ready) || c.open(j, f, ready) || j.tells(f, ready) {
			waiting = append(waiting, f)
			continue
		}
		delete(j.fires, f.id)
		c.account(j, f)
	}
	j.order = waiting
}

// tells reports whether a reason is still to come for a fire of which nothing is reported, or nothing of an item: since
// it was due the job has been disabled on all servers, and the hosts that have its items when one is enabled say why they
// did not run.
func (j *job) tells(f *fire, ready time.Time) bool {
	off := j.skippedAt
	if f.seen.kind != "" {
		off = j.disabledAt
	}
	if f.id.trigger != 0 || (!off.After(f.instant) && (!f.off || f.seen.kind != "")) || (f.seen.kind != "" && f.whole()) {
		return false
	}
	return !j.begunAt.After(f.instant) || (j.resumedAt.After(f.instant) && !j.resumedAt.Before(ready))
}

// whole reports whether something is reported of each item.
func (f *fire) whole() bool {
	for i := range f.total {
		if _, ok := f.fates[i]; !ok {
			return false
		}
	}
	return true
}

// open reports whether an item of the fire runs on a host that lives, as far as
// is known: the file of one that has been killed a moment ago does not say so.
func (c *Checker) open(j *job, f *fire, ready time.Time) bool {
	for n, it := range f.fates {
		if it.fate == itemBegun {
			if r := c.runOf(j, n, it.mark); r != nil && (!r.over() || (r.until() == r.instance.process.last && r.until().time.After(ready))) {
				return true
			}
		}
	}
	return false
}

// runOf is the run that an event is about; nil if it is not remembered.
func (c *Checker) runOf(j *job, n int, m mark) *run {
	in, it := c.instances[m.host], j.items[n]
	if in == nil || it == nil {
		return nil
	}
	return it.run(in, m.fence)
}

// account says whether everything of a fire is accounted for.
func (c *Checker) account(j *job, f *fire) {
	if f.seen.kind == "" && len(f.fates) == 0 && f.skippedByNone.kind == "" && !c.completedUnseen(j, f) {
		return
	}
	j.report.Judged++
	for i := range f.total {
		if _, ok := f.fates[i]; !ok && f.asks(i) {
			f.fates[i] = itemFate{}
		}
	}
	for _, i := range slices.Sorted(maps.Keys(f.fates)) {
		c.accountItem(j, f, i)
	}
}

// completedUnseen reports whether a fire of which nothing is reported is to be judged,
// since items of it were completed. It finds a violation if the fire was due.
func (c *Checker) completedUnseen(j *job, f *fire) bool {
	if f.expected.kind == "" || (f.id.trigger == 0 && j.changed.After(f.expected.time)) {
		return false // the schedule is another one since
	}
	if f.id.trigger == 0 && f.id.instant < j.divided.UnixMilli() {
		return false // its items came to be after it
	}
	// What a host asked for may have taken effect when it had gone, and
	// have been ended by another much later.
	if c.o.Completed == nil || !slices.ContainsFunc(slices.Collect(maps.Keys(j.items)), func(i int) bool { return c.o.Completed(f.runID(j, i)) }) {
		c.report.Checked[Accounted]++
		c.find(Finding{Invariant: Accounted, Class: Violated, Job: j.name, Item: -1,
			Text: "there is no record of the fire at " + f.id.String() + ", which was due", Lines: linesOf(f.expected)})
		return false
	}
	f.total = j.least(f.due, 1+slices.Max(slices.Collect(maps.Keys(j.items))))
	return true
}

// accountItem judges one item of a fire.
func (c *Checker) accountItem(j *job, f *fire, i int) {
	it := f.fates[i]
	c.report.Checked[Accounted]++
	switch {
	case it.fate >= itemExcused:
	case it.fate == 0 && !f.started && f.skippedByNone.kind != "":
	case it.fate == 0 && !f.started && j.skippedByAll(f): // its owner went, and no other host may have it
	case it.fate == 0 && c.o.Completed != nil && c.o.Completed(f.runID(j, i)):
		// No host lived to report its begin, nor its end.
	case it.fate == 0 && j.java && !j.had(i, f.due.Add(-c.o.Skew), f.due.Add(c.o.Settle)): // a Java host's
	case it.fate == 0:
		finding := Finding{Invariant: Accounted, Class: Violated, Job: j.name, Item: i,
			Text: "the item neither ran for " + f.id.String() + " nor is there a reason why not", Lines: linesOf(f.seen, f.expected)}
		if c.o.Completed == nil && j.missing(i, f.due.Add(-c.o.Skew), f.due.Add(c.o.Settle)) {
			finding.Class = Unproven
			finding.Text += "; no host whose history is given had the item then, so that a history is missing, or a Java host ran it"
		}
		c.find(finding)
	default:
		c.unfinished(j, f, i, it)
	}
}

// skippedByAll reports whether each host that had the job when the fire was due,
// and has it, has skipped it for good.
func (j *job) skippedByAll(f *fire) bool {
	for p, since := range j.active {
		if p.trusted && !since.After(f.due) && !f.skippedBy[p] {
			return false
		}
	}
	return len(f.skippedBy) > 0
}

// runID is the id of an item's run in the fire.
func (f *fire) runID(j *job, n int) string {
	return tree.RunID(j.name, tree.Fire{Instant: f.id.instant, Trigger: f.id.trigger}, n)
}

// unfinished reports an item that was begun and has no end.
func (c *Checker) unfinished(j *job, f *fire, n int, what itemFate) {
	text := "the item was begun for " + f.id.String() + ", and neither ended nor was it given up"
	m := what.mark
	marks := []mark{m}
	runID := f.runID(j, n)
	if r := c.runOf(j, n, m); r != nil {
		runID = r.id
	} // else it is forgotten: the item has run often since
	if c.o.Completed != nil && c.o.Completed(runID) {
		return
	}
	in, it := c.instances[m.host], j.items[n]
	if in == nil || !in.process.killed || it == nil {
		c.find(Finding{Invariant: Accounted, Class: Violated, Job: j.name, Item: n, RunID: runID, Text: text, Lines: linesOf(append(marks, what.over)...)})
		return
	}
	p := pending{fire: f.id, over: what.over, since: c.now, finding: Finding{Invariant: Accounted, Class: Unproven, Job: j.name, Item: n, RunID: runID,
		Text: text + "; its host died without a word", Lines: linesOf(append(marks, in.process.last)...)}}
	if it.pending = append(it.pending, p); len(it.pending) > mostPending {
		c.unproven(it.pending[0])
		it.pending = slices.Delete(it.pending, 0, 1)
	}
}

// quiet looks how long a job has not fired.
func (c *Checker) quiet(j *job, now time.Time) {
	if c.o.Period <= 0 || j.unscheduled || j.activeSince.IsZero() || j.quietFrom.IsZero() || !j.trustedBut(nil) {
		return
	}
	if j.java && !j.hadAny(j.quietFrom, now) {
		return // Java hosts had it, and write no history
	}
	c.report.Checked[Settled]++
	if d := now.Sub(j.quietFrom); d > c.o.Period+c.o.Skew {
		text, marks := fmt.Sprintf("the job did not fire for %s", d.Round(time.Millisecond)), []mark{j.lastFire}
		if lost, ok := j.owedByAll(); ok {
			text += ": no host took it up again after its session was lost"
			marks = append(marks, lost)
		}
		c.find(Finding{Invariant: Settled, Class: Violated, Job: j.name, Item: -1, Text: text, Lines: linesOf(marks...)})
		j.quietFrom = now
	}
}

// owedByAll reports whether the job has no hosts but those that have not spoken
// of it since they lost their session, and the line that reported the last loss.
func (j *job) owedByAll() (mark, bool) {
	var last mark
	for p := range j.active {
		m, owed := p.owed[j]
		if !owed {
			return mark{}, false
		}
		if last.kind == "" || m.time.After(last.time) {
			last = m
		}
	}
	return last, last.kind != ""
}
