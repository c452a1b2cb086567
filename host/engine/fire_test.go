package engine

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/coordination"
	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/tree"
	"github.com/wasmjob/wasmjob/host/event"
	"github.com/wasmjob/wasmjob/host/schedule"
	"github.com/wasmjob/wasmjob/host/schedule/due"
)

// An item that owes an instant and is refused for a trigger, because it has run
// in the round already, still owes the instant.
func TestATriggerAnswersNoInstant(t *testing.T) {
	t.Parallel()
	scheduled := tree.Fire{Instant: 1000, Source: string(abi.SourceCatchUp)}
	trigger := tree.Fire{Instant: 1500, Trigger: 7, Source: string(abi.SourceTrigger)}
	for name, tc := range map[string]struct {
		due, answer tree.Fire
		owes        bool
	}{
		"a trigger, of an instant": {scheduled, trigger, true},
		"a newer instant":          {scheduled, tree.Fire{Instant: 2000}, true},
		"the instant itself":       {scheduled, tree.Fire{Instant: 1000, Source: string(abi.SourceMisfire)}, false},
		"the round, some time on":  {trigger, tree.Fire{Instant: 1700, Trigger: 7}, false},
		"an instant, of a trigger": {trigger, scheduled, true},
	} {
		it := &item{Owed: due.Owed{Due: &tc.due}}
		if it.Answered(tc.answer); (it.Due != nil) != tc.owes {
			t.Errorf("%s: still owed: %t, want %t", name, it.Due != nil, tc.owes)
		}
	}
}

// A host whose clock brings several instants at once reports those that its items
// owe, and none from before an item was first divided.
func TestInstantsBeforeTheItemsAreNotReported(t *testing.T) {
	t.Parallel()
	everySecond, err := schedule.Parse("* * * * * ?", time.UTC)
	if err != nil {
		t.Fatal(err)
	}
	second := func(n int) time.Time { return time.Date(2026, 5, 4, 11, 0, n, 0, time.UTC) }
	for name, tc := range map[string]struct {
		records []int // the second each owned item was begun for last
		parked  int
		want    []int // the first second of each report
	}{
		"nothing is owned":             {nil, 0, nil},
		"all owed":                     {[]int{0, 3}, 0, []int{1}},
		"divided for the first time":   {[]int{3, 4}, 0, []int{4}},
		"the newest is owed alone":     {[]int{5}, 0, nil},
		"begun by another already":     {[]int{7}, 0, nil},
		"one was parked":               {[]int{0}, 1, []int{2, 1}},
		"parked and not owed":          {[]int{3}, 1, []int{4}},
		"parked, and nothing is owned": {nil, 1, nil},
	} {
		j, events := javaJob(t, nil)
		*j.items = *newItems()
		for n, begun := range tc.records {
			it := &item{number: n, owned: true}
			it.state.Record.Instant = second(begun).UnixMilli()
			j.items.put(it)
		}
		j.calendar.Schedule = everySecond
		j.calendar.Next = second(1)
		if tc.parked != 0 {
			j.calendar.Parked, j.calendar.Next = second(tc.parked), second(tc.parked+1)
		}
		j.tick(moment{second(6), second(6)})
		var got []int
		for _, e := range *events {
			if e.Kind == event.FireSkipped {
				got = append(got, e.Instant.Second())
			}
		}
		if !slices.Equal(got, tc.want) {
			t.Errorf("%s: reports from the seconds %v on, want %v", name, got, tc.want)
		}
	}
}

// twoDivisions is a registry that gives a host item 0, and takes it away again as soon as
// the host begins it.
type twoDivisions struct {
	registry.Center
	self string
	lost bool
}

func (c *twoDivisions) Read(_ context.Context, queries ...registry.Query) ([]registry.Node, error) {
	nodes := make([]registry.Node, len(queries))
	for i, q := range queries {
		n := registry.Node{Query: q, Exists: true, Version: 1}
		switch {
		case strings.HasSuffix(q.Path, "/assignment"):
			n.Data = []byte(`{"total":1}`)
		case strings.HasSuffix(q.Path, "/assignment/"+c.self) && !c.lost:
			n.Data = []byte("0")
		case strings.HasSuffix(q.Path, "/sharding/0/instance"):
			n.Data = []byte(c.self)
		case !strings.Contains(q.Path, "/assignment/") && !strings.HasSuffix(q.Path, "/epoch"):
			n = registry.Node{Query: q}
		}
		nodes[i] = n
	}
	return nodes, nil
}

func (c *twoDivisions) Commit(_ context.Context, ops ...registry.Op) ([]registry.Result, error) {
	c.lost = true
	return nil, &registry.OpError{Index: 1, Op: ops[1], Reason: registry.ReasonVersion} // the share's guard
}

// TestParkedInstantWhenTheShareChanges: the items are divided again while a host begins
// the instant that waited for its share.
func TestParkedInstantWhenTheShareChanges(t *testing.T) {
	t.Parallel()
	j, _ := javaJob(t, nil)
	l, self := tree.NewLayout("ns", "j"), tree.JobInstance{ID: "10.0.0.1@-@1"}
	j.member = coordination.Member{Layout: l, Self: self, Registry: &twoDivisions{self: self.ID}}
	j.member.View.Config.MaxTimeDiffSeconds, j.member.View.Config.ShardingTotalCount = -1, 1
	division := registry.Data(l.Assignment())
	j.member.Observe(registry.Snapshot{division: {Query: division, Exists: true, Data: []byte(`{"total":1}`)}})
	j.module.exec = struct{ abi.Executor }{}
	*j.items = *newItems()
	j.work = context.Background()
	now := time.Now()
	j.calendar.Parked = now
	j.takeShare(moment{now, now}, nil)
	j.readShare(moment{now, now}) // the next pass of the loop
	if len(j.items.of) > 0 || len(j.member.Share.Items) > 0 {
		t.Errorf("the host has items %v, its share %v; expected none", j.items.of, j.member.Share.Items)
	}
}
