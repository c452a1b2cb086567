package engine

import "time"

// timer returns when a part of the loop has its next work; a zero or past time means no time. Work that was due and is
// not done yet waits for an event, which wakes the loop.
type timer func(now moment) time.Time

// timers are the timers of the parts of a loop.
type timers struct {
	always []timer
	inside []timer // these only while the host is in the job and does not leave it
	// again are set by parts that continue in a pass which follows at once.
	again []*bool
}

// sleep returns how long the loop may sleep after it has done all that it could do now.
func (t *timers) sleep(now moment, inside bool) time.Duration {
	wait, again := longestSleep, false
	for _, once := range t.again {
		again, *once = again || *once, false
	}
	if again {
		return 0
	}
	ask := func(list []timer) {
		for _, wakes := range list {
			if at := wakes(now); at.After(now.Time) {
				wait = min(wait, at.Sub(now.Time))
			}
		}
	}
	ask(t.always)
	if inside {
		ask(t.inside)
	}
	return wait
}

// kept returns the timer of a part that keeps its own time.
func kept(t *time.Time) timer { return func(moment) time.Time { return *t } }

// ahead returns the first of the times that is in the future; zero without one.
func (m moment) ahead(times ...time.Time) (first time.Time) {
	for _, t := range times {
		if t.After(m.Time) {
			first = soonest(first, t)
		}
	}
	return first
}

// atWall returns when the wall clock, if it is not set, will show a time; zero if it has shown it.
func (m moment) atWall(instant time.Time) time.Time {
	if !instant.After(m.wall) {
		return time.Time{}
	}
	return m.Add(instant.Sub(m.wall))
}

// newTimers lists the timers of all parts of the loop.
func (j *job) newTimers() timers {
	return timers{
		always: []timer{
			j.access.wakes,
			j.exit.wakes(j.host.cfg.DrainTimeout),
			j.ends.wakes,
			func(moment) time.Time { return j.denials.next(j.host.now()) },
			j.pause.wakes,
			func(now moment) time.Time { return j.items.enabledAt(now, j.host.registryTime(now)) },
			func(moment) time.Time { return j.outside.Again() },
			kept(&j.pace.stepAt),
			kept(&j.ongoing.at),
			kept(&j.killing.lookAt),
			kept(&j.quotas.at),
			kept(&j.watch.marks.turnAt),
		},
		inside: []timer{
			func(now moment) time.Time { return now.atWall(j.calendar.DueAt()) },
			func(now moment) time.Time { return now.atWall(j.calendar.ExcludedAt()) },
			func(now moment) time.Time { return now.atWall(j.member.View.DivideAt()) },
			j.chain.wakes,
			j.pace.wakes,
			func(moment) time.Time { return j.election.until() },
			func(moment) time.Time { return j.takers.until() },
			kept(&j.recovery.at),
			kept(&j.tally.at),
			kept(&j.sweeping.at),
			kept(&j.quietAt),
			kept(&j.rates.at),
			kept(&j.backfill.at),
			kept(&j.repairs.at),
			kept(&j.offsets.at),
		},
		again: []*bool{&j.stale.atOnce, &j.recovery.atOnce, &j.limits.atOnce, &j.rates.atOnce},
	}
}
