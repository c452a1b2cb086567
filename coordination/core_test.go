package coordination

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/coordination/jobconfig"
	"github.com/wasmjob/wasmjob/coordination/registry"
)

func TestItemsText(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]Items{
		"": nil, "0": {0}, "0-3,7": {0, 1, 2, 3, 7}, "5,1-2,2": {1, 2, 5}, "7,6": {6, 7}, "999999": {999999},
	} {
		got, err := ParseItems(text)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("ParseItems(%q) = %v, %v; want %v", text, got, err, want)
		}
	}
	for _, text := range []string{",", "1,", "-1", "1-", "3-1", "a", "1 ", "+1", "01", "0x1", "1-2-3", "1000000", "0-1000000", "99999999999999999999",
		"0-999999,0-999999"} {
		if got, err := ParseItems(text); err == nil {
			t.Errorf("ParseItems(%q) = %d items, want an error", text, len(got))
		}
	}
}

func TestItemsTextIsReadAgain(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	for range 500 {
		items := someItems(r, 60)
		text := items.String()
		got, err := ParseItems(text)
		if err != nil || !slices.Equal(got, items) {
			t.Fatalf("%v as %q is read as %v, %v", items, text, got, err)
		}
		for i := range 60 {
			if items.Contains(i) != slices.Contains(items, i) {
				t.Fatalf("%v.Contains(%d) = %v", items, i, items.Contains(i))
			}
		}
	}
}

// someItems are random ones below n, ascending.
func someItems(r *rand.Rand, n int) Items {
	var items Items
	for i := range n {
		if r.IntN(3) > 0 {
			items = append(items, i)
		}
	}
	return items
}

// TestRangesAgainstModel compares Ranges with lists of items.
func TestRangesAgainstModel(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(5, 6))
	for range 2000 {
		a, b := someItems(r, 12), someItems(r, 12)
		in, of := rangesOf(a), rangesOf(b)
		first := r.IntN(13)
		both := Items(slices.Compact(slices.Sorted(slices.Values(slices.Concat(a, b)))))
		rest := slices.DeleteFunc(slices.Clone(a), b.Contains)
		since := slices.DeleteFunc(slices.Clone(a), func(i int) bool { return i < first })
		for what, got := range map[string]struct{ got, want Items }{
			"with": {in.with(of).Items(), both}, "without": {in.without(of).Items(), rest}, "since": {slices.Collect(in.since(first)), since}, "items": {in.Items(), a},
		} {
			if !slices.Equal(got.got, got.want) {
				t.Fatalf("%v, %v, %d: %s is %v, want %v", a, b, first, what, got.got, got.want)
			}
		}
		if in.with(of).String() != both.String() || in.without(of).Len() != len(rest) {
			t.Fatalf("%v and %v: %v, %v", a, b, in.with(of), in.without(of))
		}
		for i := range 13 {
			if in.Contains(i) != a.Contains(i) {
				t.Fatalf("%v.Contains(%d) = %v", in, i, in.Contains(i))
			}
		}
	}
}

func FuzzParseItems(f *testing.F) {
	f.Add("0-3,7")
	f.Add("1,1-1,")
	f.Fuzz(func(t *testing.T, text string) {
		items, err := ParseItems(text)
		if err != nil {
			return
		}
		again, err := ParseItems(items.String())
		if err != nil || !slices.Equal(items, again) {
			t.Errorf("%q is %v, and then %v, %v", text, items, again, err)
		}
		if !slices.IsSorted(items) || len(slices.Compact(slices.Clone(items))) != len(items) {
			t.Errorf("%q is %v", text, items)
		}
	})
}

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

// FuzzParseView feeds nodes of any content to the view and to what reads it.
func FuzzParseView(f *testing.F) {
	f.Add([]byte("jobName: demo\nshardingTotalCount: 3\n"), "10.0.0.1@-@A\n10.0.0.2@-@B", "10.0.0.1@-@A", []byte(`{"total":3,"members":["x"],"pending":"0-2"}`), "necessary,0,-1,x", int32(1))
	f.Add([]byte("{"), "", "x", []byte(`{"pending":"0-999999,0-999999"}`), "0", int32(0))
	f.Add([]byte(nil), "@-@\n@-@@-@", "", []byte("null"), "processing", int32(-1))
	f.Fuzz(func(t *testing.T, config []byte, instances, leader string, division []byte, names string, version int32) {
		l := NewLayout("ns", "demo")
		self := NewJobInstance("10.0.0.1", "A")
		node := func(data []byte) registry.Node {
			return registry.Node{Exists: version != 0, Data: data, Version: version, Mzxid: int64(version)}
		}
		s := registry.Snapshot{}
		for _, q := range Control(l, self) {
			n := node([]byte(leader))
			if q.Children {
				n.Data, n.Names = nil, strings.Split(names, ",")
			}
			n.Query = q
			s[q] = n
		}
		set := func(q registry.Query, n registry.Node) { n.Query = q; s[q] = n }
		set(registry.Data(l.config()), node(config))
		set(registry.Data(l.assignment()), node(division))
		set(registry.Data(l.members()), node([]byte(instances)))
		set(registry.Children(l.instances()), registry.Node{Exists: true, Names: strings.Split(instances, "\n")})
		v := ParseView(s, l, self, View{})
		v = ParseView(s, l, self, v)
		v = ParseView(registry.Snapshot{}, l, self, v)
		v = ParseView(s, l, self, v)
		v.Crashed()
		v.Java()
		actions := []Action{ActionNone, ActionLeaveLine, ActionResign, ActionElect, ActionReshard, ActionAsk}
		m := Member{Layout: l, Self: self, View: v}
		if a := m.Reconcile(time.Unix(0, 0)); !slices.Contains(actions, a) {
			t.Errorf("found action %q, expected one of %q", a, actions)
		}
	})
}

// TestParts: every op once and in order, no part over the limit by more than
// what must stay together.
func TestParts(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(5, 6))
	for range 300 {
		var ops []registry.Op
		for n := range r.IntN(50) {
			path := fmt.Sprintf("/%d", n)
			switch r.IntN(3) {
			case 0:
				ops = append(ops, registry.Create(path, make([]byte, r.IntN(200))))
			case 1:
				ops = append(ops, registry.Delete(path, registry.AnyVersion), registry.Create(path, nil))
			default:
				ops = append(ops, registry.Check("/runs", 1), registry.Set(path, nil, registry.AnyVersion))
			}
		}
		limit := 100 + r.IntN(1000)
		var all []registry.Op
		for part := range parts(ops, limit) {
			if len(part) == 0 {
				t.Fatal("an empty part")
			}
			if extra := size(part) - opSize(part[len(part)-1]); len(part) > 2 && extra > limit {
				t.Fatalf("a part of %d bytes, the limit is %d", size(part), limit)
			}
			if last := part[len(part)-1]; last.Kind == registry.OpCheck {
				t.Fatal("a check without what it guards")
			}
			if first := part[0]; first.Kind == registry.OpCreate && len(all) > 0 && all[len(all)-1].Kind == registry.OpDelete && all[len(all)-1].Path == first.Path {
				t.Fatal("a delete and its create were parted")
			}
			all = append(all, part...)
		}
		if len(all) != len(ops) {
			t.Fatalf("%d ops of %d", len(all), len(ops))
		}
		for i := range ops {
			if all[i].Path != ops[i].Path || all[i].Kind != ops[i].Kind {
				t.Fatalf("op %d is %v, want %v", i, all[i], ops[i])
			}
		}
	}
}

// TestDivisionStale names the reasons, and that a configuration that cannot
// be read is none.
func TestDivisionStale(t *testing.T) {
	t.Parallel()
	self := NewJobInstance("10.0.0.1", "A")
	base := View{Layout: NewLayout("ns", "demo"), Self: self, Exists: true, Enabled: true, Instances: []string{"10.0.0.2@-@B", self.ID},
		Config:       jobconfig.Configuration{ShardingTotalCount: 3},
		Division:     Division{Members: []string{"10.0.0.2@-@B", self.ID}, Instances: []string{"10.0.0.2@-@B", self.ID}, Total: 3, Strategy: "AVG_ALLOCATION"},
		divisionNode: registry.Node{Exists: true, Data: []byte("x")}}
	for _, c := range []struct {
		change func(*View)
		want   string
	}{
		{func(*View) {}, ""},
		{func(v *View) { v.divisionNode = registry.Node{} }, "items were never divided"},
		{func(v *View) { v.Config.ShardingTotalCount = 4 }, "sharding total count changed from 3 to 4"},
		{func(v *View) { v.Config.ShardingTotalCount, v.ConfigErr = 0, errors.New("bad") }, ""},
		{func(v *View) { v.Config.JobShardingStrategyType = "ODEVITY" }, "strategy changed from AVG_ALLOCATION to ODEVITY"},
		{func(v *View) { v.Config.JobShardingStrategyType = "AVG_ALLOCATION" }, ""},
		{func(v *View) {
			v.Config.JobShardingStrategyType = "com.dangdang.ddframe.job.lite.api.strategy.impl.AverageAllocationJobShardingStrategy"
		}, ""},
		{func(v *View) { v.Config.JobShardingStrategyType = "no such strategy" }, ""},
		{func(v *View) { v.Instances = v.Instances[1:] }, "instances changed"},
		{func(v *View) { v.Division.Instances = []string{self.ID, "10.0.0.2@-@B"} }, ""},
		{func(v *View) { v.Enabled = false }, "this server was disabled"},
		{func(v *View) { v.Enabled, v.Division.Excluded = false, []string{self.ID} }, ""},
		{func(v *View) { v.Division.Excluded = []string{self.ID} }, "this server was enabled"},
		{func(v *View) { v.Division.Pending = Items{1} }, ""},
	} {
		v := base
		c.change(&v)
		if got := v.DivisionStale(); got != c.want {
			t.Errorf("stale %q, want %q", got, c.want)
		}
	}
}

// never fails every commit with a conflict.
type never struct {
	registry.Center
	reason registry.Reason
}

func (n never) Commit(context.Context, ...registry.Op) ([]registry.Result, error) {
	return nil, &registry.OpError{Reason: n.reason}
}
func (never) Read(_ context.Context, q ...registry.Query) ([]registry.Node, error) {
	return make([]registry.Node, len(q)), nil
}

// TestExchangeGivesUp: two hosts that contradict each other for ever stop, and
// an exchange that gets on does not.
func TestExchangeGivesUp(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	tries := 0
	stubborn := func(ctx context.Context, x *exchange) error {
		for ; ; tries++ {
			if _, err := x.commit(ctx, registry.Op{}); conflictOf(err) == nil {
				return err
			}
		}
	}
	if err := perform(ctx, never{reason: registry.ReasonVersion}, "stubborn", stubborn); !errors.Is(err, registry.ErrConflict) || tries != maxConflicts || !strings.Contains(err.Error(), "stubborn") {
		t.Errorf("after %d tries: %v", tries, err)
	}
	long := func(ctx context.Context, x *exchange) error {
		for range 10 * maxConflicts {
			if _, err := x.read(ctx, registry.Data("/x")); err != nil {
				return err
			}
		}
		return nil
	}
	if err := perform(ctx, never{reason: registry.ReasonVersion}, "long", long); err != nil {
		t.Errorf("a long exchange: %v", err)
	}
	if err := perform(ctx, never{reason: registry.ReasonVersion}, "nothing", func(ctx context.Context, x *exchange) error { _, err := x.read(ctx); return err }); err != nil {
		t.Errorf("nothing to read: %v", err)
	}
	plain := func(ctx context.Context, x *exchange) error { _, err := x.commit(ctx, registry.Op{}); return err }
	if err := perform(ctx, never{reason: registry.ReasonVersion}, "plain", plain); !errors.Is(err, registry.ErrConflict) {
		t.Errorf("a conflict that the step does not handle: %v", err)
	}
	// A node that is there, again and again, is an external edit.
	tries = 0
	if err := perform(ctx, never{reason: registry.ReasonExists}, "stubborn", stubborn); !errors.Is(err, registry.ErrConflict) || tries != maxSame {
		t.Errorf("after %d tries: %v", tries, err)
	}
}
