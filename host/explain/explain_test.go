package explain_test

import (
	"encoding/json"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/event"
	"github.com/wasmjob/wasmjob/host/explain"
	"github.com/wasmjob/wasmjob/host/history"
	"github.com/wasmjob/wasmjob/internal/text/i18n"
)

// How sentences read is in host/engine/explain_test.go, where real hosts make the histories. Here
// is what hosts do not do, or not in a test: histories with holes.

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

const (
	first  = "10.0.0.1@-@1-aa"
	second = "10.0.0.2@-@1-bb"
)

func number(n int) *int { return &n }

// of is an event of the job, so many seconds after noon.
func of(seconds float64, kind event.Kind, host string, change func(*event.Event)) event.Event {
	e := event.Event{Time: noon.Add(time.Duration(seconds * float64(time.Second))), Kind: kind, Host: host, Job: "j", Instant: noon, Source: abi.SourceSchedule}
	if change != nil {
		change(&e)
	}
	return e
}

func item(n int) func(*event.Event) { return func(e *event.Event) { e.Item = number(n) } }

// answered is the verdict, and the sentences.
func answered(a explain.Answer) string { return string(a.Verdict) + "\n" + lines(a) }

// ask explains, and has it explained in Chinese as well: that says as much, of the same,
// and has no words of another language but names and what it quotes.
func ask(t *testing.T, q explain.Question, f explain.Facts) explain.Answer {
	t.Helper()
	f.Events = recorded(t, f.Events)
	a := explain.Explain(q, f)
	q.Language = i18n.Chinese
	c := explain.Explain(q, f)
	if words := latin.FindAllString(names.ReplaceAllString(quotations.ReplaceAllString(lines(c), ""), ""), -1); len(words) > 0 {
		t.Errorf("%q in\n%s", words, lines(c))
	}
	for n := range min(len(a.Sentences), len(c.Sentences)) {
		s := &c.Sentences[n]
		if !strings.HasSuffix(s.Text, "。") || strings.Contains(s.Text, "\n") {
			t.Errorf("%q", s.Text)
		}
		s.Text = a.Sentences[n].Text
	}
	if !reflect.DeepEqual(a, c) {
		t.Errorf("in English\n%+v\nin Chinese\n%+v", a, c)
	}
	return a
}

var (
	quotations = regexp.MustCompile(`“[^”]*”`)
	names      = regexp.MustCompile(`\b(alice|bob|carol|frank|grace|heidi|Europe/Berlin|Asia/Shanghai|GMT[+-][\d:]+|UTC|10\.0\.0\.\d@-@\S*)\b|\d-(aa|bb|cc|dd)\b`)
	latin      = regexp.MustCompile(`\p{Latin}+|[,;:?!] `)
)

// recorded are events as histories give them.
func recorded(t *testing.T, events []event.Event) (read []event.Event) {
	t.Helper()
	data, err := json.Marshal(events)
	if err == nil {
		err = json.Unmarshal(data, &read)
	}
	if err != nil {
		t.Fatal(err)
	}
	return read
}

// lines are the sentences.
func lines(a explain.Answer) string {
	var lines []string
	for _, s := range a.Sentences {
		lines = append(lines, s.Text)
	}
	return strings.Join(lines, "\n")
}

// TestExplain_numberedTrigger: who asked for a trigger is who its number stands beside, not who asked last before it ran.
func TestExplain_numberedTrigger(t *testing.T) {
	t.Parallel()
	asked := func(who string, seconds int, round int64) history.Change {
		return history.Change{Time: noon.Add(time.Duration(seconds) * time.Second), Who: who, What: "trigger", Job: "j", Trigger: round}
	}
	began := of(0, event.ItemStarted, first, func(e *event.Event) { e.Item, e.Trigger = number(0), 5 })
	for who, changes := range map[string][]history.Change{
		"alice": {asked("alice", -10, 5), asked("bob", -1, 7)},
		"carol": {asked("carol", -10, 0), asked("bob", -1, 7)},                           // on record without a number
		"frank": {asked("bob", -9000, 5), asked("frank", -10, 5), asked("bob", 3000, 5)}, // of other registries
	} {
		a := ask(t, explain.Question{Job: "j", Trigger: 5}, explain.Facts{Now: noon.Add(time.Hour), Events: []event.Event{began}, Changes: changes})
		if text := lines(a); !strings.Contains(text, who+` did "run" of the job at 11:59:50`) || strings.Contains(text, "bob") {
			t.Errorf("want %s:\n%s", who, text)
		}
	}
}

// TestExplain_overcome: what a host had refused of a job is no reason for what came when that was over.
func TestExplain_overcome(t *testing.T) {
	t.Parallel()
	settings := &event.Settings{Cron: "0 0 12 * * ?", TimeZone: "UTC", Items: 2, Misfire: true}
	configured := func(seconds float64, host, refuses string) event.Event {
		return of(seconds, event.JobConfigured, host, func(e *event.Event) { e.Settings, e.Reason = settings, refuses })
	}
	const refused = `Host 10.0.0.1 refused the job at 11:26:40: too many items.`
	for name, c := range map[string]struct {
		after []event.Event
		named bool
	}{
		"it goes on":                   {[]event.Event{configured(-1999, first, "too many items")}, true},
		"it is over":                   {[]event.Event{configured(-1999, first, "too many items"), configured(-1000, first, "")}, false},
		"it is over after the instant": {[]event.Event{configured(-1999, first, "too many items"), configured(10, first, "")}, true},
		"another host has none":        {[]event.Event{configured(-1000, second, "")}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := ask(t, explain.Question{Job: "j", At: noon, Item: number(1)}, explain.Facts{Settings: settings, From: noon.Add(-24 * time.Hour), Now: noon.Add(time.Hour), Events: append([]event.Event{
				of(-3000, event.JobAdded, first, nil), configured(-2999, first, ""), of(-2998, event.Assigned, first, func(e *event.Event) { e.Items = []int{0} }),
				of(-2000, event.JobError, first, func(e *event.Event) { e.Reason = "too many items" }),
			}, c.after...)})
			if found := strings.Contains(lines(a), refused); found != c.named {
				t.Errorf("it is named: %v, want %v\n%s", found, c.named, answered(a))
			}
		})
	}
}

// TestExplain_holes: what is not in the histories is not claimed.
func TestExplain_holes(t *testing.T) {
	t.Parallel()
	settings := &event.Settings{Cron: "0 0 12 * * ?", TimeZone: "UTC", Items: 1, Misfire: true}
	done := func(e *event.Event) { e.Item, e.Outcome = number(0), abi.OutcomeOK }
	for _, c := range []struct {
		name   string
		facts  explain.Facts
		want   string
		answer explain.Verdict
	}{
		{
			name:  "a run of which only the end is left",
			facts: explain.Facts{Events: []event.Event{of(70, event.ItemEnded, first, done), of(71, event.ItemCompleted, first, done)}, Settings: settings},
			want: `ran
Item 0 was due at 12:00:00 and began on host 10.0.0.1; the histories do not show when.
It succeeded at 12:01:10, after 0s.`,
		},
		{
			name: "a run that a host gave up, which has no history",
			facts: explain.Facts{Settings: settings, Silent: []string{first}, Events: []event.Event{of(30, event.ItemSkipped, second, func(e *event.Event) {
				e.Item, e.Other, e.Outcome, e.Cause, e.Reason = number(0), first, "LOST", event.SkipLost, "its host died"
			})}},
			want: `lost
Item 0 was due at 12:00:00 and began on host 10.0.0.1; the histories do not show when.
Host 10.0.0.2 closed the run of host 10.0.0.1 at 12:00:30: its host died.
The histories of 10.0.0.1 could not be had: what happened there is not in this answer.`,
		},
		{
			name: "a late begin without a reason",
			facts: explain.Facts{Settings: settings, Events: []event.Event{
				of(40, event.FireStarted, first, func(e *event.Event) { e.Items = []int{0} }), of(40, event.ItemStarted, first, item(0)), of(41, event.ItemEnded, first, done), of(41, event.ItemCompleted, first, done)}},
			want: `late
Item 0 was due at 12:00:00 and began at 12:00:40 on host 10.0.0.1, 40s late.
The histories do not show why it began late.
It succeeded at 12:00:41, after 0s.`,
		},
		{
			name: "a guest that ended, and nothing after that",
			facts: explain.Facts{Settings: settings, Events: []event.Event{
				of(0, event.ItemStarted, first, item(0)), of(1, event.ItemEnded, first, done)}},
			want: `running
Item 0 was due at 12:00:00 and began in time on host 10.0.0.1.
The guest ended at 12:00:01 with OK; neither that this was written down nor another attempt is in the histories.`,
		},
		{
			name: "only a failure of long ago and hosts that came later are left",
			facts: explain.Facts{Settings: settings, From: noon.Add(-60 * 24 * time.Hour), Events: []event.Event{
				of(-51*86400, event.JobError, first, func(e *event.Event) { e.Reason = "the file is broken" }),
				of(4*86400, event.JobAdded, second, nil),
				of(4*86400, event.Assigned, second, func(e *event.Event) { e.Items = []int{0} })}},
			want: `unknown
What became of item 0 is not known: it was due at 12:00:00, and none of the histories says that its host had it then.`,
		},
		{
			name: "a host of which only the end is left",
			facts: explain.Facts{Settings: settings, From: noon.Add(-60 * 24 * time.Hour), Events: []event.Event{
				of(-51*86400, event.ItemEnded, first, func(e *event.Event) {
					e.Item, e.Outcome, e.Instant = number(0), abi.OutcomeFail, noon.Add(-51*24*time.Hour)
				}),
				of(-20*86400, event.HostGone, second, func(e *event.Event) { e.Job, e.Other = "", first }),
				of(4*86400, event.JobRemoved, second, func(e *event.Event) { e.Reason = "the host is stopping" }),
				of(4*86400+1, event.JobAdded, "10.0.0.2@-@2-cc", nil)}},
			want: `unknown
What became of item 0 is not known: it was due at 12:00:00, and none of the histories says that its host had it then.`,
		},
		{
			name:  "no event at all",
			facts: explain.Facts{},
			want: `unknown
The histories have no host that had a job "j".`,
		},
		{
			name: "another host has it, whose history is not there",
			facts: explain.Facts{Settings: settings, Events: []event.Event{of(1, event.ItemSkipped, first, func(e *event.Event) {
				e.Item, e.Cause, e.Reason = number(0), event.SkipElsewhere, "another host has begun it"
			})}},
			want: `elsewhere
Item 0 was due at 12:00:00 and did not run: host 10.0.0.1 reported at 12:00:01: another host has begun it.`,
		},
		{
			name: "instances of one server",
			facts: explain.Facts{Settings: settings, Events: []event.Event{
				of(-600, event.Assigned, first, func(e *event.Event) { e.Items = []int{0} }),
				of(-60, event.JobRemoved, first, func(e *event.Event) { e.Reason = "the host is stopping" }),
				of(20, event.JobAdded, "10.0.0.1@-@2-cc", nil),
				of(20, event.Assigned, "10.0.0.1@-@2-cc", func(e *event.Event) { e.Items = []int{0} }),
				of(21, event.ItemStarted, "10.0.0.1@-@2-cc", func(e *event.Event) { e.Item, e.Source = number(0), abi.SourceCatchUp }),
			}},
			want: `running
Item 0 was due at 12:00:00 and began at 12:00:21 on host 10.0.0.1 (2-cc) as a catch-up, 21s late.
The last that had the job before was host 10.0.0.1 (1-aa), until 11:59:00: the host is stopping.
Host 10.0.0.1 (2-cc) came to the job at 12:00:20.
Host 10.0.0.1 (2-cc) got it at 12:00:20.
It has not ended, as far as the histories go.`,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.facts.Now = noon.Add(time.Hour)
			if got := answered(ask(t, explain.Question{Job: "j"}, c.facts)); got != c.want {
				t.Errorf("got\n%s\nwant\n%s", got, c.want)
			}
		})
	}
}

// TestExplain_questions: which fire is meant, and which item.
func TestExplain_questions(t *testing.T) {
	t.Parallel()
	settings := &event.Settings{Cron: "0 0 * * * ?", TimeZone: "Europe/Berlin", Items: 2}
	facts := explain.Facts{Settings: settings, Now: noon.Add(150 * time.Minute), Events: []event.Event{
		of(0, event.FireStarted, first, func(e *event.Event) { e.Items, e.Total = []int{0, 1}, 2 }),
		of(600, event.FireStarted, first, func(e *event.Event) {
			e.Items, e.Total, e.Trigger, e.Instant = []int{0, 1}, 2, 77, noon.Add(10*time.Minute+300*time.Millisecond)
		}),
		of(1200, event.FireStarted, first, func(e *event.Event) {
			e.Items, e.Total, e.Trigger, e.Instant, e.Args = []int{1}, 1, 78, noon.Add(20*time.Minute), &event.TriggerArgs{Items: "1"}
		}),
	}}
	for _, c := range []struct {
		name    string
		ask     explain.Question
		instant time.Duration
		trigger int64
		verdict explain.Verdict
		text    string
	}{
		{"the newest", explain.Question{}, 120 * time.Minute, 0, explain.Unknown, "15:00:00"},
		{"an instant", explain.Question{At: noon}, 0, 0, explain.Pending, "13:00:00"},
		{"the nearest before", explain.Question{At: noon.Add(19 * time.Minute), Nearest: true}, 10*time.Minute + 300*time.Millisecond, 77, explain.Pending, "Items 0-1 were triggered and were begun at 13:10:00"},
		{"asked for", explain.Question{At: noon.Add(20 * time.Minute)}, 20 * time.Minute, 78, explain.Pending, "Item 1 was triggered and was begun at 13:20:00"},
		{"not asked for", explain.Question{At: noon.Add(20 * time.Minute), Item: number(0)}, 20 * time.Minute, 78, explain.NeverDue, "Item 0 was not to run: the trigger asked for items 1 only."},
		{"a trigger's second", explain.Question{At: noon.Add(10 * time.Minute)}, 10*time.Minute + 300*time.Millisecond, 77, explain.Pending, "Items 0-1 were triggered and were begun at 13:10:00"},
		{"never", explain.Question{At: noon.Add(30 * time.Minute)}, 30 * time.Minute, 0, explain.NeverDue, "not due at 2026-03-01 13:30:00: its schedule, \"0 0 * * * ?\" Europe/Berlin, has no such instant; the one before is 2026-03-01 13:00:00, the next 2026-03-01 14:00:00."},
		{"not yet", explain.Question{At: noon.Add(4 * time.Hour)}, 4 * time.Hour, 0, explain.NotYetDue, "The job is due at 2026-03-01 17:00:00, which is still to come; its schedule is \"0 0 * * * ?\" Europe/Berlin."},
		{"never, and still to come", explain.Question{At: noon.Add(4*time.Hour + time.Minute)}, 4*time.Hour + time.Minute, 0, explain.NeverDue, "The job is not due at 2026-03-01 17:01:00: its schedule, \"0 0 * * * ?\" Europe/Berlin, has no such instant; the one before is 2026-03-01 17:00:00, the next 2026-03-01 18:00:00."},
		{"the nearest before a time to come", explain.Question{At: noon.Add(4 * time.Hour), Nearest: true}, 120 * time.Minute, 0, explain.Unknown, "15:00:00"},
		{"no such item", explain.Question{At: noon, Item: number(2)}, 0, 0, explain.NeverDue, "The job had no item 2: it has 2 items"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.ask.Job = "j"
			a := ask(t, c.ask, facts)
			if !a.Instant.Equal(noon.Add(c.instant)) || a.Trigger != c.trigger || a.Verdict != c.verdict || !strings.Contains(answered(a), c.text) {
				t.Errorf("%s, trigger %d:\n%s\nwant %s, %q", a.Instant.Sub(noon), a.Trigger, answered(a), c.instant, c.text)
			}
		})
	}
}

// TestExplain_zone: all times of an answer are in one zone, which it names: the job's, or, where that is
// each host's own, the one of the host that answers, as it was then.
func TestExplain_zone(t *testing.T) {
	t.Parallel()
	for zone, c := range map[string]struct{ named, text string }{
		"Asia/Shanghai": {"Asia/Shanghai", `The job was not due at 2026-03-01 20:00:00: its schedule, "0 0 3 * * ?" Asia/Shanghai, has no such instant; the one before is 2026-03-01 03:00:00, the next 2026-03-02 03:00:00.`},
		"GMT+8":         {"GMT+8", `The job was not due at 2026-03-01 20:00:00: its schedule, "0 0 3 * * ?" GMT+8, has no such instant`},
		"Local":         {explain.LocalZone(noon).String(), `"0 0 3 * * ?" in each host's own zone (here ` + explain.LocalZone(noon).String() + `), has no such instant`},
		"":              {explain.LocalZone(noon).String(), `in each host's own zone`},
	} {
		facts := explain.Facts{Now: noon.Add(time.Hour), From: noon.Add(-time.Hour), Settings: &event.Settings{Cron: "0 0 3 * * ?", TimeZone: zone, Items: 1}}
		a := ask(t, explain.Question{Job: "j", At: noon}, facts)
		if a.TimeZone != c.named || !strings.Contains(answered(a), c.text) || a.Zone().String() != c.named {
			t.Errorf("%s: in %s: %s", zone, a.TimeZone, answered(a))
		}
	}
	// A job without a zone of its own is explained in that of who asks.
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	for zone, named := range map[string]string{"Asia/Shanghai": "Asia/Shanghai", "Local": "Europe/Berlin"} {
		facts := explain.Facts{Now: noon.Add(time.Hour), From: noon.Add(-time.Hour), Settings: &event.Settings{Cron: "0 0 3 * * ?", TimeZone: zone, Items: 1}}
		if a := ask(t, explain.Question{Job: "j", At: noon, Zone: berlin}, facts); a.TimeZone != named || a.Zone().String() != named {
			t.Errorf("%s, asked in Berlin: in %q", zone, a.TimeZone)
		}
	}
	if a := ask(t, explain.Question{Job: "j", Zone: berlin}, explain.Facts{Now: noon}); a.TimeZone != "Europe/Berlin" {
		t.Errorf("no job, asked in Berlin: in %q", a.TimeZone)
	}
	if a := ask(t, explain.Question{Job: "j"}, explain.Facts{Now: noon}); a.TimeZone != "UTC" {
		t.Errorf("no job: in %q", a.TimeZone)
	}
}

// TestExplain_askedFor: a trigger is found by when it was asked for as well, and one that a later one
// stands for is not called unknown.
func TestExplain_askedFor(t *testing.T) {
	t.Parallel()
	asked := func(seconds float64, who string) history.Change {
		return history.Change{Time: noon.Add(time.Duration(seconds * float64(time.Second))), Job: "j", Who: who, What: "trigger"}
	}
	seen := func(seconds float64, round int64) func(*event.Event) {
		return func(e *event.Event) {
			e.Item, e.Items, e.Total, e.Trigger, e.Instant, e.Outcome = number(0), []int{0}, 1, round, noon.Add(time.Duration(seconds*float64(time.Second))), abi.OutcomeOK
		}
	}
	run := func(seconds float64, round int64) []event.Event {
		started := of(seconds, event.FireStarted, first, seen(seconds, round))
		started.Item = nil
		return []event.Event{started, of(seconds, event.ItemStarted, first, seen(seconds, round)), of(seconds+5, event.ItemEnded, first, seen(seconds, round)), of(seconds+5, event.ItemCompleted, first, seen(seconds, round))}
	}
	events := slices.Concat([]event.Event{of(-600, event.JobAdded, first, nil)}, run(0, 100), run(31, 103))
	both := of(31, event.FireSkipped, first, func(e *event.Event) {
		seen(31, 102)(e)
		e.Item, e.Outcome, e.Cause, e.Reason = nil, "", event.SkipLater, "trigger 103 came before this one had begun here: it counts for both"
	})
	for name, c := range map[string]struct {
		at      float64
		events  []event.Event
		changes []history.Change
		want    string
	}{
		"as it was seen": {31, events, []history.Change{asked(-0.1, "alice"), asked(21.4, "bob")}, `late
Item 0 was triggered at 12:00:21 and began at 12:00:31 on host 10.0.0.1, 9.6s late.`},
		"as it was asked for": {21, events, []history.Change{asked(-0.1, "alice"), asked(21.4, "bob")}, `late
Item 0 was triggered at 12:00:21 and began at 12:00:31 on host 10.0.0.1, 9.6s late.`},
		"a later one stands for it": {20, events, []history.Change{asked(-0.1, "alice"), asked(20.3, "carol"), asked(24, "bob")}, `coalesced
The job was triggered at 12:00:20, and no host began that trigger, as far as the histories go: the one of 12:00:24, which is trigger 103, came before that and ran for both.
carol did "run" of the job at 12:00:20.`},
		"a later one stands for it, as the host says": {20, slices.Concat(events, []event.Event{both}), []history.Change{asked(-0.1, "alice"), asked(20.3, "carol"), asked(24, "bob")}, `coalesced
Item 0 was triggered at 12:00:20 and did not run: host 10.0.0.1 reported at 12:00:31: trigger 103 came before this one had begun here: it counts for both.
carol did "run" of the job at 12:00:20.
It ran next for trigger 103: it began at 12:00:31 on host 10.0.0.1.`},
		"the one that stands": {24, slices.Concat(events, []event.Event{both}), []history.Change{asked(-0.1, "alice"), asked(20.3, "carol"), asked(24, "bob")}, `late
Item 0 was triggered at 12:00:24 and began at 12:00:31 on host 10.0.0.1, 7s late.
bob did "run" of the job at 12:00:24.`},
		"when both were seen": {31, slices.Concat(events, []event.Event{both}), []history.Change{asked(-0.1, "alice"), asked(20.3, "carol"), asked(24, "bob")}, `late
Item 0 was triggered at 12:00:24 and began at 12:00:31`},
		"it waits": {40, events, []history.Change{asked(40.3, "carol")}, `pending
The job was triggered at 12:00:40, and no host has begun that trigger, as far as the histories go.
carol did "run" of the job at 12:00:40.`},
		"it asked for other items": {20, events, []history.Change{{Time: noon.Add(20 * time.Second), Job: "j", Who: "carol", What: "trigger", After: "items 1"}, asked(24, "bob")}, `pending
The job was triggered at 12:00:20, and no host has begun that trigger, as far as the histories go.
carol did "run" of the job at 12:00:20 (items 1).`},
		"none": {22, events, []history.Change{asked(21.4, "bob")}, `never due
The job was not due at 12:00:22`},
	} {
		facts := explain.Facts{Now: noon.Add(time.Hour), From: noon.Add(-time.Hour), Settings: &event.Settings{TimeZone: "UTC", Items: 1}, Events: c.events, Changes: c.changes}
		got := strings.ReplaceAll(answered(ask(t, explain.Question{Job: "j", At: noon.Add(time.Duration(c.at * float64(time.Second)))}, facts)), "2026-03-01 ", "")
		if !strings.HasPrefix(got, c.want) {
			t.Errorf("%s: got\n%s\nwant\n%s", name, got, c.want)
		}
	}
}

// TestExplain_onlyTriggers: a job without a cron is due at no instant to come.
func TestExplain_onlyTriggers(t *testing.T) {
	t.Parallel()
	facts := explain.Facts{Now: noon, From: noon.Add(-time.Hour), Settings: &event.Settings{TimeZone: "UTC", Items: 1}}
	const want = `never due
The job has no cron, so it is due at no instant to come: only triggers run it.`
	if got := answered(ask(t, explain.Question{Job: "j", At: noon.Add(time.Hour)}, facts)); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// TestExplain_newJob: a job that came after the histories begin, and has not been due since, is not
// explained by an instant from before.
func TestExplain_newJob(t *testing.T) {
	t.Parallel()
	settings := &event.Settings{Cron: "0 0 * * * ?", TimeZone: "UTC", Items: 1}
	came := of(14*60, event.JobAdded, first, func(e *event.Event) { e.Instant = time.Time{} })
	started := event.Event{Time: noon.Add(11 * time.Minute), Kind: event.HostStarted, Host: "10.0.0.1@-@1"}
	const since = `not yet due
The job has not been due since 12:11:00, where the histories begin; by "0 0 * * * ?" UTC the next instant is 13:00:00.
It came to host 10.0.0.1 at 12:14:00.`
	const unknown = `unknown
What became of item 0 is not known: it was due at 12:00:00, and the histories begin at 12:11:00.`
	for name, c := range map[string]struct {
		ask    explain.Question
		events []event.Event
		want   string
	}{
		"the newest":                    {explain.Question{}, []event.Event{started, came}, since},
		"the newest before a time":      {explain.Question{At: noon.Add(13 * time.Minute), Nearest: true}, []event.Event{started, came}, since},
		"before the histories begin":    {explain.Question{At: noon.Add(time.Minute), Nearest: true}, []event.Event{started, came}, unknown},
		"an instant that is asked for":  {explain.Question{At: noon}, []event.Event{started, came}, unknown},
		"a host had it when they began": {explain.Question{}, []event.Event{started, of(12*60, event.JobConfigured, second, func(e *event.Event) { e.Instant, e.Settings = time.Time{}, settings }), came}, unknown},
		"a skip stands for it": {explain.Question{}, []event.Event{started, came, of(15*60, event.FireSkipped, first, func(e *event.Event) {
			e.Instant, e.Through, e.Items, e.Cause, e.Reason = noon.Add(-time.Hour), noon.Add(time.Minute), []int{0}, event.SkipMissed, "3 instants were missed"
		})}, `missed
Item 0 was due at 12:00:00 and did not run: host 10.0.0.1 reported at 12:15:00: 3 instants were missed.`},
	} {
		facts := explain.Facts{Now: noon.Add(20 * time.Minute), From: noon.Add(11 * time.Minute), Settings: settings, Events: c.events}
		c.ask.Job = "j"
		if got := strings.ReplaceAll(answered(ask(t, c.ask, facts)), "2026-03-01 ", ""); got != c.want {
			t.Errorf("%s: got\n%s\nwant\n%s", name, got, c.want)
		}
	}
	facts := explain.Facts{Now: noon, From: noon.Add(-time.Hour), Settings: &event.Settings{Cron: "0 0 3 1 1 ? 2019", TimeZone: "UTC", Items: 1}, Events: []event.Event{of(-60, event.JobAdded, first, nil)}}
	if got := answered(ask(t, explain.Question{Job: "j"}, facts)); !strings.Contains(got, `The job has not been due since 2026-03-01 11:00:00, where the histories begin, and is not any more: "0 0 3 1 1 ? 2019" UTC has no instant after that.`) {
		t.Errorf("got\n%s", got)
	}
}

// TestExplain_notThereYet: a job was not due before it was created, if a record says when that was
// and nothing is known of the job from before.
func TestExplain_notThereYet(t *testing.T) {
	t.Parallel()
	created := history.Change{Time: noon.Add(time.Hour), Job: "j", Who: "alice", From: event.FromFile, What: "create", Before: "{}", After: `{"cron":"0 0 12 * * ?"}`}
	came := of(3600, event.JobAdded, first, func(e *event.Event) { e.Instant = time.Time{} })
	byFile := of(3600, event.JobAdded, first, func(e *event.Event) {
		e.Instant, e.Edit = time.Time{}, &event.Edit{Who: "alice", From: event.FromFile, Created: true, After: map[string]string{"cron": "0 0 12 * * ?"}}
	})
	before := of(-3600, event.ItemStarted, first, func(e *event.Event) { e.Item, e.Instant = number(0), noon.Add(-time.Hour) })
	const want = `never due
The job was not due at 12:00:00: it was created at 13:00:00.
alice did "create" of the job at 13:00:00, from file.`
	for name, c := range map[string]struct {
		events  []event.Event
		changes []history.Change
		want    string
	}{
		"a record of the change":           {[]event.Event{came}, []history.Change{created}, want},
		"an event alone":                   {[]event.Event{byFile}, nil, want},
		"only that a host came":            {[]event.Event{came}, nil, "unknown"},
		"an event from before":             {[]event.Event{before, came}, []history.Change{created}, "unknown"},
		"a change from before":             {[]event.Event{came}, []history.Change{{Time: noon.Add(-time.Hour), Job: "j", What: "remove"}, created}, "unknown"},
		"it was created before":            {[]event.Event{came}, []history.Change{{Time: noon.Add(-time.Second), Job: "j", What: "create"}}, "unknown"},
		"somebody tried to, and could not": {[]event.Event{came}, []history.Change{{Time: noon.Add(time.Hour), Job: "j", What: "create", Error: "forbidden"}}, "unknown"},
	} {
		facts := explain.Facts{Now: noon.Add(2 * time.Hour), From: noon.Add(-24 * time.Hour), Settings: &event.Settings{Cron: "0 0 12 * * ?", TimeZone: "UTC", Items: 2}, Events: c.events, Changes: c.changes}
		got := strings.ReplaceAll(answered(ask(t, explain.Question{Job: "j", At: noon}, facts)), "2026-03-01 ", "")
		if got != c.want && (c.want != "unknown" || !strings.HasPrefix(got, "unknown\n")) {
			t.Errorf("%s: got\n%s\nwant\n%s", name, got, c.want)
		}
	}
}

// TestExplain_disabledThen: a job that was disabled at an instant did not run for that, though no
// host reported it, and though it is enabled by now.
func TestExplain_disabledThen(t *testing.T) {
	t.Parallel()
	change := func(seconds int, what, host string) history.Change {
		return history.Change{Time: noon.Add(time.Duration(seconds) * time.Second), Job: "j", Who: "alice", What: what, Host: host}
	}
	facts := explain.Facts{
		Now: noon.Add(time.Hour), From: noon.Add(-time.Hour), Settings: &event.Settings{Cron: "0 0 12 * * ?", TimeZone: "UTC", Items: 1},
		Events:  []event.Event{of(-600, event.JobAdded, first, nil), of(-600, event.Assigned, first, func(e *event.Event) { e.Items = []int{0} })},
		Changes: []history.Change{change(-60, "disable", ""), change(5, "enable", "")},
	}
	want := `disabled
Item 0 was due at 12:00:00 and did not run: it was paused then.
alice did "pause" of the job at 11:59:00.`
	if got := answered(ask(t, explain.Question{Job: "j", At: noon}, facts)); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	for name, changes := range map[string][]history.Change{
		"enabled before": {change(-60, "disable", ""), change(-5, "enable", "")},
		"one server":     {change(-60, "disable", "10.0.0.2")},
		"enabled on one": {change(-60, "disable", ""), change(-5, "enable", "10.0.0.1")},
		"later":          {change(1, "disable", "")},
	} {
		facts.Changes = changes
		if got := ask(t, explain.Question{Job: "j", At: noon}, facts); got.Verdict != explain.Unknown {
			t.Errorf("%s: %s", name, answered(got))
		}
	}
}

// TestExplain_idle: a job that is disabled, removed or stopped, or that no host has, fires at no
// instant to come: the answer says so, and who did it, when and why, as far as records say.
func TestExplain_idle(t *testing.T) {
	t.Parallel()
	change := func(seconds int, who, what string) history.Change {
		return history.Change{Time: noon.Add(time.Duration(seconds) * time.Second), Job: "j", Who: who, What: what}
	}
	because := func(c history.Change, why string) history.Change {
		c.Why = why
		return c
	}
	edited := change(-60, "alice", "edit cron, disabled")
	edited.From, edited.Before, edited.After = event.FromFile, `{"cron":"0 0 4 * * ?","disabled":"false"}`, `{"cron":"0 0 3 * * ?","disabled":"true"}`
	byUser := edited
	byUser.From = "10.0.0.9"
	onItem := change(-60, "alice", "disable")
	onItem.Item = number(0)
	came := of(-600, event.JobAdded, first, func(e *event.Event) { e.Instant = time.Time{} })
	left := of(-60, event.JobRemoved, first, func(e *event.Event) { e.Instant, e.Reason = time.Time{}, "the host is stopping" })
	const disabled = `disabled
The job is paused on all its servers, and does not fire until it is resumed.`
	for name, c := range map[string]struct {
		idle    explain.Idle
		files   bool
		events  []event.Event
		changes []history.Change
		want    string
	}{
		"disabled": {explain.IdleDisabled, false, nil, []history.Change{because(change(-60, "alice", "disable"), "until monday")}, disabled + `
alice did "pause" of the job at 11:59:00: until monday.`},
		"disabled by its definition": {explain.IdleDisabled, false, nil, []history.Change{edited}, disabled + `
alice did "edit cron, disabled" of the job at 11:59:00, from file (cron "0 0 4 * * ?" → "0 0 3 * * ?", disabled "false" → "true").`},
		"disabled, and it is not known by whom": {explain.IdleDisabled, false, nil, []history.Change{change(-120, "alice", "disable"), change(-60, "bob", "enable")}, disabled + `
The histories do not have who did that.`},
		"disabled, by the files": {"", true, nil, []history.Change{change(-60, "alice", "disable")}, disabled + `
alice did "pause" of the job at 11:59:00.`},
		"removed": {explain.IdleRemoved, false, nil, []history.Change{change(-120, "bob", "disable"), change(-60, "alice", "remove")}, `disabled
The job is removed from the registry, and does not fire until it is restored.
alice did "remove" of the job at 11:59:00.`},
		"stopped": {explain.IdleStopped, false, nil, []history.Change{change(-60, "alice", "shutdown")}, `disabled
The job is stopped on all its hosts, and does not fire until it is started there.
alice did "drain" of the job at 11:59:00.`},
		"no host": {explain.IdleNoHost, false, []event.Event{left}, nil, `no host
No host has the job, and it does not fire until one has it.
The last that had the job before was host 10.0.0.1, until 11:59:00: the host is stopping.`},
		"edited by a user, which changes no server": {explain.IdleDisabled, false, nil, []history.Change{because(change(-120, "bob", "disable"), "until monday"), byUser}, disabled + `
bob did "pause" of the job at 11:58:00: until monday.`},
		"enabled again, by the files": {"", true, nil, []history.Change{change(-120, "alice", "disable"), change(-60, "bob", "enable")}, "not yet due"},
		"one item, by the files":      {"", true, nil, []history.Change{onItem}, "not yet due"},
		"it fires":                    {"", false, nil, []history.Change{change(-60, "alice", "disable")}, "not yet due"},
	} {
		facts := explain.Facts{Idle: c.idle, Files: c.files, Now: noon, From: noon.Add(-time.Hour), Settings: &event.Settings{Cron: "0 0 3 * * ?", TimeZone: "UTC", Items: 1}, Events: slices.Concat([]event.Event{came}, c.events), Changes: c.changes}
		for _, q := range []explain.Question{{}, {At: noon.Add(15 * time.Hour)}} { // the newest, and the next
			q.Job = "j"
			got := strings.ReplaceAll(answered(ask(t, q, facts)), "2026-03-01 ", "")
			if !strings.HasPrefix(got, c.want) || (c.want != "not yet due" && strings.Contains(got, "the next instant is")) {
				t.Errorf("%s: got\n%s\nwant\n%s", name, got, c.want)
			}
		}
	}
}

// TestExplain_manyItems: what is the same for many items is said once, and the events
// of a sentence are bounded.
func TestExplain_manyItems(t *testing.T) {
	t.Parallel()
	const total = 5000
	facts := explain.Facts{Now: noon.Add(time.Hour), Settings: &event.Settings{Cron: "0 0 12 * * ?", TimeZone: "UTC", Items: total}}
	for n := range total {
		facts.Events = append(facts.Events, of(0.1, event.ItemStarted, first, item(n)))
		if n == 17 {
			continue
		}
		facts.Events = append(facts.Events, of(1, event.ItemEnded, first, func(e *event.Event) { e.Item, e.Outcome = number(n), abi.OutcomeOK }),
			of(1, event.ItemCompleted, first, func(e *event.Event) { e.Item, e.Outcome = number(n), abi.OutcomeOK }))
	}
	began := time.Now()
	a := ask(t, explain.Question{Job: "j"}, facts)
	t.Logf("%d items: %s", total, time.Since(began))
	want := `running
Item 17 was due at 12:00:00 and began in time on host 10.0.0.1.
It has not ended, as far as the histories go.
Items 0-16,18-4999 were due at 12:00:00 and began in time on host 10.0.0.1.
They succeeded, the last at 12:00:01, after at most 0s.`
	if got := answered(a); got != want {
		t.Errorf("got\n%s", got)
	}
	for _, s := range a.Sentences {
		if len(s.Events) == 0 || len(s.Events) > explain.MostEvents {
			t.Errorf("%q has %d events", s.Text, len(s.Events))
		}
	}
}

// TestExplain_changes: the newest change that still holds is the one that counts, and
// another item's does not.
func TestExplain_changes(t *testing.T) {
	t.Parallel()
	change := func(minutes int, who, what string, item *int) history.Change {
		return history.Change{Time: noon.Add(time.Duration(minutes) * time.Minute), Job: "j", Who: who, What: what, Item: item}
	}
	facts := explain.Facts{
		Now: noon.Add(time.Hour), Settings: &event.Settings{Cron: "0 0 12 * * ?", TimeZone: "UTC", Items: 2},
		Events: []event.Event{of(0, event.ItemSkipped, first, func(e *event.Event) {
			e.Item, e.Cause, e.Reason = number(1), event.SkipDisabled, "the item is disabled"
		})},
		Changes: []history.Change{
			change(-50, "alice", "disable", number(1)),
			change(-40, "bob", "disable", number(0)),
			change(-30, "carol", "enable", number(0)),
			{Time: noon.Add(-time.Minute), Job: "j", Who: "dave", What: "disable", Error: "forbidden"},
			{Time: noon.Add(-time.Minute), Job: "k", Who: "erin", What: "disable"},
			change(5, "frank", "disable", number(1)),
		},
	}
	got := answered(ask(t, explain.Question{Job: "j", Item: number(1)}, facts))
	if want := `alice did "pause" of item 1 at 11:10:00.`; !strings.Contains(got, want) {
		t.Errorf("got\n%s\nwant %s", got, want)
	}
	facts.Changes = append([]history.Change{change(-3*24*60, "alice", "disable", number(1)), change(-2*24*60, "bob", "edit cron", nil), change(-24*60, "carol", "kill", number(1))}, facts.Changes[1:]...)
	got = answered(ask(t, explain.Question{Job: "j", Item: number(1)}, facts))
	if want := `alice did "pause" of item 1 at 2026-02-26 12:00:00.`; !strings.Contains(got, want) || strings.Contains(got, "bob") || strings.Contains(got, "carol") {
		t.Errorf("got\n%s\nwant %s", got, want)
	}
	// It was enabled again before its host reported it.
	facts.Events[0].Time = noon.Add(2 * time.Minute)
	facts.Changes = append(facts.Changes, change(1, "heidi", "enable", number(1)))
	got = answered(ask(t, explain.Question{Job: "j", Item: number(1)}, facts))
	if want := `alice did "pause" of item 1 at 2026-02-26 12:00:00.`; !strings.Contains(got, want) {
		t.Errorf("got\n%s\nwant %s", got, want)
	}
	facts.Changes = append(facts.Changes[:len(facts.Changes)-1], change(-20, "grace", "enable", number(1)))
	got = answered(ask(t, explain.Question{Job: "j", Item: number(1)}, facts))
	if want := "The histories do not have who did that."; !strings.Contains(got, want) {
		t.Errorf("got\n%s\nwant %s", got, want)
	}
}

// TestExplain_startAfterADeath: what the next process at a server found out about the end
// of the one before is said of that one, and of no other.
func TestExplain_startAfterADeath(t *testing.T) {
	t.Parallel()
	const dead = "10.0.0.1@-@32323-aa"
	ofHost := func(seconds float64, kind event.Kind, host string, change func(*event.Event)) event.Event {
		e := of(seconds, kind, host, change)
		e.Job, e.Instant = "", time.Time{}
		return e
	}
	starts := func(seconds float64, process, reason string) event.Event {
		return ofHost(seconds, event.HostStarted, process, func(e *event.Event) { e.Reason = reason })
	}
	const (
		itsEnd    = "the last host here (pid 32323, started 2026-03-01T11:59:00Z) did not end well: it was killed"
		anotherOf = "the last host here (pid 3705, started 2026-03-01T12:00:43Z) did not end well: it was killed"
		said      = "When host 10.0.0.1 started again at"
	)
	base := []event.Event{
		of(-60, event.JobAdded, dead, nil),
		of(-60, event.Assigned, dead, func(e *event.Event) { e.Items = []int{0} }),
		of(-2, event.ItemStarted, dead, func(e *event.Event) { e.Item, e.Instant = number(0), noon.Add(-2*time.Second) }),
		ofHost(20, event.HostGone, second, func(e *event.Event) { e.Other = dead }),
	}
	for name, c := range map[string]struct {
		starts []event.Event
		want   string
	}{
		"the next":                        {[]event.Event{starts(43, "10.0.0.1@-@3705", itsEnd)}, said + " 12:00:43"},
		"the next, before it was noticed": {[]event.Event{starts(3, "10.0.0.1@-@3705", itsEnd)}, said + " 12:00:03"},
		"the next but one":                {[]event.Event{starts(43, "10.0.0.1@-@3705", ""), starts(140, "10.0.0.1@-@4000", anotherOf)}, ""},
		"one of another's end":            {[]event.Event{starts(140, "10.0.0.1@-@4000", anotherOf)}, ""},
		"another server's":                {[]event.Event{starts(43, "10.0.0.2@-@3705", itsEnd)}, ""},
		"it lived on in another session":  {[]event.Event{ofHost(30, event.Session, "10.0.0.1@-@32323-bb", func(e *event.Event) { e.Reason = "live" }), starts(3000, "10.0.0.1@-@3705", itsEnd)}, ""},
	} {
		facts := explain.Facts{Now: noon.Add(time.Hour), From: noon.Add(-time.Hour), Settings: &event.Settings{Cron: "0 0 12 * * ?", TimeZone: "UTC", Items: 1}, Events: slices.Concat(base, c.starts)}
		got := answered(ask(t, explain.Question{Job: "j", At: noon}, facts))
		if strings.Contains(got, said) != (c.want != "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: got\n%s\nwant %q", name, got, c.want)
		}
	}
}

// TestExplain_changesOfOthers: why a host left the job is explained by changes that
// concern it, were made while it was there, and were not taken back.
func TestExplain_changesOfOthers(t *testing.T) {
	t.Parallel()
	done := func(e *event.Event) { e.Item, e.Outcome = number(0), abi.OutcomeOK }
	change := func(seconds int, what, host string) history.Change {
		return history.Change{Time: noon.Add(time.Duration(seconds) * time.Second), Job: "j", Who: "alice", What: what, Host: host, Why: "z"}
	}
	facts := explain.Facts{Now: noon.Add(time.Hour), From: noon.Add(-time.Hour), Settings: &event.Settings{Cron: "0 * * * * ?", TimeZone: "UTC", Items: 1}, Events: []event.Event{
		of(-1500, event.JobAdded, first, nil),
		of(-1500, event.Assigned, first, func(e *event.Event) { e.Items = []int{0} }),
		of(-60, event.ItemStarted, first, func(e *event.Event) { e.Item, e.Instant = number(0), noon.Add(-time.Minute) }),
		of(-30, event.JobRemoved, first, func(e *event.Event) { e.Reason = "the host is stopping" }),
		of(-29, event.Assigned, second, func(e *event.Event) { e.Items = []int{0} }),
		of(0, event.FireStarted, second, func(e *event.Event) { e.Items, e.Total = []int{0}, 1 }),
		of(0, event.ItemStarted, second, item(0)), of(1, event.ItemEnded, second, done), of(1, event.ItemCompleted, second, done),
	}}
	for name, c := range map[string]struct {
		changes []history.Change
		want    string
	}{
		"of this host":                  {[]history.Change{change(-31, "shutdown", first)}, `alice did "drain" on host 10.0.0.1`},
		"of its server":                 {[]history.Change{change(-31, "shutdown", "10.0.0.1")}, `alice did "drain" on host 10.0.0.1`},
		"of all hosts":                  {[]history.Change{change(-31, "shutdown", "")}, `alice did "drain" of the job`},
		"of all, behind one of another": {[]history.Change{change(-32, "remove", ""), change(-31, "shutdown", "10.0.0.3")}, `alice did "remove" of the job`},
		"of another host":               {[]history.Change{change(-400, "shutdown", "10.0.0.3")}, ""},
		"restored since":                {[]history.Change{change(-400, "shutdown", ""), change(-300, "restore", "")}, ""},
		"before the host came":          {[]history.Change{change(-1600, "shutdown", "10.0.0.1")}, ""},
	} {
		facts.Changes = c.changes
		got := answered(ask(t, explain.Question{Job: "j", At: noon}, facts))
		if !strings.Contains(got, "left the job") || strings.Contains(got, "alice") != (c.want != "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: got\n%s\nwant %q", name, got, c.want)
		}
	}
}

// TestExplain_wanted: where the histories do not have who disabled something, the registry may.
func TestExplain_wanted(t *testing.T) {
	t.Parallel()
	settings := &event.Settings{Cron: "0 0 * * * ?", TimeZone: "UTC", Items: 2}
	skipped := of(1, event.ItemSkipped, first, func(e *event.Event) {
		e.Item, e.Cause, e.Reason = number(1), event.SkipDisabled, "the item is disabled"
	})
	until := "until 2026-03-01T15:00:00Z"
	for name, c := range map[string]struct {
		wanted   []history.Change
		idle     explain.Idle
		ask      explain.Question
		language i18n.Language
		want     string
	}{
		"an item": {[]history.Change{{Time: noon.Add(-time.Hour), Who: "ann", What: "disable", Job: "j", Item: number(1), Why: "broken", After: until}}, "",
			explain.Question{At: noon, Item: number(1)}, i18n.English, `ann did "pause" of item 1 at 11:00:00`},
		"an item, in Chinese": {[]history.Change{{Time: noon.Add(-time.Hour), Who: "ann", What: "disable", Job: "j", Item: number(1), Why: "broken"}}, "",
			explain.Question{At: noon, Item: number(1)}, i18n.Chinese, "11:00:00 对分片 1 执行了“暂停”，操作者：ann"},
		"another item": {[]history.Change{{Time: noon.Add(-time.Hour), Who: "ann", What: "disable", Job: "j", Item: number(0)}}, "",
			explain.Question{At: noon, Item: number(1)}, i18n.English, "The histories do not have who did that."},
		"later": {[]history.Change{{Time: noon.Add(time.Minute), Who: "ann", What: "disable", Job: "j", Item: number(1)}}, "",
			explain.Question{At: noon, Item: number(1)}, i18n.English, "The histories do not have who did that."},
		"the job": {[]history.Change{{Time: noon, Who: "ann", What: "disable", Job: "j", Why: "broken", After: until}}, explain.IdleDisabled,
			explain.Question{At: noon.Add(3 * time.Hour)}, i18n.English, `ann did "pause" of the job at 2026-03-01 12:00:00 (until 2026-03-01T15:00:00Z): broken.`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.ask.Job, c.ask.Language = "j", c.language
			got := answered(explain.Explain(c.ask, explain.Facts{Settings: settings, Now: noon.Add(time.Hour), Events: recorded(t, []event.Event{skipped}), Wanted: c.wanted, Idle: c.idle}))
			if !strings.Contains(got, c.want) {
				t.Errorf("%q is not in\n%s", c.want, got)
			}
		})
	}
}

// TestExplain_disabledByWhom: who disabled an item is not who disabled another server, or
// killed the item before; and who enabled all servers has enabled the one.
func TestExplain_disabledByWhom(t *testing.T) {
	t.Parallel()
	change := func(seconds int, who, what, host string, item *int) history.Change {
		return history.Change{Time: noon.Add(time.Duration(seconds) * time.Second), Job: "j", Who: who, What: what, Host: host, Item: item}
	}
	for name, c := range map[string]struct {
		reason  string
		changes []history.Change
		want    string
	}{
		"killed after it was disabled": {"the item is disabled", []history.Change{change(-60, "alice", "disable", "", number(0)), change(-50, "bob", "kill", "", number(0))}, `alice did "pause" of item 0`},
		"a number of items":            {"the sharding total count is 1 now", []history.Change{change(-60, "alice", "disable", "", number(1)), change(-50, "bob", "edit shardingTotalCount", "", nil)}, `bob did "edit shardingTotalCount"`},
		"another server":               {"this server is disabled for the job", []history.Change{change(-60, "alice", "disable", "10.0.0.1", nil), change(-50, "bob", "disable", "10.0.0.2", nil)}, `alice did "pause" on host 10.0.0.1`},
		"all enabled since":            {"this server is disabled for the job", []history.Change{change(-60, "alice", "disable", "10.0.0.1", nil), change(-50, "bob", "enable", "", nil)}, "The histories do not have who did that."},
	} {
		facts := explain.Facts{Changes: c.changes, Now: noon.Add(time.Hour), Settings: &event.Settings{Cron: "0 0 12 * * ?", TimeZone: "UTC", Items: 1}, Events: []event.Event{
			of(0, event.ItemSkipped, first, func(e *event.Event) { e.Item, e.Cause, e.Reason = number(0), event.SkipDisabled, c.reason })}}
		got := answered(ask(t, explain.Question{Job: "j", At: noon}, facts))
		if !strings.Contains(got, c.want) || strings.Count(got, " did \"") != strings.Count(c.want, " did \"") {
			t.Errorf("%s: got\n%s\nwant %q", name, got, c.want)
		}
	}
}

// TestExplain_scheduleThen: an item was due by the schedule that its host went by at the
// instant, which others may have left already.
func TestExplain_scheduleThen(t *testing.T) {
	t.Parallel()
	at := noon.Add(10 * time.Second)
	configured := func(seconds float64, host, cron string) event.Event {
		return of(seconds, event.JobConfigured, host, func(e *event.Event) {
			e.Instant, e.Settings = time.Time{}, &event.Settings{Cron: cron, TimeZone: "UTC", Items: 2}
		})
	}
	const old, newer = "0/10 * * * * ?", "0/15 * * * * ?"
	events := []event.Event{
		of(-600, event.JobAdded, first, nil), of(-600, event.JobAdded, second, nil),
		configured(-600, first, old), configured(-600, second, old),
		of(-599, event.Assigned, first, func(e *event.Event) { e.Items = []int{0} }),
		of(-599, event.Assigned, second, func(e *event.Event) { e.Items = []int{1} }),
	}
	ask := func(more ...event.Event) (explain.Answer, string) {
		facts := explain.Facts{Now: noon.Add(time.Hour), From: noon.Add(-time.Hour), Events: slices.Concat(events, more), Changes: []history.Change{
			{Time: noon.Add(-5 * time.Second), Job: "j", Who: "alice", What: "kill"}, {Time: noon.Add(4 * time.Second), Job: "j", Who: "bob", What: "edit cron"}}}
		a := ask(t, explain.Question{Job: "j", At: at}, facts)
		return a, answered(a)
	}
	// All hosts went by the new one.
	a, got := ask(configured(5, first, newer), configured(9, second, newer))
	if want := `its schedule then, "0/15 * * * * ?" UTC, has no such instant`; a.Verdict != explain.NeverDue || !strings.Contains(got, want) {
		t.Errorf("got\n%s\nwant %q", got, want)
	}
	// The one that had item 0 did, and the other took the old one back: the newest event is of that.
	a, got = ask(configured(5, first, newer), configured(6, second, newer), configured(8, second, old))
	want := `unknown
What became of item 1 is not known: it was due at 12:00:10, host 10.0.0.2 had it since 11:50:01, and its history says nothing of that instant.
The schedule became "0/15 * * * * ?" UTC at 12:00:05; it was "0/10 * * * * ?" UTC.
bob did "edit cron" of the job at 12:00:04.
The schedule became "0/10 * * * * ?" UTC at 12:00:08; it was "0/15 * * * * ?" UTC.
Item 0 was not due at 12:00:10: host 10.0.0.1, which had it, went by the schedule "0/15 * * * * ?" UTC since 12:00:05, which has no such instant.`
	if got != want || len(a.Items) != 2 || a.Items[0].Verdict != explain.NeverDue || a.Items[1].Verdict != explain.Unknown {
		t.Errorf("%+v, got\n%s\nwant\n%s", a.Items, got, want)
	}
}

// TestExplain_hostGone: of an item whose only host is gone the answer says so, also long
// after, and though the one that noticed knew it by another job.
func TestExplain_hostGone(t *testing.T) {
	t.Parallel()
	gone := func(seconds float64, other string) event.Event {
		return of(seconds, event.HostGone, second, func(e *event.Event) { e.Job, e.Instant, e.Other = "", time.Time{}, other })
	}
	for name, c := range map[string]struct {
		at   time.Duration // after noon
		gone event.Event
		want string
	}{
		"before it was noticed": {0, gone(9, first), `unknown
What became of item 0 is not known: it was due at 12:00:00, host 10.0.0.1 had it since 11:59:00, and that host is gone: its session had ended by 12:00:09.
Host 10.0.0.1 had it; the last that it reported is of 11:59:00.
The session of host 10.0.0.1 had ended: host 10.0.0.2 saw that at 12:00:09.`},
		"by another job": {0, gone(9, first+"-3"), `that host is gone: its session had ended by 12:00:09`},
		"long after": {30 * time.Minute, gone(9, first+"-3"), `no host
Item 0 was due at 12:30:00 and did not run: none of the hosts whose histories there are had the job then.
The last that had the job before was host 10.0.0.1, until 12:00:09, when host 10.0.0.2 saw that its session had ended.`},
		"another term": {0, gone(9, "10.0.0.1@-@1-cc"), `and its history says nothing of that instant.`},
	} {
		facts := explain.Facts{Now: noon.Add(time.Hour), From: noon.Add(-time.Hour), Settings: &event.Settings{Cron: "0 * * * * ?", TimeZone: "UTC", Items: 1},
			Events: []event.Event{of(-60, event.JobAdded, first, nil), of(-60, event.Assigned, first, func(e *event.Event) { e.Items = []int{0} }), c.gone}}
		if got := answered(ask(t, explain.Question{Job: "j", At: noon.Add(c.at)}, facts)); !strings.Contains(got, c.want) {
			t.Errorf("%s: got\n%s\nwant\n%s", name, got, c.want)
		}
	}
}

// TestExplain_takenOver: of an item that was taken over from a host without a history the answer has
// who did that, from whom, and that the host was gone; not how late it began, which is not known.
func TestExplain_takenOver(t *testing.T) {
	t.Parallel()
	taken := func(seconds float64, kind event.Kind, change func(*event.Event)) event.Event {
		return of(seconds, kind, second, func(e *event.Event) {
			e.Source = abi.SourceFailover
			change(e)
		})
	}
	host := func(seconds float64, kind event.Kind, host, other string) event.Event {
		return event.Event{Time: noon.Add(time.Duration(seconds * float64(time.Second))), Kind: kind, Host: host, Other: other}
	}
	ends := []event.Event{
		taken(17, event.ItemStarted, item(0)),
		taken(20, event.ItemEnded, func(e *event.Event) { e.Item, e.Outcome, e.Duration = number(0), abi.OutcomeOK, 3*time.Second }),
		taken(20, event.ItemCompleted, func(e *event.Event) { e.Item, e.Outcome = number(0), abi.OutcomeOK }),
	}
	start := taken(17, event.FireStarted, func(e *event.Event) { e.Items, e.Other = []int{0}, first })
	for name, c := range map[string]struct {
		events []event.Event
		silent []string
		want   string
	}{
		"the session's end was seen": {append([]event.Event{host(16.8, event.HostGone, second, first+"-2"), host(16.9, event.HostGone, "10.0.0.3@-@1-cc", first), host(16.9, event.HostGone, second, "10.0.0.4@-@1-dd"), start}, ends...), nil, `late
Item 0 was due at 12:00:00; host 10.0.0.1 had begun it, and failover gave it to host 10.0.0.2, where it began at 12:00:17.
The session of host 10.0.0.1 had ended: host 10.0.0.2 saw that at 12:00:16.
It succeeded at 12:00:20, after 3s.
The histories of 10.0.0.1, 10.0.0.4, which are not here any more, could not be had: what happened there is not in this answer.`},
		"it was stopped, which an earlier version took for gone": {append([]event.Event{host(16.9, event.HostGone, "10.0.0.3@-@1-cc", first),
			taken(17, event.FireStarted, func(e *event.Event) {
				e.Items, e.Other, e.Reason = []int{0}, first, "its host "+first+" left the job while it ran"
			})}, ends...), nil, `late
Item 0 was due at 12:00:00; host 10.0.0.1 had begun it, and failover gave it to host 10.0.0.2, where it began at 12:00:17.
Host 10.0.0.1 left the job while it ran: host 10.0.0.2 saw that at 12:00:17.
It succeeded at 12:00:20, after 3s.
The history of 10.0.0.1, which is not here any more, could not be had: what happened there is not in this answer.`},
		"it was not": {append([]event.Event{start}, ends...), nil, `late
Item 0 was due at 12:00:00; host 10.0.0.1 had begun it, and failover gave it to host 10.0.0.2, where it began at 12:00:17.
It succeeded at 12:00:20, after 3s.
The history of 10.0.0.1, which is not here any more, could not be had: what happened there is not in this answer.`},
		"soon": {[]event.Event{taken(0.5, event.ItemStarted, item(0)), taken(3, event.ItemCompleted, func(e *event.Event) { e.Item, e.Outcome = number(0), abi.OutcomeOK })}, nil, `late
Item 0 was due at 12:00:00; a host that died or left the job had begun it, and failover gave it to host 10.0.0.2, where it began at 12:00:00.
It succeeded at 12:00:03.`},
		"it does not answer": {append([]event.Event{start}, ends...), []string{first}, `late
Item 0 was due at 12:00:00; host 10.0.0.1 had begun it, and failover gave it to host 10.0.0.2, where it began at 12:00:17.
It succeeded at 12:00:20, after 3s.
The histories of 10.0.0.1 could not be had: what happened there is not in this answer.`},
		"the taking itself is missing": {ends, nil, `late
Item 0 was due at 12:00:00; a host that died or left the job had begun it, and failover gave it to host 10.0.0.2, where it began at 12:00:17.
It succeeded at 12:00:20, after 3s.`},
		"the host came back, and its begin is not there": {append([]event.Event{host(16.8, event.HostGone, second, first), start, host(-50, event.Session, first, "")}, ends...), nil, `late
Item 0 was due at 12:00:00; host 10.0.0.1 had begun it, and failover gave it to host 10.0.0.2, where it began at 12:00:17.
Host 10.0.0.1 had it; the last that it reported is of 11:59:10.
The session of host 10.0.0.1 had ended: host 10.0.0.2 saw that at 12:00:16.
It succeeded at 12:00:20, after 3s.`},
		"the host itself, before its restart": {append([]event.Event{taken(17, event.FireStarted, func(e *event.Event) { e.Items, e.Other = []int{0}, "10.0.0.2@-@9-77" })}, ends...), nil, `late
Item 0 was due at 12:00:00; an earlier process on host 10.0.0.2 had begun it, and the next one there took it over: it began at 12:00:17.
It succeeded at 12:00:20, after 3s.
The history of 10.0.0.2, which is not here any more, could not be had: what happened there is not in this answer.`},
		"the host itself, with its begin": {append([]event.Event{
			of(0, event.ItemStarted, "10.0.0.2@-@9-77", item(0)),
			taken(17, event.FireStarted, func(e *event.Event) { e.Items, e.Other = []int{0}, "10.0.0.2@-@9-77" })}, ends...), nil, `late
Item 0 was due at 12:00:00 and began in time on host 10.0.0.2 (9-77).
The next process on host 10.0.0.2 took it over: it began again at 12:00:17.
It succeeded at 12:00:20, after 3s.`},
		"before it": {append([]event.Event{host(-700, event.HostGone, second, first), taken(0.1, event.FireStarted, func(e *event.Event) { e.Items, e.Source = []int{0}, abi.SourceSchedule })}, ends[1:]...), nil, `ran
Item 0 was due at 12:00:00 and began on host 10.0.0.2; the histories do not show when.
It succeeded at 12:00:20, after 3s.`},
	} {
		facts := explain.Facts{Now: noon.Add(time.Hour), From: noon.Add(-time.Hour), Settings: &event.Settings{Cron: "0 * * * * ?", TimeZone: "UTC", Items: 1}, Events: c.events, Silent: c.silent}
		if got := answered(ask(t, explain.Question{Job: "j", At: noon}, facts)); got != c.want {
			t.Errorf("%s: got\n%s\nwant\n%s", name, got, c.want)
		}
	}
}

// TestExplain_removedWhileItRan: an item that began was not disabled.
func TestExplain_removedWhileItRan(t *testing.T) {
	t.Parallel()
	facts := explain.Facts{Now: noon.Add(time.Hour), Settings: &event.Settings{Cron: "0 0 12 * * ?", TimeZone: "UTC", Items: 1}, Events: []event.Event{
		of(0, event.FireStarted, first, func(e *event.Event) { e.Items, e.Total = []int{0}, 1 }), of(0, event.ItemStarted, first, item(0)),
		of(5, event.ItemSkipped, first, func(e *event.Event) {
			e.Item, e.Outcome, e.Fence, e.Cause, e.Reason = number(0), abi.OutcomeOK, 7, event.SkipDisabled, "the job was removed while the item ran"
		})}}
	want := `killed
Item 0 was due at 12:00:00 and began in time on host 10.0.0.1.
Host 10.0.0.1 gave the run up at 12:00:05: the job was removed while the item ran.`
	if got := answered(ask(t, explain.Question{Job: "j", At: noon}, facts)); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// TestExplain_causeFirst: what ended a run badly is said before why it ran where it did.
func TestExplain_causeFirst(t *testing.T) {
	t.Parallel()
	host := func(seconds float64, kind event.Kind, host, reason string) event.Event {
		return event.Event{Time: noon.Add(time.Duration(seconds * float64(time.Second))), Kind: kind, Host: host, Reason: reason}
	}
	before := []event.Event{
		of(-600, event.JobAdded, first, nil), of(-600, event.JobAdded, second, nil),
		of(-590, event.Assigned, first, func(e *event.Event) { e.Items = []int{0} }),
		of(-120, event.ItemStarted, first, func(e *event.Event) { e.Item, e.Instant = number(0), noon.Add(-2*time.Minute) }),
		host(-70, event.Session, first, "suspect"), host(-60, event.Session, first, "lost"),
		of(-58, event.Assigned, second, func(e *event.Event) { e.Items = []int{0} }),
		of(0, event.FireStarted, second, func(e *event.Event) { e.Items, e.Total = []int{0}, 1 }), of(0, event.ItemStarted, second, item(0)),
	}
	const moved = `
The run before, at 11:58:00, was on host 10.0.0.1.
Host 10.0.0.1, which had it, got no answer from the registry: its session was in doubt from 11:58:50 on, and nothing began there.
Host 10.0.0.1, which had it, gave its session up at 11:59:00 and stopped what it ran.
Host 10.0.0.2 got it at 11:59:02.`
	ends := func(kind event.Kind, attempt int, outcome abi.Outcome, reason string) event.Event {
		return of(float64(5*attempt), kind, second, func(e *event.Event) { e.Item, e.Attempt, e.Outcome, e.Reason = number(0), attempt, outcome, reason })
	}
	for name, c := range map[string]struct {
		events []event.Event
		want   string
	}{
		"killed": {[]event.Event{ends(event.ItemEnded, 1, abi.OutcomeCancelled, "an operator killed it"), ends(event.ItemCompleted, 1, abi.OutcomeCancelled, "an operator killed it")}, `killed
Item 0 was due at 12:00:00 and began in time on host 10.0.0.2.
It ended at 12:00:05: an operator killed it.
alice did "kill" of the job at 12:00:04.` + moved},
		"failed": {[]event.Event{ends(event.ItemEnded, 1, abi.OutcomeFail, "no disk"), of(6, event.ItemStarted, second, item(0)), ends(event.ItemEnded, 2, abi.OutcomeFail, "no disk"), ends(event.ItemCompleted, 2, abi.OutcomeFail, "no disk")}, `failed
Item 0 was due at 12:00:00 and began in time on host 10.0.0.2.
Attempt 1 ended at 12:00:05: FAIL (no disk).
It failed for good at 12:00:10, in attempt 2: FAIL (no disk).` + moved},
		"well": {[]event.Event{ends(event.ItemEnded, 1, abi.OutcomeOK, ""), ends(event.ItemCompleted, 1, abi.OutcomeOK, "")}, `ran
Item 0 was due at 12:00:00 and began in time on host 10.0.0.2.` + moved + `
It succeeded at 12:00:05, after 0s.`},
	} {
		facts := explain.Facts{Now: noon.Add(time.Hour), Settings: &event.Settings{Cron: "0 0/2 * * * ?", TimeZone: "UTC", Items: 1}, Events: slices.Concat(before, c.events),
			Changes: []history.Change{{Time: noon.Add(4 * time.Second), Job: "j", Who: "alice", What: "kill"}}}
		if got := answered(ask(t, explain.Question{Job: "j", At: noon}, facts)); got != c.want {
			t.Errorf("%s: got\n%s\nwant\n%s", name, got, c.want)
		}
	}
}

// TestExplain_unanswering: of a host that does not answer, and whose session has not ended, the
// answer says that it has the item, since when it does not answer, and what will come.
func TestExplain_unanswering(t *testing.T) {
	t.Parallel()
	triggered := func(e *event.Event) { e.Trigger, e.Total = 7, 2 }
	others := []event.Event{
		of(-600, event.JobAdded, first, func(e *event.Event) { e.Instant = time.Time{} }),
		of(-590, event.Assigned, first, func(e *event.Event) { e.Items = []int{1} }),
		of(0, event.FireStarted, first, func(e *event.Event) { triggered(e); e.Items = []int{1} }),
		of(0, event.ItemStarted, first, func(e *event.Event) { triggered(e); e.Item = number(1) }),
	}
	silence := func(seconds int) []explain.Unanswering {
		return []explain.Unanswering{{Host: second, Seen: noon.Add(time.Duration(seconds) * time.Second), Items: []int{0}}}
	}
	const comes = `Host 10.0.0.2 has not answered since 12:00:01; when its session has expired, other hosts get its items, and take over what it ran if failover is on.`
	for name, c := range map[string]struct {
		events      []event.Event
		silent      []string
		unanswering []explain.Unanswering
		want        string
	}{
		"its history is not here": {nil, []string{second}, silence(1), `unknown
What became of item 0 is not known: it was triggered at 12:00:00, and host 10.0.0.2, which has it as far as is known, does not answer.
` + comes + `
Item 1 was triggered and began at 12:00:00 on host 10.0.0.1.
It has not ended, as far as the histories go.
The histories of 10.0.0.2 could not be had: what happened there is not in this answer.`},
		"all hosts share one": {[]event.Event{
			of(0, event.FireStarted, second, func(e *event.Event) { triggered(e); e.Items = []int{0} }),
			of(0, event.ItemStarted, second, func(e *event.Event) { triggered(e); e.Item = number(0) }),
		}, nil, silence(1), `running
Item 0 was triggered and began at 12:00:00 on host 10.0.0.2.
It has not ended, as far as the histories go.
` + comes + `
Item 1 was triggered and began at 12:00:00 on host 10.0.0.1.
It has not ended, as far as the histories go.`},
		"silent since long after": {nil, []string{second}, silence(3600), `unknown
What became of item 0 is not known: it was triggered at 12:00:00, and none of the histories says that its host had it then.
Item 1 was triggered and began at 12:00:00 on host 10.0.0.1.
It has not ended, as far as the histories go.
The histories of 10.0.0.2 could not be had: what happened there is not in this answer.`},
	} {
		facts := explain.Facts{Now: noon.Add(time.Hour), From: noon.Add(-time.Hour), Settings: &event.Settings{TimeZone: "UTC", Items: 2}, Events: slices.Concat(others, c.events), Silent: c.silent, Unanswering: c.unanswering}
		if got := answered(ask(t, explain.Question{Job: "j", Trigger: 7}, facts)); got != c.want {
			t.Errorf("%s: got\n%s\nwant\n%s", name, got, c.want)
		}
	}
	facts := explain.Facts{Now: noon.Add(5 * time.Second), From: noon.Add(-time.Hour), Settings: &event.Settings{Cron: "0 * * * * ?", TimeZone: "UTC", Items: 1}, Unanswering: silence(1),
		Events: []event.Event{of(-600, event.JobAdded, first, nil), of(-300, event.JobRemoved, first, func(e *event.Event) { e.Reason = "the host is stopping" })}}
	if a := ask(t, explain.Question{Job: "j", At: noon}, facts); a.Verdict != explain.Unknown || !strings.Contains(answered(a), comes) {
		t.Errorf("the others have left: got\n%s", answered(a))
	}
}

// TestExplain_files: from files of some hosts nothing follows for the others; that no host had a
// job is said only if the files are those of all that had it.
func TestExplain_files(t *testing.T) {
	t.Parallel()
	has := func(seconds float64, host string, items ...int) event.Event {
		return of(seconds, event.Assigned, host, func(e *event.Event) { e.Items = items })
	}
	leaves := func(seconds float64, host string) event.Event {
		return of(seconds, event.JobRemoved, host, func(e *event.Event) { e.Reason = "the host is stopping" })
	}
	const (
		are   = `none of the hosts whose histories there are had the job then, and the histories of other hosts are missing.`
		maybe = `none of the hosts whose histories there are had the job then, and the histories of other hosts may be missing.`
		none  = `did not run: none of the hosts whose histories there are had the job then.`
	)
	for name, c := range map[string]struct {
		items   int
		events  []event.Event
		verdict explain.Verdict
		want    string
	}{
		"one host of several":            {4, []event.Event{has(-600, first, 0, 1), leaves(-60, first)}, explain.Unknown, are},
		"all items on it":                {4, []event.Event{has(-600, first, 0, 1), has(-300, first, 0, 1, 2, 3), leaves(-60, first)}, explain.NoHost, none},
		"one item":                       {1, []event.Event{has(-600, first, 0), leaves(-60, first)}, explain.Unknown, maybe},
		"all hosts, one after the other": {2, []event.Event{has(-600, first, 0), has(-600, second, 1), leaves(-90, first), has(-89, second, 0, 1), leaves(-60, second)}, explain.NoHost, none},
		"all hosts at once":              {3, []event.Event{has(-600, first, 0, 1), has(-600, second, 2), leaves(-60, first), leaves(-60, second)}, explain.NoHost, none},
		"as many items as hosts":         {2, []event.Event{has(-600, first, 0), has(-600, second, 1), leaves(-60, first), leaves(-60, second)}, explain.Unknown, maybe},
	} {
		facts := explain.Facts{Files: true, Now: noon.Add(time.Hour), From: noon.Add(-time.Hour), Settings: &event.Settings{Cron: "0 0 12 * * ?", TimeZone: "UTC", Items: c.items}, Events: c.events}
		if a := ask(t, explain.Question{Job: "j", At: noon}, facts); a.Verdict != c.verdict || !strings.Contains(answered(a), c.want) {
			t.Errorf("%s: got\n%s\nwant %s, %s", name, answered(a), c.verdict, c.want)
		}
		facts.Files = false // a host has asked all
		if a := ask(t, explain.Question{Job: "j", At: noon}, facts); a.Verdict != explain.NoHost {
			t.Errorf("%s, of all hosts: got\n%s", name, answered(a))
		}
		facts.Silent = []string{"10.0.0.9"}
		if a := ask(t, explain.Question{Job: "j", At: noon}, facts); a.Verdict != c.verdict {
			t.Errorf("%s, without one that does not answer: got\n%s", name, answered(a))
		}
	}
}

// TestExplain_departed: a server of the job on which no host runs is named once, as what is known of
// it, and that no host had the job does not follow.
func TestExplain_departed(t *testing.T) {
	t.Parallel()
	facts := explain.Facts{Departed: []string{"10.0.0.2", "10.0.0.3"}, Silent: []string{"10.0.0.3"}, Now: noon.Add(time.Hour), From: noon.Add(-time.Hour), Settings: &event.Settings{Cron: "0 0 12 * * ?", TimeZone: "UTC", Items: 1},
		Events: []event.Event{of(-600, event.Assigned, first, func(e *event.Event) { e.Items = []int{0} }), of(-60, event.JobRemoved, first, nil)}}
	want := `unknown
What became of item 0 is not known: it was due at 12:00:00, none of the hosts whose histories there are had the job then, and the histories of other hosts may be missing.
Host 10.0.0.1 had the job until 11:59:00: it gave no reason.
The histories of 10.0.0.3 could not be had: what happened there is not in this answer.
No host runs on 10.0.0.2 now: what happened there is not in this answer.`
	if got := answered(ask(t, explain.Question{Job: "j", At: noon}, facts)); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

var (
	kinds = []event.Kind{event.FireStarted, event.FireSkipped, event.ItemStarted, event.ItemEnded, event.ItemCompleted, event.ItemSkipped, event.ItemHeld,
		event.JobAdded, event.JobConfigured, event.JobRemoved, event.JobStopped, event.JobError, event.Refused, event.Sharded, event.Assigned, event.Elected,
		event.Session, event.Clock, event.HostGone, event.HostStarted, event.HostStopped, "unknown"}
	hosts    = []string{first, second, "10.0.0.1@-@2-cc", "10.0.0.3@-@1-dd", "", "@-@"}
	outcomes = []abi.Outcome{abi.OutcomeOK, abi.OutcomeFail, abi.OutcomeCancelled, ""}
	reasons  = []string{"live", "suspect", "yield", "lost", "", "job \"j\": because.\nAnd more", "it is right again"}
	sources  = []abi.Source{abi.SourceSchedule, abi.SourceTrigger, abi.SourceMisfire, abi.SourceFailover, abi.SourceCatchUp, ""}
	crons    = []string{"0 * * * * ?", "", "nonsense", "0 0 12 1 1 ? 2019", "*/7 * * * * ?"}
)

// random makes an event of eight bytes.
func random(b []byte) event.Event {
	pick := func(n byte, of int) int { return int(n) % of }
	e := event.Event{Time: noon.Add(time.Duration(b[0])*2*time.Second - time.Minute), Kind: kinds[pick(b[1], len(kinds))], Host: hosts[pick(b[2], len(hosts))],
		Job: "j", Source: sources[pick(b[3], len(sources))], Outcome: outcomes[pick(b[4], len(outcomes))], Reason: reasons[pick(b[5], len(reasons))]}
	e.Cause = event.SkipCauses()[pick(b[6], len(event.SkipCauses()))]
	e.Owed = e.Cause == event.SkipLater
	if b[7]&1 != 0 {
		e.Item = number(int(b[7]>>1) % 4)
	}
	e.Items = []int{int(b[7]>>1) % 4, int(b[7]>>3) % 4}
	e.Total = int(b[7]) % 5
	e.Instant = noon.Add(time.Duration(b[6]>>4) * time.Minute)
	switch {
	case b[5]&0x80 != 0:
		e.Trigger = int64(b[5] & 3)
	case b[5]&0x40 != 0:
		e.Through = e.Instant.Add(time.Duration(b[5]&7) * time.Minute)
	}
	if b[3]&0x80 != 0 {
		e.Other = hosts[pick(b[3]>>4, len(hosts))]
	}
	if b[3]&0x40 != 0 {
		e.Waited = &event.Waited{Slot: time.Duration(b[4]) * time.Second}
	}
	if e.Kind == event.JobConfigured && b[4]&1 == 0 {
		e.Settings = &event.Settings{Cron: crons[pick(b[5], len(crons))], TimeZone: "UTC", Items: int(b[6]) % 5}
	}
	switch e.Kind {
	case event.Session, event.HostGone, event.HostStarted, event.HostStopped, event.Refused, event.Clock:
		e.Job = ""
	}
	return e
}

// FuzzExplain: whatever events there are, an answer says of each item once that it began or
// that it did not, and what else it says agrees with that.
func FuzzExplain(f *testing.F) {
	f.Add([]byte{}, uint8(0))
	f.Add([]byte("\x1e\x00\x00\x00\x00\x00\x00\x00\x1e\x02\x00\x00\x00\x00\x00\x01\x1f\x03\x00\x00\x00\x00\x00\x01\x1f\x04\x00\x00\x00\x00\x00\x01"), uint8(3))
	f.Fuzz(func(t *testing.T, data []byte, asks uint8) {
		var facts explain.Facts
		for len(data) >= 8 && len(facts.Events) < 200 {
			facts.Events = append(facts.Events, random(data[:8]))
			data = data[8:]
		}
		facts.Now = noon.Add(10 * time.Minute)
		q := explain.Question{Job: "j", Nearest: asks&4 != 0}
		if asks&1 != 0 {
			q.At = noon.Add(time.Duration(asks>>4) * time.Minute)
		}
		if asks&2 != 0 {
			q.Item = number(int(asks>>3) % 5)
		}
		a := ask(t, q, facts)
		if _, err := json.Marshal(a); err != nil {
			t.Fatal(err)
		}
		check(t, a)
	})
}

// check looks for contradictions.
func check(t *testing.T, a explain.Answer) {
	t.Helper()
	began, not, succeeded := make(map[int]int), make(map[int]int), make(map[int]bool)
	for _, s := range a.Sentences {
		if s.Text == "" || !strings.HasSuffix(s.Text, ".") || s.Kind == "" || strings.Contains(s.Text, "\n") {
			t.Errorf("%q of kind %q", s.Text, s.Kind)
		}
		for _, n := range s.Items {
			switch s.Kind {
			case explain.KindBegan:
				began[n]++
			case explain.KindNotRun:
				not[n]++
			case explain.KindEnd:
				succeeded[n] = succeeded[n] || strings.Contains(s.Text, "succeeded")
			}
		}
	}
	worst := explain.NeverDue
	for _, v := range a.Items {
		if began[v.Item]+not[v.Item] != 1 {
			t.Errorf("item %d began %d times and did not %d times:\n%s", v.Item, began[v.Item], not[v.Item], answered(a))
		}
		ran := slices.Contains([]explain.Verdict{explain.Ran, explain.Late, explain.Failed, explain.Running, explain.Killed}, v.Verdict)
		if ran && began[v.Item] == 0 {
			t.Errorf("item %d: %s, and it did not run:\n%s", v.Item, v.Verdict, answered(a))
		}
		if ok := v.Verdict == explain.Ran || v.Verdict == explain.Late; ok != succeeded[v.Item] {
			t.Errorf("item %d: %s, succeeded %v:\n%s", v.Item, v.Verdict, succeeded[v.Item], answered(a))
		}
		worst = v.Verdict
	}
	if len(a.Items) == 1 && a.Verdict != worst {
		t.Errorf("%s of one item that is %s", a.Verdict, worst)
	}
	if a.Verdict == "" || len(a.Sentences) == 0 {
		t.Errorf("%+v says nothing", a)
	}
}
