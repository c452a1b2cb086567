package host

import "time"

// moment is one reading of both clocks of a loop. What lies a duration from now
// (when to try again, when a drain is over) goes by Go's own clock, which nobody
// sets: those times are made from the embedded one, and keep its monotonic
// reading. Instants of a schedule, and dates that others read, go by the wall
// clock, which may be set at any time, forwards and backwards.
type moment struct {
	time.Time
	wall time.Time // has no monotonic reading
}

// instant is what the wall clock would have shown at a moment of Go's own clock,
// as it goes now.
func (m moment) instant(at time.Time) time.Time { return m.wall.Add(at.Sub(m.Time)) }

// clock reads the wall clock.
func (h *Host) clock() time.Time { return h.cfg.Now().Round(0) }

// now reads both clocks.
func (h *Host) now() moment { return moment{time.Now(), h.clock()} }

const (
	// clockInterval is how often a host looks whether its wall clock was set:
	// nobody tells it, and timers go by the other clock.
	clockInterval = time.Second
	// clockStep is the least that counts as set: less is a clock that is slewed,
	// or a process that waited for a processor between the two readings.
	clockStep = 100 * time.Millisecond
)

// clockWatch tells that the wall clock was set, or that the machine slept: it
// went on otherwise than Go's own clock.
type clockWatch struct{ last moment }

// jumped reports by how much it went on more since it was asked last; zero if
// that is not worth to be told.
func (w *clockWatch) jumped(now moment) time.Duration {
	last := w.last
	w.last = now
	if d := now.wall.Sub(last.wall) - now.Sub(last.Time); d.Abs() >= clockStep {
		return d
	}
	return 0
}
