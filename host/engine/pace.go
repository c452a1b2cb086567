package engine

import (
	"time"

	"golang.org/x/time/rate"
)

const (
	// stepInterval is how often a job may take a step of the common business,
	// once stepsAtOnce were taken without a rest. Hosts that undo each other's
	// work, whatever made them, must not take the registry with them.
	stepInterval = 200 * time.Millisecond
	stepsAtOnce  = 25
)

// pace is how often the host takes steps of the common business.
type pace struct {
	looked     bool          // no step was taken since the last snapshot
	lookedAt   time.Time     // when a step that waits for a snapshot was taken
	pause      time.Duration // how long it waits before it is taken again; it doubles
	steps      *rate.Limiter
	entered    bool      // it is in the line of this host's jobs that have to take one
	waits      bool      // it waits there for its turn
	stepAt     time.Time // when the next may be taken, after too many
	reportedAt time.Time // when the log last said that there were too many
	wrote      int64     // the newest transaction of this host
	waitsFor   int64     // that of the step
}

func newPace() pace { return pace{steps: rate.NewLimiter(rate.Every(stepInterval), stepsAtOnce)} }

// wakes is when a step that waits for a snapshot is taken again.
func (p *pace) wakes(moment) time.Time {
	if p.looked {
		return time.Time{}
	}
	return p.lookedAt.Add(p.pause)
}

// mayDecide reports whether to decide what the next step is: the last one shows in a snapshot, or has not for so long that it
// may not have been made. A registry that is so slow is not asked the same again and again: the pause doubles.
func (p *pace) mayDecide(now moment) bool {
	switch {
	case p.looked:
		p.pause = lookAgain
	case now.Before(p.lookedAt.Add(p.pause)):
		return false
	default:
		p.pause = min(2*p.pause, commitTimeout)
	}
	return true
}

// mayStep reports whether the next step may be taken. One that follows many others has to wait; restless is called then, once a minute
// at most.
func (p *pace) mayStep(now moment, restless func()) bool {
	if now.Before(p.stepAt) {
		return false
	}
	if p.steps.AllowN(now.Time, 1) {
		return true
	}
	p.stepAt = now.Add(stepInterval)
	if !now.Before(p.reportedAt.Add(longestSleep)) {
		p.reportedAt = now.Time
		restless()
	}
	return false
}
