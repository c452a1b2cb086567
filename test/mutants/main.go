// Command mutants changes a copy of the tree, one guard after the other, and says which test
// noticed. It fails if no test does.
//
//	mutants [FLAGS] [TREE]
//
// The tree, the current folder if none is named, is only read. There are two kinds of mutants.
//
// The listed ones (list.go) take away what a review found unguarded; each names the test that
// must fail by itself.
//
// The generated ones are made by operators (operators.go) of every place in the sources of an
// area: an op of a commit is left out or takes any version, a part of a condition is taken away,
// a bound is moved by one, a constant becomes the next of its kind, an assignment or a call is
// dropped. The copy is compiled once with all of them, each behind a switch. Each test runs once
// alone, to see which mutants it comes by; then each mutant is tried with these tests only. What
// is known to make no difference is in harmless.txt, with the reason.
//
// -area, -every and -seed choose generated ones; without them all mutants of both kinds are
// tried. -only chooses by a pattern of the name: 'leave out|any version' are the ops of commits.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"
)

func main() {
	var o options
	flag.StringVar(&o.only, "only", "", "apply the mutants whose names match this `pattern`")
	flag.DurationVar(&o.limit, "limit", 5*time.Minute, "how long the test of a listed mutant may take, with its build")
	flag.StringVar(&o.area, "area", "", "generate the mutants of this `area` only")
	flag.IntVar(&o.every, "every", 0, "generate every `n`th mutant only")
	flag.IntVar(&o.seed, "seed", 1, "with -every: another `number` chooses other mutants")
	flag.DurationVar(&o.most, "most", time.Minute, "try as many tests on a generated mutant as take so much processor time without it")
	flag.StringVar(&o.tests, "tests", "", "try generated mutants with the tests only whose names match this `pattern`")
	flag.BoolVar(&o.near, "near", false, "try generated mutants with the tests of their area's own folders only")
	flag.StringVar(&o.report, "report", "", "write what became of generated mutants to this `file`, in Markdown")
	flag.Parse()
	o.tree = flag.Arg(0)
	if o.tree == "" {
		o.tree = "."
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Stdout, o); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

// options are the flags and the argument.
type options struct {
	tree, only, area, report string
	tests                    string
	limit, most              time.Duration
	every, seed              int
	near                     bool
}

// run applies the mutants to a copy of the tree and prints a line for each.
func run(ctx context.Context, w io.Writer, o options) (err error) {
	areas, err := chosenAreas(o.area)
	if err != nil {
		return err
	}
	tests, err := regexp.Compile(o.tests)
	if err != nil {
		return err
	}
	only, err := regexp.Compile(o.only)
	if err != nil {
		return err
	}
	scratch, err := os.MkdirTemp("", "mutants-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(scratch)) }()
	if err := copyTree(scratch, o.tree); err != nil {
		return fmt.Errorf("copying the tree: %w", err)
	}
	var errs []error
	if o.area == "" && o.every == 0 {
		errs = append(errs, runListed(ctx, w, scratch, only, o.limit))
	}
	g := generation{every: o.every, seed: o.seed, only: only, most: o.most, near: o.near, tests: tests, tree: scratch, out: w}
	var outcomes []outcome
	for _, a := range areas {
		if ctx.Err() != nil {
			break
		}
		list, err := g.run(ctx, a)
		outcomes = append(outcomes, outcome{a, list})
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", a.name, err))
		}
	}
	for _, of := range outcomes {
		if n := of.count(survived) + of.count(unreached); n > 0 {
			errs = append(errs, fmt.Errorf("%s: %d of %d generated mutants were not killed", of.name, n, len(of.list)))
		}
	}
	if o.report != "" {
		errs = append(errs, report(o, outcomes))
	}
	return errors.Join(errs...)
}

// report writes what became of the generated mutants to a file.
func report(o options, outcomes []outcome) error {
	how := "All generated mutants."
	if o.every > 1 {
		how = fmt.Sprintf("Every %d. generated mutant, chosen with seed %d.", o.every, o.seed)
	}
	if o.only != "" {
		how += fmt.Sprintf(" Only those that match %q.", o.only)
	}
	var b bytes.Buffer
	write(&b, outcomes, how)
	return os.WriteFile(o.report, b.Bytes(), 0o644)
}

// runListed applies the mutants of the list.
func runListed(ctx context.Context, w io.Writer, tree string, only *regexp.Regexp, limit time.Duration) error {
	chosen := slices.DeleteFunc(slices.Clone(mutants), func(m mutant) bool { return !only.MatchString(m.name) })
	survived := 0
	for _, m := range chosen {
		began := time.Now()
		why, err := m.try(ctx, tree, limit)
		if err != nil {
			return fmt.Errorf("%s: %w", m.name, err)
		}
		if why != "" {
			survived++
			fmt.Fprintf(w, "SURVIVED  %s: %s\n", m.name, why)
			continue
		}
		fmt.Fprintf(w, "killed    %s, by %s in %s (%s)\n", m.name, m.test, m.in, time.Since(began).Round(100*time.Millisecond))
	}
	if survived > 0 {
		return fmt.Errorf("%d of %d mutants were not killed by the tests that name them", survived, len(chosen))
	}
	fmt.Fprintf(w, "all %d listed mutants were killed\n", len(chosen))
	return nil
}

// try runs the mutant's test without the change and with it. It returns why the
// mutant was not killed, or "".
func (m mutant) try(ctx context.Context, tree string, limit time.Duration) (why string, err error) {
	file := filepath.Join(tree, filepath.FromSlash(m.file))
	was, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	now, err := m.apply(was)
	if err != nil {
		return "", err
	}
	ran, out, err := m.runTest(ctx, tree, limit)
	if err != nil {
		return "", err
	}
	if !ran {
		return "", fmt.Errorf("%s does not pass as it is:\n%s", m.test, out)
	}
	if err := os.WriteFile(file, now, 0o600); err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, os.WriteFile(file, was, 0o600)) }()
	ran, out, err = m.runTest(ctx, tree, limit)
	switch {
	case err != nil:
		return "", err
	case ran:
		return m.test + " passes without it", nil
	case !bytes.Contains(out, []byte("--- FAIL: "+m.test)):
		return "", fmt.Errorf("%s did not fail by itself:\n%s", m.test, out)
	}
	return "", nil
}

// apply returns the text with the change.
func (m mutant) apply(text []byte) ([]byte, error) {
	if n := bytes.Count(text, []byte(m.old)); n != 1 {
		return nil, fmt.Errorf("%s has the text of mutant %q %d times, expected once: make its row in test/mutants/list.go fit\n%s", m.file, m.name, n, m.old)
	}
	return bytes.Replace(text, []byte(m.old), []byte(m.new), 1), nil
}

// runTest reports whether the mutant's test ran and passed, with its output.
func (m mutant) runTest(ctx context.Context, tree string, limit time.Duration) (passed bool, out []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	pattern := "^" + strings.ReplaceAll(m.test, "/", "$/^") + "$"
	cmd := exec.CommandContext(ctx, "go", "test", "-count", "1", "-v", "-run", pattern, "./"+m.in)
	cmd.Dir = tree
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	out, err = cmd.CombinedOutput()
	var failed *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return false, out, fmt.Errorf("%s: %w", cmd, ctx.Err())
	case err != nil && !errors.As(err, &failed):
		return false, out, err
	}
	return err == nil && bytes.Contains(out, []byte("--- PASS: "+m.test)), out, nil
}

// copyTree copies what Go builds and tests read: not what git keeps, nor what was
// built.
func copyTree(to, from string) error {
	return filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		switch {
		case name == ".git", name == "bin":
			if d.IsDir() {
				return filepath.SkipDir
			}
			return nil // a worktree's .git is a file
		case d.IsDir():
			return os.MkdirAll(filepath.Join(to, name), 0o700)
		case !d.Type().IsRegular():
			return nil
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(to, name), data, 0o600)
	})
}
