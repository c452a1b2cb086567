package engine

import (
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/wasmjob/wasmjob/coordination"
	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/tree"
	"github.com/wasmjob/wasmjob/host/engine/run"
)

// killing is what this host knows of operators' kills of its runs. Each kill is in the record of its run. The
// transactions are those of the job's node of kills, 0 if there is none.
type killing struct {
	job     *access
	items   *items
	fires   map[*run.Fire]bool
	ends    *ends
	denials *denials
	goesOn  func(*run.Execution) bool // whether a run has not ended

	seen    int64     // the newest that a snapshot has shown
	looked  int64     // the one for which the records were read last
	lookAt  time.Time // when the grace of one is over
	ranLong time.Time // when something last had run for long
	// listeners are those that have run for long; named counts them.
	listeners map[*run.Listener]*listening
	named     int
}

// observe takes from a snapshot whether operators have killed something of the job.
func (k *killing) observe(s registry.Snapshot) {
	if n, watched := s[tree.KillQuery(k.job.member.Layout)]; watched {
		k.seen = n.Mzxid
	}
}

// read reads the records of the runs on this host, if an operator has killed something of the job since they were last
// read.
func (k *killing) read(now moment) {
	if k.seen == k.looked || k.job.rests(now) || !k.job.term.registry.Trusted() {
		return
	}
	states := make(map[int]coordination.ItemState)
	all := true
	for _, it := range k.items.of {
		if waits := k.denials.waits(now, it.number); it.run != nil && !waits {
			states[it.number] = it.state
		} else if waits {
			all = false
		}
	}
	if len(states) == 0 && !all {
		return
	}
	killed, denied, err := k.job.member.ReadKills(k.job.work, states)
	if err != nil {
		k.job.failed(now, "reading what operators have killed", err)
		return
	}
	k.denials.note(now, "", denied, k.job.log)
	if err := k.readListeners(); err != nil {
		k.job.failed(now, "reading what operators have killed", err)
		return
	}
	if all && len(denied) == 0 {
		k.looked = k.seen
	}
	for n, state := range killed {
		k.items.get(n).state.Record.Kill = state.Record.Kill
	}
}

// end ends the runs and listeners that operators have killed. A run that began after the kill goes on.
func (k *killing) end(now moment) {
	k.lookAt = time.Time{}
	k.noteListeners(now)
	k.read(now)
	k.endListeners(now)
	for _, it := range k.items.sortedActive(func(it *item) bool { return it.run != nil && it.state.Record.Kill.Asked() }) {
		kill := it.state.Record.Kill
		grace := time.Duration(kill.Grace) * time.Millisecond
		first, unclaimed := it.run.Abort(kill.Reason(), now.Add(grace))
		if first {
			k.job.log.Warn("an operator ends a run", zap.Int("item", it.number), zap.String("run", it.run.RunID()), zap.Stringer("reason", kill.Reason()), zap.Duration("grace", grace))
		}
		if unclaimed {
			ended, _ := it.run.KilledBefore()
			k.ends.hear(ended)
		}
		if at := it.run.Press(now.Time); !at.IsZero() {
			k.lookAt = soonest(k.lookAt, at)
		}
	}
}

// wants reports whether to watch for kills: something has recently run for long.
func (k *killing) wants(now moment) bool {
	for f := range k.fires {
		since, on := f.Started().Add(killWatchAfter), slices.ContainsFunc(f.Runs, k.goesOn)
		if l := f.Listener(); l != nil && !on {
			since, on = l.Since.Add(killWatchAfter), true
		}
		switch {
		case !on:
		case !now.Before(since):
			k.ranLong = now.Time
		default:
			k.lookAt = soonest(k.lookAt, since)
		}
	}
	return !k.ranLong.IsZero() && now.Before(k.ranLong.Add(longestSleep))
}
