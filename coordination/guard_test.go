package coordination_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/registry/registrytest"
	"github.com/wasmjob/wasmjob/coordination/tree"
)

// TestGuards finds all guards of all commits that the scenario scripts make, and tries each:
// between the look of a step and its commit another session changes what the guard names. The
// commit has to be refused for that guard. What the step does then is in testdata/guards.txt, so
// that a guard that is dropped, added or widened, or that has another consequence, is a
// difference there: "go test ./coordination -run TestGuards -update" writes it anew.
//
// A change that means nothing (the same data once more) must not change how the script ends.
//
// It kills the mutant "end of a word without the word".
func TestGuards(t *testing.T) {
	t.Parallel()
	scripts, err := filepath.Glob("testdata/scenarios/*.txt")
	if err != nil || len(scripts) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	found := make(map[string]*trial)
	for _, path := range scripts {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		w := &witness{server: inMemory(t)}
		s := script{cluster: newCluster(t, w), rounds: make(map[int64]int)}
		w.layout = s.layout
		end := s.run(string(text))
		for _, g := range w.guards {
			if found[g.key()] == nil {
				found[g.key()] = &trial{guard: g, script: string(text), name: filepath.Base(path), end: end}
			}
		}
	}
	t.Logf("%d guards", len(found))
	const golden = "testdata/guards.txt"
	want, err := os.ReadFile(golden)
	if err != nil && !*update {
		t.Fatal(err)
	}
	var mu sync.Mutex
	after := make(map[string]string)
	known := consequences(string(want))
	keys, now := slices.Sorted(maps.Keys(known)), slices.Sorted(maps.Keys(found))
	if !*update && !slices.Equal(keys, now) { // said before the trials, which take most of the time
		t.Fatalf("guards differ from %s, -update writes it anew:\n%s", golden, differences(keys, now))
	}
	if modelBrief { // those that are not in the file, and one guard of a kind of each step
		after = known
		seen := make(map[string]bool)
		for _, key := range now {
			if g := found[key]; !seen[g.step+g.op] {
				seen[g.step+g.op] = true
				delete(after, key)
			}
		}
	}
	t.Run("each", func(t *testing.T) {
		for key, trial := range found {
			if after[key] != "" {
				continue
			}
			t.Run(trial.step+" "+trial.op, func(t *testing.T) {
				t.Parallel()
				line := trial.run(t)
				mu.Lock()
				defer mu.Unlock()
				after[key] = line
			})
		}
	})
	var b strings.Builder
	last := ""
	for _, key := range slices.Sorted(maps.Keys(found)) {
		g := found[key].guard
		if commit := g.step + " commits " + g.shape; commit != last {
			fmt.Fprintf(&b, "%s\n", commit)
			last = commit
		}
		fmt.Fprintf(&b, "\t%s: %s\n", g.op, after[key])
	}
	if *update {
		if err := os.WriteFile(golden, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if got := b.String(); got != string(want) {
		var before, after []string // a guard in one line: many have the same consequence
		for key, then := range known {
			before = append(before, key+": "+then)
		}
		for key, then := range consequences(got) {
			after = append(after, key+": "+then)
		}
		t.Errorf("guards differ from %s, -update writes it anew:\n%s", golden, differences(slices.Sorted(slices.Values(before)), slices.Sorted(slices.Values(after))))
	}
}

// consequences reads what the file says of each guard, by its key.
func consequences(text string) map[string]string {
	list := make(map[string]string)
	commit := ""
	for line := range strings.Lines(text) {
		if op, is := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "\t"); is {
			op, then, _ := strings.Cut(op, ": ")
			list[commit+" "+op] = then
		} else {
			commit = strings.TrimSuffix(strings.Replace(line, " commits ", " ", 1), "\n")
		}
	}
	return list
}

// differences says which of the wanted lines are missing and which are there besides, 40 at most.
func differences(w, g []string) string {
	var list []string
	for sign, lines := range map[string][2][]string{"-": {w, g}, "+": {g, w}} {
		for _, line := range lines[0] {
			if !slices.Contains(lines[1], line) {
				list = append(list, sign+" "+line)
			}
		}
	}
	return strings.Join(list[:min(len(list), 40)], "\n")
}

// guard is an op of a commit that may refuse it.
type guard struct {
	step   string // the function of ours that commits
	shape  string // what else is in the commit
	op     string // what it does to which kind of node
	commit int    // of those of a script, from 0
	path   string // of the node, without what differs between runs
}

func (g guard) key() string { return g.step + " " + g.shape + " " + g.op }

// witness is a registry that notes the guards of each commit of a step. It may change what one
// of them names before the commit arrives.
type witness struct {
	server registrytest.Server
	layout tree.Layout
	guards []guard
	commit int

	target  *guard
	strange registry.Center
	tried   *guard        // what the target turned out to be
	refused error         // of the commit
	after   []string      // what the step did then
	undo    []registry.Op // what was changed stands in the way until the step has ended
	running bool          // the step that was refused goes on
}

func (w *witness) Connect(t testing.TB) registry.Center {
	return &witnessed{w.server.Connect(t), w}
}

func (w *witness) Expire(t testing.TB, r registry.Center) {
	if c, ok := r.(*witnessed); ok {
		r = c.Center
	}
	w.server.Expire(t, r)
}

// witnessed is a session of it.
type witnessed struct {
	registry.Center
	w *witness
}

func (c *witnessed) Watch(ctx context.Context, q ...registry.Query) (<-chan registry.Snapshot, error) {
	c.w.goesOn("", "")
	return c.Center.Watch(ctx, q...)
}

func (c *witnessed) Read(ctx context.Context, q ...registry.Query) ([]registry.Node, error) {
	c.w.goesOn(stepOf(), "reads")
	return c.Center.Read(ctx, q...)
}

func (c *witnessed) Commit(ctx context.Context, ops ...registry.Op) ([]registry.Result, error) {
	w, step := c.w, stepOf()
	if step == "" { // the script's own, or a Java host's
		w.goesOn("", "")
		return c.Center.Commit(ctx, ops...)
	}
	shape := w.shape(ops)
	again := "commits " + shape
	if w.tried != nil && shape == w.tried.shape {
		again = "commits again"
	}
	w.goesOn(step, again)
	n := w.commit
	w.commit++
	if w.target == nil {
		results, err := c.Center.Commit(ctx, ops...)
		for i, op := range ops {
			if what := w.describe(op); what != "" && err == nil && !madeBefore(ops[:i], op.Path) { // else it refuses nothing, or without a change
				w.guards = append(w.guards, guard{step, shape, what, n, w.tidy(op.Path)})
			}
		}
		return results, err
	}
	if n != w.target.commit {
		return c.Center.Commit(ctx, ops...)
	}
	for _, op := range ops {
		g := guard{step, shape, w.describe(op), n, w.tidy(op.Path)}
		if g != *w.target {
			continue
		}
		w.tried = &g
		if err := w.change(ctx, op); err != nil {
			w.after = append(w.after, fmt.Sprintf("%s: %v", untried, reason(err)))
			break
		}
		results, err := c.Center.Commit(ctx, ops...)
		w.refused, w.running = err, true
		var no *registry.OpError
		if !errors.As(err, &no) || no.Op.Path != op.Path {
			w.after = append(w.after, fmt.Sprintf("%s: %v", unrefused, reason(err)))
		}
		return results, err
	}
	return c.Center.Commit(ctx, ops...)
}

// madeBefore reports whether earlier ops of a commit make or delete a node.
func madeBefore(ops []registry.Op, path string) bool {
	return slices.ContainsFunc(ops, func(op registry.Op) bool {
		return op.Path == path && op.Kind != registry.OpCheck && op.Kind != registry.OpAbsent
	})
}

// What a trial may find besides what the step does.
const (
	untried   = "cannot be tried"
	unrefused = "the commit is not refused for it"
)

// goesOn notes what the step does that was refused. Another step, or the same once more, ends
// that; calls of one step cannot be told from those of its next run, so the list is cut.
func (w *witness) goesOn(step, what string) {
	if !w.running {
		return
	}
	if step != w.tried.step || len(w.after) == 4 {
		w.running = false
		for _, op := range w.undo {
			_, _ = w.strange.Commit(context.Background(), op) // or it has been undone
		}
		return
	}
	w.after = append(w.after, what)
}

// change changes a node as somebody else would.
func (w *witness) change(ctx context.Context, op registry.Op) error {
	switch op.Kind {
	case registry.OpAbsent, registry.OpCreate, registry.OpEphemeral:
		parent := op.Path[:strings.LastIndexByte(op.Path, '/')]
		_, err := w.strange.Commit(ctx, registry.Ensure(parent), registry.Create(op.Path, op.Data))
		if err == nil && op.Kind != registry.OpCreate {
			w.undo = append(w.undo, registry.Delete(op.Path, registry.AnyVersion))
		}
		return err
	}
	nodes, err := w.strange.Read(ctx, registry.Data(op.Path))
	if err != nil {
		return err
	}
	if op.Version == registry.AnyVersion {
		w.undo = append(w.undo, registry.Create(op.Path, nodes[0].Data))
		_, err := w.strange.Commit(ctx, registry.Delete(op.Path, registry.AnyVersion))
		return err
	}
	_, err = w.strange.Commit(ctx, registry.Set(op.Path, nodes[0].Data, registry.AnyVersion))
	return err
}

// reason is an error without paths, which differ between runs.
func reason(err error) string {
	var no *registry.OpError
	if errors.As(err, &no) {
		return fmt.Sprintf("%s: %s", no.Op.Kind, no.Reason)
	}
	return fmt.Sprint(err)
}

// describe is what a guard demands of which kind of node; empty for an op that always succeeds.
func (w *witness) describe(op registry.Op) string {
	of := kindOfNode(w.tidy(op.Path))
	if ticket := strings.HasPrefix(of, "~limits/"); ticket && (op.Kind == registry.OpSet || op.Kind == registry.OpDelete) {
		return op.Kind.String() + " existing " + of // its absence is all that refuses it
	}
	switch op.Kind {
	case registry.OpAbsent, registry.OpCreate, registry.OpEphemeral:
		return op.Kind.String() + " " + of
	case registry.OpSet, registry.OpDelete, registry.OpCheck:
		if op.Version == registry.AnyVersion && op.Kind != registry.OpCheck {
			return "" // whatever became of the node
		}
		if op.Version == registry.AnyVersion {
			return "check existence of " + of
		}
		return op.Kind.String() + " " + of
	}
	return ""
}

// shape lists the kinds of ops of a commit, each once.
func (w *witness) shape(ops []registry.Op) string {
	var list []string
	for _, op := range ops {
		if what := w.describe(op); what != "" {
			list = append(list, what)
		}
	}
	slices.Sort(list)
	return "[" + strings.Join(slices.Compact(list), ", ") + "]"
}

func (w *witness) tidy(path string) string {
	path = strings.Replace(path, w.layout.Sibling(), "~", 1)
	path = strings.Replace(path, w.layout.Root(), "", 1)
	path = strings.Replace(path, tree.Limits(w.layout.Namespace), "~limits", 1)
	path = strings.Replace(path, tree.Rates(w.layout.Namespace), "~rates", 1)
	return idPattern.ReplaceAllString(path, "$1")
}

var (
	nodeIDs     = regexp.MustCompile(`/[A-Z]\d*(/|$)`)
	nodeIPs     = regexp.MustCompile(`/\d+\.\d+\.\d+\.\d+(/|$)`)
	nodeTickets = regexp.MustCompile(`/\d+-\d{10}$`)
	nodeItems   = regexp.MustCompile(`/\d+(/|$)`)
)

// kindOfNode is a path without ids and numbers.
func kindOfNode(path string) string {
	path = nodeIDs.ReplaceAllString(path, "/ID$1")
	path = nodeIPs.ReplaceAllString(path, "/IP$1")
	path = nodeTickets.ReplaceAllString(path, "/TICKET")
	return nodeItems.ReplaceAllString(path, "/N$1")
}

// stepOf is the outermost function of the protocol that is on the stack; empty if there is none.
func stepOf() string {
	pcs := make([]uintptr, 64)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(3, pcs)])
	const ours = "github.com/wasmjob/wasmjob/coordination"
	step := ""
	for {
		f, more := frames.Next()
		name, is := strings.CutPrefix(f.Function, ours)
		if is && !strings.HasPrefix(name, "_test.") && !strings.HasPrefix(name, "/registrytest.") && !strings.HasPrefix(name, "/step.") && !strings.HasPrefix(name, "/registry.") {
			step = strings.NewReplacer("(*Member).", "", "(*", "", ")", "").Replace(strings.TrimLeft(name, "./"))
			step, _, _ = strings.Cut(step, ".func")
		}
		if !more {
			return step
		}
	}
}

// trial is a guard and the script that meets it first.
type trial struct {
	guard
	script, name, end string
}

// run plays the script with a change at the guard, and says what came of it.
func (g *trial) run(t *testing.T) string {
	w := &witness{server: inMemory(t), target: &g.guard}
	w.strange = w.server.Connect(t)
	defer func() { _ = w.strange.Close() }()
	s := script{cluster: newCluster(t, w), rounds: make(map[int64]int)}
	w.layout = s.layout
	end := s.run(g.script)
	switch {
	case w.tried == nil:
		t.Fatalf("%s: the script went another way before commit %d: %s %s", g.name, g.commit, g.op, g.path)
	case slices.ContainsFunc(w.after, func(s string) bool { return strings.HasPrefix(s, untried) || strings.HasPrefix(s, unrefused) }):
		t.Errorf("%s: %s was changed before %s committed: %s", g.name, g.path, g.step, strings.Join(w.after, "; "))
	}
	if len(w.after) == 0 {
		w.after = []string{"leaves it at that"}
	}
	if end == g.end {
		w.after = append(w.after, "all ends as without it")
	}
	return strings.Join(w.after, ", ")
}
