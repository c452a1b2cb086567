// Command mutants takes guards out of a copy of the tree, one after the other,
// and says which test noticed. It fails if a test stays green without the guard
// that it is there for.
//
//	mutants [FLAGS] [TREE]
//
// The tree, the current folder if none is named, is only read. Names of mutants
// are matched as a part of the text by -only.
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
	"slices"
	"strings"
	"time"
)

func main() {
	only := flag.String("only", "", "apply the mutants whose names contain this `text`")
	limit := flag.Duration("limit", 5*time.Minute, "how long a test may take, with its build")
	flag.Parse()
	tree := flag.Arg(0)
	if tree == "" {
		tree = "."
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Stdout, tree, *only, *limit); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

// run applies the mutants to a copy of the tree and prints a line for each.
func run(ctx context.Context, w io.Writer, tree, only string, limit time.Duration) (err error) {
	chosen := slices.DeleteFunc(slices.Clone(mutants), func(m mutant) bool { return !strings.Contains(m.name, only) })
	if len(chosen) == 0 {
		return fmt.Errorf("no mutant has %q in its name", only)
	}
	scratch, err := os.MkdirTemp("", "mutants-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(scratch)) }()
	if err := copyTree(scratch, tree); err != nil {
		return fmt.Errorf("copying the tree: %w", err)
	}
	survived := 0
	for _, m := range chosen {
		began := time.Now()
		why, err := m.try(ctx, scratch, limit)
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
	fmt.Fprintf(w, "all %d mutants were killed\n", len(chosen))
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
