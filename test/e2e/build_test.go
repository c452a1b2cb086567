// Package e2e_test runs the real program, as a user would: it builds
// the program and the example modules, starts hosts on directories of their own,
// drops files, sends signals and kills, and judges by what anybody can see:
// the history file, the log, the answers of the other commands, exit codes.
//
// Nothing here waits for a time to pass. A test waits for an event, a line or
// the end of the process, and patience bounds each wait. Most jobs are
// testdata/guest.wasm, whose items go on until the test puts a file into a
// mounted directory, so that "while an item runs" is as long as it has to be.
package e2e_test

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"time"
)

// patience is how long anything may take before a test gives up. Builds and
// hosts share a few slow cores with one another.
const patience = 60 * time.Second

func TestMain(m *testing.M) {
	flag.Parse()
	if f := flag.Lookup("test.parallel"); f.Value.String() == f.DefValue {
		// Scenarios wait more than they work.
		if err := f.Value.Set(strconv.Itoa(4 + 2*runtime.NumCPU())); err != nil {
			log.Fatal(err)
		}
	}
	// Whatever is built is built as the product is, also if these tests are not: once.
	if err := os.Setenv("CGO_ENABLED", "0"); err != nil {
		log.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "wasmjob-e2e-")
	if err != nil {
		log.Fatal(err)
	}
	artefacts.dir = dir
	code := m.Run()
	for _, end := range artefacts.closers {
		if err := end(); err != nil {
			log.Print(err)
			code = max(code, 1)
		}
	}
	if err := os.RemoveAll(dir); err != nil {
		log.Print(err)
	}
	os.Exit(code)
}

// artefacts are what the tests of one run share; each is made when it is first
// wanted, once.
var artefacts struct {
	dir string
	mu  sync.Mutex
	all map[string]*artefact
	// closers end what runs, when all tests have.
	closers []func() error
}

type artefact struct {
	once sync.Once
	err  error
}

// made returns the path of an artefact that make builds.
func made(t *testing.T, name string, build func(ctx context.Context, path string) error) string {
	t.Helper()
	artefacts.mu.Lock()
	a := artefacts.all[name]
	if a == nil {
		if artefacts.all == nil {
			artefacts.all = make(map[string]*artefact)
		}
		a = &artefact{}
		artefacts.all[name] = a
	}
	artefacts.mu.Unlock()
	path := filepath.Join(artefacts.dir, name)
	a.once.Do(func() {
		// Not the test's own context: others want the artefact, too.
		ctx, cancel := context.WithTimeout(context.Background(), 10*patience)
		defer cancel()
		a.err = build(ctx, path)
	})
	if a.err != nil {
		t.Fatalf("%s: %v", name, a.err)
	}
	return path
}

// command runs a command of the toolchain in the root of the project.
func command(ctx context.Context, env []string, name string, args ...string) error {
	c := exec.CommandContext(ctx, name, args...)
	c.Dir = filepath.Join("..", "..")
	c.Env = append(os.Environ(), env...)
	if out, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", c, err, out)
	}
	return nil
}

// wasmjob is the program. It is built without the race detector even if the
// tests are: compiling modules would take ten times as long.
func wasmjob(t *testing.T) string {
	t.Helper()
	return made(t, "wasmjob", func(ctx context.Context, path string) error {
		return command(ctx, []string{"CGO_ENABLED=0"}, "go", "build", "-trimpath", "-ldflags", "-X github.com/wasmjob/wasmjob/host/node/program.version=e2e", "-o", path, "./cmd/host")
	})
}

// cache is the directory for compiled modules that all hosts of a run share.
func cache(t *testing.T) string {
	t.Helper()
	return made(t, "cache", func(_ context.Context, path string) error { return os.Mkdir(path, 0o700) })
}

// example is the module of an example, compiled once for all hosts.
func example(t *testing.T, name string) string {
	t.Helper()
	program, compiled := wasmjob(t), cache(t)
	return made(t, name+".wasm", func(ctx context.Context, path string) error {
		args := []string{"build", "-C", "plugins/examples/" + name, "-trimpath", "-ldflags", "-s -w"}
		if name != "script" {
			args = append(args, "-buildmode=c-shared")
		}
		env := []string{"GOOS=wasip1", "GOARCH=wasm", "CGO_ENABLED=0"}
		if err := command(ctx, env, "go", append(args, "-o", path, ".")...); err != nil {
			return err
		}
		return command(ctx, nil, program, "validate", "--cache", compiled, path)
	})
}

// exampleNames are the folders of the examples.
func exampleNames(t *testing.T) []string {
	t.Helper()
	sources, err := filepath.Glob("../../plugins/examples/*/main.go")
	if err != nil || len(sources) == 0 {
		t.Fatalf("no examples: %v", err)
	}
	var names []string
	for _, s := range sources {
		names = append(names, filepath.Base(filepath.Dir(s)))
	}
	return names
}

// guest is a version of testdata/guest.wasm; what it logs for "say" is
// "here is version N", and its digest is its own.
func guest(t *testing.T, version int) []byte {
	t.Helper()
	wasm := read(t, "testdata/guest.wasm")
	text := []byte("version 1")
	if version < 1 || version > 9 || bytes.Count(wasm, text) != 1 {
		t.Fatalf("guest.wasm has no version %d", version)
	}
	return bytes.Replace(wasm, text, []byte("version "+strconv.Itoa(version)), 1)
}

func read(t *testing.T, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return data
}
