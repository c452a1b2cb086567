package engine

import "time"

// timer says when a part of the loop has something to do next; zero, or a time that is over, is no time. What was to be done by now
// and was not waits for something else, which wakes the loop.
type timer func(now moment) time.Time

// timers are those of the parts of a loop.
type timers struct {
	always []timer
	inside []timer // these only while the host is in the job and does not leave it
	// again are set by parts that go on in a pass which follows at once.
	again []*bool
}

// sleep is how long the loop may sleep after it did all that could be done now.
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

// kept is the timer of a part that keeps a time of its own.
func kept(t *time.Time) timer { return func(moment) time.Time { return *t } }

// ahead is the first of some times that lies ahead; zero if none does.
func (m moment) ahead(times ...time.Time) (first time.Time) {
	for _, t := range times {
		if t.After(m.Time) {
			first = soonest(first, t)
		}
	}
	return first
}

// atWall is when the wall clock will show some time, if it is not set; zero if it has shown it.
func (m moment) atWall(instant time.Time) time.Time {
	if !instant.After(m.wall) {
		return time.Time{}
	}
	return m.Add(instant.Sub(m.wall))
}

// newTimers lists when each part of the loop wants to wake.
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
