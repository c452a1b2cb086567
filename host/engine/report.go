package engine

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/coordination"
	"github.com/wasmjob/wasmjob/coordination/jobconfig"
	"github.com/wasmjob/wasmjob/coordination/tree"
	"github.com/wasmjob/wasmjob/host/config/timetable"
	"github.com/wasmjob/wasmjob/host/event"
	"github.com/wasmjob/wasmjob/internal/text/reason"
	"github.com/wasmjob/wasmjob/internal/text/words"
)

// futureInstant is how far ahead of the clock the newest instant of an item may be without a warning: clocks differ a
// little.
const futureInstant = 10 * time.Minute

// ask is a request for the job's status.
type ask struct {
	answer chan<- *JobStatus // has room for one
	full   bool              // with what has to be read from the registry
}

// answer sends the job's status to those who asked.
func (j *job) answer() {
	j.mail.mu.Lock()
	asks := j.mail.asks
	j.mail.asks = nil
	j.mail.mu.Unlock()
	if len(asks) == 0 {
		return
	}
	if j.work.Err() == nil {
		j.ongoing.watch(j.host.now()) // a fire may have begun to wait since
	}
	full := slices.ContainsFunc(asks, func(a ask) bool { return a.full })
	reads := full && j.seen && j.exit.left.IsZero() && j.work.Err() == nil
	if reads {
		j.readDisabled()
	}
	s := j.status()
	if reads && j.work.Err() == nil {
		s.readHosts(j.work, &j.member)
	}
	j.mail.mu.Lock()
	j.mail.last = s
	j.mail.rests = !full && len(j.fires) == 0 && len(s.Waits) == 0 && len(s.Warnings) == 0 // else time alone changes it
	j.mail.mu.Unlock()
	for _, a := range asks {
		a.answer <- s
	}
}

// readDisabled reads which items are disabled, and which of those that were held back, or waited for a time of their
// guests, still are. These nodes are not watched, so that a status request reads them.
func (j *job) readDisabled() {
	var items tree.Items
	for _, it := range j.items.sorted(func(it *item) bool { return it.owned && it.run == nil }) {
		items = append(items, it.number)
	}
	if len(items) == 0 {
		return
	}
	disabled, err := coordination.ReadDisabled(j.work, j.member.Registry, j.member.Layout, items)
	if err != nil {
		return // shown as it was last known
	}
	var held tree.Items
	var enabled []int
	for _, n := range items {
		it := j.items.get(n)
		word, is := disabled[n]
		if is {
			it.disable()
			it.state.Said = word
		} else if it.state.Disabled {
			enabled = append(enabled, n)
		}
		if it.state.Record.Held != 0 || (it.run == nil && it.state.Record.Again != 0) {
			held = append(held, n)
		}
	}
	j.itemsEnabled(j.host.now(), enabled)
	j.watchMarks(j.host.now())
	if len(held) == 0 {
		return
	}
	states, err := coordination.ReadItems(j.work, j.member.Registry, j.member.Layout, held)
	if err != nil {
		return
	}
	for n, state := range states {
		it := j.items.get(n)
		if it.state.Record.Again != 0 && state.Record.Again == 0 {
			j.rates.atOnce = true // an operator has released it
		}
		j.reread(it, state)
	}
}

// readHosts reads what the job's instances publish, for a request of a person.
func (s *JobStatus) readHosts(ctx context.Context, m *coordination.Member) {
	if len(s.Instances) == 0 {
		return
	}
	details, err := coordination.ReadHosts(ctx, m.Registry, m.Layout, s.Instances)
	if err != nil {
		return // left out
	}
	digests, zones := make(map[string]bool), make(map[string]bool)
	for _, id := range s.Instances {
		d, ours := details[id]
		s.Hosts = append(s.Hosts, InstanceStatus{Instance: id, Java: !ours, State: d.State, Digest: d.Digest, TimeZone: d.TimeZone, Succeeded: d.Succeeded, Failed: d.Failed})
		if ours {
			digests[d.Digest], zones[d.TimeZone] = true, true
		}
	}
	s.DigestsDiffer, s.ZonesDiffer = len(digests) > 1, len(zones) > 1
}

// withoutSession returns what is known of the job when the session has ended: its items are shown in their last state,
// and none runs. The next fire stays, so that a late one shows.
func (j *job) withoutSession() *JobStatus {
	j.refusal.what = "" // that there is no session says more, and goes on
	s := j.status()
	s.Leader, s.Instances, s.Servers, s.Waits = "", []string{}, nil, nil
	if !j.exit.left.IsZero() {
		s.Items = []ItemStatus{}
		return s
	}
	s.State, s.Reason, s.SessionLost, s.LastState = JobNoSession, noSession, j.host.clock(), JobReady
	switch state, why := j.standing(); state {
	case JobError:
		s.LastState, s.Reason = state, words.Reason(why)
	case JobDisabled:
		s.LastState = state
	}
	s.LastItems, s.Items = s.Items, []ItemStatus{}
	for n := range s.LastItems {
		i := &s.LastItems[n]
		i.Running, i.Queued, i.Misfired, i.Since, i.Attempt, i.Done, i.Total = false, false, false, time.Time{}, 0, 0, 0
	}
	return s
}

// noSession is the reason of JobNoSession.
const noSession = "the host has no session with the registry: no item runs here"

// offline returns the host's jobs while it has no session. The caller holds h.mu.
func (h *Host) offline() []*JobStatus {
	var all []*JobStatus
	for name, wanted := range h.desired {
		s, known := h.parted[name]
		if !known {
			c := wanted.Definition
			s = &JobStatus{Name: name, State: JobNoSession, Reason: noSession, Cron: c.Cron, TimeZone: c.TimeZone, Terms: c.Terms(), ShardingTotalCount: c.ShardingTotalCount,
				Description: c.Description, Labels: c.Labels(), File: wanted.File, Module: wanted.ModuleFile, Digest: wanted.Module.Digest(), Instances: []string{}, Items: []ItemStatus{}}
		}
		all = append(all, s)
	}
	slices.SortFunc(all, func(a, b *JobStatus) int { return strings.Compare(a.Name, b.Name) })
	return all
}

func (j *job) status() *JobStatus {
	c := j.member.View.Config
	if c.JobName == "" {
		c = j.wanted.Definition
	}
	s := &JobStatus{
		Name: j.name, Cron: c.Cron, TimeZone: j.cron.zone.String(), Terms: j.terms(c), Next: j.calendar.Next, ShardingTotalCount: c.ShardingTotalCount,
		Description: c.Description, Labels: j.guest.Labels, File: j.wanted.File, Inherited: j.wanted.Inherited, Module: j.wanted.ModuleFile, Type: string(j.guest.Type),
		Digest: j.wanted.Module.Digest(), Needs: j.guest.Needs, Leader: j.member.View.Leader, Instances: append([]string{}, slices.Sorted(slices.Values(j.member.View.Instances))...), Items: []ItemStatus{}, Servers: j.member.View.Servers, LastFire: j.items.newestFire(j.lastFire),
		Arguments: j.guest.Arguments.With(c.JobParameter), Backfill: j.backfill.status(),
	}
	if j.cron.err != nil {
		s.Cron, s.Terms, s.RefusedCron = j.cron.text, j.cron.terms, timetable.Describe(c.Cron, s.Terms)
	}
	if delay := j.calendar.Delay(j.calendar.Next); delay > 0 {
		s.Starts = j.calendar.DueAt()
	}
	if g, err := c.Guest(); j.wanted.Apart {
		s.Isolation = string(jobconfig.IsolationProcess)
	} else if err == nil {
		s.Isolation = string(g.Isolation)
	}
	j.module.describe(s)
	s.State, s.Reason = j.state()
	switch s.State {
	case JobDisabled:
		s.Said = SaidBy(j.pause.word)
	case JobStopped, JobRemoved:
		s.Said = SaidBy(j.exit.said)
	}
	s.Reason = words.Reason(s.Reason)
	var warnings words.Few[string]
	for _, w := range j.member.View.ConfigWarnings {
		warnings.Add(w)
	}
	s.Waits = j.ongoing.status(j.host.now())
	parameters, err := jobconfig.ParseItemParameters(c.ShardingItemParameters)
	if err != nil {
		warnings.Add(err.Error())
	}
	if why := j.host.cfg.HandlerProblem(c.JobErrorHandlerType); why != "" {
		warnings.Add("jobErrorHandlerType " + c.JobErrorHandlerType + " sends nothing: " + why)
	}
	if j.joining.outdated != "" {
		warnings.Add(j.joining.outdated)
	}
	if ago := time.Since(j.refusal.at); j.refusal.what != "" && ago < troubleShown {
		warnings.Add(fmt.Sprintf("the registry refused, %s ago: %s", ago.Round(time.Second), j.refusal.what))
	}
	if w := j.listener.Load(); w != nil && time.Since(w.at) < listenerShown {
		warnings.Add(fmt.Sprintf("%s ago: %s", time.Since(w.at).Round(time.Second), w.text))
	}
	j.items.warn(&warnings, j.member.Layout, j.host)
	if j.clock.late != nil {
		warnings.Add("this host's clock is behind the registry's by more than the catch-up window")
	}
	s.Warnings = words.Strings(warnings.Kept(), warnings.More())
	for _, it := range j.items.sorted(func(*item) bool { return true }) {
		s.Items = append(s.Items, it.status(parameters[it.number], j.host.now()))
	}
	s.Listeners = j.killing.listenerStatus()
	return s
}

// warn adds what an operator should know of single items.
func (s *items) warn(warnings *words.Few[string], l tree.Layout, h *Host) {
	for _, it := range s.sortedActive(func(it *item) bool { return it.held && it.Next() != nil && it.run == nil }) {
		var marks []string
		for _, q := range coordination.ItemMarks(l, it.number) {
			marks = append(marks, q.Path)
		}
		warnings.Add(fmt.Sprintf("item %d waits: a mark says that another host runs it (one of the nodes %s)", it.number, joinWords(marks)))
	}
	for _, it := range s.sorted(func(it *item) bool { return it.owned && it.state.Record.Held != 0 }) {
		warnings.Add(fmt.Sprintf("item %d: %s", it.number, it.state.Record.HeldBack(l.Job, it.number)))
	}
	now := h.clock()
	then := "delete that node to let it run"
	if _, ahead := h.instants(); ahead != 0 {
		then = "the next instant that is due repairs it"
	}
	for _, it := range s.sorted(func(it *item) bool {
		return it.owned && time.UnixMilli(it.state.Record.Instant).Sub(now) > futureInstant
	}) {
		warnings.Add(fmt.Sprintf("item %d was begun for %s, and is not begun for any instant before that: a clock was wrong, or node %s/sharding/%d was edited; %s",
			it.number, time.UnixMilli(it.state.Record.Instant).UTC().Format(time.RFC3339), l.Sibling(), it.number, then))
	}
}

// describe adds the executor that the next fire uses, if there is one.
func (m *module) describe(s *JobStatus) {
	if m.exec == nil {
		return
	}
	s.Digest = m.exec.Digest()
	if x, ok := m.exec.(interface{ About() (int, []string) }); ok {
		s.Size, s.Imports = x.About()
	}
	if x, ok := m.exec.(interface{ Grants() []string }); ok {
		s.Granted = x.Grants()
	}
	if x, ok := m.exec.(interface{ Signer() string }); ok {
		s.Signer = x.Signer()
	}
	if typed, ok := m.exec.(interface{ Type() string }); ok && s.Type == "" {
		s.Type = typed.Type() // from the module's exports
	}
}

// status returns the status of an item.
func (it *item) status(parameter string, now moment) ItemStatus {
	i := ItemStatus{Item: it.number, Parameter: parameter, Misfired: it.Next() != nil, Disabled: it.state.Disabled, Said: SaidBy(it.state.Said),
		LastOutcome: it.lastOutcome, LastMessage: it.lastMessage, LastEnd: it.lastEnd, LastOutside: it.lastOutside,
		Failures: it.state.Record.Failures}
	if at := it.state.Record.LastOK(); at != 0 {
		i.LastOK = time.UnixMilli(at)
	}
	if at := it.state.Record.Failing; at != 0 {
		i.Failing = time.UnixMilli(at)
	}
	if r := it.state.Record; i.LastOutcome == "" && r.Ended != 0 && r.Outcome != "" { // it ran before this host had it
		i.LastOutcome, i.LastMessage, i.LastEnd = abi.Outcome(r.LastOutcome()), words.Reason(r.Reason), time.UnixMilli(r.Ended)
	}
	if at := it.state.Record.NotBefore(now.wall.UnixMilli()); at != 0 {
		i.NotBefore = time.UnixMilli(at)
	}
	if held := it.state.Record.Held; held != 0 {
		i.Held = time.UnixMilli(held)
	}
	if it.run != nil {
		i.Queued, i.Fence = it.run.Queued(), it.run.Fence
		i.Running = !i.Queued
		i.Attempt = it.run.Attempt()
		i.Done, i.Total = it.run.Done()
		i.Since = it.run.Since()
		if since := it.run.QueuedSince(); i.Queued && !since.IsZero() {
			i.Since = now.instant(since)
		}
	}
	return i
}

// state returns the job's state, and the reason if it does not run.
func (j *job) state() (JobState, string) {
	switch {
	case !j.exit.left.IsZero():
		return j.exit.state, j.exit.left.String()
	case j.exit.leaves():
		return JobDraining, j.exit.leaving.String()
	case j.exit.stopped:
		return JobDraining, "an operator stops it here: it leaves the job when what runs has ended"
	}
	return j.standing()
}

// standing returns the state of a job that the host does not leave.
func (j *job) standing() (JobState, string) {
	switch {
	case j.joining.err != nil:
		return JobError, j.joining.err.Error()
	case j.module.exec == nil && j.module.err != nil:
		return JobError, j.module.err.Error()
	case !j.joined || !j.seen:
		return JobJoining, ""
	case j.member.View.ConfigErr != nil:
		return JobError, "the configuration in the registry is refused, the last good one stays in force: " + j.member.View.ConfigErr.Error()
	case j.cron.err != nil:
		return JobError, j.cron.err.Error()
	case j.chain.err != nil:
		return JobError, j.chain.err.Error()
	case !j.javaRefuses().IsZero():
		return JobError, j.javaRefuses().String()
	case !j.leaderRefuses().IsZero():
		return JobError, j.leaderRefuses().String()
	case j.denials.reason() != nil:
		return JobError, j.denials.reason().Error()
	case j.unread != nil:
		return JobError, j.unread.Error()
	case j.module.err != nil:
		return JobError, "the last good module stays in force: " + j.module.err.Error()
	case j.running() > 0:
		if !slices.ContainsFunc(j.items.sorted(func(it *item) bool { return it.run != nil }), func(it *item) bool { return !it.run.Queued() }) {
			return JobQueued, ""
		}
		return JobRunning, ""
	case !j.member.View.Enabled:
		return JobDisabled, cmp.Or(j.pausedBy(), reason.New(reason.ServerDisabled)).String()
	case !j.member.Share.Current(j.member.View):
		if j.member.View.JavaLed() && j.member.View.Halted() {
			return JobSharding, fmt.Sprintf("a Java leader, %s, shards the items; all wait", j.member.View.Leader)
		}
		return JobSharding, "the items are being sharded"
	case j.member.View.Division.Total == 0 && !j.member.View.JavaLed():
		return JobSharding, "the items were never sharded"
	}
	return JobReady, ""
}

// eachWait calls yield for each of the loop's present waits. since is zero where only waits knows when the wait began.
func (j *job) eachWait(now moment, yield func(what event.Wait, item int, since time.Time)) {
	v := &j.member.View
	refuses := j.rests(now) && !refused(j.joining.err) // else it is this host that refuses
	if refuses || (j.joined && !j.seen && j.exit.left.IsZero()) {
		yield(event.WaitRegistry, -1, time.Time{})
	}
	for f := range j.fires {
		if p := f.Waits(); p != nil {
			since := p.Since
			if o := j.ongoing.list[waitKey{event.WaitListener, -1}]; o != nil && o.round == j.ongoing.round {
				since = soonest(o.since, since) // of several fires
			}
			yield(event.WaitListener, -1, since)
		}
	}
	if since := j.queuedSince(); !since.IsZero() {
		yield(event.WaitSlot, -1, since)
	}
	if j.exit.leaves() || (j.exit.stopped && j.exit.left.IsZero()) {
		for _, it := range j.items.of {
			if it.run != nil {
				yield(event.WaitDrain, it.number, time.Time{})
			}
		}
		return
	}
	if !j.joined || !j.seen || !j.exit.left.IsZero() || !v.Exists || !v.Joined() {
		return
	}
	if _, waits := j.election.Waiting(); waits {
		yield(event.WaitElection, -1, j.election.since)
	}
	if _, waits := j.takers.Waiting(); waits {
		yield(event.WaitFailover, -1, j.takers.since)
	}
	switch {
	case v.JavaLed() && v.Halted():
		yield(event.WaitJavaLeader, -1, time.Time{})
	case v.Enabled && (v.Necessary || v.Processing || !j.member.Share.Current(*v) || (v.Division.Total == 0 && !v.JavaLed())):
		yield(event.WaitSharding, -1, time.Time{})
	}
	if len(v.FailoverItems) > 0 || len(v.Crashed()) > 0 {
		yield(event.WaitTakeover, -1, time.Time{})
	}
	if v.Trigger != 0 {
		yield(event.WaitTrigger, -1, time.Time{})
	}
	for it := range j.items.allActive() {
		// Every snapshot is a reason to try again; that does not end the wait.
		if it.owned && it.run == nil && it.Next() != nil && (it.held || j.ongoing.list[waitKey{event.WaitMark, it.number}] != nil) {
			yield(event.WaitMark, it.number, time.Time{})
		}
		if it.waits != "" {
			yield(event.WaitPermit, it.number, time.Time{})
		}
		if it.state.Record.Again != 0 && it.postpones(j.host.registryTime(now).UnixMilli()) {
			yield(event.WaitRetryAt, it.number, time.Time{})
		}
		if it.paced != "" {
			yield(event.WaitRate, it.number, time.Time{})
		}
	}
	for _, n := range v.Division.Pending {
		if it := j.items.of[n]; v.Leading() || (it != nil && it.run != nil) {
			yield(event.WaitMove, n, time.Time{})
		}
	}
}

// waitsUntil returns when the last wait of this kind ends that guests have asked for; zero without one.
func (j *job) waitsUntil(what event.Wait) (last time.Time) {
	now := j.host.now()
	switch what {
	case event.WaitRetryAt:
		at := j.host.registryTime(now).UnixMilli()
		for it := range j.items.allActive() {
			if it.state.Record.Again != 0 && it.postpones(at) {
				last = latestOf(last, time.UnixMilli(it.state.Record.Again))
			}
		}
	case event.WaitRate:
		for it := range j.items.allActive() {
			if it.paced == "" {
				continue
			}
			if t := j.rates.turn(now, it.paced); t.Window.Paused > t.Now {
				last = latestOf(last, time.UnixMilli(t.Window.Paused))
			}
		}
	}
	return last
}

// latestOf returns the later of two times.
func latestOf(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// waitsFor returns words for what the loop waits for, and for what can be done about it.
func (j *job) waitsFor(what event.Wait, items []int) (forWhat, then string) {
	v := &j.member.View
	numbers := tree.Items(items).String()
	switch what {
	case event.WaitRegistry:
		if !j.seen && j.joined {
			return "the registry to show the job", "nothing begins until it does"
		}
		return "the registry, which refuses: " + j.refusal.what, "it is tried again each second"
	case event.WaitSharding:
		if v.Leader == "" {
			return "the items to be sharded, and the job has no leader", "see that the job is on a host that is not paused and not in error"
		}
		return "the items to be sharded by the leader, " + v.Leader, "see its log; restart its host if it makes no progress"
	case event.WaitJavaLeader:
		return "the items to be sharded by a Java leader, " + v.Leader + ", which waits until no item of the job runs anywhere; nothing begins meanwhile",
			"see which item runs: " + words.Command("job items", j.name) + "; or have one of ours elected: " + words.Command("job drain", j.name, "--instance", v.Leader)
	case event.WaitElection:
		return "its turn in ElasticJob's latch, behind node " + j.election.behind, ""
	case event.WaitFailover:
		return "its turn in ElasticJob's latch, behind node " + j.takers.behind, ""
	case event.WaitTakeover:
		if gone := v.Crashed(); len(gone) > 0 {
			return "a host to take what was begun by hosts that are gone: " + joinWords(gone),
				"it takes a host with the module where the job is not paused, and items that are not paused"
		}
		return "a host to take items " + v.FailoverItems.String() + ", which a Java host has marked as crashed", "it takes a host with the module where the job is not paused"
	case event.WaitMark:
		return "items " + numbers + ", which are due and marked as running elsewhere", "see who runs them: " + words.Command("job items", j.name) + "; delete marks that no host owns"
	case event.WaitMove:
		return "items " + numbers + " to end where they run: they go to other hosts then",
			"see who runs them: " + words.Command("status", j.name) + "; the job's timeout ends them, or a restart of that host"
	case event.WaitTrigger:
		return "the job to be idle here, to serve a trigger", "items that run are shown by: wasmjob status --items"
	case event.WaitSlot:
		return fmt.Sprintf("a slot: the host has %d for all jobs, and this job may have %d", j.host.cfg.MaxConcurrency, j.concurrency()),
			"see what runs: wasmjob status --items; a timeout ends items that go on for ever"
	case event.WaitPermit:
		return j.limits.waitsFor()
	case event.WaitRetryAt:
		return j.items.waitsForLater(j.host.registryTime(j.host.now()).UnixMilli())
	case event.WaitRate:
		return j.rates.waitsFor(j.host.now())
	case event.WaitListener:
		for f := range j.fires {
			if p := f.Waits(); p != nil {
				return p.For(), ""
			}
		}
		return "the other hosts, around a listener", ""
	case event.WaitDrain:
		return "items " + numbers + " to end, because this host leaves the job", ""
	}
	return string(what), ""
}
