package catalog

import "testing"

// TestChainOfFiles: jobs of several files that would come after each other are refused with the whole way; jobs of which
// the directory knows nothing may be on other hosts.
func TestChainOfFiles(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.write("a.yaml: job a a.wasm p after=elsewhere", "b.yaml: job b a.wasm p after=a", "c.yaml: job c a.wasm p after=b", "a.wasm: one.")
	w.step()
	if len(w.plan.refused) != 0 {
		t.Fatal(w.plan.String())
	}
	w.write("a.yaml: job a a.wasm p after=c", "d.yaml: job d a.wasm p after=a")
	w.step()
	w.refusedFor("a.yaml", "after: the jobs would come after each other: a -> c -> b -> a")
	w.refusedFor("b.yaml", "after: the jobs would come after each other: b -> a -> c -> b")
	w.write("a.yaml: job a a.wasm p")
	w.step()
	if len(w.plan.refused) != 0 {
		t.Error(w.plan.String())
	}
}
