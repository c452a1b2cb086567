package engine

import (
	"testing"
	"time"
)

// A job falls behind when an item starts as late as its limit, and is in time
// again when none starts later than half of that.
func TestOverload_limits(t *testing.T) {
	var o overload
	for _, step := range []struct {
		lag, period time.Duration
		behind      bool
		window      time.Duration
	}{
		{1900 * time.Millisecond, time.Hour, false, completionWindow},
		{2 * time.Second, time.Hour, true, time.Second},
		{time.Second, time.Hour, true, time.Second},
		{999 * time.Millisecond, time.Hour, false, completionWindow},
		{999 * time.Millisecond, time.Second, false, completionWindow},
		{time.Second, time.Second, true, 500 * time.Millisecond},
		{500 * time.Millisecond, time.Second, true, 500 * time.Millisecond},
		{499 * time.Millisecond, time.Second, false, completionWindow},
		{5 * time.Second, 0, true, time.Second}, // its last instant
	} {
		before := o.behind
		changed := o.started(step.lag, step.period)
		if o.behind != step.behind || changed != (before != step.behind) || o.window(completionWindow) != step.window {
			t.Errorf("after a lag of %s, each %s: behind %v, changed %v, window %s; expected %v and %s", step.lag, step.period, o.behind, changed, o.window(completionWindow), step.behind, step.window)
		}
		if o.savesMarks(false) != step.behind || o.savesMarks(true) {
			t.Errorf("after a lag of %s, each %s: it saves marks %v, beside Java hosts %v", step.lag, step.period, o.savesMarks(false), o.savesMarks(true))
		}
	}
}
