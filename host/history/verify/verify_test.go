package verify

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/tree"
	"github.com/wasmjob/wasmjob/host/config/ceiling"
	"github.com/wasmjob/wasmjob/host/event"
)

var t0 = time.Date(2026, 3, 1, 10, 0, 0, 0, time.UTC)

// book is what one host writes.
type book struct {
	name string
	id   string
	seen []entry
}

type entry struct {
	book *book
	at   Place
	e    event.Event
}

func open(name, id string) *book {
	b := &book{name: name, id: id}
	b.add(0, event.Event{Kind: event.HostStarted})
	b.add(0, event.Event{Kind: event.Session, Host: id, Reason: "live"})
	b.add(0, event.Event{Kind: event.JobAdded, Host: id, Job: "j"})
	return b
}

// add writes an event so many seconds after the beginning.
func (b *book) add(at float64, e event.Event) *book {
	e.Time = t0.Add(time.Duration(at * float64(time.Second)))
	data, err := json.Marshal(e)
	if err == nil {
		err = json.Unmarshal(data, &e) // as histories give it
	}
	if err != nil {
		panic(err)
	}
	b.seen = append(b.seen, entry{b, Place{b.name, len(b.seen) + 1}, e})
	return b
}

func (b *book) of(at float64, kind event.Kind, e event.Event) *book {
	e.Kind, e.Host, e.Job = kind, b.id, "j"
	return b.add(at, e)
}

func instant(second float64) time.Time {
	return t0.Add(time.Duration(second * float64(time.Second)))
}

// fire begins items for the instant.
func (b *book) fire(at, due float64, total int, items ...int) *book {
	return b.of(at, event.FireStarted, event.Event{Instant: instant(due), Source: abi.SourceSchedule, Items: items, Total: total, Next: instant(due + 10)})
}

func runID(due float64, item int) string { return fmt.Sprintf("j/%v/%d", due, item) }

func (b *book) start(at, due float64, item int, fence int64) *book {
	return b.of(at, event.ItemStarted, event.Event{Instant: instant(due), Item: &item, Fence: fence, RunID: runID(due, item), Attempt: 1})
}

func (b *book) end(at, due float64, item int, fence int64, o abi.Outcome) *book {
	return b.of(at, event.ItemEnded, event.Event{Instant: instant(due), Item: &item, Fence: fence, RunID: runID(due, item), Outcome: o})
}

func (b *book) done(at, due float64, item int, fence int64) *book {
	return b.of(at, event.ItemCompleted, event.Event{Instant: instant(due), Item: &item, Fence: fence, RunID: runID(due, item), Outcome: "OK"})
}

// run is all of it.
func (b *book) run(from, to, due float64, item int, fence int64) *book {
	return b.start(from, due, item, fence).end(to, due, item, fence, "OK").done(to, due, item, fence)
}

func (b *book) skip(at, due float64, item int, why string) *book {
	return b.of(at, event.ItemSkipped, event.Event{Instant: instant(due), Item: &item, RunID: runID(due, item), Reason: why})
}

func (b *book) lost(at float64) *book {
	return b.add(at, event.Event{Kind: event.Session, Host: b.id, Reason: "lost"})
}

// live begins another term.
func (b *book) live(at float64, id string) *book {
	b.id = id
	return b.session(at, "live")
}

// calm is a host that fired at the beginning and skipped what was due then.
func calm(name, id string) *book {
	return open(name, id).fire(0, 0, 1, 0).run(1, 2, 0, 0, 5).skip(10, 10, 0, "x")
}

func (b *book) session(at float64, state string) *book {
	return b.add(at, event.Event{Kind: event.Session, Host: b.id, Reason: state})
}

// other completes an item of another job every ten seconds, so that it is plain
// that the host is awake.
func (b *book) other(from, to float64) *book {
	item := 0
	for at := from; at <= to; at += 10 {
		fence := int64(at)*1000 + int64(b.name[0])
		b.add(at, event.Event{Kind: event.ItemCompleted, Host: b.id, Job: "k", Item: &item, Fence: fence, RunID: fmt.Sprintf("k/%d/0", fence), Outcome: "OK"})
	}
	return b
}

// after begins an item where the record names a run before.
func (b *book) after(at, due float64, item int, fence int64, was event.PreviousRun) *book {
	return b.of(at, event.ItemStarted, event.Event{Instant: instant(due), Item: &item, Fence: fence, RunID: runID(due, item), Attempt: 1, Previous: &was})
}

// first divides the items where there was no division.
func (b *book) first(at float64) *book {
	return b.of(at, event.Sharded, event.Event{Reason: "items were never sharded"})
}

// later keeps the host alive until so many seconds.
func (b *book) later(at float64) *book {
	return b.of(at, event.Assigned, event.Event{Items: []int{0}})
}

// check merges the books by time.
func check(o Options, books ...*book) *Report {
	c := New(o)
	next := make([]int, len(books))
	for {
		first := -1
		for i, b := range books {
			if next[i] < len(b.seen) && (first < 0 || b.seen[next[i]].e.Time.Before(books[first].seen[next[first]].e.Time)) {
				first = i
			}
		}
		if first < 0 {
			return c.Finish()
		}
		e := books[first].seen[next[first]]
		c.Add(e.e, e.at)
		if next[first]++; next[first] == len(books[first].seen) {
			c.End(books[first].name)
		}
	}
}

const (
	a1 = "10.0.0.1@-@1"
	b1 = "10.0.0.2@-@1"
)

// pausedWhileOwing is a host of which an item still owes an instant when the job is paused, and of which others began then.
func pausedWhileOwing() *book {
	b := open("a", a1).fire(0, 0, 2, 0, 1).run(1, 2, 0, 0, 3).run(1, 2, 0, 1, 4).fire(10, 10, 2, 0).run(10, 11, 10, 0, 5)
	for at := 20.0; at < 1000; at += 10 {
		b.of(at, event.FireSkipped, event.Event{Instant: instant(at), Source: abi.SourceSchedule, Items: []int{0, 1}, Total: 2, Next: instant(at + 10), Cause: event.SkipPaused, Reason: "the job is paused"})
	}
	return b
}

// pausedWhilePromised is a host of which an item has still to run for an instant when the job is paused.
func pausedWhilePromised() *book {
	b := open("a", a1).fire(0, 0, 2, 0, 1).run(1, 2, 0, 0, 3).run(1, 2, 0, 1, 4).fire(10, 10, 2, 0).run(10, 11, 10, 0, 5)
	item := 1
	b.of(11, event.ItemSkipped, event.Event{Item: &item, Instant: instant(10), Source: abi.SourceMisfire, Owed: true, Cause: event.SkipLater, Reason: "it runs again"})
	for at := 20.0; at < 1000; at += 10 {
		b.of(at, event.FireSkipped, event.Event{Instant: instant(at), Source: abi.SourceSchedule, Items: []int{0}, Total: 2, Next: instant(at + 10), Cause: event.SkipPaused, Reason: "the job is paused"})
	}
	return b
}

func TestEachInvariant(t *testing.T) {
	t.Parallel()
	two := func() (*book, *book) { return open("a", a1), open("b", b1) }
	for name, tc := range map[string]struct {
		build func() []*book
		want  Invariant // 0: none
		class Class
		lines string // file:line of the proof
	}{
		"all is well": {func() []*book {
			a, b := two()
			a.fire(0, 0, 2, 0).run(1, 2, 0, 0, 5).fire(10, 10, 2, 0).run(10, 11, 10, 0, 9).later(1000)
			b.fire(0, 0, 2, 1).run(1, 2, 0, 1, 6).skip(10, 10, 1, "disabled").later(1000)
			a.seen = a.seen[:len(a.seen)-1]
			b.seen = b.seen[:len(b.seen)-1]
			return []*book{a, b}
		}, 0, "", ""},
		"the job is paused while an item owes, and says why when it goes on": {func() []*book {
			return []*book{pausedWhileOwing().skip(1000, 10, 1, "was disabled").fire(1000, 1000, 2, 0, 1).run(1000, 1001, 1000, 0, 7).run(1000, 1001, 1000, 1, 8).skip(1010, 1010, 0, "x").later(1200)}
		}, 0, "", ""},
		"the job is paused while an item owes, and its host forgets it": {func() []*book {
			return []*book{pausedWhileOwing().fire(1000, 1000, 2, 0, 1).run(1000, 1001, 1000, 0, 7).run(1000, 1001, 1000, 1, 8).skip(1010, 1010, 0, "x").later(2000)}
		}, Accounted, Violated, ""},
		"the job is paused while a run is promised, and runs it when it goes on": {func() []*book {
			return []*book{pausedWhilePromised().fire(1000, 1000, 2, 0, 1).run(1000, 1001, 1000, 0, 7).run(1000, 1001, 1000, 1, 8).skip(1010, 1010, 0, "x").later(2000)}
		}, 0, "", ""},
		"the job is paused while a run is promised, and forgets it when it goes on": {func() []*book {
			return []*book{pausedWhilePromised().fire(1000, 1000, 2, 0).run(1000, 1001, 1000, 0, 7).skip(1010, 1010, 0, "x").later(2000)}
		}, Accounted, Violated, ""},
		"a calendar excludes the instants, for all items": {func() []*book {
			a, _ := two()
			a.fire(0, 0, 2, 0, 1).run(1, 2, 0, 0, 3).run(1, 2, 0, 1, 4)
			a.of(60, event.FireSkipped, event.Event{Instant: instant(10), Through: instant(60), Source: abi.SourceSchedule, Items: []int{0}, Total: 2, Next: instant(70), Cause: event.SkipExcluded, Reason: "excluded"})
			return []*book{a.fire(70, 70, 2, 0, 1).run(70, 71, 70, 0, 5).run(70, 71, 70, 1, 6).skip(80, 80, 0, "x").later(1000)}
		}, 0, "", ""},
		"the item went with a smaller total count": {func() []*book {
			a, _ := two()
			return []*book{a.fire(0, 0, 2, 0).run(1, 2, 0, 0, 5).of(5, event.Sharded, event.Event{Total: 1, Reason: "the count changed"}).skip(10, 10, 0, "x").later(1000)}
		}, 0, "", ""},
		"the items were divided, and it is forgotten all the same": {func() []*book {
			a, _ := two()
			return []*book{a.fire(0, 0, 2, 0).run(1, 2, 0, 0, 5).of(5, event.Sharded, event.Event{Total: 2, Reason: "instances changed"}).skip(10, 10, 0, "x").later(1000)}
		}, Accounted, Violated, ""},
		"the total count was smaller when the instant came, and is greater when it is told": {func() []*book {
			a, _ := two()
			return []*book{a.fire(0, 0, 2, 0, 1).run(1, 2, 0, 0, 5).run(3, 4, 0, 1, 6).of(5, event.Sharded, event.Event{Total: 1}).
				of(12, event.Sharded, event.Event{Total: 2}).fire(13, 10, 2, 0).run(13, 14, 10, 0, 7).skip(20, 20, 0, "x").later(1000)}
		}, 0, "", ""},
		"the total count was smaller before the instant, not at it": {func() []*book {
			a, _ := two()
			return []*book{a.fire(0, 0, 2, 0, 1).run(1, 2, 0, 0, 5).run(3, 4, 0, 1, 6).of(5, event.Sharded, event.Event{Total: 1}).
				of(8, event.Sharded, event.Event{Total: 2}).fire(13, 10, 2, 0).run(13, 14, 10, 0, 7).skip(20, 20, 0, "x").later(1000)}
		}, Accounted, Violated, ""},
		"of a division to more items nobody lived to tell": {func() []*book {
			a, _ := two()
			return []*book{a.fire(0, 0, 2, 0, 1).run(1, 2, 0, 0, 5).run(3, 4, 0, 1, 6).of(5, event.Sharded, event.Event{Total: 1}).
				fire(10, 10, 1, 0).run(11, 12, 10, 0, 7).fire(20, 20, 2, 0, 1).run(21, 22, 20, 0, 8).run(21, 22, 20, 1, 9).
				fire(30, 30, 2, 0).run(31, 32, 30, 0, 10).skip(40, 40, 0, "x").later(1000)}
		}, Accounted, Violated, ""},
		"two owners": {func() []*book {
			a, b := two()
			return []*book{a.fire(0, 0, 1, 0).run(1, 20, 0, 0, 5), b.run(10, 15, 10, 0, 6)}
		}, OneOwner, Violated, "a:5 a:6 b:4 b:5"},
		"two owners for less than clocks differ": {func() []*book {
			a, b := two()
			return []*book{a.run(1, 10.5, 0, 0, 5), b.run(10, 15, 10, 0, 6)}
		}, 0, "", ""},
		"two owners on one server": {func() []*book {
			a, b := open("a", a1), open("b", "10.0.0.1@-@2")
			return []*book{a.run(1, 10.5, 0, 0, 5), b.run(10, 15, 10, 0, 6)}
		}, OneOwner, Violated, "a:4 a:5 b:4 b:5"},
		"killed while it ran, and the next owner waited": {func() []*book {
			a, b := two()
			return []*book{a.fire(0, 0, 1, 0).start(1, 0, 0, 5), b.skip(10, 10, 0, "it still runs").start(30, 0, 0, 8).end(31, 0, 0, 8, "OK").done(31, 0, 0, 8).later(1000)}
		}, 0, "", ""},
		"alive by its last line when another began": {func() []*book {
			a, b := two()
			return []*book{a.start(1, 0, 0, 5).later(40), b.run(30, 35, 0, 0, 8)}
		}, OneOwner, Violated, "a:4 a:5 b:4 b:5"},
		"halted, and no effect": {func() []*book {
			a, b := two()
			return []*book{a.start(1, 0, 0, 5).end(60, 0, 0, 5, abi.OutcomeCancelled).lost(60), b.run(40, 50, 0, 0, 8)}
		}, OneOwner, Fenced, ""},
		"halted, and its completion took effect": {func() []*book {
			a, b := two()
			return []*book{a.start(1, 10, 0, 5).end(60, 10, 0, 5, "OK").done(60, 10, 0, 5).lost(60), b.run(40, 50, 20, 0, 8)}
		}, OneOwner, Violated, ""},
		"halted, and awake for long before it said so": {func() []*book {
			a, b := two()
			return []*book{a.start(1, 0, 0, 5).other(15, 595).end(600, 0, 0, 5, abi.OutcomeCancelled).lost(600), b.run(10, 590, 0, 0, 8)}
		}, OneOwner, Violated, ""},
		"halted, and awake a little while after the other began": {func() []*book {
			a, b := two()
			return []*book{a.start(1, 0, 0, 5).other(43, 43).end(60, 0, 0, 5, abi.OutcomeCancelled).lost(60), b.run(40, 50, 0, 0, 8)}
		}, OneOwner, Violated, ""},
		"halted, and the clocks differ": {func() []*book {
			a, b := two()
			return []*book{a.start(1, 0, 0, 5).other(40.5, 40.5).end(60, 0, 0, 5, abi.OutcomeCancelled).lost(60), b.run(40, 50, 0, 0, 8)}
		}, OneOwner, Fenced, ""},
		"halted, and says a few things when it wakes": {func() []*book {
			a, b := two()
			return []*book{a.start(1, 0, 0, 5).other(59, 59).end(60, 0, 0, 5, abi.OutcomeCancelled).lost(60), b.run(40, 50, 0, 0, 8)}
		}, OneOwner, Fenced, ""},
		"halted while in doubt": {func() []*book {
			a, b := two()
			return []*book{a.start(1, 0, 0, 5).session(20, "suspect").end(60, 0, 0, 5, abi.OutcomeCancelled).lost(60), b.run(40, 50, 0, 0, 8)}
		}, OneOwner, Fenced, ""},
		"cut off, and its guest not stopped": {func() []*book {
			a, b := two()
			return []*book{a.start(1, 0, 0, 5).session(20, "suspect").session(25, "yield").end(60, 0, 0, 5, abi.OutcomeCancelled).lost(60), b.run(40, 50, 0, 0, 8)}
		}, OneOwner, Violated, ""},
		"in doubt once, and halted later": {func() []*book {
			a, b := two()
			a.session(20, "suspect").session(25, "yield").session(26, "live").start(27, 0, 0, 5).end(90, 0, 0, 5, abi.OutcomeCancelled).lost(90)
			return []*book{a, b.run(70, 80, 0, 0, 8)}
		}, OneOwner, Fenced, ""},
		"halted, and told to stop when it woke": {func() []*book {
			a, b := two()
			a.start(1, 0, 0, 5).end(60, 0, 0, 5, abi.OutcomeCancelled).add(60.1, event.Event{Kind: event.HostStopped})
			return []*book{a, b.run(40, 50, 0, 0, 8)}
		}, OneOwner, Fenced, ""},
		"overlap of a host that stopped": {func() []*book {
			a, b := two()
			a.start(1, 0, 0, 5).other(45, 55).end(60, 0, 0, 5, abi.OutcomeCancelled).add(60.1, event.Event{Kind: event.HostStopped})
			return []*book{a, b.run(40, 50, 0, 0, 8)}
		}, OneOwner, Violated, ""},
		"forgotten item": {func() []*book {
			a, b := two()
			return []*book{a.fire(0, 0, 2, 0).run(1, 2, 0, 0, 5).later(300).later(600), b}
		}, Accounted, Violated, "a:4"},
		"an instant that nobody speaks of": {func() []*book {
			a := open("a", a1)
			return []*book{a.fire(0, 0, 1, 0).run(1, 2, 0, 0, 5).later(300).later(600)}
		}, Accounted, Violated, "a:4"},
		"the schedule changed": {func() []*book {
			a := open("a", a1)
			return []*book{a.fire(0, 0, 1, 0).run(1, 2, 0, 0, 5).of(5, event.JobChanged, event.Event{}).later(300).later(600)}
		}, 0, "", ""},
		"too early to tell": {func() []*book {
			a := open("a", a1)
			return []*book{a.fire(0, 0, 2, 0).run(1, 2, 0, 0, 5).later(200)}
		}, 0, "", ""},
		"all hosts were down": {func() []*book {
			a := open("a", a1).fire(0, 0, 1, 0).run(1, 2, 0, 0, 5)
			a.add(5000, event.Event{Kind: event.HostStarted})
			a.id = "10.0.0.1@-@2"
			item := 0
			a.of(5001, event.JobAdded, event.Event{})
			a.of(5002, event.ItemSkipped, event.Event{Item: &item, Instant: instant(10), Through: instant(4999), Reason: "nobody"})
			return []*book{a.later(5600)}
		}, 0, "", ""},
		// An answer was lost, and the leader divides again. The second host
		// begins its item of the instant after that.
		"divided twice for the first time": {func() []*book {
			a, b := two()
			a.first(0.5).fire(10, 10, 2, 0).run(10, 11, 10, 0, 5).first(12).skip(20, 20, 0, "x")
			b.fire(12.5, 10, 2, 1).run(12.5, 13, 10, 1, 6).skip(20, 20, 1, "x")
			return []*book{a.later(600), b.later(600)}
		}, 0, "", ""},
		"divided twice for the first time, and an item forgotten": {func() []*book {
			a, b := two()
			a.first(0.5).fire(10, 10, 3, 0).run(10, 11, 10, 0, 5).first(12).skip(20, 20, 0, "x")
			b.fire(12.5, 10, 3, 1).run(12.5, 13, 10, 1, 6).skip(20, 20, 1, "x").skip(20, 20, 2, "x")
			return []*book{a.later(600), b.later(600)}
		}, Accounted, Violated, ""},
		"divided twice for the first time, and a fence goes back": {func() []*book {
			a, b := two()
			return []*book{a.first(0.5).run(1, 2, 0, 0, 9).first(12), b.run(30, 31, 10, 0, 8)}
		}, FencesGrow, Violated, ""},
		"removed while all hosts were down": {func() []*book {
			a, b := two()
			a.first(0.5).fire(10, 10, 2, 0).run(10, 11, 10, 0, 5)
			b.fire(10, 10, 2, 1).start(10, 10, 1, 6) // and is killed, which only its next life shows
			a.add(60, event.Event{Kind: event.HostStarted})
			a.id = "10.0.0.1@-@2"
			a.of(61, event.JobAdded, event.Event{}).first(62)
			b.add(400, event.Event{Kind: event.HostStarted})
			return []*book{a.later(600), b}
		}, 0, "", ""},
		"begun by a host that died, and never again": {func() []*book {
			a, b := two()
			return []*book{a.fire(0, 0, 1, 0).start(1, 0, 0, 5), b.skip(10, 10, 0, "x").later(300).later(600)}
		}, Accounted, Unproven, "a:5 a:5"},
		"begun, cut short, and never again": {func() []*book {
			a := open("a", a1)
			return []*book{a.start(1, 0, 0, 5).end(2, 0, 0, 5, abi.OutcomeCancelled).later(300).later(700)}
		}, Accounted, Violated, "a:4"},
		"still running": {func() []*book {
			a := open("a", a1)
			return []*book{a.start(1, 0, 0, 5).later(300).later(700)}
		}, 0, "", ""},
		"completed and run again": {func() []*book {
			a, b := two()
			return []*book{a.run(1, 2, 0, 0, 5), b.run(30, 31, 0, 0, 8)}
		}, OnceCompleted, Violated, ""},
		"started late by a host that lives": {func() []*book {
			a, b := two()
			return []*book{a.start(50, 0, 0, 9).end(50.1, 0, 0, 9, abi.OutcomeCancelled).later(60), b.run(30, 31, 0, 0, 8)}
		}, OnceCompleted, Violated, ""},
		"ran again under a newer fence, and was lost": {func() []*book {
			a, b := two()
			return []*book{a.start(50, 0, 0, 9).end(50.1, 0, 0, 9, abi.OutcomeCancelled).lost(50.2), b.run(30, 31, 0, 0, 8)}
		}, OnceCompleted, Violated, ""},
		"retried": {func() []*book {
			a := open("a", a1)
			return []*book{a.start(1, 0, 0, 5).end(2, 0, 0, 5, "RETRY").start(3, 0, 0, 5).end(4, 0, 0, 5, "OK").done(4, 0, 0, 5)}
		}, 0, "", ""},
		"offset by a former owner": {func() []*book {
			a, b := two()
			item := 0
			a.start(1, 0, 0, 5).end(2, 0, 0, 5, "OK")
			a.of(2, event.ItemCompleted, event.Event{Item: &item, Instant: instant(0), RunID: runID(0, 0), Fence: 5, KeptOffset: event.KeptOffset{OffsetWrites: 7}})
			b.of(30, event.ItemStarted, event.Event{Item: &item, Instant: instant(10), RunID: runID(10, 0), Fence: 8, KeptOffset: event.KeptOffset{OffsetWrites: 6}})
			b.end(31, 10, 0, 8, "OK").done(31, 10, 0, 8)
			return []*book{a, b}
		}, OffsetsForward, Violated, "a:6 b:4"},
		"fence goes back": {func() []*book {
			a, b := two()
			return []*book{a.run(1, 2, 0, 0, 9), b.run(30, 31, 10, 0, 8)}
		}, FencesGrow, Violated, "a:4 b:4"},
		"fence goes back long after": {func() []*book {
			a := open("a", a1)
			return []*book{a.run(1, 2, 0, 0, 9).run(100, 101, 100, 1, 10).run(2000, 2001, 2000, 0, 11).run(4000, 4001, 4000, 0, 10)}
		}, FencesGrow, Violated, ""},
		"fence twice": {func() []*book {
			a, b := two()
			return []*book{a.run(1, 2, 0, 0, 9), b.run(30, 31, 10, 0, 9)}
		}, FencesGrow, Violated, ""},
		"begun by a host that died, and completed by its record": {func() []*book {
			a, b := two()
			a.fire(0, 0, 1, 0).start(1, 0, 0, 5)
			b.skip(10, 10, 0, "x").later(400).after(500, 500, 0, 8, event.PreviousRun{Host: a1, Instant: instant(0), Outcome: "OK"}).end(501, 500, 0, 8, "OK")
			return []*book{a, b.later(900)}
		}, 0, "", ""},
		"begun by a host that died, and completed by its record at once": {func() []*book {
			a, b := two()
			a.fire(0, 0, 1, 0).start(1, 0, 0, 5)
			b.after(10, 10, 0, 8, event.PreviousRun{Host: a1, Instant: instant(0), Outcome: "FAILED"}).end(11, 10, 0, 8, "OK")
			return []*book{a, b.later(900)}
		}, 0, "", ""},
		"begun by a host that died, and given up by its record": {func() []*book {
			a, b := two()
			a.fire(0, 0, 1, 0).start(1, 0, 0, 5)
			b.skip(10, 10, 0, "x").later(400).after(500, 500, 0, 8, event.PreviousRun{Host: a1, Instant: instant(0), Outcome: tree.OutcomeLost}).end(501, 500, 0, 8, "OK")
			return []*book{a, b.later(900)}
		}, 0, "", ""},
		"begun by a host that died, and held back": {func() []*book {
			a, b := two()
			a.fire(0, 0, 1, 0).start(1, 0, 0, 5)
			item := 0
			b.of(8, event.ItemHeld, event.Event{Instant: instant(0), Item: &item, RunID: runID(0, 0), Outcome: tree.OutcomeHeld})
			return []*book{a, b.skip(10, 10, 0, "x").later(900)}
		}, 0, "", ""},
		"begun by a host that died, and held back by its record": {func() []*book {
			a, b := two()
			a.fire(0, 0, 1, 0).start(1, 0, 0, 5)
			b.skip(10, 10, 0, "x").later(400).after(500, 500, 0, 8, event.PreviousRun{Host: a1, Instant: instant(0), Outcome: tree.OutcomeHeld}).end(501, 500, 0, 8, "OK")
			return []*book{a, b.later(900)}
		}, 0, "", ""},
		"begun by a host that died, and never taken over": {func() []*book {
			a, b := two()
			a.fire(0, 0, 1, 0).start(1, 0, 0, 5)
			b.after(10, 10, 0, 8, event.PreviousRun{Host: a1, Instant: instant(0)}).end(11, 10, 0, 8, "OK")
			return []*book{a, b.later(900)}
		}, Accounted, Violated, "a:5 a:5 b:4"},
		"begun by a host that died, and not taken over until much later": {func() []*book {
			a, b := two()
			a.fire(0, 0, 1, 0).start(1, 0, 0, 5)
			b.skip(10, 10, 0, "x").later(400).after(500, 500, 0, 8, event.PreviousRun{Host: a1, Instant: instant(0)}).end(501, 500, 0, 8, "OK")
			return []*book{a, b.later(900)}
		}, Accounted, Violated, "a:5 a:5 b:6"},
		"begun by a host that died, open, and the word of it comes later": {func() []*book {
			a, b := two()
			a.fire(0, 0, 1, 0).start(1, 0, 0, 5)
			b.after(10, 10, 0, 8, event.PreviousRun{Host: a1, Instant: instant(0)}).end(11, 10, 0, 8, "OK").skip(12, 0, 0, "its host died")
			return []*book{a, b.later(900)}
		}, 0, "", ""},
		"begun by a host that died, and taken over after hours": {func() []*book {
			a, b := two()
			return []*book{a.fire(0, 0, 1, 0).start(1, 0, 0, 5), b.skip(10, 10, 0, "x").later(300).run(7000, 7001, 0, 0, 8).later(7400)}
		}, 0, "", ""},
		"begun by a host that died, and the record tells of another run": {func() []*book {
			a, b := two()
			a.fire(0, 0, 1, 0).start(1, 0, 0, 5)
			b.skip(10, 10, 0, "x").later(400).after(500, 500, 0, 8, event.PreviousRun{Host: a1, Instant: instant(20), Outcome: "OK"}).end(501, 500, 0, 8, "OK")
			return []*book{a, b.later(900)}
		}, Accounted, Unproven, "a:5 a:5"},
		"not taken up again after a lost session": {func() []*book {
			a := calm("a", a1).lost(20).live(25, "10.0.0.1@-@2")
			return []*book{a.other(30, 7200)}
		}, Settled, Violated, "a:4 a:9"},
		"not taken up again, though others live": {func() []*book {
			a, b := calm("a", a1), open("b", b1)
			a.lost(20).live(25, "10.0.0.1@-@2").other(30, 200)
			b.lost(21).live(26, "10.0.0.2@-@2").other(30, 300)
			return []*book{a, b}
		}, Settled, Violated, "a:4 b:4"},
		"not taken up again, and removed much later": {func() []*book {
			a := calm("a", a1).lost(20).live(25, "10.0.0.1@-@2").other(30, 200)
			return []*book{a.of(201, event.JobRemoved, event.Event{Reason: "its definition is gone"}).other(210, 7200)}
		}, Settled, Violated, "a:4 a:9"},
		"not taken up again, and an instant was due": {func() []*book {
			a := open("a", a1).fire(0, 0, 1, 0).run(1, 2, 0, 0, 5).lost(20).live(25, "10.0.0.1@-@2")
			return []*book{a.other(30, 7200)}
		}, Accounted, Violated, "a:4"},
		"taken up again, and silent": {func() []*book {
			a := calm("a", a1).lost(20).live(25, "10.0.0.1@-@2").of(26, event.JobAdded, event.Event{})
			return []*book{a.other(30, 7200)}
		}, Settled, Violated, "a:4"},
		"lost, and gone while there was no session": {func() []*book {
			a := calm("a", a1).lost(20).live(25, "10.0.0.1@-@2").of(25, event.JobRemoved, event.Event{Reason: "its definition is gone"})
			return []*book{a.other(30, 7200)}
		}, 0, "", ""},
		"lost, and fired by another host since": {func() []*book {
			a, b := calm("a", a1), open("b", b1)
			a.lost(20).live(25, "10.0.0.1@-@2").other(30, 300)
			for n := 1; n < 30; n++ {
				b.skip(float64(10*n), float64(10*n), 0, "x").fire(float64(10*n), float64(10*n), 0)
			}
			return []*book{a, b.later(300)}
		}, 0, "", ""},
		"lost, and no session for hours": {func() []*book {
			a := calm("a", a1).lost(20)
			a.live(7200, "10.0.0.1@-@2").of(7201, event.JobAdded, event.Event{}).skip(7210, 7210, 0, "x")
			return []*book{a.later(7230)}
		}, 0, "", ""},
		"in doubt for long": {func() []*book {
			a := calm("a", a1).session(15, "suspect").session(400, "live").skip(410, 410, 0, "x")
			return []*book{a.later(430)}
		}, 0, "", ""},
		"halted for long": {func() []*book {
			a := calm("a", a1).lost(600).live(600, "10.0.0.1@-@2").of(601, event.JobAdded, event.Event{}).skip(610, 610, 0, "x")
			return []*book{a.later(630)}
		}, 0, "", ""},
		"lost, and killed before it came back": {func() []*book {
			a := calm("a", a1).lost(20).other(21, 21)
			a.add(7200, event.Event{Kind: event.HostStarted})
			return []*book{a.live(7201, "10.0.0.1@-@2").other(7210, 7400)}
		}, 0, "", ""},
		"lost, and stopped": {func() []*book {
			a := calm("a", a1).lost(20).live(25, "10.0.0.1@-@2").add(30, event.Event{Kind: event.HostStopped})
			a.add(7200, event.Event{Kind: event.HostStarted})
			return []*book{a.live(7201, "10.0.0.1@-@3").other(7210, 7400)}
		}, 0, "", ""},
		"silent": {func() []*book {
			a := open("a", a1)
			return []*book{a.fire(0, 0, 1, 0).run(1, 2, 0, 0, 5).skip(10, 10, 0, "x").later(100).later(200)}
		}, Settled, Violated, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := Options{}
			if tc.want == Settled || strings.HasPrefix(name, "lost, ") || strings.HasSuffix(name, " for long") {
				o.Period = time.Minute
			}
			r := check(o, tc.build()...)
			// A database that all hosts write tells the same.
			if files, database := verdict(inFiles(t, o, tc.build()...)), verdict(inDatabase(t, o, tc.build()...)); !reflect.DeepEqual(files, database) {
				t.Errorf("in a database it finds %v, in files %v", database, files)
			}
			if tc.want == 0 {
				for _, f := range r.Findings {
					t.Errorf("found %+v", f)
				}
				return
			}
			if len(r.Findings) == 0 {
				t.Fatalf("nothing found: %+v", r)
			}
			for _, f := range r.Findings {
				if f.Invariant != tc.want || f.Class != tc.class {
					t.Errorf("found %+v, want %v, %s", f, tc.want, tc.class)
				}
			}
			var proof []string
			for _, l := range r.Findings[0].Lines {
				proof = append(proof, l.Place.String())
			}
			if tc.lines != "" && strings.Join(proof, " ") != tc.lines {
				t.Errorf("proven by %v, want %s", proof, tc.lines)
			}
			if strict := check(Options{Strict: true, Period: o.Period}, tc.build()...); strict.Violations == 0 {
				t.Error("strict finds no violation")
			}
		})
	}
}

// TestAHaltedHostMayStartLate: what it had begun before it was halted starts
// when it goes on, a moment before it learns that its session is over. Another
// has completed the item meanwhile.
func TestAHaltedHostMayStartLate(t *testing.T) {
	t.Parallel()
	a := open("a", a1).start(50, 0, 0, 5).end(50.1, 0, 0, 5, abi.OutcomeCancelled).lost(50.2)
	b := open("b", b1).run(30, 31, 0, 0, 8)
	r := check(Options{}, a, b)
	found := make(map[Invariant]bool)
	for _, f := range r.Findings {
		found[f.Invariant] = f.Class == Fenced
	}
	if r.Violations != 0 || r.Fenced != 2 || !found[OnceCompleted] || !found[FencesGrow] {
		t.Errorf("found %+v", r.Findings)
	}
}

func TestACompletionWithoutALineMayBeToldOtherwise(t *testing.T) {
	t.Parallel()
	build := func() []*book {
		return []*book{open("a", a1).fire(0, 0, 1, 0).start(1, 0, 0, 5), open("b", b1).skip(10, 10, 0, "x").later(300).later(600)}
	}
	if r := check(Options{Completed: func(id string) bool { return id == runID(0, 0) }}, build()...); len(r.Findings) > 0 {
		t.Errorf("found %+v", r.Findings)
	}
}

// A run that nobody lived to tell of, and that another host ended when the item
// was enabled again, long after.
func TestAFireOfWhichNobodyTells(t *testing.T) {
	t.Parallel()
	build := func() []*book {
		return []*book{open("a", a1).fire(0, 0, 1, 0).run(1, 2, 0, 0, 5).later(300).later(600)}
	}
	if r := check(Options{Completed: func(id string) bool {
		return id == tree.RunID("j", tree.Fire{Instant: instant(10).UnixMilli()}, 0)
	}}, build()...); len(r.Findings) > 0 {
		t.Errorf("found %+v", r.Findings)
	}
	half := open("a", a1).fire(0, 0, 2, 0, 1).run(1, 2, 0, 0, 5).run(1, 2, 0, 1, 6).later(300).later(600)
	if r := check(Options{Completed: func(id string) bool {
		return id == tree.RunID("j", tree.Fire{Instant: instant(10).UnixMilli()}, 0)
	}}, half); r.Violations != 1 {
		t.Errorf("of two items one was completed, and found %+v", r.Findings)
	}
	if r := check(Options{Completed: func(string) bool { return false }}, build()...); r.Violations == 0 {
		t.Error("found nothing without the completion")
	}
}

func TestManyFindingsAreCounted(t *testing.T) {
	t.Parallel()
	a := open("a", a1)
	for n := range 50 {
		a.run(float64(n), float64(n)+0.5, float64(n), 0, int64(100-n))
	}
	r := check(Options{MaxFindings: 3}, a)
	if len(r.Findings) != 3 || r.Violations < 49 || r.Jobs[0].Violations != r.Violations {
		t.Errorf("%d findings of %d violations", len(r.Findings), r.Violations)
	}
}

// write puts a book into a file, as a host does.
func (b *book) write(t *testing.T, path string, from, to int) {
	t.Helper()
	var out bytes.Buffer
	for _, e := range b.seen[from:to] {
		line, err := json.Marshal(e.e)
		if err != nil {
			t.Fatal(err)
		}
		out.Write(line)
		out.WriteByte('\n')
	}
	if err := os.WriteFile(path, out.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestFilesAreMergedAndRotatedOnesRead(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	a, b := open("a", a1).run(1, 20, 0, 0, 5), open("b", b1).run(10, 15, 10, 0, 6)
	first, second := filepath.Join(dir, "a.jsonl"), filepath.Join(dir, "b.jsonl")
	a.write(t, first+".1", 0, 4)
	a.write(t, first, 4, len(a.seen))
	b.write(t, second, 0, len(b.seen))
	// What kill -9 and a full disk leave, and what a later version may write.
	f, err := os.OpenFile(second, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString("\x00\x00\n{\"time\":\"2026-03-01T10:00:30Z\",\"kind\":\"moon.rose\",\"host\":\"x\",\"tide\":{\"high\":1}}\n{\"time\":\"2026-0"); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	r, err := Files(t.Context(), Options{}, second, first, first+".1", first)
	if err != nil {
		t.Fatal(err)
	}
	if r.Violations != 1 || r.BadLines != 1 || r.Events != int64(len(a.seen)+len(b.seen)+1) || len(r.Files) != 2 || r.Hosts != 2 {
		t.Fatalf("%+v", r)
	}
	if got := r.Findings[0].Lines[0].Place; got != (Place{first + ".1", 4}) {
		t.Errorf("the first line of the proof is %s", got)
	}
	if got := r.Findings[0].Lines[1].Place; got != (Place{first, 1}) {
		t.Errorf("the second line of the proof is %s", got)
	}
	if _, err := Files(t.Context(), Options{}, filepath.Join(dir, "none")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a missing file: %v", err)
	}
	empty := filepath.Join(dir, "empty")
	if err := os.WriteFile(empty, []byte("nonsense\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Files(t.Context(), Options{}, first, empty); err == nil || !strings.Contains(err.Error(), empty) {
		t.Errorf("a file without events: %v", err)
	}
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Files(cancelled, Options{}, first); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

// TestMemoryIsBounded checks that what is over is forgotten.
func TestMemoryIsBounded(t *testing.T) {
	t.Parallel()
	c := New(Options{})
	b := open("a", a1)
	at := 0
	feed := func() {
		for ; at < len(b.seen); at++ {
			c.Add(b.seen[at].e, b.seen[at].at)
		}
		b.seen = b.seen[:0]
		at = 0
	}
	feed()
	for n := range 20_000 {
		due := float64(10 * n)
		b.fire(due, due, 2, 0, 1).run(due+1, due+2, due, 0, int64(2*n+1)).run(due+1, due+2, due, 1, int64(2*n+2))
		feed()
	}
	j := c.jobs["j"]
	if len(j.order) > 100 || len(j.fires) > 100 || len(j.items[0].runs) > 200 || len(j.items[0].completed) > 800 {
		t.Errorf("kept are %d fires, %d runs, %d completions", len(j.order), len(j.items[0].runs), len(j.items[0].completed))
	}
	if r := c.Finish(); r.Violations+r.Unproven+r.Fenced > 0 || r.Jobs[0].Judged < 19_900 {
		t.Errorf("%+v", r)
	}
}

func FuzzFiles(f *testing.F) {
	good := open("a", a1).fire(0, 0, 2, 0, 1).run(1, 2, 0, 0, 5).run(1, 2, 0, 1, 6).skip(10, 10, 0, "x").lost(20)
	var text bytes.Buffer
	for _, e := range good.seen {
		line, err := json.Marshal(e.e)
		if err != nil {
			f.Fatal(err)
		}
		text.Write(line)
		text.WriteByte('\n')
	}
	f.Add(text.Bytes(), []byte("{}\n"))
	f.Add([]byte("{\"kind\":\"item.started\",\"host\":\"x\",\"job\":\"j\",\"item\":-3}\n"), text.Bytes())
	f.Add([]byte("{\"kind\":\"fire.started\",\"host\":\"x\",\"job\":\"j\",\"total\":2000000000,\"source\":\"schedule\",\"instant\":\"2026-03-01T10:00:00Z\",\"next\":\"2026-03-01T10:00:00.1Z\",\"items\":[9]}\n"), []byte{0})
	f.Fuzz(func(t *testing.T, one, two []byte) {
		dir := t.TempDir()
		a, b := filepath.Join(dir, "a"), filepath.Join(dir, "b")
		for name, data := range map[string][]byte{a: one, a + ".1": two, b: two} {
			if err := os.WriteFile(name, data, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		r, err := Files(t.Context(), Options{Period: time.Second}, a, b)
		if err != nil {
			return
		}
		if n := r.Violations + r.Unproven + r.Fenced; n < len(r.Findings) {
			t.Errorf("%d findings, %d counted", len(r.Findings), n)
		}
		if _, err := json.Marshal(r); err != nil {
			t.Error(err)
		}
		for _, f := range r.Findings {
			for _, l := range f.Lines {
				if l.Line < 1 || l.File == "" {
					t.Errorf("%+v names no line", f)
				}
			}
		}
	})
}

var _ registry.Center = (*nowhere)(nil)

// nowhere is a registry that is not to be reached.
type nowhere struct{ registry.Center }

func (*nowhere) Read(context.Context, ...registry.Query) ([]registry.Node, error) {
	return nil, registry.ErrUnavailable
}

func TestRegistryTellsThatItCannotBeRead(t *testing.T) {
	t.Parallel()
	if _, err := Registry(t.Context(), &nowhere{}, "n"); !errors.Is(err, registry.ErrUnavailable) {
		t.Errorf("found %v", err)
	}
}

// shelf is a registry whose nodes change by themselves: now is what there is at
// the time of a read.
type shelf struct {
	registry.Center
	now func() []string // "path" or "path = data"
}

func (s *shelf) Read(_ context.Context, queries ...registry.Query) ([]registry.Node, error) {
	var nodes []registry.Node
	for _, q := range queries {
		n := registry.Node{Query: q}
		for _, line := range s.now() {
			path, data, _ := strings.Cut(line, " = ")
			if rest, below := strings.CutPrefix(path, q.Path+"/"); below {
				n.Exists = true
				if name, _, _ := strings.Cut(rest, "/"); !slices.Contains(n.Names, name) {
					n.Names = append(n.Names, name)
				}
			}
			if path == q.Path {
				n.Exists, n.Data = true, []byte(data)
			}
		}
		nodes = append(nodes, n)
	}
	return nodes, nil
}

// TestLeftBehind: what is gone at a later look is no finding, and what comes
// later is none either.
func TestLeftBehind(t *testing.T) {
	t.Parallel()
	alive := []string{"/n/j/servers/10.0.0.7 = ENABLED", "/n/j/servers/10.0.0.8 = disabled", "/n.wasmjob/j/servers = {\"10.0.0.8\":1000}", "/n/idle/servers/10.0.0.7 = ENABLED",
		"/n/j/config = {}", "/n/j/instances/" + a1, "/n.wasmjob/j/instances/" + a1, "/n/idle/config = {}", "/n/idle/trigger/" + b1, "/n/removed/x"}
	orphan, passing := "/n/j/trigger/"+b1, "/n/j/leader/failover/items/3"
	for name, tc := range map[string]struct {
		at   func(since time.Duration) []string
		took time.Duration
		want []string
	}{
		"in order":    {func(time.Duration) []string { return nil }, 0, nil},
		"left behind": {func(time.Duration) []string { return []string{orphan} }, 10 * time.Second, []string{orphan}},
		"passing": {func(since time.Duration) []string {
			if since > 2500*time.Millisecond {
				return nil
			}
			return []string{passing}
		}, 3 * time.Second, nil},
		"both, and another later": {func(since time.Duration) []string {
			if since > 0 {
				return []string{orphan, "/n/j/leader/sharding/necessary"}
			}
			return []string{orphan, passing}
		}, 10 * time.Second, []string{orphan}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				rc := &shelf{now: func() []string { return append(tc.at(time.Since(start)), alive...) }}
				looked, found, err := LeftBehind(t.Context(), rc, "n", 10*time.Second)
				if err != nil {
					t.Fatal(err)
				}
				var nodes []string
				for _, f := range found {
					nodes = append(nodes, f.Nodes...)
				}
				if !slices.Equal(nodes, tc.want) || time.Since(start) != tc.took {
					t.Errorf("found %q after %s, want %q after %s", nodes, time.Since(start), tc.want, tc.took)
				}
				want := RegistryReport{Namespace: "n", Jobs: 2, Idle: 1, Looks: 1 + int(tc.took/time.Second), Unused: []UnusedServer{
					{Job: "j", Server: "10.0.0.7"}, {Job: "j", Server: "10.0.0.8", Disabled: true, Since: time.UnixMilli(1000)}}}
				if !reflect.DeepEqual(*looked, want) {
					t.Errorf("looked at %+v, want %+v", *looked, want)
				}
				r := New(Options{}).Finish()
				r.AddRegistry(looked, found)
				if r.Violations != len(tc.want) || r.Checked[Settled] != 1 {
					t.Errorf("the report has %+v", r)
				}
			})
		})
	}
	if _, _, err := LeftBehind(t.Context(), &nowhere{}, "n", time.Minute); !errors.Is(err, registry.ErrUnavailable) {
		t.Errorf("found %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := LeftBehind(ctx, &shelf{now: func() []string { return append(alive, orphan) }}, "n", time.Minute); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled, and found %v", err)
	}
}

// What a host did not keep for the job's quota cannot be held against it; what
// was found before can.
func TestAHistoryWithAGapProvesNothing(t *testing.T) {
	t.Parallel()
	lost := func(gap bool) *book {
		b := open("a", a1).fire(0, 0, 1, 0).run(1, 2, 0, 0, 5)
		if gap {
			b.of(3, event.OverQuota, event.Event{Ceiling: ceiling.HistoryBytes})
		}
		return b.later(300).later(600)
	}
	if r := check(Options{}, lost(false)); r.Violations == 0 {
		t.Fatal("nothing is found without the gap")
	}
	r := check(Options{}, lost(true))
	if r.Violations != 0 || r.Unproven == 0 || !strings.Contains(r.Findings[0].Text, "the history has not all events of the job") {
		t.Errorf("found %+v", r.Findings)
	}
	if r := check(Options{}, lost(false).of(601, event.OverQuota, event.Event{Ceiling: ceiling.HistoryBytes})); r.Violations == 0 {
		t.Error("a gap after the loss excuses it")
	}
	// What the host lost of its history, of whatever job, cannot be held against the job either.
	r = check(Options{}, open("a", a1).fire(0, 0, 1, 0).run(1, 2, 0, 0, 5).add(3, event.Event{Kind: event.HistoryLost, Host: event.ProcessOf(a1), Count: 7}).later(300).later(600))
	if r.Violations != 0 || r.Unproven == 0 || !strings.Contains(r.Findings[0].Text, "the history has not all events of the job") {
		t.Errorf("found %+v", r.Findings)
	}
	// Another quota leaves the history whole.
	b := open("a", a1).fire(0, 0, 1, 0).run(1, 2, 0, 0, 5).of(3, event.OverQuota, event.Event{Ceiling: ceiling.LogLines}).later(300).later(600)
	if r := check(Options{}, b); r.Violations == 0 {
		t.Error("dropped log lines excuse a loss")
	}
}
