package admin

import (
	"testing"

	"github.com/wasmjob/wasmjob/coordination/registry"
)

// TestRegistryOfAnAdoptedNamespace: operators see the fences that guests see.
func TestRegistryOfAnAdoptedNamespace(t *testing.T) {
	t.Parallel()
	r, _ := namespace(t, "a")
	const base = int64(5) << 40
	if _, err := r.center().Commit(t.Context(), registry.Set("/ns.wasmjob", []byte(`{"base":5497558138880}`), registry.AnyVersion),
		registry.Create("/ns/a/sharding/0/running", []byte("10.0.0.1@-@a")),
		registry.Ensure("/ns.wasmjob/a/runs"), registry.Create("/ns.wasmjob/a/runs/10.0.0.1@-@a", []byte(`{"runs":[{"instant":1,"source":"schedule","items":"0"}]}`)),
		registry.Create("/ns.wasmjob/a/sharding", nil),
		registry.Create("/ns.wasmjob/a/sharding/0", nil), registry.Set("/ns.wasmjob/a/sharding/0", []byte(`{"owner":"10.0.0.1@-@a","instant":1,"begun":1}`), 0)); err != nil {
		t.Fatal(err)
	}
	s, err := r.Shards(t.Context(), "a")
	if err != nil || len(s.Items) != 2 || s.Items[0].Fence <= base {
		t.Errorf("shards %+v, %v; expected a fence above %d", s, err, base)
	}
	// The node in which hosts find each other is no job.
	c := r.center()
	if _, err := c.Commit(t.Context(), registry.Set("/ns.wasmjob", nil, registry.AnyVersion), registry.Ensure("/ns.wasmjob/@-@hosts"),
		registry.Delete("/ns.wasmjob/a/instances/10.0.0.1@-@a", registry.AnyVersion), registry.Delete("/ns.wasmjob/a/instances/10.0.0.2@-@a", registry.AnyVersion),
		registry.Set("/ns.wasmjob/a/sharding/0", []byte(`{"owner":"10.0.0.1@-@a","instant":1,"begun":1,"after":9895604649984}`), registry.AnyVersion)); err != nil {
		t.Fatal(err)
	}
	if a, err := r.Adopt(t.Context(), 0); err != nil || a.Jobs != 1 || a.Items != 1 {
		t.Errorf("%+v, %v; expected one job with one item", a, err)
	}
}
