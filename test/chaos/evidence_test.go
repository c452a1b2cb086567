package chaos

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/host/event"
	"github.com/wasmjob/wasmjob/host/history/verify"
)

// say is a line of a guest, n milliseconds after the beginning of time.
func say(e *evidence, pid int, fence int64, ms int, what string) {
	at := time.UnixMilli(int64(ms))
	e.add(&node{name: fmt.Sprint("h", pid)}, pid, at.Add(time.Second), logLine{Message: what, Attrs: map[string]string{
		"run": "j/1970-01-01T00:00:00.000Z/3", "fence": fmt.Sprint(fence), "at": fmt.Sprint(at.UnixMicro()),
		"task": fmt.Sprintf("j@-@3@-@READY@-@127.0.0.1@-@%d-x", pid),
	}})
}

// TestOverlaps: two guests that were alive at once are found, and that a process
// was halted is no excuse: its lines are dropped when it goes on.
func TestOverlaps(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name     string
		last     string // what the former says at 900
		halted   bool
		found    int
		latterAt int
	}{
		{"one after the other", "beat", false, 0, 901},
		{"both at once", "beat", false, 1, 500},
		{"it woke up", "cancelled", true, 1, 500},
		{"it woke up and committed", "committed", true, 1, 500},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			e := newEvidence()
			say(e, 1, 10, 100, "begin")
			say(e, 1, 10, 200, "beat")
			if c.halted {
				e.halted(1, time.UnixMilli(300), time.UnixMilli(890))
			} else {
				e.halted(1, time.UnixMilli(1300), time.UnixMilli(1890))
			}
			say(e, 1, 10, 900, c.last)
			say(e, 2, 20, c.latterAt, "begin")
			say(e, 2, 20, c.latterAt+1000, "end")
			stints, list := e.overlaps()
			if stints != 2 || len(list) != c.found {
				t.Fatalf("%d stints, overlaps %v, want 2 and %d", stints, list, c.found)
			}
		})
	}
}

// TestWordBroken: what begins while an operator's word stands breaks it: of the item or the host that it is about, else of
// all of them. What began before, or after, does not.
func TestWordBroken(t *testing.T) {
	t.Parallel()
	e := newEvidence()
	for host := 1; host <= 2; host++ {
		for item := range 2 {
			for ms := 1000; ms <= 9000; ms += 4000 {
				at := time.UnixMilli(int64(ms))
				e.add(&node{name: fmt.Sprint("h", host)}, host, at.Add(time.Second), logLine{Message: "begin", Attrs: map[string]string{
					"run": fmt.Sprintf("%s/1970-01-01T00:00:00.000Z/%d", flexJob, item), "fence": fmt.Sprint(ms + item), "at": fmt.Sprint(at.UnixMicro()),
					"task": "x",
				}})
			}
		}
	}
	for name, want := range map[string]int{"standing-disable-job": 4, "standing-disable-item": 2, "standing-remove": 4, "standing-shutdown": 4, "standing-shutdown-host": 2} {
		k := slices.IndexFunc(orders(), func(o order) bool { return o.name == name })
		w := standing{order: orders()[k], item: 1, about: &node{name: "h2"}}
		if got := w.broken(e, time.UnixMilli(2000), time.UnixMilli(8000)); len(got) != want {
			t.Errorf("%s: %d begins break it, expected %d: %v", name, len(got), want, got)
		}
	}
	if len(orders()) != 5 {
		t.Errorf("%d orders, expected each of them above", len(orders()))
	}
}

// TestLate: of guests that were at work when their process was halted beyond its
// session, nothing at all may be heard when it goes on: no line, no commit. A
// line of before that arrives then is none of it, nor is what others say, what is
// begun anew, or what is said after a halt within the session.
func TestLate(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		say    func(e *evidence)
		guests int
		late   string // what it says
	}{
		{"silence", func(*evidence) {}, 1, ""},
		{"the line that was being written", func(e *evidence) { say(e, 1, 10, 299, "beat") }, 1, ""},
		{"a beat", func(e *evidence) { say(e, 1, 10, 900, "beat") }, 1, "beat"},
		{"a commit", func(e *evidence) { say(e, 1, 10, 900, "committed") }, 1, "committed"},
		{"an offset that is refused", func(e *evidence) { say(e, 1, 10, 901, "refused") }, 1, "refused"},
		{"its end", func(e *evidence) { say(e, 1, 10, 5000, "end") }, 1, "end"},
		{"another call of it", func(e *evidence) { say(e, 1, 10, 250, "end"); say(e, 1, 10, 950, "begin") }, 0, "begin"},
		{"a new run", func(e *evidence) { say(e, 1, 30, 950, "begin"); say(e, 1, 30, 990, "end") }, 1, ""},
		{"another process", func(e *evidence) { say(e, 2, 20, 500, "begin"); say(e, 2, 20, 950, "beat") }, 1, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			e := newEvidence()
			say(e, 1, 10, 100, "begin")
			e.halted(1, time.UnixMilli(300), time.UnixMilli(890))
			c.say(e)
			guests, late := e.late(500 * time.Millisecond)
			if guests != c.guests || (len(late) == 0) != (c.late == "") || len(late) > 0 && !strings.Contains(late[0], fmt.Sprintf("said %q", c.late)) {
				t.Errorf("%d guests, late %q; want %d, %q", guests, late, c.guests, c.late)
			}
			if guests, late := e.late(time.Second); guests != 0 || late != nil {
				t.Errorf("halted within the session: %d guests, late %q", guests, late)
			}
		})
	}
}

// TestHasty: who loses an item while ZooKeeper does not serve needs a reason.
func TestHasty(t *testing.T) {
	t.Parallel()
	at := func(ms ...int64) (list []time.Time) {
		for _, m := range ms {
			list = append(list, time.UnixMilli(m))
		}
		return list
	}
	gap := func(from, to int64) interval { return interval{from: time.UnixMilli(from), to: time.UnixMilli(to)} }
	const session = 6 * time.Second
	for _, c := range []struct {
		name string
		told []time.Time
		gaps []interval
		want int
	}{
		{"nobody", nil, []interval{gap(0, 800)}, 0},
		{"within a short election", at(300), []interval{gap(0, 800)}, 1},
		{"after one", at(2500), []interval{gap(0, 800)}, 1},
		{"in a long one", at(3800, 4200), []interval{gap(0, 4100)}, 0},
		{"in a long one, too soon", at(2800, 4200), []interval{gap(0, 4100)}, 1},
		{"without one", at(4200), nil, 1},
		{"long after one", at(9000), []interval{gap(0, 2800)}, 1},
		{"in two that add up", at(4000), []interval{gap(0, 700), gap(1500, 2100)}, 0},
	} {
		if n := hasty(c.told, time.UnixMilli(0), c.gaps, session); n != c.want {
			t.Errorf("%s: %d, want %d", c.name, n, c.want)
		}
	}
	e := newEvidence()
	for i, w := range []struct{ what, key, n string }{{"cancelled", "why", "3"}, {"refused", "code", "-8"}, {"end", "status", "0"}, {"cancelled", "why", "2"}} {
		e.add(&node{name: "h1"}, 1, time.UnixMilli(1<<40), logLine{Message: w.what, Attrs: map[string]string{
			"run": fmt.Sprintf("j/x/%d", i), "fence": "1", "at": fmt.Sprint(1000 * (i + 1)), "task": "x", w.key: w.n,
		}})
	}
	if list := e.stopped(time.UnixMilli(0), time.UnixMilli(10)); len(list) != 2 {
		t.Errorf("lost are %v, want the first two", list)
	}
}

// TestLeads: a leader that nobody follows is none.
func TestLeads(t *testing.T) {
	t.Parallel()
	leader, follower, idle := "Zookeeper version: 3\nMode: leader\nNode count: 5\n", "x\nMode: follower\n", "This ZooKeeper instance is not currently serving requests\n"
	for _, c := range []struct {
		answers []string
		want    bool
	}{
		{[]string{leader, follower, follower}, true}, {[]string{follower, "", leader}, true}, {[]string{leader, "", ""}, false},
		{[]string{follower, follower, ""}, false}, {[]string{leader, idle, idle}, false}, {[]string{"Mode: standalone\n"}, true}, {[]string{""}, false},
	} {
		if got := leads(c.answers); got != c.want {
			t.Errorf("%q: %v", c.answers, got)
		}
	}
}

// TestFigures: what a busy machine does not explain is a violation.
func TestFigures(t *testing.T) {
	t.Parallel()
	const session = 6 * time.Second
	for _, c := range []struct {
		name              string
		event             Event
		reached, violated bool
	}{
		{"in time", Event{Kind: KillLeader, Crashed: 1, Retaken: 6500 * time.Millisecond, Recovery: 6600 * time.Millisecond}, true, false},
		{"on a busy machine", Event{Kind: KillLeader, Crashed: 1, Retaken: 9 * time.Second, Recovery: 9 * time.Second}, false, false},
		{"items after a minute", Event{Kind: KillAndReturn, Crashed: 1, Retaken: time.Minute}, false, true},
		{"jobs after a minute", Event{Kind: KillFollower, Recovery: time.Minute}, false, true},
		{"two hosts", Event{Kind: TwoHosts, Crashed: 1, Retaken: 8 * time.Second}, true, false},
		{"two hosts, a minute", Event{Kind: TwoHosts, Crashed: 1, Retaken: time.Minute}, false, true},
		{"a host and the leader", Event{Kind: KillDuringVote, Crashed: 1, Watched: true, Outage: 2 * time.Second, Retaken: 9 * time.Second}, true, false},
		{"a host and the leader, too late", Event{Kind: KillDuringVote, Crashed: 1, Watched: true, Outage: time.Second, Retaken: 16 * time.Second}, false, true},
		{"an election", Event{Kind: LeaderKilled, Watched: true, Outage: 800 * time.Millisecond}, true, false},
		{"an election that cost items", Event{Kind: LeaderKilled, Watched: true, Outage: 800 * time.Millisecond, Lost: 1, Hasty: 1}, false, true},
		{"nearly half a session", Event{Kind: LeaderHalted, Watched: true, Outage: 2600 * time.Millisecond, Lost: 1}, false, false},
		{"more than half of it", Event{Kind: LeaderHalted, Watched: true, Outage: 3600 * time.Millisecond, Lost: 1}, true, false},
	} {
		r := newReport(Options{SessionTimeout: session})
		r.Tick, r.Events = tick, []Event{c.event}
		list := r.Figures()
		reached, violated := len(list) > 0, false
		for _, f := range list {
			reached, violated = reached && f.Reached, violated || f.Violated
		}
		if reached != c.reached || violated != c.violated {
			t.Errorf("%s: reached %v, violated %v: %+v", c.name, reached, violated, list)
		}
	}
}

// TestNextFires: every item has to begin again when the cluster is whole.
func TestNextFires(t *testing.T) {
	t.Parallel()
	play := func(late string, by time.Duration) *Report {
		s, err := newStage(Options{Program: "x", Dial: noDial, Dir: t.TempDir()})
		if err != nil {
			t.Fatal(err)
		}
		whole := time.UnixMilli(1_000_000)
		s.calm = whole.Add(time.Hour)
		s.report.Events = []Event{{Kind: Halt, Target: "h1", Whole: whole}}
		for _, j := range jobs() {
			for i := range j.items {
				at := whole.Add(j.period)
				if j.name == late && i == 1 {
					at = at.Add(by)
				}
				s.evidence.add(&node{name: "h"}, 1, time.UnixMilli(1<<40), logLine{Message: "begin", Attrs: map[string]string{
					"run": fmt.Sprintf("%s/x/%d", j.name, i), "fence": "1", "at": fmt.Sprint(at.UnixMicro()), "task": "x",
				}})
			}
		}
		s.nextFires()
		return s.report
	}
	if r := play("", 0); !r.OK() || r.Fires != 37 || r.Overdue != 0 {
		t.Errorf("%d fires, overdue %s, %v; want 37", r.Fires, r.Overdue, r.Violations)
	}
	if r := play("long", 9*time.Second); !r.OK() || r.Fires != 37 || r.Overdue != 2*time.Second {
		t.Errorf("%d fires, overdue %s, %v", r.Fires, r.Overdue, r.Violations)
	}
	if r := play("long", 13*time.Second); len(r.Violations) != 1 || !strings.Contains(r.Violations[0].Text, "item 1 of long, which fires every 10s, did not begin within 22s") {
		t.Errorf("%v", r.Violations)
	}
}

// TestExcused: the histories' finding counts unless the process was halted.
func TestExcused(t *testing.T) {
	t.Parallel()
	at := func(ms int64, text string) verify.Line {
		return verify.Line{Time: time.UnixMilli(ms), Text: text}
	}
	f := verify.Finding{Invariant: verify.OneOwner, Class: verify.Fenced, Lines: []verify.Line{
		at(100, "item.started item 3 fence 10 on 127.0.0.1@-@77-abc"), at(900, "item.ended item 3"),
		at(500, "item.started item 3 fence 20 on 127.0.0.2@-@88-abc"), at(1500, "item.ended item 3"),
	}}
	e := newEvidence()
	if e.excused(f) {
		t.Error("nothing was halted")
	}
	e.halted(88, time.UnixMilli(0), time.UnixMilli(2000))
	if e.excused(f) {
		t.Error("the other one was halted")
	}
	e.halted(77, time.UnixMilli(300), time.UnixMilli(890))
	if !e.excused(f) {
		t.Error("it was halted")
	}
}

// TestUnseen reads which run a real finding misses.
func TestUnseen(t *testing.T) {
	t.Parallel()
	c := verify.New(verify.Options{Settle: time.Second})
	at := time.UnixMilli(1_700_000_000_000)
	add := func(after time.Duration, kind event.Kind, items []int, file string) {
		c.Add(event.Event{Time: at.Add(after), Kind: kind, Host: file + "@-@1-a", Job: "j", Instant: at.Add(after).Truncate(time.Second), Source: "schedule", Items: items, Total: 2}, verify.Place{File: file})
	}
	add(0, event.JobAdded, nil, "1.1.1.1")
	add(0, event.JobAdded, nil, "1.1.1.2") // the owner of item 1
	add(0, event.FireSkipped, []int{0}, "1.1.1.1")
	add(time.Minute, event.FireSkipped, []int{0, 1}, "1.1.1.1")
	r := c.Finish()
	if len(r.Findings) != 1 || unseen(r.Findings[0]) != "j/2023-11-14T22:13:20.000Z/1" {
		t.Errorf("findings %+v", r.Findings)
	}
}

// TestRecovery: a gap counts from the fault to its end; the items that went on
// do not.
func TestRecovery(t *testing.T) {
	t.Parallel()
	s := &stage{evidence: newEvidence()}
	for _, j := range jobs() {
		if !j.fast {
			continue
		}
		for i := range j.items {
			for ms := 0; ms < 30_000; ms += int(j.period.Milliseconds()) {
				if j.name == "tick" && i == 2 && ms > 10_000 && ms < 17_000 {
					continue
				}
				id := fmt.Sprintf("%s/x%d/%d", j.name, ms, i)
				s.evidence.add(&node{name: "h"}, 1, time.UnixMilli(1<<40), logLine{Message: "begin", Attrs: map[string]string{
					"run": id, "fence": fmt.Sprint(ms + 1), "at": fmt.Sprint(ms * 1000), "task": "x",
				}})
			}
		}
	}
	if d := s.recovery(time.UnixMilli(10_500), time.UnixMilli(25_000)); d != 6500*time.Millisecond {
		t.Errorf("recovered after %s, want 6.5s", d)
	}
	if d := s.recovery(time.UnixMilli(18_000), time.UnixMilli(25_000)); d != 0 {
		t.Errorf("recovered after %s of nothing", d)
	}
}

// TestPlan: a seed makes one plan, and every kind comes up once in a round.
func TestPlan(t *testing.T) {
	t.Parallel()
	deal := func(seed uint64) []Kind {
		s, err := newStage(Options{Program: "x", Dial: noDial, Seed: seed, Dir: t.TempDir()})
		if err != nil {
			t.Fatal(err)
		}
		p := s.newPlan()
		seen := make(map[Kind]bool)
		var list []Kind
		for range p.all {
			k, round := p.next(s)
			if round != (len(list) == 0) || seen[k] {
				t.Fatalf("%s came up twice in a round", k)
			}
			seen[k] = true
			list = append(list, k)
		}
		if len(s.report.Skipped)+len(list) != len(kinds()) {
			t.Errorf("%d kinds dealt and %d left out with a reason, there are %d", len(list), len(s.report.Skipped), len(kinds()))
		}
		return list
	}
	a, b, c := fmt.Sprint(deal(1)), fmt.Sprint(deal(1)), fmt.Sprint(deal(2))
	if a != b || a == c {
		t.Errorf("seed 1: %s\nagain: %s\nseed 2: %s", a, b, c)
	}
}

func TestModule(t *testing.T) {
	t.Parallel()
	if bytes.Equal(version(1), version(2)) || len(version(1)) != len(version(2)) || !bytes.Equal(version(1), guestModule) {
		t.Error("two versions of the module do not differ in their number")
	}
}

func TestReport(t *testing.T) {
	t.Parallel()
	r := newReport(Options{Seed: 7, Hosts: 4, SessionTimeout: 6 * time.Second})
	for _, d := range []time.Duration{3, 1, 9} {
		r.Events = append(r.Events, Event{Kind: Halt, Recovery: d * time.Second, From: time.Unix(0, 0), To: time.Unix(10, 0)})
	}
	r.Skipped[DiskFull] = "there is no disk"
	row := r.Rows()[0]
	if row.Count != 3 || row.Recovery != [2]time.Duration{3 * time.Second, 9 * time.Second} || row.Lasted != 10*time.Second {
		t.Errorf("%+v", row)
	}
	var text strings.Builder
	r.Write(&text)
	for _, want := range []string{"seed 7", "NOT DONE: zk-disk-full: there is no disk", "overlaps     0", "losses       0", "9.00s"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("%q is not in\n%s", want, &text)
		}
	}
	if !r.OK() {
		t.Error("nothing was violated")
	}
}
