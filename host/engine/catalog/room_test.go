package catalog

import (
	"fmt"
	"testing"

	"github.com/wasmjob/wasmjob/host/config/ceiling"
)

// TestInheritedOfAllJobs bounds what all jobs together have from files of defaults.
func TestInheritedOfAllJobs(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const part = mostInherited / 4
	no := func(file string, line int, job string, bytes int) string {
		return fmt.Sprintf(`refused %s: line %d: job %q: has %d bytes from files of defaults, for which there is no room, expected at most 67108864 for all jobs of a host`, file, line, job, bytes)
	}
	job := func(name, file string) string { return fmt.Sprintf(`%s "p" %s a.wasm @one.`, name, file) }
	w.write(fmt.Sprintf("z.yaml: job a a.wasm p inherits=%d\njob b a.wasm p inherits=%d\njob c a.wasm p inherits=%d", part, part+1, 2*part), "a.wasm: one.")
	w.look()
	w.compile()
	w.expect(job("a", "z.yaml"), job("b", "z.yaml"), no("z.yaml", 3, "c", 2*part))

	// A job without any has room, and what one gives back is free.
	w.write(fmt.Sprintf("z.yaml: job a a.wasm p\njob b a.wasm p inherits=%d\njob c a.wasm p inherits=%d\njob d a.wasm p", part+1, 2*part))
	w.step()
	w.expect(job("a", "z.yaml"), job("b", "z.yaml"), job("c", "z.yaml"), job("d", "z.yaml"))

	// One that runs and wants more goes on with what it has.
	w.write(fmt.Sprintf("z.yaml: job a a.wasm p inherits=%d\njob b a.wasm p inherits=%d\njob c a.wasm p inherits=%d\njob d a.wasm p", part, part+1, 2*part))
	w.step()
	w.expect(job("a", "z.yaml"), job("b", "z.yaml"), job("c", "z.yaml"), job("d", "z.yaml"), "refused (kept)"+no("z.yaml", 1, "a", part)[len("refused"):])
}

// TestItemsOfAllJobs bounds the items of all jobs together. What runs goes on whatever is asked
// for besides, and which jobs are refused does not change.
func TestItemsOfAllJobs(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	most, err := ceiling.Parse("*:maxItems=100")
	if err != nil {
		t.Fatal(err)
	}
	w.state.ceilings = ceiling.List{most}
	no := func(file string, line int, job string, items int) string {
		return fmt.Sprintf(`refused %s: line %d: job %q: has %d items, for which there is no room, the host's ceiling maxItems for jobs "*" is 100 in all; --ceiling '*:maxItems=N' raises it`, file, line, job, items)
	}
	job := func(name, file string) string { return fmt.Sprintf(`%s "p" %s a.wasm @one.`, name, file) }

	// At the start those that come first by name are taken, and of the others those that fit.
	w.write("z.yaml: job e a.wasm p items=10\njob d a.wasm p items=60\njob c a.wasm p items=50\njob b a.wasm p items=40", "a.wasm: one.")
	w.look()
	w.expect(no("z.yaml", 2, "d", 60)) // also before the others are there
	w.compile()
	w.expect(job("b", "z.yaml"), job("c", "z.yaml"), job("e", "z.yaml"), no("z.yaml", 2, "d", 60))

	// A new one does not take the place of one that runs, though its name comes first.
	w.write("a.yaml: job a a.wasm p items=1")
	w.step()
	w.expect(job("b", "z.yaml"), job("c", "z.yaml"), job("e", "z.yaml"), no("a.yaml", 1, "a", 1), no("z.yaml", 2, "d", 60))

	// One that runs and wants more goes on with what it has.
	w.write("z.yaml: job e a.wasm q items=11\njob c a.wasm p items=50\njob b a.wasm p items=40")
	w.step()
	w.expect(job("b", "z.yaml"), job("c", "z.yaml"), job("e", "z.yaml"), no("a.yaml", 1, "a", 1), "refused (kept)"+no("z.yaml", 1, "e", 11)[len("refused"):])

	// What one has no more is free at once, for those that run first.
	w.write("z.yaml: job e a.wasm p items=11\njob c a.wasm p items=49\njob b a.wasm p items=40")
	w.step()
	w.expect(job("b", "z.yaml"), job("c", "z.yaml"), job("e", "z.yaml"), no("a.yaml", 1, "a", 1))
	w.write("z.yaml: job e a.wasm p items=11\njob b a.wasm p items=40")
	w.step()
	w.expect(job("a", "a.yaml"), job("b", "z.yaml"), job("e", "z.yaml"))

	// A smaller version that cannot be had gives nothing back.
	w.write("z.yaml: job e a.wasm p items=11\njob b none.wasm p items=1", "y.yaml: job y a.wasm p items=80")
	w.step()
	w.expect(job("a", "a.yaml"), job("b", "z.yaml"), job("e", "z.yaml"), no("y.yaml", 1, "y", 80),
		`refused (kept) z.yaml: line 2: job "b": module "none.wasm": there is no such file beside the definition`)

	// A job that waits for its module keeps its place; one whose module is refused has none.
	w.write("b.wasm: !bad", "x.yaml: job x b.wasm p items=48", "y.yaml: job y a.wasm p items=48")
	w.look()
	w.expect(job("a", "a.yaml"), job("b", "z.yaml"), job("e", "z.yaml"), no("y.yaml", 1, "y", 48),
		`refused (kept) z.yaml: line 2: job "b": module "none.wasm": there is no such file beside the definition`)
}

// TestItemsByPattern has each entry of the ceilings count the items of its own jobs.
func TestItemsByPattern(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, text := range []string{"team-*:maxItems=5", "free-*:maxItems=off", "*:maxItems=10"} {
		e, err := ceiling.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		w.state.ceilings = append(w.state.ceilings, e)
	}
	w.write("a.wasm: one.", "a.yaml: job a a.wasm p items=10\njob free-b a.wasm p items=1000\njob team-c a.wasm p items=5\njob team-d a.wasm p items=1")
	w.step()
	w.expect(`a "p" a.yaml a.wasm @one.`, `free-b "p" a.yaml a.wasm @one.`, `team-c "p" a.yaml a.wasm @one.`,
		`refused a.yaml: line 4: job "team-d": has 1 items, for which there is no room, the host's ceiling maxItems for jobs "team-*" is 5 in all; --ceiling 'team-*:maxItems=N' raises it`)
}
