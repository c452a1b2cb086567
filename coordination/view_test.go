package coordination

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/coordination/jobconfig"
	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/tree"
)

// FuzzParseView feeds nodes of any content to the view and to what reads it.
func FuzzParseView(f *testing.F) {
	f.Add([]byte("jobName: demo\nshardingTotalCount: 3\n"), "10.0.0.1@-@A\n10.0.0.2@-@B", "10.0.0.1@-@A", []byte(`{"total":3,"members":["x"],"pending":"0-2"}`), "necessary,0,-1,x", int32(1))
	f.Add([]byte("{"), "", "x", []byte(`{"pending":"0-999999,0-999999"}`), "0", int32(0))
	f.Add([]byte(nil), "@-@\n@-@@-@", "", []byte("null"), "processing", int32(-1))
	f.Fuzz(func(t *testing.T, config []byte, instances, leader string, division []byte, names string, version int32) {
		l := tree.NewLayout("ns", "demo")
		self := tree.NewJobInstance("10.0.0.1", "A")
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
		set(registry.Data(l.Config()), node(config))
		set(registry.Data(l.Assignment()), node(division))
		set(registry.Data(l.Members()), node([]byte(instances)))
		set(registry.Children(l.Instances()), registry.Node{Exists: true, Names: strings.Split(instances, "\n")})
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

// TestDivisionStale names the reasons, and that a configuration that cannot
// be read is none.
func TestDivisionStale(t *testing.T) {
	t.Parallel()
	self := tree.NewJobInstance("10.0.0.1", "A")
	base := View{Layout: tree.NewLayout("ns", "demo"), Self: self, Exists: true, Enabled: true, Instances: []string{"10.0.0.2@-@B", self.ID},
		Config:       jobconfig.Configuration{ShardingTotalCount: 3},
		Division:     tree.Division{Members: []string{"10.0.0.2@-@B", self.ID}, Instances: []string{"10.0.0.2@-@B", self.ID}, Counts: tree.Counts{Total: 3}, Strategy: "AVG_ALLOCATION"},
		divisionNode: registry.Node{Exists: true, Data: []byte("x")}}
	for _, c := range []struct {
		change func(*View)
		want   string
	}{
		{func(*View) {}, ""},
		{func(v *View) { v.divisionNode = registry.Node{} }, "items were never sharded"},
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
		{func(v *View) { v.Enabled = false }, "this server was paused"},
		{func(v *View) { v.Enabled, v.Division.Excluded = false, []string{self.ID} }, ""},
		{func(v *View) { v.Division.Excluded = []string{self.ID} }, "this server was resumed"},
		{func(v *View) { v.Division.Pending = tree.Items{1} }, ""},
	} {
		v := base
		c.change(&v)
		if got := v.DivisionStale().String(); got != c.want {
			t.Errorf("stale %q, want %q", got, c.want)
		}
	}
}
