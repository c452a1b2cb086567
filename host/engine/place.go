package engine

import (
	"context"
	"runtime"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/coordination"
	"github.com/wasmjob/wasmjob/coordination/jobconfig"
	"github.com/wasmjob/wasmjob/coordination/tree"
	"github.com/wasmjob/wasmjob/host/config/ceiling"
	"github.com/wasmjob/wasmjob/host/engine/changes"
	"github.com/wasmjob/wasmjob/host/engine/run"
	"github.com/wasmjob/wasmjob/host/event"
	"github.com/wasmjob/wasmjob/host/schedule"
	"github.com/wasmjob/wasmjob/internal/text/reason"
)

// place is this host's place in a job: what the job is by its configuration, and whether this host is in it.
type place struct {
	access
	known *run.Job // what the job's fires know of it

	// What the job is.
	wanted Job // as last applied
	guest  jobconfig.Guest
	module module
	cron   cronText

	// Whether the host is in it.
	joining  joining
	exit     exit
	joined   bool
	seen     bool // the view was made from a snapshot of this membership
	announce bool // what the others know of this host (HostDetail) is out of date
	// registered: the registry may hold nodes of this host for the job.
	registered bool
	guests     guests

	pausing pausing

	// Its relation to the registry.
	unread  error   // why a node that the host goes by cannot be read any more
	repairs repairs // external edits to repair
	outside changes.Outside
	clock   clockCheck
	tally   tally
}

// module is the executor that the next fire uses; exec is nil while there is none.
type module struct {
	exec     abi.Executor
	madeFor  string // digest and guest settings that exec was made for
	err      error
	expected time.Time // the next fire, as exec knows it, if informed is set
	informed bool
}

// cronText is what the calendar's schedule was made from.
type cronText struct {
	text    string
	terms   string // what else it was made from; see timetable.Terms
	zone    *time.Location
	madeFor *cronSource // nil: nothing
	err     error
	javaErr error // what Java hosts in the job do otherwise; nil for nothing
}

// cronSource is the cron, the zone and the terms of a configuration. The terms may take 128 KiB, so they are not copied.
type cronSource struct{ cron, zone, terms string }

// joining is the result of the last attempt to join, or to apply a definition.
type joining struct {
	err      error
	applied  coordination.Applied // by the steps of a joining that waits
	waited   time.Duration        // for others to write this host's name down
	outdated string               // says that the definition file is, and how; else empty
}

// exit is the state of a host that leaves a job.
type exit struct {
	left     reason.Reason // why the job is not run here: stopped, removed
	said     tree.Word     // who wants it so
	state    JobState
	noted    bool // that another program has removed the job, or stopped this host, is written down
	leaving  reason.Reason
	draining bool
	// until is when runs are stopped by force, because the host drains, leaves the job, was stopped by an operator, or
	// the job was removed.
	until     time.Time
	begun     bool      // what a leaving begins with was done
	announced bool      // the others know
	stopped   bool      // what a stop by an operator begins with was done
	stopAt    time.Time // when a stop by an operator takes effect
	triedAt   time.Time // when to leave was tried last
}

// leaves reports whether the host is leaving the job, because it stops or no longer has the job.
func (e *exit) leaves() bool { return e.draining || !e.leaving.IsZero() }

// wakes returns when runs are asked to end, and when they are stopped by force.
func (e *exit) wakes(drainTimeout time.Duration) timer {
	return func(now moment) time.Time { return now.ahead(e.until, e.until.Add(-run.SoftGrace(drainTimeout))) }
}

// tried reports whether this host has recently tried to leave, and stayed after all. Its absence from the job's list then
// is not an operator's doing.
func (e *exit) tried(now moment) bool {
	return !e.triedAt.IsZero() && now.Sub(e.triedAt) < longestSleep
}

// tally counts the items that this host has completed; at is when it is published, if set.
type tally struct {
	succeeded, failed int64
	at                time.Time
}

// count counts a completed item.
func (t *tally) count(now moment, outcome abi.Outcome) {
	if outcome == abi.OutcomeOK {
		t.succeeded++
	} else if outcome.Failed() {
		t.failed++
	}
	if t.at.IsZero() {
		t.at = now.Add(tallyInterval)
	}
}

// publish reports whether it is time to publish how many items succeeded and failed on this host.
func (t *tally) publish(now moment) bool {
	if t.at.IsZero() || now.Before(t.at) {
		return false
	}
	t.at = time.Time{}
	return true
}

func (p *place) detail() tree.HostDetail {
	return tree.HostDetail{State: tree.DetailReady, TriggerArgs: true, TriggerQueue: true, RecordedKills: true, Digest: p.wanted.Module.Digest(), TimeZone: schedule.Published(p.cron.zone, p.host.clock().Year()),
		Succeeded: p.tally.succeeded, Failed: p.tally.failed}
}

// brought records what the registry's steps did with the definition.
func (p *place) brought(applied coordination.Applied) {
	p.host.setFormer(p.name, tree.Digest(p.wanted.Definition.YAML()))
	if applied.Created {
		p.host.left.create(p.name)
	}
	p.joining.outdated = ""
	fields, file := zap.String("fields", joinWords(applied.Kept)), zap.String("file", p.wanted.File)
	switch {
	case applied.Superseded:
		p.joining.outdated = "the definition file is out of date: it was applied before and replaced by a newer one since, and is not applied again; it differs in " +
			joinWords(applied.Kept) + "; copy the newer file to this host, or see docs/definitions.md, File and registry"
		p.log.Warn("the definition file is out of date: it was applied before and replaced by a newer one since; the registry's configuration stays in force", fields, file)
	case len(applied.Kept) > 0:
		p.log.Warn("the registry's configuration differs from the definition file and stays in force; overwrite: true would change it", fields, file)
	}
}

// refuse records that the host does not join the job: the registry's configuration, with the definition's changes,
// exceeds the host's ceilings, or the registry has gone back.
func (p *place) refuse(now moment, err error) {
	known := p.joining.err != nil && p.joining.err.Error() == err.Error()
	p.joining.err, p.refusal.retryAt = err, now.Add(refusedAgain)
	p.settled.Store(true)
	if !known {
		p.log.Error("the job does not run on this host", zap.Error(err))
		p.Emit(event.Event{Kind: event.JobError}.Why(reason.Of(err)))
	}
}

// declines reports that this host has to leave the job to others: the configuration exceeds its ceilings, and no earlier
// configuration was in force, or the leader uses the new one.
func (p *place) declines() bool {
	total := p.host.cfg.Ceilings.Of(p.name, ceiling.ShardingTotalCount)
	return beyondCeilings(p.member.View.ConfigErr) && (p.member.View.Config.JobName == "" || total.Beyond(int64(p.member.View.Division.Total)))
}

// guests are the goroutines that run for the job beside its loop.
type guests struct {
	ctx     context.Context         // ends with the loop's work, or when the drain is over
	stop    context.CancelCauseFunc // ends ctx
	running sync.WaitGroup          // fires, and watches of lines
	ended   chan struct{}           // closed when no guest runs any more, and none will
}

// admit lets guests run under work, until they are stopped.
func (g *guests) admit(work context.Context) { g.ctx, g.stop = context.WithCancelCause(work) }

// readmit lets guests run again after the earlier ones were stopped by force.
func (g *guests) readmit(work context.Context) {
	if g.ctx.Err() != nil && work.Err() == nil {
		g.admit(work)
	}
}

// unsharded reports that the job is new and has not been sharded: its items have no owners yet.
func (p *place) unsharded() bool { return p.member.View.NeverSharded() && !p.member.View.JavaLed() }

// most returns how many items of this job may run at the same time on this host, in all its fires together.
func (p *place) most(g jobconfig.Guest) int {
	n := int(p.host.cfg.Ceilings.Of(p.name, ceiling.MaxConcurrency).Cap(int64(g.MaxConcurrency)))
	if n <= 0 {
		return p.known.Slots
	}
	return min(n, p.known.Slots)
}

// concurrency returns how many items of this job may run at the same time on this host. ElasticJob's default is two per
// processor.
func (p *place) concurrency() int {
	n := p.guest.MaxConcurrency
	if n <= 0 {
		n = 2 * runtime.GOMAXPROCS(0)
	}
	return min(n, p.most(p.guest))
}

// leaderRefuses returns why no item begins on this host under a leader that refuses the item count which this host knows:
// guests of both would compute with different counts.
// differently.
func (p *place) leaderRefuses() reason.Reason {
	v := p.member.View
	if v.ConfigErr != nil || !v.LeaderRefuses() || v.Division.Total == v.Config.ShardingTotalCount {
		return reason.Reason{}
	}
	return reason.New(reason.LeaderRefuses, v.Leader, v.Division.Total, v.Config.ShardingTotalCount)
}
