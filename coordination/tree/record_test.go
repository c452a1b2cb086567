package tree

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/wasmjob/wasmjob/internal/text/reason"
)

func TestRecordIsReadAgain(t *testing.T) {
	t.Parallel()
	for _, r := range []Record{
		{},
		{Owner: "10.0.0.1@-@a", Instant: 1, Trigger: 2, Begun: 3, Ended: 4, Source: "schedule", Outcome: "OK"},
		{Owner: "a\"b\\c\x00\x7f\n", Instant: -1, Source: "ü\u2028", Outcome: "<&>"},
		{Owner: "10.0.0.1@-@a", Instant: 1, Begun: 3, Source: "schedule", Owed: "2 3", OwedTo: 4, Runs: 5},
		{Owner: "10.0.0.1@-@a", Instant: 1, Begun: 3, Source: "schedule", Kill: Kill{By: "ann \"at\" desk", At: 5, Grace: 6000}},
	} {
		var got Record
		if err := json.Unmarshal(r.Data(), &got); err != nil || got != r {
			t.Errorf("%+v is written as %s and read as %+v, %v", r, r.Data(), got, err)
		}
	}
	for _, data := range []string{"", "nonsense", "[]", `{"instant":"x"}`, "null"} {
		if got := ParseRecord([]byte(data)); got != (Record{}) {
			t.Errorf("%q is read as %+v", data, got)
		}
	}
}

// TestRecordOwes: the instants that an item owes are those after the newest that was begun, and a begin and a
// completion keep the others.
func TestRecordOwes(t *testing.T) {
	t.Parallel()
	r := Record{Owner: "a", Instant: 100}.Owes([]int64{50, 100, 200, 300}, 350)
	check := func(r Record, to int64, instants ...int64) {
		t.Helper()
		if r = ParseRecord(r.Data()); !slices.Equal(r.OwedInstants(), instants) || r.OwedTo != to {
			t.Errorf("%+v owes %v up to %d, expected %v up to %d", r, r.OwedInstants(), r.OwedTo, instants, to)
		}
	}
	check(r, 350, 200, 300)
	begun := r.Begin("b", Fire{Instant: 200, Source: "misfire"}, 400)
	check(begun, 350, 300)
	check(begun.End("OK", "", 500), 350, 300)
	check(begun.HandBack(Fire{Instant: 200}), 350, 300)
	check(begun.Begin("b", Fire{Trigger: 9, Source: "trigger"}, 400), 350, 300)
	check(begun.Begin("b", Fire{Instant: 350, Source: "misfire"}, 400), 0)
	check(r.Owes(nil, 350), 350)
	check(r.Owes(nil, 100), 0)
	check(Record{Instant: 1, Owed: "5 x 4 7 7 -1 99999999999999999999 9"}, 0, 5, 7, 9)
	if many := (Record{Owed: strings.Repeat("1 ", 5000)}); len(many.OwedInstants()) != 1 {
		t.Errorf("%d instants", len(many.OwedInstants()))
	}
	if data := string(Record{Owner: "a", Instant: 100}.Owes(nil, 50).Data()); strings.Contains(data, "owed") {
		t.Errorf("a record that owes nothing is %s", data)
	}
}

// allOfIt is a record in which every field is set.
func allOfIt() Record {
	return Record{Owner: "10.0.0.1@-@a", Instant: -1, Trigger: 2, After: 3, Begun: 4, Ended: 5, Source: "schedule", Outcome: "FAILED", Reason: "no <b>", Failures: 6, Failing: 7, Succeeded: 8,
		Deaths: 9, Died: "a b", Held: 10, Back: 11, BackTrigger: 12, BackArgs: 13, BackParam: "p", BackAt: 14, BackBare: true, BackFill: true, Again: 15, Owed: "16 17", OwedTo: 18, Runs: 19,
		Kill: Kill{By: "ann", At: 20, Grace: 21}, Former: Former{Owner: "b", Begun: 22, Ended: 23, Outcome: "OK"}}
}

// TestRecordIsReadAsWritten: what Data writes is read without encoding/json, but for strings that must be escaped and numbers
// of more than 18 digits.
func TestRecordIsReadAsWritten(t *testing.T) {
	t.Parallel()
	all := reflect.ValueOf(allOfIt())
	for n := range all.NumField() {
		if all.Field(n).IsZero() {
			t.Errorf("allOfIt does not set %s", all.Type().Field(n).Name)
		}
	}
	for _, r := range []Record{allOfIt(), {}, {Owner: "a", Begun: 1}} {
		if got, ok := readRecord(r.Data()); !ok || got != r {
			t.Errorf("%s is read as %+v, %v", r.Data(), got, ok)
		}
	}
	for _, data := range []string{"", "{}", "null", `{"owner":"a","instant":1} `, `{"owner":"a","instant":1`, `{"owner":"a","instant":01}`, `{"owner":"a","instant":1.0}`,
		`{"owner":"a","instant":-}`, `{"owner":"\u0061","instant":1}`, `{"owner":"ü","instant":1}`, `{"owner":"a","instant":1000000000000000000}`, `{"owner":"a","instant":1,"begun":2,"after":3}`,
		`{"owner":"a","instant":1,"failures":3000000000}`, `{"owner":"a","instant":1,"else":2}`, `{"owner":"a`} {
		if got, ok := readRecord([]byte(data)); ok {
			t.Errorf("%s is read as %+v, and is not as Data writes it", data, got)
		}
	}
}

// FuzzReadRecord: what is read without encoding/json is what that reads.
func FuzzReadRecord(f *testing.F) {
	f.Add(allOfIt().Data())
	f.Add(Record{Owner: "a", Instant: 1, Begun: 2, Source: "trigger"}.Data())
	f.Fuzz(func(t *testing.T, data []byte) {
		got, ok := readRecord(data)
		if !ok {
			return
		}
		var want Record
		if err := json.Unmarshal(data, &want); err != nil || got != want {
			t.Errorf("%q is read as %+v, and encoding/json has %+v, %v", data, got, want, err)
		}
	})
}

func FuzzRecord(f *testing.F) {
	f.Add("10.0.0.1@-@a", int64(1), int64(2), int64(3), int64(4), "schedule", "OK")
	f.Fuzz(func(t *testing.T, owner string, instant, trigger, begun, ended int64, source, outcome string) {
		r := Record{Owner: owner, Instant: instant, Trigger: trigger, Begun: begun, Ended: ended, Source: source, Outcome: outcome,
			Reason: source, Deaths: int(begun % 9), Died: outcome, Held: ended, Kill: Kill{source, begun, ended}, Former: Former{owner, begun, ended, outcome}}
		if !json.Valid(r.Data()) {
			t.Errorf("%+v is written as %q", r, r.Data())
		}
		// What JSON cannot hold becomes U+FFFD, once.
		if got := ParseRecord(r.Data()); ParseRecord(got.Data()) != got || got.Instant != instant || got.Begun != begun {
			t.Errorf("%+v is read as %+v", r, got)
		}
	})
}

func TestRecordAccepts(t *testing.T) {
	t.Parallel()
	r := Record{Instant: 100, Trigger: 7}
	for _, c := range []struct {
		fire Fire
		ok   bool
	}{
		{Fire{Instant: 99}, false}, {Fire{Instant: 100}, false}, {Fire{Instant: 101}, true},
		{Fire{Instant: 1, Trigger: 6}, false}, {Fire{Instant: 1000, Trigger: 7}, false}, {Fire{Instant: 1, Trigger: 8}, true},
	} {
		if err := r.Accepts(c.fire); (err == nil) != c.ok {
			t.Errorf("%+v: %v", c.fire, err)
		}
	}
	// What was begun is not accepted again, until it is handed back.
	for _, f := range []Fire{{Instant: 200, Source: "schedule"}, {Instant: 5, Trigger: 9, Source: "trigger"},
		{Instant: 5, Trigger: 9, Source: "trigger", WithParam: true, Param: "a \"b\""}, {Instant: 5, Trigger: 9, Source: "trigger", WithParam: true}} {
		begun := r.Begin("x", f, 300)
		if begun.Accepts(f) == nil || !begun.Open() || !begun.IsOf(f) {
			t.Errorf("%+v after the begin of %+v", begun, f)
		}
		back := begun.HandBack(f)
		if back.Accepts(f) != nil || back.Open() {
			t.Errorf("%+v after %+v was handed back", back, f)
		}
		due := f.Instant
		if f.Trigger != 0 {
			due = 0
		}
		back = ParseRecord(back.Data())
		if round, args := back.HandedBackTrigger(); back.HandedBack() != due || args.Fire(round, f.Instant, f.Source) != f && f.Trigger != 0 {
			t.Errorf("%+v says that %d and round %d with %v are due, expected %+v", back, back.HandedBack(), round, args, f)
		}
		if f.WithParam && back.BackTrigger != 0 {
			t.Errorf("%+v: a host of an earlier version would run the round without its parameter", back)
		}
		again := back.Begin("y", f, 400)
		if round, _ := again.HandedBackTrigger(); round != 0 {
			t.Errorf("%+v: the round runs, and is due", again)
		}
		if back.Instant = max(back.Instant, f.Instant); back.HandedBack() != 0 || back.Begin("y", f, 400).HandedBack() != 0 {
			t.Errorf("%+v: the instant has passed, and is due", back)
		}
	}
	// A failover repeats an old fire, and the newest stays the newest.
	if got := r.Begin("x", Fire{Instant: 50}, 1); got.Instant != 100 || got.Trigger != 7 {
		t.Errorf("after an old fire: %+v", got)
	}
}

// TestRecordFailures: a record knows how often the item has failed in a row and when it was
// OK last, whoever had it.
func TestRecordFailures(t *testing.T) {
	t.Parallel()
	r := Record{Instant: 1}
	for n, c := range []struct {
		host, outcome string
		lost          bool
		failures      int
		lastOK        int64
	}{
		{"a", "OK", false, 0, 101},
		{"a", "FAIL", false, 1, 101},
		{"b", "TIMEOUT", false, 2, 101},
		{"b", OutcomeCancelled, false, 2, 101}, // an operator
		{"c", "", true, 2, 101},
		{"a", "TRAP", false, 3, 101},
		{"c", OutcomeElsewhere, false, 3, 101},
		{"b", "OK", false, 0, 801},
		{"b", "OK", false, 0, 901},
	} {
		now := int64(n+1) * 100
		r = r.Begin(c.host, Fire{Instant: now, Source: "schedule"}, now)
		if open := r.LastOK(); n > 0 && open != []int64{101, 101, 101, 101, 101, 101, 101, 101, 801}[n] {
			t.Errorf("run %d is open, and the item was OK last at %d", n, open)
		}
		if c.lost {
			r = r.Lose(now + 1)
		} else {
			r = r.End(c.outcome, "", now+1)
		}
		r = ParseRecord(r.Data())
		if r.Failures != c.failures || r.LastOK() != c.lastOK {
			t.Errorf("run %d: %d failures, OK last at %d; want %d, %d", n, r.Failures, r.LastOK(), c.failures, c.lastOK)
		}
		if want := min(int64(c.failures), 1) * 201; r.Failing != want {
			t.Errorf("run %d: failing since %d, want %d", n, r.Failing, want)
		}
	}
}

// TestRecordKilled: a kill keeps the fence of its run, goes with it, and never names another one.
func TestRecordKilled(t *testing.T) {
	t.Parallel()
	f := Fire{Instant: 100, Source: "schedule"}
	first, newer := Kill{By: "op", At: 150, Grace: 5000}, Kill{At: 160}
	run := Record{After: 3, Deaths: 1, Died: "h"}.Begin("a", f, 101)
	if run.Token(7) != 7 {
		t.Errorf("fence %d, expected 7", run.Token(7))
	}
	killed := ParseRecord(run.Killed(first, 7).Data())
	again := ParseRecord(killed.Killed(newer, 8).Data())
	if killed.Kill != first || killed.Token(8) != 7 || again.Kill != newer || again.Token(9) != 7 || !again.Open() {
		t.Errorf("killed as %+v, and again as %+v", killed, again)
	}
	for how, r := range map[string]Record{
		"ended": again.End("OK", "", 200), "lost": again.Lose(200), "held": again.Hold(200), "handed back": again.HandBack(f),
		"begun anew": again.Begin("b", Fire{Instant: 200}, 200), "ended by others": again.EndKilled(reason.TimeWasUp, 50),
	} {
		if r.Kill.Asked() {
			t.Errorf("%s: %+v is to be ended", how, r)
		}
	}
	if r := killed.EndKilled(reason.HostEndedBefore, 50); r.Open() || r.Ended <= r.Begun || r.Outcome != OutcomeCancelled || r.Deaths != 0 ||
		r.Reason != "an operator killed it (op) at 1970-01-01T00:00:00Z; its host ended before that" {
		t.Errorf("%+v", r)
	}
	closed := again.End("OK", "", 200)
	closed.Kill = first
	if r := ParseRecord(closed.Data()); r.Kill.Asked() {
		t.Errorf("a run that has ended is to be ended: %+v", r)
	}
	if k := NewKill(strings.Repeat("ü", 500), time.UnixMilli(9), time.Second); len(k.By) > maxKillBy+3 || !utf8.ValidString(k.By) || k.At != 9 || k.Grace != 1000 {
		t.Errorf("%+v", k)
	}
}
