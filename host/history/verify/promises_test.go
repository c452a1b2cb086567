package verify

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/event"
	"github.com/wasmjob/wasmjob/internal/text/reason"
)

// promise skips an item for an instant and announces a run in its place.
func (b *book) promise(at, due float64, item int) *book {
	return b.of(at, event.ItemSkipped, event.Event{Instant: instant(due), Item: &item, RunID: runID(due, item), Owed: true, Reason: "the item still runs; it runs again right after"})
}

// awake keeps the host talking of the job, every 30 seconds.
func (b *book) awake(from, to float64) *book {
	for at := from; at <= to; at += 30 {
		b.later(at)
	}
	return b
}

// TestPromises: a reason that announces a run is no excuse if the run does not
// come.
func TestPromises(t *testing.T) {
	t.Parallel()
	// begun runs an item at second 0, and makes all that is due later no matter.
	begun := func() *book { return open("a", a1).fire(0, 0, 1, 0).run(1, 12, 0, 0, 5) }
	final := func(b *book, at float64) *book {
		return b.of(at, event.ItemSkipped, event.Event{Instant: instant(at), Item: new(int), Reason: "the item is disabled"})
	}
	for name, tc := range map[string]struct {
		build func() []*book
		kept  bool
	}{
		"never made up": {func() []*book { return []*book{begun().promise(10, 10, 0).awake(30, 700)} }, false},
		"promised again and again": {func() []*book {
			b := begun()
			for at := 10.0; at < 700; at += 10 {
				b.promise(at, at, 0)
			}
			return []*book{b}
		}, false},
		"made up": {func() []*book {
			return []*book{begun().promise(10, 10, 0).run(13, 14, 10, 0, 6).awake(30, 700)}
		}, true},
		"a newer instant stands for it": {func() []*book {
			return []*book{begun().promise(10, 10, 0).run(21, 22, 20, 0, 6).awake(30, 700)}
		}, true},
		"an older instant stands for nothing": {func() []*book {
			return []*book{begun().promise(10, 10, 0).run(21, 22, 5, 0, 6).awake(30, 700)}
		}, false},
		"a later reason":     {func() []*book { return []*book{final(begun().promise(10, 10, 0), 20).awake(30, 700)} }, true},
		"a reason of before": {func() []*book { return []*book{final(begun(), 9).promise(10, 10, 0).awake(30, 700)} }, false},
		"it runs all the while": {func() []*book {
			return []*book{open("a", a1).fire(0, 0, 1, 0).start(1, 0, 0, 5).promise(10, 10, 0).awake(30, 700)}
		}, true},
		"it ran for long, and not again": {func() []*book {
			b := open("a", a1).fire(0, 0, 1, 0).start(1, 0, 0, 5).promise(10, 10, 0).awake(30, 600)
			return []*book{b.end(605, 0, 0, 5, "OK").done(605, 0, 0, 5).awake(630, 1000)}
		}, false},
		"it was begun once more by the host that takes over": {func() []*book {
			a, b := open("a", a1).fire(0, 0, 1, 0).start(1, 0, 0, 5).promise(10, 10, 0), open("b", b1)
			return []*book{a, b.run(30, 40, 0, 0, 6).run(41, 42, 10, 0, 7).awake(50, 700)}
		}, true},
		"its host died, and nobody makes it up": {func() []*book {
			a, b := open("a", a1).fire(0, 0, 1, 0).start(1, 0, 0, 5).promise(10, 10, 0), open("b", b1)
			return []*book{a, b.run(30, 40, 0, 0, 6).awake(50, 700)}
		}, false},
		"no host has a session": {func() []*book { return []*book{begun().promise(10, 10, 0).session(15, "suspect").awake(30, 700)} }, true},
		"no host had a session for long": {func() []*book {
			b := begun().promise(10, 10, 0).session(15, "suspect").session(650, "live")
			return []*book{b.later(652).run(660, 661, 650, 0, 6)}
		}, true},
		"no host for long, and then it does not run": {func() []*book {
			return []*book{begun().promise(10, 10, 0).session(15, "suspect").session(650, "live").awake(652, 1300)}
		}, false},
		"all hosts were dead for long": {func() []*book {
			a, b := begun().promise(10, 10, 0), open("b", b1)
			for i := range b.seen {
				b.seen[i].e.Time = b.seen[i].e.Time.Add(650 * time.Second)
			}
			return []*book{a, b.later(652).run(660, 661, 650, 0, 6)}
		}, true},
		"fewer items": {func() []*book {
			b := open("a", a1).fire(0, 0, 2, 0).run(1, 12, 0, 0, 5).promise(10, 10, 0).promise(10, 10, 1).run(13, 14, 10, 0, 6)
			return []*book{b.of(15, event.Sharded, event.Event{Total: 1}).awake(30, 700)}
		}, true},
		"held back": {func() []*book {
			return []*book{begun().promise(10, 10, 0).of(15, event.ItemHeld, event.Event{Instant: instant(10), Item: new(int)}).awake(30, 700)}
		}, true},
		"removed": {func() []*book {
			return []*book{begun().promise(10, 10, 0).of(15, event.JobRemoved, event.Event{Reason: "removed from the registry"}).awake(30, 700)}
		}, true},
		"all servers are disabled": {func() []*book {
			return []*book{begun().promise(10, 10, 0).of(20, event.FireSkipped, event.Event{Instant: instant(20), Source: abi.SourceSchedule, Reason: "disabled"}).awake(30, 700)}
		}, true},
		"one server is disabled": {func() []*book {
			a, b := begun().promise(10, 10, 0), open("b", b1).fire(21, 20, 1)
			return []*book{a.of(20, event.FireSkipped, event.Event{Instant: instant(20), Source: abi.SourceSchedule, Reason: "disabled"}).awake(30, 700), b}
		}, false},
		"of a whole fire": {func() []*book {
			return []*book{begun().of(10, event.FireSkipped, event.Event{Instant: instant(10), Through: instant(30), Items: []int{0}, Source: abi.SourceSchedule, Owed: true}).awake(30, 700)}
		}, false},
		"of a whole fire, and made up": {func() []*book {
			b := begun().of(10, event.FireSkipped, event.Event{Instant: instant(10), Through: instant(30), Items: []int{0}, Source: abi.SourceSchedule, Owed: true})
			return []*book{b.run(41, 42, 40, 0, 6).awake(50, 700)}
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			kept := true
			for _, f := range check(Options{}, tc.build()...).Findings {
				if strings.Contains(f.Text, "was promised") {
					kept = false
					if f.Class != Violated || f.Invariant != Accounted || len(f.Lines) == 0 {
						t.Errorf("finding %+v", f)
					}
				}
			}
			if kept != tc.kept {
				t.Errorf("kept: %v, want %v", kept, tc.kept)
			}
		})
	}
}

// TestWordOfTheDead: whoever knows that the run of a dead host was not completed
// demands that a host takes it over or writes that it is lost, in time.
func TestWordOfTheDead(t *testing.T) {
	t.Parallel()
	item := 0
	lost := event.Event{Instant: instant(0), Item: &item, RunID: runID(0, item), Outcome: "LOST", Reason: "its host died while it ran"}
	for name, tc := range map[string]struct {
		survivor  func(*book) *book
		completed bool
		violated  bool
	}{
		"nobody says anything":       {func(b *book) *book { return b.skip(10, 10, 0, "x").awake(30, 1500) }, false, true},
		"its completion took effect": {func(b *book) *book { return b.skip(10, 10, 0, "x").awake(30, 1500) }, true, false},
		"lost": {func(b *book) *book {
			return b.skip(10, 10, 0, "x").awake(30, 400).of(410, event.ItemSkipped, lost).awake(430, 1500)
		}, false, false},
		"taken over": {func(b *book) *book {
			return b.skip(10, 10, 0, "x").awake(30, 400).run(410, 411, 0, 0, 6).awake(430, 1500)
		}, false, false},
		"lost, and written down much too late": {func(b *book) *book {
			return b.skip(10, 10, 0, "x").awake(30, 1500).of(1510, event.ItemSkipped, lost)
		}, false, true},
		"nobody could, there is no session": {func(b *book) *book {
			return b.skip(10, 10, 0, "x").awake(30, 590).session(600, "suspect").awake(630, 1500)
		}, false, false},
		"nobody may, the server is disabled": {func(b *book) *book {
			for at := 10.0; at < 1500; at += 30 {
				b.of(at, event.FireSkipped, event.Event{Instant: instant(at), Source: abi.SourceSchedule, Reason: "disabled"})
			}
			return b
		}, false, false},
		"begun anew, and its record named none": {func(b *book) *book { return b.awake(30, 200).run(210, 211, 10, 0, 6).awake(230, 1500) }, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			dead := open("a", a1).fire(0, 0, 1, 0).start(1, 0, 0, 5)
			r := check(Options{Completed: func(id string) bool { return tc.completed && strings.Contains(id, "/0") }}, dead, tc.survivor(open("b", b1)))
			if violated := r.Violations > 0; violated != tc.violated {
				t.Errorf("violated: %v, want %v: %+v", violated, tc.violated, r.Findings)
			}
		})
	}
}

// TestStillRuns: who says that an item runs on it has a run of the item open.
func TestStillRuns(t *testing.T) {
	t.Parallel()
	says := func(b *book, at float64) *book {
		return b.of(at, event.ItemSkipped, event.Event{Instant: instant(at), Item: new(int), Runs: true, Reason: "the item still runs; misfire is off"})
	}
	for name, tc := range map[string]struct {
		books []*book
		true  bool
	}{
		"it does":                            {[]*book{says(open("a", a1).start(1, 0, 0, 5), 10)}, true},
		"it has ended and is not completed":  {[]*book{says(open("a", a1).start(1, 0, 0, 5).end(2, 0, 0, 5, "OK"), 10)}, true},
		"it was completed":                   {[]*book{says(open("a", a1).run(1, 2, 0, 0, 5), 10)}, false},
		"it was never started":               {[]*book{says(open("a", a1), 10)}, false},
		"it runs on another host":            {[]*book{says(open("a", a1), 10), open("b", b1).start(1, 0, 0, 5)}, false},
		"the beginning of the file was lost": {[]*book{says(&book{name: "a", id: a1}, 10)}, true},
	} {
		t.Run(name, func(t *testing.T) {
			told := true
			for _, f := range check(Options{}, tc.books...).Findings {
				told = told && !strings.Contains(f.Text, "still runs on it")
			}
			if told != tc.true {
				t.Errorf("believed: %v, want %v", told, tc.true)
			}
		})
	}
}

// TestSkippedByAll: an item whose owner has gone is excused if each host that had
// the job skipped the fire for good: no host may have the item.
func TestSkippedByAll(t *testing.T) {
	t.Parallel()
	skips := func(b *book, at float64) *book {
		return b.of(at, event.FireSkipped, event.Event{Instant: instant(at), Items: []int{0}, Total: 2, Source: abi.SourceSchedule, Reason: "this server is disabled for the job"})
	}
	for name, tc := range map[string]struct {
		books   []*book
		excused bool
	}{
		"all skipped it":    {[]*book{skips(open("a", a1), 10).awake(30, 700)}, true},
		"one did not":       {[]*book{skips(open("a", a1), 10).awake(30, 700), open("b", b1).awake(30, 700)}, false},
		"one began an item": {[]*book{skips(open("a", a1), 10).awake(30, 700), open("b", b1).fire(10, 10, 2, 2).awake(30, 700)}, false},
		"one came after it": {[]*book{skips(open("a", a1), 10).awake(30, 700), open("b", b1).of(20, event.JobRemoved, event.Event{}).of(30, event.JobAdded, event.Event{}).awake(60, 700)}, true},
	} {
		t.Run(name, func(t *testing.T) {
			excused := true
			for _, f := range check(Options{}, tc.books...).Findings {
				excused = excused && f.Item != 1
			}
			if excused != tc.excused {
				t.Errorf("item 1 is excused: %v, want %v", excused, tc.excused)
			}
		})
	}
}

// TestOutageWithinAFire: a run that ends with its host's session has the time that others
// have from when some host has a session again.
func TestOutageWithinAFire(t *testing.T) {
	t.Parallel()
	// Both hosts are without a session for long, and get one in turns.
	cut := func() *book {
		return open("a", a1).fire(0, 0, 1, 0).start(1, 0, 0, 5).session(2, "suspect").other(20, 640).end(641, 0, 0, 5, "CANCELLED").lost(641).live(642, "a2").later(643).later(659)
	}
	other := func() *book { return open("b", b1).session(2, "suspect").other(21, 641).lost(644).live(645, "b2") }
	for name, tc := range map[string]struct {
		books      []*book
		violations int
	}{
		"it goes on":       {[]*book{cut().run(660, 661, 0, 0, 6).awake(670, 1300), other()}, 0},
		"it never goes on": {[]*book{cut().awake(670, 1300), other()}, 1},
	} {
		found := 0
		for _, f := range check(Options{}, tc.books...).Findings {
			if strings.Contains(f.Text, "neither ended") {
				found++
			}
		}
		if found != tc.violations {
			t.Errorf("%s: %d violations, expected %d", name, found, tc.violations)
		}
	}
}

// TestForGood: who says for good why an item does not run for an instant is held to that, unless the job has
// changed since.
func TestForGood(t *testing.T) {
	t.Parallel()
	said := func(cause event.SkipCause, e event.Event) *book {
		e.Instant, e.Item, e.Cause, e.Reason = instant(10), new(int), cause, "so it is"
		at := 12.0
		if !e.Through.IsZero() {
			at = 31
		}
		return open("a", a1).fire(0, 0, 1, 0).run(1, 12, 0, 0, 5).of(at, event.ItemSkipped, e)
	}
	for name, tc := range map[string]struct {
		book *book
		kept bool
	}{
		"overlap": {said(event.SkipOverlap, event.Event{}).run(13, 14, 10, 0, 6), false},
		"queue full": {open("a", a1).fire(0, 0, 1, 0).start(1, 0, 0, 5).of(12, event.ItemSkipped, event.Event{Instant: instant(10), Item: new(int), Cause: event.SkipQueueFull, Reason: "so it is"}).
			end(12.5, 0, 0, 5, "OK").done(12.5, 0, 0, 5).run(13, 14, 10, 0, 6), false},
		"queue full, and nothing of the item runs": {said(event.SkipQueueFull, event.Event{}).run(13, 14, 10, 0, 6), true},
		"late":    {said(event.SkipLate, event.Event{}).run(13, 14, 10, 0, 6), false},
		"too old": {said(event.SkipTooOld, event.Event{Through: instant(30)}).run(33, 34, 20, 0, 6), false},
		"by a clock that was ahead": {open("a", a1).fire(0, 0, 1, 0).run(1, 4, 0, 0, 5).
			of(5, event.ItemSkipped, event.Event{Instant: instant(10), Item: new(int), Cause: event.SkipOverlap, Reason: "so it is"}).run(13, 14, 10, 0, 6), true},
		"by a clock that was wrong": {open("a", a1).of(0, event.Clock, event.Event{}).fire(0, 0, 1, 0).run(1, 12, 0, 0, 5).
			of(12, event.ItemSkipped, event.Event{Instant: instant(10), Item: new(int), Cause: event.SkipOverlap, Reason: "so it is"}).run(13, 14, 10, 0, 6), true},
		"another instant": {said(event.SkipOverlap, event.Event{}).run(23, 24, 20, 0, 6), true},
		"later":           {said(event.SkipLater, event.Event{Owed: true}).run(13, 14, 10, 0, 6), true},
		"disabled":        {said(event.SkipDisabled, event.Event{}).run(13, 14, 10, 0, 6), true},
		"the job changed": {said(event.SkipOverlap, event.Event{}).of(12.5, event.JobChanged, event.Event{Source: abi.SourceSchedule}).run(13, 14, 10, 0, 6), true},
	} {
		found := slices.ContainsFunc(check(Options{}, tc.book.awake(40, 700)).Findings, func(f Finding) bool {
			return f.Class == Violated && strings.HasSuffix(f.Text, "and a host had said why it would not")
		})
		if found == tc.kept {
			t.Errorf("%s: found %v", name, found)
		}
	}
}

// TestToldWhenEnabled: of an instant that was due while all servers were disabled and all hosts were away, the hosts
// that come tell when a server is enabled, however late; the settling time counts from then.
func TestToldWhenEnabled(t *testing.T) {
	t.Parallel()
	disabled := func(b *book, from, to float64) *book {
		for at := from; at <= to; at += 10 {
			b.of(at, event.FireSkipped, event.Event{Instant: instant(at), Source: abi.SourceSchedule, Cause: event.SkipDisabled, Reason: "this server is disabled for the job"})
		}
		return b
	}
	gone := func() *book {
		return open("a", a1).fire(0, 0, 1, 0).run(1, 2, 0, 0, 5).add(5, event.Event{Kind: event.HostStopped})
	}
	came := func() *book {
		b := &book{name: "b", id: b1}
		b.add(30, event.Event{Kind: event.HostStarted}).add(30, event.Event{Kind: event.Session, Host: b1, Reason: "live"}).of(30, event.JobAdded, event.Event{})
		return disabled(b, 40, 1200)
	}
	item := 0
	tell := func(b *book) *book {
		return b.of(1205, event.ItemSkipped, event.Event{Instant: instant(10), Through: instant(1200), Item: &item, Source: abi.SourceCatchUp, Cause: event.SkipDisabled, Reason: "x"})
	}
	goesOn := func(b *book) *book {
		for at := 1210.0; at <= 2000; at += 10 {
			b.fire(at, at, 1, 0).run(at+1, at+2, at, 0, int64(at))
		}
		return b
	}
	for name, tc := range map[string]struct {
		b     *book
		found int
	}{
		"told":                 {goesOn(tell(came())), 0},
		"not told":             {goesOn(came()), 1},
		"disabled until now":   {came(), 0},
		"nobody says disabled": {open("b", b1).awake(30, 1200), 1},
		"enabled a moment ago": {came().fire(1210, 1210, 1, 0).run(1211, 1212, 1210, 0, 9), 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := 0
			for _, f := range check(Options{}, gone(), tc.b).Findings {
				if f.Invariant == Accounted && strings.Contains(f.Text, "no record of the fire") {
					n++
				}
			}
			if n != tc.found {
				t.Errorf("%d findings, want %d", n, tc.found)
			}
		})
	}
}

// TestToldBeforeADayOff: an instant that was to come while all servers were disabled, and for which no host was there, needs no record until
// a server is enabled, also if no other instant follows for long.
func TestToldBeforeADayOff(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		last  func(*book) *book
		found int
	}{
		"disabled": {func(b *book) *book {
			return b.of(10, event.FireSkipped, event.Event{Instant: instant(10), Next: instant(20), Source: abi.SourceSchedule, Cause: event.SkipDisabled, Reason: "this server is disabled for the job"})
		}, 0},
		"it ran": {func(b *book) *book { return b.fire(10, 10, 1, 0).run(11, 12, 10, 0, 6) }, 1},
	} {
		gone := tc.last(open("a", a1).fire(0, 0, 1, 0).run(1, 2, 0, 0, 5)).add(15, event.Event{Kind: event.HostStopped})
		came := &book{name: "b", id: b1}
		came.add(30, event.Event{Kind: event.HostStarted}).add(30, event.Event{Kind: event.Session, Host: b1, Reason: "live"}).of(30, event.JobAdded, event.Event{}).awake(40, 1200)
		found := 0
		for _, f := range check(Options{}, gone, came).Findings {
			if f.Invariant == Accounted && strings.Contains(f.Text, "no record of the fire") {
				found++
			}
		}
		if found != tc.found {
			t.Errorf("%s: %d findings, want %d", name, found, tc.found)
		}
	}
}

// A promised run that waits under a limit waits as long as others run under it, of whichever job, and no longer.
func TestPromises_underALimit(t *testing.T) {
	t.Parallel()
	waits := func(others float64) []*book {
		a := open("a", a1).fire(0, 0, 2, 0, 1).run(1, 2, 0, 0, 3).run(1, 2, 0, 1, 4).fire(10, 10, 2, 0)
		item := 1
		a.of(10, event.ItemSkipped, event.Event{Instant: instant(10), Item: &item, RunID: runID(10, 1), Cause: event.SkipLater, Owed: true}.Why(reason.New(reason.WaitsForPermit, `"k"`, 1)))
		fence := int64(5)
		for at := 10.0; at < others; at += 100 {
			a.run(at, at+99, 10, 0, fence)
			fence++
		}
		a.awake(others+100, 1990)
		return []*book{a.start(2000, 10, 1, 100).end(2001, 10, 1, 100, "OK").done(2001, 10, 1, 100).skip(2010, 2010, 0, "x").skip(2010, 2010, 1, "x").later(2100)}
	}
	for others, want := range map[float64]int{1990: 0, 500: 1} {
		found := 0
		for _, f := range check(Options{Settle: time.Minute}, waits(others)...).Findings {
			if strings.Contains(f.Text, "was promised") {
				found++
			}
		}
		if found != want {
			t.Errorf("others run until second %v: %d promises are found broken, want %d", others, found, want)
		}
	}
}
