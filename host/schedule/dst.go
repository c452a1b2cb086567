package schedule

// DST says what happens to local times that occur twice or not at all because clocks change.
type DST string

// The rules. For @every and for a schedule that fires in every hour of the day they differ only in local times
// that do not occur.
const (
	// Once: a local time that occurs twice fires the first time; those that do not occur fire together at the
	// first instant after the gap.
	Once DST = "once"
	// Both: a local time that occurs twice fires both times; otherwise as Once.
	Both DST = "both"
	// Skip: a local time that does not occur does not fire; otherwise as Once.
	Skip DST = "skip"
)

// With returns the schedule with another rule for days on which clocks change. [Parse] uses Once.
func (s *Schedule) With(rule DST) *Schedule {
	other := *s
	other.dst = rule
	return &other
}
