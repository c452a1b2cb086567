package engine

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wasmjob/wasmjob/coordination"
	"github.com/wasmjob/wasmjob/coordination/fence"
	"github.com/wasmjob/wasmjob/coordination/jobconfig"
	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/registry/embedded"
	"github.com/wasmjob/wasmjob/coordination/tree"
	"github.com/wasmjob/wasmjob/host/event"
	"github.com/wasmjob/wasmjob/host/schedule"
	"github.com/wasmjob/wasmjob/host/schedule/due"
)

const (
	ourselves = "10.0.0.1@-@1-aa"
	ofOurs    = "10.0.0.2@-@2-bb"
	aJavaHost = "10.0.0.3@-@33"
)

// javaJob is a job's loop that does not run, of a host that others of ours and
// Java hosts are beside, and what it told.
func javaJob(t *testing.T, r registry.Center) (*job, *[]event.Event) {
	t.Helper()
	var events []event.Event
	h, err := New(Config{
		Dial:      func(context.Context) (registry.Center, error) { return nil, registry.ErrUnavailable },
		Namespace: "test", ServerIP: "10.0.0.1", OnEvent: func(e event.Event) { events = append(events, e) },
	})
	if err != nil {
		t.Fatal(err)
	}
	self := tree.JobInstance{ID: ourselves, ServerIP: "10.0.0.1"}
	j := newJob(newTerm(h, &fence.Session{Center: r}), Job{Definition: jobconfig.Configuration{JobName: "mixed"}}, self)
	j.work = t.Context()
	j.member.View = coordination.View{Layout: j.member.Layout, Self: self, Exists: true, Leader: ourselves, OurTerm: true,
		Instances: []string{aJavaHost, ofOurs, ourselves}, Members: []string{ourselves, ofOurs}}
	return j, &events
}

// at is a moment so long after an arbitrary one, with a wall clock that is
// an hour ahead.
func at(d time.Duration) moment {
	start := time.Date(2026, 5, 4, 10, 0, 0, 0, time.UTC)
	return moment{start.Add(d), start.Add(d + time.Hour)}
}

func TestAScheduleThatJavaHostsReadOtherwiseIsRefusedWhileOneIsThere(t *testing.T) {
	for _, c := range []struct {
		cron, zone string
		props      map[string]string
		java       bool
		refused    string // part of the reason; empty: followed
	}{
		{"0 * * * * ?", "GMT+08:00", nil, true, ""},
		{"0 * * * * ?", "", nil, true, ""},
		{"0 * * * * ?", "Europe/Berlin", nil, true, "Europe/Berlin"},
		{"0 * * * * ?", "Europe/Berlin", nil, false, ""},
		{"*/5 * * * *", "", nil, true, "6 or 7 fields"},
		{"*/5 * * * *", "", nil, false, ""},
		{"", "", nil, true, ""},
		{"0 * * * * ?", "", map[string]string{"wasm.overlap": "queue_all", "wasm.startWithin": "5m"}, true, "does not follow overlap, startWithin"},
		{"0 * * * * ?", "", map[string]string{"wasm.overlap": "queue_all"}, false, ""},
		{"0 * * * * ?", "", map[string]string{"wasm.overlap": "queue_one", "wasm.catchUp": "latest"}, true, ""},
		{"0 * * * * ?", "", map[string]string{"wasm.catchUp": "none"}, true, "does not follow catchUp"},
		{"0 * * * * ?", "", map[string]string{"wasm.catchUpWindow": "10m"}, true, ""},
	} {
		j, _ := javaJob(t, nil)
		if !c.java {
			j.member.View.Instances = []string{ofOurs, ourselves}
		}
		j.cron.lookForJava(jobconfig.Configuration{Cron: c.cron, TimeZone: c.zone, Misfire: true, Props: c.props})
		got := j.javaRefuses().String()
		if (got == "") != (c.refused == "") || !strings.Contains(got, c.refused) || got != "" && !strings.Contains(got, aJavaHost) {
			t.Errorf("cron %q in zone %q, a Java host there %v: %q, want something with %q and the host", c.cron, c.zone, c.java, got, c.refused)
		}
		if j.member.View.Mixed() != c.java {
			t.Errorf("mixed is %v with instances %v", j.member.View.Mixed(), j.member.View.Instances)
		}
	}
}

func TestTheFlagIsDatedWhenItIsFirstSeen(t *testing.T) {
	j, _ := javaJob(t, nil)
	before := j.member.View
	j.member.View.Necessary = true
	j.seeJava(at(0), before)
	if !j.member.View.FlagSeen.Equal(at(0).wall) || !j.sightings.flag.Equal(at(0).Time) {
		t.Errorf("the flag was seen at %s and %s", j.member.View.FlagSeen, j.sightings.flag)
	}
	j.seeJava(at(time.Second), j.member.View)
	if !j.member.View.FlagSeen.Equal(at(0).wall) || !j.sightings.flag.Equal(at(0).Time) {
		t.Errorf("it stands, and is dated anew: %s and %s", j.member.View.FlagSeen, j.sightings.flag)
	}
	if !j.sweeping.at.IsZero() {
		t.Errorf("a sweep at %s, though no Java host went", j.sweeping.at)
	}
}

// Somebody of ours looks after what a Java host left running: who looks after
// the job, when one has gone, or when it comes to look after the job.
func TestWhatAJavaHostLeftIsLookedAfter(t *testing.T) {
	gone := func(v *coordination.View) { v.Instances = []string{ofOurs, ourselves} }
	led := func(before, _ *coordination.View) { before.Leader = ofOurs }
	for name, c := range map[string]struct {
		change func(before, now *coordination.View)
		sweep  bool
	}{
		"nothing changed":                      {func(_, _ *coordination.View) {}, false},
		"a Java host went":                     {func(_, now *coordination.View) { gone(now) }, true},
		"one of ours went":                     {func(_, now *coordination.View) { now.Instances = []string{aJavaHost, ourselves} }, false},
		"a Java host went, another leads":      {func(_, now *coordination.View) { gone(now); now.Leader = ofOurs }, false},
		"it leads now":                         {led, false},
		"it leads now what Java had divided":   {func(b, n *coordination.View) { led(b, n); n.Division.Java = true }, true},
		"it leads now, a Java host held items": {func(b, n *coordination.View) { led(b, n); n.Division.Foreigners = []string{aJavaHost} }, true},
		"the job was not there before":         {func(before, now *coordination.View) { before.Exists = false; gone(now) }, false},
	} {
		j, _ := javaJob(t, nil)
		before := j.member.View
		c.change(&before, &j.member.View)
		j.seeJava(at(0), before)
		want := time.Time{}
		if c.sweep {
			want = at(javaGrace).Time
		}
		if !j.sweeping.at.Equal(want) {
			t.Errorf("%s: a sweep at %s, want %s", name, j.sweeping.at, want)
		}
		j.sweeping.at = at(time.Second).Time
		j.seeJava(at(0), before)
		if !j.sweeping.at.Equal(at(time.Second).Time) {
			t.Errorf("%s: a sweep that comes sooner was put off to %s", name, j.sweeping.at)
		}
	}
}

func TestAHostGoesAheadOfWhoeverKeepsItWaitingInALatch(t *testing.T) {
	j, events := javaJob(t, nil)
	p := &j.takers
	step := func(now moment, around bool) {
		t.Helper()
		p.overdue(j, now)
		if p.Around != around {
			t.Fatalf("%s after the start: goes ahead %v, want %v", now.Sub(at(0).Time), p.Around, around)
		}
	}
	step(at(0), false)
	if !p.until().IsZero() {
		t.Errorf("it waits until %s, and waits for nobody", p.until())
	}
	p.Behind = "/a"
	step(at(0), false)
	if got := p.until(); !got.Equal(at(longestQueue).Time) {
		t.Errorf("it waits until %s", got)
	}
	step(at(longestQueue-1), false)
	p.Behind = "/b" // the line has moved on
	step(at(longestQueue), false)
	late := at(2*longestQueue - 1)
	late.wall = late.wall.Add(24 * time.Hour) // which is no reason
	step(late, false)
	if len(*events) != 0 || !j.recovery.at.IsZero() || j.pace.looked {
		t.Fatalf("something came of waiting: %v", *events)
	}
	late = at(2 * longestQueue)
	late.wall = late.wall.Add(-24 * time.Hour)
	step(late, true)
	if p.Behind != "" || !j.pace.looked || !j.recovery.at.Equal(late.Time) {
		t.Errorf("behind %q, looks again %v, recovers at %s", p.Behind, j.pace.looked, j.recovery.at)
	}
	step(at(4*longestQueue), true)
	if len(*events) != 1 || (*events)[0].Kind != event.JobError || (*events)[0].Wait != event.WaitFailover || !strings.Contains((*events)[0].Reason, "/b has stood in the way for 30s") {
		t.Errorf("what is told: %v", *events)
	}
}

func TestWhatTheExtraWatchShows(t *testing.T) {
	j, _ := javaJob(t, nil)
	j.takers.Behind, j.election.Behind = "/takers/1", "/election/1"
	j.items.put(&item{number: 0, held: true})
	j.items.put(&item{number: 1, held: true})
	marks := coordination.ItemMarks(j.member.Layout, 0)
	takers := registry.Data("/takers/1")

	s := registry.Snapshot{takers: {Exists: true}, registry.Data("/election/1"): {Exists: true}}
	for _, q := range marks {
		s[q] = registry.Node{}
	}
	s[marks[1]] = registry.Node{Exists: true}
	j.seeExtra(at(0), s)
	if j.takers.Behind == "" || j.election.Behind == "" || !j.items.get(0).held || !j.items.get(1).held || !j.recovery.at.IsZero() {
		t.Errorf("nothing has gone, and: %+v %+v %+v %+v", j.takers, j.election, j.items.get(0), j.items.get(1))
	}
	if !j.pace.looked {
		t.Error("it does not look again")
	}

	s[takers] = registry.Node{}
	j.seeExtra(at(time.Second), s)
	if j.takers.Behind != "" || j.election.Behind == "" || !j.recovery.at.Equal(at(time.Second).Time) {
		t.Errorf("it is its turn among the takers, and: %+v %+v, recovers at %s", j.takers, j.election, j.recovery.at)
	}
	s[marks[1]] = registry.Node{}
	j.seeExtra(at(time.Second), s)
	if j.items.get(0).held || j.items.get(1).held {
		t.Error("the marks of an item are gone, and items are still held")
	}

	// Another item's marks say nothing of one that is not watched.
	j.items.get(1).held = true
	for _, q := range marks {
		delete(s, q)
	}
	j.seeExtra(at(time.Second), s)
	if !j.items.get(1).held {
		t.Error("an item whose marks are not watched is held no more")
	}
}

func TestTheExtraWatchFollowsWhatStandsInTheWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, err := embedded.Open(embedded.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer server.Close()
		r, err := server.Connect(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		j, _ := javaJob(t, r)
		j.member.View.Leader = ofOurs // who leads watches servers too
		now := j.host.now()
		j.watchExtra(now)
		if j.watch.extra.snapshots != nil {
			t.Fatal("a watch for nothing")
		}
		j.takers.Behind = "/test"
		j.watchExtra(now)
		first := j.watch.extra.snapshots
		if s := <-first; len(s) != 1 {
			t.Fatalf("the first snapshot shows %d nodes", len(s))
		}
		j.watchExtra(now)
		if j.watch.extra.snapshots != first {
			t.Error("the watch was made anew, and nothing had changed")
		}
		// A held item is waited for as long as Java hosts are there.
		j.items.put(&item{number: 4, held: true, Owed: due.Owed{Due: &tree.Fire{Instant: 1}}})
		j.items.put(&item{number: 7, held: true, Owed: due.Owed{Due: &tree.Fire{Instant: 1}}})
		j.watchExtra(now)
		if len(j.watch.extraFor) != 4 || j.watch.extraFor[1] != coordination.ItemMarks(j.member.Layout, 4)[0] {
			t.Errorf("it watches %v, want the latch and the marks of item 4", j.watch.extraFor)
		}
		if _, open := <-first; open {
			t.Error("the former watch goes on")
		}
		j.member.View.Instances = []string{ofOurs, ourselves}
		j.watchExtra(now)
		if len(j.watch.extraFor) != 1 {
			t.Errorf("it watches %v, and no Java host is there", j.watch.extraFor)
		}
		j.takers.Behind = ""
		j.watchExtra(now)
		if j.watch.extra.snapshots != nil || j.watch.extraFor != nil {
			t.Errorf("it watches %v, and nothing stands in the way", j.watch.extraFor)
		}
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
		j.takers.Behind = "/test"
		j.watchExtra(now)
		if j.watch.extra.snapshots != nil || len(j.watch.extraFor) != 0 {
			t.Error("a watch under a session that is over")
		}
	})
}

// What was due before an item came from Java hosts is theirs.
func TestWhatIsNotOwedToAnItemFromJavaHosts(t *testing.T) {
	s, err := schedule.Parse("0 * * * * ?", time.UTC)
	if err != nil {
		t.Fatal(err)
	}
	minute := func(n int) time.Time { return time.Date(2026, 5, 4, 10, n, 0, 0, time.UTC) }
	for name, c := range map[string]struct {
		record, before, want time.Time
		told                 time.Time // the first instant that is left out
	}{
		"never begun by ours":    {time.Time{}, minute(5), minute(5), time.Time{}},
		"begun before":           {minute(2), minute(5), minute(5), minute(3)},
		"nothing due since":      {minute(4), minute(5).Add(-time.Second), minute(5).Add(-time.Second), time.Time{}},
		"begun by ours, in time": {minute(5), minute(5), minute(5), time.Time{}},
		"ahead of the clock":     {minute(9), minute(5), minute(9), time.Time{}},
	} {
		j, events := javaJob(t, nil)
		j.calendar.Schedule = s
		it := &item{number: 3}
		if !c.record.IsZero() {
			it.state.Record.Instant = c.record.UnixMilli()
		}
		j.dues.notOwed(it, c.before)
		if got := time.UnixMilli(it.state.Record.Instant); !got.Equal(c.want) {
			t.Errorf("%s: nothing is owed up to %s, want %s", name, got, c.want)
		}
		switch {
		case c.told.IsZero() && len(*events) == 0:
		case len(*events) != 1 || (*events)[0].Kind != event.ItemSkipped || *(*events)[0].Item != 3 || !(*events)[0].Instant.Equal(c.told) || !(*events)[0].Through.Equal(c.before):
			t.Errorf("%s: told %v, want a skip from %s to %s", name, *events, c.told, c.before)
		}
	}
}

// TestJavaHostsParkToo: an instant waits on Java hosts as well if the flag stood before it.
func TestJavaHostsParkToo(t *testing.T) {
	instant := at(0).wall
	for name, c := range map[string]struct {
		flag, seen time.Duration // from the instant; flag 0: none
		want       bool
	}{
		"before it":     {-time.Second, -time.Millisecond, true},
		"seen after it": {-time.Second, time.Millisecond, false},
		"just at it":    {-time.Second, 0, false},
		"no flag":       {0, 0, false},
	} {
		j, _ := javaJob(t, nil)
		if c.flag != 0 {
			j.member.View.Necessary, j.member.View.FlagSeen = true, instant.Add(c.seen)
		}
		j.park(instant)
		if j.javaParks != c.want {
			t.Errorf("%s: waits on Java hosts %t, expected %t", name, j.javaParks, c.want)
		}
	}
}
