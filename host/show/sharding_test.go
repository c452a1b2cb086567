package show

import (
	"strings"
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/host"
	"github.com/wasmjob/wasmjob/host/admin"
	"github.com/wasmjob/wasmjob/host/console"
	"github.com/wasmjob/wasmjob/host/event"
)

// status JOB tells of an item for whose end a move waits: which, where it runs,
// since when, and why.
func TestStatusOfAJobTellsOfItemsThatAreToMove(t *testing.T) {
	t.Parallel()
	now := time.Now()
	s := &admin.Shards{Job: "j", ShardingTotalCount: 3, Instances: []admin.Instance{{ID: "10.0.0.1@-@1", State: "RUNNING"}, {ID: "10.0.0.2@-@2", State: "READY"}},
		Items: []admin.Shard{
			{Item: 0, Owner: "10.0.0.2@-@2", State: "PENDING"},
			{Item: 1, Owner: "10.0.0.1@-@1", State: "RUNNING", RunningOn: "10.0.0.1@-@1", Fence: 9, Begun: now.Add(-20 * time.Minute), Moves: true, MovesSince: now.Add(-5 * time.Minute)},
			{Item: 2, Owner: "10.0.0.1@-@1", State: "RUNNING", RunningOn: "10.0.0.3@-@3", Begun: now.Add(-time.Hour), Moves: true, MovesSince: now.Add(-5 * time.Minute)},
		}}
	text := Instances(console.Style{}, s, now)
	for _, want := range []string{
		"waits: item 1 stays on 10.0.0.1@-@1, which has run it for 20m; the job was resharded 5m ago, while the item ran, and it moves when it ends\n",
		"waits: item 2 stays on 10.0.0.3@-@3; the job was resharded 5m ago", // a Java host: what the record says is of another run
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
	if strings.Contains(text, "item 0") || strings.Count(text, "waits:") != 2 {
		t.Errorf("more than the two items that are to move:\n%s", text)
	}
	s.Items = s.Items[:1]
	if text := Instances(console.Style{}, s, now); strings.Contains(text, "waits") {
		t.Errorf("nothing moves:\n%s", text)
	}
}

// TestShardingOfDisabledServers: nobody divides the items while all servers are
// disabled, and status JOB and shards say so.
func TestShardingOfDisabledServers(t *testing.T) {
	t.Parallel()
	const divided, waits = "resharding is under way", "all servers are disabled; resharding waits until one is enabled"
	for _, c := range []struct {
		name      string
		instances []admin.Instance
		want, not string
	}{
		{"all disabled", []admin.Instance{{ID: "a", Disabled: true}, {ID: "b", Disabled: true}, {ID: "c", Gone: true}}, waits, divided},
		{"one enabled", []admin.Instance{{ID: "a", Disabled: true}, {ID: "b"}}, divided, waits},
		{"no instance", nil, divided, waits},
	} {
		s := &admin.Shards{Job: "j", Sharding: true, ShardingTotalCount: 1, Instances: c.instances, Items: []admin.Shard{{State: "SHARDING_FLAG"}}}
		for name, text := range map[string]string{"status JOB": Instances(console.Style{}, s, time.Now()), "shards": shardsTable(console.Style{}, s, time.Now())} {
			if !strings.Contains(text, c.want) || strings.Contains(text, c.not) {
				t.Errorf("%s, %s:\n%s", c.name, name, text)
			}
		}
	}
}

func TestStatusTellsWhatJobsWaitFor(t *testing.T) {
	t.Parallel()
	now := time.Now()
	r := &admin.Report{Now: now, Status: host.Status{Jobs: []host.JobStatus{{Name: "j", State: host.JobSharding, Waits: []host.WaitStatus{
		{What: event.WaitJavaLeader, Since: now.Add(-2 * time.Minute), Reason: "the items to be divided", Expired: true},
		{What: event.WaitMark, Since: now, Reason: "what the warnings tell"},
	}}}}}
	text := Status(console.Style{}, r, false)
	if !strings.Contains(text, "j: waits 2m for the items to be divided\n") || strings.Contains(text, "what the warnings tell") {
		t.Errorf("the notes:\n%s", text)
	}
}

// TestReasonsOfFailures: shards and status JOB say why an item failed last, from the
// registry's record, on every host.
func TestReasonsOfFailures(t *testing.T) {
	t.Parallel()
	s := &admin.Shards{Job: "j", ShardingTotalCount: 2, Instances: []admin.Instance{{ID: "10.0.0.1@-@1", State: "READY"}},
		Items: []admin.Shard{{Item: 0, State: "PENDING", Outcome: "OK"}, {Item: 1, State: "PENDING", Outcome: "TRAP", Reason: "out of \x1bbounds"}}}
	for name, text := range map[string]string{"status JOB": Instances(console.Style{}, s, time.Now()), "shards": shardsTable(console.Style{}, s, time.Now())} {
		if !strings.Contains(text, "\nitem 1: TRAP: out of ") || strings.Contains(text, "\x1b") || strings.Contains(text, "item 0:") {
			t.Errorf("%s:\n%s", name, text)
		}
	}
}

// TestBriefTable: a job whose items failed is not just OK.
func TestBriefTable(t *testing.T) {
	t.Parallel()
	text := Namespace(console.Style{}, []admin.Brief{
		{Name: "good", Status: "OK", LastOutcome: "OK", LastEnded: time.Now().Add(-time.Minute)},
		{Name: "bad", Status: "OK", LastOutcome: "TRAP", LastReason: "out of bounds", LastEnded: time.Now().Add(-time.Minute)},
		{Name: "new", Status: "OK", ShardingTotalCount: 4, Held: 2},
	})
	for _, want := range []string{"LAST FIRE", "4 (2 held)", "OK, 1m ago", "TRAP, 1m ago", "\nbad: TRAP: out of bounds\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
}

// TestStatusWarnings: what is wrong with the host as a whole is among the notes.
func TestStatusWarnings(t *testing.T) {
	t.Parallel()
	text := Status(console.Style{}, &admin.Report{Warnings: []string{"a directory is mounted for job \"improt\", and there is no such job"}}, false)
	if !strings.Contains(text, "Notes\nwarning: a directory is mounted for job \"improt\"") {
		t.Errorf("the notes:\n%s", text)
	}
}

// TestShardsText: shards names the leader, and the instances with their modules.
func TestShardsText(t *testing.T) {
	t.Parallel()
	s := &admin.Shards{Job: "j", ShardingTotalCount: 1, Leader: "10.0.0.1@-@1", Instances: []admin.Instance{
		{ID: "10.0.0.1@-@1", State: "READY", Leader: true, Digest: "0123456789abcdef"}, {ID: "10.0.0.9@-@9", State: "JAVA", Java: true},
	}, Items: []admin.Shard{{Item: 0, Owner: "10.0.0.1@-@1", State: "PENDING"}}}
	text := Shards(console.Style{}, s, time.Now())
	for _, want := range []string{"ITEM", "INSTANCE", "READY, leads", "0123456789ab\n", "10.0.0.9@-@9", "JAVA"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
	s.Leader, s.Instances = "", nil
	if text := Shards(console.Style{}, s, time.Now()); !strings.Contains(text, "no leader") || !strings.Contains(text, "no instances") {
		t.Errorf("without instances:\n%s", text)
	}
}
