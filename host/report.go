package host

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/coordination"
	"github.com/wasmjob/wasmjob/coordination/jobconfig"
)

// futureInstant is how far ahead of the clock the newest instant of an item may
// be: clocks differ a little.
const futureInstant = 10 * time.Minute

// ask is somebody's wish to know the job's status.
type ask struct {
	answer chan<- JobStatus // has room for one
	full   bool             // with what has to be read from the registry
}

// answer publishes the job's status to those who asked.
func (j *job) answer() {
	j.mail.mu.Lock()
	asks := j.mail.asks
	j.mail.asks = nil
	j.mail.mu.Unlock()
	if len(asks) == 0 {
		return
	}
	if j.work.Err() == nil {
		j.watchWaits(j.host.now()) // a fire may have begun to wait since
	}
	full := slices.ContainsFunc(asks, func(a ask) bool { return a.full })
	if full {
		j.readDisabled()
	}
	s := j.status()
	if full {
		j.readHosts(&s)
	}
	j.mail.mu.Lock()
	j.mail.last = s
	j.mail.mu.Unlock()
	for _, a := range asks {
		a.answer <- s
	}
}

// readDisabled looks which items are disabled, and which of those that were held
// back still are: they are not watched, so a status request causes a read.
func (j *job) readDisabled() {
	if !j.seen || j.exit.left != "" || j.work.Err() != nil {
		return
	}
	var items coordination.Items
	for _, it := range j.sorted(func(it *item) bool { return it.owned && it.run == nil }) {
		items = append(items, it.number)
	}
	if len(items) == 0 {
		return
	}
	disabled, err := coordination.ReadDisabled(j.work, j.member.Registry, j.member.Layout, items)
	if err != nil {
		return // shown as it was last known
	}
	var held coordination.Items
	for _, n := range items {
		j.items[n].state.Disabled = disabled[n]
		if j.items[n].state.Record.Held != 0 {
			held = append(held, n)
		}
	}
	if len(held) == 0 {
		return
	}
	states, err := coordination.ReadItems(j.work, j.member.Registry, j.member.Layout, held)
	if err != nil {
		return
	}
	for n, state := range states {
		j.reread(j.items[n], state)
	}
}

// readHosts reads what the job's instances publish of themselves, when somebody
// asks.
func (j *job) readHosts(s *JobStatus) {
	if !j.seen || j.exit.left != "" || j.work.Err() != nil || len(s.Instances) == 0 {
		return
	}
	details, err := coordination.ReadHosts(j.work, j.member.Registry, j.member.Layout, s.Instances)
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

// withoutSession is what remains true of the job when the session has ended. Its
// next fire stays, so that one that is late shows.
func (j *job) withoutSession() JobStatus {
	s := j.status()
	s.Leader, s.Instances, s.Items, s.Waits = "", nil, nil, nil
	if j.exit.left == "" {
		s.State, s.Reason = JobNoSession, noSession
	}
	return s
}

// noSession is the reason of JobNoSession.
const noSession = "the host has no session with the registry: no item runs here"

// offline are the host's jobs while it has no session. The caller holds h.mu.
func (h *Host) offline() []JobStatus {
	var all []JobStatus
	for name, wanted := range h.desired {
		s, known := h.parted[name]
		if !known {
			c := wanted.Definition
			s = JobStatus{Name: name, State: JobNoSession, Reason: noSession, Cron: c.Cron, TimeZone: c.TimeZone, ShardingTotalCount: c.ShardingTotalCount,
				Description: c.Description, File: wanted.File, Module: wanted.ModuleFile, Digest: wanted.Module.Digest()}
		}
		all = append(all, s)
	}
	slices.SortFunc(all, func(a, b JobStatus) int { return strings.Compare(a.Name, b.Name) })
	return all
}

func (j *job) status() JobStatus {
	c := j.member.View.Config
	if c.JobName == "" {
		c = j.wanted.Definition
	}
	s := JobStatus{
		Name: j.name, Cron: c.Cron, TimeZone: j.cron.zone.String(), Next: j.calendar.Next, ShardingTotalCount: c.ShardingTotalCount,
		Description: c.Description, File: j.wanted.File, Module: j.wanted.ModuleFile, Type: string(j.guest.Type),
		Digest: j.wanted.Module.Digest(), Leader: j.member.View.Leader, Instances: sortedStrings(j.member.View.Instances), LastFire: j.newestFire(),
		Warnings: j.member.View.ConfigWarnings,
	}
	if j.cron.err != nil {
		s.Cron, s.RefusedCron = j.cron.text, c.Cron
	}
	if g, err := c.Guest(); j.wanted.Apart {
		s.Isolation = string(jobconfig.IsolationProcess)
	} else if err == nil {
		s.Isolation = string(g.Isolation)
	}
	if j.module.exec != nil {
		s.Digest = j.module.exec.Digest()
		if typed, ok := j.module.exec.(interface{ Type() string }); ok && s.Type == "" {
			s.Type = typed.Type() // from the module's exports
		}
	}
	s.State, s.Reason = j.state()
	s.Waits = j.waitStatus(j.host.now())
	parameters, err := jobconfig.ParseItemParameters(c.ShardingItemParameters)
	if err != nil {
		s.Warnings = append(slices.Clone(s.Warnings), err.Error())
	}
	if j.joining.outdated != "" {
		s.Warnings = append(slices.Clone(s.Warnings), j.joining.outdated)
	}
	if ago := time.Since(j.refusal.at); j.refusal.what != "" && ago < troubleShown {
		s.Warnings = append(slices.Clone(s.Warnings), fmt.Sprintf("the registry refused, %s ago: %s", ago.Round(time.Second), j.refusal.what))
	}
	for _, it := range j.sorted(func(it *item) bool { return it.held && it.due != nil && it.run == nil }) {
		var marks []string
		for _, q := range coordination.ItemMarks(j.member.Layout, it.number) {
			marks = append(marks, q.Path)
		}
		s.Warnings = append(slices.Clone(s.Warnings), fmt.Sprintf("item %d waits: a mark says that somebody else runs it (one of the nodes %s)", it.number, joinWords(marks)))
	}
	for _, it := range j.sorted(func(it *item) bool { return it.owned && it.state.Record.Held != 0 }) {
		s.Warnings = append(slices.Clone(s.Warnings), fmt.Sprintf("item %d: %s", it.number, it.state.Record.HeldBack(j.name, it.number)))
	}
	now := j.host.clock()
	then := "delete that node to let it run"
	if _, ahead := j.host.instants(); ahead != 0 {
		then = "the next instant that is due repairs it"
	}
	for _, it := range j.sorted(func(it *item) bool {
		return it.owned && time.UnixMilli(it.state.Record.Instant).Sub(now) > futureInstant
	}) {
		s.Warnings = append(slices.Clone(s.Warnings), fmt.Sprintf("item %d was begun for %s, and is not begun for any instant before that: a clock was wrong, or node %s/sharding/%d was edited; %s",
			it.number, time.UnixMilli(it.state.Record.Instant).UTC().Format(time.RFC3339), j.member.Layout.Sibling(), it.number, then))
	}
	if j.late {
		s.Warnings = append(slices.Clone(s.Warnings), "this host's clock is behind the registry's by more than the catch-up window")
	}
	for _, it := range j.sorted(func(*item) bool { return true }) {
		i := ItemStatus{Item: it.number, Parameter: parameters[it.number], Misfired: it.due != nil, Disabled: it.state.Disabled,
			LastOutcome: it.lastOutcome, LastMessage: it.lastMessage, LastEnd: it.lastEnd}
		if r := it.state.Record; i.LastOutcome == "" && r.Ended != 0 && r.Outcome != "" { // it ran before this host had it
			i.LastOutcome, i.LastMessage, i.LastEnd = abi.Outcome(r.Outcome), r.Reason, time.UnixMilli(r.Ended)
		}
		if held := it.state.Record.Held; held != 0 {
			i.Held = time.UnixMilli(held)
		}
		if it.run != nil {
			i.Running, i.Fence = true, it.run.Fence
			i.Attempt = it.run.Attempt()
			i.Done, i.Total = it.run.Done()
			i.Since = it.run.Since()
		}
		s.Items = append(s.Items, i)
	}
	return s
}

// newestFire is the job's last fire here, or before this host began what the
// records of its items know of it.
func (j *job) newestFire() *FireStatus {
	if j.lastFire != nil {
		return j.lastFire
	}
	records := make(map[int]coordination.Record)
	for n, it := range j.items {
		records[n] = it.state.Record
	}
	f, ok := coordination.NewestFire(records)
	if !ok || f.Ended.IsZero() {
		return nil
	}
	return &FireStatus{Instant: f.Instant, Source: abi.Source(f.Source), Items: f.Items, Outcome: abi.Outcome(f.Outcome), Duration: f.Ended.Sub(f.Begun)}
}

// state names what the job is doing, and why if it does not run.
func (j *job) state() (JobState, string) {
	switch {
	case j.exit.left != "":
		return j.exit.state, j.exit.left
	case j.exit.draining || j.exit.leaving != "":
		return JobDraining, j.exit.leaving
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
	case j.javaRefuses() != "":
		return JobError, j.javaRefuses()
	case j.leaderRefuses() != "":
		return JobError, j.leaderRefuses()
	case j.module.err != nil:
		return JobError, "the last good module stays in force: " + j.module.err.Error()
	case j.running() > 0:
		return JobRunning, ""
	case !j.member.View.Enabled:
		return JobDisabled, "this server is disabled for the job"
	case !j.member.Share.Current(j.member.View):
		if j.member.View.JavaLed() && j.member.View.Halted() {
			return JobSharding, fmt.Sprintf("a Java leader, %s, divides the items; all wait", j.member.View.Leader)
		}
		return JobSharding, "the items are being divided"
	case j.member.View.Division.Total == 0 && !j.member.View.JavaLed():
		return JobSharding, "the items were never divided"
	}
	return JobReady, ""
}
