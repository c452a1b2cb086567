package schedule

// DST says what becomes of local times that come twice or not at all, where clocks are changed.
type DST string

// The rules. Those of a schedule that fires in every hour of the day, and of @every, differ only
// in local times that do not come at all.
const (
	// Once: a local time that comes twice fires the first time, and those that do not come at all
	// fire together at the first instant after the gap.
	Once DST = "once"
	// Both: a local time that comes twice fires both times; else as Once.
	Both DST = "both"
	// Skip: a local time that does not come at all does not fire; else as Once.
	Skip DST = "skip"
)

// With returns the schedule with another rule for days on which clocks are changed. That of
// [Parse] is Once.
func (s *Schedule) With(rule DST) *Schedule {
	other := *s
	other.dst = rule
	return &other
}
