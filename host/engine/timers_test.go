package engine

import (
	"testing"
	"time"
)

// TestTimers: a loop sleeps until the first time that lies ahead, at most for a minute; a part that goes on at once is asked once.
func TestTimers(t *testing.T) {
	base := time.Now()
	now := moment{base, base.Round(0)}
	var first, second time.Time
	once := false
	ts := timers{always: []timer{kept(&first)}, inside: []timer{kept(&second)}, again: []*bool{&once}}
	for _, c := range []struct {
		first, second time.Duration
		inside, once  bool
		want          time.Duration
	}{
		{want: longestSleep},
		{first: time.Hour, want: longestSleep},
		{first: 2 * time.Second, second: time.Second, want: 2 * time.Second},
		{first: 2 * time.Second, second: time.Second, inside: true, want: time.Second},
		{first: -time.Second, second: time.Second, inside: true, want: time.Second},
		{first: time.Second, once: true, want: 0},
		{first: time.Second, want: time.Second},
	} {
		first, second, once = base.Add(c.first), base.Add(c.second), c.once
		if got := ts.sleep(now, c.inside); got != c.want || once {
			t.Errorf("%+v: the loop sleeps %s, want %s; it goes on at once: %t", c, got, c.want, once)
		}
	}
	if got := now.ahead(base.Add(-time.Second), base.Add(2*time.Second), base.Add(time.Second), time.Time{}); !got.Equal(base.Add(time.Second)) {
		t.Errorf("the first time ahead is %s", got.Sub(base))
	}
	if got := now.atWall(now.wall.Add(time.Minute)); got.Sub(base) != time.Minute {
		t.Errorf("the wall clock shows it in %s", got.Sub(base))
	}
	if got := now.atWall(now.wall); !got.IsZero() {
		t.Errorf("an instant that is over comes at %s", got)
	}
}

// TestDeniedAgain: the loop wakes for the first item that is to be tried again, not for one that waits for something else.
func TestDeniedAgain(t *testing.T) {
	base := time.Now()
	now := moment{base, base.Round(0)}
	of := func(after ...time.Duration) *denials {
		d := &denials{of: make(map[denied]*denial)}
		for n, a := range after {
			d.of[denied{item: n}] = &denial{at: base.Add(a)}
		}
		return d
	}
	for _, c := range []struct {
		d    *denials
		want time.Time
	}{
		{of(), time.Time{}},
		{of(-time.Second), time.Time{}},
		{of(time.Second), base.Add(time.Second)},
		{of(3*time.Second, -time.Second, 2*time.Second), base.Add(2 * time.Second)},
	} {
		if got := c.d.next(now); !got.Equal(c.want) {
			t.Errorf("%d items: tried again at %s, want %s", len(c.d.of), got, c.want)
		}
	}
}

// TestSoonest: a time that is not set puts nothing off, on either side.
func TestSoonest(t *testing.T) {
	var never time.Time
	early := time.Now()
	late := early.Add(time.Second)
	for _, c := range []struct{ a, b, want time.Time }{
		{never, never, never}, {early, never, early}, {never, early, early}, {early, late, early}, {late, early, early},
	} {
		if got := soonest(c.a, c.b); !got.Equal(c.want) {
			t.Errorf("of %s and %s the soonest is %s", c.a, c.b, got)
		}
	}
}
