package main

import (
	"bytes"
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/wasmjob/wasmjob/test/mutants/mutated"
)

// generation is how mutants are made by operators and tried.
type generation struct {
	// every and seed choose an nth part of the mutants: another part with another seed.
	every, seed int
	// only is what the id has to match.
	only *regexp.Regexp
	// most is how much processor time the tests of a mutant took together without it, at most:
	// the fastest ones are tried.
	most time.Duration
	// tests are the names of those that are tried.
	tests *regexp.Regexp
	// near leaves out the tests of folders that are not the area's.
	near bool
	// tree is a copy of the sources, which is changed.
	tree string
	out  io.Writer
	// killers are the tests that have killed mutants of a file.
	killers map[string]map[string]bool
}

// verdict is what became of a mutant.
type verdict string

const (
	killed    verdict = "killed"
	survived  verdict = "survived"
	unreached verdict = "not reached"
	harmless  verdict = "harmless"
	invalid   verdict = "did not compile"
)

// tried is a mutant and what became of it.
type tried struct {
	change
	verdict verdict
	// by is the test that failed, with its package; why is the reason why the mutant is
	// harmless, or what was left out.
	by, why string
	took    time.Duration
}

// harmlessText lists mutants that change nothing that a test could see. See readHarmless.
//
//go:embed harmless.txt
var harmlessText string

// readHarmless reads the mutants that are known to be harmless: their ids, each with the reason
// on the next line, which is indented. Lines that begin with # are comments.
func readHarmless(text string) (reasons map[string]string, err error) {
	reasons = make(map[string]string)
	id := ""
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		reason, indented := strings.CutPrefix(line, "\t")
		switch {
		case line == "" || line[0] == '#':
		case indented && id != "":
			reasons[id] = strings.TrimSpace(reasons[id] + " " + reason)
		case indented:
			return nil, fmt.Errorf("harmless.txt: %q belongs to no mutant", reason)
		default:
			id = line
			if _, twice := reasons[id]; twice {
				return nil, fmt.Errorf("harmless.txt: %q occurs twice", id)
			}
			reasons[id] = ""
		}
	}
	for id, reason := range reasons {
		if reason == "" {
			return nil, fmt.Errorf("harmless.txt: %q has no reason", id)
		}
	}
	return reasons, nil
}

// chosen reports whether a mutant is of the part that is tried.
func (g *generation) chosen(c change) bool {
	if !g.only.MatchString(c.id()) {
		return false
	}
	h := fnv.New32a()
	fmt.Fprintf(h, "%d %s", g.seed, c.id())
	return g.every <= 1 || h.Sum32()%uint32(g.every) == 0
}

// run tries the mutants of an area.
func (g *generation) run(ctx context.Context, a area) (results []tried, err error) {
	reasons, err := readHarmless(harmlessText)
	if err != nil {
		return nil, err
	}
	list, err := changes(g.tree, a.folders)
	if err != nil {
		return nil, err
	}
	list = slices.DeleteFunc(list, func(c change) bool { return !g.chosen(c) })
	results = make([]tried, len(list))
	var todo []int
	for n, c := range list {
		results[n].change = c
		if why := reasons[c.id()]; why != "" {
			results[n].verdict, results[n].why = harmless, why
			continue
		}
		todo = append(todo, n)
	}
	if len(todo) == 0 {
		return results, nil
	}
	bad, restore, err := g.weave(ctx, a, list, todo)
	defer func() { err = errors.Join(err, restore()) }()
	if err != nil {
		return nil, err
	}
	for _, n := range bad {
		results[n].verdict = invalid
	}
	fmt.Fprintf(g.out, "%s: %d mutants, %d of them harmless, %d did not compile\n", a.name, len(list), len(list)-len(todo), len(bad))
	folders := make(map[string]bool)
	for _, n := range todo {
		folders[path.Dir(list[n].file)] = true
	}
	suites, err := g.suites(ctx, a, folders)
	if err != nil {
		return nil, err
	}
	for _, n := range todo {
		if results[n].verdict == invalid {
			continue
		}
		if err := g.try(ctx, suites, n+1, &results[n]); err != nil {
			return results, err
		}
		r := results[n]
		fmt.Fprintf(g.out, "%-11s %s:%d %s: %s %s%s (%s)\n", r.verdict, r.file, r.line, r.in, r.what, r.by, r.why, r.took.Round(100*time.Millisecond))
	}
	return results, err
}

// weave writes the mutants into the copy, and leaves out those that do not compile. restore
// takes them all out again.
func (g *generation) weave(ctx context.Context, a area, list []change, todo []int) (bad []int, restore func() error, err error) {
	texts := make(map[string][]byte)
	restore = func() error {
		var errs []error
		for name, text := range texts {
			errs = append(errs, os.WriteFile(filepath.Join(g.tree, filepath.FromSlash(name)), text, 0o600))
		}
		return errors.Join(errs...)
	}
	todo = slices.Clone(todo)
	for _, n := range todo {
		name := list[n].file
		if texts[name] == nil {
			if texts[name], err = os.ReadFile(filepath.Join(g.tree, filepath.FromSlash(name))); err != nil {
				return nil, restore, err
			}
		}
	}
	const rounds = 20
	for range rounds {
		woven := make(map[string]wovenFile)
		for name, text := range texts {
			f := wovenFile{}
			var of []change
			var numbers []int
			for _, n := range todo {
				if list[n].file == name {
					of, f.list, numbers = append(of, list[n]), append(f.list, n), append(numbers, n+1)
				}
			}
			result, places := weave(text, of, numbers)
			if len(of) > 0 {
				var shift int
				if result, shift, err = imported(result); err != nil {
					return nil, restore, err
				}
				for i := range places {
					places[i][0], places[i][1] = places[i][0]+shift, places[i][1]+shift
				}
			}
			f.text, f.places = result, places
			woven[name] = f
			if err := os.WriteFile(filepath.Join(g.tree, filepath.FromSlash(name)), result, 0o600); err != nil {
				return nil, restore, err
			}
		}
		wrong, text, err := g.compile(ctx, a, woven)
		if err != nil {
			return nil, restore, err
		}
		if text == "" {
			return bad, restore, nil
		}
		if len(wrong) == 0 {
			return nil, restore, fmt.Errorf("the copy does not compile, and no mutant is at fault:\n%s", text)
		}
		bad = append(bad, wrong...)
		todo = slices.DeleteFunc(todo, func(n int) bool { return slices.Contains(wrong, n) })
	}
	return nil, restore, fmt.Errorf("the copy does not compile after %d rounds", rounds)
}

// wovenFile is a file with its mutants: their indexes and places.
type wovenFile struct {
	text   []byte
	list   []int
	places [][2]int
}

var compileError = regexp.MustCompile(`(?m)^(?:\./)?([\w./-]+\.go):(\d+):(\d+): `)

// compile builds the folders of an area. It returns what the compiler says, and the mutants of
// which it says that.
func (g *generation) compile(ctx context.Context, a area, woven map[string]wovenFile) (wrong []int, text string, err error) {
	args := []string{"build", "-trimpath", "-gcflags=-e"}
	for _, f := range a.folders {
		args = append(args, "./"+f)
	}
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = g.tree
	out, err := cmd.CombinedOutput()
	if err == nil {
		return nil, "", nil
	}
	if failed := (*exec.ExitError)(nil); !errors.As(err, &failed) {
		return nil, "", err
	}
	for _, m := range compileError.FindAllStringSubmatch(string(out), -1) {
		f, ours := woven[m[1]]
		line, _ := strconv.Atoi(m[2])
		column, _ := strconv.Atoi(m[3])
		if !ours {
			continue
		}
		if n, ok := f.at(line, column); ok && !slices.Contains(wrong, n) {
			wrong = append(wrong, n)
		}
	}
	return wrong, string(out), nil
}

// at is the smallest mutant around a place of the text, or one on its line.
func (f wovenFile) at(line, column int) (n int, ok bool) {
	start := 0
	for range line - 1 {
		start += bytes.IndexByte(f.text[start:], '\n') + 1
	}
	end := start + bytes.IndexByte(f.text[start:], '\n')
	at, best := start+column-1, 0
	for i, p := range f.places {
		if size := p[1] - p[0]; p[0] <= at && at <= p[1] && (!ok || size < best) {
			n, ok, best = f.list[i], true, size
		}
	}
	for i, p := range f.places {
		if !ok && p[0] < end && p[1] > start {
			n, ok = f.list[i], true
		}
	}
	return n, ok
}

// suite is the compiled tests of a package.
type suite struct {
	in, program string
	tests       []test
}

// test is one whose mutants are known.
type test struct {
	name string
	// took is the processor time without a mutant, and lasts how long it lasted.
	took, lasts time.Duration
	reaches     map[int]bool
	random      bool
}

// suites compiles the tests of an area that use one of the folders with mutants, and runs each by
// itself to see which mutants it comes by.
func (g *generation) suites(ctx context.Context, a area, folders map[string]bool) ([]*suite, error) {
	var list []*suite
	for _, in := range a.tests {
		if g.near && !slices.Contains(a.folders, in) {
			continue
		}
		if uses, err := g.uses(ctx, in, folders); err != nil || !uses {
			if err != nil {
				return nil, err
			}
			continue
		}
		s := &suite{in: in, program: filepath.Join(g.tree, strings.ReplaceAll(in, "/", "-")+".test")}
		cmd := exec.CommandContext(ctx, "go", "test", "-c", "-trimpath", "-vet=off", "-tags", "brief", "-o", s.program, "./"+in)
		cmd.Dir = g.tree
		if out, err := cmd.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("compiling the tests of %s: %w\n%s", in, err, out)
		}
		if err := g.lookAt(ctx, s); err != nil {
			return nil, fmt.Errorf("the tests of %s: %w", in, err)
		}
		list = append(list, s)
	}
	return list, nil
}

// uses reports whether the tests of a package are linked with one of some folders.
func (g *generation) uses(ctx context.Context, in string, folders map[string]bool) (bool, error) {
	cmd := exec.CommandContext(ctx, "go", "list", "-deps", "-test", "-tags", "brief", "./"+in)
	cmd.Dir = g.tree
	out, err := cmd.Output()
	for line := range strings.Lines(string(out)) {
		name, _, _ := strings.Cut(strings.TrimSpace(line), " ")
		if folder, ours := strings.CutPrefix(name, module+"/"); ours && folders[folder] {
			return true, err
		}
	}
	return false, err
}

// lookAt runs each test of a suite by itself. One that fails without a mutant is left out.
func (g *generation) lookAt(ctx context.Context, s *suite) error {
	out, _, err := g.command(ctx, s, time.Minute, "", "-test.list", "^Test")
	if err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	note := s.program + ".reached"
	total := time.Duration(0)
	for name := range strings.FieldsSeq(string(out)) {
		if !strings.HasPrefix(name, "Test") || !g.tests.MatchString(name) {
			continue
		}
		if err := os.RemoveAll(note); err != nil {
			return err
		}
		began := time.Now()
		out, took, err := g.command(ctx, s, 5*time.Minute, mutated.Reached+"="+note, "-test.run", "^"+name+"$")
		lasts := time.Since(began)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			fmt.Fprintf(g.out, "left out    %s in %s, which fails without a mutant: %s\n", name, s.in, lastLine(out))
			continue
		}
		numbers, err := os.ReadFile(note)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		t := test{name: name, took: took, lasts: lasts, reaches: make(map[int]bool), random: random.MatchString(name)}
		for line := range strings.FieldsSeq(string(numbers)) {
			if n, err := strconv.Atoi(line); err == nil {
				t.reaches[n] = true
			}
		}
		s.tests = append(s.tests, t)
		total += took
	}
	fmt.Fprintf(g.out, "%d tests in %s take %s\n", len(s.tests), s.in, total.Round(time.Second))
	return nil
}

func lastLine(out []byte) string {
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	return lines[len(lines)-1]
}

// errLimit: a process has run for too long.
var errLimit = errors.New("time limit")

// memory is how much address space a process of tests has, in KiB: a mutant may allocate
// without end.
const memory = 12 << 20

// command runs the program of a suite, with one variable more if it is not empty. took is the
// processor time that it used.
func (g *generation) command(ctx context.Context, s *suite, limit time.Duration, variable string, args ...string) (out []byte, took time.Duration, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, errLimit)
	defer cancel()
	line := []string{"-c", fmt.Sprintf(`ulimit -v %d; exec "$0" "$@"`, memory), s.program}
	cmd := exec.CommandContext(ctx, "sh", append(line, args...)...)
	cmd.Dir = filepath.Join(g.tree, filepath.FromSlash(s.in))
	if variable != "" {
		cmd.Env = append(os.Environ(), variable)
	}
	ownGroup(cmd)
	cmd.WaitDelay = 10 * time.Second
	out, err = cmd.CombinedOutput()
	if cmd.ProcessState != nil {
		took = cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	}
	if err != nil && context.Cause(ctx) == errLimit {
		return out, took, errLimit
	}
	return out, took, err
}

// batch are tests of one suite that run in one process.
type batch struct {
	*suite
	names       []string
	took, lasts time.Duration // without a mutant
}

// batches are the tests that come by a mutant, in the order in which they are tried: those that
// draw nothing before the random ones, the nearest suite first, tests that have killed a mutant of
// the same file before others, fast tests before slow ones. Each batch of a suite may take some
// times as long as the one before.
func batches(suites []*suite, mutant int, most time.Duration, killers map[string]bool) (list []batch, omitted int) {
	const (
		quick = time.Second // what the tests of a first batch take together, if there are several
		slow  = 20 * time.Second
	)
	total := time.Duration(0)
	for _, random := range []bool{false, true} {
		for _, s := range suites {
			of := slices.DeleteFunc(slices.Clone(s.tests), func(t test) bool { return t.random != random || !t.reaches[mutant] })
			late := func(t test) int {
				if killers[t.name] && t.took < slow {
					return 0
				}
				return 1
			}
			slices.SortStableFunc(of, func(a, b test) int { return cmp.Or(late(a)-late(b), cmp.Compare(a.took, b.took)) })
			b := batch{suite: s}
			room := quick
			for _, t := range of {
				if total+t.took > most && total > 0 {
					omitted++
					continue
				}
				total += t.took
				if len(b.names) > 0 && (b.took+t.took > room || late(t) == 1 && killers[b.names[0]]) {
					list, b, room = append(list, b), batch{suite: s}, 4*room
				}
				b.names, b.took, b.lasts = append(b.names, t.name), b.took+t.took, b.lasts+t.lasts
			}
			if len(b.names) > 0 {
				list = append(list, b)
			}
		}
	}
	return list, omitted
}

var failedTest = regexp.MustCompile(`(?m)^\s*--- FAIL: (Test[^/\s]+)`)

// try runs the tests that come by a mutant until one fails.
func (g *generation) try(ctx context.Context, suites []*suite, mutant int, r *tried) error {
	began := time.Now()
	defer func() { r.took = time.Since(began) }()
	if g.killers == nil {
		g.killers = make(map[string]map[string]bool)
	}
	if g.killers[r.file] == nil {
		g.killers[r.file] = make(map[string]bool)
	}
	list, omitted := batches(suites, mutant, g.most, g.killers[r.file])
	if len(list) == 0 {
		r.verdict = unreached
		return nil
	}
	for _, b := range list {
		limit := 20*time.Second + 5*b.lasts
		out, _, err := g.command(ctx, b.suite, limit, mutated.Variable+"="+strconv.Itoa(mutant),
			"-test.run", "^("+strings.Join(b.names, "|")+")$", "-test.failfast")
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err == nil {
			continue
		}
		r.verdict = killed
		switch m := failedTest.FindSubmatch(out); {
		case m != nil:
			r.by = string(m[1]) + " in " + b.in
			g.killers[r.file][string(m[1])] = true
		case errors.Is(err, errLimit):
			r.by = "the time limit of " + orMany(b.names) + " in " + b.in
		default:
			r.by = "a crash of " + orMany(b.names) + " in " + b.in
		}
		return nil
	}
	r.verdict = survived
	if omitted > 0 {
		r.why = fmt.Sprintf("(%d slow tests were not tried)", omitted)
	}
	return nil
}

// orMany names one test, or says how many there are.
func orMany(names []string) string {
	if len(names) == 1 {
		return names[0]
	}
	return fmt.Sprintf("%d tests", len(names))
}
