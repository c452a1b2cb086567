package admin

import (
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/coordination/registry"
)

// TestKillFollowsATakeover: a host that does not find the kill, one of an earlier version, takes the
// run over. It has not ended before it ends there.
func TestKillFollowsATakeover(t *testing.T) {
	t.Parallel()
	r, _ := namespace(t, "a")
	const (
		dead, taker = "10.0.0.9@-@a", "10.0.0.1@-@a"
		tree        = "/ns.wasmjob/a"
		list        = `{"runs":[{"instant":1,"source":"schedule","items":"0","marked":true}]}`
	)
	commit := func(ops ...registry.Op) {
		t.Helper()
		if _, err := r.center().Commit(t.Context(), ops...); err != nil {
			t.Fatal(err)
		}
	}
	set := func(path, data string) []registry.Op {
		return []registry.Op{registry.Ensure(path), registry.Set(path, []byte(data), registry.AnyVersion)}
	}
	commit(set(tree+"/runs/"+dead, list)...)
	commit(set(tree+"/sharding/0", `{"owner":"`+dead+`","instant":1,"begun":5,"source":"schedule"}`)...)
	var seen []string
	kills, err := r.Kill(t.Context(), "a", KillOptions{Item: -1, Wait: time.Minute}, func(k *Kills) {
		run := k.Runs[0]
		seen = append(seen, string(run.State)+" "+run.Host)
		switch len(seen) {
		case 1:
			commit(append(set(tree+"/runs/"+taker, list), append(set(tree+"/sharding/0", `{"owner":"`+taker+`","instant":1,"begun":9,"source":"failover","former":{"owner":"`+dead+`","begun":5}}`),
				registry.Delete(tree+"/runs/"+dead, registry.AnyVersion))...)...)
		case 3: // it watches the taker's list
			commit(append(set(tree+"/runs/"+taker, ""), set(tree+"/sharding/0", `{"owner":"`+taker+`","instant":1,"begun":9,"ended":12,"source":"failover","outcome":"OK","former":{"owner":"`+dead+`","begun":5}}`)...)...)
		}
	})
	if err != nil || kills.Open() != 0 || kills.Runs[0].State != KillEnded || kills.Runs[0].Outcome != "OK" || kills.Runs[0].Host != taker {
		t.Errorf("told is %+v, %v; before that %q", kills, err, seen)
	}
	if len(seen) < 3 || seen[0] != "host gone "+dead || seen[1] != "asked "+taker {
		t.Errorf("told was %q", seen)
	}
}

// TestKillOnAnOlderHost: who asks is told that it must be upgraded, at once.
func TestKillOnAnOlderHost(t *testing.T) {
	t.Parallel()
	r, look := namespace(t, "a")
	const id, path = "10.0.0.1@-@a", "/ns.wasmjob/a/sharding/0"
	record := `{"owner":"` + id + `","instant":1,"begun":5,"source":"schedule"}`
	for node, data := range map[string]string{path: record, "/ns.wasmjob/a/runs/" + id: `{"runs":[{"instant":1,"source":"schedule","items":"0"}]}`} {
		if _, err := r.center().Commit(t.Context(), registry.Ensure(node), registry.Set(node, []byte(data), registry.AnyVersion)); err != nil {
			t.Fatal(err)
		}
	}
	kills, err := r.Kill(t.Context(), "a", KillOptions{Item: -1, Wait: time.Hour}, nil)
	if after, _ := look(path); err != nil || kills.Open() != 1 || kills.Runs[0].State != KillOlder || after != record {
		t.Errorf("%+v, %v; the record is %s", kills, err, after)
	}
}
