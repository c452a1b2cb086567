package engine

import (
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/wasmjob/wasmjob/coordination"
	"github.com/wasmjob/wasmjob/host/event"
	"github.com/wasmjob/wasmjob/internal/text/reason"
)

// moment is one reading of both clocks of a loop. Times at a distance from now (the next try, the end of a drain) are by
// Go's own clock, which nothing sets: they are made from the embedded time, and keep its monotonic reading. Instants of a
// schedule, and dates that others read, are by the wall clock, which may be set forwards and backwards at any time.
type moment struct {
	time.Time
	wall time.Time // has no monotonic reading
}

// instant converts a time of Go's own clock to the wall clock, as the wall clock runs now.
func (m moment) instant(at time.Time) time.Time { return m.wall.Add(at.Sub(m.Time)) }

// machine reads Go's own clock and the machine's wall clock.
func (h *Host) machine() moment { return moment{time.Now(), h.cfg.Now().Round(0)} }

// now reads both clocks. It returns a wall clock that is at most Config.ClockBound ahead of the registry's, even if the
// machine's is further ahead: no item begins and no record is dated later than that.
func (h *Host) now() moment {
	now := h.machine()
	if limit := h.registry.limit(now.Time, h.cfg.ClockBound); !limit.IsZero() && now.wall.After(limit) {
		now.wall = limit
	}
	return now
}

// clock is the wall clock of now.
func (h *Host) clock() time.Time { return h.now().wall }

const (
	// clockInterval is how often a host checks whether its wall clock was set, which no event reports and no timer
	// notices.
	clockInterval = time.Second
	// clockStep is the smallest difference that counts as set. A smaller one may come from slewing, or from waiting for a
	// processor between the two readings.
	clockStep = 100 * time.Millisecond
	// clockSlew is the inverse of how much faster or slower Go's own clock may run than the registry's: 500 ppm, the most
	// by which Linux slews a clock.
	clockSlew = 2000
	// defaultClockBound is how far the host's clock may be ahead of the registry's.
	defaultClockBound = 5 * time.Second
	// offInterval is how often a host asks for the registry's clock while that is too far from the machine's and no
	// commit shows it.
	offInterval = 10 * time.Second
	// leastWrong is how far a record must be ahead of the registry's clock to count as written by a wrong clock. Hosts
	// may have different bounds.
	leastWrong = time.Minute
)

// clockWatch notices that the wall clock was set, or that the machine slept: the wall clock advanced by another time than
// Go's own.
type clockWatch struct{ last moment }

// jumped returns by how much more the wall clock advanced than Go's own since the last call; zero if that is below
// clockStep.
func (w *clockWatch) jumped(now moment) time.Duration {
	last := w.last
	w.last = now
	if d := now.wall.Sub(last.wall) - now.Sub(last.Time); d.Abs() >= clockStep {
		return d
	}
	return 0
}

// registryClock is what a host knows of the registry's clock. Each answer to a commit has the registry's time, which lies
// between the sending of the commit and the receipt of its answer. Later times are computed by Go's own clock. It is safe
// for concurrent use; the zero value knows nothing.
type registryClock struct {
	mu sync.Mutex
	// at is a moment of Go's own clock, at which the registry's clock was between low and high; zero if unknown.
	at        time.Time
	low, high time.Time
	// doubted is when the machine's clock was set, or the machine slept, so that Go's own clock may have stood still;
	// zero after a later answer.
	doubted time.Time
	asked   time.Time // when a job last had to ask
}

// note records the registry's time of an answer. sent and heard are moments of Go's own clock.
func (c *registryClock) note(sent, heard, registry time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if sent.Before(c.doubted) {
		return
	}
	known, fresh := !c.at.IsZero() && c.doubted.IsZero(), later(heard, c.at)
	// The registry's time is in whole milliseconds.
	low, high := registry.Add(fresh.Sub(heard)), registry.Add(time.Millisecond+fresh.Sub(sent))
	if known {
		// An earlier answer narrows the range, unless a clock was set since.
		before, after := c.reckon(fresh)
		if !before.After(high) && !low.After(after) {
			low, high = later(low, before), soonest(high, after)
		}
	}
	c.at, c.low, c.high, c.doubted = fresh, low, high, time.Time{}
}

// reckon returns the range of the registry's clock at a moment. The caller holds mu.
func (c *registryClock) reckon(now time.Time) (low, high time.Time) {
	age := now.Sub(c.at)
	slew := age.Abs() / clockSlew
	return c.low.Add(age - slew), c.high.Add(age + slew)
}

// limit returns the latest time of a clock that is at most bound ahead of the registry's; zero if the registry's clock is
// unknown, or if bound is negative.
func (c *registryClock) limit(now time.Time, bound time.Duration) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.at.IsZero() || bound < 0 {
		return time.Time{}
	}
	_, high := c.reckon(now)
	return high.Add(bound)
}

// time returns the registry's clock; zero if it is unknown.
func (c *registryClock) time(now time.Time) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.at.IsZero() {
		return time.Time{}
	}
	low, high := c.reckon(now)
	return low.Add(high.Sub(low) / 2)
}

// bounds returns the range of the registry's clock; zero if it is unknown. In doubt the upper end is at least the wall
// clock.
func (c *registryClock) bounds(now moment) (low, high time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.at.IsZero() {
		return time.Time{}, time.Time{}
	}
	low, high = c.reckon(now.Time)
	if !c.doubted.IsZero() {
		high = later(high, now.wall)
	}
	return low, high
}

// drift returns how far the machine's clock is ahead of the registry's; false if that is unknown.
func (c *registryClock) drift(machine moment) (drift, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.at.IsZero() || !c.doubted.IsZero() {
		return drift{}, false
	}
	low, high := c.reckon(machine.Time)
	return drift{machine.wall.Sub(high), machine.wall.Sub(low)}, true
}

// doubt records that the machine's clock was set, or that the machine slept.
func (c *registryClock) doubt(now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.doubted = now
}

// wanted reports whether to ask for the registry's clock: it is unknown, or in doubt, or the host is off by more than the
// bound and last asked ten seconds ago. A host that begins nothing because its clock is off makes no commits, whose
// answers would show that the clocks agree again.
func (c *registryClock) wanted(machine moment, bound time.Duration) bool {
	d, known := c.drift(machine)
	if !known {
		return true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return bound >= 0 && d.certain().Abs() > bound && machine.Sub(c.at) >= offInterval
}

// claim reports whether the caller should ask. Of several callers within one second only the first should.
func (c *registryClock) claim(now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now.Before(c.asked.Add(clockInterval)) {
		return false
	}
	c.asked = now
	return true
}

// drift is how far a clock is ahead of the registry's, at least and at most. Negative means behind.
type drift struct{ least, most time.Duration }

// middle returns the middle of the range.
func (d drift) middle() time.Duration { return d.least + (d.most-d.least)/2 }

// certain returns the difference of the clocks that is certain: 0 if they may agree.
func (d drift) certain() time.Duration { return max(d.least, 0) + min(d.most, 0) }

// String returns a text such as "1h0m0s ahead of the registry's".
func (d drift) String() string { return d.reason().String() }

func (d drift) reason() reason.Reason {
	if by := d.middle(); by < 0 {
		return reason.New(reason.BehindRegistry, -by.Round(time.Millisecond))
	}
	return reason.New(reason.AheadOfRegistry, d.middle().Round(time.Millisecond))
}

// clocks are what a term's loop checks each second: whether a clock was set, and whether the machine's is too far from
// the registry's.
type clocks struct{ machine, used clockWatch }

// watchClocks wakes the jobs if the clock that they use was set. It reports when the machine's clock exceeds
// Config.ClockBound, and when it is within the bound again.
func (t *term) watchClocks(c *clocks) {
	h, now := t.host, t.host.machine()
	if by := c.machine.jumped(now); by != 0 {
		h.log.Warn("the wall clock was set, or the machine slept", zap.Duration("by", by))
		h.registry.doubt(now.Time)
		t.nudge()
	}
	if c.used.jumped(h.now()) != 0 || (t.registry.Trusted() && h.registry.wanted(now, h.cfg.ClockBound)) {
		t.nudge()
	}
	d, known := h.registry.drift(now)
	bound := h.cfg.ClockBound
	if bound < 0 || !known {
		return
	}
	off := d.certain().Abs() > bound
	back := h.drifts && d.middle().Abs() <= bound/2
	if off == h.drifts || (h.drifts && !back) {
		return
	}
	h.drifts = off
	why := reason.New(reason.ClockRight, d.reason(), bound)
	switch {
	case off && d.middle() > 0:
		why = reason.New(reason.ClockAhead, d.reason(), bound, bound)
	case off:
		why = reason.New(reason.ClockBehind, d.reason(), bound)
	}
	h.emit(event.Event{Kind: event.Clock, Host: t.self.ID, Drift: d.middle()}.Why(why))
	if off {
		h.log.Error(why.String())
	} else {
		h.log.Info(why.String())
	}
}

// instants returns the limits for coordination.Beginning of what may begin now. A record is repaired only if both the
// machine's and the registry's clock say that it is ahead: otherwise the registry's clock may be the wrong one.
func (h *Host) instants() (latest, ahead int64) {
	now, bound := h.machine(), h.cfg.ClockBound
	limit := h.registry.limit(now.Time, bound)
	if limit.IsZero() {
		return 0, 0
	}
	if d, known := h.registry.drift(now); known && d.certain().Abs() <= bound {
		ahead = limit.Add(max(bound, leastWrong)).UnixMilli()
	}
	return limit.UnixMilli(), ahead
}

// clockStatus returns the clocks for Status; nil if nothing is known.
func (h *Host) clockStatus() *ClockStatus {
	d, known := h.registry.drift(h.machine())
	if !known {
		return nil
	}
	return &ClockStatus{Drift: d.middle(), Uncertainty: (d.most - d.least) / 2, Bound: max(h.cfg.ClockBound, 0),
		Off: h.cfg.ClockBound >= 0 && d.certain().Abs() > h.cfg.ClockBound}
}

// clockCheck compares the machine's clock with the registry's for one job.
type clockCheck struct {
	job  *access
	late error // that the clock is behind by more than the catch-up window, as it was reported
}

// read asks for the registry's clock, if the host does not know it. It reports whether it has asked.
func (c *clockCheck) read(now moment) bool {
	if r := &c.job.host.registry; !r.wanted(c.job.host.machine(), c.job.host.cfg.ClockBound) || !r.claim(now.Time) {
		return false
	}
	if _, err := coordination.RegistryTime(c.job.work, c.job.member.Registry, c.job.member.Layout); err != nil { // the answer to every commit is noted
		c.job.failed(now, "reading the registry's clock", err)
	}
	return true
}

// watch reports once that this host's clock is behind the registry's by more than the job's catch-up window.
func (c *clockCheck) watch(window time.Duration) {
	d, known := c.job.host.registry.drift(c.job.host.machine())
	if !known || c.job.host.cfg.ClockBound < 0 {
		return
	}
	switch late := -d.certain() > max(window, c.job.host.cfg.ClockBound); {
	case !late:
		c.late = nil
	case c.late == nil:
		c.late = reason.New(reason.ClockPastCatchUp, d.reason(), window)
		c.job.log.Error(c.late.Error())
		c.job.Emit(event.Event{Kind: event.JobError}.Why(reason.Of(c.late)))
	}
}

// drift compares this host's clock with the registry's, if the job asks for it. It returns the reason why the job may not
// run; zero if it may.
func (c *clockCheck) drift() reason.Reason {
	limit := c.job.member.View.Config.MaxTimeDiffSeconds
	if limit < 0 {
		return reason.Reason{}
	}
	if _, err := coordination.RegistryTime(c.job.work, c.job.member.Registry, c.job.member.Layout); err != nil { // the answer to every commit is noted
		return reason.New(reason.ClockUnreadable, limit, err)
	}
	if d, known := c.job.host.registry.drift(c.job.host.machine()); known && d.certain().Abs() > time.Duration(limit)*time.Second {
		return reason.New(reason.ClockTooFar, d.middle().Abs().Round(time.Millisecond), limit)
	}
	return reason.Reason{}
}

// registryTime returns the registry's clock, or the wall clock if the registry's is unknown.
func (h *Host) registryTime(now moment) time.Time {
	if at := h.registry.time(now.Time); !at.IsZero() {
		return at
	}
	return now.wall
}

// registryBounds returns the range of the registry's clock. Both ends are the wall clock if the registry's is unknown, or
// if Config.ClockBound sets no bound.
func (h *Host) registryBounds(now moment) (low, high time.Time) {
	if h.cfg.ClockBound >= 0 {
		low, high = h.registry.bounds(now)
	}
	if low.IsZero() {
		return now.wall, now.wall
	}
	return low, high
}

// ahead returns how far the wall clock is ahead of the registry's, as far as known; 0 for a clock that is off.
func (h *Host) ahead(now moment) time.Duration {
	low, high := h.registryBounds(now)
	bound := max(h.cfg.ClockBound, 0)
	return min(max(now.wall.Sub(low.Add(high.Sub(low)/2)), -bound), bound)
}

// untilCame returns how long it takes until an instant has come by the registry's clock; 0 if it has, as far as known.
func (h *Host) untilCame(now moment, at time.Time) time.Duration {
	_, high := h.registryBounds(now)
	return max(at.Sub(high), 0)
}
