package zookeeper

import (
	"testing"
	"time"
)

// TestLeaveAfter: a server that is gone is left before anything is suspect, one
// that may be slow has longer, and nobody is left for one that says nothing.
func TestLeaveAfter(t *testing.T) {
	t.Parallel()
	const timeout = 480 * time.Second
	suspect := timeout/suspectAfter - timeout/syncEvery // of a question, if that before it was answered
	for _, c := range []struct {
		heard    signs
		helpless bool
		limit    time.Duration
	}{
		{signs{}, false, 0},
		{signs{}, true, 0},
		{signs{others: true}, false, 90 * time.Second},
		{signs{others: true}, true, 90 * time.Second},
		{signs{same: true}, false, 108 * time.Second},
		{signs{same: true, others: true}, false, 108 * time.Second},
		{signs{same: true, others: true}, true, 0},
	} {
		limit, leave := leaveAfter(timeout, c.heard, c.helpless)
		if limit != c.limit || leave != (c.limit > 0) {
			t.Errorf("%+v, helpless %v: left after %s, %v; want %s", c.heard, c.helpless, limit, leave, c.limit)
		}
		if leave && (limit <= askAfter(timeout) || limit >= suspect) {
			t.Errorf("%+v: left after %s, want it between %s and %s", c.heard, limit, askAfter(timeout), suspect)
		}
	}
}
