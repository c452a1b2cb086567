package engine

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/coordination"
	"github.com/wasmjob/wasmjob/coordination/tree"
	"github.com/wasmjob/wasmjob/host/engine/run"
	"github.com/wasmjob/wasmjob/host/event"
	"github.com/wasmjob/wasmjob/host/schedule/due"
)

// Each wait of a loop shows in the status from its begin on, is told of once
// when it has taken too long, and is forgotten when it ends.
func TestAWaitThatTakesTooLongIsToldOnce(t *testing.T) {
	t.Parallel()
	owes := func(j *job, n int) {
		j.items.put(&item{number: n, owned: true, held: true, Owed: due.Owed{Due: &tree.Fire{Instant: 1}}})
	}
	for what, c := range map[event.Wait]struct {
		begin, end func(j *job)
		limit      time.Duration
		items      []int
		words      []string
	}{
		event.WaitRegistry: {
			begin: func(j *job) { j.seen = false }, end: func(j *job) { j.seen = true },
			limit: longestBusiness, words: []string{"the registry to show the job"},
		},
		event.WaitSharding: {
			begin: func(j *job) { j.member.View.Necessary = true }, end: func(j *job) { j.member.View.Necessary = false },
			limit: longestBusiness, words: []string{"sharded by the leader, " + ourselves},
		},
		event.WaitJavaLeader: {
			begin: func(j *job) {
				j.member.View.Leader, j.member.View.OurTerm, j.member.View.Processing = aJavaHost, false, true
			},
			end:   func(j *job) { j.member.View.Processing = false },
			limit: longestBusiness, words: []string{aJavaHost, "wasmjob job drain mixed --instance " + aJavaHost},
		},
		event.WaitTakeover: {
			begin: func(j *job) { j.member.View.Members = append(j.member.View.Members, "10.0.0.9@-@9-cc") },
			end:   func(j *job) { j.member.View.Members = j.member.View.Members[:2] },
			limit: longestRun, words: []string{"10.0.0.9@-@9-cc", "a host with the module"},
		},
		event.WaitMark: {
			begin: func(j *job) { owes(j, 4); owes(j, 2) }, end: func(j *job) { j.items.get(2).Due, j.items.get(4).Due = nil, nil },
			limit: longestRun, items: []int{2, 4}, words: []string{"items 2,4", "marked as running elsewhere"},
		},
		event.WaitMove: {
			begin: func(j *job) { j.member.View.Division.Pending = tree.Items{1, 3} }, end: func(j *job) { j.member.View.Division.Pending = nil },
			limit: longestRun, items: []int{1, 3}, words: []string{"items 1,3", "wasmjob status mixed"},
		},
		event.WaitTrigger: {
			begin: func(j *job) { j.member.View.Trigger = 7 }, end: func(j *job) { j.member.View.Trigger = 0 },
			limit: longestRun, words: []string{"to serve a trigger"},
		},
		event.WaitDrain: {
			begin: func(j *job) {
				j.exit.draining = true
				for _, n := range []int{1, 3} {
					j.items.put(&item{number: n, run: new(run.Execution)})
				}
			},
			end:   func(j *job) { clear(j.items.of) },
			limit: defaultDrain, items: []int{1, 3}, words: []string{"items 1,3 to end"},
		},
	} {
		t.Run(string(what), func(t *testing.T) {
			j, events := javaJob(t, nil)
			j.joined, j.seen, j.member.View.Enabled = true, true, true
			j.member.View.Division.Total, j.member.Share = 5, coordination.Share{Items: tree.Items{}}
			step := func(d time.Duration, told int) {
				t.Helper()
				j.ongoing.watch(at(d))
				if len(*events) != told {
					t.Fatalf("%s after the start %d events, want %d: %+v", d, len(*events), told, *events)
				}
			}
			step(0, 0)
			if s := j.ongoing.status(at(0)); len(s) != 0 || !j.ongoing.at.IsZero() {
				t.Fatalf("it waits for nothing, and tells of %+v", s)
			}
			c.begin(j)
			step(time.Second, 0)
			s := j.ongoing.status(at(time.Minute))
			if len(s) != 1 || s[0].What != what || !s[0].Since.Equal(at(time.Second).wall) || !slices.Equal(s[0].Items, c.items) || s[0].Expired || s[0].Reason == "" {
				t.Fatalf("status: %+v", s)
			}
			end := time.Second + c.limit
			if !j.ongoing.at.Equal(at(end).Time) {
				t.Errorf("the loop wakes at %s for it, want %s", j.ongoing.at, at(end).Time)
			}
			for _, it := range j.items.of {
				it.held = false // a snapshot came, and it is tried again
			}
			step(end-1, 0)
			step(end, 1)
			step(end+time.Hour, 1)
			e := (*events)[0]
			if e.Kind != event.JobError || e.Wait != what || e.Duration != c.limit || !slices.Equal(e.Items, c.items) {
				t.Errorf("told: %+v", e)
			}
			for _, w := range c.words {
				if !strings.Contains(e.Reason, w) {
					t.Errorf("%q is not in %q", w, e.Reason)
				}
			}
			if s := j.ongoing.status(at(end)); len(s) != 1 || !s[0].Expired {
				t.Errorf("status when it was told: %+v", s)
			}
			c.end(j)
			step(end+2*time.Hour, 1)
			if s := j.ongoing.status(at(end)); len(s) != 0 || !j.ongoing.at.IsZero() {
				t.Errorf("it waits no more, and tells of %+v", s)
			}
			c.begin(j)
			step(end+3*time.Hour, 1)
			step(end+3*time.Hour+c.limit, 2)
		})
	}
}

// Items are waited for one by one: one that comes later does not look as old as
// the oldest, and is told of by itself.
func TestWaitsForItemsAreToldApart(t *testing.T) {
	t.Parallel()
	j, events := javaJob(t, nil)
	j.joined, j.seen, j.member.View.Enabled = true, true, true
	j.member.View.Division.Total, j.member.Share = 5, coordination.Share{Items: tree.Items{}}
	j.member.View.Division.Pending = tree.Items{1}
	j.ongoing.watch(at(0))
	j.member.View.Division.Pending = tree.Items{1, 2}
	j.ongoing.watch(at(time.Minute))
	j.member.View.Division.Pending = tree.Items{2}
	j.ongoing.watch(at(2 * time.Minute))
	if s := j.ongoing.status(at(0)); len(s) != 1 || !s[0].Since.Equal(at(time.Minute).wall) {
		t.Errorf("item 1 has ended, and the status says %+v", s)
	}
	j.member.View.Division.Pending = tree.Items{2, 3}
	j.ongoing.watch(at(time.Minute + longestRun))
	j.ongoing.watch(at(time.Minute + 2*longestRun))
	if len(*events) != 2 || !slices.Equal((*events)[0].Items, []int{2}) || !slices.Equal((*events)[1].Items, []int{3}) {
		t.Errorf("told: %+v", *events)
	}
	// Who neither leads nor runs them has nothing to say.
	j.member.View.Leader = ofOurs
	j.ongoing.watch(at(0))
	if s := j.ongoing.status(at(0)); len(s) != 0 {
		t.Errorf("another host leads, and the status says %+v", s)
	}
}
