package coordination

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"testing"
)

// TestRunsAgainstModel compares Runs with a map of item to fire.
func TestRunsAgainstModel(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(3, 4))
	fires := []Fire{{Instant: 10, Source: "schedule"}, {Instant: 20, Source: "schedule"}, {Instant: 20, Source: "misfire"}, {Instant: 25, Trigger: 7, Source: "trigger"}}
	for range 200 {
		var runs Runs
		model := make(map[int]Fire)
		for range 20 {
			items := someItems(r, 12)
			before := string(runs.data())
			var next Runs
			if r.IntN(2) == 0 {
				f := fires[r.IntN(len(fires))]
				next = runs.with(f, f.Trigger != 0, items)
				for _, i := range items {
					model[i] = f
				}
			} else {
				next = runs.without(items)
				for _, i := range items {
					delete(model, i)
				}
			}
			if string(runs.data()) != before {
				t.Fatalf("runs were changed in place: %s became %s", before, runs.data())
			}
			grown, last := 0, -1
			for _, i := range items {
				grown += listed(i, last)
				last = i
			}
			if header := 128; len(next.data()) > len(before)+grown+header {
				t.Fatalf("%s with or without %s is %s: longer by more than %d bytes", before, items, next.data(), grown+header)
			}
			runs = next
			read, err := parseRuns(runs.data())
			if err != nil || string(read.data()) != string(runs.data()) {
				t.Fatalf("%s is read as %s, %v", runs.data(), read.data(), err)
			}
			if len(runs.Items()) != len(model) {
				t.Fatalf("runs have %v, want %v", runs.Items(), model)
			}
			for i, f := range model {
				if runs.fireOf(i) != f {
					t.Fatalf("item %d was begun for %v, want %v", i, runs.fireOf(i), f)
				}
			}
		}
	}
}

func TestRecordIsReadAgain(t *testing.T) {
	t.Parallel()
	for _, r := range []Record{
		{},
		{Owner: "10.0.0.1@-@a", Instant: 1, Trigger: 2, Begun: 3, Ended: 4, Source: "schedule", Outcome: "OK"},
		{Owner: "a\"b\\c\x00\x7f\n", Instant: -1, Source: "ü\u2028", Outcome: "<&>"},
	} {
		var got Record
		if err := json.Unmarshal(r.data(), &got); err != nil || got != r {
			t.Errorf("%+v is written as %s and read as %+v, %v", r, r.data(), got, err)
		}
	}
	for _, data := range []string{"", "nonsense", "[]", `{"instant":"x"}`, "null"} {
		if got := parseRecord([]byte(data)); got != (Record{}) {
			t.Errorf("%q is read as %+v", data, got)
		}
	}
}

func FuzzRecord(f *testing.F) {
	f.Add("10.0.0.1@-@a", int64(1), int64(2), int64(3), int64(4), "schedule", "OK")
	f.Fuzz(func(t *testing.T, owner string, instant, trigger, begun, ended int64, source, outcome string) {
		r := Record{Owner: owner, Instant: instant, Trigger: trigger, Begun: begun, Ended: ended, Source: source, Outcome: outcome,
			Reason: source, Deaths: int(begun % 9), Died: outcome, Held: ended, Former: Former{owner, begun, ended, outcome}}
		if !json.Valid(r.data()) {
			t.Errorf("%+v is written as %q", r, r.data())
		}
		// What JSON cannot hold becomes U+FFFD, once.
		if got := parseRecord(r.data()); parseRecord(got.data()) != got || got.Instant != instant || got.Begun != begun {
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
	for _, f := range []Fire{{Instant: 200, Source: "schedule"}, {Instant: 5, Trigger: 9, Source: "trigger"}} {
		begun := r.begin("x", f, 300)
		if begun.Accepts(f) == nil || !begun.Open() || !begun.isOf(f) {
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
		if back = parseRecord(back.data()); back.HandedBack() != due || back.HandedBackTrigger() != f.Trigger {
			t.Errorf("%+v says that %d and round %d are due, expected %d and %d", back, back.HandedBack(), back.HandedBackTrigger(), due, f.Trigger)
		}
		if again := back.begin("y", f, 400); again.HandedBackTrigger() != 0 {
			t.Errorf("%+v: the round runs, and is due", again)
		}
		if back.Instant = max(back.Instant, f.Instant); back.HandedBack() != 0 || back.begin("y", f, 400).HandedBack() != 0 {
			t.Errorf("%+v: the instant has passed, and is due", back)
		}
	}
	// A failover repeats an old fire, and the newest stays the newest.
	if got := r.begin("x", Fire{Instant: 50}, 1); got.Instant != 100 || got.Trigger != 7 {
		t.Errorf("after an old fire: %+v", got)
	}
}

// TestNoListIsTooLongToRead: ten ranges of a million each would be ten million
// numbers.
func TestNoListIsTooLongToRead(t *testing.T) {
	t.Parallel()
	var runs Runs
	text := `{"runs":[`
	for i := range 10 {
		text += fmt.Sprintf(`{"instant":%d,"items":"0-999999"},`, i)
	}
	text = text[:len(text)-1] + `]}`
	if err := runs.UnmarshalJSON([]byte(text)); err == nil {
		t.Errorf("%d items were read", len(runs.Items()))
	}
	if err := runs.UnmarshalJSON([]byte(`{"runs":[{"instant":1,"trigger":2,"source":"s","items":"0-2","marked":true}],"java":"x"}`)); err != nil ||
		len(runs.Runs) != 1 || runs.Java != "x" || !runs.Runs[0].Marked || runs.Runs[0].Fire != (Fire{Instant: 1, Trigger: 2, Source: "s"}) || runs.Runs[0].Items.String() != "0-2" {
		t.Errorf("read as %+v, %v", runs, err)
	}
}
