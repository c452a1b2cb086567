package engine

import (
	"math"
	"slices"
	"time"

	"github.com/wasmjob/wasmjob/coordination"
)

const (
	// recoverPause is how long a host waits before it takes what another host
	// could have taken of a crashed one's items; it doubles.
	recoverPause        = time.Second
	longestRecoverPause = 16 * time.Second
	// fewCrashed is of how many hosts at most everybody looks at once for what they
	// left. Of more, as after an outage, most have left nothing, and the janitor
	// sees to that first.
	fewCrashed = 3
)

// recovery is this host's part in the care for what hosts that died have left: when it looks, at which of them, and how much it takes.
type recovery struct {
	recoveryDeps
	at         time.Time // when to look next; zero if nothing is left
	pause      time.Duration
	attempts   int       // since there was something to recover
	yieldUntil time.Time // items are left to hosts with a free worker; zero if not yet
	led        bool      // this host led the job when it last looked
	// A look at a host that left very much takes several passes of the loop, each at once after the
	// one before: next is where it goes on. seen is the version of what was left of the host.
	atOnce bool
	next   map[string]int
	seen   map[string]int32
}

// recoveryDeps is what a recovery is given of the job.
type recoveryDeps struct {
	job       *access
	denials   *denials
	limits    *limits
	runs      func(item int) bool // the item runs here
	full      func() bool         // all workers of the job are taken
	hasModule func() bool         // something could be started
	// from takes over what one dead host has left, and starts it.
	from func(now moment, r coordination.Recovery, drawn bool) (coordination.Recovered, error)
}

func newRecovery(d recoveryDeps) recovery { return recovery{recoveryDeps: d, pause: recoverPause} }

// due reports whether to look now what hosts that died have left.
func (r *recovery) due(now moment) bool {
	return !now.Before(r.at) && (len(r.job.member.View.Crashed()) > 0 || len(r.job.member.View.FailoverItems) > 0 || r.job.member.Takeover.Standing)
}

// takeFromCrashed takes over from hosts that died, or notes what is lost.
func (r *recovery) takeFromCrashed(now moment) {
	j := r.job
	dead := j.member.View.Crashed()
	marked := len(j.member.View.FailoverItems) > 0 // by Java hosts
	if len(dead) == 0 && !marked && !j.member.Takeover.Standing {
		r.denials.settle("", nil)
		clear(r.limits.crashed)
		*r = recovery{recoveryDeps: r.recoveryDeps, pause: recoverPause, led: r.led}
		return
	}
	if r.at.IsZero() && j.member.View.Mixed() {
		r.at = now.Add(javaGrace)
	}
	if r.at.IsZero() && len(dead) > fewCrashed && !j.member.View.IsJanitor() {
		r.at = now.Add(recoverPause)
	}
	if r.limits.takeOver {
		r.limits.takeOver, r.at = false, now.Time
	}
	waits := now.Before(r.at)
	goesOn := slices.ContainsFunc(dead, func(id string) bool { return r.next[id] > 0 })
	if !waits && !goesOn {
		clear(r.limits.crashed) // they are found again
	}
	leads := j.member.View.Leading()
	looks := leads && !r.led && (r.attempts > 0 || !r.yieldUntil.IsZero()) // for what only a leader writes down
	r.led = leads
	if waits && !looks && !goesOn {
		return
	}
	again := r.attempts > 0
	if len(dead) > 1 {
		left, gone, err := j.member.Bury(j.work, dead, again || j.member.View.IsJanitor())
		if err != nil {
			if j.setback(now, "looking for what crashed hosts have left", err) {
				r.later(now)
			}
			return
		}
		for _, id := range gone {
			j.term.gone(id)
		}
		dead = left
	}
	if marked || len(dead) == 0 {
		dead = append(dead, "") // whatever Java hosts have marked; and it leaves the latch
	}

	// A share is taken whole, as the items of a fire are: they queue for the
	// workers. A host without a free one lets the others go first, once. What is
	// lost is written down at once, by any.
	if !waits && !goesOn && r.full() && r.yieldUntil.IsZero() {
		r.yieldUntil = now.Add(2 * r.pause) // the others look again after one
	}
	yields := now.Before(r.yieldUntil)
	limit := math.MaxInt
	if waits || yields || !r.hasModule() {
		limit = 0
	}
	if r.next == nil {
		r.next, r.seen = make(map[string]int), make(map[string]int32)
	}
	for _, id := range dead {
		if goesOn && r.next[id] == 0 {
			continue // it comes with the next look
		}
		out, err := r.from(now, coordination.Recovery{Dead: id, All: again, Limit: limit, Busy: r.runs, From: r.next[id], Seen: r.seen[id], Now: now.wall}, false)
		if err != nil {
			if j.setback(now, "recovering items of "+id, err) {
				r.later(now)
			}
			return
		}
		if r.next[id] = out.Next; out.Next == 0 {
			r.seen[id] = out.Version
		}
		r.atOnce = r.atOnce || out.Next > 0
	}
	if r.atOnce {
		return // what is due meanwhile begins first
	}

	// What is left is another host's share, or disabled: look again later.
	if waits {
		return
	}
	if yields {
		r.at = r.yieldUntil
		return
	}
	r.attempts++
	r.later(now)
}

// later has the crashed hosts looked at again after a pause.
func (r *recovery) later(now moment) {
	r.at = now.Add(r.pause)
	r.pause = min(2*r.pause, longestRecoverPause)
}
