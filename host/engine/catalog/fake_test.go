package catalog

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/coordination/jobconfig"
	"github.com/wasmjob/wasmjob/host/config/definition"
	"github.com/wasmjob/wasmjob/host/engine"
	"github.com/wasmjob/wasmjob/host/sandbox/plugin"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeLoader stands in for the runtime. A module whose text ends with a full
// stop is sound unless it begins with "bad" (its own fault) or "fail" (ours);
// one that begins with "slow" is compiled when the test says so; one that begins with
// "cached" takes as long and is not compiled.
type fakeLoader struct {
	slow chan struct{} // one receive for each slow module

	mu    sync.Mutex
	loads []string // texts, in order
	open  map[*fakeModule]bool
	uses  int // executors not released
}

func newFakeLoader(t *testing.T) *fakeLoader {
	l := &fakeLoader{slow: make(chan struct{}), open: make(map[*fakeModule]bool)}
	t.Cleanup(func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if len(l.open) > 0 {
			t.Errorf("%d modules were left open", len(l.open))
		}
		if l.uses != 0 {
			t.Errorf("%d executors were left", l.uses)
		}
	})
	return l
}

func (l *fakeLoader) load(ctx context.Context, name string, wasm []byte, apart bool, _ time.Time, compiles func()) (compiled, error) {
	text := string(wasm)
	l.mu.Lock()
	l.loads = append(l.loads, text)
	l.mu.Unlock()
	switch {
	case strings.HasPrefix(text, "fail"):
		return nil, errors.New("out of luck")
	case strings.HasPrefix(text, "full"):
		return nil, &plugin.LoadError{Name: name, Problems: []string{"no space left"}, Err: plugin.ErrUnjudged}
	case strings.HasPrefix(text, "bad"):
		return nil, &plugin.LoadError{Name: name, Problems: []string{"first problem", "second problem"}}
	case !strings.HasSuffix(text, "."):
		return nil, &plugin.LoadError{Name: name, Problems: []string{"is truncated"}}
	case strings.HasPrefix(text, "slow"), strings.HasPrefix(text, "cached"):
		if strings.HasPrefix(text, "slow") {
			compiles()
		}
		select {
		case <-l.slow:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	m := &fakeModule{l, text, apart}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open[m] = true
	return m, nil
}

func (l *fakeLoader) times(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for _, t := range l.loads {
		if t == text {
			n++
		}
	}
	return n
}

func (l *fakeLoader) opened() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.open)
}

type fakeModule struct {
	l     *fakeLoader
	text  string
	alone bool
}

func (m *fakeModule) apart() bool { return m.alone }

func (m *fakeModule) bind(job string, g granted) engine.Module { return &fakeBound{m, job, g.key} }

// imports are those that the text names.
func (m *fakeModule) imports() map[string][]string {
	list := map[string][]string{}
	for _, f := range abi.CapabilityImports() {
		if strings.Contains(m.text, f.Module) {
			list[f.Module] = append(list[f.Module], f.Name)
		}
	}
	return list
}

func (m *fakeModule) close() {
	m.l.mu.Lock()
	defer m.l.mu.Unlock()
	if !m.l.open[m] {
		panic("closed twice: " + m.text)
	}
	delete(m.l.open, m)
}

type fakeBound struct {
	m       *fakeModule
	job     string
	granted string
}

func (b *fakeBound) Granted() string { return b.granted }

func (b *fakeBound) Digest() string { return digestOf(b.m.text) }

// Executor refuses a configuration whose parameter is "misfit", or that asks
// for a version that the module's text does not contain.
func (b *fakeBound) Executor(c jobconfig.Configuration) (abi.Executor, error) {
	if c.JobName != b.job {
		return nil, fmt.Errorf("module of job %q asked to run job %q", b.job, c.JobName)
	}
	if c.JobParameter == "misfit" {
		return nil, errors.New("has not the exports")
	}
	if want, ok := strings.CutPrefix(c.JobParameter, "needs "); ok && !strings.Contains(b.m.text, want) {
		return nil, fmt.Errorf("has not %s", want)
	}
	b.m.l.mu.Lock()
	defer b.m.l.mu.Unlock()
	if !b.m.l.open[b.m] {
		return nil, errors.New("module is closed")
	}
	b.m.l.uses++
	return &fakeExecutor{b.m}, nil
}

type fakeExecutor struct{ m *fakeModule }

func (e *fakeExecutor) Digest() string                                { return digestOf(e.m.text) }
func (e *fakeExecutor) HasListener(string) bool                       { return false }
func (e *fakeExecutor) NewWorker(context.Context) (abi.Worker, error) { return nil, nil }
func (e *fakeExecutor) Retain() bool                                  { return false }
func (e *fakeExecutor) Expect(time.Time)                              {}

func (e *fakeExecutor) Release() {
	e.m.l.mu.Lock()
	defer e.m.l.mu.Unlock()
	e.m.l.uses--
}

func digestOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// fakeParse reads a definition with a line "job NAME MODULE PARAMETER" for
// each job. " not=NAME" at its end names a calendar that the job, which is daily, excludes, " after=JOB" the job that it
// comes after, " inherits=N" how many bytes it has from files of defaults. A line that begins with "!" is a problem; MODULE and PARAMETER may
// be left out, the module is then the file's namesake.
func fakeParse(file string, data []byte, shared []*definition.Shared) (docs []definition.Definition, problems complaints) {
	for i, line := range strings.Split(string(data), "\n") {
		line, memory := strings.CutSuffix(line, " memory")
		line, excludes, daily := strings.Cut(line, " not=")
		line, after, chained := strings.Cut(line, " after=")
		line, inherited, _ := strings.Cut(line, " inherits=")
		line, total, _ := strings.Cut(line, " items=")
		words := strings.SplitN(line, " ", 4)
		switch {
		case line == "":
		case words[0] == "job" && len(words) > 1:
			d := definition.Definition{Line: i + 1, Module: stem(file) + ".wasm"} // in its folder
			d.Configuration.JobName = words[1]
			if len(words) > 2 {
				d.Module = beside(file, words[2])
			}
			if len(words) > 3 {
				d.Configuration.JobParameter = words[3]
			} else if len(shared) > 0 {
				real, err := definition.ParseWithin(file, []byte("shardingTotalCount: 1\n"), nil, shared...)
				if err != nil {
					return nil, about(err.Error())
				}
				d.Configuration.JobParameter = real[0].Configuration.JobParameter
			}
			d.Configuration.ShardingTotalCount, _ = strconv.Atoi(total) // 0 if it says none
			d.InheritedSize, _ = strconv.Atoi(inherited)
			if memory {
				d.Configuration.Props = map[string]string{"wasm.memoryLimit": "1048576"}
			}
			if daily {
				d.Configuration.Cron = "0 0 9 * * ?"
				d.Configuration.Props = map[string]string{"wasm.calendars.exclude": fmt.Sprintf("[%q]", excludes)}
			}
			if chained {
				d.Configuration.Props = map[string]string{"wasm.after": fmt.Sprintf(`[{"job":%q}]`, after)}
			}
			docs = append(docs, d)
		default:
			problems.Add(complaint{line: i + 1, text: line})
		}
	}
	return docs, problems
}

// put writes a file as a careful writer does: beside, then renamed.
func put(t testing.TB, dir, name, text string) {
	t.Helper()
	tmp := filepath.Join(dir, filepath.Dir(name), "."+filepath.Base(name)+".tmp")
	if err := os.WriteFile(tmp, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(tmp, filepath.Join(dir, name)); err != nil {
		t.Fatal(err)
	}
}
