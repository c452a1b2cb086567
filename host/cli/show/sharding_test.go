package show

import (
	"strings"
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/host/cli/terminal"
	"github.com/wasmjob/wasmjob/host/control/admin"
	"github.com/wasmjob/wasmjob/host/control/cluster"
	"github.com/wasmjob/wasmjob/host/control/report"
	"github.com/wasmjob/wasmjob/host/engine"
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
	text := Instances(terminal.Style{}, s, nil, now)
	for _, want := range []string{
		"STATE    OWNS  RUNNING", "waits: item 1 stays on 10.0.0.1@-@1, which has run it for 20m; the job was resharded 5m ago, while the item ran, and it moves when it ends\n",
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
	if text := Instances(terminal.Style{}, s, nil, now); strings.Contains(text, "waits") {
		t.Errorf("nothing moves:\n%s", text)
	}
}

// TestShardingOfDisabledServers: nobody divides the items while all servers are
// disabled, and status JOB and shards say so.
func TestShardingOfDisabledServers(t *testing.T) {
	t.Parallel()
	const divided, waits = "resharding is under way", "all servers are paused; resharding waits until one is resumed"
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
		for name, text := range map[string]string{"status JOB": Instances(terminal.Style{}, s, nil, time.Now()), "shards": shardsTable(terminal.Style{}, s, time.Now())} {
			if !strings.Contains(text, c.want) || strings.Contains(text, c.not) {
				t.Errorf("%s, %s:\n%s", c.name, name, text)
			}
		}
	}
}

func TestStatusTellsWhatJobsWaitFor(t *testing.T) {
	t.Parallel()
	now := time.Now()
	r := &report.Report{Now: now, Status: engine.Status{Jobs: []*engine.JobStatus{{Name: "j", State: engine.JobSharding, Waits: []engine.WaitStatus{
		{What: event.WaitJavaLeader, Since: now.Add(-2 * time.Minute), Reason: "the items to be sharded", Expired: true},
		{What: event.WaitMark, Since: now, Reason: "what the warnings tell"},
	}, Listeners: []engine.ListenerStatus{{Export: "job_v1_after", Since: now.Add(-20 * time.Second)}}}}}}
	text := Status(terminal.Style{}, r, false)
	if !strings.Contains(text, "j: listener job_v1_after runs for 20s; wasmjob job kill j ends it\n") {
		t.Errorf("the notes lack the listener:\n%s", text)
	}
	if !strings.Contains(text, "j: waits 2m for the items to be sharded\n") || strings.Contains(text, "what the warnings tell") {
		t.Errorf("the notes:\n%s", text)
	}
}

// TestReasonsOfFailures: shards and status JOB say why an item failed last, from the
// registry's record, on every host.
func TestReasonsOfFailures(t *testing.T) {
	t.Parallel()
	s := &admin.Shards{Job: "j", ShardingTotalCount: 2, Instances: []admin.Instance{{ID: "10.0.0.1@-@1", State: "READY"}},
		Items: []admin.Shard{{Item: 0, State: "PENDING", Outcome: "OK"}, {Item: 1, State: "PENDING", Outcome: "TRAP", Reason: "out of bounds"}}}
	for name, text := range map[string]string{"status JOB": Instances(terminal.Style{}, s, nil, time.Now()), "shards": shardsTable(terminal.Style{}, s, time.Now())} {
		if !strings.Contains(text, "\nitem 1: TRAP: out of ") || strings.Contains(text, "item 0:") {
			t.Errorf("%s:\n%s", name, text)
		}
	}
}

// TestHealthOfRegistry: a job is not well because its hosts live: its last fire counts, and what is
// held back.
func TestHealthOfRegistry(t *testing.T) {
	t.Parallel()
	now := time.Now()
	ended := now.Add(-time.Minute)
	text := Namespace(terminal.Style{}, []admin.Brief{
		{Name: "good", Status: "OK", Cron: "0 0 3 * * ?", ShardingTotalCount: 2, Instances: 3, Java: 1, LastOutcome: "OK", LastEnded: ended},
		{Name: "bad", Status: "OK", LastOutcome: "TRAP", LastReason: "out of bounds", LastEnded: ended},
		{Name: "held", Status: "OK", ShardingTotalCount: 4, Held: 2, LastOutcome: "OK", LastEnded: ended},
		{Name: "off", Status: "DISABLED", LastOutcome: "CANCELLED", LastEnded: ended},
		{Name: "gone", Status: "CRASHED", LastOutcome: "OK", LastEnded: ended},
		{Name: "new", Status: "SHARDING_FLAG"},
		{Name: "odd", Status: "OK", Error: "no cron"},
	}, "", now)
	for n, want := range []string{
		"NAME HEALTH STATE CRON ITEMS HOSTS LAST FIRE", "good ok OK 0 0 3 * * ? 2 3 (1 Java) OK, 1m ago", "bad failing OK (by trigger) 0 0 TRAP, 1m ago: out of bounds",
		"held failing OK (by trigger) 4, 2 held 0 OK, 1m ago", "off paused PAUSED (by trigger) 0 0 CANCELLED, 1m ago", "gone error CRASHED (by trigger) 0 0 OK, 1m ago",
		"new ok SHARDING_FLAG (by trigger) 0 0 -", "odd error OK - - 0 cannot be read: no cron",
	} {
		if found := strings.Join(strings.Fields(strings.Split(text, "\n")[n]), " "); found != want {
			t.Errorf("line %d is %q, want %q", n, found, want)
		}
	}

	lives := []admin.Instance{{ID: "a", State: "READY"}, {ID: "b", Gone: true}}
	for _, c := range []struct {
		name         string
		s            admin.Shards
		health, last string
	}{
		{"good", admin.Shards{Instances: lives, LastOutcome: "OK", LastEnded: ended}, "ok", "OK, 1m ago"},
		{"bad", admin.Shards{Instances: lives, LastOutcome: "TRAP", LastReason: "out of bounds", LastEnded: ended}, "failing", "TRAP, 1m ago: out of bounds"},
		{"held", admin.Shards{Instances: lives, Items: []admin.Shard{{Held: now}}}, "failing", "-"},
		{"off", admin.Shards{Instances: []admin.Instance{{ID: "a", Disabled: true}}}, "paused", "-"},
		{"gone", admin.Shards{Instances: lives[1:]}, "error", "-"},
	} {
		text := Instances(terminal.Style{}, &c.s, nil, now)
		if !strings.Contains(text, "health     "+c.health+"\n") || !strings.Contains(text, "last       "+c.last+"\n") || strings.Contains(text, "next") {
			t.Errorf("%s:\n%s", c.name, text)
		}
	}
}

// TestStatusOfAJob: what its hosts say together of a job counts, not what the registry has of it.
func TestStatusOfAJob(t *testing.T) {
	t.Parallel()
	now := time.Now()
	text := Instances(terminal.Style{}, &admin.Shards{Job: "a", LastOutcome: "OK", LastEnded: now}, &cluster.Job{Health: cluster.HealthFailing, Reason: "as it should", Next: now.Add(5 * time.Second),
		Last: &cluster.Last{Outcome: "TRAP", Duration: time.Second, Ended: now.Add(-time.Minute), Message: "out of \x1bbounds\nat main"}}, now)
	for _, want := range []string{"health     failing: as it should\n", "next       in 5s\n", "last       TRAP in 1s, 1m ago: out of \\x1bbounds\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
}

// TestStatusOfAJobThatWasAskedToWait: the line of its health says until when it waits, and why, and an item that its guest has put off says so.
func TestStatusOfAJobThatWasAskedToWait(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)
	j := &cluster.Job{Health: cluster.HealthLate, Next: now.Add(time.Hour), Waits: []engine.WaitStatus{{What: event.WaitRate, Until: now.Add(30 * 24 * time.Hour), Reason: "its turn under rate api"}}}
	text := Instances(terminal.Style{}, &admin.Shards{Job: "a"}, j, now)
	if want := "health     late: it waits until 2026-12-28T12:00:00Z, as its guests asked, for its turn under rate api\n"; !strings.Contains(text, want) {
		t.Errorf("%q is not in\n%s", want, text)
	}
	j.Next = now.Add(60 * 24 * time.Hour)
	if text := Instances(terminal.Style{}, &admin.Shards{Job: "a"}, j, now); strings.Contains(text, "as its guests asked") {
		t.Errorf("it fires after that:\n%s", text)
	}
	text = Shards(terminal.Style{}, &admin.Shards{Job: "a", Items: []admin.Shard{{Item: 1, State: "PENDING", Misfired: true, Outcome: "RETRY_AT", NotBefore: now.Add(time.Hour)}}}, now)
	if !strings.Contains(text, "waits until 2026-11-28T13:00:00Z") || !strings.Contains(text, "RETRY_AT") {
		t.Errorf("the item is shown as\n%s", text)
	}
}

// TestQueuedItems: an instance shows what waits for a slot beside what runs, if something does.
func TestQueuedItems(t *testing.T) {
	t.Parallel()
	s := &admin.Shards{Job: "j", Instances: []admin.Instance{{ID: "10.0.0.1@-@1", State: "RUNNING", Items: "0-3", Running: "0,1", Queued: "2-3"}},
		Items: []admin.Shard{{Item: 2, Owner: "10.0.0.1@-@1", State: "QUEUED"}}}
	for _, text := range []string{Instances(terminal.Style{}, s, nil, time.Now()), Shards(terminal.Style{}, s, time.Now())} {
		if !strings.Contains(text, "QUEUED") || !strings.Contains(text, "0,1") && !strings.Contains(text, "2") {
			t.Errorf("no items are queued:\n%s", text)
		}
	}
	s.Instances[0].Queued = ""
	if text := Instances(terminal.Style{}, s, nil, time.Now()); strings.Contains(text, "QUEUED") {
		t.Errorf("a column for nothing:\n%s", text)
	}
}

// TestStatusWarnings: what is wrong with the host as a whole is among the notes.
func TestStatusWarnings(t *testing.T) {
	t.Parallel()
	text := Status(terminal.Style{}, &report.Report{Warnings: []string{"a directory is mounted for job \"improt\", and there is no such job"}}, false)
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
	text := Shards(terminal.Style{}, s, time.Now())
	for _, want := range []string{"ITEM", "INSTANCE", "READY, leads", "0123456789ab\n", "10.0.0.9@-@9", "JAVA"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
	s.Job, s.Items[0].Held, s.Items[0].Deaths = "the job", time.Now(), 2
	if text := Shards(terminal.Style{}, s, time.Now()); !strings.Contains(text, `wasmjob job release "the job" --item 0 lets it run again`) {
		t.Errorf("of an item that is held back:\n%s", text)
	}
	s.Leader, s.Instances = "", nil
	if text := Shards(terminal.Style{}, s, time.Now()); !strings.Contains(text, "no leader") || !strings.Contains(text, "no instances") {
		t.Errorf("without instances:\n%s", text)
	}
}

// TestTriggersThatWait: the status of a job has the length of the queue of triggers, and what each waits for.
func TestTriggersThatWait(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)
	param := "a\n" + strings.Repeat("x", 200)
	s := &admin.Shards{Job: "pay", ShardingTotalCount: 4, Instances: []admin.Instance{{ID: "10.0.0.1@-@1", State: "RUNNING"}}, Triggers: &admin.Triggers{Length: 22,
		First: &admin.FirstTrigger{Trigger: 71, Since: now.Add(-time.Minute), Hosts: []string{"10.0.0.1@-@1"}, Items: "2"},
		Queue: []admin.QueuedTrigger{{Queued: 75, Asked: admin.Asked{Items: "0-2", Param: &param}}, {Queued: 79, Asked: admin.Asked{At: now, Backfill: true}}}}}
	text := Instances(terminal.Style{}, s, nil, now)
	for _, want := range []string{"\n22 triggers queued\n", "71       all items ", "what runs on 10.0.0.1@-@1 and the new owner of items 2, made 1m ago", `75       items 0-2, parameter "a"`, "trigger 71\n",
		"79       all items, 2026-11-28T12:00:00Z of a backfill", "trigger 75\n", "20 triggers more"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
	if s.Triggers = nil; strings.Contains(Instances(terminal.Style{}, s, nil, now), "queued") {
		t.Error("there is a queue, and no trigger waits")
	}
}

func TestNamespace_none(t *testing.T) {
	t.Parallel()
	const none = "no jobs in namespace prd; there are some in prod"
	if text := Namespace(terminal.Style{}, nil, none, time.Now()); text != none+"\n" {
		t.Errorf("found %q", text)
	}
}

// TestDisabled: shards and status JOB say which servers are paused for the job, also those on which
// no instance is, and which items.
func TestDisabled(t *testing.T) {
	t.Parallel()
	now := time.Now()
	s := &admin.Shards{Job: "my job", ShardingTotalCount: 4, Instances: []admin.Instance{{ID: "10.0.0.1@-@1", State: "READY", Leader: true}, {ID: "10.0.0.2@-@2", State: "READY", Disabled: true}},
		DisabledServers: []string{"10.0.0.2", "10.0.0.9"}, Items: []admin.Shard{{Item: 0}, {Item: 1, Disabled: true}, {Item: 2}, {Item: 3, Disabled: true}}}
	shards, status := Shards(terminal.Style{}, s, now), Instances(terminal.Style{}, s, nil, now)
	for _, text := range []string{shards, status} {
		for _, want := range []string{"READY, paused", "READY, leads", "servers 10.0.0.2, 10.0.0.9 are paused for the job: wasmjob job resume \"my job\" lets it run on all servers\n"} {
			if !strings.Contains(text, want) {
				t.Errorf("%q is not in\n%s", want, text)
			}
		}
	}
	if want := "items 1,3 are paused: wasmjob job resume \"my job\" --item N\n"; !strings.Contains(status, want) {
		t.Errorf("%q is not in\n%s", want, status)
	}
	if got := Enabled(s); got != `resumed my job on 10.0.0.2, 10.0.0.9; items 1,3 stay paused: wasmjob job resume "my job" --item N` {
		t.Error(got)
	}
	s.Items = s.Items[:2]
	if got := Instances(terminal.Style{}, s, nil, now); !strings.Contains(got, "item 1 is paused: wasmjob job resume \"my job\" --item 1\n") {
		t.Error(got)
	}
	if s.DisabledServers, s.Items, s.Instances[1].Disabled = nil, s.Items[:1], false; strings.Contains(Instances(terminal.Style{}, s, nil, now), "paused") {
		t.Error("nothing is paused")
	}
}

// TestAlready: what is disabled or enabled already is not said to have been made so.
func TestAlready(t *testing.T) {
	t.Parallel()
	item := func(disabled bool) []admin.Shard { return []admin.Shard{{Item: 0}, {Item: 1, Disabled: disabled}} }
	on := &admin.Shards{Job: "talk", Instances: []admin.Instance{{Server: "a"}, {Server: "b"}}, Items: item(false)}
	half := &admin.Shards{Job: "talk", Instances: []admin.Instance{{Server: "a", Disabled: true}, {Server: "b"}}, DisabledServers: []string{"a"}, Items: item(true)}
	off := &admin.Shards{Job: "talk", Instances: []admin.Instance{{Server: "a", Disabled: true}, {Server: "b", Gone: true}}, DisabledServers: []string{"a"}, Items: item(true)}
	for n, tc := range []struct {
		before *admin.Shards
		enable bool
		server string
		item   int
		want   string
	}{
		{on, true, "", -1, "talk is not paused"},
		{on, false, "", -1, ""},
		{half, true, "", -1, ""},
		{half, false, "", -1, ""},
		{off, false, "", -1, "talk is paused already"},
		{&admin.Shards{Job: "talk", Items: item(true)}, true, "", -1, "talk is not paused; item 1 stays paused: wasmjob job resume talk --item 1"},
		{half, false, "a", -1, "server a for talk is paused already"},
		{half, true, "b", -1, "server b for talk is not paused"},
		{half, false, "b", -1, ""},
		{off, false, "", 1, "item 1 of talk is paused already"},
		{off, true, "", 0, "item 0 of talk is not paused"},
		{off, true, "", 1, ""},
		{off, true, "", 7, ""},
		{&admin.Shards{Job: "talk", DisabledServers: []string{"a"}}, false, "", -1, ""},
	} {
		if got := Already(tc.before, tc.enable, tc.server, tc.item); got != tc.want {
			t.Errorf("%d: found %q, expected %q", n, got, tc.want)
		}
	}
	at := time.Now().Add(-time.Hour)
	if got := Since(&cluster.Paused{By: "ann", At: at, Why: "db maintenance"}, time.Now()); !strings.HasSuffix(got, " by ann: db maintenance") || !strings.HasPrefix(got, ", since ") {
		t.Errorf("found %q", got)
	}
}
