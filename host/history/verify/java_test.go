package verify

import (
	"strings"
	"testing"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/event"
)

// assigned says which items the host has from then on.
func (b *book) assigned(at float64, items ...int) *book {
	return b.of(at, event.Assigned, event.Event{Items: items})
}

// TestItemsOfNoGivenHistory: items that Java hosts run are in no history, and those of a
// host whose history is not given are not there either.
func TestItemsOfNoGivenHistory(t *testing.T) {
	t.Parallel()
	one := func(items ...int) *book { return open("a", a1).assigned(0, items...) }
	fired := func(b *book) *book { return b.fire(5, 5, 2, 0).run(6, 7, 5, 0, 5).skip(15, 15, 0, "x").other(15, 1000) }
	for name, tc := range map[string]struct {
		book                 *book
		java                 bool
		violations, unproven int
	}{
		"a Java host has it":                        {fired(one(0)), true, 0, 0},
		"ours has it, beside a Java host":           {fired(one(0, 1)), true, 1, 0},
		"nobody says who has it":                    {fired(open("a", a1)), false, 1, 0},
		"nobody says who has it beside a Java host": {fired(open("a", a1)), true, 0, 0},
		"another host has it":                       {fired(one(0)), false, 0, 1},
		"ours has it":                               {fired(one(0, 1)), false, 1, 0},
		"it went to another host before":            {fired(one(0, 1).assigned(1, 0)), false, 0, 1},
		"it goes to a Java host at the instant":     {one(0, 1).assigned(5, 0).fire(5, 5, 2, 0).run(6, 7, 5, 0, 5).skip(15, 15, 0, "x").later(1000), true, 0, 0},
		"a promise beside a Java host that took the item over": {one(0, 1).fire(0, 0, 2, 0, 1).run(1, 2, 0, 0, 5).run(1, 2, 0, 1, 6).
			of(10, event.FireSkipped, event.Event{Instant: instant(10), Source: abi.SourceSchedule, Items: []int{0, 1}, Owed: true, Total: 2}).
			assigned(11, 0).run(12, 13, 10, 0, 7).skip(20, 20, 0, "x").later(1000), true, 0, 0},
	} {
		o := Options{}
		if tc.java {
			o.Java = []string{"j"}
		}
		r := check(o, tc.book)
		if r.Violations != tc.violations || r.Unproven != tc.unproven {
			t.Errorf("%s: %d violations, %d unproven, want %d and %d: %+v", name, r.Violations, r.Unproven, tc.violations, tc.unproven, r.Findings)
		}
		if tc.unproven > 0 && len(r.Findings) > 0 && !strings.Contains(r.Findings[0].Text, "history") {
			t.Errorf("%s: %q does not say that a history is missing", name, r.Findings[0].Text)
		}
	}
}

// TestPeriodIsForScheduledJobs: a job without cron fires when it is triggered.
func TestPeriodIsForScheduledJobs(t *testing.T) {
	t.Parallel()
	o := Options{Period: instant(60).Sub(t0)}
	added := func(source abi.Source) *book {
		b := &book{name: "a", id: a1}
		b.add(0, event.Event{Kind: event.HostStarted})
		return b.of(0, event.JobAdded, event.Event{Source: source})
	}
	triggered := func(b *book) *book {
		return b.of(1, event.FireStarted, event.Event{Instant: instant(1), Trigger: 7, Source: abi.SourceTrigger, Items: []int{0}, Total: 1}).
			of(900, event.FireStarted, event.Event{Instant: instant(900), Trigger: 8, Source: abi.SourceTrigger, Items: []int{0}, Total: 1})
	}
	late := func(r *Report) (n int) {
		for _, f := range r.Findings {
			if f.Invariant == Settled {
				n++
			}
		}
		return n
	}
	for name, tc := range map[string]struct {
		book *book
		want bool
	}{
		"with cron":                           {triggered(added("")), true},
		"without":                             {triggered(added(abi.SourceTrigger)), false},
		"without, never triggered":            {added(abi.SourceTrigger).later(900), false},
		"with cron since":                     {added(abi.SourceTrigger).of(1, event.JobChanged, event.Event{Reason: "schedule"}).later(900), true},
		"a changed module says nothing of it": {triggered(added(abi.SourceTrigger).of(1, event.JobChanged, event.Event{Source: abi.SourceTrigger, Reason: "module"})), false},
	} {
		if r := check(o, tc.book); late(r) > 0 != tc.want {
			t.Errorf("%s: %+v, want a finding: %v", name, r.Findings, tc.want)
		}
	}
}

// TestPeriodBesideJava: a job of which Java hosts had all items need not fire on ours.
func TestPeriodBesideJava(t *testing.T) {
	t.Parallel()
	fired := func(b *book) *book { return b.fire(1, 1, 1, 0).run(2, 3, 1, 0, 5) }
	for name, tc := range map[string]struct {
		book *book
		java bool
		want int
	}{
		"a Java host has all items":         {fired(open("a", a1).assigned(0, 0)).assigned(4).assigned(900), true, 0},
		"none of them is given":             {fired(open("a", a1).assigned(0, 0)).assigned(4).assigned(900), false, 1},
		"ours has an item beside Java":      {fired(open("a", a1).assigned(0, 0)).later(900), true, 1},
		"ours never had one, nor does Java": {open("a", a1).assigned(0).assigned(900), false, 1},
		"ours never had one":                {open("a", a1).assigned(0).assigned(900), true, 0},
	} {
		o := Options{Period: instant(60).Sub(t0)}
		if tc.java {
			o.Java = []string{"j"}
		}
		n := 0
		for _, f := range check(o, tc.book).Findings {
			if f.Invariant == Settled {
				n++
			}
		}
		if min(n, 1) != tc.want {
			t.Errorf("%s: %d findings of the period, want %d", name, n, tc.want)
		}
	}
}

// TestJavaJobs: an instance without a node in our tree is a Java host.
func TestJavaJobs(t *testing.T) {
	t.Parallel()
	s := &shelf{now: func() []string {
		return []string{"/ns/ours/instances/" + a1, "/ns.wasmjob/ours/instances/" + a1,
			"/ns/mixed/instances/" + a1, "/ns.wasmjob/mixed/instances/" + a1, "/ns/mixed/instances/10.0.0.9@-@7"}
	}}
	if jobs, err := JavaJobs(t.Context(), s, "ns"); err != nil || len(jobs) != 1 || jobs[0] != "mixed" {
		t.Errorf("%v, %v, want mixed", jobs, err)
	}
	if _, err := JavaJobs(t.Context(), &nowhere{}, "ns"); err == nil {
		t.Error("no error of a registry that cannot be read")
	}
}

// TestRunsBesideJava: a host says that a running mark was not its own any more, and whose it was.
func TestRunsBesideJava(t *testing.T) {
	t.Parallel()
	for beside, want := range map[string]Class{"": "", "10.0.0.9@-@33": Violated, event.BesideUnknown: Unproven} {
		item := 0
		b := open("a", a1).fire(0, 0, 1, 0).start(1, 0, 0, 5).end(2, 0, 0, 5, "OK").
			of(2, event.ItemCompleted, event.Event{Instant: instant(0), Item: &item, Fence: 5, RunID: runID(0, 0), Outcome: "OK", Beside: beside}).
			skip(10, 10, 0, "x")
		r := check(Options{Java: []string{"j"}}, b)
		var got Class
		for _, f := range r.Findings {
			if f.Invariant == OneOwner {
				got = f.Class
			}
		}
		if got != want {
			t.Errorf("a mark of %q: found %q, expected %q: %+v", beside, got, want, r.Findings)
		}
	}
}
