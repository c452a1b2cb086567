package step

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/wasmjob/wasmjob/coordination/registry"
)

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
		for part := range Parts(ops, limit) {
			if len(part) == 0 {
				t.Fatal("an empty part")
			}
			if extra := Size(part) - opSize(part[len(part)-1]); len(part) > 2 && extra > limit {
				t.Fatalf("a part of %d bytes, the limit is %d", Size(part), limit)
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
