package cluster

import (
	"cmp"
	"slices"
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/coordination/jobconfig"
	"github.com/wasmjob/wasmjob/coordination/tree"
	"github.com/wasmjob/wasmjob/host/config/timetable"
	"github.com/wasmjob/wasmjob/host/control/cluster/orphans"
	"github.com/wasmjob/wasmjob/host/engine"
	"github.com/wasmjob/wasmjob/internal/labels"
)

// Health says what an operator has to do about a job. The first one that applies counts.
type Health string

// The healths, worst first.
const (
	HealthError   Health = "error"   // a host cannot run it: no module, a bad configuration
	HealthFailing Health = "failing" // its last fire did not end well, or an item is held back
	HealthLate    Health = "late"    // it is due, and nothing began; it has waited too long; or guests had it wait beyond its next fire
	HealthPaused  Health = "paused"  // disabled on all its servers, stopped, removed, or without a definition
	HealthOK      Health = "ok"
)

// Healths are all, worst first.
func Healths() []Health {
	return []Health{HealthError, HealthFailing, HealthLate, HealthPaused, HealthOK}
}

// The states of jobs that no host has.
const (
	StateNoHost engine.JobState = "no host"
	// StateUndefined: all servers that had it have a host that answers, and no definition of it.
	StateUndefined engine.JobState = "without a definition"
	StateElsewhere engine.JobState = "elsewhere" // on hosts that are not known here: ElasticJob's
)

// States are all that a job may be in over its hosts.
func States() []engine.JobState {
	return []engine.JobState{engine.JobReady, engine.JobRunning, engine.JobQueued, engine.JobSharding, engine.JobJoining, engine.JobDraining, engine.JobDisabled, engine.JobStopped,
		engine.JobRemoved, engine.JobNoSession, engine.JobError, StateNoHost, StateUndefined, StateElsewhere}
}

// lateAfter is how much later than its instant a job may begin before it is late.
const lateAfter = 5 * time.Second

// Job is one job over all hosts that answer. One without a health is none any more.
type Job struct {
	// inherited are the files of defaults, by setting; see [engine.JobStatus].
	inherited   map[string]string
	Name        string `json:"name"`
	Description string `json:"description,omitempty"`
	// Labels are those of the job's definition, by name.
	Labels labels.Set `json:"labels,omitempty"`
	Health Health     `json:"health"`
	// State is the most significant of its hosts' states, Reason why.
	State  engine.JobState `json:"state"`
	Reason string          `json:"reason,omitempty"`
	// Paused says who has paused, stopped or removed it, as far as the registry or the newest recorded changes
	// tell.
	Paused *Paused `json:"paused,omitempty"`
	// Cron is the schedule in force, empty if there is none; Next is its next instant,
	// zero if there is none.
	Cron     string `json:"cron"`
	TimeZone string `json:"timeZone"`
	// Terms are the settings besides cron and zone that determine the schedule, for programs of this project;
	// empty for none.
	Terms string `json:"terms,omitempty"`
	// Backfill is the one that goes on; missing if there is none.
	Backfill *engine.BackfillStatus `json:"backfill,omitempty"`
	Next     time.Time              `json:"next,omitzero"`
	// Arguments are those that the job declares; the default of each is what a run gets without a value.
	Arguments jobconfig.Arguments `json:"arguments,omitempty"`
	// Starts is when the fire of Next starts, if that is put off by the job's jitter.
	Starts time.Time `json:"starts,omitzero"`
	Type   string    `json:"type,omitempty"`
	// ShardingTotalCount is how many items it has. Running, Queued, Failed, Held and Disabled count the items
	// in that state; Queued have begun and wait for a slot, Failed depends on their last runs.
	ShardingTotalCount int `json:"shardingTotalCount"`
	Running            int `json:"running"`
	Queued             int `json:"queued"`
	Failed             int `json:"failed"`
	Held               int `json:"held"`
	Disabled           int `json:"disabled"`
	// Listening counts the listeners that run for a second or longer: a kill of the job ends them.
	Listening int `json:"listening,omitempty"`
	// Failures is the highest number of runs in a row of one item that were not OK. Failing is since when an
	// item has been failing: the end of the first of those runs, or, if unknown, of its last OK run. Both are
	// zero if no item is failing.
	Failures int       `json:"failures,omitempty"`
	Failing  time.Time `json:"failing,omitzero"`
	// Last is the newest fire that ended; nil if none is known.
	Last *Last `json:"last,omitempty"`
	// Hosts are the ids of the hosts that have the job, as in the list of hosts. It is empty in the states "no
	// host", "without a definition" and "elsewhere", and while its module is being compiled.
	Hosts []string `json:"hosts"`
	// Stopped are those of Hosts on which an operator has stopped it.
	Stopped []string `json:"stopped,omitempty"`
	// DisabledOn are those of Hosts whose servers are disabled for it.
	DisabledOn []string `json:"disabledOn,omitempty"`
	Leader     string   `json:"leader,omitempty"`
	// Module, File, Digests and Signer say what runs; there are several Digests while a new version is rolled
	// out.
	Module   string   `json:"module"`
	File     string   `json:"file"`
	Digests  []string `json:"digests"`
	Signer   string   `json:"signer,omitempty"`
	Granted  []string `json:"granted,omitempty"`
	Warnings []string `json:"warnings,omitempty"`
	// Waits are what its hosts wait for.
	Waits []engine.WaitStatus `json:"waits,omitempty"`
	// Stale: none of its hosts answers. All this is their last report.
	Stale bool `json:"stale,omitempty"`
	// SessionLost is set if none of its hosts has a session with the registry, to when the last one lost it:
	// health and items are as known then, and nothing runs. It is missing if that is unknown; then the job is
	// in error.
	SessionLost time.Time `json:"sessionLost,omitzero"`
}

// Dim reports whether what is known of the job is of before: none of its hosts answers, or has a session.
func (j *Job) Dim() bool { return j.Stale || !j.SessionLost.IsZero() }

// Last is a job's newest fire that ended, over all hosts.
type Last struct {
	Instant time.Time  `json:"instant,omitzero"`
	Source  abi.Source `json:"source,omitempty"`
	// Begun is when the first of its items began, Ended when the last one ended, Duration the time between, in
	// nanoseconds: over all hosts, as in a list of fires. Begun and Duration are missing if unknown.
	Begun    time.Time     `json:"begun,omitzero"`
	Ended    time.Time     `json:"ended"`
	Duration time.Duration `json:"durationNs,omitempty"`
	trigger  int64
	// Outcome is the worst of its items; Message is from such an item.
	Outcome abi.Outcome `json:"outcome"`
	Message string      `json:"message,omitempty"`
}

// Item is one sharding item on the host that has it.
type Item struct {
	engine.ItemStatus
	Host string `json:"host"`
}

// statesByNews are the states of a job on a host, those first that say most about it.
func statesByNews() []engine.JobState {
	return []engine.JobState{engine.JobError, engine.JobRunning, engine.JobQueued, engine.JobSharding, engine.JobReady, engine.JobJoining, engine.JobDraining, engine.JobDisabled,
		engine.JobStopped, engine.JobRemoved, engine.JobNoSession}
}

// part is a job on one host.
type part struct {
	host   string
	silent bool // what it says may be long ago
	*engine.JobStatus
}

// past reports whether the part may be long ago: its host does not answer, or has no session.
func (p part) past() bool { return p.silent || p.State == engine.JobNoSession }

// known is the state of the job on the host, or the last one if the host has lost its session.
func (p part) known() engine.JobState {
	if p.SessionLost.IsZero() {
		return p.State
	}
	return p.LastState
}

// inSession returns the parts of hosts with a session. If none has one it returns those of hosts with earlier
// data, and lost is when the last of them lost its session; all if none has any.
func inSession(parts []part) (list []part, lost time.Time) {
	var before []part
	for _, p := range parts {
		switch {
		case p.State != engine.JobNoSession:
			list = append(list, p)
		case !p.SessionLost.IsZero():
			before, lost = append(before, p), later(lost, p.SessionLost)
		}
	}
	switch {
	case len(list) > 0:
		return list, time.Time{}
	case len(before) > 0:
		return before, lost
	}
	return parts, time.Time{}
}

// answering are the parts of hosts that answer; all if none does.
func answering(parts []part) (list []part, none bool) {
	for _, p := range parts {
		if !p.silent {
			list = append(list, p)
		}
	}
	if len(list) == 0 {
		return parts, true
	}
	return list, false
}

// Due is when the next fire starts; zero if there is none.
func (j *Job) Due() time.Time {
	if !j.Starts.IsZero() {
		return j.Starts
	}
	return j.Next
}

// Schedule is the job's schedule for people: its cron, or what it has in place of one; empty if
// only triggers run it.
func (j *Job) Schedule() string { return timetable.Describe(j.Cron, j.Terms) }

// Inherited is the file of defaults that a setting of the job's definition is from; empty if it is the definition's own.
func (j *Job) Inherited(setting string) string { return j.inherited[setting] }

// merge merges what hosts report of one job. parts are by host, at least one. Hosts that do not answer, or have
// no session, only count for what others cannot know: which items they have, and how those ended.
func merge(parts []part, now time.Time) *Job {
	live, stale := answering(parts)
	live, lost := inSession(live)
	order := statesByNews()
	best := slices.MinFunc(live, func(a, b part) int {
		return cmp.Compare(slices.Index(order, a.State), slices.Index(order, b.State))
	})
	j := &Job{
		Name: best.Name, Description: best.Description, Labels: best.Labels, State: best.State, Reason: best.Reason, Cron: cmp.Or(best.Cron, best.RefusedCron), TimeZone: best.TimeZone, Terms: best.Terms,
		Type: best.Type, ShardingTotalCount: best.ShardingTotalCount, Module: best.Module, File: best.File, inherited: best.Inherited, Signer: best.Signer, Granted: best.Granted, Arguments: best.Arguments,
		Hosts: []string{}, Digests: []string{}, Stale: stale, SessionLost: lost,
	}
	for _, p := range parts {
		j.Hosts = append(j.Hosts, p.host)
		switch p.known() {
		case engine.JobStopped:
			j.Stopped = append(j.Stopped, p.host)
		case engine.JobDisabled:
			j.DisabledOn = append(j.DisabledOn, p.host)
		}
		if p.Digest != "" && !slices.Contains(j.Digests, p.Digest) {
			j.Digests = append(j.Digests, p.Digest)
		}
	}
	for _, p := range live {
		j.Leader = cmp.Or(j.Leader, p.Leader)
		if !p.Next.IsZero() && (j.Next.IsZero() || p.Next.Before(j.Next)) && scheduled(p.State) {
			j.Next, j.Starts = p.Next, p.Starts
		}
		for _, w := range p.Warnings {
			if !slices.Contains(j.Warnings, w) {
				j.Warnings = append(j.Warnings, w)
			}
		}
		j.Waits = append(j.Waits, p.Waits...)
		if b := p.Backfill; b != nil && (j.Backfill == nil || b.Done > j.Backfill.Done) {
			j.Backfill = b
		}
		j.Listening += len(p.Listeners)
	}
	items := itemsOf(parts)
	for _, i := range items {
		if i.Running {
			j.Running++
		}
		if i.Queued {
			j.Queued++
		}
		if i.LastOutcome.Failed() {
			j.Failed++
		}
		if since := failingSince(&i.ItemStatus); !since.IsZero() && (j.Failing.IsZero() || since.Before(j.Failing)) {
			j.Failing = since
		}
		j.Failures = max(j.Failures, i.Failures)
		if !i.Held.IsZero() {
			j.Held++
		}
		if i.Disabled {
			j.Disabled++
		}
	}
	j.Last = lastOf(parts, items)
	j.Health = healthOf(j, live, now)
	j.Paused = pausedBy(live, j.State)
	return j
}

// failingSince is since when an item has been failing; zero if it is not.
func failingSince(i *engine.ItemStatus) time.Time {
	switch {
	case i.Failures == 0:
		return time.Time{}
	case i.Failing.IsZero() && i.Failures == 1:
		return i.LastEnd
	case i.Failing.IsZero():
		return i.LastOK
	}
	return i.Failing
}

// jobOf is a job that no host has.
func jobOf(u orphans.Job, state engine.JobState, health Health, why string) *Job {
	if u.Problem != "" {
		why += "; its configuration cannot be read: " + u.Problem
	}
	return &Job{Name: u.Name, Description: u.Description, Labels: u.Labels, Health: health, State: state, Reason: why, Cron: u.Cron, TimeZone: cmp.Or(u.TimeZone, "Local"), Terms: u.Terms,
		ShardingTotalCount: u.ShardingTotalCount, Hosts: []string{}, Digests: []string{}}
}

// scheduled reports whether a host in that state will begin the job when it is due.
func scheduled(s engine.JobState) bool {
	return s != engine.JobDisabled && s != engine.JobStopped && s != engine.JobRemoved && s != engine.JobDraining && s != engine.JobNoSession
}

// itemsOf returns the items of a job. If several hosts know an item, a host that answers and has a session
// wins, then one that has begun it, then the newer report.
func itemsOf(parts []part) []Item {
	type known struct {
		Item
		past bool
	}
	byNumber := make(map[int]known)
	for _, p := range parts {
		for _, i := range slices.Concat(p.Items, p.LastItems) {
			have, there := byNumber[i.Item]
			better := !there
			switch {
			case !there:
			case p.past() != have.past:
				better = have.past
			case i.Begun() != have.Begun():
				better = i.Begun()
			default:
				better = i.LastEnd.After(have.LastEnd)
			}
			if better {
				byNumber[i.Item] = known{Item{i, p.host}, p.past()}
			}
		}
	}
	items := make([]Item, 0, len(byNumber))
	for _, i := range byNumber {
		items = append(items, i.Item)
	}
	slices.SortFunc(items, func(a, b Item) int { return a.ItemStatus.Item - b.ItemStatus.Item })
	return items
}

// lastOf returns the newest fire that hosts remember, over all of them: from the first begin to the last end.
// After a restart they remember only what the records of their items say.
func lastOf(parts []part, items []Item) *Last {
	var last *Last
	for _, p := range parts {
		f := p.LastFire
		if f == nil {
			continue
		}
		begun, ended := f.Span()
		switch {
		case last != nil && last.trigger == f.Trigger && (f.Trigger != 0 || f.Instant.Equal(last.Instant)):
			if begun.Before(last.Begun) {
				last.Instant, last.Begun = f.Instant, begun
			}
			last.Ended = later(last.Ended, ended)
			if tree.Worse(string(f.Outcome), string(last.Outcome)) {
				last.Outcome = f.Outcome
			}
		case last == nil || newer(f, begun, last):
			last = &Last{Instant: f.Instant, Source: f.Source, Begun: begun, Ended: ended, Outcome: f.Outcome, trigger: f.Trigger}
		}
	}
	if last != nil {
		last.Duration = last.Ended.Sub(last.Begun)
	}
	for _, i := range items {
		if i.LastEnd.IsZero() || i.LastOutcome == "" {
			continue
		}
		if last == nil {
			last = new(Last)
		}
		if last.Begun.IsZero() {
			last.Ended = later(last.Ended, i.LastEnd)
		}
		says := i.LastOutcome == last.Outcome && last.Message == ""
		if !i.LastEnd.Before(last.Instant) && (says || tree.Worse(string(i.LastOutcome), string(last.Outcome))) {
			last.Outcome, last.Message = i.LastOutcome, i.LastMessage
		}
	}
	return last
}

// newer reports whether fire f, which began at begun, is newer than last. It compares scheduled fires by their instants, because
// hosts may begin the same instant at different times.
func newer(f *engine.FireStatus, begun time.Time, last *Last) bool {
	if f.Trigger == 0 && last.trigger == 0 {
		return f.Instant.After(last.Instant)
	}
	return begun.After(last.Begun)
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func healthOf(j *Job, parts []part, now time.Time) Health {
	errors, paused := false, true
	for _, p := range parts {
		state := p.known()
		errors = errors || state == engine.JobError || state == engine.JobNoSession
		paused = paused && (state == engine.JobDisabled || state == engine.JobStopped || state == engine.JobRemoved)
	}
	expired := slices.ContainsFunc(j.Waits, func(w engine.WaitStatus) bool {
		return w.Expired || (!j.Next.IsZero() && w.Until.After(j.Next))
	})
	switch {
	case errors:
		return HealthError
	case j.Held > 0, j.Last != nil && j.Last.Outcome.Failed():
		return HealthFailing
	case paused:
		return HealthPaused
	case expired, isLate(j, now):
		return HealthLate
	}
	return HealthOK
}

// isLate reports whether a job is due, and none of its items has begun.
func isLate(j *Job, now time.Time) bool {
	return !j.Next.IsZero() && now.Sub(j.Due()) > lateAfter && j.Running+j.Queued == 0
}
