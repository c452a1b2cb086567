package coordination_test

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/coordination/admin/inspect"
	"github.com/wasmjob/wasmjob/coordination/jobconfig"
	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/tree"
)

// TestReadShards: what an operator sees while items run, are disabled, wait
// for a taker, and belong to a Java host.
func TestReadShards(t *testing.T) {
	t.Parallel()
	c, h := group(t, 2, func(cfg *jobconfig.Configuration) {
		cfg.Failover, cfg.ShardingItemParameters = true, "0=Beijing,5=Berlin"
	})
	a, b := h[0], h[1]
	c.pass(10 * time.Second)
	must(t, a.complete(a.running(), "OK", ""))
	owed := b.running()
	c.must(c.operate(moves.SetItem(c.layout, owed[0], false)))
	c.hand(registry.Create(c.mark(a.owned()[1], "misfire"), nil))
	var s inspect.Shards
	must(t, c.operate(moves.ReadShards(c.layout, &s)))
	if s.Leader != a.Self.ID || s.Sharding || s.Configuration.ShardingTotalCount != 6 || len(s.Items) != 6 || len(s.Instances) != 2 {
		t.Fatalf("shards %+v", s)
	}
	for _, it := range s.Items {
		mine := a.owned().Contains(it.Item)
		want := inspect.ShardRunning
		switch {
		case mine:
			want = inspect.ShardPending
		case it.Item == owed[0]:
			want = inspect.ShardDisabled
		}
		if it.State != want || (it.Fence != 0) != !mine || (it.RunningOn == b.Self.ID) != !mine || it.Misfired != (it.Item == a.owned()[1]) || it.Failover {
			t.Errorf("item %d: %+v, want it to be %s", it.Item, it, want)
		}
		if !mine && it.Fence != b.items[it.Item].state.RecordZxid {
			t.Errorf("item %d: fence %d, want %d", it.Item, it.Fence, b.items[it.Item].state.RecordZxid)
		}
	}
	if s.Items[0].Parameter != "Beijing" || s.Items[5].Parameter != "Berlin" || s.Items[1].Parameter != "" {
		t.Errorf("parameters %q %q %q", s.Items[0].Parameter, s.Items[1].Parameter, s.Items[5].Parameter)
	}
	for k, host := range []*simHost{a, b} {
		i := s.Instances[k]
		state := tree.DetailReady
		if host == b {
			state = tree.DetailRunning
		}
		if i.ID != host.Self.ID || i.ServerIP != host.ip || i.Java || i.Gone || i.State != state || !slices.Equal(i.Items, host.owned()) ||
			!slices.Equal(i.Runs, host.running()) || !i.Begun.Equal(c.now) || i.Completed.IsZero() != (host == b) || i.Detail.Digest != "sha256:d0" {
			t.Errorf("instance %+v", i)
		}
	}

	// B dies: its items wait for a taker. A Java host comes.
	b.crash()
	java := "10.0.0.9@-@77"
	c.hand(registry.CreateEphemeral(c.layout.Root()+"/instances/"+java, nil), registry.Create(c.layout.Root()+"/servers/10.0.0.9", []byte("DISABLED")),
		registry.Create(c.mark(a.owned()[0], "running"), []byte(java)))
	must(t, c.operate(moves.ReadShards(c.layout, &s)))
	for _, it := range s.Items {
		switch {
		case it.Item == owed[0] && (it.State != inspect.ShardDisabled || !it.Failover),
			it.Item != owed[0] && owed.Contains(it.Item) && (it.State != inspect.ShardFailover || !it.Failover || it.RunningOn != ""),
			it.Item == a.owned()[0] && (it.State != inspect.ShardRunning || it.RunningOn != java || it.Fence != 0):
			t.Errorf("item %+v", it)
		}
	}
	var gone, other inspect.ShardInstance
	for _, i := range s.Instances {
		switch i.ID {
		case b.Self.ID:
			gone = i
		case java:
			other = i
		}
	}
	if !gone.Gone || gone.State != "" || !slices.Equal(gone.Runs, owed) {
		t.Errorf("the host that died is %+v", gone)
	}
	if !other.Java || other.Gone || !other.Disabled || !slices.Equal(other.Runs, a.owned()[:1]) {
		t.Errorf("the Java host is %+v", other)
	}
	if err := c.operate(moves.ReadShards(tree.NewLayout(c.layout.Namespace, "nobody"), &s)); !errors.Is(err, tree.ErrRemoved) {
		t.Errorf("a job that is not there: %v", err)
	}
}

// TestReadJobs: a namespace in lines, as ElasticJob's console has it.
func TestReadJobs(t *testing.T) {
	t.Parallel()
	c, h := group(t, 2, func(cfg *jobconfig.Configuration) { cfg.Description = "for a test" })
	one := func() inspect.JobBrief {
		t.Helper()
		var all []inspect.JobBrief
		must(t, c.operate(moves.ReadJobs(c.layout.Namespace, &all)))
		if len(all) != 1 {
			t.Fatalf("jobs %+v", all)
		}
		return all[0]
	}
	want := inspect.JobBrief{Name: "demo", Description: "for a test", Cron: "0/10 * * * * ?", Total: 6, Status: inspect.JobOK, Instances: 2, Leader: h[0].Self.ID}
	if got := one(); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	// The worst outcome of the newest fire is shown.
	c.pass(10 * time.Second)
	must(t, h[0].complete(h[0].running(), "OK", ""))
	failed := h[1].running()
	must(t, h[1].complete(failed[:1], "TRAP", ""))
	must(t, h[1].complete(failed[1:], "FAIL", ""))
	if got := one(); got.Status != inspect.JobOK || got.LastOutcome != "TRAP" || !got.LastEnded.Equal(c.now) {
		t.Errorf("after a fire with a trap it is %+v", got)
	}
	c.hand(registry.Create(tree.JobsPath(c.layout.Namespace)+"/no-job", nil))
	must(t, c.operate(moves.SetServers(c.layout, false)))
	if got := one(); got.Status != inspect.JobDisabled {
		t.Errorf("disabled it is %+v", got)
	}
	must(t, c.operate(moves.SetServers(c.layout, true)))
	h[1].crash()
	if got := one(); got.Status != inspect.JobShardingFlag || got.Instances != 1 {
		t.Errorf("while an owner is gone it is %+v", got)
	}
	h[0].crash()
	if got := one(); got.Status != inspect.JobCrashed || got.Leader != "" {
		t.Errorf("without an instance it is %+v", got)
	}
	c.hand(registry.Set(c.layout.Root()+"/config", []byte("no: [configuration"), registry.AnyVersion))
	if got := one(); got.Error == "" || got.Total != 0 {
		t.Errorf("with a configuration that cannot be read it is %+v", got)
	}
	c.hand(registry.Create(c.layout.Root()+"/config/cron", []byte("0 0 0 * * ?")))
	if got := one(); got.Status != inspect.Job1x || !strings.Contains(got.Error, "1.x") {
		t.Errorf("a job of 1.x is %+v", got)
	}
	var none []inspect.JobBrief
	must(t, c.operate(moves.ReadJobs("nowhere", &none)))
	if len(none) != 0 {
		t.Errorf("a namespace that is not there has %+v", none)
	}
}

// TestReadManyJobs: more jobs than one read asks for.
func TestReadManyJobs(t *testing.T) {
	t.Parallel()
	c, _ := group(t, 1, nil)
	config := c.node(c.layout.Root() + "/config").Data
	for i := range 230 {
		root := tree.JobsPath(c.layout.Namespace) + "/job" + string(rune('a'+i/26)) + string(rune('a'+i%26))
		c.hand(registry.Create(root, nil), registry.Create(root+"/config", config))
	}
	var all []inspect.JobBrief
	must(t, c.operate(moves.ReadJobs(c.layout.Namespace, &all)))
	if len(all) != 231 || !slices.IsSortedFunc(all, func(a, b inspect.JobBrief) int {
		if a.Name < b.Name {
			return -1
		}
		return 1
	}) {
		t.Errorf("%d jobs", len(all))
	}
}

// TestAnItemOfOneThatIsGoneCanBeShown: what an operator sees of a job while an
// owner is offline.
func TestAnItemOfOneThatIsGoneCanBeShown(t *testing.T) {
	t.Parallel()
	c, h := group(t, 2, nil)
	gone, items := h[1].Self.ID, h[1].owned()
	h[1].crash()
	var s inspect.Shards
	must(t, c.operate(moves.ReadShards(c.layout, &s)))
	for _, it := range s.Items {
		want := inspect.ShardPending
		if items.Contains(it.Item) {
			want = inspect.ShardSharding
		}
		if it.State != want {
			t.Errorf("item %d: %+v, want it to be %s", it.Item, it, want)
		}
	}
	if i := slices.IndexFunc(s.Instances, func(i inspect.ShardInstance) bool { return i.ID == gone }); i < 0 || !s.Instances[i].Gone {
		t.Errorf("the host that is gone is not shown as such: %+v", s.Instances)
	}
}
