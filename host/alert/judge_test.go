package alert_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/coordination/tree"
	"github.com/wasmjob/wasmjob/host/alert"
	"github.com/wasmjob/wasmjob/host/event"
	"github.com/wasmjob/wasmjob/test/schemas"
)

// The judge has no clock of its own: these tests say what time it is.

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

const (
	server = "10.0.0.1"
	self   = "10.0.0.1@-@1-aa"
	other  = "10.0.0.2@-@1-bb"
)

func number(n int) *int { return &n }

// bench is a judge, and what it has found so far.
type bench struct {
	t      *testing.T
	judge  *alert.Judge
	now    time.Time
	said   []string
	checks []alert.Check
	board  map[string]bool
}

// file reads rules.
func file(t *testing.T, rules string) *alert.File {
	t.Helper()
	text := "receivers:\n  hook: {webhook: {url: https://hook.example}}\nroutes:\n  - {name: all, to: hook}\n" + rules
	f, err := alert.Parse("alerts.yaml", []byte(text))
	schemas.New(t, alert.Schema()).Check(t, text, err)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func newBench(t *testing.T, rules string) *bench {
	b := &bench{t: t, judge: alert.NewJudge(file(t, rules), server), now: noon, board: make(map[string]bool)}
	b.see(event.Event{Kind: event.Session, Host: self, Reason: "live"})
	b.see(event.Event{Kind: event.JobConfigured, Settings: &event.Settings{Cron: "0 * * * * ?", TimeZone: "UTC", Items: 2}})
	return b
}

// take notes what the judge has found.
func (b *bench) take() {
	changes, checks := b.judge.Take()
	b.note(changes)
	b.checks = append(b.checks, checks...)
}

func (b *bench) note(changes []alert.Change) {
	for _, c := range changes {
		verb, text := "fire", c.Text
		if !c.Firing() {
			verb, text = "end", c.Why
		}
		if c.Local {
			verb += " here"
		} else {
			b.board[c.ID] = c.Firing()
		}
		item := ""
		if c.Item != nil {
			item = fmt.Sprint(" ", *c.Item)
		}
		b.said = append(b.said, fmt.Sprintf("%s %s %s%s: %s", b.now.Format("15:04:05"), verb, c.Rule, item, text))
	}
}

// see gives an event of the job, or of the host.
func (b *bench) see(e event.Event) {
	e.Time = b.now
	if e.Host == "" {
		e.Host = self
	}
	switch e.Kind {
	case event.Session, event.Refused, event.Accepted:
	default:
		e.Job = "j"
	}
	b.judge.See(e)
	b.take()
}

// run is one run of an item.
func (b *bench) run(item int, took time.Duration, outcome abi.Outcome, failures int64) {
	id := b.now.String()
	b.see(event.Event{Kind: event.ItemStarted, Item: &item, Instant: b.now, RunID: id, Attempt: 1})
	b.wait(took)
	b.see(event.Event{Kind: event.ItemEnded, Item: &item, Instant: b.now, RunID: id, Outcome: outcome, Duration: took})
	b.see(event.Event{Kind: event.ItemCompleted, Item: &item, Instant: b.now, RunID: id, Outcome: outcome, Count: failures})
}

// wait lets time pass, to when the judge has something to do and beyond.
func (b *bench) wait(d time.Duration) {
	for end := b.now.Add(d); ; {
		next := b.judge.Next()
		if next.IsZero() || next.After(end) {
			b.now = end
			b.judge.Tick(b.now)
			b.take()
			return
		}
		b.now = later(b.now, next)
		b.judge.Tick(b.now)
		b.take()
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// answers answers every check with what the registry has, until time has passed.
func (b *bench) answers(d time.Duration, found func(alert.Check) (alert.Found, error)) {
	for end := b.now.Add(d); b.now.Before(end); {
		b.wait(min(time.Second, end.Sub(b.now)))
		for len(b.checks) > 0 {
			c := b.checks[0]
			b.checks = b.checks[1:]
			f, err := found(c)
			b.judge.Checked(c, f, err, b.now)
			b.take()
		}
	}
}

func (b *bench) expect(want ...string) {
	b.t.Helper()
	if !slices.Equal(b.said, want) {
		b.t.Errorf("said\n%s\nwant\n%s", strings.Join(b.said, "\n"), strings.Join(want, "\n"))
	}
}

// TestJudge_failures: failures in a row count over hosts, as the item's record counts them.
func TestJudge_failures(t *testing.T) {
	t.Parallel()
	b := newBench(t, "defaults: {failures: 2}")
	b.run(0, time.Second, abi.OutcomeFail, 1)
	b.run(0, time.Second, abi.OutcomeCancelled, 1) // an operator
	b.run(0, time.Second, abi.OutcomeTimeout, 2)
	b.run(0, time.Second, abi.OutcomeFail, 3) // said already
	b.run(1, time.Second, abi.OutcomeOK, 0)
	b.run(0, time.Second, abi.OutcomeOK, 0)
	b.run(0, time.Second, abi.OutcomeTrap, 7) // it failed on another host before
	b.expect(
		"12:00:03 fire failures 0: item 0 of j failed 2 times in a row, the last run for 2026-03-01 12:00:03 UTC: TIMEOUT",
		"12:00:06 end failures 0: the item has succeeded",
		"12:00:07 fire failures 0: item 0 of j failed 7 times in a row, the last run for 2026-03-01 12:00:07 UTC: TRAP",
	)
}

// TestJudge_reasons: a reason of several lines is one line of the text, a long one is cut.
func TestJudge_reasons(t *testing.T) {
	t.Parallel()
	b := newBench(t, "")
	b.see(event.Event{Kind: event.ItemStarted, Item: number(0), Instant: noon, RunID: "r", Attempt: 1})
	b.see(event.Event{Kind: event.ItemEnded, Item: number(0), Instant: noon, RunID: "r", Outcome: abi.OutcomeFail, Reason: "2 files:\n  a is missing\r\n  b is empty"})
	b.see(event.Event{Kind: event.ItemCompleted, Item: number(0), Instant: noon, RunID: "r", Outcome: abi.OutcomeFail, Count: 1})
	b.see(event.Event{Kind: event.JobError, Reason: strings.Repeat("many words\n", 100)})
	if len(b.said) != 2 || !strings.HasSuffix(b.said[0], ": FAIL (2 files: a is missing b is empty)") || len(b.said[1]) > 600 || !strings.HasSuffix(b.said[1], "…") {
		t.Errorf("said %q", b.said)
	}
}

// TestJudge_failuresOfAnotherHost: an alert that another host has begun is not begun
// again, and ends where the item succeeds.
func TestJudge_failuresOfAnotherHost(t *testing.T) {
	t.Parallel()
	a := newBench(t, "")
	a.run(1, time.Second, abi.OutcomeFail, 1)
	b := newBench(t, "")
	b.judge.Known(a.board)
	b.run(1, time.Second, abi.OutcomeFail, 2)
	b.expect()
	b.run(1, time.Second, abi.OutcomeOK, 0)
	b.expect("12:00:02 end failures 1: the item has succeeded")

	// And where it began it may begin again.
	a.judge.Known(map[string]bool{})
	a.run(1, time.Second, abi.OutcomeFail, 1)
	if len(a.said) != 2 {
		t.Errorf("said %q", a.said)
	}
}

// TestJudge_longRuns: longer than a bound, longer than usual, and neither for long.
func TestJudge_longRuns(t *testing.T) {
	t.Parallel()
	b := newBench(t, "defaults: {longerThan: 10m, longerThanUsual: 3}")
	for range 4 {
		b.run(0, 20*time.Second, abi.OutcomeOK, 0)
	}
	b.run(0, 2*time.Minute, abi.OutcomeOK, 0) // not known yet what is usual
	b.expect()
	b.run(0, 65*time.Second, abi.OutcomeOK, 0)
	b.run(0, 30*time.Second, abi.OutcomeOK, 0)
	b.expect(
		"12:04:20 fire longerThan 0: item 0 of j runs more than 3 times as long as usual (20s) on host 10.0.0.1, since 2026-03-01 12:03:20 UTC",
		"12:04:25 end longerThan 0: the run has ended",
	)
	b.said = nil
	c := newBench(t, "defaults: {longerThan: 10m}")
	c.run(1, 11*time.Minute, abi.OutcomeFail, 0)
	if len(c.said) != 2 || !strings.HasPrefix(c.said[0], "12:10:00 fire longerThan 1: item 1 of j runs longer than 10m on host") {
		t.Errorf("said %q", c.said)
	}
	// A retry is the same run.
	c.said = nil
	c.see(event.Event{Kind: event.ItemStarted, Item: number(0), RunID: "r", Attempt: 1})
	c.wait(6 * time.Minute)
	c.see(event.Event{Kind: event.ItemStarted, Item: number(0), RunID: "r", Attempt: 2})
	c.wait(5 * time.Minute)
	if len(c.said) != 1 || !strings.HasPrefix(c.said[0], "12:21:00 fire longerThan 0") {
		t.Errorf("said %q", c.said)
	}
	// Its session ends: what ran was stopped.
	c.see(event.Event{Kind: event.Session, Reason: "lost"})
	if len(c.said) != 3 || !strings.Contains(strings.Join(c.said, "\n"), "end longerThan 0: its host has lost its session") {
		t.Errorf("said %q", c.said)
	}
}

// TestJudge_manyRuns: what runs shortly costs the judge no memory.
func TestJudge_manyRuns(t *testing.T) {
	t.Parallel()
	b := newBench(t, "defaults: {longerThan: 1h}")
	for n := range 5000 {
		b.run(n%7, time.Millisecond, abi.OutcomeOK, 0)
	}
	ticks := 0
	for next := b.judge.Next(); !next.IsZero(); next = b.judge.Next() {
		b.judge.Tick(next)
		ticks++
	}
	if ticks > 2 {
		t.Errorf("the judge wants to look %d times after 5000 runs that are over", ticks)
	}
	b.expect()
}

// TestJudge_items: lost and held items, and what ends that.
func TestJudge_items(t *testing.T) {
	t.Parallel()
	b := newBench(t, "")
	b.see(event.Event{Kind: event.ItemSkipped, Item: number(0), Instant: noon, Cause: event.SkipLost, Outcome: tree.OutcomeLost, Other: other, Reason: "its host died"})
	b.see(event.Event{Kind: event.ItemSkipped, Item: number(1), Instant: noon, Cause: event.SkipElsewhere, Reason: "another host runs it"})
	b.see(event.Event{Kind: event.ItemHeld, Item: number(1), Cause: event.SkipHeld, Reason: "2 hosts died"})
	b.now = b.now.Add(time.Minute)
	b.run(0, 0, abi.OutcomeOK, 0)
	b.see(event.Event{Kind: event.ItemReleased, Item: number(1)})
	b.expect(
		"12:00:00 fire lost 0: the run of item 0 of j for 2026-03-01 12:00:00 UTC is lost: its host died",
		"12:00:00 fire held 1: item 1 of j is held back: 2 hosts died",
		"12:01:00 end lost 0: a newer run of the item has succeeded",
		"12:01:00 end held 1: the item was released",
	)
	off := newBench(t, "defaults: {lost: false, held: off}")
	off.see(event.Event{Kind: event.ItemSkipped, Item: number(0), Cause: event.SkipLost})
	off.see(event.Event{Kind: event.ItemHeld, Item: number(1), Cause: event.SkipHeld})
	off.expect()
}

// TestJudge_host: what a host has to say of itself.
func TestJudge_host(t *testing.T) {
	t.Parallel()
	b := newBench(t, "")
	b.see(event.Event{Kind: event.Refused, Host: "10.0.0.1@-@1", File: "j.wasm", Reason: `line 2: job "j": no export`, Jobs: []string{"j"}})
	b.see(event.Event{Kind: event.JobError, Reason: "no cron"})
	b.see(event.Event{Kind: event.JobError, Reason: "waited", Wait: event.WaitSlot}) // no refusal
	b.see(event.Event{Kind: event.Session, Reason: "suspect"})
	b.see(event.Event{Kind: event.Session, Reason: "yield"})
	b.see(event.Event{Kind: event.Session, Reason: "live"})
	b.see(event.Event{Kind: event.JobConfigured, Settings: &event.Settings{}})
	b.see(event.Event{Kind: event.Accepted, Host: "10.0.0.1@-@1", File: "j.wasm"})
	b.judge.History("failed to connect:\n\tdial tcp: connection refused\n", noon, b.now)
	b.judge.History("disk full", noon, b.now)
	b.judge.History("", time.Time{}, b.now)
	b.take()
	b.expect(
		`12:00:00 fire refused: host 10.0.0.1 refuses j.wasm: line 2: job "j": no export`,
		"12:00:00 fire refused: host 10.0.0.1 cannot run j as it is: no cron",
		"12:00:00 fire here session: the session of host 10.0.0.1 with the registry is in doubt: the registry does not answer, and nothing begins there",
		"12:00:00 end here session: the session is live",
		"12:00:00 end refused: the host goes by the job's configuration again",
		"12:00:00 end refused: the file is not refused any more",
		"12:00:00 fire history: host 10.0.0.1 cannot write its history since 2026-03-01T12:00:00Z: failed to connect: dial tcp: connection refused",
		"12:00:00 end history: the history is written again",
	)
}

// TestJudge_refused: a job that a host refuses is an alert until the host says that it goes by the job's
// configuration again. What fires meanwhile goes by the one before.
func TestJudge_refused(t *testing.T) {
	t.Parallel()
	b := newBench(t, "")
	settings := &event.Settings{Cron: "0 * * * * ?", TimeZone: "UTC", Items: 2}
	b.see(event.Event{Kind: event.JobError, Reason: "too many items"})
	b.see(event.Event{Kind: event.JobConfigured, Settings: settings, Reason: "too many items"})
	b.see(event.Event{Kind: event.FireStarted, Instant: b.now, Items: []int{0}})
	b.see(event.Event{Kind: event.JobChanged, Reason: "the configuration, in the registry"})
	b.expect("12:00:00 fire refused: host 10.0.0.1 cannot run j as it is: too many items")
	b.wait(time.Minute)
	b.see(event.Event{Kind: event.JobConfigured, Settings: settings})
	b.expect("12:00:00 fire refused: host 10.0.0.1 cannot run j as it is: too many items",
		"12:01:00 end refused: the host goes by the job's configuration again")
}

// TestJudge_keeper: hosts that are gone, and what is over with them.
func TestJudge_keeper(t *testing.T) {
	t.Parallel()
	b := newBench(t, "")
	all := alert.Cluster{Hosts: []string{self, other}, Alive: []string{self, other}}
	b.judge.Keep(all, nil, b.now)
	b.take()
	b.expect()
	gone := alert.Cluster{Hosts: all.Hosts, Alive: []string{self}}
	b.judge.Keep(gone, nil, b.now)
	b.judge.Keep(gone, nil, b.now)
	changes, _ := b.judge.Take()
	if len(changes) != 1 || changes[0].Host != other {
		t.Errorf("%+v, want one, about %s", changes, other)
	}
	b.note(changes)
	b.expect("12:00:00 fire hostGone: host 10.0.0.2 is gone: its session with the registry has ended, and it had not stopped in good order (10.0.0.2@-@1-bb)")
	if ids := gone.Gone(); !slices.Equal(ids, []string{other}) {
		t.Errorf("gone %q", ids)
	}

	// It comes back with another id.
	var standing []alert.Alert
	b.said = nil
	for id := range b.board {
		standing = append(standing, alert.Alert{ID: id, Rule: alert.HostGone, Subject: "10.0.0.2", Since: b.now})
	}
	back := alert.Cluster{Hosts: []string{self, "10.0.0.2@-@2-cc"}, Alive: []string{self, "10.0.0.2@-@2-cc"}}
	b.judge.Keep(back, standing, b.now)
	b.take()
	b.expect("12:00:00 end hostGone: a host is at that address again")

	// It does not, and is forgotten after a day. What it had to say of itself is over at once.
	c := newBench(t, "hosts: {gone: true}")
	c.judge.Keep(gone, nil, c.now)
	c.take()
	standing = []alert.Alert{{Rule: alert.HostGone, Subject: "10.0.0.2", Since: c.now}, {Rule: alert.Refused, Job: "j", Subject: "10.0.0.2", OfHost: true, Host: other}}
	active := make(map[string]bool)
	for i, a := range standing {
		standing[i] = alert.Named(a)
		active[standing[i].ID] = true
	}
	c.judge.Known(active)
	c.said = nil
	c.judge.Keep(alert.Cluster{Hosts: []string{self}, Alive: []string{self}}, standing, c.now.Add(25*time.Hour))
	c.take()
	c.expect("12:00:00 end hostGone: it is gone for a day, and is not looked for any more", "12:00:00 end refused: its host is gone")
}

// records are what the registry has of the job, as a test changes it.
type records struct {
	found alert.Found
	looks int
}

func (r *records) look(alert.Check) (alert.Found, error) {
	r.looks++
	return r.found, nil
}

func newRecords(list ...tree.Record) *records {
	f := alert.Found{Exists: true, Enabled: true, Hosts: 1}
	for n, r := range list {
		f.Items = append(f.Items, alert.FoundItem{Item: n, Record: r})
	}
	return &records{found: f}
}

// TestJudge_startWithin: the janitor looks once for each instant, when its deadline has
// passed, and again while something is missing.
func TestJudge_startWithin(t *testing.T) {
	t.Parallel()
	b := newBench(t, "defaults: {startWithin: 20s}")
	r := newRecords(tree.Record{}, tree.Record{})
	b.answers(5*time.Minute, r.look)
	if r.looks != 0 {
		t.Fatalf("a host that is not the janitor has looked %d times", r.looks)
	}
	begin := func(item int, at time.Time) { r.found.Items[item].Record.Instant = at.UnixMilli() }
	for n := range r.found.Items {
		begin(n, noon.Add(time.Hour)) // all is well
	}
	b.see(event.Event{Kind: event.Janitor})
	b.answers(3*time.Minute, r.look)
	if r.looks != 4 { // the newest deadline that had passed, and three
		t.Errorf("%d looks in three minutes, want 4", r.looks)
	}
	b.expect()

	at := b.now.Truncate(time.Minute).Add(time.Minute)
	begin(0, at)
	begin(1, at.Add(-time.Minute))
	b.answers(time.Minute+25*time.Second, r.look)
	begin(1, at.Add(time.Hour))
	begin(0, at.Add(time.Hour))
	b.answers(time.Minute, r.look)
	b.expect(
		"12:09:20 fire startWithin: item 1 of j has not begun: due at 2026-03-01 12:09:00 UTC, wanted within 20s",
		"12:09:35 end startWithin: all items have begun",
	)

	// Disabled items, disabled jobs and those with hosts of ElasticJob's are left alone.
	b.said = nil
	for n := range r.found.Items {
		begin(n, noon)
	}
	r.found.Items[0].Disabled, r.found.Items[1].Disabled = true, true
	b.answers(2*time.Minute, r.look)
	r.found.Items[0].Disabled, r.found.Enabled = false, false
	b.answers(2*time.Minute, r.look)
	r.found.Enabled, r.found.Java = true, true
	b.answers(2*time.Minute, r.look)
	b.expect()

	// Another host is the janitor.
	r.found.Java = false
	b.see(event.Event{Kind: event.Janitor, Reason: "another host is"})
	before := r.looks
	b.answers(3*time.Minute, r.look)
	b.expect()
	if r.looks != before {
		t.Error("a host that is not the janitor any more looks")
	}
}

// TestJudge_startWithin_jitter: what the job's jitter puts off is not late, and neither is what its
// calendars exclude.
func TestJudge_startWithin_jitter(t *testing.T) {
	t.Parallel()
	b := newBench(t, "defaults: {startWithin: 20s}")
	r := newRecords(tree.Record{Instant: noon.UnixMilli()}, tree.Record{Instant: noon.Add(time.Hour).UnixMilli()})
	b.see(event.Event{Kind: event.JobConfigured, Settings: &event.Settings{Cron: "0 0/10 * * * ?", TimeZone: "UTC", Items: 2, Terms: `{"wasm.jitter":"5m"}`}})
	b.see(event.Event{Kind: event.Janitor})
	b.answers(15*time.Minute, r.look)
	b.expect()
	b.answers(30*time.Second, r.look)
	b.expect("12:15:20 fire startWithin: item 0 of j has not begun: due at 2026-03-01 12:10:00 UTC, wanted within 20s")

	b.said = nil
	b = newBench(t, "defaults: {startWithin: 20s}")
	b.see(event.Event{Kind: event.JobConfigured, Settings: &event.Settings{Cron: "0 0/10 * * * ?", TimeZone: "UTC", Items: 2,
		Terms: `{"wasm.calendars.exclude":"[\"h\"]","wasm.calendarDays":"{\"h\":\"{\\\"days\\\":[\\\"2026-03-01\\\"]}\"}"}`}})
	b.see(event.Event{Kind: event.Janitor})
	b.answers(time.Hour, r.look)
	b.expect()
	b.answers(11*time.Hour+30*time.Second, r.look)
	b.expect("00:00:20 fire startWithin: items 0-1 of j have not begun: due at 2026-03-02 00:00:00 UTC, wanted within 20s")
}

// TestJudge_startWithin_enabled: what was disabled at an instant does not have to begin for it,
// though it is enabled before the deadline.
func TestJudge_startWithin_enabled(t *testing.T) {
	t.Parallel()
	b := newBench(t, "defaults: {startWithin: 20s}")
	r := newRecords(tree.Record{Instant: noon.UnixMilli()}, tree.Record{Instant: noon.UnixMilli()})
	b.see(event.Event{Kind: event.Janitor})
	at := noon.Add(time.Minute)
	r.found.EnabledSince = at.Add(time.Second)
	b.answers(90*time.Second, r.look)
	b.expect()

	// The job is enabled for longer than that; one of its items was disabled.
	r.found.EnabledSince = at.Add(30 * time.Second)
	r.found.Items[0].EnabledSince = at.Add(61 * time.Second)
	r.found.Items[1].EnabledSince = at.Add(60 * time.Second)
	b.wait(at.Add(time.Minute).Sub(b.now))
	b.answers(25*time.Second, r.look)
	b.expect("12:02:20 fire startWithin: item 1 of j has not begun: due at 2026-03-01 12:02:00 UTC, wanted within 20s")
}

// TestJudge_startWithin_configured: a judge that came after an instant and after a change of the
// configuration does not know whether it is one of the cron of then; one that has seen the change
// does, and one that finds an alert goes on with it.
func TestJudge_startWithin_configured(t *testing.T) {
	t.Parallel()
	late := "12:02:20 fire startWithin: item 0 of j has not begun: due at 2026-03-01 12:02:00 UTC, wanted within 20s"
	newJudge := func() (*bench, *records) {
		b := newBench(t, "defaults: {startWithin: 20s}")
		r := newRecords(tree.Record{Instant: noon.UnixMilli(), Begun: 1, Ended: 2})
		r.found.ConfiguredAt = noon.Add(70 * time.Second)
		return b, r
	}
	b, r := newJudge()
	b.wait(10 * time.Second)
	b.see(event.Event{Kind: event.Janitor})
	b.answers(72*time.Second, r.look)
	b.expect(strings.ReplaceAll(late, ":02:", ":01:"))

	// One that comes at 12:01:30.
	later := func() (*bench, *records) {
		b, r := newJudge()
		b.see(event.Event{Kind: event.JobRemoved})
		b.wait(90 * time.Second)
		b.see(event.Event{Kind: event.JobConfigured, Settings: &event.Settings{Cron: "0 * * * * ?", TimeZone: "UTC", Items: 1}})
		return b, r
	}
	b, r = later()
	b.see(event.Event{Kind: event.Janitor})
	b.answers(52*time.Second, r.look)
	b.expect(late)

	b, r = later()
	b.judge.Known(map[string]bool{alert.Named(alert.Alert{Rule: alert.StartWithin, Job: "j"}).ID: true})
	b.see(event.Event{Kind: event.Janitor})
	r.found.Items[0].Record.Instant = noon.Add(time.Minute).UnixMilli()
	b.answers(5*time.Second, r.look)
	b.expect("12:01:31 end startWithin: all items have begun")
}

// TestJudge_startWithin_newJob: a job that has just come, of which the registry has no records yet,
// did not have to begin before; one that gets none has to from then on.
func TestJudge_startWithin_newJob(t *testing.T) {
	t.Parallel()
	b := newBench(t, "defaults: {startWithin: 20s}")
	b.wait(5 * time.Second)
	r := newRecords(tree.Record{})
	b.see(event.Event{Kind: event.Janitor})
	b.answers(70*time.Second, r.look)
	b.expect()
	r.found.ConfiguredAt = noon.Add(61 * time.Second) // the item came with that
	b.answers(10*time.Second, r.look)
	b.expect()
	r.found.ConfiguredAt = time.Time{}
	b.answers(60*time.Second, r.look)
	b.expect("12:02:20 fire startWithin: item 0 of j has not begun: due at 2026-03-01 12:02:00 UTC, wanted within 20s")
}

// TestJudge_startWithin_newJanitor: a host that becomes the janitor looks at once at the
// instant whose deadline has passed while there was none.
func TestJudge_startWithin_newJanitor(t *testing.T) {
	t.Parallel()
	b := newBench(t, "defaults: {startWithin: 20s}")
	r := newRecords(tree.Record{Instant: noon.Add(4 * time.Minute).UnixMilli(), Begun: 1})
	b.wait(5*time.Minute + 40*time.Second)
	b.see(event.Event{Kind: event.Janitor})
	b.answers(2*time.Second, r.look)
	b.expect("12:05:41 fire startWithin: item 0 of j has not begun: due at 2026-03-01 12:05:00 UTC, wanted within 20s; earlier runs are not over")
	r.found.Items[0].Record.Instant = noon.Add(time.Hour).UnixMilli()
	b.said = nil
	b.answers(time.Minute, r.look)
	if len(b.said) != 1 || !strings.Contains(b.said[0], "end startWithin") {
		t.Errorf("said %q", b.said)
	}
}

// TestJudge_startWithin_manyItems: a job with very many items is looked at in parts.
func TestJudge_startWithin_manyItems(t *testing.T) {
	t.Parallel()
	b := newBench(t, "defaults: {startWithin: 20s}")
	b.see(event.Event{Kind: event.Janitor})
	var parts []int
	b.answers(90*time.Second, func(c alert.Check) (alert.Found, error) {
		parts = append(parts, c.From)
		f := newRecords(tree.Record{Instant: noon.Add(time.Hour).UnixMilli()}).found
		f.Items[0].Item = c.From
		if f.More = c.From + 500; f.More > 1000 {
			f.More = 0
			f.Items[0].Record.Instant = 0
		}
		return f, nil
	})
	if len(parts) < 6 || !slices.Equal(parts[:3], []int{0, 500, 1000}) || len(b.said) != 1 || !strings.Contains(b.said[0], "item 1000 of j has not begun") {
		t.Errorf("looked at parts %v, and said %q", parts, b.said)
	}
}

// TestJudge_registryDown: what cannot be looked up is looked up again.
func TestJudge_registryDown(t *testing.T) {
	t.Parallel()
	b := newBench(t, "defaults: {startWithin: 20s}")
	b.see(event.Event{Kind: event.Janitor})
	down, looks := true, 0
	look := func(alert.Check) (alert.Found, error) {
		if looks++; down {
			return alert.Found{}, errors.New("no answer")
		}
		return newRecords(tree.Record{Begun: 1}).found, nil
	}
	b.answers(time.Minute, look)
	if looks < 10 || looks > 40 || len(b.said) != 0 {
		t.Errorf("%d looks in a minute, said %q", looks, b.said)
	}
	down = false
	b.answers(5*time.Second, look)
	if len(b.said) != 1 {
		t.Errorf("said %q", b.said)
	}
}

// TestJudge_succeedEvery: the janitor looks once, and then when the oldest success is too
// old.
func TestJudge_succeedEvery(t *testing.T) {
	t.Parallel()
	b := newBench(t, "jobs:\n  - {jobs: j, succeedEvery: 1h}")
	ms := func(d time.Duration) int64 { return noon.Add(d).UnixMilli() }
	r := newRecords(
		tree.Record{Owner: other, Begun: 1, Ended: ms(-10 * time.Minute), Outcome: "OK"},
		tree.Record{Owner: other, Begun: 1, Ended: ms(-time.Minute), Outcome: "FAIL", Succeeded: ms(-30 * time.Minute)},
		tree.Record{Instant: ms(-5 * time.Minute)}, // it has just come to be
	)
	b.see(event.Event{Kind: event.Janitor})
	b.answers(29*time.Minute, r.look)
	if r.looks != 1 {
		t.Errorf("%d looks in half an hour, want 1", r.looks)
	}
	b.expect()
	b.answers(2*time.Minute, r.look)
	b.expect("12:30:00 fire succeedEvery: item 1 of j has not succeeded for 1h: since 2026-03-01 11:30:00 UTC")
	b.said = nil
	r.found.Items[1].Record = tree.Record{Ended: b.now.UnixMilli(), Outcome: "OK"}
	b.see(event.Event{Kind: event.ItemCompleted, Item: number(1), Outcome: abi.OutcomeOK})
	b.answers(5*time.Second, r.look) // sooner than it would look
	if len(b.said) != 1 || !strings.Contains(b.said[0], "end succeedEvery: all items have succeeded lately") {
		t.Errorf("said %q", b.said)
	}
}

// TestJudge_orphans: the keeper looks after the jobs that no host has, until one has them.
func TestJudge_orphans(t *testing.T) {
	t.Parallel()
	b := newBench(t, "defaults: {startWithin: 20s}")
	r := newRecords(tree.Record{Instant: noon.UnixMilli()})
	r.found.Hosts, r.found.Settings = 0, event.Settings{Cron: "30 * * * * ?", TimeZone: "UTC", Items: 1}
	b.now = noon.Add(10 * time.Second)
	b.judge.Orphans(map[string]event.Settings{"lone": r.found.Settings}, b.now)
	b.answers(time.Minute, r.look)
	if len(b.said) != 1 || b.said[0] != "12:00:50 fire startWithin: item 0 of lone has not begun: due at 2026-03-01 12:00:30 UTC, wanted within 20s; no host has the job" {
		t.Errorf("said %q", b.said)
	}
	r.found.Hosts = 1
	b.answers(time.Minute, r.look)
	before := r.looks
	b.answers(5*time.Minute, r.look)
	if r.looks != before {
		t.Error("a job that a host has again is still looked after")
	}
}

// TestJudge_use: other rules are in force at once.
func TestJudge_use(t *testing.T) {
	t.Parallel()
	b := newBench(t, "defaults: {failures: off}")
	b.see(event.Event{Kind: event.Janitor})
	b.see(event.Event{Kind: event.ItemStarted, Item: number(1), RunID: "r"})
	r := newRecords(tree.Record{})
	b.run(0, time.Minute, abi.OutcomeFail, 9)
	b.answers(time.Minute, r.look)
	b.expect()
	b.judge.Use(file(t, "defaults: {startWithin: 10s, longerThan: 5m}"), b.now)
	b.answers(5*time.Minute, r.look)
	b.run(0, 0, abi.OutcomeFail, 10)
	text := strings.Join(b.said, "\n")
	for _, want := range []string{"fire startWithin", "12:05:00 fire longerThan 1", "fire failures 0: item 0 of j failed 10 times"} {
		if !strings.Contains(text, want) {
			t.Errorf("said\n%s\nwant %s", text, want)
		}
	}
}

// TestJudge_errorHandler: a job whose error handler is one of ElasticJob's that send
// something has its alerts on the route that the file names for it.
func TestJudge_errorHandler(t *testing.T) {
	t.Parallel()
	b := newBench(t, "defaults: {failures: off}\nerrorHandlers: {DINGTALK: all}")
	fail := func(handler string) []alert.Change {
		b.see(event.Event{Kind: event.JobConfigured, Settings: &event.Settings{ErrorHandler: handler}})
		b.judge.See(event.Event{Kind: event.ItemCompleted, Host: self, Job: "j", Item: number(0), Outcome: abi.OutcomeFail, Count: 1})
		changes, _ := b.judge.Take()
		return changes
	}
	if changes := fail("EMAIL"); len(changes) != 0 {
		t.Errorf("%+v", changes)
	}
	if f := file(t, "errorHandlers: {DINGTALK: all}"); !f.Unrouted("email") || f.Unrouted("dingtalk") || f.Unrouted("LOG") || f.Unrouted("") {
		t.Error("which handlers have no route is not known")
	}
	if changes := fail("dingtalk"); len(changes) != 1 || changes[0].Route != "all" {
		t.Errorf("%+v", changes)
	}
}

// TestJudge_refusedBeforeTheSession: a file that is refused before the host has a session is an
// alert of the session that it gets, and of the one after that.
func TestJudge_refusedBeforeTheSession(t *testing.T) {
	t.Parallel()
	b := &bench{t: t, judge: alert.NewJudge(file(t, ""), server), now: noon, board: make(map[string]bool)}
	refuse := func(reason string, jobs ...string) {
		b.see(event.Event{Kind: event.Refused, Host: "10.0.0.1@-@1", File: "j.wasm", Reason: reason, Jobs: jobs})
	}
	refuse("no export")
	b.expect() // there is nobody yet with whom it could end
	var hosts []string
	live := func(id string) {
		t.Helper()
		b.judge.See(event.Event{Kind: event.Session, Host: id, Reason: "live", Time: b.now})
		changes, _ := b.judge.Take()
		for _, c := range changes {
			if c.Firing() && c.Rule == alert.Refused {
				hosts = append(hosts, c.Host)
				b.board[c.ID] = true
			}
		}
	}
	live(self)
	live(self) // after a doubt
	b.see(event.Event{Kind: event.Session, Reason: "lost"})
	again := "10.0.0.1@-@1-ab"
	live(again)
	if !slices.Equal(hosts, []string{self, again}) {
		t.Errorf("begun by %q, want each session once", hosts)
	}
	b.said = nil
	refuse(`job "j": no export`, "j") // it is about a job now
	b.see(event.Event{Kind: event.Accepted, File: "j.wasm"})
	b.see(event.Event{Kind: event.Session, Reason: "lost"})
	live(self)
	b.expect(
		"12:00:00 end refused: the file is refused for another reason",
		`12:00:00 fire refused: host 10.0.0.1 refuses j.wasm: job "j": no export`,
		"12:00:00 end refused: the file is not refused any more",
		"12:00:00 fire here session: host 10.0.0.1 has lost its session with the registry: everything was stopped there, and it starts a new one",
	)
	if len(hosts) != 2 {
		t.Errorf("begun by %q after it was accepted", hosts)
	}
}

// TestJudge_registry: a host says itself that the registry has gone back, until it has a session that
// finds nothing of that.
func TestJudge_registry(t *testing.T) {
	t.Parallel()
	b := newBench(t, "")
	behind := event.Event{Kind: event.RegistryBehind, Reason: "this registry has gone back: run 'wasmjob registry adopt'"}
	live := func(id string) { b.see(event.Event{Kind: event.Session, Host: id, Reason: "live"}) }
	b.see(behind)
	live(self)
	b.see(event.Event{Kind: event.Session, Reason: "suspect"})
	live(self) // after a doubt
	b.see(event.Event{Kind: event.Session, Reason: "lost"})
	b.see(behind)
	live("10.0.0.1@-@1-ab")
	b.see(event.Event{Kind: event.Session, Reason: "lost"})
	live("10.0.0.1@-@1-ac")
	b.said = slices.DeleteFunc(b.said, func(s string) bool { return !strings.Contains(s, "here registry:") })
	b.expect(
		"12:00:00 fire here registry: host 10.0.0.1 has found: this registry has gone back: run 'wasmjob registry adopt'",
		"12:00:00 end here registry: the host has another session, which finds nothing of that",
	)
	off := newBench(t, "hosts: {registry: false, session: false}")
	off.see(behind)
	off.expect()
}

// TestJudge_useEnds: a rule that is switched off while something is wrong by it ends that.
func TestJudge_useEnds(t *testing.T) {
	t.Parallel()
	b := newBench(t, "defaults: {startWithin: 20s, longerThan: 1m}")
	r := newRecords(tree.Record{})
	b.see(event.Event{Kind: event.Refused, File: "j.wasm", Reason: "no export"})
	b.see(event.Event{Kind: event.Session, Reason: "suspect"})
	b.see(event.Event{Kind: event.Janitor})
	b.see(event.Event{Kind: event.ItemStarted, Item: number(1), RunID: "r"})
	b.answers(3*time.Minute, r.look)
	if len(b.said) != 4 {
		t.Fatalf("said %q", b.said)
	}
	b.said = nil
	b.judge.Use(file(t, "defaults: {refused: false}\nhosts: {session: false}"), b.now)
	b.take()
	slices.Sort(b.said)
	b.expect(
		"12:03:00 end here session: the rule was switched off",
		"12:03:00 end longerThan 1: the rule was switched off",
		"12:03:00 end refused: the rule was switched off",
		"12:03:00 end startWithin: the rule was switched off",
	)
	b.said = nil
	b.judge.Use(file(t, ""), b.now)
	b.take()
	b.expect("12:03:00 fire refused: host 10.0.0.1 refuses j.wasm: no export")
}

// TestJudge_idleJava: a Java host that has items and does not come to a fire is an alert, until our host has a fire of which
// nothing of that kind is said.
func TestJudge_idleJava(t *testing.T) {
	t.Parallel()
	b := newBench(t, "")
	fire := func(said bool) {
		b.see(event.Event{Kind: event.FireStarted, Instant: b.now, Items: []int{1}})
		at := b.now
		b.wait(time.Second)
		if said {
			b.see(event.Event{Kind: event.JobError, Wait: event.WaitListener, Other: "10.0.0.9@-@99", Items: []int{0}, Reason: "waited"})
		}
		b.see(event.Event{Kind: event.FireEnded, Instant: at, Items: []int{1}, Outcome: "OK"})
		b.wait(59 * time.Second)
	}
	fire(true)
	fire(true)
	fire(false)
	b.see(event.Event{Kind: event.JobError, Wait: event.WaitListener, Reason: "hosts of ours"})
	b.expect(
		"12:00:01 fire refused: Java host 10.0.0.9@-@99 has items of j and runs none of them: waited",
		"12:02:01 end refused: the Java host has come to a fire, or has no items any more",
	)
}

// TestJudge_keeperEnds: what can be over in no other way is ended by the keeper: alerts of hosts
// that are gone by rules that are off, and those of jobs and items that there are not any more.
func TestJudge_keeperEnds(t *testing.T) {
	t.Parallel()
	b := newBench(t, "jobs:\n  - {jobs: quiet, failures: off}")
	all := alert.Cluster{Hosts: []string{self}, Alive: []string{self}}
	standing := []alert.Alert{
		{Rule: alert.Failures, Job: "quiet", Item: number(0), Host: other},
		{Rule: alert.Failures, Job: "quiet", Item: number(1), Host: other, Route: "all"}, // by its error handler
		{Rule: alert.Failures, Job: "quiet", Item: number(2), Host: self},                // which ends it, if it goes by the same file
		{Rule: alert.Lost, Job: "removed", Item: number(0), Host: self},
		{Rule: alert.Refused, Job: "removed", Subject: server, Host: self, OfHost: true}, // it never came to be
		{Rule: alert.Failures, Job: "fewer", Item: number(4), Host: self},
		{Rule: alert.Held, Job: "fewer", Item: number(5), Host: self},
	}
	active := make(map[string]bool)
	for i, a := range standing {
		standing[i] = alert.Named(a)
		active[standing[i].ID] = true
	}
	b.judge.Known(active)
	b.judge.Keep(all, standing, b.now)
	b.take()
	b.expect("12:00:00 end failures 0: the rule was switched off")
	b.said = nil
	b.judge.Jobs(map[string]int{"removed": 0, "fewer": 5}, standing, b.now)
	b.take()
	b.expect("12:00:00 end lost 0: the job was removed", "12:00:00 end held 5: the job has 5 items now")
}

// TestJudge_retries: a run lasts from its first attempt to its completion, also for what is
// usual.
func TestJudge_retries(t *testing.T) {
	t.Parallel()
	b := newBench(t, "defaults: {longerThan: 10m, failures: off}")
	attempt := func(n int, took time.Duration, outcome abi.Outcome) {
		b.see(event.Event{Kind: event.ItemStarted, Item: number(0), Instant: noon, RunID: "r", Attempt: n})
		b.wait(took)
		b.see(event.Event{Kind: event.ItemEnded, Item: number(0), Instant: noon, RunID: "r", Attempt: n, Outcome: outcome, Duration: took})
	}
	attempt(1, 6*time.Minute, abi.OutcomeRetry)
	b.wait(time.Minute)
	attempt(2, 5*time.Minute, abi.OutcomeFail)
	b.see(event.Event{Kind: event.ItemCompleted, Item: number(0), Instant: noon, RunID: "r", Outcome: abi.OutcomeFail, Count: 1})
	b.expect(
		"12:10:00 fire longerThan 0: item 0 of j runs longer than 10m on host 10.0.0.1, since 2026-03-01 12:00:00 UTC",
		"12:12:00 end longerThan 0: the run has ended",
	)

	// Of a run whose end is told in no other way, the end of its fire tells it.
	b.said = nil
	attempt(3, time.Minute, abi.OutcomeCancelled)
	b.see(event.Event{Kind: event.FireEnded, Instant: noon.Add(-time.Hour), Items: tree.Items{0}}) // of another
	b.wait(10 * time.Minute)
	b.see(event.Event{Kind: event.FireEnded, Instant: noon, Items: tree.Items{0}})
	if len(b.said) != 2 || !strings.Contains(b.said[1], "12:23:00 end longerThan 0: the run has ended") {
		t.Errorf("said %q", b.said)
	}

	// What is usual is that of whole runs.
	c := newBench(t, "defaults: {longerThanUsual: 2}")
	b = c
	for range 5 {
		attempt(1, time.Minute, abi.OutcomeRetry)
		attempt(2, time.Minute, abi.OutcomeOK)
		b.see(event.Event{Kind: event.ItemCompleted, Item: number(0), Instant: noon, RunID: "r", Outcome: abi.OutcomeOK})
	}
	attempt(1, 3*time.Minute, abi.OutcomeOK)
	b.expect()
}

// TestJudge_workerEnded: an item that runs again because its worker process has ended has
// not failed. If that ends as well, it has, and the alert says why.
func TestJudge_workerEnded(t *testing.T) {
	t.Parallel()
	b := newBench(t, "defaults: {failures: 1}")
	attempt := func(outcome abi.Outcome, again bool) {
		b.see(event.Event{Kind: event.ItemStarted, Item: number(0), Instant: noon, RunID: "r", Attempt: 1})
		b.wait(time.Second)
		e := event.Event{Kind: event.ItemEnded, Item: number(0), Instant: noon, RunID: "r", Attempt: 1, Outcome: outcome, AttemptEnd: event.AttemptEnd{Again: again}}
		if outcome == abi.OutcomeWorker {
			e.Reason = "the worker process ended (signal: killed)"
		}
		b.see(e)
	}
	attempt(abi.OutcomeWorker, true)
	attempt(abi.OutcomeOK, false)
	b.see(event.Event{Kind: event.ItemCompleted, Item: number(0), Instant: noon, RunID: "r", Outcome: abi.OutcomeOK})
	b.expect()

	attempt(abi.OutcomeWorker, true)
	b.expect()
	attempt(abi.OutcomeWorker, false)
	b.see(event.Event{Kind: event.ItemCompleted, Item: number(0), Instant: noon, RunID: "r", Outcome: abi.OutcomeWorker, Count: 1})
	if len(b.said) != 1 || !strings.Contains(b.said[0], "WORKER") || !strings.Contains(b.said[0], "the worker process ended (signal: killed)") {
		t.Errorf("said %q", b.said)
	}
}

// TestJudge_killed: a run that somebody killed is no failure, however many there were before.
func TestJudge_killed(t *testing.T) {
	t.Parallel()
	b := newBench(t, "defaults: {failures: 2}")
	b.run(0, time.Second, abi.OutcomeCancelled, 5)
	b.expect()
}

// TestJudge_checkInFlight: the answer to a check whose rule was switched off meanwhile is no
// news.
func TestJudge_checkInFlight(t *testing.T) {
	t.Parallel()
	b := newBench(t, "defaults: {succeedEvery: 1h, startWithin: 20s}")
	b.see(event.Event{Kind: event.Janitor})
	b.wait(time.Minute)
	if len(b.checks) < 2 {
		t.Fatalf("%+v", b.checks)
	}
	b.judge.Use(file(t, ""), b.now)
	for _, c := range b.checks {
		b.judge.Checked(c, newRecords(tree.Record{}).found, nil, b.now)
	}
	b.take()
	b.expect()
	if next := b.judge.Next(); !next.IsZero() {
		b.checks = nil
		b.wait(time.Hour)
		if len(b.checks) != 0 {
			t.Errorf("checks %+v of rules that are off", b.checks)
		}
	}
}

// TestJudge_startWithin_newCron: an instant that the job had by its new cron before that was in
// force was not to begin.
func TestJudge_startWithin_newCron(t *testing.T) {
	t.Parallel()
	b := newBench(t, "defaults: {startWithin: 20s}")
	configure := func(cron string) {
		b.see(event.Event{Kind: event.JobConfigured, Settings: &event.Settings{Cron: cron, TimeZone: "UTC", Items: 1}})
	}
	configure("0 0 3 * * ?")
	b.see(event.Event{Kind: event.Janitor})
	r := newRecords(tree.Record{Instant: noon.Add(-9 * time.Hour).UnixMilli()})
	b.answers(2*time.Minute, r.look)
	configure("0 0/5 * * * ?")
	b.answers(2*time.Minute, r.look)
	b.expect()
	b.answers(2*time.Minute, r.look)
	if len(b.said) != 1 || !strings.HasPrefix(b.said[0], "12:05:20 fire startWithin") {
		t.Errorf("said %q", b.said)
	}
}

// TestJudge_startWithin_daily: what a janitor before this one has found is over when the items
// have begun, however long ago their instant was.
func TestJudge_startWithin_daily(t *testing.T) {
	t.Parallel()
	for _, first := range []bool{true, false} { // whether the board is read before it is the janitor
		b := &bench{t: t, judge: alert.NewJudge(file(t, "defaults: {startWithin: 20s}"), server), now: noon, board: make(map[string]bool)}
		b.see(event.Event{Kind: event.Session, Host: self, Reason: "live"})
		b.see(event.Event{Kind: event.JobConfigured, Settings: &event.Settings{Cron: "0 0 3 * * ?", TimeZone: "UTC", Items: 1}})
		known := map[string]bool{alert.Named(alert.Alert{Rule: alert.StartWithin, Job: "j"}).ID: true}
		if first {
			b.judge.Known(known)
		}
		b.see(event.Event{Kind: event.Janitor})
		if !first {
			b.judge.Known(known)
		}
		r := newRecords(tree.Record{Instant: noon.Add(-9 * time.Hour).UnixMilli()})
		b.answers(5*time.Second, r.look)
		if len(b.said) != 1 || !strings.Contains(b.said[0], "end startWithin: all items have begun") {
			t.Errorf("%t: said %q", first, b.said)
		}
	}
}

// TestJudge_removed: what ends after its host has left the job is no news, and nothing is kept
// of such a job.
func TestJudge_removed(t *testing.T) {
	t.Parallel()
	b := newBench(t, "defaults: {failures: 1, longerThan: 1m}")
	item, run := number(0), "j/1/0"
	b.see(event.Event{Kind: event.FireStarted, Instant: noon, Items: []int{0, 1}})
	b.see(event.Event{Kind: event.ItemStarted, Item: item, Instant: noon, RunID: run, Attempt: 1})
	b.see(event.Event{Kind: event.JobRemoved, Reason: "removed from the registry"})
	b.see(event.Event{Kind: event.ItemEnded, Item: item, Instant: noon, RunID: run, Outcome: abi.OutcomeFail})
	b.see(event.Event{Kind: event.ItemStarted, Item: item, Instant: noon, RunID: run, Attempt: 2})
	b.see(event.Event{Kind: event.ItemCompleted, Item: item, Instant: noon, RunID: run, Outcome: abi.OutcomeFail, Count: 1})
	b.see(event.Event{Kind: event.ItemStarted, Item: number(1), Instant: noon, RunID: "j/1/1", Attempt: 1})
	b.see(event.Event{Kind: event.FireEnded, Instant: noon, Items: []int{0, 1}})
	b.see(event.Event{Kind: event.Janitor, Reason: "another host is"})
	b.wait(time.Hour)
	b.expect()
	if n := alert.Kept(b.judge); n != 0 {
		t.Errorf("something of %d jobs is kept", n)
	}

	// One that cannot be run is no job of this host's, but an alert that ends when it is left.
	b.see(event.Event{Kind: event.JobError, Reason: "no module"})
	b.see(event.Event{Kind: event.JobRemoved, Reason: "its definition is gone"})
	b.expect("13:00:00 fire refused: host 10.0.0.1 cannot run j as it is: no module", "13:00:00 end refused: the host has left the job")

	// One that no host had is forgotten when one has it.
	b.judge.Orphans(map[string]event.Settings{"lone": {Cron: "0 * * * * ?", TimeZone: "UTC", Items: 1}}, b.now)
	b.judge.Orphans(nil, b.now)
	if n := alert.Kept(b.judge); n != 0 {
		t.Errorf("something of %d jobs is kept", n)
	}
}
