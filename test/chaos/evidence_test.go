package chaos

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/host"
	"github.com/wasmjob/wasmjob/host/verify"
)

// say is a line of a guest, n milliseconds after the beginning of time.
func say(e *evidence, pid int, fence int64, ms int, what string) {
	at := time.UnixMilli(int64(ms))
	e.add(&node{name: fmt.Sprint("h", pid)}, pid, at.Add(time.Second), logLine{Message: what, Attrs: map[string]string{
		"run": "j/1970-01-01T00:00:00.000Z/3", "fence": fmt.Sprint(fence), "at": fmt.Sprint(at.UnixMicro()),
		"task": fmt.Sprintf("j@-@3@-@READY@-@127.0.0.1@-@%d-x", pid),
	}})
}

// TestOverlaps: two guests that were alive at once are found, and only a
// process that was halted is excused, unless it had an effect.
func TestOverlaps(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name     string
		last     string // what the former says at 900
		halted   bool
		found    int
		excused  bool
		latterAt int
	}{
		{"one after the other", "beat", false, 0, false, 901},
		{"both at once", "beat", false, 1, false, 500},
		{"it woke up", "cancelled", true, 1, true, 500},
		{"it woke up and committed", "committed", true, 1, false, 500},
		{"it had been halted at another time", "beat", false, 1, false, 450},
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
			if len(list) == 1 && list[0].fenced != c.excused {
				t.Errorf("fenced is %v, want %v: %s", list[0].fenced, c.excused, list[0])
			}
		})
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
	add := func(after time.Duration, kind host.EventKind, items []int) {
		c.Add(host.Event{Time: at.Add(after), Kind: kind, Host: "1.1.1.1@-@1-a", Job: "j", Instant: at.Add(after).Truncate(time.Second), Source: "schedule", Items: items, Total: 2}, verify.Place{File: "f"})
	}
	add(0, host.EventJobAdded, nil)
	add(0, host.EventFireSkipped, []int{0})
	add(time.Minute, host.EventFireSkipped, []int{0, 1})
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
