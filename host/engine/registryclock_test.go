package engine

import (
	"testing"
	"time"
)

// What is known of the registry's clock lies between the sending and the answer,
// a quick answer narrows it down for those that follow, and one that contradicts
// takes its place.
func TestRegistryClock(t *testing.T) {
	t.Parallel()
	start := time.Now()
	day := time.Date(2026, 3, 1, 10, 0, 0, 0, time.UTC)
	at := func(s float64) time.Time { return start.Add(time.Duration(s * float64(time.Second))) }
	type note struct{ sent, heard, registry float64 }
	for name, tc := range map[string]struct {
		notes     []note
		doubt     float64
		asked     float64
		low, high float64 // -1: not known
	}{
		"nothing":                       {asked: 1, low: -1},
		"one answer":                    {notes: []note{{1, 3, 2}}, asked: 3, low: 2, high: 4.001},
		"a while later":                 {notes: []note{{1, 1, 1}}, asked: 2001, low: 2000, high: 2002.001},
		"a quick answer, then a slow":   {notes: []note{{1, 1, 1}, {2, 6, 5}}, asked: 6, low: 5.9975, high: 6.0035},
		"a slow answer, then a quick":   {notes: []note{{2, 6, 5}, {7, 7, 7}}, asked: 7, low: 7, high: 7.001},
		"answers that overtake another": {notes: []note{{3, 3, 3}, {1, 2, 1.5}}, asked: 3, low: 3, high: 3.001},
		"the registry's clock was set":  {notes: []note{{1, 1, 1}, {2, 2, 3602}}, asked: 2, low: 3602, high: 3602.001},
		"and back":                      {notes: []note{{1, 1, 3601}, {2, 3, 2}}, asked: 3, low: 2, high: 4.001 - 1},
		"sent before a doubt":           {notes: []note{{2, 4, 3}}, doubt: 3, asked: 4, low: -1},
		"sent after a doubt":            {notes: []note{{3, 4, 3}}, doubt: 3, asked: 4, low: 3, high: 4.001},
	} {
		var c registryClock
		if tc.doubt != 0 {
			c.doubt(at(tc.doubt))
		}
		for _, n := range tc.notes {
			c.note(at(n.sent), at(n.heard), day.Add(time.Duration(n.registry*float64(time.Second))))
		}
		d, known := c.drift(moment{at(tc.asked), day})
		if known != (tc.low >= 0) {
			t.Errorf("%s: known: %t", name, known)
			continue
		}
		if low, high := -d.most.Seconds(), -d.least.Seconds(); known && (abs(low-tc.low) > 1e-4 || abs(high-tc.high) > 1e-4) {
			t.Errorf("%s: the registry's clock is from %.4f to %.4f, want from %.4f to %.4f", name, low, high, tc.low, tc.high)
		}
	}
}

func abs(f float64) float64 { return max(f, -f) }

// A clock in doubt bounds as before, since Go's own clock may have stood, and is
// asked for once in a second; so is one that is too far away and was not heard of
// for some time.
func TestRegistryClockIsAskedFor(t *testing.T) {
	t.Parallel()
	start := time.Now()
	day := time.Date(2026, 3, 1, 10, 0, 0, 0, time.UTC)
	const bound = 5 * time.Second
	var c registryClock
	after := func(d time.Duration, ahead time.Duration) moment {
		return moment{start.Add(d), day.Add(d + ahead)}
	}
	want := func(when string, now moment, wanted bool) {
		t.Helper()
		if c.wanted(now, bound) != wanted {
			t.Errorf("%s: wanted: %t", when, !wanted)
		}
	}
	want("nothing is known", after(0, 0), true)
	if !c.limit(start, bound).IsZero() {
		t.Error("a limit, and nothing is known")
	}
	c.note(start, start, day)
	want("it was heard of", after(0, 0), false)
	want("long ago", after(24*time.Hour, 0), false)
	want("it is too far away", after(offInterval-1, time.Hour), false)
	want("for some time", after(offInterval, time.Hour), true)
	want("behind as well", after(offInterval, -time.Hour), true)
	if !c.limit(start, -1).IsZero() {
		t.Error("a limit without a bound")
	}
	c.doubt(start.Add(time.Minute))
	want("in doubt", after(time.Minute, 0), true)
	if got := c.limit(start, bound); got.Sub(day) != bound+time.Millisecond {
		t.Errorf("in doubt the limit is %s after the registry's clock", got.Sub(day))
	}
	if !c.claim(start) || c.claim(start.Add(clockInterval-1)) || !c.claim(start.Add(clockInterval)) {
		t.Error("not one caller a second")
	}
}
